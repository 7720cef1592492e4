"""The steps of the search for extrema of the energy, one after the other.

Everything is kept in the log domain: exponents may be large, and a mass that is exactly zero
stays zero, in every method: multiplication cannot bring it back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp
from tqdm import tqdm

from meanfield.equilibria.exchange import LARGEST_NORM, exchange
from meanfield.equilibria.extremum import Extremum
from meanfield.equilibria.polish import can_polish, polish
from meanfield.errors import NonFiniteError
from meanfield.model.interaction import BoundInteraction, Interaction
from meanfield.sphere.spaces import Space

ROUND_OFF = 1e-14  # relative change of the energy that the test of a step ignores
SEMIDEFINITE = 1e-12  # of |D|: eigenvalues above minus this part of it count as zero
ROUGH_STEPS = 8  # adaptive steps before the polish
SORTING_STEPS = 100  # adaptive steps before masses are exchanged between nodes
LARGEST_RATIO = 230.0  # of the logarithm of Z/E: beyond it a mass is gone anyway
ROUGH, FINE = 0, 1  # before and after the polish or the exchange


@dataclass(frozen=True, eq=False)
class Instant:
    """One instant of a search.

    Attributes
    ----------
    search : MirrorSteps
        What has been found so far.
    phase : int
        Before (0) or after (1) the polish or the exchange of masses.
    done : int
        Steps taken in this phase.
    degree : int or None
        That the polish has resolved.
    result : Extremum or None
        At the end of the search.
    """

    search: MirrorSteps
    phase: int
    done: int
    degree: int | None = None
    result: Extremum | None = None

    def snapshot(self) -> dict[str, np.ndarray]:
        """The instant as named arrays, for a checkpoint."""
        search = self.search
        return {
            "log_masses": search.state.log_masses,
            "length": np.array(search.length),
            "applications": np.array(search.applications),
            "rows": np.array(search.rows),
            "phase": np.array(self.phase),
            "done": np.array(self.done),
            "degree": np.array(-1 if self.degree is None else self.degree),
        }


@dataclass(frozen=True, eq=False)
class Search:
    """A search that is about to begin: what it starts from and how it goes.

    Attributes
    ----------
    space : Space
    interaction : Interaction
    D : ndarray, shape (n, n)
        Symmetric.
    sign : int
        1 for a minimum, -1 for a maximum.
    masses : ndarray, shape (m,)
        To start from.
    parameters : dict
        What rebuilds the search, with the options of `minimize`.
    """

    space: Space
    interaction: Interaction
    D: np.ndarray
    sign: int
    masses: np.ndarray
    parameters: dict

    @property
    def convex(self) -> bool:
        """Whether the energy is, so that a stationary state is a minimum."""
        low = np.linalg.eigvalsh(self.D)[0]
        return bool(self.sign == 1 and low >= -SEMIDEFINITE * self.interaction.norm)

    def compute(self, progress: bool = False) -> Extremum:
        """All of the search at once."""
        *_, last = self.steps(progress=progress)
        return last.result

    def steps(self, start: dict | None = None, progress: bool = False) -> Iterator[Instant]:
        """The instants of the search, the last one with its result.

        Parameters
        ----------
        start : dict, optional
            Go on from this snapshot of an earlier search instead; the result is the same.
        progress : bool
            Show a progress bar on a terminal.
        """
        options = self.parameters
        method, tolerance = options["method"], options["tolerance"]
        limit = options["max_iterations"]
        search = MirrorSteps(self.interaction.on(self.space), self.sign, self.masses)
        phase, done, degree = ROUGH, 0, None
        if start is not None:
            search.restore(start)
            phase, done = int(start["phase"]), int(start["done"])
            degree = None if start["degree"] < 0 else int(start["degree"])
        polishes = method == "auto" and self.convex and can_polish(self.D, len(self.space))
        sorts = method == "auto" and not self.convex and self.interaction.norm <= LARGEST_NORM
        if phase == ROUGH and (polishes or sorts):
            rough = min(ROUGH_STEPS if polishes else SORTING_STEPS, limit)
            for count in search.run(tolerance, rough, progress, done=done):
                yield Instant(search, ROUGH, count)
            if polishes:
                degree = search.polish(self.space, self.D, tolerance)
            # The minimiser may leave nodes empty, which the polish cannot.
            if sorts or search.state.residual_on_support > tolerance:
                search.exchange(self.D, tolerance)
            yield Instant(search, FINE, 0, degree)
            done = 0
        fixed = options["step"] if method == "mirror" else None
        for count in search.run(tolerance, limit, progress, fixed, done):
            yield Instant(search, FINE, count, degree)
            done = count
        yield Instant(search, FINE, done, degree, self._found(search, degree))

    def _found(self, search: MirrorSteps, degree: int | None) -> Extremum:
        state = search.state
        return Extremum(
            masses=state.masses,
            log_energy=state.log_energy,
            residual=state.residual,
            converged=bool(state.residual <= self.parameters["tolerance"]),
            resolved_degree=degree,
            certified=self.convex,
            history=search.history(),
            space=self.space,
            interaction=self.interaction,
            parameters=self.parameters,
        )


@dataclass(frozen=True, eq=False)
class State:
    """Masses with their potential: ``ratio = Z/E`` at all nodes, and the residuals."""

    log_masses: np.ndarray
    masses: np.ndarray
    log_energy: float
    ratio: np.ndarray
    residual: float
    residual_on_support: float


class MirrorSteps:
    """Mirror steps on one space; ``sign`` is 1 for descent, -1 for ascent."""

    def __init__(self, bound: BoundInteraction, sign: int, masses: np.ndarray):
        self.bound, self.sign, self.applications = bound, sign, 0
        norm = bound.interaction.norm
        self.log_safe = -(norm + np.log(-np.expm1(-2 * norm) / 2)) if norm > 0 else np.inf
        self.length = 1.0  # of the next step: 2 tau E, relative to the energy
        self.rows: list[tuple[float, float, float]] = []
        with np.errstate(divide="ignore"):
            self.state = self._evaluate(np.log(masses))
        self._record(self.state)

    def _evaluate(self, log_masses: np.ndarray) -> State:
        masses = np.exp(log_masses)
        masses /= masses.sum()
        log_potential = self.bound.log_potential(masses)
        log_energy = self.bound.log_mean(masses, log_potential)
        if not np.isfinite(log_energy):
            raise NonFiniteError("the energy is not finite: the kernel cannot be evaluated")
        self.applications += 1
        ratio = np.exp(np.minimum(log_potential - log_energy, LARGEST_RATIO))
        support = np.isfinite(log_masses)
        # Signed so that positive excess pulls mass to a node.
        excess = 2 * self.sign * (1 - ratio)
        return State(
            log_masses,
            masses,
            log_energy,
            ratio,
            abs(max(float(excess.max()), 0.0)),  # abs: no negative zero
            abs(max(float(excess[support].max()), 0.0)),
        )

    def restore(self, snapshot: dict[str, np.ndarray]) -> None:
        """Go back to the instant of a `Instant.snapshot`."""
        self.state = self._evaluate(snapshot["log_masses"])
        self.length = float(snapshot["length"])
        self.applications = int(snapshot["applications"])
        self.rows = [tuple(row) for row in snapshot["rows"].tolist()]

    def _record(self, state: State) -> None:
        self.rows.append((self.applications, state.log_energy, state.residual))

    def history(self) -> dict[str, np.ndarray]:
        applications, log_energy, residual = np.array(self.rows).T
        with np.errstate(over="ignore", invalid="ignore"):
            energy = np.exp(log_energy)
            gap = np.where(residual > 0, residual * energy, 0.0)
        return {
            "applications": applications.astype(int),
            "log_energy": log_energy,
            "energy": energy,
            "gap": gap,
        }

    def run(self, tolerance, max_iterations, progress, fixed=None, done=0) -> Iterator[int]:
        """Step until the residual on the support is small, or the iterations are used up.

        Yields the number of steps taken.
        """
        bar = {"total": max_iterations, "initial": done, "disable": None if progress else True}
        for number in tqdm(range(done, max_iterations), unit="step", **bar):
            if self.state.residual_on_support <= tolerance:
                return
            self.state = self._adaptive_step() if fixed is None else self._fixed_step(fixed)
            self._record(self.state)
            yield number + 1

    def polish(self, space: Space, D: np.ndarray, tolerance: float) -> int | None:
        """The harmonic polish; the degree that it resolves, None if it did not help."""
        found = polish(space, D, self.state.log_masses, tolerance / 10)
        trace = zip(found.steps, found.log_energies, found.gaps, strict=True)
        rows = [(self.applications + count, *rest) for count, *rest in trace]
        self.applications += found.steps[-1]
        state = self._evaluate(found.log_masses)
        if state.residual_on_support >= self.state.residual_on_support:
            return None
        self.rows += rows[:-1]
        self.state = state
        self._record(state)
        return found.resolved_degree

    def exchange(self, D: np.ndarray, tolerance: float) -> None:
        """Exchanges between pairs of nodes; a sweep of them counts as one application."""
        old = self.state
        masses, count = exchange(
            self.bound.sources, D, old.masses, old.ratio, old.log_energy,
            np.isfinite(old.log_masses), self.sign, tolerance / 2
        )  # fmt: skip
        self.applications += -(-2 * count // len(masses))  # an exchange takes two columns
        with np.errstate(divide="ignore"):
            state = self._evaluate(np.log(masses))
        if self.sign * (state.log_energy - old.log_energy) <= ROUND_OFF:
            self.state = state
            self._record(state)

    def _moved(self, length: float) -> np.ndarray:
        """Logarithms of the masses after a step of this length, normalised."""
        log_masses = self.state.log_masses - self.sign * length * (self.state.ratio - 1)
        return log_masses - logsumexp(log_masses)

    def _fixed_step(self, tau: float) -> State:
        log_length = np.log(2 * tau) + self.state.log_energy
        return self._evaluate(self._moved(np.exp(min(log_length, LARGEST_RATIO))))

    def _adaptive_step(self) -> State:
        safe = np.exp(min(self.state.log_energy + self.log_safe, 0.0))
        self.length = max(self.length, safe)
        while True:
            log_masses = self._moved(self.length)
            trial = self._evaluate(log_masses)
            if self.length <= safe or self._passes(trial):
                self.length *= 2
                return trial
            self.length = max(self.length / 4, safe)

    def _passes(self, trial: State) -> bool:
        """The test of relative smoothness, divided by the energy."""
        old = self.state
        carrying = trial.masses > 0
        entropy = trial.masses[carrying] @ (trial.log_masses[carrying] - old.log_masses[carrying])
        change = self.sign * np.expm1(min(trial.log_energy - old.log_energy, LARGEST_RATIO))
        linear = 2 * self.sign * (old.ratio @ trial.masses - 1)
        return bool(change <= linear + 2 * max(entropy, 0.0) / self.length + ROUND_OFF)
