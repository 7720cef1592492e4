"""Integrals against the kernel exp(x.Dy) as tiled sums in the log domain."""

from __future__ import annotations

import numpy as np

TILE_ENTRIES = 4_000_000  # 32 MiB a temporary, three of them alive at a time


class DirectSum:
    """All pairs of targets and sources, a tile at a time.

    Parameters
    ----------
    targets : ndarray, shape (m, n)
    sources : ndarray, shape (k, n)
    D : ndarray, shape (n, n)

    Notes
    -----
    Costs ``m k`` exponentials and ``O(m + k)`` memory; the relative error is round-off
    whatever the size of D, since each row is shifted by its largest exponent.
    """

    name = "direct"

    def __init__(self, targets: np.ndarray, sources: np.ndarray, D: np.ndarray):
        self.targets = targets
        self.images = sources @ D.T

    def sums(self, masses: np.ndarray, fields: np.ndarray | None = None):
        """Integrals ``sum_j K(x_i, y_j) masses_j (1, fields_j)`` as ``exp(shift_i) sums_i``.

        Parameters
        ----------
        masses : ndarray, shape (k,), nonnegative
        fields : ndarray, shape (k, f), optional

        Returns
        -------
        shift : ndarray, shape (m,)
        sums : ndarray, shape (m, 1 + f)
        """
        support = np.flatnonzero(masses)
        if len(support) < len(masses):
            masses = masses[support]
            fields = None if fields is None else fields[support]
            images = self.images[support]
        else:
            images = self.images
        weights = masses[:, None]
        if fields is not None:
            weights = np.concatenate([weights, weights * fields], axis=1)
        count = len(self.targets)
        shift = np.full(count, -np.inf)
        sums = np.zeros((count, weights.shape[1]))
        if len(support) == 0:
            return np.zeros(count), sums
        rows = max(1, min(count, TILE_ENTRIES // len(support)))
        tile = np.empty((rows, len(support)))
        for start in range(0, count, rows):
            block = slice(start, min(start + rows, count))
            exponents = tile[: block.stop - start]
            np.matmul(self.targets[block], images.T, out=exponents)
            shift[block] = exponents.max(axis=1)
            exponents -= shift[block, None]
            np.exp(exponents, out=exponents)
            np.matmul(exponents, weights, out=sums[block])
        return shift, sums
