"""Saved files open in the programs that others use."""

import numpy as np
import pytest
import xarray as xr

import meanfield as mf

pytestmark = [
    pytest.mark.interop,
    # These programs warn about their own dependencies.
    pytest.mark.filterwarnings("ignore"),
]
MESHES = [mf.icosphere(3), mf.icosphere(2, cells="triangles")]


def evolved(mesh, path):
    model = mf.SelfAttention([0.5, 1.0, 2.0][: mesh.dimension], sign=-1)
    density = mf.von_mises_fisher([0.3, -0.5, 0.8][: mesh.dimension], 2.0)
    run = mf.evolve(mesh, model, density, t_end=0.2, save=3)
    run.save(path)
    return run


@pytest.fixture(params=MESHES, ids=lambda mesh: mesh.name)
def sphere(request, tmp_path):
    path = tmp_path / "run.nc"
    return evolved(request.param, path), path


def assert_density(variable, run):
    assert np.array_equal(variable.values, run.density)
    assert np.array_equal(variable["time"].values, run.times)
    longitude = np.degrees(np.arctan2(run.mesh.points[:, 1], run.mesh.points[:, 0]))
    assert np.allclose(variable["mesh_face_lon"].values, longitude, rtol=0, atol=1e-12)
    assert variable["mesh_face_lat"].values.shape == (run.mesh.n_cells,)


def test_xarray(sphere):
    run, path = sphere
    with xr.open_dataset(path, engine="h5netcdf") as dataset:
        assert dataset.sizes["face"] == run.mesh.n_cells
        assert abs(float(dataset["mesh_face_area"].sum()) - 4 * np.pi) < 1e-8
        assert_density(dataset["density"], run)
        assert dataset["density"].attrs["units"] == "1"


def test_xugrid(sphere):
    xugrid = pytest.importorskip("xugrid", reason="needs the extra meanfield[interop]")
    run, path = sphere
    dataset = xugrid.open_dataset(path, engine="h5netcdf")
    grid = dataset.ugrid.grid
    assert grid.n_face == run.mesh.n_cells
    assert grid.n_node == len(run.mesh.nodes)
    assert np.array_equal(grid.face_node_connectivity, run.mesh.cell_nodes)
    assert abs(float(dataset["mesh_face_area"].sum()) - 4 * np.pi) < 1e-8
    assert dataset["density"].dims == ("time", grid.face_dimension)
    assert_density(dataset["density"], run)


def test_xugrid_on_the_circle(tmp_path):
    xugrid = pytest.importorskip("xugrid", reason="needs the extra meanfield[interop]")
    run = evolved(mf.circle(24), tmp_path / "run.nc")
    dataset = xugrid.open_dataset(tmp_path / "run.nc", engine="h5netcdf")
    grid = dataset.ugrid.grid
    assert grid.n_edge == grid.n_node == 24
    assert dataset["density"].dims == ("time", grid.edge_dimension)
    assert np.array_equal(dataset["density"].values, run.density)
    assert np.allclose(dataset["density"]["theta"].values, 2 * np.pi * np.arange(24) / 24)


def test_uxarray(sphere):
    uxarray = pytest.importorskip("uxarray", reason="needs the extra meanfield[interop]")
    run, path = sphere
    dataset = uxarray.open_dataset(path, path, engine="h5netcdf")
    grid = dataset.uxgrid
    assert grid.n_face == run.mesh.n_cells
    assert grid.n_node == len(run.mesh.nodes)
    assert abs(float(dataset["mesh_face_area"].sum()) - 4 * np.pi) < 1e-8
    # Their own areas agree with ours to what their quadrature gives.
    assert np.allclose(grid.face_areas.values, run.mesh.areas, rtol=1e-4)
    assert dataset["density"].dims == ("time", "n_face")
    assert_density(dataset["density"], run)
