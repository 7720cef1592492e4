"""The action of a transfer of mass on a mesh, with its first and second derivatives.

The mesh is a network of resistors: an edge of length l between centres at distance d has the
resistance ``r = (d/l) Z / rho``, with Z and the density rho the means of the two cells. The
least action of a transfer u (what each cell gains) is the power that the network takes,

    P(masses, u) = min { sum_e r_e f_e^2 : the fluxes f move u } = u . L^+ u,

with L the graph Laplacian of weights 1/r. Where Z is constant, P is jointly convex in
(masses, u), since ``f^2 / rho`` is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack
from scipy.sparse import csr_array

from meanfield.errors import NonFiniteError
from meanfield.sphere.meshes import Mesh


@dataclass(frozen=True, eq=False)
class Transfer:
    """The least action that moves ``change`` through ``masses``.

    Attributes
    ----------
    density, resistance : ndarray, shape (e,)
        Of the edges.
    ground : int
        The cell with the largest mass; the potential is zero there.
    factor : ndarray, shape (m, m)
        Lower Cholesky factor of L with the row and column of the ground cell cut out.
    potential : ndarray, shape (m,)
        phi with ``L phi = change``.
    flux : ndarray, shape (e,)
        Mass that crosses each edge from its first to its second cell.
    cost : float
        ``P = sum_e r_e f_e^2``.
    """

    density: np.ndarray
    resistance: np.ndarray
    ground: int
    factor: np.ndarray
    potential: np.ndarray
    flux: np.ndarray
    cost: float


class MeshAction:
    """Least actions of transfers on a mesh, for one kernel.

    Parameters
    ----------
    mesh : Mesh
        Orthogonal: the flux through an edge is driven by the difference of two cell values.
    kernel : ndarray, shape (m, m), optional
        ``K(x_i, x_j) > 0``; the constant 1 when omitted.

    Examples
    --------
    >>> from meanfield.sphere.meshes import circle
    >>> mesh = circle(4)
    >>> found = MeshAction(mesh).transfer(mesh.weights, np.array([-0.1, 0.0, 0.1, 0.0]))
    >>> found.flux.round(3).tolist()  # half of it on either way
    [0.05, 0.05, -0.05, -0.05]
    """

    def __init__(self, mesh: Mesh, kernel: np.ndarray | None = None):
        count, edges = mesh.n_cells, len(mesh.edge_cells)
        self.kernel = kernel
        self.count = count
        self.first, self.second = mesh.edge_cells.T
        cells = mesh.edge_cells.T.ravel()
        numbers = np.tile(np.arange(edges), 2)
        signs = np.repeat([-1.0, 1.0], edges)
        self.incidence = csr_array((signs, (cells, numbers)), (count, edges))
        self.mean = csr_array((np.full(2 * edges, 0.5), (numbers, cells)), (edges, count))
        self.density_mean = (self.mean / mesh.areas).tocsr()
        self.shape = mesh.edge_distances / mesh.edge_lengths

    def transfer(self, masses: np.ndarray, change: np.ndarray) -> Transfer:
        """Solve for the fluxes of least action.

        Parameters
        ----------
        masses : ndarray, shape (m,)
            Nonnegative, and positive on at least one of any two neighbours.
        change : ndarray, shape (m,)
            Sums to zero.

        Raises
        ------
        NonFiniteError
            If masses are so small that the network falls apart in double precision.
        """
        density = self.density_mean @ masses
        resistance = self.shape / density
        if self.kernel is not None:
            resistance = resistance * (self.mean @ (self.kernel @ masses))
        ground = int(masses.argmax())
        laplacian = np.zeros((self.count, self.count))
        laplacian[self.first, self.second] = laplacian[self.second, self.first] = -1 / resistance
        np.fill_diagonal(laplacian, -laplacian.sum(axis=1))
        cut_out(laplacian, ground)
        factor = cholesky(laplacian)
        if factor is None:
            raise NonFiniteError(
                "no flux can be computed through the empty cells: spread the masses, or use "
                "fewer time steps"
            )
        rest = change.copy()
        rest[ground] = 0.0
        potential = lapack.dpotrs(factor, rest, lower=1)[0]
        flux = (self.incidence.T @ potential) / resistance
        cost = float(resistance @ flux**2)
        return Transfer(density, resistance, ground, factor, potential, flux, cost)

    def gradient(self, found: Transfer) -> tuple[np.ndarray, np.ndarray]:
        """Derivatives of P with respect to masses and change, shapes (m,) and (m,).

        ``dP/dr_e = f_e^2`` and ``dP/du = 2 phi``; for the masses the chain rule through
        ``r = (d/l) (mean K masses) / (mean masses / areas)``.
        """
        power = found.resistance * found.flux**2 / found.density
        by_masses = -(self.density_mean.T @ power)
        if self.kernel is not None:
            weight = self.shape * found.flux**2 / found.density
            by_masses += self.kernel.T @ (self.mean.T @ weight)
        return by_masses, 2 * found.potential

    def hessian(self, found: Transfer, nonlocal_part: float = 1.0):
        """Second derivatives of P.

        To second order, with ``z = du + div (f/r) dr``,

            P(m + dm, u + du) = P + f^2 . dr + 2 phi . du + z . L^+ z - (f^2/r) . dr^2,

        where dr includes its second order.

        Parameters
        ----------
        found : Transfer
        nonlocal_part : float
            In [0, 1]: factor of the derivative of Z. With 0, Z is frozen and the result is
            positive semidefinite.

        Returns
        -------
        by_masses, mixed, by_change : ndarray, shape (m, m)
            The rows of ``mixed`` belong to the change. ``by_change`` is one generalised inverse,
            to be used on vectors that sum to zero.
        """
        inverse = lapack.dpotri(found.factor, lower=1)[0]
        inverse = np.tril(inverse) + np.tril(inverse, -1).T
        inverse[found.ground] = inverse[:, found.ground] = 0.0
        flux, resistance, density = found.flux, found.resistance, found.density
        drift = self.incidence * (flux / resistance)
        near = _scaled(self.density_mean, -resistance / density)  # dr/dm with Z frozen
        # Without a derivative of Z the last two terms cancel: f^2/rho is linear along rays.
        by_masses = np.zeros((self.count, self.count))
        jump = drift @ near
        if self.kernel is not None and nonlocal_part > 0:
            kernel = nonlocal_part * self.kernel
            far = _scaled(self.mean, self.shape / density)  # dr = near dm + far K dm
            jump = jump + (drift @ far) @ kernel
            crossed = (self.density_mean.T @ _scaled(far, flux**2 / density)) @ kernel
            squared = (far.T @ _scaled(far, flux**2 / resistance)) @ kernel
            by_masses += (crossed + crossed.T) / 2 - kernel.T @ squared
        mixed = inverse @ jump
        by_masses += jump.T @ mixed
        return 2 * by_masses, 2 * mixed, 2 * inverse


def _scaled(matrix: csr_array, factors: np.ndarray) -> csr_array:
    """Multiply the rows of a sparse matrix."""
    return (matrix * factors[:, None]).tocsr()


def cut_out(matrix: np.ndarray, cell: int) -> None:
    """Make the row and the column of a cell those of the unit matrix, in place."""
    matrix[cell] = 0.0
    matrix[:, cell] = 0.0
    matrix[cell, cell] = 1.0


def cholesky(matrix: np.ndarray) -> np.ndarray | None:
    """Lower Cholesky factor, None if the matrix is not positive definite."""
    factor, info = lapack.dpotrf(matrix, lower=1, clean=1)
    return factor if info == 0 else None
