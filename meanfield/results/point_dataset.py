"""Runs along characteristics as datasets: nodes that move, and the density along them."""

from __future__ import annotations

import numpy as np
import xarray as xr

from meanfield.results.provenance import attributes

AUDIT = {
    "log_energy": "logarithm of the energy",
    "energy": "energy, int int exp(x.Dy) dmu dmu",
    "dissipation": "dissipation, int Z |v|^2 dmu (unnormalised flow: int |v|^2 dmu)",
    "volume_error": "error of the transported uniform measure in moments up to degree two",
    "steps": "time steps so far",
}


def characteristics_dataset(run) -> xr.Dataset:
    """A run of `evolve_characteristics` as a dataset.

    Parameters
    ----------
    run : CharacteristicEvolution

    Returns
    -------
    xarray.Dataset
        Dimensions ``time`` and ``point``. On both: the moved nodes ``x``, ``y`` and, on S^2,
        ``z`` (in R^n, n > 3, one variable ``position`` with the dimension ``component``),
        ``log_density`` and ``density``. On ``point``: ``weight``, the mass that a node carries,
        and ``quadrature_weight``, its share of the sphere at time zero. On ``time``: the audit.

    Examples
    --------
    >>> import meanfield as mf
    >>> from meanfield.dynamics.characteristics import evolve_characteristics
    >>> run = evolve_characteristics(
    ...     mf.circle(16), mf.SelfAttention([1.0, 1.0]), mf.uniform(), t_end=0.1, save=2
    ... )
    >>> dict(characteristics_dataset(run).sizes)
    {'time': 2, 'point': 16}
    """
    data = {
        **_positions(run.points),
        "log_density": _series(
            run.log_density,
            ("time", "point"),
            "logarithm of the density along the nodes, relative to the uniform measure",
        ),
        "density": _series(
            np.exp(run.log_density),
            ("time", "point"),
            "density along the nodes, relative to the uniform probability measure",
        ),
        "weight": _series(run.masses, ("point",), "mass that the node carries"),
        "quadrature_weight": _series(
            run.space.weights, ("point",), "share of the sphere of the node at time zero"
        ),
    }
    for name, values in run.audit.items():
        data[name] = _series(values, ("time",), AUDIT[name])
    time = xr.Variable(
        "time",
        run.times,
        {"long_name": "nondimensional time", "units": "1", "axis": "T"},
        {"_FillValue": None},
    )
    title = f"Mean-field evolution along characteristics on {run.space.name}"
    return xr.Dataset(data, {"time": time}, attributes(title, run.parameters))


def _positions(points: np.ndarray) -> dict[str, xr.Variable]:
    n = points.shape[2]
    if n > 3:
        return {"position": _series(points, ("time", "point", "component"), "moved nodes")}
    return {
        name: _series(points[:, :, axis], ("time", "point"), f"{name} of the moved nodes")
        for axis, name in enumerate("xyz"[:n])
    }


def _series(values, dimensions: tuple[str, ...], long_name: str) -> xr.Variable:
    attributes = {"long_name": long_name, "units": "1"}
    # Without a fill value NaN stays NaN and -inf stays -inf.
    return xr.Variable(dimensions, values, attributes, {"_FillValue": None})
