"""Several attention heads in one layer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanfield.errors import InputError, MatrixError
from meanfield.model.attention import BoundAttention, SelfAttention

COMBINATIONS = ("sum", "mean")


@dataclass(frozen=True, eq=False)
class MultiHead:
    """A layer whose velocity is the sum, or the mean, of the velocities of its heads.

    Parameters
    ----------
    heads : sequence of SelfAttention
        At least one, all in the same dimension. A head's output matrix is part of its V.
    combine : {"sum", "mean"}
        How the outputs of the heads are put together.

    Raises
    ------
    InputError
        If there is no head, a head is not a `SelfAttention`, or ``combine`` is unknown.
    MatrixError
        If the heads live in different dimensions.

    References
    ----------
    Burger, Kabri, Korolev, Roith, Weigand (2025), eq. (1.4), for one head.

    Examples
    --------
    >>> layer = MultiHead([SelfAttention([1.0, 1.0]), SelfAttention([1.0, 1.0], sign=-1)])
    >>> layer.on([[1.0, 0.0], [0.0, 1.0]]).velocity([0.5, 0.5]).tolist()
    [[0.0, 0.0], [0.0, 0.0]]
    """

    heads: tuple[SelfAttention, ...]
    combine: str = "sum"

    def __post_init__(self):
        heads = tuple(self.heads)
        if not heads or not all(isinstance(head, SelfAttention) for head in heads):
            raise InputError("heads must be a nonempty list of SelfAttention models")
        if self.combine not in COMBINATIONS:
            raise InputError(f"combine must be 'sum' or 'mean', got {self.combine!r}")
        dimensions = sorted({head.dimension for head in heads})
        if len(dimensions) > 1:
            raise MatrixError(f"all heads must have one dimension n, got {dimensions}")
        object.__setattr__(self, "heads", heads)

    @property
    def dimension(self) -> int:
        """The dimension n of the surrounding space."""
        return self.heads[0].dimension

    @property
    def factor(self) -> float:
        """What the sum of the heads is multiplied with."""
        return 1.0 if self.combine == "sum" else 1.0 / len(self.heads)

    @property
    def is_gradient(self) -> bool:
        """False: the heads have no common energy."""
        return False

    @property
    def speed_bound(self) -> float:
        """No token moves faster than this."""
        return self.factor * sum(head.speed_bound for head in self.heads)

    def on(self, space, at=None, method: str = "auto") -> BoundHeads:
        """Bind all heads to the points of a space: see `Interaction.on`."""
        return BoundHeads(self, tuple(head.on(space, at, method) for head in self.heads))

    def __repr__(self) -> str:
        return f"MultiHead({list(self.heads)}, combine={self.combine!r})"


@dataclass(frozen=True, eq=False)
class BoundHeads:
    """A `MultiHead` bound to the points of the masses and the points of evaluation."""

    model: MultiHead
    bound: tuple[BoundAttention, ...]

    def velocity(self, masses) -> np.ndarray:
        """Velocity at the targets, shape (k,) to (m, n); tangential."""
        return self.model.factor * sum(part.velocity(masses) for part in self.bound)
