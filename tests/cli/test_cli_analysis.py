"""The verbs verify and theory, and runs along characteristics from the command."""

import numpy as np
import pytest
import xarray as xr

import meanfield as mf
from meanfield.cli import main
from meanfield.cli.analysis import resolutions
from meanfield.cli.comparison import density_distance

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
        ("theory", "give --D MATRIX, --run RUN.nc, or both"),
        ("theory --run none.nc", "cannot read none.nc"),
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


def saved(result, path="run.nc"):
    result.save(path, overwrite=True)
    return path


def rows(out):
    """Lines of the comparison, after the prediction."""
    return out.split("\n\n", 1)[1].splitlines()


def row_of(out, name):
    return next(line for line in rows(out) if line.strip().startswith(name))


def test_theory_of_a_density_that_descends(command):
    model = mf.SelfAttention([1.0, 1.5], sign=-1)
    run = mf.evolve(mf.circle(128), model, mf.von_mises_fisher([1, 1], 2.0), t_end=25.0, save=2)
    status, out, errors = command(f"theory --run {saved(run)}")
    assert (status, errors) == (0, [])
    assert "Sign -1: the flow descends the energy" in out
    assert "predicted minimum 1.37630694626" in out
    exact = float(row_of(out, "the exact minimiser").split()[-1])
    assert exact < 0.03
    assert exact == pytest.approx(mf.wasserstein(run.final, on_mesh(run)), rel=1e-2)
    assert "nearest: the exact minimiser" in out


def on_mesh(run):
    masses = mf.exact_minimizer(run.model.D)(run.mesh.points) * run.mesh.weights
    return mf.Measure(run.mesh.points, masses / masses.sum())


def test_theory_of_clusters(command):
    points = np.array([[0.1, 1.0], [-0.1, 1.0], [0.1, -1.0]])
    run = mf.evolve_particles(points, mf.SelfAttention([1.0, 2.0]), 40.0, normalize=True)
    _, out, _ = command(f"theory --D 1,2 --run {saved(run)}")
    assert "2 clusters, index 0: stable" in out
    assert float(row_of(out, "t delta_z + (1-t) delta_-z, z = (0, 1)").split()[-1]) < 1e-6
    # a third of the mass is on the other side
    one = float(row_of(out, "delta_z, z = (0, 1)").split()[-1])
    assert one == pytest.approx(np.pi / np.sqrt(3), rel=1e-3)
    assert "predicted maximum 7.3890560989" in out


def test_theory_of_an_ensemble(command):
    starts = mf.random_points(20, 3, seed=1, starts=12)
    run = mf.evolve_particles(starts, mf.SelfAttention([-2.0, -1.0, -1.0]), 30.0, save=2)
    _, out, _ = command(f"theory --run {saved(run)}")
    assert "12 starts" in out
    assert row_of(out, "t delta_z + (1-t) delta_-z, z = (1, 0, 0)").split()[-3] == "8"
    assert row_of(out, "(delta_z + delta_-z)/2, z = (1, 0, 0)").split()[-3] == "4"
    counts = run.clusters()
    assert (counts.count == 2).all()
    assert (np.abs(counts.masses[:, 0] - 0.5) < 1e-12).sum() == 4


def test_theory_of_extrema(command):
    found = mf.maximize(mf.lebedev(29), mf.Interaction([-1.0, 0.2, 0.3]))
    _, out, _ = command(f"theory --run {saved(found)}")
    assert abs(float(row_of(out, "E = 1.543").split()[-1])) < 1e-9
    assert "nearest: (delta_z + delta_-z)/2, z = (1, 0, 0)" in out
    singular = mf.minimize(mf.icosphere(2), mf.Interaction([1.0, 0.0, 0.0]))
    _, out, _ = command(f"theory --run {saved(singular)}")
    assert float(row_of(out, "mu(N) = 1").split()[-1]) < 0.1
    flat = mf.minimize(mf.icosphere(2), mf.Interaction([1.0, 1.0, 1.0]))
    _, out, _ = command(f"theory --run {saved(flat)}")
    assert float(row_of(out, "the uniform density").split()[-1]) < 0.03


def test_theory_of_a_run_along_characteristics(command):
    model = mf.SelfAttention([0.5, 1.0, 1.0], sign=-1)
    run = mf.evolve_characteristics(
        mf.lebedev(11), model, mf.von_mises_fisher([0, 0, 1], 1.0), 0.1, save=2
    )
    status, out, _ = command(f"theory --run {saved(run)}")
    assert status == 0
    assert "evolve_characteristics, t = 0.1, 50 points" in out


def test_theory_is_silent_beyond_point_masses_in_four_dimensions(command):
    points = mf.random_points(30, 4, seed=2)
    model = mf.SelfAttention([1.0, 1.0, 1.0, 2.0], sign=-1)
    run = mf.evolve_particles(points, model, 1.0, save=2)
    _, out, _ = command(f"theory --run {saved(run)}")
    assert "the minimum is not known" in out


def test_runs_without_an_energy_are_refused(command):
    points = mf.random_points(5, 2, seed=2)
    model = mf.SelfAttention([1.0, 2.0], V=[[0.0, 1.0], [-1.0, 0.0]])
    saved(mf.evolve_particles(points, model, 0.5, save=2))
    heads = mf.MultiHead([mf.SelfAttention([1.0, 2.0]), mf.SelfAttention([2.0, 1.0])])
    saved(mf.evolve_particles(points, heads, 0.5, save=2), "heads.nc")
    saved(mf.evolve_particles(points, mf.SelfAttention([1.0, 2.0]), 0.5, save=2), "good.nc")
    assert command("mesh circle:8 --output mesh.nc")[0] == 0
    for words, message in (
        ("--run run.nc", "is not D or -D"),
        ("--run heads.nc", "several heads"),
        ("--run mesh.nc", "holds no run or extremum"),
        ("--run good.nc --D 1,3", "--D is not the D of good.nc"),
    ):
        status, _, errors = command(f"theory {words}")
        assert (status, len(errors)) == (2, 1)
        assert message in errors[0]


def test_many_points_are_compared_in_cells():
    """A tilted density is at its distance from the uniform one, to a small part of a cell."""
    mesh = mf.icosphere(4)
    tilted = mf.Measure(mesh.points, mesh.weights * (1 + 0.5 * mesh.points[:, 2]), mesh)
    coarse = density_distance(tilted, mf.uniform())
    # Along meridians the height x goes where as much uniform mass is below: F(x) = (y + 1)/2
    x = np.linspace(-1, 1, 20001)
    y = 2 * ((x + 1) / 2 + 0.5 * (x**2 - 1) / 4) - 1
    moved = (np.arccos(x) - np.arccos(y)) ** 2 * (1 + 0.5 * x) / 2
    exact = np.sqrt(np.trapezoid(moved, x))
    assert exact < coarse < exact + 0.02  # cells are 0.14 wide; found: 0.0149
