"""Exact local Lipschitz constants of self-attention at given tokens, streamed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh
from scipy.spatial.distance import cdist

from meanfield.errors import InputError
from meanfield.regularity.domains import check_norm
from meanfield.regularity.jacobians import SelfAttentionAt
from meanfield.regularity.potentials import Potential

EXACT = 1e-9  # relative gap below which a constant counts as exact
SMALL = 2**14  # N^2 d up to which every token is pursued to the end
CANDIDATES = 32  # tokens that are pursued in large problems
SCREENING = 4  # ascent steps that choose them
ASCENT = 500  # most ascent steps
GROWTH = 1e-12  # relative growth of a step below which an ascent ends
DUAL_ROUNDS = 30  # most steps that sharpen a bound by duality
COLUMN_BLOCK = 2**22  # entries of one block of columns, 32 MiB
COLUMN_WORK = 2e10  # entries after which the exact l1 search stops with bounds


@dataclass(frozen=True, eq=False)
class LocalConstant:
    """The local Lipschitz constant of self-attention at given tokens.

    Attributes
    ----------
    value : float
        Attained: moving ``token`` along ``direction`` stretches distances by this factor.
    upper : float
        A proved upper bound at these tokens.
    exact : bool
        Whether the two agree to 1e-9.
    norm : str
        Ground norm, "l1" or "l2".
    token : int
    direction : ndarray, shape (d,)
        Of length one in the ground norm.
    per_token, per_token_upper : ndarray, shape (N,)
        The same for each token; where a token was not pursued the first is a lower bound.
    """

    value: float
    upper: float
    norm: str
    token: int
    direction: np.ndarray
    per_token: np.ndarray
    per_token_upper: np.ndarray

    @property
    def exact(self) -> bool:
        """Whether value and upper agree to 1e-9."""
        return self.upper - self.value <= EXACT * self.value

    def __repr__(self) -> str:
        found = f"{self.value:.10g}" if self.exact else f"{self.value:.6g} .. {self.upper:.6g}"
        return f"LocalConstant({found}, {self.norm}, token {self.token})"


def local_constant(
    tokens,
    potential: Potential,
    weights=None,
    value=None,
    norm: str = "l2",
    causal: bool = False,
    starts: int = 8,
    refine: int = 128,
    seed: int = 0,
) -> LocalConstant:
    """The local Lipschitz constant of ``mu -> mu A_mu`` at the measure of given tokens.

    ``max_j max_{|u| = 1} (1/w_j) sum_i w_i |J_ij u|``, the constant of labelled tokens and, where
    they are distinct, of W1 (both in one ground norm). In l1 the maximum is at a unit vector and
    found exactly, columns being skipped only where a proved bound allows it. In l2 the maximum of
    a sum of norms is found by ascent, and bounded from above by the sum of spectral norms and by
    Lagrangian duality, ``2 sum_i |M_i u| <= sum_i s_i + u.(sum_i M_i^T M_i / s_i) u`` for every
    s > 0, which is sharp if u is the top eigenvector at ``s_i = |M_i u|``.

    Parameters
    ----------
    tokens : array_like, shape (N, d)
    potential : Potential
        For a head of a transformer: `TransformerHead`.
    weights : array_like, shape (N,), optional
        Positive, summing to one; equal when omitted.
    value : array_like, shape (m, d), optional
        W of the value map ``x -> W x``, with the output matrix multiplied in.
    norm : {"l2", "l1"}
    causal : bool
        Query i sees the keys 0 .. i only. The labelled metric is then the one that applies.
    starts : int
        Random starts of the l2 ascent for each token that is pursued.
    refine : int
        Tokens whose l2 bound is sharpened by duality, besides all of them in small problems.
    seed : int

    Returns
    -------
    LocalConstant

    Raises
    ------
    InputError
        If the norm is unknown, a count is not positive, or shapes do not fit.
    PointsError, DensityError, MatrixError, NonFiniteError
        If tokens, weights or matrices are not finite, or do not fit.

    Notes
    -----
    Memory is O(N d) plus one block of queries; one sweep costs O(N^2 d).

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Theorem 14, corrected: the exact derivative in
    place of the printed bound.

    Examples
    --------
    >>> from meanfield.regularity.potentials import Gaussian
    >>> local_constant([[-1.0], [0.0], [1.0]], Gaussian())
    LocalConstant(1.644883636, l2, token 1)
    """
    check_norm(norm)
    if starts < 1 or refine < 0:
        raise InputError(f"starts must be >= 1 and refine >= 0, got {starts} and {refine}")
    at = SelfAttentionAt(potential, tokens, weights, value, causal)
    if norm == "l1":
        return _l1(at)
    return _l2(at, starts, refine, np.random.default_rng(seed))


def _record(norm, lower, upper, direction_of) -> LocalConstant:
    upper = np.maximum(lower, upper)
    token = int(np.argmax(lower))
    return LocalConstant(
        float(lower[token]), float(upper.max()), norm, token, direction_of(token), lower, upper
    )


# l1: the maximum of a convex function on the l1 ball is at a unit vector


def _l1(at: SelfAttentionAt) -> LocalConstant:
    bounds = _column_bounds(at)
    upper = bounds.max(1)
    lower, column = np.zeros(len(at)), np.zeros(len(at), dtype=int)
    work, best = 0.0, 0.0
    everything = len(at) * bounds.size * len(at.W) <= COLUMN_WORK / 100
    for j in np.argsort(-upper):
        if not everything and (upper[j] <= best or work > COLUMN_WORK):
            break
        columns = np.flatnonzero(bounds[j] > (0.0 if everything else best))
        if not len(columns):
            continue
        sums = _column_sums(at, j, columns)
        work += len(at) * len(at.W) * len(columns)
        lower[j], column[j] = sums.max(), columns[np.argmax(sums)]
        skipped = np.delete(bounds[j], columns)
        upper[j] = max(lower[j], skipped.max(initial=0.0))
        best = max(best, lower[j])
    return _record("l1", lower, upper, lambda j: np.eye(at.x.shape[1])[column[j]])


def _column_bounds(at: SelfAttentionAt) -> np.ndarray:
    """Upper bounds of the l1 column sums of all tokens and unit vectors, shape (N, d)."""
    columns = np.abs(at.W).sum(0)
    everything = np.arange(len(at))
    bounds = np.zeros(at.x.shape)
    for rows in at.blocks():
        ratios = np.exp(at.log_ratios(rows, everything)) * at.weights[rows, None]
        lengths = cdist(at.outputs[rows], at.values, "cityblock")
        bounds += ratios.sum(0)[:, None] * columns
        bounds += at.key.absolute_sum(rows, ratios * lengths)
        p = at.softmax(rows)
        spread = np.sqrt((p * lengths**2).sum(1))
        bounds[rows] += spread[:, None] * np.sqrt(at.query.variance(rows, p))
    return bounds * (1 + 1e-12)


def _column_sums(at: SelfAttentionAt, j: int, columns: np.ndarray) -> np.ndarray:
    """``(1/w_j) sum_i w_i |J_ij e_k|_1`` for the given k."""
    factors, D, g, own = at.matrices(j)
    sums = np.empty(len(columns))
    size = max(1, COLUMN_BLOCK // D.size)
    for start in range(0, len(columns), size):
        chosen = columns[start : start + size]
        entries = D[:, :, None] * g[:, None, chosen]
        entries += at.W[:, chosen]
        np.abs(entries, out=entries)
        sums[start : start + size] = factors @ entries.sum(1) + np.abs(own[:, chosen]).sum(0)
    return sums


# l2: a convex function on the sphere


def _l2(at: SelfAttentionAt, starts: int, refine: int, rng) -> LocalConstant:
    small = at.x.size * len(at) <= SMALL
    everything = np.arange(len(at))
    upper = _spectral_bounds(at)
    start = rng.standard_normal(at.x.shape)
    lower, U = ascend(at, everything, start, ASCENT if small else SCREENING)
    if not small:
        first = np.argsort(-lower)[:CANDIDATES]
        lower[first], U[first] = ascend(at, first, U[first], ASCENT)
    for attempt in range(2):
        pending = np.argsort(-upper)[: len(at) if small else refine]
        reached = lower[pending] if small else lower.max()
        pending = pending[upper[pending] > reached * (1 + EXACT)]
        if attempt:  # one start was not enough: look for other maxima before bounding again
            _restart(at, pending, lower, U, starts, rng)
        elif not small:
            lower[pending], U[pending] = ascend(at, pending, U[pending], 10 * SCREENING)
        for j in pending:
            enough = (lower[j] if small else lower.max()) * (1 + EXACT / 2)
            rounds = DUAL_ROUNDS if attempt else 1
            upper[j] = min(upper[j], _dual_bound(at, j, U[j], rounds, enough))
    return _record("l2", lower, upper, lambda j: U[j])


def _restart(at, tokens, lower, U, starts: int, rng) -> None:
    """Ascend from further random directions, and keep what is better."""
    tokens = tokens[:CANDIDATES]
    if not len(tokens):
        return
    cols = np.repeat(tokens, starts)
    values, found = ascend(at, cols, rng.standard_normal((len(cols), U.shape[1])), ASCENT)
    winner = values.reshape(-1, starts).argmax(1) + starts * np.arange(len(tokens))
    better = values[winner] > lower[tokens]
    lower[tokens[better]], U[tokens[better]] = values[winner][better], found[winner][better]


def ascend(at: SelfAttentionAt, cols, U, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Maximise ``u -> (1/w_j) sum_i w_i |J_ij u|_2`` for j in cols by ``u <- gradient``.

    The function is convex and homogeneous, so no step decreases it.

    Parameters
    ----------
    at : SelfAttentionAt
    cols : ndarray, shape (k,)
        Tokens, may repeat.
    U : ndarray, shape (k, d)
        Starts, of any length.
    steps : int

    Returns
    -------
    values : ndarray, shape (k,)
    U : ndarray, shape (k, d)
        Of length one.
    """
    lengths = np.linalg.norm(U, axis=1, keepdims=True)
    U = np.where(lengths > 0, U / np.where(lengths > 0, lengths, 1), 1 / np.sqrt(U.shape[1]))
    values = np.zeros(len(cols))
    live = np.arange(len(cols))
    for _ in range(steps):
        if not len(live):
            return values, U
        found, gradient = sums_of_norms(at, cols[live], U[live])
        grown = found > values[live] * (1 + GROWTH)
        values[live] = found
        live, gradient = live[grown], gradient[grown]
        U[live] = gradient / np.linalg.norm(gradient, axis=1, keepdims=True)
    if len(live):
        values[live], _ = sums_of_norms(at, cols[live], U[live])
    return values, U


