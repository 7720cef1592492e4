"""Movies: every frame in its place, complete files only, and no ffmpeg for GIFs."""

import os
import stat
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib.animation import FFMpegWriter
from PIL import Image

import meanfield as mf
from meanfield.errors import FileError, InputError
from meanfield.plots import movies
from meanfield.plots.movies import movie_format, save_movie
from meanfield.results.dataset import open_frames
from meanfield.results.ugrid import mesh_dataset

CLUSTERING = mf.SelfAttention([1.0, 2.0, 4.0])


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def frames(path):
    """Frames of a GIF as arrays, and how long each is shown, in ms."""
    images, durations = [], []
    with Image.open(path) as movie:
        for number in range(movie.n_frames):
            movie.seek(number)
            images.append(np.array(movie.convert("RGB")).astype(int))
            durations.append(movie.info["duration"])
    return images, durations


def evolution(mesh, n, save=3):
    density = mf.von_mises_fisher(np.eye(n)[0], 2.0)
    return mf.evolve(mesh, mf.SelfAttention(np.arange(1.0, n + 1)), density, 0.5, save=save)


RUNS = {
    "S1": lambda: evolution(mf.circle(32), 2),
    "S2": lambda: evolution(mf.icosphere(2), 3),
    "triangles": lambda: evolution(mf.icosphere(1, cells="triangles"), 3),
    "nodes S1": lambda: mf.evolve_characteristics(
        mf.circle(32), mf.SelfAttention([1.0, 2.0]), mf.uniform(), 0.5, save=3
    ),
    "nodes S2": lambda: mf.evolve_characteristics(
        mf.lebedev(15), mf.SelfAttention([0.1, 0.2, 0.5]), mf.uniform(), 0.5, save=3
    ),
    "particles S1": lambda: mf.evolve_particles(
        mf.random_points(9, 2, 1), mf.SelfAttention([1.0, 2.0]), 2.0, save=3
    ),
    "particles S2": lambda: mf.evolve_particles(mf.random_points(9, 3, 1), CLUSTERING, 2.0, save=3),
    "particles S3": lambda: mf.evolve_particles(
        mf.random_points(9, 4, 1), mf.SelfAttention(np.ones(4)), 2.0, save=3
    ),
    "ensemble": lambda: mf.evolve_particles(
        mf.random_points(9, 3, 1, starts=2), CLUSTERING, 2.0, save=3
    ),
    "layers": lambda: mf.transformer(mf.random_points(9, 3, 1), CLUSTERING, layers=2),
}


@pytest.mark.parametrize("kind", RUNS)
def test_every_saved_frame_is_shown(kind):
    save_movie(RUNS[kind]().to_dataset(), "a.gif")
    images, durations = frames("a.gif")
    assert durations == [50, 50, 50 + 1000]
    assert all((a != b).any() for a, b in pairwise(images))
    assert images[0][0, 0].tolist() == [255, 255, 255]
    assert os.listdir() == ["a.gif"]


def test_frames_per_second():
    save_movie(RUNS["particles S1"]().to_dataset(), "a.gif", fps=4)
    assert frames("a.gif")[1] == [250, 250, 1250]


def test_a_long_run_is_thinned_with_both_ends(monkeypatch):
    monkeypatch.setattr(movies, "MAX_FRAMES", 3)
    points = mf.random_points(9, 2, 1)
    run = mf.evolve_particles(points, mf.SelfAttention([1.0, 2.0]), 2.0, save=5)
    shown = []
    monkeypatch.setattr(movies, "_ring", lambda panel, points: shown.append)
    save_movie(run.to_dataset(), "a.gif")
    assert shown == [0, 0, 2, 4]  # the first one also for the layout


def test_particles_are_drawn_where_they_are():
    film = movies._film(RUNS["particles S1"]().to_dataset())
    run = RUNS["particles S1"]()
    for number in film.frames():
        assert np.array_equal(film.figure.axes[0].collections[0].get_offsets(), run.points[number])
        (dot,) = [line for line in film.figure.axes[1].lines if line.get_marker() == "o"]
        assert dot.get_xydata()[0].tolist() == [run.times[number], run.energy[number]]


def test_every_particle_of_the_sphere_is_drawn_once():
    run = RUNS["particles S2"]()
    film = movies._film(run.to_dataset())
    for number in film.frames():
        front, back = (axes.collections[1].get_offsets() for axes in film.figure.axes[:2])
        assert len(front) + len(back) == 9
        assert len(front) == (run.points[number].sum(axis=1) >= 0).sum()


