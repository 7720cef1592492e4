"""The verbs `mesh`, `info` and `plot` of the command: meshes and what was saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from meanfield.cli import options, parsing
from meanfield.cli.evolve import summary
from meanfield.cli.pictures import check_picture, draw
from meanfield.errors import MeshError
from meanfield.results.dataset import open_frames, restore_setting, stored_audit, stored_verb
from meanfield.results.files import check_output
from meanfield.results.sweep_dataset import DONE, FAILED
from meanfield.results.ugrid import mesh_dataset, open_netcdf, read_mesh, write_mesh
from meanfield.sphere.connectivity import FILL
from meanfield.sphere.meshes import Mesh


def mesh_command(
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


def info_command(
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
    print(summary(cells, model, parameters.get("order", 2), times, audit))
    _print_parameters(attrs)


def _print_parameters(attrs) -> None:
    print(f"  {attrs['source']}, {attrs['history']}")
    print("  parameters")
    for key, value in json.loads(attrs["parameters"]).items():
        text = str(value)
        print(f"    {key}: {text if len(text) <= 70 else text[:67] + '...'}")


def _points_summary(dataset) -> str:
    """Title, sizes, and the energy, of a result that lives on points, or of a sweep of results."""
    if stored_verb(dataset) == "sweep":
        return _sweep_summary(dataset)
    if "time" in dataset.dims:
        expected = dataset.sizes["time"]
        dataset = dataset.isel(time=np.isfinite(dataset["time"].values))
        if dataset.sizes["time"] < expected:
            print(f"incomplete, {dataset.sizes['time']} of {expected} frames")
    sizes = ", ".join(f"{name}: {count}" for name, count in dataset.sizes.items())
    lines = [dataset.attrs["title"], f"  {sizes}"]
    if "log_energy" in dataset and dataset.sizes.get("time"):
        time, energy = dataset["time"].values, dataset["log_energy"].values
        lines.append(
            f"  t = {time[0]:g} ... {time[-1]:g}: log energy {np.mean(energy[0]):.8g} ... "
            f"{np.mean(energy[-1]):.8g}"
        )
    return "\n".join(lines)


def _sweep_summary(dataset) -> str:
    """Title, axes, and what became of the members."""
    status, errors = dataset["status"].values, dataset["error"].values
    lines = [dataset.attrs["title"]]
    for name in dataset["status"].dims:
        values = dataset[name].values
        lines.append(f"  {name}: {len(values)} values, {values[0]} ... {values[-1]}")
    complete, failed = (status == DONE).sum(), status == FAILED
    lines.append(f"  {status.size} members: {complete} complete, {failed.sum()} failed")
    lines += [f"    failed: {error}" for error in dict.fromkeys(errors[failed].tolist())]
    names = [name for name in dataset.data_vars if name not in ("status", "error")]
    return "\n".join([*lines, f"  variables: {', '.join(names) or 'none'}"])


def plot_command(
    file: Annotated[Path, typer.Argument(metavar="FILE.nc", help="A saved run or mesh.")],
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE.png", help="Picture; by default FILE.png beside FILE.nc."),
    ] = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Draw a saved run or mesh."""
    from meanfield.plots import plot_dataset
    from meanfield.plots.meshes import plot_mesh, plot_run, save_figure

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
