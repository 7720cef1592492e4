"""Movies of evolutions: densities on S^1 and S^2, moving nodes, particles.

Every frame changes the artists of one figure, so that axes and colours stay in place. GIF files
are written by Pillow, which comes with matplotlib; MP4 files need ffmpeg.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib import colormaps
from matplotlib.animation import FFMpegWriter
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LogNorm, to_rgb
from matplotlib.figure import Figure
from PIL import Image

from meanfield.errors import FileError, InputError
from meanfield.plots import meshes
from meanfield.plots.points import ANGLES, TRAJECTORIES, _project, positions
from meanfield.results.files import replacing
from meanfield.sphere.geometry import directions, distance

if TYPE_CHECKING:
    import xarray as xr

MAX_FRAMES = 300  # of more, so many are shown, evenly spread
MAX_FPS = 50.0  # viewers slow down faster GIFs
HOLD = 1.0  # seconds that the last frame stays
TAIL = 10  # frames whose positions a particle draws behind it
DPI = 100
DENSITY = "density (uniform is 1)"

Update = Callable[[int], None]


def save_movie(dataset: xr.Dataset, path, overwrite: bool = False, fps: float = 20.0) -> None:
    """Write a movie of an evolution, completely or not at all.

    Parameters
    ----------
    dataset : xarray.Dataset
        With a dimension ``time``: of `evolve`, `evolve_characteristics`, `evolve_particles` or
        `transformer`, or read from its file. Of an ensemble the first start is shown.
    path : path-like
        ``.gif``, or ``.mp4`` where there is ffmpeg.
    overwrite : bool
    fps : float
        Frames per second, in (0, 50]. Every saved frame is shown once, of more than 300 an
        even choice of 300; the last one stays for a second.

    Raises
    ------
    FileError
        If the file exists and ``overwrite`` is False, its name ends otherwise, there is no
        ffmpeg for ``.mp4``, or writing fails.
    InputError
        If the dataset has no time axis, or ``fps`` is out of range.

    Examples
    --------
    >>> import meanfield as mf
    >>> from tempfile import TemporaryDirectory
    >>> model = mf.SelfAttention([1.0, 2.0], sign=-1)
    >>> run = mf.evolve(mf.circle(8), model, mf.uniform(), t_end=0.1, save=3)
    >>> with TemporaryDirectory() as folder:
    ...     save_movie(run.to_dataset(), f"{folder}/run.gif")
    ...     with Image.open(f"{folder}/run.gif") as movie:
    ...         movie.n_frames
    3
    """
    form = movie_format(path)
    if not 0 < fps <= MAX_FPS:
        raise InputError(f"fps must be in (0, {MAX_FPS:g}], got {fps:g}")
    if not dataset.sizes.get("time"):
        raise InputError("a movie needs frames in time: this dataset has no time axis")
    with replacing(path, overwrite) as temporary:
        write = _write_gif if form == "gif" else _write_mp4
        write(_film(dataset), temporary, fps)


def movie_format(path) -> str:
    """The format that the ending of a name stands for.

    Raises
    ------
    FileError
        If it is neither ``.gif`` nor ``.mp4``, or there is no ffmpeg to write the latter.

    Examples
    --------
    >>> movie_format("run.gif")
    'gif'
    """
    form = Path(path).suffix.lstrip(".").lower()
    if form not in ("gif", "mp4"):
        raise FileError(f"{path}: the name of a movie must end in .gif or .mp4")
    if form == "mp4" and not FFMpegWriter.isAvailable():
        raise FileError(f"{path}: .mp4 needs ffmpeg, which is not installed; use .gif instead")
    return form


def _write_gif(film: _Film, path: Path, fps: float) -> None:
    palette = _palette()
    images = (_image(film.figure, palette) for _ in film.frames())
    first = next(images)
    durations = np.full(len(film.numbers), round(1000 / fps))
    durations[-1] += round(1000 * HOLD)
    # Pillow takes one image after the other, and shows equal ones longer instead of again.
    first.save(
        path, "GIF", save_all=True, append_images=images, duration=durations.tolist(), loop=0
    )


def _image(figure: Figure, palette: Image.Image) -> Image.Image:
    figure.canvas.draw()
    shown = Image.fromarray(np.asarray(figure.canvas.buffer_rgba())[..., :3].copy())
    return shown.quantize(palette=palette, dither=Image.Dither.NONE)


def _palette() -> Image.Image:
    """The 256 colours of a GIF, the same in all frames: colour bar, greys, blue and red.

    A palette chosen for each frame would make the colour bar flicker.
    """
    shares = np.linspace(0, 1, 24, endpoint=False)[:, None]
    tints = [(1 - shares) * np.array(to_rgb(name)) + shares for name in ("C0", "C3")]
    greys = np.linspace(0, 1, 32)[:, None].repeat(3, axis=1)
    bar = colormaps[meshes.COLOURS](np.linspace(0, 1, 176))[:, :3]
    palette = Image.new("P", (1, 1))
    palette.putpalette(
        np.rint(255 * np.concatenate([bar, greys, *tints])).astype(np.uint8).tobytes()
    )
    return palette


def _write_mp4(film: _Film, path: Path, fps: float) -> None:
    # The format is named because the temporary file has another ending.
    writer = FFMpegWriter(fps=fps, extra_args=["-f", "mp4"])
    try:
        with writer.saving(film.figure, path, DPI):
            for _ in film.frames():
                writer.grab_frame()
            for _ in range(round(HOLD * fps)):
                writer.grab_frame()
    except subprocess.CalledProcessError as error:
        raise FileError(
            f"ffmpeg failed with exit status {error.returncode}; use .gif instead"
        ) from error


@dataclass(frozen=True)
class _Film:
    """A figure, the numbers of the frames to show, and what shows one of them."""

    figure: Figure
    numbers: list[int]
    show: Update

    def frames(self) -> Iterator[int]:
        """Put one frame after the other on the figure."""
        for number in self.numbers:
            self.show(number)
            yield number


def _film(dataset: xr.Dataset) -> _Film:
    if "start" in dataset.dims:
        dataset = dataset.isel(start=0)
    times = dataset["time"].values
    numbers = np.linspace(0, len(times) - 1, min(len(times), MAX_FRAMES)).round().astype(int)
    figure, updates = _scene(dataset, numbers)
    title = meshes._typeset(dataset.attrs.get("title", ""))

    def show(number: int) -> None:
        figure.suptitle(f"{title}\nt = {times[number]:.4g}", fontsize=10)
        for update in updates:
            update(number)

    show(int(numbers[0]))
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # what has found its place stays there
    return _Film(figure, numbers.tolist(), show)


def _scene(dataset: xr.Dataset, numbers) -> tuple[Figure, list[Update]]:
    """The panels that fit the dataset, with what brings each of them to a frame."""
    cells = "point" not in dataset.dims
    points = None if cells else positions(dataset)
    on_circle = "mesh_edge_nodes" in dataset if cells else points.shape[2] == 2
    globe = not on_circle and (cells or points.shape[2] == 3)
    figure = meshes._figure(9.6 if globe else 8.0, 4.0)
    figure.set_dpi(DPI)
    if globe:
        grid = figure.add_gridspec(1, 4, width_ratios=(1, 1, 0.05, 0.9))
        places = [grid[0, column] for column in range(3)]
        main = (
            _cells(figure, places, dataset, numbers)
            if cells
            else _points(figure, places, dataset, points)
        )
        return figure, [main, *_clock(figure, grid[0, 3], dataset)]
    grid = figure.add_gridspec(1, 2, width_ratios=(1.4, 1))
    panel = figure.add_subplot(grid[0, 0])
    if "density" in dataset:
        main = _curve(panel, dataset, numbers, points)
    elif on_circle:
        main = _ring(panel, points)
    else:
        main = _pair_angles(panel, points)
    return figure, [main, *_clock(figure, grid[0, 1], dataset)]


def _clock(figure, place, dataset: xr.Dataset) -> list[Update]:
    """The energy over time with a dot at the frame; nothing where there is no energy."""
    if not ("log_energy" in dataset and np.isfinite(dataset["log_energy"].values).any()):
        return []
    times, energy, label = dataset["time"].values, dataset["energy"].values, "energy E"
    if not (np.isfinite(energy).all() and energy.max() < 1e4):
        energy, label = dataset["log_energy"].values, "log E"
    panel = figure.add_subplot(place)
    panel.plot(times, energy, color="C0", linewidth=1.2)
    (dot,) = panel.plot([], [], "o", color="C0", markersize=5)
    panel.set(xlabel="time t", ylabel=label)
    panel.grid(color="0.9")
    panel.spines[["top", "right"]].set_visible(False)
    return [lambda number: dot.set_data(times[[number]], energy[[number]])]


def _range(dataset: xr.Dataset, numbers) -> np.ndarray:
    """Smallest and largest density of all frames, one frame in memory at a time."""
    ends = [(row.min(), row.max()) for row in map(_reader(dataset), numbers)]
    return np.array([min(low for low, _ in ends), max(high for _, high in ends)])


def _reader(dataset: xr.Dataset) -> Callable[[int], np.ndarray]:
    return lambda number: dataset["density"].isel(time=int(number)).values


def _cells(figure, places, dataset: xr.Dataset, numbers) -> Update:
    """The density on two hemispheres of cells."""
    density = _reader(dataset)
    halves = meshes._hemispheres(dataset, meshes.VIEWPOINT)
    # The last two values belong to no cell: they make the colours those of all frames.
    values = np.append(density(numbers[0]), _range(dataset, numbers))
    axes = meshes._globe(figure, places, halves, values, DENSITY)
    meshes._name_views(axes, meshes.VIEWPOINT)

    def update(number: int) -> None:
        values = density(number)
        for panel, (_, cells, _) in zip(axes, halves, strict=True):
            patches = panel.collections[0]
            patches.set_array(np.clip(values[cells], *patches.get_clim()))

    return update


def _points(figure, places, dataset: xr.Dataset, points: np.ndarray) -> Update:
    """Points on two hemispheres: particles with a tail, or nodes with their density."""
    axes = [figure.add_subplot(place) for place in places[:2]]
    values, norm = None, None
    if "density" in dataset:
        values = dataset["density"].values
        norm, extend = meshes._norm(values)
        bar = figure.add_subplot(places[2])
        figure.colorbar(ScalarMappable(norm, meshes.COLOURS), bar, extend=extend, label=DENSITY)
    size = float(np.clip(3000 / points.shape[1], 4, 30))
    step = max(1, points.shape[1] // TRAJECTORIES)
    parts = []
    for panel, sign in zip(axes, (1, -1), strict=True):
        frame = meshes.view_frame(sign * np.asarray(meshes.VIEWPOINT))
        meshes._dress(panel, frame, planes=False)
        for text in panel.texts:
            text.set(color="black", path_effects=[])
        tails = LineCollection([], colors="0.6", linewidths=0.7)
        panel.add_collection(tails, autolim=False)
        style = {"c": "C3"} if values is None else {"c": [], "cmap": meshes.COLOURS, "norm": norm}
        parts.append((frame, tails, panel.scatter([], [], s=size, linewidths=0, zorder=3, **style)))
    meshes._name_views(axes, meshes.VIEWPOINT)

    def update(number: int) -> None:
        for frame, tails, dots in parts:
            flat, seen = _project(points[number], frame)
            dots.set_offsets(flat[seen])
            if values is not None:
                dots.set_array(np.clip(values[number][seen], norm.vmin, norm.vmax))
            else:
                flat, seen = _project(points[max(0, number - TAIL) : number + 1, ::step], frame)
                flat[~seen] = np.nan
                tails.set_segments(np.moveaxis(flat, 1, 0))

    return update


def _curve(panel, dataset: xr.Dataset, numbers, points: np.ndarray | None) -> Update:
    """The density over the angle, the first one in grey behind it."""
    density = _reader(dataset)
    low_high = _range(dataset, numbers)
    norm, _ = meshes._norm(low_high)

    def curve(number: int) -> tuple[np.ndarray, np.ndarray]:
        if points is None:
            angle = dataset["theta"].values
        else:
            angle = np.arctan2(points[number, :, 1], points[number, :, 0])
        order = np.argsort(angle % (2 * np.pi))
        # One point more at both ends, so that the curve is closed.
        around = np.concatenate([order[-1:], order, order[:1]])
        turned = angle[around] % (2 * np.pi)
        turned[[0, -1]] += (-2 * np.pi, 2 * np.pi)
        return turned, density(number)[around]

    panel.plot(*curve(numbers[0]), color="0.75", linewidth=1.0)
    (line,) = panel.plot([], [], color="C0", linewidth=1.5)
    panel.set(xlim=(0, 2 * np.pi), xlabel="angle θ", ylabel=DENSITY)
    panel.set_xticks(np.arange(5) * np.pi / 2, ["0", "π/2", "π", "3π/2", "2π"])
    if isinstance(norm, LogNorm):
        panel.set(yscale="log", ylim=(norm.vmin / 1.5, norm.vmax * 1.5))
    else:
        panel.set_ylim(0, 1.08 * low_high[1])
    return lambda number: line.set_data(*curve(number))


def _ring(panel, points: np.ndarray) -> Update:
    """Particles on S^1."""
    panel.plot(*directions(np.linspace(0, 2 * np.pi, 361)).T, color="0.8", linewidth=1.0, zorder=0)
    for axis, place in enumerate(((1.18, 0), (0, 1.15))):
        panel.annotate(f"$e_{axis + 1}$", place, ha="center", va="center")
    size = float(np.clip(3000 / points.shape[1], 4, 40))
    dots = panel.scatter([], [], s=size, c="C3", alpha=0.6, linewidths=0)
    panel.set(xlim=(-1.25, 1.25), ylim=(-1.25, 1.25), aspect="equal", frame_on=False)
    panel.set(xticks=[], yticks=[])
    return lambda number: dots.set_offsets(points[number])


def _pair_angles(panel, points: np.ndarray) -> Update:
    """For n > 3: how the angles between particles are distributed; clusters are peaks at 0."""
    few = points[:, :: max(1, points.shape[1] // ANGLES)]
    first, second = np.triu_indices(few.shape[1], 1)
    edges = np.linspace(0, np.pi, 61)

    def shares(number: int) -> np.ndarray:
        counts, _ = np.histogram(distance(few[number][first], few[number][second]), edges)
        return counts / max(1, len(first))

    panel.stairs(shares(0), edges, color="0.7")
    stairs = panel.stairs(shares(0), edges, color="C3", fill=True, alpha=0.7)
    panel.set(xlim=(0, np.pi), ylim=(0, 1), xlabel="angle between two points")
    panel.set_ylabel("share of the pairs")
    panel.set_yscale("symlog", linthresh=0.01)
    panel.set_xticks(np.arange(3) * np.pi / 2, ["0", "π/2", "π"])
    return lambda number: stairs.set_data(shares(number))
