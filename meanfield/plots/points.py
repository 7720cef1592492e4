"""Pictures of results without a time axis on a mesh: moving nodes, particles, extrema."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from meanfield.plots import meshes
from meanfield.sphere.geometry import distance, normalize

if TYPE_CHECKING:
    import xarray as xr

TRAJECTORIES = 400  # at most so many are drawn
ANGLES = 500  # points whose pairwise angles are shown for n > 3


def positions(dataset: xr.Dataset) -> np.ndarray:
    """Positions of the points, shape (t, m, n); of an ensemble those of its first start."""
    if "start" in dataset.dims:
        dataset = dataset.isel(start=0)
    if "position" in dataset:
        points = dataset["position"].values
    else:
        names = [name for name in "xyz" if name in dataset]
        points = np.stack([dataset[name].values for name in names], axis=-1)
    return points if points.ndim == 3 else points[None]


def plot_points(dataset: xr.Dataset) -> Figure:
    """Moving points at the start and the end, their paths, and the energy over time.

    Parameters
    ----------
    dataset : xarray.Dataset
        Of `evolve_characteristics`, `evolve_particles` or `transformer`.

    Returns
    -------
    matplotlib.figure.Figure
        On S^2 two hemispheres for the first and the last frame; on S^1 angles over time; in
        more dimensions histograms of the angles between points.
    """
    points = positions(dataset)
    n = points.shape[2]
    figure = meshes._figure(9.6 if n == 3 else 9.0, 5.6 if n == 3 else 4.4, dataset.attrs["title"])
    colours = dataset["density"].values if "density" in dataset else None
    if n == 3:
        grid = figure.add_gridspec(2, 4, width_ratios=(1, 1, 0.05, 1))
        for row, number in enumerate((0, len(points) - 1)):
            places = [grid[row, column] for column in range(3)]
            paths = points if row else points[:1]
            values = None if colours is None else colours[number]
            axes = _globe(figure, places, points[number], paths, values)
            axes[0].set_ylabel(f"t = {float(dataset['time'][number]):g}", rotation=90)
            if row == 0:
                meshes._name_views(axes, meshes.VIEWPOINT)
        _energy(figure, [grid[0, 3], grid[1, 3]], dataset)
        return figure
    grid = figure.add_gridspec(2, 2, width_ratios=(1.5, 1))
    panel = figure.add_subplot(grid[:, 0])
    if n == 2:
        _angles_over_time(panel, dataset["time"].values, points, colours)
    else:
        _pair_angles(panel, dataset["time"].values, points)
    _energy(figure, [grid[0, 1], grid[1, 1]], dataset)
    return figure


def plot_extremum(dataset: xr.Dataset) -> Figure:
    """The density of an extremum beside the exact one, and how the iteration came to it."""
    figure = meshes._figure(9.6, 4.4, dataset.attrs["title"])
    if "theta" in dataset:
        grid = figure.add_gridspec(1, 2, width_ratios=(1.5, 1))
        panel, places = figure.add_subplot(grid[0, 0]), grid[0, 1]
        _density_over_angle(panel, dataset)
    else:
        grid = figure.add_gridspec(1, 4, width_ratios=(1, 1, 0.05, 1))
        left, places = [grid[0, column] for column in range(3)], grid[0, 3]
        if "point" in dataset.dims:
            points = positions(dataset)
            axes = _globe(figure, left, points[0], points[:1], dataset["density"].values)
        else:
            halves = meshes._hemispheres(dataset, meshes.VIEWPOINT)
            label = "density (uniform is 1)"
            axes = meshes._globe(figure, left, halves, dataset["density"].values, label)
        meshes._name_views(axes, meshes.VIEWPOINT)
    panel = figure.add_subplot(places)
    steps = dataset["applications"].values
    name = next((name for name in ("gap", "stationarity") if name in dataset), None)
    gap = dataset[name].values if name else np.full(len(steps), np.nan)
    if (gap > 0).any():
        panel.semilogy(steps, np.where(gap > 0, gap, np.nan), ".-", color="C0", markersize=3)
        panel.set_ylabel("certified gap" if name == "gap" else name)
    else:
        panel.plot(steps, dataset["log_energy"].values, ".-", color="C0", markersize=3)
        panel.set_ylabel("log E")
    panel.set_xlabel("applications of the kernel")
    panel.grid(color="0.9")
    panel.spines[["top", "right"]].set_visible(False)
    return figure


def _globe(figure, places, points, paths, values) -> list:
    """Points on two hemispheres, with the paths that led to them."""
    axes = [figure.add_subplot(place) for place in places[:2]]
    norm, extend = (None, None) if values is None else meshes._norm(values)
    size = float(np.clip(3000 / len(points), 2, 30))
    for panel, sign in zip(axes, (1, -1), strict=True):
        frame = meshes.view_frame(sign * np.asarray(meshes.VIEWPOINT))
        meshes._dress(panel, frame, planes=False)
        for text in panel.texts:
            text.set(color="black", path_effects=[])
        if len(paths) > 1:
            step = max(1, paths.shape[1] // TRAJECTORIES)
            flat, seen = _project(paths[:, ::step], frame)
            flat[~seen] = np.nan
            panel.add_collection(
                LineCollection(np.moveaxis(flat, 1, 0), colors="0.6", linewidths=0.5)
            )
        flat, seen = _project(points, frame)
        if values is None:
            panel.scatter(*flat[seen].T, s=size, color="C3", linewidths=0, zorder=3)
            continue
        shown = np.clip(values[seen], norm.vmin, norm.vmax)
        panel.scatter(
            *flat[seen].T, s=size, c=shown, cmap=meshes.COLOURS, norm=norm, linewidths=0, zorder=3
        )
    if values is not None:
        mappable = ScalarMappable(norm, meshes.COLOURS)
        bar = figure.colorbar(mappable, cax=figure.add_subplot(places[2]), extend=extend)
        bar.set_label("density (uniform is 1)")
    return axes


def _project(points, frame) -> tuple[np.ndarray, np.ndarray]:
    """Lambert's projection of the points in front: shape (..., 3) to (..., 2) and a mask."""
    turned = normalize(points) @ frame.T
    seen = turned[..., 2] >= -1e-12
    scale = np.sqrt(2 / (1 + np.where(seen, turned[..., 2], 0.0)))
    return turned[..., :2] * scale[..., None], seen


