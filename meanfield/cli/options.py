"""Options that several verbs of the command share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from meanfield.cli import parsing
from meanfield.model.attention import SelfAttention

Matrix = Annotated[
    str, typer.Option("--D", metavar="MATRIX", help=f"Query-key matrix: {parsing.MATRIX_HELP}.")
]
Sign = Annotated[
    int | None, typer.Option(help="V = sign D: 1 (clusters, the default) or -1 (spreads).")
]
Value = Annotated[
    str | None, typer.Option("--V", metavar="MATRIX", help="Value matrix instead of a sign.")
]
Unnormalized = Annotated[bool, typer.Option("--unnormalized", help="Leave out the division by Z.")]
MeshName = Annotated[
    str | None,
    typer.Option(
        metavar="MESH",
        help=f"{parsing.MESH_HELP}. By default icosphere:5, or circle:512 if D is 2 x 2.",
    ),
]
Density = Annotated[
    str, typer.Option(metavar="DENSITY", help=f"Initial density: {parsing.DENSITY_HELP}.")
]
EndTime = Annotated[float, typer.Option(help="Final time, > 0.")]
Order = Annotated[int, typer.Option(help="Order of the scheme, 1 or 2.")]
Output = Annotated[Path, typer.Option(metavar="FILE.nc", help="Result.")]
Picture = Annotated[Path | None, typer.Option(metavar="FILE.png", help="Picture.")]
Movie = Annotated[
    Path | None,
    typer.Option(metavar="FILE.gif|FILE.mp4", help="Movie of the frames; .mp4 needs ffmpeg."),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")]


def build_model(D: str, sign: int | None, V: str | None, unnormalized: bool) -> SelfAttention:
    """The model that the options describe.

    Raises
    ------
    MatrixError, FileError, InputError
        See `parsing.parse_matrix` and `SelfAttention`.
    """
    value = None if V is None else parsing.parse_matrix(V, "V")
    return SelfAttention(parsing.parse_matrix(D), sign, value, normalized=not unnormalized)
