"""Bounds that compose: the mean, the lookup, products, several heads, depth."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meanfield.errors import InputError
from meanfield.regularity.domains import matrix_norm
from meanfield.regularity.records import (
    PAPER,
    Bound,
    Hypothesis,
    bound_from_log,
    check_variant,
    log_of,
    log_sum,
    same_norm,
)


def projection_bound(norm: str, dimension: int, variant: str = "valid") -> Bound:
    """``tau(Pi)``, the projection to the mean: 1 in every norm; printed d.

    Parameters
    ----------
    norm : {"l1", "l2"}
    dimension : int
        d.
    variant : {"valid", "paper"}

    Returns
    -------
    Bound

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Proposition 21; corrected: 1, an equality on
    Dirac measures. With it the printed constants of Theorems 14 and 16 are violated.

    Examples
    --------
    >>> projection_bound("l1", 3).value, round(projection_bound("l1", 3, "paper").value, 12)
    (1.0, 3.0)
    """
    value = 1.0 if check_variant(variant) == "valid" else float(dimension)
    source = f"{PAPER}, Proposition 21" + (", corrected" if variant == "valid" else "")
    return bound_from_log("projection to the mean", np.log(value), norm, source, [], variant)


def lookup_bound(lookup, norm: str, rows: bool = False) -> Bound:
    """``tau(L) = Lip(l)`` of a matrix, or of a function with a known Lipschitz constant.

    Parameters
    ----------
    lookup : array_like, shape (p, d), or float
        A matrix, or the Lipschitz constant of l in the norm.
    norm : {"l1", "l2"}
    rows : bool
        Whether the matrix acts from the right, ``x W``, as output matrices do.

    Returns
    -------
    Bound

    Raises
    ------
    MatrixError
        If the matrix is not finite.

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Proposition 22: an equality.

    Examples
    --------
    >>> lookup_bound([[1.0, -2.0], [3.0, 0.0]], "l1").value
    4.0
    """
    known = np.ndim(lookup) > 0
    value = matrix_norm(lookup, norm, rows) if known else lookup
    words = Hypothesis(f"Lip(l) is measured in {norm}", True if known else None)
    log_value = log_of(value, "Lip(l)")
    return bound_from_log("lookup", log_value, norm, f"{PAPER}, Proposition 22", [words])


def lookup_factor(lookup, norm: str) -> tuple[float, list[Hypothesis]]:
    """The logarithm of Lip(l), and what it rests on; for 1, the identity, on nothing.

    Raises
    ------
    InputError
        If it is a bound in another norm.

    Examples
    --------
    >>> lookup_factor(1.0, "l1")
    (0.0, [])
    """
    if not isinstance(lookup, Bound):
        if np.ndim(lookup) == 0 and lookup == 1:
            return 0.0, []
        lookup = lookup_bound(lookup, norm)
    same_norm(norm, lookup.norm, "the lookup")
    sound = Hypothesis("the bound of the lookup certifies", lookup.certifies)
    return lookup.log_value, [*lookup.hypotheses, sound]


def attention_lower_bound(lookup=1.0, norm: str = "l1") -> Bound:
    """Self-attention contracts no more than its lookup: ``tau(A) >= Lip(l)``, from one token.

    Parameters
    ----------
    lookup : float or Bound
        Lip(l) in the norm.
    norm : {"l1", "l2"}

    Returns
    -------
    Bound

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), after Theorem 14, corrected: on Dirac measures
    attention is the lookup.

    Examples
    --------
    >>> attention_lower_bound().value
    1.0
    """
    log_lookup, hypotheses = lookup_factor(lookup, norm)
    source = f"{PAPER}, Definition 7 on Dirac measures"
    return bound_from_log(
        "attention, from below", log_lookup, norm, source, hypotheses, kind="lower"
    )


def product_bound(first: float, second: float, norm: str = "l1") -> Bound:
    """``W1(mu_1 x mu_2, nu_1 x nu_2) <= W1(mu_1, nu_1) + W1(mu_2, nu_2)``, a bound of a distance.

    Parameters
    ----------
    first, second : float
        The two distances on the right.
    norm : {"l1", "l2"}
        Ground norm of the product; in l1 the bound is an equality.

    Returns
    -------
    Bound

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Lemma 26.

    Examples
    --------
    >>> round(product_bound(1.0, 2.0).value, 12)
    3.0
    """
    log_value = log_sum(log_of(first, "the first distance"), log_of(second, "the second distance"))
    words = Hypothesis(f"both distances are measured in {norm}")
    return bound_from_log("Lemma 26", log_value, norm, f"{PAPER}, Lemma 26", [words])


def multi_head_bound(heads: Sequence[Bound], outputs: Sequence) -> Bound:
    """Several heads: ``tau(M) <= sum_h |W^O_h| tau(A^h)``.

    Parameters
    ----------
    heads : sequence of Bound
        Of each head, its value matrix included as the lookup.
    outputs : sequence of array_like, shape (d_v, d)
        ``W^O_h``, which act from the right.

    Returns
    -------
    Bound

    Raises
    ------
    InputError
        If the norms or the numbers of heads and outputs differ, or a bound is one from below.

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Appendix A and Lemma 23.

    Examples
    --------
    >>> head = lookup_bound(1.0, "l1")
    >>> round(multi_head_bound([head, head], [[[2.0]], [[-1.0]]]).value, 12)
    3.0
    """
    heads = tuple(heads)
    if not heads or len(heads) != len(outputs):
        raise InputError(f"{len(heads)} heads need as many outputs (and at least one)")
    norm = _common_norm(heads)
    logs = [
        head.log_value + lookup_bound(output, norm, rows=True).log_value
        for head, output in zip(heads, outputs, strict=True)
    ]
    return _combined("multi-head attention", log_sum(*logs), heads)


def depth_bound(*layers: Bound) -> Bound:
    """Layers after one another: ``tau(A B) <= tau(A) tau(B)``.

    Parameters
    ----------
    *layers : Bound
        Attention, feed-forward (a `lookup_bound` with its Lipschitz constant), in any order.

    Returns
    -------
    Bound

    Raises
    ------
    InputError
        If there is none, their norms differ, or one is a bound from below.

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Lemma 23.

    Examples
    --------
    >>> round(depth_bound(lookup_bound(2.0, "l2"), lookup_bound(3.0, "l2")).value, 12)
    6.0
    """
    if not layers:
        raise InputError("give at least one layer")
    _common_norm(layers)
    words = Hypothesis("each layer maps into the domain of the next", None)
    return _combined("depth", sum(layer.log_value for layer in layers), layers, [words])


def _combined(item: str, log_value: float, parts, more=()) -> Bound:
    variant = "valid" if all(part.variant == "valid" for part in parts) else "paper"
    hypotheses = list(dict.fromkeys([h for part in parts for h in part.hypotheses])) + list(more)
    source = f"{PAPER}, Lemma 23"
    return bound_from_log(item, log_value, parts[0].norm, source, hypotheses, variant)


def _common_norm(parts) -> str:
    for part in parts:
        same_norm(parts[0].norm, part.norm, part.item)
        if part.kind != "upper":
            raise InputError(f"{part.item}: only bounds from above can be combined")
    return parts[0].norm
