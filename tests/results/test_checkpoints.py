"""Checkpoints: complete or absent, and runs that go on from them bit for bit."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

import meanfield as mf
from meanfield.dynamics.particles import prepare_flow, prepare_layers
from meanfield.equilibria.mirror_descent import prepare
from meanfield.errors import FileError, InputError
from meanfield.results import checkpoints as module
from meanfield.results.checkpoints import (
    Checkpoint,
    Checkpoints,
    RecoveryWarning,
    checkpoint_paths,
    read_checkpoint,
    write_checkpoint,
)
from meanfield.results.recorded_runs import record_evolution, record_extremum, record_particles
from meanfield.results.recording import RecordingError, partial_path

STATE = {"masses": np.arange(4.0), "time": np.array(0.5)}
MODEL = mf.SelfAttention([0.5, 1.0, 2.0], sign=-1)
DENSITY = mf.von_mises_fisher([0.3, -0.5, 0.8], 4.0)
MESH = mf.icosphere(1)


def evolution(path, t_end=1.0, **options):
    return record_evolution(path, MESH, MODEL, DENSITY, t_end, save=4, cfl=0.05, **options)


FLOW = mf.SelfAttention([0.5, 1.0, 2.0])
POINTS = mf.random_points(12, 3, seed=3)
ENSEMBLE = mf.random_points(12, 3, seed=3, starts=3)
UNEQUAL = np.arange(1, 13) / np.arange(1, 13).sum()
PARTICLES = {
    "adaptive": lambda: prepare_flow(POINTS, FLOW, 4.0, save=5),
    "adaptive ensemble": lambda: prepare_flow(ENSEMBLE, FLOW, 4.0, UNEQUAL, save=[1.0, 3.0]),
    "adaptive stationary": lambda: prepare_flow(ENSEMBLE, FLOW, 900.0, stationary=1e-3, save=30),
    "geodesic": lambda: prepare_flow(POINTS, FLOW, 4.0, method="geodesic_rk4", save=5),
    "stationary": lambda: prepare_flow(
        ENSEMBLE, FLOW, 90.0, method="projected_euler", step=0.1, stationary=1e-2, save=20
    ),
    "layers": lambda: prepare_layers(POINTS, FLOW, 12),
    "four dimensions": lambda: prepare_flow(
        mf.random_points(5, 4, seed=1), mf.SelfAttention([1.0, 0.5, 0.2, 2.0]), 2.0, save=3
    ),
}


def particles(name):
    return lambda path, **options: record_particles(path, PARTICLES[name](), **options)


SEARCHES = {
    "polish": ((mf.circle(64), [1.0, 1.5]), {}),
    "mirror": ((mf.circle(32), [1.0, 1.5]), {"method": "mirror", "max_iterations": 40}),
    "exchange": ((mf.circle(64), [-1.0, 1.5]), {}),
    "maximum": ((mf.circle(32), [0.5, 1.5]), {"sign": -1, "method": "adaptive"}),
}


def search(name):
    arguments, options = SEARCHES[name]
    return lambda path, **rest: record_extremum(path, prepare(*arguments, **options), **rest)


RUNS = {
    "evolution": evolution,
    **{name: particles(name) for name in PARTICLES},
    **{name: search(name) for name in SEARCHES},
}


class After:
    """Ask a run to stop after so many steps."""

    def __init__(self, steps):
        self.left = steps

    def __call__(self):
        self.left -= 1
        return self.left < 0


def contents(path):
    with xr.open_dataset(path, engine="h5netcdf", decode_cf=False) as stored:
        stored.load()
    del stored.attrs["history"]
    return stored


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("steps", [2])
def test_a_run_in_pieces_is_the_whole_run(tmp_path, monkeypatch, name, steps):
    monkeypatch.setattr("meanfield.dynamics.particle_groups.PART", 0.0)  # stop as often as possible
    assert RUNS[name](tmp_path / "whole.nc").complete
    path, pieces = tmp_path / "pieces.nc", 0
    done = RUNS[name](path, stop=After(steps), checkpoint=np.inf)
    while not done.complete:
        assert not path.exists()
        pieces += 1
        steps = 3 * steps + 1
        done = RUNS[name](path, stop=After(steps), checkpoint=np.inf, resume=True)
    assert pieces
    xr.testing.assert_identical(contents(path), contents(tmp_path / "whole.nc"))
    assert sorted(os.listdir(tmp_path)) == ["pieces.nc", "whole.nc"]
    again = RUNS[name](path, resume=True)
    assert (again.complete, again.found) == (True, True)


def test_recorded_particles_are_those_in_memory(tmp_path):
    start = mf.random_points(12, 3, seed=3, starts=3)
    expected = mf.evolve_particles(start, FLOW, 900.0, stationary=1e-3, save=30)
    record_particles(tmp_path / "run.nc", PARTICLES["adaptive stationary"]())
    run = mf.open_run(tmp_path / "run.nc")
    assert np.array_equal(run.points, expected.points)
    assert np.array_equal(run.times, expected.times)
    assert len(run.times) < 30
    assert np.array_equal(run.stopped, expected.stopped)
    assert run.parameters == expected.parameters
    expected.save(tmp_path / "saved.nc")
    recorded, saved = contents(tmp_path / "run.nc"), contents(tmp_path / "saved.nc")
    assert set(recorded.variables) == set(saved.variables)
    assert np.abs(recorded["energy"] - saved["energy"]).max() < 1e-12


def test_a_stopped_run_of_particles_can_be_read(tmp_path):
    path = tmp_path / "run.nc"
    assert not particles("layers")(path, stop=After(7)).complete
    with pytest.raises(FileError, match=r"incomplete: 8 of 13 frames"):
        mf.open_run(partial_path(path))
    run = mf.open_run(partial_path(path), partial=True)
    assert np.array_equal(run.points, mf.transformer(POINTS, FLOW, 12).points[:8])


# The files ----------------------------------------------------------------------------------------


def test_checkpoints_take_turns(tmp_path):
    checkpoints = Checkpoints(tmp_path / "run.nc", {"verb": "evolve", "t_end": 1.0}, 0.0)
    assert checkpoints.due
    assert checkpoints.newest() is None
    for frames in range(3):
        assert checkpoints.write(STATE, frames)
    names = [".run.nc.checkpoint-0", ".run.nc.checkpoint-1"]
    assert sorted(os.listdir(tmp_path)) == names
    assert [read_checkpoint(tmp_path / name).frames for name in names] == [2, 1]
    again = Checkpoints(tmp_path / "run.nc", {"verb": "evolve", "t_end": 1.0})
    assert not again.due
    newest = again.newest()
    assert newest.frames == 2
    assert {name: array.tolist() for name, array in newest.arrays.items()} == {
        "masses": [0, 1, 2, 3],
        "time": 0.5,
    }
    again.write(STATE, 9)
    assert [read_checkpoint(tmp_path / name).frames for name in names] == [2, 9]
    again.remove()
    assert os.listdir(tmp_path) == []


def test_the_interval_is_checked(tmp_path):
    with pytest.raises(InputError, match="must be >= 0 seconds, got -1"):
        Checkpoints(tmp_path / "run.nc", {}, -1)
    with pytest.raises(InputError, match="must be >= 0 seconds, got nan"):
        Checkpoints(tmp_path / "run.nc", {}, np.nan)


def test_an_interval_of_zero_is_every_step(tmp_path, monkeypatch):
    written = []
    original = write_checkpoint
    monkeypatch.setattr(
        module, "write_checkpoint", lambda p, c: written.append(c.number) or original(p, c)
    )
    steps = []
    evolution(tmp_path / "run.nc", checkpoint=0.0, stop=lambda: bool(steps.append(1)))
    assert written == list(range(len(steps)))
    assert len(written) > 20


@pytest.mark.parametrize("part", [0.0, 0.02, 0.1, 0.5, 0.999])
def test_checkpoints_that_were_cut_off(tmp_path, part):
    path = tmp_path / "c"
    write_checkpoint(path, Checkpoint(STATE, 0, 0, {}, "meanfield"))
    content = path.read_bytes()
    path.write_bytes(content[: int(part * len(content))])
    with pytest.raises(FileError, match=r"no checkpoint of meanfield|cut off or damaged"):
        read_checkpoint(path)


def test_every_flipped_byte_is_noticed(tmp_path):
    path = tmp_path / "c"
    write_checkpoint(path, Checkpoint(STATE, 0, 0, {}, "meanfield"))
    content = path.read_bytes()
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        with pytest.raises(FileError):
            read_checkpoint(path)


def test_foreign_files_are_no_checkpoints(tmp_path):
    path = tmp_path / "c"
    with pytest.raises(FileError, match="cannot read the checkpoint"):
        read_checkpoint(path)
    np.savez(tmp_path / "c.npz", a=1.0)
    with pytest.raises(FileError, match="is no checkpoint of meanfield"):
        read_checkpoint(tmp_path / "c.npz")
    write_checkpoint(path, Checkpoint({"objects": np.array([{}])}, 0, 0, {}, "meanfield"))
    with pytest.raises(FileError, match=r"is no checkpoint of this version: .*allow_pickle"):
        read_checkpoint(path)


def stopped(folder):
    """A run that was stopped after two checkpoints, between two frames."""
    path = folder / "run.nc"
    assert not evolution(path, stop=After(12), checkpoint=0.0).complete
    return path


def resumed(path, messages):
    """Resume and compare with the whole run; every message is a warning that must come."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert evolution(path, resume=True).complete
    texts = [str(warning.message) for warning in caught]
    assert len(texts) == len(messages), texts
    assert all(message in text for message, text in zip(messages, texts, strict=True)), texts
    assert all(warning.category is RecoveryWarning for warning in caught)
    evolution(path.with_name("whole.nc"))
    xr.testing.assert_identical(contents(path), contents(path.with_name("whole.nc")))


