"""Optimal transport on the circle, exactly: a convex problem in one number."""

from __future__ import annotations

import numpy as np

BISECTIONS = 60  # a shift in [-1, 1] is then known to the last digit
SNAP = 1e-14  # cumulative masses closer than this are the same: their difference is round-off


def circular_plan(x, a, y, b, p: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """An optimal plan between two measures on the circle, for the cost (arc length)^p.

    Parameters
    ----------
    x, y : ndarray, shapes (m,) and (k,)
        Positions in turns, in [0, 1).
    a, b : ndarray, shapes (m,) and (k,)
        Positive masses, each with sum one.
    p : {1, 2}

    Returns
    -------
    rows, columns : ndarray of int, shape (q,), q <= m + k
    masses : ndarray, shape (q,)
        ``masses`` goes from ``x[rows]`` to ``y[columns]`` along the shorter arc.

    Notes
    -----
    With the quantile functions A and B, continued by ``B(q + 1) = B(q) + 1``, the cost is the
    minimum over shifts s of ``int_0^1 |A(q) - B(q - s)|^p dq``, convex in s (Delon, Salomon,
    Sobolevski 2010); of atoms it is piecewise linear, and its slope is a finite sum.

    Examples
    --------
    >>> rows, columns, _ = circular_plan(
    ...     np.array([0.0, 0.5]), np.full(2, 0.5), np.array([0.4, 0.9]), np.full(2, 0.5), 2
    ... )
    >>> sorted(zip(rows.tolist(), columns.tolist()))
    [(0, 1), (1, 0)]
    """
    shift = optimal_shift(x, a, y, b, p)
    return shifted_plan(x, a, y, b, shift)[:3]


def optimal_shift(x, a, y, b, p: int) -> float:
    """The shift s of the levels, in [-1, 1], for which the monotone plan is optimal.

    Parameters
    ----------
    x, a, y, b, p
        As in `circular_plan`.

    Examples
    --------
    >>> one = np.ones(1)
    >>> abs(optimal_shift(np.array([0.0]), one, np.array([0.25]), one, 2)) < 1e-12
    True
    """
    first, second = np.argsort(x, kind="stable"), np.argsort(y, kind="stable")
    source, target = _Atoms(x[first], a[first]), _Atoms(y[second], b[second])
    here, there = target.positions, np.append(target.positions[1:], target.positions[0] + 1)

    def slope(shift: float) -> float:
        # A longer shift hands mass at every level over from the next atom to this one.
        where = source.quantile(target.levels + shift)
        return float(np.sum(np.abs(where - here) ** p - np.abs(where - there) ** p))

    low, high = -1.0, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if slope(middle) >= 0 else (middle, high)
    return high


def shifted_plan(x, a, y, b, shift: float) -> tuple[np.ndarray, ...]:
    """The monotone plan that couples level q of the first with level q - s of the second.

    Parameters
    ----------
    x, a, y, b
        As in `circular_plan`.
    shift : float
        Every value is a plan in which no paths cross; a whole turn more sends all once around.

    Returns
    -------
    rows, columns, masses
        As in `circular_plan`.
    travel : ndarray, shape (q,)
        How far the masses go, in turns, with the sign of the direction; maybe more than half.

    Examples
    --------
    >>> one = np.ones(1)
    >>> *_, masses, travel = shifted_plan(np.array([0.0]), one, np.array([0.5]), one, 0.25)
    >>> masses.tolist(), travel.tolist()
    ([0.25, 0.75], [-0.5, 0.5])
    """
    first, second = np.argsort(x, kind="stable"), np.argsort(y, kind="stable")
    i, j, masses, turns = _monotone(np.cumsum(a[first]), np.cumsum(b[second]), shift)
    rows, columns = first[i], second[j]
    return rows, columns, masses, y[columns] + turns - x[rows]


class _Atoms:
    """Sorted atoms on the circle, and their quantile function on the whole line."""

    def __init__(self, positions: np.ndarray, masses: np.ndarray):
        self.positions = positions
        self.levels = np.cumsum(masses)
        self.levels[-1] = 1.0

    def quantile(self, q: np.ndarray) -> np.ndarray:
        """Right-continuous, ``quantile(q + 1) = quantile(q) + 1``."""
        turns = np.floor(q)
        index = np.searchsorted(self.levels, q - turns, side="right")
        # Round-off may put q - turns at one.
        return self.positions[np.minimum(index, len(self.positions) - 1)] + turns


def _monotone(levels_a, levels_b, shift: float) -> tuple[np.ndarray, ...]:
    """Atoms, masses and turns of the plan that couples level q with level q - shift."""
    levels_a[-1] = levels_b[-1] = 1.0
    moved = (levels_b + shift) % 1.0
    nearest = np.searchsorted(levels_a, moved)
    for index in (nearest - 1, np.minimum(nearest, len(levels_a) - 1)):
        moved = np.where(np.abs(levels_a[index] - moved) <= SNAP, levels_a[index], moved)
    moved = np.where(moved <= SNAP, 1.0, moved)  # zero and one are the same level
    cuts = np.unique(np.concatenate([levels_a, moved]))
    masses = np.diff(cuts, prepend=0.0)
    middle = cuts - masses / 2
    i = np.searchsorted(levels_a, middle)
    order = np.argsort(moved, kind="stable")
    # The interval that ends at a moved level belongs to the atom of that level.
    position = np.searchsorted(moved[order], middle)
    j = order[position % len(order)]
    return i, j, masses, np.floor(middle - shift)
