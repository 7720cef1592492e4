"""Wasserstein distances between measures: W1 and W2 for three costs."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist

from meanfield.errors import ConvergenceError, InputError, PointsError, SizeError
from meanfield.measures import Measure
from meanfield.sphere.geometry import unit_points
from meanfield.transport.circular import circular_plan

COSTS = ("geodesic", "chordal", "l1")
EXACT_PAIRS = 25_000_000  # about 10 s of network simplex; beyond, bounds by regularisation
MAX_PAIRS = 400_000_000  # about 13 GiB of arrays
SIMPLEX_ITERATIONS = 10**9
REGULARIZATIONS = (1e-2, 3e-3, 1e-3)  # over the largest cost; the smaller the tighter
SINKHORN_ITERATIONS = 1000
SINKHORN_TOLERANCE = 1e-4  # of the marginals; the plan is repaired afterwards


@dataclass(frozen=True, eq=False)
class TransportPlan:
    """A coupling of two measures in sparse form, and what it costs.

    Attributes
    ----------
    rows, columns : ndarray of int, shape (q,)
    masses : ndarray, shape (q,)
        ``masses`` goes from point ``rows`` of the first to point ``columns`` of the second.
    cost : float
        ``sum masses d^p``.
    """

    rows: np.ndarray
    columns: np.ndarray
    masses: np.ndarray
    cost: float


def wasserstein(a, b, p: int = 2, cost: str = "geodesic", tolerance: float = 0.05) -> float:
    """The Wasserstein distance ``W_p(a, b) = (min over couplings of int d(x, y)^p)^(1/p)``.

    On S^1 with arc length exact, by a convex problem in one number; elsewhere exact by the
    network simplex of POT up to 25 million pairs of points, and beyond the middle between the
    bounds of `wasserstein_bounds`.

    Parameters
    ----------
    a, b : Measure, array_like of shape (m, n), or a result with ``.final``
        An array means points with equal masses.
    p : {1, 2}
    cost : {"geodesic", "chordal", "l1"}
        The distance d: arc length in radians, in [0, pi]; Euclidean; ``sum |x_i - y_i|``. The
        last two exist for points off the sphere too.
    tolerance : float, > 0
        How far apart, relative to the upper one, the bounds may be where the distance is not
        exact.

    Returns
    -------
    float

    Raises
    ------
    InputError
        For another p or cost (`PointsError`: different dimensions, points off the sphere).
    ConvergenceError
        If the simplex did not come to an end, or the bounds are farther apart than the
        tolerance; the message states them.
    SizeError
        Beyond 400 million pairs of points.

    References
    ----------
    J. Delon, J. Salomon, A. Sobolevski (2010), Fast transport optimization for Monge costs on
    the circle. R. Flamary et al. (2021), POT: Python Optimal Transport.

    Examples
    --------
    >>> from meanfield.sphere.geometry import directions
    >>> turn = 2 * np.pi
    >>> first = directions(turn * np.array([0.1, 0.11, 0.4, 0.6]))
    >>> second = directions(turn * np.array([0.21, 0.15, 0.7, 0.95]))
    >>> round(wasserstein(first, second, p=1) / turn, 12)
    0.12
    >>> round((wasserstein(first, second, p=2) / turn) ** 2, 12)
    0.01755
    """
    lower, upper = wasserstein_bounds(a, b, p, cost, tolerance)
    if upper - lower > tolerance * upper:
        raise ConvergenceError(
            f"W{p} lies in [{lower:.6g}, {upper:.6g}], not within the tolerance {tolerance:g}: "
            "allow a larger one or take fewer points"
        )
    return (lower + upper) / 2


def wasserstein_bounds(
    a, b, p: int = 2, cost: str = "geodesic", tolerance: float = 0.05
) -> tuple[float, float]:
    """A lower and an upper bound of the Wasserstein distance; equal where it is exact.

    Parameters
    ----------
    a, b, p, cost
        As in `wasserstein`.
    tolerance : float
        Where the distance is not exact: stop when the bounds are this close, relative to the
        upper one.

    Returns
    -------
    lower, upper : float
        Beyond 25 million pairs: by a feasible pair of potentials and a feasible plan, both made
        of entropic solutions with decreasing regularisation.

    Raises
    ------
    InputError, ConvergenceError, SizeError
        As `wasserstein`.

    References
    ----------
    J. Altschuler, J. Weed, P. Rigollet (2017), Near-linear time approximation algorithms for
    optimal transport via Sinkhorn iteration (the rounding of plans).

    Examples
    --------
    >>> wasserstein_bounds([[1.0, 0.0]], [[0.0, 1.0]], p=1, cost="l1")
    (2.0, 2.0)
    """
    a, b = checked_pair(a, b, p, cost)
    pairs = len(a) * len(b)
    if pairs <= EXACT_PAIRS or _on_circle(a, cost):
        exact = optimal_plan(a, b, p, cost).cost ** (1 / p)
        return exact, exact
    if pairs > MAX_PAIRS:
        raise SizeError(
            f"{len(a):,} x {len(b):,} points need about {pairs * 32 / 2**30:.0f} GiB; at most "
            f"{MAX_PAIRS:,} pairs are taken"
        )
    lower, upper = _entropic_bounds(a, b, distances(a.points, b.points, cost) ** p, p * tolerance)
    if not np.isfinite(upper):
        raise ConvergenceError("the regularised transport problem broke down: take fewer points")
    return lower ** (1 / p), upper ** (1 / p)


def optimal_plan(a: Measure, b: Measure, p: int = 2, cost: str = "geodesic") -> TransportPlan:
    """An optimal coupling of two measures.

    Parameters
    ----------
    a, b : Measure
    p : {1, 2}
    cost : {"geodesic", "chordal", "l1"}

    Returns
    -------
    TransportPlan
        With at most m + k masses, all positive.

    Raises
    ------
    ConvergenceError
        If the network simplex did not come to an end.

    Examples
    --------
    >>> plan = optimal_plan(Measure([[1.0, 0.0]]), Measure(np.eye(2)), p=1)
    >>> plan.columns.tolist(), plan.masses.round(12).tolist()
    ([0, 1], [0.5, 0.5])
    """
    here, there = np.flatnonzero(a.masses), np.flatnonzero(b.masses)
    x, y, u, v = a.points[here], b.points[there], a.masses[here], b.masses[there]
    if _on_circle(a, cost):
        rows, columns, masses = circular_plan(turns(x), u, turns(y), v, p)
    else:
        rows, columns, masses = simplex_plan(distances(x, y, cost) ** p, u, v)
    length = distance_between(x[rows], y[columns], cost)
    return TransportPlan(here[rows], there[columns], masses, float(masses @ length**p))


def distances(x: np.ndarray, y: np.ndarray, cost: str = "geodesic") -> np.ndarray:
    """Distances of all pairs: shapes (m, n) and (k, n) to (m, k).

    Examples
    --------
    >>> distances(np.array([[1.0, 0.0]]), np.array([[-1.0, 0.0]]), "chordal").tolist()
    [[2.0]]
    """
    if cost == "l1":
        return cdist(x, y, "cityblock")
    chord = cdist(x, y)
    if cost == "chordal":
        return chord
    return 2 * np.arctan2(chord, cdist(x, -y))  # exact for near and for antipodal points


def distance_between(x: np.ndarray, y: np.ndarray, cost: str = "geodesic") -> np.ndarray:
    """Distances of points in the same row: shapes (m, n) twice to (m,).

    Examples
    --------
    >>> distance_between(np.eye(2), np.eye(2)[::-1], "l1").tolist()
    [2.0, 2.0]
    """
    if cost == "l1":
        return np.abs(x - y).sum(axis=1)
    chord = np.linalg.norm(x - y, axis=1)
    return chord if cost == "chordal" else 2 * np.arctan2(chord, np.linalg.norm(x + y, axis=1))


def as_measure(value) -> Measure:
    """A Measure from a Measure, a result with a final state, or points of equal mass.

    Raises
    ------
    PointsError
        If it is none of these.

    Examples
    --------
    >>> as_measure([[1.0, 0.0]])
    Measure(1 points in R^2)
    """
    if isinstance(value, Measure):
        return value
    final = getattr(value, "final", None)
    if isinstance(final, Measure):
        return final
    try:
        points = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise PointsError(
            f"{type(value).__name__} is no measure: give a Measure, points of shape (m, n), or a "
            "result with a final state"
        ) from None
    return Measure(points)


def checked_pair(a, b, p: int, cost: str) -> tuple[Measure, Measure]:
    """Two measures that `wasserstein` can compare.

    Raises
    ------
    InputError, PointsError
        As `wasserstein`.

    Examples
    --------
    >>> checked_pair([[1.0, 0.0]], np.eye(3), 2, "l1")
    Traceback (most recent call last):
    ...
    meanfield.errors.PointsError: the measures live in different spaces, R^2 and R^3
    """
    if p not in (1, 2):
        raise InputError(f"p must be 1 or 2, got {p!r}")
    if cost not in COSTS:
        raise InputError(f"cost must be one of {', '.join(COSTS)}, got {cost!r}")
    a, b = as_measure(a), as_measure(b)
    if a.dimension != b.dimension:
        raise PointsError(
            f"the measures live in different spaces, R^{a.dimension} and R^{b.dimension}"
        )
    if cost != "geodesic":
        return a, b
    return tuple(Measure(unit_points(each.points), each.masses, each.space) for each in (a, b))


def _on_circle(a: Measure, cost: str) -> bool:
    return cost == "geodesic" and a.dimension == 2


def turns(points: np.ndarray) -> np.ndarray:
    """Angles of points on S^1 in turns, in [0, 1): shape (m, 2) to (m,).

    Examples
    --------
    >>> turns(np.array([[0.0, 1.0], [0.0, -1.0]])).tolist()
    [0.25, 0.75]
    """
    return (np.arctan2(points[:, 1], points[:, 0]) / (2 * np.pi)) % 1.0


def simplex_plan(costs, u, v) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """An optimal plan for any costs by the network simplex of POT, which only warns if it fails.

    Parameters
    ----------
    costs : ndarray, shape (m, k)
    u, v : ndarray, shapes (m,) and (k,)
        Positive masses with the same total.

    Returns
    -------
    rows, columns : ndarray of int, shape (q,)
    masses : ndarray, shape (q,)

    Raises
    ------
    ConvergenceError

    Examples
    --------
    >>> half = np.full(2, 0.5)
    >>> [part.tolist() for part in simplex_plan(np.eye(2), half, half)]
    [[0, 1], [1, 0], [0.5, 0.5]]
    """
    import ot  # here, because it loads every array library that is installed

    v = v * (u.sum() / v.sum())  # the simplex wants totals equal to the last digit
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        matrix, log = ot.emd(u, v, costs, numItermax=SIMPLEX_ITERATIONS, log=True)
    if log["warning"] is not None:
        raise ConvergenceError(f"optimal transport was not solved: {log['warning']}")
    rows, columns = np.nonzero(matrix)
    return rows, columns, matrix[rows, columns]


def _entropic_bounds(a: Measure, b: Measure, costs, width: float) -> tuple[float, float]:
    """Bounds of the optimal cost by potentials and by plans of regularised problems.

    The regularisation decreases until the bounds are closer than ``width``, relative to the
    upper one, or the smallest is done.
    """
    import ot

    u, v = a.masses, b.masses
    lower, upper = 0.0, np.inf
    for regularization in REGULARIZATIONS:
        scale = regularization * costs.max()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # how well it converged is in the bounds
            plan, log = ot.bregman.sinkhorn_knopp(
                u, v, costs, scale, SINKHORN_ITERATIONS, SINKHORN_TOLERANCE, log=True
            )
        scaling = np.where(v > 0, np.asarray(log["v"], dtype=float).ravel(), 1.0)
        if not (np.isfinite(plan).all() and (scaling > 0).all()):
            break  # the exponentials left the range of numbers
        lower = max(lower, _dual_value(u, v, costs, scale * np.log(scaling)))
        upper = min(upper, float(np.sum(_feasible(plan, u, v) * costs)))
        if upper - lower <= width * upper:
            break
    return lower, upper


def _dual_value(u, v, costs, potential) -> float:
    """What a potential of the second measure proves, made feasible by conjugation."""
    other = (costs - potential)[:, v > 0].min(axis=1)
    return float(u @ other + v @ (costs - other[:, None])[u > 0].min(axis=0))


def _feasible(plan: np.ndarray, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The nearby plan with exact marginals (Altschuler, Weed, Rigollet 2017, Algorithm 2)."""
    for axis, wanted in ((1, u), (0, v)):
        sums = plan.sum(axis=axis)
        factor = np.minimum(np.divide(wanted, sums, out=np.ones_like(sums), where=sums > 0), 1.0)
        plan = plan * (factor[:, None] if axis == 1 else factor)
    missing_u, missing_v = u - plan.sum(axis=1), v - plan.sum(axis=0)
    total = missing_u.sum()
    return plan if total <= 0 else plan + np.outer(missing_u, missing_v) / total
