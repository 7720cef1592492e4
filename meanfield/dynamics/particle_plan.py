"""How a run of particles goes: its intervals between frames, and their steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanfield.arguments import positive
from meanfield.dynamics.particle_methods import Interval, fixed_step_method
from meanfield.dynamics.timestepping import DEFAULT_FRAMES, save_times
from meanfield.errors import InputError

DEFAULT_STEP = 0.05
DEFAULT_TOLERANCE = 1e-8
SMALLEST_TOLERANCE = 1e-13  # below it round-off decides about the steps
WHOLE = 1e-9  # a number of steps this close to a whole one is whole


@dataclass(frozen=True)
class Plan:
    """How a run goes: its intervals between frames, and the options that matter in them."""

    intervals: tuple[Interval, ...]
    method: str
    step: float | None = None
    tolerance: float | None = None
    stationary: float | None = None


def make_plan(t_end, save, method, step, tolerance, stationary) -> Plan:
    """Check the options of `evolve_particles` and lay out its steps.

    Raises
    ------
    InputError
        If an option is out of range or does not go with the method.
    """
    times = save_times(t_end, save)
    stationary = None if stationary is None else positive(stationary, "stationary")
    if method == "adaptive":
        if step is not None:
            raise InputError("the adaptive method chooses its steps: give tolerance, not step")
        tolerance = positive(DEFAULT_TOLERANCE if tolerance is None else tolerance, "tolerance")
        if tolerance < SMALLEST_TOLERANCE:
            raise InputError(f"tolerance must be >= {SMALLEST_TOLERANCE:g}, got {tolerance:g}")
        starts = [0.0, *times[:-1].tolist()]
        intervals = [Interval(a, b, 0, 0.0) for a, b in zip(starts, times.tolist(), strict=True)]
        return Plan(tuple(intervals), method, None, tolerance, stationary)
    fixed_step_method(method)
    if tolerance is not None:
        raise InputError(f"{method} takes fixed steps: give step, not tolerance")
    step = positive(DEFAULT_STEP if step is None else step, "step")
    if np.ndim(save) == 0:
        count = _steps(float(t_end), step)
        frames = DEFAULT_FRAMES if save is None else int(save)
        intervals = even_intervals(count, float(t_end), float(t_end) / count, frames)
    else:
        intervals = _exact_intervals(times, step)
    return Plan(tuple(intervals), method, step, None, stationary)


def even_intervals(count: int, t_end: float, h: float, frames: int) -> list[Interval]:
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
