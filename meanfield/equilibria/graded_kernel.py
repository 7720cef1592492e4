"""The energy on finitely many harmonics of S^1 and S^2, accurate in every mode.

For positive semidefinite D with eigenvalues l_i, in the coordinates of its axes,
``exp(x.Dy) = sum_a f_a(x) f_a(y)`` with ``f_a(x) = prod_i (l_i^{1/2} x_i)^{a_i} / (a_i!)^{1/2}``.
Harmonics of degree l are orthogonal to every ``f_a`` with ``|a| < l``, so the matrix
``B = G G^T``, ``G_ja = int basis_j f_a``, is built degree by degree from terms that are all as
small as the result: entries that fall factorially keep their relative accuracy. That is what
separates the modes that double precision can see from those it cannot.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np
from scipy.linalg import block_diag, solve_triangular
from scipy.linalg.lapack import dpotrf
from scipy.special import gammaln

from meanfield.model.separable import harmonic_parity, kernel_degree
from meanfield.sphere.harmonics import harmonic_transform, harmonic_values
from meanfield.sphere.spaces import product_sphere

LARGEST_NORM = {2: 60.0, 3: 12.0}  # of D: for larger ones there are too many harmonics
EXTRA = 4  # degrees beyond those of the kernel itself
PRESENT = 1e-24  # of the largest it can be: below it a mode does not occur in the kernel
VISIBLE = 1e-17  # of the form at the constant: smaller ones do not change the energy
SMALLEST_PIVOT = 1e-9  # of a scaled mode against those before it, for a mode that is resolved


@dataclass(frozen=True, eq=False)
class GradedKernel:
    """The kernel on the harmonics that double precision resolves; see `graded_kernel`.

    Attributes
    ----------
    index : ndarray of int, shape (r,)
        Which harmonics of degree at least one occur, in the order of `harmonic_values`.
    degrees : ndarray of int, shape (r,)
        Their degrees.
    basis_degree : int
        The degree that this order belongs to.
    degree : int
        All that occur in the kernel up to this degree are resolved.
    matrix : ndarray, shape (r, r)
        Of the quadratic form ``int int exp(x.Dy - lambda_max)`` in their coefficients.
    inverse : ndarray, shape (r, r)
        Its inverse.
    column : ndarray, shape (r,)
        What couples them to the constant.
    corner : float
        The form at the harmonic of degree zero.
    constant : float
        The value of the harmonic of degree zero.
    """

    index: np.ndarray
    degrees: np.ndarray
    basis_degree: int
    degree: int
    matrix: np.ndarray
    inverse: np.ndarray
    column: np.ndarray
    corner: float
    constant: float


@lru_cache(maxsize=8)
def graded_kernel(eigenvalues: tuple[float, ...]) -> GradedKernel:
    """The quadratic form of the energy on harmonics, scaled by ``exp(-lambda_max)``.

    Parameters
    ----------
    eigenvalues : tuple of float, length 2 or 3
        Nonnegative, ascending, not all zero; the harmonics are those of the axes.

    Returns
    -------
    GradedKernel

    Examples
    --------
    >>> kernel = graded_kernel((1.0, 1.5))
    >>> kernel.degree >= 14, round(float(kernel.corner / (2 * np.pi) * np.exp(1.5)), 12)
    (True, 1.452907252044)
    """
    n = len(eigenvalues)
    degree = kernel_degree(eigenvalues[-1], n) + EXTRA
    degrees = harmonic_transform(np.eye(n)[:1], degree).degree
    parity = harmonic_parity(n, degree)
    order = np.argsort(degrees, kind="stable")
    classes = []
    for signs in product((0, 1), repeat=n):
        index = order[(parity[order] == signs).all(axis=1)]
        matrix, expected = _class_matrix(eigenvalues, degree, degrees[index], index, signs)
        classes.append((index, matrix, expected))
    # The class of even functions holds the constant, first of all; it is kept apart.
    corner, coupling = float(classes[0][1][0, 0]), classes[0][1][0, 1:]
    classes[0] = tuple(part[1:] if part.ndim == 1 else part[1:, 1:] for part in classes[0])
    factors = [_factor(matrix, expected) for _, matrix, expected in classes]
    resolved = min(
        _resolved_degree(degrees[index[kept]], len(half), degree)
        for (index, _, _), (kept, half) in zip(classes, factors, strict=True)
    )
    kept, half = factors[0]
    resolved = _cut(degrees[classes[0][0][kept]], half, coupling[kept], corner, resolved)
    indices, matrices, inverses, column = [], [], [], []
    for number, ((index, matrix, _), (kept, half)) in enumerate(zip(classes, factors, strict=True)):
        kept = kept[degrees[index[kept]] <= resolved]
        size = len(kept)
        indices.append(index[kept])
        matrices.append(matrix[np.ix_(kept, kept)])
        inverse = solve_triangular(half[:size, :size], np.eye(size), lower=True)
        inverses.append(inverse.T @ inverse)
        column.append(coupling[kept] if number == 0 else np.zeros(size))
    return GradedKernel(
        np.concatenate(indices),
        degrees[np.concatenate(indices)],
        degree,
        resolved,
        block_diag(*matrices),
        block_diag(*inverses),
        np.concatenate(column),
        corner,
        float(harmonic_values(np.eye(n)[:1], 0)[0, 0]),
    )


def _class_matrix(eigenvalues, degree: int, degrees, index, signs):
    """The form on one class of parities, and the sizes that its diagonal could have at most.

    ``degrees`` ascend. The sum over the degrees of the features ends where the series of the
    highest harmonics have converged.
    """
    n, largest = len(eigenvalues), eigenvalues[-1]
    top = degree + 2 * _series_length(largest, degree)
    points, weights = _orthant_rule(n, top + degree)
    surface = weights.sum()
    powers = _powers(np.sqrt(eigenvalues), points, top)
    basis = harmonic_values(points, degree)[index] * weights
    matrix = np.zeros((len(index), len(index)))
    expected = np.zeros(len(index))
    for k in range(sum(signs), top + 1, 2):
        rows = int(np.searchsorted(degrees, k, side="right"))
        exponents = _exponents(k, signs)
        features = np.prod([powers[axis][exponents[:, axis]] for axis in range(n)], axis=0)
        G = basis[:rows] @ (features * np.exp(-largest / 2)).T
        matrix[:rows, :rows] += G @ G.T
        size = np.exp(k * np.log(largest) - gammaln(k + 1) - largest)
        expected[:rows] += size * surface * 2.0 ** -degrees[:rows]
    return matrix, expected


def _orthant_rule(n: int, degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Points with coordinates >= 0 and weights, for functions that are even in each of them."""
    space = product_sphere(n, 4 * (degree // 4 + 1) - 1)  # symmetric in every coordinate
    inside = (space.points > -1e-12).all(axis=1)
    points = space.points[inside]
    images = 2.0 ** (points > 1e-12).sum(axis=1)
    return np.maximum(points, 0.0), images * space.weights[inside] * space.surface


def _series_length(norm: float, degree: int) -> int:
    """Terms of the series of the Bessel function of this order down to round-off."""
    m = np.arange(1, 40 + int(2 * norm))
    terms = 2 * m * np.log(norm / 2) - gammaln(m + 1) - gammaln(m + degree + 1)
    return int(m[terms > terms.max(initial=-gammaln(degree + 1)) - 40].max(initial=1))


def _powers(factors, points, top: int) -> list[np.ndarray]:
    """``(factor_i x_i)^k / sqrt(k!)`` for k = 0, ..., top, one array (top + 1, m) an axis."""
    k = np.arange(1, top + 1)
    steps = (factors * points).T[:, None, :] / np.sqrt(k)[:, None]
    ones = np.ones((1, len(points)))
    return [np.concatenate([ones, rows.cumprod(axis=0)]) for rows in steps]


def _exponents(k: int, signs) -> np.ndarray:
    """Exponents of the monomials of degree k with these parities, shape (count, n)."""
    first = [range(sign, k + 1, 2) for sign in signs[:-1]]
    grid = np.stack(np.meshgrid(*first, indexing="ij"), axis=-1).reshape(-1, len(first))
    last = k - grid.sum(axis=1)
    return np.column_stack([grid, last])[last >= 0]


def _factor(matrix, expected) -> tuple[np.ndarray, np.ndarray]:
    """The modes that occur, and the Cholesky factor up to the first that is not resolved."""
    diagonal = matrix.diagonal()
    kept = np.flatnonzero(diagonal > PRESENT * expected)
    scale = np.sqrt(diagonal[kept])
    scaled = matrix[np.ix_(kept, kept)] / np.multiply.outer(scale, scale)
    factor, info = dpotrf(scaled, lower=1, clean=1)
    size = len(kept) if info == 0 else info - 1
    bad = np.flatnonzero(factor.diagonal()[:size] ** 2 < SMALLEST_PIVOT)
    size = int(bad[0]) if bad.size else size
    return kept, factor[:size, :size] * scale[:size, None]


def _cut(degrees, half, coupling, corner: float, resolved: int) -> int:
    """The even degree at which the moments of the unconstrained minimiser are smallest.

    Their true values fall geometrically, what round-off makes of them grows. Degrees that the
    energy can see at all are kept.
    """
    size = len(half)
    forward = solve_triangular(half, coupling[:size], lower=True)
    best, smallest = resolved, np.inf
    for degree in range(2, resolved + 1, 2):
        block = slice(*np.searchsorted(degrees[:size], [degree, degree + 1]))
        square = half[block, block]
        visible = np.max(np.sum(square**2, axis=1), initial=0.0) > VISIBLE * corner
        tail = np.linalg.norm(solve_triangular(square, forward[block], lower=True, trans="T"))
        if not visible and tail < smallest:
            best, smallest = degree, tail
    return best


def _resolved_degree(degrees, size: int, degree: int) -> int:
    return degree if size == len(degrees) else int(degrees[size]) - 1
