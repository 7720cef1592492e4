"""The last state of every kind of file."""

import numpy as np
import pytest
import xarray as xr

import meanfield as mf
from meanfield.errors import FileError
from meanfield.results.dataset import save_dataset
from meanfield.results.end_state import end_state

MODEL = mf.SelfAttention([1.0, 2.0], sign=-1)


def saved(result, tmp_path):
    path = tmp_path / "run.nc"
    result.save(path, overwrite=True)
    return end_state(path)


def same(measure, other):
    np.testing.assert_array_equal(measure.points, other.points)
    np.testing.assert_array_equal(measure.masses, other.masses)


def test_meshes_characteristics_and_particles(tmp_path):
    runs = (
        mf.evolve(mf.circle(16), MODEL, mf.von_mises_fisher([1, 1], 1.0), 0.2, save=3),
        mf.evolve_characteristics(mf.circle(16), MODEL, mf.uniform(), 0.2, save=3),
        mf.evolve_particles(mf.random_points(7, 2, 1), MODEL, 0.2, save=3),
        mf.transformer(mf.random_points(7, 2, 1), MODEL, 3),
    )
    for run in runs:
        end = saved(run, tmp_path)
        same(end.measures[0], run.final)
        assert end.time == run.times[-1]
        np.testing.assert_array_equal(end.model.D, MODEL.D)
        assert end.model.sign == -1
        assert (end.measures[0].space is None) == (run.final.space is None)


def test_ensembles_and_four_dimensions(tmp_path):
    model = mf.SelfAttention([1.0, 2.0, 0.5, 0.1])
    run = mf.evolve_particles(mf.random_points(5, 4, 1, starts=3), model, 0.2, save=2)
    end = saved(run, tmp_path)
    assert len(end.measures) == 3
    same(end.measures[1], run.start(1).final)


@pytest.mark.parametrize("space", [mf.lebedev(11), mf.icosphere(1)])
def test_extrema(tmp_path, space):
    found = mf.maximize(space, mf.Interaction([-1.0, 0.2, 0.3]))
    end = saved(found, tmp_path)
    same(end.measures[0], found.final)
    assert end.measures[0].space.name == space.name
    assert (end.verb, end.model.sign, end.time) == ("maximize", 1, None)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "other.nc"
    save_dataset(xr.Dataset({"a": ("x", [1.0])}), path)
    with pytest.raises(FileError, match="holds no run or extremum"):
        end_state(path)
    run = mf.evolve_particles(mf.random_points(7, 2, 1), MODEL, 0.2, save=3).to_dataset()
    save_dataset(run.drop_vars("weight"), path, overwrite=True)
    with pytest.raises(FileError, match="weight"):
        end_state(path)
