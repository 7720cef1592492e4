"""Attention outputs of batches of particles: the right-hand sides of the particle methods.

Inside the particle methods arrays are component first, shape (n, starts, N): every elementwise
operation runs over long contiguous rows, and the block of a start is still a matrix that BLAS
takes as it is. A field owns its buffers, so that an evaluation of small systems allocates
next to nothing; it must not be shared between threads.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from meanfield.model.attention import SelfAttention
from meanfield.sphere.geometry import directions

TILE_ENTRIES = 131_072  # doubles worked on at a time: one MiB stays in the second-level cache
MANY = 1_500  # a single start with more particles than this goes through model.on
CIRCLE_FROM, CIRCLE_TO = 32, 100_000  # numbers of particles for which Fourier series are used
ALONE = 100  # what one start must have at least to use them: each operation has its overhead
CIRCLE_NORM = 4.0  # up to this ||D|| their error 1e-15 e^{2 ||D||} of Z is below 1e-11
CIRCLE_GRID = 128  # samples of the kernel per angle, twice what degrees at ||D|| = 4 need
CIRCLE_CUT = 1e-15  # Fourier coefficients below this part of the largest are left out
SAFE_EXPONENT = 300.0  # exponents up to this size need no shift


def dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Inner products of component-first arrays: shapes (n, ...) to (...)."""
    return np.add.reduce(a * b, axis=0)


