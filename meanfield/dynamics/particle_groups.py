"""The starts of a run of particles in groups that advance together."""

from __future__ import annotations

import time
from collections.abc import Iterator
from operator import methodcaller

import numpy as np

from meanfield.dynamics.particle_adaptive import AdaptiveStarts
from meanfield.dynamics.particle_fields import chunk_size
from meanfield.dynamics.particle_methods import SteppedStarts, fixed_step_method
from meanfield.dynamics.particle_plan import Plan

PART = 0.1  # seconds, about, between two instants at which a run can be stopped


def parts(groups, interval, advance, steps: int) -> Iterator[None]:
    """Take an interval in parts of about `PART` seconds, all groups together."""
    going = groups
    while True:
        began = time.perf_counter()
        complete = list(advance(methodcaller("advance", interval, steps), going))
        going = [group for group, done in zip(going, complete, strict=True) if not done]
        if not going:
            return
        yield
        if time.perf_counter() - began < PART / 2:
            steps *= 2


def snapshot_of(groups, interval: int) -> dict[str, np.ndarray]:
    """The state of all groups, and the interval that they are in."""
    parts = [group.snapshot() for group in groups]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return {"interval": np.array(interval), **joined}


def progress(groups) -> tuple[int, float]:
    """Steps taken, and the time that is reached."""
    return max(group.steps for group in groups), min(group.time for group in groups)


def make_groups(batch, model, weights, plan: Plan) -> list:
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
