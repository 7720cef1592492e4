"""Heads of a model, or of one file, together with the tokens that they see."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from meanfield.errors import FileError, InputError, PointsError
from meanfield.regularity.heads import TransformerHead
from meanfield.regularity.potentials import as_points
from meanfield.results.head_files import read_heads
from meanfield.results.models import CONFIG, find_model, read_model
from meanfield.results.tensors import read_npz, refuse_pickle
from meanfield.results.vocabulary import read_token_numbers, read_vocabulary, words

SEVERAL = 64  # tokens of a text, unless asked for
CLOUD = 2000  # tokens of a density
TOKENS_HELP = (
    "a number N (the first N words of the vocabulary as a text), FILE.txt (a text), FILE.csv with "
    "a column id or token, or FILE.npz with ids (N,) or tokens (N, d)"
)


@dataclass(frozen=True, eq=False)
class HeadsWithTokens:
    """What `load_heads` finds.

    Attributes
    ----------
    pairs : list of (TransformerHead, ndarray of shape (N, d))
        By layer, then head.
    causal : bool
    name : str
    """

    pairs: list[tuple[TransformerHead, np.ndarray]]
    causal: bool
    name: str


def load_heads(
    source: str, layer: int | None = None, head: int | None = None, tokens: str | None = None
) -> HeadsWithTokens:
    """Heads and the tokens that they see.

    Parameters
    ----------
    source : str
        A model (see `meanfield.results.models.find_model`), or a file of heads (see
        `meanfield.results.head_files.read_heads`).
    layer, head : int, optional
        Which; all of them when omitted.
    tokens : str, optional
        For a model `TOKENS_HELP`, 64 when omitted: texts go through its layers, vectors are seen
        by every layer as they are. For a file of heads an npz file with tokens, if it has none.

    Raises
    ------
    FileError, MatrixError, PointsError, InputError
        If something is missing, does not fit, or is not finite.
    """
    if is_head_file(source):
        return _from_file(source, layer, head, tokens)
    folder, model = find_model(source), read_model(source)
    layers = range(len(model.layers)) if layer is None else [layer]
    heads = range(model.heads) if head is None else [head]
    chosen = {k: [model.head(k, h) for h in heads] for k in layers}
    seen = _tokens_of_layers(model, folder, tokens)
    pairs = [(one, seen[k]) for k in layers for one in chosen[k]]
    return HeadsWithTokens(pairs, model.causal, model.name)


def is_head_file(source: str) -> bool:
    """Whether a name is that of a file of heads, not of a model.

    Examples
    --------
    >>> is_head_file("head.npz"), is_head_file("some-model")
    (True, False)
    """
    path = Path(source)
    refuse_pickle(path)
    if path.suffix == ".safetensors":
        return not (path.parent / CONFIG).is_file()
    return path.suffix == ".npz"


def _from_file(source, layer, head, tokens) -> HeadsWithTokens:
    heads, stored = read_heads(source)
    if layer not in (None, 0):
        raise InputError(f"{source} holds one layer, number 0; layer {layer} was asked for")
    if head is not None and not 0 <= head < len(heads):
        raise InputError(f"{source}: head must be in 0 ... {len(heads) - 1}, got {head}")
    if tokens is not None:
        stored = _arrays(Path(tokens)).get("tokens")
    if stored is None:
        raise PointsError(f"no tokens: {tokens or source} must hold an array tokens (N, d)")
    if np.shape(stored)[1:] != (heads[0].dimension,):
        raise PointsError(
            f"{tokens or source}: tokens have shape {np.shape(stored)}, the heads of {source} take "
            f"(N, {heads[0].dimension})"
        )
    chosen = heads if head is None else [heads[head]]
    return HeadsWithTokens([(one, stored) for one in chosen], False, Path(source).name)


def _arrays(path: Path) -> dict[str, np.ndarray]:
    if path.suffix != ".npz":
        raise FileError(f"{path}: tokens of a file of heads are read from .npz files")
    return read_npz(path)


def _tokens_of_layers(model, folder: Path, tokens: str | None) -> np.ndarray:
    """What the heads of every layer see, shape (layers, N, d)."""
    text = str(SEVERAL) if tokens is None else tokens
    if text.isascii() and text.isdigit() and len(text) < 10:
        _, ids = words(read_vocabulary(folder), int(text))
        return model.head_tokens(model.states(ids))
    path = Path(text)
    if path.suffix in (".txt", ".csv"):
        return model.head_tokens(model.states(read_token_numbers(path, folder)))
    if path.suffix != ".npz":
        raise InputError(f"tokens are {text!r}, they must be {TOKENS_HELP}")
    arrays = read_npz(path)
    if "ids" in arrays:
        return model.head_tokens(model.states(arrays["ids"]))
    if "tokens" not in arrays:
        raise PointsError(f"{path} holds neither ids nor tokens")
    if arrays["tokens"].dtype.kind not in "fiu":
        raise PointsError(f"{path}: tokens must be numbers, got {arrays['tokens'].dtype}")
    vectors = as_points(arrays["tokens"], f"{path}: tokens")
    if vectors.shape[1] != model.dimension:
        raise PointsError(
            f"{path}: tokens live in R^{vectors.shape[1]}, those of the model in "
            f"R^{model.dimension}"
        )
    return np.broadcast_to(vectors, (len(model.layers), *vectors.shape))


def head_model(text: str, count: int = CLOUD) -> tuple[np.ndarray, np.ndarray]:
    """A head of a model as an interaction on S^2, and words of its vocabulary there.

    Parameters
    ----------
    text : str
        ``MODEL:LAYER:HEAD``; a file of heads has the layer 0 and its own tokens.
    count : int
        How many words; all where there are fewer.

    Returns
    -------
    D : ndarray, shape (3, 3)
        Diagonal; see `meanfield.regularity.heads.TransformerHead.on_sphere`.
    points : ndarray, shape (count, 3)
        Unit vectors.

    Raises
    ------
    InputError
        If the text has another form, or there is no such layer or head.
    FileError, MatrixError, PointsError
        As `load_heads`.

    Examples
    --------
    >>> head_model("some-model")
    Traceback (most recent call last):
    ...
    meanfield.errors.InputError: the head is 'some-model', it must be MODEL:LAYER:HEAD
    """
    name, *numbers = text.rsplit(":", 2)
    if len(numbers) < 2 or not all(n.isascii() and n.isdigit() and len(n) < 6 for n in numbers):
        raise InputError(f"the head is {text!r}, it must be MODEL:LAYER:HEAD")
    layer, number = map(int, numbers)
    if is_head_file(name):
        ((head, tokens),) = load_heads(name, layer, number).pairs
        return head.on_sphere(tokens)
    model, vocabulary = read_model(name), read_vocabulary(find_model(name))
    head = model.head(layer, number)
    _, ids = words(vocabulary, count, fewer=True)
    return head.on_sphere(model.vocabulary_tokens(ids, layer))
