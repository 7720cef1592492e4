"""Geodesics of W_m as datasets: the states in between, their velocities, and the distance."""

from __future__ import annotations

import numpy as np
import xarray as xr

from meanfield.results.provenance import attributes
from meanfield.results.ugrid import TOPOLOGY, area_name, location, mesh_dataset
from meanfield.results.variables import positions, series, time_axis
from meanfield.transport.geodesic import Geodesic


def geodesic_dataset(result: Geodesic) -> xr.Dataset:
    """A geodesic as a dataset.

    Parameters
    ----------
    result : Geodesic

    Returns
    -------
    xarray.Dataset
        Dimensions ``time`` (from 0 to 1) and ``interval`` between the times, with the coordinate
        ``interval_time``. Clouds: ``x``, ``y``, ``z`` (n > 3: ``position``) on (time, point) and
        ``weight`` (point). Meshes: UGRID, with ``density`` and ``mass`` on (time, face). For
        both ``velocity`` on (interval, point or face, component), ``speed`` (interval), and the
        scalars ``distance``, ``lower``, ``upper``, ``residual``, ``converged``.

    Examples
    --------
    >>> from meanfield.transport.mobility import mobility_distance
    >>> found = mobility_distance([[1.0, 0.0]], [[0.0, 1.0]], 1.0, steps=4, particles=1)
    >>> dataset = geodesic_dataset(found)
    >>> dict(dataset.sizes), float(dataset["distance"]) == found.distance
    ({'time': 5, 'point': 1, 'interval': 4, 'component': 2}, True)
    """
    dataset, place = _cells(result) if result.kind == "mesh" else _particles(result)
    middles = (result.times[:-1] + result.times[1:]) / 2
    dataset = dataset.assign_coords(
        time=time_axis(result.times),
        interval_time=series(middles, ("interval",), "middle of the interval"),
    )
    dataset["velocity"] = series(
        result.velocities, ("interval", place, "component"), "velocity in the interval"
    )
    dataset["speed"] = series(result.speed, ("interval",), "speed in W_m, (int Z |v|^2 dmu)^(1/2)")
    scalars = {
        "distance": (result.distance, "distance W_m"),
        "lower": (result.lower, "sqrt(C) W_2, not above W_m"),
        "upper": (result.upper, "sqrt(C~) W_2, not below W_m"),
        "residual": (result.residual, "how far from stationary, relative"),
        "converged": (np.int8(result.converged), "1 if the residual is within the tolerance"),
    }
    for name, (value, long_name) in scalars.items():
        dataset[name] = series(value, (), long_name)
    dataset.attrs = attributes(_title(result), result.parameters)
    return dataset


def _particles(result: Geodesic) -> tuple[xr.Dataset, str]:
    data = positions(result.points, ("time", "point"), "particles")
    data["weight"] = series(result.masses, ("point",), "weight of the particle")
    return xr.Dataset(data), "point"


def _cells(result: Geodesic) -> tuple[xr.Dataset, str]:
    mesh = result.mesh
    dataset, place = mesh_dataset(mesh), location(mesh)
    on_cells = {"mesh": TOPOLOGY, "location": place}
    if place == "face":  # CF knows measures of areas and volumes only
        on_cells["cell_measures"] = f"area: {area_name(mesh)}"
    density = "density relative to the uniform probability measure"
    for name, values, long_name in (
        ("density", result.masses / mesh.weights, density),
        ("mass", result.masses, "mass of the cell"),
    ):
        dataset[name] = series(values, ("time", place), long_name, **on_cells)
        dataset[name].encoding["coordinates"] = dataset[area_name(mesh)].encoding["coordinates"]
    return dataset, place


def _title(result: Geodesic) -> str:
    where = (
        f"on {result.mesh.name}" if result.kind == "mesh" else f"of {len(result.masses)} particles"
    )
    D = np.asarray(result.parameters["D"], dtype=float)
    factor = result.parameters.get("factor", 1.0)
    if not D.any():
        kernel = f"K = {factor:g}"
    else:
        diagonal = np.array_equal(D, np.diag(np.diag(D)))
        kernel = (
            f"D = diag({', '.join(f'{x:g}' for x in np.diag(D))})" if diagonal else "K = exp(x.Dy)"
        )
    return f"Geodesic {where}: {kernel}, distance {result.distance:.6g}"
