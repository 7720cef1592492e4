"""The forward pass of a trained transformer, BERT or GPT-2 family, in float64."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import erf, expit

from meanfield.errors import InputError, PointsError
from meanfield.regularity.heads import TransformerHead

ACTIVATIONS = {
    "gelu": lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2))),
    # 0.5 (1 + tanh z) = 1 / (1 + exp(-2 z))
    "gelu_new": lambda x: x * expit(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)),
    "relu": lambda x: np.maximum(x, 0),
}


@dataclass(frozen=True, eq=False)
class Affine:
    """``x -> W x + b`` on tokens as rows; weight (m, d), bias (m,)."""

    weight: np.ndarray
    bias: np.ndarray

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return x @ self.weight.T + self.bias


@dataclass(frozen=True, eq=False)
class LayerNorm:
    """``x -> gain (x - mean x) / sqrt(var x + epsilon) + bias`` over the components."""

    gain: np.ndarray
    bias: np.ndarray
    epsilon: float

    def __call__(self, x: np.ndarray) -> np.ndarray:
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = (centred**2).mean(axis=-1, keepdims=True)
        return self.gain * centred / np.sqrt(variance + self.epsilon) + self.bias


@dataclass(frozen=True, eq=False)
class Layer:
    """Attention and feed-forward network, each with a residual connection and a LayerNorm.

    The norms follow the residual sums in the BERT family and precede the two maps in the GPT-2
    family.
    """

    query: Affine
    key: Affine
    value: Affine
    output: Affine
    attention_norm: LayerNorm
    inner: Affine
    outer: Affine
    feed_forward_norm: LayerNorm


@dataclass(frozen=True, eq=False)
class PretrainedTransformer:
    """A trained transformer: `meanfield.results.models.read_model` reads one.

    Attributes
    ----------
    family : {"bert", "gpt2"}
    words : ndarray, shape (vocabulary, d)
        Embeddings of the tokens, in the precision of the file.
    positions : ndarray, shape (longest, d)
    types : ndarray, shape (2, d), or None
        Token types (BERT); tokens have type 0.
    embedding_norm : LayerNorm or None
        After the embeddings (BERT).
    layers : tuple of Layer
    heads : int
        Heads a layer.
    activation : str
        A name in `ACTIVATIONS`.
    name : str
    """

    family: str
    words: np.ndarray
    positions: np.ndarray
    types: np.ndarray | None
    embedding_norm: LayerNorm | None
    layers: tuple[Layer, ...]
    heads: int
    activation: str = "gelu"
    name: str = ""

    @property
    def dimension(self) -> int:
        """The dimension d of the tokens."""
        return self.words.shape[1]

    @property
    def causal(self) -> bool:
        """Whether a token attends to itself and those before it only (GPT-2)."""
        return self.family == "gpt2"

    def head(self, layer: int, head: int) -> TransformerHead:
        """One head.

        Raises
        ------
        InputError
            If there is no such layer or head.
        """
        _in_range("layer", layer, len(self.layers))
        _in_range("head", head, self.heads)
        weights, size = self.layers[layer], self.dimension // self.heads
        rows = slice(head * size, (head + 1) * size)
        return TransformerHead(
            query=weights.query.weight[rows],
            key=weights.key.weight[rows],
            value=weights.value.weight[rows],
            output=weights.output.weight[:, rows],
            query_bias=weights.query.bias[rows],
            key_bias=weights.key.bias[rows],
            value_bias=weights.value.bias[rows],
            layer=layer,
            head=head,
        )

    def embed(self, ids) -> np.ndarray:
        """Embeddings of a sequence of token numbers, shape (N, d): what enters layer 0.

        Raises
        ------
        PointsError
            If ids are not a sequence of token numbers, or it is longer than the model takes.
        """
        ids = self._checked(ids)
        if len(ids) > len(self.positions):
            raise PointsError(
                f"{len(ids)} tokens are more than the {len(self.positions)} positions of the model"
            )
        return self._sum(ids, self.positions[: len(ids)])

    def vocabulary_tokens(self, ids, layer: int = 0, positions: int = 128) -> np.ndarray:
        """Tokens of the vocabulary, without a place in a text, as the heads of a layer see them.

        The mean of the first position embeddings stands for the position. Later layers are
        reached in texts of that many tokens, in the order given.

        Parameters
        ----------
        ids : array_like of int, shape (N,)
        layer : int
        positions : int
            How many; all that the model has, if these are fewer.

        Returns
        -------
        ndarray, shape (N, d)

        Raises
        ------
        PointsError
            As `embed`.
        InputError
            If there is no such layer, or positions is not positive.
        """
        _in_range("layer", layer, len(self.layers))
        if positions < 1:
            raise InputError(f"positions must be positive, got {positions}")
        mean = self.positions[:positions].mean(axis=0, dtype=float)
        x = self._sum(self._checked(ids), mean)
        if layer:
            texts = np.split(x, range(positions, len(x), positions))
            x = np.concatenate([self.through_layers(text, layer)[-1] for text in texts])
        return self._attended(x, layer)

    def _checked(self, ids) -> np.ndarray:
        ids = np.asarray(ids)
        if ids.ndim != 1 or not len(ids) or not np.issubdtype(ids.dtype, np.integer):
            raise PointsError(f"tokens must be a sequence of whole numbers, got {ids.shape}")
        if ids.min() < 0 or ids.max() >= len(self.words):
            raise PointsError(
                f"token numbers must be in 0 ... {len(self.words) - 1}, "
                f"got {ids.min()} ... {ids.max()}"
            )
        return ids

    def _sum(self, ids: np.ndarray, positions: np.ndarray) -> np.ndarray:
        x = self.words[ids].astype(float) + positions
        if self.types is not None:
            x = x + self.types[0]
        return x if self.embedding_norm is None else self.embedding_norm(x)

    def _attended(self, x: np.ndarray, layer: int) -> np.ndarray:
        """Tokens as the heads of a layer see them."""
        return self.layers[layer].attention_norm(x) if self.family == "gpt2" else x

    def states(self, ids) -> np.ndarray:
        """The tokens of a text before every layer and after the last, shape (layers + 1, N, d).

        GPT-2's last LayerNorm is left out: it belongs to no layer.
        """
        return self.through_layers(self.embed(ids))

    def through_layers(self, x: np.ndarray, count: int | None = None) -> np.ndarray:
        """As `states`, from embedded tokens (N, d), through the first layers only if wanted."""
        found = [np.asarray(x, dtype=float)]
        for number in range(len(self.layers) if count is None else count):
            found.append(self.apply_layer(number, found[-1]))
        return np.stack(found)

    def head_tokens(self, states: np.ndarray) -> np.ndarray:
        """What the heads of every layer see of `states`: shape (layers, N, d)."""
        return np.stack([self._attended(states[k], k) for k in range(len(self.layers))])

    def apply_layer(self, number: int, x: np.ndarray) -> np.ndarray:
        """One layer on tokens (N, d)."""
        x = self.apply_attention(number, x)
        layer, activate = self.layers[number], ACTIVATIONS[self.activation]
        if self.family == "gpt2":
            return x + layer.outer(activate(layer.inner(layer.feed_forward_norm(x))))
        return layer.feed_forward_norm(x + layer.outer(activate(layer.inner(x))))

    def apply_attention(self, number: int, x: np.ndarray) -> np.ndarray:
        """The first half of a layer, with its residual connection and its LayerNorm."""
        layer = self.layers[number]
        if self.family == "gpt2":
            return x + self._attention(layer, layer.attention_norm(x))
        return layer.attention_norm(x + self._attention(layer, x))

    def _attention(self, layer: Layer, x: np.ndarray) -> np.ndarray:
        count, size = len(x), self.dimension // self.heads
        query, key, value = (
            part(x).reshape(count, self.heads, size).transpose(1, 0, 2)
            for part in (layer.query, layer.key, layer.value)
        )
        scores = query @ key.transpose(0, 2, 1) / np.sqrt(size)
        if self.causal:
            scores = np.where(np.tri(count, dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        weights /= weights.sum(axis=2, keepdims=True)
        return layer.output((weights @ value).transpose(1, 0, 2).reshape(count, -1))

    def __repr__(self) -> str:
        return (
            f"PretrainedTransformer({self.name}: {self.family} family, {len(self.layers)} layers, "
            f"{self.heads} heads, tokens in R^{self.dimension}, {len(self.words)} words)"
        )


def _in_range(name: str, given: int, count: int) -> None:
    if not 0 <= given < count:
        raise InputError(f"{name} must be in 0 ... {count - 1}, got {given}")
