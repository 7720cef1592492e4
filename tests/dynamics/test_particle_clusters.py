"""Clusters are counted by angle."""

import numpy as np
import pytest

from meanfield.dynamics import particle_clusters
from meanfield.dynamics.particle_clusters import find_clusters
from meanfield.dynamics.particle_starts import random_points
from meanfield.errors import InputError, PointsError
from meanfield.sphere.geometry import directions, normalize


def noisy(centres, size, seed):
    rng = np.random.default_rng(seed)
    centres = np.repeat(centres, size, axis=0)
    return normalize(centres + 1e-3 * rng.normal(size=centres.shape))


@pytest.mark.parametrize("n", [2, 3, 6])
def test_antipodal_clusters_are_two(n):
    top = np.eye(n)[-1]
    clusters = find_clusters(noisy(np.array([top, -top, top]), 30, seed=n))
    assert clusters.count == 2
    np.testing.assert_allclose(clusters.masses, [2 / 3, 1 / 3], rtol=1e-12)
    np.testing.assert_allclose(clusters.centres, [top, -top], atol=1e-3)
    assert set(clusters.labels[30:60]) == {1}


def test_clusters_close_over_the_cut_of_the_angle():
    clusters = find_clusters(directions([-0.03, 0.03, 3.0, 2 * np.pi]), angle=0.1)
    assert clusters.count == 2
    assert clusters.labels.tolist() == [0, 0, 1, 0]
    np.testing.assert_allclose(clusters.centres[0], [1.0, 0.0], atol=1e-15)


def test_gaps_decide_to_the_angle():
    chain = directions(0.05 * np.arange(10))
    assert find_clusters(chain, angle=0.0501).count == 1
    assert find_clusters(chain, angle=0.0499).count == 10
    lifted = np.column_stack([chain, np.zeros(10)])
    assert find_clusters(lifted, angle=0.0501).count == 1
    assert find_clusters(lifted, angle=0.0499).count == 10
    everywhere = find_clusters(directions(2 * np.pi * np.arange(100) / 100), angle=0.1)
    assert everywhere.count == 1
    assert np.isnan(everywhere.centres).all()


def test_weights_are_masses_and_batches_keep_their_starts():
    e = np.eye(3)
    batch = np.stack([e, e[[0, 0, 0]], e[[0, 1, 1]]])
    clusters = find_clusters(batch, weights=[0.2, 0.3, 0.5])
    assert clusters.count.tolist() == [3, 1, 2]
    np.testing.assert_allclose(clusters.masses, [[0.5, 0.3, 0.2], [1, 0, 0], [0.8, 0.2, 0]])
    np.testing.assert_allclose(clusters.centres[0], e[::-1])
    assert np.isnan(clusters.centres[1, 1:]).all()
    assert clusters.labels[2].tolist() == [1, 0, 0]
    massless = find_clusters(directions([0.0, 1.0, 2.0]), weights=[0.0, 1.0, 0.0])
    assert massless.count == 3
    assert np.isfinite(massless.centres).all()


def test_circle_and_tree_agree():
    points = random_points(60, 2, seed=4, starts=20)
    lifted = np.concatenate([points, np.zeros((20, 60, 1))], axis=2)
    for angle in (0.01, 0.1, 0.3):
        flat, tree = find_clusters(points, angle=angle), find_clusters(lifted, angle=angle)
        np.testing.assert_array_equal(flat.count, tree.count)
        np.testing.assert_allclose(flat.masses, tree.masses)


def test_thinning_many_particles_changes_nothing(monkeypatch):
    points = noisy(np.concatenate([np.eye(3), -np.eye(3)]), 500, seed=1)
    many = find_clusters(points)
    monkeypatch.setattr(particle_clusters, "THIN", 10_000)
    few = find_clusters(points)
    assert many.count == few.count == 6
    np.testing.assert_allclose(many.masses, few.masses)


def test_bad_input_is_refused():
    for angle in (0.0, -1.0, 4.0, np.nan):
        with pytest.raises(InputError, match="angle"):
            find_clusters(np.eye(3), angle=angle)
    with pytest.raises(PointsError):
        find_clusters([1.0, 0.0])
