"""Bounds for the Gaussian potential on all of R^d: no domain, but a logarithm of the number N.

The bandwidth does not enter: it scales inputs and outputs alike.
"""

from __future__ import annotations

from math import lcm

import numpy as np
from scipy.special import lambertw

from meanfield.errors import InputError
from meanfield.regularity.composition_bounds import lookup_factor
from meanfield.regularity.records import PAPER, Bound, Hypothesis, bound_from_log, check_variant

LIPSCHITZ = np.sqrt(2 / np.e)  # ||G||_Lip of exp(-|x - y|^2), for l1 as for l2


def gaussian_mean_bound(n: int, variant: str = "valid") -> Bound:
    """``sup of sum_i z_i exp(-z_i^2) / (1 + sum_i exp(-z_i^2))`` over n numbers z_i >= 0.

    Parameters
    ----------
    n : int
    variant : {"valid", "paper"}
        Sharp, ``w / sqrt(w + 1/2)`` with ``w = W_0(n / (2 sqrt e))``, or the printed
        ``sqrt(ln n + 1/(2e))``, which is true but larger.

    Returns
    -------
    Bound

    Raises
    ------
    InputError
        If n is no positive integer.

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Lemma 25.

    Examples
    --------
    >>> round(gaussian_mean_bound(1).value, 4), round(gaussian_mean_bound(1, "paper").value, 4)
    (0.2779, 0.4289)
    """
    _count(n, "n")
    if check_variant(variant) == "paper":
        value, source = np.sqrt(np.log(n) + 0.5 / np.e), f"{PAPER}, Lemma 25, as printed"
    else:
        value, source = _sharp_mean(n), f"{PAPER}, Lemma 25, sharp"
    return bound_from_log("Lemma 25", np.log(value), "l2", source, [], variant)


def gaussian_softmatch_bound(n_tokens: int, dimension: int) -> Bound:
    """The printed factor of ``d(x, y) + W1(mu, nu)``; false, and no valid form is known.

    Parameters
    ----------
    n_tokens, dimension : int

    Returns
    -------
    Bound
        Of the variant "paper": it never certifies.

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Proposition 27. At d = 1 the W1 term is
    violated from N = 8 on, the d(x, y) term from N = 356 on.

    Examples
    --------
    >>> bound = gaussian_softmatch_bound(8, 1)
    >>> round(bound.value, 2), bound.certifies
    (5.29, False)
    """
    _count(n_tokens, "n_tokens")
    _count(dimension, "dimension")
    value = _printed_factor(n_tokens, dimension)
    hypotheses = [Hypothesis("the proposition holds", False)]
    source = f"{PAPER}, Proposition 27, as printed"
    return bound_from_log("Proposition 27", np.log(value), "l1", source, hypotheses, "paper")


