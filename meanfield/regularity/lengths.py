"""Texts of different lengths: W1 between outputs, one token deleted or negated, and the bound."""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm

import numpy as np
from scipy.spatial.distance import cdist

from meanfield.errors import InputError
from meanfield.measures import Measure
from meanfield.regularity.bounds import attention_bound
from meanfield.regularity.composition_bounds import lookup_bound
from meanfield.regularity.constants import potential_constants
from meanfield.regularity.domains import Domain, check_norm
from meanfield.regularity.exponential_bounds import exponential_attention_bound
from meanfield.regularity.gaussian_bounds import gaussian_attention_bound
from meanfield.regularity.operators import self_attention
from meanfield.regularity.potentials import Gaussian, Potential
from meanfield.regularity.records import Bound

METRICS = {"l1": "cityblock", "l2": "euclidean"}
CHANGES = ("delete", "negate")


def exact_wasserstein(x, v, y, w, norm: str) -> float:
    """W1 of two weighted point sets of R^d in a ground norm, by an exact solver.

    Parameters
    ----------
    x : array_like, shape (N, d)
    v : array_like, shape (N,)
    y : array_like, shape (M, d)
    w : array_like, shape (M,)
    norm : {"l1", "l2"}

    Returns
    -------
    float

    Examples
    --------
    >>> exact_wasserstein([[0.0, 0.0]], [1.0], [[3.0, 4.0]], [1.0], "l2")
    5.0
    """
    import ot

    cost = cdist(x, y, METRICS[check_norm(norm)])
    return float(ot.emd2(np.asarray(v, dtype=float), np.asarray(w, dtype=float), cost))


def smallest_bound(
    potential: Potential,
    domain: Domain,
    norm: str,
    lookup=1.0,
    n_tokens: int | None = None,
    other_tokens: int | None = None,
) -> Bound:
    """The smallest bound of self-attention that certifies for a built-in potential.

    Parameters
    ----------
    potential : ScaledDotProduct, Bilinear or Gaussian
    domain : Domain
    norm : {"l1", "l2"}
    lookup : float or Bound
        Lip(l) in the norm.
    n_tokens, other_tokens : int, optional
        Numbers of tokens of the two texts, of equal weight; one number when they are the same;
        none for arbitrary measures. Texts of N and M tokens are texts of lcm(N, M) tokens.

    Returns
    -------
    Bound

    Raises
    ------
    InputError
        For a potential of the user's own, or a lookup in another norm.

    Examples
    --------
    >>> from meanfield.regularity.domains import Box
    >>> from meanfield.regularity.potentials import ScaledDotProduct
    >>> round(smallest_bound(ScaledDotProduct(), Box(1.0, 1), "l1", n_tokens=20).value, 2)
    14.66
    """
    other = n_tokens if other_tokens is None else other_tokens
    count = None if n_tokens is None else lcm(n_tokens, other)
    found = [attention_bound(potential_constants(potential, domain, norm), lookup)]
    if potential.exponential:
        found.append(exponential_attention_bound(potential, domain, norm, lookup, count))
    if isinstance(potential, Gaussian) and norm == "l2" and count is not None and count > 1:
        found.append(
            gaussian_attention_bound(
                n_tokens, domain.dimension, other, lookup=lookup, self_token=True
            )
        )
    return min(found, key=lambda bound: bound.log_value)


@dataclass(frozen=True, eq=False)
class TextComparison:
    """Distances of two texts before and after self-attention.

    Attributes
    ----------
    input_distance, output_distance : float
        W1 of the equally weighted tokens, and of their images.
    bound : Bound
        On the ratio of the two.
    """

    input_distance: float
    output_distance: float
    bound: Bound

    @property
    def ratio(self) -> float:
        """Output over input distance; zero for equal texts."""
        return self.output_distance / self.input_distance if self.input_distance > 0 else 0.0

    def __repr__(self) -> str:
        return (
            f"TextComparison(W1 {self.input_distance:.6g} -> {self.output_distance:.6g}, "
            f"ratio {self.ratio:.6g}, bound 10^{self.bound.log10_value:.4g})"
        )


