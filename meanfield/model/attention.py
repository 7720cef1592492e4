"""Self-attention on the sphere: the velocity of a token in the field of all tokens."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from meanfield.errors import InputError, MatrixError
from meanfield.model.interaction import BoundInteraction, Interaction, square_matrix
from meanfield.sphere.geometry import tangential


@dataclass(frozen=True, eq=False)
class SelfAttention:
    """The velocity ``v(x) = P_x int K(x, y) V y dmu(y) / Z(x)``, ``K(x, y) = exp(x.Dy)``.

    Parameters
    ----------
    D : array_like, shape (n, n) or (n,)
        Query-key matrix; a vector means a diagonal matrix.
    sign : {1, -1}, optional
        V = sign * D: +1 ascends the energy (clusters), -1 descends it (spreads). Default 1.
    V : array_like, shape (n, n) or (n,), optional
        A general value matrix instead of a sign.
    normalized : bool
        False leaves out the division by Z: the unnormalised flow of eq. (5.1).

    Attributes
    ----------
    sign : int or None
        None for a V that is not plus or minus D.

    Raises
    ------
    MatrixError
        If D or V is not square, not finite, or their shapes differ.
    InputError
        If both V and sign are given, or the sign is not 1 or -1.

    References
    ----------
    Burger, Kabri, Korolev, Roith, Weigand (2025), eqs. (1.7) and (5.1).

    Examples
    --------
    >>> model = SelfAttention([0.5, 1.0, 2.0], sign=-1)
    >>> model.is_gradient, model.speed_bound
    (True, 2.0)
    """

    D: np.ndarray
    sign: int | None = None
    V: np.ndarray | None = None
    normalized: bool = True

    def __post_init__(self):
        D = square_matrix(self.D)
        if self.V is not None:
            if self.sign is not None:
                raise InputError("give either V or sign: sign means V = sign * D")
            V = square_matrix(self.V, "V")
            if V.shape != D.shape:
                raise MatrixError(f"D has shape {D.shape} but V has shape {V.shape}")
            sign = next((s for s in (1, -1) if np.array_equal(V, s * D)), None)
        else:
            sign = 1 if self.sign is None else self.sign
            if sign not in (1, -1):
                raise InputError(f"sign must be 1 or -1, got {self.sign!r}")
            V = sign * D
        object.__setattr__(self, "D", D)
        object.__setattr__(self, "V", V)
        object.__setattr__(self, "sign", None if sign is None else int(sign))
        object.__setattr__(self, "normalized", bool(self.normalized))

    @cached_property
    def interaction(self) -> Interaction:
        """The kernel exp(x.Dy)."""
        return Interaction(self.D)

    @property
    def dimension(self) -> int:
        """The dimension n of the surrounding space."""
        return len(self.D)

    @property
    def is_gradient(self) -> bool:
        """Whether v = sign * grad log Z (or grad Z): V = +-D with symmetric D."""
        return self.sign is not None and self.interaction.symmetric

    @cached_property
    def value_norm(self) -> float:
        """Spectral norm of V."""
        return float(np.linalg.norm(self.V, 2))

    @property
    def speed_bound(self) -> float:
        """No token moves faster: ``||V||``, times ``exp(||D||)`` when not normalised."""
        with np.errstate(over="ignore"):
            growth = 1.0 if self.normalized else float(np.exp(self.interaction.norm))
        return self.value_norm * growth if self.value_norm else 0.0

    def on(self, space, at=None, method: str = "auto") -> BoundAttention:
        """Bind the model to the points of a space: see `Interaction.on`.

        Returns
        -------
        BoundAttention
        """
        return BoundAttention(self, self.interaction.on(space, at, method))

    def __repr__(self) -> str:
        value = f"V={self.V.tolist()}" if self.sign is None else f"sign={self.sign:+d}"
        flow = "" if self.normalized else ", normalized=False"
        return f"SelfAttention(D={self.D.tolist()}, {value}{flow})"


@dataclass(frozen=True, eq=False)
class BoundAttention:
    """A `SelfAttention` bound to the points of the masses and the points of evaluation."""

    model: SelfAttention
    integrals: BoundInteraction

    @cached_property
    def _values(self) -> np.ndarray:
        return self.integrals.sources @ self.model.V.T

    def velocity(self, masses) -> np.ndarray:
        """Velocity at the targets, shape (k,) to (m, n); tangential.

        Examples
        --------
        >>> bound = SelfAttention([1.0, 1.0]).on([[1.0, 0.0]], at=[[0.0, 1.0]])
        >>> bound.velocity([1.0]).tolist()
        [[1.0, 0.0]]
        """
        shift, sums = self.integrals.sums(masses, self._values)
        scale = 1 / sums[:, 0] if self.model.normalized else np.exp(shift)
        return tangential(self.integrals.targets, sums[:, 1:] * scale[:, None])
