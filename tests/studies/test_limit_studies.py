"""The studies of the mean-field limit and of metastability run and give their numbers."""

import importlib
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import quad

import meanfield as mf
from meanfield.sphere.geometry import directions

STUDIES = Path(__file__).parents[2] / "studies"


@pytest.fixture
def study(monkeypatch):
    monkeypatch.syspath_prepend(str(STUDIES))
    return importlib.import_module


def files(folder):
    return sorted(path.name for path in folder.iterdir() if path.stat().st_size > 100)


def uniform_cdf(cells):
    return 2 * np.pi * (np.arange(cells + 1) - 0.5) / cells, np.arange(cells + 1) / cells


def test_distance_on_the_circle(study):
    module = study("mean_field_limit")
    nodes, cdf = uniform_cdf(50)
    # One particle: the mean distance to the uniform measure is pi/2; N of them: pi/(2N).
    for count in (1, 2, 5, 40):
        points = directions(0.3 + 2 * np.pi * np.arange(count) / count)
        found = module.particles_to_density(points, nodes, cdf)
        assert found == pytest.approx(np.pi / (2 * count), abs=1e-12)
    # Mass in one cell against the particle at the far end of a short arc across the cut.
    point_mass = np.zeros(50)
    point_mass[0] = 1.0
    cell = module.distribution(point_mass)
    for turn in (-0.5, 0.5, 2.0, np.pi - 0.1, -np.pi + 0.1):
        found = module.particles_to_density(directions([turn]), *cell)
        assert found == pytest.approx(abs(turn), abs=1e-10)
    far = module.distribution(np.roll(point_mass, 20))
    assert module.density_to_density(*cell, *far) == pytest.approx(0.8 * np.pi, abs=1e-12)
    far = module.distribution(np.roll(point_mass, 40))
    assert module.density_to_density(*cell, *far) == pytest.approx(0.4 * np.pi, abs=1e-12)


def test_distance_does_not_know_where_the_circle_is_cut(study):
    module = study("mean_field_limit")
    rng = np.random.default_rng(1)
    theta, masses = rng.uniform(0, 2 * np.pi, 30), rng.dirichlet(np.ones(24))
    plain = module.particles_to_density(directions(theta), *module.distribution(masses))
    for k in (1, 7, 20):
        turned = directions(theta + 2 * np.pi * k / 24), *module.distribution(np.roll(masses, k))
        assert module.particles_to_density(*turned) == pytest.approx(plain, abs=1e-12)


def test_mean_field_limit(study, tmp_path, monkeypatch):
    module = study("mean_field_limit")
    monkeypatch.setattr(module, "BUDGET", 8_000)
    monkeypatch.setattr(module, "STEPS", np.array([0.1, 0.05, 0.02]))
    numbers = module.main(tmp_path, resolution=1000)
    for law in ("normalised flow", "unnormalised flow", "layers"):
        assert numbers[f"{law}, random, rate of W1"] == pytest.approx(-0.5, abs=0.1)
        assert numbers[f"{law}, random, rate of moments"] == pytest.approx(-0.5, abs=0.1)
        assert numbers[f"{law}, quantile, rate of W1"] == pytest.approx(-1.0, abs=0.01)
    assert numbers["quantiles, N W1"] == pytest.approx(np.pi / 2, rel=1e-3)
    assert numbers["layers, quantile, moments at N = 1000"] < 1e-12
    for law in ("normalised flow", "unnormalised flow"):
        reference = numbers[f"{law}, moment error of the reference"]
        assert reference < 5e-5
        moments = numbers[f"{law}, quantile, moments at N = 1000"]
        assert moments == pytest.approx(reference, rel=0.02)
    assert numbers["layers, order in the step"] == pytest.approx(0.956, abs=0.002)
    assert files(tmp_path) == ["mean_field_limit.csv", "mean_field_limit.png"]


