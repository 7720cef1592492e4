"""The verb `distance`: numbers beside theory, files, exit status, bad input."""

import os
import re
from pathlib import Path

import numpy as np
import pytest

import meanfield as mf
from meanfield.cli import distance as module
from meanfield.results.ugrid import open_netcdf

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.fixture
def saved():
    """Two particle runs of one model, and one of another."""
    for name, D, time in (("a", [0.5, 1.0], 0.2), ("b", [0.5, 1.0], 2.0), ("c", [1.0, 1.0], 0.2)):
        run = mf.evolve_particles(mf.random_points(6, 2, 1), mf.SelfAttention(D), time, save=2)
        run.save(f"{name}.nc")
    Path("e.csv").write_text("x,y\n1,0\n")
    Path("f.csv").write_text("x,y\n0,1\n")
    Path("g.csv").write_text("x,y,z\n0,1,0\n")


def number(out, pattern):
    return float(re.search(pattern + r" ?(-?[\d.]+(?:e[+-]?\d+)?)", out)[1])


def test_the_main_job(command, saved):
    status, out, errors = command("distance a.nc b.nc --steps 8 --output g.nc --plot g.png")
    assert (status, errors) == (0, [])
    a, b = mf.open_run("a.nc"), mf.open_run("b.nc")
    expected = mf.mobility_distance(a, b, mf.Interaction([0.5, 1.0]), 8)
    assert number(out, "W_m =") == pytest.approx(expected.distance, rel=1e-9)
    assert number(out, r"sqrt\(C\) W2 =") == pytest.approx(expected.lower, rel=1e-5)
    assert number(out, r"sqrt\(C~\) W2 =") == pytest.approx(expected.upper, rel=1e-5)
    assert number(out, "W1 =") == pytest.approx(mf.wasserstein(a, b, 1), rel=1e-9)
    assert number(out, ", W2 =") == pytest.approx(mf.wasserstein(a, b, 2), rel=1e-9)
    assert "48 particles, best of 4 starts, 8 intervals" in out
    assert number(out, "speed constant to") < 2
    assert "converged: residual" in out
    with open_netcdf("g.nc") as stored:
        assert float(stored["distance"]) == expected.distance
    assert {"g.nc", "g.png"} <= set(os.listdir())
    assert command("info g.nc")[0] == 0
    assert command("plot g.nc --output h.png")[0] == 0


def test_points_and_constant_kernels(command, saved):
    status, out, _ = command("distance e.csv f.csv --kernel 4")
    assert status == 0
    assert number(out, "W_m =") == pytest.approx(np.pi, rel=1e-9)
    status, out, _ = command("distance e.csv f.csv --D=-1,-1 --particles 4 --starts 2")
    assert number(out, "W_m =") == pytest.approx(0.9527361323650899, abs=1e-6)
    assert "best of 2 starts" in out


def test_a_run_of_several_heads_has_no_kernel(command, saved):
    heads = mf.MultiHead([mf.SelfAttention([0.5, 1.0]), mf.SelfAttention([1.0, 0.5])])
    mf.evolve_particles(mf.random_points(6, 2, 1), heads, 0.2, save=2).save("h.nc")
    status, _, errors = command("distance h.nc e.csv")
    assert (status, len(errors)) == (2, 1)
    assert "several heads have no kernel: give --D or --kernel" in errors[0]
    assert command("distance h.nc e.csv --kernel 1")[0] == 0


def test_uneven_speed_asks_for_more_steps(command, saved):
    hint = "more --steps make it even"
    line = "distance e.csv f.csv --D 2,-2 --particles 1 --starts 1 --steps"
    assert hint in command(f"{line} 2")[1]
    assert hint not in command(f"{line} 64")[1]


def test_starts_of_an_ensemble(command):
    points = mf.random_points(5, 2, 1, starts=2)
    run = mf.evolve_particles(points, mf.SelfAttention([1.0, 1.0]), 0.1, save=2)
    run.save("many.nc")
    status, out, _ = command("distance many.nc:0 many.nc:1 --kernel 1")
    assert status == 0
    exact = mf.wasserstein(run.start(0), run.start(1))
    assert number(out, "W_m =") == pytest.approx(exact, rel=1e-9)
    for line in ("many.nc many.nc:1", "many.nc:0 many.nc:7"):
        status, _, errors = command(f"distance {line}")
        assert status == 2
        assert errors == [
            "meanfield: error: many.nc is an ensemble: choose a start, many.nc:0 to many.nc:1"
        ]


def test_densities_on_one_mesh(command):
    for name, time in (("a", 0.1), ("b", 1.0)):
        run = mf.evolve(
            mf.circle(24),
            mf.SelfAttention([1.0, 2.0]),
            mf.von_mises_fisher([1, 1], 1.0),
            time,
            save=2,
        )
        run.save(f"{name}.nc")
    status, out, errors = command("distance a.nc b.nc --steps 4")
    assert (status, errors) == (0, [])
    assert "cells of circle:24, 4 intervals" in out
    cells = number(out, "W_m =")
    status, out, _ = command("distance a.nc b.nc --steps 4 --method cloud --starts 1")
    assert number(out, "W_m =") == pytest.approx(cells, rel=0.05)


def test_without_convergence_the_status_is_one(command, saved, monkeypatch):
    def early(*arguments, **options):
        return mf.mobility_distance(*arguments, **options, tolerance=1e-15, max_iterations=3)

    monkeypatch.setattr(module, "mobility_distance", early)
    status, out, errors = command("distance a.nc b.nc --steps 8 --starts 1 --output g.nc")
    assert status == 1
    assert "did not converge" in out
    assert len(errors) == 1
    assert Path("g.nc").exists()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("a.nc c.nc", "different D"),
        ("e.csv f.csv", "no kernel: give --D or --kernel"),
        ("a.nc b.nc --kernel 0", "no positive lower bound"),
        ("a.nc b.nc --kernel -2", "no positive lower bound"),
        ("a.nc b.nc --D 900,1", "no positive lower bound in double precision"),
        ("a.nc b.nc --D 1,1,1", "D is 3 x 3"),
        ("a.nc b.nc --D 1,1 --kernel 1", "either --D or --kernel"),
        ("e.csv g.csv --kernel 1", "different spaces, R^2 and R^3"),
        ("a.nc missing.nc", "missing.nc"),
        ("a.nc:3 b.nc", "one start only"),
        ("a.nc b.nc --steps 0", "steps must be"),
        ("a.nc b.nc --seed=-1", "seed must be an integer >= 0"),
        ("a.nc b.nc --method fast", "auto, cloud, mesh"),
        ("a.nc b.nc --output a.nc", "a.nc exists"),
        ("a.nc b.nc --plot a.xyz", "must end in"),
    ],
)
def test_bad_input_is_one_line(command, saved, line, words):
    status, out, errors = command(f"distance {line}")
    assert status == 2
    assert out == ""
    assert len(errors) == 1
    assert words in errors[0]
