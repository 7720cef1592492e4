"""`evolve_particles` and `transformer`: tokens in, their evolution out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from meanfield.dynamics.evolution import MAX_SPEED
from meanfield.dynamics.particle_adaptive import AdaptiveStarts
from meanfield.dynamics.particle_evolution import ParticleEvolution
from meanfield.dynamics.particle_fields import chunk_size, heads_of
from meanfield.dynamics.particle_methods import Interval, SteppedStarts, fixed_step_method
from meanfield.dynamics.particle_starts import particle_weights, starting_points
from meanfield.dynamics.timestepping import DEFAULT_FRAMES, save_times, with_progress
from meanfield.errors import InputError, NonFiniteError, StiffnessError
from meanfield.model.attention import SelfAttention
from meanfield.model.heads import MultiHead

DEFAULT_STEP = 0.05
DEFAULT_TOLERANCE = 1e-8
SMALLEST_TOLERANCE = 1e-13  # below it round-off decides about the steps
WHOLE = 1e-9  # a number of steps this close to a whole one is whole


@dataclass(frozen=True, eq=False)
class ParticleFrame:
    """One saved instant: time, points (starts, N, n), and when each start stopped, or NaN."""

    time: float
    points: np.ndarray
    stopped: np.ndarray


@dataclass(frozen=True)
class Plan:
    """How a run goes: its intervals between frames, and the options that matter in them."""

    intervals: tuple[Interval, ...]
    method: str
    step: float | None = None
    tolerance: float | None = None
    stationary: float | None = None


def evolve_particles(
    points,
    model,
    t_end: float,
    weights=None,
    method: str = "adaptive",
    step: float | None = None,
    save=None,
    tolerance: float | None = None,
    stationary: float | None = None,
    normalize: bool = False,
    progress: bool = False,
) -> ParticleEvolution:
    """Move weighted particles on S^{n-1}, any n >= 2, along the attention flow.

    ``dx_i/dt = P_{x_i} sum_j a_j K(x_i, x_j) V x_j / sum_j a_j K(x_i, x_j)`` for a normalised
    model, without the denominator for an unnormalised one.

    Parameters
    ----------
    points : array_like, shape (N, n), or (starts, N, n) for an ensemble
        Unit vectors. The starts of an ensemble are independent, and computed as one batch.
    model : SelfAttention or MultiHead
    t_end : float, > 0
    weights : array_like, shape (N,), optional
        Nonnegative, summing to one, the same for all starts; equal when omitted.
    method : str
        ``"adaptive"`` (DOP853 with error control), or with fixed steps ``"projected_euler"``
        (exactly eq. (5.1); order 1), ``"geodesic_euler"`` (1), ``"projected_midpoint"``,
        ``"geodesic_midpoint"`` (2), ``"projected_rk4"``, ``"geodesic_rk4"`` (4).
    step : float, optional
        Length of fixed steps, 0.05 by default. It is shortened so that a whole number of
        steps reaches ``t_end``, and each save time where those are given as a list.
    save : int or array_like, optional
        Number of frames from 0 to t_end, or the times themselves; 21 frames by default. With
        fixed steps a number of frames falls on the nearest steps.
    tolerance : float, optional
        Relative and absolute tolerance of ``"adaptive"``, 1e-8 by default, at least 1e-13.
    stationary : float, optional
        Stop a start when its fastest particle is at most this fast (looked at after every
        adaptive step, every tenth fixed step); the run ends when all have stopped.
    normalize : bool
        Scale starting points to the sphere instead of refusing those off it by over 1e-5.
    progress : bool
        Show a progress bar on a terminal.

    Returns
    -------
    ParticleEvolution

    Raises
    ------
    InputError
        For arguments out of range (`PointsError`, `DensityError` for points and weights).
    StiffnessError
        If the unnormalised flow is too fast for time steps.
    NonFiniteError
        If the computation broke down; the message says when.

    References
    ----------
    Burger, Kabri, Korolev, Roith, Weigand (2025), eqs. (1.6) and (5.1).

    Examples
    --------
    >>> start = [[1.0, 0.0], [np.cos(2.0), np.sin(2.0)]]
    >>> run = evolve_particles(start, SelfAttention([1.0, 1.0]), t_end=3.0)
    >>> round(float(np.arccos(run.points[-1, 0] @ run.points[-1, 1])), 6)
    0.407461
    """
    check_model(model)
    points = starting_points(points, model.dimension, normalize)
    weights = particle_weights(weights, points.shape[-2])
    plan = make_plan(t_end, save, method, step, tolerance, stationary)
    frames = particle_frames(points, model, weights, plan)
    saved = list(with_progress(frames, len(plan.intervals), progress))
    parameters = {
        "verb": "evolve_particles",
        "t_end": float(t_end),
        "save": DEFAULT_FRAMES if save is None else np.asarray(save).tolist(),
        "method": plan.method,
        "step": plan.step,
        "tolerance": plan.tolerance,
        "stationary": plan.stationary,
    }
    return collect(saved, points.ndim == 3, model, weights, parameters)


def transformer(
    points,
    model,
    layers: int,
    step: float = 1.0,
    weights=None,
    save: int | None = None,
    normalize: bool = False,
    progress: bool = False,
) -> ParticleEvolution:
    """Send tokens through the layers of a transformer: ``X <- Pi(A(X))``.

    ``A(X)_i = x_i + step sum_j A_ij V x_j`` with the attention matrix A; several heads add up.

    Parameters
    ----------
    points, model, weights, normalize, progress
        As in `evolve_particles`.
    layers : int, >= 1
    step : float, > 0
        Factor of the attention output; with an unnormalised model this is eq. (5.1).
    save : int, optional
        Number of frames, spread over the layers; every layer by default.

    Returns
    -------
    ParticleEvolution
        ``times`` are ``step`` times the number of layers passed.

    Raises
    ------
    InputError
        For arguments out of range.
    NonFiniteError
        If a layer maps a token to zero or to something that is not finite.

    References
    ----------
    Burger, Kabri, Korolev, Roith, Weigand (2025), eq. (1.4).

    Examples
    --------
    >>> tokens = [[1.0, 0.0], [0.0, 1.0]]
    >>> run = transformer(tokens, SelfAttention([0.0, 0.0], V=[1.0, 1.0]), layers=1)
    >>> (run.points[-1] * 10**0.5).round(12).tolist()
    [[3.0, 1.0], [1.0, 3.0]]
    """
    check_model(model, steps=False)
    points = starting_points(points, model.dimension, normalize)
    weights = particle_weights(weights, points.shape[-2])
    layers = _whole(layers, "layers", 1)
    step = _positive(step, "step")
    frames = layers + 1 if save is None else _whole(save, "save", 2)
    plan = Plan(
        tuple(_even_intervals(layers, layers * step, step, frames)), "projected_euler", step
    )
    iterator = particle_frames(points, model, weights, plan)
    saved = list(with_progress(iterator, len(plan.intervals), progress))
    parameters = {"verb": "transformer", "layers": layers, "step": step, "save": frames}
    return collect(saved, points.ndim == 3, model, weights, parameters)


def particle_frames(points, model, weights, plan: Plan) -> Iterator[ParticleFrame]:
    """Evolve particles and yield a frame at the end of every interval of the plan.

    Parameters
    ----------
    points : ndarray, shape (N, n) or (starts, N, n)
    model : SelfAttention or MultiHead
    weights : ndarray, shape (N,)
    plan : Plan

    Yields
    ------
    ParticleFrame
        The last one when all starts have stopped, if they do.

    Raises
    ------
    NonFiniteError
        If a value becomes NaN or infinite.
    """
    batch = points if points.ndim == 3 else points[None]
    groups = _groups(batch, model, weights, plan)
    workers = min(len(groups), os.cpu_count() or 1)
    with ThreadPoolExecutor(max_workers=workers) as pool:
        for interval in plan.intervals:
            advance = pool.map if workers > 1 else map
            list(advance(lambda group, interval=interval: group.advance(interval), groups))
            frame = np.concatenate([group.points for group in groups])
            stopped = np.concatenate([group.stopped for group in groups])
            if not np.isfinite(frame).all():
                raise NonFiniteError(
                    f"a value became NaN or infinite between t = {interval.start:g} and "
                    f"{interval.end:g}: the step is too large, or it sends a token to zero"
                )
            done = bool(np.isfinite(stopped).all())
            yield ParticleFrame(float(stopped.max()) if done else interval.end, frame, stopped)
            if done:
                return


def _groups(batch, model, weights, plan: Plan) -> list:
    """Chunks of starts that advance together."""
    if plan.method == "adaptive":
        t_end = plan.intervals[-1].end
        return [AdaptiveStarts(batch, model, weights, t_end, plan.tolerance, plan.stationary)]
    method = fixed_step_method(plan.method)
    size = chunk_size(model, *batch.shape[:2])
    return [
        SteppedStarts(batch[first : first + size], model, weights, method, plan.stationary)
        for first in range(0, len(batch), size)
    ]


def collect(saved: list[ParticleFrame], ensemble: bool, model, weights, parameters):
    """Frames to a `ParticleEvolution`."""
    points = np.stack([frame.points for frame in saved])
    stopped = saved[-1].stopped
    return ParticleEvolution(
        times=np.array([frame.time for frame in saved]),
        points=points if ensemble else points[:, 0],
        weights=weights,
        model=model,
        stopped=stopped if ensemble else stopped[0],
        parameters={**parameters, **model_parameters(model)},
    )


def model_parameters(model) -> dict:
    """What rebuilds a model, in types that JSON knows."""
    heads = [
        {
            "D": head.D.tolist(),
            "V": head.V.tolist(),
            "sign": head.sign,
            "normalized": head.normalized,
        }
        for head in heads_of(model)
    ]
    if isinstance(model, SelfAttention):
        return heads[0]
    return {"heads": heads, "combine": model.combine}


def check_model(model, steps: bool = True) -> None:
    """Refuse what is no model, and flows that are too fast for time steps.

    Raises
    ------
    InputError, StiffnessError
    """
    if not isinstance(model, (SelfAttention, MultiHead)):
        raise InputError(f"model must be SelfAttention or MultiHead, got {type(model).__name__}")
    if steps and model.speed_bound > MAX_SPEED:
        raise StiffnessError(
            f"the unnormalised flow may reach the speed {model.speed_bound:.3g}, out of reach for "
            "time steps; use the normalised flow (normalized=True) or a smaller D"
        )


def make_plan(t_end, save, method, step, tolerance, stationary) -> Plan:
    """Check the options of `evolve_particles` and lay out its steps.

    Raises
    ------
    InputError
        If an option is out of range or does not go with the method.
    """
    times = save_times(t_end, save)
    stationary = None if stationary is None else _positive(stationary, "stationary")
    if method == "adaptive":
        if step is not None:
            raise InputError("the adaptive method chooses its steps: give tolerance, not step")
        tolerance = _positive(DEFAULT_TOLERANCE if tolerance is None else tolerance, "tolerance")
        if tolerance < SMALLEST_TOLERANCE:
            raise InputError(f"tolerance must be >= {SMALLEST_TOLERANCE:g}, got {tolerance:g}")
        starts = [0.0, *times[:-1].tolist()]
        intervals = [Interval(a, b, 0, 0.0) for a, b in zip(starts, times.tolist(), strict=True)]
        return Plan(tuple(intervals), method, None, tolerance, stationary)
    fixed_step_method(method)
    if tolerance is not None:
        raise InputError(f"{method} takes fixed steps: give step, not tolerance")
    step = _positive(DEFAULT_STEP if step is None else step, "step")
    if np.ndim(save) == 0:
        count = _steps(float(t_end), step)
        frames = DEFAULT_FRAMES if save is None else int(save)
        intervals = _even_intervals(count, float(t_end), float(t_end) / count, frames)
    else:
        intervals = _exact_intervals(times, step)
    return Plan(tuple(intervals), method, step, None, stationary)


def _even_intervals(count: int, t_end: float, h: float, frames: int) -> list[Interval]:
    """Intervals of whole steps of length h, as even as ``count`` steps allow."""
    marks = np.unique(np.rint(np.linspace(0, count, frames)).astype(int))
    times = (marks / count * t_end).tolist()
    starts, counts = [0.0, *times[:-1]], np.diff(marks, prepend=0).tolist()
    return [Interval(a, b, k, h) for a, b, k in zip(starts, times, counts, strict=True)]


def _exact_intervals(times: np.ndarray, step: float) -> list[Interval]:
    """Intervals that end at given times, in whole numbers of steps not longer than ``step``."""
    intervals, start = [], 0.0
    for end in times.tolist():
        count = _steps(end - start, step) if end > start else 0
        intervals.append(Interval(start, end, count, (end - start) / max(count, 1)))
        start = end
    return intervals


def _steps(length: float, step: float) -> int:
    return max(1, int(np.ceil(length / step * (1 - WHOLE))))


def _positive(value, name: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a number > 0, got {value!r}") from None
    if not (np.isfinite(number) and number > 0):
        raise InputError(f"{name} must be finite and > 0, got {value!r}")
    return number


def _whole(value, name: str, least: int) -> int:
    if isinstance(value, bool) or not np.isfinite(value) or int(value) != value or value < least:
        raise InputError(f"{name} must be an integer >= {least}, got {value!r}")
    return int(value)
