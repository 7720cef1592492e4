"""The verbs verify and theory, and runs along characteristics from the command."""

import numpy as np
import pytest
import xarray as xr

from meanfield.cli import main
from meanfield.cli.analysis import resolutions

pytestmark = pytest.mark.usefixtures("own_folder")


def test_verify_prints_orders_and_the_resolution_an_error_needs(capsys):
    words = (
        "verify --D 0.5,2 --sign -1 --density vmf:1,1:2 --t-end 0.5 --mesh circle:256 --error 1e-5"
    )
    assert main(words.split()) == 0
    out = capsys.readouterr().out
    assert "circle:64" in out
    assert "mean order 1.9" in out
    need = int(out.rsplit("circle:", 1)[1])
    assert 400 < need < 1600


def test_verify_falls_back_to_moments_where_the_solution_is_sharp(capsys):
    words = "verify --D 1,9 --density vmf:1,1:2 --t-end 4 --mesh circle:64 --error 1e-3"
    assert main(words.split()) == 0
    out = capsys.readouterr().out
    assert "too sharp for a spectral reference: moments against those of circle:64" in out
    assert "an error of the moments of 0.001 needs circle:" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("verify --D 1,2 --t-end 1 --mesh lebedev:5", "verify needs icosphere:LEVEL"),
        ("verify --D 1,2 --t-end 1 --mesh circle:8", "too coarse for three resolutions"),
        ("verify --D 1,2 --t-end 1 --mesh circle:64 --error 0", "--error must be > 0"),
        ("verify --D 1,2,3 --t-end 1 --mesh circle:64", "D is 3 x 3"),
        ("verify --D 1,2 --t-end -1 --mesh circle:64", "t_end must be finite and > 0"),
        ("evolve --D 1,2 --t-end 1 --mesh lebedev:5", "D is 2 x 2"),
        ("evolve --D 1,2,3 --t-end 1 --mesh lebedev:13", "negative weights; valid orders: 3, 5"),
        ("theory --D 1,nan", "NaN or infinity"),
        ("mesh lebedev:5", "no cells"),
    ],
)
def test_bad_input_is_one_line(words, message, capsys):
    assert main(words.split()) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 1
    assert errors[0].startswith("meanfield: error: ")
    assert message in errors[0]


def test_families_of_meshes():
    assert resolutions("icosphere:3:triangles")[0] == "icosphere:1:triangles"
    assert resolutions("circle:12") == ["circle:3", "circle:6", "circle:12"]


def test_theory(capsys):
    assert main(["theory", "--D", "-1,0.2,0.5"]) == 0
    out = capsys.readouterr().out
    assert "0.367879441171" in out
    assert "D is indefinite, n = 3" in out


def test_characteristics_from_the_command(capsys):
    words = "evolve --D 0.5,1,2 --sign -1 --density vmf:0.3,-0.5,0.8:2 --t-end 0.5 --save 3 "
    assert (
        main([*words.split(), "--mesh", "lebedev:23", "--output", "c.nc", "--plot", "c.png"]) == 0
    )
    with xr.open_dataset("c.nc", engine="h5netcdf") as dataset:
        assert dict(dataset.sizes) == {"time": 3, "point": 194}
        assert float(dataset["weight"].sum()) == pytest.approx(1, abs=1e-14)
        assert (np.diff(dataset["energy"]) < 0).all()
    assert main(["info", "c.nc"]) == 0
    assert "194 points" in capsys.readouterr().out
    assert main(["plot", "c.nc", "--output", "again.png"]) == 0
