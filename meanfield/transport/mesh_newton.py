"""Newton directions for paths of masses: a block tridiagonal system with one block a time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.linalg import lapack

from meanfield.transport.mesh_action import MeshAction, Transfer, cholesky


def path_gradient(action: MeshAction, transfers: list[Transfer]) -> np.ndarray:
    """Derivative of ``sum_k P((m_k + m_{k+1})/2, m_{k+1} - m_k) / dt`` by the inner masses.

    Parameters
    ----------
    action : MeshAction
    transfers : list of Transfer, length T

    Returns
    -------
    ndarray, shape (T - 1, m)
        At the times between the first and the last; defined up to a constant at each time,
        since masses sum to one.
    """
    by_masses, by_change = np.moveaxis([action.gradient(one) for one in transfers], 1, 0)
    late, early = by_masses / 2 + by_change, by_masses / 2 - by_change
    return len(transfers) * (late[:-1] + early[1:])


def newton_direction(action, transfers, masses, right, diagonal, nonlocal_part=1.0):
    """Solve ``(H + diag(diagonal)) d = right`` for changes d of the inner masses, sum zero.

    H is the second derivative of the path action. Block Cholesky from the first time to the
    last; at every time one cell, the heaviest, takes the opposite of what the others take, so
    that the scales of the others stay apart.

    Parameters
    ----------
    action : MeshAction
    transfers : list of Transfer, length T
    masses : ndarray, shape (T + 1, m)
    right, diagonal : ndarray, shape (T - 1, m)
    nonlocal_part : float
        See `MeshAction.hessian`.

    Returns
    -------
    ndarray, shape (T - 1, m), or None
        None where the matrix is not positive definite.
    """
    heavy = masses[1:-1].argmax(axis=1)
    factors, couplings, rows = [], [], []
    blocks = _blocks(action, transfers, diagonal, nonlocal_part)
    for k, (block, coupling) in enumerate(blocks):
        matrix = _eliminated(block, heavy[k], heavy[k])
        matrix[heavy[k], heavy[k]] = 1.0
        row = right[k] - right[k, heavy[k]]
        if couplings:
            matrix -= couplings[-1].T @ couplings[-1]
            row = row - couplings[-1].T @ rows[-1]
        row[heavy[k]] = 0.0
        factor = cholesky(matrix)
        if factor is None:
            return None
        factors.append(factor)
        rows.append(lapack.dtrtrs(factor, row, lower=1)[0])
        if k + 1 < len(right):
            coupling = _eliminated(coupling, heavy[k], heavy[k + 1])
            couplings.append(lapack.dtrtrs(factor, coupling, lower=1)[0])
    changes = np.empty_like(right)
    for k in reversed(range(len(right))):
        row = rows[k] if k + 1 == len(right) else rows[k] - couplings[k] @ changes[k + 1]
        changes[k] = lapack.dtrtrs(factors[k], row, lower=1, trans=1)[0]
    times = np.arange(len(right))
    changes[times, heavy] = 0.0
    changes[times, heavy] = -changes.sum(axis=1)
    return changes


def _blocks(action, transfers, diagonal, nonlocal_part) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Diagonal blocks, and those that couple a time to the next one, for the inner times."""
    steps = len(transfers)
    pending = None
    for k, one in enumerate(transfers):
        by_masses, mixed, by_change = action.hessian(one, nonlocal_part)
        both = by_change + by_masses / 4
        symmetric = (mixed + mixed.T) / 2
        if k > 0:
            block = steps * (pending + both - symmetric)
            block[np.diag_indices(action.count)] += diagonal[k - 1]
            yield block, steps * (by_masses / 4 - by_change - (mixed - mixed.T) / 2)
        pending = both + symmetric


def _eliminated(block: np.ndarray, row: int, column: int) -> np.ndarray:
    """Express one row and one column by the others, whose sum is opposite; they become zero."""
    block = block - block[:, [column]] - block[[row]] + block[row, column]
    block[row] = 0.0
    block[:, column] = 0.0
    return block
