"""Eigenvalues of the linearised flow, from a matrix or matrix-free."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import eig, eigh
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigs, eigsh

from meanfield.equilibria.linearization import Linearization, frames

DENSE = 1_500  # unknowns up to which a matrix gives all rates
PRECISION = 1e-12  # of the iteration
BASIS = 64  # Krylov vectors at least: where rates accumulate, restarts lose most of the work
SEED = 0  # of its starting vector


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Some modes, and what is known of all.

    Attributes
    ----------
    rates : ndarray, shape (k,)
    fields : ndarray, shape (k, m, n)
    unstable : int
        How many rates are above the threshold.
    neutral : int or None
        How many are within it, if known.
    complete : bool
        Whether ``unstable`` is exact, not only a lower bound.
    converged : bool
    """

    rates: np.ndarray
    fields: np.ndarray
    unstable: int
    neutral: int | None
    complete: bool
    converged: bool


class Operator:
    """The linearised flow in weighted coordinates of the tangent spaces.

    The unknowns are ``sqrt(w) xi`` in orthonormal frames, w = a Z for the normalised flow and a
    for the unnormalised one: for gradient models the matrix is then symmetric.

    Parameters
    ----------
    line : Linearization
    normalized : bool
        Whether the flow is divided by Z.
    symmetric : bool
        Whether the model is a gradient flow.
    with_local : bool
        Whether to keep the local term.

    Examples
    --------
    >>> pair = np.array([[0.0, 1.0], [0.0, -1.0]])
    >>> D = np.diag([1.0, 1.1])
    >>> line = Linearization(pair, np.array([0.5, 0.5]), D, D)
    >>> operator = Operator(line, normalized=True, symmetric=True)
    >>> bool(np.allclose(operator.matrix(), operator.linear() @ np.eye(2)))
    True
    """

    def __init__(
        self, line: Linearization, normalized: bool, symmetric: bool, with_local: bool = True
    ):
        self.line, self.normalized = line, normalized
        self.symmetric, self.with_local = symmetric, with_local
        self.frames = frames(line.points)
        # Logarithm of what the scaled sums at each point are multiplied with, and of w.
        self.log_scale = -np.log(line.potential) if normalized else line.shift
        log_weights = np.log(line.masses) + line.shift - self.log_scale
        self.log_weights = log_weights - log_weights.max()

    @property
    def size(self) -> int:
        """The number of unknowns."""
        count, n = self.line.points.shape
        return count * (n - 1)

    def fields(self, vectors: np.ndarray) -> np.ndarray:
        """Eigenvectors (size, k) as displacements (k, m, n) of length one in L2(mu)."""
        count, n = self.line.points.shape
        coordinates = vectors.T.reshape(-1, count, n - 1)
        xi = np.einsum("kma,man->kmn", coordinates, self.frames)
        xi = xi * np.exp(-self.log_weights / 2)[:, None]
        lengths = np.sqrt(np.sum(np.abs(xi) ** 2, axis=2) @ self.line.masses)
        flat = xi.reshape(len(xi), -1)
        largest = flat[np.arange(len(xi)), np.abs(flat).argmax(axis=1)]
        # The largest component is made real and positive, so that results are reproducible.
        phase = np.conj(largest) / np.abs(largest)
        return xi * (phase / lengths)[:, None, None]

    @cached_property
    def local_blocks(self) -> np.ndarray:
        """The local term in the frames, shape (m, n-1, n-1): rates of test particles."""
        blocks = np.einsum("man,mnp,mbp->mab", self.frames, self.line.local, self.frames)
        return blocks * np.exp(self.log_scale)[:, None, None]

    def matrix(self) -> np.ndarray:
        """All entries, shape (size, size)."""
        line, E = self.line, self.frames
        count = len(line.points)
        # exp(x_i.Dx_j) over its scales, in the logarithm: |D| may be large.
        half = line.log_potential / 2 if self.normalized else np.zeros(count)
        exponents = line.points @ line.D @ line.points.T - half[:, None] - half[None, :]
        weights = np.exp(exponents) * np.sqrt(np.outer(line.masses, line.masses))
        images = E @ line.V
        toward = np.einsum("ian,jn->iaj", images, line.points)
        slopes = np.einsum("in,jbn->ijb", line.points @ line.D, E)
        blocks = toward[:, :, :, None] * slopes[:, None] + np.einsum("ian,jbn->iajb", images, E)
        blocks *= weights[:, None, :, None]
        if self.with_local:
            number = np.arange(count)
            blocks[number, :, number] += self.local_blocks
        full = blocks.reshape(self.size, self.size)
        return (full + full.T) / 2 if self.symmetric else full

    def linear(self, shift: float = 0.0) -> LinearOperator:
        """The matrix plus ``shift`` times the identity, matrix-free."""
        line, E = self.line, self.frames
        count, n = line.points.shape
        enter, leave = np.exp(-self.log_weights / 2), np.exp(self.log_weights / 2 + self.log_scale)

        def apply(vector):
            vector = np.ravel(vector)
            coordinates = vector.reshape(count, n - 1)
            xi = np.einsum("ma,man->mn", coordinates, E) * enter[:, None]
            change = line.mixed(xi)
            if self.with_local:
                change += line.apply_local(xi)
            return np.einsum("man,mn->ma", E, change * leave[:, None]).ravel() + shift * vector

        return LinearOperator((self.size, self.size), matvec=apply, dtype=float)


