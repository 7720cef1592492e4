"""The kernel exp(x.Dy) as harmonics, a small matrix, and harmonics back: K = Y B Y^T.

With the singular value decomposition ``D = U diag(s) W^T`` and rotated points ``x' = U^T x``,
``y' = W^T y`` the exponent is ``sum_i s_i x'_i y'_i``. It keeps its value when a coordinate
of x' and y' changes sign together, so harmonics couple only within one class of parities, and
the part of the kernel of one class is a product of ``cosh`` (even) and ``sinh`` (odd) of
``s_i x'_i y'_i``: B falls into 4 (S^1) or 8 (S^2) blocks, each a double integral over one
quadrant or octant.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np
from scipy.special import ive

from meanfield.sphere.harmonics import harmonic_transform, harmonic_values
from meanfield.sphere.spaces import product_sphere

TRUNCATION = 1e-17  # of the kernel's maximum
ERROR = 1e-13  # of the potential's maximum: what the transforms leave, with a margin
MAX_DEGREE = {2: 2000, 3: 80}  # for larger ones the matrices cost more than clusters


def kernel_degree(norm: float, n: int) -> int:
    """The degree at which the harmonics of exp(x.Dy) fall below 1e-17 of its maximum.

    Parameters
    ----------
    norm : float
        Spectral norm of D.
    n : int
        Dimension, 2 or 3.

    Returns
    -------
    int

    Examples
    --------
    >>> kernel_degree(1.0, 3), kernel_degree(10.0, 3)
    (16, 35)
    """
    degrees = np.arange(40 + int(2 * norm + 10 * np.sqrt(norm)))
    # The zonal kernel norm * x.y bounds the others: its coefficients are Bessel functions.
    sizes = (2 * degrees + 1) ** (n - 2) * ive(degrees + n / 2 - 1, max(norm, 1e-3))
    return int(degrees[sizes > TRUNCATION * sizes[0]].max()) + 1


@dataclass(frozen=True, eq=False)
class Block:
    """One class of parities: the coefficients it holds and their matrix."""

    index: np.ndarray
    matrix: np.ndarray


@lru_cache(maxsize=4)
def kernel_blocks(singular_values: tuple[float, ...], degree: int) -> tuple[Block, ...]:
    """The blocks of B, scaled by ``exp(-max s)``.

    Parameters
    ----------
    singular_values : tuple of float, length 2 or 3
    degree : int
        Harmonics up to this degree.

    Returns
    -------
    tuple of Block
        ``exp(x.diag(s)y - max s) = sum_ab basis_a(x) matrix_ab basis_b(y)``.
    """
    s = np.array(singular_values)
    n = len(s)
    points, weights = _orthant_rule(n, degree)
    basis = harmonic_values(points, degree) * weights
    parity = harmonic_parity(n, degree)
    exponents = s * points[:, None, :] * points[None, :, :]
    # cosh and sinh of each coordinate, scaled so that the product never overflows.
    decay = -np.expm1(-2 * exponents) / 2
    factors = (1 - decay, decay)
    scale = np.exp(exponents.sum(axis=2) - s.max())
    blocks = []
    for signs in product((0, 1), repeat=n):
        index = np.flatnonzero((parity == signs).all(axis=1))
        if index.size:
            kernel = scale.copy()
            for axis, odd in enumerate(signs):
                kernel *= factors[odd][..., axis]
            matrix = basis[index] @ kernel @ basis[index].T
            blocks.append(Block(index, (matrix + matrix.T) / 2))
    return tuple(blocks)


def harmonic_parity(n: int, degree: int) -> np.ndarray:
    """Which harmonics are odd in which coordinate: 0 for even, 1 for odd.

    Parameters
    ----------
    n : int, 2 or 3
    degree : int

    Returns
    -------
    ndarray of int, shape (coefficients, n)

    Examples
    --------
    >>> harmonic_parity(2, 1).tolist()
    [[0, 0], [1, 0], [0, 1]]
    """
    transform = harmonic_transform(np.eye(n)[:1], degree)
    order = np.abs(transform.order)
    odd_y = (transform.order < 0).astype(int)
    columns = [(order + odd_y) % 2, odd_y]
    if n == 3:
        columns.append((transform.degree + order) % 2)
    return np.stack(columns, axis=1)


def _orthant_rule(n: int, degree: int):
    """Points and weights on one orthant that integrate even functions over the sphere."""
    space = product_sphere(n, 4 * (degree // 2 + 2) - 1)
    # Half a step off the axes, the equispaced angles are symmetric and avoid the planes.
    half = np.pi / (4 * (degree // 2 + 2))
    turn = np.eye(n)
    turn[:2, :2] = [[np.cos(half), -np.sin(half)], [np.sin(half), np.cos(half)]]
    points = space.points @ turn.T
    inside = (points > 0).all(axis=1)
    return points[inside], 2**n * space.weights[inside] * space.surface


class SeparableSum:
    """Integrals against exp(x.Dy) through harmonic transforms, O(targets + sources).

    Parameters
    ----------
    targets : ndarray, shape (m, n), n = 2 or 3
    sources : ndarray, shape (k, n)
    D : ndarray, shape (n, n)

    Attributes
    ----------
    degree : int
        Largest degree of the harmonics.

    Notes
    -----
    The error is about 1e-14 of the *largest* potential: relative accuracy is lost where the
    potential is small. `relative_error` estimates it.
    """

    name = "separable"

    def __init__(self, targets: np.ndarray, sources: np.ndarray, D: np.ndarray):
        U, s, Wt = np.linalg.svd(D)
        self.degree = kernel_degree(s[0], len(s))
        self.scale = float(s[0])
        self.blocks = kernel_blocks(tuple(s.tolist()), self.degree)
        self.outward = harmonic_transform(targets @ U, self.degree)
        same = targets is sources and np.array_equal(U, Wt.T)
        self.inward = self.outward if same else harmonic_transform(sources @ Wt.T, self.degree)

    def _apply(self, values: np.ndarray) -> np.ndarray:
        coefficients = self.inward.analyze(values)
        images = np.empty_like(coefficients)
        for block in self.blocks:
            images[block.index] = block.matrix @ coefficients[block.index]
        return self.outward.synthesize(images)

    def sums(self, masses: np.ndarray, fields: np.ndarray | None = None):
        """Integrals in the form of `DirectSum.sums`, with one common shift."""
        columns = [masses] if fields is None else [masses, *(fields * masses[:, None]).T]
        sums = np.stack([self._apply(column) for column in columns], axis=1)
        return np.full(len(sums), self.scale), sums

    @staticmethod
    def relative_error(sums: np.ndarray) -> float:
        """Estimated relative error of the potential where it is smallest.

        Parameters
        ----------
        sums : ndarray, shape (m, 1 + f)
            The second result of `sums`.
        """
        smallest = sums[:, 0].min()
        return ERROR * sums[:, 0].max() / smallest if smallest > 0 else np.inf
