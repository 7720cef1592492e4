"""Sweeps: complete and labelled, whatever happens to members, processes and workers."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import meanfield as mf
from meanfield.cli.sweep_plan import Plan, parse_axis, read_plan
from meanfield.cli.sweep_workers import Outcome, on_this_machine
from meanfield.errors import FileError, InputError, SizeError
from meanfield.results.dataset import open_run
from meanfield.results.files import only_writer

pytestmark = pytest.mark.usefixtures("own_folder")
RUN = "evolve --D -1,{l} --mesh circle:16 --t-end {t} --save 3 --density vmf:1,1:2"
SCRIPT = "import sys; from meanfield.cli import main; sys.exit(main())"


def start(*words, **options):
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def opened(path="sweep.nc"):
    return xr.open_dataset(path, engine="h5netcdf")


def wait_for(condition, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.01)


# Plans ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0:1:3", (0.0, 0.5, 1.0)),
        ("1:100:3:log", (1.0, 10.0, 100.0)),
        ("1,2,3", (1, 2, 3)),
        ("1,2.5", (1.0, 2.5)),
        ("-1,1e-3", (-1.0, 0.001)),
        ("circle:8|circle:16", ("circle:8", "circle:16")),
        ("vmf:1,0:2", ("vmf:1", "0:2")),
        ("vmf:1,0:2|uniform", ("vmf:1,0:2", "uniform")),
        ("a", ("a",)),
    ],
)
def test_values_of_an_axis(text, values):
    found = parse_axis("l", text)
    assert found == values
    assert [type(value) for value in found] == [type(value) for value in values]


@pytest.mark.parametrize(
    ("command", "vary", "error", "words"),
    [
        ("mesh circle:{l}", ["l=8,9"], InputError, "evolve, particles, minimize"),
        ("", ["l=1,2"], InputError, "a sweep runs one of"),
        ("evolve --D '{l}", ["l=1,2"], InputError, "No closing quotation"),
        ("evolve --D {l},1", [], InputError, "nothing varies"),
        ("evolve --D {l},{m}", ["l=1,2"], InputError, "has {m}"),
        ("evolve --D 1,1", ["l=1,2"], InputError, "no {l}"),
        ("evolve --D {l},1 --output a.nc", ["l=1,2"], InputError, "leave --output out"),
        ("evolve --D {l},1 --plot=a.png", ["l=1,2"], InputError, "leave --plot=a.png out"),
        ("evolve --D {l},1", ["l=1,1"], InputError, "different"),
        ("evolve --D {l},1", ["l=1,,2"], InputError, "a value is missing"),
        ("evolve --D {l},1", ["l=0:1:2.5"], InputError, "no range"),
        ("evolve --D {l},1", ["l=0:1:3:log"], InputError, "positive ends"),
        ("evolve --D {l},1", ["l"], InputError, "--vary is 'l'"),
        ("evolve --D {l},1", ["l m=1,2"], InputError, "--vary is"),
        ("evolve --D {l},{m}", ["l=1:2:1000", "m=1:2:1000"], SizeError, "1,000,000 members"),
        ("no.toml", [], FileError, "No such file"),
    ],
)
def test_plans_that_are_refused(command, vary, error, words):
    with pytest.raises(error, match=words.replace("{", r"\{")):
        read_plan(command, vary)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("command = ", "no TOML file"),
        ("command = 3", "must have command"),
        ("commando = 'evolve'", "unknown: commando"),
        ("command = 'evolve --D {l},1'\nseed = -1\n[vary]\nl = [1, 2]", "seed must be"),
        ("command = 'evolve --D {l},1'\n[vary]\nl = [[1], 2]", "l must be a list"),
        ("command = 'evolve --D {l},1'\n[vary]\nl = true", "l must be a list"),
        ("command = 'evolve --D {l},1'\n[vary]\n'l m' = [1]", "is no name"),
        ("vary = 3\ncommand = 'evolve'", "must have command"),
    ],
)
def test_files_that_are_refused(text, words):
    Path("plan.toml").write_text(text)
    with pytest.raises(FileError, match=words):
        read_plan("plan.toml", [])


def test_a_plan_from_a_file():
    Path("plan.toml").write_text(
        'command = "meanfield evolve --D {l},1 --mesh {mesh} --t-end 1"\nseed = 4\n'
        '[vary]\nl = "0:1:3"\nmesh = ["circle:8", "circle:16"]\n'
    )
    assert read_plan("plan.toml", []).seed == 4
    plan = read_plan("plan.toml", ["l=5,6"], seed=5)
    assert plan.seed == 5
    assert plan.shape == (2, 2)
    assert plan.axes == {"l": (5, 6), "mesh": ("circle:8", "circle:16")}
    assert list(plan)[1].words[2:5] == ("5,1", "--mesh", "circle:16")


def test_members_have_streams_of_their_own():
    plan = Plan("particles --D {l},1 --points 5 --t-end 1", {"l": (1, 2, 3)}, seed=7)
    seeds = [member.words[-1] for member in plan]
    assert len(set(seeds)) == 3
    assert seeds == [member.words[-1] for member in plan]
    other = Plan(plan.command, plan.axes, seed=8)
    assert not set(seeds) & {member.words[-1] for member in other}
    given = Plan(f"{plan.command} --seed 4", plan.axes)
    assert {member.words[-1] for member in given} == {"4"}
    assert len({member.name for member in given}) == 3
    more = Plan(plan.command, {"l": (0, 1, 2, 3)}, seed=7)
    assert [member.words[-1] for member in more][1:] == seeds  # so that they are known


# Sweeps -----------------------------------------------------------------------------------------


def test_one_labelled_dataset(command):
    line = f"sweep '{RUN}' --vary l=0.5,2 --vary t=0.1,0.2,-1 --processes 1"
    status, out, errors = command(line)
    assert status == 1
    assert "6 members: 4 complete, 2 failed" in out
    assert any("t_end must be finite and > 0" in error for error in errors)
    with opened() as found:
        assert found["status"].dims == ("l", "t")
        assert found["status"].values.tolist() == [[0, 0, 1], [0, 0, 1]]
        assert "t_end must be" in str(found["error"].sel(l=2.0, t=-1).values)
        for rate in (0.5, 2.0):
            for t in (0.1, 0.2):
                model = mf.SelfAttention([-1, rate])
                run = mf.evolve(mf.circle(16), model, mf.von_mises_fisher([1, 1], 2), t, save=3)
                member = found.sel(l=rate, t=t)
                assert np.array_equal(member["mass"], run.masses[-1])
                assert float(member["energy"]) == run.energy[-1]
        assert np.isnan(found["energy"].sel(t=-1)).all()
        assert found["mesh_node_x"].dims == ("node",)
        assert json.loads(found.attrs["parameters"])["vary"] == {
            "l": [0.5, 2.0],
            "t": [0.1, 0.2, -1.0],
        }
    status, out, _ = command("info sweep.nc")
    assert (status, "  6 members: 4 complete, 2 failed\n" in out) == (0, True)
    assert out.count("    failed: t_end must be") == 1


def test_equal_times_keep_the_series(command):
    line = "sweep 'evolve --D -1,{l} --mesh circle:16 --t-end 0.1 --save 3' --vary l=1,2"
    assert command(f"{line} --processes 1 --plot a.png")[0] == 0
    with opened() as found:
        assert found["energy"].dims == ("l", "time")
        assert found["time"].values.tolist() == [0.0, 0.05, 0.1]
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")


def test_meshes_may_vary(command):
    line = "sweep 'minimize --D 1,2 --mesh circle:{cells}' --vary cells=16,32 --processes 1"
    assert command(line)[0] == 0
    with opened() as found:
        assert "density" not in found
        assert "density" in found.attrs["left_out"]
        assert found["final_energy"].values == pytest.approx(1.438195706936078, abs=1e-6)


def test_what_is_known_is_not_computed_again(command, monkeypatch):
    line = f"sweep '{RUN}' --vary t=0.1 --processes 1"
    assert command(f"{line} --vary l=0.5,2")[0] == 0
    status, _, errors = command(f"{line} --vary l=0.5,2")
    assert (status, "sweep.nc exists" in errors[0]) == (2, True)
    before = {path: path.stat().st_mtime_ns for path in Path("sweep.nc.members").iterdir()}
    status, out, _ = command(f"{line} --vary l=0.5,2,3 --overwrite")
    assert (status, "3 complete (2 of them before)" in out) == (0, True)
    after = {path: path.stat().st_mtime_ns for path in Path("sweep.nc.members").iterdir()}
    assert len(after) == 3
    assert before.items() <= after.items()
    Path("sweep.nc").unlink()
    monkeypatch.setattr("meanfield.cli.sweep.in_this_process", None)
    assert command(f"{line} --vary l=0.5,2,3")[0] == 0


def test_failed_members_are_tried_again_when_asked(command, monkeypatch):
    line = f"sweep '{RUN}' --vary t=0.1 --vary l=0.5,2 --processes 1"
    with monkeypatch.context() as patch:
        full = Outcome(1, "disk full")
        patch.setattr("meanfield.cli.sweep_workers.run_member", lambda *_: full)
        status, _, errors = command(line)
    assert (status, "disk full" in errors[0]) == (1, True)
    status, _, errors = command(line)
    assert (status, "all 2 members failed, nothing is written" in errors[0]) == (1, True)
    assert not Path("sweep.nc").exists()
    status, out, _ = command(f"{line} --retry")
    assert (status, "2 complete" in out) == (0, True)


def test_bad_places(command):
    assert command(f"sweep '{RUN}' --vary t=1 --vary l=1 --output no/sweep.nc")[0] == 2
    status, _, errors = command(
        f"sweep '{RUN}' --vary t=1 --vary l=1 --scheduler tcp://127.0.0.1:9 --processes 2"
    )
    assert (status, "either --processes or --scheduler" in errors[0]) == (2, True)


# Interruptions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("processes", "number", "status"),
    [
        ("1", signal.SIGTERM, 143),
        ("2", signal.SIGINT, 130),
        pytest.param("1", signal.SIGINT, 130, marks=pytest.mark.slow),
        pytest.param("2", signal.SIGTERM, 143, marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_sweep_goes_on(command, number, status, processes):
    words = ["sweep", RUN, "--vary", "l=0.5:2:8", "--vary", "t=0.3,0.4"]
    process = start(*words, "--processes", processes)
    folder = Path("sweep.nc.members")
    wait_for(lambda: folder.exists() and len(list(folder.glob("*.nc"))) >= 3)
    process.send_signal(number)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == status, errors
    assert "interrupted" in errors
    assert "Traceback" not in errors
    assert not Path("sweep.nc").exists()
    done = len(list(folder.glob("*.nc")))
    assert 3 <= done < 16
    status, out, _ = command(f"sweep '{RUN}' --vary l=0.5:2:8 --vary t=0.3,0.4 --processes 1")
    assert status == 0
    assert f"16 complete ({done} of them before)" in out
    with opened() as found:
        assert (found["status"] == 0).all()
        assert np.isfinite(found["energy"]).all()


def test_two_sweeps_do_not_write_the_same_output(command):
    with only_writer("sweep.nc"):
        status, _, errors = command(f"sweep '{RUN}' --vary l=1 --vary t=0.1")
    assert (status, "another process is writing sweep.nc" in errors[0]) == (2, True)
    assert not Path("sweep.nc.members").exists()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc")
def test_workers_end_with_a_sweep_that_is_killed():
    line = "particles --D {a},1,2 --points 30 --t-end 1e5 --method geodesic_rk4 --step 1e-3"
    process = start("sweep", line, "--vary", "a=0.1:1:4", "--processes", "2")
    folder = Path("sweep.nc.members")
    wait_for(lambda: folder.exists() and len(list(folder.glob("*.partial"))) == 2)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.kill()
    process.communicate()
    wait_for(lambda: not any(Path("/proc", child).exists() for child in children), 20)
    assert len(list(folder.glob(".*.checkpoint-0"))) == 2


def test_a_signal_whose_exception_is_lost_counts_all_the_same(command, monkeypatch):
    begun = []

    def run_member(words, _):
        begun.append(words)
        try:  # as if it came in a finalizer, where Python drops exceptions
            os.kill(os.getpid(), signal.SIGTERM)
        except KeyboardInterrupt:
            return Outcome(1, "a finalizer was running")
        raise AssertionError("the signal did not come")

    monkeypatch.setattr("meanfield.cli.sweep_workers.run_member", run_member)
    status, _, errors = command(f"sweep '{RUN}' --vary l=0.5:2:8 --vary t=0.3 --processes 1")
    assert (status, len(begun)) == (143, 1)
    assert "1 of 8 members" in errors[0]


def test_a_process_that_dies_fails_its_member_only():
    class Deadly(type(next(iter(Plan("evolve --D {l},1", {"l": (1,)}))))):
        pass

    plan = Plan("evolve --D {l},1 --mesh circle:16 --t-end 0.1 --save 2", {"l": (1.0, 2.0, 3.0)})
    members = list(plan)
    members[1] = Deadly(members[1].index, ("evolve", "--D", DeathOnArrival()))
    outcomes = dict(on_this_machine(members, lambda m: Path(f"{m.index[0]}.nc"), 2))
    assert [outcomes[member].status for member in members] == [0, 1, 0]
    assert "its process died" in outcomes[members[1]].message
    assert len(open_run("2.nc").times) == 2


class DeathOnArrival(str):
    """A word that kills the process it is sent to."""

    def __reduce__(self):
        return os._exit, (9,)


# Clusters ---------------------------------------------------------------------------------------


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def cluster(tmp_path):
    """A scheduler and two workers as processes of their own: (address, workers)."""
    pytest.importorskip("distributed", reason="needs the distributed extra")
    address = f"tcp://127.0.0.1:{free_port()}"
    common = {"cwd": tmp_path, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    module = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
    scheduler = subprocess.Popen(
        [*module, "--host", address, "--no-dashboard", "--no-show"], **common
    )
    module = [sys.executable, "-m", "distributed.cli.dask_worker", address]
    quiet = ["--nthreads", "1", "--no-dashboard", "--no-nanny", "--host", "127.0.0.1"]
    workers = [subprocess.Popen([*module, *quiet], **common) for _ in range(2)]
    yield address, workers
    for process in (*workers, scheduler):
        process.kill()
        process.wait()


def test_a_cluster_that_loses_a_worker(cluster):
    address, workers = cluster
    process = start(
        "sweep", RUN, "--vary", "l=0.5:2:12", "--vary", "t=0.3,-1", "--scheduler", address
    )
    folder = Path("sweep.nc.members")
    wait_for(lambda: folder.exists() and len(list(folder.glob("*.nc"))) >= 3)
    workers[0].kill()
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 1, errors
    assert "12 complete, 12 failed" in out
    with opened() as found:
        assert (found["status"].sel(t=0.3) == 0).all()
        assert (found["status"].sel(t=-1) == 1).all()
        run = mf.evolve(
            mf.circle(16), mf.SelfAttention([-1, 0.5]), mf.von_mises_fisher([1, 1], 2), 0.3, save=3
        )
        assert float(found["energy"].sel(l=0.5, t=0.3)[-1]) == run.energy[-1]


def test_no_scheduler_answers(command, monkeypatch):
    pytest.importorskip("distributed", reason="needs the distributed extra")
    import meanfield.cli.sweep_workers as workers

    monkeypatch.setattr(workers.on_cluster, "__defaults__", (0.5,))
    status, _, errors = command(
        f"sweep '{RUN}' --vary t=1 --vary l=1 --scheduler tcp://127.0.0.1:{free_port()}"
    )
    assert (status, "no scheduler answers" in errors[-1]) == (2, True)
    status, _, errors = command(f"sweep '{RUN}' --vary t=1 --vary l=1 --scheduler nonsense://x")
    assert (status, "no scheduler answers" in errors[-1]) == (2, True)


@pytest.mark.slow
def test_two_hundred_members():
    words = ["sweep", RUN, "--vary", "l=0.5:2:67", "--vary", "t=0.1,0.2,-1", "--processes", "2"]
    process = start(*words)
    folder = Path("sweep.nc.members")
    wait_for(lambda: folder.exists() and len(list(folder.glob("*.nc"))) >= 40)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=300)
    assert process.returncode == 130
    process = start(*words)
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 1, errors
    assert "134 complete" in out
    assert "67 failed" in out
    with opened() as found:
        assert found["status"].shape == (67, 3)
        assert (found["status"].sel(t=[0.1, 0.2]) == 0).all()
        assert np.isfinite(found["energy"].sel(t=[0.1, 0.2])).all()
