"""Pictures of runs on meshes; `plots_points` and `movies` build on them.

Figures are made without pyplot, so they need no display and leave no global state. The sphere is
drawn as two hemispheres in Lambert's azimuthal projection, which keeps areas: every cell is
a polygon, those that cross the rim are cut there.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib import colormaps, patheffects
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import ListedColormap, LogNorm, Normalize
from matplotlib.figure import Figure

from meanfield.errors import FileError
from meanfield.results.files import replacing
from meanfield.results.ugrid import stored_cells
from meanfield.sphere.connectivity import FILL, next_corners
from meanfield.sphere.geometry import directions, normalize

if TYPE_CHECKING:
    import xarray as xr

VIEWPOINT = (1.0, 1.0, 1.0)
COLOURS = "viridis"
LINE_COLOURS = ListedColormap(colormaps[COLOURS](np.linspace(0, 0.9, 256)))  # dark on white
RIM = np.sqrt(2.0)  # radius of a hemisphere in the projection: its area is 2 pi
LONGEST_ARC = 0.05  # radians; longer edges are drawn as several chords
RIM_ARC = 0.015  # the same on the rim, where every chord cuts off area
WIDE_RANGE = 30.0  # ratio of values from which a logarithmic axis is better
DECADES = 1e-4  # part of the largest value at which logarithmic axes end
CURVES = 9  # densities drawn on S^1
DPI = 200


def plot_run(dataset: xr.Dataset, viewpoint=VIEWPOINT) -> Figure:
    """Densities of an evolution, and its energy and dissipation over time.

    Parameters
    ----------
    dataset : xarray.Dataset
        Of `Evolution.to_dataset`, or read from its file.
    viewpoint : array_like, shape (3,), optional
        On S^2: the centre of the front hemisphere.

    Returns
    -------
    matplotlib.figure.Figure
        On S^2 the density of the first and the last frame on two hemispheres; on S^1 densities
        over the angle, coloured by time.

    Examples
    --------
    >>> import meanfield as mf
    >>> model = mf.SelfAttention([1.0, 2.0], sign=-1)
    >>> run = mf.evolve(mf.circle(8), model, mf.uniform(), t_end=0.1, save=3)
    >>> [axes.get_xlabel() for axes in plot_run(run.to_dataset()).axes[::3]]
    ['angle θ', 'time t']
    """
    if "mesh_edge_nodes" in dataset:
        figure = _figure(9.0, 4.4, dataset.attrs.get("title"))
        grid = figure.add_gridspec(2, 2, width_ratios=(1.5, 1))
        _curves(figure.add_subplot(grid[:, 0]), dataset)
        _series(figure, [grid[0, 1], grid[1, 1]], dataset)
        return figure
    figure = _figure(9.6, 5.6, dataset.attrs.get("title"))
    grid = figure.add_gridspec(2, 4, width_ratios=(1, 1, 0.05, 1))
    halves = _hemispheres(dataset, viewpoint)
    for row, number in enumerate((0, dataset.sizes["time"] - 1)):
        frame = dataset.isel(time=number)
        places = [grid[row, column] for column in range(3)]
        values = frame["density"].values
        axes = _globe(figure, places, halves, values, "density (uniform is 1)")
        axes[0].set_ylabel(f"t = {float(frame['time']):g}", rotation=90)
        if row == 0:
            _name_views(axes, viewpoint)
    _series(figure, [grid[0, 3], grid[1, 3]], dataset)
    return figure


def plot_mesh(dataset: xr.Dataset, viewpoint=VIEWPOINT) -> Figure:
    """The cells of a mesh, coloured by their area.

    Parameters
    ----------
    dataset : xarray.Dataset
        Of `mesh_dataset`, or any dataset with such a mesh.
    viewpoint : array_like, shape (3,), optional
        On S^2: the centre of the front hemisphere.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> import meanfield as mf
    >>> from meanfield.results.ugrid import mesh_dataset
    >>> len(plot_mesh(mesh_dataset(mf.icosphere(1))).axes)
    3
    """
    if "mesh_edge_nodes" in dataset:
        return _plot_ring(dataset)
    figure = _figure(8.4, 4.0)
    grid = figure.add_gridspec(1, 3, width_ratios=(1, 1, 0.05))
    areas = dataset["mesh_face_area"].values
    outline = "white" if len(areas) <= 20_000 else None
    axes = _globe(
        figure,
        [grid[0, column] for column in range(3)],
        _hemispheres(dataset, viewpoint),
        areas / areas.mean(),
        "area / mean area",
        outline,
    )
    _name_views(axes, viewpoint)
    return figure


def save_figure(figure: Figure, path, overwrite: bool = False) -> None:
    """Write a figure, completely or not at all; the ending of the name is the format.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
    path : path-like
        ``.png``, ``.pdf``, ``.svg`` and what else matplotlib writes.
    overwrite : bool

    Raises
    ------
    FileError
        If the file exists and ``overwrite`` is False, the format is unknown, or writing fails.
    """
    form = picture_format(path)
    with replacing(path, overwrite) as temporary:
        figure.savefig(temporary, format=form, dpi=DPI)


def picture_format(path) -> str:
    """The format that the ending of a name stands for.

    Raises
    ------
    FileError
        If it is none that matplotlib writes.

    Examples
    --------
    >>> picture_format("run.png")
    'png'
    """
    form = Path(path).suffix.lstrip(".").lower()
    known = sorted(FigureCanvasAgg.get_supported_filetypes())
    if form not in known:
        raise FileError(f"{path}: the name of a picture must end in one of .{', .'.join(known)}")
    return form


def _figure(width: float, height: float, title: str | None = None) -> Figure:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(wspace=0.04)
    if title:
        figure.suptitle(_typeset(title), fontsize=10)
    return figure


def _typeset(text: str) -> str:
    """Minus signs instead of hyphens before numbers."""
    return re.sub(r"-(?=\d)", "\N{MINUS SIGN}", text)


def hemisphere_polygons(nodes, cell_nodes, frame) -> tuple[np.ndarray, np.ndarray]:
    """Cells in Lambert's azimuthal equal-area projection of one hemisphere.

    Parameters
    ----------
    nodes : ndarray, shape (nodes, 3)
    cell_nodes : ndarray of int, shape (cells, k)
        Convex cells, filled up with -1.
    frame : ndarray, shape (3, 3)
        Rows: right, up, and the centre of the hemisphere.

    Returns
    -------
    polygons : ndarray, shape (p, q, 2)
        Cells that reach into the hemisphere, without what lies behind its rim; the last corner
        is repeated where there are fewer than q.
    cells : ndarray of int, shape (p,)
        Which cells they are.
    """
    padded = np.where(cell_nodes == FILL, cell_nodes[:, :1], cell_nodes)
    inside = nodes @ frame[2] >= 0
    counted = inside[padded].sum(axis=1)
    whole = np.flatnonzero(counted == padded.shape[1])
    cut = np.flatnonzero((counted > 0) & (counted < padded.shape[1]))
    # Corners are seen in the frame: the third component is the height above the rim.
    seen = nodes @ frame.T
    pieces = [_refined(seen, cell_nodes[whole]), _clipped(_refined(seen, cell_nodes[cut]))]
    width = max(piece.shape[1] for piece in pieces)
    corners = np.concatenate(
        [np.pad(piece, ((0, 0), (0, width - piece.shape[1]), (0, 0)), "edge") for piece in pieces]
    )
    flat = corners[..., :2] * np.sqrt(2 / (1 + corners[..., 2:]))
    return flat, np.concatenate([whole, cut])


def _refined(nodes, cell_nodes) -> np.ndarray:
    """Corners of cells with points on long edges, shape (cells, q, 3)."""
    following = next_corners(cell_nodes)
    missing = cell_nodes == FILL
    start = nodes[np.where(missing, cell_nodes[:, :1], cell_nodes)]
    end = nodes[np.where(missing, cell_nodes[:, :1], following)]
    longest = np.linalg.norm(end - start, axis=2).max(initial=0.0)
    parts = max(1, int(np.ceil(longest / LONGEST_ARC)))
    share = np.arange(parts)[:, None] / parts
    points = start[:, :, None] * (1 - share) + end[:, :, None] * share
    return normalize(points).reshape(len(cell_nodes), -1, 3)


def _clipped(corners) -> np.ndarray:
    """Convex polygons without what lies below height zero, shape (c, q, 3) to (c, q', 3).

    Going around, a polygon leaves the hemisphere once and comes back once; between the two it
    follows the rim.
    """
    count, width, _ = corners.shape
    following = np.roll(corners, -1, axis=1)
    height, next_height = corners[..., 2:], following[..., 2:]
    above, next_above = height[..., 0] >= 0, next_height[..., 0] >= 0
    leaves, returns = above & ~next_above, ~above & next_above
    crosses = (leaves | returns)[..., None]
    share = np.divide(height, height - next_height, out=np.zeros_like(height), where=crosses)
    crossing = corners + share * (following - corners)
    rows = np.arange(count)
    first, last = crossing[rows, leaves.argmax(axis=1)], crossing[rows, returns.argmax(axis=1)]
    longest = np.linalg.norm(last - first, axis=1).max(initial=0.0)
    steps = np.linspace(0, 1, 2 + int(longest / RIM_ARC))[:, None]
    rim = first[:, None] * (1 - steps) + last[:, None] * steps
    rim[..., 2] = 0.0
    length = np.linalg.norm(rim, axis=2, keepdims=True)
    rim = np.divide(rim, length, out=np.zeros_like(rim), where=length > 0)
    # After the corner before the exit come the points on the rim, then the corners after it.
    order = (leaves.argmax(axis=1)[:, None] + 1 + np.arange(width)) % width
    turned = corners[rows[:, None], order]
    kept = above[rows[:, None], order]
    entry = rim[:, -1:]
    return np.concatenate([np.where(kept[..., None], turned, entry), rim], axis=1)


def _hemispheres(dataset: xr.Dataset, viewpoint) -> list[tuple]:
    """Polygons, their cells, and the frame of the front and the back hemisphere."""
    nodes, cell_nodes = stored_cells(dataset)
    frames = [view_frame(viewpoint), view_frame(-np.asarray(viewpoint, dtype=float))]
    return [(*hemisphere_polygons(nodes, cell_nodes, frame), frame) for frame in frames]


def view_frame(viewpoint) -> np.ndarray:
    """Right, up and towards the eye, as rows: e3 points up, or e1 when seen from a pole.

    Examples
    --------
    >>> view_frame([1, 0, 0]).tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """
    eye = normalize(np.asarray(viewpoint, dtype=float))
    vertical = np.array([0.0, 0.0, 1.0]) if abs(eye[2]) < 0.999 else np.array([1.0, 0.0, 0.0])
    right = normalize(np.cross(vertical, eye))
    return np.stack([right, np.cross(eye, right), eye])


def _globe(figure, places, halves, values, label, outline=None) -> list:
    """Two hemispheres and a colour bar."""
    norm, extend = _norm(values)
    axes = [figure.add_subplot(place) for place in places[:2]]
    for panel, (polygons, cells, frame) in zip(axes, halves, strict=True):
        # Antialiased cells would let the background shine through at their edges.
        patches = PolyCollection(
            polygons,
            array=np.clip(values[cells], norm.vmin, norm.vmax),
            cmap=COLOURS,
            norm=norm,
            edgecolors=outline or "none",
            linewidths=0.3,
            antialiaseds=outline is not None,
            rasterized=True,
        )
        patches.set_in_layout(False)  # measuring every cell would take as long as drawing it
        panel.add_collection(patches, autolim=False)
        _dress(panel, frame, planes=outline is None)
    bar = figure.colorbar(
        ScalarMappable(norm, COLOURS), cax=figure.add_subplot(places[2]), extend=extend
    )
    bar.set_label(label)
    return axes


def _dress(panel, frame, planes: bool) -> None:
    """The rim, the coordinate planes, and the axes that come out of the sphere."""
    circle = np.append(np.linspace(0, 2 * np.pi, 181), np.nan)
    panel.plot(*(RIM * directions(circle)).T, color="0.2", linewidth=1.0)
    for axis in range(3):
        points = np.insert(directions(circle), axis, 0.0, axis=1) @ frame.T
        points[points[:, 2] < -1e-9] = np.nan
        flat = points[:, :2] * np.sqrt(2 / (1 + points[:, 2:]))
        if planes:
            panel.plot(*flat.T, color="white", linewidth=0.5, alpha=0.6)
        for sign in (1.0, -1.0):
            point = sign * frame[:, axis]
            if point[2] > 0.05:
                flat = point[:2] * np.sqrt(2 / (1 + point[2]))
                _label(panel, flat, f"${'-' if sign < 0 else ''}e_{axis + 1}$")
    panel.set(xlim=(-1.02 * RIM, 1.02 * RIM), ylim=(-1.02 * RIM, 1.02 * RIM), aspect="equal")
    panel.set(xticks=[], yticks=[], frame_on=False)


def _label(panel, place, text: str) -> None:
    outline = [patheffects.withStroke(linewidth=1.5, foreground="black")]
    style = {"color": "white", "path_effects": outline}
    panel.plot(*place, marker="o", markersize=2.5, **style)
    panel.annotate(text, place, (4, 4), textcoords="offset points", fontsize=9, **style)


def _name_views(axes, viewpoint) -> None:
    for panel, sign in zip(axes, (1, -1), strict=True):
        place = ", ".join(f"{sign * component:g}" for component in np.atleast_1d(viewpoint))
        panel.set_title(_typeset(f"seen from ({place})"), fontsize=9)


def _curves(panel, dataset: xr.Dataset) -> None:
    """Densities over the angle at several times, coloured by time."""
    count = dataset.sizes["time"]
    numbers = np.unique(np.linspace(0, count - 1, min(count, CURVES)).round().astype(int))
    angle = dataset["theta"].values
    closed = np.append(angle, angle[0] + 2 * np.pi)
    density = dataset["density"].isel(time=numbers).values
    lines = [np.column_stack([closed, np.append(row, row[0])]) for row in density]
    times = dataset["time"].values
    curves = LineCollection(lines, array=times[numbers], cmap=LINE_COLOURS, linewidths=1.4)
    curves.set_clim(times[0], times[-1])
    panel.add_collection(curves)
    ticks = np.arange(5) * np.pi / 2
    panel.set(xlim=(0, 2 * np.pi), xlabel="angle θ", ylabel="density (uniform is 1)")
    panel.set_xticks(ticks, ["0", "π/2", "π", "3π/2", "2π"])
    norm, _ = _norm(density)
    if isinstance(norm, LogNorm):
        panel.set(yscale="log", ylim=(norm.vmin / 1.5, norm.vmax * 1.5))
    else:
        panel.set_ylim(0, 1.08 * norm.vmax)
    panel.figure.colorbar(curves, ax=panel, label="time t")


def _series(figure, places, dataset: xr.Dataset) -> None:
    """Energy over time, and dissipation, or the smallest density if there is none."""
    energy, dissipation = dataset["energy"].values, dataset["dissipation"].values
    moderate = np.isfinite(energy).all() and energy.max() < 1e4
    upper = ("energy", "energy E") if moderate else ("log_energy", "log E")
    lower = ("dissipation", "dissipation")
    if not np.isfinite(dissipation).any():
        lower = ("min_density", "smallest density") if "min_density" in dataset else upper
    panels = figure.add_subplot(places[0]), figure.add_subplot(places[1])
    panels[0].sharex(panels[1])
    for panel, (name, label), colour in zip(panels, (upper, lower), ("C0", "C1"), strict=True):
        values = dataset[name].values
        panel.plot(dataset["time"].values, values, ".-", color=colour, markersize=4)
        positive = values[np.isfinite(values) & (values > 0)]
        if positive.size and positive.max() > WIDE_RANGE * positive.min():
            panel.set_yscale("log", nonpositive="mask")
        panel.set_ylabel(label)
        panel.grid(color="0.9")
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].tick_params(labelbottom=False)
    panels[1].set_xlabel("time t")


def _norm(values) -> tuple[Normalize, str]:
    """Linear or logarithmic colours, and whether values lie below them."""
    low, high = float(np.min(values)), float(np.max(values))
    if high <= low * (1 + 1e-9):
        return Normalize(0.0, 2 * high), "neither"
    if high <= WIDE_RANGE * low:
        return Normalize(low, high), "neither"
    floor = DECADES * high
    return LogNorm(max(low, floor), high), "min" if low < floor else "neither"


def _plot_ring(dataset: xr.Dataset) -> Figure:
    """The arcs of S^1 and their ends."""
    figure = _figure(4.0, 4.0)
    panel = figure.add_subplot()
    nodes = np.stack([dataset["mesh_node_x"].values, dataset["mesh_node_y"].values], axis=1)
    panel.plot(*directions(np.linspace(0, 2 * np.pi, 361)).T, color="C0", linewidth=1.0)
    ticks = np.stack([0.97 * nodes, 1.03 * nodes], axis=1)
    panel.add_collection(LineCollection(ticks, colors="0.2", linewidths=0.6))
    panel.plot(dataset["x"], dataset["y"], ".", color="C1", markersize=3)
    panel.set(aspect="equal", xlabel="$x_1$", ylabel="$x_2$")
    panel.set_title(f"{len(nodes)} arcs", fontsize=10)
    return figure
