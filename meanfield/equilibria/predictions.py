"""`predict`: what theory says a run tends to, and which stationary states are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import escape

import numpy as np

from meanfield.equilibria.discrete_states import (
    four_point_angle,
    four_point_state,
    log_cosh,
    two_point_state,
)
from meanfield.equilibria.exact import symmetric_matrix
from meanfield.equilibria.extremizers import ExtremalFamily, Extremizers, extremizers
from meanfield.equilibria.two_point_rates import largest_stable_share, two_point_rates
from meanfield.equilibria.uniform_growth import growth_of_uniform
from meanfield.errors import InputError
from meanfield.measures import Measure
from meanfield.model.densities import log_zonal_mean, uniform

SAME = 1e-10  # of |D|: eigenvalues that differ by less are equal


@dataclass(frozen=True, eq=False)
class PredictedState:
    """A family of stationary states that is known in closed form.

    Attributes
    ----------
    kind : str
        ``"dirac"``, ``"pair"`` (t delta_z + (1-t) delta_-z), ``"four points"`` or ``"uniform"``.
    words : str
    basis : ndarray, shape (n, k)
        Orthonormal columns: z is any unit vector in their span.
    measure : Measure or None
        A member of the family; None for the uniform density.
    density : callable or None
    log_energy : float
        Of that member.
    stable : bool
        Whether no small displacement grows under the flow, rotations within the family aside.
        For four points: of the four points as such.
    rate : float or None
        The largest linear rate that is not neutral: negative, the rate of approach; positive,
        the rate of escape. None where it is not known.
    largest_share : float or None
        Pairs: up to which mass of the heavier cluster the pair is stable.
    reference : str
    """

    kind: str
    words: str
    basis: np.ndarray
    measure: Measure | None
    density: Callable | None
    log_energy: float
    stable: bool
    rate: float | None
    largest_share: float | None
    reference: str

    @property
    def energy(self) -> float:
        """The energy; infinite beyond the range of float64."""
        with np.errstate(over="ignore"):
            return float(np.exp(self.log_energy))

    def describe(self) -> str:
        """The statement with its energy, rate and source, in two lines."""
        if self.rate is None:
            speed = ""
        elif self.rate < 0:
            speed = f"; approached like exp({self.rate:.6g} t)"
        else:
            speed = f"; left like exp({self.rate:.6g} t)"
        share = "" if self.largest_share is None else f"; shares up to {self.largest_share:.6g}"
        head = f"{'stable' if self.stable else 'unstable'}: {self.words}"
        return f"{head}\n  E = {self.energy:.12g}{speed}{share} [{self.reference}]"


@dataclass(frozen=True, eq=False)
class Prediction:
    """What theory says of the flow for one D and one sign; see `predict`.

    Attributes
    ----------
    D : ndarray, shape (n, n)
    sign : {1, -1}
    normalized : bool
        The flow that the rates are those of.
    theory : Extremizers
        Minimisers and maximisers of the energy.
    states : tuple of PredictedState
        Stationary states known in closed form; empty if D is not symmetric.
    clusters : tuple of int
        Numbers of clusters of the stable states among them; empty where the limit is spread.
    growth : ndarray, shape (k,), or None
        Growth rates of the harmonics of degree 1, 2, ... of the uniform density, where it is
        stationary; where D has eigenvalues of both signs, that of the faster half of them.
    notes : tuple of str
    """

    D: np.ndarray
    sign: int
    normalized: bool
    theory: Extremizers
    states: tuple[PredictedState, ...]
    clusters: tuple[int, ...]
    growth: np.ndarray | None
    notes: tuple[str, ...]

    @property
    def targets(self) -> tuple[ExtremalFamily, ...]:
        """The extremal states of this sign: maximisers for +1, minimisers for -1."""
        return self.theory.maximizers if self.sign == 1 else self.theory.minimizers

    @property
    def log_energy(self) -> float | None:
        """Logarithm of `energy`."""
        known = self.theory
        return known.maximum_log_energy if self.sign == 1 else known.minimum_log_energy

    @property
    def energy(self) -> float | None:
        """The extremal energy of this sign, None where it is not known."""
        return self.theory.maximum_energy if self.sign == 1 else self.theory.minimum_energy

    @property
    def density(self) -> Callable | None:
        """The extremal density, e.g. the exact minimiser; None for point masses."""
        return next((family.density for family in self.targets if family.density), None)

    @property
    def stable(self) -> tuple[PredictedState, ...]:
        """The stable ones of `states`."""
        return tuple(state for state in self.states if state.stable)

    @property
    def directions(self) -> np.ndarray:
        """Orthonormal columns that span the axes of the stable clusters, shape (n, k)."""
        bases = [state.basis for state in self.stable if state.kind in ("dirac", "pair")]
        distinct = []
        for basis in bases:
            if not any(np.array_equal(basis, other) for other in distinct):
                distinct.append(basis)
        return np.hstack(distinct) if distinct else np.empty((len(self.D), 0))

    def describe(self) -> str:
        """All statements as text."""
        values = ", ".join(f"{value:.10g}" for value in self.theory.eigenvalues)
        way = "ascends" if self.sign == 1 else "descends"
        lines = [
            f"Sign {self.sign:+d}: the flow {way} the energy",
            f"D is {self.theory.matrix_class}, n = {len(self.D)}; eigenvalues {values}",
            f"{'Maximisers' if self.sign == 1 else 'Minimisers'}",
        ]
        for family in self.targets:
            lines += ["  " + line for line in family.describe().splitlines()]
        if not self.targets:
            lines.append("  not known")
        if self.states:
            lines.append("Stationary states, stable or not under small displacements")
        for state in self.states:
            lines += ["  " + line for line in state.describe().splitlines()]
        if self.clusters:
            counts = " or ".join(str(count) for count in self.clusters)
            lines.append(f"Clusters in the long run: {counts}")
        if self.growth is not None:
            degree = int(self.growth.argmax()) + 1
            rates = ", ".join(f"{rate:.6g}" for rate in self.growth[: max(4, degree)][:8])
            lines.append(f"Growth from the uniform density, degrees 1, 2, ...: {rates}, ...")
            if self.growth[degree - 1] > 0:
                lines.append(f"  fastest: degree {degree}, rate {self.growth[degree - 1]:.10g}")
        lines += ["Note: " + note for note in (*self.notes, *self.theory.notes)]
        lines.append("The paper: Burger, Kabri, Korolev, Roith, Weigand (2025).")
        return "\n".join(lines)

    __repr__ = describe

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.describe())}</pre>"


def predict(D, sign: int = 1, normalized: bool = True) -> Prediction:
    """What theory says that the attention flow with V = sign D tends to.

    Parameters
    ----------
    D : Interaction, or array_like, shape (n, n) or (n,)
        Any real matrix; a vector means a diagonal matrix. Without symmetry little is known.
    sign : {1, -1}
        +1 ascends the energy (clusters), -1 descends it (spreads).
    normalized : bool
        Which flow the rates are those of; False: the flow (5.1), without the division by Z.

    Returns
    -------
    Prediction
        ``.targets``, ``.energy``, ``.density``: the extremal states of this sign. ``.states``:
        clusters at every eigenvector, antipodal pairs, on S^1 the four-point states, and the
        uniform density, each with stability, rate and source. `print` shows all of it.

    Raises
    ------
    MatrixError
        If D is not a finite square matrix with n >= 2.
    InputError
        If sign is not 1 or -1.
    ComputationError
        If rates of the unnormalised flow are beyond the range of float64.

    Notes
    -----
    Stationary states: Burger, Kabri, Korolev, Roith, Weigand (2025), Lemmas 4.5, 4.6
    (corrected), 4.8 and 4.10; extremal ones: Table 1, corrected and completed
    (`meanfield.extremizers`). Stability of pairs and rates are not in the paper. A stable
    state attracts what starts near it; a run may also stay long near an unstable one.

    Examples
    --------
    >>> pairs = predict([1.0, 1.5])
    >>> pairs.clusters, round(pairs.stable[1].largest_share, 6), pairs.stable[0].rate
    ((1, 2), 0.868891, -0.5)
    >>> predict([1.0, 2.0], sign=-1).energy
    1.43819570693...
    """
    if sign not in (1, -1):
        raise InputError(f"sign must be 1 or -1, got {sign!r}")
    theory = extremizers(getattr(D, "D", D))
    if theory.matrix_class == "not symmetric":
        return Prediction(theory.D, int(sign), bool(normalized), theory, (), (), None, ())
    D = symmetric_matrix(theory.D)
    growth = growth_of_uniform(theory.eigenvalues, sign, normalized)
    states = tuple(_known_states(D, sign, normalized, growth))
    counts = {"dirac": 1, "pair": 2}
    found = {counts[state.kind] for state in states if state.stable and state.kind in counts}
    if any(f.kind == "null space" and f.basis.shape[1] > 1 for f in theory.minimizers) and sign < 0:
        found = set()  # spread over a null space that is no line
    return Prediction(
        D, int(sign), bool(normalized), theory, states, tuple(sorted(found)), growth,
        tuple(_notes(theory, sign, found)),
    )  # fmt: skip


def _eigenspaces(D) -> Iterator[tuple[float, np.ndarray, np.ndarray]]:
    """Eigenvalue, orthonormal basis, and the eigenvalues outside; the largest first."""
    values, axes = np.linalg.eigh(D)
    scale = np.abs(values).max()
    starts = np.flatnonzero(np.diff(values, prepend=-np.inf) > SAME * scale)
    for first, last in zip(starts[::-1], np.append(starts[1:], len(values))[::-1], strict=True):
        level = float(values[first:last].mean())
        level = 0.0 if abs(level) <= 1e-12 * scale else level
        yield level, axes[:, first:last], np.delete(values, np.s_[first:last])


def _known_states(D, sign: int, normalized: bool, growth) -> Iterator[PredictedState]:
    if not D.any():
        return
    for level, basis, others in _eigenspaces(D):
        flow = {"sign": sign, "normalized": normalized}
        one = two_point_rates(D, basis[:, 0], 1.0, **flow)
        two = two_point_rates(D, basis[:, 0], 0.5, **flow)
        # At the eigenvalue zero linear rates decide instability only: clusters spread under
        # sign +1, and rest under sign -1, by terms of higher order.
        stable = level != 0 or sign == -1
        yield _dirac(level, basis, one, one.stable and stable)
        yield _pair(level, basis, others, two, two.stable and stable, sign)
    values, axes = np.linalg.eigh(D)
    if len(D) == 2 and np.abs(values).min() > 1e-12 * np.abs(values).max():
        yield _four_points(values, axes, sign)
    if growth is not None:
        yield _uniform(values, growth)


def _axes_of(basis) -> str:
    vectors = ["(" + ", ".join(f"{v:.6g}" for v in z + 0.0) + ")" for z in basis.T]
    return f"z = {vectors[0]}" if len(vectors) == 1 else f"z in the span of {', '.join(vectors)}"


def _rate(level, rates) -> float | None:
    """The slowest rate, unless slower than linear modes decide."""
    return None if level == 0 and rates.stable else rates.slowest


def _dirac(level, basis, rates, stable: bool) -> PredictedState:
    words = f"delta_z, {_axes_of(basis)}, eigenvalue {level:.10g}"
    return PredictedState(
        "dirac", words, basis, Measure(basis[:, :1].T), None, level, stable,
        _rate(level, rates), None, "the paper, Lemma 4.5; stability new",
    )  # fmt: skip


def _pair(level, basis, others, rates, stable: bool, sign: int) -> PredictedState:
    words = f"(delta_z + delta_-z)/2, {_axes_of(basis)}, eigenvalue {level:.10g}"
    share = None
    if sign == 1 and stable:
        share = largest_stable_share(level, others)
    return PredictedState(
        "pair", words, basis, two_point_state(basis[:, 0]), None, float(log_cosh(level)),
        stable, _rate(level, rates), share, "the paper, Lemma 4.6, corrected; stability new",
    )  # fmt: skip


def _four_points(values, axes, sign: int) -> PredictedState:
    phi = four_point_angle(*values)
    state = four_point_state(phi)
    words = f"four points at the angles +-{phi:.10g}, pi +- {phi:.10g} from ({axes[0, 0]:.6g}, "
    words += f"{axes[1, 0]:.6g})"
    log_energy = log_cosh(values[0] * np.cos(phi) ** 2) + log_cosh(values[1] * np.sin(phi) ** 2)
    return PredictedState(
        "four points", words, axes, Measure(state.points @ axes.T), None, float(log_energy),
        sign == -1 and values[0] > 0, None, None, "the paper, Lemma 4.8",
    )  # fmt: skip


def _uniform(values, growth) -> PredictedState:
    level = float(np.abs(values).mean())
    fastest = float(growth.max())
    rate = fastest if fastest > 0 else float(growth[0])
    return PredictedState(
        "uniform", "the uniform density", np.eye(len(values)), None, uniform(),
        log_zonal_mean(level, len(values)), fastest <= 0, rate,
        None, "the paper, Lemma 4.10; stability new",
    )  # fmt: skip


def _notes(theory: Extremizers, sign: int, found: set[int]) -> Iterator[str]:
    values = theory.eigenvalues
    if not values.any():
        yield "D = 0: nothing moves"
        return
    yield "also stationary: mixtures of pairs at orthogonal eigenvectors (the paper, Lemma 4.7)"
    if sign == 1 and found == {1, 2}:
        yield "one cluster and two are both stable: the start decides"
    if sign == -1 and values[0] > 0:
        yield "the limit is spread over the sphere; finitely many particles stay above min E"
    if sign == -1 and values[0] == 0:
        yield "the null space is approached slowly: the force fades with the distance"
