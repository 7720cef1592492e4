"""Make the stored meshes and print the table of the README.

Run as ``python meshes/make_meshes.py [folder]``. Files that exist are kept: remove one to make
it anew. Writing ``gmsh_triangles.nc`` needs xugrid (the extra ``interop``), and making its source
``gmsh_sphere.msh`` needs gmsh (``pip install gmsh``); both are stored, so nothing else does.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import numpy as np
from scipy.spatial import SphericalVoronoi

import meanfield as mf
from meanfield.results.ugrid import read_mesh, write_mesh
from meanfield.sphere.connectivity import FILL
from meanfield.sphere.geometry import angles, normalize

FOLDER = Path(__file__).parent
VORONOI_POINTS, VORONOI_SEED = 642, 20250107
CUBE_CELLS = 12  # along an edge of the cube
GMSH_SIZE = 0.18  # wanted length of the edges, radians
CUBE_SIDES = ((0, 1, 2), (1, 2, 0), (2, 0, 1))  # the axis of a side and those along it


def voronoi(count: int = VORONOI_POINTS, seed: int = VORONOI_SEED) -> mf.Mesh:
    """Voronoi cells of random points, independent and uniform; the points are the centres.

    Parameters
    ----------
    count : int
    seed : int
        Of ``numpy.random.default_rng``.

    Returns
    -------
    Mesh
    """
    points = normalize(np.random.default_rng(seed).normal(size=(count, 3)))
    diagram = SphericalVoronoi(points)
    diagram.sort_vertices_of_regions()
    cells = np.full((count, max(map(len, diagram.regions))), FILL)
    for row, region in zip(cells, diagram.regions, strict=True):
        row[: len(region)] = _outward(diagram.vertices, region)
    return mf.Mesh.from_cells(diagram.vertices, cells, points, name=f"voronoi:{count}:seed {seed}")


def _outward(nodes, region) -> list[int]:
    """A sorted region, counter-clockwise as seen from outside."""
    a, b, c = nodes[region[:3]]
    return region if np.dot(a, np.cross(b - a, c - a)) > 0 else region[::-1]


def cubed_sphere(cells: int = CUBE_CELLS) -> mf.Mesh:
    """The sides of a cube, divided at equal angles and projected: quadrilaterals.

    Parameters
    ----------
    cells : int
        Along an edge of the cube; the mesh has six times their square.

    Returns
    -------
    Mesh
    """
    tangents = np.tan(np.linspace(-np.pi / 4, np.pi / 4, cells + 1))
    u, v = (values.ravel() for values in np.meshgrid(tangents, tangents, indexing="ij"))
    corner = np.arange(u.size).reshape(cells + 1, cells + 1)
    ring = [corner[:-1, :-1], corner[1:, :-1], corner[1:, 1:], corner[:-1, 1:]]
    square = np.stack([part.ravel() for part in ring], axis=1)
    nodes, sides = [], []
    for side in CUBE_SIDES:
        for sign in (1.0, -1.0):
            points = np.empty((u.size, 3))
            # With the axis reversed, swapping the two others keeps the cells counter-clockwise.
            points[:, side] = np.column_stack([np.full(u.size, sign), *((u, v)[:: int(sign)])])
            sides.append(square + u.size * len(nodes))
            nodes.append(normalize(points))
    nodes = np.concatenate(nodes)
    _, first, number = np.unique(
        np.round(nodes, 12) + 0.0, axis=0, return_index=True, return_inverse=True
    )
    return mf.Mesh.from_cells(
        nodes[first], number.ravel()[np.concatenate(sides)], name=f"cubed sphere:{cells}"
    )


def make_gmsh_file(path, size: float = GMSH_SIZE) -> None:
    """Let gmsh triangulate the unit sphere and write its own format, MSH 2.2.

    Parameters
    ----------
    path : path-like, ending in ``.msh``
    size : float
        Wanted length of the edges.
    """
    import gmsh

    gmsh.initialize(interruptible=False)
    try:
        gmsh.option.setNumber("General.Terminal", 0)
        gmsh.option.setNumber("Mesh.MeshSizeMin", size)
        gmsh.option.setNumber("Mesh.MeshSizeMax", size)
        gmsh.option.setNumber("Mesh.Algorithm", 6)  # frontal Delaunay
        gmsh.option.setNumber("Mesh.MshFileVersion", 2.2)
        gmsh.model.occ.addSphere(0, 0, 0, 1)
        gmsh.model.occ.synchronize()
        gmsh.model.mesh.generate(2)
        gmsh.write(str(path))
    finally:
        gmsh.finalize()


def read_gmsh_file(path) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and triangles of an MSH 2.2 text file.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    nodes : ndarray, shape (nodes, 3)
        Unit vectors; those that no triangle uses are left out.
    triangles : ndarray of int, shape (t, 3), counter-clockwise from outside
    """
    lines = Path(path).read_text().splitlines()
    tags, nodes = {}, []
    for line in _section(lines, "Nodes"):
        tag, *xyz = line.split()
        tags[int(tag)] = len(nodes)
        nodes.append([float(value) for value in xyz])
    elements = [[int(word) for word in line.split()] for line in _section(lines, "Elements")]
    # An element is: number, type (2 is a triangle), number of tags, tags, nodes.
    triangles = np.array([[tags[t] for t in e[3 + e[2] :]] for e in elements if e[1] == 2])
    used, triangles = np.unique(triangles, return_inverse=True)
    return normalize(np.array(nodes)[used]), triangles.reshape(-1, 3)


def _section(lines: list[str], name: str) -> list[str]:
    start = lines.index(f"${name}")
    return lines[start + 2 : lines.index(f"$End{name}")]


def write_with_xugrid(nodes, triangles, path) -> None:
    """Write a triangulation as UGRID by another library than this one.

    Parameters
    ----------
    nodes : ndarray, shape (nodes, 3)
    triangles : ndarray of int, shape (t, 3)
    path : path-like
    """
    import xugrid

    colatitude, longitude = angles(nodes).T
    grid = xugrid.Ugrid2d(
        node_x=np.degrees((longitude + np.pi) % (2 * np.pi) - np.pi),
        node_y=90 - np.degrees(colatitude),
        fill_value=FILL,
        face_node_connectivity=triangles,
        name="gmsh",
        is_projected=False,
    )
    grid.to_dataset().to_netcdf(path, engine="h5netcdf")


def _from_gmsh(path: Path) -> None:
    source = path.with_name("gmsh_sphere.msh")
    if not source.exists():
        make_gmsh_file(source)
    write_with_xugrid(*read_gmsh_file(source), path)


MAKERS = {
    "icosphere2_hexagons.nc": lambda path: write_mesh(mf.icosphere(2), path),
    "icosphere3_triangles.nc": lambda path: write_mesh(mf.icosphere(3, "triangles"), path),
    "voronoi_random.nc": lambda path: write_mesh(voronoi(), path),
    "cubed_sphere.nc": lambda path: write_mesh(cubed_sphere(), path),
    "gmsh_triangles.nc": _from_gmsh,
}


def main(folder=FOLDER) -> None:
    """Make the files that are missing and print the table of the README.

    Parameters
    ----------
    folder : path-like
    """
    for name, make in MAKERS.items():
        path = Path(folder, name)
        if not path.exists():
            make(path)
        mesh = read_mesh(path)
        checksum = hashlib.sha256(path.read_bytes()).hexdigest()
        orthogonal = "yes" if mesh.orthogonal else "no"
        cells = [name, f"{mesh.n_cells:,}", orthogonal, f"{mesh.skewness:.2f}", checksum]
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main(*sys.argv[1:])
