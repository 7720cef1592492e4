"""Geodesics of W_m between point clouds: particles that choose their paths together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from meanfield.arguments import whole
from meanfield.dynamics.timestepping import with_progress
from meanfield.errors import InputError, SizeError
from meanfield.measures import Measure
from meanfield.sphere.geometry import distance
from meanfield.transport.circular import optimal_shift
from meanfield.transport.cloud_action import CloudAction, PathCoordinates, swap_costs
from meanfield.transport.cloud_starts import (
    Coupling,
    arcs,
    cheaper_plan,
    circular_coupling,
    coupling_of_plan,
)
from meanfield.transport.geodesic import Geodesic
from meanfield.transport.kernels import Kernel
from meanfield.transport.wasserstein import optimal_plan, simplex_plan, turns

DEFAULT_PARTICLES = 48
MAX_EVALUATIONS = 10**8  # kernel values for one gradient of the action: about a second
RESTARTS = 6  # charts one after another, until the last one changes nothing
MEMORY = 12  # pairs that L-BFGS remembers
TOLERANCE = 1e-4  # of the residual; the error of the action is about its square
FIRST_SHIFT = 1 / 8  # of the mass on S^1 that is sent the other way around, at first
SHIFTS = 4  # shifts that are tried for each recoupling
SAME = 1e-14  # in radians: a shorter way is round-off
GAIN = 1e-7  # relative: a new coupling must lower the action by more


def cloud_geodesic(
    a: Measure,
    b: Measure,
    kernel: Kernel,
    steps: int = 32,
    particles: int | None = None,
    starts: int = 4,
    seed: int = 0,
    recouplings: int = 3,
    tolerance: float = TOLERANCE,
    max_iterations: int = 500,
    progress: bool = False,
) -> Geodesic:
    """A curve of least action between two point clouds, over paths and couplings.

    The masses of an optimal coupling for W_2 are split into particles. Their paths start as arcs,
    and as arcs that are bowed at random, and are improved by L-BFGS. Then the coupling is
    improved, in two ways: where exchanging futures between particles lowers the action, they are
    exchanged (and split); and other couplings are tried, the one that is best for the potential
    of the curve found so far, on S^1 those that send more or less mass around the other way. The
    shortest curve of all is returned.

    Parameters
    ----------
    a, b : Measure
        On the unit sphere.
    kernel : Kernel
    steps : int, >= 1
        Intervals T of time.
    particles : int, optional
        About how many particles carry the masses, at least one for each pair of the coupling;
        48 by default.
    starts : int, >= 1
        The first is not bowed.
    seed : int
        Of the bowed starts.
    recouplings : int, >= 0
        Attempts to improve the coupling.
    tolerance : float, > 0
        Of the residual.
    max_iterations : int
        Of L-BFGS, for each start and coupling.
    progress : bool
        Show a progress bar over the starts on a terminal.

    Returns
    -------
    Geodesic
        ``distance`` is the length of a curve that exists, by quadrature accurate to O(1/T^6): an
        upper bound of W_m, which more particles and starts can lower.

    Raises
    ------
    InputError
        For options out of range.
    SizeError
        If one evaluation would need more than 1e8 kernel values.

    Notes
    -----
    The residual is ``|g| / (2 sqrt(A))`` for the action A and its gradient g in coordinates in
    which a small shift of the paths has its square as action: the relative change of the velocity
    that one more step would bring. Stationary does not mean shortest.

    References
    ----------
    Burger, Kabri, Korolev, Roith, Weigand (2025), eq. (2.3).

    Examples
    --------
    >>> from meanfield.transport.kernels import as_kernel
    >>> found = cloud_geodesic(
    ...     Measure([[1.0, 0.0]]), Measure([[0.0, 1.0]]), as_kernel(4.0, 2), steps=4
    ... )
    >>> round(found.distance / np.pi, 12)
    1.0
    """
    steps, starts = whole(steps, "steps", 1), whole(starts, "starts", 1)
    recouplings, seed = whole(recouplings, "recouplings", 0), whole(seed, "seed", 0)
    max_iterations = whole(max_iterations, "max_iterations", 0)
    wanted = whole(DEFAULT_PARTICLES if particles is None else particles, "particles", 1)
    if not (np.isfinite(tolerance) and tolerance > 0):
        raise InputError(f"tolerance must be > 0, got {tolerance!r}")
    _check_size(max(len(a), len(b), wanted), steps)
    plan = optimal_plan(a, b)
    simple = kernel.constant or plan.cost <= SAME**2
    attempts = 0 if simple else recouplings
    search = _Search(a, b, kernel, steps, wanted, attempts, tolerance, max_iterations)
    tried = 1 if simple else starts
    streams = [np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(tried)]
    descents = (
        search.descend(coupling_of_plan(a, b, plan, wanted, stream), number, stream)
        for number, stream in enumerate(streams)
    )
    found = list(with_progress(descents, tried, progress))
    best = min(found, key=lambda one: one.value)
    best, couplings = search.other_couplings(best)
    history = [float(np.sqrt(one.value)) for one in found]
    parameters = {
        "verb": "mobility_distance",
        "steps": steps,
        "particles": particles,
        "starts": starts,
        "seed": seed,
        "recouplings": recouplings,
        "tolerance": tolerance,
        "max_iterations": max_iterations,
        "particle_count": len(best.action.masses),
        "start_distances": history,
        "coupling_distances": couplings,
        **kernel.parameters(),
    }
    return best.geodesic(parameters)


def _check_size(particles: int, steps: int) -> None:
    values = steps * particles**2
    if values > MAX_EVALUATIONS:
        raise SizeError(
            f"{particles:,} particles and {steps} steps need {values:.2g} kernel values at once, "
            f"at most {MAX_EVALUATIONS:.0e} are taken: use fewer points or steps"
        )


@dataclass(frozen=True, eq=False)
class _Search:
    """What all descents have in common."""

    a: Measure
    b: Measure
    kernel: Kernel
    steps: int
    particles: int
    recouplings: int
    tolerance: float
    max_iterations: int

    def descend(self, coupling: Coupling, number: int = 0, generator=None) -> _Descent:
        """The best paths from one start, with exchanged futures."""
        _check_size(len(coupling.masses), self.steps)
        paths = arcs(coupling, self.steps, generator, number)
        action = CloudAction(self.kernel, coupling.masses)
        found = _Descent(action, paths, self.tolerance, self.max_iterations)
        return found.recoupled(self.recouplings)

    def other_couplings(self, best: _Descent) -> tuple[_Descent, list[float]]:
        """The best descent after trying other couplings, and the lengths they had."""
        if self.recouplings == 0 or best.value == 0:
            return best, []
        if self.a.dimension == 2:
            return self._shifted(best)
        lengths = []
        for _ in range(self.recouplings if min(len(self.a), len(self.b)) > 1 else 0):
            plan = cheaper_plan(self.a, self.b, self.kernel, best.paths, best.action.masses)
            generator = np.random.default_rng(len(lengths))
            coupling = coupling_of_plan(self.a, self.b, plan, self.particles, generator)
            other = self.descend(coupling)
            lengths.append(float(np.sqrt(other.value)))
            if other.value > best.value * (1 - GAIN):
                break
            best = other
        return best, lengths

    def _shifted(self, best: _Descent) -> tuple[_Descent, list[float]]:
        """On S^1 good paths do not cross: one number says how many go which way around."""
        (x, u), (y, v) = (
            (turns(each.points[each.masses > 0]), each.masses[each.masses > 0])
            for each in (self.a, self.b)
        )
        shift, step = optimal_shift(x, u, y, v, 2), FIRST_SHIFT
        here = self.descend(circular_coupling(self.a, self.b, shift, self.particles))
        lengths = [float(np.sqrt(here.value))]
        while step > 0.5 / self.particles and len(lengths) <= SHIFTS * self.recouplings:
            for trial in (shift + step, shift - step):
                other = self.descend(circular_coupling(self.a, self.b, trial, self.particles))
                lengths.append(float(np.sqrt(other.value)))
                if other.value < here.value * (1 - GAIN):
                    shift, here = trial, other
                    break
            else:
                step /= 2
        return min(best, here, key=lambda one: one.value), lengths


class _Descent:
    """Paths of least action near given ones, for fixed masses."""

    def __init__(self, action: CloudAction, paths, tolerance: float, max_iterations: int):
        self.action, self.tolerance, self.limit = action, tolerance, max_iterations
        self.paths = paths
        self.value, self.residual = action.value_and_gradient(paths)[0], 0.0
        if self.value > 0 and len(paths) > 2:
            self._improve()

    def _improve(self) -> None:
        for _ in range(RESTARTS):
            before = self.value
            squares = distance(self.paths[:-1], self.paths[1:]) ** 2 @ self.action.masses
            if len(squares) * squares.sum() <= SAME**2:
                return
            potential = self.value / (len(squares) * squares.sum())
            chart = PathCoordinates(self.paths, self.action.masses, potential)
            found = minimize(
                chart.value_and_gradient,
                np.zeros(chart.size),
                args=(self.action,),
                jac=True,
                method="L-BFGS-B",
                options={
                    "maxiter": self.limit,
                    "maxfun": 2 * self.limit,
                    "maxcor": MEMORY,
                    "ftol": 1e-15,
                    "gtol": self.tolerance * np.sqrt(before) / np.sqrt(chart.size),
                },
            )
            self.paths, self.value = chart.paths(found.x), float(found.fun)
            self.residual = float(np.linalg.norm(found.jac) / (2 * np.sqrt(self.value)))
            if self.residual <= self.tolerance or before - self.value <= GAIN * before:
                return

    def recoupled(self, attempts: int) -> _Descent:
        """The result after exchanges of futures between particles that lower the action."""
        best = self
        for _ in range(attempts):
            proposal = best._exchanged()
            if proposal is None:
                break
            paths, masses = proposal
            action = CloudAction(self.action.kernel, masses)
            found = _Descent(action, paths, self.tolerance, self.limit)
            if found.value > best.value * (1 - GAIN):
                break
            best = found
        return best

    def _exchanged(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Paths and masses with the best coupling in the interval where it gains most."""
        masses, best, gain = self.action.masses, None, GAIN * self.value / (len(self.paths) - 1)
        for k, (start, end) in enumerate(zip(self.paths[:-1], self.paths[1:], strict=True)):
            costs = swap_costs(self.action, start, end)
            rows, columns, shares = simplex_plan(costs, masses, masses)
            lowered = masses @ np.diag(costs) - shares @ costs[rows, columns]
            if lowered * (len(self.paths) - 1) > gain:
                gain, best = lowered * (len(self.paths) - 1), (k, rows, columns, shares)
        if best is None:
            return None
        k, rows, columns, shares = best
        paths = np.concatenate([self.paths[: k + 1, rows], self.paths[k + 1 :, columns]])
        return paths, shares / shares.sum()

    def geodesic(self, parameters: dict) -> Geodesic:
        """The result, with its length by quadrature along the arcs."""
        steps = len(self.paths) - 1
        angle = distance(self.paths[:-1], self.paths[1:])[..., None]
        chord = self.paths[1:] - self.paths[:-1]
        length = np.linalg.norm(chord, axis=-1, keepdims=True)
        unit = np.divide(chord, length, out=np.zeros_like(chord), where=length > 0)
        speed = self.action.speeds(self.paths)
        return Geodesic(
            kind="cloud",
            distance=float(speed.mean()),
            times=np.linspace(0.0, 1.0, steps + 1),
            points=self.paths,
            masses=self.action.masses,
            velocities=steps * angle * unit,
            speed=speed,
            converged=self.residual <= self.tolerance,
            residual=self.residual,
            parameters=parameters,
        )
