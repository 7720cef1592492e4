"""The command: what it does, and one line for whatever is wrong."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import meanfield as mf
from meanfield import plots
from meanfield.cli import main
from meanfield.cli.parsing import parse_density, parse_matrix, parse_mesh
from meanfield.errors import NonFiniteError
from meanfield.results import recorded_runs
from meanfield.results.dataset import open_run
from meanfield.results.ugrid import read_mesh, write_mesh

COMMANDS = ("evolve", "mesh", "info", "plot")
QUICK = "--mesh circle:16 --t-end 0.1 --save 3"


pytestmark = pytest.mark.usefixtures("own_folder")


def evolve(command, line):
    status, out, errors = command(f"evolve {line}")
    assert (status, errors) == (0, [])
    return out


# Runs -----------------------------------------------------------------------------------------


def test_the_main_job(command):
    model = "--D 0.5,1,2 --sign -1 --density vmf:0,0,1:2"
    out = evolve(
        command, f"{model} --mesh icosphere:2 --t-end 0.5 --save 6 --output a.nc --plot a.png"
    )
    run = open_run("a.nc")
    model = mf.SelfAttention([0.5, 1, 2], sign=-1)
    density = mf.von_mises_fisher([0, 0, 1], 2)
    expected = mf.evolve(mf.icosphere(2), model, density, 0.5, save=6)
    assert np.array_equal(run.masses, expected.masses)
    assert run.parameters == expected.parameters
    assert "6 frames" in out
    assert f"energy {run.energy[0]:.8g} ... {run.energy[-1]:.8g}" in out
    assert "two-point velocities" in out
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(os.listdir()) == ["a.nc", "a.png"]
    with xr.open_dataset("a.nc", engine="h5netcdf") as dataset:
        assert dataset.sizes == {"face": 162, "corner": 6, "node": 320, "time": 6, "integral": 2}


def test_defaults(command):
    evolve(command, "--D 1,2 --t-end 0.01 --save 2")
    run = open_run("run.nc")
    assert run.mesh.name == "circle:512"
    assert run.model.sign == 1
    assert np.allclose(run.density[0], 1)


def test_a_negative_first_entry_is_no_option(command):
    evolve(command, f"--D -0.541,-0.497 --sign -1 {QUICK}")
    assert open_run("run.nc").model.D.tolist() == [[-0.541, 0], [0, -0.497]]


def test_general_flows(command):
    out = evolve(command, f"--D '[[1, 2], [0, 1]]' --V 0,1 --unnormalized {QUICK}")
    run = open_run("run.nc")
    assert run.model.D.tolist() == [[1, 2], [0, 1]]
    assert run.model.V.tolist() == [[0, 0], [0, 1]]
    assert not run.model.normalized
    assert "field velocities" in out


def test_order_cfl_and_times(command):
    evolve(command, "--D 1,2 --mesh circle:16 --t-end 0.3 --order 1 --cfl 0.2 --save 0.1,0.2")
    run = open_run("run.nc")
    assert run.times.tolist() == [0.1, 0.2]
    assert run.parameters["order"] == 1
    assert run.parameters["cfl"] == 0.2


@pytest.mark.parametrize("form", ["[[1, 2], [3, 4]]", "m.json", "m.csv", "m.txt", "m.npy"])
def test_forms_of_a_matrix(form):
    matrix = np.array([[1.0, 2.0], [3.0, 4.0]])
    Path("m.json").write_text(json.dumps(matrix.tolist()))
    Path("m.csv").write_text("1,2\n3,4\n")
    np.savetxt("m.txt", matrix)
    np.save("m.npy", matrix)
    assert np.array_equal(parse_matrix(form), matrix)


def test_one_row_is_a_diagonal():
    Path("m.csv").write_text("1,2,3\n")
    assert parse_matrix("m.csv").tolist() == [1, 2, 3]
    assert parse_matrix("[1, 2, 3]").tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    "name", ["icosphere:1", "icosphere:1:triangles", "icosphere:2:raw", "circle:12"]
)
def test_names_of_meshes_are_what_the_command_takes(name):
    assert parse_mesh(name).name == name


def test_density_of_points(command):
    Path("p:1.csv").write_text("token,x,y\na,3,4\nb,0,-1\n")
    density = parse_density("p:1.csv:7.5")
    assert density.parameters()["concentration"] == 7.5
    assert density.points.tolist() == [[0.6, 0.8], [0, -1]]
    evolve(command, f"--D 1,2 --density p:1.csv {QUICK}")
    assert open_run("run.nc").parameters["density"]["source"] == "p:1.csv"


def test_a_mesh_from_a_file(command):
    write_mesh(mf.icosphere(1), "mesh.nc")
    evolve(command, "--D 1,2,3 --mesh mesh.nc --t-end 0.1 --save 2")
    assert open_run("run.nc").mesh.n_cells == 42


def test_a_cluster_on_few_cells_is_said(command):
    words = "--D 3,1 --mesh circle:32 --density vmf:1,0.1:4 --t-end 5 --save 3"
    status, out, errors = command(f"evolve {words}")
    assert status == 0
    assert len(errors) == 1
    assert errors[0].startswith("meanfield: warning: unresolved: ")
    assert errors[0].endswith(" cells hold 99 % of the mass at t = 5")
    assert "frames" in out
    assert command("info run.nc")[2] == errors


# Meshes, pictures, contents -----------------------------------------------------------------------


def test_mesh_statistics_file_and_picture(command):
    status, out, errors = command("mesh icosphere:2 --output m.nc --plot m.png")
    assert (status, errors) == (0, [])
    assert "162 cells on S^2 (12 with 5 corners, 150 with 6 corners)" in out
    assert "Euler characteristic: 2" in out
    assert "orthogonal: yes" in out
    assert np.array_equal(read_mesh("m.nc").nodes, mf.icosphere(2).nodes)
    assert Path("m.png").stat().st_size > 10_000
    assert command("info m.nc")[1] in out
    assert command("plot m.nc --output m2.png")[0] == 0


def test_info(command):
    evolve(command, f"--D 1,2 {QUICK}")
    status, out, errors = command("info run.nc")
    assert (status, errors) == (0, [])
    for text in ("3 frames", "circle:16", "mass error", "t_end: 0.1", "meanfield 0.1.0", "energy"):
        assert text in out


def test_plot(command):
    evolve(command, f"--D 1,2 {QUICK}")
    assert command("plot run.nc")[0] == 0
    before = Path("run.png").read_bytes()
    status, _, errors = command("plot run.nc")
    assert status == 2
    assert "run.png exists" in errors[0]
    assert Path("run.png").read_bytes() == before
    assert command("plot run.nc --overwrite --output run.pdf")[0] == 0
    assert Path("run.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example(command, name):
    status, out, errors = command(f"{name} --help")
    assert (status, errors) == (0, [])
    assert f"Example: meanfield {name} " in out


def test_version_and_completion(command):
    assert command("--version") == (0, f"meanfield {mf.__version__}\n", [])
    assert "--install-completion" in command("--help")[1]


# Whatever is wrong --------------------------------------------------------------------------------

BAD_RUNS = [
    ("--D 1,nan,2", "D contains NaN or infinity"),
    ("--D 1,inf,2", "D contains NaN or infinity"),
    ("--D [[1,NaN],[0,1]]", "D contains NaN or infinity"),
    ("--D [[1,1e999],[0,1]]", "D contains NaN or infinity"),
    (f"--D [[1{400 * '0'},0],[0,1]]", "D contains NaN or infinity"),
    ("--D 1", "D must have shape (n, n) with n >= 2"),
    ("--D [[1,2,3],[4,5,6]]", "D must have shape (n, n) with n >= 2, got (2, 3)"),
    ("--D [[1,2],[3]]", "D is no JSON matrix"),
    ("--D [[1,2],[3,4]", "D is no JSON matrix"),
    ("--D 1,x,2", "D is '1,x,2', it must be a,b,c (a diagonal), a JSON matrix"),
    ("--D nofile.npy", "cannot read nofile.npy: No such file"),
    ("--D bad.csv", "bad.csv holds no matrix"),
    ("--D empty.csv", "D must have shape (n, n) with n >= 2"),
    ("--D pickled.npy", "pickled.npy holds no matrix"),
    ("--D 1,2 --V 1,2,3", "D has shape (2, 2) but V has shape (3, 3)"),
    ("--D 1,2 --V 1,2 --sign 1", "give either V or sign"),
    ("--D 1,2 --sign 2", "sign must be 1 or -1"),
    ("--D 1,2 --sign x", "Invalid value for '--sign'"),
    ("--D 1,2 --t-end 0", "t_end must be finite and > 0"),
    ("--D 1,2 --t-end -1", "t_end must be finite and > 0"),
    ("--D 1,2 --t-end nan", "t_end must be finite and > 0"),
    ("--D 1,2 --t-end soon", "Invalid value for '--t-end'"),
    ("--D 1,2 --cfl 0", "cfl must be in (0, 0.5]"),
    ("--D 1,2 --cfl 0.6", "cfl must be in (0, 0.5]"),
    ("--D 1,2 --order 3", "order must be 1 or 2"),
    ("--D 1,2 --save 1", "save must be a number of frames >= 2"),
    ("--D 1,2 --save 0.5,0.2", "save times must increase"),
    ("--D 1,2 --save 0,2", "save times must increase within [0, 0.1]"),
    ("--D 1,2 --save often", "--save is 'often', it must be a number of frames, or a list"),
    ("--D 1,2 --save 1e12", "it must be at most 1,000,000"),
    ("--D 1,2 --mesh square:4", "--mesh is 'square:4', it must be icosphere:LEVEL"),
    ("--D 1,2 --mesh circle:x", "'x' is no whole number"),
    ("--D 1,2 --mesh circle:2", "circle needs a whole number of cells >= 3"),
    ("--D 1,2 --mesh circle:1000000000", "needs about 559 GiB"),
    ("--D 1,2,3 --mesh icosphere:-1", "'-1' is no whole number"),
    ("--D 1,2,3 --mesh icosphere:3:squares", "it must be icosphere:LEVEL"),
    ("--D 1,2,3 --mesh icosphere:15", "10,737,418,242 cells and needs about 1.8e+04 GiB"),
    ("--D 1,2,3 --mesh nofile.nc", "cannot read nofile.nc: No such file"),
    ("--D 1,2,3 --mesh zero.csv", "not a readable NetCDF file"),
    ("--D 1,2,3 --mesh circle:16", "D is 3 x 3 but the mesh lies in R^2"),
    ("--D 1,2 --density flat", "--density is 'flat', it must be uniform, vmf:"),
    ("--D 1,2 --density vmf:1,0", "vmf needs vmf:MEAN:CONCENTRATION"),
    ("--D 1,2 --density vmf:1,0:x", "vmf needs vmf:MEAN:CONCENTRATION"),
    ("--D 1,2 --density vmf:0,0:1", "is zero"),
    ("--D 1,2 --density vmf:1,0:-1", "the concentration must be finite and >= 0"),
    ("--D 1,2 --density vmf:1,0:nan", "the concentration must be finite and >= 0"),
    ("--D 1,2 --density vmf:1,0,0:1", "the density lives in R^3"),
    ("--D 1,2 --density nofile.csv", "cannot read nofile.csv: No such file"),
    ("--D 1,2 --density nofile.csv:5", "cannot read nofile.csv: No such file"),
    ("--D 1,2 --density zero.csv", "zero.csv: row 2 is the zero vector"),
    ("--D 1,2 --density zero.csv:x", "'x' is no concentration"),
    ("--D 1,2 --density nan.csv", "nan.csv: row 1 contains NaN or infinity"),
    ("--D 1,2 --density columns.csv", "points need x,y,z or x,y or lon,lat"),
    ("--D 1,2 --output here.nc", "here.nc exists: choose another name or allow overwriting"),
    ("--D 1,2 --output nowhere/run.nc", "the folder nowhere does not exist"),
    ("--D 1,2 --plot here.nc", "the name of a picture must end in one of"),
    ("--D 1,2 --plot here.png", "here.png exists"),
    ("--D 1,2 --colour red", "No such option: --colour"),
    ("--D", "Option '--D' requires an argument"),
    ("", "Missing option '--D'"),
    ("--D 1,2 extra", "unexpected extra argument"),
]


@pytest.fixture
def _bad_files(own_folder):
    Path("bad.csv").write_text("1,2\n3,x\n")
    Path("empty.csv").write_text("\n")
    Path("zero.csv").write_text("x,y\n1,0\n0,0\n")
    Path("nan.csv").write_text("x,y\nnan,0\n")
    Path("columns.csv").write_text("a,b\n1,0\n")
    Path("here.nc").write_text("earlier result")
    Path("here.png").write_text("earlier picture")
    np.save("pickled.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)


@pytest.mark.usefixtures("_bad_files")
@pytest.mark.parametrize(("words", "message"), BAD_RUNS)
def test_bad_input_is_one_line(command, monkeypatch, words, message):
    def computed(*_):
        raise AssertionError("the input is bad: nothing must be computed")

    monkeypatch.setattr(recorded_runs, "frames", computed)
    before = {name: Path(name).read_bytes() for name in os.listdir()}
    status, out, errors = command(f"evolve {QUICK} {words}")  # the last of two options counts
    assert status == 2
    assert out == ""
    assert len(errors) == 1
    assert errors[0].startswith("meanfield: error: ")
    assert message in errors[0]
    assert {name: Path(name).read_bytes() for name in os.listdir()} == before


@pytest.mark.usefixtures("_bad_files")
@pytest.mark.parametrize("words", ["--output here.nc", "--plot here.png", "--plot a.xyz"])
def test_outputs_are_checked_before_anything_is_made(command, monkeypatch, words):
    monkeypatch.delattr("meanfield.cli.parsing.parse_mesh")
    assert command(f"evolve --D 1,2 {QUICK} {words}")[0] == 2


@pytest.mark.usefixtures("_bad_files")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "Missing command"),
        ("conquer", "No such command 'conquer'. (see `meanfield --help`)"),
        ("--loud", "No such option: --loud"),
        ("mesh", "Missing argument"),
        ("mesh cube", "--mesh is 'cube'"),
        ("mesh circle:8 --output here.nc", "here.nc exists"),
        ("mesh circle:8 --plot here.png", "here.png exists"),
        ("info nofile.nc", "cannot read nofile.nc: No such file"),
        ("info zero.csv", "not a readable NetCDF file"),
        ("plot nofile.nc", "cannot read nofile.nc: No such file"),
        ("plot here.nc", "here.png exists"),
        ("plot here.nc --overwrite", "not a readable NetCDF file"),
    ],
)
def test_bad_input_of_the_other_commands(command, words, message):
    status, out, errors = command(words)
    assert (status, out) == (2, "")
    assert len(errors) == 1
    assert errors[0].startswith("meanfield: error: ")
    assert message in errors[0]


def test_a_flow_that_is_too_fast_is_no_bad_input(command):
    status, _, errors = command(f"evolve --D 200,1 --unnormalized {QUICK}")
    assert status == 1
    assert len(errors) == 1
    assert "use the normalised flow" in errors[0]
    assert os.listdir() == []


def interrupted_frames(monkeypatch, error, count):
    original = recorded_runs.frames

    def some(*arguments, every_step):
        for number, frame in enumerate(original(*arguments)):
            if number == count:
                raise error
            yield frame

    monkeypatch.setattr(recorded_runs, "frames", some)


def test_a_failed_computation_says_what_is_left(command, monkeypatch):
    interrupted_frames(monkeypatch, NonFiniteError("a value became NaN after t = 0.07"), 2)
    status, out, errors = command(f"evolve --D 1,2 {QUICK}")
    assert (status, out) == (1, "")
    assert errors == [
        "meanfield: error: a value became NaN after t = 0.07; the last good time is t = 0.05, "
        "the 2 frames up to it are in run.nc.partial"
    ]
    assert os.listdir() == ["run.nc.partial"]
    assert open_run("run.nc.partial", partial=True).times.tolist() == [0, 0.05]
    status, out, _ = command("info run.nc.partial")
    assert status == 0
    assert "run.nc.partial: incomplete, 2 of 3 frames" in out
    assert command("plot run.nc.partial --output part.png")[0] == 0


def test_a_computation_that_fails_at_once(command, monkeypatch):
    interrupted_frames(monkeypatch, NonFiniteError("no"), 0)
    status, _, errors = command(f"evolve --D 1,2 {QUICK}")
    assert status == 1
    assert errors == ["meanfield: error: no; no frame was saved (run.nc.partial can be removed)"]


def test_too_little_memory(command, monkeypatch):
    interrupted_frames(monkeypatch, MemoryError("unable to allocate"), 1)
    status, _, errors = command(f"evolve --D 1,2 {QUICK}")
    assert status == 1
    assert errors == ["meanfield: error: out of memory: unable to allocate"]


def test_a_failing_picture_does_not_fail_the_run(command, monkeypatch):
    def failing(*_):
        raise ZeroDivisionError("no\ncolours")

    monkeypatch.setattr(plots, "plot_run", failing)
    status, out, errors = command(f"evolve --D 1,2 --plot run.png {QUICK}")
    assert status == 0
    assert errors == ["meanfield: warning: the picture run.png could not be made: no colours"]
    assert "written: run.nc" in out
    assert len(open_run("run.nc").times) == 3


def test_overwriting(command):
    evolve(command, f"--D 1,2 {QUICK}")
    evolve(command, f"--D 1,3 --overwrite {QUICK}")
    assert open_run("run.nc").model.D[1, 1] == 3


# As a process -------------------------------------------------------------------------------------


def process(line):
    script = "import sys; from meanfield.cli import main; sys.exit(main())"
    return [sys.executable, "-c", script, *shlex.split(line)]


def run_process(line):
    return subprocess.run(process(line), capture_output=True, text=True, check=False)


def test_piped_output_has_no_progress_bar():
    answer = run_process(f"evolve --D 1,2 {QUICK}")
    assert answer.returncode == 0
    assert answer.stderr == ""
    assert answer.stdout.startswith("SelfAttention(D=")


def test_the_exit_status_of_the_process():
    answer = run_process("evolve --D 1,2,x --t-end 1")
    assert answer.returncode == 2
    assert answer.stdout == ""
    assert answer.stderr.count("\n") == 1


def test_an_interrupt_keeps_the_frames():
    line = "evolve --D 1,2,3 --mesh icosphere:3 --t-end 100 --save 2000"
    running = subprocess.Popen(process(line), stderr=subprocess.PIPE, text=True)
    partial = Path("run.nc.partial")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        time.sleep(0.2)
        if partial.exists() and main(["info", "run.nc.partial"]) == 0:
            break
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 130, errors
    assert errors.count("\n") == 1
    assert errors.startswith("meanfield: error: interrupted; the last good time is t = ")
    assert len(open_run(partial, partial=True).times) >= 1
