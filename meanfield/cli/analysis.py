"""The verbs `verify` and `theory` of the command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from meanfield.cli import options, parsing
from meanfield.cli.comparison import comparison
from meanfield.dynamics.verification import Verification, verify
from meanfield.equilibria.extremizers import extremizers
from meanfield.equilibria.predictions import predict
from meanfield.errors import InputError, MeshError
from meanfield.model.attention import SelfAttention
from meanfield.model.interaction import square_matrix
from meanfield.results.end_state import EndState, end_state

FAMILIES = ("icosphere", "circle")


def verify_command(
    D: options.Matrix,
    t_end: options.EndTime,
    sign: options.Sign = None,
    V: options.Value = None,
    unnormalized: options.Unnormalized = False,
    mesh: options.MeshName = None,
    density: options.Density = "uniform",
    order: options.Order = 2,
    error: Annotated[
        float | None, typer.Option(help="A wanted error: prints the resolution it needs.")
    ] = None,
) -> None:
    """Run three resolutions and print error, order and time.

    The reference is the solution by characteristics; where it is too sharp for that, moments
    are compared with those of the finest mesh.
    """
    model = options.build_model(D, sign, V, unnormalized)
    if error is not None and not error > 0:
        raise InputError(f"--error must be > 0, got {error:g}")
    names = resolutions(mesh or ("circle:512" if model.dimension == 2 else "icosphere:5"))
    meshes = [parsing.parse_mesh(name) for name in names]
    result = verify(meshes, model, parsing.parse_density(density), t_end, order)
    print(model)
    print(result)
    if not result.spectral:
        print(f"too sharp for a spectral reference: moments against those of {names[-1]}")
    if error is not None:
        print(advice(result, names[-1], error))


def resolutions(name: str) -> list[str]:
    """The names of a mesh and of the two before it in its family, coarse to fine.

    Raises
    ------
    MeshError
        If the mesh belongs to no family or is too coarse.

    Examples
    --------
    >>> resolutions("icosphere:5"), resolutions("circle:256")
    (['icosphere:3', 'icosphere:4', 'icosphere:5'], ['circle:64', 'circle:128', 'circle:256'])
    """
    kind, number, *rest = [*name.split(":"), ""][: max(2, name.count(":") + 1)]
    if kind not in FAMILIES or not number.isdigit():
        raise MeshError(f"verify needs icosphere:LEVEL or circle:CELLS as a mesh, got {name!r}")
    finest = int(number)
    if kind == "icosphere":
        numbers = [finest - 2, finest - 1, finest]
    else:
        numbers = [finest // 4, finest // 2, finest]
    if numbers[0] < (0 if kind == "icosphere" else 3):
        raise MeshError(f"{name} is too coarse for three resolutions: give a finer mesh")
    return [":".join([kind, str(value), *rest]) for value in numbers]


def advice(result: Verification, finest: str, error: float) -> str:
    """Which resolution the wanted error needs."""
    ratio = result.rows[-1].size / result.size_for(error)
    kind = finest.split(":")[0]
    last = int(result.rows[-1].mesh.split(":")[1])
    if kind == "icosphere":
        need = max(0, int(np.ceil(last + np.log2(ratio))))
    else:
        need = int(np.ceil(last * ratio))
    what = "an L1 error" if result.spectral else "an error of the moments"
    beyond = " (levels end at 9)" if kind == "icosphere" and need > 9 else ""
    return f"{what} of {error:g} needs {kind}:{need}{beyond}"


def theory_command(
    D: Annotated[
        str | None,
        typer.Option(
            "--D",
            metavar="MATRIX",
            help=f"Query-key matrix: {parsing.MATRIX_HELP}. With --run, that of the run.",
        ),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(metavar="RUN.nc", help="Compare a saved run or extremum with theory."),
    ] = None,
) -> None:
    """Print what is known of the minimisers and maximisers of the energy for this D.

    With --run: what the flow of the run's sign tends to, the stationary states that are known,
    and how far from them the run ended.
    """
    matrix = None if D is None else square_matrix(parsing.parse_matrix(D))
    if run is not None:
        end = end_state(run)
        print(compared(matrix, end, run))
    elif matrix is None:
        raise InputError("give --D MATRIX, --run RUN.nc, or both")
    else:
        print(extremizers(matrix).describe())


def compared(D, end: EndState, run) -> str:
    """Prediction and comparison for the end state of a run.

    Raises
    ------
    InputError
        If D is not that of the run, or the run has no sign or several heads.
    """
    model = end.model
    if not isinstance(model, SelfAttention):
        raise InputError(f"{run} has several heads: theory knows the energy of one D only")
    if D is not None and (D.shape != model.D.shape or not np.allclose(D, model.D, rtol=1e-12)):
        raise InputError(f"--D is not the D of {run}: leave it out")
    if model.sign is None:
        raise InputError(
            f"{run} has a value matrix V that is not D or -D: its flow follows no energy, there "
            "is nothing to compare with"
        )
    prediction = predict(model.D, model.sign, model.normalized)
    return f"{prediction.describe()}\n\n{comparison(prediction, end, str(run))}"
