"""The verb `distance` of the command."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from meanfield.cli import options, parsing
from meanfield.cli.messages import FAILED, fail
from meanfield.cli.pictures import check_picture, draw
from meanfield.cli.stability import chosen
from meanfield.errors import InputError
from meanfield.measures import Measure
from meanfield.model.interaction import Interaction
from meanfield.results.dataset import save_dataset
from meanfield.results.end_state import end_state
from meanfield.results.files import check_output
from meanfield.results.points import read_points
from meanfield.transport.geodesic import Geodesic
from meanfield.transport.mobility import METHODS, mobility_distance
from meanfield.transport.wasserstein import wasserstein_bounds

UNEVEN = 0.02  # speeds that vary by more need more steps
FILE_HELP = "A saved run or extremum (its last state; RUN.nc:K of start K), or points FILE.csv."


def distance_command(
    first: Annotated[str, typer.Argument(metavar="A.nc", help=FILE_HELP)],
    second: Annotated[str, typer.Argument(metavar="B.nc", help="The same.")],
    D: Annotated[
        str | None,
        typer.Option(
            "--D",
            metavar="MATRIX",
            help=f"Of the kernel exp(x.Dy): {parsing.MATRIX_HELP}; by default that of the files.",
        ),
    ] = None,
    kernel: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="A constant kernel, > 0, instead of D.")
    ] = None,
    steps: Annotated[int, typer.Option(help="Intervals of time.")] = 32,
    method: Annotated[
        str, typer.Option(help=f"{', '.join(METHODS)}; auto takes the cells of a common mesh.")
    ] = "auto",
    particles: Annotated[
        int | None, typer.Option(help="Clouds: about how many particles carry the masses.")
    ] = None,
    starts: Annotated[int, typer.Option(help="Clouds: how many first guesses are tried.")] = 4,
    seed: Annotated[int, typer.Option(help="Clouds: of the guesses.")] = 0,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE.nc", help="Write the geodesic.")
    ] = None,
    plot: options.Picture = None,
    overwrite: options.Overwrite = False,
) -> int:
    """Compute the distance W_m of two states, a geodesic between them, and W1 and W2 beside it.

    The distance belongs to the mobility of attention: moving mass costs the partition function
    at its place. Of point clouds it is an upper bound. Without convergence the exit status is 1.
    """
    began = time.perf_counter()
    if output is not None:
        check_output(output, overwrite)
    check_picture(plot, overwrite)
    if D is not None and kernel is not None:
        raise InputError("give either --D or --kernel")
    (a, matrix), (b, other) = read_state(first), read_state(second)
    interaction = Interaction(_matrix(D, matrix, other)) if kernel is None else kernel
    try:
        found = mobility_distance(
            a, b, interaction, steps, particles, starts, seed, method, progress=True
        )
    except KeyboardInterrupt:
        raise typer.Abort from None
    print(summary(found, *(wasserstein_bounds(a, b, p) for p in (1, 2))))
    print(f"  {time.perf_counter() - began:.1f} s")
    if output is not None or plot is not None:
        dataset = found.to_dataset()
        if output is not None:
            save_dataset(dataset, output, overwrite)
            print(f"  written: {output}")
        draw(dataset, plot, overwrite)
    if found.converged:
        return 0
    return fail(
        FAILED,
        f"did not converge: the residual is {found.residual:.3g}; the curve that was found is "
        f"{found.distance:.6g} long, try more --steps",
    )


def read_state(name: str) -> tuple[Measure, np.ndarray | None]:
    """The last state in a file, and the D of its model, if it has a single one.

    Parameters
    ----------
    name : str
        ``FILE.nc``, ``FILE.nc:K`` for start K of an ensemble, or a file of points.

    Raises
    ------
    FileError, PointsError, InputError
        If it cannot be read, or a start must be chosen.
    """
    numbered = re.fullmatch(r"(.+):(\d+)", name)
    start = None
    if numbered and not Path(name).exists():
        name, start = numbered[1], int(numbered[2])
    if Path(name).suffix.lower() in (".csv", ".txt"):
        return Measure(read_points(name)), None
    end = end_state(name)
    return _state_of(end, start, name), getattr(end.model, "D", None)


def _state_of(end, start: int | None, name: str) -> Measure:
    try:
        return chosen(end, start)
    except InputError:
        count = len(end.measures)
        raise InputError(
            f"{name} is an ensemble: choose a start, {name}:0 to {name}:{count - 1}"
            if count > 1
            else f"{name} has one start only"
        ) from None


def _matrix(D: str | None, first, second) -> np.ndarray:
    """The D of the kernel: what was asked for, else what the files agree on."""
    if D is not None:
        return parsing.parse_matrix(D)
    if first is None and second is None:
        raise InputError("points and runs of several heads have no kernel: give --D or --kernel")
    if first is not None and second is not None and not np.array_equal(first, second):
        raise InputError("the two runs have different D: choose the kernel with --D or --kernel")
    return second if first is None else first


def summary(found: Geodesic, first, second) -> str:
    """Distances, bounds, and how good the geodesic is, in a few lines.

    Parameters
    ----------
    found : Geodesic
    first, second : tuple of float
        Bounds of W1 and W2.

    Examples
    --------
    >>> found = mobility_distance([[1.0, 0.0]], [[0.0, 1.0]], 4.0, steps=4, particles=1)
    >>> print(summary(found, (1.0, 1.0), (1.0, 1.5)).splitlines()[2])
      W1 = 1, W2 in [1, 1.5]
    """
    if found.kind == "mesh":
        where, bound = f"cells of {found.mesh.name}", ""
    else:
        tried = len(found.parameters["start_distances"])
        where = f"{len(found.masses)} particles, best of {tried} start{'s' * (tried > 1)}"
        bound = " (an upper bound)"
    rough = ", more --steps make it even" if found.speed_variation > UNEVEN else ""
    state = "converged" if found.converged else "did not converge"
    return "\n".join(
        [
            f"W_m = {found.distance:.10g}{bound}: {where}, {len(found.speed)} intervals of time",
            f"  sqrt(C) W2 = {found.lower:.6g} <= W_m <= sqrt(C~) W2 = {found.upper:.6g}",
            f"  {_interval('W1', first)}, {_interval('W2', second)}",
            f"  speed constant to {100 * found.speed_variation:.2g} %{rough}",
            f"  {state}: residual {found.residual:.2g}",
        ]
    )


def _interval(name: str, bounds) -> str:
    if bounds[0] == bounds[1]:
        return f"{name} = {bounds[0]:.10g}"
    return f"{name} in [{bounds[0]:.6g}, {bounds[1]:.6g}]"
