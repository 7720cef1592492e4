"""The attention velocity."""

import numpy as np
import pytest

import meanfield as mf
from meanfield.errors import InputError, MatrixError

RNG = np.random.default_rng(3)


def cloud(n, count=50):
    points = RNG.standard_normal((count, n))
    masses = RNG.random(count)
    return points / np.linalg.norm(points, axis=1)[:, None], masses / masses.sum()


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("normalized", [True, False])
def test_velocity_by_hand(n, normalized):
    D, V = RNG.standard_normal((2, n, n))
    points, masses = cloud(n)
    velocity = mf.SelfAttention(D, V=V, normalized=normalized).on(points).velocity(masses)
    for i in (0, 17):
        kernel = masses * np.exp(points[i] @ D @ points.T)
        field = kernel @ points @ V.T
        field = field / kernel.sum() if normalized else field
        exact = field - (points[i] @ field) * points[i]
        assert np.abs(velocity[i] - exact).max() < 1e-13 * np.abs(field).max() + 1e-14


@pytest.mark.parametrize("normalized", [True, False])
def test_speed_bound(normalized):
    model = mf.SelfAttention(RNG.standard_normal((3, 3)), V=[3.0, -2.0, 1.0], normalized=normalized)
    points, masses = cloud(3)
    speeds = np.linalg.norm(model.on(points).velocity(masses), axis=1)
    assert speeds.max() < model.speed_bound


def test_what_is_a_gradient_flow():
    assert mf.SelfAttention([1.0, 2.0]).is_gradient
    assert mf.SelfAttention([1.0, 2.0], V=[-1.0, -2.0]).sign == -1
    assert not mf.SelfAttention([[0.0, 1.0], [-1.0, 0.0]]).is_gradient
    general = mf.SelfAttention([1.0, 2.0], V=np.eye(2))
    assert general.sign is None
    assert not general.is_gradient


def test_bad_models():
    with pytest.raises(InputError, match="either V or sign"):
        mf.SelfAttention([1.0, 2.0], sign=1, V=np.eye(2))
    with pytest.raises(InputError, match="sign must be 1 or -1"):
        mf.SelfAttention([1.0, 2.0], sign=0)
    with pytest.raises(MatrixError, match="V has shape"):
        mf.SelfAttention([1.0, 2.0], V=np.eye(3))