def newest_of(path):
    return max(checkpoint_paths(path), key=lambda name: read_checkpoint(name).number)


def test_a_damaged_checkpoint_is_said_and_the_other_one_used(tmp_path):
    path = stopped(tmp_path)
    name = newest_of(path)
    name.write_bytes(name.read_bytes()[:-1])
    resumed(path, [f"the checkpoint {name} is cut off or damaged: it is not used"])


def test_without_good_checkpoints_the_last_frame_is_used(tmp_path):
    path = stopped(tmp_path)
    for name in checkpoint_paths(path):
        name.write_text("something else")
    resumed(path, ["-0 is no checkpoint of meanfield", "-1 is no checkpoint of meanfield"])


def test_a_damaged_last_frame_is_computed_again(tmp_path):
    path = stopped(tmp_path)
    with h5py.File(partial_path(path), "r+") as file:
        last = int(np.isfinite(file["time"][:]).sum()) - 1
        file["mass"][last] = 0.0
    for name in checkpoint_paths(path):
        name.unlink()
    resumed(path, [f"is damaged: frame {last} is not what was saved: it is computed again"])


def test_a_checkpoint_that_is_ahead_of_the_frames(tmp_path):
    path = stopped(tmp_path)
    with h5py.File(partial_path(path), "r+") as file:
        file["time"][...] = np.nan
    resumed(path, ["frames, there are 0: it is not used"] * 2)


