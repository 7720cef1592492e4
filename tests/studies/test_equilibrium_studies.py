"""The studies of minimisers run at low resolution, and find the numbers they are about."""

import sys
from pathlib import Path

import numpy as np
import pytest

STUDIES = Path(__file__).parents[2] / "studies"


@pytest.fixture
def study(monkeypatch):
    monkeypatch.syspath_prepend(str(STUDIES))

    def load(name):
        sys.modules.pop(name, None)
        return __import__(name)

    return load


def test_perturbation_of_identity(study, tmp_path):
    found = study("perturbation_of_identity").main(tmp_path, resolution=7)
    for n in (2, 3):
        slopes = found[f"slopes n={n}"]
        assert slopes["first order"] == pytest.approx(2.0, abs=0.1)
        assert slopes["second order"] == pytest.approx(3.0, abs=0.15)
        assert 1.8 < slopes["exponential, corrected"] < 2.3
    assert found["slopes n=2"]["exponential, (5.6) as printed"] == pytest.approx(1.0, abs=0.05)
    assert found["exponent n=2"]["eps"] == pytest.approx(2.08165306, abs=1e-7)
    assert found["exponent n=2"]["eps^2"] == pytest.approx(-0.96079987, abs=1e-7)
    # The published figure, with the right alpha; and what 1500 mirror steps miss.
    tenth, third = found["eps=0.1"], found["eps=0.3"]
    assert tenth["l2_first_order"] == pytest.approx(3.15e-4, abs=1e-6)
    assert tenth["l2_printed"] == pytest.approx(1.36e-3, abs=1e-5)
    assert third["l2_first_order"] == pytest.approx(2.61e-3, abs=1e-5)
    assert third["cos4_exact"] == pytest.approx(0.00271, abs=1e-5)
    assert third["cos4_mirror"] == pytest.approx(0.00136, abs=1e-5)
    assert third["cos4_polished"] == pytest.approx(third["cos4_exact"], abs=1e-8)
    assert 0 < third["mirror_energy_excess"] < 1e-7
    table = np.loadtxt(tmp_path / "perturbation_of_identity.csv", delimiter=",", skiprows=1)
    assert table.shape == (7, 8)
    assert (tmp_path / "perturbation_of_identity.png").stat().st_size > 10_000


def test_full_support(study, tmp_path):
    found = study("full_support").main(tmp_path, resolution=6)
    assert found["negative"] == 0
    assert 0 < found["smallest_circle"] < 1e-3
    assert 0 < found["smallest_sphere"] < 0.1  # diag(1, 1, 2.5)
    assert found["limit_error"] < 0.2  # l1 = 0.1 is near the limit of small D, not at it
    arrays = np.load(tmp_path / "full_support.npz")
    np.testing.assert_allclose(np.diag(arrays["circle"]), 1, atol=1e-12)
    assert (np.diff(arrays["curves"][1][:4]) < 0).all()
    assert (tmp_path / "full_support.png").stat().st_size > 10_000
