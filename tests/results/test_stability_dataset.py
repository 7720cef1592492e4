"""Results of `stability` as datasets and files."""

import json

import numpy as np
import pytest

import meanfield as mf
from meanfield.equilibria.discrete_states import two_point_state
from meanfield.results.stability_dataset import stability_dataset
from meanfield.results.ugrid import open_netcdf

MODEL = mf.SelfAttention([1.0, 1.0, 1.5])


def test_clusters(tmp_path):
    found = mf.stability(two_point_state([0.0, 0.0, 1.0], 0.3), MODEL, modes=5)
    found.save(tmp_path / "s.nc")
    with open_netcdf(tmp_path / "s.nc") as stored:
        assert dict(stored.sizes) == {"point": 2, "mode": 5, "component": 3}
        assert np.array_equal(stored["rate"].values, found.rates)
        assert np.array_equal(stored["field"].values, found.fields)
        assert np.array_equal(stored["splitting"].values.astype(bool), found.splitting)
        points = np.stack([stored[name].values for name in "xyz"], axis=1)
        assert np.array_equal(points, found.points)
        for name in ("index", "splitting_index", "residual", "stationary", "symmetries"):
            assert float(stored[name]) == getattr(found, name)
        parameters = json.loads(stored.attrs["parameters"])
        assert (parameters["verb"], parameters["sign"], parameters["modes"]) == ("stability", 1, 5)
        assert stored.attrs["title"] == "Stability of 2 clusters, index 0"
        assert "potential" not in stored
    with pytest.raises(mf.errors.FileError, match="exists"):
        found.save(tmp_path / "s.nc")


def test_a_density_on_a_mesh():
    mesh = mf.icosphere(2)
    found = mf.stability(mf.uniform(), mf.SelfAttention([1, 1, 1]), modes=3, space=mesh)
    dataset = stability_dataset(found)
    assert dict(dataset.sizes)["face"] == mesh.n_cells
    assert dataset["potential"].dims == ("mode", "face")
    assert dataset["field"].dims == ("mode", "face", "component")
    assert dataset["potential"].attrs["location"] == "face"
    assert np.abs(dataset["density"].values - 1).max() < 1e-14
    assert dataset.attrs["title"].startswith("Stability of a density on icosphere:2, index ")


def test_without_an_energy_there_are_imaginary_parts():
    model = mf.SelfAttention([1.0, 0.5, 0.5], V=[[1, 0, 0], [0, 0.2, 1], [0, -1, 0.2]])
    found = mf.stability(two_point_state([1.0, 0, 0]), model)
    dataset = found.to_dataset()
    assert np.abs(dataset["rate_imaginary"].values).max() > 0.1
    both = dataset["field"].values + 1j * dataset["field_imaginary"].values
    assert np.array_equal(both, found.fields)


def test_a_state_that_is_not_stationary_says_so():
    found = mf.stability(mf.Measure([[0.6, 0.0, 0.8]]), MODEL)
    assert "1 cluster, not stationary: residual" in found.to_dataset().attrs["title"]


def test_more_dimensions():
    found = mf.stability(two_point_state(np.eye(4)[3]), mf.SelfAttention([1, 1.1, 1.2, 2]))
    dataset = found.to_dataset()
    assert dataset["position"].shape == (2, 4)
    assert "x" not in dataset
