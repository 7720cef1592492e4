"""The exact minimiser: published values, constant potential, symmetries, honest failures."""

import sys

import numpy as np
import pytest
from scipy.special import ive, sph_harm_y
from scipy.stats import ortho_group

from meanfield.equilibria.exact import exact_minimizer
from meanfield.equilibria.exact_circle import (
    cosine_solution,
    cosine_solution_fixed,
    log_bessel,
    log_energy_matrix,
    mathieu_vectors,
)
from meanfield.equilibria.exact_sphere import harmonics, modes, powers, sphere_solution
from meanfield.equilibria.graded import Double, Fixed
from meanfield.errors import ConvergenceError, InputError, MatrixError, PointsError


def random_points(count, n, seed=0):
    x = np.random.default_rng(seed).normal(size=(count, n))
    return x / np.linalg.norm(x, axis=1)[:, None]


def rule(n):
    """Points and weights that integrate minimiser times kernel to round-off."""
    if n == 2:
        t = 2 * np.pi * np.arange(512) / 512
        return np.column_stack([np.cos(t), np.sin(t)]), np.full(512, 1 / 512)
    heights, weights = np.polynomial.legendre.leggauss(90)
    phi = 2 * np.pi * np.arange(90) / 90
    z, phi = (a.ravel() for a in np.meshgrid(heights, phi, indexing="ij"))
    u = np.sqrt(1 - z**2)
    points = np.column_stack([u * np.cos(phi), u * np.sin(phi), z])
    return points, np.repeat(weights, 90) / 180


@pytest.mark.parametrize(
    ("D", "energy", "tolerance"),
    [
        ([1, 1.1], 1.293037275190668, 2e-15),
        ([1, 2], 1.438195706936078, 2e-15),
        ([5, 10], 63.41940635523036, 1e-14),
        ([1, 1, 1.5], 1.217166726663185, 3e-15),
        ([1, 2, 3], 1.403663385753, 3e-13),
    ],
)
def test_published_energies(D, energy, tolerance):
    assert exact_minimizer(D).energy == pytest.approx(energy, rel=tolerance)


def test_published_coefficients():
    near = exact_minimizer([1, 1.1])
    assert near.coefficients[1] == pytest.approx(0.198481812055, abs=1e-12)
    assert near.coefficients[2] == pytest.approx(0.0102087230, abs=1e-10)
    far = exact_minimizer([1, 2])
    assert far.coefficients[1] == pytest.approx(1.2578506014, abs=1e-10)
    assert far.coefficients[2] == pytest.approx(0.5025236032, abs=1e-10)
    t = np.linspace(0, np.pi, 2001)
    values = far(np.column_stack([np.cos(t), np.sin(t)]))
    assert values.min() == pytest.approx(0.110553808, abs=1e-9)
    assert far.minimum == pytest.approx(values.min(), abs=1e-12)


@pytest.mark.parametrize(
    ("D", "tolerance"),
    [
        ([1, 1.1], 1e-14),
        ([1, 2], 1e-14),
        ([1, 5], 5e-14),
        ([5, 10], 5e-13),
        ([1, 1, 1.5], 5e-14),
        ([1, 2, 3], 1e-13),
        ([5, 10, 15], 1e-11),
    ],
)
def test_potential_is_constant_at_points_not_used(D, tolerance):
    minimizer = exact_minimizer(D)
    x = random_points(10_000, len(D))
    points, weights = rule(len(D))
    masses = weights * minimizer(points)
    assert masses.sum() == pytest.approx(1, abs=3e-14)
    D = np.diag(D)
    Z = np.concatenate([np.exp(part @ D @ points.T) @ masses for part in np.split(x, 10)])
    assert np.abs(Z / minimizer.energy - 1).max() < tolerance
    assert np.abs(minimizer.potential(x) / minimizer.energy - 1).max() < tolerance


@pytest.mark.parametrize("values", [[1.0, 2.0], [1.0, 1.3, 1.7], [2.0, 2.0, 3.0]])
def test_rotated_matrix_gives_rotated_density(values):
    n = len(values)
    x = random_points(200, n)
    plain = exact_minimizer(values)
    for seed in range(3):
        Q = ortho_group.rvs(n, random_state=seed)
        rotated = exact_minimizer(Q @ np.diag(values) @ Q.T)
        assert rotated.energy == pytest.approx(plain.energy, rel=1e-13)
        np.testing.assert_allclose(rotated(x @ Q.T), plain(x), atol=1e-9)
    order = np.arange(n)[::-1]
    np.testing.assert_allclose(
        exact_minimizer(np.array(values)[order])(x[:, order]), plain(x), atol=1e-11
    )


