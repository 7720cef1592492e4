"""Runs of the command that are stopped, killed and continued."""

import contextlib
import os
import random
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import meanfield as mf
from meanfield.cli import surviving
from meanfield.cli.surviving import Signals
from meanfield.dynamics.timestepping import LongRunWarning, duration
from meanfield.errors import FileError
from meanfield.results.checkpoints import checkpoint_paths, read_checkpoint
from meanfield.results.recording import partial_path

pytestmark = pytest.mark.usefixtures("own_folder")

EVOLVE = "evolve --D 1,2 --mesh circle:32 --density vmf:1,2:4 --t-end 1 --save 4 --cfl 0.1"
VERBS = {
    "evolve": EVOLVE,
    "particles": "particles --D 0.5,1,2 --points 30 --t-end 5 --save 4 --method geodesic_rk4",
    "adaptive": "particles --D 0.5,1,2 --points 30 --t-end 5 --save 4",
    "layers": "particles --D 0.5,1,2 --points 30 --layers 9",
    "minimize": "minimize --D 1,1.5 --mesh circle:32 --method mirror --max-iterations 60",
    "maximize": "minimize --D -1,1.5 --mesh circle:32 --maximize --start vmf:1,2:1",
}


def contents(path):
    with xr.open_dataset(path, engine="h5netcdf", decode_cf=False) as stored:
        stored.load()
    del stored.attrs["history"]
    return stored


class Interrupting(Signals):
    """A signal that comes after so many steps."""

    after, number = 3, signal.SIGINT

    def wanted(self):
        self.after -= 1
        if self.after == 0:
            os.kill(os.getpid(), self.number)
        return super().wanted()


@pytest.mark.parametrize(
    ("verb", "number"), [("evolve", signal.SIGTERM), *((verb, signal.SIGINT) for verb in VERBS)]
)
def test_a_signal_ends_a_run_that_can_be_continued(command, monkeypatch, verb, number):
    monkeypatch.setattr("meanfield.dynamics.particle_groups.PART", 0.0)
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    line = VERBS[verb]
    status, _, _ = command(f"{line} --output whole.nc")
    assert status in (0, 1)  # without convergence the result is there too
    monkeypatch.setattr(Interrupting, "number", number)
    monkeypatch.setattr(surviving, "Signals", Interrupting)
    monkeypatch.setattr(sys, "argv", ["meanfield", *shlex.split(line), "--output", "run.nc"])
    stopped, out, errors = command(f"{line} --output run.nc")
    assert (stopped, out) == ({signal.SIGINT: 130, signal.SIGTERM: 143}[number], "")
    assert len(errors) == 1
    assert errors[0].startswith("meanfield: error: interrupted; ")
    advice = errors[0].partition("to go on: meanfield ")[2]
    assert advice == f"{line} --output run.nc --resume"
    assert not Path("run.nc").exists()
    assert sum(name.exists() for name in checkpoint_paths("run.nc")) == 1
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before
    monkeypatch.setattr(surviving, "Signals", Signals)
    again, out, errors = command(advice)
    assert again == status
    assert "written: run.nc" in out
    xr.testing.assert_identical(contents("run.nc"), contents("whole.nc"))
    assert sorted(os.listdir()) == ["run.nc", "whole.nc"]
    again, out, _ = command(advice)
    assert again == status
    assert out.endswith("  already complete: run.nc\n")


def test_a_second_interrupt_ends_at_once():
    with Signals() as signals:
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.wanted()
        os.kill(os.getpid(), signal.SIGTERM)  # still waits for the step
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signals.status == 130
    with Signals(at_once=True) as signals, pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)
    assert signals.status == 143


def test_runs_on_nodes_are_resumed_when_complete(command, monkeypatch):
    line = "evolve --D 0.1,0.2,0.3 --mesh lebedev:7 --t-end 0.1 --save 2"
    assert command(f"{line} --resume")[0] == 0
    status, out, errors = command(f"{line} --resume")
    assert (status, errors) == (0, [])
    assert out.endswith("  already complete: run.nc\n")
    status, _, errors = command(line.replace("0.3", "0.4") + " --resume")
    assert status == 2
    assert "belongs to another run: D is" in errors[0]

    def slow(*_, **__):
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("meanfield.dynamics.characteristics.evolve_characteristics", slow)
    status, _, errors = command(f"{line} --output other.nc")
    assert status == 143
    assert errors == ["meanfield: error: interrupted; runs on nodes start again from the beginning"]


