"""Cell averages of functions: basix rules on triangles, mapped radially to the sphere."""

from __future__ import annotations

import basix
import numpy as np
from numpy.polynomial.legendre import leggauss

from meanfield.sphere.connectivity import FILL, next_corners
from meanfield.sphere.geometry import exp_map, log_map
from meanfield.sphere.meshes import Mesh

CHUNK = 200_000  # points at which a function is evaluated at a time


def triangle_rule(degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Quadrature on the reference triangle, exact for polynomials of this degree.

    Parameters
    ----------
    degree : int, >= 0

    Returns
    -------
    points : ndarray, shape (q, 2)
    weights : ndarray, shape (q,), summing to 1/2

    Examples
    --------
    >>> points, weights = triangle_rule(2)
    >>> round(float(weights @ points[:, 0] ** 2), 15) == round(1 / 12, 15)
    True
    """
    return basix.make_quadrature(basix.CellType.triangle, int(degree))


def cell_averages(mesh: Mesh, function, degree: int = 2) -> np.ndarray:
    """Averages of a function over the cells of a mesh.

    On S^2 every cell is split into triangles at its centroid; a rule on the flat triangle is
    mapped radially to the sphere, with the Jacobian of that map as a factor, and the result
    is divided by the rule's own area of the cell. So constants are averaged exactly.

    Parameters
    ----------
    mesh : Mesh
    function : callable
        From points (m, n) to values (m,).
    degree : int
        Degree of exactness of the rule on each triangle or arc.

    Returns
    -------
    ndarray, shape (cells,)

    Examples
    --------
    >>> from meanfield.sphere.meshes import circle
    >>> averages = cell_averages(circle(4), lambda x: x[:, 0] ** 2, degree=8)
    >>> bool(abs(averages[0] - (0.5 + 1 / np.pi)) < 1e-6)
    True
    """
    if mesh.dimension == 2:
        return _arc_averages(mesh, function, degree)
    following = next_corners(mesh.cell_nodes)
    points, weights = triangle_rule(degree)
    shape = np.column_stack([1 - points.sum(axis=1), points])
    averages = np.empty(mesh.n_cells)
    rows = max(1, CHUNK // (mesh.cell_nodes.shape[1] * len(weights)))
    for start in range(0, mesh.n_cells, rows):
        block = slice(start, start + rows)
        here, there = mesh.cell_nodes[block], following[block]
        centre = np.broadcast_to(mesh.centroids[block][:, None], (*here.shape, 3))
        corners = np.stack([centre, mesh.nodes[here], mesh.nodes[there]], axis=2)
        x, factor = _radial(np.where((here != FILL)[..., None, None], corners, centre[:, :, None]),
                            shape)  # fmt: skip
        measure = factor * weights
        values = np.asarray(function(x.reshape(-1, 3)), dtype=float).reshape(measure.shape)
        averages[block] = (values * measure).sum(axis=(1, 2)) / measure.sum(axis=(1, 2))
    return averages


def _radial(corners: np.ndarray, shape: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rule points on flat triangles, projected; and the Jacobian of the projection.

    corners (..., 3, 3), shape functions (q, 3) -> points (..., q, 3), factors (..., q)
    """
    flat = shape @ corners
    radius = np.linalg.norm(flat, axis=-1)
    a, b, c = np.moveaxis(corners, -2, 0)
    triple = np.sum(a * np.cross(b - a, c - a), axis=-1)
    return flat / radius[..., None], triple[..., None] / radius**3


def _arc_averages(mesh: Mesh, function, degree: int) -> np.ndarray:
    """Gauss-Legendre on every arc of S^1."""
    nodes, weights = leggauss(degree // 2 + 1)
    start, end = mesh.nodes[mesh.cell_nodes[:, 0]], mesh.nodes[mesh.cell_nodes[:, 1]]
    steps = log_map(start, end)[:, None] * ((nodes + 1) / 2)[:, None]
    x = exp_map(start[:, None], steps)
    values = np.asarray(function(x.reshape(-1, 2)), dtype=float).reshape(mesh.n_cells, -1)
    return values @ weights / 2
