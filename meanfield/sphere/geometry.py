"""Elementary geometry of the unit sphere S^{n-1}: projections, geodesics, spherical areas.

Points are rows: shape (..., n). Angles are in radians, areas in steradians.
"""

from __future__ import annotations

import numpy as np

from meanfield.errors import PointsError

ON_SPHERE = 1e-5  # points farther from the sphere than this are refused, not normalised


def normalize(vectors) -> np.ndarray:
    """Scale vectors to unit length.

    Parameters
    ----------
    vectors : array_like, shape (..., n)

    Returns
    -------
    ndarray, shape (..., n)

    Raises
    ------
    PointsError
        If a vector is zero or not finite.

    Examples
    --------
    >>> normalize([[3.0, 4.0]]).tolist()
    [[0.6, 0.8]]
    """
    vectors = np.asarray(vectors, dtype=float)
    largest = np.abs(vectors).max(axis=-1, keepdims=True, initial=0.0)
    if not np.isfinite(largest).all():
        raise PointsError("a vector contains NaN or infinity")
    if (largest == 0).any():
        row = int(np.argmin(largest.reshape(-1)))
        raise PointsError(f"vector {row} is zero: it has no direction on the sphere")
    vectors = vectors / largest  # so that the squares neither overflow nor underflow
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def unit_points(points) -> np.ndarray:
    """Check that points lie on the unit sphere and remove their round-off.

    Parameters
    ----------
    points : array_like, shape (m, n)
        Rows whose length differs from one by at most 1e-5.

    Raises
    ------
    PointsError
        If the array is not two-dimensional, has n < 2, or a point is off the sphere.

    Examples
    --------
    >>> unit_points([[1.0, 1e-7]]).shape
    (1, 2)
    """
    points = np.asarray(points, dtype=float)
    if points.ndim != 2 or points.shape[0] < 1 or points.shape[1] < 2:
        raise PointsError(f"points must have shape (m, n) with n >= 2, got {points.shape}")
    if not np.isfinite(points).all():
        raise PointsError("points contain NaN or infinity")
    with np.errstate(over="ignore"):  # an infinite length is refused like any other
        lengths = np.linalg.norm(points, axis=1)
    off = np.abs(lengths - 1)
    worst = int(off.argmax())
    if off[worst] > ON_SPHERE:
        raise PointsError(
            f"point {worst} is not on the unit sphere: its length is {lengths[worst]:.6g} "
            f"(within {ON_SPHERE:g} of one is taken; normalise it first)"
        )
    # Rows that are unit vectors already keep their bits: reading back what was saved is exact.
    return points / np.where(off <= 1e-15, 1.0, lengths)[:, None]


