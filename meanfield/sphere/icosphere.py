"""The icosphere: bisected icosahedra, as hexagons (Voronoi cells of the vertices) or triangles."""

from __future__ import annotations

import os

import numpy as np

from meanfield.errors import MeshError, SizeError
from meanfield.sphere.connectivity import Edges, build_edges, dual_cells, subdivide
from meanfield.sphere.geometry import directions, normalize
from meanfield.sphere.meshes import Mesh, cell_moments, circumcentres, polygon_mesh

MAX_LEVEL = 9
BYTES_PER_CELL = 1800  # measured peak of building a mesh


def icosphere(level: int, cells: str = "hexagons", centroidal: bool = True) -> Mesh:
    """Mesh of S^2 from an icosahedron whose edges are bisected ``level`` times.

    Parameters
    ----------
    level : int, 0 to 9
        ``10 4^level + 2`` hexagons (twelve of them pentagons) or ``20 4^level`` triangles.
    cells : {"hexagons", "triangles"}
        Hexagons are the Voronoi cells of the vertices; the centres of triangles are their
        circumcentres. Both meshes are orthogonal.
    centroidal : bool
        After every bisection move each vertex to the centroid of its Voronoi cell (one nested
        Lloyd sweep), which makes the cells more equal and their centres nearly centroids.

    Returns
    -------
    Mesh

    Raises
    ------
    MeshError
        If level or cells is not one of the values above.
    SizeError
        If the mesh would not fit into memory; the message states the estimate.

    Examples
    --------
    >>> icosphere(2).n_cells, icosphere(2, cells="triangles").n_cells
    (162, 320)
    """
    if cells not in ("hexagons", "triangles"):
        raise MeshError(f'cells must be "hexagons" or "triangles", got {cells!r}')
    if int(level) != level or level < 0:
        raise MeshError(f"level must be a whole number from 0 to {MAX_LEVEL}, got {level}")
    level = int(level)
    _check_memory(level, cells)
    nodes, triangles = icosahedron()
    for _ in range(level):
        triangles, edge_nodes = subdivide(triangles, len(nodes))
        middles = normalize(nodes[edge_nodes[:, 0]] + nodes[edge_nodes[:, 1]])
        nodes = np.concatenate([nodes, middles])
        if centroidal:
            nodes = lloyd(nodes, triangles)
    name = f"icosphere:{level}" if cells == "hexagons" else f"icosphere:{level}:triangles"
    name += "" if centroidal else ":raw"
    edges = build_edges(triangles)
    if cells == "triangles":
        centres = circumcentres(*(nodes[corner] for corner in triangles.T))
        return polygon_mesh(nodes, triangles, edges, centres, name)
    corners = circumcentres(*(nodes[corner] for corner in triangles.T))
    hexagons = dual_cells(triangles, edges, len(nodes))
    del edges, triangles
    return polygon_mesh(corners, hexagons, build_edges(hexagons), nodes, name)


def icosahedron() -> tuple[np.ndarray, np.ndarray]:
    """The regular icosahedron with two vertices at the poles.

    Returns
    -------
    nodes : ndarray, shape (12, 3)
    triangles : ndarray of int, shape (20, 3), counter-clockwise from outside

    Examples
    --------
    >>> nodes, triangles = icosahedron()
    >>> len(build_edges(triangles).nodes)
    30
    """
    ring = np.arange(5)
    height = 1 / np.sqrt(5)
    upper = 2 * height * directions(2 * np.pi * ring / 5)
    lower = 2 * height * directions(2 * np.pi * (ring + 0.5) / 5)
    nodes = np.concatenate(
        [
            [[0.0, 0.0, 1.0]],
            np.column_stack([upper, np.full(5, height)]),
            np.column_stack([lower, np.full(5, -height)]),
            [[0.0, 0.0, -1.0]],
        ]
    )
    a, b = 1 + ring, 1 + (ring + 1) % 5
    c, d = 6 + ring, 6 + (ring + 1) % 5
    north, south = np.zeros(5, int), np.full(5, 11)
    faces = [(north, a, b), (a, c, b), (b, c, d), (c, south, d)]
    triangles = np.concatenate([np.stack(face, axis=1) for face in faces])
    return normalize(nodes), triangles.astype(np.int32)


def lloyd(nodes: np.ndarray, triangles: np.ndarray) -> np.ndarray:
    """Move every node to the centroid of its Voronoi cell.

    Parameters
    ----------
    nodes : ndarray, shape (m, 3)
    triangles : ndarray of int, shape (t, 3)
        A Delaunay triangulation of the nodes, which stays one for small moves.

    Returns
    -------
    ndarray, shape (m, 3)
    """
    edges = build_edges(triangles)
    centres = circumcentres(*(nodes[corner] for corner in triangles.T))
    # The Voronoi edge between the nodes of an edge runs from the triangle on its right to
    # the one on its left, counter-clockwise around the start of the edge.
    dual = Edges(nodes=edges.cells[:, ::-1], cells=edges.nodes, slots=edges.slots)
    return normalize(cell_moments(centres, nodes, dual))


def _check_memory(level: int, cells: str) -> None:
    count = 10 * 4**level + 2 if cells == "hexagons" else 20 * 4**level
    need = count * BYTES_PER_CELL / 2**30
    have = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    if need > have or level > MAX_LEVEL:
        raise SizeError(
            f"icosphere level {level} has {count:,} cells and needs about {need:.3g} GiB; this "
            f"machine has {have:.3g} GiB and levels go from 0 to {MAX_LEVEL}: choose a lower level"
        )
