"""Paths of masses of least action, by an interior-point method.

The unknowns are the masses at the inner times alone: fluxes of least action belong to any path,
so every iterate is an admissible path and its action an upper bound of the least one. A
logarithmic barrier keeps masses positive and goes to zero; Newton's directions are
primal-dual, with the full second derivative, the nonlocal terms included. Where that matrix is
not positive definite the derivative of Z in it is reduced; with Z frozen it always is, because
the action is convex then. So every direction descends, and every step passes Armijo's test.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from tqdm import tqdm

from meanfield.errors import NonFiniteError
from meanfield.transport.mesh_action import MeshAction, Transfer
from meanfield.transport.mesh_newton import newton_direction, path_gradient

NONLOCAL_PARTS = (1.0, 0.5, 0.25, 0.0)
REDUCTION = 0.1  # of the barrier
CENTRALITY = 10.0  # the barrier is reduced when the error of its problem is below this times it
LAST_BARRIER = 0.3  # over the tolerance: the part of the residual that the barrier may cause
TO_BOUNDARY = 0.995  # of the way to the nearest zero mass that a step may go
SUFFICIENT = 1e-4  # of the decrease that the slope promises (Armijo)
SMALLEST_STEP = 1e-9
ROUND_OFF = 1e-13  # relative error of the action that the test of a step ignores
SETTLED = 1e-12  # decrease, over the action, that Newton's step promises near round-off;
PROGRESS = 0.5  # there the residual must fall by this factor, or it consists of round-off
DUAL_RANGE = 1e8  # largest factor between a multiplier and barrier / mass


@dataclass(frozen=True, eq=False)
class InteriorPath:
    """An admissible path, with its action and derivative.

    Attributes
    ----------
    masses : ndarray, shape (T + 1, m)
        Positive at the inner times.
    transfers : list of Transfer, length T
    action : float
        ``sum_k P_k T``.
    gradient : ndarray, shape (T - 1, m)
        By the inner masses, each row up to a constant.
    """

    masses: np.ndarray
    transfers: list[Transfer]
    action: float
    gradient: np.ndarray

    @property
    def inner(self) -> np.ndarray:
        """The masses at the inner times, shape (T - 1, m)."""
        return self.masses[1:-1]

    @cached_property
    def residual(self) -> float:
        """``sum_k max_y gradient_k . (m_k - y) / action`` over probability vectors y, >= 0.

        Zero exactly at stationary paths. Where the action is convex (constant kernel) the
        least action is at least ``(1 - residual) action``.
        """
        excess = np.sum(self.inner * self.gradient, axis=1) - self.gradient.min(axis=1)
        return float(excess.sum() / self.action)


def evaluate(action: MeshAction, masses: np.ndarray) -> InteriorPath:
    """The fluxes, the action and the derivative of a path, masses of shape (T + 1, m)."""
    transfers = [
        action.transfer((early + late) / 2, late - early) for early, late in pairwise(masses)
    ]
    total = len(transfers) * sum(one.cost for one in transfers)
    gradient = path_gradient(action, transfers)
    if not (np.isfinite(total) and np.isfinite(gradient).all()):
        raise NonFiniteError("the action of the path is not finite: ||D|| is too large")
    return InteriorPath(masses, transfers, total, gradient)


def shortest_path(
    action: MeshAction, start: np.ndarray, tolerance: float, max_iterations: int, progress: bool
) -> tuple[InteriorPath, int, bool]:
    """Descend to a stationary path.

    Parameters
    ----------
    action : MeshAction
    start : ndarray, shape (T + 1, m)
        T >= 2; positive at the inner times, each row with sum one.
    tolerance : float
        Of `InteriorPath.residual`.
    max_iterations : int
    progress : bool

    Returns
    -------
    path : InteriorPath
        The last one.
    iterations : int
    converged : bool
        Whether its residual is within the tolerance, or no step descends beyond round-off.
    """
    search = _Search(action, evaluate(action, start), tolerance)
    for iteration in tqdm(range(max_iterations), unit="step", disable=None if progress else True):
        if search.path.residual <= tolerance or not search.step():
            return search.path, iteration, True
    return search.path, max_iterations, search.path.residual <= tolerance


class _Search:
    """The state of the iteration: path, barrier parameter, multipliers of the masses."""

    def __init__(self, action: MeshAction, path: InteriorPath, tolerance: float):
        self.action = action
        self.path = path
        self.tolerance = tolerance
        self.barrier = path.action / path.inner.size
        self.slack = self.barrier / path.inner
        self.last_residual = np.inf

    def step(self) -> bool:
        """One Newton step; False if none descends beyond round-off."""
        self._reduce_barrier()
        inner, barrier = self.path.inner, self.barrier
        centre = barrier / inner
        self.slack = np.clip(self.slack, centre / DUAL_RANGE, centre * DUAL_RANGE)
        right = centre - self.path.gradient
        direction = self._direction(right)
        slope = -np.sum(right * direction)
        settled = -slope <= SETTLED * self.path.action
        if settled and self.path.residual > PROGRESS * self.last_residual:
            return False
        self.last_residual = self.path.residual
        length = _to_boundary(inner, direction)
        while (trial := self._moved(length, direction, slope)) is None:
            length /= 2
            if length < SMALLEST_STEP:
                return False
        dual = centre - self.slack - self.slack / inner * direction
        self.slack = self.slack + _to_boundary(self.slack, dual) * dual
        self.path = trial
        return True

    def _reduce_barrier(self) -> None:
        inner, gradient, cells = self.path.inner, self.path.gradient, self.path.inner.shape[1]
        least = LAST_BARRIER * self.tolerance * self.path.action / inner.size
        while self.barrier > least:
            # The multiplier of the total mass, from the sum of the equations m (g - l) = barrier.
            total = np.sum(inner * gradient, axis=1, keepdims=True) - cells * self.barrier
            error = np.abs(inner * (gradient - total) - self.barrier).sum()
            if error > CENTRALITY * inner.size * self.barrier:
                return
            self.barrier *= REDUCTION

    def _direction(self, right: np.ndarray) -> np.ndarray:
        path = self.path
        parts = NONLOCAL_PARTS if self.action.kernel is not None else NONLOCAL_PARTS[-1:]
        for part in parts:
            found = newton_direction(
                self.action, path.transfers, path.masses, right, self.slack / path.inner, part
            )
            if found is not None:
                return found
        raise NonFiniteError(
            "the path has masses too small for double precision: use a larger tolerance"
        )

    def _moved(self, length: float, direction: np.ndarray, slope: float) -> InteriorPath | None:
        """The path after a step, if it passes Armijo's test for action plus barrier."""
        old = self.path
        masses = old.masses.copy()
        masses[1:-1] += length * direction
        trial = evaluate(self.action, masses)
        change = trial.action - old.action
        change -= self.barrier * np.log(trial.inner / old.inner).sum()
        allowed = SUFFICIENT * length * slope + ROUND_OFF * old.action
        return trial if change <= allowed else None


def _to_boundary(values: np.ndarray, direction: np.ndarray) -> float:
    """The longest step, at most one, that keeps positive values positive."""
    fastest = (-direction / values).max()
    return min(1.0, TO_BOUNDARY / fastest) if fastest > 0 else 1.0
