"""Results of `minimize` and `maximize` as datasets: the density, and how it was found."""

from __future__ import annotations

import numpy as np
import xarray as xr

from meanfield.equilibria.exact import exact_minimizer
from meanfield.equilibria.extremum import Extremum
from meanfield.errors import ComputationError, FileError
from meanfield.results.provenance import attributes
from meanfield.results.ugrid import TOPOLOGY, area_name, location, mesh_dataset, open_netcdf
from meanfield.results.variables import positions, series
from meanfield.sphere.meshes import Mesh

HISTORY = {
    "applications": "applications of the kernel so far",
    "log_energy": "logarithm of the energy",
    "energy": "energy, int int exp(x.Dy) dmu dmu",
    "gap": "2 (E - min Z), which bounds the energy minus its minimum",
    "stationarity": "2 (E - min Z), for a maximum 2 (max Z - E)",
}


def extremum_dataset(result) -> xr.Dataset:
    """A result of `minimize` or `maximize` as a dataset.

    Parameters
    ----------
    result : Extremum

    Returns
    -------
    xarray.Dataset
        On the cells of a mesh (UGRID) or the dimension ``point`` with ``x``, ``y``, ``z`` and
        ``quadrature_weight``: ``density``, relative to the uniform probability measure,
        ``mass``, and ``exact_density``, the exact minimiser, where it is known. On
        ``iteration``: the history, with ``stationarity`` for ``gap`` where it certifies
        nothing. Scalars: ``final_energy``, ``converged``, ``residual``.

    Examples
    --------
    >>> import meanfield as mf
    >>> from meanfield.equilibria.mirror_descent import minimize
    >>> found = minimize(mf.lebedev(15), mf.Interaction([1.0, 1.1, 1.2]))
    >>> dataset = extremum_dataset(found)
    >>> dataset.sizes["point"], sorted(dataset.data_vars)[:3]
    (86, ['applications', 'converged', 'density'])
    """
    space, mesh = result.space, isinstance(result.space, Mesh)
    dataset, place = (mesh_dataset(space), location(space)) if mesh else _points(space)
    on_nodes = {"units": "1"}
    if mesh:
        on_nodes |= {"mesh": TOPOLOGY, "location": place}
        if place == "face":  # CF knows measures of areas and volumes only
            on_nodes["cell_measures"] = f"area: {area_name(space)}"
    values = {
        "density": (result.density, "density relative to the uniform probability measure"),
        "mass": (result.masses, "mass of the cell" if mesh else "mass of the point"),
    }
    exact = _exact(result)
    if exact is not None:
        values["exact_density"] = (exact, "density of the exact minimiser over the sphere")
    for name, (array, long_name) in values.items():
        dataset[name] = series(array, (place,), long_name, **on_nodes)
        if mesh:
            coordinates = dataset[area_name(space)].encoding["coordinates"]
            dataset[name].encoding["coordinates"] = coordinates
    for name, array in result.history.items():
        name = "stationarity" if name == "gap" and not result.certified else name
        dataset[name] = series(array, ("iteration",), HISTORY[name])
    scalars = {
        "final_energy": (result.energy, "energy of the result"),
        "residual": (result.residual, "gap of the result over its energy"),
        "converged": (np.int8(result.converged), "1 if the residual is within the tolerance"),
    }
    if result.resolved_degree is not None:
        name = "harmonics up to this degree are determined in double precision"
        scalars["resolved_degree"] = (np.int32(result.resolved_degree), name)
    for name, (value, long_name) in scalars.items():
        dataset[name] = series(value, (), long_name)
    verb = {"minimize": "Minimiser", "maximize": "Maximiser"}[result.parameters["verb"]]
    title = f"{verb} of the energy of self-attention on {space.name}"
    dataset.attrs = attributes(title, result.parameters)
    return dataset


def _points(space) -> tuple[xr.Dataset, str]:
    """The points of a space that has no cells."""
    data = positions(space.points, ("point",), "point")
    data["quadrature_weight"] = series(space.weights, ("point",), "share of the sphere")
    return xr.Dataset(data), "point"


def _exact(result) -> np.ndarray | None:
    """The exact minimiser at the points, where double precision can compute it."""
    D = result.interaction.D
    positive = len(D) <= 3 and np.linalg.eigvalsh(D)[0] > 0
    if result.parameters["verb"] != "minimize" or not positive:
        return None
    try:
        return exact_minimizer(D)(result.space.points)
    except ComputationError:
        return None


def stored_extremum(path, search) -> Extremum:
    """A saved result of a search, as the object that was saved.

    Parameters
    ----------
    path : path-like
    search : Search
        The search that it is the result of; it knows the space.

    Returns
    -------
    Extremum

    Raises
    ------
    FileError
        If the file holds no such result.

    Examples
    --------
    >>> import meanfield as mf
    >>> from meanfield.equilibria.mirror_descent import prepare
    >>> from tempfile import TemporaryDirectory
    >>> search = prepare(mf.circle(64), mf.Interaction([1.0, 1.5]))
    >>> found = search.compute()
    >>> with TemporaryDirectory() as folder:
    ...     found.save(f"{folder}/min.nc")
    ...     again = stored_extremum(f"{folder}/min.nc", search)
    >>> bool((again.masses == found.masses).all()), again.gap == found.gap
    (True, True)
    """
    with open_netcdf(path) as stored:
        try:
            history = {name: stored[name].values for name in HISTORY if name in stored}
            history["gap"] = history.pop("gap" if search.convex else "stationarity")
            degree = stored.get("resolved_degree")
            return Extremum(
                masses=stored["mass"].values,
                log_energy=float(history["log_energy"][-1]),
                residual=float(stored["residual"]),
                converged=bool(stored["converged"]),
                resolved_degree=None if degree is None else int(degree),
                certified=search.convex,
                history=history,
                space=search.space,
                interaction=search.interaction,
                parameters=search.parameters,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise FileError(f"{path} holds no result of {search.parameters['verb']}") from error
