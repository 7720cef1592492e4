"""The minimiser on S^1 for D = diag(l1, l2), 0 < l1 <= l2, as a cosine series.

With s = (l1 + l2)/2, d = (l2 - l1)/2 and the angle t from the eigenvector of l2, the energy
matrix in the basis 1, sqrt(2) cos(2pt) is positive and in closed form, up to the factor
sqrt(2)/2 for each index that is zero::

    B_pq = I_{p+q}(s) I_{|p-q|}(d) + I_{|p-q|}(s) I_{p+q}(d)

and the minimiser solves ``B a = c e_0``. Solving this directly costs about half the digits at
l2 = 2 l1 and all of them at l2 = 5 l1: the fine modes cancel. In double precision we use
instead that the kernel commutes with the Mathieu operator ``d^2/dt^2 + |Dx|^2`` (Laplacians of
exp(x.Dy) in x and in y differ by ``|Dy|^2 - |Dx|^2``): the eigenvectors of that tridiagonal
matrix diagonalise B, every eigenvalue of B follows from one row without cancellation, and
``1/c`` is a sum of positive terms. With mpmath the graded system is solved as it stands.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.linalg import eigh_tridiagonal
from scipy.special import ive

from meanfield.equilibria.graded import Fixed, Solution

EPSILON = float(np.finfo(float).eps)
MAX_MODES = 300  # cosines; more are needed beyond ratios of about 15


def modes_needed(l1: float, l2: float, digits: float) -> int:
    """Number of cosines for a tail of ``10**-digits``: decay ((l2-l1)/(l2+l1)) per mode."""
    s, d = (l1 + l2) / 2, (l2 - l1) / 2
    decay = np.log(s / d) if d > 0 else np.inf
    return int(min(20 + 2.3 * digits / decay + np.sqrt(s * d), MAX_MODES))


def cosine_solution(l1: float, l2: float, count: int) -> tuple[np.ndarray, float, float]:
    """Coefficients in double precision through the Mathieu functions.

    Parameters
    ----------
    l1, l2 : float
        Eigenvalues, 0 < l1 < l2.
    count : int
        Coefficients ``p = 0, ..., count``.

    Returns
    -------
    coefficients : ndarray, shape (count + 1,)
        Of cos(2pt), t the angle from the eigenvector of l1, the first one 1.
    log_energy : float
    error : float
        Bound on the round-off of the coefficients from cancellation in the eigenvalues.

    Examples
    --------
    >>> a, log_energy, _ = cosine_solution(1.0, 2.0, 30)
    >>> [round(float(value), 10) for value in (a[1], a[2], np.exp(log_energy))]
    [1.2578506014, 0.5025236032, 1.4381957069]
    """
    s, d = (l1 + l2) / 2, (l2 - l1) / 2
    width = count + 20 + int(2 * d)  # columns beyond the last row that the sums need
    sign, log_psi = mathieu_vectors(s * d, width)
    log_B = log_energy_matrix(s, d, width)
    log_kappa = np.empty(count + 1)
    noise = np.empty(count + 1)
    for r in range(count + 1):
        terms = log_B[: count + 1] + log_psi[r]
        top = terms.max(axis=1)
        terms = np.exp(terms - top[:, None])
        value, size = terms @ sign[r], terms.sum(axis=1)
        kept = np.abs(value) / size
        # a row whose sum hardly cancels, and among those the one with the smallest logarithms
        row = np.where(kept > 0.3 * kept.max(), log_psi[r, : count + 1], -np.inf).argmax()
        noise[r] = EPSILON * size[row] / abs(value[row])
        log_kappa[r] = top[row] + np.log(abs(value[row])) - log_psi[r, row]
    log_weight = log_psi[: count + 1, 0] - log_kappa
    log_scale = (log_weight + log_psi[: count + 1, 0]).max()
    terms = np.exp(log_psi[: count + 1, : count + 1] + log_weight[:, None] - log_scale)
    a = (sign[: count + 1, : count + 1] * sign[: count + 1, :1] * terms).sum(axis=0)
    error = np.sqrt(2) * (terms * noise[:, None]).sum(axis=0).max() / a[0]
    log_energy = -log_scale - np.log(a[0])
    a = a / a[0] * (-1.0) ** np.arange(count + 1)  # the angle is from l1's axis now
    a[1:] *= np.sqrt(2)
    return a, float(log_energy), float(error)


def mathieu_vectors(coupling: float, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvectors of ``d^2/dt^2 + 2 coupling cos 2t`` on the functions cos(2pt).

    Every component has full relative accuracy, however small: an eigensolver gives it relative
    to the largest component only, so the rest is continued by the three-term recurrence, in
    its stable direction from either end.

    Returns
    -------
    sign, log_size : ndarray, shape (size + 1, size + 1)
        Row r is the eigenvector of the r-th largest eigenvalue.
    """
    p = np.arange(size + 1)
    diagonal = -4.0 * p**2
    coupling_row = np.full(size, float(coupling))
    coupling_row[0] *= np.sqrt(2)
    values, vectors = eigh_tridiagonal(diagonal, coupling_row)
    values, vectors = values[::-1], vectors[:, ::-1].T
    shifted = values[:, None] - diagonal
    ratios_up = np.ones((size + 1, size + 1))  # component q over component q - 1, from q = 0 on
    ratios_down = np.ones((size + 1, size + 1))  # component q - 1 over component q, from the end
    following = np.zeros(size + 1)
    for q in range(size, 0, -1):
        following = _nonzero(shifted[:, q] - following) / coupling_row[q - 1]
        ratios_down[:, q] = following
        following = coupling_row[q - 1] / following
    previous = np.zeros(size + 1)
    for q in range(1, size + 1):
        previous = _nonzero(shifted[:, q - 1] - previous) / coupling_row[q - 1]
        ratios_up[:, q] = previous
        previous = coupling_row[q - 1] / previous
    rows, peak = np.arange(size + 1), np.abs(vectors).argmax(axis=1)
    use_up = np.arange(size + 1) <= peak[:, None]
    steps = np.where(use_up, ratios_up, 1 / ratios_down)
    log_size = np.log(np.abs(steps)).cumsum(axis=1)
    sign = np.sign(steps).cumprod(axis=1)
    log_peak = np.log(np.abs(vectors[rows, peak]))
    return sign, log_size + (log_peak - log_size[rows, peak])[:, None]


