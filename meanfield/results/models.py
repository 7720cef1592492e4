"""Trained transformers from model directories in the Hugging Face layout.

Read are ``config.json`` and the safetensors files; nothing is downloaded, no pickle is opened.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import numpy as np

from meanfield.errors import FileError, MatrixError
from meanfield.regularity.pretrained import (
    ACTIVATIONS,
    Affine,
    Layer,
    LayerNorm,
    PretrainedTransformer,
)
from meanfield.results.tensors import Tensors, model_tensors, read_json

FAMILIES = ("bert", "gpt2")
CONFIG = "config.json"
# Old checkpoints name the parts of a LayerNorm differently.
NORM_NAMES = (("weight", "bias"), ("gamma", "beta"))
# Variants of attention that these families know, and the value that is supported.
PLAIN = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
}


def find_model(name: str) -> Path:
    """The directory of a model: a path, or that which an installed package carries.

    Parameters
    ----------
    name : str
        A directory, a file in it, or the name of an installed Python package whose files hold a
        ``config.json`` with weights beside it. The package is not imported.

    Raises
    ------
    FileError
        If there is none.

    Examples
    --------
    >>> find_model("no-such-model")
    Traceback (most recent call last):
    ...
    meanfield.errors.FileError: no-such-model is neither a model directory nor an installed \
