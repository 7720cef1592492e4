"""Bounds for exponential potentials ``G = exp(x.By)``, the case of transformers.

They are sharper than the bounds for a general G, and stay in the logarithmic domain: at the
scale of a layer normalisation the worst case over all measures is of the order 1e18.
"""

from __future__ import annotations

import numpy as np

from meanfield.errors import InputError
from meanfield.regularity.composition_bounds import lookup_factor
from meanfield.regularity.constants import oscillation, square_form, steepness
from meanfield.regularity.domains import Domain, check_norm
from meanfield.regularity.potentials import Potential
from meanfield.regularity.records import PAPER, Bound, Hypothesis, bound_from_log, log_of, log_sum

QUERY_FORMS = ("smallest", "norm", "oscillation")


def exponential_query_bound(
    potential: Potential, domain: Domain, norm: str, form: str = "smallest"
) -> Bound:
    """Softmatch in the query: ``W1(Psi_x mu, Psi_y mu) <= C |x - y|``.

    Parameters
    ----------
    potential : ScaledDotProduct or Bilinear
    domain : Domain
        E.
    norm : {"l1", "l2"}
    form : {"smallest", "norm", "oscillation"}
        ``C = |B| Dm^2 / 4`` with the spectral norm (l2) or the largest entry (l1); in l1 also
        ``C = (Dm / 4) max_k osc_z (Bz)_k``. On the l2 ball ``C = |B| R^2``, attained.

    Returns
    -------
    Bound

    Raises
    ------
    InputError
        If the potential is not exponential, or the form is for another norm.

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Proposition 20(i), corrected and sharpened.

    Examples
    --------
    >>> from meanfield.regularity.domains import Box
    >>> from meanfield.regularity.potentials import ScaledDotProduct
    >>> E = Box(1.0, 4)
    >>> forms = ("norm", "oscillation")
    >>> [round(exponential_query_bound(ScaledDotProduct(), E, "l1", f).value, 12) for f in forms]
    [8.0, 2.0]
    """
    B = square_form(potential, domain)
    value = _query_factor(B, domain, check_norm(norm), form)
    return _record("query factor, exponential potential", log_of(value, "B"), norm)


def exponential_key_bound(
    potential: Potential, domain: Domain, norm: str, n_tokens: int | None = None, query=None
) -> Bound:
    """Softmatch in the keys: ``W1(Psi_x mu, Psi_x nu) <= C W1(mu, nu)``.

    Parameters
    ----------
    potential : ScaledDotProduct or Bilinear
    domain : Domain
        E.
    norm : {"l1", "l2"}
    n_tokens : int, optional
        Without it ``C = exp(k Dm) (1 + k Dm)``, k the largest dual norm of ``B^T x``: sharp over
        all measures. With it ``C = K_N``, the maximum of ``N p (1 + k Dm (1 - p))`` over
        ``p <= 1 / (1 + (N - 1) exp(-k Dm))``, for N tokens of equal weight, paired by labels.
    query : array_like, shape (d,), optional
        For one query, which must lie in E: k is the dual norm of ``B^T query``.

    Returns
    -------
    Bound

    Raises
    ------
    InputError
        If the potential is not exponential, or n_tokens is no positive integer.
    PointsError
        If the query lies outside E.

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Proposition 20(ii), corrected and sharpened.

    Examples
    --------
    >>> from meanfield.regularity.domains import Box
    >>> from meanfield.regularity.potentials import ScaledDotProduct
    >>> E = Box(1.0, 1)
    >>> round(exponential_key_bound(ScaledDotProduct(), E, "l1").value, 2)
    22.17
    >>> round(exponential_key_bound(ScaledDotProduct(), E, "l1", n_tokens=20).value, 2)
    13.66
    """
    B = square_form(potential, domain)
    if query is not None:
        query = domain.require(np.asarray(query, dtype=float)[None], "queries")[0]
    return _record(*_key_factor(B, domain, check_norm(norm), n_tokens, query), norm)


