"""How far a measure is from a family of extremal states, in closed form."""

from __future__ import annotations

import numpy as np

from meanfield.errors import InputError, PointsError
from meanfield.measures import Measure
from meanfield.sphere.geometry import distance, exp_map, log_map, unit_points

ITERATIONS = 200
TRIED, REFINED = 24, 4  # points that may be the axis; axes that are followed to the end
STATIONARY = 1e-13  # in radians: no axis is moved by less


def distance_to_clusters(measure: Measure, basis) -> tuple[float, np.ndarray]:
    """W2 to the nearest Dirac measure delta_z, z a unit vector in the span of the basis.

    ``W2(mu, delta_z)^2 = int angle(x, z)^2 dmu(x)``, minimised over z.

    Parameters
    ----------
    measure : Measure
        On the unit sphere of R^n.
    basis : array_like, shape (n, k)
        Orthonormal columns.

    Returns
    -------
    distance : float
        In radians, in [0, pi].
    z : ndarray, shape (n,)

    Raises
    ------
    PointsError
        If the points are off the sphere or the dimensions differ.

    Examples
    --------
    >>> far, z = distance_to_clusters(Measure([[0.6, 0.8]]), [[0.0], [1.0]])
    >>> round(far, 6), z.tolist()
    (0.643501, [0.0, 1.0])
    """
    points, basis = _checked(measure, basis)

    def pull(z):
        return points, measure.masses

    return _best(points, basis, measure.masses @ points, pull)


def distance_to_pairs(measure: Measure, basis, t: float | None = 0.5) -> tuple[float, np.ndarray]:
    """W2 to the nearest antipodal pair ``t delta_z + (1-t) delta_-z``, z in the span of the basis.

    Between two points an optimal plan is a sorting: the costs ``angle^2`` and ``(pi - angle)^2``
    differ by a monotone function of the angle, so that the mass t nearest to z goes to z.

    Parameters
    ----------
    measure : Measure
        On the unit sphere of R^n.
    basis : array_like, shape (n, k)
        Orthonormal columns.
    t : float, optional
        Mass at z, in [0, 1]; None: whichever is nearest.

    Returns
    -------
    distance : float
        In radians.
    z : ndarray, shape (n,)

    Raises
    ------
    PointsError
        If the points are off the sphere or the dimensions differ.
    InputError
        If t is out of range.

    Examples
    --------
    >>> far, z = distance_to_pairs(Measure([[1.0, 0.0], [0.0, 1.0]]), np.eye(2))
    >>> round(far / np.pi, 6), np.abs(z).round(6).tolist()
    (0.25, [0.707107, 0.707107])
    """
    points, basis = _checked(measure, basis)
    if t is not None and not 0 <= t <= 1:
        raise InputError(f"t must be in [0, 1] or None, got {t}")
    second = points.T @ (measure.masses[:, None] * points)
    widest = basis @ np.linalg.eigh(basis.T @ second @ basis)[1][:, -1]

    def pull(z):
        near = _share_at(points, measure.masses, z, t)
        both = np.concatenate([points, -points])
        return both, np.concatenate([near, measure.masses - near])

    return _best(points, basis, widest, pull)


def distance_to_subspace(measure: Measure, basis) -> float:
    """W2 to the nearest measure on the unit vectors of the span of the basis.

    Every point goes to the nearest one: ``W2^2 = int arcsin^2 |x - P x| dmu``, P the projection.

    Examples
    --------
    >>> float(round(distance_to_subspace(Measure([[0.6, 0.8]]), [[1.0], [0.0]]), 6))
    0.927295
    """
    points, basis = _checked(measure, basis)
    inside = points @ basis
    outside = np.linalg.norm(points - inside @ basis.T, axis=1)
    angle = np.arctan2(outside, np.linalg.norm(inside, axis=1))
    return float(np.sqrt(measure.masses @ angle**2))


def _checked(measure: Measure, basis) -> tuple[np.ndarray, np.ndarray]:
    if not isinstance(measure, Measure):
        raise PointsError(f"a Measure is needed, got {type(measure).__name__}")
    basis = np.asarray(basis, dtype=float)
    if basis.ndim != 2 or len(basis) != measure.dimension:
        raise PointsError(
            f"the measure lives in R^{measure.dimension}, the basis has shape {basis.shape}"
        )
    return unit_points(measure.points), basis


def _share_at(points, masses, z, t: float | None) -> np.ndarray:
    """What of each mass goes to z, the rest to -z: shape (m,)."""
    if t is None:
        return np.where(points @ z > 0, masses, 0.0)
    order = np.argsort(-(points @ z), kind="stable")
    near = np.empty_like(masses)
    filled = np.cumsum(masses[order])
    near[order] = np.clip(t - (filled - masses[order]), 0.0, masses[order])
    return near


def _best(points, basis, start, pull) -> tuple[float, np.ndarray]:
    """The least distance over axes z: for a line its two ends, else by averaging on geodesics.

    The averages begin at the best few of: a start, the basis, and some of the points.
    """
    if basis.shape[1] == 1:
        candidates = [basis[:, 0], -basis[:, 0]]
    else:
        some = points[:: max(1, len(points) // TRIED)]
        inside = np.concatenate([start[None], basis.T, some]) @ basis
        length = np.linalg.norm(inside, axis=1)
        axes = (inside[length > 1e-9] / length[length > 1e-9, None]) @ basis.T
        promising = np.argsort([_cost(z, pull) for z in axes], kind="stable")[:REFINED]
        candidates = [_centre(axes[index], basis, pull) for index in promising]
    cost, z = min(((_cost(z, pull), z) for z in candidates), key=lambda found: found[0])
    return float(np.sqrt(cost)), z


def _cost(z, pull) -> float:
    targets, weights = pull(z)
    return float(weights @ distance(z, targets) ** 2)


def _centre(z, basis, pull) -> np.ndarray:
    """The weighted centre of what an axis attracts, found by following mean tangents."""
    for _ in range(ITERATIONS):
        targets, weights = pull(z)
        step = basis @ (basis.T @ (weights @ log_map(z, targets)))
        z = exp_map(z, step)
        z /= np.linalg.norm(z)
        if np.linalg.norm(step) < STATIONARY:
            break
    return z
