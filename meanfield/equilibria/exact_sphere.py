"""The minimiser on S^2 for D = diag(l1, l2, l3), 0 < l1 <= l2 <= l3, in spherical harmonics.

``u(w) = int exp(w.y) dmu(y) = sum a_lm i_l(|w|) Y_lm(w/|w|)`` must be constant on the ellipsoid
{Dx}; testing with Y_l'm' gives ``B a = c e_0`` with the energy matrix::

    B_{l'm',lm} = int Y_l'm'(x) i_l(|Dx|) Y_lm(Dx/|Dx|) dmu_0(x)

The minimiser is even in every coordinate, so even l and even m >= 0 suffice; the pole is the
eigenvector of l3, which makes the matrix closest to diagonal within a degree. Quadrature gives
the entries accurately relative to the largest value of ``i_l(|Dx|)``; those with l' <= l are
therefore computed and the others follow by symmetry. The functions take an arithmetic, `Double`
or `Fixed`.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from meanfield.equilibria.graded import Solution

GRID = 33  # points a side of the octant grid on which the density must be positive


def modes(degree: int) -> np.ndarray:
    """Pairs (l, m) of even degree and even order, shape ((degree/2+1)(degree/2+2)/2, 2).

    Examples
    --------
    >>> modes(2).tolist()
    [[0, 0], [2, 0], [2, 2]]
    """
    return np.array([(k, m) for k in range(0, degree + 1, 2) for m in range(0, k + 1, 2)])


def block_starts(degree: int) -> list[int]:
    """Index of the first mode of each even degree, and the number of modes at the end."""
    return [half * (half + 1) // 2 for half in range(degree // 2 + 2)]


def harmonics(degree: int, height, sectoral, arithmetic) -> np.ndarray:
    """The functions Y_lm of `modes`, orthonormal with respect to the uniform probability measure.

    Parameters
    ----------
    degree : int
        Even.
    height : ndarray, shape (k,)
        The coordinate along the pole.
    sectoral : ndarray, shape (degree/2 + 1, k)
        ``Re (x + iy)^m`` for m = 0, 2, ...; with ``(x^2 + y^2)^(m/2)`` instead the result lacks
        the factor cos(m phi).
    arithmetic : Double or Fixed

    Returns
    -------
    ndarray, shape (modes, k)

    Examples
    --------
    >>> from meanfield.equilibria.graded import Double
    >>> harmonics(2, np.array([1.0]), np.array([[1.0], [0.0]]), Double())[:, 0].round(6).tolist()
    [1.0, 2.236068, 0.0]
    """
    times, root = arithmetic.times, arithmetic.root
    result = np.empty((block_starts(degree)[-1], len(height)), dtype=height.dtype)
    norm = arithmetic.number(1.0)
    for m in range(0, degree + 1, 2):
        before, current = 0 * height, times(norm, sectoral[m // 2])
        result[_index(m, m)] = current
        for k in range(m + 1, degree + 1):
            # P_k = step z P_{k-1} - back P_{k-2}, normalised associated Legendre functions
            step = root((2 * k - 1) * (2 * k + 1), (k - m) * (k + m))
            back = root((2 * k + 1) * (k + m - 1) * (k - m - 1), (k - m) * (k + m) * abs(2 * k - 3))
            before, current = current, times(step, times(height, current)) - times(back, before)
            if k % 2 == 0:
                result[_index(k, m)] = current
        cosine = 2 if m == 0 else 1  # the square of the factor sqrt(2) that cosines have
        norm = times(norm, root((2 * m + 3) * (2 * m + 5) * cosine, (2 * m + 2) * (2 * m + 4)))
    return result


def _index(degree: int, order: int) -> int:
    return degree * (degree + 2) // 8 + order // 2


def powers(real, imaginary, degree: int, arithmetic) -> np.ndarray:
    """``Re (real + i imaginary)^m`` for m = 0, 2, ..., degree, shape (degree/2 + 1, k)."""
    times = arithmetic.times
    square = times(real, real) - times(imaginary, imaginary), 2 * times(real, imaginary)
    a, b = 0 * real + arithmetic.number(1.0), 0 * real
    result = [a]
    for _ in range(degree // 2):
        a, b = (
            times(a, square[0]) - times(b, square[1]),
            times(a, square[1]) + times(b, square[0]),
        )
        result.append(a)
    return np.array(result)


def sphere_solution(
    eigenvalues, degree: int, arithmetic, cut: bool
) -> tuple[Solution, float, float]:
    """Solve on S^2 up to an even degree.

    Parameters
    ----------
    eigenvalues : sequence of 3 floats, ascending, > 0
    degree : int
    arithmetic : Double or Fixed
    cut : bool
        Cut at the degree whose coefficients are smallest, or keep all.

    Returns
    -------
    solution : Solution
        Coefficients of the density in `modes`.
    log_energy : float
    minimum : float
        Smallest value of the density on a grid of an octant with the axes.

    Examples
    --------
    >>> from meanfield.equilibria.graded import Double
    >>> _, log_energy, _ = sphere_solution([1.0, 1.0, 1.5], 16, Double(), True)
    >>> round(float(np.exp(log_energy)), 12)
    1.217166726663
    """
    lower, steps = _energy_matrix(eigenvalues, degree, arithmetic)
    starts = block_starts(degree)
    entries = lower.diagonal().copy()
    lost = np.flatnonzero(entries <= 0)  # round-off larger than the entry
    if lost.size:
        starts = [start for start in starts if start <= lost[0]]
        lower, entries = lower[: starts[-1], : starts[-1]], entries[: starts[-1]]
    diagonal = arithmetic.graded_diagonal(entries, steps, np.diff(starts))
    lower = arithmetic.divide(np.tril(lower), entries[:, None])
    solution = arithmetic.solve(lower, diagonal, starts, cut)
    largest = eigenvalues[-1]
    log_first = largest + np.log(-np.expm1(-2 * largest) / (2 * largest))  # of i_0(l3)
    log_energy = log_first + np.log(arithmetic.to_float(entries[0]) * solution.ratio)
    return solution, float(log_energy), _minimum(solution, arithmetic)


def _energy_matrix(eigenvalues, degree: int, arithmetic):
    """Lower triangle of B, each row divided by ``i_l(l3)``, and the ratios of these factors."""
    times = arithmetic.times
    spread = eigenvalues[-1] - eigenvalues[0]  # exp(|Dx|) has features of width 1/sqrt(spread)
    count = degree // 2 + 12 + int(6 * np.sqrt(spread))  # nodes on half a meridian, a quarter turn
    z, weights = arithmetic.gauss_half(count)
    cosine, sine = arithmetic.quarter_turn(count)
    weights = times(weights, arithmetic.root(1, count**2))  # and 1/count for each angle
    u = arithmetic.sqrt(arithmetic.number(1.0) - times(z, z))
    tests = times(harmonics(degree, z, powers(u, 0 * u, degree, arithmetic), arithmetic), weights)
    angular = powers(cosine, sine, degree, arithmetic)
    scales = [arithmetic.number(value) for value in eigenvalues]
    y = [
        times(scales[0], times(u[:, None], cosine)).ravel(),
        times(scales[1], times(u[:, None], sine)).ravel(),
        np.repeat(times(scales[2], z), count),
    ]
    values, radial, steps = _ellipsoid_functions(y, scales[2], degree, arithmetic)
    starts = block_starts(degree)
    lower = np.zeros((starts[-1], starts[-1]), dtype=values.dtype)
    for half, (a, b) in enumerate(pairwise(starts)):
        columns = times(values[a:b], radial[half]).reshape(b - a, count, count)
        moments = arithmetic.product(columns, angular[: half + 1].T)
        for m in range(half + 1):  # against cos(2 m phi): rows of all degrees 2m, ..., 2 half
            rows = [_index(2 * k, 2 * m) for k in range(m, half + 1)]
            lower[a:b, rows] = arithmetic.product(moments[:, :, m], tests[rows].T)
    return lower, steps


def _ellipsoid_functions(y, largest, degree: int, arithmetic):
    """At points y = Dx and with R the largest eigenvalue: Y_lm(y/|y|), the radial factors
    ``i_l(|y|)/i_l(R)``, and the ratios ``i_{l+2}(R)/i_l(R)``, for even l.
    """
    times, divide, one = arithmetic.times, arithmetic.divide, arithmetic.number(1.0)
    y1, y2, y3 = y
    radius = arithmetic.sqrt(times(y1, y1) + times(y2, y2) + times(y3, y3))
    inverse = divide(one, radius)
    sectoral = powers(times(y1, inverse), times(y2, inverse), degree, arithmetic)
    values = harmonics(degree, times(y3, inverse), sectoral, arithmetic)
    # i_0(r)/i_0(R) = R sinh r / (r sinh R), then ratios i_{l+1}/i_l by continued fractions
    grown = times(one + arithmetic.expm1(radius - largest), arithmetic.expm1(-2 * radius))
    current = times(divide(grown, arithmetic.expm1(-2 * largest)), times(largest, inverse))
    inverses = np.append(inverse, divide(one, largest))
    ratio = 0 * inverses
    ratios = {}
    for k in range(degree + 40 + arithmetic.bits + int(arithmetic.to_float(largest)), -1, -1):
        ratio = divide(one, (2 * k + 3) * inverses + ratio)
        if k < degree:
            ratios[k] = ratio
    radial, steps = [current], []
    for k in range(0, degree, 2):
        pair = times(ratios[k], ratios[k + 1])
        current = times(current, divide(pair[:-1], pair[-1]))
        radial.append(current)
        steps.append(pair[-1])
    return values, radial, steps


def _minimum(solution: Solution, arithmetic) -> float:
    degree = 2 * (solution.blocks - 1)
    cosine, sine = arithmetic.quarter_turn(GRID, closed=True)
    height, side = np.repeat(cosine, GRID), np.repeat(sine, GRID)
    turn = [arithmetic.times(side, np.tile(value, GRID)) for value in (cosine, sine)]
    values = harmonics(degree, height, powers(*turn, degree, arithmetic), arithmetic)
    density = arithmetic.times(solution.coefficients[:, None], values).sum(axis=0)
    return float(arithmetic.to_float(density).min())
