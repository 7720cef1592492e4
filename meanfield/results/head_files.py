"""Heads of attention, and tokens, from one npz or safetensors file with documented names."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from meanfield.errors import FileError, MatrixError
from meanfield.regularity.heads import TransformerHead
from meanfield.regularity.potentials import as_points
from meanfield.results.tensors import Tensors, read_npz, refuse_pickle

ARGUMENTS = {
    "W_Q": "query",
    "W_K": "key",
    "W_V": "value",
    "W_O": "output",
    "b_Q": "query_bias",
    "b_K": "key_bias",
    "b_V": "value_bias",
}
NAMES = (*ARGUMENTS, "scale", "tokens")


def read_heads(path) -> tuple[list[TransformerHead], np.ndarray | None]:
    """Read the heads of one layer, and its tokens, from a file.

    Parameters
    ----------
    path : path-like
        ``.npz`` or ``.safetensors`` with the arrays W_Q and W_K, shape (h, d), and optionally W_V
        (k, d), W_O (d, k), b_Q and b_K (h,), b_V (k,), ``scale`` (one number; sqrt(h) when
        omitted) and ``tokens`` (N, d). W act on tokens as columns. With one more leading axis in
        all W and b, they are several heads.

    Returns
    -------
    heads : list of TransformerHead
    tokens : ndarray, shape (N, d), or None

    Raises
    ------
    FileError
        If the file is missing, damaged, a pickle, or has arrays of other names.
    MatrixError, PointsError
        If shapes do not fit or a value is not finite.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/head.npz", W_Q=np.eye(2), W_K=np.eye(2), tokens=np.eye(2))
    ...     heads, tokens = read_heads(f"{folder}/head.npz")
    >>> heads
    [TransformerHead(layer 0, head 0: tokens in R^2, size 2, scale 1.41421)]
    """
    path = Path(path)
    refuse_pickle(path)
    arrays = _read(path)
    unknown = sorted(set(arrays) - set(NAMES))
    missing = [name for name in ("W_Q", "W_K") if name not in arrays]
    if missing or unknown:
        what = f"misses {' and '.join(missing)}" if missing else f"has {unknown[0]!r}"
        raise FileError(
            f"{path} {what}: it must hold {', '.join(NAMES)} (all but W_Q and W_K optional)"
        )
    scale = arrays.pop("scale", None)
    if scale is not None and (scale.size != 1 or scale.dtype.kind not in "fiu"):
        raise MatrixError(f"{path}: scale must be one number, got shape {scale.shape}")
    tokens = arrays.pop("tokens", None)
    try:
        heads = _heads(arrays, None if scale is None else float(scale.reshape(())))
        tokens = None if tokens is None else as_points(_real(tokens, "tokens"), "tokens")
    except ValueError as error:
        raise type(error)(f"{path}: {error}") from None
    if tokens is not None and tokens.shape[1] != heads[0].dimension:
        raise MatrixError(
            f"{path}: tokens live in R^{tokens.shape[1]}, W_Q takes R^{heads[0].dimension}"
        )
    return heads, tokens


def _read(path: Path) -> dict[str, np.ndarray]:
    if path.suffix == ".npz":
        return read_npz(path)
    if path.suffix == ".safetensors":
        with Tensors([path]) as tensors:
            # Names are checked first: a whole model is not read for nothing.
            if not {"W_Q", "W_K"} <= tensors.names():
                return dict.fromkeys(tensors.names())
            return {name: tensors.get(name) for name in tensors.names()}
    raise FileError(f"{path}: heads are read from .npz and .safetensors files")


def _heads(arrays: dict[str, np.ndarray], scale: float | None) -> list[TransformerHead]:
    arrays = {name: _real(array, name) for name, array in arrays.items()}
    several = arrays["W_Q"].ndim == 3
    count = len(arrays["W_Q"]) if several else 1
    for name, array in arrays.items():
        if several and len(array) != count:
            raise MatrixError(f"W_Q holds {count} heads but {name} has shape {array.shape}")
    return [
        TransformerHead(
            **{ARGUMENTS[name]: array[k] if several else array for name, array in arrays.items()},
            scale=scale,
            head=k,
        )
        for k in range(count)
    ]


def _real(array: np.ndarray, name: str) -> np.ndarray:
    if array.dtype.kind not in "fiu" or not array.ndim:
        raise MatrixError(f"{name} must be an array of numbers, got {array.dtype}, {array.shape}")
    return array.astype(float)
