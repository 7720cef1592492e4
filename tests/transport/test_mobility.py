"""W_m between point clouds: closed forms, metric properties, spreading, and bad input."""

import numpy as np
import pytest

import meanfield as mf
from meanfield.errors import DensityError, InputError, PointsError, SizeError
from meanfield.sphere.geometry import directions, normalize
from meanfield.transport.cloud_action import CloudAction, PathCoordinates
from meanfield.transport.cloud_starts import arcs, coupling_of_plan
from meanfield.transport.kernels import Kernel
from meanfield.transport.wasserstein import optimal_plan

STRAIGHT = np.exp(1.5) * np.pi / 2  # of one Dirac that stays one, lambda = 3, angle pi/2


def cloud(rng, count, n):
    return mf.Measure(normalize(rng.normal(size=(count, n))), rng.dirichlet(np.ones(count)))


def rotation(rng, n):
    q, r = np.linalg.qr(rng.normal(size=(n, n)))
    return q * np.sign(np.diag(r))


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("constant", [1.0, 2.5])
def test_constant_kernel_is_w2(n, constant):
    """Arcs at constant speed are exact whatever the number of steps."""
    rng = np.random.default_rng(n)
    a, b = cloud(rng, 12, n), cloud(rng, 9, n)
    for steps in (1, 2, 8):
        found = mf.mobility_distance(a, b, constant, steps)
        exact = np.sqrt(constant) * mf.wasserstein(a, b)
        assert abs(found.distance - exact) < 1e-13
        assert abs(found.lower - exact) + abs(found.upper - exact) < 1e-13
        assert found.converged
        assert found.speed_variation < 1e-13


def test_zero_matrix_is_the_constant_one():
    rng = np.random.default_rng(8)
    a, b = cloud(rng, 5, 3), cloud(rng, 5, 3)
    found = mf.mobility_distance(a, b, mf.Interaction(np.zeros((3, 3))), 4)
    assert found.distance == mf.mobility_distance(a, b, 1.0, 4).distance


@pytest.mark.parametrize(("strength", "angle"), [(1.0, np.pi / 2), (3.0, 2.0), (0.5, 0.1)])
@pytest.mark.parametrize("n", [2, 3])
def test_two_diracs_that_attract_stay_together(strength, angle, n):
    a = np.eye(n)[:1]
    b = np.cos(angle) * a + np.sin(angle) * np.eye(n)[1:2]
    found = mf.mobility_distance(a, b, mf.Interaction([-strength] * n), 16, 16, starts=2)
    assert abs(found.distance - np.exp(-strength / 2) * angle) < 1e-8
    assert found.converged
    if (strength, angle) == (1.0, np.pi / 2):
        assert abs(found.distance - 0.9527361323650899) < 1e-8


def test_mass_that_spreads_travels_cheaper():
    """On S^2 more particles find cheaper fans; on S^1 a few go around the other way."""
    kernel = mf.Interaction([3.0, 3.0, 3.0])
    e = np.eye(3)
    lengths = [
        mf.mobility_distance(e[:1], e[1:2], kernel, 16, particles, starts=3).distance
        for particles in (1, 24, 48)
    ]
    assert abs(lengths[0] - STRAIGHT) < 1e-9
    assert lengths[1] < 7.0
    assert lengths[2] < 6.985
    flat = mf.mobility_distance(np.eye(2)[:1], np.eye(2)[1:], mf.Interaction([3.0, 3.0]), 16, 24)
    assert STRAIGHT - 0.05 < flat.distance < STRAIGHT - 0.02
    assert flat.points[8, :, 0].min() < 0 < flat.points[8, :, 0].max()


def test_antipodal_diracs_on_the_circle_go_both_ways():
    """Masses that go opposite ways hardly feel each other: 21 % cheaper than one arc together."""
    a, b = directions([0.0]), directions([np.pi])
    found = mf.mobility_distance(a, b, mf.Interaction([2.0, 2.0]), 16, 16)
    assert found.distance < 0.79 * np.exp(1.0) * np.pi
    middle = found.points[8][:, 1]
    assert found.masses @ (middle > 0) == pytest.approx(0.5, abs=0.07)  # one of 16 particles
    assert np.abs(middle).min() > 0.5