def chunk_size(model, starts: int, count: int) -> int:
    """How many starts are evaluated together so that their temporaries stay in the cache."""
    entries = max(_kind(head, starts, count).entries(count) for head in heads_of(model))
    return int(np.clip(TILE_ENTRIES // entries, 1, starts))


def make_field(model, weights: np.ndarray, starts: int):
    """The fastest evaluation of a model's attention for so many starts and particles.

    Parameters
    ----------
    model : SelfAttention or MultiHead
    weights : ndarray, shape (N,)
    starts : int

    Returns
    -------
    DenseField, CircleField, BoundField or HeadsField
        ``field(x, out)`` writes ``sum_j a_j K(x_i, x_j) V x_j``, divided by ``Z(x_i)`` for a
        normalised model, for x of shape (n, starts, N); ``field.log_potential(x)`` gives
        ``log Z``, shape (starts, N).
    """
    heads = heads_of(model)
    fields = [_kind(head, starts, len(weights))(head, weights, starts) for head in heads]
    return fields[0] if isinstance(model, SelfAttention) else HeadsField(fields, model.factor)


def heads_of(model) -> tuple[SelfAttention, ...]:
    """The heads of a model; a `SelfAttention` is its own only head."""
    return (model,) if isinstance(model, SelfAttention) else model.heads


def _kind(head: SelfAttention, starts: int, count: int):
    gentle = head.interaction.norm <= CIRCLE_NORM
    least = ALONE if starts == 1 else CIRCLE_FROM
    if head.dimension == 2 and gentle and least < count <= CIRCLE_TO:
        return CircleField
    return BoundField if starts == 1 and count > MANY else DenseField


class DenseField:
    """All pairs, a tile of starts or of rows at a time; exact to round-off for any D."""

    def __init__(self, head: SelfAttention, weights: np.ndarray, starts: int):
        n, count = head.dimension, len(weights)
        self.normalized = head.normalized
        self.shifted = head.interaction.norm > SAFE_EXPONENT
        # One product gives Dx and Vx; equal weights are part of it, others multiply Vx.
        equal = bool((weights == weights[0]).all())
        self.maps = np.concatenate([head.D, head.V * (weights[0] if equal else 1.0)])
        self.weights = None if equal else weights
        images = np.empty((2 * n + 1, starts, count))
        images[-1] = weights
        self.images, self.flat, self.values = images, images[:-1].reshape(2 * n, -1), images[n:-1]
        self.keys = images[:n].transpose(1, 0, 2)
        self.columns = images[n:].transpose(1, 0, 2)  # a V x_j and a_j
        rows = min(count, max(1, TILE_ENTRIES // count))
        self.rows = [slice(k, min(k + rows, count)) for k in range(0, count, rows)]
        self.tile = np.empty((starts, rows, count))
        self.sums = np.empty((n + 1, starts, count))

    @staticmethod
    def entries(count: int) -> int:
        """Pairs of a start."""
        return count * count

    def _evaluate(self, x: np.ndarray, out: np.ndarray) -> np.ndarray | None:
        """Sums of V x_j (and of one, if out has a row for it); returns the shifts."""
        n = len(x)
        np.matmul(self.maps, x.reshape(n, -1), out=self.flat)
        if self.weights is not None:
            self.values *= self.weights
        points, columns = x.transpose(1, 2, 0), self.columns[:, : len(out)]
        out = out.transpose(1, 0, 2)
        shift = np.empty(x.shape[1:]) if self.shifted else None
        for rows in self.rows:
            tile = self.tile[:, : rows.stop - rows.start]
            np.matmul(points[:, rows], self.keys, out=tile)
            if self.shifted:
                shift[:, rows] = tile.max(axis=2)
                tile -= shift[:, rows, None]
            np.exp(tile, out=tile)
            np.matmul(columns, tile.transpose(0, 2, 1), out=out[:, :, rows])
        return shift

    def __call__(self, x: np.ndarray, out: np.ndarray) -> None:
        """Write the attention output, shape (n, starts, N)."""
        if self.normalized:
            self._evaluate(x, self.sums)
            np.divide(self.sums[:-1], self.sums[-1], out=out)
        else:
            shift = self._evaluate(x, out)
            if self.shifted:
                out *= np.exp(shift)

    def log_potential(self, x: np.ndarray) -> np.ndarray:
        """``log Z`` at the particles, shape (starts, N)."""
        shift = self._evaluate(x, self.sums)
        return np.log(self.sums[-1]) + (shift if self.shifted else 0.0)


class CircleField:
    """Fourier series on S^1: moments of the particles, a small matrix, and series back.

    It costs a few dozen operations a particle instead of N exponentials; the error is
    round-off relative to the largest potential.
    """

    def __init__(self, head: SelfAttention, weights: np.ndarray, starts: int):
        count = len(weights)
        self.normalized = head.normalized
        self.matrix = series_matrix(head.D.tobytes(), head.V.tobytes())
        self.terms = terms = len(self.matrix) // 2
        self.powers = np.ones((terms, starts, count), dtype=complex)
        self.flat = self.powers.view(float)  # (terms, starts, 2 N): real, imaginary, real, ...
        self.chain = [tuple(self.powers[k - 1 : k + 1]) for k in range(2, terms)]
        # The weighted sums of real and of imaginary parts as one matrix product.
        self.averages = np.zeros((2 * count, 2))
        self.averages[0::2, 0] = self.averages[1::2, 1] = weights
        self.moments = np.empty((terms, starts, 2))
        self.packed = np.empty((starts, terms, 2))
        self.series = np.empty((starts, 6 * terms))
        self.products = np.empty((starts, 6, 2 * count))
        self.fields = np.empty((3, starts, count))

    @staticmethod
    def entries(count: int) -> int:
        """Doubles that hold about 16 complex powers and the products of a start."""
        return 40 * count

    def _evaluate(self, x: np.ndarray, fields: int) -> np.ndarray:
        """The first ``fields`` of the two components of the output and Z, unnormalised."""
        powers, starts = self.powers, x.shape[1]
        powers[1].real, powers[1].imag = x
        for lower, higher in self.chain:
            np.multiply(lower, powers[1], out=higher)
        np.matmul(self.flat, self.averages, out=self.moments)
        self.packed[:] = self.moments.transpose(1, 0, 2)
        columns = 2 * fields * self.terms
        series, products = self.series[:, :columns], self.products[:, : 2 * fields]
        packed = self.packed.reshape(starts, -1)
        np.matmul(packed, self.matrix[:, :columns], out=series)
        series = series.reshape(starts, 2 * fields, self.terms)
        np.matmul(series, self.flat.transpose(1, 0, 2), out=products)
        # The real part of coefficient times power.
        parts = products.reshape(starts, 2 * fields, -1, 2)
        result = self.fields[:fields]
        np.subtract(parts[:, 0::2, :, 0], parts[:, 1::2, :, 1], out=result.transpose(1, 0, 2))
        return result

    def __call__(self, x: np.ndarray, out: np.ndarray) -> None:
        """Write the attention output, shape (2, starts, N)."""
        if self.normalized:
            fields = self._evaluate(x, 3)
            np.divide(fields[:2], fields[2], out=out)
        else:
            out[:] = self._evaluate(x, 2)

    def log_potential(self, x: np.ndarray) -> np.ndarray:
        """``log Z`` at the particles, shape (starts, N)."""
        return np.log(self._evaluate(x, 3)[2])


@lru_cache(maxsize=16)
def series_matrix(D: bytes, V: bytes) -> np.ndarray:
    """From moments of the particles to the Fourier series of the attention integrals on S^1.

    With ``z = x_1 + i x_2`` and moments ``m_l = sum_j a_j z_j^l`` the integrals of K V y (two
    components) and of K are ``Re sum_k c_k z^k``, where c is linear in the real and imaginary
    parts of m.

    Parameters
    ----------
    D, V : bytes
        The 2 x 2 matrices, as ``ndarray.tobytes`` gives them (hashable, exact).

    Returns
    -------
    ndarray, shape (2 terms, 6 terms)
        Rows: (degree, real or imaginary part); columns: (field, part, degree).
    """
    D, V = (np.frombuffer(matrix).reshape(2, 2) for matrix in (D, V))
    grid = directions(2 * np.pi * np.arange(CIRCLE_GRID) / CIRCLE_GRID)
    kernel = np.exp(grid @ D @ grid.T)
    samples = np.stack([*(kernel * component for component in V @ grid.T), kernel])
    spectrum = np.fft.fft2(samples) / CIRCLE_GRID**2
    sizes = np.abs(spectrum).max(axis=0) > CIRCLE_CUT * np.abs(spectrum).max()
    half = CIRCLE_GRID // 2
    used = np.flatnonzero(sizes[:half, :].any(axis=1) | sizes[:, :half].any(axis=0))
    terms = int(used.max(initial=1)) + 1
    positive, mirrored = spectrum[:, :terms, :terms], spectrum[:, :terms, -np.arange(terms)]
    # m_{-l} is the conjugate of m_l, and so are the series' coefficients: both fold to >= 0.
    real, imaginary = positive + mirrored, 1j * (positive - mirrored)
    real[:, :, 0] /= 2
    fold = np.where(np.arange(terms) > 0, 2.0, 1.0)[:, None]
    linear = np.stack([fold * real, fold * imaginary], axis=-1)  # (field, k, l, part of m)
    parts = np.stack([linear.real, linear.imag], axis=1)  # (field, part of c, k, l, part of m)
    return np.ascontiguousarray(parts.transpose(3, 4, 0, 1, 2).reshape(2 * terms, 6 * terms))


class BoundField:
    """One start of many particles, through the integrals of ``model.on(points)``."""

    def __init__(self, head: SelfAttention, weights: np.ndarray, starts: int):
        self.head, self.weights = head, weights

    @staticmethod
    def entries(count: int) -> int:
        """More than any tile: starts are evaluated one by one."""
        return count * count

    def __call__(self, x: np.ndarray, out: np.ndarray) -> None:
        """Write the attention output, shape (n, 1, N)."""
        if not np.isfinite(x).all():
            out[:] = np.nan
            return
        points = np.ascontiguousarray(x[:, 0].T)
        integrals = self.head.on(points).integrals
        shift, sums = integrals.sums(self.weights, points @ self.head.V.T)
        scale = 1 / sums[:, 0] if self.head.normalized else np.exp(shift)
        np.multiply(sums[:, 1:].T, scale, out=out[:, 0])

    def log_potential(self, x: np.ndarray) -> np.ndarray:
        """``log Z`` at the particles, shape (1, N)."""
        integrals = self.head.on(np.ascontiguousarray(x[:, 0].T)).integrals
        return integrals.log_potential(self.weights)[None]


class HeadsField:
    """The sum of the outputs of several heads, times a factor."""

    def __init__(self, fields: list, factor: float):
        self.fields, self.factor = fields, factor
        self.part = None

    def __call__(self, x: np.ndarray, out: np.ndarray) -> None:
        """Write the attention output, shape (n, starts, N)."""
        if self.part is None:
            self.part = np.empty_like(x)
        self.fields[0](x, out)
        for field in self.fields[1:]:
            field(x, self.part)
            out += self.part
        out *= self.factor
