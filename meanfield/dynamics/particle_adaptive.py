"""Particles with error control: the Dormand-Prince method of order 8 on the sphere."""

from __future__ import annotations

import numpy as np
from scipy.integrate import DOP853

from meanfield.dynamics.particle_methods import Interval, LayerSteps
from meanfield.errors import NonFiniteError, StiffnessError


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

    def advance(self, interval: Interval) -> None:
        """Go on to the end of the interval."""
        for index, solver in enumerate(self._solvers):
            if np.isnan(self.stopped[index]):
                self._advance(index, solver, interval.end)

    def _advance(self, index: int, solver, target: float) -> None:
        while solver.t < target:
            message = solver.step()
            if solver.status == "failed":
                raise StiffnessError(f"at t = {solver.t:g}: {message}; try a larger tolerance")
            if not np.isfinite(solver.y).all():
                raise NonFiniteError(f"a value became NaN or infinite after t = {solver.t:g}")
            if self._stationary is not None and self._speeds.speed(solver.y) <= self._stationary:
                target = self.stopped[index] = min(solver.t, target)
        y = solver.y if solver.t == target or target == 0 else solver.dense_output()(target)
        self.points[index] = self._speeds.sphere(y)[:, 0].T


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
