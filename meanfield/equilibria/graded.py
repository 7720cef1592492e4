"""Graded symmetric systems: arithmetic in double or fixed precision, and their solution.

The energy matrix B of a smooth kernel in a basis of increasing degree is graded: its entries
fall factorially with the degree, while the solution of ``B a = c e_0`` falls only
geometrically. Small entries carry the fine modes, so they must be accurate relative to the
diagonal, not to the largest entry. Both arithmetics therefore take

- ``lower``: the entries ``B_ij / B_ii`` for i >= j, and
- the diagonal ``B_ii`` apart, as a logarithm (`Double`) or as a wide integer (`Fixed`),

and cut the expansion at the degree whose coefficients are smallest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpotrf

from meanfield.errors import ConvergenceError, InputError

LARGEST_EXPONENT = 650.0  # of a ratio of square roots of diagonal entries, in double precision


@dataclass(frozen=True, eq=False)
class Solution:
    """Solution of ``B a = c e_0``, normalised to ``a_0 = 1``.

    Attributes
    ----------
    coefficients : ndarray, shape (k,)
        Numbers of the arithmetic, up to the cut.
    ratio : float
        ``c / B_00``.
    tail : float
        Euclidean norm of the last block of coefficients.
    blocks : int
        Number of blocks up to the cut.
    """

    coefficients: np.ndarray
    ratio: float
    tail: float
    blocks: int


def _midpoints(count: int) -> np.ndarray:
    return (np.arange(count) + 0.5) / count


class Double:
    """float64 numbers; times, divide, sqrt and expm1 are elementwise, product is that of matrices.

    Examples
    --------
    >>> lower = np.array([[1.0, 0.0], [0.5, 1.0]])
    >>> Double().solve(lower, np.log([1.0, 0.1]), [0, 1, 2]).coefficients.tolist()
    [1.0, -0.5]
    """

    bits = 53

    def number(self, value):
        """Numbers of this arithmetic from floats."""
        return np.asarray(value, dtype=float)

    def to_float(self, value):
        """Floats from numbers of this arithmetic."""
        return np.asarray(value, dtype=float)

    def times(self, a, b):
        return a * b

    def divide(self, a, b):
        return a / b

    def product(self, a, b):
        return a @ b

    def sqrt(self, value):
        return np.sqrt(value)

    def expm1(self, value):
        return np.expm1(value)

    def root(self, numerator: int, denominator: int) -> float:
        """Square root of a fraction."""
        return math.sqrt(numerator / denominator)

    def gauss_half(self, count: int):
        """The positive nodes of the Gauss rule with 2 count nodes; weights that sum to one."""
        nodes, weights = np.polynomial.legendre.leggauss(2 * count)
        return nodes[count:], weights[count:]

    def quarter_turn(self, count: int, closed: bool = False):
        """Cosines and sines of count angles in a quarter turn, midpoints or closed."""
        angles = np.linspace(0, np.pi / 2, count) if closed else _midpoints(count) * np.pi / 2
        return np.cos(angles), np.sin(angles)

    def graded_diagonal(self, entries, steps, sizes):
        """The diagonal for `solve`: entries times the running product of steps over blocks."""
        factors = np.concatenate([[0.0], np.log(steps).cumsum()])[: len(sizes)]
        return np.log(entries) + np.repeat(factors, sizes)

    def solve(self, lower, log_diagonal, starts, cut: bool = True) -> Solution:
        """Solve the graded system by a scaled Cholesky factorisation.

        Parameters
        ----------
        lower : ndarray, shape (k, k)
            ``B_ij / B_ii`` for i >= j; the rest is not read.
        log_diagonal : ndarray, shape (k,)
        starts : sequence of int
            Where the blocks start, and k at the end.
        cut : bool
            Cut where the last block is smallest, or keep all blocks.

        Raises
        ------
        ConvergenceError
            If the matrix is not positive definite within round-off and ``cut`` is False.
        """
        half = 0.5 * (log_diagonal - log_diagonal[0])
        too_small = np.flatnonzero(half < -LARGEST_EXPONENT)
        usable = int(too_small[0]) if too_small.size else len(half)
        scaled = np.tril(lower * np.exp(np.tril(half[:, None] - half)))
        factor, info = dpotrf(scaled[:usable, :usable], lower=1, clean=1)
        if info > 0:
            usable = info - 1
        count = int(np.searchsorted(starts, usable, side="right")) - 1
        if count < len(starts) - 1 and not cut:
            raise ConvergenceError(
                f"the system of {len(lower)} unknowns is not positive definite in double "
                "precision: lower the degree or pass precision=40"
            )
        rhs = np.zeros(usable)
        rhs[0] = 1.0
        forward = solve_triangular(factor[:usable, :usable], rhs, lower=True)
        growth = np.exp(-half[:usable])
        tails = [
            np.linalg.norm(
                solve_triangular(factor[a:b, a:b], forward[a:b], lower=True, trans="T")
                * growth[a:b]
            )
            for a, b in pairwise(starts[: count + 1])
        ]
        first = (forward**2).cumsum()[np.array(starts[1 : count + 1]) - 1]  # a_0 at each cut
        best = int(np.argmin(tails / first)) + 1 if cut else count
        size = starts[best]
        y = solve_triangular(factor[:size, :size], forward[:size], lower=True, trans="T")
        a = y * growth[:size]
        return Solution(a / a[0], 1 / a[0], float(tails[best - 1] / abs(a[0])), best)


class Fixed:
    """Integers scaled by ``2**bits`` in object arrays: as many digits as wanted, exact sums.

    Integers are several times faster than floating-point numbers of mpmath; that is used for
    the special functions only. The methods are those of `Double`.

    Parameters
    ----------
    bits : int

    Examples
    --------
    >>> fixed = Fixed(200)
    >>> str(fixed.root(2, 1) * 10**30 >> 200)
    '1414213562373095048801688724209'
    """

    def __init__(self, bits: int):
        self.bits = bits

    @cached_property
    def context(self):
        """An mpmath context of its own, so that the caller's global precision stays."""
        try:
            import mpmath
        except ImportError:
            raise InputError(
                "precision= needs mpmath: pip install 'meanfield[precision]'"
            ) from None
        context = mpmath.MPContext()
        context.prec = self.bits + 64
        return context

    def number(self, value):
        """Numbers (floats or mpmath's) as scaled integers, an object array or an int."""
        scale = self.context.mpf(2) ** self.bits
        if np.ndim(value) == 0:
            return int(self.context.mpf(value) * scale)
        flat = [int(self.context.mpf(v) * scale) for v in np.ravel(value)]
        return np.array(flat, dtype=object).reshape(np.shape(value))

    def to_float(self, value):
        """Scaled integers as float64."""
        flat = [self._float(int(v)) for v in np.ravel(value)]
        return np.array(flat).reshape(np.shape(value))

    def _float(self, value: int) -> float:
        shift = max(value.bit_length() - 64, 0)
        return math.ldexp(float(value >> shift), shift - self.bits)

    def times(self, a, b):
        return (a * b) >> self.bits

    def divide(self, a, b):
        return (a << self.bits) // b

    def product(self, a, b):
        return (a @ b) >> self.bits

    def sqrt(self, value):
        return np.array([math.isqrt(v << self.bits) for v in value], dtype=object)

    def expm1(self, value):
        unit = self.context.mpf(2) ** self.bits
        return self.number([self.context.expm1(v / unit) for v in np.ravel(value)]).reshape(
            np.shape(value)
        )

    def root(self, numerator: int, denominator: int) -> int:
        """Square root of a fraction."""
        return math.isqrt((numerator << 2 * self.bits) // denominator)

    def gauss_half(self, count: int):
        """As in `Double`: its nodes, improved by Newton's method."""
        mp, order = self.context, 2 * count
        nodes = [mp.mpf(float(x)) for x in Double().gauss_half(count)[0]]
        weights = []
        for i, x in enumerate(nodes):
            digits = 15.0
            while True:
                before, value = mp.one, x
                for k in range(2, order + 1):
                    before, value = value, ((2 * k - 1) * x * value - (k - 1) * before) / k
                slope = order * (before - x * value) / (1 - x * x)
                if digits > mp.dps:
                    break
                x -= value / slope
                digits *= 1.9
            nodes[i] = x
            weights.append(2 / ((1 - x * x) * slope**2))
        return self.number(nodes), self.number(weights)

    def quarter_turn(self, count: int, closed: bool = False):
        """As in `Double`."""
        mp = self.context
        parts = (
            [mp.mpf(i) / (count - 1) for i in range(count)]
            if closed
            else [(mp.mpf(i) + 0.5) / count for i in range(count)]
        )
        angles = [part * mp.pi / 2 for part in parts]
        cosines, sines = [mp.cos(a) for a in angles], [mp.sin(a) for a in angles]
        return self.number(cosines), self.number(sines)

    def graded_diagonal(self, entries, steps, sizes):
        """As in `Double`, as integers in a common scale wide enough for the smallest."""
        fall = -np.log2(self.to_float(steps)).sum() if steps else 0.0
        factor = 1 << int(fall + self.bits)
        factors = [factor]
        for step in steps:
            factor = (factor * step) >> self.bits
            factors.append(factor)
        return entries * np.repeat(np.array(factors, dtype=object)[: len(sizes)], sizes)

    def solve(self, lower, diagonal, starts, cut: bool = True) -> Solution:
        """As `Double.solve`; ``diagonal`` are integers in any common scale.

        Gaussian elimination of the row-scaled matrix, in blocks; the upper triangle follows
        from the lower one by symmetry. ``lower`` is overwritten.
        """
        pivots, upper, count = self._eliminate(lower, diagonal, starts)
        if count < len(starts) - 1 and not cut:
            raise ConvergenceError(
                f"{self.bits} bits do not resolve {len(lower)} unknowns: raise precision="
            )
        size = starts[count]
        forward = np.zeros(size, dtype=object)
        forward[0] = 1 << self.bits
        for k in range(size):
            forward[k] = self.divide(forward[k], pivots[k])
            forward[k + 1 :] -= self.times(lower[k + 1 : size, k], forward[k])
        blocks = pairwise(starts[: count + 1])
        tops = [self._back(upper[a:b, a:b], forward[a:b]) for a, b in blocks]
        tails = [np.linalg.norm(self.to_float(top)) for top in tops]
        squares = self.times(self.times(forward, forward), np.array(pivots[:size], dtype=object))
        first = np.cumsum(squares * diagonal[:size] // diagonal[0])  # a_0 at each cut
        first = self.to_float(first[np.array(starts[1 : count + 1]) - 1])
        best = int(np.argmin(tails / first)) + 1 if cut else count
        size = starts[best]
        a = self._back(upper[:size, :size], forward[:size])
        first = self.to_float(a[0])
        coefficients = self.divide(a, a[0])
        return Solution(coefficients, float(1 / first), float(tails[best - 1] / first), best)

    def _eliminate(self, lower, diagonal, starts):
        """Eliminate in place; returns pivots, the unit upper factor and the good blocks."""
        size = len(lower)
        upper = np.zeros_like(lower)
        pivots = []
        for block, (a, b) in enumerate(pairwise(starts)):
            for k in range(a, b):
                pivot = lower[k, k]
                if pivot <= 0:
                    return pivots, upper, block
                ratios = (diagonal[k + 1 :] << self.bits) // diagonal[k]
                upper[k, k + 1 :] = self.divide(self.times(lower[k + 1 :, k], ratios), pivot)
                pivots.append(pivot)
                panel = np.multiply.outer(lower[k + 1 :, k], upper[k, k + 1 : b])
                lower[k + 1 :, k + 1 : b] -= panel >> self.bits
            for start in range(b, size, 32):
                rows = slice(start, min(start + 32, size))
                update = lower[rows, a:b] @ upper[a:b, b : rows.stop]
                lower[rows, b : rows.stop] -= update >> self.bits
        return pivots, upper, len(starts) - 1

    def _back(self, upper, rhs):
        """Solve with a unit upper triangle."""
        x = rhs.copy()
        for k in range(len(x) - 1, 0, -1):
            x[:k] -= self.times(upper[:k, k], x[k])
        return x