def _nonzero(values: np.ndarray) -> np.ndarray:
    """Keep ratios finite where a component happens to vanish."""
    return np.where(values == 0, 1e-290, values)


def log_energy_matrix(s: float, d: float, size: int) -> np.ndarray:
    """Logarithm of the positive matrix B of the module, p, q = 0, ..., size."""
    log_s, log_d = log_bessel(s, 2 * size), log_bessel(d, 2 * size)
    p = np.arange(size + 1)
    total, difference = p[:, None] + p, np.abs(p[:, None] - p)
    log_B = np.logaddexp(log_s[total] + log_d[difference], log_s[difference] + log_d[total])
    log_B[0] -= 0.5 * np.log(2)
    log_B[:, 0] -= 0.5 * np.log(2)
    return log_B


def log_bessel(x: float, size: int) -> np.ndarray:
    """Logarithms of the modified Bessel functions I_0(x), ..., I_size(x), x > 0, any size.

    Examples
    --------
    >>> log_bessel(2.0, 1).round(6).tolist()
    [0.823994, 0.464134]
    """
    ratios = np.empty(size)
    start = size + 40 + int(x)
    ratio = x / (start + np.hypot(start, x))  # asymptotic value of I_{k+1} / I_k
    for k in range(start - 1, -1, -1):
        ratio = 1 / (2 * (k + 1) / x + ratio)
        if k < size:
            ratios[k] = ratio
    return np.concatenate([[0.0], np.log(ratios).cumsum()]) + np.log(ive(0, x)) + x


