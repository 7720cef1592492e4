"""Clusters of particles, counted by angle: antipodal clusters are two."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from meanfield.errors import InputError, PointsError
from meanfield.sphere.geometry import angles

THIN = 2_000  # beyond so many particles of a start close ones are merged before they are linked
CENTRELESS = 1e-8  # a cluster whose mean is shorter than this has no direction


@dataclass(frozen=True, eq=False)
class Clusters:
    """Clusters of one start, or of every start of an ensemble; the heaviest first.

    Attributes
    ----------
    count : int or ndarray, shape (starts,)
    labels : ndarray of int, shape (N,) or (starts, N)
        Which cluster a particle belongs to.
    masses : ndarray, shape (k,) or (starts, k)
        Weights of the clusters; 0 beyond a start's count.
    centres : ndarray, shape (k, n) or (starts, k, n)
        Directions of the clusters' means; NaN beyond a start's count, and where the mean is 0.
    """

    count: np.ndarray
    labels: np.ndarray
    masses: np.ndarray
    centres: np.ndarray


def find_clusters(points, weights=None, angle: float = 0.05) -> Clusters:
    """Group particles: two that are within ``angle`` of each other are in one cluster.

    Parameters
    ----------
    points : array_like, shape (N, n) or (starts, N, n)
        Unit vectors.
    weights : array_like, shape (N,), optional
        Equal ones when omitted.
    angle : float, in (0, pi)
        In radians. It must be larger than the clusters' gaps and smaller than their distances.

    Returns
    -------
    Clusters

    Raises
    ------
    InputError
        If the angle is out of range (`PointsError` for the shape of the points).

    Notes
    -----
    Single linkage: sorted angles on S^1, a k-d tree otherwise. A start with more than 2,000
    particles off S^1 is first thinned to one particle in cells of an eighth of the angle.

    Examples
    --------
    >>> clusters = find_clusters([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [1.0, 1e-3]])
    >>> clusters.count, clusters.masses.tolist(), clusters.labels.tolist()
    (3, [0.5, 0.25, 0.25], [0, 1, 2, 0])
    """
    points = np.asarray(points, dtype=float)
    if points.ndim not in (2, 3) or points.size == 0:
        raise PointsError(f"points must have shape (N, n) or (starts, N, n), got {points.shape}")
    if not 0 < angle < np.pi:
        raise InputError(f"angle must be in (0, pi) radians, got {angle:g}")
    batch = points if points.ndim == 3 else points[None]
    count = batch.shape[1]
    weights = np.full(count, 1 / count) if weights is None else np.asarray(weights, dtype=float)
    if batch.shape[2] == 2:
        labels = _circle_labels(batch, angle)
    else:
        labels = np.stack([_tree_labels(start, angle) for start in batch])
    clusters = _summary(batch, weights, labels)
    if points.ndim == 3:
        return clusters
    return Clusters(
        int(clusters.count[0]), clusters.labels[0], clusters.masses[0], clusters.centres[0]
    )


def _circle_labels(points: np.ndarray, angle: float) -> np.ndarray:
    """Labels on S^1 from the gaps between sorted angles, shape (starts, N)."""
    starts, count, _ = points.shape
    theta = angles(points.reshape(-1, 2)).reshape(starts, count)
    order = np.argsort(theta, axis=1)
    theta = np.take_along_axis(theta, order, axis=1)
    gaps = np.diff(theta, axis=1, append=theta[:, :1] + 2 * np.pi)
    breaks = gaps > angle
    before = np.cumsum(breaks, axis=1) - breaks
    # What follows the last break belongs to the first cluster again.
    before %= np.maximum(breaks.sum(axis=1, keepdims=True), 1)
    labels = np.empty_like(before)
    np.put_along_axis(labels, order, before, axis=1)
    return labels


def _tree_labels(points: np.ndarray, angle: float) -> np.ndarray:
    """Labels of one start from its pairs within the angle, shape (N,)."""
    chord = 2 * np.sin(angle / 2)
    inverse = np.arange(len(points))
    if len(points) > THIN:
        cells = np.floor(points * (8 * np.sqrt(points.shape[1]) / chord)).astype(np.int64)
        _, first, inverse = np.unique(cells, axis=0, return_index=True, return_inverse=True)
        points = points[first]
    pairs = cKDTree(points).query_pairs(chord, output_type="ndarray")
    size = len(points)
    links = coo_array((np.ones(len(pairs), dtype=bool), pairs.T), shape=(size, size))
    return connected_components(links, directed=False)[1][inverse]


def _summary(points: np.ndarray, weights: np.ndarray, labels: np.ndarray) -> Clusters:
    starts, _, n = points.shape
    count = labels.max(axis=1) + 1
    most = int(count.max())
    masses = _sums(labels, np.broadcast_to(weights, labels.shape), most)
    # Clusters without mass still come before the places that a start does not use.
    rank = np.where(np.arange(most) < count[:, None], masses, -1.0)
    order = np.argsort(-rank, axis=1, kind="stable")
    place = np.argsort(order, axis=1)
    labels = np.take_along_axis(place, labels, axis=1)
    masses = np.take_along_axis(masses, order, axis=1)
    sums = np.stack([_sums(labels, points[..., i], most) for i in range(n)], axis=-1)
    lengths = np.linalg.norm(sums, axis=2, keepdims=True)
    sizes = _sums(labels, np.ones(labels.shape), most)[..., None]
    centres = np.full((starts, most, n), np.nan)
    np.divide(sums, lengths, out=centres, where=lengths > CENTRELESS * sizes)
    return Clusters(count, labels, masses, centres)


def _sums(labels: np.ndarray, values: np.ndarray, most: int) -> np.ndarray:
    """Sums of values over the clusters of every start, shape (starts, most)."""
    starts = len(labels)
    flat = (labels + most * np.arange(starts)[:, None]).ravel()
    return np.bincount(flat, values.ravel(), minlength=most * starts).reshape(starts, most)
