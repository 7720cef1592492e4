"""Transforms against the functions themselves."""

import numpy as np
import pytest

import meanfield as mf
from meanfield.errors import MeshError
from meanfield.sphere.harmonics import harmonic_transform, harmonic_values


def random_points(n, count=300):
    points = np.random.default_rng(n).standard_normal((count, n))
    points[:n] = np.eye(n)
    points[n] = -np.eye(n)[-1]
    return points / np.linalg.norm(points, axis=1, keepdims=True)


@pytest.mark.parametrize(("n", "degree"), [(2, 0), (2, 25), (3, 0), (3, 1), (3, 20)])
def test_transforms_are_the_basis_and_its_transpose(n, degree):
    points = random_points(n)
    transform, basis = harmonic_transform(points, degree), harmonic_values(points, degree)
    rng = np.random.default_rng(0)
    coefficients = rng.standard_normal(len(basis))
    values = rng.standard_normal(len(points))
    scale = np.abs(coefficients).sum()
    assert np.abs(transform.synthesize(coefficients) - coefficients @ basis).max() < 1e-13 * scale
    scale = np.abs(values).sum()
    assert np.abs(transform.analyze(values) - basis @ values).max() < 1e-13 * scale


@pytest.mark.parametrize("n", [2, 3])
def test_basis_is_orthonormal(n):
    degree = 12
    space = mf.product_sphere(n, 2 * degree)
    basis = harmonic_values(space.points, degree)
    gram = (basis * space.weights * space.surface) @ basis.T
    assert np.abs(gram - np.eye(len(gram))).max() < 1e-12


def test_basis_by_hand():
    x, y, z = points = np.array([0.48, 0.6, 0.64])
    basis = harmonic_values(points[None], 2)[:, 0]
    transform = harmonic_transform(points[None], 2)
    by_hand = {
        (0, 0): np.sqrt(1 / (4 * np.pi)),
        (1, 0): np.sqrt(3 / (4 * np.pi)) * z,
        (1, 1): np.sqrt(3 / (4 * np.pi)) * x,
        (1, -1): np.sqrt(3 / (4 * np.pi)) * y,
        (2, 0): np.sqrt(5 / (16 * np.pi)) * (3 * z * z - 1),
        (2, 1): np.sqrt(15 / (4 * np.pi)) * x * z,
        (2, -1): np.sqrt(15 / (4 * np.pi)) * y * z,
        (2, 2): np.sqrt(15 / (16 * np.pi)) * (x * x - y * y),
        (2, -2): np.sqrt(15 / (4 * np.pi)) * x * y,
    }
    for value, degree, order in zip(basis, transform.degree, transform.order, strict=True):
        assert value == pytest.approx(by_hand[degree, order], abs=1e-14)


def test_dimension_is_checked():
    with pytest.raises(MeshError, match=r"S\^1 and S\^2"):
        harmonic_transform(np.eye(4), 2)
    with pytest.raises(MeshError, match=">= 0"):
        harmonic_transform(np.eye(3), -1)
