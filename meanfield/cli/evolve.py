"""The verb `evolve` of the command."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from meanfield.cli import options, parsing
from meanfield.cli.messages import fail, say
from meanfield.cli.pictures import check_movie, check_picture, draw, film
from meanfield.cli.regularity import Head, matrix_and_density
from meanfield.cli.surviving import (
    DEFAULT_CHECKPOINT,
    Checkpoint,
    Resume,
    Signals,
    kept,
    survive,
)
from meanfield.dynamics import characteristics
from meanfield.dynamics.evolution import UnresolvedWarning, check_arguments, unresolved
from meanfield.dynamics.finite_volume import takes_differences
from meanfield.dynamics.node_flow import InitialDensity
from meanfield.dynamics.timestepping import Frame, save_times
from meanfield.model.attention import SelfAttention
from meanfield.results.dataset import open_frames, save_dataset, stored_audit
from meanfield.results.files import check_output
from meanfield.results.recorded_runs import is_complete, record_evolution
from meanfield.results.ugrid import open_netcdf
from meanfield.sphere.meshes import Mesh


def evolve_command(
    t_end: options.EndTime,
    D: options.Matrix = None,
    head: Head = None,
    sign: options.Sign = None,
    V: options.Value = None,
    unnormalized: options.Unnormalized = False,
    mesh: options.MeshName = None,
    density: options.Density = None,
    save: Annotated[
        str | None,
        typer.Option(metavar="N|TIMES", help=f"Frames: {parsing.SAVE_HELP}; 21 by default."),
    ] = None,
    order: options.Order = 2,
    cfl: Annotated[float, typer.Option(help="CFL number, in (0, 0.5].")] = 0.45,
    output: options.Output = Path("run.nc"),
    plot: options.Picture = None,
    movie: options.Movie = None,
    overwrite: options.Overwrite = False,
    resume: Resume = False,
    checkpoint: Checkpoint = DEFAULT_CHECKPOINT,
) -> int:
    """Evolve a density by the mean-field equation and save it as NetCDF.

    Frames are written as they come; until the run is complete they are in FILE.nc.partial, and
    --resume goes on after a stop. On a mesh by finite volumes; on lebedev:ORDER the nodes
    follow characteristics, in one go.
    """
    began = time.perf_counter()
    matrix, start = matrix_and_density(D, head, density)
    model = options.build_model(matrix, sign, V, unnormalized)
    times = save_times(t_end, parsing.parse_save(save))
    check_output(output, overwrite or resume)
    plot, movie = kept(plot, resume, overwrite), kept(movie, resume, overwrite)
    check_picture(plot, overwrite)
    check_movie(movie, overwrite)
    cells = parsing.parse_mesh(mesh or ("circle:512" if model.dimension == 2 else "icosphere:5"))
    if not isinstance(cells, Mesh):
        return _evolve_nodes(cells, model, start, times, output, plot, movie, overwrite, resume)
    check_arguments(cells, model, order, cfl)

    def run(stop):
        return record_evolution(
            output, cells, model, start, t_end, times, order, cfl, checkpoint, resume, overwrite,
            progress=True, stop=stop,
        )  # fmt: skip

    recorded = survive(output, run)
    if isinstance(recorded, int):
        return recorded
    with open_frames(output) as stored:
        print(summary(cells, model, order, times, stored_audit(stored)))
        print(written(output, began, recorded.found))
        draw(stored, plot, overwrite)
        film(stored, movie, overwrite)
    return 0


def written(output: Path, began: float, found: bool = False) -> str:
    """The line that ends a run.

    Examples
    --------
    >>> written(Path("run.nc"), 0.0, found=True)
    '  already complete: run.nc'
    """
    if found:
        return f"  already complete: {output}"
    return f"  {time.perf_counter() - began:.1f} s; written: {output}"


def _evolve_nodes(space, model, density, times, output, plot, movie, overwrite, resume) -> int:
    """Characteristics: one integration, saved when it is complete."""
    began = time.perf_counter()
    if resume and _nodes_complete(space, model, density, times, output, overwrite):
        with open_netcdf(output) as stored:
            print(stored.attrs["title"])
            print(written(output, began, found=True))
            draw(stored, plot, overwrite)
            film(stored, movie, overwrite)
        return 0
    check_output(output, overwrite)
    with (
        warnings.catch_warnings(record=True) as caught,
        Signals(at_once=True) as signals,
    ):
        warnings.simplefilter("always", UnresolvedWarning)
        try:
            run = characteristics.evolve_characteristics(
                space, model, density, times[-1], times, progress=True
            )
        except KeyboardInterrupt:
            return fail(signals.status, "interrupted; runs on nodes start again from the beginning")
    for warning in caught:
        say("warning", str(warning.message))
    dataset = run.to_dataset()
    save_dataset(dataset, output, overwrite)
    print(run)
    print(written(output, began))
    draw(dataset, plot, overwrite)
    film(dataset, movie, overwrite)
    return 0


def _nodes_complete(space, model, density, times, output, overwrite) -> bool:
    tolerances = characteristics.TOLERANCE, characteristics.TOLERANCE
    characteristics.check_arguments(space, model, *tolerances)
    begin = InitialDensity.on(space, density)
    parameters = characteristics.run_parameters(
        space, model, density, times, times[-1], *tolerances, begin
    )
    return is_complete(output, parameters, overwrite)


def summary(mesh: Mesh, model: SelfAttention, order: int, times, audit: dict) -> str:
    """What a run did, in a few lines; a warning goes to the standard error stream."""
    warning = unresolved(mesh, Frame(times[-1], None, {key: v[-1] for key, v in audit.items()}))
    if warning:
        say("warning", warning)
    velocity = "two-point" if takes_differences(mesh, model) else "field"
    name = "energy" if np.isfinite(audit["energy"]).all() else "log_energy"
    energy, dissipation = audit[name], audit["dissipation"]
    lines = [
        str(model),
        f"  {mesh.name}: {mesh.n_cells} cells; order {order}, {velocity} velocities",
        f"  t = {times[0]:g} ... {times[-1]:g}: {len(times)} frames, "
        f"{audit['steps'][-1]:.0f} steps, CFL number {audit['cfl'][-1]:.3g}",
        f"  {name.replace('_', ' ')} {energy[0]:.8g} ... {energy[-1]:.8g}, "
        f"dissipation {dissipation[0]:.3g} ... {dissipation[-1]:.3g}",
        f"  residuals of log E: {_largest(audit['residual'])} discrete, "
        f"{_largest(audit['residual_independent'])} independent",
        f"  mass error {_largest(audit['mass_error'])}, min density "
        f"{audit['min_density'].min():.3g}, 99 % of the mass on {audit['cells_99'][-1]:.0f} cells",
    ]
    return "\n".join(lines)


def _largest(values: np.ndarray) -> str:
    return f"{np.abs(values).max():.1e}"
