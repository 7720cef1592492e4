"""The speed of curves of measures in W_m, and how far they are from steepest descent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.integrate import simpson

from meanfield.errors import InputError
from meanfield.model.attention import SelfAttention
from meanfield.sphere.geometry import tangential
from meanfield.transport.cloud_action import GAUSS_NODES, GAUSS_WEIGHTS, along_arcs
from meanfield.transport.geodesic import Geodesic


@dataclass(frozen=True)
class MaximalSlope:
    """The terms of the energy dissipation inequality of a curve of measures.

    Attributes
    ----------
    energy_change : float
        ``E2(mu_T) - E2(mu_0)`` with ``E2 = 1/2 int int W dmu dmu``, ``W = -s K`` for V = s D.
    kinetic : float
        ``1/2 int int m |v|^2 dmu dt``, half the integral of the squared metric speed.
    slope : float
        ``1/2 int int |grad W[mu]|^2 / m dmu dt``.
    """

    energy_change: float
    kinetic: float
    slope: float

    @property
    def defect(self) -> float:
        """The sum of the three: zero along the gradient flow, positive along other curves."""
        return self.energy_change + self.kinetic + self.slope


def metric_speed(run) -> np.ndarray:
    """The metric derivative ``|mu'| = (int Z |v|^2 dmu)^(1/2)`` of a curve of measures in W_m.

    Parameters
    ----------
    run : Evolution, ParticleEvolution, CharacteristicEvolution, or Geodesic
        A normalised flow moves in W_m with the kernel of its model; an unnormalised one in W_2.

    Returns
    -------
    ndarray, shape (t,)
        At the saved times of a run; shape (T,) in the intervals of a geodesic.

    Raises
    ------
    InputError
        For an ensemble, several heads, or something that is no run.

    References
    ----------
    Burger, Kabri, Korolev, Roith, Weigand (2025), Lemma 2.4.

    Examples
    --------
    >>> from meanfield.dynamics.particles import evolve_particles
    >>> run = evolve_particles([[1.0, 0.0], [0.6, 0.8]], SelfAttention([1.0, 2.0]), 1.0, save=3)
    >>> metric_speed(run).round(4).tolist()
    [0.7107, 1.0865, 1.1724]
    """
    if isinstance(run, Geodesic):
        return run.speed.copy()
    model = _model_of(run, gradient=False)
    return np.array(
        [np.sqrt(_state(model, points, masses).power) for points, masses in _frames(run)]
    )


def maximal_slope(curve, model: SelfAttention | None = None, duration=None) -> MaximalSlope:
    """How far a curve of measures is from the gradient flow: its energy dissipation inequality.

    ``E2(mu_T) - E2(mu_0) + 1/2 int int m |v|^2 + 1/2 int int |grad W|^2 / m >= 0``, with equality
    exactly for the flow of the model.

    Parameters
    ----------
    curve : Evolution, ParticleEvolution, CharacteristicEvolution, or Geodesic
        A flow of its model, integrated over its saved times by Simpson's rule; or a geodesic,
        for clouds along the arcs of the particles.
    model : SelfAttention, optional
        The flow it is compared with: V = +-D, D symmetric. For a geodesic it must be given; for a
        run it is that of the run.
    duration : float, > 0, optional
        For a geodesic: the time T in which it is passed, at constant speed; 1 by default.

    Returns
    -------
    MaximalSlope

    Raises
    ------
    InputError
        If the model is no gradient flow, or is missing.

    Notes
    -----
    An unnormalised model has m = 1: it descends in W_2.

    References
    ----------
    Burger, Kabri, Korolev, Roith, Weigand (2025), eq. (2.8), Lemmas 2.7 and 2.9; the sign of W is
    corrected.

    Examples
    --------
    >>> from meanfield.dynamics.particles import evolve_particles
    >>> start = [[1.0, 0.0], [0.6, 0.8], [-0.8, 0.6]]
    >>> run = evolve_particles(start, SelfAttention([1.0, 2.0]), 1.0, save=41)
    >>> abs(maximal_slope(run).defect) < 1e-6
    True
    """
    if isinstance(curve, Geodesic):
        return _slope_of_geodesic(
            curve, _gradient_model(model), 1.0 if duration is None else duration
        )
    if model is not None or duration is not None:
        raise InputError("a run has its own model and times: give neither model nor duration")
    model = _model_of(curve, gradient=True)
    states = [_state(model, points, masses) for points, masses in _frames(curve)]
    return MaximalSlope(
        _energy_change(model, states[0], states[-1]),
        float(simpson([state.power for state in states], x=curve.times)) / 2,
        float(simpson([state.slope for state in states], x=curve.times)) / 2,
    )


def curve_slope(points, masses, times, model: SelfAttention) -> MaximalSlope:
    """`maximal_slope` of particles that run along arcs between given places.

    Parameters
    ----------
    points : ndarray, shape (T + 1, N, n)
        Unit vectors.
    masses : ndarray, shape (N,)
    times : ndarray, shape (T + 1,)
        Increasing.
    model : SelfAttention

    Returns
    -------
    MaximalSlope
        Of this very curve, up to the error of Gauss quadrature with three nodes in each interval.

    Examples
    --------
    >>> still = np.tile(np.eye(2), (2, 1, 1))
    >>> curve_slope(still, np.full(2, 0.5), np.array([0.0, 1.0]), SelfAttention([1.0, 2.0])).kinetic
    0.0
    """
    model = _gradient_model(model)
    kinetic = slope = 0.0
    for start, end, duration in zip(points[:-1], points[1:], np.diff(times), strict=True):
        for node, weight in zip(GAUSS_NODES, GAUSS_WEIGHTS, strict=True):
            places, velocities = along_arcs(start, end, (1 + node) / 2)
            state = _state(model, places, masses, velocities / duration)
            kinetic += weight / 2 * duration * state.power / 2
            slope += weight / 2 * duration * state.slope / 2
    ends = (_state(model, points[k], masses) for k in (0, -1))
    return MaximalSlope(_energy_change(model, *ends), float(kinetic), float(slope))


@dataclass(frozen=True)
class _State:
    """Of a measure that moves: its energy E, int m |v|^2 dmu, and int |grad Z|^2 / m dmu."""

    energy: float
    power: float
    slope: float


def _state(model, points, masses, velocities=None) -> _State:
    bound = model.interaction.on(points)
    potential = bound.potential(masses)
    gradient = potential[:, None] * tangential(
        points, bound.average(masses, points @ model.interaction.D.T)
    )
    if velocities is None:
        velocities = model.on(points).velocity(masses)
    mobility = potential if model.normalized else np.ones_like(potential)
    return _State(
        float(masses @ potential),
        float(masses @ (mobility * np.sum(velocities**2, axis=1))),
        float(masses @ (np.sum(gradient**2, axis=1) / mobility)),
    )


def _energy_change(model, first: _State, last: _State) -> float:
    return -model.sign * (last.energy - first.energy) / 2


def _slope_of_geodesic(curve: Geodesic, model: SelfAttention, duration: float) -> MaximalSlope:
    if not (np.isfinite(duration) and duration > 0):
        raise InputError(f"duration must be > 0, got {duration!r}")
    if curve.kind == "cloud":
        return curve_slope(curve.points, curve.masses, duration * curve.times, model)
    middles = (curve.masses[:-1] + curve.masses[1:]) / 2
    states = [
        _state(model, curve.points, masses, velocities / duration)
        for masses, velocities in zip(middles, curve.velocities, strict=True)
    ]
    steps = np.diff(curve.times) * duration
    ends = (_state(model, curve.points, curve.masses[k]) for k in (0, -1))
    return MaximalSlope(
        _energy_change(model, *ends),
        float(steps @ [state.power for state in states]) / 2,
        float(steps @ [state.slope for state in states]) / 2,
    )


def _frames(run) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Points and masses at the saved times of a run on a mesh, or of moving points."""
    if hasattr(run, "mesh"):
        for masses in run.masses:
            yield run.mesh.points, masses
        return
    masses = run.weights if hasattr(run, "weights") else run.masses
    for points in run.points:
        yield points, masses


def _model_of(run, gradient: bool) -> SelfAttention:
    model = getattr(run, "model", None)
    if not hasattr(run, "times") or model is None:
        raise InputError(f"a run or a geodesic is needed, got {type(run).__name__}")
    if not hasattr(run, "mesh") and np.ndim(run.points) != 3:
        raise InputError("an ensemble has many curves: choose one, run.start(k)")
    if not isinstance(model, SelfAttention):
        raise InputError("several heads have no kernel of their own: the run needs one head")
    return _gradient_model(model) if gradient else model


def _gradient_model(model) -> SelfAttention:
    if not isinstance(model, SelfAttention):
        raise InputError("give the model of the flow to compare with, a SelfAttention")
    if not model.is_gradient:
        raise InputError(f"{model} is no gradient flow: that needs V = +-D and a symmetric D")
    return model
