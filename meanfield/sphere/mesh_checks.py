"""Is it a mesh: closed, oriented, convex, covering the sphere once. Errors say what is wrong."""

from __future__ import annotations

import numpy as np

from meanfield.errors import MeshError
from meanfield.sphere.connectivity import FILL, next_corners
from meanfield.sphere.geometry import normalize, triangle_areas


def polygon_areas(nodes, cell_nodes, centres) -> np.ndarray:
    """Exact areas of spherical polygons, as fans of triangles around the centres.

    Parameters
    ----------
    nodes : ndarray, shape (nodes, 3)
    cell_nodes : ndarray of int, shape (cells, k)
    centres : ndarray, shape (cells, 3)
        A point inside each cell.

    Returns
    -------
    ndarray, shape (cells,), steradians
    """
    following = next_corners(cell_nodes)
    areas = np.zeros(len(cell_nodes))
    for here, there in zip(cell_nodes.T, following.T, strict=True):
        used = here != FILL
        fan = triangle_areas(centres, nodes[here], nodes[there])
        areas += np.where(used, fan, 0.0)
    return areas


def checked_cells(nodes, cell_nodes) -> np.ndarray:
    """Node numbers in range, at least three a cell, none twice, all used, none coinciding."""
    try:
        cells = np.asarray(cell_nodes, dtype=float)
    except (TypeError, ValueError) as error:
        raise MeshError(
            "cell_nodes must be a table of node numbers, shorter rows filled up with -1"
        ) from error
    if cells.ndim != 2 or cells.shape[1] < 3 or len(cells) < 4:
        raise MeshError(f"cell_nodes must have shape (cells >= 4, corners >= 3), got {cells.shape}")
    if not (np.isfinite(cells).all() and (cells == np.floor(cells)).all()):
        raise MeshError("cell_nodes must be whole numbers, -1 where a cell has no corner")
    if nodes.shape[1] != 3:
        raise MeshError(f"cells live on S^2: nodes must have shape (nodes, 3), got {nodes.shape}")
    used = cells != FILL
    if cells[used].min(initial=0) < 0 or cells.max() >= len(nodes):
        raise MeshError(f"cell_nodes must be -1 or in 0 ... {len(nodes) - 1} (numbers start at 0)")
    # A column that no cell uses would hide that all cells are triangles.
    cells = cells[:, used.any(axis=0)].astype(np.int32)
    used = cells != FILL
    if not (used[:, :3].all() and (used[:, 1:] <= used[:, :-1]).all()):
        raise MeshError("each cell needs three corners or more, with -1 only at the end of a row")
    ordered = np.sort(np.where(used, cells, -1 - np.arange(cells.shape[1])), axis=1)
    repeated = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    if repeated.any():
        raise MeshError(f"cell {int(repeated.argmax())} has the same corner twice")
    _check_nodes(nodes, cells[used])
    return cells


def _check_nodes(nodes, used) -> None:
    """Every node is used and no two coincide."""
    idle = np.bincount(used, minlength=len(nodes)) == 0
    if idle.any():
        raise MeshError(f"node {int(idle.argmax())} belongs to no cell: remove unused nodes")
    keys = np.round(nodes * 1e10).astype(np.int64)
    order = np.lexsort(keys.T)
    equal = (keys[order][1:] == keys[order][:-1]).all(axis=1)
    if equal.any():
        a, b = sorted(order[int(equal.argmax()) :][:2].tolist())
        raise MeshError(f"nodes {a} and {b} are at the same place: merge duplicate nodes")


def check_convex(nodes, cell_nodes) -> None:
    """Every corner turns left, and the whole covers the sphere once."""
    following = next_corners(cell_nodes)
    after = np.take_along_axis(
        np.concatenate([following, following[:, :1]], axis=1),
        np.where(np.roll(cell_nodes == FILL, -1, axis=1) | _last(cell_nodes), 0,
                 np.arange(1, cell_nodes.shape[1] + 1)),
        axis=1,
    )  # fmt: skip
    corners = cell_nodes != FILL
    a, b, c = nodes[cell_nodes], nodes[following], nodes[after]
    turn = np.where(corners, np.sum(a * np.cross(b - a, c - a), axis=2), 1.0)
    if (turn < 0).mean() > 0.5 * corners.mean():
        raise MeshError("the cells are inside-out: order corners counter-clockwise from outside")
    if (turn <= 0).any():
        cell = int((turn <= 0).any(axis=1).argmax())
        raise MeshError(f"cell {cell} is not convex (or two of its edges are in line)")
    centres = normalize(np.where(corners[..., None], a, 0.0).sum(axis=1))
    total = polygon_areas(nodes, cell_nodes, centres).sum()
    if abs(total - 4 * np.pi) > 1e-6:
        raise MeshError(
            f"the cells cover {total / (4 * np.pi):.6g} times the sphere, not once: "
            "cells overlap or are missing"
        )


def check_centres(mesh) -> None:
    """The way from a centre to that of a neighbour crosses their edge outwards."""
    first, second = mesh.points[mesh.edge_cells[:, 0]], mesh.points[mesh.edge_cells[:, 1]]
    wrong = ~(np.sum((second - first) * mesh.edge_normals, axis=1) > 0)
    if wrong.any():
        a, b = mesh.edge_cells[int(wrong.argmax())]
        raise MeshError(
            f"points {a} and {b} coincide or lie on the wrong sides of the edge between their "
            "cells: points must be the centres of the cells, in their order"
        )


def _last(cell_nodes) -> np.ndarray:
    """Marks the last corner of every cell."""
    last = (cell_nodes != FILL).sum(axis=1) - 1
    return np.arange(cell_nodes.shape[1]) == last[:, None]
