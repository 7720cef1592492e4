"""What minimises and maximises the energy: the table of the theory, corrected, as data.

"The paper" is Burger, Kabri, Korolev, Roith, Weigand (2025); its Table 1 is completed here for
indefinite D: max E = max(e^a, cosh b) with a the largest eigenvalue and -b the smallest. Split
D = D+ - D-. The kernel ``exp(x.D+y) sinh(x.D-y)`` is positive semidefinite, so E is at most
``int int exp(x.D+y) cosh(x.D-y)``, at most ``int int exp(a c c') cosh(b s s')`` with c, s the
lengths of the two parts of x. That is convex in mu, hence largest at a Dirac measure, where
``a c^2 + ln cosh(b s^2)`` is convex in s^2 = 1 - c^2 and largest at s = 0 or s = 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape

import numpy as np

from meanfield.equilibria.discrete_states import four_point_angle, log_cosh, two_point_state
from meanfield.equilibria.exact import SYMMETRY_TOLERANCE, exact_minimizer
from meanfield.errors import ConvergenceError, InputError
from meanfield.measures import Measure
from meanfield.model.densities import log_zonal_mean, uniform
from meanfield.model.interaction import square_matrix

__all__ = ["ExtremalFamily", "Extremizers", "extremizers", "four_point_angle"]


@dataclass(frozen=True, eq=False)
class ExtremalFamily:
    """One family of minimisers or of maximisers.

    Attributes
    ----------
    kind : str
        ``"dirac"`` (delta_z), ``"pair"`` ((delta_z + delta_-z)/2), ``"null space"`` (every
        measure on the unit vectors of the span of the basis), ``"all"`` (every measure),
        ``"uniform"`` or ``"density"``.
    words : str
        The statement in words.
    basis : ndarray, shape (n, k)
        Orthonormal columns: z is any unit vector in their span.
    measures : tuple of Measure
        Representatives, at the basis vectors; empty for densities.
    density : callable or None
        Points (m, n) to values (m,), relative to the uniform probability measure.
    log_energy : float or None
        Logarithm of the energy; None where it is not known.
    status : str
        ``"theorem"`` (proved in the paper) or ``"new"`` (not in the paper; proved, but for the
        positivity of a computed density, which is checked on a grid). Conjectures are notes.
    reference : str
        Where the paper states it, or what it states nearest to it.
    """

    kind: str
    words: str
    basis: np.ndarray
    measures: tuple[Measure, ...]
    density: Callable | None
    log_energy: float | None
    status: str
    reference: str

    @property
    def energy(self) -> float | None:
        """The energy ``int int exp(x.Dy)``; infinite beyond the range of float64."""
        return _exp(self.log_energy)

    def describe(self) -> str:
        """The statement with its energy, status and source, a few lines."""
        lines = [self.words]
        if self.kind in ("dirac", "pair", "null space"):
            vectors = ("(" + ", ".join(f"{v:.6g}" for v in z + 0.0) + ")" for z in self.basis.T)
            lines.append("z in the span of " + ", ".join(vectors))
        if self.log_energy is not None:
            lines.append(f"E = {self.energy:.12g}, log E = {self.log_energy:.12g}")
        lines.append(f"[{self.status}] {self.reference}")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Extremizers:
    """What is known about the extrema of the energy for one D; see `extremizers`.

    Attributes
    ----------
    D : ndarray, shape (n, n)
    matrix_class : str
        ``"zero"``, ``"positive definite"``, ``"positive semidefinite"``, ``"negative
        definite"``, ``"negative semidefinite"``, ``"indefinite"`` or ``"not symmetric"``.
    eigenvalues : ndarray, shape (n,)
        Of the symmetric part, ascending; those within the tolerance of zero are zero.
    minimizers, maximizers : tuple of ExtremalFamily
        One family, or two that tie; empty where nothing is known.
    notes : tuple of str
        What else there is to say.
    """

    D: np.ndarray
    matrix_class: str
    eigenvalues: np.ndarray
    minimizers: tuple[ExtremalFamily, ...]
    maximizers: tuple[ExtremalFamily, ...]
    notes: tuple[str, ...] = ()

    @property
    def minimum_log_energy(self) -> float | None:
        """Logarithm of the minimal energy, None where it is not known."""
        return self.minimizers[0].log_energy if self.minimizers else None

    @property
    def maximum_log_energy(self) -> float | None:
        """Logarithm of the maximal energy, None where it is not known."""
        return self.maximizers[0].log_energy if self.maximizers else None

    @property
    def minimum_energy(self) -> float | None:
        """The minimal energy, None where it is not known."""
        return _exp(self.minimum_log_energy)

    @property
    def maximum_energy(self) -> float | None:
        """The maximal energy, None where it is not known; infinite beyond float64."""
        return _exp(self.maximum_log_energy)

    def describe(self) -> str:
        """All statements as text."""
        part = "of the symmetric part " if self.matrix_class == "not symmetric" else ""
        values = ", ".join(f"{value:.10g}" for value in self.eigenvalues)
        lines = [f"D is {self.matrix_class}, n = {len(self.D)}; eigenvalues {part}{values}"]
        for title, families in (("Minimisers", self.minimizers), ("Maximisers", self.maximizers)):
            lines.append(title)
            for family in families:
                lines += ["  " + line for line in family.describe().splitlines()]
            if not families:
                lines.append("  not known")
        lines += ["Note: " + note for note in self.notes]
        lines.append("The paper: Burger, Kabri, Korolev, Roith, Weigand (2025).")
        return "\n".join(lines)

    __repr__ = describe

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.describe())}</pre>"


def extremizers(
    D,
    *,
    zero_tolerance: float = 1e-12,
    repeated_tolerance: float = 1e-10,
    precision: str | int = "double",
) -> Extremizers:
    """Minimisers and maximisers of ``E(mu) = int int exp(x.Dy) dmu dmu`` on the unit sphere.

    Parameters
    ----------
    D : array_like, shape (n, n) or (n,)
        Any real matrix, n >= 2; a vector means a diagonal matrix.
    zero_tolerance : float
        Eigenvalues up to this fraction of the largest modulus count as zero.
    repeated_tolerance : float
        Eigenvalues that differ by less than this fraction of the largest modulus count as
        equal, and so do the logarithms of two energies that compete for the maximum.
    precision : "double" or int
        Passed to `exact_minimizer`, which is asked when D is positive definite, n = 2 or 3.

    Returns
    -------
    Extremizers
        ``.minimizers``, ``.maximizers``, ``.minimum_energy``, ``.maximum_energy``, with status
        and source of every statement; `print` shows them.

    Raises
    ------
    MatrixError
        If D is not a finite square matrix with n >= 2.
    InputError
        If a tolerance is not in [0, 0.1].

    Notes
    -----
    Burger, Kabri, Korolev, Roith, Weigand (2025), Table 1, corrected and completed: for
    indefinite D whose largest eigenvalue is not the largest in modulus the table is silent.

    Examples
    --------
    >>> theory = extremizers([-1.0, 0.5])
    >>> theory.matrix_class, theory.maximizers[0].kind, round(theory.maximum_energy, 6)
    ('indefinite', 'dirac', 1.648721)
    >>> extremizers([-1.0, 0.4]).maximizers[0].kind
    'pair'
    """
    D = square_matrix(D)
    for name, value in (("zero", zero_tolerance), ("repeated", repeated_tolerance)):
        if not 0 <= value <= 0.1:
            raise InputError(f"{name}_tolerance must be in [0, 0.1], got {value}")
    eigenvalues, axes = np.linalg.eigh((D + D.T) / 2)
    scale = np.linalg.norm(D, 2)
    eigenvalues[np.abs(eigenvalues) <= zero_tolerance * scale] = 0.0
    spectrum = _Spectrum(eigenvalues, axes, repeated_tolerance * scale)
    if np.abs(D - D.T).max() > SYMMETRY_TOLERANCE * np.abs(D).max():
        return _not_symmetric(D, spectrum)
    low, high = eigenvalues[0], eigenvalues[-1]
    notes: tuple[str, ...] = ()
    if low == high == 0:
        name, lowest = "zero", _everything(spectrum)
        highest = (lowest,)
    elif low > 0:
        name, highest = "positive definite", (_dirac(spectrum, high, "Theorem 3.1"),)
        lowest, notes = _positive_definite(D, spectrum, precision)
    elif low == 0:
        name, highest = "positive semidefinite", (_dirac(spectrum, high, "Theorem 3.1"),)
        lowest = _null_space(spectrum)
    else:
        name = (
            "indefinite" if high > 0 else "negative " + ("semi" if high == 0 else "") + "definite"
        )
        highest = _competition(spectrum) if high > 0 else (_pair(spectrum, "Theorem 3.15"),)
        # Theorem 3.1 wants the largest modulus, which indefinite D may not give
        lowest = _dirac(spectrum, low, "Theorem 3.4" if high > 0 else "Theorems 3.1 and 3.4")
    return Extremizers(D, name, eigenvalues, (lowest,), highest, notes)


@dataclass(frozen=True, eq=False)
class _Spectrum:
    """Eigenvalues, eigenvectors, and the difference up to which eigenvalues count as equal."""

    eigenvalues: np.ndarray
    axes: np.ndarray
    tolerance: float

    def space(self, value: float) -> np.ndarray:
        """Orthonormal basis of the eigenspace, shape (n, k)."""
        if value == 0:
            return self.axes[:, self.eigenvalues == 0]
        return self.axes[:, np.abs(self.eigenvalues - value) <= self.tolerance]


def _dirac(spectrum, value, reference, status="theorem", words=None) -> ExtremalFamily:
    basis = spectrum.space(value)
    which = "largest" if value > 0 else "smallest"
    words = words or (
        f"exactly the Dirac measures delta_z at unit eigenvectors z of the {which} eigenvalue "
        f"{value:.10g}{_multiplicity(basis)}; no mixtures"
    )
    measures = tuple(Measure([sign * z]) for z in basis.T for sign in (1, -1))
    return ExtremalFamily(
        "dirac", words, basis, measures, None, float(value), status, f"the paper, {reference}"
    )


def _pair(spectrum, reference, status="theorem") -> ExtremalFamily:
    value = spectrum.eigenvalues[0]
    basis = spectrum.space(value)
    words = (
        "exactly the antipodal pairs (delta_z + delta_-z)/2 at unit eigenvectors z of the "
        f"smallest eigenvalue {value:.10g}{_multiplicity(basis)}"
    )
    measures = tuple(two_point_state(z) for z in basis.T)
    return ExtremalFamily(
        "pair", words, basis, measures, None, log_cosh(value), status, f"the paper, {reference}"
    )


def _multiplicity(basis) -> str:
    return "" if basis.shape[1] == 1 else f", of multiplicity {basis.shape[1]}"


def _null_space(spectrum) -> ExtremalFamily:
    basis = spectrum.space(0.0)
    words = (
        f"exactly the measures mu with mu(N) = 1, N the null space of D, dim N = {basis.shape[1]}"
    )
    ends = np.concatenate([basis.T, -basis.T])
    measures = (*(Measure([z]) for z in ends), Measure(ends))
    return ExtremalFamily(
        "null space", words, basis, measures, None, 0.0, "theorem", "the paper, Theorem 3.4"
    )


def _everything(spectrum) -> ExtremalFamily:
    ends = np.concatenate([spectrum.axes.T, -spectrum.axes.T])
    measures = (Measure(ends[:1]), Measure(ends))
    return ExtremalFamily(
        "all", "every probability measure: the kernel is 1", spectrum.axes, measures, uniform(),
        0.0, "theorem", "the paper, Theorem 3.4"
    )  # fmt: skip


def _competition(spectrum) -> tuple[ExtremalFamily, ...]:
    """Maximisers for indefinite D: a Dirac measure against an antipodal pair."""
    a, b = spectrum.eigenvalues[-1], -spectrum.eigenvalues[0]
    if a >= b:
        return (_dirac(spectrum, a, "Theorem 3.1"),)
    silent = "Remark 3.5 and Table 1, silent where the largest modulus is that of -b"
    single = _dirac(spectrum, a, f"{silent}; e^a >= cosh b", "new")
    pair = _pair(spectrum, f"{silent}; e^a <= cosh b", "new")
    lead = a - log_cosh(b)
    if abs(lead) <= spectrum.tolerance:
        return single, pair
    return (single,) if lead > 0 else (pair,)


def _positive_definite(D, spectrum, precision) -> tuple[ExtremalFamily, tuple[str, ...]]:
    values, n = spectrum.eigenvalues, len(D)
    if values[-1] - values[0] <= spectrum.tolerance:
        log_energy = log_zonal_mean(float(values.mean()), n)
        return ExtremalFamily(
            "uniform", "only the uniform distribution", spectrum.axes, (), uniform(), log_energy,
            "theorem", "the paper, Proposition 3.9"
        ), ()  # fmt: skip
    words = "a unique measure, invariant under every orthogonal Q with QD = DQ"
    known = "the paper, Lemma 3.6 and Corollary 3.8 (unique, symmetric about every eigenvector)"
    bounds = f"1 < min E < cosh({values[0]:.6g}) = {_exp(log_cosh(values[0])):.10g}"
    reason = "closed expansions exist for n = 2 and 3 only"
    if n in (2, 3):
        try:
            density = exact_minimizer(D, precision=precision)
        except ConvergenceError as error:
            reason = str(error)
        else:
            words += f"; its density is computed (degree {density.degree}, tail {density.tail:.1e}"
            words += f", min density {density.minimum:.6g})"
            support = "Full support is a conjecture of the paper; the computed density is positive."
            return ExtremalFamily(
                "density", words, spectrum.axes, (), density, density.log_energy, "new",
                f"{known}; the density itself is new"
            ), (support, bounds)  # fmt: skip
    family = ExtremalFamily(
        "density",
        f"{words}; not computed: {reason}",
        spectrum.axes,
        (),
        None,
        None,
        "theorem",
        known,
    )
    return family, ("Full support is a conjecture of the paper.", bounds)


def _not_symmetric(D, spectrum) -> Extremizers:
    """With S the symmetric part and A the rest, E is ``int int exp(x.Sy) cosh(x.Ay)``."""
    low, high = spectrum.eigenvalues[0], spectrum.eigenvalues[-1]
    notes = [
        "with S = (D + D^T)/2 and A = D - S: E(mu) = int int exp(x.Sy) cosh(x.Ay) dmu dmu, at "
        "least the energy for S, and equal to it for delta_z and (delta_z + delta_-z)/2",
        "the attention flow with V = D or V = -D is no gradient flow of E: there is no energy "
        "principle, and its long-time limits need not be extrema of E",
    ]
    lowest, highest = (), ()
    reference = "Theorem 3.4, applied to S"
    if low < 0:
        lowest = (_dirac(spectrum, low, reference, "new"),)
    elif low == 0:
        words = (
            "the Dirac measures delta_z at unit z in the null space N of S, and exactly those "
            "mu with mu(N) = 1 and x.Ay = 0 for mu-almost all x and y"
        )
        lowest = (_dirac(spectrum, low, reference, "new", words),)
    else:
        notes.append("S is positive definite: 1 < min E <= cosh(lambda_min(S)), no more is known")
    norm = np.linalg.norm(D, 2)
    if norm - high <= spectrum.tolerance:
        highest = (_dirac(spectrum, high, "Theorem 3.1, with |D| for the modulus", "new"),)
    else:
        notes.append(f"max E <= exp(|D|), |D| = {norm:.10g} the largest singular value")
    return Extremizers(D, "not symmetric", spectrum.eigenvalues, lowest, highest, tuple(notes))


def _exp(log_value: float | None) -> float | None:
    if log_value is None:
        return None
    with np.errstate(over="ignore"):
        return float(np.exp(log_value))
