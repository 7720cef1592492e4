"""Checks of numbers that users give."""

from __future__ import annotations

import numpy as np

from meanfield.errors import InputError


def positive(value, name: str) -> float:
    """A number that must be finite and > 0.

    Raises
    ------
    InputError
        It names the argument.

    Examples
    --------
    >>> positive("0.5", "step")
    0.5
    """
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a number > 0, got {value!r}") from None
    if not (np.isfinite(number) and number > 0):
        raise InputError(f"{name} must be finite and > 0, got {value!r}")
    return number


def whole(value, name: str, least: int) -> int:
    """A number that must be an integer and not too small.

    Raises
    ------
    InputError
        It names the argument.

    Examples
    --------
    >>> whole(3.0, "steps", 1)
    3
    """
    try:
        good = not isinstance(value, bool) and int(value) == value and value >= least
    except (TypeError, ValueError, OverflowError):
        good = False
    if not good:
        raise InputError(f"{name} must be an integer >= {least}, got {value!r}")
    return int(value)