def tangential(points: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Project vectors to the tangent spaces: ``P_x z = z - (x.z) x``.

    Parameters
    ----------
    points, vectors : ndarray, shape (..., n)

    Examples
    --------
    >>> tangential(np.array([[1.0, 0.0]]), np.array([[2.0, 3.0]])).tolist()
    [[0.0, 3.0]]
    """
    return vectors - np.sum(points * vectors, axis=-1, keepdims=True) * points


def distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Geodesic distance between unit vectors, accurate for near and antipodal points.

    Parameters
    ----------
    a, b : ndarray, shape (..., n)

    Returns
    -------
    ndarray, shape (...), in [0, pi]

    Examples
    --------
    >>> float(distance(np.array([1.0, 0.0]), np.array([-1.0, 0.0]))) == np.pi
    True
    """
    return 2 * np.arctan2(np.linalg.norm(a - b, axis=-1), np.linalg.norm(a + b, axis=-1))


def exp_map(points: np.ndarray, tangents: np.ndarray) -> np.ndarray:
    """Follow geodesics: the point at arc length ``|t|`` from ``x`` in direction ``t``.

    Parameters
    ----------
    points, tangents : ndarray, shape (..., n)

    Examples
    --------
    >>> exp_map(np.array([1.0, 0.0]), np.array([0.0, np.pi / 2])).round(15).tolist()
    [0.0, 1.0]
    """
    length = np.linalg.norm(tangents, axis=-1, keepdims=True)
    return np.cos(length) * points + np.sinc(length / np.pi) * tangents


def log_map(points: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Tangent vectors at ``points`` whose geodesics reach ``targets`` at time one.

    Parameters
    ----------
    points, targets : ndarray, shape (..., n)
        Not antipodal to each other (the direction is then not defined; zero is returned).

    Examples
    --------
    >>> log_map(np.array([1.0, 0.0]), np.array([0.0, 1.0])).round(12).tolist()
    [0.0, 1.570796326795]
    """
    # P_x(y - x) instead of P_x y keeps all digits when y is close to x.
    direction = tangential(points, targets - points)
    length = np.linalg.norm(direction, axis=-1, keepdims=True)
    angle = distance(points, targets)[..., None]
    return direction * np.divide(angle, length, out=np.zeros_like(length), where=length > 0)


def triangle_areas(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Signed areas of spherical triangles, positive if counter-clockwise from outside.

    Parameters
    ----------
    a, b, c : ndarray, shape (..., 3)

    Returns
    -------
    ndarray, shape (...), steradians

    Notes
    -----
    Van Oosterom and Strackee (1983). The triple product is taken of differences, so the
    areas of small triangles keep their relative accuracy.

    Examples
    --------
    >>> x, y, z = np.eye(3)
    >>> bool(abs(triangle_areas(x, y, z) - np.pi / 2) < 1e-15)
    True
    """
    triple = np.sum(a * np.cross(b - a, c - a), axis=-1)
    dots = np.sum(a * b, axis=-1) + np.sum(b * c, axis=-1) + np.sum(c * a, axis=-1)
    return 2 * np.arctan2(triple, 1 + dots)


def tangent_frames(points: np.ndarray) -> np.ndarray:
    """An orthonormal basis of each tangent space of S^1 or S^2.

    Parameters
    ----------
    points : ndarray, shape (m, n), n = 2 or 3

    Returns
    -------
    ndarray, shape (m, n - 1, n)
        Right-handed: on S^1 the counter-clockwise tangent; on S^2 ``e1 x e2 = x``.

    Examples
    --------
    >>> tangent_frames(np.array([[1.0, 0.0]])).tolist()
    [[[-0.0, 1.0]]]
    """
    if points.shape[1] == 2:
        return np.stack([-points[:, 1], points[:, 0]], axis=1)[:, None, :]
    x, y, z = points.T
    # Duff et al. (2017): the sign of z keeps the denominator away from zero.
    sign = np.copysign(1.0, z)
    a = -1 / (sign + z)
    b = x * y * a
    first = np.stack([1 + sign * x * x * a, sign * b, -sign * x], axis=1)
    second = np.stack([b, sign + y * y * a, -y], axis=1)
    return np.stack([first, second], axis=1)


def angles(points: np.ndarray) -> np.ndarray:
    """The angle in [0, 2 pi) of points on S^1, or (colatitude, longitude) of points on S^2.

    Parameters
    ----------
    points : ndarray, shape (m, 2) or (m, 3)

    Returns
    -------
    ndarray, shape (m,) or (m, 2)

    Examples
    --------
    >>> angles(np.array([[0.0, 0.0, 1.0]])).tolist()
    [[0.0, 0.0]]
    """
    longitude = np.arctan2(points[:, 1], points[:, 0]) % (2 * np.pi)
    if points.shape[1] == 2:
        return longitude
    colatitude = np.arctan2(np.hypot(points[:, 0], points[:, 1]), points[:, 2])
    return np.stack([colatitude, longitude], axis=1)


def directions(theta) -> np.ndarray:
    """Points on S^1 from their angles.

    Parameters
    ----------
    theta : array_like, shape (m,)

    Returns
    -------
    ndarray, shape (m, 2)

    Examples
    --------
    >>> directions([0.0]).tolist()
    [[1.0, 0.0]]
    """
    theta = np.asarray(theta, dtype=float)
    return np.stack([np.cos(theta), np.sin(theta)], axis=-1)
