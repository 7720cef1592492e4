"""What a run did beside what theory says: the tables of `meanfield theory --run`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from meanfield.dynamics.particle_clusters import find_clusters
from meanfield.equilibria.nearest_member import (
    distance_to_clusters,
    distance_to_pairs,
    distance_to_subspace,
)
from meanfield.equilibria.predictions import Prediction
from meanfield.equilibria.stability import stability
from meanfield.equilibria.variations import stationarity_residual
from meanfield.measures import Measure
from meanfield.results.end_state import EndState
from meanfield.results.particle_dataset import VERBS
from meanfield.sphere.icosphere import icosphere
from meanfield.sphere.meshes import circle
from meanfield.sphere.spaces import Space, product_sphere
from meanfield.transport.wasserstein import wasserstein

BINNED = 2000  # points on S^2: beyond, optimal transport is between cells of a coarse mesh
COARSE, FINE = 3, 4  # levels: of those cells, 642, and of nodes that stand for a density, 2,562
ARCS = 4096
TIE = 1e-6  # in radians: distances that differ by less are equal
MANY_CLUSTERS = 100  # more of them are no clusters
FAR = 0.1  # in radians: a start farther from every known state is near none


@dataclass(frozen=True, eq=False)
class Candidate:
    """A known state, or family of them, and how to measure the distance to it."""

    name: str
    extremal: bool
    stable: bool | None
    log_energy: float | None
    distance: Callable[[Measure], float]


def comparison(prediction: Prediction, end: EndState, name: str) -> str:
    """Distances, energies and residuals of an end state, in a table.

    Examples
    --------
    >>> from meanfield.equilibria.predictions import predict
    >>> from meanfield.model.attention import SelfAttention
    >>> end = EndState("evolve", SelfAttention([1.0, 2.0]), (Measure([[0.0, 1.0]]),), 9.0)
    >>> print(comparison(predict([1.0, 2.0]), end, "run.nc").splitlines()[1])
      E = 7.38905609893, predicted maximum 7.38905609893: difference 0.0e+00
    """
    candidates = known_states(prediction)
    distances = np.array([[c.distance(mu) for c in candidates] for mu in end.measures])
    when = "" if end.time is None else f", t = {end.time:g}"
    many = "" if len(end.measures) == 1 else f", {len(end.measures)} starts"
    lines = [f"{name}: {end.verb}{when}, {len(end.measures[0])} points{many}"]
    lines += _energies(prediction, end) + _residual(end) + _index(end)
    if not candidates:
        return "\n".join([*lines, "  no state to compare with is known for this D"])
    lines += _table(candidates, distances)
    return "\n".join(lines + _remarks(candidates, distances, end))


def known_states(prediction: Prediction) -> list[Candidate]:
    """The extremal families of the run's sign, and the other stationary states."""
    found = []
    for family in prediction.targets:
        if family.kind == "density" and family.density is None:
            continue  # it is not computed
        measure = _family_distance(family.kind, family.basis, family.density, 0.5)
        name = _name(family.kind, family.basis, "(delta_z + delta_-z)/2")
        found.append(Candidate(name, True, True, family.log_energy, measure))
    # A pair of any masses is compared with, too, where the one with equal masses is extremal
    extremal = {(family.kind, family.log_energy) for family in prediction.targets}
    for state in prediction.states:
        if state.kind != "pair" and (state.kind, state.log_energy) in extremal:
            continue
        if state.kind == "four points":
            measure = _distance_to(state.measure)
        else:
            measure = _family_distance(state.kind, state.basis, state.density, None)
        name = _name(state.kind, state.basis, "t delta_z + (1-t) delta_-z")
        energy = None if state.kind == "pair" else state.log_energy  # it depends on t
        found.append(Candidate(name, False, state.stable, energy, measure))
    return found


def _name(kind: str, basis, pair: str) -> str:
    if kind in ("dirac", "pair"):
        return f"{'delta_z' if kind == 'dirac' else pair}, {_axis(basis)}"
    return {
        "null space": "mu(N) = 1, N the null space",
        "density": "the exact minimiser",
        "uniform": "the uniform density",
        "all": "every measure",
    }.get(kind, kind)


def _axis(basis) -> str:
    if basis.shape[1] > 1:
        return f"z in a space of dimension {basis.shape[1]}"
    return "z = (" + ", ".join(f"{v:.4g}" for v in basis[:, 0].round(12) + 0.0) + ")"


def _family_distance(kind, basis, density, t) -> Callable[[Measure], float]:
    if kind == "dirac":
        return lambda mu: distance_to_clusters(mu, basis)[0]
    if kind == "pair":
        return lambda mu: distance_to_pairs(mu, basis, t)[0]
    if kind == "null space":
        return lambda mu: distance_to_subspace(mu, basis)
    if kind == "all":
        return lambda mu: 0.0
    return lambda mu: density_distance(mu, density)


def _distance_to(state: Measure) -> Callable[[Measure], float]:
    return lambda mu: wasserstein(mu, state)


