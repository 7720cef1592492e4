"""Evolutions as datasets and NetCDF files, and back."""

from __future__ import annotations

import json

import numpy as np
import xarray as xr

from meanfield.dynamics.evolution import Evolution
from meanfield.errors import FileError
from meanfield.model.attention import SelfAttention
from meanfield.model.heads import MultiHead
from meanfield.results.files import reason, replacing
from meanfield.results.provenance import attributes
from meanfield.results.ugrid import (
    READ_ERRORS,
    TOPOLOGY,
    area_name,
    is_ours,
    location,
    mesh_dataset,
    open_netcdf,
    restore_mesh,
)
from meanfield.sphere.meshes import Mesh

CHUNK_BYTES = 2**16
STATE = "audit_state"
MASS_TOLERANCE = 1e-9  # a row of masses that is farther from one is damaged
DENSITY_TOLERANCE = 1e-12  # relative; areas may differ in the last digit between machines

# The series of the audit: what they are and their units.
SERIES = {
    "mass_error": ("sum of the masses minus one", "1"),
    "log_energy": ("logarithm of the energy", "1"),
    "energy": ("energy E = int int exp(x.Dy) dmu dmu", "1"),
    "dissipation": ("dissipation int Z |v|^2 dmu, dE/dt = 2 sign dissipation", "1"),
    "residual": ("log E minus its change by the fluxes: time error", "1"),
    "residual_independent": ("log E minus its change by the dissipation integral", "1"),
    "cfl": ("largest CFL number so far", "1"),
    "min_density": ("smallest density of a cell", "1"),
    "cells_99": ("number of cells that hold 99 % of the mass", "1"),
    "steps": ("number of time steps so far", "1"),
}


def evolution_dataset(run: Evolution) -> xr.Dataset:
    """An evolution as a CF and UGRID 1.0 dataset.

    Parameters
    ----------
    run : Evolution

    Returns
    -------
    xarray.Dataset
        ``density`` (relative to the uniform probability measure) and ``mass`` on (time, face),
        or (time, edge) on S^1; the audit on (time,); the mesh; and the attribute
        ``parameters``, a JSON string that rebuilds the run.

    Examples
    --------
    >>> import meanfield as mf
    >>> model = mf.SelfAttention([1.0, 2.0], sign=-1)
    >>> run = mf.evolve(mf.circle(8), model, mf.uniform(), t_end=0.1, save=3)
    >>> dataset = evolution_dataset(run)
    >>> dict(dataset["density"].sizes), dataset["density"].attrs["units"]
    ({'time': 3, 'edge': 8}, '1')
    """
    parameters = known_parameters(run.mesh, run.model, run.parameters)
    return run_dataset(run.mesh, parameters, run.times, run.masses, run.audit, run.state)


def known_parameters(mesh, model: SelfAttention, parameters: dict) -> dict:
    """Parameters of a run, with the mesh and the model even if the others are unknown."""
    known = {
        "verb": "evolve",
        "mesh": mesh.name,
        "D": model.D.tolist(),
        "V": model.V.tolist(),
        "sign": model.sign,
        "normalized": model.normalized,
    }
    return known | parameters


def run_dataset(mesh, parameters: dict, times, masses, audit, state=None) -> xr.Dataset:
    """The dataset of a run from its arrays; with no frames it is the head of a recording.

    Parameters
    ----------
    mesh : Mesh
    parameters : dict
    times : array_like, shape (t,)
    masses : array_like, shape (t, cells)
    audit : dict of str to array_like, shape (t,)
    state : array_like, shape (t, 2), optional
        Accumulated integrals of the audit, from which a run can be continued.

    Returns
    -------
    xarray.Dataset
    """
    dataset = mesh_dataset(mesh)
    place = location(mesh)
    on_cells = {
        "mesh": TOPOLOGY,
        "location": place,
        "cell_measures": f"area: {area_name(mesh)}",
        "units": "1",
    }
    if place == "edge":
        del on_cells["cell_measures"]  # CF knows measures of areas and volumes only
    masses = np.asarray(masses)
    time_attrs = {"long_name": "nondimensional time", "units": "1", "axis": "T"}
    dataset = dataset.assign_coords(time=("time", np.asarray(times, dtype=float), time_attrs))
    dataset["density"] = (
        ("time", place),
        masses / mesh.weights,
        {"long_name": "density relative to the uniform probability measure", **on_cells},
    )
    dataset["mass"] = (("time", place), masses, {"long_name": "mass of the cell", **on_cells})
    for name in ("density", "mass"):
        dataset[name].encoding["coordinates"] = dataset[area_name(mesh)].encoding["coordinates"]
    for name, values in audit.items():
        long_name, units = SERIES.get(name, (name.replace("_", " "), "1"))
        dataset[name] = ("time", np.asarray(values), {"long_name": long_name, "units": units})
    if state is not None:
        long_name = "log E as the fluxes, respectively the dissipation integral, add it up"
        attrs = {"long_name": long_name, "units": "1"}
        dataset[STATE] = (("time", "integral"), np.asarray(state), attrs)
    dataset.attrs = attributes(_title(mesh, parameters), parameters)
    return dataset