def find_spectrum(
    operator: Operator, modes: int, threshold: float, compact: bool, method: str = "auto"
) -> Spectrum:
    """The leading modes of an operator.

    Parameters
    ----------
    operator : Operator
    modes : int
    threshold : float
        Rates within it count as zero.
    compact : bool
        Whether rates accumulate at zero: then unstable modes come first, and the strongest
        decaying ones after them.
    method : {"auto", "dense", "iterative"}

    Returns
    -------
    Spectrum
    """
    if not operator.line.V.any():  # nothing moves, and an iteration would have nothing to do
        count = min(modes, operator.size)
        still = operator.fields(np.eye(operator.size, count))
        return Spectrum(np.zeros(count), still, 0, operator.size, True, True)
    # Iterations need more unknowns than modes.
    small = operator.size <= max(DENSE, modes + 2) if method == "auto" else method == "dense"
    if small or operator.size <= modes + 2:
        return _dense(operator, modes, threshold, compact)
    if not operator.symmetric:
        return _arnoldi(operator, modes, threshold, compact)
    if compact:
        return _lanczos_compact(operator, modes, threshold)
    return _lanczos(operator, modes, threshold)


def splitting_spectrum(operator: Operator, threshold: float) -> Spectrum:
    """Rates at which members of a cluster separate: those of test particles at its place.

    Each field has its direction at one cluster and vanishes elsewhere; lengths are one in L2.
    """
    blocks, line = operator.local_blocks, operator.line
    count, n = line.points.shape
    if operator.symmetric:
        rates, vectors = np.linalg.eigh((blocks + blocks.transpose(0, 2, 1)) / 2)
    else:
        rates, vectors = np.linalg.eig(blocks)
    directions = np.einsum("mab,man->mbn", vectors, operator.frames)
    directions = directions / np.sqrt(line.masses)[:, None, None]
    cluster = np.repeat(np.arange(count), n - 1)
    fields = np.zeros((len(cluster), count, n), dtype=directions.dtype)
    fields[np.arange(len(cluster)), cluster] = directions.reshape(-1, n)
    return _spectrum(rates.ravel(), fields, threshold, complete=True)


def _spectrum(rates, fields, threshold: float, complete: bool, converged=True) -> Spectrum:
    real = np.asarray(rates).real
    neutral = int((np.abs(real) <= threshold).sum()) if complete else None
    return Spectrum(rates, fields, int((real > threshold).sum()), neutral, complete, converged)


