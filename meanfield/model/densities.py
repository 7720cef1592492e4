"""Densities on the sphere, relative to the uniform probability measure (uniform is 1).

A density is a callable from points (m, n) to values (m,). Those made here also give their
logarithm, and the parameters that rebuild them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaln, ive

from meanfield.errors import DensityError, InputError
from meanfield.model.interaction import BoundInteraction, Interaction
from meanfield.sphere.geometry import normalize, unit_points


@dataclass(frozen=True)
class Uniform:
    """The density that is one everywhere."""

    def __call__(self, x) -> np.ndarray:
        """Values at points: shape (m, n) to (m,)."""
        return np.ones(len(x))

    def log(self, x) -> np.ndarray:
        """Logarithm of the density: shape (m, n) to (m,)."""
        return np.zeros(len(x))

    def parameters(self) -> dict:
        """What rebuilds the density."""
        return {"kind": "uniform"}


@dataclass(frozen=True, eq=False)
class VonMisesFisher:
    """``exp(concentration mean.x)``, normalised; see `von_mises_fisher`."""

    mean: np.ndarray
    concentration: float

    def __call__(self, x) -> np.ndarray:
        """Values at points: shape (m, n) to (m,)."""
        return np.exp(self.log(x))

    def log(self, x) -> np.ndarray:
        """Logarithm of the density: shape (m, n) to (m,)."""
        x = np.asarray(x, dtype=float)
        _same_dimension(x, len(self.mean))
        return self.concentration * (x @ self.mean) - log_zonal_mean(
            self.concentration, len(self.mean)
        )

    def parameters(self) -> dict:
        """What rebuilds the density."""
        return {
            "kind": "vmf",
            "mean": self.mean.tolist(),
            "concentration": self.concentration,
        }


@dataclass(frozen=True, eq=False)
class Mixture:
    """A weighted sum of densities; see `mixture`."""

    parts: tuple
    weights: np.ndarray

    def __call__(self, x) -> np.ndarray:
        """Values at points: shape (m, n) to (m,)."""
        return sum(w * part(x) for w, part in zip(self.weights, self.parts, strict=True))

    def parameters(self) -> dict:
        """What rebuilds the density."""
        return {
            "kind": "mixture",
            "weights": self.weights.tolist(),
            "parts": [part.parameters() for part in self.parts],
        }


@dataclass(frozen=True, eq=False)
class PointsDensity:
    """A von Mises-Fisher kernel estimate; see `from_points`."""

    points: np.ndarray
    concentration: float
    source: str | None = field(default=None)

    def __call__(self, x) -> np.ndarray:
        """Values at points: shape (m, n) to (m,)."""
        return np.exp(self.log(x))

    def log(self, x) -> np.ndarray:
        """Logarithm of the density: shape (m, n) to (m,)."""
        n = self.points.shape[1]
        _same_dimension(np.asarray(x), n)
        kernel = Interaction(self.concentration * np.eye(n))
        bound = BoundInteraction(kernel, self.points, at=x)
        masses = np.full(len(self.points), 1 / len(self.points))
        return bound.log_potential(masses) - log_zonal_mean(self.concentration, n)

    def parameters(self) -> dict:
        """What rebuilds the density."""
        return {
            "kind": "points",
            "source": self.source,
            "count": len(self.points),
            "concentration": self.concentration,
        }


def uniform() -> Uniform:
    """The uniform density.

    Examples
    --------
    >>> uniform()(np.eye(3)).tolist()
    [1.0, 1.0, 1.0]
    """
    return Uniform()


def von_mises_fisher(mean, concentration: float) -> VonMisesFisher:
    """The von Mises-Fisher density: a bump around ``mean``.

    Parameters
    ----------
    mean : array_like, shape (n,)
        Direction of the maximum; normalised.
    concentration : float, >= 0
        Inverse squared width; 0 is uniform.

    Returns
    -------
    VonMisesFisher
        Callable, x (m, n) to (m,).

    Raises
    ------
    PointsError
        If the mean is zero or not finite.
    DensityError
        If the concentration is negative or not finite.

    Examples
    --------
    >>> density = von_mises_fisher([0, 0, 1], 2.0)
    >>> round(float(density(np.array([[0.0, 0.0, 1.0]]))[0]), 6)
    4.074629
    """
    mean = normalize(np.atleast_1d(mean))
    if not (np.isfinite(concentration) and concentration >= 0):
        raise DensityError(f"the concentration must be finite and >= 0, got {concentration}")
    return VonMisesFisher(mean, float(concentration))


def mixture(parts, weights=None) -> Mixture:
    """A convex combination of densities.

    Parameters
    ----------
    parts : sequence of callables
    weights : array_like, shape (parts,), optional
        Nonnegative; scaled to sum to one. Equal by default.

    Returns
    -------
    Mixture

    Raises
    ------
    DensityError
        If there are no parts or the weights do not fit.

    Examples
    --------
    >>> pair = mixture([von_mises_fisher([1, 0], 3), von_mises_fisher([-1, 0], 3)])
    >>> pair.weights.tolist()
    [0.5, 0.5]
    """
    parts = tuple(parts)
    weights = np.ones(len(parts)) if weights is None else np.asarray(weights, dtype=float)
    if not parts or weights.shape != (len(parts),):
        raise DensityError(f"a mixture of {len(parts)} parts needs as many weights")
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0):
        raise DensityError("mixture weights must be finite, >= 0 and not all zero")
    return Mixture(parts, weights / weights.sum())


def from_points(points, concentration: float | None = None, source=None) -> PointsDensity:
    """Kernel density estimate: the mean of von Mises-Fisher densities around the points.

    Parameters
    ----------
    points : array_like, shape (m, n)
        Unit vectors.
    concentration : float, optional
        Of the kernels. By default the rule of thumb of `default_concentration`.
    source : str, optional
        Where the points come from, for the record.

    Returns
    -------
    PointsDensity

    Raises
    ------
    PointsError
        If a point is off the sphere.
    DensityError
        If the concentration is not positive and finite.

    Examples
    --------
    >>> density = from_points(np.eye(3), concentration=4.0)
    >>> bool(np.ptp(density(np.eye(3))) < 1e-12)
    True
    """
    points = unit_points(points)
    if concentration is None:
        concentration = default_concentration(points)
    if not (np.isfinite(concentration) and concentration > 0):
        raise DensityError(f"the concentration must be finite and > 0, got {concentration}")
    return PointsDensity(points, float(concentration), source)


def default_concentration(points) -> float:
    """Rule-of-thumb concentration of the kernels for a sample on the sphere.

    The bandwidth h = concentration^(-1/2) that is asymptotically best for a von Mises-Fisher
    sample of the same mean resultant length. Samples that are symmetric about the centre
    look uniform to this rule; at least the concentration that the sample size alone
    would give a bump of concentration one is used. Give your own value where it oversmooths.

    Parameters
    ----------
    points : ndarray, shape (m, n)

    Returns
    -------
    float

    References
    ----------
    E. Garcia-Portugues (2013), Exact risk improvement of bandwidth selectors for kernel
    density estimation with directional data, Proposition 2.

    Examples
    --------
    >>> bool(default_concentration(np.eye(3)) > 1)
    True
    """
    count, n = points.shape
    resultant = float(np.linalg.norm(points.mean(axis=0)))
    kappa = max(1.0, _concentration_of(min(resultant, 0.9999), n))
    q = n - 1
    # All Bessel functions scaled by exp(-2 kappa), which cancels.
    top = 4 * np.sqrt(np.pi) * ive((q - 1) / 2, kappa) ** 2
    bottom = kappa ** ((q + 1) / 2) * (
        2 * q * ive((q + 1) / 2, 2 * kappa) + (q + 2) * kappa * ive((q + 3) / 2, 2 * kappa)
    )
    return float((bottom * count / top) ** (2 / (4 + q)))


def log_zonal_mean(concentration: float, n: int) -> float:
    """``log int exp(concentration e.x) dmu_0`` on S^{n-1}, for any unit vector e.

    Examples
    --------
    >>> bool(abs(log_zonal_mean(1.0, 3) - np.log(np.sinh(1.0))) < 1e-14)
    True
    """
    if concentration == 0:
        return 0.0
    nu = n / 2 - 1
    scaled = np.log(ive(nu, concentration)) + concentration
    return float(scaled + gammaln(n / 2) + nu * np.log(2 / concentration))


def _concentration_of(resultant: float, n: int) -> float:
    """The concentration of a von Mises-Fisher law with this mean resultant length."""

    def excess(kappa):
        return ive(n / 2, kappa) / ive(n / 2 - 1, kappa) - resultant

    return brentq(excess, 1e-8, 1e5) if resultant > 1e-6 else 0.0


def _same_dimension(x: np.ndarray, n: int) -> None:
    if x.ndim != 2 or x.shape[1] != n:
        raise InputError(f"the density lives in R^{n}, it got points of shape {x.shape}")
