"""Closed-form rates of one and two clusters, against particles, `stability` and each other."""

import numpy as np
import pytest

import meanfield as mf
from meanfield.equilibria.discrete_states import two_point_state
from meanfield.equilibria.two_point_rates import largest_stable_share, two_point_rates
from meanfield.errors import ComputationError, InputError, PointsError
from meanfield.sphere.geometry import normalize


def random_cases(count, seed=3):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        yield rng.normal(size=rng.integers(2, 5)) * rng.choice([0.5, 1.0, 3.0])


def test_the_share_is_where_the_rates_change_sign():
    """200 random matrices: stable just below the largest share, unstable just above."""
    decided = 0
    for values in random_cases(400):
        D, z = np.diag(values), np.eye(len(values))[0]
        share = largest_stable_share(values[0], values[1:])
        if share is None:
            assert not two_point_rates(D, z, 0.5).stable
            continue
        decided += 1
        assert two_point_rates(D, z, max(0.5, share - 1e-7)).stable
        if share < 1 - 1e-7:
            assert not two_point_rates(D, z, share + 1e-7).stable
    assert decided > 100


def test_the_share_solves_the_printed_inequality_for_positive_eigenvalues():
    """e^{2L} (L - l) = [L c + sqrt(L^2 c^2 - 4 (L^2 - l^2))] / 2 with c = r + 1/r."""
    for L, other in ((1.5, 1.0), (2.0, 0.3), (1.3, 1.0), (0.4, 0.01)):
        t = largest_stable_share(L, [other])
        c = t / (1 - t) + (1 - t) / t
        right = (L * c + np.sqrt((L * c) ** 2 - 4 * (L**2 - other**2))) / 2
        assert np.exp(2 * L) * (L - other) == pytest.approx(right, rel=1e-10)


def test_negative_eigenvalues_do_not_help_beyond_spreading():
    """D = diag(1, -0.9): two rigid clusters would hold up to t = 0.934, real ones to 0.881.

    The heavier cluster pulls the lighter one apart: particles show it.
    """
    assert largest_stable_share(1.0, [-0.9]) == pytest.approx(1 / (1 + np.exp(-2)), abs=1e-12)
    rates = two_point_rates([1.0, -0.9], [1.0, 0.0], t=0.9)
    assert (rates.moving < 0).all()
    assert rates.spreading[1] > 0
    assert not rates.stable
    angles = np.array([0.0, 0.0, np.pi - 1e-3, np.pi + 1e-3])
    points, weights = np.stack([np.cos(angles), np.sin(angles)], 1), [0.45, 0.45, 0.05, 0.05]
    run = mf.evolve_particles(points, mf.SelfAttention([1.0, -0.9]), 400.0, weights=weights)
    assert run.clusters().count == 1


@pytest.mark.parametrize(("t", "sign"), [(0.5, 1), (0.8, 1), (0.7, -1)])
@pytest.mark.parametrize("normalized", [True, False])
def test_rates_are_those_of_small_displacements(t, sign, normalized):
    """A displaced pair, and displaced members of a cluster, against the velocity itself."""
    model = mf.SelfAttention([0.7, -0.4, 1.4], sign=sign, normalized=normalized)
    rates = two_point_rates(model.D, [0, 0, 1.0], t, sign, normalized)
    eps = 1e-6
    z = np.array([0, 0, 1.0])
    masses = np.array([t / 2, t / 2, 1 - t])
    for axis, other in ((0, 0.7), (1, -0.4)):
        e = np.eye(3)[axis]

        def speeds(a, e=e):
            points = normalize(np.stack([z + a[0] * e, z + a[1] * e, -z + a[2] * e]))
            return model.on(points).velocity(masses) @ e

        jacobian = np.stack([(speeds(eps * v) - speeds(-eps * v)) / (2 * eps) for v in np.eye(3)],
                            axis=1)  # fmt: skip
        found = np.sort(np.linalg.eigvals(jacobian).real)
        row = int(np.flatnonzero(np.isclose(rates.others, other))[0])
        expected = np.sort([*rates.moving[row], rates.spreading[0]])
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-8)


def test_index_is_that_of_stability():
    for values in random_cases(25, seed=5):
        z = np.eye(len(values))[0]
        for t in (0.5, 0.83, 1.0):
            state = two_point_state(z, t)
            found = mf.stability(state, mf.SelfAttention(values))
            assert two_point_rates(np.diag(values), z, t).index == found.index


def test_thresholds_of_equal_clusters():
    assert largest_stable_share(1.19967, [1.0]) is None
    assert largest_stable_share(1.19969, [1.0]) > 0.5
    assert largest_stable_share(-1.0, [np.tanh(1.0) - 1e-9]) > 0.5
    assert largest_stable_share(-1.0, [np.tanh(1.0) + 1e-9]) is None
    assert largest_stable_share(-1.0, [-1.0 - 1e-9]) is None
    assert largest_stable_share(-1.0, [-1.0 + 1e-9]) > 0.5


def test_large_matrices_do_not_overflow():
    assert largest_stable_share(1000.0, [999.0]) == 1.0
    rates = two_point_rates([999.0, 1000.0], [0.0, 1.0])
    assert rates.stable
    assert rates.slowest == pytest.approx(-1.0)
    # Z = exp(-1000) of a single cluster at a negative eigenvalue
    single = two_point_rates([-1000.0, 999.0], [1.0, 0.0], t=1.0)
    assert single.spreading.tolist() == [1000.0]
    assert single.moving.tolist() == [[1999.0]]
    with pytest.raises(ComputationError, match="take the normalised flow"):
        two_point_rates([999.0, 1000.0], [0.0, 1.0], normalized=False)


def test_slow_rates_of_the_unnormalised_flow_are_not_neutral():
    rates = two_point_rates([-12.0, -10.0], [1.0, 0.0], t=1.0, normalized=False)
    assert rates.spreading == pytest.approx([12 * np.exp(-12)], rel=1e-12)
    assert rates.index == two_point_rates([-12.0, -10.0], [1.0, 0.0], t=1.0).index == 2


def test_bad_input_is_refused():
    with pytest.raises(PointsError, match="eigenvector"):
        two_point_rates([1.0, 2.0], [0.6, 0.8])
    with pytest.raises(PointsError, match=r"R\^3"):
        two_point_rates([1.0, 2.0], [0.0, 0.0, 1.0])
    with pytest.raises(InputError, match="sign"):
        two_point_rates([1.0, 2.0], [0.0, 1.0], sign=2)
    with pytest.raises(InputError, match="t must be"):
        two_point_rates([1.0, 2.0], [0.0, 1.0], t=1.5)
