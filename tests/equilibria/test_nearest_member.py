"""Distances to families of states: against optimal transport, and against scans."""

import numpy as np
import pytest

import meanfield as mf
from meanfield.equilibria.discrete_states import two_point_state
from meanfield.equilibria.nearest_member import (
    distance_to_clusters,
    distance_to_pairs,
    distance_to_subspace,
)
from meanfield.errors import InputError, PointsError
from meanfield.measures import Measure
from meanfield.sphere.geometry import normalize


def random_measure(n, seed, count=30):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(count, n))
    points[:, 0] += 0.5
    masses = rng.random(count)
    return Measure(normalize(points), masses / masses.sum())


@pytest.mark.parametrize("n", [2, 3, 4])
def test_lines_are_optimal_transport(n):
    measure, z = random_measure(n, n), np.eye(n)[0]
    for t in (0.5, 0.3):
        far, _ = distance_to_pairs(measure, z[:, None], t)
        both = [mf.wasserstein(measure, two_point_state(s * z, t)) for s in (1, -1)]
        assert far == pytest.approx(min(both), abs=1e-12)
    far, nearest = distance_to_clusters(measure, z[:, None])
    assert far == pytest.approx(mf.wasserstein(measure, Measure([nearest])), abs=1e-12)
    free, axis = distance_to_pairs(measure, z[:, None], None)
    shares = measure.masses[measure.points @ axis > 0].sum()
    exact = mf.wasserstein(measure, two_point_state(axis, float(shares)))
    assert free == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize("distance", [distance_to_clusters, distance_to_pairs])
def test_planes_hold_no_nearer_member(n, distance):
    """720 members of a plane of axes: none is nearer, and the best is within its spacing."""
    measure = random_measure(n, 10 + n)
    plane = np.linalg.qr(np.random.default_rng(n).normal(size=(n, 2)))[0]
    turn = np.linspace(0, 2 * np.pi, 720, endpoint=False)
    axes = np.stack([np.cos(turn), np.sin(turn)], 1) @ plane.T
    scan = min(distance(measure, z[:, None])[0] for z in axes)
    assert scan - 1e-4 < distance(measure, plane)[0] <= scan + 1e-12


def test_members_are_at_distance_zero():
    z = np.array([0.6, 0.0, 0.8])
    assert distance_to_clusters(Measure([z]), np.eye(3))[0] < 1e-12
    assert distance_to_pairs(two_point_state(z), np.eye(3))[0] < 1e-12
    assert distance_to_pairs(two_point_state(z, 0.2), np.eye(3), None)[0] < 1e-12
    # a quarter of the mass is on the wrong side
    far, _ = distance_to_pairs(two_point_state(z, 0.25), z[:, None])
    assert far == pytest.approx(np.pi / 2, abs=1e-12)


def test_null_spaces():
    measure = Measure([[0.6, 0.8, 0.0], [0.0, 0.0, 1.0]])
    expected = np.sqrt(np.arctan2(0.6, 0.8) ** 2 / 2)
    assert distance_to_subspace(measure, np.eye(3)[:, 1:]) == pytest.approx(expected, abs=1e-15)


def test_bad_input_is_refused():
    with pytest.raises(PointsError, match=r"R\^2"):
        distance_to_clusters(Measure([[1.0, 0.0]]), np.eye(3))
    with pytest.raises(PointsError, match="unit"):
        distance_to_clusters(Measure([[2.0, 0.0]]), np.eye(2))
    with pytest.raises(InputError, match="t must be"):
        distance_to_pairs(Measure([[1.0, 0.0]]), np.eye(2), 1.5)
