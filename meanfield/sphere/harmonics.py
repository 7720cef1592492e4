"""Fourier and spherical harmonic transforms at arbitrary points of S^1 and S^2.

A real function is ``f = sum_k c_k basis_k`` in a real orthonormal basis with respect to the
surface measure (2 pi on S^1, 4 pi on S^2):

- S^1: ``1/sqrt(2 pi)``, ``cos(k t)/sqrt(pi)``, ``sin(k t)/sqrt(pi)``;
- S^2: ``Y_l0``, ``sqrt(2) (-1)^m Re Y_lm``, ``sqrt(2) (-1)^m Im Y_lm`` for m > 0 (no
  Condon-Shortley phase).

The index arrays ``degree``, ``order`` (negative for sines) tell which function a coefficient
belongs to. `synthesize` evaluates a series at the points; `analyze` is its transpose,
``c_k = sum_i values_i basis_k(x_i)``: applied to masses it gives the coefficients of a
measure, exactly what the separable evaluation of integral operators needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import ducc0
import numpy as np
from scipy.special import sph_legendre_p_all

from meanfield.errors import MeshError
from meanfield.sphere.geometry import angles, unit_points

EPSILON = 1e-13  # requested accuracy of the nonuniform transforms, close to what doubles can give


def harmonic_transform(points, degree: int):
    """The transform for points of S^1 or S^2.

    Parameters
    ----------
    points : array_like, shape (m, 2) or (m, 3)
    degree : int, >= 0

    Returns
    -------
    FourierTransform or SphericalTransform

    Raises
    ------
    MeshError
        If the dimension is neither 2 nor 3 or the degree is negative.

    Examples
    --------
    >>> transform = harmonic_transform([[0.0, 0.0, 1.0]], 1)
    >>> transform.synthesize(np.array([0.0, 1.0, 0.0, 0.0])).round(6).tolist()
    [0.488603]
    """
    points = unit_points(points)
    if points.shape[1] not in (2, 3):
        raise MeshError(f"harmonic transforms exist on S^1 and S^2, not in R^{points.shape[1]}")
    if degree < 0:
        raise MeshError(f"degree must be >= 0, got {degree}")
    cls = FourierTransform if points.shape[1] == 2 else SphericalTransform
    return cls(angles(points), int(degree))


@dataclass(frozen=True, eq=False)
class FourierTransform:
    """Fourier series at the angles ``angles``, by nonuniform fast Fourier transforms.

    Examples
    --------
    >>> transform = FourierTransform(np.array([0.0, np.pi]), 1)
    >>> (transform.synthesize(np.array([0.0, 1.0, 0.0])) * np.pi**0.5).round(12).tolist()
    [1.0, -1.0]
    """

    angles: np.ndarray
    max_degree: int

    @cached_property
    def order(self) -> np.ndarray:
        """Frequency of each coefficient: 0, 1, ..., L, then -1, ..., -L for the sines."""
        positive = np.arange(1, self.max_degree + 1)
        return np.concatenate([[0], positive, -positive])

    @property
    def degree(self) -> np.ndarray:
        """Degree of each coefficient, the absolute frequency."""
        return np.abs(self.order)

    @cached_property
    def _plan(self):
        # A plan sorts the points once; it is reused by every transform.
        return ducc0.nufft.plan(
            nu2u=True,
            coord=self.angles[:, None],
            grid_shape=(2 * self.max_degree + 1,),
            epsilon=EPSILON,
            nthreads=1,
        )

    def synthesize(self, coefficients: np.ndarray) -> np.ndarray:
        """Evaluate the series at the points: shape (coefficients,) to (m,)."""
        degree = self.max_degree
        cosines, sines = coefficients[1 : degree + 1], coefficients[degree + 1 :]
        positive = (cosines - 1j * sines) / (2 * np.sqrt(np.pi))
        spectrum = np.concatenate(
            [positive[::-1].conj(), [coefficients[0] / np.sqrt(2 * np.pi)], positive]
        )
        return self._plan.u2nu(grid=spectrum, forward=False).real

    def analyze(self, values: np.ndarray) -> np.ndarray:
        """Transpose of `synthesize`: shape (m,) to (coefficients,)."""
        degree = self.max_degree
        spectrum = self._plan.nu2u(points=values.astype(complex), forward=True)[degree:]
        return np.concatenate(
            [
                [spectrum[0].real / np.sqrt(2 * np.pi)],
                spectrum[1:].real / np.sqrt(np.pi),
                -spectrum[1:].imag / np.sqrt(np.pi),
            ]
        )


@dataclass(frozen=True, eq=False)
class SphericalTransform:
    """Spherical harmonic series at points given by (colatitude, longitude).

    Examples
    --------
    >>> transform = SphericalTransform(np.array([[0.0, 0.0]]), 0)
    >>> float(round(transform.analyze(np.array([1.0]))[0] ** 2 * 4 * np.pi, 12))
    1.0
    """

    angles: np.ndarray
    max_degree: int

    @cached_property
    def _complex_index(self) -> tuple[np.ndarray, np.ndarray]:
        """Degree and order of the complex coefficients, order by order, m >= 0."""
        orders = np.repeat(np.arange(self.max_degree + 1), np.arange(self.max_degree + 1, 0, -1))
        starts = np.cumsum(np.concatenate([[0], np.arange(self.max_degree + 1, 1, -1)]))
        degrees = np.arange(len(orders)) - starts[orders] + orders
        return degrees, orders

    @cached_property
    def order(self) -> np.ndarray:
        """Order of each coefficient: m >= 0 for cosines, then -m for the sines."""
        _, orders = self._complex_index
        return np.concatenate([orders, -orders[orders > 0]])

    @cached_property
    def degree(self) -> np.ndarray:
        """Degree of each coefficient."""
        degrees, orders = self._complex_index
        return np.concatenate([degrees, degrees[orders > 0]])

    @cached_property
    def _phase(self) -> np.ndarray:
        """Removes the Condon-Shortley phase; sqrt(2) makes the real basis orthonormal."""
        _, orders = self._complex_index
        return np.where(orders > 0, np.sqrt(2.0), 1.0) * (-1.0) ** orders

    def synthesize(self, coefficients: np.ndarray) -> np.ndarray:
        """Evaluate the series at the points: shape (coefficients,) to (m,)."""
        count = len(self._phase)
        alm = coefficients[:count].astype(complex)
        alm[self.max_degree + 1 :] -= 1j * coefficients[count:]
        # For m > 0 the library counts a coefficient twice (for m and -m).
        alm /= np.where(self._complex_index[1] > 0, self._phase, 1.0)
        return ducc0.sht.synthesis_general(
            alm=alm[None],
            loc=self.angles,
            spin=0,
            lmax=self.max_degree,
            epsilon=EPSILON,
            nthreads=0,
        )[0]

    def analyze(self, values: np.ndarray) -> np.ndarray:
        """Transpose of `synthesize`: shape (m,) to (coefficients,)."""
        # One thread: the order of a parallel sum would change the last bits from run to run.
        alm = ducc0.sht.adjoint_synthesis_general(
            map=np.ascontiguousarray(values)[None],
            loc=self.angles,
            spin=0,
            lmax=self.max_degree,
            epsilon=EPSILON,
            nthreads=1,
        )[0]
        alm = alm * self._phase
        return np.concatenate([alm.real, -alm.imag[self.max_degree + 1 :]])


def harmonic_values(points, degree: int) -> np.ndarray:
    """The basis functions themselves at few points, from their definition.

    Parameters
    ----------
    points : array_like, shape (m, 2) or (m, 3)
    degree : int

    Returns
    -------
    ndarray, shape (coefficients, m)
        In the order of `harmonic_transform`; memory is ``8 m (degree + 1)^2`` bytes on S^2.

    Examples
    --------
    >>> float(round(harmonic_values([[1.0, 0.0]], 1)[1, 0] ** 2 * np.pi, 12))
    1.0
    """
    transform = harmonic_transform(points, degree)
    order, index = transform.order, transform.degree
    if isinstance(transform, FourierTransform):
        scale = np.where(order == 0, 1 / np.sqrt(2 * np.pi), 1 / np.sqrt(np.pi))
        longitude, radial = transform.angles, np.broadcast_to(scale[:, None], (len(order), 1))
    else:
        colatitude, longitude = transform.angles.T
        legendre = sph_legendre_p_all(degree, degree, colatitude)[0]
        sign = np.where(order == 0, 1.0, np.sqrt(2.0) * (-1.0) ** order)
        radial = sign[:, None] * legendre[index, np.abs(order)]
    turns = np.arange(degree + 1)[:, None] * longitude
    waves = np.where(
        (order >= 0)[:, None], np.cos(turns)[np.abs(order)], np.sin(turns)[np.abs(order)]
    )
    return radial * waves
