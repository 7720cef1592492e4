"""Derivative of self-attention in one token, in its low-rank form, by blocks of queries.

Token j moved by u changes the output of query i by ``J_ij u`` with

    J_ij = p_ij [I + (x_j - A_i) grad_2 a(x_i, x_j)^T] + delta_ij Cov_{p_i}(x, grad_1 a(x_i, x)),

p_i the softmax row and A_i the output: a multiple of the identity, one term of rank one, and a
full matrix on the diagonal only. All sums over i cost O(N d) for one direction and one token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import logsumexp

from meanfield.errors import DensityError, InputError, MatrixError, NonFiniteError
from meanfield.measures import probability_vector
from meanfield.regularity.potentials import Potential, as_matrix, as_points

BLOCK = 2**21  # entries of one (queries, keys) block, 16 MiB


@dataclass(frozen=True, eq=False)
class SumGradient:
    """Gradients ``g_ij = of_query[i] + of_key[j]``: nothing larger than (N, d) is stored."""

    of_query: np.ndarray
    of_key: np.ndarray
    depth = 1  # entries a pair (i, j) needs in a block

    def dot_keys(self, rows: slice, cols: np.ndarray, U: np.ndarray) -> np.ndarray:
        """``g_ij . u_j``, one u for each column: shape (rows, cols)."""
        return self.of_query[rows] @ U.T + np.einsum("jd,jd->j", self.of_key[cols], U)

    def dot_queries(self, cols: np.ndarray, U: np.ndarray) -> np.ndarray:
        """``g_jk . u_j``, one u for each query: shape (cols, N)."""
        return U @ self.of_key.T + np.einsum("jd,jd->j", self.of_query[cols], U)[:, None]

    def sum_queries(self, rows: slice, cols: np.ndarray, factors: np.ndarray) -> np.ndarray:
        """``sum_i factors_ij g_ij``, shape (cols, d)."""
        return factors.T @ self.of_query[rows] + factors.sum(0)[:, None] * self.of_key[cols]

    def sum_keys(self, cols: np.ndarray, factors: np.ndarray) -> np.ndarray:
        """``sum_k factors_jk g_jk``, shape (cols, d)."""
        return factors @ self.of_key + factors.sum(1)[:, None] * self.of_query[cols]

    def squares(self, rows: slice) -> np.ndarray:
        """``|g_ij|^2``, shape (rows, N)."""
        of_query = self.of_query[rows]
        square = (of_query**2).sum(1)[:, None] + (self.of_key**2).sum(1)
        return np.maximum(square + 2 * of_query @ self.of_key.T, 0)

    def along(self, rows: slice, x: np.ndarray, means: np.ndarray) -> np.ndarray:
        """``(x_j - means_i) . g_ij``, shape (rows, N)."""
        of_query = self.of_query[rows]
        own = (
            np.einsum("jd,jd->j", x, self.of_key) - np.einsum("id,id->i", means, of_query)[:, None]
        )
        return of_query @ x.T - means @ self.of_key.T + own

    def absolute_sum(self, rows: slice, factors: np.ndarray) -> np.ndarray:
        """An upper bound of ``sum_i factors_ij |g_ij|`` by components, factors >= 0: (N, d)."""
        total = factors.sum(0)[:, None] * np.abs(self.of_key)
        return factors.T @ np.abs(self.of_query[rows]) + total

    def variance(self, rows: slice, p: np.ndarray) -> np.ndarray:
        """Variance of the components of ``g_i.`` under the rows of p: shape (rows, d)."""
        centred = self.of_key - self.of_key.mean(0)
        return np.maximum(p @ centred**2 - (p @ centred) ** 2, 0)

    def to_key(self, j: int) -> np.ndarray:
        """``g_ij`` for one key and all queries, shape (N, d)."""
        return self.of_query + self.of_key[j]

    def of_one_query(self, j: int) -> np.ndarray:
        """``g_jk`` for one query and all keys, shape (N, d)."""
        return self.of_query[j] + self.of_key

    def diagonal(self, cols: np.ndarray) -> np.ndarray:
        """``g_jj``, shape (cols, d)."""
        return self.of_query[cols] + self.of_key[cols]


@dataclass(frozen=True, eq=False)
class DenseGradient:
    """Gradients of a user's potential: one (rows, N, d) block at a time."""

    gradient: Callable
    x: np.ndarray

    @property
    def depth(self) -> int:
        """Entries a pair (i, j) needs in a block."""
        return self.x.shape[1]

    def block(self, queries, keys) -> np.ndarray:
        """``g_ij``, shape (queries, keys, d)."""
        shape = (len(queries), len(keys), self.x.shape[1])
        found = np.broadcast_to(self.gradient(queries, keys), shape)
        if not np.isfinite(found).all():
            raise NonFiniteError("a gradient of the potential is not finite at the tokens")
        return found

    def dot_keys(self, rows, cols, U):
        """See `SumGradient`."""
        return np.einsum("ijd,jd->ij", self.block(self.x[rows], self.x[cols]), U)

    def dot_queries(self, cols, U):
        """See `SumGradient`."""
        return np.einsum("jkd,jd->jk", self.block(self.x[cols], self.x), U)

    def sum_queries(self, rows, cols, factors):
        """See `SumGradient`."""
        return np.einsum("ijd,ij->jd", self.block(self.x[rows], self.x[cols]), factors)

    def sum_keys(self, cols, factors):
        """See `SumGradient`."""
        return np.einsum("jkd,jk->jd", self.block(self.x[cols], self.x), factors)

    def squares(self, rows):
        """See `SumGradient`."""
        return (self.block(self.x[rows], self.x) ** 2).sum(2)

    def along(self, rows, x, means):
        """See `SumGradient`."""
        g = self.block(self.x[rows], self.x)
        return np.einsum("ijd,jd->ij", g, x) - np.einsum("ijd,id->ij", g, means)

    def absolute_sum(self, rows, factors):
        """See `SumGradient`."""
        return np.einsum("ijd,ij->jd", np.abs(self.block(self.x[rows], self.x)), factors)

    def variance(self, rows, p):
        """See `SumGradient`."""
        g = self.block(self.x[rows], self.x)
        mean = np.einsum("ijd,ij->id", g, p)
        return np.einsum("ijd,ij->id", (g - mean[:, None]) ** 2, p)

    def to_key(self, j):
        """See `SumGradient`."""
        return self.block(self.x, self.x[j : j + 1])[:, 0]

    def of_one_query(self, j):
        """See `SumGradient`."""
        return self.block(self.x[j : j + 1], self.x)[0]

    def diagonal(self, cols):
        """See `SumGradient`."""
        return np.concatenate([self.of_one_query(j)[j : j + 1] for j in cols])


