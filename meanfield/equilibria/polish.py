"""The polish of `minimize`: implicit mirror steps in the harmonics that doubles resolve.

Mirror descent from masses ``a_0`` only ever produces masses ``a = a_0 exp(-V theta)``, V the
harmonics of the kernel at the nodes: it looks for the minimiser nearest to ``a_0`` in relative
entropy. Here theta itself is sought. An implicit step of length eta minimises
``E(a) + KL(a, a_k)/eta``. In theta this is a strictly convex problem, minimised by Newton's
method, whose Hessian is the covariance of the harmonics plus ``B^-1/(2 eta)``, B the matrix of
the energy. As eta grows the last part fades. In the limit the moments of a are those at which
the potential is constant, and a is the measure of least relative entropy that has them,
provided that there is one that is positive on all nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import logsumexp

from meanfield.equilibria.graded_kernel import LARGEST_NORM, GradedKernel, graded_kernel
from meanfield.sphere.harmonics import harmonic_values

MAX_ENTRIES = 60_000_000  # of the harmonics at the nodes, 480 MB
MAX_WORK = 4e10  # nodes times harmonics squared: seconds for one Newton step
NEWTON_STEPS = 40
SETTLED = 1e-24  # squared Newton decrement at which an implicit step is done
ROUND_OFF = 1e-14  # squared decrement that counts as done when it no longer falls
DIVERGED = 1e3  # squared decrement of problems without a solution
MOMENT_ERROR = 1e-3  # up to which a moment counts as determined by the gap alone
SMALLEST = 1e-100  # of the diagonal of the Hessian: all mass on one node
GROWTH = 30.0  # of the length of implicit steps
OUTER_STEPS = 16
PATIENCE = 2  # steps without a smaller gap, after which the polish ends
RIDGE = 1e-15  # of the scaled Hessian, which may be singular where nodes are few
ROUGH = 1e-2  # relative gap below which steps of infinite length are tried


@dataclass(frozen=True, eq=False)
class Polished:
    """What the polish found.

    Attributes
    ----------
    log_masses : ndarray, shape (m,)
    gaps : tuple of float
        Relative gap ``2 (E - min Z)/E`` on the nodes with mass after each implicit step, from
        the harmonics.
    log_energies : tuple of float
    steps : tuple of int
        Newton steps taken up to then; each costs as much as a few kernel applications.
    resolved_degree : int
        All harmonics of the kernel up to this degree are resolved: those that double precision
        can see in the energy, or, where no limit exists, those that the last gap determines to
        1e-3.
    """

    log_masses: np.ndarray
    gaps: tuple[float, ...]
    log_energies: tuple[float, ...]
    steps: tuple[int, ...]
    resolved_degree: int


def can_polish(D: np.ndarray, nodes: int) -> bool:
    """Whether the harmonics of exp(x.Dy), D positive semidefinite, are few enough.

    Examples
    --------
    >>> can_polish(np.diag([1.0, 2.0]), 256), can_polish(np.diag([1.0, 1e4]), 256)
    (True, False)
    """
    norm = float(np.linalg.norm(D, 2))
    if not 0 < norm <= LARGEST_NORM.get(len(D), 0.0):
        return False
    modes = len(_graded(D)[0].index)
    return nodes * modes <= MAX_ENTRIES and nodes * modes**2 <= MAX_WORK


def polish(space, D, log_masses, tolerance: float) -> Polished:
    """Implicit mirror steps from given masses, for positive semidefinite D, n = 2 or 3.

    Parameters
    ----------
    space : Space
    D : ndarray, shape (n, n)
    log_masses : ndarray, shape (m,)
        -inf where there is no mass; it stays so.
    tolerance : float
        Of the relative gap, where the limit of infinitely long steps does not exist.

    Returns
    -------
    Polished

    Examples
    --------
    >>> from meanfield.sphere.meshes import circle
    >>> mesh = circle(64)
    >>> found = polish(mesh, np.diag([1.0, 2.0]), np.log(mesh.weights), 1e-12)
    >>> bool(found.gaps[-1] < 1e-13), round(float(np.exp(found.log_energies[-1])), 10)
    (True, 1.4381957069)
    """
    kernel, axes = _graded(D)
    support = np.flatnonzero(np.isfinite(log_masses))
    values = harmonic_values(space.points[support] @ axes, kernel.basis_degree)[kernel.index].T
    shift = float(np.linalg.norm(D, 2))
    problem = _Problem(kernel, np.ascontiguousarray(values), log_masses[support], shift)
    theta, trace, exact = _implicit_steps(problem, tolerance)
    result = np.full(len(space), -np.inf)
    result[support] = problem.log_masses(theta)
    log_energies, gaps, steps = zip(*trace, strict=True)
    degree = kernel.degree if exact else _determined(kernel, gaps[-1])
    return Polished(result, gaps, log_energies, steps, degree)


def _determined(kernel: GradedKernel, gap: float) -> int:
    """The degree up to which a gap bounds the errors of all moments by `MOMENT_ERROR`."""
    smallest = 1 / kernel.inverse.diagonal()  # of the form at one moment 1, the others free
    loose = smallest * MOMENT_ERROR**2 < max(gap, ROUND_OFF) * kernel.corner
    return int(kernel.degrees[loose].min(initial=kernel.degree + 1)) - 1


def _graded(D: np.ndarray) -> tuple[GradedKernel, np.ndarray]:
    """The graded kernel, and the axes in whose coordinates its harmonics are taken."""
    eigenvalues, axes = np.linalg.eigh(D)
    # Negative ones are round-off of zero.
    return graded_kernel(tuple(np.maximum(eigenvalues, 0.0).tolist())), axes


def _implicit_steps(problem: _Problem, tolerance: float):
    """Longer and longer steps, and infinite ones where they exist.

    Returns the best theta, the trace, and whether it is the limit of infinitely long steps.
    """
    theta = best = np.zeros(problem.values.shape[1])
    length, spent, tries = 1.0, 0, 2 if problem.values.shape[0] > len(theta) + 1 else 0
    trace, smallest, patience = [], np.inf, PATIENCE
    for _ in range(OUTER_STEPS):
        theta, count, _ = problem.step(theta, length)
        spent += count
        log_energy, gap = problem.measure(theta)
        if tries and gap <= ROUGH:
            exact, count, done = problem.step(theta, np.inf)
            spent, tries = spent + count, tries - 1
            if done:
                trace.append((*problem.measure(exact), spent))
                return exact, trace, True
        trace.append((log_energy, gap, spent))
        patience = PATIENCE if gap < smallest else patience - 1
        if gap < smallest:
            best, smallest = theta, gap
        if gap <= tolerance or patience == 0:
            break  # round-off makes longer steps worse
        length *= GROWTH
    return best, trace, False


class _Problem:
    """Energy and implicit steps over masses ``exp(log_start - V theta)``, normalised."""

    def __init__(self, kernel: GradedKernel, values, log_start, shift: float):
        self.kernel, self.values, self.log_start, self.shift = kernel, values, log_start, shift
        self.target = -kernel.inverse @ kernel.column * kernel.constant

    def log_masses(self, theta: np.ndarray) -> np.ndarray:
        exponents = self.log_start - self.values @ theta
        return exponents - logsumexp(exponents)

    def measure(self, theta: np.ndarray) -> tuple[float, float]:
        """Logarithm of the energy and the relative gap."""
        moments = np.exp(self.log_masses(theta)) @ self.values
        kernel, c0 = self.kernel, self.kernel.constant
        first = kernel.corner * c0 + kernel.column @ moments
        others = kernel.column * c0 + kernel.matrix @ moments
        energy = first * c0 + others @ moments
        potential = first * c0 + self.values @ others
        gap = 2 * (energy - potential.min()) / energy
        return float(np.log(energy) + self.shift), float(max(gap, 0.0))

    def step(self, start: np.ndarray, length: float) -> tuple[np.ndarray, int, bool]:
        """One implicit step by damped Newton: theta, Newton steps, and whether it converged."""
        theta, stiffness = start, self.kernel.inverse / (2 * length)
        value, log_masses = self._objective(theta, start, stiffness)
        previous = np.inf
        for count in range(1, NEWTON_STEPS + 1):
            masses = np.exp(log_masses)
            moments = masses @ self.values
            slope = self.target - moments + stiffness @ (theta - start)
            hessian = (self.values * masses[:, None]).T @ self.values
            hessian += stiffness - np.multiply.outer(moments, moments)
            move, decrement = _newton_move(hessian, slope)
            if decrement <= SETTLED or 0.3 * previous <= decrement <= ROUND_OFF:
                return theta + move, count, True
            if decrement > DIVERGED and np.isinf(length):
                return theta, count, False
            previous = decrement
            size = 1.0
            while True:
                trial, trial_masses = self._objective(theta + size * move, start, stiffness)
                if trial <= value - 1e-4 * size * decrement + 1e-15 * abs(value):
                    break
                size /= 2
                if size < 1e-8:
                    return theta, count, False
            theta, value, log_masses = theta + size * move, trial, trial_masses
        return theta, count, False

    def _objective(self, theta, start, stiffness) -> tuple[float, np.ndarray]:
        exponents = self.log_start - self.values @ theta
        total = logsumexp(exponents)
        moved = theta - start
        value = total + self.target @ theta + moved @ stiffness @ moved / 2
        return float(value), exponents - total


def _newton_move(hessian: np.ndarray, slope: np.ndarray) -> tuple[np.ndarray, float]:
    """Solve with the Hessian, scaled to a unit diagonal; the move and the squared decrement."""
    scale = 1 / np.sqrt(np.maximum(hessian.diagonal(), SMALLEST))
    scaled = hessian * scale[:, None] * scale
    ridge = RIDGE
    while True:
        try:
            factor = cho_factor(scaled + ridge * np.eye(len(scaled)), lower=True)
            break
        except np.linalg.LinAlgError:
            ridge *= 10
    move = -scale * cho_solve(factor, scale * slope)
    return move, float(max(-slope @ move, 0.0))
