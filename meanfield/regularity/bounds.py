"""Bounds on the Wasserstein contraction of attention on a compact convex domain.

Several of the printed results are false; what certifies is the valid form, ``variant="valid"``.
The printed form, ``variant="paper"``, is there for reproduction and comparison and never
certifies. Notation: a, b are the Lipschitz constants of G in the query and in the key, Dm the
diameter of E, eps = inf G, S = sup G, l the lookup function.
"""

from __future__ import annotations

import numpy as np

from meanfield.errors import InputError
from meanfield.regularity.composition_bounds import lookup_factor
from meanfield.regularity.constants import PotentialConstants
from meanfield.regularity.records import (
    PAPER,
    Bound,
    Hypothesis,
    bound_from_log,
    check_variant,
    log_sum,
    same_norm,
)

FORMS = ("smallest", "lipschitz", "supremum")


def query_bound(constants: PotentialConstants, variant: str = "valid") -> Bound:
    """Softmatch in the query: ``W1(Psi_x mu, Psi_y mu) <= C |x - y|``, ``C = a Dm / (2 eps)``.

    Parameters
    ----------
    constants : PotentialConstants
    variant : {"valid", "paper"}

    Returns
    -------
    Bound

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Proposition 20(i), printed 2 a Dm / eps;
    corrected to a quarter of it, which is sharp.

    Examples
    --------
    >>> from meanfield.regularity.constants import given_constants
    >>> from meanfield.regularity.domains import Box
    >>> query_bound(given_constants(1.0, 1.0, 0.5, 2.0, Box(1.0, 1), "l1")).value
    2.0
    """
    factor = 0.5 if check_variant(variant) == "valid" else 2.0
    log_value = np.log(factor) + constants.log_query_ratio
    return _generic("Proposition 20(i)", log_value, constants, variant)


def key_bound(
    constants: PotentialConstants, variant: str = "valid", form: str = "smallest"
) -> Bound:
    """Softmatch in the keys: ``W1(Psi_x mu, Psi_x nu) <= C W1(mu, nu)``.

    Parameters
    ----------
    constants : PotentialConstants
    variant : {"valid", "paper"}
    form : {"smallest", "lipschitz", "supremum"}
        ``C = 1 + 2 b Dm / eps``, sharp given b and eps, or ``C = (S + b Dm) / eps``; both hold.

    Returns
    -------
    Bound

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Proposition 20(ii), printed 2 b Dm / eps;
    corrected: for constant G the printed bound is 0 and the constant 1.

    Examples
    --------
    >>> from meanfield.regularity.constants import given_constants
    >>> from meanfield.regularity.domains import Box
    >>> c = given_constants(0.0, 1.0, 0.5, 2.5, Box(1.0, 1), "l1")
    >>> [round(key_bound(c, form=form).value, 12) for form in ("lipschitz", "supremum")]
    [9.0, 9.0]
    >>> round(key_bound(c, "paper").value, 12)
    8.0
    """
    if check_variant(variant) == "paper":
        log_value = np.log(2.0) + constants.log_key_ratio
    else:
        log_value = _key_factor(constants, 0.0, form)
    return _generic("Proposition 20(ii)", log_value, constants, variant)


def attention_bound(
    constants: PotentialConstants, lookup=1.0, variant: str = "valid", form: str = "smallest"
) -> Bound:
    """Self-attention: ``W1(mu A_mu, nu A_nu) <= C W1(mu, nu)``.

    Parameters
    ----------
    constants : PotentialConstants
    lookup : float or Bound
        Lip(l), in the norm of the constants; see `lookup_bound`.
    variant : {"valid", "paper"}
    form : {"smallest", "lipschitz", "supremum"}
        ``C = tau(L) [1 + (a/2 + 2 b) Dm / eps]`` or ``tau(L) (S + b Dm + a Dm / 2) / eps``.

    Returns
    -------
    Bound

    Raises
    ------
    InputError
        If the lookup bound is in another norm.

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Theorem 14, printed
    ``d tau(L) 2 (a + b) Dm / eps``; corrected: the printed bound is below 1 for small domains,
    and tau(A) never is with l = id.

    Examples
    --------
    >>> from meanfield.regularity.constants import potential_constants
    >>> from meanfield.regularity.domains import Box
    >>> from meanfield.regularity.potentials import ScaledDotProduct
    >>> c = potential_constants(ScaledDotProduct(), Box(0.1, 1), "l1")
    >>> round(attention_bound(c, form="lipschitz").value, 3)
    1.051
    >>> round(attention_bound(c, variant="paper").value, 4)
    0.0816
    """
    log_lookup, hypotheses = lookup_factor(lookup, constants.norm)
    query, key = constants.log_query_ratio, constants.log_key_ratio
    if check_variant(variant) == "paper":
        log_value = np.log(2.0 * constants.domain.dimension) + log_sum(query, key)
    else:
        log_value = _key_factor(constants, 0.5, form)
    return _generic("Theorem 14", log_lookup + log_value, constants, variant, hypotheses)


