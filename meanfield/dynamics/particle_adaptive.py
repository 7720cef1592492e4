"""Particles with error control: the Dormand-Prince method of order 8 on the sphere."""

from __future__ import annotations

import numpy as np
from scipy.integrate import DOP853

from meanfield.dynamics.particle_methods import Interval, LayerSteps
from meanfield.errors import NonFiniteError, StiffnessError

# What DOP853 keeps between two steps, besides its options. K holds the slopes of the last step,
# from which values within it are interpolated.
SOLVER_STATE = ("t", "t_old", "h_abs", "h_previous", "y", "y_old", "f", "K")


class AdaptiveStarts:
    """Starts that choose their own steps; the interface of `SteppedStarts`.

    Notes
    -----
    SciPy's DOP853 (Hairer, Norsett and Wanner, Solving Ordinary Differential Equations I,
    1993) runs in R^n on the velocity extended by ``v(x / |x|)``. That velocity is orthogonal
    to x, so that lengths change by the integration error only; frames are projected.
    """

    def __init__(self, points, model, weights, t_end: float, tolerance: float, stationary):
        self.points = points.copy()
        self.stopped = np.full(len(points), np.nan)
        self._stationary = stationary
        self._speeds = _Flow(model, weights, points.shape[1:])
        # Starts are independent, so each has its own steps: starts that settle do not wait.
        self._solvers = [
            DOP853(
                _Flow(model, weights, start.shape),
                0.0,
                start.T.ravel(),
                t_end,
                rtol=tolerance,
                atol=tolerance,
            )
            for start in points
        ]

        self._taken = np.zeros(len(points), dtype=int)
        self._index = 0  # of the start that moves

    @property
    def steps(self) -> int:
        """Steps of the start that took most."""
        return int(self._taken.max())

    @property
    def time(self) -> float:
        """How far the slowest start has come."""
        return float(min(solver.t for solver in self._solvers))

    def advance(self, interval: Interval, steps: int) -> bool:
        """Take at most so many more steps; True at the end of the interval."""
        while self._index < len(self._solvers):
            index = self._index
            if np.isnan(self.stopped[index]):
                steps = self._advance(index, self._solvers[index], interval.end, steps)
                if steps < 0:
                    return False
            self._index += 1
        self._index = 0
        return True

    def _advance(self, index: int, solver, target: float, steps: int) -> int:
        """Move one start; how many steps are left, negative if they did not suffice."""
        while solver.t < target:
            if steps == 0:
                return -1
            steps -= 1
            self._taken[index] += 1
            message = solver.step()
            if solver.status == "failed":
                raise StiffnessError(f"at t = {solver.t:g}: {message}; try a larger tolerance")
            if not np.isfinite(solver.y).all():
                raise NonFiniteError(f"a value became NaN or infinite after t = {solver.t:g}")
            if self._stationary is not None and self._speeds.speed(solver.y) <= self._stationary:
                target = self.stopped[index] = min(solver.t, target)
        if target > 0:  # the start is kept as it was given
            y = solver.y if solver.t == target else solver.dense_output()(target)
            self.points[index] = self._speeds.sphere(y)[:, 0].T
        return steps

    def snapshot(self) -> dict[str, np.ndarray]:
        """The state, one row for each start."""
        count = len(self.points)
        state = {"points": self.points, "stopped": self.stopped, "steps": self._taken}
        state["index"] = np.full(count, self._index)
        for name in SOLVER_STATE:
            values = [getattr(solver, name) for solver in self._solvers]
            like = np.zeros_like(self._solvers[0].y if name == "y_old" else 0.0)
            # Before the first step there is no step before.
            state[name] = np.stack([like if value is None else value for value in values])
        return state

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Go back to a snapshot."""
        self.points, self.stopped = state["points"].copy(), state["stopped"].copy()
        self._taken, self._index = state["steps"].copy(), int(state["index"][0])
        for row, solver in enumerate(self._solvers):
            for name in SOLVER_STATE:
                value = state[name][row]
                if name == "K":
                    solver.K[:] = value
                else:
                    setattr(solver, name, value.copy() if value.ndim else float(value))
            if solver.t >= solver.t_bound:
                solver.status = "finished"


class _Flow:
    """The flow of one start as a function of time and a flat vector."""

    def __init__(self, model, weights, shape: tuple[int, int]):
        count, n = shape
        self._shape = (n, 1, count)
        self._steps = LayerSteps(model, weights, self._shape)

    def __call__(self, time: float, y: np.ndarray) -> np.ndarray:
        return self._steps.velocity(self.sphere(y), np.empty(self._shape)).ravel()

    def sphere(self, y: np.ndarray) -> np.ndarray:
        """The points on the sphere, component first."""
        x = y.reshape(self._shape)
        return x / np.sqrt(np.add.reduce(x * x, axis=0))

    def speed(self, y: np.ndarray) -> float:
        """The largest speed of a particle."""
        return float(self._steps.speed(self.sphere(y))[0])