def sums_of_norms(at: SelfAttentionAt, cols, U) -> tuple[np.ndarray, np.ndarray]:
    """``(1/w_j) sum_i w_i |J_ij u_j|_2`` and its gradient in u_j.

    Parameters
    ----------
    at : SelfAttentionAt
    cols : ndarray, shape (k,)
        Tokens j.
    U : ndarray, shape (k, d)
        One direction for each.

    Returns
    -------
    values : ndarray, shape (k,)
    gradient : ndarray, shape (k, d)
    """
    WU, Y = at.push(U), at.values[cols]
    values, gradient = _own_terms(at, cols, U, WU, Y)
    pulled = np.zeros_like(WU)
    square_u, cross_u, square_y = (WU**2).sum(1), (WU * Y).sum(1), (Y**2).sum(1)
    for rows in at.blocks():
        outputs = at.outputs[rows]
        c = np.exp(at.log_ratios(rows, cols)) * at.weights[rows, None]
        c[np.arange(len(at))[rows, None] == cols] = 0
        slopes = at.key.dot_keys(rows, cols, U)
        cross = cross_u - outputs @ WU.T
        square = (outputs**2).sum(1)[:, None] + square_y - 2 * outputs @ Y.T
        norms = np.sqrt(np.maximum(square_u + slopes * (2 * cross + slopes * square), 0))
        values += (c * norms).sum(0)
        c = np.divide(c, norms, out=np.zeros_like(c), where=norms > 0)
        gradient += at.key.sum_queries(rows, cols, c * (cross + square * slopes))
        pulled += c.sum(0)[:, None] * WU
        c *= slopes
        pulled += c.sum(0)[:, None] * Y - c.T @ outputs
    return values, gradient + at.pull(pulled)


