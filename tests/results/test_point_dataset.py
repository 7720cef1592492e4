"""Runs along characteristics as datasets and files."""

import json

import numpy as np
import pytest
import xarray as xr

import meanfield as mf
from meanfield.dynamics.characteristics import evolve_characteristics
from meanfield.errors import FileError
from meanfield.results.point_dataset import characteristics_dataset


@pytest.fixture
def run():
    model = mf.SelfAttention([0.5, 1.0, 2.0], sign=-1)
    return evolve_characteristics(
        mf.lebedev(9), model, mf.von_mises_fisher([0, 0, 1], 1.0), t_end=0.2, save=3
    )


def test_every_number_is_in_the_dataset(run):
    dataset = characteristics_dataset(run)
    assert dict(dataset.sizes) == {"time": 3, "point": 38}
    stacked = np.stack([dataset[name] for name in "xyz"], axis=2)
    np.testing.assert_array_equal(stacked, run.points)
    np.testing.assert_array_equal(dataset["time"], run.times)
    np.testing.assert_array_equal(dataset["log_density"], run.log_density)
    np.testing.assert_array_equal(dataset["energy"], run.energy)
    np.testing.assert_array_equal(dataset["weight"], run.masses)
    # The density and the share of the sphere at time zero make the mass.
    first = dataset["density"][0] * dataset["quadrature_weight"]
    np.testing.assert_allclose(first, dataset["weight"], rtol=1e-14)
    assert all(variable.attrs["units"] == "1" for variable in dataset.variables.values())


def test_parameters_rebuild_the_run(run):
    parameters = json.loads(run.to_dataset().attrs["parameters"])
    assert parameters["mesh"] == "lebedev:9"
    again = evolve_characteristics(
        mf.lebedev(9),
        mf.SelfAttention(parameters["D"], sign=parameters["sign"]),
        mf.von_mises_fisher(parameters["density"]["mean"], parameters["density"]["concentration"]),
        parameters["t_end"],
        parameters["save"],
        rtol=parameters["rtol"],
        atol=parameters["atol"],
    )
    np.testing.assert_array_equal(again.points, run.points)


def test_file_opens_in_plain_xarray_bit_for_bit(tmp_path, run):
    path = tmp_path / "run.nc"
    run.save(path)
    with xr.open_dataset(path, engine="h5netcdf") as stored:
        xr.testing.assert_identical(stored.load().drop_attrs(), run.to_dataset().drop_attrs())
    with pytest.raises(FileError, match="exists"):
        run.save(path)
    run.save(path, overwrite=True)


def test_zeros_and_missing_dissipation_survive(tmp_path):
    model = mf.SelfAttention([1.0, 2.0], V=[[0.0, 1.0], [-1.0, 0.0]])
    run = evolve_characteristics(
        mf.circle(16), model, lambda x: np.maximum(x[:, 0], 0.0) ** 2, t_end=0.1, save=2
    )
    run.save(tmp_path / "run.nc")
    with xr.open_dataset(tmp_path / "run.nc", engine="h5netcdf") as stored:
        assert "z" not in stored
        np.testing.assert_array_equal(stored["log_density"], run.log_density)
        assert np.isneginf(stored["log_density"]).any()
        assert np.isnan(stored["dissipation"]).all()


def test_higher_dimensions_use_components():
    run = evolve_characteristics(
        mf.product_sphere(4, 3), mf.SelfAttention(np.eye(4)), mf.uniform(), t_end=0.1, save=2
    )
    dataset = run.to_dataset()
    assert dataset["position"].dims == ("time", "point", "component")
    np.testing.assert_array_equal(dataset["position"], run.points)
