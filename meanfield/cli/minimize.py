"""The verb `minimize` of the command."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from meanfield.cli import options, parsing
from meanfield.cli.evolve import written
from meanfield.cli.messages import say
from meanfield.cli.pictures import check_picture, draw
from meanfield.cli.surviving import DEFAULT_CHECKPOINT, Checkpoint, Resume, kept, survive
from meanfield.equilibria.extremizers import extremizers
from meanfield.equilibria.extremum import Extremum
from meanfield.equilibria.mirror_descent import (
    MAX_ITERATIONS,
    METHODS,
    PAPER_STEP,
    prepare,
)
from meanfield.errors import DensityError
from meanfield.model.interaction import Interaction
from meanfield.results.extremum_dataset import stored_extremum
from meanfield.results.files import check_output
from meanfield.results.recorded_runs import record_extremum
from meanfield.results.rerunning import RandomDensity

START_HELP = "uniform, random:SEED, vmf:MEAN:CONCENTRATION, or FILE.csv[:CONCENTRATION]"
NOT_CONVERGED = 1  # exit status


def minimize_command(
    D: options.Matrix,
    mesh: options.MeshName = None,
    maximum: Annotated[
        bool, typer.Option("--maximize", help="Look for the largest energy instead.")
    ] = False,
    method: Annotated[
        str, typer.Option(help=f"{', '.join(METHODS)}; mirror is the paper's iteration.")
    ] = "auto",
    tolerance: Annotated[float, typer.Option(help="Of the gap relative to the energy.")] = 1e-10,
    max_iterations: Annotated[int, typer.Option(help="Largest number of steps.")] = MAX_ITERATIONS,
    step: Annotated[float, typer.Option(help="Step of --method mirror.")] = PAPER_STEP,
    start: Annotated[
        str | None,
        typer.Option(metavar="DENSITY", help=f"{START_HELP}; by default chosen for this D."),
    ] = None,
    output: options.Output = Path("min.nc"),
    plot: options.Picture = None,
    overwrite: options.Overwrite = False,
    resume: Resume = False,
    checkpoint: Checkpoint = DEFAULT_CHECKPOINT,
) -> int:
    """Minimise or maximise the energy over the densities on a mesh or a quadrature rule.

    Prints the energy, how far it can be from the extremum, and what theory knows of it. Without
    convergence the result is saved too, and the exit status is 1. --resume goes on after a stop.
    """
    began = time.perf_counter()
    interaction = Interaction(parsing.parse_matrix(D))
    check_output(output, overwrite or resume)
    plot = kept(plot, resume, overwrite)
    check_picture(plot, overwrite)
    default = "circle:512" if interaction.dimension == 2 else "icosphere:5"
    space = parsing.parse_mesh(mesh or default)
    begin = None if start is None else parse_start(start)
    sign = -1 if maximum else 1
    search = prepare(space, interaction, begin, method, tolerance, max_iterations, step, sign)
    rest = {"checkpoint": checkpoint, "resume": resume, "overwrite": overwrite}
    recorded = survive(
        output, lambda stop: record_extremum(output, search, progress=True, stop=stop, **rest)
    )
    if isinstance(recorded, int):
        return recorded
    found = stored_extremum(output, search)
    print(summary(found))
    print(written(output, began, recorded.found))
    if plot is not None:
        draw(found.to_dataset(), plot, overwrite)
    if found.converged:
        return 0
    say(
        "error",
        f"did not converge: the relative gap {found.residual:.3g} is above the tolerance "
        f"{tolerance:g} after {found.applications} applications of the kernel; the result is in "
        f"{output}",
    )
    return NOT_CONVERGED


def parse_start(text: str):
    """A density to start from: random, or what `meanfield.cli.parsing.parse_density` takes.

    Raises
    ------
    DensityError, PointsError, FileError
        If it is none of these.

    Examples
    --------
    >>> parse_start("random:7")
    RandomDensity(seed=7)
    """
    kind, _, seed = text.partition(":")
    if kind == "random":
        if not (seed.isascii() and seed.isdigit()):
            raise DensityError(f"--start is {text!r}, random needs random:SEED, a whole number")
        return RandomDensity(int(seed))
    try:
        return parsing.parse_density(text)
    except DensityError as error:
        words = str(error).replace("--density", "--start")
        raise DensityError(words.replace(parsing.DENSITY_HELP, START_HELP)) from None


def summary(found: Extremum) -> str:
    """Energy, certificate, convergence, and theory beside them, in a few lines.

    Examples
    --------
    >>> from meanfield.equilibria.mirror_descent import minimize
    >>> from meanfield.sphere.meshes import circle
    >>> print(summary(minimize(circle(64), Interaction([1.0, 1.0]))).splitlines()[-1])
      theory: min E = 1.26606587775 (found - theory: 0.0e+00): only the uniform distribution
    """
    smallest = found.parameters["verb"] == "minimize"
    if found.certified:
        quality = (
            f"certified gap {found.gap:.3g}: no masses on these points have less than E minus it"
        )
    else:
        why = "D is not positive semidefinite" if smallest else "a maximum may be a local one"
        quality = f"relative residual {found.residual:.3g}; no certificate: {why}"
    degree = found.resolved_degree
    detail = "" if degree is None else f"; harmonics up to degree {degree} resolved"
    state = "converged" if found.converged else "did not converge"
    lines = [
        f"{'minimum' if smallest else 'maximum'} of the energy on {found.space.name}, "
        f"{len(found.space)} points",
        f"  {_energy(found.log_energy)}",
        f"  {quality}",
        f"  {state} after {found.applications} applications of the kernel{detail}",
        f"  density {found.density.min():.6g} ... {found.density.max():.6g} (uniform is 1)",
        f"  theory: {_theory(found, smallest)}",
    ]
    return "\n".join(lines)


def _energy(log_energy: float) -> str:
    if log_energy > 9:
        return f"log E = {log_energy:.12g}"
    return f"E = {np.exp(log_energy):.12g}"


def _theory(found: Extremum, smallest: bool) -> str:
    """The extremal energy over all measures on the sphere, where it is known."""
    known = extremizers(found.interaction.D)
    families = known.minimizers if smallest else known.maximizers
    value = known.minimum_log_energy if smallest else known.maximum_log_energy
    words = " or ".join(family.words for family in families) or "not known"
    if value is None:
        return words
    if max(value, found.log_energy) > 9:
        difference = found.log_energy - value
    else:
        difference = np.exp(found.log_energy) - np.exp(value)
    name = "min" if smallest else "max"
    return f"{name} {_energy(value)} (found - theory: {difference:.1e}): {words}"
