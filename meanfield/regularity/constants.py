"""The constants of a potential on a domain that the bounds need, as logarithms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanfield.errors import InputError, MatrixError
from meanfield.regularity.domains import Ball, Domain, check_norm, vector_norm
from meanfield.regularity.potentials import Gaussian, Potential
from meanfield.regularity.records import Hypothesis, log_of


@dataclass(frozen=True)
class PotentialConstants:
    """Lipschitz constants, infimum and supremum of ``G`` on ``E x E``, natural logarithms.

    Attributes
    ----------
    log_query, log_key : float
        Lipschitz constants of G in the query, ``||G||_{Lip, inf}``, and in the key.
    log_infimum, log_supremum : float
        Of G; the infimum is positive.
    norm : {"l1", "l2"}
    domain : Domain
    checked : bool or None
        True if they were derived here, None if the caller gave them.
    """

    log_query: float
    log_key: float
    log_infimum: float
    log_supremum: float
    norm: str
    domain: Domain
    checked: bool | None

    @property
    def diameter(self) -> float:
        """Diameter of E in the norm."""
        return self.domain.diameter(self.norm)

    @property
    def log_query_ratio(self) -> float:
        """``log(a Dm / eps)``, a the Lipschitz constant in the query."""
        return self.log_query + np.log(self.diameter) - self.log_infimum

    @property
    def log_key_ratio(self) -> float:
        """``log(b Dm / eps)``, b the Lipschitz constant in the key."""
        return self.log_key + np.log(self.diameter) - self.log_infimum

    @property
    def hypotheses(self) -> list[Hypothesis]:
        """What the bounds on a bounded domain share."""
        return [
            Hypothesis("E is compact and convex", True),
            Hypothesis("inf G > 0", True),
            Hypothesis(f"Lipschitz constants and diameter are all in {self.norm}", True),
            Hypothesis("the constants are those of G on E", self.checked),
            Hypothesis("all tokens lie in E", None),
        ]


def given_constants(
    query: float, key: float, infimum: float, supremum: float, domain: Domain, norm: str
) -> PotentialConstants:
    """Constants of the user's own potential.

    Parameters
    ----------
    query, key : float
        Lipschitz constants of G in its slots, for the norm.
    infimum, supremum : float
        Of G on E x E; ``0 < infimum <= supremum``.
    domain : Domain
    norm : {"l1", "l2"}

    Returns
    -------
    PotentialConstants

    Raises
    ------
    InputError
        If the infimum is zero (no bound on a bounded domain holds), or a constant is not finite.

    Examples
    --------
    >>> from meanfield.regularity.domains import Box
    >>> c = given_constants(0.0, 1.0, 0.5, 2.5, Box(1.0, 1), "l1")
    >>> round(float(np.exp(c.log_key_ratio)), 12)
    4.0
    """
    if not 0 < infimum <= supremum < np.inf:
        raise InputError(
            f"the bounds on a bounded domain need 0 < inf G <= sup G < infinity, got {infimum} "
            f"and {supremum}: shrink E, or take the Gaussian bound, which needs no infimum"
        )
    return PotentialConstants(
        log_of(query, "the Lipschitz constant in the query"),
        log_of(key, "the Lipschitz constant in the key"),
        float(np.log(infimum)),
        float(np.log(supremum)),
        check_norm(norm),
        domain,
        None,
    )


def potential_constants(
    potential: Potential, domain: Domain, norm: str, query=None
) -> PotentialConstants:
    """Constants of a built-in potential on a domain.

    Attained for the scaled dot product and the Gaussian, and for every B on an l2 ball in l2;
    upper estimates (lower for the infimum) for a general B on a box or in l1.

    Parameters
    ----------
    potential : Bilinear, ScaledDotProduct or Gaussian
    domain : Domain
    norm : {"l1", "l2"}
    query : array_like, shape (d,), optional
        Constants of ``G(query, .)`` alone, for cross-attention; the query must lie in E.

    Returns
    -------
    PotentialConstants

    Raises
    ------
    InputError
        For a potential of the user's own (see `given_constants`).
    PointsError
        If the query lies outside E.

    Examples
    --------
    >>> from meanfield.regularity.domains import Box
    >>> from meanfield.regularity.potentials import ScaledDotProduct
    >>> c = potential_constants(ScaledDotProduct(), Box(2.0, 1), "l1")
    >>> c.log_supremum, round(float(np.exp(c.log_key - c.log_supremum)), 12)
    (4.0, 2.0)
    """
    check_norm(norm)
    if query is not None:
        query = domain.require(np.asarray(query, dtype=float)[None], "queries")[0]
    if potential.exponential:
        B = square_form(potential, domain)
        top = largest_score(B, domain) if query is None else float(domain.support(B.T @ query))
        log_query = log_of(steepness(B.T, domain, norm), "B")
        log_key = log_of(steepness(B, domain, norm, query), "B")
        return PotentialConstants(log_query + top, log_key + top, -top, top, norm, domain, True)
    if isinstance(potential, Gaussian):
        return _gaussian_constants(potential.bandwidth, domain, norm, query)
    raise InputError(
        "the constants of a potential of your own are not known: give them with given_constants"
    )


def square_form(potential: Potential, domain: Domain) -> np.ndarray:
    """B of ``G = exp(x.By)`` on ``E x E``.

    Raises
    ------
    InputError
        If the potential is not exponential.
    MatrixError
        If B does not fit the domain.

    Examples
    --------
    >>> from meanfield.regularity.potentials import ScaledDotProduct
    >>> square_form(ScaledDotProduct(2.0), Ball(1.0, 1)).tolist()
    [[0.5]]
    """
    if not potential.exponential:
        raise InputError("this bound is for exponential potentials: ScaledDotProduct or Bilinear")
    B = potential.matrix(domain.dimension)
    if B.shape[0] != B.shape[1]:
        raise MatrixError(f"queries and keys share E in R^{domain.dimension}, B has {B.shape}")
    return B


def largest_score(B: np.ndarray, domain: Domain) -> float:
    """``sup x.By`` over E x E: attained on a ball; on a box for diagonal B, else an estimate.

    Examples
    --------
    >>> largest_score(np.diag([2.0, 1.0]), Ball(1.0, 2))
    2.0
    """
    spectral = float(np.linalg.norm(B, 2)) * domain.radius**2
    if isinstance(domain, Ball):
        return spectral
    return min(spectral, domain.half_width**2 * float(np.abs(B).sum()))


def steepness(B: np.ndarray, domain: Domain, norm: str, query=None) -> float:
    """``k = sup over x in E of the dual norm of B^T x``; at one x if a query is given.

    Attained, except in l2 on a box, where the smaller of two estimates is taken.

    Examples
    --------
    >>> steepness(np.eye(2), Ball(2.0, 2), "l2")
    2.0
    """
    if query is not None:
        return float(vector_norm(B.T @ query, norm, dual=True))
    columns = B.T
    if norm == "l1":
        return float(domain.support(columns).max())
    spectral = float(np.linalg.norm(B, 2)) * domain.radius
    if isinstance(domain, Ball):
        return spectral
    return min(spectral, float(np.linalg.norm(domain.support(columns))))


def oscillation(B: np.ndarray, domain: Domain) -> float:
    """``max_k osc over z in E of (Bz)_k``.

    Examples
    --------
    >>> oscillation(np.eye(2), Ball(2.0, 2))
    4.0
    """
    return 2.0 * float(domain.support(B).max())


def _gaussian_constants(bandwidth, domain, norm, query) -> PotentialConstants:
    reach = domain.diameter("l2")
    if query is not None:
        reach = domain.radius + float(np.linalg.norm(query))
    steepest = bandwidth / np.sqrt(2)
    # In l1 the dual norm of the gradient is largest along an axis, in l2 it is the same everywhere.
    span = reach if norm == "l2" else min(reach, 2 * domain.half_width)
    distance = min(steepest, span)
    log_slope = np.log(2 * distance / bandwidth**2) - (distance / bandwidth) ** 2
    infimum = -((reach / bandwidth) ** 2)
    return PotentialConstants(float(log_slope), float(log_slope), infimum, 0.0, norm, domain, True)
