"""Stationary states of two and four points (Lemmas 4.6 to 4.8)."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, log_expit

from meanfield.equilibria.exact import symmetric_matrix
from meanfield.errors import InputError, PointsError
from meanfield.measures import Measure
from meanfield.sphere.geometry import unit_points


def log_cosh(value):
    """``ln cosh(value)`` without overflow, elementwise.

    Examples
    --------
    >>> round(float(log_cosh(1.0)), 6)
    0.433781
    """
    size = np.abs(value)
    return size + np.log1p(np.exp(-2 * size)) - np.log(2)


def two_point_state(z, t: float = 0.5) -> Measure:
    """The measure ``t delta_z + (1 - t) delta_-z``.

    Parameters
    ----------
    z : array_like, shape (n,)
        Unit vector.
    t : float
        In [0, 1].

    Raises
    ------
    InputError
        If t is out of range.
    PointsError
        If z is not a unit vector.

    Examples
    --------
    >>> two_point_state([0.0, 1.0], 0.25).masses.tolist()
    [0.25, 0.75]
    """
    if not 0 <= t <= 1:
        raise InputError(f"t must be in [0, 1], got {t}")
    z = unit_points(np.atleast_2d(z))
    if len(z) != 1:
        raise PointsError(f"z must be one unit vector, got {len(z)}")
    return Measure(np.concatenate([z, -z]), [t, 1 - t])


def two_point_is_stationary(D, z, t: float = 0.5, tolerance: float = 1e-10) -> bool:
    """Whether ``t delta_z + (1 - t) delta_-z`` is a stationary point of the energy.

    It is if z is an eigenvector of D, and for t = 1/2 also if z.Dz = 0.

    Parameters
    ----------
    D : array_like, shape (n, n) or (n,)
        Symmetric.
    z : array_like, shape (n,)
        Unit vector.
    t : float
        In [0, 1].
    tolerance : float
        For ``|P_z Dz|`` and ``|z.Dz|`` relative to the largest entry of D, and for t.

    Raises
    ------
    MatrixError
        If D is not symmetric.
    InputError, PointsError
        As `two_point_state`; or if the dimensions differ.

    Notes
    -----
    Burger, Kabri, Korolev, Roith, Weigand (2025), Lemma 4.6, corrected: the case z.Dz = 0 is
    missing there, e.g. D = diag(1, -1), z = (1, 1)/sqrt 2.

    Examples
    --------
    >>> two_point_is_stationary([1.0, -1.0], np.array([1.0, 1.0]) / 2**0.5)
    True
    >>> two_point_is_stationary([1.0, -1.0], np.array([1.0, 1.0]) / 2**0.5, t=0.4)
    False
    """
    D = symmetric_matrix(D)
    z = two_point_state(z, t).points[0]
    if len(z) != len(D):
        raise PointsError(f"z lies in R^{len(z)}, D acts on R^{len(D)}")
    scale = np.abs(D).max()
    level = z @ D @ z
    eigenvector = np.linalg.norm(D @ z - level * z) <= tolerance * scale
    balanced = abs(t - 0.5) <= tolerance and abs(level) <= tolerance * scale
    return bool(eigenvector or balanced)


def orthogonal_pairs(z, weights=None) -> Measure:
    """The measure ``sum_i weights_i (delta_{z_i} + delta_{-z_i})/2``.

    It is stationary for D if the z_i are orthogonal eigenvectors of D: Burger, Kabri, Korolev,
    Roith, Weigand (2025), Lemma 4.7.

    Parameters
    ----------
    z : array_like, shape (k, n)
        Orthonormal rows.
    weights : array_like, shape (k,), optional
        Nonnegative, summing to one; equal when omitted.

    Raises
    ------
    PointsError
        If the rows are not orthonormal.
    DensityError
        If the weights are not a probability vector.

    Examples
    --------
    >>> orthogonal_pairs(np.eye(2), [0.5, 0.5]).masses.tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    z = unit_points(z)
    if np.abs(z @ z.T - np.eye(len(z))).max() > 1e-8:
        raise PointsError("the rows of z must be orthonormal")
    masses = Measure(z, weights).masses
    return Measure(np.concatenate([z, -z]), np.tile(masses, 2) / 2)


def four_point_state(phi: float) -> Measure:
    """Equal masses at the four points (+-cos phi, +-sin phi) of S^1, (4.6) of the paper.

    Two of them coincide where phi is a multiple of pi/2.

    Examples
    --------
    >>> len(four_point_state(0.3))
    4
    """
    phi = float(phi)
    return Measure(
        [[a * np.cos(phi), b * np.sin(phi)] for a, b in ((1, 1), (-1, 1), (-1, -1), (1, -1))]
    )


def four_point_energy(l1: float, l2: float, phi):
    """Energy ``cosh(l1 cos^2 phi) cosh(l2 sin^2 phi)`` of the four points for D = diag(l1, l2).

    Infinite beyond the range of float64.

    Examples
    --------
    >>> round(float(four_point_energy(1.0, 8.0, four_point_angle(1.0, 8.0))), 10)
    1.536139435
    """
    phi = np.asarray(phi, dtype=float)
    with np.errstate(over="ignore"):
        return np.exp(log_cosh(l1 * np.cos(phi) ** 2) + log_cosh(l2 * np.sin(phi) ** 2))


def four_point_angle(l1: float, l2: float) -> float:
    """The angle in (0, pi/2) at which the four points are stationary for D = diag(l1, l2).

    It is the only root of ``l1 tanh(l1 cos^2 phi) = l2 tanh(l2 sin^2 phi)``, and the minimum of
    the energy over the family. The equation depends on the moduli only: signs do not matter,
    although with a negative eigenvalue the state minimises the energy in the family alone.

    Parameters
    ----------
    l1, l2 : float
        Finite and not zero: otherwise no angle, or every one, solves the equation.

    Returns
    -------
    float
        Relative accuracy about 1e-14, near either end as well.

    Raises
    ------
    InputError
        If an eigenvalue is zero or not finite.

    Notes
    -----
    Burger, Kabri, Korolev, Roith, Weigand (2025), Lemma 4.8, (4.7); there for positive
    eigenvalues.

    Examples
    --------
    >>> round(four_point_angle(3.0, 3.0) * 4 / np.pi, 12)
    1.0
    >>> four_point_angle(1.0, -2.0) == four_point_angle(1.0, 2.0)
    True
    """
    first, second = abs(float(l1)), abs(float(l2))
    if not (0 < first < np.inf and 0 < second < np.inf):
        raise InputError(
            f"both eigenvalues must be finite and not zero, got {l1} and {l2}: with a zero one "
            "only multiples of pi/2 (with two, all angles) are stationary"
        )
    log_first, log_second = np.log(first), np.log(second)

    def excess(t):  # logarithm of the ratio of the two sides at tan^2 phi = e^t; it falls
        left = 2 * log_first + log_expit(-t) + _log_tanh_ratio(first * expit(-t))
        return left - (2 * log_second + log_expit(t) + _log_tanh_ratio(second * expit(t)))

    end = 2 * abs(log_first - log_second) + abs(log_first) + abs(log_second) + 2
    t = brentq(excess, -end, end, xtol=1e-15, rtol=1e-15)
    return float(np.arctan(np.exp(t / 2)))


def _log_tanh_ratio(y: float) -> float:
    """``ln(tanh(y)/y)`` for y >= 0."""
    return float(np.log(np.tanh(y) / y)) if y > 1e-8 else 0.0
