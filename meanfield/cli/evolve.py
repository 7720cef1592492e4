"""The verb `evolve` of the command."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from meanfield.cli import options, parsing
from meanfield.cli.messages import FAILED, INTERRUPTED, fail, say
from meanfield.cli.pictures import check_movie, check_picture, draw, film
from meanfield.dynamics.characteristics import evolve_characteristics
from meanfield.dynamics.evolution import (
    UnresolvedWarning,
    check_arguments,
    initial_masses,
    run_parameters,
    unresolved,
)
from meanfield.dynamics.finite_volume import frames, takes_differences
from meanfield.dynamics.timestepping import Frame, save_times, with_progress
from meanfield.errors import ComputationError, FileError
from meanfield.model.attention import SelfAttention
from meanfield.results.dataset import open_frames, save_dataset
from meanfield.results.files import check_output
from meanfield.results.recording import Recorder
from meanfield.sphere.meshes import Mesh


def evolve_command(
    D: options.Matrix,
    t_end: options.EndTime,
    sign: options.Sign = None,
    V: options.Value = None,
    unnormalized: options.Unnormalized = False,
    mesh: options.MeshName = None,
    density: options.Density = "uniform",
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
) -> int:
    """Evolve a density by the mean-field equation and save it as NetCDF.

    Frames are written as they come; until the run is complete they are in FILE.nc.partial.
    On a mesh by finite volumes; on lebedev:ORDER the nodes follow characteristics.
    """
    began = time.perf_counter()
    model = options.build_model(D, sign, V, unnormalized)
    times = save_times(t_end, parsing.parse_save(save))
    check_output(output, overwrite)
    check_picture(plot, overwrite)
    check_movie(movie, overwrite)
    cells = parsing.parse_mesh(mesh or ("circle:512" if model.dimension == 2 else "icosphere:5"))
    start = parsing.parse_density(density)
    if not isinstance(cells, Mesh):
        return _evolve_nodes(cells, model, start, times, output, plot, movie, overwrite)
    check_arguments(cells, model, order, cfl)
    masses, factor = initial_masses(cells, start)
    parameters = run_parameters(cells, model, start, times, order, cfl, factor)
    recorder = Recorder(output, cells, model, times, parameters, overwrite)
    iterator = with_progress(frames(cells, model, masses, times, order, cfl), len(times), True)
    try:
        with recorder:
            audit = [frame.audit for frame in recorder.record(iterator)]
    except (ComputationError, FileError) as error:
        return fail(FAILED, f"{error}; {_remains(recorder)}")
    except KeyboardInterrupt:
        return fail(INTERRUPTED, f"interrupted; {_remains(recorder)}")
    series = {key: np.array([values[key] for values in audit]) for key in audit[0]}
    print(summary(cells, model, order, times, series))
    print(f"  {time.perf_counter() - began:.1f} s; written: {output}")
    if plot is not None or movie is not None:
        with open_frames(output) as run:
            draw(run, plot, overwrite)
            film(run, movie, overwrite)
    return 0


def _evolve_nodes(space, model, density, times, output, plot, movie, overwrite) -> int:
    """Characteristics: one integration, saved when it is complete."""
    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UnresolvedWarning)
        run = evolve_characteristics(space, model, density, times[-1], times, progress=True)
    for warning in caught:
        say("warning", str(warning.message))
    dataset = run.to_dataset()
    save_dataset(dataset, output, overwrite)
    print(run)
    print(f"  {time.perf_counter() - began:.1f} s; written: {output}")
    draw(dataset, plot, overwrite)
    film(dataset, movie, overwrite)
    return 0


def _remains(recorder: Recorder) -> str:
    if not recorder.count:
        return f"no frame was saved ({recorder.partial} can be removed)"
    return (
        f"the last good time is t = {recorder.last_time:g}, the {recorder.count} frames up to it "
        f"are in {recorder.partial}"
    )


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
