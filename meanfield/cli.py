"""The command `meanfield`."""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from meanfield import cli_options as options
from meanfield import cli_parsing as parsing
from meanfield.cli_analysis import theory_command, verify_command
from meanfield.cli_minimize import minimize_command
from meanfield.cli_particles import particles_command
from meanfield.cli_pictures import check_movie, check_picture, draw, film, say
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
from meanfield.errors import ComputationError, FileError, InputError, MeshError
from meanfield.model.attention import SelfAttention
from meanfield.results.dataset import (
    open_frames,
    restore_setting,
    save_dataset,
    stored_audit,
    stored_verb,
)
from meanfield.results.files import check_output, reason
from meanfield.results.provenance import installed
from meanfield.results.recording import Recorder
from meanfield.results.ugrid import mesh_dataset, open_netcdf, read_mesh, write_mesh
from meanfield.sphere.connectivity import FILL
from meanfield.sphere.meshes import Mesh

BAD_INPUT, FAILED, INTERRUPTED = 2, 1, 130

app = typer.Typer(
    help="The mean-field equation of self-attention on the unit sphere.",
    rich_markup_mode=None,  # square brackets in the help are matrices
    pretty_exceptions_enable=False,
)


def main(arguments: list[str] | None = None) -> int:
    """Run the command.

    Parameters
    ----------
    arguments : list of str, optional
        Without the name of the program; those of the process by default.

    Returns
    -------
    int
        The exit status: 0, 2 for bad input, 1 for a failed computation, 130 when interrupted.

    Examples
    --------
    >>> main(["--version"])
    meanfield ...
    0
    """
    try:
        return app(arguments, standalone_mode=False, prog_name="meanfield") or 0
    except InputError as error:
        return _fail(BAD_INPUT, str(error))
    except ComputationError as error:
        return _fail(FAILED, str(error))
    except MemoryError as error:
        return _fail(FAILED, f"out of memory: {error}")
    except OSError as error:
        return _fail(BAD_INPUT, reason(error))
    except typer.Abort:
        return _fail(INTERRUPTED, "interrupted")
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        where = context.command_path if context else "meanfield"
        return _fail(BAD_INPUT, f"{error.format_message()} (see `{where} --help`)")


def _fail(status: int, message: str) -> int:
    say("error", message)
    return status


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"meanfield {installed('meanfield')}")
        raise typer.Exit


