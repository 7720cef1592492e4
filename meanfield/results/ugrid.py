"""Meshes as UGRID 1.0 datasets and NetCDF files, and back."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import xarray as xr

from meanfield.errors import FileError, InputError, MeshError
from meanfield.results.files import reason, replacing
from meanfield.results.points import from_degrees, to_degrees
from meanfield.results.provenance import attributes
from meanfield.sphere.connectivity import FILL, build_edges
from meanfield.sphere.geometry import normalize
from meanfield.sphere.meshes import Mesh, circle, polygon_mesh, theta

TOPOLOGY = "mesh"
CONNECTIVITY = "mesh_face_nodes"
CARTESIAN = "node_cartesian_coordinates"  # our attribute of the topology: nodes without rounding
LONGITUDE = {"standard_name": "longitude", "units": "degrees_east"}
LATITUDE = {"standard_name": "latitude", "units": "degrees_north"}
# What xarray, h5netcdf and h5py raise for files that are damaged or of another kind.
READ_ERRORS = (OSError, RuntimeError, ValueError, LookupError, TypeError, AttributeError)
CLASSIC = (b"CDF\x01", b"CDF\x02")


def location(mesh: Mesh) -> str:
    """Where UGRID places the cells of a mesh: "face" on S^2, "edge" on S^1."""
    return "face" if mesh.dimension == 3 else "edge"


def area_name(mesh: Mesh) -> str:
    """The name of the variable with the areas of the cells."""
    return "mesh_face_area" if mesh.dimension == 3 else "mesh_edge_length"


def mesh_dataset(mesh: Mesh) -> xr.Dataset:
    """A mesh as a dataset without global attributes.

    Parameters
    ----------
    mesh : Mesh

    Returns
    -------
    xarray.Dataset
        The topology ``mesh``, its connectivity, nodes (longitude and latitude in degrees, and
        Cartesian), the centres of the cells as coordinates, and their areas in steradians
        (lengths in radians on S^1).

    Examples
    --------
    >>> from meanfield.sphere.icosphere import icosphere
    >>> dataset = mesh_dataset(icosphere(2))
    >>> (
    ...     dataset["mesh_face_nodes"].shape,
    ...     abs(float(dataset["mesh_face_area"].sum()) - 12.566) < 1e-3,
    ... )
    ((162, 6), True)
    """
    return _surface(mesh) if mesh.dimension == 3 else _ring(mesh)


def _surface(mesh: Mesh) -> xr.Dataset:
    topology = {
        "cf_role": "mesh_topology",
        "long_name": "cells on the unit sphere",
        "topology_dimension": np.int32(2),
        "node_coordinates": "mesh_node_lon mesh_node_lat",
        "face_node_connectivity": CONNECTIVITY,
        "face_coordinates": "mesh_face_lon mesh_face_lat",
        "node_dimension": "node",
        "face_dimension": "face",
        CARTESIAN: "mesh_node_x mesh_node_y mesh_node_z",
    }
    corners = {
        "cf_role": "face_node_connectivity",
        "long_name": "corners of each cell, counter-clockwise from outside",
        "start_index": np.int32(0),
    }
    if (mesh.cell_nodes == FILL).any():
        corners["_FillValue"] = np.int32(FILL)
    longitude, latitude = to_degrees(mesh.points)
    centres = {
        "mesh_face_lon": ("face", longitude, {"long_name": "longitude of the centre", **LONGITUDE}),
        "mesh_face_lat": ("face", latitude, {"long_name": "latitude of the centre", **LATITUDE}),
        **_components(mesh.points, "face", "", "centre of the cell"),
    }
    node_longitude, node_latitude = to_degrees(mesh.nodes)
    variables = {
        TOPOLOGY: ((), np.int32(0), topology),
        CONNECTIVITY: (("face", "corner"), mesh.cell_nodes.astype(np.int32), corners),
        "mesh_node_lon": ("node", node_longitude, {"long_name": "longitude of nodes", **LONGITUDE}),
        "mesh_node_lat": ("node", node_latitude, {"long_name": "latitude of nodes", **LATITUDE}),
        **_components(mesh.nodes, "node", "mesh_node_", "node"),
        "mesh_face_area": (
            "face",
            mesh.areas,
            {"long_name": "area of the cell", "standard_name": "cell_area", "units": "sr"},
        ),
    }
    return _dataset(variables, centres, mesh)


def _ring(mesh: Mesh) -> xr.Dataset:
    topology = {
        "cf_role": "mesh_topology",
        "long_name": "arcs of the unit circle",
        "topology_dimension": np.int32(1),
        "node_coordinates": "mesh_node_x mesh_node_y",
        "edge_node_connectivity": "mesh_edge_nodes",
        "edge_coordinates": "x y",
        "node_dimension": "node",
        "edge_dimension": "edge",
        CARTESIAN: "mesh_node_x mesh_node_y",
    }
    ends = {
        "cf_role": "edge_node_connectivity",
        "long_name": "ends of each arc, counter-clockwise",
        "start_index": np.int32(0),
    }
    centres = {
        "theta": ("edge", theta(mesh), {"long_name": "angle of the centre", "units": "radian"}),
        **_components(mesh.points, "edge", "", "centre of the arc"),
    }
    variables = {
        TOPOLOGY: ((), np.int32(0), topology),
        "mesh_edge_nodes": (("edge", "end"), mesh.cell_nodes.astype(np.int32), ends),
        **_components(mesh.nodes, "node", "mesh_node_", "node"),
        "mesh_edge_length": (
            "edge",
            mesh.areas,
            {"long_name": "length of the arc", "units": "radian"},
        ),
    }
    return _dataset(variables, centres, mesh)


def _components(points, dimension: str, prefix: str, what: str) -> dict:
    """Cartesian components as variables."""
    variables = {}
    for name, values in zip("xyz", points.T, strict=False):
        attrs = {"long_name": f"{name} of the {what}", "units": "1"}
        if points.shape[1] == 2:
            attrs["standard_name"] = f"projection_{name}_coordinate"
        variables[prefix + name] = (dimension, np.ascontiguousarray(values), attrs)
    return variables


def _dataset(variables: dict, centres: dict, mesh: Mesh) -> xr.Dataset:
    dataset = xr.Dataset(variables, centres)
    for variable in dataset.variables.values():
        # Without this xarray gives every float variable a _FillValue, coordinates too.
        variable.encoding["_FillValue"] = variable.attrs.pop("_FillValue", None)
    dataset[area_name(mesh)].attrs |= {"mesh": TOPOLOGY, "location": location(mesh)}
    dataset[area_name(mesh)].encoding["coordinates"] = " ".join(centres)
    return dataset


def write_mesh(mesh: Mesh, path, overwrite: bool = False) -> None:
    """Write a mesh as a UGRID NetCDF file, completely or not at all.

    Parameters
    ----------
    mesh : Mesh
    path : path-like
    overwrite : bool

    Raises
    ------
    FileError
        If the file exists and ``overwrite`` is False, or cannot be written.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from meanfield.sphere.icosphere import icosphere
    >>> with TemporaryDirectory() as folder:
    ...     write_mesh(icosphere(1), Path(folder, "mesh.nc"))
    ...     read_mesh(Path(folder, "mesh.nc")).n_cells
    42
    """
    dataset = mesh_dataset(mesh)
    title = f"Mesh {mesh.name}: {mesh.n_cells} cells on S^{mesh.dimension - 1}"
    dataset.attrs = attributes(title, {"verb": "mesh", "mesh": mesh.name})
    with replacing(path, overwrite) as temporary:
        temporary.write_bytes(dataset.to_netcdf(engine="h5netcdf"))


def read_mesh(path) -> Mesh:
    """Read a mesh from any UGRID NetCDF file.

    Parameters
    ----------
    path : path-like
        NetCDF-4 or classic NetCDF with a two-dimensional UGRID topology (found by its
        ``cf_role``) that covers the sphere. Numbers from 0 or 1, fill values, float
        connectivity, either order of its dimensions; nodes as longitude and latitude in degrees
        or radians, or Cartesian in any unit of length.

    Returns
    -------
    Mesh
        Checked by `Mesh.from_cells`. The cell centres are the ``face_coordinates`` of the file
        if the mesh is orthogonal with them, else those that `Mesh.from_cells` chooses.

    Raises
    ------
    FileError
        If the file is missing, unreadable, or holds no such topology.
    MeshError
        If the cells do not cover the sphere as `Mesh.from_cells` demands.

    Examples
    --------
    See `write_mesh`.
    """
    with open_netcdf(path) as dataset:
        topology = _find_topology(dataset, path)
        try:
            if is_ours(dataset, topology):
                return restore_mesh(dataset, _recorded_name(dataset) or str(path))
            return _foreign_mesh(dataset, topology, path)
        except InputError:
            raise
        except READ_ERRORS as error:
            raise FileError(f"{path} is not a complete UGRID file: {reason(error)}") from error


def open_netcdf(path) -> xr.Dataset:
    """Open a NetCDF file without decoding fill values and times.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    xarray.Dataset
        Values are read when they are used; to be closed.

    Raises
    ------
    FileError
        If the file is missing, unreadable, truncated, or of another kind.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            classic = file.read(4) in CLASSIC
    except OSError as error:
        raise FileError(f"cannot read {path}: {reason(error)}") from None
    try:
        if not classic:
            # h5netcdf writes tracebacks to the terminal if it fails half-way.
            with h5py.File(path) as file:
                dict(file.attrs)
        return xr.open_dataset(
            path,
            engine="scipy" if classic else "h5netcdf",
            mask_and_scale=False,
            decode_times=False,
        )
    except READ_ERRORS as error:
        raise FileError(
            f"{path} is not a readable NetCDF file (another format, or cut off): {reason(error)}"
        ) from error


