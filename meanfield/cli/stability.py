"""The verb `stability` of the command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from meanfield.cli import options
from meanfield.cli.pictures import check_picture, draw
from meanfield.dynamics.evolution import CONCENTRATED
from meanfield.dynamics.particle_clusters import find_clusters
from meanfield.equilibria.stability import ANGLE, stability
from meanfield.errors import InputError
from meanfield.measures import Measure
from meanfield.results.dataset import save_dataset
from meanfield.results.end_state import EndState, end_state
from meanfield.results.files import check_output
from meanfield.sphere.meshes import Mesh

CARRIED = 1e-3  # of the largest mass: cells with less do not make a cluster
NEIGHBOURS = 2.0  # mean distances of centres: cells that are closer are in one cluster


def stability_command(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="RUN.nc", help="Saved by evolve, particles or minimize; its last state."
        ),
    ],
    modes: Annotated[int, typer.Option(help="How many growth rates.")] = 6,
    tolerance: Annotated[
        float | None,
        typer.Option(
            help="Of the residual of a stationary state; by default 1e-6, and 1e-4 for densities."
        ),
    ] = None,
    angle: Annotated[
        float, typer.Option(help="In radians: particles that are closer are one cluster.")
    ] = ANGLE,
    start: Annotated[
        int | None, typer.Option(help="Which start of an ensemble, counted from 0.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE.nc", help="Write rates and fields.")
    ] = None,
    plot: options.Picture = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Say whether the last state of a run is stationary, and whether it is stable.

    Prints the residual (speed over its bound), the index (number of unstable directions) and
    growth rates; members of one cluster may separate, which is marked "splitting". The picture
    shows the leading mode.
    """
    if output is not None:
        check_output(output, overwrite)
    check_picture(plot, overwrite)
    end = end_state(file)
    measure = chosen(end, start)
    state, kind = _state(end.verb, measure, angle)
    found = stability(state, end.model, modes, tolerance, kind=kind)
    print(f"{file}: {_origin(end, measure, kind)}")
    print(found.describe())
    if output is None and plot is None:
        return
    dataset = found.to_dataset()
    if output is not None:
        save_dataset(dataset, output, overwrite)
        print(f"  written: {output}")
    draw(dataset, plot, overwrite)


def chosen(end: EndState, start: int | None) -> Measure:
    """The last state of the wanted start."""
    count = len(end.measures)
    if count == 1 and start in (None, 0):
        return end.measures[0]
    if start is None:
        raise InputError(f"the run is an ensemble: choose --start from 0 to {count - 1}")
    if not 0 <= start < count:
        raise InputError(f"--start is {start}, it must be from 0 to {count - 1}")
    return end.measures[start]


def _state(verb: str, measure: Measure, angle: float):
    """What is linearised, and whether it is a density or clusters."""
    if verb == "evolve_characteristics":
        return measure, "density"
    if measure.space is None:
        return find_clusters(measure.points, measure.masses, angle), "clusters"
    clusters = _grid_clusters(measure)
    return (measure, "density") if clusters is None else (clusters, "clusters")


def _grid_clusters(measure: Measure):
    """Clusters that have shrunk to a few cells of the mesh; None if there is a density."""
    space, n = measure.space, measure.dimension
    if isinstance(space, Mesh):
        distance = space.cell_size
    else:  # nodes of a quadrature: about as far apart as equal cells
        distance = (space.surface / len(space)) ** (1 / (n - 1))
    carried = measure.masses > CARRIED * measure.masses.max()
    masses = measure.masses[carried] / measure.masses[carried].sum()
    clusters = find_clusters(measure.points[carried], masses, NEIGHBOURS * distance)
    few = carried.sum() <= CONCENTRATED.get(n, CONCENTRATED[3]) * clusters.count
    spread = not np.isfinite(clusters.centres).all()
    return clusters if few and not spread and carried.sum() < len(measure) / 2 else None


def _origin(end: EndState, measure: Measure, kind: str) -> str:
    """Which state of which run it is."""
    when = "" if end.time is None else f" at t = {end.time:g}"
    count = len(measure)
    if measure.space is not None:
        where = f"on {measure.space.name}"
        merged = ", concentrated in clusters of a few points" if kind == "clusters" else ""
    else:
        where, merged = f"of {count} {'particles' if kind == 'clusters' else 'moved nodes'}", ""
    return f"{end.verb} {where}{when}{merged}"
