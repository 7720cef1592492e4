"""`exact_minimizer`: the energy minimiser for positive definite D, to spectral accuracy."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral

import numpy as np
from scipy.special import ive

from meanfield.equilibria.exact_circle import (
    cosine_solution,
    cosine_solution_fixed,
    modes_needed,
)
from meanfield.equilibria.exact_sphere import harmonics, modes, powers, sphere_solution
from meanfield.equilibria.graded import Double, Fixed
from meanfield.errors import ConvergenceError, InputError, MatrixError, PointsError
from meanfield.model.densities import log_zonal_mean
from meanfield.model.interaction import square_matrix
from meanfield.sphere.geometry import unit_points

SYMMETRY_TOLERANCE = 1e-12  # of |D - D^T| against |D|: above round-off, below any real asymmetry
LARGEST_TAIL = 1e-4  # of the last coefficients, for a solution that counts as resolved
NEGATIVE = 1e-12  # of the largest value: below it a negative density is round-off
LARGEST_ERROR = 1e-6  # of the coefficients, from cancellation
SPHERE_ROUND_OFF = 2e-14  # times E(uniform)/min E: what the entries on S^2 lose, as measured
SPHERE_DEGREES = (32, 48, 64)  # tried in double precision; beyond them round-off has long won
LARGEST_FIXED_DEGREE = 80  # chosen by itself with precision=digits; minutes beyond it
FIXED_DIGITS = {2: 20.0, 3: 10.0}  # of the tail that is aimed at with precision=digits
FEASIBLE_DEGREE = {2: 1000, 3: 120}
BLOCK = 4096  # points evaluated at a time
TINY = 1e-7  # largest eigenvalue below which the limit of small D is exact to round-off
UNIFORM = 1e-14  # relative spread of eigenvalues below which the minimiser is uniform


@dataclass(frozen=True, eq=False)
class ExactMinimizer:
    """The minimiser of the energy for positive definite D, a density; see `exact_minimizer`.

    Attributes
    ----------
    D : ndarray, shape (n, n)
    eigenvalues : ndarray, shape (n,)
        Ascending.
    axes : ndarray, shape (n, n)
        Columns are the eigenvectors; the expansion is in the coordinates ``x @ axes``.
    coefficients : ndarray, shape (k,)
        n = 2: of cos(2pt), p = 0, 1, ..., with t the angle from ``axes[:, 0]``. n = 3: of the
        real spherical harmonics in `modes`, orthonormal with respect to the uniform
        probability measure, pole ``axes[:, 2]``, longitude from ``axes[:, 0]``. The first is 1.
    log_energy : float
        Logarithm of the minimal energy, which is also the constant value of log Z.
    degree : int
        Of the expansion.
    tail : float
        Size of the last coefficients: modulus (n = 2), Euclidean norm over the degree (n = 3).
    minimum : float
        The smallest value of the density on a grid, in the precision of the solution.
    precision : "double" or int
        Decimal digits of the arithmetic.
    """

    D: np.ndarray
    eigenvalues: np.ndarray
    axes: np.ndarray
    coefficients: np.ndarray
    log_energy: float
    degree: int
    tail: float
    minimum: float
    precision: str | int = "double"

    @property
    def energy(self) -> float:
        """The minimal energy ``int int exp(x.Dy)``; infinite beyond the range of float64."""
        with np.errstate(over="ignore"):
            return float(np.exp(self.log_energy))

    @property
    def modes(self) -> np.ndarray:
        """Frequency 2p (n = 2), shape (k,); degree and order (n = 3), shape (k, 2)."""
        if len(self.eigenvalues) == 2:
            return 2 * np.arange(len(self.coefficients))
        return modes(self.degree)

    def __call__(self, x) -> np.ndarray:
        """Density relative to the uniform probability measure: shape (m, n) to (m,).

        Its absolute error is about ``tail`` plus 1e-15 times the largest value.
        """
        y = self._coordinates(x)
        if len(self.eigenvalues) == 2:
            cosine = y[:, 0] ** 2 - y[:, 1] ** 2  # cos 2t
            return np.polynomial.chebyshev.chebval(cosine, self.coefficients)
        return _blockwise(lambda block: self.coefficients @ self._angular(block), y)

    def potential(self, x) -> np.ndarray:
        """``Z(x) = int exp(x.Dy) dmu(y)`` from the expansion: shape (m, n) to (m,).

        Constant, equal to the energy, up to an absolute round-off of about
        ``1e-15 exp(lambda_max)``.
        """
        w = self._coordinates(x) * self.eigenvalues
        return _blockwise(self._potential, w)

    def _coordinates(self, x) -> np.ndarray:
        x = unit_points(x)
        if x.shape[1] != len(self.eigenvalues):
            raise PointsError(f"points must lie in R^{len(self.eigenvalues)}, got {x.shape}")
        return x @ self.axes

    def _angular(self, y) -> np.ndarray:
        """Basis functions at unit vectors in the coordinates of the axes, shape (k, m)."""
        if len(self.eigenvalues) == 2:
            return np.cos(np.multiply.outer(self.modes, np.arctan2(y[:, 1], y[:, 0])))
        sectoral = powers(y[:, 0], y[:, 1], self.degree, Double())
        return harmonics(self.degree, y[:, 2], sectoral, Double())

    def _potential(self, w) -> np.ndarray:
        radius = np.linalg.norm(w, axis=1)
        n = len(self.eigenvalues)
        orders = np.unique(self.modes if n == 2 else self.modes[:, 0])
        shift = n / 2 - 1  # I_k on the circle, i_l = sqrt(pi / 2r) I_{l + 1/2} on the sphere
        radial = ive(orders[:, None] + shift, radius) * np.exp(radius)
        if n == 3:
            radial = radial * np.sqrt(np.pi / (2 * radius))
        index = self.modes // 2 if n == 2 else self.modes[:, 0] // 2
        return self.coefficients @ (radial[index] * self._angular(w / radius[:, None]))

    def parameters(self) -> dict:
        """What rebuilds the density."""
        return {
            "kind": "exact",
            "D": self.D.tolist(),
            "degree": self.degree,
            "precision": self.precision,
        }

    def __repr__(self) -> str:
        values = ", ".join(f"{value:g}" for value in self.eigenvalues)
        return (
            f"ExactMinimizer for eigenvalues {values}: E = {self.energy:.15g}, "
            f"degree {self.degree}, tail {self.tail:.1e}, min density {self.minimum:.6g}"
        )


def exact_minimizer(D, degree: int | None = None, precision: str | int = "double"):
    """The unique energy minimiser for positive definite symmetric D, n = 2 or 3.

    A probability measure whose potential ``Z(x) = int exp(x.Dy) dmu(y)`` is constant on the
    sphere is the minimiser, and Z is the minimal energy. So ``u(w) = int exp(w.y) dmu(y)``,
    which solves ``Laplace u = u`` in R^n, is constant on the ellipsoid ``{Dx}``: the expansion
    of that solution about the origin holds the coefficients of the density.

    Parameters
    ----------
    D : array_like, shape (n, n) or (n,)
        Symmetric positive definite, n = 2 or 3; a vector means a diagonal matrix.
    degree : int, optional
        Of the expansion; odd degrees add nothing. By default it is cut where the coefficients
        are smallest.
    precision : "double" or int
        Decimal digits (>= 16) of the arithmetic, through mpmath (``meanfield[precision]``).
        Double precision resolves eigenvalue ratios up to about 20 on S^1 and 3 on S^2, and
        differences ``lambda_max - lambda_min`` up to about 100 on S^1 and 15 on S^2. With 40
        digits S^2 takes about 20 s at degree 64, and the time grows like ``degree**6``.

    Returns
    -------
    ExactMinimizer
        A callable density; ``.energy``, ``.coefficients``, ``.tail``, ``.degree``.

    Raises
    ------
    MatrixError
        If D is not symmetric and positive definite, or n is neither 2 nor 3.
    InputError
        If degree or precision is out of range, or mpmath is missing.
    ConvergenceError
        If the expansion is not resolved: coefficients that do not fall below 1e-4, or spurious
        negative densities. The message says what is out of reach.

    Notes
    -----
    Not in Burger, Kabri, Korolev, Roith, Weigand (2025), who prove the symmetries of the
    minimiser (Corollary 3.8) and conjecture its full support; no proof of positivity is
    claimed here, but every solution returned is positive up to round-off on a grid. The
    minimum falls quickly with the eigenvalue ratio (diag(1, 30): about 1e-31 of the maximum).

    Examples
    --------
    >>> minimizer = exact_minimizer([1.0, 2.0])
    >>> round(minimizer.energy, 12), round(float(minimizer([[0.0, 1.0]])[0]), 9)
    (1.438195706936, 0.110553808)
    """
    D = symmetric_matrix(D)
    n = len(D)
    if n not in (2, 3):
        raise MatrixError(
            f"the exact minimiser is computed for n = 2 and 3, D has n = {n}: use minimize on "
            "product_sphere, or perturbed_minimizer near a multiple of the identity"
        )
    if degree is not None and (int(degree) != degree or degree < 0):
        raise InputError(f"degree must be an integer >= 0, got {degree}")
    if precision != "double" and not (isinstance(precision, Integral) and precision >= 16):
        raise InputError(f"precision must be 'double' or a number of digits >= 16, got {precision}")
    eigenvalues, axes = np.linalg.eigh(D)
    if eigenvalues[0] <= 0:
        raise MatrixError(
            f"D must be positive definite, its smallest eigenvalue is {eigenvalues[0]:.3g}: "
            "extremizers(D) tells what the minimisers are"
        )
    half = None if degree is None else int(degree) // 2
    if eigenvalues[-1] - eigenvalues[0] <= UNIFORM * eigenvalues[-1]:  # Proposition 3.9
        parts = np.ones(1), log_zonal_mean(float(eigenvalues[-1]), n), 0, 0.0, 1.0
    else:
        solve = _circle if n == 2 else _sphere
        scaled = eigenvalues * max(1.0, TINY / eigenvalues[-1])
        parts = solve(tuple(float(value) for value in scaled), half, precision)
    digits = precision if precision == "double" else int(precision)
    result = ExactMinimizer(D, eigenvalues, axes, *parts, digits)
    _check_resolved(result)
    return result


def symmetric_matrix(D, name: str = "D") -> np.ndarray:
    """Check that a matrix is symmetric up to round-off and return its symmetric part.

    Raises
    ------
    MatrixError
        If it is not square, not finite, or not symmetric.

    Examples
    --------
    >>> symmetric_matrix([1, 2]).tolist()
    [[1.0, 0.0], [0.0, 2.0]]
    """
    D = square_matrix(D, name)
    asymmetry = np.abs(D - D.T).max()
    if asymmetry > SYMMETRY_TOLERANCE * np.abs(D).max():
        raise MatrixError(
            f"{name} must be symmetric, |{name} - {name}^T| reaches {asymmetry:.3g}; "
            f"pass ({name} + {name}.T) / 2 if the symmetric part is meant"
        )
    return (D + D.T) / 2


def _circle(eigenvalues, half, precision):
    """Coefficients, log energy, degree, tail and minimum on S^1."""
    l1, l2 = eigenvalues
    if precision == "double":
        needed = modes_needed(l1, l2, 16)
        count = needed if half is None else half
        a, log_energy, error = cosine_solution(l1, l2, max(count, needed))
        _check_cancellation(eigenvalues, error)
        a = a[: count + 1]
        angles = np.linspace(0, np.pi / 2, 8 * count + 9)
        minimum = np.polynomial.chebyshev.chebval(np.cos(2 * angles), a).min()
        return a, log_energy, 2 * count, abs(float(a[-1])), float(minimum)
    count = modes_needed(l1, l2, FIXED_DIGITS[2]) if half is None else half
    solution, log_energy, minimum = cosine_solution_fixed(l1, l2, count, precision, half is None)
    a = solution.coefficients
    return a, log_energy, 2 * (len(a) - 1), solution.tail, minimum


def _sphere(eigenvalues, half, precision):
    """Coefficients, log energy, degree, tail and minimum on S^2."""
    if precision == "double":
        degrees = SPHERE_DEGREES if half is None else (2 * half,)
        arithmetic = Double()
    else:
        degrees = (_fixed_degree(eigenvalues) if half is None else 2 * half,)
        # round-off grows by less than a bit for each degree
        arithmetic = Fixed(int(3.33 * precision) + 32 + degrees[0])
    best = None
    for degree in degrees:
        found = sphere_solution(eigenvalues, degree, arithmetic, cut=half is None)
        if best is None or found[0].tail < best[0].tail:
            best = found
    solution, log_energy, minimum = best
    if precision == "double":
        _check_cancellation(eigenvalues, SPHERE_ROUND_OFF / solution.ratio)
    coefficients = arithmetic.to_float(solution.coefficients)
    return coefficients, log_energy, 2 * (solution.blocks - 1), solution.tail, minimum


def _check_cancellation(eigenvalues, error: float) -> None:
    if error > LARGEST_ERROR:
        values = ", ".join(f"{value:g}" for value in eigenvalues)
        digits = 60 + int((eigenvalues[-1] - eigenvalues[0]) / np.log(10))
        raise ConvergenceError(
            f"the minimiser for eigenvalues {values} is out of reach in double precision: "
            f"cancellation leaves an error of {error:.1e}; pass precision={digits}"
        )


def _decay(eigenvalues) -> float:
    """Minus the logarithm of the factor (high - low)/(high + low) for each even degree."""
    low, high = eigenvalues[0], eigenvalues[-1]
    return float(np.log((high + low) / max(high - low, UNIFORM * high)))


def _fixed_degree(eigenvalues) -> int:
    degree = 8 + 2 * int(2.3 * FIXED_DIGITS[3] / _decay(eigenvalues))
    return min(degree, LARGEST_FIXED_DEGREE)


def _check_resolved(result: ExactMinimizer) -> None:
    largest = max(float(np.abs(result.coefficients).sum()), 1.0)
    if result.tail <= LARGEST_TAIL and result.minimum >= -NEGATIVE * largest:
        return
    n, decay = len(result.eigenvalues), _decay(result.eigenvalues)
    # for small D on S^1 the minimum is 4 exp(-pi^2 / (2 decay)), Jacobi's dn; and a margin
    digits = np.pi**2 / (2 * decay * np.log(10)) + 4
    degree = 2 * int(digits * np.log(10) / decay) + 2
    advice = f"about {digits:.0f} digits and degree {degree} would be needed"
    if degree <= FEASIBLE_DEGREE[n]:
        advice += f": pass precision={max(40, int(2 * digits))}, degree={degree}"
    else:
        advice = (advice if degree < 1e6 else "no precision will do") + "; take a smaller ratio"
    values = ", ".join(f"{value:g}" for value in result.eigenvalues)
    where = "double precision" if result.precision == "double" else f"{result.precision} digits"
    raise ConvergenceError(
        f"the minimiser for eigenvalues {values} is out of reach in {where}: at degree "
        f"{result.degree} the last coefficients are {result.tail:.1e} and the smallest density "
        f"is {result.minimum:.1e}; {advice}"
    )


def _blockwise(function, points: np.ndarray) -> np.ndarray:
    """Apply a function of (k, n) points in blocks, so that memory stays bounded."""
    starts = range(0, len(points), BLOCK)
    return np.concatenate([function(points[start : start + BLOCK]) for start in starts])
