"""Spaces: points on the unit sphere with positive weights that sum to one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.integrate import lebedev_rule
from scipy.special import gamma, roots_gegenbauer

from meanfield.errors import MeshError, PointsError, SizeError
from meanfield.sphere.geometry import directions, unit_points

# The orders of V. I. Lebedev's rules that scipy provides; 13, 25 and 27 have negative weights.
LEBEDEV_ORDERS = (3, 5, 7, 9, 11, 15, 17, 19, 21, 23, 29, 31, 35, 41, 47, 53, 59, 65, 71, 77,
                  83, 89, 95, 101, 107, 113, 119, 125, 131)  # fmt: skip
NEGATIVE_ORDERS = (13, 25, 27)
MAX_PRODUCT_POINTS = 20_000_000


@dataclass(frozen=True, eq=False)
class Space:
    """Quadrature on the sphere: ``int f dmu_0 ~ sum_i weights[i] f(points[i])``.

    Parameters
    ----------
    points : array_like, shape (m, n)
        Unit vectors.
    weights : array_like, shape (m,), optional
        Positive; they are scaled to sum to one. Equal weights when omitted.
    name : str, optional
        How the space was made, e.g. ``"lebedev:47"``: the same text the command takes.

    Raises
    ------
    PointsError
        If a point is off the sphere.
    MeshError
        If the weights are not positive and finite.

    Examples
    --------
    >>> space = lebedev(5)
    >>> round(float(space.integrate(space.points[:, 2] ** 2)), 15)
    0.333333333333333
    """

    points: np.ndarray
    weights: np.ndarray | None = None
    name: str = "points"

    def __post_init__(self):
        points = unit_points(self.points)
        count = len(points)
        weights = np.ones(count) if self.weights is None else np.asarray(self.weights, float)
        if weights.shape != (count,):
            raise MeshError(f"weights must have shape ({count},), got {weights.shape}")
        if not (np.isfinite(weights).all() and (weights > 0).all()):
            raise MeshError("weights must be positive and finite: the space carries a measure")
        object.__setattr__(self, "points", points)
        object.__setattr__(self, "weights", weights / weights.sum())

    @property
    def dimension(self) -> int:
        """The dimension n of the surrounding space; the sphere is S^{n-1}."""
        return self.points.shape[1]

    def __len__(self) -> int:
        return len(self.points)

    @cached_property
    def surface(self) -> float:
        """The measure of the whole sphere: 2 pi, 4 pi, ... ."""
        return 2 * np.pi ** (self.dimension / 2) / gamma(self.dimension / 2)

    def integrate(self, values) -> np.ndarray:
        """Integrate values at the points against the uniform probability measure mu_0.

        Parameters
        ----------
        values : array_like, shape (m, ...)

        Returns
        -------
        ndarray, shape (...)
        """
        return np.tensordot(self.weights, np.asarray(values, dtype=float), axes=1)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.name}: {len(self)} points on the sphere "
            f"of R^{self.dimension})"
        )


def lebedev(order: int) -> Space:
    """Lebedev's rule on S^2: exact for spherical harmonics up to degree ``order``.

    Parameters
    ----------
    order : int
        One of the orders with positive weights, 3 to 131; 13, 25 and 27 have negative
        weights and are refused.

    Returns
    -------
    Space
        About ``(order + 1)^2 / 3`` points.

    Raises
    ------
    MeshError
        If the order does not exist or has negative weights; the message lists the valid ones.

    References
    ----------
    V. I. Lebedev and D. N. Laikov (1999), A quadrature formula for the sphere of the 131st
    algebraic order of accuracy.

    Examples
    --------
    >>> len(lebedev(47))
    770
    """
    if order not in LEBEDEV_ORDERS:
        why = "has negative weights" if order in NEGATIVE_ORDERS else "does not exist"
        raise MeshError(
            f"the Lebedev rule of order {order} {why}; valid orders: "
            + ", ".join(map(str, LEBEDEV_ORDERS))
        )
    points, weights = lebedev_rule(int(order))
    return Space(points.T, weights, name=f"lebedev:{order}")


def product_sphere(n: int, degree: int) -> Space:
    """Product Gauss rule on S^{n-1}, exact for polynomials up to ``degree``.

    Parameters
    ----------
    n : int
        Dimension of the surrounding space, n >= 2.
    degree : int
        Degree of exactness, >= 0: ``degree + 1`` equispaced longitudes times as many
        Gauss nodes in every other angle.

    Returns
    -------
    Space
        ``(degree + 1)^(n - 1)`` points.

    Raises
    ------
    MeshError
        If n < 2 or degree < 0.
    SizeError
        If the rule would have more than 2e7 points.

    Examples
    --------
    >>> space = product_sphere(4, 8)
    >>> round(float(space.integrate(space.points[:, 3] ** 4)), 14)
    0.125
    """
    if n < 2 or degree < 0:
        raise MeshError(f"product_sphere needs n >= 2 and degree >= 0, got n={n}, degree={degree}")
    count = (degree + 1) ** (n - 1)
    if count > MAX_PRODUCT_POINTS:
        raise SizeError(
            f"product_sphere({n}, {degree}) would have {count:.3g} points "
            f"(about {count * (n + 1) * 8 / 2**30:.3g} GiB); choose a smaller degree"
        )
    points = directions(2 * np.pi * np.arange(degree + 1) / (degree + 1))
    weights = np.ones(degree + 1)
    for dimension in range(3, n + 1):
        # d sigma on S^{k-1} splits into (1 - t^2)^{(k-3)/2} dt times d sigma on S^{k-2}.
        heights, height_weights = roots_gegenbauer(degree + 1, (dimension - 2) / 2)
        radius = np.sqrt(1 - heights**2)
        points = np.concatenate(
            [
                np.multiply.outer(radius, points).reshape(-1, dimension - 1),
                np.repeat(heights, len(points))[:, None],
            ],
            axis=1,
        )
        weights = np.multiply.outer(height_weights, weights).ravel()
    return Space(points, weights, name=f"product:{n},{degree}")


def as_points(space_or_points) -> np.ndarray:
    """The points of a Space or Measure, or an array of unit vectors itself.

    Examples
    --------
    >>> as_points(lebedev(3)).shape
    (6, 3)
    """
    points = getattr(space_or_points, "points", space_or_points)
    if points is None:
        raise PointsError("no points were given")
    return unit_points(points)