def compare_texts(
    first,
    second,
    potential: Potential,
    domain: Domain,
    value=None,
    norm: str = "l1",
) -> TextComparison:
    """Distance of the outputs of self-attention at two texts, which may differ in length.

    Parameters
    ----------
    first, second : array_like, shapes (N, d) and (M, d)
        Tokens, of equal weight within each text.
    potential : ScaledDotProduct, Bilinear or Gaussian
    domain : Domain
        Contains all tokens.
    value : array_like, shape (m, d), optional
        W of the value map ``x -> W x``; the identity when omitted.
    norm : {"l1", "l2"}

    Returns
    -------
    TextComparison

    Raises
    ------
    InputError
        If the norm is unknown, or there is no bound for the potential.
    PointsError
        If tokens are not finite, live in another dimension or lie outside the domain.

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Section 6 and Theorem 14, corrected.

    Examples
    --------
    >>> from meanfield.regularity.domains import Box
    >>> from meanfield.regularity.potentials import ScaledDotProduct
    >>> compare_texts([[0.0], [1.0]], [[1.0]], ScaledDotProduct(1e9), Box(1.0, 1))
    TextComparison(W1 0.5 -> 0.5, ratio 1, bound 10^1.303e-09)
    """
    x, y = domain.require(first, "tokens"), domain.require(second, "tokens")
    lookup = _lookup(value, norm)
    bound = smallest_bound(potential, domain, norm, lookup, len(x), len(y))
    v, w = np.full(len(x), 1 / len(x)), np.full(len(y), 1 / len(y))
    images = [self_attention(Measure(z), potential, value).points for z in (x, y)]
    before = exact_wasserstein(x, v, y, w, norm)
    return TextComparison(before, exact_wasserstein(images[0], v, images[1], w, norm), bound)


@dataclass(frozen=True, eq=False)
class TokenEffects:
    """What changing one token does to the output of self-attention.

    Attributes
    ----------
    change : str
        "delete" or "negate".
    tokens : ndarray, shape (k,)
        Numbers of the tokens that were changed, one at a time.
    input_distance, output_distance : ndarray, shape (k,)
        W1 between the text and the changed text, before and after.
    bound : Bound
        On the ratio.
    norm : str
    """

    change: str
    tokens: np.ndarray
    input_distance: np.ndarray
    output_distance: np.ndarray
    bound: Bound
    norm: str

    @property
    def ratio(self) -> np.ndarray:
        """Output over input distance, shape (k,); zero where the change is none."""
        moved = self.input_distance > 0
        return np.divide(
            self.output_distance, self.input_distance, out=np.zeros(len(moved)), where=moved
        )

    def __repr__(self) -> str:
        return (
            f"TokenEffects({self.change} one of {len(self.tokens)}, {self.norm}: ratios "
            f"{self.ratio.min():.4g} .. {self.ratio.max():.4g}, "
            f"bound 10^{self.bound.log10_value:.4g})"
        )


def token_effects(
    tokens,
    potential: Potential,
    domain: Domain,
    change: str = "delete",
    value=None,
    norm: str = "l1",
    chosen=None,
) -> TokenEffects:
    """Delete, or negate, one token after the other and compare the outputs of self-attention.

    Parameters
    ----------
    tokens : array_like, shape (N, d)
        At least two.
    potential : ScaledDotProduct, Bilinear or Gaussian
    domain : Domain
        Contains all tokens.
    change : {"delete", "negate"}
        Leave a token out, or replace x by -x.
    value : array_like, shape (m, d), optional
    norm : {"l1", "l2"}
    chosen : sequence of int, optional
        Which tokens; all when omitted.

    Returns
    -------
    TokenEffects

    Raises
    ------
    InputError
        If an argument is not one of those listed, or there is no bound for the potential.
    PointsError
        If tokens are not finite or lie outside the domain.

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Section 6.2 and Theorem 14, corrected.

    Examples
    --------
    >>> from meanfield.regularity.domains import Box
    >>> from meanfield.regularity.potentials import ScaledDotProduct
    >>> effects = token_effects([[-1.0], [0.0], [1.0]], ScaledDotProduct(), Box(1.0, 1))
    >>> effects.input_distance.round(4).tolist()
    [0.5, 0.3333, 0.5]
    """
    if change not in CHANGES:
        raise InputError(f"change must be 'delete' or 'negate', got {change!r}")
    x = domain.require(tokens, "tokens")
    if len(x) < 2:
        raise InputError("a text needs at least two tokens to lose one")
    chosen = np.arange(len(x)) if chosen is None else np.asarray(chosen)
    if chosen.ndim != 1 or not len(chosen) or not np.isin(chosen, np.arange(len(x))).all():
        raise InputError(f"chosen must be numbers of tokens, 0 .. {len(x) - 1}")
    other = len(x) - 1 if change == "delete" else len(x)
    bound = smallest_bound(potential, domain, norm, _lookup(value, norm), len(x), other)
    v, w = np.full(len(x), 1 / len(x)), np.full(other, 1 / other)
    images = self_attention(Measure(x), potential, value).points
    before, after = np.empty(len(chosen)), np.empty(len(chosen))
    for number, i in enumerate(chosen):
        y = np.delete(x, i, axis=0) if change == "delete" else x.copy()
        if change == "negate":
            y[i] = -y[i]
        changed = self_attention(Measure(y), potential, value).points
        before[number] = exact_wasserstein(x, v, y, w, norm)
        after[number] = exact_wasserstein(images, v, changed, w, norm)
    return TokenEffects(change, chosen, before, after, bound, norm)


def _lookup(value, norm: str):
    return 1.0 if value is None else lookup_bound(value, norm)