def test_merging_time_of_two_tokens(study):
    time = study("metastability").merging_time
    assert time(1.0, 2.0, 0.40746124050) == pytest.approx(3.0, abs=1e-9)
    assert time(4.0, 2.0, 1.90985057401) == pytest.approx(3.0, abs=1e-9)

    def slowness(angle, beta=7.0):
        return (1 + np.exp(beta * (1 - np.cos(angle)))) / (2 * beta * np.sin(angle))

    assert time(7.0, 1.7, 0.2) == pytest.approx(quad(slowness, 0.2, 1.7, epsrel=1e-12)[0])
    # The leading term is right up to a relative error 2 cos(angle) / (beta sin^2(angle)).
    ratio = 2 * (150 * np.sin(1.0)) ** 2 * time(150.0, 1.0) * np.exp(-150 * (1 - np.cos(1.0)))
    assert ratio - 1 == pytest.approx(2 * np.cos(1.0) / (150 * np.sin(1.0) ** 2), rel=0.05)


def test_a_coarse_grid_holds_a_pair(study):
    module = study("metastability")
    assert module.holding_beta(64) == pytest.approx(6.05, abs=0.01)
    free, held = module.grid_pair(4.0, 64), module.grid_pair(10.0, 64)
    assert module.crossing(*free) == pytest.approx(module.merging_time(4.0, 1.0), rel=0.5)
    assert np.isnan(module.crossing(*held))
    assert held[1][-1] == pytest.approx(held[1][300], abs=1e-3)


def test_particles_that_meet_become_one(study):
    module = study("metastability")
    theta = np.array([0.0, 5e-5, 1.0])
    points, weights = module.merged(directions(theta), np.array([0.2, 0.2, 0.6]))
    np.testing.assert_allclose(weights, [0.6, 0.4])
    np.testing.assert_allclose(points, directions([1.0, 2.5e-5]), atol=1e-12)


def test_metastability(study, tmp_path, monkeypatch):
    module = study("metastability")
    for name, value in (
        ("PAIRS", {1.0: np.array([25.0, 40.0]), 2.0: np.array([12.0, 16.0])}),
        ("BETAS", (5.0, 20.0)),
        ("GRID_BETAS", (8.0,)),
        ("LAST", 300.0),
    ):
        monkeypatch.setattr(module, name, value)
    numbers = module.main(tmp_path, resolution=120)
    for angle in ("1", "2"):
        where = f"pair from {angle}"
        assert numbers[f"{where}, largest |tokens / exact - 1|"] < 3e-4
        assert numbers[f"{where}, largest |clusters / exact - 1|"] < 5e-3
        predicted = numbers[f"{where}, predicted rate"]
        assert predicted == pytest.approx(1 - np.cos(float(angle)))
        for kind in ("tokens", "clusters"):
            rate = numbers[f"{where}, {kind}, rate of beta^2 T"]
            assert rate == pytest.approx(predicted, rel=0.015)
    for beta in (5, 20):
        where = f"beta = {beta}"
        assert numbers[f"{where}, energy of finite volumes against particles"] < 0.05
        assert numbers[f"{where}, clusters formed"] >= 3
        assert numbers[f"{where}, clusters left"] < numbers[f"{where}, clusters formed"]
    table = np.loadtxt(tmp_path / "metastability_counts.csv", delimiter=",", skiprows=1)
    for beta in (5, 20):
        energy = table[(table[:, 0] == beta) & (table[:, 1] == 0), 3]
        assert (np.diff(energy) > -1e-7).all()
        assert energy[-1] <= 1 + 1e-12
    assert files(tmp_path) == ["metastability.csv", "metastability.png",
                               "metastability_counts.csv"]  # fmt: skip


def test_the_energy_of_a_history_is_the_one_of_particles(study):
    module = study("metastability")
    start = module.start_particles(50)
    history = module.long_run(start, np.full(50, 0.02), 3.0, 0.0, 0.5)
    run = mf.evolve_particles(start, module.attention(3.0), history.times[-1], save=2)
    assert history.energy[-1] * np.exp(3.0) == pytest.approx(run.energy[-1], rel=1e-6)
