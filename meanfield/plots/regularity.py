"""Pictures of the regularity of the heads of a transformer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from meanfield.plots import meshes

if TYPE_CHECKING:
    import xarray as xr

CURVES = (
    ("log10_tokens_bound", "certified, N tokens", "C3", "v"),
    ("adversarial_constant", "adversarial, N tokens", "C1", "^"),
    ("local_constant", "local, at the tokens", "C0", "o"),
)
SPREAD = 0.7  # part of the width of a layer that its heads take


def plot_regularity(dataset: xr.Dataset) -> Figure:
    """Constants of every head between their bounds, and its form on the leading directions.

    Parameters
    ----------
    dataset : xarray.Dataset
        Of `meanfield.results.regularity_dataset.regularity_dataset`.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> from meanfield.regularity.head_constants import regularity_table
    >>> from meanfield.regularity.heads import TransformerHead
    >>> table = regularity_table([(TransformerHead(np.eye(3), np.eye(3)), np.eye(3))])
    >>> [axes.get_ylabel() for axes in plot_regularity(table.to_dataset()).axes]
    ['Lipschitz constant', 'log10 of bound', 'eigenvalues of D']
    """
    figure = meshes._figure(10.0, 6.0, dataset.attrs["title"])
    constants, bound, eigenvalues = figure.subplots(3, 1, sharex=True, height_ratios=(3, 1.6, 2))
    places = _places(dataset)
    for name, label, colour, marker in CURVES:
        values = dataset[name].values.ravel()
        if name.startswith("log10"):
            with np.errstate(over="ignore"):
                values = 10.0**values
        values = np.where(np.isfinite(values) & (values > 0), values, np.nan)
        constants.plot(places, values, marker, color=colour, markersize=4, label=label)
    if np.isfinite(np.concatenate([line.get_ydata() for line in constants.lines])).any():
        constants.set_yscale("log")
    constants.set_ylabel("Lipschitz constant")
    constants.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    values = dataset["log10_measures_bound"].values.ravel()
    values = np.where(np.isfinite(values), values, np.nan)
    bound.plot(places, values, "s", color="C4", markersize=4, label="certified, all measures")
    bound.set_ylabel("log10 of bound")
    bound.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    D = dataset["D"].values.reshape(len(places), -1)
    for sign, colour, label in ((1, "C2", "positive"), (-1, "C5", "negative")):
        shown = np.where(sign * D > 0, D, np.nan)
        lines = eigenvalues.plot(places, shown, "_", color=colour, markersize=6)
        lines[0].set_label(label)
    eigenvalues.axhline(0, color="0.6", linewidth=0.8)
    eigenvalues.set_yscale("symlog", linthresh=0.1)
    eigenvalues.margins(y=0.1)  # the largest are not cut by the frame
    eigenvalues.set_ylabel("eigenvalues of D")
    eigenvalues.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    layers, heads = dataset["layer"].values, dataset["head"].values
    if len(layers) > 1:
        eigenvalues.set_xticks(np.arange(len(layers)), [str(layer) for layer in layers])
        eigenvalues.set_xlabel(f"layer (heads {heads[0]} to {heads[-1]} from left to right)")
    else:
        eigenvalues.set_xticks(places, [str(head) for head in heads])
        eigenvalues.set_xlabel(f"head of layer {layers[0]}")
    for panel in (constants, bound, eigenvalues):
        panel.grid(color="0.93", axis="y")
        panel.spines[["top", "right"]].set_visible(False)
    return figure


def _places(dataset: xr.Dataset) -> np.ndarray:
    """Abscissae: layers apart, the heads of each beside one another."""
    layers, heads = dataset.sizes["layer"], dataset.sizes["head"]
    offsets = SPREAD * ((np.arange(heads) + 0.5) / heads - 0.5)
    return (np.arange(layers)[:, None] + offsets).ravel()