def _own_terms(at, cols, U, WU, Y) -> tuple[np.ndarray, np.ndarray]:
    """``|J_jj u_j|`` and its gradient: the one term with the covariance."""
    values, gradient = np.empty(len(cols)), np.empty_like(U)
    size = at.rows_per_block
    for start in range(0, len(cols), size):
        some = slice(start, start + size)
        j = cols[some]
        p = at.softmax(j)
        own = p[np.arange(len(j)), j][:, None]
        D, g = Y[some] - at.outputs[j], at.key.diagonal(j)
        moved = p * at.query.dot_queries(j, U[some])
        v = own * (WU[some] + D * (g * U[some]).sum(1)[:, None])
        v += moved @ at.values - moved.sum(1)[:, None] * at.outputs[j]
        length = np.linalg.norm(v, axis=1)
        v /= np.where(length > 0, length, 1)[:, None]
        back = p * (v @ at.values.T - (v * at.outputs[j]).sum(1)[:, None])
        values[some] = length
        gradient[some] = at.query.sum_keys(j, back)
        gradient[some] += own * (at.pull(v) + g * (D * v).sum(1)[:, None])
    return values, gradient


def _spectral_bounds(at: SelfAttentionAt) -> np.ndarray:
    """Sums over i of upper bounds of the spectral norms of ``W J_ij``, shape (N,)."""
    everything = np.arange(len(at))
    size = np.linalg.norm(at.W, 2)
    x_square, value_square = (at.x**2).sum(1), (at.values**2).sum(1)
    bounds = np.zeros(len(at))
    for rows in at.blocks():
        ratios = np.exp(at.log_ratios(rows, everything)) * at.weights[rows, None]
        means = at.means[rows]
        lengths = x_square + (means**2).sum(1)[:, None] - 2 * means @ at.x.T
        squares = at.key.squares(rows)
        product = np.maximum(lengths, 0) * squares
        # singular values of I + D g^T on span(D, g): s^2 t^2 = (1 + D.g)^2, s^2 + t^2 below
        one = 1 + at.key.along(rows, at.x, means)
        half = one + product / 2
        top = np.sqrt(half + np.sqrt(np.maximum(half**2 - one**2, 0)))
        outputs = at.outputs[rows]
        lengths = value_square + (outputs**2).sum(1)[:, None] - 2 * outputs @ at.values.T
        top = np.minimum(size * top, size + np.sqrt(np.maximum(lengths, 0) * squares))
        bounds += (ratios * top).sum(0)
        p = at.softmax(rows)
        spread = np.maximum(p @ value_square - (outputs**2).sum(1), 0)
        bounds[rows] += np.sqrt(spread * at.query.variance(rows, p).sum(1))
    return bounds * (1 + 1e-12)


