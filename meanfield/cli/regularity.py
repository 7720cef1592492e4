"""The verb `regularity` of the command."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from meanfield.cli import options, parsing
from meanfield.cli.pictures import check_picture, draw
from meanfield.errors import InputError
from meanfield.model.densities import from_points, uniform
from meanfield.regularity.domains import check_norm
from meanfield.regularity.head_constants import regularity_table
from meanfield.results.dataset import save_dataset
from meanfield.results.files import check_output
from meanfield.results.model_heads import TOKENS_HELP, head_model, load_heads
from meanfield.results.regularity_dataset import CLASSES

Head = Annotated[
    str | None,
    typer.Option(
        "--head",
        metavar="MODEL:LAYER:HEAD",
        help="Instead of --D a head of a transformer, on the three leading directions of its form; "
        "the density is then that of its tokens, unless --density is given.",
    ),
]
CLUSTER_WORDS = {0: "?", 1: "one", 2: "two"}
COLUMNS = (
    "layer head       local  adversarial    certified  log10 all  D on three directions     "
    "class                  clusters"
)


def regularity_command(
    source: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|FILE.npz",
            help="A model directory in the Hugging Face layout (BERT or GPT-2 family, "
            "safetensors), an installed package that carries one, or a file with W_Q, W_K (h, d) "
            "and optionally W_V, W_O, b_Q, b_K, b_V, scale, tokens (.npz or .safetensors).",
        ),
    ],
    layer: Annotated[int | None, typer.Option(help="Layer, from 0; all by default.")] = None,
    head: Annotated[int | None, typer.Option(help="Head, from 0; all by default.")] = None,
    tokens: Annotated[
        str | None,
        typer.Option(
            metavar="TOKENS",
            help=f"For a model {TOKENS_HELP}; by default 64. For a file of heads FILE.npz with "
            "tokens (N, d), in place of its own.",
        ),
    ] = None,
    norm: Annotated[str, typer.Option(help="Ground norm, l2 or l1.")] = "l2",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the searches.")] = 0,
    output: options.Output = Path("regularity.nc"),
    plot: options.Picture = None,
    overwrite: options.Overwrite = False,
) -> int:
    """How much the heads of a transformer stretch distances between texts.

    For each head: the Lipschitz constant at the tokens (exact, or its best lower bound), the
    largest that a search finds for as many tokens in the ball that holds them, the certified
    bound for as many tokens and, as log10, for all measures on the ball; and the head on the three
    leading directions of the symmetric part of its form: D, its class, and how many clusters
    maximise the energy.
    """
    began = time.perf_counter()
    check_norm(norm)
    check_output(output, overwrite)
    check_picture(plot, overwrite)
    found = load_heads(source, layer, head, tokens)
    parameters = {"model": found.name, "layer": layer, "head": head, "tokens": tokens}
    try:
        table = regularity_table(
            found.pairs, norm, found.causal, seed, found.name, parameters, progress=True
        )
    except KeyboardInterrupt:
        raise typer.Abort from None
    dataset = table.to_dataset()
    save_dataset(dataset, output, overwrite)
    print(summary(dataset, len(found.pairs[0][1]), found.causal))
    print(f"  {time.perf_counter() - began:.1f} s; written: {output}")
    draw(dataset, plot, overwrite)
    return 0


def summary(dataset, count: int, causal: bool) -> str:
    """The table in words and numbers, one line a head."""
    lines = [f"{dataset.attrs['title']}, {count} tokens", COLUMNS]
    for place in np.argwhere(dataset["sphere_class"].values >= 0):
        lines.append(_line(dataset.isel(layer=place[0], head=place[1])))
    if causal:
        lines.append("  a causal mask: no bound for measures, which have no order")
    return "\n".join(lines)


def _line(row) -> str:
    D = " ".join(f"{value:8.4g}" for value in row["D"].values)
    exact = row["local_upper"] <= row["local_constant"] * (1 + 1e-9)
    number, name = int(row["sphere_class"]), CLUSTER_WORDS[int(row["clusters"])]
    log10_all = float(row["log10_measures_bound"])
    return (
        f"{int(row['layer']):5d} {int(row['head']):4d} {'' if exact else '>=':>2}"
        f"{_size(_log10(row['local_constant'])):>10} "
        f"{_size(_log10(row['adversarial_constant'])):>12} "
        f"{_size(row['log10_tokens_bound']):>12} "
        f"{'-' if np.isnan(log10_all) else format(log10_all, '.1f'):>10}  {D:<26} "
        f"{CLASSES[number]:<22} {name}"
    )


def _log10(value) -> float:
    with np.errstate(divide="ignore"):  # a head without values moves nothing
        return float(np.log10(float(value)))


def _size(log10_value) -> str:
    """A number from its logarithm: astronomically large ones as a power of ten."""
    log10_value = float(log10_value)
    if np.isnan(log10_value):
        return "-"
    if log10_value > 9:
        return f"10^{log10_value:.1f}"
    return f"{10**log10_value:.6g}"


def matrix_and_density(D: str | None, head: str | None, density: str | None):
    """What `evolve` starts from: a matrix and a density, of a head of a model or of one's own.

    Parameters
    ----------
    D, head : str or None
        Exactly one: a matrix (see `meanfield.cli.parsing.parse_matrix`), or MODEL:LAYER:HEAD (see
        `meanfield.results.model_heads.head_model`).
    density : str or None
        See `meanfield.cli.parsing.parse_density`. None: the tokens of the head, else uniform.

    Returns
    -------
    matrix : str
        For `meanfield.cli.options.build_model`.
    density : callable

    Raises
    ------
    InputError
        If both or neither of D and head are given, and as the functions named above.

    Examples
    --------
    >>> matrix, density = matrix_and_density("1,2", None, None)
    >>> matrix, density.parameters()
    ('1,2', {'kind': 'uniform'})
    """
    if D is None and head is None:
        raise InputError("Missing option '--D', or --head MODEL:LAYER:HEAD in its place")
    if D is not None and head is not None:
        raise InputError("give either --D or --head, not both")
    given = None if density is None else parsing.parse_density(density)
    if head is None:
        return D, given or uniform()
    form, points = head_model(head)
    return json.dumps(form.tolist()), given or from_points(points, source=head)
