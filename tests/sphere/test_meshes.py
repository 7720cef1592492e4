"""Geometry and connectivity of the meshes."""

import numpy as np
import pytest

import meanfield as mf
from meanfield.errors import MeshError, SizeError
from meanfield.sphere.connectivity import build_edges, next_corners
from meanfield.sphere.geometry import distance
from meanfield.sphere.icosphere import icosahedron


def meshes():
    for cells in ("hexagons", "triangles"):
        for centroidal in (True, False):
            for level in (0, 1, 3, 5):
                yield pytest.param(level, cells, centroidal, id=f"{cells}-{centroidal}-{level}")


@pytest.mark.parametrize(("level", "cells", "centroidal"), list(meshes()))
def test_icosphere(level, cells, centroidal):
    mesh = mf.icosphere(level, cells, centroidal)
    count = 10 * 4**level + 2 if cells == "hexagons" else 20 * 4**level
    assert mesh.n_cells == count
    assert mesh.areas.min() > 0
    assert abs(mesh.areas.sum() - 4 * np.pi) < 1e-12
    assert mesh.n_cells - len(mesh.edge_cells) + len(mesh.nodes) == 2
    assert mesh.orthogonal
    assert mesh.areas.max() / mesh.areas.min() < 1.45
    # Outward: the corners turn left around the centre.
    following = next_corners(mesh.cell_nodes)
    used = following >= 0
    centre = np.broadcast_to(mesh.points[:, None], (*used.shape, 3))
    turn = np.sum(centre * np.cross(mesh.nodes[mesh.cell_nodes], mesh.nodes[following]), axis=2)
    assert (turn[used] > 0).all()


def test_hexagons_are_voronoi_cells():
    mesh = mf.icosphere(3)
    nearest = np.sort(distance(mesh.nodes[:, None], mesh.points[None]), axis=1)
    assert np.ptp(nearest[:, :3], axis=1).max() < 1e-14
    assert (nearest[:, 3] - nearest[:, 0]).min() > 0.02


def test_lloyd_sweeps_centre_the_cells():
    offsets = [
        distance(mesh.points, mesh.centroids).max() / mesh.cell_size
        for mesh in (mf.icosphere(5), mf.icosphere(5, centroidal=False))
    ]
    assert offsets[0] < 0.012
    assert offsets[1] > 0.03


def test_centroids_and_areas_integrate_by_stokes():
    # The vector area of every cell, summed, is the integral of x over the sphere: zero.
    mesh = mf.icosphere(4)
    assert np.abs(mesh.weights @ mesh.centroids).max() < 1e-6
    octant = mf.Mesh.from_cells(*octahedron())
    assert np.allclose(octant.areas, np.pi / 2, rtol=0, atol=1e-14)
    assert np.allclose(np.abs(octant.centroids), 1 / np.sqrt(3), rtol=0, atol=1e-14)


def octahedron():
    nodes = np.concatenate([np.eye(3), -np.eye(3)])
    cells = [[0, 1, 2], [1, 3, 2], [3, 4, 2], [4, 0, 2], [1, 0, 5], [3, 1, 5], [4, 3, 5], [0, 4, 5]]
    return nodes, np.array(cells)


def test_edges_of_two_hemispheres():
    # The smallest closed surface: two triangles back to back.
    edges = build_edges(np.array([[0, 1, 2], [0, 2, 1]]))
    assert edges.cells.tolist() == [[0, 1]] * 3
    assert edges.nodes.tolist() == [[0, 1], [1, 2], [2, 0]]
    assert edges.slots.tolist() == [[0, 5], [1, 4], [2, 3]]


def test_edge_geometry():
    mesh = mf.icosphere(3)
    first, second = mesh.points[mesh.edge_cells[:, 0]], mesh.points[mesh.edge_cells[:, 1]]
    assert np.abs(np.linalg.norm(mesh.edge_normals, axis=1) - 1).max() < 1e-14
    assert np.abs(np.sum(mesh.edge_normals * mesh.edge_midpoints, axis=1)).max() < 1e-14
    assert (np.sum(mesh.edge_normals * (second - first), axis=1) > 0).all()
    # Divergence theorem: the normals of a closed cell, weighted by lengths, nearly cancel.
    flux = mesh.edge_normals * mesh.edge_lengths[:, None]
    total = np.zeros((mesh.n_cells, 3))
    np.add.at(total, mesh.edge_cells[:, 0], flux)
    np.subtract.at(total, mesh.edge_cells[:, 1], flux)
    tangential = total - np.sum(total * mesh.points, axis=1)[:, None] * mesh.points
    assert np.abs(tangential).max() < 2 * mesh.cell_size**3


