"""Linear rates about one cluster, or two antipodal ones, in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanfield.equilibria.discrete_states import two_point_state
from meanfield.equilibria.exact import symmetric_matrix
from meanfield.errors import ComputationError, InputError, PointsError

NEUTRAL = 1e-9  # of |D|: rates within it of zero belong to a symmetry, or are not decided
EIGENVECTOR = 1e-8  # of |D|: how far P_z Dz may be from zero
LARGEST_LOGARITHM = 700.0  # of a rate


@dataclass(frozen=True, eq=False)
class TwoPointRates:
    """Growth rates of small displacements of ``t delta_z + (1-t) delta_-z``.

    Attributes
    ----------
    eigenvalue : float
        That of z.
    others : ndarray, shape (n-1,)
        The other eigenvalues, ascending, those of the directions of displacement.
    spreading : ndarray, shape (k,)
        Rates at which differences within a cluster grow, the same in all directions; k = 2, the
        cluster at z first, or k = 1 where one of them has no mass.
    moving : ndarray, shape (n-1, k)
        Rates at which whole clusters move away, for each other eigenvalue.
    tolerance : float
        Rates within it of zero are neutral: rotations inside an eigenspace.
    """

    eigenvalue: float
    others: np.ndarray
    spreading: np.ndarray
    moving: np.ndarray
    tolerance: float

    @property
    def index(self) -> int:
        """Number of unstable directions, of whole clusters and within each cluster.

        The one that `meanfield.stability` counts for the same state.
        """
        moving = (self.moving > self.tolerance).sum()
        return int(moving + len(self.others) * (self.spreading > self.tolerance).sum())

    @property
    def stable(self) -> bool:
        """Whether no mode grows, neither of whole clusters nor within one."""
        return self.index == 0

    @property
    def slowest(self) -> float | None:
        """The largest rate that is not neutral: how fast a stable state is approached."""
        rates = np.concatenate([self.spreading, self.moving.ravel()])
        rates = rates[np.abs(rates) > self.tolerance]
        return float(rates.max()) if len(rates) else None


def two_point_rates(D, z, t: float = 0.5, sign: int = 1, normalized: bool = True) -> TwoPointRates:
    """Linear rates of the attention flow about ``t delta_z + (1-t) delta_-z``, Dz = L z.

    With ``p = t e^L``, ``q = (1-t) e^-L`` and ``Z = p + q``, differences within the cluster at z
    grow like ``-L (p - q) / Z``. In the direction of another eigenvector, eigenvalue l, the
    displacements (a, b) of both clusters as wholes follow ``Z a' = (-L (p - q) + l p) a + l q b``,
    and the same with t and 1-t exchanged.

    Parameters
    ----------
    D : array_like, shape (n, n) or (n,)
        Symmetric.
    z : array_like, shape (n,)
        Unit eigenvector of D.
    t : float
        In [0, 1]; 1 is a single cluster.
    sign : {1, -1}
        +1 ascends the energy.
    normalized : bool
        False: the flow (5.1), without the division by Z.

    Returns
    -------
    TwoPointRates

    Raises
    ------
    MatrixError
        If D is not symmetric.
    InputError, PointsError
        If t or sign is out of range, or z is no unit eigenvector.
    ComputationError
        If rates of the unnormalised flow are beyond the range of float64.

    Notes
    -----
    Not in Burger, Kabri, Korolev, Roith, Weigand (2025), whose Lemmas 4.5 and 4.6 say when these
    states are stationary.

    Examples
    --------
    >>> rates = two_point_rates([0.5, 2.0], [0.0, 1.0], t=1.0)
    >>> rates.spreading.tolist(), rates.moving.tolist(), rates.stable
    ([-2.0], [[-1.5]], True)
    >>> [two_point_rates([1.0, top], [0.0, 1.0]).stable for top in (1.19967, 1.19969)]
    [False, True]
    """
    D = symmetric_matrix(D)
    if sign not in (1, -1):
        raise InputError(f"sign must be 1 or -1, got {sign!r}")
    z = two_point_state(z, t).points[0]
    if len(z) != len(D):
        raise PointsError(f"z lies in R^{len(z)}, D acts on R^{len(D)}")
    level, scale = float(z @ D @ z), float(np.abs(np.linalg.eigvalsh(D)).max())
    if np.linalg.norm(D @ z - level * z) > EIGENVECTOR * scale:
        raise PointsError("z must be an eigenvector of D: the state is not stationary otherwise")
    others = _other_eigenvalues(D, z)
    masses = np.array([t, 1 - t])
    present = np.flatnonzero(masses)
    # Logarithms: of a single cluster with L < 0 all of Z may underflow
    with np.errstate(divide="ignore"):
        log_own, log_other = np.log(masses[present]) + level, np.log(masses[1 - present]) - level
    log_z = np.logaddexp(log_own, log_other)
    size = 0.0 if normalized else float(log_z.max())
    if size > LARGEST_LOGARITHM:
        raise ComputationError(
            f"rates of the unnormalised flow are about exp({size:.0f}), beyond the range of "
            "numbers: take the normalised flow, whose index is the same"
        )
    own, other = np.exp(log_own - log_z), np.exp(log_other - log_z)
    spreading = -level * (own - other)
    # In the unknowns sqrt(mass Z) a the linear system is symmetric
    number = np.arange(len(present))
    blocks = np.full((len(others), len(present), len(present)), np.sqrt(other.prod()))
    blocks *= others[:, None, None]
    blocks[:, number, number] = spreading + others[:, None] * own
    factor = np.ones(len(present)) if normalized else np.exp(log_z)
    return TwoPointRates(
        eigenvalue=level,
        others=others,
        spreading=sign * factor * spreading,
        moving=sign * np.linalg.eigvalsh(blocks * np.sqrt(factor[:, None] * factor)),
        tolerance=NEUTRAL * scale * factor.max(),
    )


def largest_stable_share(eigenvalue: float, others) -> float | None:
    """Up to which mass of the heavier cluster antipodal clusters are a local maximum.

    The pair ``t delta_z + (1-t) delta_-z`` with Dz = L z is locally maximal, strictly, if and
    only if max(t, 1-t) is below this share.

    Parameters
    ----------
    eigenvalue : float
        L, that of z; not zero.
    others : array_like, shape (n-1,)
        The other eigenvalues l.

    Returns
    -------
    float or None
        In (1/2, 1); None if equal clusters are no strict local maximum either.

    Notes
    -----
    With r = t/(1-t) and h = |L|: stable if ``h (r + 1/r) < e^{2h} (h - l) + e^{-2h} (h + l)`` for
    every other eigenvalue l and for l = 0, which keeps each cluster from spreading; for L < 0
    also ``l > L``, while for L > 0 negative l add nothing. For t = 1/2 and l >= 0 that is
    ``h tanh h > l``. Not in Burger, Kabri, Korolev, Roith, Weigand (2025).

    Examples
    --------
    >>> round(largest_stable_share(1.5, [1.0]), 6), largest_stable_share(1.19967, [1.0])
    (0.868891, None)
    """
    level, size = float(eigenvalue), abs(float(eigenvalue))
    others = np.append(np.asarray(others, dtype=float), 0.0)
    if size == 0 or (level > 0 and others.max() >= level) or (level < 0 and others.min() <= level):
        return None
    small = np.exp(-2 * size)  # both sides of the condition times this: nothing overflows
    least = float((1 - others / size + small**2 * (1 + others / size)).min())
    if least <= 2 * small:  # r + 1/r is at least 2
        return None
    root = np.sqrt((least - 2 * small) * (least + 2 * small))
    return float((least + root) / (least + root + 2 * small))


def _other_eigenvalues(D, z) -> np.ndarray:
    """Eigenvalues of D on the complement of z, ascending."""
    frame = np.linalg.qr(np.column_stack([z, np.eye(len(z))]))[0][:, 1:]
    return np.linalg.eigvalsh(frame.T @ D @ frame)
