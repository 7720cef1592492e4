"""Minimisers for small perturbations of a multiple of the identity, in any dimension."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import hyp0f1

from meanfield.equilibria.exact import symmetric_matrix
from meanfield.errors import InputError, MatrixError, PointsError
from meanfield.sphere.geometry import unit_points


@dataclass(frozen=True)
class PerturbationConstants:
    """Constants of the expansion about D = base Id; see `perturbation_constants`.

    Attributes
    ----------
    dimension : int
    base : float
    alpha : float
        Factor of x.Mx in the first-order density, ``-C1/C2``.
    C0, C1, C2, C3 : float
        ``int exp(base x.y) f(x) dmu_0(x)`` for a unit vector y is C0 for f = 1, ``C1 y`` for
        f = x, and ``C2 y_i^2 + C3`` for f = x_i^2. Infinite beyond the range of float64.
    ratios : tuple of 3 floats
        ``I_{k+1}/I_k`` for k = 1, 2, 3, where ``I_k = I_{n/2-1+k}(base)``.
    """

    dimension: int
    base: float
    alpha: float
    C0: float
    C1: float
    C2: float
    C3: float
    ratios: tuple[float, float, float]


def perturbation_constants(n: int, base: float = 1.0) -> PerturbationConstants:
    """Constants of the perturbation theory in closed form, any dimension.

    With ``I_k = I_{n/2-1+k}(base)`` (modified Bessel functions) and
    ``c = Gamma(n/2) 2^{n/2-1} base^{1-n/2}``: ``C_k = c I_k`` for k = 0, 1, 2 and
    ``C3 = C1/base``.

    Parameters
    ----------
    n : int
        Dimension of the surrounding space, n >= 2.
    base : float, > 0

    Returns
    -------
    PerturbationConstants

    Raises
    ------
    InputError
        If n < 2 or base is not positive.

    Notes
    -----
    Burger, Kabri, Korolev, Roith, Weigand (2025), Lemmas 4.12, 4.13 and Theorem 4.14,
    corrected: some integrals printed in their Appendix C have slips (a factor 2 in the second
    form of C1, the sign of 1/(1-n), a lost cosine).

    Examples
    --------
    >>> [round(perturbation_constants(n).alpha, 10) for n in (2, 3, 4, 5)]
    [-4.1633061176, -5.1406468257, -6.1234693141, -7.1100076009]
    """
    if int(n) != n or n < 2:
        raise InputError(f"the dimension must be an integer n >= 2, got {n}")
    if not (np.isfinite(base) and base > 0):
        raise InputError(f"base must be positive, got {base}")
    n, base = int(n), float(base)
    first, *ratios = _bessel_ratios(n / 2 - 1, base, 4)
    with np.errstate(over="ignore"):
        C0 = float(hyp0f1(n / 2, base**2 / 4))
    C1 = C0 * first
    return PerturbationConstants(
        n, base, -1 / ratios[0], C0, C1, C1 * ratios[0], C1 / base, tuple(ratios)
    )


def _bessel_ratios(order: float, x: float, count: int) -> list[float]:
    """``I_{order+k+1}(x) / I_{order+k}(x)`` for k < count, by the continued fraction."""
    ratio, ratios = 0.0, []
    for k in range(count + 60 + int(2 * x), -1, -1):
        ratio = 1 / (2 * (order + k + 1) / x + ratio)
        if k < count:
            ratios.append(ratio)
    return ratios[::-1]


@dataclass(frozen=True, eq=False)
class PerturbedMinimizer:
    """Asymptotic minimiser for D = base Id + eps M, a density; see `perturbed_minimizer`.

    Attributes
    ----------
    M : ndarray, shape (n, n)
    eps : float
    order : int
        1 or 2.
    constants : PerturbationConstants
    """

    M: np.ndarray
    eps: float
    order: int
    constants: PerturbationConstants

    @property
    def D(self) -> np.ndarray:
        """The matrix base Id + eps M, shape (n, n)."""
        return self.constants.base * np.eye(len(self.M)) + self.eps * self.M

    @property
    def mean(self) -> float:
        """``m = tr M / n``, the part of M that only shifts the base."""
        return float(np.trace(self.M)) / len(self.M)

    @property
    def traceless(self) -> np.ndarray:
        """``M0 = M - m Id``, shape (n, n)."""
        return self.M - self.mean * np.eye(len(self.M))

    def __call__(self, x) -> np.ndarray:
        """Density relative to the uniform probability measure: shape (m, n) to (m,).

        It integrates to one; far outside its range, at large eps, it may be negative.
        """
        x = unit_points(x)
        if x.shape[1] != len(self.M):
            raise PointsError(f"points must lie in R^{len(self.M)}, got {x.shape}")
        moved = x @ self.traceless
        q = (x * moved).sum(axis=1)
        density = 1 + self.eps * self.constants.alpha * q
        if self.order == 2:
            density += self.eps**2 * self._second(q, (moved**2).sum(axis=1))
        return density

    def _second(self, q, square) -> np.ndarray:
        """The coefficient of eps^2, from q = x.M0x and |M0x|^2."""
        n, base = len(self.M), self.constants.base
        r1, r2, r3 = self.constants.ratios
        trace = float((self.traceless**2).sum())
        h2 = square - trace / n  # harmonic of degree 2
        h4 = q**2 - 4 * h2 / (n + 4) - 2 * trace / (n * (n + 2))  # harmonic of degree 4
        return (
            (1 / (r1 * r3) - 1 / (2 * r2 * r3)) * h4
            + (4 / (n + 4) * (r2 / r1 - 0.5) + 1.5 / (base * r1)) * h2
            + (1 / (base * r1) + r2 / r1 - 1) * self.mean * q
        )

    @property
    def energy_change(self) -> float:
        """``E(minimiser) - E(uniform)``, both for D, up to O(eps^3); never positive."""
        n, C = len(self.M), self.constants
        trace = float((self.traceless**2).sum())
        return self.eps**2 * C.alpha * C.C1 * 2 * trace / (n * (n + 2))

    @property
    def energy(self) -> float:
        """The minimal energy for D up to O(eps^3)."""
        n, C = len(self.M), self.constants
        square, trace = float((self.M**2).sum()), float(np.trace(self.M))
        second = C.C2 * (2 * square + trace**2) / (n * (n + 2)) + C.C3 * square / n
        uniform = C.C0 + self.eps * C.C1 * self.mean + self.eps**2 / 2 * second
        return uniform + self.energy_change

    def parameters(self) -> dict:
        """What rebuilds the density."""
        return {
            "kind": "perturbed",
            "M": self.M.tolist(),
            "eps": self.eps,
            "order": self.order,
            "base": self.constants.base,
        }

    def __repr__(self) -> str:
        return (
            f"PerturbedMinimizer for D = {self.constants.base:g} Id + {self.eps:g} M in "
            f"R^{len(self.M)}, order {self.order}: E = {self.energy:.12g}"
        )


def perturbed_minimizer(M, eps: float, order: int = 1, base: float = 1.0) -> PerturbedMinimizer:
    """The energy minimiser for D = base Id + eps M, to first or second order in eps.

    With ``I_k = I_{n/2-1+k}(base)``, ``m = tr M / n``, ``M0 = M - m Id`` and ``q = x.M0x`` the
    density relative to the uniform probability measure is ``1 - eps (I_1/I_2) q + O(eps^2)``.

    Parameters
    ----------
    M : array_like, shape (n, n) or (n,)
        Symmetric, n >= 2; a vector means a diagonal matrix.
    eps : float
        Small, of any sign; base Id + eps M must be positive definite.
    order : int
        1, with error O(eps^2), or 2, with error O(eps^3).
    base : float, > 0

    Returns
    -------
    PerturbedMinimizer
        A callable density; ``.energy``, ``.energy_change``.

    Raises
    ------
    MatrixError
        If M is not symmetric, or D is not positive definite.
    InputError
        If order is neither 1 nor 2, eps is not finite, or base is not positive.

    Notes
    -----
    First order: Burger, Kabri, Korolev, Roith, Weigand (2025), Theorem 4.14, there for base 1.
    The second order is not in the paper. The change of energy is their (4.10), corrected: the
    term in eps^2 has a factor 1/2.

    Examples
    --------
    >>> density = perturbed_minimizer([0.0, 1.0], eps=0.01, order=2)
    >>> [round(float(value), 8) for value in density([[1.0, 0.0], [0.0, 1.0]])]
    [1.02083197, 0.97939107]
    """
    M = symmetric_matrix(M, "M")
    if order not in (1, 2):
        raise InputError(f"order must be 1 or 2, got {order}")
    eps = float(eps)
    if not np.isfinite(eps):
        raise InputError(f"eps must be finite, got {eps}")
    constants = perturbation_constants(len(M), base)
    smallest = constants.base + np.linalg.eigvalsh(eps * M)[0]
    if smallest <= 0:
        raise MatrixError(
            f"base Id + eps M must be positive definite, its smallest eigenvalue is "
            f"{smallest:.3g}: take a smaller eps"
        )
    return PerturbedMinimizer(M, eps, order, constants)
