"""Particles and transformers against exact numbers, orders and conserved quantities."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import meanfield as mf
from meanfield.dynamics import particle_fields
from meanfield.dynamics.particle_methods import METHODS
from meanfield.dynamics.particle_starts import random_points
from meanfield.dynamics.particles import evolve_particles, transformer
from meanfield.errors import (
    DensityError,
    InputError,
    MatrixError,
    NonFiniteError,
    PointsError,
    StiffnessError,
)
from meanfield.model.heads import MultiHead
from meanfield.sphere.geometry import directions, distance

PAIR = directions([0.0, 2.0])
# A model without any symmetry, and weights that differ.
GENERAL = mf.SelfAttention(
    [[1, 0.5, 0], [0.2, -2, 0.3], [0, 0.4, 0.7]], V=[[0, 1, 0.3], [-0.5, 0.2, 1], [1, 0, 0.6]]
)
WEIGHTS = np.arange(1.0, 21.0) / 210


def plain_layers(x, D, V, layers, step, weights=None, normalized=True):
    """Eqs. (1.4) and (5.1) as they stand."""
    weights = np.full(len(x), 1 / len(x)) if weights is None else weights
    for _ in range(layers):
        kernel = np.exp(x @ D @ x.T) * weights
        if normalized:
            kernel /= kernel.sum(axis=1, keepdims=True)
        x = x + step * kernel @ (x @ V.T)
        x = x / np.linalg.norm(x, axis=1, keepdims=True)
    return x


# Two tokens of equal weight: their angle t obeys a scalar equation.
TWO_TOKENS = [
    (1.0, None, 0.40746124050),
    (4.0, None, 1.90985057401),
    (4.0, np.eye(2), 1.98038737769),
]


@pytest.mark.parametrize(("beta", "V", "angle"), TWO_TOKENS)
def test_two_tokens_meet_as_the_exact_equation_says(beta, V, angle):
    model = mf.SelfAttention([beta, beta], V=V)
    for tolerance, error in ((None, 1e-6), (1e-12, 1e-9)):
        run = evolve_particles(PAIR, model, t_end=3.0, tolerance=tolerance)
        assert abs(distance(*run.points[-1]) - angle) < error


@pytest.fixture(scope="module")
def reference():
    points = random_points(20, 3, seed=3)
    run = evolve_particles(points, GENERAL, 2.0, WEIGHTS, tolerance=1e-13, save=2)
    return points, run.points[-1]


@pytest.mark.parametrize("name", METHODS)
def test_methods_have_the_order_they_claim(name, reference):
    points, exact = reference
    order = METHODS[name].order
    counts = np.array([64, 128]) if order == 4 else np.array([256, 512])
    errors = []
    for count in counts:
        run = evolve_particles(points, GENERAL, 2.0, WEIGHTS, name, step=2 / count, save=2)
        errors.append(np.abs(run.points[-1] - exact).max())
    assert np.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.1)


@pytest.mark.parametrize("method", ["adaptive", *METHODS])
def test_particles_stay_on_the_sphere(method):
    model = mf.SelfAttention([1.0, -2.0, 3.0, 0.5])
    run = evolve_particles(random_points(30, 4, seed=1), model, t_end=5.0, method=method)
    assert np.abs(np.linalg.norm(run.points, axis=2) - 1).max() < 1e-14


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("sign", [1, -1])
def test_energy_is_monotone_along_the_flow(sign, normalized):
    model = mf.SelfAttention([1.0, -0.5, 2.0], sign=sign, normalized=normalized)
    points = random_points(20, 3, seed=8)
    run = evolve_particles(points, model, 10.0, WEIGHTS, save=101, tolerance=1e-12)
    steps = sign * np.diff(run.energy)
    assert steps.min() > -1e-14 * run.energy.max()
    # dE/dt = 2 sign int Z |v|^2 dmu, without Z for the unnormalised flow.
    bound = model.on(points)
    dissipation = WEIGHTS @ (bound.velocity(WEIGHTS) ** 2).sum(axis=1)
    if normalized:
        squares = (bound.velocity(WEIGHTS) ** 2).sum(axis=1)
        dissipation = WEIGHTS @ (bound.integrals.potential(WEIGHTS) * squares)
    short = evolve_particles(points, model, 2e-4, WEIGHTS, save=3, tolerance=1e-13)
    rate = (-3 * short.energy[0] + 4 * short.energy[1] - short.energy[2]) / 2e-4
    assert rate == pytest.approx(2 * sign * dissipation, rel=1e-6)


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("normalized", [True, False])
def test_layers_and_projected_euler_are_the_printed_formulas(n, normalized):
    rng = np.random.default_rng(n)
    D, V = rng.normal(size=(2, n, n)) / 2
    model = mf.SelfAttention(D, V=V, normalized=normalized)
    for count in (7, 120):  # on S^1 the second goes through Fourier series
        points = random_points(count, n, seed=4)
        weights = rng.uniform(size=count)
        weights /= weights.sum()
        expected = plain_layers(points, D, V, 30, 0.1, weights, normalized)
        run = transformer(points, model, 30, step=0.1, weights=weights)
        np.testing.assert_allclose(run.points[-1], expected, atol=1e-12)
        assert len(run.times) == 31
        assert run.times[-1] == pytest.approx(3.0)
        euler = evolve_particles(points, model, 3.0, weights, "projected_euler", step=0.1)
        np.testing.assert_allclose(euler.points[-1], expected, atol=1e-12)


def test_heads_add_up_or_average():
    head = mf.SelfAttention([0.5, 1.0, 2.0], V=[[0, 1, 0], [0, 0, 1], [1, 0, 0]])
    other = mf.SelfAttention([1.0, 1.0, 1.0], sign=-1)
    points = random_points(15, 3, seed=2)
    once = transformer(points, MultiHead([head, other]), layers=1).points[-1]
    outputs = [
        h.on(points).integrals.average(np.full(15, 1 / 15), points @ h.V.T) for h in (head, other)
    ]
    expected = points + sum(outputs)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(once, expected, atol=1e-14)
    same = MultiHead([head, head], combine="mean")
    np.testing.assert_allclose(
        evolve_particles(points, same, 1.0).points,
        evolve_particles(points, head, 1.0).points,
        atol=1e-12,
    )
    assert np.isnan(evolve_particles(points, same, 1.0, save=2).energy).all()


@pytest.mark.parametrize(
    ("n", "count", "starts"), [(2, 4, 30), (2, 40, 50), (3, 9, 40), (2, 1600, 2)]
)
def test_an_ensemble_is_its_starts_one_by_one(n, count, starts):
    model = mf.SelfAttention(np.linspace(0.5, 1.5, n))
    points = random_points(count, n, seed=6, starts=starts)
    for method in ("adaptive", "projected_euler") if count < 100 else ("geodesic_rk4",):
        together = evolve_particles(points, model, 1.0, method=method, save=3)
        assert together.points.shape == (3, starts, count, n)
        for index in (0, starts - 1):
            alone = evolve_particles(points[index], model, 1.0, method=method, save=3)
            np.testing.assert_allclose(together.points[:, index], alone.points, atol=1e-13)
            np.testing.assert_allclose(together.energy[:, index], alone.energy, rtol=1e-13)
            np.testing.assert_array_equal(
                together.start(index).points[-1], together.points[-1, index]
            )


def test_all_ways_to_evaluate_the_field_agree():
    weights = np.arange(1.0, 151.0) / np.arange(1.0, 151.0).sum()
    for normalized in (True, False):
        model = mf.SelfAttention([[1, 0.5], [-0.3, 2]], V=[[0, 1], [3, 0.2]], normalized=normalized)
        x = np.ascontiguousarray(random_points(150, 2, 1, starts=1).transpose(2, 0, 1))
        results = []
        for kind in ("DenseField", "CircleField", "BoundField"):
            way = getattr(particle_fields, kind)(model, weights, 1)
            out = np.empty_like(x)
            way(x, out)
            results.append((out, way.log_potential(x)))
        for out, log_z in results[1:]:
            np.testing.assert_allclose(out, results[0][0], atol=1e-13)
            np.testing.assert_allclose(log_z, results[0][1], atol=1e-13)


def test_many_particles_take_the_bound_operator(monkeypatch):
    points = random_points(400, 3, seed=9)
    model = mf.SelfAttention([0.5, 1.0, 2.0])
    few = evolve_particles(points, model, 0.5, method="projected_rk4", save=2)
    monkeypatch.setattr(particle_fields, "MANY", 100)
    many = evolve_particles(points, model, 0.5, method="projected_rk4", save=2)
    np.testing.assert_allclose(many.points, few.points, atol=1e-11)
    np.testing.assert_allclose(many.energy, few.energy, rtol=1e-11)


# Four points, one in each quadrant: the corrected start of eq. (5.2).
QUADRANTS = directions(np.arange(4) * np.pi / 2 + np.pi / 4)


def statistic(points, l2):
    """Mean of tanh(cos^2) / tanh(l2 sin^2), equal to l2 at the stationary state for l1 = 1."""
    return (np.tanh(points[..., 0] ** 2) / np.tanh(l2 * points[..., 1] ** 2)).mean(axis=-1)


@pytest.mark.parametrize("l2", [0.5, 1.0, 2.0, 4.0])
def test_four_points_come_to_the_angle_of_the_theory(l2):
    model = mf.SelfAttention([1.0, l2], sign=-1, normalized=False)
    run = evolve_particles(QUADRANTS, model, 200.0, stationary=1e-7, save=2)
    assert np.isfinite(run.stopped)
    assert statistic(run.points[-1], l2) == pytest.approx(l2, abs=1e-5)
    if l2 == 2.0:
        assert run.energy[-1] == pytest.approx(1.44421, abs=2e-6)


def test_large_steps_fail_where_small_ones_do_not():
    model = mf.SelfAttention([1.0, 8.0], sign=-1, normalized=False)
    small, large = (
        transformer(QUADRANTS, model, layers, step, save=2)
        for layers, step in ((4000, 0.005), (2000, 0.05))
    )
    assert small.energy[-1] == pytest.approx(1.5361394350, abs=1e-10)
    assert statistic(small.points[-1], 8.0) == pytest.approx(8.0, abs=1e-5)
    # The published step ends in two clusters at e_2, with the energy cosh 8.
    assert large.energy[-1] == pytest.approx(np.cosh(8.0), rel=1e-12)


def test_single_particles_end_at_the_top_eigenvector_in_all_trials():
    points = random_points(1, 3, seed=1, starts=30)
    steep = mf.SelfAttention([1.0, 3.0, 4.0], normalized=False)
    final = transformer(points, steep, 1500, step=0.075, save=2).points[-1, :, 0]
    np.testing.assert_allclose(np.abs(final), np.tile([0.0, 0, 1], (30, 1)), atol=1e-6)
    assert {-1.0, 1.0} == set(np.sign(final[:, 2]))
    level = mf.SelfAttention([1.0, 1.0, 1.0], normalized=False)
    rest = transformer(points, level, 1500, step=0.075, save=2)
    np.testing.assert_allclose(rest.points[-1], points, atol=1e-14)


def test_negative_definite_starts_end_in_antipodal_pairs_in_all_trials():
    points = random_points(100, 3, seed=2, starts=40)
    steep = mf.SelfAttention([-1.0, -3.0, -4.0], normalized=False)
    run = transformer(points, steep, 500, step=0.1, save=2)
    np.testing.assert_allclose(np.abs(run.points[-1, ..., 2]), 1.0, atol=1e-6)
    assert (run.clusters().count == 2).all()
    level = mf.SelfAttention([-1.0, -1.0, -1.0], normalized=False)
    clusters = transformer(points[:6], level, 500, step=0.1, save=2).clusters()
    assert (clusters.count == 2).all()
    np.testing.assert_allclose(clusters.centres[:, 0], -clusters.centres[:, 1], atol=1e-6)


def test_power_iteration_is_the_limit_of_large_steps():
    model = mf.SelfAttention([1.0, -3.0, 2.0], normalized=False)
    run = transformer(random_points(1, 3, seed=5), model, 200, step=1e8, save=2)
    assert abs(run.points[-1, 0, 1]) == pytest.approx(1.0, abs=1e-12)


def test_stopping_at_stationarity():
    model = mf.SelfAttention([1.0, 2.0])
    points = random_points(6, 2, seed=3, starts=9)
    for method in ("adaptive", "projected_rk4"):
        run = evolve_particles(points, model, 500.0, method=method, stationary=1e-6, save=11)
        assert np.isfinite(run.stopped).all()
        assert run.times[-1] == run.stopped.max() < 500
        weights = np.full(6, 1 / 6)
        speeds = [np.abs(model.on(p).velocity(weights)).max() for p in run.points[-1]]
        assert max(speeds) <= 1.01e-6
        on = evolve_particles(points, model, 500.0, method=method, save=11)
        assert np.isnan(on.stopped).all()
        assert on.times[-1] == 500


def test_save_times_are_hit():
    model = mf.SelfAttention([1.0, 2.0])
    times = [0.1, 0.35, 0.9]
    for method in ("adaptive", "projected_rk4"):
        run = evolve_particles(PAIR, model, 1.0, method=method, save=times)
        assert run.times.tolist() == times
        whole = evolve_particles(PAIR, model, 0.35, method=method, save=2)
        np.testing.assert_allclose(run.points[1], whole.points[-1], atol=1e-7)
    even = evolve_particles(PAIR, model, 0.7, method="projected_euler", step=0.1, save=3)
    np.testing.assert_allclose(even.times, [0.0, 0.4, 0.7], rtol=1e-15)
    assert even.times[-1] == 0.7


def test_the_same_seed_gives_the_same_streams():
    first = random_points(10, 4, seed=7, starts=3)
    np.testing.assert_array_equal(first, random_points(10, 4, seed=7, starts=5)[:3])
    np.testing.assert_array_equal(first[0], random_points(10, 4, seed=7))
    sequence = np.random.SeedSequence(7)
    np.testing.assert_array_equal(first, random_points(10, 4, sequence, starts=3))
    np.testing.assert_array_equal(first, random_points(10, 4, sequence, starts=3))
    assert np.abs(first[0] - first[1]).min() > 0
    many = random_points(2000, 3, seed=0, starts=10).reshape(-1, 3)
    np.testing.assert_allclose(many.mean(axis=0), 0, atol=4 / np.sqrt(3 * 20000))


def test_large_exponents_do_not_overflow():
    model = mf.SelfAttention(1000 * np.eye(3))
    run = evolve_particles(random_points(50, 3, seed=1), model, 0.01, method="projected_euler",
                           step=1e-4, save=2)  # fmt: skip
    assert np.isfinite(run.points).all()
    assert run.log_energy[-1] > run.log_energy[0] > 900
    with pytest.raises(StiffnessError, match="normalized=True"):
        evolve_particles(PAIR, mf.SelfAttention([200.0, 200.0], normalized=False), 1.0)


def test_integers_lists_and_short_floats_give_the_same():
    model = mf.SelfAttention([1, 2])
    exact = evolve_particles(np.array([[1.0, 0], [0, 1]]), model, 1.0).points
    np.testing.assert_array_equal(evolve_particles([[1, 0], [0, 1]], model, 1).points, exact)
    short = np.array([[1, 0], [0, 1]], dtype=np.float32)
    np.testing.assert_array_equal(evolve_particles(short, model, 1).points, exact)


MODEL = mf.SelfAttention([1.0, 2.0])
BAD_POINTS = [
    ([[0.0, 0.0], [1.0, 0.0]], "not on the unit sphere"),
    ([[np.nan, 0.0]], "NaN"),
    ([[1.0, 1e-2]], "normalize=True"),
    (np.empty((0, 2)), "none of them 0"),
    (np.empty((3, 0, 2)), "none of them 0"),
    ([1.0, 0.0], "shape"),
    ([[1.0, 0.0, 0.0]], "D is 2 x 2"),
    ([[[1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]], "same number"),
    ("tokens", "numbers"),
]


@pytest.mark.parametrize(("points", "message"), BAD_POINTS)
def test_bad_points_are_refused(points, message):
    with pytest.raises(PointsError, match=message):
        evolve_particles(points, MODEL, 1.0)
    with pytest.raises(PointsError, match=message):
        transformer(points, MODEL, 1)


def test_points_near_the_sphere_are_normalised_and_others_on_request():
    near = evolve_particles([[1.0, 1e-6], [0.0, 1.0 + 9e-6]], MODEL, 0.1)
    assert np.abs(np.linalg.norm(near.points, axis=2) - 1).max() < 1e-14
    scaled = evolve_particles([[3.0, 4.0]], MODEL, 0.1, normalize=True)
    np.testing.assert_allclose(scaled.points[0], [[0.6, 0.8]], atol=1e-15)
    for vector in ([0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0]):
        with pytest.raises(PointsError):
            evolve_particles([vector], MODEL, 0.1, normalize=True)


BAD_WEIGHTS = [
    ([0.5, 0.6], "sum to one"),
    ([-0.1, 1.1], ">= 0"),
    ([np.nan, 1.0], "NaN"),
    ([1.0], "shape"),
    ("heavy", "2 numbers"),
]


@pytest.mark.parametrize(("weights", "message"), BAD_WEIGHTS)
def test_bad_weights_are_refused(weights, message):
    with pytest.raises(DensityError, match=message):
        evolve_particles(PAIR, MODEL, 1.0, weights)


BAD_OPTIONS = [
    ({"t_end": 0.0}, "t_end"),
    ({"t_end": np.inf}, "t_end"),
    ({"method": "euler"}, "projected_euler"),
    ({"step": 0.1}, "tolerance"),
    ({"method": "projected_euler", "step": 0.0}, "step"),
    ({"method": "projected_euler", "step": "small"}, "step"),
    ({"method": "projected_euler", "tolerance": 1e-3}, "fixed steps"),
    ({"tolerance": 1e-16}, "tolerance"),
    ({"stationary": -1.0}, "stationary"),
    ({"save": [0.5, 2.0]}, "save"),
]


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS)
def test_bad_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        evolve_particles(PAIR, MODEL, **{"t_end": 1.0, **options})


def test_other_bad_input_is_refused():
    with pytest.raises(MatrixError):
        mf.SelfAttention(np.ones((2, 3)))
    with pytest.raises(InputError, match="SelfAttention"):
        evolve_particles(PAIR, np.eye(2), 1.0)
    for layers in (0, 1.5, True, np.nan):
        with pytest.raises(InputError, match="layers"):
            transformer(PAIR, MODEL, layers)
    with pytest.raises(InputError, match="step"):
        transformer(PAIR, MODEL, 1, step=-1.0)
    for arguments in ((0, 3, 1), (5, 1, 1), (5, 3, 1, 0), (2.5, 3, 1)):
        with pytest.raises(InputError):
            random_points(*arguments)
    # x + V x = 0 for the only token.
    with pytest.raises(NonFiniteError, match="zero"):
        transformer([[1.0, 0.0]], mf.SelfAttention([0.0, 0.0], V=[-1.0, -1.0]), 1)
    run = evolve_particles(PAIR, MODEL, 0.1)
    with pytest.raises(InputError):
        run.start(0)
    with pytest.raises(InputError, match="start"):
        _ = evolve_particles(PAIR[None], MODEL, 0.1).final


def test_the_result_says_what_it_is():
    run = evolve_particles(PAIR[None], MODEL, 50.0, stationary=1e-3)
    assert "1 starts of 2 particles in R^2" in repr(run)
    assert "1 of 1 stationary" in repr(run)
    assert run.start(0).final.masses.tolist() == [0.5, 0.5]
    assert "&lt;" not in run._repr_html_()
    assert run.parameters["D"] == [[1.0, 0.0], [0.0, 2.0]]


MEMORY = """
import re
from pathlib import Path
import numpy as np
import meanfield as mf
from meanfield.dynamics.particle_starts import random_points
from meanfield.dynamics.particles import transformer
n = 64
points = random_points({count}, n, seed=0)
run = transformer(points, mf.SelfAttention(np.linspace(-1, 1, n)), 1, save=2)
assert abs(np.linalg.norm(run.points[-1], axis=1) - 1).max() < 1e-14
# Of this program alone: the resource module counts that of the parent, too.
print(int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 2**20)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory from /proc")
@pytest.mark.parametrize(
    ("count", "limit"),
    [(10_000, 0.5), pytest.param(100_000, 2.0, marks=pytest.mark.slow)],
)
def test_many_particles_in_many_dimensions_fit_into_memory(count, limit):
    command = [sys.executable, "-c", MEMORY.format(count=count)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(result.stdout) < limit  # GiB
