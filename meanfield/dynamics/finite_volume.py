"""Finite volumes for d_t mu + div(mu v[mu]) = 0 on the cells of a mesh."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from meanfield.dynamics.schemes import (
    TINY,
    ConstantReconstruction,
    FieldVelocity,
    LeastSquares,
    LinearReconstruction,
    TwoPointVelocity,
    divergence_matrix,
)
from meanfield.dynamics.timestepping import EULER, SSPRK3, Frame, SSPMethod, even_step
from meanfield.errors import NonFiniteError, StiffnessError
from meanfield.model.attention import SelfAttention
from meanfield.sphere.meshes import Mesh

MAX_CFL = 0.5  # at most half of a cell's mass may leave it in an Euler step of constant density
MAX_SKEWNESS = 0.4  # beyond it a difference across an edge is no derivative at its midpoint
RESPONSE = 0.25  # largest dt ||V||: the nonlocal response of the velocity stays resolved


@dataclass(frozen=True, eq=False)
class Rates:
    """Right-hand side of the semi-discrete equation at one instant.

    Attributes
    ----------
    masses : ndarray, shape (cells,)
        d(masses)/dt.
    outflow : float
        Largest rate at which a constant density leaves a cell, max_i sum (l v)_+ / A_i.
    largest : float
        Largest potential for the unnormalised flow, else one: it sets the time scale.
    log_energy : float
    energy_rates : ndarray, shape (2,)
        d(log E)/dt as the fluxes change it, and from the dissipation integral.
    """

    masses: np.ndarray
    outflow: float
    largest: float
    log_energy: float
    energy_rates: np.ndarray


def takes_differences(mesh: Mesh, model: SelfAttention) -> bool:
    """Whether edge velocities are differences of the potential, so that the energy is monotone.

    Examples
    --------
    >>> from meanfield.sphere.meshes import circle
    >>> takes_differences(circle(8), SelfAttention([1.0, 2.0], V=[[0.0, 1.0], [-1.0, 0.0]]))
    False
    """
    return model.is_gradient and mesh.orthogonal and mesh.skewness <= MAX_SKEWNESS


class FiniteVolumes:
    """The semi-discrete equation: masses to their rates of change.

    Parameters
    ----------
    mesh : Mesh
    model : SelfAttention
    order : {1, 2}
        Piecewise constant or linear densities.

    Notes
    -----
    For gradient models on orthogonal meshes that are not too skew, velocities are differences
    of the potential across edges, and dE/dt = 2 sum_e F_e (Z_j - Z_i) has one sign. For other
    models and meshes the velocity is the field at the edge midpoints, and the energy is not
    monotone by construction.
    """

    def __init__(self, mesh: Mesh, model: SelfAttention, order: int = 2):
        self.mesh, self.model, self.order = mesh, model, order
        self.bound = model.on(mesh).integrals
        self.slopes = LeastSquares(mesh, mesh.points)
        self.reconstruction = (ConstantReconstruction, LinearReconstruction)[order - 1](mesh)
        self.two_point = takes_differences(mesh, model)
        if self.two_point:
            self.velocity = TwoPointVelocity(mesh, self.slopes)
        else:
            self.velocity = FieldVelocity(mesh, model)
        self.divergence = divergence_matrix(mesh)
        self._collect = abs(self.divergence)
        self._unit = 1 / mesh.areas.sum()

    def rates(self, masses: np.ndarray) -> Rates:
        """Evaluate the right-hand side: shape (cells,) to `Rates`."""
        model = self.model
        log_z = self.bound.log_potential(masses)
        phi = log_z if model.normalized else np.exp(log_z)
        gradient = self.slopes.gradient(phi)
        if self.two_point:
            velocity = self.velocity(phi, gradient)
            if model.sign < 0:
                np.negative(velocity, out=velocity)
        else:
            velocity = self.velocity(masses)
        velocity *= self.mesh.edge_lengths
        flux = self.reconstruction.upwind(masses / self.mesh.weights, velocity)
        flux[flux < TINY] = 0.0
        flux *= velocity
        flux *= self._unit
        change = self.divergence @ flux
        # Twice the outflow of a cell is the sum of |l v| minus its net inflow.
        outflow = -(self.divergence @ velocity)
        outflow += self._collect @ np.abs(velocity, out=velocity)
        outflow /= self.mesh.areas
        log_energy, energy_rates = self._energy(masses, log_z, gradient, change)
        return Rates(
            masses=change,
            outflow=float(outflow.max()) / 2,
            largest=1.0 if model.normalized else float(phi.max()),
            log_energy=log_energy,
            energy_rates=energy_rates,
        )

    def _energy(self, masses, log_z, gradient, change):
        """log E, and d(log E)/dt in two ways; relative rates never overflow."""
        scaled = np.exp(log_z - log_z.max())
        energy = np.dot(masses, scaled)
        log_energy = float(np.log(energy) + log_z.max())
        rates = np.full(2, np.nan)
        if self.model.interaction.symmetric:
            # sum_e F_e (Z_j - Z_i) by parts; the mean of Z drops out and with it round-off.
            rates[0] = 2 * np.dot(change, scaled - energy) / energy
        if self.model.is_gradient:
            squares = np.einsum("ia,ia->i", gradient, gradient)
            if self.model.normalized:
                dissipation = np.dot(masses, scaled * squares) / energy
            else:
                dissipation = np.dot(masses, squares) * np.exp(-log_energy)
            rates[1] = 2 * self.model.sign * dissipation
        return log_energy, rates

    def largest_step(self, rates: Rates, cfl: float) -> float:
        """Time step for the CFL number, bounded by the response time of the velocity."""
        response = RESPONSE / max(self.model.value_norm * rates.largest, 1e-300)
        return min(cfl / max(rates.outflow, 1e-300), response)

    def step(self, masses, state, rates: Rates, dt: float, method: SSPMethod):
        """One Runge-Kutta step; None if a stage would leave the safe CFL number.

        Returns
        -------
        tuple (masses, state) or None, and the largest CFL number of the stages
        """
        stage, accumulated, largest = masses, state, 0.0
        for number, keep in enumerate(method.keep):
            if number:
                rates = self.rates(stage)
            largest = max(largest, dt * rates.outflow)
            if not largest <= MAX_CFL:
                return None, largest
            stage = stage + dt * rates.masses
            accumulated = accumulated + dt * rates.energy_rates
            if keep:
                stage *= 1 - keep
                stage += keep * masses
                accumulated = keep * state + (1 - keep) * accumulated
            if not stage.min() >= 0:
                return None, largest
        return (stage, accumulated), largest


def frames(
    mesh: Mesh,
    model: SelfAttention,
    masses,
    times,
    order: int = 2,
    cfl: float = 0.45,
    start: Frame | None = None,
    every_step: bool = False,
) -> Iterator[Frame]:
    """Evolve masses and yield a frame at every save time.

    Parameters
    ----------
    mesh, model, order, cfl
        As in `evolve`.
    masses : ndarray, shape (cells,)
        At time zero.
    times : ndarray, shape (t,)
        Save times, increasing.
    start : Frame, optional
        Go on from this instant of an earlier run with the same ``times`` instead: the frames
        after it are bit for bit those of an uninterrupted run. (Times that were not yet
        reached may differ, if the instant is a saved frame.)
    every_step : bool
        Also yield the instant after every step, with ``saved`` False.

    Yields
    ------
    Frame
    """
    scheme = FiniteVolumes(mesh, model, order)
    method = EULER if order == 1 else SSPRK3
    time, steps, largest = 0.0, 0, 0.0
    rates = scheme.rates(masses if start is None else start.masses)
    state = np.full(2, rates.log_energy)
    if start is not None:
        masses, time, state = start.masses, start.time, start.state
        steps, largest = int(start.audit["steps"]), start.audit["cfl"]
        times = times[times > time]
    for target in times:
        while time < target:
            dt = even_step(target - time, scheme.largest_step(rates, cfl))
            result, number = scheme.step(masses, state, rates, dt, method)
            while result is None:
                dt = _smaller(dt, number, cfl, time)
                result, number = scheme.step(masses, state, rates, dt, method)
            masses, state = result
            time = target if dt >= target - time else time + dt
            steps, largest = steps + 1, max(largest, number)
            rates = scheme.rates(masses)
            if not (np.isfinite(rates.masses).all() and np.isfinite(rates.log_energy)):
                raise NonFiniteError(f"a value became NaN or infinite after t = {time:g}")
            if every_step and time < target:
                audit = {"steps": float(steps), "cfl": float(largest)}
                yield Frame(float(time), masses, audit, state, saved=False)
        yield Frame(
            float(target), masses, _audit(scheme, masses, rates, state, steps, largest), state
        )


def _smaller(dt: float, number: float, cfl: float, time: float) -> float:
    """A smaller step after one that a stage refused."""
    if not np.isfinite(number):
        raise NonFiniteError(f"a value became NaN or infinite after t = {time:g}")
    smaller = dt * min(0.5, cfl / max(number, 1e-300))
    if time + smaller == time:
        raise StiffnessError(f"no positive time step is possible at t = {time:g}")
    return smaller


def _audit(scheme, masses, rates: Rates, state, steps, largest) -> dict[str, float]:
    model = scheme.model
    with np.errstate(over="ignore"):
        energy = float(np.exp(rates.log_energy))
    dissipation = np.nan
    if model.is_gradient:
        # Z |v|^2 (|v|^2 unnormalised) integrated: half the rate of E, with the sign taken off.
        dissipation = energy * abs(rates.energy_rates[1]) / 2 if rates.energy_rates[1] else 0.0
    return {
        "mass_error": float(masses.sum() - 1),
        "log_energy": rates.log_energy,
        "energy": energy,
        "dissipation": float(dissipation),
        "residual": float(rates.log_energy - state[0]),
        "residual_independent": float(rates.log_energy - state[1]),
        "cfl": float(largest),
        "min_density": float((masses / scheme.mesh.weights).min()),
        "cells_99": float(cells_holding(masses, 0.99)),
        "steps": float(steps),
    }


def cells_holding(masses: np.ndarray, fraction: float) -> int:
    """The smallest number of cells that together hold this fraction of the mass.

    Examples
    --------
    >>> cells_holding(np.array([0.5, 0.25, 0.25]), 0.6)
    2
    """
    total = np.cumsum(np.sort(masses)[::-1])
    return int(np.searchsorted(total, fraction * total[-1]) + 1)