def test_other_options_are_refused_and_named(command):
    assert command(EVOLVE)[0] == 0
    before = Path("run.nc").read_bytes()
    status, out, errors = command(f"{EVOLVE} --cfl 0.2 --resume")
    assert (status, out) == (2, "")
    assert errors[0].startswith(
        "meanfield: error: run.nc belongs to another run: cfl is 0.1 there, 0.2 here; "
    )
    assert Path("run.nc").read_bytes() == before
    assert command(EVOLVE)[0] == 2
    assert command(f"{EVOLVE} --cfl 0.2 --resume --overwrite")[0] == 0


def test_pictures_of_complete_runs_are_kept(command):
    assert command(f"{EVOLVE} --plot a.png")[0] == 0
    before = Path("a.png").read_bytes()
    status, out, errors = command(f"{EVOLVE} --plot a.png --resume")
    assert (status, errors) == (0, [])
    assert "picture" not in out
    assert Path("a.png").read_bytes() == before
    Path("a.png").unlink()
    assert command(f"{EVOLVE} --plot a.png --resume")[1].endswith("  picture: a.png\n")


def test_a_damaged_checkpoint_is_one_line(command, monkeypatch):
    monkeypatch.setattr(surviving, "Signals", Interrupting)
    assert command(EVOLVE)[0] == 130
    monkeypatch.setattr(surviving, "Signals", Signals)
    path = checkpoint_paths("run.nc")[0]
    path.write_bytes(path.read_bytes()[:100])
    status, _, errors = command(f"{EVOLVE} --resume")
    assert status == 0
    assert errors == [
        f"meanfield: warning: the checkpoint {path} is cut off or damaged: it is not used"
    ]


def test_a_huge_end_time_is_announced(command, monkeypatch):
    monkeypatch.setattr(surviving, "Signals", Interrupting)
    monkeypatch.setattr(Interrupting, "after", 300)
    status, _, errors = command(f"{EVOLVE} --t-end 1e9 --save 2")
    assert status == 130
    assert len(errors) == 2
    assert errors[0].startswith("meanfield: warning: about ")
    assert "time steps will be needed, " in errors[0]
    with pytest.warns(LongRunWarning, match="a shorter time or a coarser mesh"):
        interrupted_evolution(1e12)


def test_runs_that_may_stop_early_are_not_announced(command, monkeypatch):
    monkeypatch.setattr("meanfield.dynamics.particle_groups.PART", 0.0)
    monkeypatch.setattr(surviving, "Signals", Interrupting)
    monkeypatch.setattr(Interrupting, "after", 150)
    line = "particles --D 0.001,0.001,0.002 --points 9 --t-end 1e12 --save 2 --method geodesic_rk4"
    assert "about " in command(line)[2][0]
    _, _, errors = command(f"{line} --stationary 1e-30 --overwrite")
    assert [error.split(";")[0] for error in errors] == ["meanfield: error: interrupted"]


def interrupted_evolution(t_end):
    def stop():
        steps.append(1)
        return len(steps) > 200

    steps = []
    model = mf.SelfAttention([1.0, 2.0])
    mf.record_evolution("b.nc", mf.circle(8), model, mf.uniform(), t_end, 2, stop=stop)


def test_lengths_of_time():
    assert [duration(s) for s in (0, 100, 6000, 1e5, 1e8)] == [
        "0 seconds", "2 minutes", "2 hours", "28 hours", "3 years",
    ]  # fmt: skip


# Killed processes ---------------------------------------------------------------------------------

# The host imports and builds the mesh once; every run is a fork of it, and is killed.
HOST = """
import os, signal, struct, sys, time
import meanfield as mf
level, frames, t_end = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
mesh, model = mf.icosphere(level), mf.SelfAttention([0.5, 1.0, 2.0], sign=-1)
density = mf.von_mises_fisher([0.3, -0.5, 0.8], 4.0)
print("ready", flush=True)
for line in sys.stdin:
    name, seconds, computing = line.split()
    log = open("log", "wb", buffering=0)
    child = os.fork()
    if not child:
        def stop():
            log.write(struct.pack("d", time.monotonic()))
        done = mf.record_evolution(
            name, mesh, model, density, t_end, frames, checkpoint=0.05, resume=True,
            overwrite=True, stop=stop
        )
        os._exit(0 if done.complete else 1)
    began = time.monotonic()
    while computing == "True" and not os.path.getsize("log") and time.monotonic() < began + 60:
        time.sleep(0.01)
    time.sleep(float(seconds))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    print("killed" if os.WIFSIGNALED(status) else os.WEXITSTATUS(status), flush=True)
"""