def _title(mesh, parameters: dict) -> str:
    D = np.asarray(parameters["D"], dtype=float)
    diagonal = np.array_equal(D, np.diag(np.diag(D)))
    rows = [", ".join(f"{entry:g}" for entry in row) for row in ([np.diag(D)] if diagonal else D)]
    text = f"diag({rows[0]})" if diagonal else f"[{'; '.join(rows)}]"
    sign = parameters["sign"]
    flow = "general V" if sign is None else f"sign {sign:+d}"
    flow += "" if parameters["normalized"] else ", not normalised"
    return f"Mean-field self-attention on {mesh.name}: D = {text}, {flow}"


def save_dataset(dataset: xr.Dataset, path, overwrite: bool = False) -> None:
    """Write a dataset as a NetCDF-4 file, completely or not at all.

    Parameters
    ----------
    dataset : xarray.Dataset
    path : path-like
    overwrite : bool
        Whether an existing file may be replaced.

    Raises
    ------
    FileError
        If the file exists and ``overwrite`` is False, the folder is missing or read-only, or
        writing fails; an earlier file is then as it was.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "run.nc")
    ...     save_dataset(xr.Dataset({"a": ("x", [1.0, 2.0])}), path)
    ...     xr.load_dataset(path, engine="h5netcdf")["a"].values.tolist()
    [1.0, 2.0]
    """
    with replacing(path, overwrite) as temporary:
        temporary.write_bytes(netcdf_bytes(dataset, dataset.sizes.get("time", 0)))


