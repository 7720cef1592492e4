"""Domains of tokens, and the norms that W1, diameters and Lipschitz constants are measured in.

One ground norm holds throughout: the paper's l1, whose Lipschitz constants are l-infinity norms
of gradients, or l2. A Lipschitz constant in one norm times a diameter in the other bounds nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanfield.errors import InputError, PointsError
from meanfield.regularity.potentials import as_matrix, as_points

NORMS = ("l1", "l2")
TOLERANCE = 1e-12  # relative: how far outside the domain a point may be by round-off


def check_norm(norm: str) -> str:
    """Return the norm if it is "l1" or "l2".

    Raises
    ------
    InputError
        If it is another one.

    Examples
    --------
    >>> check_norm("l1")
    'l1'
    """
    if norm not in NORMS:
        raise InputError(f"norm must be 'l1' or 'l2', got {norm!r}")
    return norm


def vector_norm(vectors, norm: str, dual: bool = False) -> np.ndarray:
    """Norms of row vectors, or their dual norms (l-infinity for l1).

    Parameters
    ----------
    vectors : array_like, shape (..., d)
    norm : {"l1", "l2"}
    dual : bool

    Returns
    -------
    ndarray, shape (...)

    Examples
    --------
    >>> vector_norm([3.0, -4.0], "l1").item(), vector_norm([3.0, -4.0], "l1", dual=True).item()
    (7.0, 4.0)
    """
    order = {"l1": np.inf if dual else 1, "l2": 2}[check_norm(norm)]
    return np.linalg.norm(np.asarray(vectors, dtype=float), order, axis=-1)


def matrix_norm(matrix, norm: str, rows: bool = False) -> float:
    """Lipschitz constant of ``x -> Wx``, or of ``x -> xW`` (the row convention).

    Parameters
    ----------
    matrix : array_like, shape (p, q)
    norm : {"l1", "l2"}
        l1: the largest absolute column sum (row sum for ``x -> xW``); l2: the spectral norm.
    rows : bool
        Whether the matrix acts from the right.

    Returns
    -------
    float

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Proposition 22.

    Examples
    --------
    >>> W = [[1.0, -2.0], [3.0, 0.0]]
    >>> matrix_norm(W, "l1"), matrix_norm(W, "l1", rows=True)
    (4.0, 3.0)
    """
    W = as_matrix(matrix, "the matrix")
    return float(np.linalg.norm(W.T if rows else W, {"l1": 1, "l2": 2}[check_norm(norm)]))


def _check(size: float, dimension: int, name: str) -> None:
    if not (np.isfinite(size) and size > 0):
        raise InputError(f"{name} must be positive and finite, got {size}")
    if int(dimension) != dimension or dimension < 1:
        raise InputError(f"dimension must be a positive integer, got {dimension}")


class Domain:
    """A compact convex set E, symmetric about the origin."""

    dimension: int

    def contains(self, points) -> np.ndarray:
        """Which points lie in E, round-off forgiven: (m, d) to booleans (m,)."""
        raise NotImplementedError

    def require(self, points, name: str = "points") -> np.ndarray:
        """Return points as an array if all of them lie in E.

        Raises
        ------
        PointsError
            If a point lies outside, or in another dimension.
        """
        points = as_points(points, name)
        if points.shape[1] != self.dimension:
            raise PointsError(f"{name} live in R^{points.shape[1]}, E in R^{self.dimension}")
        outside = np.flatnonzero(~self.contains(points))
        if outside.size:
            raise PointsError(
                f"{len(outside)} of {len(points)} {name} lie outside {self} (the first is "
                f"number {outside[0]}): the bounds hold on E only, project or enlarge E"
            )
        return points


@dataclass(frozen=True)
class Ball(Domain):
    """The Euclidean ball ``{x in R^d: |x|_2 <= radius}``.

    Parameters
    ----------
    radius : float
    dimension : int

    Raises
    ------
    InputError
        If the radius is not positive and finite, or the dimension no positive integer.

    Examples
    --------
    >>> E = Ball(1.0, 4)
    >>> E.diameter("l1"), E.diameter("l2")
    (4.0, 2.0)
    """

    radius: float
    dimension: int

    def __post_init__(self):
        _check(self.radius, self.dimension, "radius")

    @property
    def half_width(self) -> float:
        """The largest coordinate of a point."""
        return float(self.radius)

    def diameter(self, norm: str) -> float:
        """The largest distance of two points in the norm."""
        return 2.0 * self.radius * (self.dimension**0.5 if check_norm(norm) == "l1" else 1.0)

    def contains(self, points) -> np.ndarray:
        """Which points lie in E, round-off forgiven: (m, d) to booleans (m,)."""
        return np.linalg.norm(points, axis=-1) <= self.radius * (1 + TOLERANCE)

    def support(self, directions) -> np.ndarray:
        """``max over x in E of c.x`` for each row c: (m, d) to (m,)."""
        return self.radius * np.linalg.norm(directions, axis=-1)

    def project(self, points) -> np.ndarray:
        """The nearest points of E, in l2: (m, d) to (m, d); nonexpansive in l2 only."""
        points = np.asarray(points, dtype=float)
        size = np.linalg.norm(points, axis=-1, keepdims=True)
        return points * (self.radius / np.maximum(size, self.radius))


@dataclass(frozen=True)
class Box(Domain):
    """The cube ``[-half_width, half_width]^dimension``.

    Parameters
    ----------
    half_width : float
    dimension : int

    Raises
    ------
    InputError
        If the half width is not positive and finite, or the dimension no positive integer.

    Examples
    --------
    >>> E = Box(0.5, 4)
    >>> E.diameter("l1"), E.diameter("l2")
    (4.0, 2.0)
    """

    half_width: float
    dimension: int

    def __post_init__(self):
        _check(self.half_width, self.dimension, "half_width")

    @property
    def radius(self) -> float:
        """The largest Euclidean norm of a point."""
        return float(self.half_width * self.dimension**0.5)

    def diameter(self, norm: str) -> float:
        """The largest distance of two points in the norm."""
        size = self.dimension if check_norm(norm) == "l1" else self.dimension**0.5
        return 2.0 * self.half_width * size

    def contains(self, points) -> np.ndarray:
        """Which points lie in E, round-off forgiven: (m, d) to booleans (m,)."""
        return np.abs(points).max(axis=-1) <= self.half_width * (1 + TOLERANCE)

    def support(self, directions) -> np.ndarray:
        """``max over x in E of c.x`` for each row c: (m, d) to (m,)."""
        return self.half_width * np.abs(directions).sum(axis=-1)

    def project(self, points) -> np.ndarray:
        """The points clipped to E: (m, d) to (m, d); nonexpansive in every lp norm."""
        return np.clip(np.asarray(points, dtype=float), -self.half_width, self.half_width)
