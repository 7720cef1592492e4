"""Runs along characteristics as datasets: nodes that move, and the density along them."""

from __future__ import annotations

import numpy as np
import xarray as xr

from meanfield.results.provenance import attributes
from meanfield.results.variables import positions, series, time_axis

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
        **positions(run.points, ("time", "point"), "moved nodes"),
        "log_density": series(
            run.log_density,
            ("time", "point"),
            "logarithm of the density along the nodes, relative to the uniform measure",
        ),
        "density": series(
            np.exp(run.log_density),
            ("time", "point"),
            "density along the nodes, relative to the uniform probability measure",
        ),
        "weight": series(run.masses, ("point",), "mass that the node carries"),
        "quadrature_weight": series(
            run.space.weights, ("point",), "share of the sphere of the node at time zero"
        ),
    }
    for name, values in run.audit.items():
        data[name] = series(values, ("time",), AUDIT[name])
    title = f"Mean-field evolution along characteristics on {run.space.name}"
    return xr.Dataset(data, {"time": time_axis(run.times)}, attributes(title, run.parameters))
