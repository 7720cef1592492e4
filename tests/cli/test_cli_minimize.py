"""The verb `minimize`: energies beside theory, certificates, exit status, bad input."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import meanfield as mf
from meanfield.cli.minimize import RandomDensity, parse_start
from meanfield.equilibria.mirror_descent import minimize
from meanfield.results.ugrid import open_netcdf

pytestmark = pytest.mark.usefixtures("own_folder")


def number(out, pattern):
    return float(re.search(pattern + r" ?(-?[\d.]+(?:e[+-]?\d+)?)", out)[1])


def test_the_main_job(command):
    line = "--D 1,1.5 --mesh circle:256 --tolerance 1e-12 --output a.nc --plot a.png"
    status, out, errors = command(f"minimize {line}")
    assert (status, errors) == (0, [])
    exact = mf.exact_minimizer([1.0, 1.5])
    assert abs(number(out, r"\n  E =") - exact.energy) < 2e-11  # 12 digits
    assert abs(number(out, r"theory: min E =") - exact.energy) < 2e-11
    assert abs(number(out, r"found - theory:")) < 1e-12
    assert number(out, "certified gap") <= 1e-12
    assert "converged after " in out
    assert "did not" not in out
    assert number(out, "harmonics up to degree") >= 20
    with open_netcdf("a.nc") as stored:
        expected = minimize(mf.circle(256), mf.Interaction([1.0, 1.5]), tolerance=1e-12)
        assert np.array_equal(stored["mass"].values, expected.masses)
        assert np.abs(stored["density"] - stored["exact_density"]).max() < 1e-6
        assert json.loads(stored.attrs["parameters"]) == json.loads(json.dumps(expected.parameters))
    assert sorted(os.listdir()) == ["a.nc", "a.png"]
    assert command("info a.nc")[0] == 0
    assert command("plot a.nc --output b.png")[0] == 0


@pytest.mark.parametrize("mesh", ["icosphere:2", "lebedev:35"])
def test_on_the_sphere(command, mesh):
    status, out, errors = command(f"minimize --D 1,1,1.5 --mesh {mesh} --plot a.png")
    assert (status, errors) == (0, [])
    # Energies converge at the order of the rule; the exact one is 1.217166726663185.
    assert abs(number(out, r"\n  E =") - 1.217166726663185) < 1e-4
    assert abs(number(out, r"theory: min E =") - 1.217166726663185) < 2e-11
    assert Path("a.png").exists()


def test_the_default_output_and_mesh(command):
    assert command("minimize --D 1,1.5")[0] == 0
    with open_netcdf("min.nc") as stored:
        assert json.loads(stored.attrs["parameters"])["mesh"] == "circle:512"


def test_a_maximum(command):
    # diag(-1, 0.5): exp(0.5) at a Dirac measure in e2, a point of the mesh.
    status, out, errors = command("minimize --D -1,0.5 --mesh circle:64 --maximize")
    assert (status, errors) == (0, [])
    assert out.startswith("maximum of the energy on circle:64, 64 points\n")
    assert abs(number(out, r"\n  E =") - np.exp(0.5)) < 1e-8
    assert abs(number(out, r"theory: max E =") - np.exp(0.5)) < 1e-11
    assert "Dirac" in out
    assert "no certificate: a maximum may be a local one" in out


def test_minima_without_a_certificate(command):
    status, out, _ = command("minimize --D -1,0.5 --mesh circle:64")
    assert status == 0
    assert abs(number(out, r"\n  E =") - np.exp(-1)) < 1e-8
    assert "no certificate: D is not positive semidefinite" in out
    assert "harmonics" not in out


def test_energies_beyond_floating_point(command):
    status, out, _ = command("minimize --D 900,800 --mesh circle:64 --maximize")
    assert status == 0
    assert abs(number(out, r"\n  log E =") - 900) < 1e-6
    assert "theory: max log E = 900 (found - theory:" in out
    assert "inf" not in out


def test_without_convergence_the_result_is_saved(command):
    line = "--D 1,1.5 --mesh circle:64 --method mirror --step 0.05 --max-iterations 20"
    status, out, errors = command(f"minimize {line} --plot a.png")
    assert status == 1
    assert "did not converge after 21 applications of the kernel\n" in out
    assert len(errors) == 1
    assert errors[0].startswith("meanfield: error: did not converge: the relative gap 0.")
    assert errors[0].endswith("the result is in min.nc")
    with open_netcdf("min.nc") as stored:
        assert int(stored["converged"]) == 0
        assert np.isclose(stored["mass"].values.sum(), 1)
        assert json.loads(stored.attrs["parameters"])["step"] == 0.05
    assert Path("a.png").exists()


def test_starts(command):
    for start, stored_as in (
        ("uniform", {"kind": "uniform"}),
        ("random:3", {"kind": "random", "seed": 3}),
        ("vmf:1,1:2", {"kind": "vmf", "mean": [2**-0.5, 2**-0.5], "concentration": 2.0}),
    ):
        line = f"minimize --D -1,-0.5 --mesh circle:32 --start {start} --overwrite"
        assert command(line)[0] in (0, 1)
        with open_netcdf("min.nc") as stored:
            found = json.loads(stored.attrs["parameters"])["start"]
        assert found["kind"] == stored_as["kind"]
        assert np.allclose(found.get("mean", 0), stored_as.get("mean", 0))


def test_random_starts():
    points = mf.circle(2000).points
    values = parse_start("random:5")(points)
    assert np.array_equal(values, RandomDensity(5)(points))
    assert (values != parse_start("random:6")(points)).all()
    assert abs(values.mean() - 1) < 0.1
    assert (values > 0).all()


def test_help_has_an_example(command):
    status, out, errors = command("minimize --help")
    assert (status, errors) == (0, [])
    assert "Example: meanfield minimize " in out


BAD_INPUT = [
    ("--D 1,nan", "D contains NaN or infinity"),
    ("--D [[1,2],[0,1]] --mesh circle:8", "symmetric"),
    ("--D 1,2 --mesh cube", "--mesh is 'cube', it must be icosphere:LEVEL"),
    ("--D 1,2,3 --mesh circle:8", "D is 3 x 3 but the points are in R^2"),
    ("--D 1,2,3 --mesh lebedev:13", "order 13 has negative weights; valid orders: 3, 5, 7"),
    ("--D 1,2 --method newton", "method must be one of auto, adaptive, mirror"),
    ("--D 1,2 --tolerance 0", "tolerance must be positive"),
    ("--D 1,2 --max-iterations -1", "max_iterations must be an integer >= 0"),
    ("--D 1,2 --step 0", "step must be positive"),
    ("--D 1,2 --start peak", "--start is 'peak', it must be uniform, random:SEED, vmf:"),
    ("--D 1,2 --start random:x", "random needs random:SEED"),
    ("--D 1,2 --start random", "random needs random:SEED"),
    ("--D 1,2 --start vmf:1", "--start is 'vmf:1', vmf needs vmf:MEAN:CONCENTRATION"),
    ("--D 1,2 --start nofile.csv", "cannot read nofile.csv: No such file"),
    ("--D 1,2 --start vmf:1,0,0:2", "the density lives in R^3"),
    ("--D 1,2 --output old.nc", "old.nc exists"),
    ("--D 1,2 --plot a.doc", "the name of a picture must end in one of"),
]


@pytest.mark.parametrize(("words", "message"), BAD_INPUT)
def test_bad_input_is_one_line(command, words, message):
    Path("old.nc").write_bytes(b"old")
    status, out, errors = command(f"minimize {words}")
    assert (status, out) == (2, "")
    assert len(errors) == 1
    assert errors[0].startswith("meanfield: error: ")
    assert message in errors[0]
    assert os.listdir() == ["old.nc"]


def test_an_interrupt(command, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("meanfield.cli.minimize.record_extremum", interrupted)
    status, out, errors = command("minimize --D 1,2 --mesh circle:16")
    assert (status, out, len(errors)) == (130, "", 1)
    assert errors[0].startswith("meanfield: error: interrupted at once; nothing was saved")


def test_piped_output_has_no_progress_bar():
    script = "import sys; from meanfield.cli import main; sys.exit(main())"
    words = shlex.split("minimize --D 1,2 --mesh circle:16")
    answer = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, check=False
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.startswith("minimum of the energy on circle:16")