def _dual_bound(at: SelfAttentionAt, j: int, u: np.ndarray, rounds: int = 1, enough=0.0) -> float:
    """``(sum_i c_i s_i + largest eigenvalue of sum_i c_i M_i^T M_i / s_i) / 2``, s_i = |M_i u|.

    Valid for all s. Further rounds are Frank-Wolfe steps for the concave function
    ``X -> sum_i c_i s_i``, ``s_i^2 = trace(M_i X M_i^T)``, X >= 0 of trace one, whose maximum is
    the least of these bounds; they end at a bound of ``enough``.
    """
    factors, D, g, own = at.matrices(j)
    weights = np.append(factors, 1.0)

    def squares(v):
        images = at.W @ v + D * (g @ v)[:, None]
        return np.append((images**2).sum(1), ((own @ v) ** 2).sum())

    shares = np.linspace(0, 1, 41)[:, None] ** 2
    square, bound = squares(u), np.inf
    for _ in range(rounds):
        s = np.sqrt(square)
        s = np.maximum(s, max(1e-8 * (weights @ s), np.finfo(float).tiny))
        c = factors / s[:-1]
        mixed = at.pull(c[:, None] * D).T @ g
        gram = c.sum() * at.value_gram + mixed + mixed.T
        gram += (g * (c * (D**2).sum(1))[:, None]).T @ g + own.T @ own / s[-1]
        last = len(gram) - 1
        top, vector = eigh(gram, subset_by_index=[last, last])
        bound = min(bound, 0.5 * (weights @ s + top[0]))
        if bound <= enough:
            break
        mixtures = (1 - shares) * square + shares * squares(vector[:, 0])
        square = mixtures[np.argmax(np.sqrt(mixtures) @ weights)]
    return bound
