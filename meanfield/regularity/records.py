"""The record of a bound: how large, by which result, under which hypotheses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanfield.errors import InputError
from meanfield.regularity.domains import check_norm

VARIANTS = ("valid", "paper")
PAPER = "Vuckovic, Baratin, Tachet des Combes (2020)"


@dataclass(frozen=True)
class Hypothesis:
    """What a bound needs.

    Attributes
    ----------
    words : str
    checked : bool or None
        True: checked, holds; False: checked, fails; None: not checked, the caller answers for it.
    """

    words: str
    checked: bool | None = None


@dataclass(frozen=True)
class Bound:
    """A bound on a Lipschitz constant (or on a distance, where the item says so).

    Attributes
    ----------
    item : str
        The result: "Theorem 14", "key factor, exponential potential", ...
    value : float
        Infinite where it does not fit into a double; then `log10_value` still holds.
    log10_value : float
        Minus infinity for a bound of zero.
    norm : {"l1", "l2"}
        The ground norm of W1, diameters and Lipschitz constants.
    variant : {"valid", "paper"}
        "paper": the printed form, for reproduction and comparison; it never certifies.
    kind : {"upper", "lower"}
    source : str
    hypotheses : tuple of Hypothesis

    Examples
    --------
    >>> bound = bound_from_log("an example", 1000.0, "l1", "no source", [])
    >>> bound.value, round(bound.log10_value, 2), bound.certifies
    (inf, 434.29, True)
    """

    item: str
    value: float
    log10_value: float
    norm: str
    variant: str
    kind: str
    source: str
    hypotheses: tuple[Hypothesis, ...]

    @property
    def log_value(self) -> float:
        """The natural logarithm of the value."""
        return self.log10_value * np.log(10.0)

    @property
    def certifies(self) -> bool:
        """Whether the bound may be relied on: a valid form, and no hypothesis failed."""
        return self.variant == "valid" and all(h.checked is not False for h in self.hypotheses)

    @property
    def unchecked(self) -> tuple[str, ...]:
        """The hypotheses that the caller answers for."""
        return tuple(h.words for h in self.hypotheses if h.checked is None)

    def __str__(self) -> str:
        size = f"{self.value:.6g}" if np.isfinite(self.value) else f"10^{self.log10_value:.4g}"
        sign = "<=" if self.kind == "upper" else ">="
        state = "certifies" if self.certifies else "does not certify"
        return f"{self.item} ({self.variant}, {self.norm}): {sign} {size}, {state}"


def bound_from_log(
    item: str, log_value: float, norm: str, source: str, hypotheses, variant="valid", kind="upper"
) -> Bound:
    """A `Bound` from the natural logarithm of its value.

    Examples
    --------
    >>> bound_from_log("an example", 0.0, "l2", "no source", []).value
    1.0
    """
    with np.errstate(over="ignore"):
        value = float(np.exp(log_value))
    return Bound(
        item,
        value,
        float(log_value / np.log(10.0)),
        check_norm(norm),
        check_variant(variant),
        kind,
        source,
        tuple(hypotheses),
    )


def check_variant(variant: str) -> str:
    """Return the variant if it is "valid" or "paper".

    Raises
    ------
    InputError
        If it is another one.

    Examples
    --------
    >>> check_variant("paper")
    'paper'
    """
    if variant not in VARIANTS:
        raise InputError(f"variant must be 'valid' or 'paper', got {variant!r}")
    return variant


def log_of(value: float, name: str) -> float:
    """The logarithm of a number >= 0; minus infinity for zero.

    Raises
    ------
    InputError
        If the number is negative or not finite.

    Examples
    --------
    >>> log_of(1.0, "a constant")
    0.0
    """
    value = float(value)
    if not (np.isfinite(value) and value >= 0):
        raise InputError(f"{name} must be finite and >= 0, got {value}")
    with np.errstate(divide="ignore"):
        return float(np.log(value))


def log_sum(*logs: float) -> float:
    """The logarithm of a sum of exponentials, safe against overflow.

    Examples
    --------
    >>> round(log_sum(1000.0, 1000.0) - 1000.0, 6)
    0.693147
    """
    return float(np.logaddexp.reduce(logs))


def same_norm(norm: str, other: str, name: str) -> None:
    """Refuse to mix norms.

    Raises
    ------
    InputError
        If the two norms differ.
    """
    if norm != other:
        raise InputError(
            f"{name} is measured in {other} but the bound in {norm}: a Lipschitz constant in one "
            "norm times a diameter in the other bounds nothing; take one norm throughout"
        )
