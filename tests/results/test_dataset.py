"""Saved evolutions: conventions, round trips bit for bit, and files that must be refused."""

import json
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

import meanfield as mf
from meanfield.errors import FileError
from meanfield.results.dataset import SERIES, evolution_dataset, open_run, save_dataset

MESH_ARRAYS = (
    "points", "weights", "nodes", "cell_nodes", "areas", "centroids", "edge_cells", "edge_slots",
    "edge_nodes", "edge_lengths", "edge_distances", "edge_midpoints", "edge_normals",
)  # fmt: skip


def assert_same_mesh(a, b):
    for name in MESH_ARRAYS:
        assert np.array_equal(getattr(a, name), getattr(b, name)), name
    assert a.orthogonal == b.orthogonal


def evolve_on(mesh, **options):
    D = [0.5, 1.0, 2.0][: mesh.dimension]
    mean = [0.3, -0.5, 0.8][: mesh.dimension]
    options = {"sign": -1} | options
    model = mf.SelfAttention(D, **options)
    return mf.evolve(mesh, model, mf.von_mises_fisher(mean, 2.0), t_end=0.2, save=4)


@pytest.fixture(scope="module")
def sphere_run():
    return evolve_on(mf.icosphere(2))


@pytest.fixture(scope="module")
def circle_run():
    return evolve_on(mf.circle(32))


@pytest.fixture
def saved(sphere_run, tmp_path):
    sphere_run.save(tmp_path / "run.nc")
    return tmp_path / "run.nc"


def off_centre_cells():
    """A mesh with a name that says nothing and centres that are not the default ones."""
    mesh = mf.icosphere(2)
    points = mesh.points + 1e-6 * np.sin(np.arange(3 * mesh.n_cells)).reshape(-1, 3)
    return mf.Mesh.from_cells(mesh.nodes, mesh.cell_nodes, points=points)


@pytest.mark.parametrize(
    "run",
    [
        evolve_on(mf.icosphere(2)),
        evolve_on(mf.icosphere(1, cells="triangles", centroidal=False)),
        evolve_on(off_centre_cells()),
        evolve_on(mf.circle(32)),
        evolve_on(mf.circle(16), sign=None, V=[[0.0, -1.0], [1.0, 0.0]]),
        evolve_on(mf.circle(16), sign=1, normalized=False),
    ],
    ids=lambda run: f"{run.mesh.name}, {run.model.sign}",
)
def test_round_trip_is_bit_for_bit(run, tmp_path):
    run.save(tmp_path / "run.nc")
    again = open_run(tmp_path / "run.nc")
    assert_same_mesh(again.mesh, run.mesh)
    assert again.mesh.name == run.mesh.name
    for name in ("times", "masses"):
        assert np.array_equal(getattr(again, name), getattr(run, name))
    assert set(again.audit) == set(run.audit)
    for name, values in run.audit.items():
        assert np.array_equal(again.audit[name], values, equal_nan=True), name
    assert np.array_equal(again.model.D, run.model.D)
    assert np.array_equal(again.model.V, run.model.V)
    assert again.model.sign == run.model.sign
    assert again.model.normalized == run.model.normalized
    assert again.parameters == run.parameters


def test_the_audit_has_descriptions(sphere_run):
    assert set(sphere_run.audit) == set(SERIES)


def test_conventions_on_the_sphere(saved, sphere_run):
    with xr.open_dataset(saved, engine="h5netcdf", mask_and_scale=False) as stored:
        stored.load()
    topology = stored["mesh"]
    assert topology.ndim == 0
    assert topology.attrs["cf_role"] == "mesh_topology"
    assert topology.attrs["topology_dimension"] == 2
    assert topology.attrs["face_dimension"] == "face"
    for role in ("node_coordinates", "face_coordinates"):
        longitude, latitude = (stored[name] for name in topology.attrs[role].split())
        assert longitude.attrs["units"] == "degrees_east"
        assert latitude.attrs["units"] == "degrees_north"
    corners = stored[topology.attrs["face_node_connectivity"]]
    assert corners.dtype == np.int32
    assert corners.attrs["start_index"] == 0
    assert corners.attrs["_FillValue"] == -1
    assert (corners.values == -1).sum() == 12  # the pentagons
    assert abs(stored["mesh_face_area"].sum() - 4 * np.pi) < 1e-12
    for name in ("density", "mass"):
        variable = stored[name]
        assert variable.dims == ("time", "face")
        assert variable.attrs["location"] == "face"
        assert variable.attrs["mesh"] == "mesh"
        assert variable.attrs["cell_measures"] == "area: mesh_face_area"
        assert variable.encoding["coordinates"].startswith("mesh_face_lon mesh_face_lat")
    expected = sphere_run.masses / sphere_run.mesh.weights
    assert np.array_equal(stored["density"].values, expected)


