"""Interaction potentials ``G = exp(a)``: the similarity ``a`` of queries and keys.

All potentials speak through their logarithm, so that nothing overflows. The gradients of the
built-in potentials are sums of a part of the query and a part of the key, which
`grad_query_parts` and `grad_key_parts` return: they cost O((m + N) d) memory, not O(m N d).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist

from meanfield.errors import InputError, MatrixError, NonFiniteError, PointsError


def as_points(x, name: str = "points") -> np.ndarray:
    """Check points of R^d and return them as a float64 array, shape (m, d).

    Raises
    ------
    PointsError
        If they are not a finite two-dimensional array with at least one entry.

    Examples
    --------
    >>> as_points([[1, 2]]).tolist()
    [[1.0, 2.0]]
    """
    points = _numbers(x, PointsError, name)
    if points.ndim != 2 or points.size == 0:
        raise PointsError(f"{name} must have shape (m, d) with m, d >= 1, got {points.shape}")
    if not np.isfinite(points).all():
        raise PointsError(f"{name} contain NaN or infinity")
    return points


def as_matrix(matrix, name: str) -> np.ndarray:
    """Check a weight matrix, of any two sizes, and return it as float64.

    Raises
    ------
    MatrixError
        If it is not a finite two-dimensional array with at least one entry.

    Examples
    --------
    >>> as_matrix([[1, 2, 3]], "W").shape
    (1, 3)
    """
    found = _numbers(matrix, MatrixError, name)
    if found.ndim != 2 or found.size == 0:
        raise MatrixError(f"{name} must be a matrix, got shape {found.shape}")
    if not np.isfinite(found).all():
        raise MatrixError(f"{name} contains NaN or infinity")
    return found


def _numbers(values, error: type[Exception], name: str) -> np.ndarray:
    try:
        return np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise error(f"{name} must be an array of real numbers, rows of one length") from None


def _positive(value: float, name: str) -> float:
    value = float(value)
    if not (np.isfinite(value) and value > 0):
        raise InputError(f"{name} must be positive and finite, got {value}")
    return value


class Potential:
    """What every interaction potential can do; ``a = log G``.

    Attributes
    ----------
    exponential : bool
        Whether ``a(x, y) = x.By`` with a matrix B, which `matrix` returns: only then do the
        bounds of exponential potentials apply.
    """

    exponential = False

    def log(self, x, y) -> np.ndarray:
        """``a(x_i, y_j)``: queries (m, d), keys (N, d) to (m, N)."""
        raise NotImplementedError

    def matrix(self, dimension: int) -> np.ndarray | None:
        """B of ``a(x, y) = x.By`` for tokens in R^dimension; None if a is not bilinear."""
        return None

    def grad_query_parts(self, x, y) -> tuple[np.ndarray, np.ndarray] | None:
        """``(U, V)`` with ``grad_1 a(x_i, y_j) = U_i + V_j``, or None if it is no such sum.

        U has shape (m, d) or (1, d), V has shape (N, d) or (1, d).
        """
        return None

    def grad_key_parts(self, x, y) -> tuple[np.ndarray, np.ndarray] | None:
        """``(U, V)`` with ``grad_2 a(x_i, y_j) = U_i + V_j``, or None if it is no such sum."""
        return None

    def grad_query(self, x, y) -> np.ndarray:
        """Gradient of a in the query, an array that broadcasts to (m, N, d)."""
        of_query, of_key = self.grad_query_parts(x, y)
        return of_query[:, None, :] + of_key[None, :, :]

    def grad_key(self, x, y) -> np.ndarray:
        """Gradient of a in the key, an array that broadcasts to (m, N, d)."""
        of_query, of_key = self.grad_key_parts(x, y)
        return of_query[:, None, :] + of_key[None, :, :]


@dataclass(frozen=True, eq=False)
class Bilinear(Potential):
    """``G(x, y) = exp(x.By / scale)``.

    Parameters
    ----------
    B : array_like, shape (d_q, d_k)
        For a transformer head ``W_Q^T W_K``.
    scale : float
        What the scores are divided by; not zero, a negative one turns the sign of B.

    Raises
    ------
    MatrixError
        If B is not a finite matrix.
    InputError
        If the scale is zero or not finite.

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Section 4.2.

    Examples
    --------
    >>> G = Bilinear([[1.0, 2.0], [0.0, 1.0]], scale=2.0)
    >>> G.log([[1.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]).tolist()
    [[0.5, 1.5]]
    >>> G.grad_key([[1.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]).tolist()
    [[[0.5, 1.5]]]
    """

    B: np.ndarray
    scale: float = 1.0
    exponential = True

    def __post_init__(self):
        object.__setattr__(self, "B", as_matrix(self.B, "B"))
        object.__setattr__(self, "scale", _nonzero(self.scale))

    def matrix(self, dimension: int) -> np.ndarray:
        """``B / scale``, shape (d_q, d_k)."""
        if dimension != self.B.shape[0]:
            raise MatrixError(f"B has shape {self.B.shape} but the queries live in R^{dimension}")
        return self.B / self.scale

    def _fitting(self, x, y) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        x, y = as_points(x, "queries"), as_points(y, "keys")
        B = self.matrix(x.shape[1])
        if y.shape[1] != B.shape[1]:
            raise MatrixError(f"B has shape {B.shape} but the keys live in R^{y.shape[1]}")
        return x, y, B

    def log(self, x, y) -> np.ndarray:
        """``a(x_i, y_j)``: queries (m, d_q), keys (N, d_k) to (m, N)."""
        x, y, B = self._fitting(x, y)
        return x @ B @ y.T

    def grad_query_parts(self, x, y) -> tuple[np.ndarray, np.ndarray]:
        """Zero and ``B y_j``."""
        _, y, B = self._fitting(x, y)
        return np.zeros((1, len(B))), y @ B.T

    def grad_key_parts(self, x, y) -> tuple[np.ndarray, np.ndarray]:
        """``B^T x_i`` and zero."""
        x, _, B = self._fitting(x, y)
        return x @ B, np.zeros((1, B.shape[1]))


def _nonzero(scale: float) -> float:
    scale = float(scale)
    if not np.isfinite(scale) or scale == 0:
        raise InputError(f"scale must be finite and not zero, got {scale}")
    return scale


@dataclass(frozen=True, eq=False)
class ScaledDotProduct(Potential):
    """``G(x, y) = exp(x.y / scale)``.

    Parameters
    ----------
    scale : float, optional
        What the scores are divided by; not zero. The square root of the dimension when omitted.
        Practice takes that of the head dimension, the paper that of the token dimension.

    Raises
    ------
    InputError
        If the scale is zero or not finite.

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Section 4.2.

    Examples
    --------
    >>> G = ScaledDotProduct()
    >>> G.log([[1.0, 1.0, 1.0, 1.0]], [[3.0, 1.0, 1.0, 1.0]]).tolist()
    [[3.0]]
    >>> G.matrix(4)[0].tolist()
    [0.5, 0.0, 0.0, 0.0]
    """

    scale: float | None = None
    exponential = True

    def __post_init__(self):
        if self.scale is not None:
            object.__setattr__(self, "scale", _nonzero(self.scale))

    def divisor(self, dimension: int) -> float:
        """What scores of vectors in R^dimension are divided by."""
        return float(np.sqrt(dimension)) if self.scale is None else self.scale

    def matrix(self, dimension: int) -> np.ndarray:
        """``Id / scale``, shape (dimension, dimension)."""
        return np.eye(dimension) / self.divisor(dimension)

    def log(self, x, y) -> np.ndarray:
        """``a(x_i, y_j)``: queries (m, d), keys (N, d) to (m, N)."""
        x, y = _same_dimension(x, y)
        return x @ y.T / self.divisor(x.shape[1])

    def grad_query_parts(self, x, y) -> tuple[np.ndarray, np.ndarray]:
        """Zero and ``y_j / scale``."""
        x, y = _same_dimension(x, y)
        return np.zeros((1, x.shape[1])), y / self.divisor(x.shape[1])

    def grad_key_parts(self, x, y) -> tuple[np.ndarray, np.ndarray]:
        """``x_i / scale`` and zero."""
        x, y = _same_dimension(x, y)
        return x / self.divisor(x.shape[1]), np.zeros((1, x.shape[1]))


@dataclass(frozen=True, eq=False)
class Gaussian(Potential):
    """``G(x, y) = exp(-|x - y|_2^2 / bandwidth^2)``; the paper has bandwidth 1.

    Parameters
    ----------
    bandwidth : float
        Positive.

    Raises
    ------
    InputError
        If the bandwidth is not positive and finite.

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Theorem 16.

    Examples
    --------
    >>> Gaussian().log([[1.0, 0.0]], [[0.0, 1.0], [1.0, 2.0]]).tolist()
    [[-2.0, -4.0]]
    """

    bandwidth: float = 1.0

    def __post_init__(self):
        object.__setattr__(self, "bandwidth", _positive(self.bandwidth, "bandwidth"))

    def log(self, x, y) -> np.ndarray:
        """``a(x_i, y_j)``: queries (m, d), keys (N, d) to (m, N)."""
        x, y = _same_dimension(x, y)
        return -cdist(x, y, "sqeuclidean") / self.bandwidth**2

    def grad_query_parts(self, x, y) -> tuple[np.ndarray, np.ndarray]:
        """``-2 x_i / bandwidth^2`` and ``2 y_j / bandwidth^2``."""
        x, y = _same_dimension(x, y)
        return -2 * x / self.bandwidth**2, 2 * y / self.bandwidth**2

    def grad_key_parts(self, x, y) -> tuple[np.ndarray, np.ndarray]:
        """``2 x_i / bandwidth^2`` and ``-2 y_j / bandwidth^2``."""
        x, y = _same_dimension(x, y)
        return 2 * x / self.bandwidth**2, -2 * y / self.bandwidth**2


def _same_dimension(x, y) -> tuple[np.ndarray, np.ndarray]:
    x, y = as_points(x, "queries"), as_points(y, "keys")
    if x.shape[1] != y.shape[1]:
        raise PointsError(f"queries live in R^{x.shape[1]}, keys in R^{y.shape[1]}")
    return x, y


@dataclass(frozen=True, eq=False)
class Custom(Potential):
    """``G = exp(function)``, the user's own potential.

    Parameters
    ----------
    function : callable
        ``a(x, y)``: queries (m, d), keys (N, d) to finite values (m, N).
    query_gradient, key_gradient : callable, optional
        Gradients of a in its slots: (m, d), (N, d) to an array that broadcasts to (m, N, d).

    Raises
    ------
    InputError
        From the gradients, if they were not given.
    NonFiniteError
        From `log`, if the values are not finite: G must be positive and finite.

    Examples
    --------
    >>> G = Custom(lambda x, y: np.log(1.5 + x @ y.T))
    >>> G.log([[1.0]], [[0.5], [-0.5]]).tolist()
    [[0.6931471805599453, 0.0]]
    """

    function: Callable
    query_gradient: Callable | None = None
    key_gradient: Callable | None = None

    def log(self, x, y) -> np.ndarray:
        """``a(x_i, y_j)``: queries (m, d), keys (N, d) to (m, N)."""
        x, y = as_points(x, "queries"), as_points(y, "keys")
        values = np.asarray(self.function(x, y), dtype=float)
        if values.shape != (len(x), len(y)):
            raise InputError(
                f"the potential must return shape {(len(x), len(y))}, got {values.shape}"
            )
        if not np.isfinite(values).all():
            raise NonFiniteError("log G is not finite: G must be positive and finite")
        return values

    def grad_query(self, x, y) -> np.ndarray:
        """Gradient of a in the query, an array that broadcasts to (m, N, d)."""
        return self._gradient(self.query_gradient, "query_gradient", x, y)

    def grad_key(self, x, y) -> np.ndarray:
        """Gradient of a in the key, an array that broadcasts to (m, N, d)."""
        return self._gradient(self.key_gradient, "key_gradient", x, y)

    @staticmethod
    def _gradient(function, name: str, x, y) -> np.ndarray:
        if function is None:
            raise InputError(f"this needs the gradient of the potential: give {name}")
        return np.asarray(function(as_points(x), as_points(y)), dtype=float)
