"""Kernels of the mobility ``Z(x) = int K(x, y) dmu(y)``: exp(x.Dy), or a constant."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

import numpy as np

from meanfield.errors import InputError
from meanfield.model.interaction import Interaction

MAX_NORM = 300.0  # squares of the smallest and the largest kernel value are then numbers


@dataclass(frozen=True, eq=False)
class Kernel:
    """``K(x, y) = factor * exp(x.Dy)`` on the unit sphere.

    Attributes
    ----------
    interaction : Interaction
    factor : float, > 0
    """

    interaction: Interaction
    factor: float = 1.0

    @property
    def bounds(self) -> tuple[float, float]:
        """``C <= K <= C~``: x.Dy takes all values between minus and plus the norm of D."""
        norm = self.interaction.norm
        return self.factor * float(np.exp(-norm)), self.factor * float(np.exp(norm))

    @property
    def constant(self) -> bool:
        """Whether K is the same for all points."""
        return self.interaction.norm == 0

    def parameters(self) -> dict:
        """What rebuilds the kernel."""
        return {"D": self.interaction.D.tolist(), "factor": self.factor}


def as_kernel(value, n: int) -> Kernel:
    """The kernel of `mobility_distance` from an Interaction or a constant.

    Parameters
    ----------
    value : Interaction, Kernel, or float > 0
    n : int
        Dimension of the surrounding space.

    Raises
    ------
    InputError
        If the kernel has no positive lower bound, or D another dimension.

    Examples
    --------
    >>> as_kernel(4.0, 2).bounds
    (4.0, 4.0)
    """
    if isinstance(value, Kernel):
        kernel = value
    elif isinstance(value, Interaction):
        kernel = Kernel(value)
    elif isinstance(value, Real) and not isinstance(value, bool):
        if not (np.isfinite(value) and value > 0):
            raise InputError(
                f"the constant kernel {value:g} has no positive lower bound: give a number > 0"
            )
        kernel = Kernel(Interaction(np.zeros((n, n))), float(value))
    else:
        raise InputError(
            "the kernel must be an Interaction or a positive number, which have a positive lower "
            f"bound; got {type(value).__name__}"
        )
    norm = kernel.interaction.norm
    if norm > MAX_NORM:
        raise InputError(
            f"the kernel exp(x.Dy) with ||D|| = {norm:.4g} has no positive lower bound in double "
            f"precision: exp(-||D||) needs ||D|| <= {MAX_NORM:g}"
        )
    if kernel.interaction.dimension != n:
        raise InputError(
            f"D is {kernel.interaction.dimension} x {kernel.interaction.dimension} but the "
            f"measures live in R^{n}"
        )
    return kernel
