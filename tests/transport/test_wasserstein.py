"""W1 and W2: closed forms, linear programs, bounds, and what is refused."""

import numpy as np
import pytest
from scipy.optimize import linprog

import meanfield as mf
from meanfield.errors import ConvergenceError, DensityError, InputError, PointsError, SizeError
from meanfield.sphere.geometry import directions
from meanfield.transport import wasserstein as module
from meanfield.transport.wasserstein import (
    distances,
    optimal_plan,
    wasserstein,
    wasserstein_bounds,
)

TURN = 2 * np.pi
FIRST, SECOND = np.array([0.1, 0.11, 0.4, 0.6]), np.array([0.21, 0.15, 0.7, 0.95])


def random_measure(rng, count, n):
    points = rng.normal(size=(count, n))
    masses = rng.random(count)
    return mf.Measure(points / np.linalg.norm(points, axis=1)[:, None], masses / masses.sum())


def program(a, b, costs):
    """The transport problem as a linear program."""
    m, k = costs.shape
    rows = np.kron(np.eye(m), np.ones(k))
    columns = np.kron(np.ones(m), np.eye(k))
    marginals = np.concatenate([a.masses, b.masses])
    return linprog(costs.ravel(), A_eq=np.vstack([rows, columns]), b_eq=marginals).fun


@pytest.mark.parametrize("turn", [0.0, 0.05, 0.1, 0.29, 0.4, 0.5, 0.637, 0.9, 12.3])
def test_samples_on_the_circle_in_closed_form(turn):
    first, second = directions(TURN * (FIRST + turn)), directions(TURN * (SECOND + turn))
    assert abs(wasserstein(first, second, p=1) / TURN - 0.12) < 1e-15
    assert abs((wasserstein(first, second, p=2) / TURN) ** 2 - 0.01755) < 1e-16


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("equal", [True, False])
def test_circle_against_linear_programs(p, equal):
    rng = np.random.default_rng(p)
    for trial in range(25):
        a, b = random_measure(rng, 1 + trial % 7, 2), random_measure(rng, 1 + trial % 5, 2)
        if equal:
            a, b = mf.Measure(a.points), mf.Measure(b.points)
        costs = distances(a.points, b.points) ** p
        assert abs(wasserstein(a, b, p) ** p - program(a, b, costs)) < 1e-12
        plan = optimal_plan(a, b, p)
        assert abs(np.bincount(plan.rows, plan.masses, len(a)) - a.masses).max() < 1e-14
        assert abs(np.bincount(plan.columns, plan.masses, len(b)) - b.masses).max() < 1e-14


@pytest.mark.parametrize("cost", ["geodesic", "chordal", "l1"])
@pytest.mark.parametrize("p", [1, 2])
def test_other_costs_against_linear_programs(p, cost):
    rng = np.random.default_rng(5)
    for n in (2, 3, 4):
        a, b = random_measure(rng, 6, n), random_measure(rng, 7, n)
        if cost != "geodesic":
            a, b = mf.Measure(3 * a.points, a.masses), mf.Measure(b.points + 1, b.masses)
        costs = distances(a.points, b.points, cost) ** p
        assert abs(wasserstein(a, b, p, cost) ** p - program(a, b, costs)) < 1e-11


def test_distances_by_hand():
    a, b = np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])
    assert wasserstein(a, b) == pytest.approx(np.pi / 2, abs=1e-15)
    assert wasserstein(a, b, cost="chordal") == pytest.approx(np.sqrt(2), abs=1e-15)
    assert wasserstein(a, b, cost="l1") == 2.0
    assert wasserstein(a, -a) == np.pi
    tiny = directions([1e-9])
    assert wasserstein(a, tiny) == pytest.approx(1e-9, rel=1e-6)


def test_zero_for_the_same_measure_in_another_order():
    rng = np.random.default_rng(3)
    for n in (2, 3):
        a = random_measure(rng, 60, n)
        order = rng.permutation(60)
        assert wasserstein(a, mf.Measure(a.points[order], a.masses[order])) == 0.0


def test_masses_of_zero_and_of_round_off_carry_nothing():
    a = mf.Measure(np.eye(3), [0.5, 0.5, -1e-17])
    b = mf.Measure(np.eye(3)[:2], [0.5, 0.5])
    assert wasserstein(a, b) == 0.0
    with pytest.raises(DensityError, match=r"smallest is -0\.001"):
        mf.Measure(np.eye(3), [0.5, 0.501, -1e-3])


def test_continuous_measures_on_the_circle():
    """W2 between uniform and (1 + sin)/2 pi: the shift is zero by symmetry, the map explicit."""
    cells = 4096
    theta = (np.arange(cells) + 0.5) * TURN / cells
    uniform = mf.Measure(directions(theta))
    wave = mf.Measure(directions(theta), (1 + np.sin(theta)) / cells)
    # Levels of both differ by (1 - cos)/2 pi minus its median in W1.
    level = (1 - np.cos(theta)) / TURN
    exact = np.abs(level - np.median(level)).mean() * TURN
    assert wasserstein(uniform, wave, p=1) == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("p", [1, 2])
def test_bounds_of_large_problems_enclose_the_exact_distance(monkeypatch, p):
    rng = np.random.default_rng(11)
    a, b = random_measure(rng, 200, 3), random_measure(rng, 150, 3)
    b = mf.Measure(-np.abs(b.points), b.masses)
    exact = wasserstein(a, b, p)
    monkeypatch.setattr(module, "EXACT_PAIRS", 0)
    lower, upper = wasserstein_bounds(a, b, p)
    assert lower <= exact <= upper
    assert upper - lower < 0.05 * upper
    assert wasserstein(a, b, p, tolerance=0.1) == (lower + upper) / 2
    with pytest.raises(ConvergenceError, match=r"lies in \["):
        wasserstein(a, b, p, tolerance=1e-4)
    monkeypatch.setattr(module, "MAX_PAIRS", 1000)
    with pytest.raises(SizeError, match="at most 1,000 pairs"):
        wasserstein(a, b, p)


def test_a_simplex_that_stops_early_is_an_error(monkeypatch):
    rng = np.random.default_rng(2)
    monkeypatch.setattr(module, "SIMPLEX_ITERATIONS", 3)
    with pytest.raises(ConvergenceError, match="not solved"):
        wasserstein(random_measure(rng, 50, 3), random_measure(rng, 50, 3))


def test_results_with_a_final_state_are_measures():
    run = mf.evolve(mf.circle(16), mf.SelfAttention([1.0, 2.0]), mf.uniform(), 0.1, save=2)
    assert wasserstein(run, run.final) == 0.0


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((np.eye(2), np.eye(3)), PointsError, "different spaces, R.2 and R.3"),
        ((np.eye(2), 2 * np.eye(2)), PointsError, "unit"),
        ((np.eye(2), np.eye(2), 3), InputError, "p must be 1 or 2"),
        ((np.eye(2), np.eye(2), 2, "arc"), InputError, "geodesic, chordal, l1"),
        ((np.eye(2), "there"), PointsError, "no measure"),
    ],
)
def test_bad_input(arguments, error, words):
    with pytest.raises(error, match=words):
        wasserstein(*arguments)
