"""Markov kernels on R^d: they act on measures from the right and on functions from the left.

A kernel here sends a point to a finite measure. ``mu K`` and ``K f`` cost no more than the
algebra they stand for: a deterministic kernel moves points, a composition acts in two steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from meanfield.errors import InputError, PointsError
from meanfield.measures import Measure, probability_vector
from meanfield.regularity.potentials import as_matrix, as_points


def as_map(function, name: str = "the map") -> Callable:
    """A map of rows: a callable as it is, a matrix W (p, d) as ``x -> W x``.

    Raises
    ------
    MatrixError
        If it is neither a callable nor a finite matrix.

    Examples
    --------
    >>> as_map([[1.0, 2.0]])(np.array([[3.0, 4.0]])).tolist()
    [[11.0]]
    """
    if callable(function):
        return function
    W = as_matrix(function, name)

    def apply(x):
        x = as_points(x)
        if x.shape[1] != W.shape[1]:
            raise PointsError(f"{name} has shape {W.shape} but the points live in R^{x.shape[1]}")
        return x @ W.T

    return apply


class MarkovKernel:
    """A map of points to probability measures; kernels compose with ``@``, first left.

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Definition 2.
    """

    def on_measure(self, measure: Measure) -> Measure:
        """``mu K = int mu(dx) K(x, .)``."""
        raise NotImplementedError

    def on_function(self, function: Callable) -> Callable:
        """``K f = int K(., dy) f(y)``: a function of (m, d) to (m,) or (m, e), and so is f."""
        raise NotImplementedError

    def at(self, point) -> Measure:
        """The measure ``K(x, .)`` at one point x, shape (d,)."""
        return self.on_measure(Measure(np.asarray(point, dtype=float)[None]))

    def __matmul__(self, other: MarkovKernel) -> MarkovKernel:
        if not isinstance(other, MarkovKernel):
            return NotImplemented
        return Composition(self, other)


@dataclass(frozen=True, eq=False)
class Composition(MarkovKernel):
    """``K_1 K_2 (x, dz) = int K_1(x, dy) K_2(y, dz)``, written ``first @ second``."""

    first: MarkovKernel
    second: MarkovKernel

    def on_measure(self, measure: Measure) -> Measure:
        """``mu K_1 K_2``."""
        return self.second.on_measure(self.first.on_measure(measure))

    def on_function(self, function: Callable) -> Callable:
        """``K_1 (K_2 f)``."""
        return self.first.on_function(self.second.on_function(function))


@dataclass(frozen=True, eq=False)
class Deterministic(MarkovKernel):
    """``K(x, .) = delta_{f(x)}``.

    Parameters
    ----------
    function : callable or array_like, shape (p, d)
        ``f``, from (m, d) to (m, p); a matrix W means ``x -> W x``.

    Examples
    --------
    >>> K = Deterministic([[2.0]]) @ Deterministic(np.exp)
    >>> K.on_measure(Measure([[0.0]])).points.tolist()
    [[1.0]]
    >>> K.on_function(np.log)(np.array([[3.0]])).tolist()
    [[6.0]]
    """

    function: Callable

    def __post_init__(self):
        object.__setattr__(self, "function", as_map(self.function))

    def on_measure(self, measure: Measure) -> Measure:
        """The image of the measure under f."""
        return Measure(self.function(measure.points), measure.masses)

    def on_function(self, function: Callable) -> Callable:
        """``g o f``."""
        return lambda x: function(self.function(x))


@dataclass(frozen=True, eq=False)
class Finite(MarkovKernel):
    """``K(x, .) = sum_j P_j(x) delta_{atoms[j]}``: the atoms are the same for all x.

    Parameters
    ----------
    atoms : array_like, shape (k, e)
    weights : callable
        Points (m, d) to the stochastic matrix P, shape (m, k), dense or sparse.
    """

    atoms: np.ndarray
    weights: Callable

    def on_measure(self, measure: Measure) -> Measure:
        """``mu K``, on the atoms."""
        return Measure(self.atoms, measure.masses @ self.weights(measure.points))

    def on_function(self, function: Callable) -> Callable:
        """``x -> sum_j P_j(x) f(atoms[j])``."""
        return lambda x: self.weights(x) @ function(self.atoms)


@dataclass(frozen=True, eq=False)
class Mixture(MarkovKernel):
    """``K = sum_h shares[h] K_h``.

    Parameters
    ----------
    kernels : sequence of MarkovKernel
    shares : array_like, optional
        Nonnegative, summing to one; equal ones when omitted.

    Examples
    --------
    >>> K = Mixture([Deterministic([[1.0]]), Deterministic([[-1.0]])])
    >>> K.on_measure(Measure([[2.0]])).points.tolist()
    [[2.0], [-2.0]]
    """

    kernels: tuple[MarkovKernel, ...]
    shares: np.ndarray | None = None

    def __post_init__(self):
        kernels = tuple(self.kernels)
        if not kernels or not all(isinstance(kernel, MarkovKernel) for kernel in kernels):
            raise InputError("a mixture needs at least one kernel, and kernels only")
        count = len(kernels)
        shares = np.full(count, 1 / count) if self.shares is None else self.shares
        object.__setattr__(self, "kernels", kernels)
        object.__setattr__(self, "shares", probability_vector(shares, count))

    def on_measure(self, measure: Measure) -> Measure:
        """``sum_h shares[h] mu K_h``."""
        parts = [kernel.on_measure(measure) for kernel in self.kernels]
        masses = [share * part.masses for share, part in zip(self.shares, parts, strict=True)]
        return Measure(np.concatenate([part.points for part in parts]), np.concatenate(masses))

    def on_function(self, function: Callable) -> Callable:
        """``sum_h shares[h] K_h f``."""
        parts = [kernel.on_function(function) for kernel in self.kernels]
        return lambda x: sum(s * part(x) for s, part in zip(self.shares, parts, strict=True))


def tabulated(keys, values) -> Finite:
    """The lookup kernel of a table: a key goes to the uniform mixture of the values of equal keys.

    Parameters
    ----------
    keys : array_like, shape (N, d)
    values : array_like, shape (N, e)

    Returns
    -------
    Finite
        Acts on the keys of the table only; another point is a `PointsError`.

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Definition 5 and Remark 6, corrected: the sum of
    indicators in the remark counts duplicate keys several times.

    Examples
    --------
    >>> L = tabulated([[0.0], [0.0], [1.0]], [[1.0], [3.0], [9.0]])
    >>> L.on_function(lambda v: v)(np.array([[0.0], [1.0]])).tolist()
    [[2.0], [9.0]]
    """
    keys, values = as_points(keys, "keys"), as_points(values, "values")
    if len(keys) != len(values):
        raise PointsError(f"there are {len(keys)} keys but {len(values)} values")
    unique, group = np.unique(keys, axis=0, return_inverse=True)
    group = group.ravel()
    share = 1 / np.bincount(group)[group]
    table = sparse.csr_array((share, (group, np.arange(len(keys)))), (len(unique), len(keys)))

    def weights(x):
        x = as_points(x)
        if x.shape[1] != keys.shape[1]:
            raise PointsError(f"the keys live in R^{keys.shape[1]}, the points in R^{x.shape[1]}")
        _, joint = np.unique(np.concatenate([unique, x]), axis=0, return_inverse=True)
        joint = joint.ravel()
        place = np.full(joint.max() + 1, -1)
        place[joint[: len(unique)]] = np.arange(len(unique))
        row = place[joint[len(unique) :]]
        if (row < 0).any():
            raise PointsError(f"point {np.flatnonzero(row < 0)[0]} is no key of the lookup table")
        return table[row]

    return Finite(values, weights)
