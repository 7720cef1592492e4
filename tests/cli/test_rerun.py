"""Saved results are computed again from their files alone, bit for bit."""

import json
import os

import h5py
import numpy as np
import pytest

import meanfield as mf
from meanfield.errors import FileError
from meanfield.results.rerunning import rerun

pytestmark = pytest.mark.usefixtures("own_folder")

MODEL = mf.SelfAttention([0.5, 1.0, 2.0])
POINTS = mf.random_points(9, 3, seed=2, starts=2)
WEIGHTS = np.arange(1, 10) / 45
MIXTURE = mf.mixture([mf.uniform(), mf.von_mises_fisher([1.0, 2.0, -1.0], 3.0)], weights=[0.3, 0.7])
RESULTS = {
    "evolve": lambda: mf.evolve(mf.icosphere(1), MODEL, MIXTURE, 0.3, save=3),
    "later": lambda: mf.evolve(mf.icosphere(1), MODEL, MIXTURE, 0.3, save=[0.1, 0.3]),
    "masses": lambda: mf.evolve(
        mf.circle(9), mf.SelfAttention([1, 2]), np.arange(1, 10) / 45, 0.3
    ),
    "triangles": lambda: mf.evolve(
        mf.icosphere(1, "triangles"), mf.SelfAttention(np.eye(3), V=np.ones((3, 3))), MIXTURE, 0.1,
        save=2, order=1, cfl=0.3,
    ),
    "characteristics": lambda: mf.evolve_characteristics(
        mf.lebedev(9), MODEL, MIXTURE, 0.3, save=3, rtol=1e-8
    ),
    "particles": lambda: mf.evolve_particles(POINTS, MODEL, 3.0, WEIGHTS, stationary=0.1),
    "layers": lambda: mf.transformer(POINTS[0], mf.MultiHead([MODEL, MODEL]), 3),
    "minimize": lambda: mf.minimize(mf.circle(32), mf.Interaction([1.0, 2.0])),
    "maximize": lambda: mf.maximize(mf.lebedev(9), mf.Interaction([1.0, 0.5, 2.0])),
}  # fmt: skip


@pytest.mark.parametrize("name", RESULTS)
def test_results_of_all_kinds(command, name):
    RESULTS[name]().save("run.nc")
    status, out, errors = command("rerun run.nc")
    assert (status, errors) == (0, [])
    assert "run.nc: identical, " in out


def test_the_new_result_can_be_saved(command):
    RESULTS["particles"]().save("run.nc")
    assert command("rerun run.nc --output new.nc")[0] == 0
    assert np.array_equal(mf.open_run("new.nc").points, mf.open_run("run.nc").points)
    status, _, errors = command("rerun run.nc --output new.nc")
    assert status == 2
    assert "new.nc exists" in errors[0]
    assert command("rerun run.nc --output new.nc --overwrite")[0] == 0


def test_random_starts_and_points_of_the_command(command):
    assert command("minimize --D 1,2 --mesh circle:16 --start random:3 --output a.nc")[0] == 0
    assert command("particles --D 1,2,3 --points 5 --seed 3 --t-end 1 --save 1,1.5 "
                   "--output b.nc")[0] == 2  # fmt: skip
    assert command("particles --D 1,2,3 --points 5 --seed 3 --t-end 1 --save 0.5,1 "
                   "--output b.nc")[0] == 0  # fmt: skip
    for name in ("a.nc", "b.nc"):
        assert command(f"rerun {name}")[1].startswith(f"{name}: identical")


def changed(name, variable, difference):
    RESULTS[name]().save("run.nc")
    with h5py.File("run.nc", "r+") as file:
        values = np.array(file[variable])
        values[-1] += difference
        file[variable][...] = values
        environment = json.loads(file.attrs["environment"])
        environment["packages"]["numpy"] = "1.0"
        file.attrs["environment"] = json.dumps(environment)


def test_differences_are_reported(command):
    changed("evolve", "mass", 1e-3)
    status, out, errors = command("rerun run.nc")
    assert (status, errors) == (1, [])
    assert out.splitlines() == [
        "run.nc: DIFFERENT",
        "  mass: largest difference 0.001",
        f"  numpy: 1.0 then, {np.__version__} now",
    ]
    again = rerun("run.nc")
    assert not again.agrees
    assert again.dataset["mass"].shape == (3, 42)


def test_round_off_is_no_difference(command):
    changed("layers", "x", 1e-14)
    status, out, _ = command("rerun run.nc")
    assert status == 0
    assert out.startswith("run.nc: the same up to round-off\n  x: largest difference ")


def test_what_cannot_be_computed_again(command):
    with pytest.raises(FileError, match="cannot read"):
        rerun("nothing.nc")
    command("mesh circle:8 --output mesh.nc")
    with pytest.raises(FileError, match="holds a result of mesh: only evolve, "):
        rerun("mesh.nc")
    mf.minimize(mf.circle(8), mf.Interaction([1.0, 2.0]), start=np.full(8, 1 / 8)).save("a.nc")
    with pytest.raises(FileError, match="started from 'masses', which the file does not hold"):
        rerun("a.nc")
    mf.evolve_particles(POINTS, MODEL, 1.0, save=[0.5]).save("b.nc")
    with pytest.raises(FileError, match="no frame at t = 0"):
        rerun("b.nc")
    mf.evolve(mf.circle(8), mf.SelfAttention([1, 2]), mf.uniform(), 0.1).save("c.nc")
    with h5py.File("c.nc", "r+") as file:
        file["time"][2:] = np.nan
    status, _, errors = command("rerun c.nc")
    assert status == 2
    assert "c.nc is incomplete: 2 of 21 frames" in errors[0]
    assert sorted(os.listdir()) == ["a.nc", "b.nc", "c.nc", "mesh.nc"]
