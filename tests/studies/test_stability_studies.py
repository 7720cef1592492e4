"""The studies of stationary states run at low resolution, against closed forms."""

import importlib
from pathlib import Path

import numpy as np
import pytest

STUDIES = Path(__file__).parents[2] / "studies"


@pytest.fixture
def study(monkeypatch):
    monkeypatch.syspath_prepend(str(STUDIES))
    return importlib.import_module


def files(folder):
    return sorted(path.name for path in folder.iterdir() if path.stat().st_size > 100)


def test_energy_landscape(study, tmp_path, monkeypatch):
    module = study("energy_landscape")
    monkeypatch.setattr(module, "FOUR_STARTS", 8)
    monkeypatch.setattr(module, "BUMPS", 3)
    monkeypatch.setattr(module, "RANGE", (0.5, 8.0))  # no value near 1, where particles are slow
    numbers = module.main(tmp_path, resolution=4)
    assert numbers["E(1.0, 8.0)"] == pytest.approx(1.5361394350, abs=1e-10)
    assert numbers["E(8.0, 9.0)"] == pytest.approx(923.5880976392, abs=1e-9)
    assert numbers["E(1.0, 2.0)"] == pytest.approx(1.44421, abs=1e-5)
    assert numbers["four_particles_error"] < 1e-9
    assert numbers["computed_switch"] == pytest.approx(0.433780830483, abs=1e-9)
    assert numbers["maximum_error"] < 1e-8
    assert numbers["minimum_error"] < 1e-8
    assert files(tmp_path) == ["energy_landscape.npz", "energy_landscape.png"]


def test_four_particles_have_other_rests(study):
    """For D = diag(1, 3): the four points, three on one side, or all four; none is lower."""
    module = study("energy_landscape")
    _, energy, still = module.four_particles(3.0)
    assert still.all()
    found = np.unique(energy.round(4))
    np.testing.assert_allclose(found, [1.4959, 1.7575, 2.5530], atol=1e-4)


def test_basins(study, tmp_path):
    module = study("basins")
    results = module.main(tmp_path, resolution=24)
    for found in results.values():
        assert found["violations"] == 0
        total = sum(found["counts"].values())
        np.testing.assert_array_equal(total, 24)
    circle = results["n = 2, D = diag(-1, x)"]
    np.testing.assert_allclose(circle["x"], [-0.65, -0.15, 0.35, 0.85, 1.35])
    # Of 400 starts: all, all, all, none in pairs at e_1; one cluster must be stable, x > 0.
    np.testing.assert_array_equal(circle["counts"]["2 at e_1"], [24, 24, 24, 0, 0])
    np.testing.assert_array_equal(circle["counts"]["1 at e_2"][:2], 0)
    pairs = results["n = 3, D = diag(0.5, 1, x)"]["counts"]["2 at e_3"]
    assert pairs[:2].sum() == 0  # x = 0.925 and 1.175, below x tanh x = 1
    assert pairs[4] >= 18  # 0.94 of 400
    assert files(tmp_path) == ["basins.csv", "basins.png"]


def test_theory_sees_unstable_pairs(study):
    """A pair that is too unequal, or at the wrong axis, is a violation."""
    module = study("basins")
    ends = module.Ends(np.array(["2 at e_2", "2 at e_2", "2 at e_1", "1 at e_2"]),
                       np.array([0.86, 0.88, 0.5, 1.0]), np.array([1, 1, 0, 1]))  # fmt: skip
    assert module.stable_share([1.0, 1.5], 1) == pytest.approx(0.868891, abs=1e-6)
    assert module.violations([1.0, 1.5], ends) == 2


def test_stability_chart(study, tmp_path):
    numbers = study("stability_chart").main(tmp_path, resolution=8)
    assert numbers["agreement_L=1.5"] == 1
    assert numbers["agreement_L=-1"] == 1
    assert numbers["agreement_equal"] == 1
    assert numbers["threshold"] == pytest.approx(1.19967864, abs=1e-8)
    assert numbers["computed_threshold"] == pytest.approx(numbers["threshold"], abs=2e-6)
    assert files(tmp_path) == ["stability_chart.npz", "stability_chart.png"]
