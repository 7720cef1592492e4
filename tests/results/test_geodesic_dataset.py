"""Geodesics as datasets: everything is there, and survives the file."""

import json

import numpy as np
import pytest

import meanfield as mf
from meanfield.results.geodesic_dataset import geodesic_dataset
from meanfield.results.ugrid import open_netcdf
from meanfield.sphere.geometry import normalize


@pytest.mark.parametrize("n", [2, 3, 4])
def test_clouds_through_a_file(tmp_path, n):
    rng = np.random.default_rng(n)
    a, b = normalize(rng.normal(size=(2, 5, n)))
    found = mf.mobility_distance(a, b, mf.Interaction([-1.0] * n), 4, 5, 2)
    found.save(tmp_path / "g.nc")
    with open_netcdf(tmp_path / "g.nc") as stored:
        assert dict(stored.sizes)["time"] == 5
        assert dict(stored.sizes)["interval"] == 4
        if n > 3:
            points = stored["position"].values
        else:
            points = np.stack([stored[name].values for name in "xyz"[:n]], axis=-1)
        assert np.array_equal(points, found.points)
        assert np.array_equal(stored["weight"].values, found.masses)
        assert np.array_equal(stored["velocity"].values, found.velocities)
        assert np.array_equal(stored["speed"].values, found.speed)
        assert stored["interval_time"].values.tolist() == [0.125, 0.375, 0.625, 0.875]
        for name in ("distance", "lower", "upper", "residual"):
            assert float(stored[name]) == getattr(found, name)
        assert bool(stored["converged"]) == found.converged
        parameters = json.loads(stored.attrs["parameters"])
        assert parameters == json.loads(json.dumps(found.parameters))
        assert "Geodesic of 5 particles: D = diag(-1" in stored.attrs["title"]


@pytest.mark.parametrize("mesh", [mf.circle(12), mf.icosphere(1)], ids=["circle", "hexagons"])
def test_meshes_are_ugrid(mesh):
    first = np.exp(mesh.points[:, 0]) * mesh.weights
    second = np.exp(mesh.points[:, 1]) * mesh.weights
    a, b = (mf.Measure(mesh.points, each / each.sum(), mesh) for each in (first, second))
    found = mf.mobility_distance(a, b, 2.0, steps=3)
    assert found.kind == "mesh"
    dataset = geodesic_dataset(found)
    place = "edge" if mesh.dimension == 2 else "face"
    assert dataset["density"].dims == ("time", place)
    assert dataset["density"].attrs["location"] == place
    assert np.array_equal(dataset["mass"].values, found.masses)
    assert np.allclose(dataset["mass"].values[0], a.masses, atol=1e-12)
    assert dataset["velocity"].dims == ("interval", place, "component")
    assert "K = 2" in dataset.attrs["title"]