def test_another_version_is_said(tmp_path, monkeypatch):
    path = stopped(tmp_path)
    monkeypatch.setattr(module, "installed", lambda _: "9.9")
    with pytest.warns(RecoveryWarning, match=r"begun by meanfield 0.* goes on with meanfield 9.9"):
        evolution(path, resume=True)


@pytest.mark.parametrize("where", ["complete", "stopped", "checkpoints"])
def test_another_run_is_refused_and_says_what_differs(tmp_path, where):
    path = tmp_path / "run.nc"
    if where == "complete":
        evolution(path)
    else:
        stopped(tmp_path)
    if where == "checkpoints":
        partial_path(path).unlink()
    before = {name: Path(tmp_path, name).read_bytes() for name in os.listdir(tmp_path)}
    words = r"^\S+ belongs to another run: save.* is .*; t_end is 1.0 there, 2.0 here"
    with pytest.raises(FileError, match=words):
        evolution(path, t_end=2.0, resume=True)
    after = {name: Path(tmp_path, name).read_bytes() for name in os.listdir(tmp_path)}
    assert {n: c for n, c in after.items() if not n.endswith(".partial")} == {
        n: c for n, c in before.items() if not n.endswith(".partial")
    }


def test_another_initial_state_is_refused(tmp_path):
    path, ones = tmp_path / "run.nc", np.full(MESH.n_cells, 1 / MESH.n_cells)
    record_evolution(path, MESH, MODEL, ones, 0.1)
    other = ones + 1e-9 * np.sin(np.arange(len(ones)))
    with pytest.raises(FileError, match=r"density\.sha256 is"):
        record_evolution(path, MESH, MODEL, other / other.sum(), 0.1, resume=True)


def test_a_damaged_partial_file_is_named(tmp_path):
    path = stopped(tmp_path)
    content = partial_path(path).read_bytes()
    partial_path(path).write_bytes(content[:1000])
    with pytest.raises(FileError, match=r"run.nc.partial is not a readable NetCDF file"):
        evolution(path, resume=True)
    assert evolution(path, overwrite=True).complete


def test_what_is_left_is_not_overwritten_unasked(tmp_path):
    path = stopped(tmp_path)
    with pytest.raises(FileError, match=r"partial exists, .*continue it \(--resume\)"):
        evolution(path)
    assert all(name.exists() for name in checkpoint_paths(path))
    found = tmp_path / "min.nc"
    assert not search("mirror")(found, stop=After(3)).complete
    with pytest.raises(FileError, match=r"checkpoint-0 exists, .*continue it \(--resume\)"):
        search("mirror")(found)
    assert search("mirror")(found, overwrite=True).complete


