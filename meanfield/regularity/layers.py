"""Layers of a transformer as maps of measures, and the plain linear algebra they stand for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from meanfield.errors import InputError, MatrixError
from meanfield.measures import Measure
from meanfield.model.attention import SelfAttention
from meanfield.model.heads import MultiHead
from meanfield.regularity.kernels import Deterministic, MarkovKernel, Mixture
from meanfield.regularity.operators import (
    attention_kernel,
    attention_weights,
    lookup,
    project_to_mean,
)
from meanfield.regularity.potentials import (
    Bilinear,
    Potential,
    ScaledDotProduct,
    as_matrix,
    as_points,
)


class Layer:
    """A map of measures ``mu -> mu K_mu``; layers compose with ``@``, first left."""

    def kernel(self, measure: Measure) -> MarkovKernel:
        """The Markov kernel ``K_mu``."""
        raise NotImplementedError

    def __call__(self, measure: Measure) -> Measure:
        """``mu K_mu``: atom i of the result is the image of atom i."""
        return self.kernel(measure).on_measure(measure)

    def __matmul__(self, other: Layer) -> Layer:
        if not isinstance(other, Layer):
            return NotImplemented
        return Stack(self, other)


@dataclass(frozen=True, eq=False)
class Stack(Layer):
    """Two layers, one after the other: ``first @ second``."""

    first: Layer
    second: Layer

    def kernel(self, measure: Measure) -> MarkovKernel:
        """The kernel of the first at mu, then the kernel of the second at the image of mu."""
        first = self.first.kernel(measure)
        return first @ self.second.kernel(first.on_measure(measure))


@dataclass(frozen=True, eq=False)
class AttentionLayer(Layer):
    """One head of self-attention: ``mu -> mu A_mu``.

    Parameters
    ----------
    potential : Potential
    values : MarkovKernel, callable or array_like, optional
        The lookup, see `lookup`; the identity when omitted.
    mask : array_like of bool or callable, optional
        See `attention_weights`.

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Definition 7.

    Examples
    --------
    >>> layer = AttentionLayer(ScaledDotProduct()) @ FeedForward(lambda x: np.maximum(x, 0.0))
    >>> layer(Measure([[0.0], [0.0]])).points.tolist()
    [[0.0], [0.0]]
    """

    potential: Potential
    values: object = None
    mask: object = None

    def __post_init__(self):
        if not isinstance(self.potential, Potential):
            raise InputError("potential must be a Potential: wrap a function in Custom(function)")
        object.__setattr__(self, "values", lookup(self.values))

    @classmethod
    def from_weights(cls, WQ, WK, WV, scale: float | None = None, mask=None) -> AttentionLayer:
        """The head with weights ``WQ``, ``WK`` (d', d) and ``WV`` (d_v, d); see `attention`."""
        WQ, WK, WV = _weights(WQ, WK, WV)
        scale = ScaledDotProduct(scale).divisor(len(WQ))
        return cls(Bilinear(WQ.T @ WK, scale), WV, mask)

    def kernel(self, measure: Measure) -> MarkovKernel:
        """The attention kernel ``A_mu``."""
        return attention_kernel(measure, self.potential, self.values, self.mask)


@dataclass(frozen=True, eq=False)
class MultiHeadLayer(Layer):
    """Several heads: ``M = Pi(1/H sum_h A^h O^h)`` with ``O^h(x) = H x W^O_h``.

    Parameters
    ----------
    heads : sequence of Layer
    outputs : sequence of array_like, shape (d_v, d), optional
        ``W^O_h``, acting from the right; without them the outputs of the heads are added.

    Raises
    ------
    InputError
        If there is no head, or not one output a head.

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Appendix A and Proposition 19.

    Examples
    --------
    >>> head = AttentionLayer(ScaledDotProduct())
    >>> MultiHeadLayer([head, head], [[[1.0]], [[-1.0]]])(Measure([[1.0]])).points.tolist()
    [[0.0]]
    """

    heads: tuple[Layer, ...]
    outputs: tuple[np.ndarray, ...] | None = None

    def __post_init__(self):
        heads = tuple(self.heads)
        if not heads or not all(isinstance(head, Layer) for head in heads):
            raise InputError("heads must be a nonempty list of layers")
        object.__setattr__(self, "heads", heads)
        if self.outputs is not None:
            outputs = tuple(as_matrix(W, "an output matrix") for W in self.outputs)
            if len(outputs) != len(heads):
                raise InputError(f"{len(heads)} heads need as many outputs, got {len(outputs)}")
            object.__setattr__(self, "outputs", outputs)

    def kernel(self, measure: Measure) -> MarkovKernel:
        """The multi-head kernel ``M_mu``."""
        count = len(self.heads)
        kernels = []
        for h, head in enumerate(self.heads):
            output = (lambda x: count * x) if self.outputs is None else count * self.outputs[h].T
            kernels.append(head.kernel(measure) @ Deterministic(output))
        return project_to_mean(Mixture(kernels))


@dataclass(frozen=True, eq=False)
class FeedForward(Layer):
    """A network that acts on every token alone: ``F(x, .) = delta_{f(x)}``.

    Parameters
    ----------
    function : callable or array_like, shape (p, d)
        ``f``, from (m, d) to (m, p), or a matrix.

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Section 4.2 and Proposition 11: the transformer
    is ``attention @ FeedForward(f)``.
    """

    function: Callable

    def kernel(self, measure: Measure) -> MarkovKernel:
        """The same kernel for every measure."""
        return Deterministic(self.function)


def layer_of(model: SelfAttention | MultiHead) -> Layer:
    """The attention layer of a model on the sphere, before the projection to the tangent space.

    Parameters
    ----------
    model : SelfAttention or MultiHead
        Normalised.

    Returns
    -------
    Layer

    Raises
    ------
    InputError
        If a model is not normalised: then it is no map to probability measures.

    Examples
    --------
    >>> layer = layer_of(SelfAttention([1.0, 1.0], sign=-1))
    >>> layer(Measure([[1.0, 0.0]])).points.tolist()
    [[-1.0, 0.0]]
    """
    if isinstance(model, MultiHead):
        heads = [layer_of(head) for head in model.heads]
        return MultiHeadLayer(heads, [model.factor * np.eye(model.dimension) for _ in heads])
    if not model.normalized:
        raise InputError("an attention kernel is normalised: give a model with normalized=True")
    return AttentionLayer(Bilinear(model.D), model.V)


def _weights(WQ, WK, WV) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    WQ, WK, WV = as_matrix(WQ, "WQ"), as_matrix(WK, "WK"), as_matrix(WV, "WV")
    if len(WQ) != len(WK) or WK.shape[1] != WV.shape[1]:
        raise MatrixError(
            "WQ (d', d_q), WK (d', d_k) and WV (d_v, d_k) must fit, "
            f"got {WQ.shape}, {WK.shape} and {WV.shape}"
        )
    return WQ, WK, WV


def attention(X, WQ, WK, WV, scale: float | None = None, mask=None, keys=None) -> np.ndarray:
    """Attention in plain linear algebra: ``softmax(X W_Q^T (Y W_K^T)^T / scale) Y W_V^T``.

    Parameters
    ----------
    X : array_like, shape (m, d_q)
        Tokens, one a row.
    WQ, WK : array_like, shapes (d', d_q), (d', d_k)
    WV : array_like, shape (d_v, d_k)
    scale : float, optional
        What the scores are divided by: the square root of the head dimension d' when omitted
        (practice); the paper takes that of the token dimension.
    mask : array_like of bool, shape (m, N), or callable, optional
        Which keys a query sees; a callable gets the projected queries and keys.
    keys : array_like, shape (N, d_k), optional
        Y, for cross-attention; X when omitted.

    Returns
    -------
    ndarray, shape (m, d_v)

    Raises
    ------
    PointsError, MatrixError, InputError
        If the tokens, the weights or the mask are not finite or do not fit.

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Definition 1 and Section 4.2.

    Examples
    --------
    >>> attention([[0.0], [0.0]], [[1.0]], [[1.0]], [[3.0]]).tolist()
    [[0.0], [0.0]]
    """
    X = as_points(X, "tokens")
    Y = X if keys is None else as_points(keys, "keys")
    WQ, WK, WV = _weights(WQ, WK, WV)
    if X.shape[1] != WQ.shape[1] or Y.shape[1] != WK.shape[1]:
        raise MatrixError(
            f"tokens in R^{X.shape[1]} (keys in R^{Y.shape[1]}) do not fit "
            f"WQ {WQ.shape} and WK {WK.shape}"
        )
    weights = attention_weights(X @ WQ.T, Measure(Y @ WK.T), ScaledDotProduct(scale), mask)
    return weights @ (Y @ WV.T)


def multi_head_attention(
    X, WQ, WK, WV, WO, scale: float | None = None, mask=None, keys=None
) -> np.ndarray:
    """Multi-head attention in plain linear algebra: heads side by side, times ``WO``.

    Parameters
    ----------
    X : array_like, shape (m, d_q)
    WQ, WK, WV : sequences of H array_like
        The weights of each head, as in `attention`.
    WO : array_like, shape (H d_v, d)
        Acts from the right on the heads side by side.
    scale, mask, keys
        As in `attention`.

    Returns
    -------
    ndarray, shape (m, d)

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Appendix A.

    Examples
    --------
    >>> one = [[[1.0]], [[1.0]]]
    >>> multi_head_attention([[2.0]], one, one, one, [[1.0], [3.0]]).tolist()
    [[8.0]]
    """
    if not len(WQ) == len(WK) == len(WV):
        raise MatrixError(f"there are {len(WQ)} WQ, {len(WK)} WK and {len(WV)} WV")
    heads = [attention(X, *W, scale, mask, keys) for W in zip(WQ, WK, WV, strict=True)]
    WO = as_matrix(WO, "WO")
    side_by_side = np.concatenate(heads, axis=1)
    if side_by_side.shape[1] != len(WO):
        raise MatrixError(f"the heads have {side_by_side.shape[1]} columns but WO {len(WO)} rows")
    return side_by_side @ WO
