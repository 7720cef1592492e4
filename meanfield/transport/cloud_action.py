"""The action of moving particles for a nonlocal mobility, and its gradient."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.fft import dst

from meanfield.sphere.geometry import exp_map, log_map, normalize, tangential
from meanfield.transport.kernels import Kernel
from meanfield.transport.wasserstein import distances

CHUNK = 2**18  # kernel values at once: they stay in the cache
GAUSS_NODES, GAUSS_WEIGHTS = np.polynomial.legendre.leggauss(3)


@dataclass(frozen=True, eq=False)
class CloudAction:
    """Action ``sum_k (1/h) sum_i a_i Z_k(y_i) theta_i^2`` of particles on arcs.

    In the k-th of T intervals of length h = 1/T particle i runs through the arc of angle theta_i
    between its places, with middle y_i; Z_k is the potential of all middles. The error against
    the action of the arcs is O(h^2).

    Attributes
    ----------
    kernel : Kernel
    masses : ndarray, shape (N,)
    """

    kernel: Kernel
    masses: np.ndarray

    def value_and_gradient(self, paths: np.ndarray) -> tuple[float, np.ndarray]:
        """The action, and its tangential gradient: shape (T + 1, N, n) to float, (T - 1, N, n).

        Examples
        --------
        >>> from meanfield.transport.kernels import as_kernel
        >>> action = CloudAction(as_kernel(1.0, 2), np.ones(1))
        >>> path = np.array([[[1.0, 0.0]], [[0.0, 1.0]]])
        >>> bool(np.isclose(action.value_and_gradient(path)[0], np.pi**2 / 4))
        True
        """
        h = 1.0 / (len(paths) - 1)
        start, end = paths[:-1], paths[1:]
        total = start + end
        length = np.linalg.norm(total, axis=-1, keepdims=True)
        middles = total / length
        forward, backward = log_map(start, end), log_map(end, start)
        squares = np.sum(forward**2, axis=-1)
        potential, slope = self._potential(middles, self.masses * squares)
        weighted = self.masses * potential
        value = float(np.sum(weighted * squares)) / h
        through_middle = tangential(middles, slope) / length
        left = through_middle - 2 * weighted[..., None] * forward
        right = through_middle - 2 * weighted[..., None] * backward
        gradient = (left[1:] + right[:-1]) / h
        return value, tangential(paths[1:-1], gradient)

    def speeds(self, paths: np.ndarray) -> np.ndarray:
        """Mean speed ``(sum_i a_i Z(x_i) |v_i|^2)^(1/2)`` of the arcs in each interval, (T,).

        By Gauss quadrature with three nodes, so that their mean is the length of the curve up to
        O(h^6).
        """
        speed = np.zeros(len(paths) - 1)
        for node, weight in zip(GAUSS_NODES, GAUSS_WEIGHTS, strict=True):
            points, velocities = along_arcs(paths[:-1], paths[1:], (1 + node) / 2)
            potential, _ = self._potential(points)
            power = np.sum(self.masses * potential * np.sum(velocities**2, axis=-1), axis=1)
            speed += weight / 2 * np.sqrt(power) * len(speed)
        return speed

    def _potential(self, points: np.ndarray, loads=None) -> tuple[np.ndarray, np.ndarray | None]:
        """Z at the points, (T, N); for loads s also the gradient of ``sum_i s_i Z_i``."""
        D, factor, a = self.kernel.interaction.D, self.kernel.factor, self.masses
        if self.kernel.constant:
            return np.full(points.shape[:2], factor), np.zeros_like(points)
        count = points.shape[1]
        size = max(1, CHUNK // count**2)
        potential = np.empty(points.shape[:2])
        slope = None if loads is None else np.empty_like(points)
        for first in range(0, len(points), size):
            part = slice(first, first + size)
            x = points[part]
            right = x @ D.T  # rows D x_j
            kernel = factor * np.exp(x @ right.swapaxes(1, 2))
            potential[part] = kernel @ a
            if loads is None:
                continue
            s = loads[part][..., None]
            slope[part] = s * (kernel @ (a[:, None] * right)) + a[:, None] * (
                kernel.swapaxes(1, 2) @ (s * (x @ D))
            )
        return potential, slope


def along_arcs(start, end, part: float) -> tuple[np.ndarray, np.ndarray]:
    """Places and velocities of points that run through arcs in unit time.

    Parameters
    ----------
    start, end : ndarray, shape (..., n)
    part : float, in [0, 1]
        The time.

    Examples
    --------
    >>> place, velocity = along_arcs(np.array([1.0, 0.0]), np.array([0.0, 1.0]), 1.0)
    >>> (velocity / np.pi).round(12).tolist()
    [-0.5, 0.0]
    """
    tangents = log_map(start, end)
    angle = np.linalg.norm(tangents, axis=-1, keepdims=True)
    velocities = np.cos(part * angle) * tangents - angle * np.sin(part * angle) * start
    return normalize(exp_map(start, part * tangents)), velocities


class PathCoordinates:
    """Free coordinates of paths near given ones, in which the action is well conditioned.

    The inner points of the paths are ``normalize(base + shift)``. A coordinate is an amplitude
    of a sine in time, scaled so that the action of a small shift is about its square.
    """

    def __init__(self, base: np.ndarray, masses: np.ndarray, potential: float):
        self.base = base
        steps = len(base) - 1
        frequency = np.pi * np.arange(1, steps) / (2 * steps)
        energy = steps * 4 * np.sin(frequency) ** 2
        self._scale = 1 / np.sqrt(energy[:, None, None] * masses[:, None] * potential)

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return self.base[1:-1].size

    def paths(self, coordinates: np.ndarray) -> np.ndarray:
        """Paths of flat coordinates, shape (size,) to (T + 1, N, n)."""
        return self._moved(coordinates)[0]

    def _moved(self, coordinates) -> tuple[np.ndarray, np.ndarray]:
        inner = coordinates.reshape(self.base[1:-1].shape)
        shift = dst(self._scale * inner, type=1, axis=0, norm="ortho")
        raw = self.base[1:-1] + shift
        length = np.linalg.norm(raw, axis=-1, keepdims=True)
        return np.concatenate([self.base[:1], raw / length, self.base[-1:]]), length

    def value_and_gradient(self, coordinates, action: CloudAction) -> tuple[float, np.ndarray]:
        """The action and its gradient over the coordinates."""
        paths, length = self._moved(coordinates)
        value, gradient = action.value_and_gradient(paths)
        gradient = self._scale * dst(gradient / length, type=1, axis=0, norm="ortho")
        return value, gradient.ravel()


def swap_costs(action: CloudAction, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Action over h of an interval for every pairing of its first with its last places.

    Parameters
    ----------
    action : CloudAction
    start, end : ndarray, shape (N, n)

    Returns
    -------
    ndarray, shape (N, N)
        ``(Z_start(x_i) + Z_end(y_j)) / 2 theta(x_i, y_j)^2``.
    """
    potential, _ = action._potential(np.stack([start, end]))
    return (potential[0][:, None] + potential[1]) / 2 * distances(start, end) ** 2