def test_conventions_on_the_circle(circle_run, tmp_path):
    circle_run.save(tmp_path / "run.nc")
    with xr.open_dataset(tmp_path / "run.nc", engine="h5netcdf") as stored:
        stored.load()
    assert stored["mesh"].attrs["topology_dimension"] == 1
    ends = stored["mesh_edge_nodes"].values
    assert ends.dtype == np.int32
    assert np.array_equal(ends[:, 1], np.roll(ends[:, 0], -1))  # closed
    assert np.array_equal(np.sort(ends[:, 0]), np.arange(32))
    assert stored["density"].dims == ("time", "edge")
    assert stored["density"].attrs["location"] == "edge"
    assert np.allclose(stored["theta"], 2 * np.pi * np.arange(32) / 32, rtol=0, atol=1e-14)
    assert abs(stored["mesh_edge_length"].sum() - 2 * np.pi) < 1e-13


def test_longitudes_and_latitudes_are_those_of_the_points(sphere_run):
    dataset = evolution_dataset(sphere_run)
    longitude = np.radians(dataset["mesh_face_lon"].values)
    latitude = np.radians(dataset["mesh_face_lat"].values)
    x = np.cos(latitude) * np.cos(longitude)
    assert np.allclose(x, sphere_run.mesh.points[:, 0], rtol=0, atol=1e-15)
    assert np.allclose(np.sin(latitude), sphere_run.mesh.points[:, 2], rtol=0, atol=1e-15)


def test_only_the_connectivity_has_a_fill_value(saved):
    with h5py.File(saved) as file:
        filled = [name for name in file if "_FillValue" in file[name].attrs]
        assert filled == ["mesh_face_nodes"]
        assert file["density"].maxshape == (None, 162)
        assert all("units" in file[name].attrs for name in ("time", "density", *SERIES))


def test_triangles_need_no_fill_value():
    dataset = evolution_dataset(evolve_on(mf.icosphere(1, cells="triangles")))
    assert dataset["mesh_face_nodes"].encoding["_FillValue"] is None


def test_attributes_are_strings_that_say_where_the_run_comes_from(sphere_run):
    attrs = evolution_dataset(sphere_run).attrs
    assert all(isinstance(value, str) for value in attrs.values())
    assert attrs["Conventions"] == "CF-1.11 UGRID-1.0"
    assert attrs["source"] == f"meanfield {mf.__version__}"
    parameters = json.loads(attrs["parameters"])
    assert parameters["D"] == np.diag([0.5, 1.0, 2.0]).tolist()
    assert parameters["density"]["kind"] == "vmf"
    assert "numpy" in json.loads(attrs["environment"])["packages"]


def test_a_run_without_parameters_still_says_its_model(circle_run, tmp_path):
    bare = mf.Evolution(
        circle_run.times, circle_run.masses, circle_run.mesh, circle_run.model, circle_run.audit
    )
    bare.save(tmp_path / "run.nc")
    assert np.array_equal(open_run(tmp_path / "run.nc").model.V, circle_run.model.V)


def test_parts_of_a_dataset_can_be_saved(sphere_run, tmp_path):
    part = evolution_dataset(sphere_run).isel(time=-1)
    save_dataset(part, tmp_path / "part.nc")
    with xr.open_dataset(tmp_path / "part.nc", engine="h5netcdf") as stored:
        assert np.array_equal(stored["mass"].values, sphere_run.masses[-1])


def test_an_existing_file_is_kept_unless_told_otherwise(saved, circle_run):
    before = saved.read_bytes()
    with pytest.raises(FileError, match="exists: choose another name or allow overwriting"):
        circle_run.save(saved)
    assert saved.read_bytes() == before
    circle_run.save(saved, overwrite=True)
    assert open_run(saved).mesh.name == "circle:32"
    assert os.listdir(saved.parent) == ["run.nc"]


def test_outputs_that_cannot_be(circle_run, tmp_path):
    with pytest.raises(FileError, match="does not exist"):
        circle_run.save(tmp_path / "nowhere" / "run.nc")
    with pytest.raises(FileError, match="is a folder"):
        circle_run.save(tmp_path)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder nobody can write to")
def test_a_folder_that_cannot_be_written_to(circle_run):
    with pytest.raises(FileError, match="/proc"):
        circle_run.save("/proc/run.nc")


