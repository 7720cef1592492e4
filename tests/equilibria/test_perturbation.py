"""Theorem 4.14 and the second order: constants, slopes, any dimension."""

import numpy as np
import pytest
from scipy.special import roots_gegenbauer
from scipy.stats import ortho_group

from meanfield.equilibria.exact import exact_minimizer
from meanfield.equilibria.perturbation import perturbation_constants, perturbed_minimizer
from meanfield.errors import InputError, MatrixError, PointsError

EPS = np.array([0.04, 0.02, 0.01, 0.005, 0.0025])
CASES = [  # M, base
    ([0.0, 1.0], 1.0),
    ([0.3, 1.0], 3.0),
    ([0.0, 0.0, 1.0], 1.0),
    ([0.3, -1.0, 0.8], 1.0),
    ([0.3, -1.0, 0.8], 4.0),
]


def random_points(count, n):
    x = np.random.default_rng(n).normal(size=(count, n))
    return x / np.linalg.norm(x, axis=1)[:, None]


def tensor_rule(n, count):
    """Gauss rule on S^{n-1}: longitudes times Gegenbauer nodes of each further height."""
    t = 2 * np.pi * (np.arange(2 * count) + 0.5) / (2 * count)
    points, weights = np.column_stack([np.cos(t), np.sin(t)]), np.full(2 * count, 0.5 / count)
    for k in range(3, n + 1):
        z, w = roots_gegenbauer(count, k / 2 - 1)
        around = np.sqrt(1 - z**2)[:, None, None] * points
        heights = np.broadcast_to(z[:, None, None], (*around.shape[:2], 1))
        points = np.concatenate([around, heights], axis=2).reshape(-1, k)
        weights = np.outer(w / w.sum(), weights).ravel()
    return points, weights


def slope(errors):
    return np.polyfit(np.log(EPS), np.log(errors), 1)[0]


def test_values_of_alpha():
    expected = {2: -4.1633061176, 3: -5.1406468257, 4: -6.1234693141, 5: -7.1100076009}
    for n, alpha in expected.items():
        assert perturbation_constants(n).alpha == pytest.approx(alpha, abs=5e-11)


@pytest.mark.parametrize(("n", "base"), [(2, 1.0), (3, 1.0), (3, 6.0), (4, 0.2), (5, 1.0)])
def test_constants_are_the_integrals(n, base):
    points, weights = tensor_rule(n, 14)
    y = random_points(1, n)[0]
    masses = weights * np.exp(base * points @ y)
    C = perturbation_constants(n, base)
    assert masses.sum() == pytest.approx(C.C0, rel=1e-12)
    np.testing.assert_allclose(masses @ points, C.C1 * y, rtol=1e-11, atol=1e-13 * C.C0)
    np.testing.assert_allclose(masses @ points**2, C.C2 * y**2 + C.C3, rtol=1e-12)
    assert C.alpha == pytest.approx(-C.C1 / C.C2, rel=1e-14)


def test_constants_in_high_dimension_and_for_large_base():
    # I_{nu+1}(x)/I_nu(x) ~ x/(2 nu) for large order, 1 - (2 nu + 1)/(2x) for large argument
    assert perturbation_constants(20_000).alpha == pytest.approx(-20_002, rel=1e-6)
    assert perturbation_constants(3, 1e4).alpha == pytest.approx(-1 - 2e-4, abs=1e-7)


@pytest.mark.parametrize(("M", "base"), CASES)
def test_slopes_of_the_sup_error(M, base):
    x = random_points(1000, len(M))
    first, second, energy = [], [], []
    for eps in EPS:
        exact = exact_minimizer(base + eps * np.array(M))
        values = exact(x)
        first.append(np.abs(perturbed_minimizer(M, eps, 1, base)(x) - values).max())
        second.append(np.abs(perturbed_minimizer(M, eps, 2, base)(x) - values).max())
        energy.append(abs(perturbed_minimizer(M, eps, 2, base).energy - exact.energy))
    assert slope(first) == pytest.approx(2.0, abs=0.03)
    assert slope(second) == pytest.approx(3.0, abs=0.03)
    assert slope(energy) == pytest.approx(3.0, abs=0.1)


