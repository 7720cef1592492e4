"""Constants of the heads of a transformer as a dataset over layers and heads."""

from __future__ import annotations

import numpy as np
import xarray as xr

from meanfield.equilibria.extremizers import extremizers
from meanfield.regularity.head_constants import HeadConstants, RegularityTable
from meanfield.results.provenance import attributes
from meanfield.results.variables import series

# The classes of Table 1, numbered as the datasets store them.
CLASSES = (
    "zero",
    "positive definite",
    "positive semidefinite",
    "negative definite",
    "negative semidefinite",
    "indefinite",
)
CLUSTERS = {"dirac": 1, "pair": 2}
REFERENCE = (
    "J. Vuckovic, A. Baratin, R. Tachet des Combes (2020): A mathematical theory of attention"
)
LONG_NAMES = {
    "local_constant": "Lipschitz constant at the tokens, attained",
    "local_upper": "upper bound of the Lipschitz constant at the tokens",
    "adversarial_constant": "constant attained by as many tokens in the ball",
    "log10_tokens_bound": "log10 of the certified bound for as many tokens in the ball",
    "log10_measures_bound": "log10 of the certified bound for all measures on the ball",
    "radius": "radius of the ball that holds the tokens",
    "form_norm": "spectral norm of the query-key form B",
    "value_norm": "Lipschitz constant of the value map with its output matrix",
    "symmetric_share": "Frobenius norm of the symmetric part of B over that of B",
}


def regularity_dataset(table: RegularityTable) -> xr.Dataset:
    """The table as a dataset.

    Parameters
    ----------
    table : RegularityTable

    Returns
    -------
    xarray.Dataset
        On ``(layer, head)``: `LONG_NAMES`, ``form_class`` (of the symmetric part of the form on
        all tokens), ``sphere_class`` (of D on the leading directions) and ``clusters``, how many
        maximise the energy for D (0 where not known). On ``(layer, head, direction)``: ``D`` and
        ``eigenvalue`` of the symmetric part. Heads that were not asked for are NaN, and -1 in
        whole numbers.

    Examples
    --------
    >>> from meanfield.regularity.head_constants import regularity_table
    >>> from meanfield.regularity.heads import TransformerHead
    >>> head = TransformerHead(np.eye(3), -np.eye(3))
    >>> dataset = regularity_dataset(regularity_table([(head, np.eye(3))]))
    >>> CLASSES[dataset["sphere_class"].item()], dataset["clusters"].item()
    ('negative definite', 2)
    """
    layers = sorted({row.head.layer for row in table.rows})
    heads = sorted({row.head.head for row in table.rows})
    places = [(layers.index(row.head.layer), heads.index(row.head.head)) for row in table.rows]
    shape = (len(layers), len(heads))

    def grid(values, missing, dtype=float) -> np.ndarray:
        values = np.asarray(values, dtype=dtype)
        full = np.full(shape + values.shape[1:], missing, dtype=dtype)
        full[tuple(np.transpose(places))] = values
        return full

    over = ("layer", "head")
    dataset = xr.Dataset(
        coords={
            "layer": series(layers, ("layer",), "layer"),
            "head": series(heads, over[1:], "head"),
        }
    )
    numbers = [_numbers(row) for row in table.rows]
    for name, long_name in LONG_NAMES.items():
        values = grid([row[name] for row in numbers], np.nan)
        dataset[name] = series(values, over, f"{long_name} ({table.rows[0].norm})")
    theory = [extremizers(row.D) for row in table.rows]
    whole = {
        "form_class": [CLASSES.index(form_class(row)) for row in table.rows],
        "sphere_class": [CLASSES.index(known.matrix_class) for known in theory],
    }
    flags = {
        "flag_values": np.arange(len(CLASSES), dtype="int8"),
        "flag_meanings": " ".join(name.replace(" ", "_") for name in CLASSES),
    }
    for name, values in whole.items():
        what = "the symmetric part of B" if name == "form_class" else "D"
        dataset[name] = series(grid(values, -1, "int8"), over, f"class of {what}", **flags)
    clusters = [CLUSTERS.get(known.maximizers[0].kind, 0) for known in theory]
    long_name = "number of clusters that maximise the energy for D"
    dataset["clusters"] = series(grid(clusters, -1, "int8"), over, long_name)
    eigenvalues = [row.head.spectrum[0][: len(row.D)] for row in table.rows]
    for name, values, long_name in (
        ("D", [row.D for row in table.rows], "the head on a sphere: diagonal of D"),
        ("eigenvalue", eigenvalues, "leading eigenvalues of the symmetric part of B"),
    ):
        dataset[name] = series(grid(values, np.nan), (*over, "direction"), long_name)
    dataset.attrs = attributes(f"Regularity of the heads of {table.name}", table.parameters)
    dataset.attrs["references"] += f"; {REFERENCE}"
    return dataset


def form_class(row: HeadConstants) -> str:
    """Class of the symmetric part of the form on all tokens, in the words of Table 1."""
    eigenvalues = row.head.spectrum[0]
    zeros = min(1, row.head.dimension - len(eigenvalues))
    return extremizers(np.append(eigenvalues, np.zeros(zeros))).matrix_class


def _numbers(row: HeadConstants) -> dict[str, float]:
    bounds = {"tokens": row.tokens_bound, "measures": row.measures_bound}
    form = row.head.form
    size = float(np.linalg.norm(form))
    norms = {"l1": 1, "l2": 2}
    return {
        "local_constant": row.local.value,
        "local_upper": row.local.upper,
        "adversarial_constant": row.adversarial,
        **{
            f"log10_{name}_bound": np.nan if bound is None else bound.log10_value
            for name, bound in bounds.items()
        },
        "radius": row.radius,
        "form_norm": row.head.form_norm,
        "value_norm": float(np.linalg.norm(row.head.value_map, norms[row.norm])),
        "symmetric_share": float(np.linalg.norm(form + form.T)) / (2 * size) if size else np.nan,
    }