FULL_DISK = """
import resource, sys
import meanfield as mf
run = mf.evolve(mf.circle(500), mf.SelfAttention([1.0, 2.0]), mf.uniform(), 0.01, save=20)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
try:
    run.save(sys.argv[1], overwrite=True)
except mf.errors.FileError as error:
    print(error)
"""


@pytest.mark.parametrize("limit", [0, 1000, 100_000, 200_000])
def test_a_full_disk_leaves_the_old_file(saved, limit):
    before = saved.read_bytes()
    command = [sys.executable, "-c", FULL_DISK, str(saved), str(limit)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert answer.stdout == f"cannot write {saved}: File too large\n"
    assert answer.stderr == ""
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == ["run.nc"]


def test_missing_and_foreign_files(tmp_path):
    with pytest.raises(FileError, match=r"cannot read .*No such file"):
        open_run(tmp_path / "run.nc")
    (tmp_path / "text.nc").write_text("not a NetCDF file")
    with pytest.raises(FileError, match="not a readable NetCDF file"):
        open_run(tmp_path / "text.nc")
    (tmp_path / "empty.nc").touch()
    with pytest.raises(FileError, match="not a readable NetCDF file"):
        open_run(tmp_path / "empty.nc")
    xr.Dataset({"a": 1.0}).to_netcdf(tmp_path / "foreign.nc", engine="h5netcdf")
    with pytest.raises(FileError, match="no evolution saved by meanfield"):
        open_run(tmp_path / "foreign.nc")


@pytest.mark.parametrize("part", [0.01, 0.2, 0.5, 0.9, 0.999])
def test_files_that_were_cut_off(saved, part):
    content = saved.read_bytes()
    saved.write_bytes(content[: int(part * len(content))])
    with pytest.raises(FileError, match="not a readable NetCDF file"):
        open_run(saved)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("time", np.nan, "incomplete: it was given up before its first frame"),
        ("mass", np.nan, "damaged: frame 0 is not what was saved"),
        ("mass", -0.5, "damaged: frame 0 is not what was saved"),
        ("mass", 0.5, "damaged: frame 0 is not what was saved"),
        ("density", 1.0, "damaged: frame 0 is not what was saved"),
        ("mesh_node_x", np.nan, "damaged"),
        ("mesh_node_x", 0.0, "damaged"),
        ("mesh_face_nodes", 7, "damaged"),
        ("mesh_face_nodes", 10**6, "damaged"),
        ("x", 0.0, "damaged"),
    ],
)
def test_damaged_values(saved, name, value, message):
    with h5py.File(saved, "r+") as file:
        file[name][...] = value
    with pytest.raises(FileError, match=message):
        open_run(saved)


def test_flipped_bytes_are_noticed_or_do_not_matter(saved, sphere_run):
    content = saved.read_bytes()
    generator = np.random.default_rng(0)
    refused = 0
    for _ in range(60):
        damaged = bytearray(content)
        for place in generator.integers(len(content), size=5):
            damaged[place] = generator.integers(256)
        saved.write_bytes(damaged)
        try:
            masses = open_run(saved).masses
        except FileError:
            refused += 1
        else:
            assert np.allclose(masses, sphere_run.masses, rtol=1e-11, atol=0)
    assert refused > 20


@pytest.mark.parametrize("name", ["mass", "time", "mesh", "mesh_face_nodes", "mesh_node_z"])
def test_missing_variables(saved, name):
    with h5py.File(saved, "r+") as file:
        del file[name]
    with pytest.raises(FileError):
        open_run(saved)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"verb": "evolve"}', '{"verb": "evolve", "mesh": "a", "D": 3}']
)
def test_damaged_parameters(saved, text):
    with h5py.File(saved, "r+") as file:
        file.attrs["parameters"] = text
    with pytest.raises(FileError):
        open_run(saved)


def test_an_incomplete_file_says_how_far_it_got(saved):
    with h5py.File(saved, "r+") as file:
        file["time"][2:] = np.nan
    with pytest.raises(FileError, match=r"incomplete: 2 of 4 frames, up to t = 0.0666667"):
        open_run(saved)
    assert len(open_run(saved, partial=True).times) == 2


def test_huge_parameters_survive(circle_run, tmp_path):
    parameters = circle_run.parameters | {"save": np.linspace(0, 1, 20_000).tolist()}
    run = mf.Evolution(
        circle_run.times,
        circle_run.masses,
        circle_run.mesh,
        circle_run.model,
        circle_run.audit,
        parameters,
    )
    run.save(tmp_path / "run.nc")
    assert open_run(tmp_path / "run.nc").parameters == parameters
