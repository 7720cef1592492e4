"""Metric velocities on a mesh: the fluxes of least action for a change of masses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from meanfield.errors import DensityError, MeshError, SizeError
from meanfield.measures import probability_vector
from meanfield.sphere.geometry import tangential
from meanfield.sphere.meshes import Mesh
from meanfield.transport.kernels import Kernel, as_kernel
from meanfield.transport.mesh_action import MeshAction

MAX_BYTES = 4 * 2**30
WORK_MATRICES = 14  # of size m x m that one Newton step holds beside two for every time


@dataclass(frozen=True, eq=False)
class TangentVelocity:
    """The velocity of least action for a change of masses.

    Attributes
    ----------
    fluxes : ndarray, shape (e,)
    velocities : ndarray, shape (m, n)
    speed : float
        ``(int Z |v|^2 dmu)^(1/2)``.
    """

    fluxes: np.ndarray
    velocities: np.ndarray
    speed: float


def tangent_velocity(mesh: Mesh, masses, change, kernel) -> TangentVelocity:
    """The velocity of least action by which masses change at a given rate.

    Its speed is the metric derivative in W_m of any curve of masses that passes here with this
    rate of change (Lemma 2.4 of the paper), up to the error of the mesh.

    Parameters
    ----------
    mesh : Mesh
        Orthogonal.
    masses : array_like, shape (m,)
        Nonnegative, with sum one, and not zero on two neighbouring cells.
    change : array_like, shape (m,)
        Mass that each cell gains per unit of time; sums to zero.
    kernel : Interaction, or float > 0

    Returns
    -------
    TangentVelocity

    Raises
    ------
    DensityError
        If neighbouring cells are both empty, or the change has another shape or total.
    MeshError, InputError, SizeError
        As in `mesh_path`.

    Examples
    --------
    >>> from meanfield.sphere.meshes import circle, theta
    >>> mesh = circle(64)
    >>> change = np.sin(theta(mesh)) / 64  # d/dt rho = -div(rho v), rho = 1/2pi, v = cos(theta)
    >>> round(tangent_velocity(mesh, mesh.weights, change, 1.0).speed, 3)  # sqrt(mean v^2)
    0.707
    """
    kernel = as_kernel(kernel, mesh.dimension)
    masses = probability_vector(masses, mesh.n_cells)
    action = bound_action(mesh, kernel)
    change = np.asarray(change, dtype=float)
    size = np.abs(change).sum() if change.shape == masses.shape else np.nan
    if not (np.isfinite(size) and abs(change.sum()) <= 1e-9 * size):
        raise DensityError(f"the change must be {mesh.n_cells} finite numbers whose sum is zero")
    if not (masses[mesh.edge_cells].sum(axis=1) > 0).all():
        raise DensityError(
            "two neighbouring cells are empty: nothing can flow there; add a little mass"
        )
    found = action.transfer(masses, change)
    velocities = cell_velocities(mesh, found.flux / found.density / mesh.edge_lengths)
    return TangentVelocity(found.flux, velocities, float(np.sqrt(kernel.factor * found.cost)))


def cell_velocities(mesh: Mesh, normal_speeds: np.ndarray) -> np.ndarray:
    """Tangent vectors at the centres from normal velocities at the edges, by least squares.

    Parameters
    ----------
    mesh : Mesh
    normal_speeds : ndarray, shape (..., e)
        Along ``mesh.edge_normals``.

    Returns
    -------
    ndarray, shape (..., m, n)
        Exact for fields that are constant around a cell.
    """
    cells = mesh.edge_cells.T.ravel()
    normals = tangential(mesh.points[cells], np.tile(mesh.edge_normals, (2, 1)))
    gram = np.zeros((mesh.n_cells, mesh.dimension, mesh.dimension))
    np.add.at(gram, cells, normals[:, :, None] * normals[:, None, :])
    # Of rank n - 1: the normal of the sphere is not seen.
    fit = np.einsum("ijk,ik->ij", np.linalg.pinv(gram, rcond=1e-6)[cells], normals)
    gather = csr_array(
        (np.ones(len(cells)), (cells, np.arange(len(cells)))), (mesh.n_cells, len(cells))
    )
    both = np.concatenate([normal_speeds, normal_speeds], axis=-1)
    parts = [np.moveaxis(gather @ (both * column).T, -1, 0) for column in fit.T]
    return np.stack(parts, axis=-1)


def bound_action(mesh: Mesh, kernel: Kernel, steps: int = 1) -> MeshAction:
    """The action of transfers on a mesh, without the constant factor of the kernel.

    Parameters
    ----------
    mesh : Mesh
    kernel : Kernel
    steps : int
        Intervals of time for which memory must suffice.

    Raises
    ------
    MeshError
        If the mesh is not orthogonal.
    SizeError
        If more than 4 GiB would be needed.

    Examples
    --------
    >>> from meanfield.sphere.meshes import circle
    >>> bound_action(circle(8), as_kernel(2.0, 2)).kernel is None
    True
    """
    _check_size(mesh.n_cells, steps)
    if not mesh.orthogonal:
        raise MeshError(
            f"{mesh.name} is not orthogonal: its edges do not meet the arcs between the centres "
            "at right angles; use circle, icosphere or another Voronoi mesh"
        )
    if kernel.constant:
        return MeshAction(mesh)
    return MeshAction(mesh, kernel.interaction.kernel(mesh.points, mesh.points))


def _check_size(cells: int, steps: int) -> None:
    size = 8 * cells**2 * (2 * steps + WORK_MATRICES)
    if size > MAX_BYTES:
        raise SizeError(
            f"{cells:,} cells and {steps} steps need {size / 2**30:.3g} GiB, at most "
            f"{MAX_BYTES / 2**30:g} are taken: use a coarser mesh or fewer steps"
        )