class Host:
    def __init__(self, level, frames, t_end):
        words = [str(word) for word in (level, frames, t_end)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOST, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout.readline() == "ready\n"

    def run(self, name, seconds, computing):
        """Kill a run after so many seconds, from its beginning or from its first step on."""
        self.process.stdin.write(f"{name} {seconds} {computing}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def reached(path):
    """Steps that are safe: in the last good checkpoint, or in a frame."""
    steps = [0]
    for name in checkpoint_paths(path):
        with contextlib.suppress(FileError):
            steps.append(int(read_checkpoint(name).arrays["steps"]))
    with contextlib.suppress(FileError):
        steps.append(int(mf.open_run(partial_path(path), partial=True).audit["steps"][-1]))
    return max(steps)


def lost_beyond_the_interval(log, kept):
    """Seconds of computing that are lost, less the interval and two steps with their files."""
    if len(log) - 1 <= kept:
        return 0.0
    times = log[max(kept - 1, 0) :]
    slack = 2 * np.diff(log).max()
    # Without a step that was kept the time counts from the first step on.
    return times[-1] - times[0] - 0.05 - slack


def kill_and_resume(kills, level, frames, t_end, longest):
    """Kill a run that replaces an old file, over and over, and compare what comes out."""
    generator, old = random.Random(kills), b"the old result"
    path, killed, safe, farthest, lost = Path("run.nc"), 0, 0, 0, []
    with Host(level, frames, t_end) as host:
        while killed < kills:
            path.write_bytes(old)
            moment, computing = generator.uniform(0, longest), generator.random() < 0.8
            if host.run("run.nc", moment, computing) == "0":
                path.unlink()  # it was faster: once more
                safe = 0
                continue
            killed += 1
            assert path.read_bytes() == old
            now = reached(path)
            assert now >= safe  # nothing that was safe is lost
            lost.append(lost_beyond_the_interval(np.fromfile("log"), now - safe))
            safe, farthest = now, max(farthest, now)
        path.write_bytes(old)
    assert farthest > 0
    assert max(lost) <= 0
    Path("log").unlink()
    model = mf.SelfAttention([0.5, 1.0, 2.0], sign=-1)
    density = mf.von_mises_fisher([0.3, -0.5, 0.8], 4.0)
    setting = (mf.icosphere(level), model, density, t_end, frames)
    assert mf.record_evolution("run.nc", *setting, resume=True, overwrite=True).complete
    mf.record_evolution("whole.nc", *setting)
    xr.testing.assert_identical(contents("run.nc"), contents("whole.nc"))
    assert sorted(os.listdir()) == ["run.nc", "whole.nc"]


def test_killed_runs_go_on_bit_for_bit():
    kill_and_resume(kills=6, level=3, frames=400, t_end=2.0, longest=0.3)


@pytest.mark.slow
def test_200_killed_runs_go_on_bit_for_bit():
    kill_and_resume(kills=200, level=6, frames=400, t_end=2.0, longest=1.0)


LONG = """
import sys
import numpy as np
import meanfield as mf
mesh, model = mf.icosphere(4), mf.SelfAttention([0.5, 1.0, 2.0], sign=-1)
density = mf.von_mises_fisher([0.3, -0.5, 0.8], 4.0)
steps, seen = 0, []
def stop():
    global steps
    steps += 1
    if steps % 100 == 0:
        with open("/proc/self/statm") as file:
            seen.append(int(file.read().split()[1]))
    return False
# The longest step is 0.125, by the response time of the velocity.
t_end = float(sys.argv[1])
mf.record_evolution("run.nc", mesh, model, density, t_end, 1001, checkpoint=5.0, stop=stop)
steady = np.array(seen[5:])
print(steps, steady.max() / steady.min() - 1)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the memory from /proc")
def test_a_long_run_keeps_its_mass_and_its_memory():
    command = [sys.executable, "-c", LONG, "12600"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    steps, growth = answer.stdout.split()
    run = mf.open_run("run.nc")
    assert int(steps) >= run.audit["steps"][-1] >= 1e5
    assert np.abs(run.audit["mass_error"]).max() <= 1e-11
    assert float(growth) <= 0.05