def gaussian_attention_bound(
    n_tokens: int,
    dimension: int,
    other_tokens: int | None = None,
    lookup=1.0,
    variant: str = "valid",
    effective: float | None = None,
    self_token: bool | None = None,
) -> Bound:
    """Self-attention of N tokens with a Gaussian potential, from above.

    Parameters
    ----------
    n_tokens : int
        N.
    dimension : int
        d.
    other_tokens : int, optional
        M, if the other measure has another number of tokens: the valid form takes the least
        common multiple of both, the printed one the minimum.
    lookup : float or Bound
        Lip(l), in l2 for the valid form, in l1 for the printed one.
    variant : {"valid", "paper"}
    effective : float, optional
        ``N_eff = sup sum_i 1 / sum_k G_ik``, between 1 and N; N when omitted.
    self_token : bool, optional
        Whether every query is one of the keys, as in self-attention; without it the bound does
        not hold.

    Returns
    -------
    Bound
        Valid, in l2: ``2 W_0((N-1)/e) + sqrt(N_eff) [1 + sqrt(2d) + 2 g (d/2)^{1/4}]``, g the
        sharp Lemma 25 for N - 1 numbers. Printed, in l1: of the order sqrt(ln N), violated for
        large N, at d = 1 from about 13,100 on.

    Raises
    ------
    InputError
        If a number of tokens is no positive integer, N_eff is not in [1, N], or the lookup
        bound is in another norm.

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Theorem 16 and Corollary 17, corrected.

    Examples
    --------
    >>> round(gaussian_attention_bound(2, 1, variant="paper").value, 2)
    9.61
    >>> bound = gaussian_attention_bound(30, 1, self_token=True)
    >>> bool(gaussian_lower_bound(29).value < bound.value), bound.certifies
    (True, True)
    """
    _count(n_tokens, "n_tokens")
    _count(dimension, "dimension")
    other = n_tokens if other_tokens is None else other_tokens
    _count(other, "other_tokens")
    norm = "l2" if check_variant(variant) == "valid" else "l1"
    log_lookup, hypotheses = lookup_factor(lookup, norm)
    hypotheses.append(Hypothesis("every query is one of the keys (self token)", self_token))
    hypotheses.append(Hypothesis("the tokens have equal weights"))
    item = "Theorem 16" if other != n_tokens else "Corollary 17"
    if variant == "paper":
        value = 2 * dimension * _printed_factor(min(n_tokens, other), dimension)
        source = f"{PAPER}, {item}, as printed"
    else:
        value = _upper(lcm(n_tokens, other), dimension, effective)
        source = f"{PAPER}, {item}, corrected"
        if effective is not None:
            hypotheses.append(Hypothesis("N_eff bounds sum_i 1 / sum_k G_ik", None))
    return bound_from_log(item, log_lookup + np.log(value), norm, source, hypotheses, variant)


def gaussian_lower_bound(n_tokens: int) -> Bound:
    """Self-attention of N tokens with a Gaussian potential, from below: ``2 W_0((N-1)/e)``.

    Parameters
    ----------
    n_tokens : int
        N; the bound is for odd N, for an even N that of N - 1 is returned.

    Returns
    -------
    Bound
        In l2, for l = id, in every dimension.

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Theorem 16, corrected: the growth is logarithmic
    in N, not its square root.

    Examples
    --------
    >>> round(gaussian_lower_bound(13251).value, 3)
    13.208
    """
    _count(n_tokens, "n_tokens")
    odd = n_tokens if n_tokens % 2 else n_tokens - 1
    value = 2 * float(lambertw((odd - 1) / np.e).real)
    with np.errstate(divide="ignore"):
        log_value = np.log(value)
    source = f"{PAPER}, Theorem 16, corrected"
    hypotheses = [
        Hypothesis("l is the identity", None),
        Hypothesis("an odd number of tokens, or one of them set aside", True),
    ]
    return bound_from_log(
        "Corollary 17, from below", log_value, "l2", source, hypotheses, kind="lower"
    )


def _count(value, name: str) -> None:
    if int(value) != value or value < 1:
        raise InputError(f"{name} must be a positive integer, got {value}")


def _sharp_mean(n: int) -> float:
    w = float(lambertw(n / (2 * np.sqrt(np.e))).real)
    return w / np.sqrt(w + 0.5)


def _printed_factor(n_tokens: int, dimension: int) -> float:
    root = np.sqrt(dimension)
    return root * np.sqrt(np.log(n_tokens) + 0.5 / np.e) * LIPSCHITZ + 1 + root + 2


def _upper(n_tokens: int, dimension: int, effective: float | None) -> float:
    effective = float(n_tokens) if effective is None else float(effective)
    if not 1 <= effective <= n_tokens:
        raise InputError(f"N_eff lies between 1 and N = {n_tokens}, got {effective}")
    g = _sharp_mean(n_tokens - 1)
    rest = 1 + np.sqrt(2 * dimension) + 2 * g * (dimension / 2) ** 0.25
    return 2 * float(lambertw((n_tokens - 1) / np.e).real) + np.sqrt(effective) * rest