def test_gradient_of_the_action():
    rng = np.random.default_rng(4)
    for n in (2, 3, 4):
        a, b = cloud(rng, 3, n), cloud(rng, 3, n)
        coupling = coupling_of_plan(a, b, optimal_plan(a, b), 6, rng)
        masses, base = coupling.masses, arcs(coupling, 6, rng, 1)
        action = CloudAction(Kernel(mf.Interaction(rng.normal(size=(n, n))), 1.7), masses)
        chart = PathCoordinates(base, masses, 1.0)
        x, step = 0.1 * rng.normal(size=(2, chart.size))
        _, gradient = chart.value_and_gradient(x, action)
        values = [chart.value_and_gradient(x + h * step, action)[0] for h in (1e-5, -1e-5)]
        assert abs((values[0] - values[1]) / 2e-5 / (gradient @ step) - 1) < 1e-6


def test_second_order_in_time():
    """The length by quadrature converges with the paths, at order two."""
    rng = np.random.default_rng(12)
    a, b = cloud(rng, 6, 3), cloud(rng, 7, 3)
    kernel = mf.Interaction([2.0, -1.0, 0.5])
    found = [
        mf.mobility_distance(a, b, kernel, steps, 1, 1, tolerance=1e-8, recouplings=0)
        for steps in (4, 8, 16, 128)
    ]
    action = [np.sqrt(one.parameters["start_distances"][0]) for one in found]
    errors = np.abs(np.array(action[:3]) - action[3])
    orders = np.log2(errors[:-1] / errors[1:])
    assert (orders > 1.85).all(), orders
    # The curve that is found is longer than the shortest by the square of its own error.
    assert 0 <= found[2].distance - found[3].distance < 1e-4 * found[3].distance


@pytest.mark.parametrize("D", [[2.0, 2.0, -1.0], [-1.5, -1.5, -1.5], [1.0, 0.2]])
def test_metric_properties(D):
    """Symmetry, bounds, constant speed, and the way through the middle is as long."""
    rng = np.random.default_rng(len(D))
    kernel = mf.Interaction(D)
    a, b = cloud(rng, 8, len(D)), cloud(rng, 6, len(D))

    def found(x, y):
        return mf.mobility_distance(x, y, kernel, 16, 14, 2)

    there, back = found(a, b), found(b, a)
    assert there.converged
    assert back.converged
    assert abs(there.distance / back.distance - 1) < 1e-6
    assert there.lower <= there.distance <= there.upper
    assert there.speed_variation < 0.002
    middle = there.at(8)
    halves = [found(x, y).distance for x, y in ((a, middle), (middle, b))]
    assert abs(sum(halves) / there.distance - 1) < 1e-4
    assert abs(halves[0] / halves[1] - 1) < 2e-3
    same = found(a, a)
    assert (same.distance, same.residual, same.converged) == (0.0, 0.0, True)
    assert not np.ptp(same.points, axis=0).any()
    near = found(a, mf.Measure(normalize(a.points + 1e-16), a.masses))
    assert near.distance < 1e-14
    assert near.converged


@pytest.mark.parametrize("n", [2, 3])
def test_triangle_inequality_on_random_triples(n):
    """25 triples each; upper bounds may break it, by less than 1e-6 here."""
    rng = np.random.default_rng(n)
    for _ in range(25):
        kernel = mf.Interaction(rng.uniform(-1.5, 1.5, size=(n, n)))
        a, b, c = (cloud(rng, int(rng.integers(1, 4)), n) for _ in range(3))
        ab, bc, ac = (
            mf.mobility_distance(x, y, kernel, 8, 6, starts=1).distance
            for x, y in ((a, b), (b, c), (a, c))
        )
        assert ac <= (ab + bc) * (1 + 1e-6)


def test_rotations_that_commute_with_the_matrix():
    rng = np.random.default_rng(6)
    kernel = mf.Interaction([1.5, 1.5, -0.5])
    a, b = cloud(rng, 7, 3), cloud(rng, 7, 3)
    q = np.eye(3)
    q[:2, :2] = rotation(rng, 2)
    turned = [mf.Measure(each.points @ q.T, each.masses) for each in (a, b)]
    first, second = (mf.mobility_distance(*pair, kernel, 16, 14, 1) for pair in ((a, b), turned))
    assert abs(first.distance / second.distance - 1) < 1e-6
    other = rotation(rng, 3)
    moved = [mf.Measure(each.points @ other.T, each.masses) for each in (a, b)]
    third = mf.mobility_distance(*moved, kernel, 16, 14, 1)
    assert abs(third.distance / first.distance - 1) > 1e-3


