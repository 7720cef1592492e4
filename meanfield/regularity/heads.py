"""One head of a trained transformer: its weights, its form on tokens, its leading directions."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from meanfield.errors import InputError, MatrixError
from meanfield.regularity.potentials import Potential, as_matrix, as_points
from meanfield.sphere.geometry import normalize

WEIGHTS = ("query", "key", "value", "output")
TILT_TOLERANCE = 1e-9


def product_svd(left, right) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Singular values of ``left right^T``, found at the size of its rank.

    Parameters
    ----------
    left, right : ndarray, shape (m, h), (d, h)

    Returns
    -------
    U, s, V : ndarray, shape (m, r), (r,), (d, r)
        r the least of m, d and h; s falls.

    Examples
    --------
    >>> product_svd(np.array([[3.0], [4.0]]), np.array([[2.0]]))[1].round(12).tolist()
    [10.0]
    """
    of_left, factor = np.linalg.qr(left)
    of_right, other = np.linalg.qr(right)
    U, s, Vt = np.linalg.svd(factor @ other.T, full_matrices=False)
    return of_left @ U, s, of_right @ Vt.T


@dataclass(frozen=True, eq=False)
class TransformerHead(Potential):
    """A head of a transformer, and the potential ``a`` with which its tokens attend.

    A token x attends to y with ``exp(a(x, y))``, normalised over y, where ``a(x, y) = (W_Q x + b_Q)
    .(W_K y + b_K) / scale`` up to what depends on x alone, that is ``a(x, y) = x.By + t.y``; it
    receives ``W_O (W_V y + b_V)``.

    Parameters
    ----------
    query, key : array_like, shape (h, d)
        W_Q and W_K: they act on tokens as columns.
    value : array_like, shape (k, d), optional
        W_V; the identity when both value and output are omitted.
    output : array_like, shape (d, k), optional
        The columns of W_O that belong to this head.
    query_bias, key_bias : array_like, shape (h,), optional
    value_bias : array_like, shape (k,), optional
    scale : float, optional
        What the scores are divided by; the square root of the head size h when omitted.
    layer, head : int
        Where it stands in its model.

    Raises
    ------
    MatrixError
        If shapes do not fit or a value is not finite.
    InputError
        If the scale is not positive and finite.

    Examples
    --------
    >>> head = TransformerHead(query=[[1.0, 0.0]], key=[[0.0, 2.0]])
    >>> head.form.tolist(), head.log([[1.0, 0.0]], [[0.0, 3.0]]).tolist()
    ([[0.0, 2.0], [0.0, 0.0]], [[6.0]])
    """

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray | None = None
    output: np.ndarray | None = None
    query_bias: np.ndarray | None = None
    key_bias: np.ndarray | None = None
    value_bias: np.ndarray | None = None
    scale: float | None = None
    layer: int = 0
    head: int = 0

    def __post_init__(self):
        if (self.value is None) != (self.output is None):
            raise MatrixError("give both value and output, or neither")
        for name in WEIGHTS:
            given = getattr(self, name)
            object.__setattr__(self, name, None if given is None else as_matrix(given, name))
        if self.query.shape != self.key.shape:
            raise MatrixError(
                f"query has shape {self.query.shape} but key has shape {self.key.shape}"
            )
        if self.value is not None:
            self._check_values()
        size = {"query_bias": self.size, "key_bias": self.size, "value_bias": self.value_size}
        for name, length in size.items():
            given = getattr(self, name)
            bias = np.zeros(length) if given is None else np.asarray(given, dtype=float)
            if bias.shape != (length,) or not np.isfinite(bias).all():
                raise MatrixError(f"{name} must be {length} finite numbers, got {bias.shape}")
            object.__setattr__(self, name, bias)
        scale = float(np.sqrt(self.size) if self.scale is None else self.scale)
        if not (np.isfinite(scale) and scale > 0):
            raise InputError(f"scale must be positive and finite, got {scale}")
        object.__setattr__(self, "scale", scale)

    def _check_values(self) -> None:
        d, (k, of_value) = self.dimension, self.value.shape
        if of_value != d or self.output.shape != (d, k):
            raise MatrixError(
                f"tokens live in R^{d} (query): value has shape {self.value.shape} and output "
                f"{self.output.shape}, they must be (k, {d}) and ({d}, k)"
            )

    @property
    def size(self) -> int:
        """The head size h."""
        return self.query.shape[0]

    @property
    def dimension(self) -> int:
        """The dimension d of the tokens."""
        return self.query.shape[1]

    @property
    def value_size(self) -> int:
        """How many numbers a value has."""
        return self.dimension if self.value is None else self.value.shape[0]

    @cached_property
    def form(self) -> np.ndarray:
        """``B = W_Q^T W_K / scale``, shape (d, d)."""
        return self.query.T @ self.key / self.scale

    @cached_property
    def tilt(self) -> np.ndarray:
        """``t = W_K^T b_Q / scale``, shape (d,): how much every query prefers a key."""
        return self.key.T @ self.query_bias / self.scale

    @cached_property
    def value_map(self) -> np.ndarray:
        """``W_O W_V``, shape (d, d): what a token becomes for others."""
        return np.eye(self.dimension) if self.value is None else self.output @ self.value

    @cached_property
    def form_factors(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """U (d, r), s (r,) falling, V (d, r) with ``B = U diag(s) V^T``, r = min(h, d)."""
        left, s, right = product_svd(self.query.T, self.key.T)
        return left, s / self.scale, right

    @property
    def form_norm(self) -> float:
        """Spectral norm of B."""
        return float(self.form_factors[1][0])

    def bilinear_centre(self, near) -> np.ndarray:
        """The origin nearest to a point, shape (d,), from which the potential is ``x.By``.

        In ``x - c`` the tilt is ``B^T c + t``, which this c makes zero; what depends on the query
        alone changes no attention.

        Raises
        ------
        InputError
            If no c does: W_Q is singular, and part of its bias is outside its range.

        Examples
        --------
        >>> head = TransformerHead([[2.0, 0.0]], [[0.0, 1.0]], query_bias=[4.0])
        >>> (head.bilinear_centre([7.0, 5.0]) + 0.0).tolist()
        [-2.0, 5.0]
        """
        near = np.asarray(near, dtype=float)
        keys = np.linalg.qr(self.key.T, mode="r")
        queries = self.query @ near + self.query_bias
        centre = near - np.linalg.lstsq(keys @ self.query, keys @ queries)[0]
        left = keys @ (self.query @ centre + self.query_bias)
        size = np.linalg.norm(keys) * max(np.linalg.norm(queries), np.linalg.norm(self.query_bias))
        if np.linalg.norm(left) > TILT_TOLERANCE * size:
            raise InputError(
                f"layer {self.layer}, head {self.head}: the query bias is outside the range of "
                "W_Q, no origin makes the scores bilinear"
            )
        return centre

    def log(self, x, y) -> np.ndarray:
        """``a(x_i, y_j)``: queries (m, d), keys (N, d) to (m, N)."""
        x, y = self._tokens(x, "queries"), self._tokens(y, "keys")
        return (x @ self.query.T + self.query_bias) @ (y @ self.key.T).T / self.scale

    def grad_query_parts(self, x, y) -> tuple[np.ndarray, np.ndarray]:
        """Zero and ``B y_j``."""
        y = self._tokens(y, "keys")
        return np.zeros((1, self.dimension)), y @ self.key.T @ self.query / self.scale

    def grad_key_parts(self, x, y) -> tuple[np.ndarray, np.ndarray]:
        """``B^T x_i + t`` and zero."""
        x = self._tokens(x, "queries")
        queries = x @ self.query.T + self.query_bias
        return queries @ self.key / self.scale, np.zeros((1, self.dimension))

    def _tokens(self, x, name: str = "tokens") -> np.ndarray:
        x = np.asarray(x, dtype=float)
        if x.ndim != 2 or x.shape[1] != self.dimension:
            raise MatrixError(
                f"the head takes {name} of shape (m, {self.dimension}), got {x.shape}"
            )
        return as_points(x, name) if len(x) else x

    @cached_property
    def spectrum(self) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues and eigenvectors of ``(B + B^T) / 2``, by falling modulus.

        Returns
        -------
        eigenvalues : ndarray, shape (r,)
            r = min(2 h, d); all others are zero.
        vectors : ndarray, shape (d, r)
            Columns; the component of largest modulus is positive.
        """
        h = self.size
        basis, factors = np.linalg.qr(np.hstack([self.query.T, self.key.T]))
        small = factors[:, :h] @ factors[:, h:].T / self.scale
        eigenvalues, vectors = np.linalg.eigh((small + small.T) / 2)
        order = np.argsort(-np.abs(eigenvalues), kind="stable")
        vectors = basis @ vectors[:, order]
        peaks = vectors[np.abs(vectors).argmax(axis=0), np.arange(len(order))]
        return eigenvalues[order], vectors * np.where(peaks < 0, -1.0, 1.0)

    def on_sphere(self, tokens, directions: int = 3) -> tuple[np.ndarray, np.ndarray]:
        """The head as an interaction on a small sphere, and its tokens there.

        The symmetric part of the form is restricted to its eigenvectors of largest modulus and
        scaled by the mean squared norm of the projected tokens; these are normalised.

        Parameters
        ----------
        tokens : array_like, shape (m, d)
        directions : int
            At least 2, at most the rank.

        Returns
        -------
        D : ndarray, shape (directions, directions)
            Diagonal.
        points : ndarray, shape (m, directions)
            Unit vectors.

        Raises
        ------
        PointsError
            If tokens are not finite, or one is orthogonal to all directions.
        InputError
            If there are not as many directions.

        Examples
        --------
        >>> head = TransformerHead(query=2 * np.eye(3), key=np.diag([3.0, 2.0, 1.0]), scale=1.0)
        >>> D, points = head.on_sphere([[3.0, 4.0, 0.0]], directions=2)
        >>> np.diag(D).tolist(), points.tolist()
        ([150.0, 100.0], [[0.6, 0.8]])
        """
        D, projected = self.project(tokens, directions)
        return D, normalize(projected)

    def project(self, tokens, directions: int = 3) -> tuple[np.ndarray, np.ndarray]:
        """As `on_sphere`, with tokens that are not normalised."""
        eigenvalues, vectors = self.spectrum
        if not 2 <= directions <= len(eigenvalues):
            raise InputError(
                f"the form of layer {self.layer}, head {self.head} has {len(eigenvalues)} "
                f"directions: between 2 and as many can be taken, {directions} were asked for"
            )
        projected = self._tokens(tokens) @ vectors[:, :directions]
        squared = float((projected**2).sum(axis=1).mean())
        return np.diag(eigenvalues[:directions] * squared), projected

    def attend(self, queries, tokens) -> np.ndarray:
        """What queries (m, d) receive from tokens (N, d): shape (m, d).

        Examples
        --------
        >>> TransformerHead([[0.0]], [[1.0]]).attend([[5.0]], [[1.0], [3.0]]).tolist()
        [[2.0]]
        """
        scores = self.log(queries, tokens)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        mean = weights @ as_points(tokens)
        if self.value is None:
            return mean + self.value_bias
        return (mean @ self.value.T + self.value_bias) @ self.output.T

    def __repr__(self) -> str:
        biased = any(getattr(self, f.name).any() for f in fields(self) if f.name.endswith("_bias"))
        return (
            f"TransformerHead(layer {self.layer}, head {self.head}: tokens in R^{self.dimension}, "
            f"size {self.size}, scale {self.scale:g}{', biases' if biased else ''})"
        )