def _angles_over_time(panel, times, points, colours) -> None:
    step = max(1, points.shape[1] // TRAJECTORIES)
    angle = np.unwrap(np.arctan2(points[:, ::step, 1], points[:, ::step, 0]), axis=0)
    for turn in (-2 * np.pi, 0.0, 2 * np.pi):
        panel.plot(times, angle + turn, color="0.7", linewidth=0.5)
    if colours is not None:
        norm, extend = meshes._norm(colours)
        shown = np.clip(colours[:, ::step], norm.vmin, norm.vmax)
        where = np.repeat(times, angle.shape[1])
        dots = panel.scatter(
            where, (angle % (2 * np.pi)).ravel(), s=4, c=shown.ravel(), cmap=meshes.COLOURS,
            norm=norm, linewidths=0, zorder=3,
        )  # fmt: skip
        panel.figure.colorbar(dots, ax=panel, extend=extend, label="density (uniform is 1)")
    panel.set(ylim=(0, 2 * np.pi), xlabel="time t", ylabel="angle θ")
    panel.set_yticks(np.arange(5) * np.pi / 2, ["0", "π/2", "π", "3π/2", "2π"])


def _pair_angles(panel, times, points) -> None:
    """Histograms of the angles between points; clusters show as peaks at zero."""
    few = points[:, :: max(1, points.shape[1] // ANGLES)]
    first, second = np.triu_indices(few.shape[1], 1)
    for number, colour in ((0, "0.6"), (-1, "C3")):
        angle = distance(few[number][first], few[number][second])
        panel.hist(
            angle, bins=np.linspace(0, np.pi, 61), color=colour, alpha=0.7,
            label=f"t = {times[number]:g}",
        )  # fmt: skip
    panel.set(xlim=(0, np.pi), xlabel="angle between two points", ylabel="pairs")
    panel.set_xticks(np.arange(3) * np.pi / 2, ["0", "π/2", "π"])
    panel.legend(frameon=False)


def _density_over_angle(panel, dataset: xr.Dataset) -> None:
    order = np.argsort(dataset["theta"].values)
    angle = dataset["theta"].values[order]
    closed, order = np.append(angle, angle[0] + 2 * np.pi), np.append(order, order[0])
    panel.plot(closed, dataset["density"].values[order], color="C0", label="found")
    if "exact_density" in dataset:
        exact = dataset["exact_density"].values[order]
        panel.plot(closed, exact, "--", color="C1", label="exact")
        panel.legend(frameon=False)
    panel.set(xlim=(0, 2 * np.pi), xlabel="angle θ", ylabel="density (uniform is 1)")
    panel.set_xticks(np.arange(5) * np.pi / 2, ["0", "π/2", "π", "3π/2", "2π"])
    norm, _ = meshes._norm(dataset["density"].values)
    if isinstance(norm, LogNorm):
        panel.set_yscale("log")


def _energy(figure, places, dataset: xr.Dataset) -> None:
    """Energy over time, and the rate at which it changes."""
    if "start" in dataset.dims:
        dataset = dataset.isel(start=0)
    if "dissipation" not in dataset:
        energy, times = dataset["energy"].values, dataset["time"].values
        rate = np.abs(np.gradient(energy, times)) if len(times) > 1 else np.full(1, np.nan)
        dataset = dataset.assign(dissipation=("time", rate / 2))
    meshes._series(figure, places, dataset)
