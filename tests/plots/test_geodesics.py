"""Pictures of geodesics show the states in between."""

import numpy as np
import pytest

import meanfield as mf
from meanfield.plots import plot_dataset
from meanfield.sphere.geometry import normalize


def labels(figure):
    return [axes.get_ylabel() for axes in figure.axes]


@pytest.mark.parametrize("n", [2, 3, 4])
def test_clouds(n):
    a, b = normalize(np.random.default_rng(n).normal(size=(2, 6, n)))
    found = mf.mobility_distance(a, b, 1.0, 4)
    figure = plot_dataset(found.to_dataset())
    figure.draw_without_rendering()
    assert f"distance {found.distance:.6g}" in figure.get_suptitle()
    assert figure.axes[-1].get_ylabel() == "speed in $W_m$"
    step = figure.axes[-1].lines[0].get_ydata()
    assert np.array_equal(step[:-1], found.speed)
    if n == 2:
        assert labels(figure)[0] == "angle θ"
        assert np.array_equal(figure.axes[0].lines[0].get_xdata(), found.times)
    if n == 3:
        assert [name for name in labels(figure) if name.startswith("t =")] == [
            "t = 0", "t = 0.5", "t = 1",
        ]  # fmt: skip
        shown = sum(len(panel.collections[-1].get_offsets()) for panel in figure.axes[2:4])
        assert shown == len(found.masses)  # the middle row: every particle on one of two halves


@pytest.mark.parametrize("mesh", [mf.circle(12), mf.icosphere(1)], ids=["circle", "hexagons"])
def test_meshes(mesh):
    first = np.exp(mesh.points[:, 0]) * mesh.weights
    second = np.exp(mesh.points[:, 1]) * mesh.weights
    a, b = (mf.Measure(mesh.points, each / each.sum(), mesh) for each in (first, second))
    figure = mf.mobility_distance(a, b, 1.0, steps=2).plot()
    figure.draw_without_rendering()
    if mesh.dimension == 2:
        assert labels(figure)[0] == "density (uniform is 1)"
        assert len(figure.axes[0].collections[0].get_segments()) == 3
    else:
        assert [name for name in labels(figure) if name.startswith("t =")] == [
            "t = 0", "t = 0.5", "t = 1",
        ]  # fmt: skip
