"""Extrema of the energy over probability vectors: entropic mirror descent, with a certificate.

The energy of masses a at the points of a space is ``E(a) = sum_ij a_i a_j K_ij``, its derivative
``2 Z``. A mirror step multiplies every mass by ``exp(-tau 2 Z_i)`` and normalises. Everything is
kept in the log domain: exponents may be large, and a mass that is exactly zero stays zero, in
every method: multiplication cannot bring it back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp, rel_entr
from tqdm import tqdm

from meanfield.equilibria.exact import symmetric_matrix
from meanfield.equilibria.exchange import LARGEST_NORM, exchange
from meanfield.equilibria.extremum import Extremum
from meanfield.equilibria.polish import can_polish, polish
from meanfield.equilibria.starts import start_masses
from meanfield.errors import InputError, NonFiniteError
from meanfield.model.interaction import BoundInteraction, Interaction
from meanfield.sphere.spaces import Space

METHODS = ("auto", "adaptive", "mirror")
MAX_ITERATIONS = 2000
PAPER_STEP = 0.1  # tau of Fig. 5 of the paper
ROUND_OFF = 1e-14  # relative change of the energy that the test of a step ignores
SEMIDEFINITE = 1e-12  # of |D|: eigenvalues above minus this part of it count as zero
ROUGH_STEPS = 8  # adaptive steps before the polish
SORTING_STEPS = 100  # adaptive steps before masses are exchanged between nodes
LARGEST_RATIO = 230.0  # of the logarithm of Z/E: beyond it a mass is gone anyway


def kullback_leibler(a, b) -> float:
    """Relative entropy ``sum a_i log(a_i/b_i)``, with ``0 log 0 = 0``.

    Parameters
    ----------
    a, b : array_like, shape (m,)
        Probability vectors.

    Returns
    -------
    float
        In [0, inf]; infinite where a has mass and b has none.

    Raises
    ------
    InputError
        If the shapes differ or there are negative or NaN entries.

    Examples
    --------
    >>> kullback_leibler([0.0, 0.5, 0.5], [0.0, 0.5, 0.5])
    0.0
    >>> kullback_leibler([0.3, 0.3, 0.4], [0.5, 0.5, 0.0])
    inf
    """
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if a.ndim != 1 or a.shape != b.shape:
        raise InputError(f"both must be vectors of one length, got shapes {a.shape} and {b.shape}")
    if not ((a >= 0).all() and (b >= 0).all()):
        raise InputError("entries must be >= 0")
    return float(rel_entr(a, b).sum())


def minimize(
    space: Space,
    interaction: Interaction,
    start=None,
    method: str = "auto",
    tolerance: float = 1e-10,
    max_iterations: int = MAX_ITERATIONS,
    step: float = PAPER_STEP,
    progress: bool = False,
) -> Extremum:
    """Minimise ``E = int int exp(x.Dy) dmu dmu`` over the probability vectors on a space.

    Parameters
    ----------
    space : Space
        Its points carry the masses; its weights turn densities into masses and back.
    interaction : Interaction
        With symmetric D.
    start : callable or array_like, shape (m,), optional
        A density, or masses that sum to one; masses that are zero stay zero. By default uniform
        for positive semidefinite D, where the minimum is global. Elsewhere uniform may be
        stationary, and a bump near the eigenvector of the smallest eigenvalue is taken.
    method : {"auto", "adaptive", "mirror"}
        ``"mirror"`` is the iteration of the paper with the fixed step ``step``. ``"adaptive"``
        tries longer steps and takes those that pass the test of relative smoothness.
        ``"auto"`` does a few of them; for positive semidefinite D on S^1 and S^2 it then solves
        for the limit of the iteration in the harmonics that double precision resolves, with
        moments over the nodes at hand (`meanfield.equilibria.polish`).
    tolerance : float
        Of the gap ``2 (E - min Z)`` relative to E.
    max_iterations : int
        Largest number of steps. Without convergence ``.converged`` is False.
    step : float
        tau of ``method="mirror"``.
    progress : bool
        Show a progress bar on a terminal.

    Returns
    -------
    Extremum
        For positive semidefinite D ``.gap`` bounds the distance to the smallest energy that
        masses at these points can have. From uniform masses the density is accurate up to
        ``.resolved_degree``; from random ones only the gap and the moments up to that degree
        are: what is finer stays as it was.

    Raises
    ------
    MatrixError
        If D is not symmetric: the gradient of the energy is 2 Z only then.
    DensityError, PointsError
        If the start or the points do not fit.
    InputError
        If an option is out of range.

    Notes
    -----
    The iteration is Burger, Kabri, Korolev, Roith, Weigand (2025), eqs. (5.3) and (5.4), on S^1
    there; the gradient is ``2 K m``, and the weights of the space enter only where densities
    do. A step of length tau passes the test if
    ``E' <= E + 2 int Z d(mu' - mu) + KL(mu', mu)/tau``. For ``tau <= 1/(2 sinh ||D||)`` it always
    does: with h = mu' - mu, ``h.Kh <= sinh(||D||) |h|_1^2 <= 2 sinh(||D||) KL(mu', mu)``.

    Examples
    --------
    >>> from meanfield.sphere.meshes import circle
    >>> found = minimize(circle(256), Interaction([1.0, 1.5]), tolerance=1e-12)
    >>> found.converged, round(found.energy, 12), found.applications < 60
    (True, 1.376306946263, True)
    """
    return _extremum(
        space, interaction, start, method, tolerance, max_iterations, step, progress, sign=1
    )


def maximize(
    space: Space,
    interaction: Interaction,
    start=None,
    method: str = "auto",
    tolerance: float = 1e-10,
    max_iterations: int = MAX_ITERATIONS,
    step: float = PAPER_STEP,
    progress: bool = False,
) -> Extremum:
    """Maximise ``E = int int exp(x.Dy) dmu dmu`` over the probability vectors on a space.

    Parameters
    ----------
    space, interaction, method, tolerance, max_iterations, step, progress
        As for `minimize`; the tolerance is that of ``2 (max Z - E)`` relative to E.
    start : callable or array_like, shape (m,), optional
        As for `minimize`. By default one or two bumps near the eigenvectors that carry the
        maximum in theory; never uniform.

    Returns
    -------
    Extremum
        A stationary state that no small shift of mass improves; not necessarily the global
        maximum over the nodes, so that ``.gap`` is None. Clusters sit on single nodes: the
        energy is that of the nearest nodes, below the maximum over the sphere.

    Raises
    ------
    MatrixError, DensityError, PointsError, InputError
        As `minimize`.

    Examples
    --------
    >>> from meanfield.sphere.spaces import lebedev
    >>> found = maximize(lebedev(15), Interaction([-1.0, 0.5, 1.0]))
    >>> found.converged, round(found.energy, 12)
    (True, 2.718281828459)
    """
    return _extremum(
        space, interaction, start, method, tolerance, max_iterations, step, progress, sign=-1
    )


def _extremum(
    space, interaction, start, method, tolerance, max_iterations, step, progress, sign
) -> Extremum:
    if not isinstance(interaction, Interaction):
        interaction = Interaction(interaction)
    D = symmetric_matrix(interaction.D)
    _check(method, tolerance, max_iterations, step)
    masses, described = start_masses(space, D, start, sign)
    low = np.linalg.eigvalsh(D)[0]
    convex = sign == 1 and low >= -SEMIDEFINITE * interaction.norm
    search = _Search(interaction.on(space), sign, masses)
    settings = (tolerance, max_iterations, progress)
    degree = None
    if method == "mirror":
        search.run(*settings, fixed=step)
    elif method == "auto" and convex and can_polish(D, len(space)):
        search.run(tolerance, min(ROUGH_STEPS, max_iterations), progress)
        degree = search.polish(space, D, tolerance)
        if search.state.residual_on_support > tolerance:  # the minimiser leaves nodes empty
            search.exchange(D, tolerance)
    elif method == "auto" and not convex and interaction.norm <= LARGEST_NORM:
        search.run(tolerance, min(SORTING_STEPS, max_iterations), progress)
        search.exchange(D, tolerance)
    if method != "mirror":
        search.run(*settings)
    state = search.state
    return Extremum(
        masses=state.masses,
        log_energy=state.log_energy,
        residual=state.residual,
        converged=bool(state.residual <= tolerance),
        resolved_degree=degree,
        certified=bool(convex),
        history=search.history(),
        space=space,
        interaction=interaction,
        parameters={
            "verb": "minimize" if sign == 1 else "maximize",
            "mesh": space.name,
            "D": interaction.D.tolist(),
            "start": described,
            "method": method,
            "tolerance": tolerance,
            "max_iterations": max_iterations,
            "step": step,
        },
    )


def _check(method, tolerance, max_iterations, step) -> None:
    if method not in METHODS:
        raise InputError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    if not tolerance > 0:
        raise InputError(f"tolerance must be positive, got {tolerance}")
    if int(max_iterations) != max_iterations or max_iterations < 0:
        raise InputError(f"max_iterations must be an integer >= 0, got {max_iterations}")
    if not (np.isfinite(step) and step > 0):
        raise InputError(f"step must be positive, got {step}")


@dataclass(frozen=True, eq=False)
class _State:
    """Masses with their potential: ``ratio = Z/E`` at all nodes, and the residuals."""

    log_masses: np.ndarray
    masses: np.ndarray
    log_energy: float
    ratio: np.ndarray
    residual: float
    residual_on_support: float


class _Search:
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

    def _evaluate(self, log_masses: np.ndarray) -> _State:
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
        return _State(
            log_masses,
            masses,
            log_energy,
            ratio,
            abs(max(float(excess.max()), 0.0)),  # abs: no negative zero
            abs(max(float(excess[support].max()), 0.0)),
        )

    def _record(self, state: _State) -> None:
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

    def run(self, tolerance, max_iterations, progress, fixed=None) -> None:
        """Step until the residual on the support is small, or the iterations are used up."""
        for _ in tqdm(range(max_iterations), unit="step", disable=None if progress else True):
            if self.state.residual_on_support <= tolerance:
                return
            self.state = self._adaptive_step() if fixed is None else self._fixed_step(fixed)
            self._record(self.state)

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

    def _fixed_step(self, tau: float) -> _State:
        log_length = np.log(2 * tau) + self.state.log_energy
        return self._evaluate(self._moved(np.exp(min(log_length, LARGEST_RATIO))))

    def _adaptive_step(self) -> _State:
        safe = np.exp(min(self.state.log_energy + self.log_safe, 0.0))
        self.length = max(self.length, safe)
        while True:
            log_masses = self._moved(self.length)
            trial = self._evaluate(log_masses)
            if self.length <= safe or self._passes(trial):
                self.length *= 2
                return trial
            self.length = max(self.length / 4, safe)

    def _passes(self, trial: _State) -> bool:
        """The test of relative smoothness, divided by the energy."""
        old = self.state
        carrying = trial.masses > 0
        entropy = trial.masses[carrying] @ (trial.log_masses[carrying] - old.log_masses[carrying])
        change = self.sign * np.expm1(min(trial.log_energy - old.log_energy, LARGEST_RATIO))
        linear = 2 * self.sign * (old.ratio @ trial.masses - 1)
        return bool(change <= linear + 2 * max(entropy, 0.0) / self.length + ROUND_OFF)
