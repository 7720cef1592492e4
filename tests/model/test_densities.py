"""Densities are normalised, and rebuild from points."""

import numpy as np
import pytest

import meanfield as mf
from meanfield.errors import DensityError, InputError, PointsError
from meanfield.model.densities import default_concentration

SPACES = {2: mf.circle(400), 3: mf.lebedev(65), 4: mf.product_sphere(4, 24)}


@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize("concentration", [0.0, 1e-6, 2.0, 20.0])
def test_von_mises_fisher_integrates_to_one(n, concentration):
    density = mf.von_mises_fisher(np.arange(n) - 0.5, concentration)
    space = SPACES[n]
    assert space.integrate(density(space.points)) == pytest.approx(1, abs=1e-10)
    assert np.allclose(np.log(density(space.points)), density.log(space.points), atol=1e-13)


def test_mixture_and_points_integrate_to_one():
    a, b = mf.von_mises_fisher([0, 0, 1], 3), mf.uniform()
    space = SPACES[3]
    mixed = mf.mixture([a, b], [1, 3])
    assert np.allclose(mixed(space.points), 0.25 * a(space.points) + 0.75)
    estimate = mf.from_points(a.mean[None].repeat(3, axis=0), concentration=8.0)
    single = mf.von_mises_fisher([0, 0, 1], 8.0)
    assert np.allclose(estimate(space.points), single(space.points), rtol=1e-12)
    assert space.integrate(estimate(space.points)) == pytest.approx(1, abs=1e-10)


def test_kernel_estimate_converges_with_the_default_bandwidth():
    # Samples of a von Mises-Fisher law on S^2 by inversion of the height.
    rng, kappa = np.random.default_rng(5), 4.0
    truth = mf.von_mises_fisher([0, 0, 1], kappa)
    space, errors = SPACES[3], []
    for count in (200, 20_000):
        u, phi = rng.random(count), 2 * np.pi * rng.random(count)
        z = 1 + np.log(u + (1 - u) * np.exp(-2 * kappa)) / kappa
        r = np.sqrt(1 - z * z)
        points = np.column_stack([r * np.cos(phi), r * np.sin(phi), z])
        estimate = mf.from_points(points)
        errors.append(space.integrate((estimate(space.points) - truth(space.points)) ** 2))
    # Mean integrated squared error falls like count^(-4/6): 100^(-2/3) = 0.046.
    assert errors[1] < 0.12 * errors[0]
    assert default_concentration(points) > 20


def test_bad_densities():
    with pytest.raises(DensityError, match="concentration"):
        mf.von_mises_fisher([0, 0, 1], -1.0)
    with pytest.raises(PointsError, match="zero"):
        mf.von_mises_fisher([0, 0, 0], 1.0)
    with pytest.raises(DensityError, match="as many weights"):
        mf.mixture([mf.uniform()], [1, 2])
    with pytest.raises(InputError, match=r"lives in R\^3"):
        mf.von_mises_fisher([0, 0, 1], 1.0)(np.eye(2))
    with pytest.raises(DensityError, match="> 0"):
        mf.from_points(np.eye(3), concentration=0.0)
    with pytest.raises(PointsError, match="not on the unit sphere"):
        mf.from_points(2 * np.eye(3))