def test_an_old_output_stays_until_the_new_one_is_complete(tmp_path):
    path = tmp_path / "run.nc"
    evolution(path, t_end=0.5)
    old = path.read_bytes()
    with pytest.raises(FileError, match=r"run.nc exists"):
        evolution(path)
    assert not evolution(path, overwrite=True, stop=After(9)).complete
    assert path.read_bytes() == old
    with pytest.raises(FileError, match=r"t_end is 0.5 there, 1.0 here"):
        evolution(path, resume=True)
    assert not evolution(path, resume=True, overwrite=True, stop=After(3)).complete
    assert path.read_bytes() == old
    assert evolution(path, resume=True, overwrite=True).complete
    assert mf.open_run(path).times[-1] == 1.0


def test_what_killed_processes_leave_is_cleaned_up(tmp_path):
    path = tmp_path / "run.nc"
    for name in ("run.nc.partial.making", ".run.nc.checkpoint-0.tmp", ".run.nc.lock"):
        Path(tmp_path, name).write_text("half of it")
    assert evolution(path, resume=True).complete
    assert os.listdir(tmp_path) == ["run.nc"]
    write_checkpoint(checkpoint_paths(path)[0], Checkpoint(STATE, 0, 0, {}, "meanfield"))
    assert evolution(path, resume=True).found  # killed between the last two acts
    assert os.listdir(tmp_path) == ["run.nc"]


def test_two_processes_do_not_record_the_same_output(tmp_path):
    def second():
        with pytest.raises(FileError, match="another process is writing"):
            evolution(tmp_path / "run.nc", resume=True)
        return False

    assert evolution(tmp_path / "run.nc", stop=second).complete


# Full disks ---------------------------------------------------------------------------------------

FULL = """
import os, resource, sys, warnings
import meanfield as mf
from meanfield.dynamics.particles import prepare_flow
from meanfield.equilibria.mirror_descent import prepare
from meanfield.results.recorded_runs import record_evolution, record_extremum, record_particles
warnings.simplefilter("always")
warnings.showwarning = lambda message, *_, **__: print("warning", message)
mesh, model = mf.circle(1000), mf.SelfAttention([1.0, 2.0])
flow = prepare_flow(mf.random_points(200, 2, 0), model, 0.5, save=3)
search = prepare(mesh, model.interaction)
runs = {
    "evolve": lambda p, **o: record_evolution(p, mesh, model, mf.uniform(), 0.02, 3, **o),
    "particles": lambda p, **o: record_particles(p, flow, **o),
    "minimize": lambda p, **o: record_extremum(p, search, **o),
}
for what, run in runs.items():
    for limit in (0, 100, 10_000, 30_000, 200_000, 10_000_000):
        with open("run.nc", "w") as file:
            file.write("earlier result")
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        try:
            run("run.nc", checkpoint=0.0, overwrite=True)
            print(what, limit, "complete", os.path.getsize("run.nc"))
        except mf.errors.FileError as error:
            with open("run.nc") as file:
                print(what, limit, "error", error, "|", file.read())
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        bad = [name for name in os.listdir() if name.endswith((".tmp", ".making", ".lock"))]
        assert not bad, bad
"""


def test_a_full_disk_at_every_stage(tmp_path):
    command = [sys.executable, "-c", FULL]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert answer.stderr == ""
    lines = answer.stdout.splitlines()
    refused = [line for line in lines if " error " in line]
    assert all(" error cannot write " in line for line in refused)
    assert all(line.endswith(": File too large | earlier result") for line in refused)
    warned = [line for line in lines if line.startswith("warning")]
    assert all("File too large; the run goes on" in line for line in warned)
    for what, least in (("evolve", 5), ("particles", 4), ("minimize", 4)):
        assert sum(line.startswith(what) for line in refused) >= least, answer.stdout
        assert any(line.startswith(f"{what} 10000000 complete") for line in lines), answer.stdout
    assert len(warned) > 2


@pytest.mark.parametrize("failing", range(4))
def test_a_disk_that_fails_in_the_middle(tmp_path, monkeypatch, failing):
    left = iter(range(failing))

    def settle(*_):
        if next(left, None) is None:
            raise OSError(28, "No space left on device")
        return original(*_)

    original = module.settle
    monkeypatch.setattr(module, "settle", settle)
    path = tmp_path / "run.nc"
    with pytest.warns(RecoveryWarning, match="No space left on device; the run goes on"):
        assert evolution(path, checkpoint=0.0).complete
    monkeypatch.setattr("meanfield.results.recording.settle", settle)
    path.unlink()
    with pytest.warns(RecoveryWarning), pytest.raises(RecordingError, match="No space left"):
        evolution(path, checkpoint=0.0)
    assert not path.exists()
    monkeypatch.undo()
    assert evolution(path, resume=True).complete
