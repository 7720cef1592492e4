"""The parts of a finite-volume flux: reconstruction of the density and velocity on edges.

flux = length x velocity x upwind density. Every part is an array operation over cells or
edges; whatever depends on the mesh only is computed once. Functions that a time step calls
write into arrays that are kept.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from meanfield.model.attention import SelfAttention
from meanfield.sphere.connectivity import FILL
from meanfield.sphere.geometry import log_map, tangent_frames
from meanfield.sphere.meshes import Mesh

POSITIVITY = 0.999  # of the cell density: how far a face value may be from it
TINY = 1e-290  # face densities below this are zero: products of subnormal numbers lose signs


class LeastSquares:
    """Linear least-squares gradients from the neighbours across edges.

    Parameters
    ----------
    mesh : Mesh
    places : ndarray, shape (cells, n)
        Where the cell values are taken to sit: centroids for averages, points for values.

    Attributes
    ----------
    frames : ndarray, shape (cells, n - 1, n)
        Orthonormal tangent frames in which the gradients are expressed.
    """

    def __init__(self, mesh: Mesh, places: np.ndarray):
        self.places = places
        self.frames = tangent_frames(places)
        neighbours = neighbour_table(mesh)
        offsets = self.local(log_map(places[:, None], places[neighbours]))
        gram = np.einsum("ika,ikb->iab", offsets, offsets)
        weights = np.einsum("iab,ikb->iak", np.linalg.inv(gram), offsets)
        self._matrix = self._sparse(neighbours, weights)

    def local(self, vectors: np.ndarray) -> np.ndarray:
        """Components of tangent vectors in the frames: (cells, k, n) to (cells, k, n - 1)."""
        return np.einsum("ikn,ian->ika", vectors, self.frames)

    @staticmethod
    def _sparse(neighbours, weights):
        cells, width = neighbours.shape
        tangents = weights.shape[1]
        own = np.arange(cells, dtype=np.int32)[:, None]
        columns = np.concatenate([own, neighbours], axis=1)
        columns = np.broadcast_to(columns[:, None], (cells, tangents, width + 1))
        values = np.concatenate([-weights.sum(axis=2, keepdims=True), weights], axis=2)
        pointers = np.arange(cells * tangents + 1, dtype=np.int32) * (width + 1)
        shape = (cells * tangents, cells)
        return csr_array((values.ravel(), columns.astype(np.int32).ravel(), pointers), shape=shape)

    def gradient(self, values: np.ndarray) -> np.ndarray:
        """Gradients in the local frames: shape (cells,) to (cells, n - 1)."""
        return (self._matrix @ values).reshape(len(self.places), -1)


def neighbour_table(mesh: Mesh) -> np.ndarray:
    """The neighbour across each side of a cell; the cell itself where it has no such side.

    Returns
    -------
    ndarray of int32, shape (cells, k)
    """
    cells, width = mesh.cell_nodes.shape
    table = np.repeat(np.arange(cells, dtype=np.int32), width)
    table[mesh.edge_slots[:, 0]] = mesh.edge_cells[:, 1]
    table[mesh.edge_slots[:, 1]] = mesh.edge_cells[:, 0]
    return table.reshape(cells, width)


class ConstantReconstruction:
    """First order: the density at a face is that of the cell."""

    def __init__(self, mesh: Mesh):
        self.edge_cells = mesh.edge_cells

    def upwind(self, density: np.ndarray, velocity: np.ndarray) -> np.ndarray:
        """Density at the edges from the cell the velocity comes from, shape (e,)."""
        cells = np.where(velocity > 0, self.edge_cells[:, 0], self.edge_cells[:, 1])
        return density[cells]


class LinearReconstruction:
    """Second order: least-squares slopes, limited for positivity only.

    In cell i the deviations of all its face values are scaled by
    ``min(1, 0.999 rho_i / max |deviation|)``, so face values stay nonnegative and below
    ``2 rho_i``. There is no other limiter: one that flattens extrema costs an order there.
    """

    def __init__(self, mesh: Mesh):
        self.edge_cells = mesh.edge_cells
        self.edge_slots = np.ascontiguousarray(mesh.edge_slots.T.astype(np.int32))
        self.slopes = LeastSquares(mesh, mesh.centroids)
        cells, width = mesh.cell_nodes.shape
        used = np.zeros(cells * width, dtype=bool)
        offsets = np.zeros((cells * width, mesh.dimension))
        for side in (0, 1):
            slots, owners = mesh.edge_slots[:, side], mesh.edge_cells[:, side]
            offsets[slots] = log_map(mesh.centroids[owners], mesh.edge_midpoints)
            used[slots] = True
        local = self.slopes.local(offsets.reshape(cells, width, -1))
        self.offsets = np.ascontiguousarray(np.moveaxis(local, 2, 0))
        self._deviation = np.empty((cells, width))
        self._work = np.empty((cells, width))
        self._face = np.empty(len(self.edge_cells))

    def upwind(self, density: np.ndarray, velocity: np.ndarray) -> np.ndarray:
        """Density at the edge midpoints from the cell the velocity comes from, shape (e,).

        The result is an array that is kept, overwritten by the next call.
        """
        deviation, work = self._deviation, self._work
        gradient = self.slopes.gradient(density)
        np.multiply(self.offsets[0], gradient[:, :1], out=deviation)
        for axis in range(1, len(self.offsets)):
            np.multiply(self.offsets[axis], gradient[:, axis : axis + 1], out=work)
            deviation += work
        largest = np.abs(deviation, out=work).max(axis=1)
        limit = POSITIVITY * density
        limited = np.flatnonzero(largest > limit)
        if limited.size:
            deviation[limited] *= (limit[limited] / largest[limited])[:, None]
        deviation += density[:, None]
        slots = np.where(velocity > 0, *self.edge_slots)
        return np.take(deviation.ravel(), slots, out=self._face, mode="clip")


class TwoPointVelocity:
    """Edge velocity of a gradient flow: difference of phi across the edge over the distance.

    phi is log Z, or Z for the unnormalised flow. The difference is the derivative at the
    middle of the arc between the two centres; the vector from there to the midpoint of the edge
    times the change of the gradient along the arc moves it to the edge. This correction is
    clipped so that the velocity keeps the sign of the difference, which makes the energy of
    the scheme monotone.
    """

    def __init__(self, mesh: Mesh, slopes: LeastSquares):
        self.first, self.second = np.ascontiguousarray(mesh.edge_cells.T)
        self.inverse_distance = 1 / mesh.edge_distances
        # mode="clip" lets np.take write into these without a buffered copy.
        self._velocity, self._shift, self._work = np.empty((3, len(self.first)))
        self.correction = None
        if mesh.dimension == 3:
            middle = mesh.points[self.first] + mesh.points[self.second]
            middle /= np.linalg.norm(middle, axis=1, keepdims=True)
            scaled = (mesh.edge_midpoints - middle) * self.inverse_distance[:, None]
            self.correction = tuple(
                np.ascontiguousarray(np.einsum("en,ean->ae", scaled, slopes.frames[cells]))
                for cells in (self.first, self.second)
            )

    def __call__(self, phi: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """Velocity towards the second cell for sign +1, in an array that is kept.

        Parameters
        ----------
        phi : ndarray, shape (cells,)
        gradient : ndarray, shape (cells, n - 1)
            Of phi, in the frames of the slopes.

        Returns
        -------
        ndarray, shape (e,)
        """
        shift, work, velocity = self._shift, self._work, self._velocity
        np.take(phi, self.second, out=velocity, mode="clip")
        velocity -= np.take(phi, self.first, out=work, mode="clip")
        velocity *= self.inverse_distance
        if self.correction is not None:
            shift[:] = 0.0
            for axis, column in enumerate(np.ascontiguousarray(gradient.T)):
                np.take(column, self.second, out=work, mode="clip")
                work *= self.correction[1][axis]
                shift += work
                np.take(column, self.first, out=work, mode="clip")
                work *= self.correction[0][axis]
                shift -= work
            bound = np.abs(velocity, out=work)
            np.minimum(shift, bound, out=shift)
            np.negative(bound, out=bound)
            np.maximum(shift, bound, out=shift)
            velocity += shift
        return velocity


class FieldVelocity:
    """Edge velocity for any V and any mesh: the velocity field at the edge midpoints."""

    def __init__(self, mesh: Mesh, model: SelfAttention):
        self.bound = model.on(mesh, at=mesh.edge_midpoints)
        self.normals = mesh.edge_normals

    def __call__(self, masses: np.ndarray) -> np.ndarray:
        """Velocity towards the second cell, shape (cells,) to (e,)."""
        return np.einsum("en,en->e", self.bound.velocity(masses), self.normals)


def divergence_matrix(mesh: Mesh) -> csr_array:
    """Sums edge values into cells: +1 for the second cell of an edge, -1 for the first.

    Returns
    -------
    csr_array, shape (cells, e)
    """
    cells, width = mesh.cell_nodes.shape
    edges = np.arange(len(mesh.edge_cells), dtype=np.int32)
    column = np.full(cells * width, FILL, dtype=np.int32)
    value = np.zeros(cells * width)
    for side, sign in ((0, -1.0), (1, 1.0)):
        column[mesh.edge_slots[:, side]] = edges
        value[mesh.edge_slots[:, side]] = sign
    used = column != FILL
    pointers = np.concatenate([[0], np.cumsum(used.reshape(cells, width).sum(axis=1))])
    return csr_array((value[used], column[used], pointers.astype(np.int32)),
                     shape=(cells, len(edges)))  # fmt: skip
