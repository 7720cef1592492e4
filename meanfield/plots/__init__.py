"""Pictures: datasets to figures; nothing is computed here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from meanfield.plots.geodesics import plot_geodesic
from meanfield.plots.meshes import plot_mesh, plot_run
from meanfield.plots.points import plot_extremum, plot_points
from meanfield.plots.regularity import plot_regularity
from meanfield.plots.stability import plot_stability
from meanfield.plots.sweeps import plot_sweep

if TYPE_CHECKING:
    import xarray as xr


def plot_dataset(dataset: xr.Dataset) -> Figure:
    """The picture that fits a dataset of this package.

    Parameters
    ----------
    dataset : xarray.Dataset
        Of ``to_dataset()`` of any result, or read from its file.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import meanfield as mf
    >>> model = mf.SelfAttention([1.0, 2.0], sign=-1)
    >>> run = mf.evolve_characteristics(mf.circle(16), model, mf.uniform(), 0.1, save=3)
    >>> len(plot_dataset(run.to_dataset()).axes)
    4
    """
    if "status" in dataset:
        return plot_sweep(dataset)
    if "rate" in dataset:
        return plot_stability(dataset)
    if "layer" in dataset.dims:
        return plot_regularity(dataset)
    if "interval" in dataset.dims:
        return plot_geodesic(dataset)
    if "iteration" in dataset.dims:
        return plot_extremum(dataset)
    if "point" in dataset.dims:
        return plot_points(dataset)
    if "time" in dataset.dims:
        return plot_run(dataset)
    return plot_mesh(dataset)
