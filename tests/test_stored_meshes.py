"""The stored meshes are what their README says, and valid."""

import hashlib
import importlib.util
from pathlib import Path

import numpy as np
import pytest

import meanfield as mf
from meanfield.dynamics.finite_volume import FiniteVolumes
from meanfield.results.ugrid import read_mesh
from meanfield.sphere.geometry import distance

FOLDER = Path(__file__).parents[1] / "meshes"


def recorded() -> dict[str, list[str]]:
    """Cells, orthogonal, skewness and sha256 of every file, from the table of the README."""
    lines = (FOLDER / "README.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: row[1:] for row in rows if len(row) == 5 and row[0].endswith(".nc")}


TABLE = recorded()


@pytest.fixture(scope="module")
def maker():
    """The script that makes the meshes."""
    spec = importlib.util.spec_from_file_location("make_meshes", FOLDER / "make_meshes.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_file_is_in_the_table(maker):
    assert sorted(TABLE) == sorted(path.name for path in FOLDER.glob("*.nc"))
    assert sorted(TABLE) == sorted(maker.MAKERS)


@pytest.mark.parametrize("name", TABLE)
def test_stored_mesh(name):
    path = FOLDER / name
    cells, orthogonal, skewness, checksum = TABLE[name]
    assert path.stat().st_size < 300_000
    assert hashlib.sha256(path.read_bytes()).hexdigest() == checksum
    mesh = read_mesh(path)
    assert f"{mesh.n_cells:,}" == cells
    assert mesh.orthogonal == (orthogonal == "yes")
    assert f"{mesh.skewness:.2f}" == skewness
    assert abs(mesh.areas.sum() - 4 * np.pi) < 1e-11
    assert mesh.n_cells - len(mesh.edge_cells) + len(mesh.nodes) == 2
    # What is read passes all checks of a mesh that is built from its cells.
    again = mf.Mesh.from_cells(mesh.nodes, mesh.cell_nodes, mesh.points)
    assert np.abs(again.areas - mesh.areas).max() < 1e-14


@pytest.mark.parametrize("name", TABLE)
def test_stored_mesh_carries_a_flow(name):
    # D = Id is blind to quadrature; with diag(.5, 1, 2) the energy of the uniform
    # density is the mean of sinh|Dx| / |Dx|.
    mesh = read_mesh(FOLDER / name)
    model = mf.SelfAttention([0.5, 1.0, 2.0], sign=-1)
    rule = mf.product_sphere(3, 60)
    size = np.linalg.norm(rule.points * [0.5, 1.0, 2.0], axis=1)
    energy = model.interaction.on(mesh).energy(mesh.weights)
    assert abs(energy / rule.integrate(np.sinh(size) / size) - 1) < 4e-5
    run = mf.evolve(mesh, model, mf.von_mises_fisher([0.3, -0.5, 0.8], 2.0), 0.1, save=3)
    assert np.abs(run.audit["mass_error"]).max() < 1e-14
    assert run.masses.min() > 0
    assert (np.diff(run.energy) < 0).all()
    two_point = mesh.orthogonal and float(TABLE[name][2]) <= 0.4
    assert FiniteVolumes(mesh, model).two_point == two_point


@pytest.mark.parametrize("name", ["voronoi_random.nc", "cubed_sphere.nc"])
def test_the_script_still_makes_these_meshes(maker, name):
    stored = read_mesh(FOLDER / name)
    made = maker.voronoi() if name.startswith("voronoi") else maker.cubed_sphere()
    assert made.orthogonal == stored.orthogonal
    assert np.abs(made.points - stored.points).max() < 1e-12
    assert np.abs(made.areas - stored.areas).max() < 1e-12
    assert np.abs(np.sort(made.edge_lengths) - np.sort(stored.edge_lengths)).max() < 1e-10


def test_random_voronoi_cells_are_nearest_to_their_own_point():
    mesh = read_mesh(FOLDER / "voronoi_random.nc")
    generator = np.random.default_rng(20250107).normal(size=(mesh.n_cells, 3))
    generator /= np.linalg.norm(generator, axis=1, keepdims=True)
    assert np.abs(mesh.points - generator).max() < 1e-15
    nearest = np.argmin(distance(mesh.centroids[:, None], mesh.points[None]), axis=1)
    assert np.array_equal(nearest, np.arange(mesh.n_cells))


def test_file_of_another_generator(maker):
    # From what gmsh wrote, through the file that xugrid wrote, to the same triangles.
    nodes, triangles = maker.read_gmsh_file(FOLDER / "gmsh_sphere.msh")
    stored = read_mesh(FOLDER / "gmsh_triangles.nc")
    assert np.array_equal(stored.cell_nodes, triangles)
    assert np.abs(stored.nodes - nodes).max() < 1e-14
    assert set(np.bincount(triangles.ravel()).tolist()) == {4, 5, 6, 7}
