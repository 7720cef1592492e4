"""Lipschitz constants of the heads of a transformer: at its tokens, and between bounds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import minimize
from scipy.special import softmax
from tqdm import tqdm

from meanfield.errors import InputError
from meanfield.regularity.composition_bounds import lookup_bound
from meanfield.regularity.constants import steepness
from meanfield.regularity.domains import Ball, Domain, check_norm
from meanfield.regularity.exponential_bounds import (
    exponential_attention_bound,
    exponential_key_bound,
    exponential_query_bound,
)
from meanfield.regularity.heads import TransformerHead, product_svd
from meanfield.regularity.local import LocalConstant, local_constant
from meanfield.regularity.potentials import Bilinear, as_points
from meanfield.regularity.records import Bound, bound_from_log, log_sum
from meanfield.result import Result

DIRECTIONS = 4  # singular directions of B (both sides) and of W that the search moves in
POOL = 256  # random configurations it looks at
CLIMBS = 6  # of which so many are improved
DIFFERENCE = 1e-6  # step of its gradients, relative to the radius


@dataclass(frozen=True, eq=False)
class HeadConstants:
    """How much one head stretches distances of texts; see `head_constants`.

    Attributes
    ----------
    head : TransformerHead
    norm : {"l1", "l2"}
    causal : bool
    local : LocalConstant
        At the tokens given.
    adversarial : float
        Attained by as many tokens in the ball: a lower bound of the constant there.
    radius : float
        Of the ball, which holds the tokens; its centre is `TransformerHead.bilinear_centre`.
    tokens_bound, measures_bound : Bound or None
        Certified upper bounds on the ball: for as many tokens of equal weight, paired by labels,
        and for W1 of all measures, which a causal mask excludes. None where there is no centre.
    D : ndarray, shape (k,)
        The head on a sphere: the diagonal of `TransformerHead.on_sphere`; k = 3, or 2 for tokens
        in the plane.
    """

    head: TransformerHead
    norm: str
    causal: bool
    local: LocalConstant
    adversarial: float
    radius: float
    tokens_bound: Bound | None
    measures_bound: Bound | None
    D: np.ndarray


@dataclass(frozen=True, eq=False)
class RegularityTable(Result):
    """The constants of the heads of a model.

    Attributes
    ----------
    rows : tuple of HeadConstants
        By layer, then head.
    name : str
        Of the model.
    parameters : dict
        What rebuilds the table.
    """

    rows: tuple[HeadConstants, ...]
    name: str = ""
    parameters: dict = field(default_factory=dict)

    def to_dataset(self):
        """The table as an xarray dataset with dimensions layer and head."""
        from meanfield.results.regularity_dataset import regularity_dataset

        return regularity_dataset(self)

    def __repr__(self) -> str:
        return f"RegularityTable({self.name}: {len(self.rows)} heads, {self.rows[0].norm})"


def regularity_table(
    heads: Iterable[tuple[TransformerHead, np.ndarray]],
    norm: str = "l2",
    causal: bool = False,
    seed: int = 0,
    name: str = "",
    parameters: dict | None = None,
    progress: bool = False,
) -> RegularityTable:
    """Constants of several heads, each at its own tokens.

    Parameters
    ----------
    heads : iterable of (TransformerHead, ndarray of shape (N, d))
    norm, causal, seed
        As `head_constants`.
    name : str
    parameters : dict, optional
        For the record.
    progress : bool
        Show a progress bar on a terminal.

    Returns
    -------
    RegularityTable

    Raises
    ------
    InputError, PointsError, MatrixError
        As `head_constants`; InputError if there are no heads.

    Examples
    --------
    >>> head = TransformerHead(np.eye(3), np.eye(3))
    >>> table = regularity_table([(head, np.eye(3))], name="an example")
    >>> table
    RegularityTable(an example: 1 heads, l2)
    """
    watched = tqdm(list(heads), unit="head", disable=None if progress else True)
    rows = tuple(head_constants(head, x, norm, causal, seed) for head, x in watched)
    if not rows:
        raise InputError("there are no heads")
    given = {"verb": "regularity", "norm": norm, "causal": causal, "seed": seed}
    return RegularityTable(rows, name, given | (parameters or {}))


def head_constants(
    head: TransformerHead, tokens, norm: str = "l2", causal: bool = False, seed: int = 0
) -> HeadConstants:
    """Local constant of a head at tokens, and bounds on a ball that holds them.

    The map is the head with its values and its output matrix, without the residual connection.

    Parameters
    ----------
    head : TransformerHead
    tokens : array_like, shape (N, d)
        At least two, d at least 2.
    norm : {"l2", "l1"}
        Ground norm throughout; the ball is Euclidean in both.
    causal : bool
        Whether a token sees itself and those before it only.
    seed : int

    Returns
    -------
    HeadConstants

    Raises
    ------
    InputError, PointsError, MatrixError
        If the norm is unknown, tokens are too few, or shapes do not fit.

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Theorem 14, corrected for exponential potentials.

    Examples
    --------
    >>> head = TransformerHead(np.eye(2), np.eye(2), scale=1.0)
    >>> found = head_constants(head, [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    >>> found.local.value <= found.adversarial <= found.tokens_bound.value
    True
    >>> found.tokens_bound.value <= found.measures_bound.value
    True
    """
    check_norm(norm)
    x = as_points(tokens, "tokens")
    if len(x) < 2 or head.dimension < 2:
        raise InputError(
            f"needed are two tokens or more, in R^2 or more: got {len(x)} in R^{head.dimension}"
        )
    value = None if head.value is None else head.value_map
    local = local_constant(x, head, value=value, norm=norm, causal=causal, seed=seed)
    D = np.diag(head.project(x, min(3, len(head.spectrum[0])))[0])
    try:
        centre = head.bilinear_centre(x.mean(axis=0))
    except InputError:
        return HeadConstants(head, norm, causal, local, local.value, np.nan, None, None, D)
    radius = float(np.linalg.norm(x - centre, axis=1).max())
    domain, potential = Ball(radius, head.dimension), Bilinear(head.form)
    lookup = lookup_bound(head.value_map, norm)
    measures = None if causal else exponential_attention_bound(potential, domain, norm, lookup)
    if causal:
        finite = _causal_bound(potential, domain, norm, lookup, len(x))
    else:
        finite = exponential_attention_bound(potential, domain, norm, lookup, len(x))
    worst = clustered_tokens(head, radius, len(x), seed) + centre
    found = local_constant(
        worst, head, value=value, norm=norm, causal=causal, starts=1, refine=0, seed=seed
    )
    adversarial = max(local.value, found.value)
    return HeadConstants(head, norm, causal, local, adversarial, radius, finite, measures, D)


def _causal_bound(potential, domain: Domain, norm: str, lookup: Bound, count: int) -> Bound:
    """``Lip(l) (query + sum_n K_n / n)``: the query number n sees n tokens of equal weight."""
    # The key factor depends on k Dm alone, which one dimension can have too.
    slope = steepness(potential.matrix(domain.dimension), domain, norm) * domain.diameter(norm)
    line, span = Bilinear([[max(slope, np.finfo(float).tiny) / 2]]), Ball(1.0, 1)
    parts = [
        exponential_key_bound(line, span, norm, n).log_value - np.log(n)
        for n in range(1, count + 1)
    ]
    query = exponential_query_bound(potential, domain, norm)
    key = exponential_key_bound(potential, domain, norm, count)
    return bound_from_log(
        f"causal attention, exponential potential, {count} tokens",
        lookup.log_value + log_sum(query.log_value, *parts),
        norm,
        key.source,
        list(dict.fromkeys([*key.hypotheses, *lookup.hypotheses])),
    )


def clustered_tokens(head: TransformerHead, radius: float, count: int, seed: int = 0) -> np.ndarray:
    """Tokens at which a head is irregular: two apart, all others in one place.

    The places are sought in the span of the leading singular directions of B and of the value
    map, where moving the first token changes the outputs of the others most. The others attend to
    the two, between which moving the first one shifts their attention.

    Parameters
    ----------
    head : TransformerHead
        Taken without its tilt.
    radius : float
        Of the ball around the origin that holds the tokens.
    count : int
        Number of tokens, at least 2.
    seed : int

    Returns
    -------
    ndarray, shape (count, d)
        The token that moves first.

    Examples
    --------
    >>> head = TransformerHead(np.eye(2), -np.eye(2), scale=1.0)
    >>> tokens = clustered_tokens(head, 1.0, 5)
    >>> tokens.shape, bool(np.linalg.norm(tokens, axis=1).max() < 1 + 1e-12)
    ((5, 2), True)
    """
    left, _, right = head.form_factors
    directions = [left[:, :DIRECTIONS], right[:, :DIRECTIONS]]
    if head.value is not None:
        directions.append(product_svd(head.output, head.value.T)[2][:, :DIRECTIONS])
    basis = np.linalg.qr(np.hstack(directions))[0]
    search = _Places(
        form=basis.T @ head.form @ basis,
        value=np.linalg.qr(head.value_map @ basis, mode="r"),
        radius=radius,
        counts=np.array([1, 1, count - 2] if count > 2 else [1, 1]),
    )
    return search.run(np.random.default_rng(seed)) @ basis.T


@dataclass(frozen=True, eq=False)
class _Places:
    """``sum_i |W J_i u|`` for the token at the first place, u along ``B^T c``, c the last one."""

    form: np.ndarray
    value: np.ndarray
    radius: float
    counts: np.ndarray

    def places(self, z: np.ndarray) -> np.ndarray:
        """Places in the ball, shape (s, places, k), from vectors without bounds."""
        x = z.reshape(len(z), len(self.counts), -1)
        return self.radius * x / np.maximum(np.linalg.norm(x, axis=2, keepdims=True), 1)

    def log_value(self, z: np.ndarray) -> np.ndarray:
        """Logarithm of the constant, shape (s, places k) to (s,)."""
        x = self.places(z)
        slopes = x @ self.form  # B^T x_i, the gradients of the scores in the key
        p = softmax(slopes @ x.transpose(0, 2, 1) + np.log(self.counts), axis=2)
        outputs = p @ x
        u = slopes[:, -1:]
        u = u / np.maximum(np.linalg.norm(u, axis=2, keepdims=True), np.finfo(float).tiny)
        moved = u + (x[:, :1] - outputs) * (slopes * u).sum(axis=2, keepdims=True)
        moved *= p[:, :, :1]
        along = p[:, 0] * (x @ self.form.T * u).sum(axis=2)
        moved[:, 0] += (along[:, :, None] * (x - outputs[:, :1])).sum(axis=1)
        lengths = np.linalg.norm(moved @ self.value.T, axis=2)
        return np.log(np.maximum(lengths @ self.counts, np.finfo(float).tiny))

    def negative(self, z: np.ndarray) -> tuple[float, np.ndarray]:
        """For a minimiser: minus the logarithm and its gradient."""
        moves = DIFFERENCE * np.eye(len(z))
        found = self.log_value(np.concatenate([z[None], z + moves, z - moves]))
        gradient = (found[1 : len(z) + 1] - found[len(z) + 1 :]) / (2 * DIFFERENCE)
        return -found[0], -gradient

    def run(self, rng) -> np.ndarray:
        """The best configuration found, shape (N, k)."""
        pool = rng.standard_normal((POOL, len(self.counts), len(self.form)))
        # Close places and opposite ones are as likely as independent ones.
        pool[::3, 1] = pool[::3, 0] + 0.3 * pool[::3, 1]
        pool[1::3, 1] = -pool[1::3, 0] + 0.3 * pool[1::3, 1]
        pool /= np.linalg.norm(pool, axis=2, keepdims=True)
        z = pool.reshape(POOL, -1)
        best = z[np.argsort(-self.log_value(z))[:CLIMBS]]
        ends = [minimize(self.negative, start, jac=True, method="L-BFGS-B") for start in best]
        x = self.places(min(ends, key=lambda end: end.fun).x[None])[0]
        return np.repeat(x, self.counts, axis=0)