@pytest.mark.parametrize("n", [2, 3])
def test_multiple_of_the_identity_is_uniform(n):
    minimizer = exact_minimizer(3.0 * np.eye(n))
    expected = {2: ive(0, 3.0) * np.exp(3.0), 3: np.sinh(3.0) / 3.0}[n]
    assert minimizer.energy == pytest.approx(expected, rel=1e-14)
    np.testing.assert_array_equal(minimizer(random_points(5, n)), 1.0)
    nearly = exact_minimizer(3.0 + 1e-10 * np.arange(n))
    assert np.abs(nearly(random_points(50, n)) - 1).max() < 1e-9


def test_limit_of_small_matrices():
    """Density 1 + 4 sum rho^j / (1 + rho^2j) cos 2jt with rho = (l2 - l1)/(l2 + l1)."""
    rho, j = 1 / 3, np.arange(1, 30)
    expected = 4 * rho**j / (1 + rho ** (2 * j))
    for scale in (1e-6, 1e-200):
        found = exact_minimizer([scale, 2 * scale]).coefficients[1:30]
        np.testing.assert_allclose(found, expected, atol=1e-11)
    small = exact_minimizer([1e-200, 1.1e-200, 1.2e-200])
    x = random_points(100, 3)
    np.testing.assert_allclose(small(x), exact_minimizer([1e-6, 1.1e-6, 1.2e-6])(x), atol=1e-10)


@pytest.mark.parametrize("D", [[1, 30], [100, 300], [1, 1, 5], [1, 2, 9], [20, 40, 60], [1e-9, 1]])
def test_unresolved_minimisers_raise(D):
    with pytest.raises(ConvergenceError, match="out of reach in double precision"):
        exact_minimizer(D)


@pytest.mark.parametrize("D", [[100, 300], [20, 40, 60]])
def test_cancellation_is_named_with_the_digits_it_takes(D):
    with pytest.raises(ConvergenceError, match=r"cancellation leaves an error of .* precision="):
        exact_minimizer(D)


def test_low_degree_raises_and_sufficient_degree_is_used():
    with pytest.raises(ConvergenceError, match="degree 8 the last coefficients"):
        exact_minimizer([1, 2], degree=9)
    assert exact_minimizer([1, 2], degree=60).degree == 60
    fixed = exact_minimizer([1, 1.3, 1.7], degree=30)
    assert fixed.degree == 30
    assert len(fixed.coefficients) == len(fixed.modes) == 136
    assert fixed.energy == pytest.approx(exact_minimizer([1, 1.3, 1.7]).energy, rel=1e-13)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([[1, 1], [0, 1]],), MatrixError, "symmetric"),
        (([1, -1],), MatrixError, "positive definite"),
        (([1, 0, 2],), MatrixError, "positive definite"),
        (([1, 2, 3, 4],), MatrixError, "n = 2 and 3"),
        (([1, np.nan],), MatrixError, "NaN"),
        (([1, 2], -2), InputError, "degree"),
        (([1, 2], 2.5), InputError, "degree"),
        (([1, 2], None, 8), InputError, "precision"),
        (([1, 2], None, "quad"), InputError, "precision"),
    ],
)
def test_bad_input(arguments, error, message):
    with pytest.raises(error, match=message):
        exact_minimizer(*arguments)


def test_points_must_fit():
    with pytest.raises(PointsError, match="R\\^2"):
        exact_minimizer([1, 2])(random_points(3, 3))
    with pytest.raises(PointsError, match="unit sphere"):
        exact_minimizer([1, 2])([[2.0, 0.0]])


def test_many_points_in_blocks():
    minimizer = exact_minimizer([1, 1, 1.5])
    x = random_points(9000, 3)
    np.testing.assert_array_equal(minimizer(x)[8000:], minimizer(x[8000:]))


class TestExtendedPrecision:
    def test_agrees_with_double_where_double_is_right(self):
        for l1, l2 in ((1.0, 2.0), (50.0, 100.0)):
            a, log_energy, error = cosine_solution(l1, l2, 90)
            solution, reference, _ = cosine_solution_fixed(l1, l2, 90, 60, True)
            np.testing.assert_allclose(a[:70], solution.coefficients[:70], atol=3e-14)
            assert error < 1e-14
            assert log_energy == pytest.approx(reference, rel=1e-14)

    def test_sphere_agrees_with_double(self):
        values = [1.0, 1.3, 1.7]
        fixed, log_energy, minimum = sphere_solution(values, 24, Fixed(160), False)
        double, log_double, minimum_double = sphere_solution(values, 24, Double(), False)
        found = Fixed(160).to_float(fixed.coefficients)
        np.testing.assert_allclose(found, double.coefficients, atol=1e-11)
        assert log_energy == pytest.approx(log_double, rel=1e-13)
        assert minimum == pytest.approx(minimum_double, abs=1e-10)

    def test_more_digits_reach_finer_degrees(self):
        double = exact_minimizer([1, 1.2, 1.6])
        fixed = exact_minimizer([1, 1.2, 1.6], degree=48, precision=16)
        assert fixed.tail < 0.1 * double.tail
        assert fixed.energy == pytest.approx(double.energy, rel=1e-13)
        x = random_points(50, 3)
        assert np.abs(fixed(x) - double(x)).max() < 20 * double.tail

    def test_small_minimum(self):
        double, fixed = exact_minimizer([1, 8]), exact_minimizer([1, 8], degree=280, precision=24)
        assert fixed.minimum == pytest.approx(3.26290e-8, rel=1e-5)
        assert double.minimum == pytest.approx(fixed.minimum, abs=3e-14)

    def test_leaves_the_global_precision_alone(self):
        import mpmath

        before = mpmath.mp.prec
        exact_minimizer([1, 1.5], precision=30)
        assert mpmath.mp.prec == before

    def test_says_what_to_install(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "mpmath", None)
        with pytest.raises(InputError, match=r"meanfield\[precision\]"):
            exact_minimizer([1, 2], precision=30)