def is_ours(dataset: xr.Dataset, topology: str = TOPOLOGY) -> bool:
    """Whether a mesh was written by this package, so that it can be restored exactly."""
    return CARTESIAN in dataset[topology].attrs


def restore_mesh(dataset: xr.Dataset, name: str) -> Mesh:
    """The mesh of a dataset that `mesh_dataset` made, bit for bit.

    Parameters
    ----------
    dataset : xarray.Dataset
    name : str
        The name of the mesh if its cells are polygons.

    Returns
    -------
    Mesh

    Raises
    ------
    MeshError
        If the cells are not those of a mesh.
    """
    if "mesh_edge_nodes" in dataset:
        mesh = circle(dataset.sizes["edge"])
        if np.abs(_cartesian(dataset, "", 2) - mesh.points).max() > 1e-14:
            raise MeshError("the arcs are not those of a circle with equal arcs")
        return mesh
    nodes, cell_nodes = stored_cells(dataset)
    points = _cartesian(dataset, "")
    if not ((np.abs(nodes) <= 1.001).all() and (np.abs(points) <= 1.001).all()):
        raise MeshError("stored nodes or centres are not on the sphere")
    mesh = polygon_mesh(nodes, cell_nodes, build_edges(cell_nodes), points, name)
    if not abs(mesh.areas.sum() - 4 * np.pi) < 1e-6:
        raise MeshError("the stored cells do not cover the sphere once")
    return mesh


