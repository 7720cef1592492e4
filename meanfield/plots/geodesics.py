"""Pictures of geodesics: the states in between, and the speed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from meanfield.plots import meshes, points

if TYPE_CHECKING:
    import xarray as xr


def plot_geodesic(dataset: xr.Dataset) -> Figure:
    """Intermediate states of a geodesic, and its speed over time.

    Parameters
    ----------
    dataset : xarray.Dataset
        Of `Geodesic.to_dataset`, or read from its file.

    Returns
    -------
    matplotlib.figure.Figure
        On S^2 the states at three times on two hemispheres; on S^1 densities over the angle, or
        the angles of particles over time; in more dimensions histograms of pair angles.

    Examples
    --------
    >>> from meanfield.transport.mobility import mobility_distance
    >>> found = mobility_distance([[1.0, 0.0]], [[0.0, 1.0]], 1.0, steps=4)
    >>> [axes.get_xlabel() for axes in plot_geodesic(found.to_dataset()).axes]
    ['time t', 'time t']
    """
    paths = None if "mass" in dataset else points.positions(dataset)
    if "mesh_face_nodes" in dataset or (paths is not None and paths.shape[2] == 3):
        return _on_sphere(dataset, paths)
    figure = meshes._figure(9.0, 4.4, dataset.attrs["title"])
    grid = figure.add_gridspec(1, 2, width_ratios=(1.5, 1))
    panel = figure.add_subplot(grid[0, 0])
    if paths is None:
        meshes._curves(panel, dataset)
    elif paths.shape[2] == 2:
        points._angles_over_time(panel, dataset["time"].values, paths, None)
    else:
        points._pair_angles(panel, dataset["time"].values, paths)
    _speed(figure.add_subplot(grid[0, 1]), dataset)
    return figure


def _on_sphere(dataset: xr.Dataset, paths) -> Figure:
    """Rows of hemispheres at the start, in the middle and at the end."""
    figure = meshes._figure(9.6, 8.2, dataset.attrs["title"])
    grid = figure.add_gridspec(3, 4, width_ratios=(1, 1, 0.05, 1))
    last = dataset.sizes["time"] - 1
    halves = None if paths is not None else meshes._hemispheres(dataset, meshes.VIEWPOINT)
    for row, number in enumerate((0, last // 2, last)):
        places = [grid[row, column] for column in range(3)]
        if paths is None:
            values = dataset["density"].values[number]
            axes = meshes._globe(figure, places, halves, values, "density (uniform is 1)")
        else:
            axes = points._globe(figure, places, paths[number], paths[: number + 1], None)
        axes[0].set_ylabel(f"t = {float(dataset['time'][number]):g}", rotation=90)
        if row == 0:
            meshes._name_views(axes, meshes.VIEWPOINT)
    _speed(figure.add_subplot(grid[1, 3]), dataset)
    return figure


def _speed(panel, dataset: xr.Dataset) -> None:
    """The speed in every interval, and the distance it should be equal to."""
    speed, distance = dataset["speed"].values, float(dataset["distance"])
    panel.step(dataset["time"].values, np.append(speed, speed[-1]), where="post", color="C0")
    panel.axhline(distance, color="0.5", linestyle="--", linewidth=1.0)
    panel.annotate("distance", (0.02, distance), (0, 3), textcoords="offset points", fontsize=9)
    # A narrow range would magnify differences that mean nothing.
    reach = max(0.05 * distance, 1.3 * float(np.abs(speed - distance).max()), 1e-12)
    bottom = max(distance - reach, 0.0 if distance > 0 else -reach)
    panel.set(xlim=(0, 1), ylim=(bottom, distance + reach))
    panel.set(xlabel="time t", ylabel="speed in $W_m$")
    panel.grid(color="0.9")
    panel.spines[["top", "right"]].set_visible(False)
