"""Pictures: every cell is drawn, once, in its place and without seams."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
import xarray as xr
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import LogNorm

import meanfield as mf
from meanfield.errors import FileError
from meanfield.plots.meshes import (
    RIM,
    hemisphere_polygons,
    plot_mesh,
    plot_run,
    save_figure,
    view_frame,
)
from meanfield.results.ugrid import mesh_dataset

VIEWS = [(1, 1, 1), (1, 0, 0), (0, 0, 1), (0.2, -0.7, 0.1)]


def polygon_areas(polygons):
    x, y = polygons[..., 0], polygons[..., 1]
    return 0.5 * np.sum(x * np.roll(y, -1, axis=1) - np.roll(x, -1, axis=1) * y, axis=1)


def both_hemispheres(mesh, viewpoint):
    for sign in (1, -1):
        yield hemisphere_polygons(
            mesh.nodes, mesh.cell_nodes, view_frame(sign * np.asarray(viewpoint))
        )


@pytest.mark.parametrize("viewpoint", VIEWS)
@pytest.mark.parametrize(
    ("mesh", "tolerance"),
    [
        (mf.icosphere(0, cells="triangles"), 1e-3),
        (mf.icosphere(1), 1e-3),
        (mf.icosphere(3, cells="triangles"), 1e-4),
        (mf.icosphere(4), 1e-4),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_every_cell_is_drawn_with_its_area(mesh, tolerance, viewpoint):
    drawn = np.zeros(mesh.n_cells)
    crossing = -mesh.n_cells
    for polygons, cells in both_hemispheres(mesh, viewpoint):
        areas = polygon_areas(polygons)
        assert areas.min() > -1e-12  # counter-clockwise, like the cells
        assert np.linalg.norm(polygons, axis=2).max() <= RIM + 1e-12
        assert len(np.unique(cells)) == len(cells)
        np.add.at(drawn, cells, areas)
        crossing += len(cells)
    assert abs(drawn.sum() / (4 * np.pi) - 1) < tolerance
    assert (np.abs(drawn / mesh.areas - 1) < 6e-3).all()  # arcs are drawn as chords
    assert crossing > 0


def test_all_triangles_of_level_three():
    mesh = mf.icosphere(3, cells="triangles")
    figure = plot_mesh(mesh_dataset(mesh))
    collections = [c for axes in figure.axes for c in axes.collections]
    polygons = [c for c in collections if isinstance(c, PolyCollection)]
    halves = list(both_hemispheres(mesh, (1, 1, 1)))
    assert [len(c.get_paths()) for c in polygons[:2]] == [len(cells) for _, cells in halves]
    assert len(np.union1d(halves[0][1], halves[1][1])) == 1280
    assert len(np.intersect1d(halves[0][1], halves[1][1])) == 94  # cut at the rim
    widest = max(
        np.ptp(path.vertices, axis=0).max() for c in polygons[:2] for path in c.get_paths()
    )
    assert widest < 0.3


def test_cells_are_in_their_place():
    mesh = mf.icosphere(3)
    for sign in (1, -1):
        frame = view_frame([sign, 0, 0])
        polygons, cells = hemisphere_polygons(mesh.nodes, mesh.cell_nodes, frame)
        seen = mesh.points[cells] @ frame.T
        deep = seen[:, 2] > 0.2
        centres = seen[:, :2] * np.sqrt(2 / (1 + seen[:, 2:]))
        boxes = (polygons.min(axis=1) + polygons.max(axis=1)) / 2
        assert np.abs(boxes - centres)[deep].max() < 0.1 * mesh.cell_size


def test_views_are_right_handed():
    for viewpoint in VIEWS:
        frame = view_frame(viewpoint)
        assert np.allclose(frame @ frame.T, np.eye(3), rtol=0, atol=1e-15)
        assert np.isclose(np.linalg.det(frame), 1)


@pytest.fixture(scope="module")
def sphere_run():
    model = mf.SelfAttention([0.5, 1.0, 2.0], sign=-1)
    return mf.evolve(mf.icosphere(2), model, mf.von_mises_fisher([0, 0, 1], 2.0), 1.0, save=5)


def circle_run(**options):
    model = mf.SelfAttention([1.0, 2.0], **({"sign": -1} | options))
    return mf.evolve(mf.circle(64), model, mf.von_mises_fisher([1, 1], 2.0), 1.0, save=12)


def axes_by_label(figure):
    return {axes.get_ylabel(): axes for axes in figure.axes}


def test_no_background_shines_through_between_cells(sphere_run):
    dataset = sphere_run.to_dataset()
    dataset["density"][:] = 1.0
    figure = plot_run(dataset)
    axes = figure.axes[0]
    for artist in [*axes.lines, *axes.texts]:
        artist.remove()
    figure.canvas.draw()
    image = np.asarray(figure.canvas.buffer_rgba())[..., :3]
    (left, bottom), (right, top) = axes.transData.transform([(-RIM, -RIM), (RIM, RIM)])
    rows, columns = np.mgrid[: image.shape[0], : image.shape[1]]
    x = 2 * (columns + 0.5 - left) / (right - left) - 1
    y = 2 * (image.shape[0] - rows - 0.5 - bottom) / (top - bottom) - 1
    disc = image[np.hypot(x, y) < 0.98]
    assert len(disc) > 30_000
    assert (disc == disc[0]).all()  # one colour, at the edges of cells too
    assert (disc[0] < 200).any()


def test_the_sphere_shows_the_first_and_the_last_frame(sphere_run):
    figure = plot_run(sphere_run.to_dataset())
    labels = axes_by_label(figure)
    assert {"t = 0", "t = 1", "energy E", "dissipation"} <= set(labels)
    collections = [axes.collections[0] for axes in figure.axes[:2]]
    collections += [labels["t = 1"].collections[0]]
    halves = list(both_hemispheres(sphere_run.mesh, (1, 1, 1)))
    first, last = sphere_run.density[0], sphere_run.density[-1]
    expected = [first[halves[0][1]], first[halves[1][1]], last[halves[0][1]]]
    for collection, values in zip(collections, expected, strict=True):
        assert np.array_equal(collection.get_array(), values)
    energy = labels["energy E"].lines[0]
    assert np.array_equal(energy.get_ydata(), sphere_run.energy)
    assert np.array_equal(energy.get_xdata(), sphere_run.times)


def test_the_circle_shows_closed_curves_coloured_by_time():
    run = circle_run()
    figure = plot_run(run.to_dataset())
    curves = next(c for c in figure.axes[0].collections if isinstance(c, LineCollection))
    assert curves.get_array().tolist() == run.times[[0, 1, 3, 4, 6, 7, 8, 10, 11]].tolist()
    for segment, number in zip(curves.get_segments(), (0, 1, 3, 4, 6, 7, 8, 10, 11), strict=True):
        assert np.array_equal(segment[:-1, 1], run.density[number])
        assert segment[-1, 1] == segment[0, 1]
        assert np.isclose(segment[-1, 0] - segment[0, 0], 2 * np.pi)


def test_flows_without_dissipation_show_the_smallest_density():
    labels = axes_by_label(plot_run(circle_run(sign=None, V=[[0, -1], [1, 0]]).to_dataset()))
    assert "smallest density" in labels
    assert "dissipation" not in labels


def test_enormous_energies_are_shown_as_logarithms(sphere_run):
    dataset = sphere_run.to_dataset()
    dataset["energy"] = dataset["energy"] * np.inf
    dataset["dissipation"] = dataset["dissipation"] * np.inf
    figure = plot_run(dataset)
    assert "log E" in axes_by_label(figure)
    figure.canvas.draw()


@pytest.mark.parametrize("low", [0.0, 1e-300, 1e-6])
def test_wide_ranges_get_logarithmic_colours(sphere_run, low):
    dataset = sphere_run.to_dataset()
    dataset["density"][-1] = np.geomspace(max(low, 1e-300), 100, sphere_run.mesh.n_cells)
    dataset["density"][-1, 0] = low
    figure = plot_run(dataset)
    norm = axes_by_label(figure)["t = 1"].collections[0].norm
    assert isinstance(norm, LogNorm)
    assert norm.vmax == pytest.approx(100)
    assert norm.vmin == pytest.approx(0.01)
    figure.canvas.draw()


def test_a_uniform_density_is_drawn(sphere_run):
    dataset = sphere_run.to_dataset()
    dataset["density"][:] = 1.0
    plot_run(dataset).canvas.draw()


def test_a_single_frame_is_drawn():
    dataset = circle_run().to_dataset().isel(time=[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plot_run(dataset).canvas.draw()


def test_decoded_files_give_the_same_picture(sphere_run, tmp_path):
    sphere_run.save(tmp_path / "run.nc")
    with xr.open_dataset(tmp_path / "run.nc", engine="h5netcdf") as decoded:
        assert decoded["mesh_face_nodes"].dtype == float  # missing corners are NaN
        a, b = plot_run(decoded).axes[0], plot_run(sphere_run.to_dataset()).axes[0]
    for one, other in zip(a.collections[0].get_paths(), b.collections[0].get_paths(), strict=True):
        assert np.array_equal(one.vertices, other.vertices)


@pytest.mark.parametrize("mesh", [mf.icosphere(1), mf.circle(8)], ids=str)
@pytest.mark.parametrize("ending", ["png", "pdf", "svg"])
def test_meshes_in_several_formats(mesh, ending, tmp_path):
    path = tmp_path / f"mesh.{ending}"
    save_figure(plot_mesh(mesh_dataset(mesh)), path)
    assert path.stat().st_size > 1000
    with pytest.raises(FileError, match="exists"):
        save_figure(plot_mesh(mesh_dataset(mesh)), path)


def test_unknown_formats_are_refused(tmp_path):
    figure = plot_mesh(mesh_dataset(mf.circle(8)))
    for name in ("mesh.xyz", "mesh"):
        with pytest.raises(FileError, match=r"must end in one of .*\.pdf.*\.png"):
            save_figure(figure, tmp_path / name)


LAZY = """
import sys
import meanfield as mf
loaded = {"matplotlib"} & set(sys.modules)
run = mf.evolve(mf.circle(8), mf.SelfAttention([1.0, 2.0]), mf.uniform(), 0.1, save=2)
run.plot().savefig(sys.argv[1])
print(loaded, "matplotlib.pyplot" in sys.modules)
"""


def test_pictures_need_no_display_and_no_pyplot(tmp_path, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("MPLBACKEND", raising=False)
    command = [sys.executable, "-c", LAZY, str(tmp_path / "run.png")]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert answer.stdout == "set() False\n"
