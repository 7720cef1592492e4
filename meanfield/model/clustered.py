"""Integrals against exp(x.Dy) for large D: clusters with positive leading factors.

For a target x = c_T + dx and a source y = c_S + dy

    exp(x.Dy) = exp(c_T.D c_S) exp(dx.D c_S) exp(c_T.D dy) exp(dx.D dy),

where the first three factors are positive and each depends on one target and one cluster, or
one source and one cluster, and the last has an exponent of at most ``rho = r_T ||D|| r_S``,
about one half: its Taylor series ``sum_a dx^a (D dy)^a / a!`` is short. No large numbers
cancel, so the *relative* accuracy of every potential is that of the series. Sums over the
points of clusters are matrix products.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import factorial

import numpy as np
from scipy.spatial import cKDTree
from threadpoolctl import ThreadpoolController

from meanfield.sphere.geometry import directions

BLAS = ThreadpoolController()
THREADS = min(8, os.cpu_count() or 1)
RHO = 0.6  # wanted bound of the exponent of the Taylor series
SERIES_TOLERANCE = 2e-7  # relative, of exp(dx.D dy): a bound that sums stay far below
NEGLIGIBLE = 1e-11  # clusters that contribute less than this part of a potential are skipped
TARGET_CHUNK = 200  # clusters of targets for which moments are held at a time
CHUNK_BYTES = 60_000_000  # of moments, in each thread
POINTS_PER_CLUSTER = 16  # with fewer, sums over all pairs are faster


@dataclass(frozen=True, eq=False)
class Clusters:
    """Points sorted into clusters.

    Attributes
    ----------
    order : ndarray, shape (m,)
        Sorts points by cluster.
    bounds : ndarray, shape (clusters + 1,)
        Cluster k holds the sorted points ``bounds[k]:bounds[k + 1]``.
    centres : ndarray, shape (clusters, n)
    offsets : ndarray, shape (m, n)
        Sorted points relative to their centre.
    radii : ndarray, shape (clusters,)
    """

    order: np.ndarray
    bounds: np.ndarray
    centres: np.ndarray
    offsets: np.ndarray
    radii: np.ndarray

    def __len__(self) -> int:
        return len(self.centres)

    def points_of(self, first: int, last: int) -> slice:
        """The sorted points of clusters ``first`` to ``last - 1``."""
        return slice(self.bounds[first], self.bounds[last])


def worthwhile(count: int, targets: int, sources: int) -> bool:
    """Whether clusters would hold enough points to pay for their overhead."""
    return min(targets, sources) >= POINTS_PER_CLUSTER * count


def cluster_count(norm: float, n: int) -> int:
    """How many clusters of radius sqrt(RHO / ||D||) cover the sphere.

    Examples
    --------
    >>> cluster_count(200.0, 3) > cluster_count(20.0, 3) > 100
    True
    """
    radius = np.sqrt(RHO / max(norm, RHO))
    return int(np.ceil(np.pi / radius if n == 2 else 5.3 / radius**2))


def make_clusters(points: np.ndarray, count: int) -> Clusters:
    """Sort points by the nearest of ``count`` evenly spread seeds; empty clusters are dropped.

    Parameters
    ----------
    points : ndarray, shape (m, n), n = 2 or 3
    count : int

    Returns
    -------
    Clusters

    Examples
    --------
    >>> clusters = make_clusters(directions(np.linspace(0, 6, 50)), 8)
    >>> len(clusters), int(clusters.bounds[-1])
    (8, 50)
    """
    nearest = cKDTree(_spread(count, points.shape[1])).query(points)[1]
    order = np.argsort(nearest, kind="stable")
    _, sizes = np.unique(nearest, return_counts=True)
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    centres = np.add.reduceat(points[order], bounds[:-1], axis=0) / sizes[:, None]
    offsets = points[order] - np.repeat(centres, sizes, axis=0)
    radii = np.sqrt(np.maximum.reduceat(np.sum(offsets**2, axis=1), bounds[:-1]))
    return Clusters(order, bounds, centres, offsets, radii)


def _spread(count: int, n: int) -> np.ndarray:
    """Evenly spread points: equispaced on S^1, a Fibonacci lattice on S^2."""
    number = np.arange(count) + 0.5
    if n == 2:
        return directions(2 * np.pi * number / count)
    height = 1 - 2 * number / count
    turn = directions(np.pi * (1 + np.sqrt(5)) * number)
    return np.column_stack([np.sqrt(1 - height**2)[:, None] * turn, height])


@dataclass(frozen=True, eq=False)
class Monomials:
    """Monomials ``v^a / sqrt(a!)`` up to a total degree, by one product each."""

    parents: np.ndarray
    axes: np.ndarray
    factors: np.ndarray

    @classmethod
    def up_to(cls, n: int, degree: int) -> Monomials:
        """All monomials in n variables of total degree at most ``degree``.

        A monomial is the sorted tuple of its factors; it is its parent, the tuple without the
        last factor, times that factor.
        """
        monomials = [
            factors
            for size in range(degree + 1)
            for factors in combinations_with_replacement(range(n), size)
        ]
        number = {factors: k for k, factors in enumerate(monomials)}
        return cls(
            parents=np.array([number[factors[:-1]] for factors in monomials]),
            axes=np.array([factors[-1] if factors else 0 for factors in monomials]),
            factors=np.array([factors.count(factors[-1]) ** -0.5 if factors else 1.0
                              for factors in monomials]),
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.parents)

    def __call__(self, vectors: np.ndarray) -> np.ndarray:
        """Values at vectors: shape (m, n) to (monomials, m)."""
        columns = np.ascontiguousarray(vectors.T)
        values = np.empty((len(self), len(vectors)))
        values[0] = 1.0
        for k in range(1, len(self)):
            np.multiply(values[self.parents[k]], columns[self.axes[k]], out=values[k])
            values[k] *= self.factors[k]
        return values


def series_degree(rho: float, tolerance: float) -> int:
    """Degree of the Taylor polynomial of exp on [-rho, rho] with this relative error.

    Examples
    --------
    >>> series_degree(0.5, 1e-8)
    9
    """
    degree = 1
    while np.exp(2 * rho) * rho ** (degree + 1) / factorial(degree + 1) > tolerance:
        degree += 1
    return degree


class ClusteredSum:
    """Integrals against exp(x.Dy) with small relative error everywhere, on S^1 and S^2.

    Parameters
    ----------
    targets : ndarray, shape (m, n), n = 2 or 3
    sources : ndarray, shape (k, n)
    D : ndarray, shape (n, n)

    Notes
    -----
    Costs ``O((m + k) ||D||^{(n - 1)/2})``; clusters whose contribution to all potentials of a
    target cluster is negligible are skipped, which leaves few when ``||D||`` is large.
    """

    name = "clustered"

    def __init__(self, targets: np.ndarray, sources: np.ndarray, D: np.ndarray):
        self.D = D
        norm = np.linalg.norm(D, 2)
        count = cluster_count(norm, len(D))
        self.targets = make_clusters(targets, count)
        self.sources = self.targets if targets is sources else make_clusters(sources, count)
        self.images = self.sources.offsets @ D.T
        rho = norm * self.targets.radii.max() * self.sources.radii.max()
        degree = series_degree(rho, SERIES_TOLERANCE)
        self.monomials = Monomials.up_to(len(D), degree)

    def sums(self, masses: np.ndarray, fields: np.ndarray | None = None):
        """Integrals in the form of `DirectSum.sums`."""
        sorted_masses = masses[self.sources.order]
        log_factor, kept, shift = self._pairs(sorted_masses)
        columns = [sorted_masses]
        if fields is not None:
            columns += list((sorted_masses[:, None] * fields[self.sources.order]).T)
        result = np.empty((len(self.targets.order), len(columns)))
        for number, column in enumerate(columns):
            result[self.targets.order, number] = self._sum(column, log_factor, kept)
        sizes = np.diff(self.targets.bounds)
        scale = np.empty(len(result))
        scale[self.targets.order] = np.repeat(shift, sizes)
        return scale, result

    def _pairs(self, masses: np.ndarray):
        """Logarithms of the factors exp(c_T.D c_S), and which pairs are not negligible."""
        T, S, D = self.targets, self.sources, self.D
        totals = np.add.reduceat(masses, S.bounds[:-1])
        with np.errstate(divide="ignore"):
            log_totals = np.log(totals)
        forward = T.centres @ D
        exponents = forward @ S.centres.T
        level = exponents + log_totals
        best = level.argmax(axis=1)
        shift = level.max(axis=1)
        # How much the ratio of two clusters' contributions can change within T and S: dx acts
        # on the difference of the centres, dy is nearly tangential at its centre.
        images = S.centres @ D.T
        spread = T.radii[:, None] * _distances(images, images[best])
        lengths = np.sum(S.centres**2, axis=1)
        normal = exponents**2 / lengths
        tangential = np.sqrt(np.maximum(np.sum(forward**2, axis=1)[:, None] - normal, 0.0))
        norms = np.linalg.norm(forward, axis=1)[:, None]
        turn = S.radii * (tangential + norms * S.radii)
        rows = np.arange(len(T))
        slack = spread + turn + turn[rows, best][:, None] + 4 * RHO
        kept = level - shift[:, None] + slack > np.log(NEGLIGIBLE / len(S))
        return exponents - shift[:, None], kept, shift

    def _sum(self, weights: np.ndarray, log_factor: np.ndarray, kept: np.ndarray) -> np.ndarray:
        """One column of the sums, for sorted sources and targets."""
        T, S = self.targets, self.sources
        step = max(1, CHUNK_BYTES // (8 * TARGET_CHUNK * len(self.monomials)))

        def chunk(first: int) -> np.ndarray:
            last = min(first + TARGET_CHUNK, len(T))
            inside = T.points_of(first, last)
            local = np.zeros((inside.stop - inside.start, len(self.monomials)))
            for start in range(0, len(S), step):
                block = kept[first:last, start : start + step]
                if block.any():
                    moments = self._moments(weights, log_factor, block, first, start)
                    self._spread(local, moments, block, first, start)
            return np.einsum("ia,ai->i", local, self.monomials(T.offsets[inside]))

        # One thread a chunk: BLAS threads would spend their time waiting for each other in
        # products as small as these.
        with BLAS.limit(limits=1), ThreadPoolExecutor(THREADS) as pool:
            return np.concatenate(list(pool.map(chunk, range(0, len(T), TARGET_CHUNK))))

    def _moments(self, weights, log_factor, block, first, start) -> np.ndarray:
        """Moments of source clusters as the target clusters see them, shape (S, T, a)."""
        T, S = self.targets, self.sources
        moments = np.empty((block.shape[1], block.shape[0], len(self.monomials)))
        inside = S.points_of(start, start + block.shape[1])
        images = self.images[inside]
        values = self.monomials(images) * weights[inside]
        edges = S.bounds[start : start + block.shape[1] + 1] - inside.start
        for number in np.flatnonzero(block.any(axis=0)):
            rows = np.flatnonzero(block[:, number])
            points = slice(edges[number], edges[number + 1])
            exponents = T.centres[first + rows] @ images[points].T
            exponents += log_factor[first + rows, start + number][:, None]
            np.exp(exponents, out=exponents)
            moments[number, rows] = exponents @ values[:, points].T
        return moments

    def _spread(self, local, moments, block, first, start) -> None:
        """Add what the moments contribute to the local expansions of the targets."""
        T = self.targets
        images = self.sources.centres[start : start + block.shape[1]] @ self.D.T
        origin = T.bounds[first]
        for number in np.flatnonzero(block.any(axis=1)):
            columns = np.flatnonzero(block[number])
            points = T.points_of(first + number, first + number + 1)
            factors = np.exp(T.offsets[points] @ images[columns].T)
            local[points.start - origin : points.stop - origin] += (
                factors @ moments[columns, number]
            )


def _distances(points: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Distances of all pairs: shapes (s, n) and (t, n) to (t, s)."""
    squares = np.sum(others**2, axis=1)[:, None] + np.sum(points**2, axis=1)
    return np.sqrt(np.maximum(squares - 2 * others @ points.T, 0.0))
