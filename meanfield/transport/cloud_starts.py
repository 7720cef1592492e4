"""Where the search for geodesics between clouds starts: couplings, and paths for them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanfield.measures import Measure
from meanfield.sphere.geometry import (
    distance,
    exp_map,
    log_map,
    normalize,
    tangent_frames,
    tangential,
)
from meanfield.transport.circular import shifted_plan
from meanfield.transport.cloud_action import along_arcs
from meanfield.transport.kernels import Kernel
from meanfield.transport.wasserstein import TransportPlan, distances, simplex_plan, turns

BOWS = (1.5, 0.5, 1.5, 1.0)  # how far the paths of the starts leave the arcs, in radians
SINES = 3  # modes in time of a bowed path
ANTIPODAL = 1e-6  # nearer to pi than this an arc has no direction
SLICES = 3  # of the curve whose potential prices the ways
STOPS = (1 / 6, 1 / 2, 5 / 6)  # on a way, where its price is looked up


@dataclass(frozen=True, eq=False)
class Coupling:
    """Particles that know where they go, and on which arc.

    Attributes
    ----------
    start, end : ndarray, shape (N, n)
    tangents : ndarray, shape (N, n)
        At the start; their length is that of the way, on S^1 maybe more than pi.
    masses : ndarray, shape (N,)
    """

    start: np.ndarray
    end: np.ndarray
    tangents: np.ndarray
    masses: np.ndarray


def coupling_of_plan(a, b, plan: TransportPlan, particles: int, generator) -> Coupling:
    """A plan split into about so many particles, on the shortest arcs.

    Parameters
    ----------
    a, b : Measure
    plan : TransportPlan
    particles : int
    generator : numpy.random.Generator
        Chooses the directions between antipodal points.

    Examples
    --------
    >>> from meanfield.transport.wasserstein import optimal_plan
    >>> a, b = Measure([[1.0, 0.0]]), Measure(np.eye(2))
    >>> coupling_of_plan(a, b, optimal_plan(a, b), 4, np.random.default_rng(0)).masses.round(12)
    array([0.25, 0.25, 0.25, 0.25])
    """
    each, masses = _split(plan.masses, particles)
    start, end = a.points[plan.rows][each], b.points[plan.columns][each]
    tangents = log_map(start, end)
    opposite = np.pi - distance(start, end) < ANTIPODAL
    if opposite.any():
        any_way = tangential(start, generator.normal(size=start.shape))
        tangents[opposite] = np.pi * normalize(any_way[opposite])
    return Coupling(start, end, tangents, masses)


def circular_coupling(a: Measure, b: Measure, shift: float, particles: int) -> Coupling:
    """On S^1: particles that keep their order, with their levels shifted.

    Parameters
    ----------
    a, b : Measure
    shift : float
        How much more mass goes the other way around than without it.
    particles : int

    Examples
    --------
    >>> found = circular_coupling(Measure([[1.0, 0.0]]), Measure([[0.0, 1.0]]), 0.25, 4)
    >>> (found.tangents[:, 1] / np.pi).round(12).tolist()
    [-1.5, 0.5, 0.5, 0.5]
    """
    here, there = np.flatnonzero(a.masses), np.flatnonzero(b.masses)
    x, y = a.points[here], b.points[there]
    rows, columns, masses, travel = shifted_plan(
        turns(x), a.masses[here], turns(y), b.masses[there], shift
    )
    each, masses = _split(masses, particles)
    start, end = x[rows][each], y[columns][each]
    tangents = tangent_frames(start)[:, 0] * (2 * np.pi * travel[each])[:, None]
    return Coupling(start, end, tangents, masses)


def _split(masses: np.ndarray, particles: int) -> tuple[np.ndarray, np.ndarray]:
    """Which mass each particle belongs to, and how much it carries."""
    count = np.maximum(1, np.rint(masses * particles)).astype(int)
    each = np.repeat(np.arange(len(count)), count)
    shares = (masses / count)[each]
    return each, shares / shares.sum()


def arcs(coupling: Coupling, steps: int, generator, number: int) -> np.ndarray:
    """Paths along arcs, bowed at random for every number but 0: shape (steps + 1, N, n).

    Parameters
    ----------
    coupling : Coupling
    steps : int
    generator : numpy.random.Generator
    number : int
        Chooses how far the paths are bowed.

    Examples
    --------
    >>> quarter = circular_coupling(Measure([[1.0, 0.0]]), Measure([[0.0, 1.0]]), 0.0, 1)
    >>> arcs(quarter, 2, np.random.default_rng(0), 0)[1].round(6).tolist()
    [[0.707107, 0.707107]]
    """
    start = coupling.start
    times = np.linspace(0.0, 1.0, steps + 1)[:, None, None]
    paths = exp_map(start, times * coupling.tangents)
    paths[-1] = coupling.end
    if number > 0:
        amplitude = BOWS[(number - 1) % len(BOWS)]
        for sine in range(1, SINES + 1):
            noise = generator.normal(size=start.shape) * amplitude / sine**1.5
            paths[1:-1] += np.sin(np.pi * sine * times[1:-1]) * tangential(paths[1:-1], noise)
        paths[1:-1] = normalize(paths[1:-1])
    return paths


def cheaper_plan(a: Measure, b: Measure, kernel: Kernel, paths, masses) -> TransportPlan:
    """The best coupling when moving costs what it costs in the presence of a given curve.

    Parameters
    ----------
    a, b : Measure
    kernel : Kernel
    paths : ndarray, shape (T + 1, N, n)
        The curve: its potential, averaged over time, prices the ways.
    masses : ndarray, shape (N,)

    Returns
    -------
    TransportPlan
        For the squares of the lengths of the arcs in the metric ``Z |dx|^2``.

    Examples
    --------
    >>> from meanfield.transport.kernels import as_kernel
    >>> a = Measure(np.eye(2))
    >>> paths = np.tile(np.eye(2), (2, 1, 1))
    >>> cheaper_plan(a, a, as_kernel(2.0, 2), paths, a.masses).cost
    0.0
    """
    here, there = np.flatnonzero(a.masses), np.flatnonzero(b.masses)
    x, y = a.points[here], b.points[there]
    times = np.linspace(0, len(paths) - 1, SLICES + 2).round().astype(int)[1:-1]
    sources = paths[times].reshape(-1, paths.shape[2])
    loads = np.tile(masses / SLICES, SLICES)
    price = np.zeros((len(x), len(y)))
    starts = np.repeat(x, len(y), axis=0)
    ends = np.tile(y, (len(x), 1))
    for part in STOPS:
        places, _ = along_arcs(starts, ends, part)
        potential = kernel.factor * kernel.interaction.on(sources, places).potential(loads)
        price += np.sqrt(potential).reshape(price.shape) / len(STOPS)
    costs = (price * distances(x, y)) ** 2
    rows, columns, shares = simplex_plan(costs, a.masses[here], b.masses[there])
    cost = float(shares @ costs[rows, columns])
    return TransportPlan(here[rows], there[columns], shares, cost)
