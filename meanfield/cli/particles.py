"""The verb `particles` of the command."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from meanfield.cli import options, parsing
from meanfield.cli.evolve import written
from meanfield.cli.pictures import check_movie, check_picture, draw, film
from meanfield.cli.surviving import DEFAULT_CHECKPOINT, Checkpoint, Resume, kept, survive
from meanfield.dynamics.particle_evolution import ParticleEvolution
from meanfield.dynamics.particle_methods import METHODS
from meanfield.dynamics.particle_starts import random_points
from meanfield.dynamics.particles import prepare_flow, prepare_layers
from meanfield.dynamics.timestepping import save_times
from meanfield.errors import InputError, PointsError, SizeError
from meanfield.results.files import check_output
from meanfield.results.particle_dataset import particle_evolution
from meanfield.results.points import read_points
from meanfield.results.recorded_runs import record_particles
from meanfield.results.ugrid import open_netcdf

POINTS_HELP = "a number N of random ones, or a file FILE.csv"
MAX_BYTES = 2**33  # of all frames together
LISTED = 8  # clusters that are printed


def particles_command(
    D: options.Matrix,
    points: Annotated[
        str, typer.Option(metavar="N|FILE.csv", help=f"Starting points: {POINTS_HELP}.")
    ] = "100",
    t_end: Annotated[float | None, typer.Option(help="Final time, > 0.")] = None,
    layers: Annotated[
        int | None,
        typer.Option(help="Layers of a transformer, X <- Pi(A(X)), instead of a final time."),
    ] = None,
    sign: options.Sign = None,
    V: options.Value = None,
    unnormalized: options.Unnormalized = False,
    seed: Annotated[int, typer.Option(min=0, help="Of random starting points.")] = 0,
    starts: Annotated[
        int | None, typer.Option(help="Many independent random starts, computed together.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(help=f"adaptive (the default), or fixed steps: {', '.join(METHODS)}."),
    ] = None,
    step: Annotated[
        float | None, typer.Option(help="Fixed step, 0.05 by default; of a layer 1.")
    ] = None,
    tolerance: Annotated[
        float | None, typer.Option(help="Of the adaptive method, 1e-8 by default.")
    ] = None,
    stationary: Annotated[
        float | None, typer.Option(help="Stop when the fastest particle is at most this fast.")
    ] = None,
    save: Annotated[
        str | None,
        typer.Option(
            metavar="N|TIMES",
            help=f"Frames: {parsing.SAVE_HELP}; 21 by default, or every layer.",
        ),
    ] = None,
    angle: Annotated[
        float, typer.Option(help="Particles within this angle (radians) are one cluster.")
    ] = 0.05,
    output: options.Output = Path("run.nc"),
    plot: options.Picture = None,
    movie: options.Movie = None,
    overwrite: options.Overwrite = False,
    resume: Resume = False,
    checkpoint: Checkpoint = DEFAULT_CHECKPOINT,
) -> int:
    """Move particles by self-attention, or send tokens through layers, and save the run.

    Prints energies and clusters; antipodal clusters are two. Frames are written as they come;
    until the run is complete they are in FILE.nc.partial, and --resume goes on after a stop.
    """
    began = time.perf_counter()
    model = options.build_model(D, sign, V, unnormalized)
    frames = parsing.parse_save(save)
    count = _check_times(t_end, layers, frames, method, tolerance, stationary)
    if not 0 < angle < np.pi:
        raise InputError(f"--angle must be in (0, pi) radians, got {angle:g}")
    check_output(output, overwrite or resume)
    plot, movie = kept(plot, resume, overwrite), kept(movie, resume, overwrite)
    check_picture(plot, overwrite)
    check_movie(movie, overwrite)
    begin = starting_points(points, model.dimension, seed, starts, count)
    if layers is None:
        flow = {"method": method or "adaptive", "step": step, "tolerance": tolerance}
        run = prepare_flow(begin, model, t_end, save=frames, stationary=stationary, **flow)
    else:
        run = prepare_layers(begin, model, layers, 1.0 if step is None else step, save=frames)
    origin = _origin(points, seed, starts)
    origin = {**run.parameters["start"], **origin}
    run = dataclasses.replace(run, parameters={**run.parameters, "start": origin})
    rest = {"checkpoint": checkpoint, "resume": resume, "overwrite": overwrite}
    recorded = survive(
        output, lambda stop: record_particles(output, run, progress=True, stop=stop, **rest)
    )
    if isinstance(recorded, int):
        return recorded
    with open_netcdf(output) as dataset:
        print(summary(dataset, angle))
        print(written(output, began, recorded.found))
        draw(dataset, plot, overwrite)
        film(dataset, movie, overwrite)
    return 0


def _origin(points: str, seed: int, starts: int | None) -> dict:
    """Where the starting points come from."""
    if parsing.parse_numbers(points) is None:
        return {"kind": "file", "source": points}
    return {"kind": "random", "count": int(float(points)), "seed": seed, "starts": starts}


def _check_times(t_end, layers, save, method, tolerance, stationary) -> int:
    """The number of frames, when there is either a final time or a number of layers."""
    if (t_end is None) == (layers is None):
        raise InputError("give either --t-end (the flow) or --layers (a transformer)")
    if layers is None:
        return len(save_times(t_end, save))
    if not (method is None and tolerance is None and stationary is None):
        raise InputError("--method, --tolerance and --stationary go with --t-end, not --layers")
    if isinstance(save, list):
        raise InputError("with --layers, --save must be a number of frames")
    return max(layers, 0) + 1 if save is None else save


def starting_points(text: str, n: int, seed: int, starts: int | None, frames: int) -> np.ndarray:
    """Random points, or those of a file.

    Parameters
    ----------
    text : str
        A number of points, or the name of a CSV file.
    n : int
        Dimension of the model.
    seed : int
    starts : int or None
        Number of random starts.
    frames : int
        How many frames of the run will be kept.

    Returns
    -------
    ndarray, shape (N, n) or (starts, N, n)

    Raises
    ------
    PointsError, FileError, InputError
        If there are no such points.
    SizeError
        If the frames would not fit into memory.

    Examples
    --------
    >>> starting_points("5", 3, seed=1, starts=None, frames=2).shape
    (5, 3)
    """
    number = parsing.parse_numbers(text)
    if number is None:
        if not (Path(text).suffix or Path(text).exists()):
            raise PointsError(f"--points is {text!r}, it must be {POINTS_HELP}")
        if starts is not None:
            raise InputError("--starts needs a number of random points, not a file")
        return read_points(text)
    if not (len(number) == 1 and number[0] >= 1 and number[0] % 1 == 0):
        raise PointsError(f"--points is {text!r}: a number of points must be whole and >= 1")
    needed = 8.0 * n * number[0] * (starts or 1) * frames
    if needed > MAX_BYTES:
        raise SizeError(
            f"{frames} frames of these points need {needed / 2**30:.3g} GiB, more than "
            f"{MAX_BYTES / 2**30:g} GiB: take fewer points or fewer frames (--save)"
        )
    return random_points(int(number[0]), n, seed, starts)


def summary(dataset, angle: float) -> str:
    """What a saved run did, in a few lines; of the points only the ends are read.

    Examples
    --------
    >>> from meanfield.dynamics.particles import evolve_particles
    >>> from meanfield.model.attention import SelfAttention
    >>> run = evolve_particles([[1.0, 0.0], [0.6, 0.8]], SelfAttention([1.0, 2.0]), t_end=20.0)
    >>> print(summary(run.to_dataset(), 0.05).splitlines()[-1])
        mass 1 at (0, 1)
    """
    run, times = particle_evolution(dataset.isel(time=[0, -1])), dataset["time"].values
    name = "log_energy" if dataset["log_energy"].values.max() > 9 else "energy"
    shown, name = dataset[name].values, name.replace("_", " ")
    shown = shown.reshape(len(times), -1).mean(axis=1)
    many = "" if run.starts is None else f"{run.starts} starts of "
    mean = "" if run.starts is None else "mean "
    how = run.parameters.get("method", f"{run.parameters.get('layers')} layers")
    lines = [
        str(run.model),
        f"  {many}{len(run.weights)} particles on S^{run.points.shape[-1] - 1}; {how}",
        f"  t = {times[0]:g} ... {times[-1]:g}: {len(times)} frames; "
        f"{mean}{name} {shown[0]:.8g} ... {shown[-1]:.8g}",
    ]
    if run.parameters.get("stationary") is not None:
        lines.append(f"  {_stops(run)}")
    return "\n".join(lines + _clusters(run, angle))


def _stops(run: ParticleEvolution) -> str:
    stopped = np.atleast_1d(run.stopped)
    still = stopped[np.isfinite(stopped)]
    if run.starts is None:
        return f"stationary at t = {still[0]:.6g}" if len(still) else "not stationary"
    span = f", at t = {still.min():.4g} ... {still.max():.4g}" if len(still) else ""
    return f"{len(still)} of {run.starts} starts stationary{span}"


def _clusters(run: ParticleEvolution, angle: float) -> list[str]:
    """Number, masses and places of the clusters at the end."""
    clusters = run.clusters(angle)
    if run.starts is not None:
        counts, often = np.unique(clusters.count, return_counts=True)
        pairs = [f"{k} in {m}" for k, m in zip(counts[:LISTED], often[:LISTED], strict=True)]
        more = [f"more in {often[LISTED:].sum()}"] if len(counts) > LISTED else []
        return [f"  clusters by starts (within {angle:g} rad): {', '.join(pairs + more)}"]
    lines = [f"  clusters (within {angle:g} rad): {clusters.count}"]
    for mass, centre in zip(clusters.masses[:LISTED], clusters.centres[:LISTED], strict=True):
        place = ", ".join(f"{component:.6g}" for component in centre.round(6) + 0.0)
        lines.append(f"    mass {mass:.6g} at ({place})")
    if clusters.count > LISTED:
        rest = clusters.masses[LISTED:].sum()
        lines.append(f"    and {clusters.count - LISTED} more with the mass {rest:.6g}")
    return lines
