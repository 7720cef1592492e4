"""`evolve_particles` and `transformer`: tokens in, their evolution out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np

from meanfield.arguments import positive, whole
from meanfield.dynamics.evolution import MAX_SPEED, checksum
from meanfield.dynamics.particle_evolution import ParticleEvolution
from meanfield.dynamics.particle_fields import heads_of
from meanfield.dynamics.particle_groups import make_groups, parts, progress, snapshot_of
from meanfield.dynamics.particle_methods import CHECK
from meanfield.dynamics.particle_plan import Plan, even_intervals, make_plan
from meanfield.dynamics.particle_starts import particle_weights, starting_points
from meanfield.dynamics.timestepping import DEFAULT_FRAMES, watched
from meanfield.errors import InputError, NonFiniteError, StiffnessError
from meanfield.model.attention import SelfAttention
from meanfield.model.heads import MultiHead


@dataclass(frozen=True, eq=False)
class ParticleFrame:
    """One instant of a run of particles.

    Attributes
    ----------
    time : float
    points : ndarray, shape (starts, N, n), or None between save times
    stopped : ndarray, shape (starts,)
        When each start stopped, or NaN.
    steps : int
        Taken so far, by the start that took most.
    snapshot : callable
        Gives the instant as named arrays, for a checkpoint; valid until the next instant.
    saved : bool
        Whether this is a save time.
    """

    time: float
    points: np.ndarray | None
    stopped: np.ndarray
    steps: int
    snapshot: Callable[[], dict[str, np.ndarray]]
    saved: bool = True


@dataclass(frozen=True, eq=False)
class ParticleRun:
    """A run of particles that is about to begin: what it starts from and how it goes."""

    points: np.ndarray
    model: object
    weights: np.ndarray
    plan: Plan
    parameters: dict

    def frames(self, start: dict | None = None) -> Iterator[ParticleFrame]:
        """The instants of the run: see `particle_frames`."""
        return particle_frames(self.points, self.model, self.weights, self.plan, start)

    @property
    def announced_end(self) -> float | None:
        """Final time, by which the length of the run can be told; None if it may stop before."""
        return self.plan.intervals[-1].end if self.plan.stationary is None else None

    def compute(self, progress: bool) -> ParticleEvolution:
        """All of the run at once, in memory."""
        intervals = self.plan.intervals
        frames = watched(self.frames(), len(intervals), self.announced_end, progress)
        saved = [frame for frame in frames if frame.saved]
        times = np.array([frame.time for frame in saved])
        return self.evolution(times, np.stack([frame.points for frame in saved]), saved[-1].stopped)

    def evolution(self, times, points, stopped) -> ParticleEvolution:
        """Frames of this run, shape (t, starts, N, n), to a `ParticleEvolution`."""
        ensemble = self.points.ndim == 3
        return ParticleEvolution(
            times=times,
            points=points if ensemble else points[:, 0],
            weights=self.weights,
            model=self.model,
            stopped=stopped if ensemble else stopped[0],
            parameters=self.parameters,
        )


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
    flow = prepare_flow(
        points, model, t_end, weights, method, step, save, tolerance, stationary, normalize
    )
    return flow.compute(progress)


def prepare_flow(
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
) -> ParticleRun:
    """Check the arguments of `evolve_particles`; nothing is computed yet."""
    check_model(model)
    points = starting_points(points, model.dimension, normalize)
    weights = particle_weights(weights, points.shape[-2])
    plan = make_plan(t_end, save, method, step, tolerance, stationary)
    parameters = {
        "verb": "evolve_particles",
        "t_end": float(t_end),
        "save": DEFAULT_FRAMES if save is None else np.asarray(save).tolist(),
        "method": plan.method,
        "step": plan.step,
        "tolerance": plan.tolerance,
        "stationary": plan.stationary,
    }
    return _prepared(points, model, weights, plan, parameters)


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
    return prepare_layers(points, model, layers, step, weights, save, normalize).compute(progress)


def prepare_layers(
    points,
    model,
    layers: int,
    step: float = 1.0,
    weights=None,
    save: int | None = None,
    normalize: bool = False,
) -> ParticleRun:
    """Check the arguments of `transformer`; nothing is computed yet."""
    check_model(model, steps=False)
    points = starting_points(points, model.dimension, normalize)
    weights = particle_weights(weights, points.shape[-2])
    layers = whole(layers, "layers", 1)
    step = positive(step, "step")
    frames = layers + 1 if save is None else whole(save, "save", 2)
    plan = Plan(tuple(even_intervals(layers, layers * step, step, frames)), "projected_euler", step)
    parameters = {"verb": "transformer", "layers": layers, "step": step, "save": frames}
    return _prepared(points, model, weights, plan, parameters)


def _prepared(points, model, weights, plan: Plan, parameters: dict) -> ParticleRun:
    start = {"kind": "points", "sha256": checksum(points, weights)}
    parameters = {**parameters, "start": start, **model_parameters(model)}
    return ParticleRun(points, model, weights, plan, parameters)


def particle_frames(
    points, model, weights, plan: Plan, start: dict | None = None
) -> Iterator[ParticleFrame]:
    """Evolve particles through the intervals of a plan, with a frame at the end of each.

    Parameters
    ----------
    points : ndarray, shape (N, n) or (starts, N, n)
    model : SelfAttention or MultiHead
    weights : ndarray, shape (N,)
    plan : Plan
    start : dict, optional
        Go on from this snapshot of an earlier run instead: what follows is bit for bit that of
        an uninterrupted run.

    Yields
    ------
    ParticleFrame
        Frames, and instants between them at which the run can be stopped, with ``saved``
        False; the last one when all starts have stopped, if they do.

    Raises
    ------
    NonFiniteError
        If a value becomes NaN or infinite.
    """
    batch = points if points.ndim == 3 else points[None]
    groups = make_groups(batch, model, weights, plan)
    workers = min(len(groups), os.cpu_count() or 1)
    unit = 1 if plan.stationary is None else CHECK  # starts that stand still are found so often
    first = 0
    if start is not None:
        if np.isfinite(start["stopped"]).all():
            return  # the last frame was the end
        first = int(start["interval"])
        places = np.cumsum([0, *(len(group.points) for group in groups)])
        for group, a, b in zip(groups, places, places[1:], strict=False):
            group.restore({name: start[name][a:b] for name in group.snapshot()})
    with ThreadPoolExecutor(max_workers=workers) as pool:
        for number, interval in enumerate(plan.intervals[first:], first):
            snapshot = partial(snapshot_of, groups, number)
            for _ in parts(groups, interval, pool.map if workers > 1 else map, unit):
                stopped = np.concatenate([group.stopped for group in groups])
                steps, instant = progress(groups)
                yield ParticleFrame(instant, None, stopped, steps, snapshot, saved=False)
            frame = np.concatenate([group.points for group in groups])
            stopped = np.concatenate([group.stopped for group in groups])
            if not np.isfinite(frame).all():
                raise NonFiniteError(
                    f"a value became NaN or infinite between t = {interval.start:g} and "
                    f"{interval.end:g}: the step is too large, or it sends a token to zero"
                )
            done = bool(np.isfinite(stopped).all())
            yield ParticleFrame(
                float(stopped.max()) if done else interval.end,
                frame,
                stopped,
                progress(groups)[0],
                partial(snapshot_of, groups, number + 1),
            )
            if done:
                return


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
