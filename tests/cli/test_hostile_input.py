"""Whatever is typed: a result of finite numbers, or one line that says what is wrong."""

import io
import shutil
import time
from contextlib import redirect_stderr, redirect_stdout

import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import meanfield as mf
from meanfield.cli import main
from meanfield.results.ugrid import write_mesh

SECONDS = 120  # of one command, which takes well below one on a quiet machine
OVERFLOWING = {"energy", "dissipation", "final_energy"}  # beside them stands log_energy
OPEN = {"stopped", "residual", "residual_independent", "dissipation", "audit_state", "gap"}

FILES = [
    "run.nc", "particles.nc", "min.nc", "mesh.nc", "foreign.nc", "cut.nc",
    "text.nc", "empty.nc", "nothing.nc", "folder", "good.csv", "empty.csv",
    "nan.csv", "words.csv", "ragged.csv", "zero.csv", "D.json", "deep.json",
    "D.csv", "D.npy", "object.npy", "D.txt", "sweep.toml", "broken.toml",
]  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with files of all kinds, good and bad."""
    folder = tmp_path_factory.mktemp("files")
    model = mf.SelfAttention([1.0, 2.0])
    mf.evolve(mf.circle(8), model, mf.uniform(), 0.1, save=2).save(folder / "run.nc")
    mf.evolve_particles(np.eye(2), model, 0.1, save=2).save(folder / "particles.nc")
    mf.minimize(mf.circle(8), model.interaction).save(folder / "min.nc")
    write_mesh(mf.icosphere(0), folder / "mesh.nc")
    xr.Dataset({"a": ("x", [1.0, np.nan])}).to_netcdf(folder / "foreign.nc", engine="h5netcdf")
    whole = (folder / "run.nc").read_bytes()
    (folder / "cut.nc").write_bytes(whole[: len(whole) // 2])
    (folder / "text.nc").write_text("not a file of numbers")
    (folder / "empty.nc").write_bytes(b"")
    (folder / "folder").mkdir()
    texts = {
        "good.csv": "x,y,z\n1,0,0\n0,1,0\n0,0,1\n",
        "empty.csv": "",
        "nan.csv": "1,nan,0\n",
        "words.csv": "token,x\nhello,world\n",
        "ragged.csv": "1,2,3\n1,2\n",
        "zero.csv": "0,0,0\n",
        "D.json": "[[1, 0], [0, 2]]",
        "deep.json": "[" * 3000,
        "D.csv": "1,0\n0,-1\n",
        "D.txt": "1 2\n3 x\n",
        "sweep.toml": 'command = "evolve --D 1,{l} --mesh circle:8 --t-end 0.1"\n[vary]\nl=[1,2]',
        "broken.toml": "command = [",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    np.save(folder / "D.npy", np.diag([1.0, 2.0]))
    np.save(folder / "object.npy", np.array([{}], dtype=object), allow_pickle=True)
    return folder


def number(low, high):
    return st.floats(low, high).map(lambda value: f"{value:.6g}")


NONSENSE = [
    "", " ", "-1", "0", "nan", "inf", "-inf", "1e400", "1e-320", "--", "-", "None", "true", "[]",
    "{}", "[[1]]", "[[NaN]]", "[[1,2],[3]]", "1,2,", ",", "1;2", "\x00", "é", "1_000", "١", "0x10",
    "99999999999999999999", "../x.nc", "/dev/null", "/", "a" * 300,
]  # fmt: skip
hostile = st.one_of(st.sampled_from(FILES), st.sampled_from(NONSENSE), st.text(max_size=8))
matrix = st.one_of(
    st.lists(number(-3, 3), min_size=2, max_size=3).map(",".join),
    st.sampled_from(["200,-200,1", "1000,1000", "0,0", "1e-300,1", "1e300,1", "1,2,3,4", "5"]),
    st.sampled_from(["[[0,-1],[1,0]]", "[[1,2],[0,1]]", "[[1e200,0],[0,1]]"]),
)
density = st.one_of(
    st.sampled_from(["uniform", "good.csv", "good.csv:5", "vmf:1,0:2", "vmf:0,0,1:3"]),
    st.sampled_from(["vmf:0,0:1", "vmf:1,0,0:-1", "vmf:1,0,0:1e9", "vmf:1,0,0:nan", "vmf:::"]),
)
mesh = st.one_of(
    st.sampled_from(["circle:16", "circle:3", "circle:2", "icosphere:0", "icosphere:1:triangles"]),
    st.sampled_from(["lebedev:5", "lebedev:13", "lebedev:12", "mesh.nc", "icosphere:40", "cube"]),
    st.sampled_from(["circle:1e3", "circle:99999999999", "icosphere:-1", "circle:", ":"]),
)
t_end = st.one_of(number(0.01, 2), st.sampled_from(["0", "-1", "nan", "inf", "1e-300", "1e-9"]))
save = st.sampled_from(["2", "3", "1", "0", "-2", "0,0.01", "0.01,0", "nan", "1e99", "2.5", "0,0"])
sign = st.sampled_from(["1", "-1", "0", "2", "1.0", "x"])
common = {"--output": st.sampled_from(["out.nc", "no/out.nc", "folder", "run.nc", ""])}
picture = st.sampled_from(["a.png", "a.xyz", "folder", "no/a.png", "a.pdf"])
OPTIONS = {
    "evolve": {
        "--D": matrix,
        "--t-end": t_end,
        "--sign": sign,
        "--V": matrix,
        "--mesh": mesh,
        "--density": density,
        "--save": save,
        "--order": st.sampled_from(["1", "2", "3", "x"]),
        "--cfl": st.sampled_from(["0.45", "0.5", "0.6", "0", "nan", "-1", "1e-3"]),
        "--checkpoint": st.sampled_from(["0", "60", "-1", "nan"]),
        "--plot": picture,
        **common,
    },
    "particles": {
        "--D": matrix,
        "--points": st.sampled_from(["1", "5", "0", "-1", "1e9", "99999999999", "good.csv"]),
        "--t-end": t_end,
        "--layers": st.sampled_from(["0", "1", "3", "-1", "x"]),
        "--sign": sign,
        "--seed": st.sampled_from(["0", "-1", "99999999999999999999999", "x"]),
        "--starts": st.sampled_from(["1", "3", "0", "-1", "99999999999"]),
        "--method": st.sampled_from(["adaptive", "geodesic_rk4", "projected_euler", "rk45"]),
        "--step": st.sampled_from(["0.05", "0", "-1", "nan", "1e-300"]),
        "--tolerance": st.sampled_from(["1e-8", "0", "-1", "nan", "1e-30", "1e30"]),
        "--save": save,
        "--angle": st.sampled_from(["0.05", "0", "4", "nan"]),
        **common,
    },
    "minimize": {
        "--D": matrix,
        "--mesh": mesh,
        "--maximize": st.none(),
        "--method": st.sampled_from(["auto", "adaptive", "mirror", "newton"]),
        "--tolerance": st.sampled_from(["1e-6", "0", "nan", "-1"]),
        "--max-iterations": st.sampled_from(["5", "0", "-1", "x"]),
        "--step": st.sampled_from(["0.1", "0", "nan", "1e300", "-1"]),
        "--start": st.one_of(density, st.sampled_from(["random:1", "random:", "random:-1"])),
        **common,
    },
    "theory": {"--D": matrix, "--run": st.sampled_from(FILES)},
    "stability": {
        "": st.sampled_from(FILES),
        "--modes": st.sampled_from(["1", "3", "0", "-1", "1000000"]),
        "--tolerance": st.sampled_from(["1e-3", "nan", "-1", "0"]),
        "--angle": st.sampled_from(["0.1", "0", "nan", "7"]),
        "--start": st.sampled_from(["0", "1", "-1"]),
        **common,
    },
    "info": {"": st.sampled_from(FILES)},
    "plot": {"": st.sampled_from(FILES), "--output": picture},
    "mesh": {"": mesh, "--output": st.sampled_from(["out.nc", "folder", "no/out.nc"])},
    "rerun": {"": st.sampled_from(FILES), **common},
    "sweep": {
        "": st.sampled_from(["sweep.toml", "broken.toml", "D.json", "evolve --D {l},1", "'", ""]),
        "--vary": st.sampled_from(["l=1,2", "l=", "l", "=1", "l=0:1:3", "l=0:1:-3", "l=0:1:x"]),
        "--processes": st.just("1"),
        **common,
    },
}
NEEDED = {"evolve": ("--D", "--t-end", "--mesh"), "particles": ("--D",), "minimize": ("--D",)}


@st.composite
def command_lines(draw):
    """A verb with some of its options, most of them good, and sometimes nonsense."""
    verb = draw(st.sampled_from(sorted(OPTIONS)))
    options = OPTIONS[verb]
    chosen = set(NEEDED.get(verb, ())) | set(draw(st.lists(st.sampled_from(sorted(options)))))
    if verb == "minimize":
        chosen.add("--mesh")
    words = [verb]
    for name in sorted(chosen | ({""} & set(options))):
        value = draw(options[name])
        if value is not None and draw(st.integers(0, 11)) == 0:
            value = draw(hostile)
        words += [word for word in (name, value) if word]
    if draw(st.integers(0, 19)) == 0:
        words.insert(draw(st.integers(0, len(words))), draw(hostile))
    return words


def run(words):
    """Exit status, standard output, lines of errors, seconds."""
    out, errors, began = io.StringIO(), io.StringIO(), time.monotonic()
    with redirect_stdout(out), redirect_stderr(errors):
        status = main(words)
    return status, out.getvalue(), errors.getvalue().splitlines(), time.monotonic() - began


def check_numbers(path):
    """Nothing but finite numbers in a result."""
    with xr.open_dataset(path, engine="h5netcdf") as dataset:
        for name, variable in dataset.variables.items():
            if variable.dtype.kind != "f" or name in OPEN:
                continue
            values = variable.values
            good = np.isfinite(values) | (np.isposinf(values) if name in OVERFLOWING else False)
            failed = dataset["status"].values != 0 if "status" in dataset else np.False_
            if failed.any() and variable.dims[: failed.ndim] == dataset["status"].dims:
                good[failed] = True
            assert good.all(), name


@pytest.fixture
def folder(files, tmp_path_factory, monkeypatch):
    """Everything in reach as a copy, made anew when a command may have changed it."""
    place = tmp_path_factory.mktemp("hostile")
    shutil.copytree(files, place, dirs_exist_ok=True)
    monkeypatch.chdir(place)
    return place


def check(words, folder):
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    status, out, errors, seconds = run(words)
    assert status in (0, 1, 2), (words, status, errors)
    assert seconds < SECONDS
    lines = [line for line in errors if not line.startswith("meanfield: warning: ")]
    if status == 0:
        assert lines == []
        assert " nan" not in out.lower().replace(",", " ").replace("=", " ")
    else:
        assert len(lines) == 1, (words, errors)
        assert lines[0].startswith("meanfield: error: ")
        assert len(lines[0]) > len("meanfield: error: ") + 5
    for path in folder.iterdir():
        if path.name in before:
            assert path.read_bytes() == before[path.name], f"{words} changed {path.name}"
        elif path.is_dir():
            shutil.rmtree(path) if path.name != "folder" else None
        else:
            if path.suffix == ".nc" and not path.name.startswith("."):
                check_numbers(path)
            path.unlink()


def attack(examples):
    return settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


@attack(100)
@given(words=command_lines())
@example(words=["evolve", "--D", "\x00", "--t-end", "1"])
@example(words=["info", "\x00.nc"])
def test_command_lines(words, folder):
    check(words, folder)


@pytest.mark.slow
@attack(2000)
@given(words=command_lines())
def test_many_command_lines(words, folder):
    check(words, folder)
