"""Pictures of results on points."""

import numpy as np
import pytest

import meanfield as mf
from meanfield.plots import plot_dataset
from meanfield.plots.points import _project, positions


def test_projection_keeps_areas_and_hides_the_back():
    sphere = mf.lebedev(47)
    frame = np.eye(3)
    flat, seen = _project(sphere.points, frame)
    # Lambert: a cap of height h maps to a disc of radius sqrt(2 h).
    inside = np.linalg.norm(flat[seen], axis=1) ** 2 / 2
    assert np.allclose(inside, 1 - sphere.points[seen, 2], atol=1e-14)
    assert (sphere.points[~seen, 2] < 0).all()


@pytest.mark.parametrize("n", [2, 3, 5])
def test_particles(n):
    model = mf.SelfAttention(np.linspace(0.5, 2, n))
    run = mf.evolve_particles(mf.random_points(12, n, seed=1), model, 1.0, save=4)
    dataset = run.to_dataset()
    assert np.array_equal(positions(dataset), run.points)
    figure = run.plot()
    assert len(figure.axes) == {2: 3, 3: 6, 5: 3}[n]
    if n == 3:
        shown = [c for axes in figure.axes[:2] for c in axes.collections]
        assert sum(len(c.get_offsets()) for c in shown) == 12
    figure.canvas.draw()


def test_ensembles_show_their_first_start():
    model = mf.SelfAttention([1.0, 2.0])
    run = mf.evolve_particles(mf.random_points(6, 2, seed=1, starts=3), model, 1.0, save=4)
    assert np.array_equal(positions(run.to_dataset()), run.points[:, 0])
    run.plot().canvas.draw()


@pytest.mark.parametrize("space", [mf.circle(24), mf.lebedev(11)], ids=["S1", "S2"])
def test_characteristics(space):
    model = mf.SelfAttention(np.arange(1.0, space.dimension + 1), sign=-1)
    run = mf.evolve_characteristics(space, model, mf.uniform(), 0.2, save=3)
    figure = plot_dataset(run.to_dataset())
    assert any(axes.get_ylabel() == "density (uniform is 1)" for axes in figure.axes)
    figure.canvas.draw()
