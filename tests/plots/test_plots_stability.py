"""Pictures of modes: what is drawn is what was found."""

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.quiver import Quiver

import meanfield as mf
from meanfield.equilibria.discrete_states import four_point_state, two_point_state
from meanfield.plots import plot_dataset


def arrows(panel):
    (quiver,) = [child for child in panel.get_children() if isinstance(child, Quiver)]
    return np.stack([quiver.U, quiver.V], axis=1), quiver.XY


def test_clusters_on_the_circle():
    found = mf.stability(two_point_state([0.0, 1.0]), mf.SelfAttention([1.0, 1.1]))
    panel, rates = found.plot().axes
    moved, places = arrows(panel)
    assert np.allclose(places, found.points)
    assert np.allclose(moved / moved[0, 0], found.fields[0] / found.fields[0, 0, 0])
    assert panel.get_title() == "leading mode, rate 0.1195"
    heights = np.concatenate([c.get_offsets()[:, 1] for c in rates.collections[1:]])
    assert np.allclose(np.sort(heights), np.sort(found.rates))


def test_members_that_separate_get_arrows_to_both_sides():
    state = four_point_state(mf.four_point_angle(1.0, 8.0))
    panel = mf.stability(state, mf.SelfAttention([1.0, 8.0], -1)).plot().axes[0]
    moved, places = arrows(panel)
    assert len(moved) == 2
    assert np.allclose(moved[0], -moved[1])
    assert np.allclose(places[0], places[1])
    assert "(members of a cluster separate)" in panel.get_title()


def test_a_density_on_the_circle():
    found = mf.stability(mf.exact_minimizer([1.0, 2.0]), mf.SelfAttention([1.0, 2.0]))
    panel, other, _ = found.plot().axes
    for line, values in (
        (panel.lines[-1], found.potentials[0]),
        (other.lines[0], found.masses * 512),
    ):
        angle, curve = line.get_data()
        assert np.allclose(np.sort(curve[:-1]), np.sort(values))
        assert curve[-1] == curve[0]  # closed
        assert angle[-1] == angle[0] + 2 * np.pi
        assert (np.diff(angle) > 0).all()


@pytest.mark.parametrize("mesh", ["icosphere", "lebedev"])
def test_a_density_on_the_sphere(mesh):
    space = mf.icosphere(2) if mesh == "icosphere" else mf.lebedev(15)
    found = mf.stability(mf.uniform(), mf.SelfAttention([1, 1, 1]), space=space, modes=3)
    figure = found.plot()
    drawn = [c for c in figure.axes[0].collections if isinstance(c, PolyCollection)]
    assert len(drawn) == (mesh == "icosphere")
    collection = drawn[0] if drawn else figure.axes[0].collections[0]
    assert np.isin(np.asarray(collection.get_array()), found.potentials[0]).all()


def test_clusters_on_the_sphere_and_beyond(tmp_path):
    found = mf.stability(two_point_state([0, 0, 1.0], 0.3), mf.SelfAttention([1, 0.5, 1.1]))
    front = found.plot().axes[0]
    assert len(arrows(front)[0]) == 1
    found = mf.stability(two_point_state(np.eye(4)[3]), mf.SelfAttention([1, 1.1, 1.2, 2]))
    lengths = found.plot().axes[0].lines[0].get_ydata()
    assert np.allclose(lengths, np.linalg.norm(found.fields[0], axis=1))


def test_a_file_is_drawn_like_the_result(tmp_path):
    from meanfield.results.ugrid import open_netcdf

    found = mf.stability(two_point_state([0.0, 1.0]), mf.SelfAttention([1.0, 1.1]))
    found.save(tmp_path / "s.nc")
    with open_netcdf(tmp_path / "s.nc") as stored:
        assert len(plot_dataset(stored).axes) == len(found.plot().axes)
