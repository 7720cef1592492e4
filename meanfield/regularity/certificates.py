"""Contraction certificates of self-attention, and of any layer with a bound."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from meanfield.errors import ConvergenceError, InputError
from meanfield.regularity.adversarial import AdversarialConstant
from meanfield.regularity.composition_bounds import lookup_bound
from meanfield.regularity.domains import Box, Domain, check_norm
from meanfield.regularity.lengths import smallest_bound
from meanfield.regularity.potentials import Potential
from meanfield.regularity.records import Bound


@dataclass(frozen=True, eq=False)
class Contraction:
    """Whether ``c A`` is a contraction of N labelled tokens in a domain, and on what evidence.

    Distances are ``(1/N) sum_i |x_i - y_i|`` in the norm; by Banach's fixed point theorem a
    factor below one makes ``x -> P(y - c A(x))`` and ``h -> c A(P(h + s))`` converge.

    Attributes
    ----------
    scale : float
        c.
    constant : float
        Lip(l) C, the Lipschitz constant of A that was used.
    factor : float
        ``q = |c| Lip(l) C``.
    norm : str
    domain : Domain
    evidence : {"proved", "numerical"}
        "proved": the constant is a bound that certifies. "numerical": it is an adversarial
        supremum, a lower bound of the true constant; the factor is then what a search found, and
        nothing is certified. A refusal on this evidence is proved.
    source : str
    n_tokens : int or None
        N; None where the bound is for any number of tokens, or says so itself.
    """

    scale: float
    constant: float
    factor: float
    norm: str
    domain: Domain
    evidence: str
    source: str
    n_tokens: int | None = None

    @property
    def contracts(self) -> bool:
        """Whether the factor is below one, on whatever evidence."""
        return self.factor < 1

    @property
    def certified(self) -> bool:
        """Whether the factor is below one and proved."""
        return self.contracts and self.evidence == "proved"

    @property
    def reason(self) -> str:
        """Why it is, or is not, certified."""
        if not self.contracts:
            found = "proved" if self.evidence == "numerical" else "the bound does not exclude it"
            return (
                f"refused: q = c Lip(l) C = {self.factor:.4g} >= 1 in {self.norm} ({found}); take "
                f"a scale below {1 / self.constant:.4g}"
            )
        if self.evidence == "numerical":
            return (
                f"not certified: q = {self.factor:.4g} rests on an adversarial supremum, which is "
                "a lower bound of the constant"
            )
        return f"certified: q = {self.factor:.4g} < 1 in {self.norm} by {self.source}"

    def error(self, steps: int, first_step: float) -> float:
        """A-priori error ``q^k / (1 - q) |x_1 - x_0|`` after k steps.

        Raises
        ------
        ConvergenceError
            If the factor is not below one.

        Examples
        --------
        >>> E = Box(1.0, 1)
        >>> Contraction(0.5, 1.0, 0.5, "l1", E, "proved", "an example").error(3, 1.0)
        0.25
        """
        self.require()
        return self.factor**steps / (1 - self.factor) * first_step

    def require(self) -> None:
        """Refuse to go on without a factor below one.

        Raises
        ------
        ConvergenceError
        """
        if not self.contracts:
            raise ConvergenceError(self.reason)

    def __repr__(self) -> str:
        return f"Contraction(c = {self.scale:g}: {self.reason})"


def certify(
    potential: Potential,
    domain: Domain,
    n_tokens: int,
    scale: float,
    norm: str = "l2",
    value=None,
    constant: AdversarialConstant | None = None,
) -> Contraction:
    """Is ``x -> c A(x)`` a contraction of N labelled tokens in the domain?

    Parameters
    ----------
    potential : Potential
    domain : Box or Ball
        E; iterations are projected onto it, which does not expand distances in l2, and for a box
        in every norm.
    n_tokens : int
        N, of equal weight.
    scale : float
        c.
    norm : {"l2", "l1"}
    value : array_like, shape (d, d), optional
        W of the value map; the identity when omitted.
    constant : AdversarialConstant, optional
        Use this number for C in place of a proved bound. The result is numerical evidence.

    Returns
    -------
    Contraction
        Refused where ``certified`` is false; ``reason`` says why.

    Raises
    ------
    InputError
        If the norm is l1 and the domain a ball, no bound for the potential is known, or the
        constant was found for another norm, number of tokens, potential or domain.

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Section 6.3; the printed constants of Theorem 14
    "certify" blocks that are not invertible and are not used.

    Examples
    --------
    >>> from meanfield.regularity.potentials import ScaledDotProduct
    >>> found = certify(ScaledDotProduct(), Box(0.1, 1), 10, 0.9, norm="l1")
    >>> found.certified, round(found.factor, 4)
    (True, 0.9418)
    >>> certify(ScaledDotProduct(), Box(1.0, 1), 10, 0.9, norm="l1").certified
    False
    """
    _check_projection(domain, norm)
    lookup = 1.0 if value is None else lookup_bound(value, norm)
    if constant is None:
        bound = smallest_bound(potential, domain, norm, lookup, n_tokens)
        return replace(certify_bound(bound, domain, scale), n_tokens=n_tokens)
    _check_fits(constant, potential, domain, n_tokens, norm)
    size = constant.value * (1.0 if value is None else lookup.value)
    source = "an adversarial supremum"
    found = _contraction(scale, size, norm, domain, "numerical", source)
    return replace(found, n_tokens=n_tokens)


def certify_bound(bound: Bound, domain: Domain, scale: float) -> Contraction:
    """The same for any layer with a known bound: several heads, a network, several layers.

    Parameters
    ----------
    bound : Bound
        Of the layer: from `multi_head_bound`, `depth_bound`, `attention_bound`, ...
    domain : Box or Ball
    scale : float

    Returns
    -------
    Contraction

    Raises
    ------
    InputError
        If the bound does not certify (a printed one, one from below, a failed hypothesis), or the
        norm is l1 and the domain a ball.

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Section 6.3 and Lemma 23.

    Examples
    --------
    >>> from meanfield.regularity.composition_bounds import depth_bound
    >>> layers = depth_bound(lookup_bound(2.0, "l2"), lookup_bound(3.0, "l2"))
    >>> certify_bound(layers, Box(1.0, 1), 0.1).certified
    True
    """
    _check_projection(domain, bound.norm)
    if not bound.certifies or bound.kind != "upper":
        raise InputError(f"{bound.item}: this bound does not certify; take variant='valid'")
    return _contraction(scale, bound.value, bound.norm, domain, "proved", bound.source)


def _contraction(scale, constant, norm, domain, evidence, source) -> Contraction:
    scale = float(scale)
    if not np.isfinite(scale) or scale == 0:
        raise InputError(f"scale must be finite and not zero, got {scale}")
    return Contraction(scale, constant, abs(scale) * constant, norm, domain, evidence, source)


def _check_projection(domain, norm: str) -> None:
    if check_norm(norm) == "l1" and not isinstance(domain, Box):
        raise InputError("projecting onto a ball may expand l1 distances: take a Box, or norm='l2'")


def _check_fits(constant, potential, domain, n_tokens, norm) -> None:
    if not isinstance(constant, AdversarialConstant):
        raise InputError("constant must be the result of adversarial_constant")
    found = (constant.norm, len(constant.tokens), constant.domain)
    if found != (norm, n_tokens, domain) or constant.potential is not potential:
        raise InputError(
            f"the constant was found in {found[0]} for {found[1]} tokens in {found[2]} and its own "
            f"potential, it says nothing on {norm}, {n_tokens} tokens in {domain}"
        )
    if not constant.confirmed:
        raise InputError("the constant was not confirmed by finite differences")