def gradient_in(slot: str, potential: Potential, x: np.ndarray):
    """The gradients of a in one slot, "query" or "key", at all pairs of tokens."""
    parts = getattr(potential, f"grad_{slot}_parts")(x, x)
    if parts is None:
        return DenseGradient(getattr(potential, f"grad_{slot}"), x)
    return SumGradient(*(np.ascontiguousarray(np.broadcast_to(part, x.shape)) for part in parts))


@dataclass(frozen=True, eq=False)
class SelfAttentionAt:
    """Softmax self-attention at given tokens: what all sums over its Jacobian need.

    Parameters
    ----------
    potential : Potential
    x : array_like, shape (N, d)
    weights : array_like, shape (N,), optional
        Positive, summing to one; equal when omitted.
    value : array_like, shape (m, d), optional
        W of the value map ``x -> W x`` (value matrix times output matrix); the identity when
        omitted.
    causal : bool
        Query i sees the keys 0 .. i only.

    Raises
    ------
    PointsError, DensityError, MatrixError, InputError
        If an argument is not finite, a weight is not positive, or shapes do not fit.
    """

    potential: Potential
    x: np.ndarray
    weights: np.ndarray | None = None
    value: np.ndarray | None = None
    causal: bool = False

    def __post_init__(self):
        if not isinstance(self.potential, Potential):
            raise InputError(
                "the potential must be a Potential such as ScaledDotProduct(), got "
                f"{type(self.potential).__name__}"
            )
        x = as_points(self.x, "tokens")
        count = len(x)
        weights = np.full(count, 1 / count) if self.weights is None else self.weights
        weights = probability_vector(weights, count)
        if weights.min() <= 0:
            raise DensityError("all weights must be positive: drop the tokens of weight zero")
        value = self.value
        if value is not None:
            value = as_matrix(value, "value")
            if value.shape[1] != x.shape[1]:
                raise MatrixError(
                    f"value must have shape (m, {x.shape[1]}) for tokens in R^{x.shape[1]}, got "
                    f"{value.shape} (it acts as W x on a token x)"
                )
        for name, found in (("x", x), ("weights", weights), ("value", value)):
            object.__setattr__(self, name, found)

    def __len__(self) -> int:
        return len(self.x)

    @cached_property
    def W(self) -> np.ndarray:
        """The value matrix, shape (m, d)."""
        return np.eye(self.x.shape[1]) if self.value is None else self.value

    def push(self, u: np.ndarray) -> np.ndarray:
        """``W u`` for rows u: (k, d) to (k, m)."""
        return u if self.value is None else u @ self.value.T

    def pull(self, v: np.ndarray) -> np.ndarray:
        """``W^T v`` for rows v: (k, m) to (k, d)."""
        return v if self.value is None else v @ self.value

    @cached_property
    def value_gram(self) -> np.ndarray:
        """``W^T W``, shape (d, d)."""
        return self.W.T @ self.W

    @cached_property
    def values(self) -> np.ndarray:
        """``W x_j``, shifted by their mean (differences alone matter): shape (N, m)."""
        values = self.push(self.x)
        return values - values.mean(0)

    @cached_property
    def key(self):
        """Gradients of a in the key."""
        return gradient_in("key", self.potential, self.x)

    @cached_property
    def query(self):
        """Gradients of a in the query."""
        return gradient_in("query", self.potential, self.x)

    @property
    def rows_per_block(self) -> int:
        """How many queries a block holds."""
        return max(1, BLOCK // (len(self) * max(self.key.depth, self.query.depth)))

    def blocks(self) -> Iterator[slice]:
        """Blocks of queries whose (rows, N) arrays fit into memory."""
        size = self.rows_per_block
        for start in range(0, len(self), size):
            yield slice(start, min(start + size, len(self)))

    def log_ratios(self, rows, cols: np.ndarray) -> np.ndarray:
        """``log(p_ij / w_j)`` for queries ``rows`` and keys ``cols``, shape (rows, cols)."""
        return self._scores(rows, cols) - self._normalizers[rows][:, None]

    def softmax(self, rows) -> np.ndarray:
        """The rows ``p_i``, shape (rows, N)."""
        everything = np.arange(len(self))
        return np.exp(self.log_ratios(rows, everything)) * self.weights

    def _scores(self, rows, cols: np.ndarray) -> np.ndarray:
        scores = np.array(self.potential.log(self.x[rows], self.x[cols]))
        if self.causal:
            scores[np.arange(len(self))[rows][:, None] < cols] = -np.inf
        return scores

    @cached_property
    def _normalizers(self) -> np.ndarray:
        everything = np.arange(len(self))
        parts = [
            logsumexp(self._scores(rows, everything), axis=1, b=self.weights)
            for rows in self.blocks()
        ]
        return np.concatenate(parts)

    @cached_property
    def means(self) -> np.ndarray:
        """``A_i = sum_j p_ij x_j``, shape (N, d)."""
        return np.concatenate([self.softmax(rows) @ self.x for rows in self.blocks()])

    @cached_property
    def outputs(self) -> np.ndarray:
        """``W A_i``, with the shift of `values`: shape (N, m)."""
        return np.concatenate([self.softmax(rows) @ self.values for rows in self.blocks()])

    def matrices(self, j: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """All ``J_ij`` of one token: factors c, vectors D and g, and the own matrix M.

        ``w_i J_ij / w_j = c_i (W + D_i g_i^T)`` for i other than j, where ``c_j = 0``, and
        ``M = J_jj``. Shapes (N,), (N, m), (N, d), (m, d).
        """
        one = np.array([j])
        factors = np.exp(self.log_ratios(slice(None), one))[:, 0] * self.weights
        D = self.values[j] - self.outputs
        g = self.key.to_key(j)
        own = factors[j] * (self.W + np.outer(D[j], g[j]))
        p = self.softmax(one)[0]
        own = own + ((self.values - self.outputs[j]) * p[:, None]).T @ self.query.of_one_query(j)
        factors[j] = 0.0
        return factors, D, g, own