class TestParts:
    def test_harmonics_against_scipy_with_poles(self):
        x = np.concatenate([random_points(50, 3), np.eye(3), -np.eye(3)])
        degree = 12
        found = harmonics(degree, x[:, 2], powers(x[:, 0], x[:, 1], degree, Double()), Double())
        theta, phi = np.arccos(x[:, 2]), np.arctan2(x[:, 1], x[:, 0])
        for (k, m), values in zip(modes(degree), found, strict=True):
            factor = np.sqrt(4 * np.pi) * (np.sqrt(2) if m else 1)
            expected = factor * sph_harm_y(k, m, theta, phi).real
            np.testing.assert_allclose(values, expected, atol=2e-13)

    def test_bessel_logarithms(self):
        for x in (0.3, 7.0, 150.0):
            expected = np.log(ive(np.arange(60), x)) + x
            np.testing.assert_allclose(log_bessel(x, 59), expected, rtol=1e-13, atol=1e-12)

    @pytest.mark.parametrize(("s", "d"), [(1.5, 0.5), (7.5, 2.5)])
    def test_mathieu_functions_diagonalise_the_energy(self, s, d):
        sign, log_size = mathieu_vectors(s * d, 60)
        psi = (sign * np.exp(log_size))[:12]
        np.testing.assert_allclose(psi @ psi.T, np.eye(12), atol=1e-13)
        B = np.exp(log_energy_matrix(s, d, 60))
        image = psi @ B
        kappa = (image * psi).sum(axis=1)
        assert np.abs(image - kappa[:, None] * psi).max() < 1e-14 * kappa.max()
        assert (np.diff(kappa[:8]) < 0).all()

    @pytest.mark.parametrize("arithmetic", [Double(), Fixed(200)])
    def test_solution_of_a_graded_system(self, arithmetic):
        rng = np.random.default_rng(0)
        root = np.tril(rng.normal(size=(9, 9))) * 0.3 + 2 * np.eye(9)
        scale = 10.0 ** (-2 * np.arange(9))
        B = root @ root.T * scale[:, None] * scale
        lower = np.tril(B / B.diagonal()[:, None])
        if isinstance(arithmetic, Fixed):
            lower, diagonal = arithmetic.number(lower), arithmetic.number(B.diagonal() * 1e40)
        else:
            diagonal = np.log(B.diagonal())
        solution = arithmetic.solve(lower.copy(), diagonal, [0, 2, 5, 9], cut=False)
        scaled = np.linalg.solve(root @ root.T, np.eye(9)[0])
        expected = scaled / scale / scaled[0]
        found = arithmetic.to_float(solution.coefficients)
        np.testing.assert_allclose(found, expected, rtol=1e-11)
        assert solution.ratio == pytest.approx(1 / (scaled[0] * B[0, 0]), rel=1e-12)
        assert solution.tail == pytest.approx(np.linalg.norm(expected[5:]), rel=1e-10)
        # these coefficients grow, so the cut keeps the first block only
        cut = arithmetic.solve(lower.copy(), diagonal, [0, 2, 5, 9])
        assert cut.blocks == 1
        assert arithmetic.to_float(cut.coefficients)[1] == pytest.approx(-B[1, 0] / B[1, 1])

    def test_indefinite_systems_are_refused(self):
        lower = np.array([[1.0, 0.0], [2.0, 1.0]])
        with pytest.raises(ConvergenceError, match="not positive definite"):
            Double().solve(lower, np.zeros(2), [0, 1, 2], cut=False)
        fixed = Fixed(100)
        with pytest.raises(ConvergenceError, match="raise precision"):
            fixed.solve(fixed.number(lower), fixed.number(np.ones(2)), [0, 1, 2], cut=False)
        assert Double().solve(lower, np.zeros(2), [0, 1, 2]).blocks == 1