def density_distance(measure: Measure, density) -> float:
    """W2 from a measure to a density; on S^2 with many points, between cells of a coarse mesh.

    The density becomes masses where the measure has a space, and otherwise on a fine mesh.

    Examples
    --------
    >>> from meanfield.model.densities import uniform
    >>> mesh = circle(64)
    >>> density_distance(Measure(mesh.points, mesh.weights, mesh), uniform())
    0.0
    """
    space = measure.space
    if not isinstance(space, Space):
        n = measure.dimension
        space = circle(ARCS) if n == 2 else icosphere(FINE) if n == 3 else product_sphere(n, 6)
    masses = space.weights * np.maximum(density(space.points), 0.0)
    other = Measure(space.points, masses / masses.sum(), space)
    if measure.dimension > 2 and max(len(measure), len(other)) > BINNED:
        measure, other = _binned(measure), _binned(other)
    return wasserstein(measure, other)


def _binned(measure: Measure) -> Measure:
    """Masses summed over the cells of a coarse mesh."""
    if measure.dimension != 3 or len(measure) <= BINNED:
        return measure
    centres = icosphere(COARSE).points
    cell = cKDTree(centres).query(measure.points)[1]
    return Measure(centres, np.bincount(cell, measure.masses, minlength=len(centres)))


def _energies(prediction: Prediction, end: EndState) -> list[str]:
    reached = np.array(
        [end.model.interaction.on(mu.points).log_energy(mu.masses) for mu in end.measures]
    )
    predicted, wanted = prediction.log_energy, "maximum" if prediction.sign == 1 else "minimum"
    large = max(reached.max(), predicted or 0.0) > 9
    shown, name = (reached, "log E") if large else (np.exp(reached), "E")
    if len(shown) == 1:
        text = f"  {name} = {shown[0]:.12g}"
    else:
        text = f"  {name} = {shown.min():.10g} ... {shown.max():.10g}, mean {shown.mean():.10g}"
    if predicted is None:
        return [f"{text}; the {wanted} is not known"]
    value = predicted if large else np.exp(predicted)
    best = shown.max() if prediction.sign == 1 else shown.min()
    closest = "" if len(shown) == 1 else " of the closest"
    return [f"{text}, predicted {wanted} {value:.12g}: difference{closest} {best - value:.1e}"]


def _residual(end: EndState) -> list[str]:
    values = np.array([stationarity_residual(mu, end.model) for mu in end.measures])
    word = "speed over its bound (0 where stationary)"
    if len(values) == 1:
        return [f"  {word}: {values[0]:.2e}"]
    return [f"  {word}: {values.min():.1e} ... {values.max():.1e}, median {np.median(values):.1e}"]


def _index(end: EndState) -> list[str]:
    """Unstable directions of the clusters of a single particle run."""
    if end.verb not in VERBS or len(end.measures) > 1:
        return []
    clusters = find_clusters(end.measures[0].points, end.measures[0].masses)
    if clusters.count > MANY_CLUSTERS:
        return []
    found = stability(clusters, end.model)
    if not found.stationary:
        return [f"  {clusters.count} clusters, not at rest yet"]
    state = "stable" if found.stable else "unstable"
    return [f"  {clusters.count} clusters, index {found.index}: {state}"]


def _table(candidates: list[Candidate], distances: np.ndarray) -> list[str]:
    """One line a state: its energy, whether it is stable, and W2 from the end states."""
    width = max(len(c.name) for c in candidates)
    single = len(distances) == 1
    head = "W2" if single else "nearest for  W2 mean  largest"
    lines = [f"  {'state':{width}}  {'E':>12}  stable    {head}"]
    nearest = _nearest(distances)
    for index, known in enumerate(candidates):
        energy = "" if known.log_energy is None else f"{_exp(known.log_energy):.8g}"
        role = "extremal" if known.extremal else "yes" if known.stable else "no"
        line = f"  {known.name:{width}}  {energy:>12}  {role:8}  "
        if single:
            line += f"{distances[0, index]:.3e}"
        else:
            mine = distances[(nearest == index) & (distances.min(axis=1) <= FAR), index]
            line += f"{len(mine):11}"
            line += f"  {mine.mean():7.1e}  {mine.max():7.1e}" if len(mine) else ""
        lines.append(line)
    return lines


def _nearest(distances: np.ndarray) -> np.ndarray:
    """Which state is nearest, the first of those that tie: delta_z is a pair with t = 1, too."""
    least = distances.min(axis=1, keepdims=True)
    return (distances <= 1.1 * least + TIE).argmax(axis=1)


def _exp(log_energy: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.exp(log_energy))


def _remarks(candidates, distances, end: EndState) -> list[str]:
    lines = ["  W2: Wasserstein distance for arc length, in radians, to the nearest of the family"]
    least = distances.min(axis=1)
    if len(distances) == 1:
        best = candidates[_nearest(distances)[0]].name
        lines.append(f"  nearest: {best}, {least[0]:.3g} rad away")
    elif (least > FAR).any():
        lines.append(f"  {(least > FAR).sum()} starts are farther than {FAR:g} from all of them")
    dense = any(word in c.name for c in candidates for word in ("minimiser", "uniform"))
    if dense and end.measures[0].dimension == 3 and len(end.measures[0]) > BINNED:
        lines.append("  densities compared between 642 cells: W2 is up to about 0.03 rad too large")
    return lines