def _recorded_name(dataset: xr.Dataset) -> str | None:
    """The name in the parameters, if it says how the mesh is made."""
    try:
        name = json.loads(dataset.attrs.get("parameters", "{}")).get("mesh", "")
    except json.JSONDecodeError:
        return None
    return name if name.startswith(("icosphere:", "circle:")) else None


def stored_cells(dataset: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Nodes (nodes, 3) and corners (cells, k) of a dataset that `mesh_dataset` made.

    It may have been read from a file with or without decoding of the fill value.

    Returns
    -------
    nodes : ndarray, shape (nodes, 3)
    cell_nodes : ndarray of int32, shape (cells, k), filled up with -1
    """
    corners = dataset[CONNECTIVITY].values
    return _cartesian(dataset, "mesh_node_"), np.nan_to_num(corners, nan=FILL).astype(np.int32)


def _cartesian(dataset: xr.Dataset, prefix: str, dimension: int = 3) -> np.ndarray:
    return np.stack([dataset[prefix + name].values for name in "xyz"[:dimension]], axis=1)


def _find_topology(dataset: xr.Dataset, path) -> str:
    names = [
        name
        for name, variable in dataset.variables.items()
        if variable.attrs.get("cf_role") == "mesh_topology"
    ]
    if not names:
        raise FileError(f'{path} holds no UGRID mesh: no variable has cf_role "mesh_topology"')
    surfaces = [name for name in names if dataset[name].attrs.get("topology_dimension") == 2]
    surfaces += [name for name in names if is_ours(dataset, name) and name not in surfaces]
    if len(surfaces) != 1:
        raise FileError(
            f"{path} holds {len(surfaces)} meshes of topology dimension 2 (topologies: "
            f"{', '.join(names)}): there must be one"
        )
    return surfaces[0]


def _foreign_mesh(dataset: xr.Dataset, topology: str, path) -> Mesh:
    attrs = dataset[topology].attrs
    nodes = _sphere_points(dataset, attrs["node_coordinates"])
    cell_nodes = _connectivity(dataset, attrs)
    mesh = Mesh.from_cells(nodes, cell_nodes, name=str(path))
    if not mesh.orthogonal and "face_coordinates" in attrs:
        points = _sphere_points(dataset, attrs["face_coordinates"])
        candidate = polygon_mesh(
            mesh.nodes, mesh.cell_nodes, build_edges(mesh.cell_nodes), points, mesh.name
        )
        return candidate if candidate.orthogonal else mesh
    return mesh


def _connectivity(dataset: xr.Dataset, attrs: dict) -> np.ndarray:
    """Corners of the cells: (cells, k), numbered from 0, -1 where there is none."""
    variable = dataset[attrs["face_node_connectivity"]]
    table = variable.values
    if attrs.get("face_dimension") == variable.dims[1]:
        table = table.T
    missing = ~np.isfinite(table) | (table < 0)
    for key in ("_FillValue", "missing_value"):
        fill = variable.encoding.get(key, variable.attrs.get(key))
        if fill is not None:
            missing |= table == fill
    start = int(variable.attrs.get("start_index", 0))
    return np.where(missing, FILL, np.where(missing, 0, table).astype(np.int64) - start)


def _sphere_points(dataset: xr.Dataset, names: str) -> np.ndarray:
    """Unit vectors from the coordinate variables that an attribute names."""
    variables = [dataset[name] for name in names.split()]
    if len(variables) == 3:
        return normalize(np.stack([v.values.astype(float) for v in variables], axis=1))
    first, second = variables[:2]
    if _is_latitude(first) and not _is_latitude(second):
        first, second = second, first
    return from_degrees(_degrees(first, 2 * np.pi), _degrees(second, np.pi / 2))


def _is_latitude(variable: xr.DataArray) -> bool:
    name = variable.attrs.get("standard_name", str(variable.name))
    return "lat" in name.lower() or "north" in variable.attrs.get("units", "")


def _degrees(variable: xr.DataArray, full: float) -> np.ndarray:
    """Angles in degrees. Without units: radians where no angle exceeds the ``full`` one."""
    values = variable.values.astype(float)
    units = variable.attrs.get("units", "")
    if units.startswith("rad") or (not units and np.abs(values).max() <= full):
        return np.degrees(values)
    return values
