"""Quadrature rules integrate what they claim, and no more."""

import numpy as np
import pytest
from scipy.special import gamma

import meanfield as mf
from meanfield.errors import MeshError, PointsError, SizeError
from meanfield.sphere.harmonics import harmonic_transform, harmonic_values
from meanfield.sphere.spaces import LEBEDEV_ORDERS


def even_moment(n, power):
    """int x_1^power dmu_0 on S^{n-1}."""
    return gamma(n / 2) * gamma((power + 1) / 2) / (gamma(0.5) * gamma((n + power) / 2))


@pytest.mark.parametrize("order", [3, 9, 15, 23, 31, 47])
def test_lebedev_is_exact_to_its_order_and_not_beyond(order):
    space = mf.lebedev(order)
    values = harmonic_values(space.points, order + 1)
    integrals = np.abs(values @ space.weights) * np.sqrt(4 * np.pi)
    degrees = harmonic_transform(space.points[:1], order + 1).degree
    assert integrals[(degrees > 0) & (degrees <= order)].max() < 5e-13
    assert integrals[degrees == order + 1].max() > 1e-3


@pytest.mark.parametrize("order", [12, 13, 25, 27, 133])
def test_lebedev_refuses_and_lists_valid_orders(order):
    with pytest.raises(MeshError, match=r"valid orders: 3, 5, 7") as error:
        mf.lebedev(order)
    assert ("negative weights" in str(error.value)) == (order in (13, 25, 27))


def test_all_lebedev_weights_are_positive():
    for order in LEBEDEV_ORDERS:
        space = mf.lebedev(order)
        assert space.weights.min() > 0
        assert abs(space.weights.sum() - 1) < 1e-14


@pytest.mark.parametrize("n", [2, 3, 4, 5])
@pytest.mark.parametrize("degree", [4, 7])
def test_product_rule_is_exact_two_sidedly(n, degree):
    space = mf.product_sphere(n, degree)
    assert len(space) == (degree + 1) ** (n - 1)
    even = degree - degree % 2
    for axis in range(n):
        error = space.integrate(space.points[:, axis] ** even) - even_moment(n, even)
        assert abs(error) < 1e-14
    # The longitudes are the weakest factor: degree + 1 of them alias cos((degree + 1) phi).
    angle = np.arctan2(space.points[:, 1], space.points[:, 0])
    radius = np.hypot(space.points[:, 0], space.points[:, 1])
    beyond = space.integrate(radius ** (degree + 1) * np.cos((degree + 1) * angle))
    assert abs(beyond) > 1e-4


def test_bad_spaces():
    with pytest.raises(MeshError, match="n >= 2"):
        mf.product_sphere(1, 3)
    with pytest.raises(SizeError, match="GiB"):
        mf.product_sphere(6, 100)
    with pytest.raises(MeshError, match="positive"):
        mf.Space([[1.0, 0.0], [0.0, 1.0]], [1.0, -1.0])
    with pytest.raises(PointsError, match="not on the unit sphere"):
        mf.Space([[1.0, 0.5]])
