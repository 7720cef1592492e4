"""The verb `particles`: runs, layers, summaries, and one line for whatever is wrong."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import meanfield as mf
from meanfield.cli import particles as verb
from meanfield.errors import NonFiniteError
from meanfield.plots import movies

QUICK = "--points 6 --t-end 0.5 --save 3"


pytestmark = pytest.mark.usefixtures("own_folder")


def particles(command, line):
    status, out, errors = command(f"particles {line}")
    assert (status, errors) == (0, [])
    return out


def test_the_main_job(command):
    files = "--output a.nc --plot a.png --movie a.gif"
    out = particles(command, f"--D 0.5,1,2 --points 20 --seed 4 --t-end 10 --save 4 {files}")
    run = mf.open_run("a.nc")
    start = mf.random_points(20, 3, seed=4)
    expected = mf.evolve_particles(start, mf.SelfAttention([0.5, 1, 2]), 10.0, save=4)
    assert np.array_equal(run.points, expected.points)
    assert run.parameters["start"]["seed"] == 4
    assert run.parameters == expected.parameters | {"start": run.parameters["start"]}
    assert "20 particles on S^2; adaptive" in out
    assert f"4 frames; energy {run.energy[0]:.8g} ... {run.energy[-1]:.8g}" in out
    assert Path("a.png").read_bytes().startswith(b"\x89PNG")
    assert Path("a.gif").read_bytes().startswith(b"GIF89a")
    assert sorted(os.listdir()) == ["a.gif", "a.nc", "a.png"]
    assert command("info a.nc")[0] == 0
    assert command("plot a.nc --output b.png")[0] == 0


def test_clusters_are_those_of_theory(command):
    # V = D and 2 the largest eigenvalue: everything ends in e3 or -e3.
    out = particles(command, "--D 0.5,1,2 --points 40 --t-end 40 --save 2")
    clusters = re.findall(r"mass (\S+) at \((\S+), (\S+), (\S+)\)", out)
    masses, *centres = np.array(clusters, dtype=float).T
    assert "clusters (within 0.05 rad): 2" in out
    assert np.isclose(masses.sum(), 1)
    assert masses[0] > masses[1]
    assert np.array_equal(np.abs(np.transpose(centres)), [[0, 0, 1], [0, 0, 1]])


def test_many_clusters_are_not_all_listed(command):
    out = particles(command, "--D 1,1 --points 40 --t-end 1e-3 --save 2 --angle 1e-9")
    assert "clusters (within 1e-09 rad): 40" in out
    assert out.count("mass 0.025 at ") == verb.LISTED
    assert "and 32 more with the mass 0.8" in out


def test_points_of_a_file(command):
    Path("p.csv").write_text("token,x,y\na,2,0\nb,-0.4161468365,0.9092974268\n")
    particles(command, "--D 1,1 --points p.csv --t-end 3 --tolerance 1e-10")
    first, second = mf.open_run("run.nc").points[-1]
    assert abs(np.arccos(first @ second) - 0.40746124050) < 1e-8


def test_stationary_starts_say_when(command):
    out = particles(command, f"--D 2,1 {QUICK} --stationary 1e-9")
    assert "  not stationary\n" in out
    out = particles(command, "--D 2,1 --points 6 --t-end 40 --stationary 1e-4 --overwrite")
    stopped = float(mf.open_run("run.nc").stopped)
    assert f"stationary at t = {stopped:.6g}\n" in out
    assert 0 < stopped < 40


def test_an_ensemble(command):
    line = "--D 2,1 --points 8 --starts 12 --t-end 30 --stationary 1e-5 --plot a.png --movie a.gif"
    out = particles(command, line)
    run = mf.open_run("run.nc")
    assert run.starts == 12
    two = int((run.clusters().count == 2).sum())
    assert 0 < two < 12
    assert f"clusters by starts (within 0.05 rad): 1 in {12 - two}, 2 in {two}\n" in out
    assert "12 of 12 starts stationary, at t = " in out
    assert f"mean energy {run.energy[0].mean():.8g} ... {run.energy[-1].mean():.8g}" in out


def test_layers(command):
    out = particles(command, "--D 0,0 --V 1,1 --points 5 --seed 2 --layers 3 --step 0.5")
    run = mf.open_run("run.nc")
    model = mf.SelfAttention([0, 0], V=[1, 1])
    expected = mf.transformer(mf.random_points(5, 2, seed=2), model, layers=3, step=0.5)
    assert np.array_equal(run.points, expected.points)
    assert run.times.tolist() == [0, 0.5, 1, 1.5]
    assert "5 particles on S^1; 3 layers" in out


def test_fixed_steps_and_models(command):
    line = f"--D '[[1, 2], [0, 1]]' --V 0,1 --unnormalized {QUICK}"
    out = particles(command, f"{line} --method projected_euler --step 0.1")
    run = mf.open_run("run.nc")
    assert (run.parameters["method"], run.parameters["step"]) == ("projected_euler", 0.1)
    assert not run.model.normalized
    assert "projected_euler" in out


def test_energies_beyond_floating_point(command):
    out = particles(command, "--D 900,800 --points 4 --t-end 0.01 --save 2")
    assert "log energy " in out
    assert "inf" not in out


def test_help_has_an_example(command):
    status, out, errors = command("particles --help")
    assert (status, errors) == (0, [])
    assert "Example: meanfield particles " in out
    assert "geodesic_rk4" in " ".join(out.split())


BAD_RUNS = [
    ("--D 1,nan --t-end 1", "D contains NaN or infinity"),
    ("--D 1,2", "give either --t-end (the flow) or --layers (a transformer)"),
    ("--D 1,2 --t-end 1 --layers 2", "give either --t-end (the flow) or --layers"),
    ("--D 1,2 --t-end 0", "t_end must be finite and > 0"),
    ("--D 1,2 --layers 0", "layers must be an integer >= 1, got 0"),
    ("--D 1,2 --layers -3", "layers must be an integer >= 1, got -3"),
    ("--D 1,2 --layers 2 --save 0,1", "--save must be a number of frames"),
    ("--D 1,2 --layers 2 --save 1", "save must be an integer >= 2"),
    ("--D 1,2 --layers 2 --step 0", "step must be finite and > 0"),
    ("--D 1,2 --layers 2 --method adaptive", "go with --t-end, not --layers"),
    ("--D 1,2 --layers 2 --stationary 1e-3", "go with --t-end, not --layers"),
    ("--D 1,2 --layers 1000000000000", "need 1.49e+06 GiB"),
    ("--D 1,2 --t-end 1 --points 0", "must be whole and >= 1"),
    ("--D 1,2 --t-end 1 --points -4", "must be whole and >= 1"),
    ("--D 1,2 --t-end 1 --points 2.5", "must be whole and >= 1"),
    ("--D 1,2 --t-end 1 --points nan", "must be whole and >= 1"),
    ("--D 1,2 --t-end 1 --points inf", "must be whole and >= 1"),
    ("--D 1,2 --t-end 1 --points 3,4", "must be whole and >= 1"),
    ("--D 1,2 --t-end 1 --points 1e12", "need 3.13e+05 GiB, more than 8 GiB"),
    ("--D 1,2 --t-end 1 --points many", "--points is 'many', it must be a number N"),
    ("--D 1,2 --t-end 1 --points nofile.csv", "cannot read nofile.csv: No such file"),
    ("--D 1,2 --t-end 1 --points zero.csv", "zero.csv: row 2 is the zero vector"),
    ("--D 1,2,3 --t-end 1 --points good.csv", "D is 3 x 3 but the points are in R^2"),
    ("--D 1,2 --t-end 1 --points good.csv --starts 3", "--starts needs a number of random points"),
    ("--D 1,2 --t-end 1 --starts 0", "starts must be an integer >= 1, got 0"),
    ("--D 1,2 --t-end 1 --seed -1", "Invalid value for '--seed'"),
    ("--D 1,2 --t-end 1 --method euler", "method must be 'adaptive' or one of"),
    ("--D 1,2 --t-end 1 --step 0.1", "the adaptive method chooses its steps"),
    ("--D 1,2 --t-end 1 --method geodesic_rk4 --tolerance 1e-3", "takes fixed steps"),
    ("--D 1,2 --t-end 1 --tolerance 1e-20", "tolerance must be >= 1e-13"),
    ("--D 1,2 --t-end 1 --stationary 0", "stationary must be finite and > 0"),
    ("--D 1,2 --t-end 1 --save often", "--save is 'often'"),
    ("--D 1,2 --t-end 1 --angle 0", "--angle must be in (0, pi) radians"),
    ("--D 1,2 --t-end 1 --angle 4", "--angle must be in (0, pi) radians"),
    ("--D 1,2 --t-end 1 --output zero.csv", "zero.csv exists"),
    ("--D 1,2 --t-end 1 --plot run.doc", "the name of a picture must end in one of"),
    ("--D 1,2 --t-end 1 --movie run.avi", "the name of a movie must end in .gif or .mp4"),
    ("--D 1,2 --t-end 1 --movie nowhere/run.gif", "the folder nowhere does not exist"),
    ("--D 1,2 --t-end 1 --movie old.gif", "old.gif exists"),
    ("--D 1,2 --t-end 1 --movie run.mp4", "needs ffmpeg, which is not installed; use .gif"),
]


@pytest.mark.parametrize(("words", "message"), BAD_RUNS)
def test_bad_input_is_one_line(command, words, message, monkeypatch):
    Path("zero.csv").write_text("1,0\n0,0\n")
    Path("good.csv").write_text("1,0\n0,1\n")
    Path("old.gif").write_bytes(b"old")
    before = sorted(os.listdir())
    monkeypatch.setenv("PATH", "")
    status, out, errors = command(f"particles {words}")
    assert (status, out) == (2, "")
    assert len(errors) == 1
    assert errors[0].startswith("meanfield: error: ")
    assert message in errors[0]
    assert sorted(os.listdir()) == before


def test_failed_computations(command, monkeypatch):
    status, _, errors = command("particles --D 800,1 --unnormalized --t-end 1")
    assert status == 1
    assert len(errors) == 1
    assert "use the normalised flow" in errors[0]

    def failing(*_, **__):
        raise NonFiniteError("a value became NaN between t = 1 and 2")

    monkeypatch.setattr(verb, "record_particles", failing)
    status, out, errors = command(f"particles --D 1,2 {QUICK}")
    assert (status, out) == (1, "")
    message = "a value became NaN between t = 1 and 2; nothing was saved"
    assert errors == [f"meanfield: error: {message}"]
    assert os.listdir() == []


def test_an_interrupt(command, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(verb, "record_particles", interrupted)
    status, out, errors = command(f"particles --D 1,2 {QUICK}")
    assert (status, out, len(errors)) == (130, "", 1)
    assert errors[0].startswith("meanfield: error: interrupted at once; nothing was saved")


@pytest.mark.parametrize("verb", [f"particles {QUICK}", "evolve --mesh circle:8 --t-end 0.1"])
def test_a_failing_movie_does_not_fail_the_run(command, monkeypatch, verb):
    def failing(*_):
        raise ZeroDivisionError("no\nfilm")

    monkeypatch.setattr(movies, "_scene", failing)
    status, out, errors = command(f"{verb} --D 1,2 --movie a.gif")
    assert status == 0
    assert errors == ["meanfield: warning: the movie a.gif could not be made: no film"]
    assert "written: run.nc" in out
    assert os.listdir() == ["run.nc"]


@pytest.mark.parametrize("mesh", ["circle:8", "icosphere:1", "lebedev:15"])
def test_movies_of_densities(command, mesh):
    D = "0.1,0.2" if mesh == "circle:8" else "0.1,0.2,0.3"
    line = f"evolve --D {D} --mesh {mesh} --t-end 0.1 --save 2 --movie a.gif --plot a.png"
    status, out, errors = command(line)
    assert (status, errors) == (0, [])
    assert out.endswith("  picture: a.png\n  movie: a.gif\n")
    assert Path("a.gif").read_bytes().startswith(b"GIF89a")


def test_piped_output_has_no_progress_bar():
    script = "import sys; from meanfield.cli import main; sys.exit(main())"
    words = shlex.split(f"particles --D 1,2 {QUICK}")
    answer = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, check=False
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.startswith("SelfAttention(D=")
