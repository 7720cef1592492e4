"""Recorded runs: equal to saved ones, readable whenever they are stopped, continued exactly."""

import os
import random
import signal
import subprocess
import sys
import time
import tracemalloc

import h5py
import numpy as np
import pytest
import xarray as xr

import meanfield as mf
from meanfield.dynamics.evolution import initial_masses, run_parameters
from meanfield.dynamics.finite_volume import frames
from meanfield.dynamics.timestepping import Frame
from meanfield.errors import FileError, NonFiniteError
from meanfield.results import recording
from meanfield.results.dataset import SERIES, STATE, open_run
from meanfield.results.recording import Recorder, partial_path, read_frame

MODEL = mf.SelfAttention([0.5, 1.0, 2.0], sign=-1)
DENSITY = mf.von_mises_fisher([0.3, -0.5, 0.8], 2.0)
MESH = mf.icosphere(2)
TIMES = np.linspace(0.0, 0.5, 9)


def computed(start=None):
    masses, _ = initial_masses(MESH, DENSITY)
    return frames(MESH, MODEL, masses, TIMES, start=start)


def recorder_at(path, **options):
    _, factor = initial_masses(MESH, DENSITY)
    parameters = run_parameters(MESH, MODEL, DENSITY, TIMES, 2, 0.45, factor)
    return Recorder(path, MESH, MODEL, TIMES, parameters, **options)


def empty_frame(index, masses):
    audit = dict.fromkeys(SERIES, float(index))
    return Frame(float(TIMES[index]), masses, audit, np.array([index, -index]))


def test_recorded_and_saved_runs_are_the_same(tmp_path):
    with recorder_at(tmp_path / "recorded.nc") as recorder:
        for _ in recorder.record(computed()):
            pass
    mf.evolve(MESH, MODEL, DENSITY, 0.5, save=TIMES).save(tmp_path / "saved.nc")
    recorded, saved = (
        xr.load_dataset(tmp_path / name, engine="h5netcdf") for name in ("recorded.nc", "saved.nc")
    )
    assert recorded.attrs.pop("history").split()[1:] == saved.attrs.pop("history").split()[1:]
    xr.testing.assert_identical(recorded, saved)
    assert recorded["density"].encoding["original_shape"] == (9, 162)
    for name in ("density", "time"):
        assert recorded[name].encoding["chunksizes"] == saved[name].encoding["chunksizes"]
    assert sorted(os.listdir(tmp_path)) == ["recorded.nc", "saved.nc"]


def test_a_failed_run_leaves_its_frames(tmp_path):
    def failing():
        for number, frame in enumerate(computed()):
            if number == 4:
                raise NonFiniteError("a value became NaN")
            yield frame

    recorder = recorder_at(tmp_path / "run.nc")
    with pytest.raises(NonFiniteError), recorder:
        for _ in recorder.record(failing()):
            pass
    assert recorder.count == 4
    assert recorder.last_time == TIMES[3]
    assert os.listdir(tmp_path) == ["run.nc.partial"]
    with pytest.raises(FileError, match="incomplete: 4 of 9 frames"):
        open_run(recorder.partial)
    part, whole = (
        open_run(recorder.partial, partial=True),
        mf.evolve(MESH, MODEL, DENSITY, 0.5, save=TIMES),
    )
    assert np.array_equal(part.masses, whole.masses[:4])
    assert np.array_equal(part.audit["residual"], whole.audit["residual"][:4])


@pytest.mark.parametrize("index", [0, 3, -1])
def test_a_stopped_run_is_continued_bit_for_bit(tmp_path, index):
    whole = list(computed())
    recorder = recorder_at(tmp_path / "run.nc")
    for frame in whole[:5]:
        recorder.append(frame)
    recorder.close()
    start = read_frame(recorder.partial, index)
    position = range(5)[index]
    assert start.time == TIMES[position]
    for again, frame in zip(computed(start), whole[position + 1 :], strict=True):
        assert again.time == frame.time
        assert np.array_equal(again.masses, frame.masses)
        assert np.array_equal(again.state, frame.state)
        assert again.audit == frame.audit


def test_frames_that_are_not_there(tmp_path):
    recorder = recorder_at(tmp_path / "run.nc")
    recorder.append(next(computed()))
    recorder.close()
    with pytest.raises(FileError, match="has 1 frames, there is no frame 5"):
        read_frame(recorder.partial, 5)
    mf.evolve(MESH, MODEL, DENSITY, 0.1, save=2).save(tmp_path / "saved.nc")
    assert read_frame(tmp_path / "saved.nc").time == 0.1
    with h5py.File(tmp_path / "saved.nc", "r+") as file:
        del file[STATE]  # as written before there was a state
    with pytest.raises(FileError, match="has no audit_state: save it with this version"):
        read_frame(tmp_path / "saved.nc")


def test_a_run_in_two_parts_is_the_whole_run(tmp_path):
    whole = mf.evolve(MESH, MODEL, DENSITY, 0.5, save=TIMES)
    mf.evolve(MESH, MODEL, DENSITY, TIMES[4], save=TIMES[:5]).save(tmp_path / "first.nc")
    assert np.array_equal(open_run(tmp_path / "first.nc").state, whole.state[:5])
    rest = list(computed(read_frame(tmp_path / "first.nc")))
    assert np.array_equal([frame.time for frame in rest], whole.times[5:])
    assert np.array_equal([frame.masses for frame in rest], whole.masses[5:])
    assert np.array_equal([frame.state for frame in rest], whole.state[5:])
    for name, values in whole.audit.items():
        assert np.array_equal([frame.audit[name] for frame in rest], values[5:])