def test_a_better_coupling_than_that_of_w2_is_found():
    """W2 prefers short ways, W_m cheap ones."""
    rng = np.random.default_rng(41)
    kernel = mf.Interaction([3.0, -3.0, 0.0])
    gains = []
    for _ in range(6):
        a, b = mf.Measure(cloud(rng, 8, 3).points), mf.Measure(cloud(rng, 8, 3).points)
        fixed, free = (
            mf.mobility_distance(a, b, kernel, 8, 8, 1, recouplings=count).distance
            for count in (0, 3)
        )
        gains.append(1 - free / fixed)
    assert min(gains) > -1e-5
    assert max(gains) > 1e-3, gains


def test_what_is_recorded_rebuilds_the_result():
    a, b = np.eye(3)[:1], np.eye(3)[1:2]
    found = mf.mobility_distance(a, b, mf.Interaction([3.0] * 3), 8, 12, starts=3, seed=5)
    recorded = found.parameters
    assert (recorded["particle_count"], len(recorded["start_distances"])) == (12, 3)
    again = mf.mobility_distance(
        a,
        b,
        mf.Interaction(recorded["D"]),
        *(recorded[k] for k in ("steps", "particles", "starts", "seed")),
    )
    assert np.array_equal(found.points, again.points)
    assert found.points.shape == (9, 12, 3)
    assert found.velocities.shape == (8, 12, 3)
    assert np.abs(np.linalg.norm(found.points, axis=2) - 1).max() < 1e-14
    assert "12 particles" in repr(found)


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (0.0, "no positive lower bound"),
        (-2.0, "no positive lower bound"),
        (np.inf, "no positive lower bound"),
        (mf.Interaction([400.0, 1.0]), "no positive lower bound in double precision"),
        (lambda x, y: x @ y.T, "positive lower bound; got function"),
        (mf.Interaction([1.0, 1.0, 1.0]), "D is 3 x 3 but the measures live in R.2"),
    ],
)
def test_kernels_that_are_refused(kernel, words):
    with pytest.raises(InputError, match=words):
        mf.mobility_distance([[1.0, 0.0]], [[0.0, 1.0]], kernel)


def test_measures_that_are_refused():
    one = mf.Interaction([1.0, 1.0])
    with pytest.raises(PointsError, match="different spaces"):
        mf.mobility_distance(np.eye(2), np.eye(3), one)
    with pytest.raises(PointsError, match="unit"):
        mf.mobility_distance(np.eye(2), 2 * np.eye(2), one)
    with pytest.raises(DensityError, match="sum to one"):
        mf.Measure(np.eye(2), [0.5, 0.6])
    meshes = [mf.Measure(mf.circle(k).points, mf.circle(k).weights, mf.circle(k)) for k in (8, 16)]
    with pytest.raises(InputError, match="circle:8 and circle:16"):
        mf.mobility_distance(*meshes, one)
    assert mf.mobility_distance(*meshes, 1.0, method="cloud").distance < 0.3
    with pytest.raises(InputError, match="one mesh"):
        mf.mobility_distance(np.eye(2), np.eye(2), one, method="mesh")


def test_options_that_are_refused(monkeypatch):
    def call(**options):
        mf.mobility_distance(np.eye(2)[:1], np.eye(2)[1:], mf.Interaction([1.0, 1.0]), **options)

    for options, words in (
        ({"steps": 0}, "steps must be an integer >= 1"),
        ({"particles": 0}, "particles must be"),
        ({"starts": 1.5}, "starts must be"),
        ({"seed": -1}, "seed must be an integer >= 0"),
        ({"max_iterations": "many"}, "max_iterations must be"),
        ({"tolerance": 0.0}, "tolerance must be > 0"),
        ({"method": "fast"}, "auto, cloud, mesh"),
    ):
        with pytest.raises(InputError, match=words):
            call(**options)
    with pytest.raises(SizeError, match="use fewer points or steps"):
        call(particles=10_000)
