"""Pictures of sweeps: the energy that the members reach over what varied."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from meanfield.errors import InputError
from meanfield.plots.meshes import COLOURS, LINE_COLOURS, _figure

if TYPE_CHECKING:
    import xarray as xr

LINES = 12  # at most so many curves in a panel
FAILED_COLOUR = "crimson"


def plot_sweep(dataset: xr.Dataset) -> Figure:
    """Draw a sweep: curves over one axis, a map over two, the first ones of more.

    Parameters
    ----------
    dataset : xarray.Dataset
        As the verb `sweep` saves it.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    InputError
        If no member has an energy.
    """
    axes = list(dataset["status"].dims)
    name = next((name for name in ("final_energy", "log_energy") if name in dataset), None)
    if name is None:
        raise InputError("no member of the sweep has an energy: there is nothing to draw")
    values = dataset[name]
    if "time" in values.dims:
        values = values.isel(time=-1)
    over = [dimension for dimension in values.dims if dimension not in axes]
    values, status = values.mean(over), dataset["status"]
    for dimension in axes[2:]:
        values, status = values.isel({dimension: 0}), status.isel({dimension: 0})
    figure = _figure(6.4, 4.4)
    panel = figure.add_subplot()
    label = name.replace("_", " ").replace("final", "reached")
    if len(axes) == 1:
        _curve(panel, dataset, axes[0], values.values, status.values)
        panel.set_ylabel(label)
    elif values.sizes[axes[1]] <= LINES and dataset[axes[0]].dtype.kind in "fiu":
        for number, column in enumerate(values.transpose(*axes[:2]).values.T):
            colour = LINE_COLOURS(number / max(1, values.sizes[axes[1]] - 1))
            text = f"{axes[1]} = {_short(dataset[axes[1]].values[number])}"
            _curve(panel, dataset, axes[0], column, status.values[:, number], colour, text)
        panel.set_ylabel(label)
        panel.legend(fontsize=8)
    else:
        _map(figure, panel, dataset, axes, values.transpose(*axes[:2]).values, label)
    fixed = [f"{axis} = {_short(dataset[axis].values[0])}" for axis in axes[2:]]
    failed = int((dataset["status"] == 1).sum())
    title = [*fixed, f"{failed} of {dataset['status'].size} members failed"] if failed else fixed
    panel.set_title("; ".join(title), fontsize=9)
    return figure


def _curve(panel, dataset, axis: str, values, status, colour=None, label=None) -> None:
    places, names = _places(dataset, axis)
    colour = LINE_COLOURS(0.3) if colour is None else colour
    panel.plot(places, values, "o-", color=colour, markersize=3, label=label)
    for place in places[status == 1]:
        panel.axvline(place, color=FAILED_COLOUR, linewidth=0.6)
    panel.set_xlabel(axis)
    if names is not None:
        panel.set_xticks(places, names, rotation=20, ha="right", fontsize=8)


def _map(figure, panel, dataset, axes, values, label: str) -> None:
    (x, x_names), (y, y_names) = _places(dataset, axes[0]), _places(dataset, axes[1])
    image = panel.pcolormesh(x, y, np.ma.masked_invalid(values.T), cmap=COLOURS, shading="nearest")
    figure.colorbar(image, ax=panel, label=label)
    panel.set(xlabel=axes[0], ylabel=axes[1])
    if x_names is not None:
        panel.set_xticks(x, x_names, rotation=20, ha="right", fontsize=8)
    if y_names is not None:
        panel.set_yticks(y, y_names, fontsize=8)


def _places(dataset, axis: str) -> tuple[np.ndarray, list[str] | None]:
    """Numbers as they are, texts at 0, 1, ... with their names."""
    values = dataset[axis].values
    if values.dtype.kind in "fiu":
        return values.astype(float), None
    return np.arange(len(values), dtype=float), [_short(value) for value in values]


def _short(value) -> str:
    return f"{value:g}" if isinstance(value, float | int | np.number) else str(value)
