"""The studies of particles run at low resolution and give the numbers they are about."""

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


def test_single_particle(study, tmp_path):
    errors = study("single_particle").main(tmp_path, resolution=8)
    assert max(errors.values()) < 1e-12
    assert len(errors) == 4
    assert files(tmp_path) == ["single_particle.csv", "single_particle.png"]


def test_one_or_two_clusters(study, tmp_path, monkeypatch):
    module = study("one_or_two_clusters")
    assert pytest.approx(1.19968, abs=1e-5) == module.UPPER
    monkeypatch.setattr(module, "GRID", np.array([0.3, 1.0, 1.1, 1.5]))
    monkeypatch.setattr(module, "EXTRA", np.array([]))
    monkeypatch.setattr(module, "LONG_TIME", 400.0)
    # Below 100 starts every fourth value is run: here the first one only.
    assert module.main(tmp_path, resolution=20)["lambda"].tolist() == [0.3]
    columns = module.main(tmp_path, resolution=100)
    np.testing.assert_array_equal(columns["two_long"][1:3], 0)
    # 987 and 998 of 1,000 starts: the 95 % intervals of 100 more starts must overlap them.
    assert columns["two_long"][0] >= 92
    assert columns["two_long"][3] >= 96
    assert columns["unstable_pairs"].sum() == 0
    total = sum(columns[f"{k}_published"] for k in ("one", "two", "other"))
    np.testing.assert_array_equal(total, 100)
    assert files(tmp_path) == ["one_or_two_clusters.csv", "one_or_two_clusters.png"]


def test_pairs_are_stable_beyond_the_thresholds(study):
    module = study("one_or_two_clusters")
    half = np.array([0.5, 0.5])
    for lam, expected in ((1.1996, [False, False]), (1.1998, [True, False]),
                          (0.7615, [False, True]), (0.7617, [False, False])):  # fmt: skip
        stable = module.stable_pair(lam, half, np.array([True, False]))
        assert stable.tolist() == expected
    # A lighter partner needs more: at lambda = 1.3 equal shares hold, one to nine does not.
    shares = np.array([0.5, 0.9])
    assert module.stable_pair(1.3, shares, np.array([True, True])).tolist() == [True, False]


def test_wilson_interval(study):
    low, high = study("one_or_two_clusters").wilson(np.array([0, 50]), 100)
    np.testing.assert_allclose(low, [0.0, 0.40383], atol=1e-5)
    np.testing.assert_allclose(high, [0.03699, 0.59617], atol=1e-5)


def test_minimizing_particles(study, tmp_path):
    numbers = study("minimizing_particles").main(tmp_path, resolution=60)
    assert numbers["S2 Id"]["energy"] == pytest.approx(np.sinh(1.0), abs=1e-4)
    assert numbers["S1 diag(1 0)"]["energy"] == pytest.approx(1.0, abs=1e-6)
    assert numbers["S2 diag(1 1/4 1)"]["energy"] == pytest.approx(1.028, abs=2e-4)
    assert all(row["energy"] > row["minimum"] - 1e-12 for row in numbers.values()
               if np.isfinite(row["minimum"]))  # fmt: skip
    assert files(tmp_path) == ["minimizing_particles.npz", "minimizing_particles.png"]


def test_four_particles(study, tmp_path):
    module = study("four_particles")
    numbers = module.main(tmp_path, resolution=6)
    assert numbers["error_converged"] < 1e-4
    assert numbers["predicted_failure"] == pytest.approx(5.10, abs=0.005)
    assert numbers["first_failure"] == pytest.approx(6.2)
    # The overshooting step decides: just below it the angle is found, just above it is not.
    for l2 in (4.0, 6.0, 8.0):
        step = module.overshooting_step(l2)
        assert module.statistic(l2, 0.97 * step, 3000) == pytest.approx(l2, rel=1e-3)
        assert module.statistic(l2, 1.03 * step, 3000) < 1e-6
    assert files(tmp_path) == ["four_particles.npz", "four_particles.png"]


def test_negative_definite(study, tmp_path):
    numbers = study("negative_definite").main(tmp_path, resolution=20)
    for row in numbers.values():
        assert row["distance"] < 1e-6
        assert row["two_clusters"] == row["starts"]
        assert row["largest_energy"] <= row["bound"] * (1 + 1e-14)
    assert files(tmp_path) == ["negative_definite.csv", "negative_definite.png"]


def test_energies_one_two_clusters(study, tmp_path):
    numbers = study("energies_one_two_clusters").main(tmp_path, resolution=20)
    assert numbers["switch"] == pytest.approx(0.433780830483, abs=1e-12)
    assert numbers["computed_switch"] == pytest.approx(numbers["switch"], abs=1e-12)
    assert abs(numbers["largest_excess"]) < 1e-12
    assert files(tmp_path) == ["energies_one_two_clusters.csv", "energies_one_two_clusters.png"]