def exponential_attention_bound(
    potential: Potential, domain: Domain, norm: str, lookup=1.0, n_tokens: int | None = None
) -> Bound:
    """Self-attention: ``W1(mu A_mu, nu A_nu) <= Lip(l) (query + key) W1(mu, nu)``.

    Parameters
    ----------
    potential : ScaledDotProduct or Bilinear
    domain : Domain
        E.
    norm : {"l1", "l2"}
    lookup : float or Bound
        Lip(l) in the norm; see `lookup_bound`.
    n_tokens : int, optional
        For N tokens of equal weight: K_N in place of the key factor, see `exponential_key_bound`.

    Returns
    -------
    Bound
        On the l2 ball ``Lip(l) (beta + exp(2 beta) (1 + 2 beta))``, ``beta = |B| R^2``.

    Raises
    ------
    InputError
        If the potential is not exponential, or the lookup bound is in another norm.

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Theorem 14, corrected and sharpened.

    Examples
    --------
    >>> from meanfield.regularity.domains import Box
    >>> from meanfield.regularity.potentials import ScaledDotProduct
    >>> bound = exponential_attention_bound(ScaledDotProduct(), Box(1.0, 1), "l1")
    >>> round(bound.value, 2), bound.certifies
    (23.17, True)
    >>> far = exponential_attention_bound(ScaledDotProduct(), Box(100.0, 64), "l1")
    >>> far.value, round(far.log10_value)
    (inf, 69492)
    """
    query = exponential_query_bound(potential, domain, norm)
    key = exponential_key_bound(potential, domain, norm, n_tokens)
    log_lookup, more = lookup_factor(lookup, norm)
    log_value = log_lookup + log_sum(query.log_value, key.log_value)
    hypotheses = list(dict.fromkeys([*key.hypotheses, *more]))
    tokens = "" if n_tokens is None else f", {n_tokens} tokens"
    item = f"attention, exponential potential{tokens}"
    return bound_from_log(item, log_value, norm, _SOURCE, hypotheses)


_SOURCE = f"{PAPER}, Proposition 20 and Theorem 14, corrected for exponential potentials"


def _query_factor(B: np.ndarray, domain: Domain, norm: str, form: str) -> float:
    if form not in QUERY_FORMS or (form == "oscillation" and norm != "l1"):
        raise InputError(f"form must be one of {QUERY_FORMS}, 'oscillation' in l1 only")
    diameter = domain.diameter(norm)
    size = np.abs(B).max() if norm == "l1" else np.linalg.norm(B, 2)
    by_norm = float(size) * diameter**2 / 4
    if form == "norm" or norm == "l2":
        return by_norm
    by_oscillation = diameter / 4 * oscillation(B, domain)
    return by_oscillation if form == "oscillation" else min(by_norm, by_oscillation)


def _key_factor(B, domain: Domain, norm: str, n_tokens, query=None):
    """Item, logarithm of the factor, and the hypothesis about the tokens."""
    slope = steepness(B, domain, norm, query) * domain.diameter(norm)
    if n_tokens is None:
        return "key factor, exponential potential", slope + np.log1p(slope)
    if int(n_tokens) != n_tokens or n_tokens < 1:
        raise InputError(f"n_tokens must be a positive integer, got {n_tokens}")
    return f"key factor, {n_tokens} tokens, exponential potential", _log_token_factor(
        slope, int(n_tokens)
    )


def _log_token_factor(slope: float, count: int) -> float:
    """Logarithm of K_N: the maximum of N p (1 + slope (1 - p)) over the p that can occur."""
    log_p = -np.log1p((count - 1) * np.exp(-slope))
    if slope > 1:  # else the maximum of the parabola lies beyond p = 1
        log_p = min(log_p, np.log((1 + slope) / (2 * slope)))
    return float(np.log(count) + log_p + np.log1p(slope * -np.expm1(log_p)))


def _record(item: str, log_value: float, norm: str) -> Bound:
    hypotheses = [
        Hypothesis("E is compact and convex", True),
        Hypothesis("G is exponential", True),
        Hypothesis(f"matrix norm, dual norm and diameter are all in {norm}", True),
        Hypothesis("all tokens lie in E", None),
    ]
    if "tokens" in item:
        hypotheses.append(Hypothesis("the tokens have equal weights and are paired by labels"))
    return bound_from_log(item, log_value, norm, _SOURCE, hypotheses)
