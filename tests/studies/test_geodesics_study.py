"""The study of geodesics at low resolution, against bounds, closed forms and symmetry."""

import importlib
from pathlib import Path

import numpy as np
import pytest

import meanfield as mf

STUDIES = Path(__file__).parents[2] / "studies"
LAMBDAS = np.array([-3.0, 0.0, 3.0])
CASES = [(n, pair) for n in (2, 3) for pair in ("two clusters", "cluster and uniform")]


@pytest.fixture(scope="module")
def patched():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(STUDIES))
        module = importlib.import_module("geodesics")
        patch.setattr(module, "LAMBDAS", LAMBDAS)
        patch.setattr(module, "ON_CIRCLE", LAMBDAS)
        patch.setattr(module, "FEW_CELLS", 100)  # on S^1 only
        patch.setattr(module, "STEPS_ON_SPHERE", 4)
        patch.setattr(module, "QUANTILES", 16)
        patch.setattr(module, "CLOUD_STEPS", 8)
        yield module


@pytest.fixture(scope="module")
def study(patched, tmp_path_factory):
    folder = tmp_path_factory.mktemp("geodesics")
    numbers = patched.main(folder, resolution=32)
    files = sorted(path.name for path in folder.iterdir() if path.stat().st_size > 50)
    return patched, numbers, files


def column(study, case, name):
    module, numbers, _ = study
    return module.column(numbers["geodesics"], *case, name)


def test_files(study):
    assert study[2] == [
        "geodesics.csv",
        "geodesics.png",
        "geodesics_clouds.csv",
        "geodesics_diracs.csv",
        "geodesics_sphere.png",
    ]


@pytest.mark.parametrize("case", CASES)
def test_bounds(study, case):
    """exp(-|lambda|/2) W_2 <= W_m <= exp(|lambda|/2) W_2, and W_m = W_2 for K = 1."""
    assert column(study, case, "converged").all()
    assert column(study, case, "residual").max() < 1e-6
    ratio = column(study, case, "ratio")
    assert ratio[1] == pytest.approx(1.0, abs=1e-6)
    curved = LAMBDAS != 0
    assert (ratio > np.exp(-np.abs(LAMBDAS) / 2))[curved].all()
    assert (ratio < np.exp(np.abs(LAMBDAS) / 2))[curved].all()
    np.testing.assert_allclose(
        column(study, case, "W2_cells"), column(study, case, "W2"), rtol=0.03
    )


@pytest.mark.parametrize("case", CASES)
def test_geodesics_of_w2_are_longer(study, case):
    longer = column(study, case, "ratio_of_W2_path") / column(study, case, "ratio")
    assert longer[1] == pytest.approx(1.0, abs=1e-4)
    assert (longer[LAMBDAS != 0] > 1.001).all()


@pytest.mark.parametrize("n", [2, 3])
def test_mass_spreads_or_gathers(study, n):
    """Half way between two clusters: more spread the larger lambda, gathered for lambda < 0."""
    spread = column(study, (n, "two clusters"), "spread")
    assert (np.diff(spread) > 0).all()
    assert spread[-1] > 2 * spread[1]
    mesh = mf.circle(32) if n == 2 else mf.icosphere(2)
    start, _ = study[0].measures(mesh, "two clusters")
    assert spread[0] < 0.7 * study[0].spread(start.points, start.masses)


def test_two_starts_end_alike(study):
    """The spread mixture and the W_2 geodesic lead to the same stationary path."""
    for case in CASES[:2]:
        assert column(study, case, "other_start").max() < 1e-6


def test_particles_beside_cells(study):
    """Within 3 %; what gathers, lambda = -3, is narrower than these cells: within 6 %."""
    for case in CASES[:2]:
        ratio = column(study, case, "cloud") / column(study, case, "W_m")
        np.testing.assert_allclose(ratio[1:], 1.0, atol=0.03)
        np.testing.assert_allclose(ratio[0], 1.0, atol=0.06)


def test_diracs(study):
    """exp(lambda/2) pi/2 for lambda <= 0; for lambda = 3 mass that spreads is cheaper."""
    _, numbers, _ = study
    names = ("straight", "cloud", "coarse_cells", "cells")
    straight, cloud, coarse, fine = (
        np.array([row[name] for row in numbers["diracs"]]) for name in names
    )
    np.testing.assert_allclose(cloud[:2], np.exp(LAMBDAS[:2] / 2) * np.pi / 2, rtol=1e-9)
    assert (np.abs(fine / straight - 1) < 0.7 * np.abs(coarse / straight - 1))[:2].all()
    assert cloud[-1] < 7.02 < straight[-1] == pytest.approx(7.0398207, abs=1e-6)
    reached = numbers["clouds"]
    np.testing.assert_allclose(reached[0], straight[-1], rtol=1e-5)  # one particle
    assert (np.diff(reached, axis=0) < 1e-9).all()
    assert (np.diff(reached, axis=1) < 1e-9).all()


def test_symmetry(patched):
    """Backwards, and seen in the mirror, the geodesic between the clusters is the same."""
    mesh = mf.circle(32)
    a, b = patched.measures(mesh, "two clusters")
    cluster, uniform = patched.measures(mesh, "cluster and uniform")
    for interaction in (patched.kernel(-2.0, 2), patched.kernel(2.0, 2)):
        masses = mf.mobility_distance(a, b, interaction, 8).masses
        mirrored = np.roll(masses[::-1, ::-1], 1, axis=1)
        np.testing.assert_allclose(masses, mirrored, atol=1e-5)
        there = mf.mobility_distance(cluster, uniform, interaction, 8)
        back = mf.mobility_distance(uniform, cluster, interaction, 8)
        assert back.distance == pytest.approx(there.distance, rel=1e-6)


def test_some_mass_goes_the_other_way(patched):
    """With lambda > 0 the far side of S^1 is cheap, with lambda <= 0 nothing goes there."""
    mesh = mf.circle(32)
    ends = patched.measures(mesh, "two clusters")
    behind = [
        mf.mobility_distance(*ends, patched.kernel(lam, 2), 8).masses[4][mesh.points[:, 0] < -0.2]
        for lam in (-1.0, 0.0, 1.0)
    ]
    assert behind[0].sum() < 1e-5
    assert behind[1].sum() < 1e-3
    assert behind[2].sum() > 0.01