def _choose(rates: np.ndarray, modes: int, threshold: float, compact: bool) -> np.ndarray:
    """Which of all modes to keep: the largest, or the unstable and the most negative ones."""
    descending = np.argsort(-rates.real, kind="stable")
    if not compact:
        return descending[:modes]
    unstable = descending[: min(modes, int((rates.real > threshold).sum()))]
    return np.concatenate([unstable, descending[::-1][: modes - len(unstable)]])


def _dense(operator: Operator, modes: int, threshold: float, compact: bool) -> Spectrum:
    matrix = operator.matrix()
    rates, vectors = eigh(matrix) if operator.symmetric else eig(matrix)
    keep = _choose(rates, min(modes, len(rates)), threshold, compact)
    everything = _spectrum(rates, None, threshold, complete=True)
    return Spectrum(
        rates[keep],
        operator.fields(vectors[:, keep]),
        everything.unstable,
        everything.neutral,
        complete=True,
        converged=True,
    )


def _start(operator: Operator) -> np.ndarray:
    return np.random.default_rng(SEED).normal(size=operator.size)


def _iterate(solver, linear, start, modes: int, which: str, precision: float = PRECISION):
    """Eigenvalues and vectors, and whether all converged."""
    try:
        basis = min(max(2 * modes + 1, BASIS), linear.shape[0])
        return *solver(linear, modes, which=which, v0=start, tol=precision, ncv=basis), True
    except ArpackNoConvergence as stopped:
        return stopped.eigenvalues, stopped.eigenvectors, False


def _lanczos(operator: Operator, modes: int, threshold: float) -> Spectrum:
    rates, vectors, converged = _iterate(eigsh, operator.linear(), _start(operator), modes, "LA")
    complete = converged and bool(rates.min(initial=np.inf) <= threshold)
    found = _spectrum(rates, operator.fields(vectors), threshold, False, converged)
    return Spectrum(rates, found.fields, found.unstable, None, complete, converged)


def _lanczos_compact(operator: Operator, modes: int, threshold: float) -> Spectrum:
    """As many modes of largest modulus as it takes to have the wanted unstable ones."""
    start, sought = _start(operator), min(2 * modes, operator.size // 2)
    while True:
        rates, vectors, converged = _iterate(eigsh, operator.linear(), start, sought, "LM")
        growing = rates > threshold
        known = converged and not _grows(operator, rates[growing], vectors[:, growing], threshold)
        if known or not converged or growing.sum() >= modes or 2 * sought >= operator.size:
            break
        sought = 2 * sought
    keep = _choose(rates, modes, threshold, compact=True)
    unstable = int(growing.sum())
    fields = operator.fields(vectors[:, keep])
    return Spectrum(rates[keep], fields, unstable, None, bool(known), converged)


def _grows(operator: Operator, heights, known, threshold: float) -> bool:
    """Whether there is an unstable mode besides the known ones.

    Without those, the largest rate of a compact operator is about zero, where rates accumulate:
    it is computed from a shifted operator, and no better than the answer needs.
    """
    shift = max(float(heights.max(initial=0.0)), 1e3 * threshold)
    shifted = operator.linear(shift)

    def deflated(vector):
        vector = np.ravel(vector)
        return shifted.matvec(vector) - known @ (heights * (known.T @ vector))

    rest = LinearOperator(shifted.shape, matvec=deflated, dtype=float)
    precision = 0.1 * threshold / shift
    top, _, found = _iterate(eigsh, rest, _start(operator), 1, "LA", precision)
    return not found or bool(top[0] - shift > threshold)


def _arnoldi(operator: Operator, modes: int, threshold: float, compact: bool) -> Spectrum:
    which = "LM" if compact else "LR"
    rates, vectors, converged = _iterate(eigs, operator.linear(), _start(operator), modes, which)
    complete = converged and not compact and bool(rates.real.min(initial=np.inf) <= threshold)
    found = _spectrum(rates, operator.fields(vectors), threshold, False, converged)
    return Spectrum(rates, found.fields, found.unstable, None, complete, converged)
