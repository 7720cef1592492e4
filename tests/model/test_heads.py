"""Layers of several heads."""

import numpy as np
import pytest

import meanfield as mf
from meanfield.errors import InputError, MatrixError
from meanfield.model.heads import MultiHead
from meanfield.sphere.geometry import directions

HEADS = [mf.SelfAttention([1.0, 2.0]), mf.SelfAttention([0.5, -1.0], V=[[0.0, 1.0], [2.0, 0.0]])]


def test_velocities_add_up_or_average():
    points, masses = directions([0.0, 1.0, 2.5]), [0.2, 0.3, 0.5]
    parts = [head.on(points).velocity(masses) for head in HEADS]
    total = MultiHead(HEADS).on(points).velocity(masses)
    np.testing.assert_allclose(total, parts[0] + parts[1], rtol=1e-15)
    mean = MultiHead(HEADS, combine="mean").on(points).velocity(masses)
    np.testing.assert_allclose(mean, total / 2, rtol=1e-15)
    assert np.abs(np.sum(total * points, axis=1)).max() < 1e-15


def test_speed_is_bounded():
    layer = MultiHead(HEADS)
    assert layer.speed_bound == pytest.approx(4.0)
    assert not layer.is_gradient
    assert layer.dimension == 2
    assert "MultiHead" in repr(layer)


def test_bad_heads_are_refused():
    with pytest.raises(InputError, match="nonempty"):
        MultiHead([])
    with pytest.raises(InputError, match="SelfAttention"):
        MultiHead([np.eye(2)])
    with pytest.raises(InputError, match="combine"):
        MultiHead(HEADS, combine="product")
    with pytest.raises(MatrixError, match="one dimension"):
        MultiHead([HEADS[0], mf.SelfAttention([1.0, 1.0, 1.0])])
