"""Measures: points, masses and the space they live on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanfield.errors import DensityError, PointsError

MASS_TOLERANCE = 1e-9  # how far the total of given masses may be from one
ROUND_OFF = 1e-15  # masses above -ROUND_OFF are round-off and are set to zero


@dataclass(frozen=True, eq=False)
class Measure:
    """A probability measure ``sum_i masses[i] delta_{points[i]}``.

    Parameters
    ----------
    points : array_like, shape (m, n)
        Points in R^n (on the unit sphere for everything but the regularity functions).
    masses : array_like, shape (m,), optional
        Nonnegative, summing to one; equal masses when omitted.
    space : Space, optional
        The discretisation that the points belong to, if any.

    Raises
    ------
    PointsError
        If the points are not a finite two-dimensional array.
    DensityError
        If the masses are negative, not finite, or do not sum to one.

    Examples
    --------
    >>> Measure([[1.0, 0.0], [-1.0, 0.0]]).masses.tolist()
    [0.5, 0.5]
    """

    points: np.ndarray
    masses: np.ndarray | None = None
    space: object | None = None

    def __post_init__(self):
        points = np.asarray(self.points, dtype=float)
        if points.ndim != 2 or points.size == 0:
            raise PointsError(f"points must have shape (m, n) with m, n >= 1, got {points.shape}")
        if not np.isfinite(points).all():
            raise PointsError("points contain NaN or infinity")
        count = len(points)
        masses = np.full(count, 1.0 / count) if self.masses is None else self.masses
        object.__setattr__(self, "points", points)
        object.__setattr__(self, "masses", probability_vector(masses, count))

    @property
    def dimension(self) -> int:
        """The dimension n of the surrounding space."""
        return self.points.shape[1]

    def __len__(self) -> int:
        return len(self.points)

    def __repr__(self) -> str:
        return f"Measure({len(self)} points in R^{self.dimension})"


def probability_vector(masses, count: int) -> np.ndarray:
    """Check masses and return them as a float64 array that sums to one.

    Values in ``(-1e-15, 0)`` are round-off and become zero; anything more negative is refused.

    Parameters
    ----------
    masses : array_like, shape (count,)
    count : int
        The number of masses there must be.

    Returns
    -------
    ndarray, shape (count,)

    Raises
    ------
    DensityError
        If the shape is wrong, a mass is negative or not finite, or the total is not one.

    Examples
    --------
    >>> probability_vector([0.25, 0.75], 2).tolist()
    [0.25, 0.75]
    """
    masses = np.array(masses, dtype=float)
    if masses.shape != (count,):
        raise DensityError(f"masses must have shape ({count},), got {masses.shape}")
    if not np.isfinite(masses).all():
        raise DensityError("masses contain NaN or infinity")
    smallest = masses.min()
    if smallest < -ROUND_OFF:
        raise DensityError(f"masses must be >= 0, the smallest is {smallest:.3g}")
    masses[masses < 0] = 0.0
    total = masses.sum()
    if abs(total - 1) > MASS_TOLERANCE:
        raise DensityError(
            f"masses must sum to one, they sum to {total:.6g} (did you pass a density? "
            "a density is given as a callable)"
        )
    return masses / total
