"""Files written by earlier versions stay readable; a new kind of file adds a sample and a row."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import meanfield as mf
from meanfield.plots import plot_dataset
from meanfield.results.checkpoints import read_checkpoint
from meanfield.results.recorded_runs import record_evolution
from meanfield.results.recording import partial_path, read_frame
from meanfield.results.rerunning import rerun
from meanfield.results.ugrid import open_netcdf

FOLDER = Path(__file__).parents[1] / "data" / "format_samples"
# File: verb, sizes, and the last energy.
SAMPLES = {
    "characteristics.nc": ("evolve_characteristics", {"time": 3, "point": 38}, 2.5695587585404307),
    "evolve_circle.nc": ("evolve", {"edge": 16, "time": 3}, 2.456551249140371),
    "evolve_icosphere.nc": ("evolve", {"face": 42, "time": 3}, 2.4444338195334243),
    "maximize.nc": ("maximize", {"point": 38}, 7.38905609893065),
    "minimize.nc": ("minimize", {"edge": 32}, 1.376306946263302),
    "particles.nc": ("evolve_particles", {"time": 3, "start": 2, "point": 6}, 3.7899012511438572),
    "transformer.nc": ("transformer", {"time": 3, "point": 6}, 4.099652706978086),
}
# Files that a run cannot be computed from again: verb, sizes, a variable, its first value.
ANALYSES = {
    "distance_cloud.nc": ("mobility_distance", {"time": 5, "point": 48}, "distance", 0.9527361323),
    "distance_mesh.nc": ("mobility_distance", {"time": 5, "edge": 16}, "distance", 1.6528671135),
    "regularity.nc": ("regularity", {"layer": 1, "head": 1}, "local_constant", 30.9089983169),
    "stability.nc": ("stability", {"mode": 3, "edge": 16}, "rate", 1.0654313138),
    "sweep.nc": ("sweep", {"l": 2, "m": 3}, "final_energy", 1.2660660770),
}


def test_every_sample_is_known():
    names = {path.name for path in FOLDER.glob("*.nc")}
    assert set(SAMPLES) | set(ANALYSES) | {"mesh.nc"} == names


@pytest.mark.parametrize("name", ANALYSES)
def test_analyses_hold_what_was_written(name):
    verb, sizes, variable, value = ANALYSES[name]
    with open_netcdf(FOLDER / name) as stored:
        assert json.loads(stored.attrs["parameters"])["verb"] == verb
        assert {size: stored.sizes[size] for size in sizes} == sizes
        assert stored[variable].values.ravel()[0] == pytest.approx(value, rel=1e-9)
        assert plot_dataset(stored).axes


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_hold_what_was_written(name):
    verb, sizes, energy = SAMPLES[name]
    with open_netcdf(FOLDER / name) as stored:
        assert json.loads(stored.attrs["parameters"])["verb"] == verb
        assert stored.attrs["source"].startswith("meanfield ")
        assert {size: stored.sizes[size] for size in sizes} == sizes
        assert stored["energy"].values.ravel()[-1] == energy


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_are_computed_again(name):
    again = rerun(FOLDER / name)
    assert again.agrees, again


def test_samples_become_objects_again():
    run = mf.open_run(FOLDER / "evolve_icosphere.nc")
    assert np.abs(run.masses.sum(axis=1) - 1).max() < 1e-14
    assert run.mesh.name == "icosphere:1"
    assert run.state.shape == (3, 2)
    assert read_frame(FOLDER / "evolve_circle.nc").time == 0.2
    particles = mf.open_run(FOLDER / "particles.nc")
    assert np.allclose(np.linalg.norm(particles.points, axis=-1), 1, rtol=0, atol=1e-15)
    assert particles.points.shape == (3, 2, 6, 3)
    mesh = mf.read_mesh(FOLDER / "mesh.nc")
    assert mesh.n_cells == 42
    assert abs(mesh.areas.sum() - 4 * np.pi) < 1e-13


def test_a_run_that_an_earlier_version_has_left_goes_on(tmp_path):
    path = tmp_path / "run.nc"
    shutil.copy(FOLDER / "stopped.nc.partial", partial_path(path))
    shutil.copy(FOLDER / "stopped.nc.checkpoint", tmp_path / ".run.nc.checkpoint-0")
    checkpoint = read_checkpoint(tmp_path / ".run.nc.checkpoint-0")
    assert 0 < float(checkpoint.arrays["time"]) < 0.1
    model, density = mf.SelfAttention([0.5, 1.0, 2.0]), mf.von_mises_fisher([0.3, -0.5, 0.8], 2.0)
    setting = mf.icosphere(1), model, density, 0.2, 3, 2, 0.1
    assert record_evolution(path, *setting, resume=True).complete
    run = mf.open_run(path)
    assert np.abs(run.masses - mf.evolve(*setting).masses).max() < 1e-14