def attention_query_bound(
    constants: PotentialConstants, lookup=1.0, variant: str = "valid", queries=None
) -> Bound:
    """Attention in the query: ``|Attention(p, K, V) - Attention(q, K, V)|_2 <= C |p - q|_2``.

    Parameters
    ----------
    constants : PotentialConstants
        In l2 for the valid form; in the paper's l1 for the printed one.
    lookup : float or Bound
        Lip(l), in the norm of the constants.
    variant : {"valid", "paper"}
    queries : array_like, shape (m, d), optional
        To check that they lie in E; outside of it the bound does not hold.

    Returns
    -------
    Bound
        Of l2 distances, in both variants.

    Raises
    ------
    InputError
        If the valid form is asked for with constants in l1.
    PointsError
        If a query lies outside E.

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Corollary 15, printed
    ``d^{3/2} Lip(l) 2 a Dm / eps``: true for queries in E; corrected to
    ``Lip(l) a Dm / (2 eps)``, all in l2, without a power of d.

    Examples
    --------
    >>> from meanfield.regularity.constants import potential_constants
    >>> from meanfield.regularity.domains import Ball
    >>> from meanfield.regularity.potentials import ScaledDotProduct
    >>> c = potential_constants(ScaledDotProduct(1.0), Ball(1.0, 4), "l2")
    >>> round(attention_query_bound(c, queries=[[0.5, 0.5, 0.5, 0.5]]).value, 3)
    7.389
    """
    same_norm("l1" if check_variant(variant) == "paper" else "l2", constants.norm, "the potential")
    log_lookup, hypotheses = lookup_factor(lookup, constants.norm)
    if queries is not None:
        constants.domain.require(queries, "queries")
    hypotheses.append(Hypothesis("the queries lie in E", None if queries is None else True))
    factor = np.log(0.5 if variant == "valid" else 2.0 * constants.domain.dimension**1.5)
    log_value = log_lookup + factor + constants.log_query_ratio
    found = _generic("Corollary 15", log_value, constants, variant, hypotheses)
    return found if variant == "valid" else _in_l2(found)


def cross_attention_bound(
    constants: PotentialConstants, lookup=1.0, variant: str = "valid", form: str = "smallest"
) -> Bound:
    """Attention in the keys: ``|Attention(q, X, X) - Attention(q, Y, Y)| <= C W1(m(X), m(Y))``.

    Parameters
    ----------
    constants : PotentialConstants
        Of ``G(q, .)`` for one query, or of G for all queries in E; see `potential_constants`.
    lookup : float or Bound
        Lip(l), in the norm of the constants.
    variant : {"valid", "paper"}
    form : {"smallest", "lipschitz", "supremum"}
        See `key_bound`.

    Returns
    -------
    Bound
        The difference is measured in the norm of the constants.

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Proposition 18, printed
    ``d tau(L) 2 Lip(G(q, .)) Dm / eps``; corrected to ``tau(L) (1 + 2 Lip(G(q, .)) Dm / eps)``.

    Examples
    --------
    >>> from meanfield.regularity.constants import potential_constants
    >>> from meanfield.regularity.domains import Box
    >>> from meanfield.regularity.potentials import ScaledDotProduct
    >>> c = potential_constants(ScaledDotProduct(), Box(1.0, 1), "l1", query=[0.1])
    >>> round(cross_attention_bound(c, variant="paper").value, 4)
    0.4886
    >>> round(cross_attention_bound(c, form="lipschitz").value, 4)
    1.4886
    """
    log_lookup, hypotheses = lookup_factor(lookup, constants.norm)
    hypotheses.append(Hypothesis("the query is the one, or in the E, of the constants", None))
    if check_variant(variant) == "paper":
        log_value = np.log(2.0 * constants.domain.dimension) + constants.log_key_ratio
    else:
        log_value = _key_factor(constants, 0.0, form)
    return _generic("Proposition 18", log_lookup + log_value, constants, variant, hypotheses)


def _key_factor(constants: PotentialConstants, query_share: float, form: str) -> float:
    """Logarithm of 1 + (share a + 2 b) Dm/eps, of (S + (b + share a) Dm)/eps, or the smaller."""
    if form not in FORMS:
        raise InputError(f"form must be one of {FORMS}, got {form!r}")
    with np.errstate(divide="ignore"):
        query = np.log(query_share) + constants.log_query_ratio
    key = constants.log_key_ratio
    found = {
        "lipschitz": log_sum(0.0, np.log(2.0) + key, query),
        "supremum": log_sum(constants.log_supremum - constants.log_infimum, key, query),
    }
    return min(found.values()) if form == "smallest" else found[form]


def _generic(item, log_value, constants, variant, more=()) -> Bound:
    source = f"{PAPER}, {item}" + (", corrected" if variant == "valid" else ", as printed")
    hypotheses = constants.hypotheses + list(more)
    return bound_from_log(item, log_value, constants.norm, source, hypotheses, variant)


def _in_l2(bound: Bound) -> Bound:
    return bound_from_log(
        bound.item, bound.log_value, "l2", bound.source, bound.hypotheses, bound.variant
    )
