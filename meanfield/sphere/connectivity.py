"""Connectivity of closed polygonal surfaces as array functions.

Cells are rows of node numbers, counter-clockwise from outside, filled up with -1 where cells
have fewer corners than the widest one. No function here knows coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanfield.errors import MeshError

FILL = -1


@dataclass(frozen=True, eq=False)
class Edges:
    """The edges of a closed surface, in the order of the first cell that has them.

    Attributes
    ----------
    nodes : ndarray, shape (e, 2)
        Start and end, counter-clockwise as seen from the first cell.
    cells : ndarray, shape (e, 2)
        The cells on the left and on the right of the edge.
    slots : ndarray, shape (e, 2)
        Where the edge stands in ``cell_nodes.ravel()``, for both cells: the corner it starts
        from.
    """

    nodes: np.ndarray
    cells: np.ndarray
    slots: np.ndarray


def next_corners(cell_nodes: np.ndarray) -> np.ndarray:
    """For every corner the node that follows it around the cell.

    Parameters
    ----------
    cell_nodes : ndarray of int, shape (cells, k)

    Returns
    -------
    ndarray of int, shape (cells, k)
        -1 where ``cell_nodes`` is -1.

    Examples
    --------
    >>> next_corners(np.array([[0, 1, 2, -1], [3, 4, 5, 6]])).tolist()
    [[1, 2, 0, -1], [4, 5, 6, 3]]
    """
    following = np.roll(cell_nodes, -1, axis=1)
    last = (cell_nodes != FILL).sum(axis=1) - 1
    rows = np.arange(len(cell_nodes))
    following[rows, last] = cell_nodes[:, 0]
    following[cell_nodes == FILL] = FILL
    return following


def build_edges(cell_nodes: np.ndarray) -> Edges:
    """Pair the half-edges of a closed, oriented surface.

    Parameters
    ----------
    cell_nodes : ndarray of int, shape (cells, k)

    Returns
    -------
    Edges

    Raises
    ------
    MeshError
        If an edge belongs to one cell only (the surface is open), to more than two, or to two
        cells that run through it in the same direction (their orientations differ).

    Examples
    --------
    >>> tetrahedron = np.array([[0, 1, 2], [0, 3, 1], [1, 3, 2], [2, 3, 0]])
    >>> build_edges(tetrahedron).cells.tolist()
    [[0, 1], [0, 2], [0, 3], [1, 3], [1, 2], [2, 3]]
    """
    width = cell_nodes.shape[1]
    start = cell_nodes.ravel()
    slots = np.flatnonzero(start != FILL)
    start = start[slots].astype(np.int64)
    end = next_corners(cell_nodes).ravel()[slots].astype(np.int64)
    if len(start) == 0:
        raise MeshError("the mesh has no edges")
    key = np.minimum(start, end) * (start.max() + 1) + np.maximum(start, end)
    order = np.argsort(key, kind="stable")
    _check_pairs(key[order], start[order], end[order], slots[order] // width)
    pairs = order.reshape(-1, 2)
    pairs = pairs[np.argsort(pairs[:, 0])]
    first = pairs[:, 0]
    pair_slots = slots[pairs]
    nodes = np.stack([start[first], end[first]], axis=1).astype(np.int32)
    return Edges(nodes, (pair_slots // width).astype(np.int32), pair_slots)


def _check_pairs(key, start, end, cells) -> None:
    """Sorted half-edges must come in pairs of opposite direction."""
    paired = len(key) % 2 == 0 and (key[::2] == key[1::2]).all()
    if paired and not (key[1:-1:2] == key[2::2]).any():
        same = np.flatnonzero(start[::2] == start[1::2])
        if same.size == 0:
            return
        a, b = cells[2 * same[0]], cells[2 * same[0] + 1]
        raise MeshError(
            f"cells {a} and {b} run through their common edge in the same direction: "
            "orient all cells counter-clockwise as seen from outside"
        )
    _, first, counts = np.unique(key, return_index=True, return_counts=True)
    worst = first[np.argmax(counts != 2)]
    times = counts[np.argmax(counts != 2)]
    what = "the surface is open" if times == 1 else "the surface is not a manifold"
    raise MeshError(
        f"edge ({start[worst]}, {end[worst]}) of cell {cells[worst]} belongs to {times} "
        f"cell(s), not to 2: {what}"
    )


def subdivide(triangles: np.ndarray, n_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Split every triangle into four by the midpoints of its edges.

    Parameters
    ----------
    triangles : ndarray of int, shape (t, 3)
    n_nodes : int

    Returns
    -------
    triangles : ndarray of int, shape (4 t, 3)
        The new node of edge ``e`` has number ``n_nodes + e``.
    edge_nodes : ndarray of int, shape (e, 2)

    Examples
    --------
    >>> fine, edges = subdivide(np.array([[0, 1, 2], [0, 2, 1]]), 3)
    >>> fine.shape, edges.shape
    ((8, 3), (3, 2))
    """
    edges = build_edges(triangles)
    middle = np.empty(triangles.size, dtype=np.int32)
    numbers = n_nodes + np.arange(len(edges.nodes), dtype=np.int32)
    middle[edges.slots[:, 0]] = numbers
    middle[edges.slots[:, 1]] = numbers
    ab, bc, ca = middle.reshape(-1, 3).T
    a, b, c = triangles.T
    children = np.stack([a, ab, ca, ab, b, bc, ca, bc, c, ab, bc, ca], axis=1)
    return children.reshape(-1, 3).astype(np.int32), edges.nodes


def dual_cells(triangles: np.ndarray, edges: Edges, n_nodes: int) -> np.ndarray:
    """The triangles around every node, counter-clockwise: the cells of the dual surface.

    Parameters
    ----------
    triangles : ndarray of int, shape (t, 3)
    edges : Edges
        Of the triangles.
    n_nodes : int

    Returns
    -------
    ndarray of int32, shape (n_nodes, largest valence)

    Examples
    --------
    >>> tetrahedron = np.array([[0, 1, 2], [0, 3, 1], [1, 3, 2], [2, 3, 0]])
    >>> dual_cells(tetrahedron, build_edges(tetrahedron), 4).tolist()
    [[0, 3, 1], [0, 1, 2], [0, 2, 3], [1, 3, 2]]
    """
    corners = triangles.ravel()
    # Corner s of triangle t: the neighbour across the edge that *enters* the corner is the
    # next triangle counter-clockwise around the node, and its own corner is that edge's start.
    twin = np.empty(corners.size, dtype=np.int64)
    twin[edges.slots[:, 0]] = edges.slots[:, 1]
    twin[edges.slots[:, 1]] = edges.slots[:, 0]
    slot = np.arange(corners.size)
    entering = slot - slot % 3 + (slot + 2) % 3
    following = twin[entering]
    valence = np.bincount(corners, minlength=n_nodes)
    start = np.full(n_nodes, corners.size)
    np.minimum.at(start, corners, slot)
    cells = np.full((n_nodes, valence.max()), FILL, dtype=np.int32)
    here = start
    for position in range(valence.max()):
        active = position < valence
        cells[active, position] = here[active] // 3
        here = following[here]
    return cells