def netcdf_bytes(dataset: xr.Dataset, frames: int) -> memoryview:
    """A dataset as the bytes of a NetCDF-4 file, with an unlimited time dimension if any.

    Written in memory, because HDF5 may crash instead of raising when a disk is full.

    Parameters
    ----------
    dataset : xarray.Dataset
    frames : int
        How many frames there will be; chunks hold whole frames and about 64 KiB.
    """
    encoding = {}
    for name, variable in dataset.variables.items():
        if variable.dims[:1] == ("time",):
            row = variable.dtype.itemsize * int(np.prod(variable.shape[1:]))
            chunk = max(1, min(frames, CHUNK_BYTES // row))
            encoding[name] = {"_FillValue": None, "chunksizes": (chunk, *variable.shape[1:])}
    unlimited = ["time"] if "time" in dataset.dims else None
    return dataset.to_netcdf(engine="h5netcdf", encoding=encoding, unlimited_dims=unlimited)


def open_run(path, partial: bool = False) -> Evolution:
    """Read a saved evolution back.

    Parameters
    ----------
    path : path-like
    partial : bool
        Also take a run that was stopped (``NAME.nc.partial``): the frames that there are.

    Returns
    -------
    Evolution
        Bit for bit the one that was saved.

    Raises
    ------
    FileError
        If the file is missing, unreadable, cut off, damaged, incomplete, or is no evolution
        that this package saved.

    Examples
    --------
    >>> import meanfield as mf
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> model = mf.SelfAttention([1.0, 2.0], sign=-1)
    >>> run = mf.evolve(mf.circle(8), model, mf.uniform(), t_end=0.1, save=3)
    >>> with TemporaryDirectory() as folder:
    ...     run.save(Path(folder, "run.nc"))
    ...     again = open_run(Path(folder, "run.nc"))
    >>> bool((again.masses == run.masses).all())
    True
    """
    with open_frames(path, partial) as dataset:
        try:
            mesh, model, parameters = restore_setting(dataset)
            masses = dataset["mass"].values
            _check_masses(masses, dataset["density"].values, mesh)
            return Evolution(
                times=dataset["time"].values,
                masses=masses,
                mesh=mesh,
                model=model,
                audit=stored_audit(dataset),
                parameters=parameters,
                state=dataset[STATE].values if STATE in dataset else None,
            )
        except READ_ERRORS as error:
            raise FileError(f"{path} is damaged: {reason(error)}") from error


def open_frames(path, partial: bool = False) -> xr.Dataset:
    """The dataset of a saved evolution, checked to be ours and complete.

    Parameters
    ----------
    path : path-like
    partial : bool
        Also take an incomplete file; frames that were not written are dropped.

    Returns
    -------
    xarray.Dataset
        Without decoded fill values; values are read when they are used. To be closed.

    Raises
    ------
    FileError
        As `open_run`.
    """
    dataset = open_netcdf(path)
    if stored_verb(dataset) != "evolve" or not {"time", "mass", TOPOLOGY} <= set(dataset.variables):
        raise FileError(f"{path} is no evolution saved by meanfield (`meanfield info` says more)")
    if not is_ours(dataset):
        raise FileError(f"{path} is damaged: its mesh is not complete")
    return written_frames(dataset, path, partial)


def written_frames(dataset: xr.Dataset, path, partial: bool) -> xr.Dataset:
    """The frames of a dataset that were written, all of them unless ``partial``.

    Raises
    ------
    FileError
        If there are none, or some are missing and ``partial`` is False.
    """
    written = np.isfinite(dataset["time"].values)
    if not written.any():
        raise FileError(f"{path} is incomplete: it was given up before its first frame")
    if written.all():
        return dataset
    if not partial:
        raise FileError(
            f"{path} is incomplete: {written.sum()} of {len(written)} frames, up to "
            f"t = {dataset['time'].values[written][-1]:g} (open_run(path, partial=True) reads them)"
        )
    return dataset.isel(time=written)


def restore_setting(dataset: xr.Dataset) -> tuple[Mesh, SelfAttention, dict]:
    """The mesh, the model and the parameters of a saved evolution."""
    parameters = json.loads(dataset.attrs["parameters"])
    return restore_mesh(dataset, parameters["mesh"]), restore_model(parameters), parameters


def restore_model(parameters: dict) -> SelfAttention | MultiHead:
    """The model of a saved run from its parameters.

    Examples
    --------
    >>> restore_model({"D": [1.0, 2.0], "V": None, "sign": -1, "normalized": True}).sign
    -1
    """
    if "heads" in parameters:
        heads = [restore_model(head) for head in parameters["heads"]]
        return MultiHead(heads, parameters["combine"])
    sign = parameters["sign"]
    value = {"V": parameters["V"]} if sign is None else {"sign": sign}
    return SelfAttention(parameters["D"], normalized=parameters["normalized"], **value)


def stored_audit(dataset: xr.Dataset) -> dict[str, np.ndarray]:
    """The series of the audit in a dataset: everything else that depends on time only."""
    return {
        str(name): variable.values
        for name, variable in dataset.variables.items()
        if variable.dims == ("time",) and name != "time"
    }


def stored_verb(dataset: xr.Dataset) -> str | None:
    """Which kind of result a dataset holds, e.g. "evolve"; None if it is not ours."""
    if not str(dataset.attrs.get("source", "")).startswith("meanfield "):
        return None
    try:
        return json.loads(dataset.attrs["parameters"])["verb"]
    except (KeyError, TypeError, ValueError):
        return None


def _check_masses(masses: np.ndarray, density: np.ndarray, mesh: Mesh) -> None:
    """Masses are probabilities, and say the same as the densities that are stored beside."""
    if masses.shape[1] != mesh.n_cells:
        raise FileError(f"{masses.shape[1]} masses on {mesh.n_cells} cells")
    good = (masses >= 0).all(axis=1) & (np.abs(masses.sum(axis=1) - 1) <= MASS_TOLERANCE)
    good &= (np.abs(masses / mesh.weights - density) <= DENSITY_TOLERANCE * density).all(axis=1)
    if not good.all():
        raise FileError(f"frame {int((~good).argmax())} is not what was saved")
