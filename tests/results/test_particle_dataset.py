"""Particle runs as datasets and files."""

import json

import numpy as np
import pytest
import xarray as xr

import meanfield as mf
from meanfield.dynamics.particle_starts import random_points
from meanfield.dynamics.particles import evolve_particles, transformer
from meanfield.errors import FileError
from meanfield.model.heads import MultiHead
from meanfield.results.particle_dataset import particle_dataset, particle_evolution

MODEL = mf.SelfAttention([0.5, 1.0, 2.0], sign=-1, normalized=False)


def runs():
    heads = MultiHead([MODEL, mf.SelfAttention([1.0, 1.0, 1.0])], combine="mean")
    rotating = mf.SelfAttention(np.eye(5), V=np.roll(np.eye(5), 1, axis=0))
    weights = np.array([0.1, 0.2, 0.3, 0.4])
    return {
        "single": evolve_particles(random_points(4, 3, 1), MODEL, 1.0, weights, save=3),
        "ensemble": evolve_particles(
            random_points(4, 3, 1, starts=2), MODEL, 50.0, stationary=1e-3, save=3
        ),
        "fixed": evolve_particles(
            random_points(4, 3, 1), MODEL, 1.0, method="geodesic_rk4", step=0.3, save=[0.5, 1.0]
        ),
        "heads": transformer(random_points(4, 3, 1), heads, layers=3),
        "five": transformer(random_points(4, 5, 1), rotating, layers=3),
    }


@pytest.mark.parametrize("name", runs())
def test_files_open_in_plain_xarray_and_come_back_bit_for_bit(name, tmp_path):
    run = runs()[name]
    path = tmp_path / "run.nc"
    run.save(path)
    with xr.open_dataset(path, engine="h5netcdf") as stored:
        dataset = stored.load()
    xr.testing.assert_identical(dataset.drop_attrs(), run.to_dataset().drop_attrs())
    again = particle_evolution(dataset)
    for field in ("times", "points", "weights", "stopped", "log_energy"):
        np.testing.assert_array_equal(getattr(again, field), getattr(run, field))
    assert again.starts == run.starts
    assert repr(again.model) == repr(run.model)
    with pytest.raises(FileError, match="exists"):
        run.save(path)


def test_dimensions_and_names():
    single, ensemble, five = (particle_dataset(runs()[k]) for k in ("single", "ensemble", "five"))
    assert single["z"].dims == ("time", "point")
    assert ensemble["z"].dims == ("time", "start", "point")
    assert ensemble["energy"].dims == ("time", "start")
    assert ensemble["stopped"].dims == ("start",)
    assert five["position"].dims == ("time", "point", "component")
    assert "z" not in five
    assert single["weight"].values.tolist() == [0.1, 0.2, 0.3, 0.4]
    assert all(v.attrs["units"] == "1" for v in single.variables.values())


@pytest.mark.parametrize("name", ["single", "ensemble", "fixed"])
def test_parameters_rebuild_the_run_from_its_first_frame(name):
    run = runs()[name]
    parameters = json.loads(run.to_dataset().attrs["parameters"])
    options = {k: parameters[k] for k in ("method", "step", "tolerance", "stationary", "save")}
    start = random_points(4, 3, 1, starts=run.starts)
    again = evolve_particles(start, MODEL, parameters["t_end"], run.weights, **options)
    np.testing.assert_array_equal(again.points, run.points)


def test_other_datasets_are_refused():
    with pytest.raises(FileError, match="no particle run"):
        particle_evolution(xr.Dataset())
    run = mf.evolve(mf.circle(8), mf.SelfAttention([1.0, 1.0]), mf.uniform(), 0.1, save=2)
    with pytest.raises(FileError, match="evolve"):
        particle_evolution(run.to_dataset())
