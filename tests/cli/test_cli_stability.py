"""The verb `stability`: every kind of file, verdicts, output, bad input."""

import os
import re
from pathlib import Path

import numpy as np
import pytest

import meanfield as mf
from meanfield.results.ugrid import open_netcdf

pytestmark = pytest.mark.usefixtures("own_folder")


def test_particles(command):
    model = mf.SelfAttention([1.0, 1.5])
    run = mf.evolve_particles(mf.random_points(40, 2, seed=1), model, t_end=60.0, save=3)
    run.save("run.nc")
    status, out, errors = command("stability run.nc --modes 4 --output s.nc --plot s.png")
    assert (status, errors) == (0, [])
    assert out.startswith("run.nc: evolve_particles of 40 particles at t = 60\n")
    assert "Stability of 2 clusters" in out
    assert re.search(r"stationary: yes, residual \S+e-1\d \(tolerance 1e-06\)", out)
    assert "index: 0, stable\n" in out
    expected = mf.stability(run, modes=4)
    assert f"leading rates: {expected.rates[0]:.6g}, " in out
    with open_netcdf("s.nc") as stored:
        assert np.array_equal(stored["rate"].values, expected.rates)
    assert sorted(os.listdir()) == ["run.nc", "s.nc", "s.png"]
    assert command("info s.nc")[0] == 0
    assert command("plot s.nc --output again.png")[0] == 0


def test_a_run_that_is_not_over(command):
    points = mf.random_points(10, 3, seed=1)
    mf.evolve_particles(points, mf.SelfAttention([1.0, 1.5, 2.0]), t_end=0.5, save=2).save("a.nc")
    status, out, _ = command("stability a.nc --angle 0.01")
    assert status == 0
    assert "stationary: NO, residual 0." in out
    assert "of a state that is not stationary" in out
    assert "stationary: yes" in command("stability a.nc --tolerance 0.9")[1]


def test_an_ensemble(command):
    points = mf.random_points(6, 2, seed=1, starts=2)
    run = mf.evolve_particles(points, mf.SelfAttention([1.0, 1.5]), t_end=50.0, save=2)
    run.save("a.nc")
    for start in (0, 1):
        expected = mf.stability(run.start(start))
        out = command(f"stability a.nc --start {start}")[1]
        assert f"{expected.rates[0]:.6g}" in out
    status, out, errors = command("stability a.nc")
    assert (status, out) == (2, "")
    assert errors == ["meanfield: error: the run is an ensemble: choose --start from 0 to 1"]
    assert command("stability a.nc --start 2")[2][0].endswith("it must be from 0 to 1")


def test_densities_on_meshes(command):
    mf.minimize(mf.circle(64), mf.Interaction([1.0, 2.0])).save("min.nc")
    status, out, _ = command("stability min.nc --plot min.png")
    assert status == 0
    assert "Stability of density on 64 points" in out
    assert "stationary: yes" in out
    assert "index: 0, stable" in out
    assert "rates of largest size: -0.0997" in out
    assert Path("min.png").exists()
    model = mf.SelfAttention([1.0, 1.2], -1)
    mf.evolve(mf.circle(64), model, mf.uniform(), 60.0, save=2).save("run.nc")
    assert "index: 0" in command("stability run.nc --tolerance 1e-3")[1]


def test_masses_on_a_few_cells_are_clusters(command):
    found = mf.maximize(mf.icosphere(2), mf.Interaction([1.0, 1.5, 2.0]))
    found.save("max.nc")
    out = command("stability max.nc")[1]
    assert "concentrated in clusters of a few points" in out
    assert "Stability of 1 cluster (masses 1)" in out
    assert "leading rates: -0.5, -1, -2 (splitting), -2 (splitting)" in out


def test_moved_nodes(command):
    model = mf.SelfAttention([1.0, 1.0], -1)
    density = mf.von_mises_fisher([1, 1], 0.05)
    mf.evolve_characteristics(mf.circle(64), model, density, 4.0, save=2).save("c.nc")
    status, out, _ = command("stability c.nc --tolerance 0.05 --modes 2")
    assert status == 0
    assert "evolve_characteristics of 64 moved nodes at t = 4" in out
    rate = float(re.search(r"rates of largest size: (\S+),", out)[1])
    assert rate == pytest.approx(-0.4464, rel=1e-2)


def test_help_has_an_example(command):
    status, out, errors = command("stability --help")
    assert (status, errors) == (0, [])
    assert "Example: meanfield stability run.nc" in out


BAD_INPUT = [
    ("no.nc", "cannot read no.nc: No such file"),
    ("text.nc", "text.nc is not a readable NetCDF file"),
    ("mesh.nc", "mesh.nc holds no run or extremum saved by meanfield"),
    ("run.nc --modes 0", "modes must be an integer >= 1"),
    ("run.nc --tolerance -1", "tolerance must be finite and > 0"),
    ("run.nc --angle 9", "angle must be in (0, pi)"),
    ("run.nc --start 1", "--start is 1, it must be from 0 to 0"),
    ("run.nc --output run.nc", "run.nc exists"),
    ("run.nc --plot a.doc", "the name of a picture must end in one of"),
    ("heads.nc", "several heads"),
]


@pytest.mark.parametrize(("words", "message"), BAD_INPUT)
def test_bad_input_is_one_line(command, words, message):
    Path("text.nc").write_text("no data")
    model = mf.SelfAttention([1.0, 1.5])
    start = mf.random_points(4, 2, seed=0)
    mf.evolve_particles(start, model, 0.1, save=2).save("run.nc")
    mf.evolve_particles(start, mf.MultiHead([model, model]), 0.1, save=2).save("heads.nc")
    command("mesh circle:8 --output mesh.nc")
    before = sorted(os.listdir())
    status, out, errors = command(f"stability {words}")
    assert (status, out) == (2, "")
    assert len(errors) == 1
    assert errors[0].startswith("meanfield: error: ")
    assert message in errors[0]
    assert sorted(os.listdir()) == before