def test_negative_eps_and_rotation():
    M = np.array([0.3, -1.0, 0.8])
    x = random_points(100, 3)
    exact = exact_minimizer(1 - 0.01 * M)
    assert np.abs(perturbed_minimizer(M, -0.01, 2)(x) - exact(x)).max() < 2e-4
    Q = ortho_group.rvs(3, random_state=0)
    rotated = perturbed_minimizer(Q @ np.diag(M) @ Q.T, -0.01, 2)
    np.testing.assert_allclose(rotated(x @ Q.T), perturbed_minimizer(M, -0.01, 2)(x), atol=1e-14)


def test_four_dimensions_against_constant_potential():
    points, weights = tensor_rule(4, 12)
    M = np.array([0.5, -0.2, 1.0, 0.1])
    x = random_points(300, 4)
    spread = {1: [], 2: []}
    for eps in EPS:
        kernel = np.exp(x @ np.diag(1 + eps * M) @ points.T)
        for order, values in spread.items():
            density = perturbed_minimizer(M, eps, order)
            Z = kernel @ (weights * density(points))
            assert density(points) @ weights == pytest.approx(1, abs=1e-13)
            values.append(np.ptp(Z) / density.energy)
            assert Z.mean() == pytest.approx(density.energy, rel=eps**2)
    assert slope(spread[1]) == pytest.approx(2.0, abs=0.1)
    assert slope(spread[2]) == pytest.approx(3.0, abs=0.15)


def test_circle_coefficients():
    """1 + (2.08165306 eps - 0.96079987 eps^2) cos 2t + 1.11522797 eps^2 cos 4t."""
    eps, t = 0.01, np.linspace(0, 2 * np.pi, 50)
    density = perturbed_minimizer([0.0, 1.0], eps, order=2)
    expected = (
        1
        + (2.08165306 * eps - 0.96079987 * eps**2) * np.cos(2 * t)
        + 1.11522797 * eps**2 * np.cos(4 * t)
    )
    np.testing.assert_allclose(
        density(np.column_stack([np.cos(t), np.sin(t)])), expected, atol=1e-10
    )


@pytest.mark.parametrize("n", [2, 3, 4])
def test_energy_change_is_that_of_the_perturbed_energy(n):
    points, weights = tensor_rule(n, 10)
    M, eps = np.linspace(-0.5, 1.0, n), 1e-3
    kernel = np.exp(points @ np.diag(1 + eps * M) @ points.T)
    uniform = weights @ kernel @ weights
    density = perturbed_minimizer(M, eps, order=2)
    masses = weights * density(points)
    change = masses @ kernel @ masses - uniform
    assert change < 0
    assert density.energy_change == pytest.approx(change, rel=5e-3)
    # quadratic about a minimum: nothing in between the two measures is lower
    half = (masses + weights) / 2
    assert half @ kernel @ half - uniform == pytest.approx(0.75 * change, rel=1e-2)


def test_multiple_of_the_identity_changes_nothing():
    density = perturbed_minimizer(np.eye(3), 0.1, order=2)
    np.testing.assert_allclose(density(random_points(10, 3)), 1, atol=1e-15)
    assert density.energy_change == 0
    assert density.energy == pytest.approx(np.sinh(1.1) / 1.1, abs=2e-4)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([[0, 1], [0, 0]], 0.1), MatrixError, "M must be symmetric"),
        (([0, -1], 2.0), MatrixError, "positive definite"),
        (([0, 1], 0.1, 3), InputError, "order"),
        (([0, 1], np.nan), InputError, "eps"),
        (([0, 1], 0.1, 1, 0.0), InputError, "base"),
    ],
)
def test_bad_input(arguments, error, message):
    with pytest.raises(error, match=message):
        perturbed_minimizer(*arguments)


def test_bad_dimension():
    with pytest.raises(InputError, match="dimension"):
        perturbation_constants(1)
    with pytest.raises(PointsError, match="R\\^2"):
        perturbed_minimizer([0, 1], 0.1)(np.eye(3))
