"""Meshes: a Space whose points are the centres of cells that cover S^1 or S^2."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from meanfield.errors import MeshError
from meanfield.sphere.connectivity import Edges, build_edges
from meanfield.sphere.geometry import (
    angles,
    directions,
    distance,
    normalize,
    unit_points,
)
from meanfield.sphere.mesh_checks import check_centres, check_convex, checked_cells, polygon_areas
from meanfield.sphere.spaces import Space

ORTHOGONALITY = 1e-6  # largest sine between an edge and the perpendicular of the centres' arc


@dataclass(frozen=True, eq=False, repr=False)
class Mesh(Space):
    """Cells on S^1 (arcs) or S^2 (convex spherical polygons), and the edges between them.

    Made by `circle`, `icosphere`, `Mesh.from_cells` or `read_mesh`. A Mesh is a `Space`:
    ``points`` are the cell centres and ``weights`` the areas as fractions of the sphere.

    Attributes
    ----------
    nodes : ndarray, shape (nodes, n)
        Corners of the cells.
    cell_nodes : ndarray of int, shape (cells, k)
        Corners of each cell, counter-clockwise from outside, filled up with -1.
    areas : ndarray, shape (cells,)
        Steradians on S^2, radians on S^1.
    centroids : ndarray, shape (cells, n)
        Centres of mass, projected to the sphere.
    edge_cells : ndarray of int, shape (e, 2)
        The two cells of each edge.
    edge_slots : ndarray of int, shape (e, 2)
        Where the edge stands in ``cell_nodes.ravel()``, seen from either cell.
    edge_nodes : ndarray of int, shape (e, 2) on S^2, (e, 1) on S^1
    edge_lengths, edge_distances : ndarray, shape (e,)
        Length of the edge (1 on S^1) and geodesic distance of the two centres.
    edge_midpoints, edge_normals : ndarray, shape (e, n)
        Midpoint of the edge and the unit tangent there that points from the first cell to
        the second, perpendicular to the edge.
    orthogonal : bool
        Whether every edge is perpendicular to the arc between its two centres, so that a
        difference of two cell values is a consistent normal derivative.

    Examples
    --------
    >>> mesh = circle(8)
    >>> mesh.n_cells, mesh.edge_cells[0].tolist(), mesh.orthogonal
    (8, [0, 1], True)
    """

    nodes: np.ndarray = None
    cell_nodes: np.ndarray = None
    areas: np.ndarray = None
    centroids: np.ndarray = None
    edge_cells: np.ndarray = None
    edge_slots: np.ndarray = None
    edge_nodes: np.ndarray = None
    edge_lengths: np.ndarray = None
    edge_distances: np.ndarray = None
    edge_midpoints: np.ndarray = None
    edge_normals: np.ndarray = None
    orthogonal: bool = True

    @property
    def n_cells(self) -> int:
        """The number of cells."""
        return len(self.points)

    @property
    def cell_size(self) -> float:
        """The mean distance h of neighbouring centres."""
        return float(self.edge_distances.mean())

    @cached_property
    def skewness(self) -> float:
        """Largest distance of an edge midpoint from the middle of the arc between its centres.

        In units of that arc: about 0.02 for relaxed hexagons, 0.15 for icosphere triangles,
        unbounded for Voronoi cells of random points.
        """
        first, second = self.points[self.edge_cells[:, 0]], self.points[self.edge_cells[:, 1]]
        offset = distance(normalize(first + second), self.edge_midpoints)
        return float((offset / self.edge_distances).max())

    @classmethod
    def from_cells(cls, nodes, cell_nodes, points=None, name="cells") -> Mesh:
        """Build a mesh of S^2 from the corners of its cells, and check it.

        Parameters
        ----------
        nodes : array_like, shape (nodes, 3)
            Unit vectors.
        cell_nodes : array_like of int, shape (cells, k)
            Corners of each convex cell, counter-clockwise from outside; rows with fewer
            corners are filled up with -1.
        points : array_like, shape (cells, 3), optional
            The cell centres, e.g. the generators of a Voronoi mesh. By default the
            circumcentres if all cells are triangles and their circumcentres lie in order,
            else the centroids.
        name : str, optional

        Returns
        -------
        Mesh

        Raises
        ------
        MeshError
            If the surface is open, not oriented, inside-out, covers the sphere more than
            once, has duplicate or unused nodes, a cell is not convex, or ``points`` of two
            neighbours are on the wrong sides of each other.
        PointsError
            If a node is off the sphere.

        Examples
        --------
        >>> corners = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]]) / 3**0.5
        >>> mesh = Mesh.from_cells(corners, [[0, 1, 2], [0, 3, 1], [1, 3, 2], [2, 3, 0]])
        >>> mesh.n_cells, mesh.orthogonal
        (4, True)
        """
        nodes = unit_points(nodes)
        cell_nodes = checked_cells(nodes, cell_nodes)
        edges = build_edges(cell_nodes)
        check_convex(nodes, cell_nodes)
        mesh = polygon_mesh(nodes, cell_nodes, edges, points, name)
        if points is not None:
            check_centres(mesh)
        return mesh


def circle(cells: int) -> Mesh:
    """Equal arcs on S^1 around the points ``theta_i = 2 pi i / cells``.

    Parameters
    ----------
    cells : int, >= 3

    Returns
    -------
    Mesh

    Raises
    ------
    MeshError
        If there are fewer than three cells.

    Examples
    --------
    >>> float(circle(4).areas.sum()) == 2 * np.pi
    True
    """
    if int(cells) != cells or cells < 3:
        raise MeshError(f"circle needs a whole number of cells >= 3, got {cells}")
    cells = int(cells)
    number = np.arange(cells)
    step = 2 * np.pi / cells
    points = directions(step * number)
    nodes = directions(step * (number - 0.5))
    following = np.roll(number, -1)
    midpoints = nodes[following]
    return Mesh(
        points=points,
        weights=np.ones(cells),
        name=f"circle:{cells}",
        nodes=nodes,
        cell_nodes=np.stack([number, following], axis=1).astype(np.int32),
        areas=np.full(cells, step),
        centroids=points,
        edge_cells=np.stack([number, following], axis=1).astype(np.int32),
        # Corner 0 of a cell is its lower end, corner 1 its upper end.
        edge_slots=np.stack([2 * number + 1, 2 * following], axis=1),
        edge_nodes=following[:, None].astype(np.int32),
        edge_lengths=np.ones(cells),
        edge_distances=np.full(cells, step),
        edge_midpoints=midpoints,
        edge_normals=np.stack([-midpoints[:, 1], midpoints[:, 0]], axis=1),
    )


def polygon_mesh(nodes, cell_nodes, edges: Edges, points, name: str) -> Mesh:
    """Measure the cells and edges of a polygonal mesh that is known to be valid.

    Parameters
    ----------
    nodes : ndarray, shape (nodes, 3)
    cell_nodes : ndarray of int, shape (cells, k)
    edges : Edges
        Of ``cell_nodes``.
    points : ndarray, shape (cells, 3), or None
        Cell centres; chosen as in `Mesh.from_cells` when None.
    name : str

    Returns
    -------
    Mesh
    """
    moments = cell_moments(nodes, cell_nodes, edges)
    centroids = normalize(moments)
    areas = polygon_areas(nodes, cell_nodes, centroids)
    if points is None:
        points = _default_centres(nodes, cell_nodes, edges, centroids)
    points = unit_points(points)
    if points.shape != centroids.shape:
        raise MeshError(f"points must have shape {centroids.shape}, got {points.shape}")
    start, end = nodes[edges.nodes[:, 0]], nodes[edges.nodes[:, 1]]
    midpoints = normalize(start + end)
    # Left of the edge lies the first cell, so the normal to the right leads to the second.
    normals = normalize(np.cross(end - start, midpoints))
    first, second = points[edges.cells[:, 0]], points[edges.cells[:, 1]]
    return Mesh(
        points=points,
        weights=areas,
        name=name,
        nodes=nodes,
        cell_nodes=cell_nodes,
        areas=areas,
        centroids=centroids,
        edge_cells=edges.cells,
        edge_slots=edges.slots,
        edge_nodes=edges.nodes,
        edge_lengths=distance(start, end),
        edge_distances=distance(first, second),
        edge_midpoints=midpoints,
        edge_normals=normals,
        orthogonal=_is_orthogonal(first, second, midpoints, normals),
    )


def cell_moments(nodes, cell_nodes, edges: Edges) -> np.ndarray:
    """First moments ``int_cell x dsigma`` of spherical polygons, exactly.

    By Stokes' theorem the moment is half the sum over the edges of arc length times the unit
    normal of the arc's plane.

    Returns
    -------
    ndarray, shape (cells, 3)
    """
    start, end = nodes[edges.nodes[:, 0]], nodes[edges.nodes[:, 1]]
    normal = np.cross(start, end - start)
    length = np.linalg.norm(normal, axis=1)
    angle = distance(start, end)
    ratio = np.divide(angle, 2 * length, out=np.full_like(angle, 0.5), where=length > 0)
    return edge_sums(normal * ratio[:, None], edges.cells, len(cell_nodes))


def edge_sums(values, edge_cells, n_cells: int) -> np.ndarray:
    """Add edge vectors to the first cell of each edge and subtract them from the second.

    Parameters
    ----------
    values : ndarray, shape (e, k)
    edge_cells : ndarray of int, shape (e, 2)
    n_cells : int

    Returns
    -------
    ndarray, shape (n_cells, k)
    """
    columns = [
        np.bincount(edge_cells[:, 0], column, n_cells)
        - np.bincount(edge_cells[:, 1], column, n_cells)
        for column in values.T
    ]
    return np.stack(columns, axis=1)


def circumcentres(a, b, c) -> np.ndarray:
    """The points at equal distance from three points each, on their outer side.

    Parameters
    ----------
    a, b, c : ndarray, shape (t, 3)
        Counter-clockwise from outside.

    Returns
    -------
    ndarray, shape (t, 3)
    """
    return normalize(np.cross(b - a, c - a))


def _default_centres(nodes, cell_nodes, edges, centroids) -> np.ndarray:
    """Circumcentres of triangles where they give an orthogonal mesh, else the centroids."""
    if cell_nodes.shape[1] != 3:
        return centroids
    centres = circumcentres(*(nodes[corner] for corner in cell_nodes.T))
    start, end = nodes[edges.nodes[:, 0]], nodes[edges.nodes[:, 1]]
    across = centres[edges.cells[:, 1]] - centres[edges.cells[:, 0]]
    in_order = np.sum(across * np.cross(end - start, start + end), axis=1) > 0
    return centres if in_order.all() else centroids


def _is_orthogonal(first, second, midpoints, normals) -> bool:
    """Whether the arcs between the centres run along the edge normals."""
    arc = second - first
    along = np.abs(np.sum(arc * np.cross(midpoints, normals), axis=1))
    across = np.sum(arc * normals, axis=1)
    return bool((across > 0).all() and (along <= ORTHOGONALITY * across).all())


def theta(mesh: Mesh) -> np.ndarray:
    """The angles of the cell centres of a mesh of S^1, in [0, 2 pi).

    Examples
    --------
    >>> theta(circle(4)).tolist() == [0.0, np.pi / 2, np.pi, 3 * np.pi / 2]
    True
    """
    return angles(mesh.points)