def test_circle():
    mesh = mf.circle(7)
    assert mesh.areas.sum() == pytest.approx(2 * np.pi, abs=1e-15)
    assert np.allclose(mesh.points[3], [np.cos(6 * np.pi / 7), np.sin(6 * np.pi / 7)], atol=1e-15)
    assert np.allclose(distance(mesh.edge_midpoints, mesh.points), np.pi / 7, atol=1e-15)
    for cells in (2, 2.5, -1):
        with pytest.raises(MeshError, match=">= 3"):
            mf.circle(cells)


def test_icosphere_arguments():
    with pytest.raises(MeshError, match="hexagons"):
        mf.icosphere(2, "squares")
    with pytest.raises(MeshError, match="whole number"):
        mf.icosphere(-1)
    with pytest.raises(SizeError, match=r"10,485,762 cells and needs about 17\.6 GiB"):
        mf.icosphere(10)


def broken_meshes():
    nodes, cells = octahedron()
    yield "open", nodes, cells[:-1], "surface is open"
    yield "inside-out", nodes, cells[:, ::-1], "inside-out"
    flipped = cells.copy()
    flipped[0] = flipped[0, ::-1]
    yield "one flipped", nodes, flipped, "same direction"
    off = nodes.copy()
    off[2] *= 1.01
    yield "off the sphere", off, cells, "not on the unit sphere"
    split = np.concatenate([nodes, nodes[2:3]])
    renamed = cells.copy()
    renamed[0, 2] = 6
    yield "duplicate nodes", split, renamed, "same place"
    yield "unused node", np.concatenate([nodes, [[0.6, 0.8, 0]]]), cells, "belongs to no cell"
    yield "out of range", nodes, cells + 1, "numbers start at 0"
    yield "fraction", nodes, cells + 0.5, "whole numbers"
    twice = cells.copy()
    twice[0, 1] = twice[0, 0]
    yield "corner twice", nodes, twice, "same corner twice"
    yield "nan", np.where(nodes == 1, np.nan, nodes), cells, "NaN"
    yield "too few", nodes, cells[:2], "cells >= 4"


@pytest.mark.parametrize(
    ("nodes", "cells", "message"),
    [pytest.param(*rest, id=name) for name, *rest in broken_meshes()],
)
def test_from_cells_says_what_is_wrong(nodes, cells, message):
    with pytest.raises(ValueError, match=message):
        mf.Mesh.from_cells(nodes, cells)


def test_from_cells_refuses_a_dented_cell():
    mesh = mf.icosphere(1)
    nodes = mesh.nodes.copy()
    # Pull one corner of a hexagon through the cell, past its centre.
    cell = mesh.cell_nodes[20]
    nodes[cell[0]] = mesh.points[20] + 0.3 * (mesh.points[20] - nodes[cell[0]])
    nodes[cell[0]] /= np.linalg.norm(nodes[cell[0]])
    with pytest.raises(MeshError, match=r"not convex|cover"):
        mf.Mesh.from_cells(nodes, mesh.cell_nodes)


def test_from_cells_rebuilds_the_icosphere():
    mesh = mf.icosphere(3)
    again = mf.Mesh.from_cells(mesh.nodes, mesh.cell_nodes, mesh.points)
    assert again.orthogonal
    assert np.array_equal(again.areas, mesh.areas)
    without = mf.Mesh.from_cells(mesh.nodes, mesh.cell_nodes)
    assert not without.orthogonal


def test_icosahedron_is_regular():
    nodes, triangles = icosahedron()
    edges = build_edges(triangles)
    lengths = distance(*np.moveaxis(nodes[edges.nodes], 1, 0))
    assert np.ptp(lengths) < 1e-15


@pytest.mark.slow
def test_level_8_is_small():
    import subprocess
    import sys

    code = (
        "import resource; import meanfield as mf; "
        "mesh = mf.icosphere(8, centroidal=False); "
        "print(mesh.n_cells, "
        "resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert int(out[0]) == 655_362
    assert float(out[1]) < 4