def test_colours_of_cells_are_those_of_all_frames():
    run = RUNS["S2"]()
    film = movies._film(run.to_dataset())
    for number in film.frames():
        shown = np.concatenate([axes.collections[0].get_array() for axes in film.figure.axes[:2]])
        low, high = film.figure.axes[0].collections[0].get_clim()
        assert high == run.density.max()
        assert shown.max() == run.density[number].max()
        assert shown.min() == max(low, run.density[number].min())


def test_the_curve_is_closed_and_in_order():
    run = RUNS["nodes S1"]()
    film = movies._film(run.to_dataset())
    list(film.frames())
    angle, density = film.figure.axes[0].lines[1].get_data()
    assert (np.diff(angle) > 0).all()
    assert np.isclose(angle[-1] - angle[1], 2 * np.pi)
    assert density[-1] == density[1]
    assert np.array_equal(np.sort(density[1:-1]), np.sort(np.exp(run.log_density[-1])))


def test_colour_bars_keep_their_colours():
    save_movie(RUNS["S2"]().to_dataset(), "a.gif")
    wanted = 255 * colormaps["viridis"](np.linspace(0.02, 0.98, 9))[:, :3]
    for image in frames("a.gif")[0][::2]:
        pixels = np.unique(image.reshape(-1, 3), axis=0)
        distances = np.abs(pixels[:, None] - wanted).max(axis=2).min(axis=0)
        assert distances.max() <= 4


def test_a_recorded_run_and_overwriting():
    RUNS["S1"]().save("run.nc")
    with open_frames("run.nc") as dataset:
        save_movie(dataset, "a.gif")
        before = Path("a.gif").read_bytes()
        with pytest.raises(FileError, match=r"a\.gif exists"):
            save_movie(dataset, "a.gif")
        assert Path("a.gif").read_bytes() == before
        save_movie(dataset.isel(time=[0]), "a.gif", overwrite=True)
    assert len(frames("a.gif")[0]) == 1


def test_a_failure_leaves_the_old_file(monkeypatch):
    dataset = RUNS["particles S1"]().to_dataset()
    Path("a.gif").write_bytes(b"old")
    monkeypatch.setattr(movies, "_image", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(FileError, match=r"cannot write a\.gif: No space left"):
        save_movie(dataset, "a.gif", overwrite=True)
    assert os.listdir() == ["a.gif"]
    assert Path("a.gif").read_bytes() == b"old"


def test_bad_input(monkeypatch):
    dataset = RUNS["particles S1"]().to_dataset()
    for fps in (0, -1, 51, float("nan")):
        with pytest.raises(InputError, match="fps must be in"):
            save_movie(dataset, "a.gif", fps=fps)
    with pytest.raises(InputError, match="no time axis"):
        save_movie(mesh_dataset(mf.circle(8)), "a.gif")
    with pytest.raises(FileError, match=r"must end in \.gif or \.mp4"):
        save_movie(dataset, "a.avi")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FileError, match=r"needs ffmpeg, which is not installed; use \.gif"):
        save_movie(dataset, "a.mp4")
    assert os.listdir() == []


def fake_ffmpeg(monkeypatch, script):
    """An ffmpeg for the tests: what it is called with and what it answers is what counts."""
    folder = Path("bin")
    folder.mkdir()
    program = folder / "ffmpeg"
    program.write_text(f"#!{sys.executable}\nimport sys\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder.absolute()))


def test_mp4_hands_all_frames_to_ffmpeg(monkeypatch):
    fake_ffmpeg(
        monkeypatch,
        "data = sys.stdin.buffer.read()\nopen(sys.argv[-1], 'w').write(f'{len(data)} {sys.argv}')",
    )
    save_movie(RUNS["particles S1"]().to_dataset(), "a.mp4")
    size, command = Path("a.mp4").read_text().split(" ", 1)
    assert int(size) == (3 + 20) * 800 * 400 * 4
    assert "'-f', 'mp4', '-y'" in command
    assert sorted(os.listdir()) == ["a.mp4", "bin"]


def test_a_failing_ffmpeg(monkeypatch):
    fake_ffmpeg(monkeypatch, "sys.stdin.buffer.read()\nsys.exit(3)")
    with pytest.raises(FileError, match=r"ffmpeg failed with exit status 3; use \.gif"):
        save_movie(RUNS["particles S1"]().to_dataset(), "a.mp4")
    assert os.listdir() == ["bin"]


@pytest.mark.skipif(not FFMpegWriter.isAvailable(), reason="needs ffmpeg")
def test_mp4():
    save_movie(RUNS["particles S1"]().to_dataset(), "a.mp4")
    assert Path("a.mp4").read_bytes()[4:8] == b"ftyp"


def test_formats():
    assert movie_format("A.GIF") == "gif"
    with pytest.raises(FileError):
        movie_format("movie")


def test_no_pyplot():
    script = "import sys, meanfield.plots.movies; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