def cosine_solution_fixed(
    l1: float, l2: float, count: int, digits: int, cut: bool
) -> tuple[Solution, float, float]:
    """The graded system in ``digits`` decimal digits.

    Returns
    -------
    solution : Solution
        Coefficients of cos(2pt), t the angle from the eigenvector of l1, as float64.
    log_energy : float
    minimum : float
        Smallest value of the density on 65 angles of a quarter turn.

    Examples
    --------
    >>> _, log_energy, minimum = cosine_solution_fixed(1.0, 2.0, 20, 30, True)
    >>> round(float(np.exp(log_energy)), 12), round(minimum, 7)
    (1.438195706936, 0.1105538)
    """
    s, d = (l1 + l2) / 2, (l2 - l1) / 2
    # round-off grows from mode to mode, by up to 2 log2(4 d/s) bits: more bits pay for it
    growth = 0.5 + 2 * max(np.log2(4 * d / s), 0.0)
    arithmetic = Fixed(int(3.33 * digits + 32 + count * growth))
    mp = arithmetic.context
    mp_s, mp_d = (mp.mpf(l1) + mp.mpf(l2)) / 2, (mp.mpf(l2) - mp.mpf(l1)) / 2
    bessel_s, bessel_d = _bessel(mp, mp_s, 2 * count), _bessel(mp, mp_d, 2 * count)
    p = np.arange(count + 1)
    total, difference = p[:, None] + p, np.abs(p[:, None] - p)
    B = bessel_s[total] * bessel_d[difference] + bessel_s[difference] * bessel_d[total]
    B[0] /= mp.sqrt(2)
    B[:, 0] /= mp.sqrt(2)
    B = B * (-1) ** difference
    diagonal = B.diagonal()
    lower = np.zeros_like(B)
    rows, columns = np.tril_indices(count + 1)
    lower[rows, columns] = arithmetic.number(B[rows, columns] / diagonal[rows])
    lower[np.triu_indices(count + 1, 1)] = 0
    wide = mp.mpf(2) ** arithmetic.bits / diagonal[-1]
    diagonal_integers = np.array([int(value * wide) for value in diagonal], dtype=object)
    solution = arithmetic.solve(lower, diagonal_integers, list(range(count + 2)), cut)
    log_energy = float(mp.log(diagonal[0] * mp.mpf(solution.ratio)))
    x = arithmetic.number([mp.cos(mp.pi * i / 64) for i in range(65)])
    previous, current = arithmetic.number(1), x  # Chebyshev polynomials: cos(2pt) of cos 2t
    density = solution.coefficients[0] + 0 * x
    for coefficient in solution.coefficients[1:]:
        density += arithmetic.times(arithmetic.times(coefficient, arithmetic.root(2, 1)), current)
        previous, current = current, 2 * arithmetic.times(x, current) - previous
    amplitudes = arithmetic.to_float(solution.coefficients)
    amplitudes[1:] *= np.sqrt(2)
    tail = solution.tail * (np.sqrt(2) if count else 1.0)
    solution = replace(solution, coefficients=amplitudes, tail=tail)
    return solution, log_energy, float(arithmetic.to_float(density).min())


def _bessel(mp, x, size: int) -> np.ndarray:
    """Modified Bessel functions I_0(x), ..., I_size(x) in the precision of the context."""
    ratio = mp.zero
    ratios = []
    for k in range(size + mp.prec + int(x), -1, -1):
        ratio = 1 / (2 * (k + 1) / x + ratio)
        if k < size:
            ratios.append(ratio)
    values = [mp.besseli(0, x)]
    for ratio in reversed(ratios):
        values.append(values[-1] * ratio)
    return np.array(values, dtype=object)
