"""The verb `rerun` of the command."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from meanfield.cli import options
from meanfield.cli.evolve import written
from meanfield.results.dataset import save_dataset
from meanfield.results.files import check_output
from meanfield.results.rerunning import rerun

DIFFERENT = 1  # exit status


def rerun_command(
    file: Annotated[Path, typer.Argument(metavar="FILE.nc", help="A saved result.")],
    output: Annotated[
        Path | None, typer.Option(metavar="NEW.nc", help="Also save the new result.")
    ] = None,
    overwrite: options.Overwrite = False,
) -> int:
    """Compute a saved result again from what its file says, and report the difference.

    The exit status is 1 if the difference is more than round-off.
    """
    began = time.perf_counter()
    if output is not None:
        check_output(output, overwrite)
    again = rerun(file)
    print(again)
    if output is not None:
        save_dataset(again.dataset, output, overwrite)
        print(written(output, began))
    return 0 if again.agrees else DIFFERENT
