"""UGRID meshes in all the forms that other programs write."""

import numpy as np
import pytest
import xarray as xr

import meanfield as mf
from meanfield.errors import FileError, MeshError
from meanfield.results.ugrid import mesh_dataset, read_mesh, write_mesh

MESH = mf.icosphere(2)


def plain(mesh=MESH, start=0, fill=-1, dtype=np.int32, degrees=True):
    """A UGRID dataset as another program might write it."""
    longitude = np.arctan2(mesh.nodes[:, 1], mesh.nodes[:, 0])
    latitude = np.arcsin(np.clip(mesh.nodes[:, 2], -1, 1))
    units = {"units": "radian"}, {"units": "radian"}
    if degrees:
        longitude, latitude = np.degrees(longitude), np.degrees(latitude)
        units = {"units": "degrees_east"}, {"units": "degrees_north"}
    missing = mesh.cell_nodes == -1
    corners = np.where(missing, fill, mesh.cell_nodes + start).astype(dtype)
    topology = {
        "cf_role": "mesh_topology",
        "topology_dimension": 2,
        "node_coordinates": "node_x node_y",
        "face_node_connectivity": "corners",
    }
    attrs = {"start_index": start}
    if not np.isnan(fill):
        attrs["_FillValue"] = np.asarray(fill, dtype)[()]
    return xr.Dataset(
        {
            "Mesh2": ((), 0, topology),
            "corners": (("nCells", "nMax"), corners, attrs),
            "node_x": ("nNodes", longitude, units[0] | {"standard_name": "longitude"}),
            "node_y": ("nNodes", latitude, units[1] | {"standard_name": "latitude"}),
        }
    )


def written(dataset, path, **options):
    dataset.to_netcdf(path, **({"engine": "h5netcdf"} | options))
    return path


def assert_close(mesh, expected=MESH):
    assert np.array_equal(mesh.cell_nodes, expected.cell_nodes)
    assert np.allclose(mesh.nodes, expected.nodes, rtol=0, atol=1e-14)
    assert np.allclose(mesh.areas, expected.areas, rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"start": 1},
        {"start": 1, "fill": 0},
        {"fill": 999_999},
        {"fill": np.nan, "dtype": float},
        {"fill": 1e36, "dtype": float, "start": 1},
        {"fill": -1, "dtype": np.int64},
        {"degrees": False},
    ],
    ids=str,
)
def test_numbers_fill_values_and_units(options, tmp_path):
    assert_close(read_mesh(written(plain(**options), tmp_path / "mesh.nc")))


def test_units_may_be_missing(tmp_path):
    for degrees in (True, False):
        dataset = plain(degrees=degrees)
        for name in ("node_x", "node_y"):
            dataset[name].attrs = {}
        assert_close(read_mesh(written(dataset, tmp_path / f"{degrees}.nc")))


def test_latitude_before_longitude(tmp_path):
    dataset = plain()
    dataset["Mesh2"].attrs["node_coordinates"] = "node_y node_x"
    assert_close(read_mesh(written(dataset, tmp_path / "mesh.nc")))


def test_corners_before_cells(tmp_path):
    dataset = plain()
    dataset["Mesh2"].attrs["face_dimension"] = "nCells"
    dataset["corners"] = dataset["corners"].transpose()
    assert_close(read_mesh(written(dataset, tmp_path / "mesh.nc")))


def test_cartesian_nodes_in_kilometres(tmp_path):
    dataset = plain().drop_vars(["node_x", "node_y"])
    for axis, name in enumerate("xyz"):
        dataset[f"node_{name}"] = ("nNodes", 6371.0 * MESH.nodes[:, axis], {"units": "km"})
    dataset["Mesh2"].attrs["node_coordinates"] = "node_x node_y node_z"
    assert_close(read_mesh(written(dataset, tmp_path / "mesh.nc")))


def test_classic_netcdf(tmp_path):
    options = {"engine": "scipy", "format": "NETCDF3_CLASSIC"}
    assert_close(read_mesh(written(plain(), tmp_path / "mesh.nc", **options)))


def test_triangles_keep_their_circumcentres(tmp_path):
    triangles = mf.icosphere(2, cells="triangles")
    mesh = read_mesh(written(plain(triangles), tmp_path / "mesh.nc"))
    assert_close(mesh, triangles)
    assert mesh.orthogonal


