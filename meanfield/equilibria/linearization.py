"""The attention velocity of a measure, linearised in displacements of its points."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from meanfield.model.interaction import Interaction
from meanfield.sphere.geometry import tangential


class Linearization:
    """First-order change of ``F(x) = P_x int K(x, y) V y dmu(y)`` when all points move.

    If the points ``y`` of mu move by ``xi(y)``, tangential, and x by ``xi(x)``, the tangential
    part of F changes by ``local(x) xi(x) + mixed(xi)(x)``. With V = D this is half the geodesic
    Hessian of the energy; over Z and at a stationary point it is the linearised flow.

    Parameters
    ----------
    points : ndarray, shape (m, n)
        Unit vectors.
    masses : ndarray, shape (m,)
    D, V : ndarray, shape (n, n)
        Kernel ``K(x, y) = exp(x.Dy)`` and value matrix.
    method : str
        How sums are evaluated: see `meanfield.Interaction.on`.

    Attributes
    ----------
    shift : ndarray, shape (m,)
        Logarithmic scale: true values are ``exp(shift)`` times all others.
    potential : ndarray, shape (m,)
        ``Z``, scaled.
    force : ndarray, shape (m, n)
        ``int K(x, y) V y dmu(y)`` without the projection, scaled.
    local : ndarray, shape (m, n, n)
        Scaled; maps tangent vectors to tangent vectors. It is also what a test particle without
        mass feels.

    Examples
    --------
    >>> pair = np.array([[1.0, 0.0], [-1.0, 0.0]])
    >>> D = np.diag([2.0, 1.0])
    >>> line = Linearization(pair, np.array([0.5, 0.5]), D, D)
    >>> rate = line.local[0, 1, 1] / line.potential[0]  # of a test particle at e1
    >>> bool(np.isclose(rate, -2 * np.tanh(2)))
    True
    """

    def __init__(self, points, masses, D, V, method: str = "auto"):
        self.points, self.masses, self.D, self.V = points, masses, D, V
        self.bound = Interaction(D).on(points, method=method)
        count, n = points.shape
        values, images = points @ V.T, points @ D.T
        products = (values[:, :, None] * images[:, None, :]).reshape(count, n * n)
        self.shift, sums = self.bound.sums(masses, np.concatenate([values, products], axis=1))
        self.potential = sums[:, 0]
        self.force = sums[:, 1 : n + 1]
        radial = np.sum(points * self.force, axis=1)
        self.local = self._projected(
            sums[:, n + 1 :].reshape(count, n, n) - radial[:, None, None] * np.eye(n)
        )

    @property
    def log_potential(self) -> np.ndarray:
        """``log Z`` at the points, shape (m,)."""
        return self.shift + np.log(self.potential)

    @property
    def averages(self) -> np.ndarray:
        """``P_x int K V y dmu / Z``: the velocity of the normalised flow, shape (m, n)."""
        return tangential(self.points, self.force / self.potential[:, None])

    @cached_property
    def _turned(self) -> np.ndarray:
        return self.points @ self.D  # rows D^T x: the derivative of x.Dy in y

    def _projected(self, matrices: np.ndarray) -> np.ndarray:
        """``P_x M P_x`` of matrices at the points."""
        x = self.points
        left = matrices - x[:, :, None] * np.einsum("ma,mab->mb", x, matrices)[:, None, :]
        return left - np.einsum("mab,mb->ma", left, x)[:, :, None] * x[:, None, :]

    def _source_sums(self, fields: np.ndarray) -> np.ndarray:
        """``sum_j a_j K_ij f_j`` in the scale of `shift`."""
        shift, sums = self.bound.sums(self.masses, fields)
        return sums[:, 1:] * np.exp(shift - self.shift)[:, None]

    def mixed(self, xi: np.ndarray) -> np.ndarray:
        """``P_x sum_j a_j K (x.D xi_j) V y_j + V xi_j``, scaled: shape (m, n) to (m, n)."""
        count, n = xi.shape
        images = xi @ self.D.T
        products = (self.points[:, :, None] * images[:, None, :]).reshape(count, n * n)
        sums = self._source_sums(np.concatenate([xi, products], axis=1))
        turned = np.einsum("mab,mb->ma", sums[:, n:].reshape(count, n, n), self.points)
        return tangential(self.points, (sums[:, :n] + turned) @ self.V.T)

    def apply_local(self, xi: np.ndarray) -> np.ndarray:
        """The local term alone, scaled: shape (m, n) to (m, n)."""
        return np.einsum("mab,mb->ma", self.local, xi)

    def potential_change(self, xi: np.ndarray) -> np.ndarray:
        """``int K(x, y) x.D xi(y) dmu(y)`` at fixed x, scaled: shape (m, n) to (m,)."""
        return np.sum(self._turned * self._source_sums(xi), axis=1)


def frames(points: np.ndarray) -> np.ndarray:
    """Orthonormal bases of the tangent spaces in any dimension, as Householder reflections.

    Parameters
    ----------
    points : ndarray, shape (m, n)

    Returns
    -------
    ndarray, shape (m, n - 1, n)

    Examples
    --------
    >>> basis = frames(np.array([[0.0, 0.6, 0.0, 0.8]]))[0]
    >>> bool(np.allclose(basis @ basis.T, np.eye(3)))
    True
    """
    n = points.shape[1]
    # The reflection that maps the last axis to plus or minus x: the sign avoids cancellation.
    mirror = points.copy()
    mirror[:, -1] += np.copysign(1.0, points[:, -1])
    mirror /= np.linalg.norm(mirror, axis=1, keepdims=True)
    return np.eye(n)[: n - 1] - 2 * mirror[:, : n - 1, None] * mirror[:, None, :]