def test_only_the_next_frame_is_taken(tmp_path):
    recorder = recorder_at(tmp_path / "run.nc")
    with pytest.raises(FileError, match=r"t = 0.125 is not the next one"):
        recorder.append(empty_frame(2, MESH.weights))
    with pytest.raises(FileError, match="holds 0 of 9 frames"):
        recorder.finish()
    assert not (tmp_path / "run.nc").exists()


@pytest.mark.parametrize("written", [0, 1, 5, 13])
def test_a_frame_counts_only_when_all_of_it_is_written(tmp_path, monkeypatch, written):
    recorder = recorder_at(tmp_path / "run.nc")
    coming = computed()
    recorder.append(next(coming))
    original, left = recording._write_at, iter(range(written))

    def stopping(*arguments):
        if next(left, None) is None:
            raise OSError("No space left on device")
        original(*arguments)

    monkeypatch.setattr(recording, "_write_at", stopping)
    with pytest.raises(FileError, match=r"cannot write .*run.nc.partial: No space left on device"):
        recorder.append(next(coming))
    assert recorder.count == 1
    assert len(open_run(recorder.partial, partial=True).times) == 1


def test_outputs_and_partial_files_are_kept(tmp_path):
    path = tmp_path / "run.nc"
    path.write_text("earlier result")
    with pytest.raises(FileError, match=r"run.nc exists"):
        recorder_at(path)
    path.unlink()
    partial_path(path).write_text("earlier run")
    with pytest.raises(FileError, match=r"run.nc.partial exists, from a run that was stopped"):
        recorder_at(path)
    assert partial_path(path).read_text() == "earlier run"
    path.write_text("earlier result")
    with recorder_at(path, overwrite=True) as recorder:
        for _ in recorder.record(computed()):
            assert path.read_text() == "earlier result"
    assert len(open_run(path).times) == 9


def test_memory_does_not_grow_with_the_number_of_frames(tmp_path):
    mesh = mf.icosphere(4)
    peaks = []
    for count in (10, 100):
        times = np.linspace(0, 1, count)
        tracemalloc.start()
        with Recorder(tmp_path / f"{count}.nc", mesh, MODEL, times, {}) as recorder:
            for time_ in times:
                audit = dict.fromkeys(SERIES, 0.0)
                recorder.append(Frame(float(time_), mesh.weights, audit, np.zeros(2)))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    frame_bytes = 16 * mesh.n_cells  # density and mass
    assert peaks[1] - peaks[0] < 2 * frame_bytes  # 90 frames more


FULL_DISK = """
import resource, sys
import numpy as np
import meanfield as mf
from meanfield.results.recording import Recorder
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
try:
    Recorder(sys.argv[1], mf.circle(500), mf.SelfAttention([1.0, 2.0]), np.arange(50.0), {})
except mf.errors.FileError as error:
    print(error)
"""


@pytest.mark.parametrize("limit", [0, 1000, 100_000, 400_000])
def test_a_full_disk_is_noticed_before_the_first_frame(tmp_path, limit):
    path = tmp_path / "run.nc"
    command = [sys.executable, "-c", FULL_DISK, str(path), str(limit)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert answer.stdout == f"cannot write {path}.partial: File too large\n"
    assert answer.stderr == ""
    assert os.listdir(tmp_path) == []


VICTIM = """
import sys, time
import numpy as np
import meanfield as mf
from meanfield.dynamics.timestepping import Frame
from meanfield.results.dataset import SERIES
from meanfield.results.recording import Recorder
mesh, times = mf.icosphere(3), np.linspace(0.0, 1.0, 400)
with Recorder(sys.argv[1], mesh, mf.SelfAttention([1.0, 2.0, 3.0]), times, {}) as recorder:
    print("ready", flush=True)
    for number, instant in enumerate(times):
        masses = np.zeros(mesh.n_cells)
        masses[number] = 1.0
        audit = dict.fromkeys(SERIES, float(number))
        recorder.append(Frame(float(instant), masses, audit, np.array([number, -number])))
        time.sleep(5e-4)
"""


def kill_and_read(path, moment) -> int:
    """Kill a recording process and check what is left; the number of frames."""
    process = subprocess.Popen(
        [sys.executable, "-c", VICTIM, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    process.stdout.close()
    time.sleep(moment)
    process.send_signal(signal.SIGKILL)
    process.wait()
    if path.exists():
        assert len(open_run(path).times) == 400
        return 400
    try:
        run = open_run(partial_path(path), partial=True)
    except FileError as error:
        if "before its first frame" in str(error):
            return 0
        raise
    count = len(run.times)
    numbers = np.arange(count)
    assert (run.masses[numbers, numbers] == 1).all()
    for name in SERIES:
        assert np.array_equal(run.audit[name], numbers)
    last = read_frame(partial_path(path))
    assert np.array_equal(last.state, [count - 1, 1 - count])
    return count


def kill_often(folder, times):
    generator = random.Random(times)
    return [
        kill_and_read(folder / f"{number}.nc", generator.uniform(0, 0.4)) for number in range(times)
    ]


def test_killed_runs_leave_readable_frames(tmp_path):
    counts = kill_often(tmp_path, 3)
    assert max(counts) > 10


@pytest.mark.slow
def test_killed_runs_leave_readable_frames_at_any_moment(tmp_path):
    counts = kill_often(tmp_path, 100)
    assert len(set(counts)) > 50