def test_voronoi_generators_of_the_file_make_an_orthogonal_mesh(tmp_path):
    dataset = plain()
    assert not read_mesh(written(dataset, tmp_path / "without.nc")).orthogonal
    longitude = np.degrees(np.arctan2(MESH.points[:, 1], MESH.points[:, 0]))
    latitude = np.degrees(np.arcsin(np.clip(MESH.points[:, 2], -1, 1)))
    dataset["face_x"] = ("nCells", longitude, {"units": "degrees_east"})
    dataset["face_y"] = ("nCells", latitude, {"units": "degrees_north"})
    dataset["Mesh2"].attrs["face_coordinates"] = "face_x face_y"
    mesh = read_mesh(written(dataset, tmp_path / "with.nc"))
    assert mesh.orthogonal
    assert np.allclose(mesh.points, MESH.points, rtol=0, atol=1e-14)


def test_inside_out_and_open_meshes_are_not_mended(tmp_path):
    inward = mf.icosphere(2, cells="triangles")
    dataset = plain(inward)
    dataset["corners"] = dataset["corners"][:, ::-1]
    with pytest.raises(MeshError, match="inside-out"):
        read_mesh(written(dataset, tmp_path / "inward.nc"))
    with pytest.raises(MeshError, match="the surface is open"):
        read_mesh(written(plain().isel(nCells=slice(1, None)), tmp_path / "open.nc"))


def test_the_wrong_start_index_is_noticed(tmp_path):
    dataset = plain(start=1)
    dataset["corners"].attrs["start_index"] = 0
    with pytest.raises(MeshError, match="must be -1 or in 0"):
        read_mesh(written(dataset, tmp_path / "mesh.nc"))


def test_files_without_one_mesh(tmp_path):
    with pytest.raises(FileError, match="no UGRID mesh"):
        read_mesh(written(xr.Dataset({"a": 1.0}), tmp_path / "none.nc"))
    two = plain()
    two["other"] = two["Mesh2"]
    with pytest.raises(FileError, match="holds 2 meshes of topology dimension 2"):
        read_mesh(written(two, tmp_path / "two.nc"))
    line = plain()
    line["Mesh2"].attrs["topology_dimension"] = 1
    with pytest.raises(FileError, match="holds 0 meshes of topology dimension 2"):
        read_mesh(written(line, tmp_path / "line.nc"))


@pytest.mark.parametrize("name", ["corners", "node_x", "node_y"])
def test_a_missing_variable_is_named(name, tmp_path):
    dataset = plain().drop_vars(name)
    with pytest.raises(FileError, match=f"not a complete UGRID file: .*{name}"):
        read_mesh(written(dataset, tmp_path / "mesh.nc"))


def test_missing_attributes(tmp_path):
    for name in ("node_coordinates", "face_node_connectivity"):
        dataset = plain()
        del dataset["Mesh2"].attrs[name]
        with pytest.raises(FileError, match=f"not a complete UGRID file: .*{name}"):
            read_mesh(written(dataset, tmp_path / f"{name}.nc"))


def test_missing_file(tmp_path):
    with pytest.raises(FileError, match="No such file"):
        read_mesh(tmp_path / "mesh.nc")


@pytest.mark.parametrize(
    "mesh", [mf.icosphere(3), mf.icosphere(2, cells="triangles"), mf.circle(12)], ids=str
)
def test_own_meshes_come_back_bit_for_bit(mesh, tmp_path):
    write_mesh(mesh, tmp_path / "mesh.nc")
    again = read_mesh(tmp_path / "mesh.nc")
    assert again.name == mesh.name
    for name in ("nodes", "cell_nodes", "points", "weights", "edge_distances", "edge_normals"):
        assert np.array_equal(getattr(again, name), getattr(mesh, name)), name


def test_a_mesh_without_a_telling_name_is_named_after_its_file(tmp_path):
    mesh = mf.Mesh.from_cells(MESH.nodes, MESH.cell_nodes)
    write_mesh(mesh, tmp_path / "mesh.nc")
    assert read_mesh(tmp_path / "mesh.nc").name == str(tmp_path / "mesh.nc")


def test_an_existing_mesh_file_is_kept(tmp_path):
    write_mesh(mf.circle(5), tmp_path / "mesh.nc")
    with pytest.raises(FileError, match="exists"):
        write_mesh(MESH, tmp_path / "mesh.nc")
    write_mesh(MESH, tmp_path / "mesh.nc", overwrite=True)
    assert read_mesh(tmp_path / "mesh.nc").n_cells == MESH.n_cells


def test_nodes_are_where_their_longitudes_say():
    dataset = mesh_dataset(MESH)
    latitude = np.radians(dataset["mesh_node_lat"].values)
    longitude = np.radians(dataset["mesh_node_lon"].values)
    assert np.allclose(np.cos(latitude) * np.sin(longitude), MESH.nodes[:, 1], rtol=0, atol=1e-15)
    assert np.array_equal(dataset["mesh_node_y"].values, MESH.nodes[:, 1])