package that carries one
    """
    path = Path(name)
    if path.is_dir():
        return path
    if path.is_file() and (path.parent / CONFIG).is_file():
        return path.parent
    try:
        files = distribution(name).files or []
    except (PackageNotFoundError, ValueError):
        files = []
    for file in files:
        folder = Path(file.locate()).parent
        weights = any(folder.glob("*.safetensors"))
        if file.name == CONFIG and weights:
            return folder.resolve()
    if path.is_file():
        raise FileError(
            f"{name} is no model: models are directories, heads are read from .npz and "
            ".safetensors files"
        )
    raise FileError(
        f"{name} is neither a model directory nor an installed package that carries one"
    )


def read_model(path) -> PretrainedTransformer:
    """Read a transformer of the BERT or the GPT-2 family.

    Parameters
    ----------
    path : path-like
        See `find_model`.

    Returns
    -------
    PretrainedTransformer

    Raises
    ------
    FileError
        If a file or a tensor is missing, the family or a variant is not supported, or the
        weights are a pickle.
    MatrixError
        If shapes do not fit ``config.json``, or a weight is not finite.
    InputError
        If the package safetensors is not installed.
    """
    folder = find_model(str(path))
    if not (folder / CONFIG).is_file():
        raise FileError(f"{folder} has no {CONFIG}: give a model directory")
    config = _Config(folder, Path(path).name)
    with model_tensors(folder) as tensors:
        return (_bert if config.family == "bert" else _gpt2)(config, tensors)


class _Config:
    """What ``config.json`` says, checked."""

    def __init__(self, folder: Path, name: str):
        self.name, self._path = name, folder / CONFIG
        self._values = read_json(self._path)
        self.family = self._values.get("model_type")
        if self.family not in FAMILIES:
            raise FileError(
                f"{self._path}: the family {self.family!r} is not supported; supported are "
                f"{', '.join(FAMILIES)}"
            )
        for name, plain in PLAIN.items():
            given = self._values.get(name, plain)
            if given != plain:
                raise FileError(f"{self._path}: {name} is {given!r}, only {plain!r} is supported")

    def size(self, name: str) -> int:
        """A positive whole number."""
        value = self._values.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise FileError(f"{self._path}: {name} must be a positive whole number, got {value!r}")
        return value

    def number(self, name: str) -> float:
        """A positive number."""
        value = self._values.get(name)
        if not isinstance(value, int | float) or not 0 < value < 1:
            raise FileError(f"{self._path}: {name} must be a number in (0, 1), got {value!r}")
        return float(value)

    def optional_size(self, name: str, default: int) -> int:
        """A positive whole number, or the default where nothing or null is given."""
        return default if self._values.get(name) is None else self.size(name)

    def activation(self, name: str) -> str:
        """A supported activation."""
        value = self._values.get(name)
        if value not in ACTIVATIONS:
            raise FileError(
                f"{self._path}: {name} is {value!r}; supported are {', '.join(ACTIVATIONS)}"
            )
        return value

    def heads(self, name: str, dimension: int) -> int:
        """The number of heads, which divides the dimension."""
        heads = self.size(name)
        if dimension % heads:
            raise MatrixError(
                f"{self._path}: {heads} heads do not divide the dimension {dimension}"
            )
        return heads


def _prefix(tensors: Tensors, anchor: str, prefixes: tuple[str, ...]) -> str:
    for prefix in prefixes:
        if prefix + anchor in tensors.names():
            return prefix
    raise FileError(f"{tensors.source} has no tensor {anchor}")


def _norm(tensors: Tensors, name: str, d: int, epsilon: float) -> LayerNorm:
    for gain, bias in NORM_NAMES:
        if f"{name}.{gain}" in tensors.names():
            gains = tensors.get(f"{name}.{gain}", (d,))
            return LayerNorm(gains, tensors.get(f"{name}.{bias}", (d,)), epsilon)
    raise FileError(f"{tensors.source} has no tensor {name}.weight")


def _bert(config: _Config, tensors: Tensors) -> PretrainedTransformer:
    d, inner = config.size("hidden_size"), config.size("intermediate_size")
    epsilon = config.number("layer_norm_eps")
    root = _prefix(tensors, "embeddings.word_embeddings.weight", ("", "bert."))

    def affine(name: str, rows: int, columns: int) -> Affine:
        weight = tensors.get(f"{name}.weight", (rows, columns))
        return Affine(weight, tensors.get(f"{name}.bias", (rows,)))

    def layer(number: int) -> Layer:
        at = f"{root}encoder.layer.{number}"
        return Layer(
            query=affine(f"{at}.attention.self.query", d, d),
            key=affine(f"{at}.attention.self.key", d, d),
            value=affine(f"{at}.attention.self.value", d, d),
            output=affine(f"{at}.attention.output.dense", d, d),
            attention_norm=_norm(tensors, f"{at}.attention.output.LayerNorm", d, epsilon),
            inner=affine(f"{at}.intermediate.dense", inner, d),
            outer=affine(f"{at}.output.dense", d, inner),
            feed_forward_norm=_norm(tensors, f"{at}.output.LayerNorm", d, epsilon),
        )

    at = f"{root}embeddings"
    return PretrainedTransformer(
        family="bert",
        words=_table(tensors, f"{at}.word_embeddings.weight", d, keep=True),
        positions=_table(tensors, f"{at}.position_embeddings.weight", d),
        types=_table(tensors, f"{at}.token_type_embeddings.weight", d),
        embedding_norm=_norm(tensors, f"{at}.LayerNorm", d, epsilon),
        layers=tuple(layer(number) for number in range(config.size("num_hidden_layers"))),
        heads=config.heads("num_attention_heads", d),
        activation=config.activation("hidden_act"),
        name=config.name,
    )


def _gpt2(config: _Config, tensors: Tensors) -> PretrainedTransformer:
    d = config.size("n_embd")
    inner = config.optional_size("n_inner", 4 * d)
    epsilon = config.number("layer_norm_epsilon")
    root = _prefix(tensors, "wte.weight", ("", "transformer."))

    def affine(name: str, rows: int, columns: int) -> Affine:
        # Conv1D keeps the transpose.
        weight = tensors.get(f"{name}.weight", (columns, rows)).T
        return Affine(weight, tensors.get(f"{name}.bias", (rows,)))

    def layer(number: int) -> Layer:
        at = f"{root}h.{number}"
        joint = affine(f"{at}.attn.c_attn", 3 * d, d)
        parts = zip(np.split(joint.weight, 3), np.split(joint.bias, 3), strict=True)
        query, key, value = (Affine(weight, bias) for weight, bias in parts)
        return Layer(
            query=query,
            key=key,
            value=value,
            output=affine(f"{at}.attn.c_proj", d, d),
            attention_norm=_norm(tensors, f"{at}.ln_1", d, epsilon),
            inner=affine(f"{at}.mlp.c_fc", inner, d),
            outer=affine(f"{at}.mlp.c_proj", d, inner),
            feed_forward_norm=_norm(tensors, f"{at}.ln_2", d, epsilon),
        )

    return PretrainedTransformer(
        family="gpt2",
        words=_table(tensors, f"{root}wte.weight", d, keep=True),
        positions=_table(tensors, f"{root}wpe.weight", d),
        types=None,
        embedding_norm=None,
        layers=tuple(layer(number) for number in range(config.size("n_layer"))),
        heads=config.heads("n_head", d),
        activation=config.activation("activation_function"),
        name=config.name,
    )


def _table(tensors: Tensors, name: str, d: int, keep: bool = False) -> np.ndarray:
    """Embeddings, any number of rows."""
    shape = tensors.shape(name)
    if len(shape) != 2 or shape[1] != d or not shape[0]:
        raise MatrixError(f"{tensors.source}: {name} has shape {shape}, it must be (count, {d})")
    return tensors.get(name, keep=keep)