@app.callback()
def _meanfield(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass


@app.command(
    epilog="Example: meanfield evolve --D 0.5,1,2 --sign -1 --density vmf:0,0,1:2 --t-end 5 "
    "--output run.nc --plot run.png"
)
def evolve(
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
        return _fail(FAILED, f"{error}; {_remains(recorder)}")
    except KeyboardInterrupt:
        return _fail(INTERRUPTED, f"interrupted; {_remains(recorder)}")
    series = {key: np.array([values[key] for values in audit]) for key in audit[0]}
    print(_summary(cells, model, order, times, series))
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


@app.command("mesh", epilog="Example: meanfield mesh icosphere:4 --output mesh.nc --plot mesh.png")
def show_mesh(
    name: Annotated[str, typer.Argument(metavar="MESH", help=f"{parsing.MESH_HELP}.")],
    output: Annotated[
        Path | None, typer.Option(metavar="FILE.nc", help="Write the mesh as UGRID NetCDF.")
    ] = None,
    plot: options.Picture = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Show the statistics of a mesh, write it, draw it."""
    if output is not None:
        check_output(output, overwrite)
    check_picture(plot, overwrite)
    cells = parsing.parse_mesh(name)
    if not isinstance(cells, Mesh):
        raise MeshError(f"{name} has {len(cells)} nodes but no cells: it is no mesh")
    print(_mesh_statistics(cells))
    if output is not None:
        write_mesh(cells, output, overwrite)
        print(f"  written: {output}")
    draw(mesh_dataset(cells), plot, overwrite)


@app.command(epilog="Example: meanfield info run.nc")
def info(
    file: Annotated[Path, typer.Argument(metavar="FILE.nc", help="A saved run or mesh.")],
) -> None:
    """Show what is in a file: parameters, frames, energies, audit, warnings."""
    with open_netcdf(file) as stored:
        kind, expected, attrs = stored_verb(stored), stored.sizes.get("time"), stored.attrs
        if kind not in (None, "evolve", "mesh"):
            print(_points_summary(stored))
            _print_parameters(attrs)
            return
    if kind != "evolve":
        print(_mesh_statistics(read_mesh(file)))
        return
    with open_frames(file, partial=True) as run:
        cells, model, parameters = restore_setting(run)
        times, audit = run["time"].values, stored_audit(run)
    if len(times) < expected:
        print(f"{file}: incomplete, {len(times)} of {expected} frames")
    print(_summary(cells, model, parameters.get("order", 2), times, audit))
    _print_parameters(attrs)


def _print_parameters(attrs) -> None:
    print(f"  {attrs['source']}, {attrs['history']}")
    print("  parameters")
    for key, value in json.loads(attrs["parameters"]).items():
        text = str(value)
        print(f"    {key}: {text if len(text) <= 70 else text[:67] + '...'}")


def _points_summary(dataset) -> str:
    """Title, sizes, and the energy, of a result that lives on points."""
    sizes = ", ".join(f"{count} {name}s" for name, count in dataset.sizes.items())
    lines = [dataset.attrs["title"], f"  {sizes}"]
    if "log_energy" in dataset and "time" in dataset.dims:
        time, energy = dataset["time"].values, dataset["log_energy"].values
        lines.append(
            f"  t = {time[0]:g} ... {time[-1]:g}: log energy {np.mean(energy[0]):.8g} ... "
            f"{np.mean(energy[-1]):.8g}"
        )
    return "\n".join(lines)


@app.command("plot", epilog="Example: meanfield plot run.nc --output run.png")
def plot_file(
    file: Annotated[Path, typer.Argument(metavar="FILE.nc", help="A saved run or mesh.")],
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE.png", help="Picture; by default FILE.png beside FILE.nc."),
    ] = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Draw a saved run or mesh."""
    from meanfield.plots import plot_mesh, plot_run, save_figure
    from meanfield.plots_points import plot_dataset

    output = output or file.with_suffix(".png")
    check_picture(output, overwrite)
    with open_netcdf(file) as stored:
        kind = stored_verb(stored)
        if kind not in (None, "evolve", "mesh"):
            save_figure(plot_dataset(stored), output, overwrite)
    if kind == "evolve":
        with open_frames(file, partial=True) as run:
            save_figure(plot_run(run), output, overwrite)
    elif kind in (None, "mesh"):
        save_figure(plot_mesh(mesh_dataset(read_mesh(file))), output, overwrite)
    print(f"written: {output}")


app.command(
    "verify",
    epilog="Example: meanfield verify --D 0.5,1,2 --sign -1 --density vmf:0,0,1:2 --t-end 1 "
    "--mesh icosphere:5 --error 1e-4",
)(verify_command)
app.command("theory", epilog="Example: meanfield theory --D -1,0.2,0.5")(theory_command)
app.command(
    "particles",
    epilog="Example: meanfield particles --D 0.5,1,2 --points 100 --t-end 10 --output run.nc "
    "--plot run.png --movie run.gif",
)(particles_command)
app.command(
    "minimize",
    epilog="Example: meanfield minimize --D 1,1.5 --mesh circle:256 --output min.nc --plot min.png",
)(minimize_command)


def _summary(mesh: Mesh, model: SelfAttention, order: int, times, audit: dict) -> str:
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


def _mesh_statistics(mesh: Mesh) -> str:
    """Numbers of cells, areas, distances."""
    sides, counts = np.unique((mesh.cell_nodes != FILL).sum(axis=1), return_counts=True)
    shapes = ", ".join(f"{n} with {k} corners" for k, n in zip(sides, counts, strict=True))
    ratio = mesh.areas.max() / mesh.areas.min()
    far = mesh.edge_distances
    lines = [
        f"{mesh.name}: {mesh.n_cells} cells on S^{mesh.dimension - 1} ({shapes})",
        f"  areas: sum - |S^{mesh.dimension - 1}| = {mesh.areas.sum() - mesh.surface:.1e}, "
        f"largest / smallest = {ratio:.4g}",
        f"  distances of centres: {far.min():.4g} ... {far.max():.4g}, mean {far.mean():.4g}",
        f"  orthogonal: {'yes' if mesh.orthogonal else 'no'}, skewness {mesh.skewness:.3g}",
    ]
    if mesh.dimension == 3:
        euler = len(mesh.nodes) - len(mesh.edge_cells) + mesh.n_cells
        lines.insert(1, f"  Euler characteristic: {euler}")
    return "\n".join(lines)
