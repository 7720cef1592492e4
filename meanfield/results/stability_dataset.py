"""Results of `stability` as datasets: growth rates and their fields."""

from __future__ import annotations

import numpy as np
import xarray as xr

from meanfield.results.provenance import attributes
from meanfield.results.ugrid import TOPOLOGY, area_name, location, mesh_dataset
from meanfield.results.variables import positions, series
from meanfield.sphere.meshes import Mesh

SCALARS = {
    "residual": ("speed relative to its bound, root mean square", float),
    "stationary": ("1 if the residual is within the tolerance", np.int8),
    "index": ("number of unstable directions", np.int32),
    "splitting_index": ("how many of them separate members of a cluster", np.int32),
    "complete": ("1 if the index is exact, 0 if it is a lower bound", np.int8),
    "symmetries": ("dimension of the rotations that commute with D and V", np.int32),
    "threshold": ("rates within it count as zero", float),
    "converged": ("1 if the iteration for the eigenvalues converged", np.int8),
}


def stability_dataset(result) -> xr.Dataset:
    """A result of `stability` as a dataset.

    Parameters
    ----------
    result : Stability

    Returns
    -------
    xarray.Dataset
        On ``mode``: ``rate``, ``rate_imaginary``, ``splitting``. On the cells of a mesh (UGRID),
        or on ``point`` with ``x``, ``y``, ``z`` (beyond R^3 ``position``): ``mass``, of a density
        also ``density``; with ``mode`` before it ``field``, whose last dimension is
        ``component``, and for densities of gradient models ``potential``, of which the field is
        the gradient. Scalars: ``residual``, ``stationary``, ``index`` and others.

    Examples
    --------
    >>> import meanfield as mf
    >>> from meanfield.equilibria.stability import stability
    >>> pair = mf.Measure([[0.0, 1.0], [0.0, -1.0]])
    >>> dataset = stability_dataset(stability(pair, mf.SelfAttention([1.0, 1.3]), modes=2))
    >>> dict(dataset.sizes), int(dataset["index"])
    ({'point': 2, 'mode': 2, 'component': 2}, 0)
    """
    mesh = isinstance(result.space, Mesh)
    if mesh:
        dataset, place = mesh_dataset(result.space), location(result.space)
    else:
        dataset, place = xr.Dataset(positions(result.points, ("point",), "point")), "point"
    on_nodes = {"mesh": TOPOLOGY, "location": place} if mesh else {}
    known = {"mass": ((place,), result.masses, "mass of the cell" if mesh else "mass of the point")}
    if result.kind == "density" and result.space is not None:
        density = result.masses / result.space.weights
        name = "density relative to the uniform probability measure"
        known["density"] = ((place,), density, name)
    fields = ("mode", place, "component")
    known["field"] = (fields, result.fields.real, "displacement of the mode")
    if np.iscomplexobj(result.fields):
        known["field_imaginary"] = (fields, result.fields.imag, "its imaginary part")
    if result.potentials is not None:
        name = "potential whose gradient is the field: mass gathers where it is large"
        known["potential"] = (("mode", place), result.potentials, name)
    for name, (dimensions, values, long_name) in known.items():
        dataset[name] = series(np.asarray(values), dimensions, long_name, **on_nodes)
        if mesh:
            coordinates = dataset[area_name(result.space)].encoding["coordinates"]
            dataset[name].encoding["coordinates"] = coordinates
    for name, values, long_name in (
        ("rate", result.rates.real, "growth rate"),
        ("rate_imaginary", result.rates.imag, "imaginary part of the growth rate"),
        ("splitting", result.splitting.astype(np.int8), "1 if members of a cluster separate"),
    ):
        dataset[name] = series(values, ("mode",), long_name)
    for name, (long_name, kind) in SCALARS.items():
        dataset[name] = series(kind(getattr(result, name)), (), long_name)
    where = "" if result.space is None else f" on {result.space.name}"
    count = len(result.points)
    noun = "cluster" if count == 1 else "clusters"
    what = "a density" if result.kind == "density" else f"{count} {noun}"
    title = f"Stability of {what}{where}, {_verdict(result)}"
    dataset.attrs = attributes(title, result.parameters)
    return dataset


def _verdict(result) -> str:
    if not result.stationary:
        return f"not stationary: residual {result.residual:.1e}"
    return f"index {'' if result.complete else 'at least '}{result.index}"
