"""Pictures of the leading mode of a stationary state, and of the growth rates."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib import patheffects
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from meanfield.plots import meshes
from meanfield.plots.points import positions
from meanfield.sphere.geometry import angles, directions

if TYPE_CHECKING:
    import xarray as xr

COLOURS = "RdBu_r"
ARROW = 0.35  # length of the longest arrow, in radii
SHORT = 0.02  # shorter ones, in units of the longest, are left out
ARROWS = 300  # at most so many are drawn
OUTLINE = patheffects.withStroke(linewidth=2, foreground="white")
GROWING, DECAYING, NEUTRAL = "C3", "C0", "0.5"


def plot_stability(dataset: xr.Dataset) -> Figure:
    """The leading mode of a state, and the rates of all that were found.

    Parameters
    ----------
    dataset : xarray.Dataset
        Of `Stability.to_dataset`, or read from its file.

    Returns
    -------
    matplotlib.figure.Figure
        Of clusters: where they are, with arrows for the mode; arrows to both sides where members
        of a cluster separate. Of densities: the potential of the mode in colours (mass gathers
        where it is large), on S^1 over the angle, beside the density.

    Examples
    --------
    >>> import meanfield as mf
    >>> from meanfield.equilibria.stability import stability
    >>> found = stability(mf.uniform(), mf.SelfAttention([1.0, 1.0]), space=mf.circle(32))
    >>> len(plot_stability(found.to_dataset()).axes)
    3
    """
    n = dataset.sizes["component"]
    figure = meshes._figure(9.6 if n == 3 else 9.0, 4.4, dataset.attrs["title"])
    if n == 3:
        grid = figure.add_gridspec(1, 4, width_ratios=(1, 1, 0.05, 1))
        _globes(figure, [grid[0, column] for column in range(3)], dataset)
        place = grid[0, 3]
    else:
        grid = figure.add_gridspec(1, 2, width_ratios=(1.5, 1))
        panel, place = figure.add_subplot(grid[0, 0]), grid[0, 1]
        if n > 3:
            _lengths(panel, dataset)
        elif "potential" in dataset:
            _curve(panel, dataset)
        else:
            _ring(panel, dataset)
    _rates(figure.add_subplot(place), dataset)
    return figure


def _leading(dataset: xr.Dataset) -> xr.Dataset:
    return dataset.isel(mode=0)


def _name(dataset: xr.Dataset) -> str:
    rate = float(dataset["rate"][0])
    split = " (members of a cluster separate)" if int(dataset["splitting"][0]) else ""
    return meshes._typeset(f"leading mode, rate {rate:.4g}{split}")


def _arrows(dataset: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Where arrows start and their tangent vectors, both shape (k, n)."""
    first = _leading(dataset)
    points, field = positions(dataset)[0], first["field"].values
    field = field * (ARROW / (np.linalg.norm(field, axis=1).max() or 1.0))
    moving = np.flatnonzero(np.linalg.norm(field, axis=1) > SHORT * ARROW)
    moving = moving[:: max(1, len(moving) // ARROWS)]
    points, field = points[moving], field[moving]
    if int(first["splitting"]):
        return np.concatenate([points, points]), np.concatenate([field, -field])
    return points, field


def _globes(figure, places, dataset: xr.Dataset) -> None:
    """The mode on two hemispheres."""
    axes = [figure.add_subplot(place) for place in places[:2]]
    views = [meshes.view_frame(sign * np.asarray(meshes.VIEWPOINT)) for sign in (1, -1)]
    coloured = "potential" in dataset
    points, masses = positions(dataset)[0], dataset["mass"].values
    if coloured:
        potential = _leading(dataset)["potential"].values
        size = float(np.abs(potential).max()) or 1.0
        norm = Normalize(-size, size)
        bar = figure.colorbar(ScalarMappable(norm, COLOURS), cax=figure.add_subplot(places[2]))
        bar.set_label("potential: mass gathers where it is large")
    for panel, frame in zip(axes, views, strict=True):
        meshes._dress(panel, frame, planes=False)
        if coloured and "mesh_face_nodes" in dataset:
            _cells(panel, dataset, frame, potential, norm)
        else:
            for text in panel.texts:
                text.set(color="black", path_effects=[OUTLINE], zorder=5)
            flat, seen = _flat(points, frame)
            colour = {"c": potential[seen], "cmap": COLOURS, "norm": norm} if coloured else {
                "color": "0.3"
            }  # fmt: skip
            area = np.clip(3e4 / len(points), 4, 40) if coloured else 20 + 200 * masses[seen]
            panel.scatter(*flat[seen].T, s=area, linewidths=0, zorder=3, **colour)
        if not coloured:
            start, arrow = _arrows(dataset)
            flat, seen = _flat(start, frame)
            _draw_arrows(panel, flat[seen], _flat(start + arrow, frame)[0][seen])
    meshes._name_views(axes, meshes.VIEWPOINT)
    axes[0].set_xlabel(_name(dataset), fontsize=9)


def _cells(panel, dataset, frame, values, norm) -> None:
    polygons, cells = meshes.hemisphere_polygons(*meshes.stored_cells(dataset), frame)
    patches = PolyCollection(
        polygons, array=values[cells], cmap=COLOURS, norm=norm, edgecolors="none",
        antialiaseds=False, rasterized=True,
    )  # fmt: skip
    patches.set_in_layout(False)
    panel.add_collection(patches, autolim=False)


def _flat(points, frame) -> tuple[np.ndarray, np.ndarray]:
    """Lambert's projection of points near the sphere, and which lie in front."""
    turned = points @ frame.T
    turned /= np.linalg.norm(turned, axis=1, keepdims=True)
    height = np.maximum(turned[:, 2:], -0.5)  # arrows may reach a little behind the rim
    return turned[:, :2] * np.sqrt(2 / (1 + height)), turned[:, 2] >= -1e-9


def _draw_arrows(panel, start, end) -> None:
    panel.quiver(
        *start.T, *(end - start).T, angles="xy", scale_units="xy", scale=1, color=GROWING,
        width=0.008, zorder=4,
    )  # fmt: skip


def _ring(panel, dataset: xr.Dataset) -> None:
    """Clusters on S^1."""
    panel.plot(*directions(np.linspace(0, 2 * np.pi, 361)).T, color="0.7", linewidth=1.0)
    points = positions(dataset)[0]
    panel.scatter(*points.T, s=20 + 200 * dataset["mass"].values, color="0.3", zorder=3)
    start, arrow = _arrows(dataset)
    _draw_arrows(panel, start, start + arrow)
    limits = (-1.45, 1.45)
    panel.set(aspect="equal", xlim=limits, ylim=limits, xlabel="$x_1$", ylabel="$x_2$")
    panel.set_title(_name(dataset), fontsize=9)


def _curve(panel, dataset: xr.Dataset) -> None:
    """The potential and the density over the angle."""
    angle = angles(positions(dataset)[0])
    order = np.argsort(angle)
    order = np.append(order, order[0])
    around = angle[order] + np.append(np.zeros(len(angle)), 2 * np.pi)  # the curve is closed
    panel.axhline(0.0, color="0.8", linewidth=0.8)
    panel.plot(around, _leading(dataset)["potential"].values[order], color=GROWING)
    panel.set(xlim=(0, 2 * np.pi), xlabel="angle θ")
    panel.set_ylabel("potential: mass gathers where it is large", color=GROWING)
    panel.set_xticks(np.arange(5) * np.pi / 2, ["0", "π/2", "π", "3π/2", "2π"])
    panel.set_title(_name(dataset), fontsize=9)
    if "density" in dataset:
        other = panel.twinx()
        other.plot(around, dataset["density"].values[order], color="0.4", linestyle="--")
        other.set_ylabel("density (uniform is 1)", color="0.4")
        other.set_ylim(bottom=0)


def _lengths(panel, dataset: xr.Dataset) -> None:
    """In more dimensions: how far each point moves."""
    lengths = np.linalg.norm(_leading(dataset)["field"].values, axis=1)
    panel.plot(np.arange(len(lengths)), lengths, "o", color=GROWING, markersize=4)
    panel.set(xlabel="point", ylabel="length of the displacement")
    panel.xaxis.get_major_locator().set_params(integer=True)
    panel.set_ylim(bottom=0)
    panel.set_title(_name(dataset), fontsize=9)


def _rates(panel, dataset: xr.Dataset) -> None:
    """All rates; squares are splitting modes."""
    rates, threshold = dataset["rate"].values, float(dataset["threshold"])
    splitting = dataset["splitting"].values.astype(bool)
    colours = np.where(rates > threshold, GROWING, np.where(rates < -threshold, DECAYING, NEUTRAL))
    number = np.arange(1, len(rates) + 1)
    panel.axhline(0.0, color="0.4", linewidth=0.8)
    panel.vlines(number, 0, rates, colors=colours, linewidth=1.5)
    for chosen, marker, label in ((~splitting, "o", None), (splitting, "s", "members separate")):
        panel.scatter(
            number[chosen], rates[chosen], c=colours[chosen], marker=marker, s=28, zorder=3,
            label=label,
        )  # fmt: skip
    if splitting.any():
        panel.legend(frameon=False, fontsize=8)
    panel.set(xlabel="mode", ylabel="growth rate", xlim=(0.3, len(rates) + 0.7))
    panel.xaxis.get_major_locator().set_params(integer=True)
    panel.grid(axis="y", color="0.9")
    panel.spines[["top", "right"]].set_visible(False)
