"""Convergence tables: finite volumes against characteristics, both signs, all kinds of meshes."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

import meanfield as mf
from meanfield.dynamics.verification import (
    Series,
    Verification,
    expand,
    reference_solution,
    verify,
)
from meanfield.errors import InputError, NonFiniteError

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "accuracy.md"
FIGURE = re.compile(r"\d\.\d\de-\d\d")
MEAN = np.array([0.3, -0.5, 0.8])
DIAGONAL = {2: [0.5, 2.0], 3: [0.5, 1.0, 2.0]}
END = {-1: 1.0, 1: 0.3}


def setting(n, sign):
    """Model, density and end time of the tables of the documentation."""
    model = mf.SelfAttention(DIAGONAL[n], sign=sign)
    return model, mf.von_mises_fisher(MEAN[:n], 2.0), END[sign]


# Fixtures that last the session, so that each reference is computed once; with 434 nodes, which
# give the density to 1e-8, in a third of the time of the default.


@pytest.fixture(scope="session")
def spreading():
    return reference_solution(*setting(3, -1), mf.lebedev(35))


@pytest.fixture(scope="session")
def clustering():
    return reference_solution(*setting(3, 1), mf.lebedev(35))


@pytest.fixture(scope="session")
def makers():
    """The script that makes the stored meshes."""
    path = ROOT / "meshes" / "make_meshes.py"
    spec = importlib.util.spec_from_file_location("make_meshes", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def icospheres(levels, cells="hexagons"):
    return [mf.icosphere(level, cells) for level in levels]


def table(meshes, sign, reference=None, order=2) -> Verification:
    return verify(meshes, *setting(meshes[0].dimension, sign), order, reference)


def assert_documented(result):
    """The page of the documentation shows these errors."""
    lines = [line.strip() for line in PAGE.read_text(encoding="utf-8").splitlines()]
    for row in result.rows:
        shown = [FIGURE.findall(line) for line in lines if line.startswith(f"{row.mesh} ")]
        shown = np.array([figures for figures in shown if len(figures) == 3], dtype=float)
        assert np.isclose(shown, [row.l1, row.linf, row.moments], rtol=0.02).all(axis=1).any()


# --- the tables ----------------------------------------------------------------------------


def test_hexagons_second_order(spreading):
    result = table(icospheres((3, 4, 5)), -1, spreading)
    l1, linf, moments = result.mean_orders()
    assert l1 >= 1.9
    assert linf >= 1.7
    assert moments == pytest.approx(2, abs=0.05)
    assert result.rows[-1].l1 < 1.8e-4
    assert result.rows[-1].linf < 1.5e-3
    assert_documented(result)


@pytest.mark.slow
def test_hexagons_second_order_to_level_6(spreading):
    result = table(icospheres((3, 4, 5, 6)), -1, spreading)
    l1, linf, _ = result.mean_orders()
    assert l1 >= 1.9
    assert linf >= 1.7
    assert result.rows[-1].l1_order >= 1.9
    assert result.rows[-1].l1 < 4.7e-5
    assert_documented(result)


def test_circle_second_order():
    meshes = [mf.circle(cells) for cells in (64, 128, 256, 512, 1024)]
    result = table(meshes, -1)
    l1, linf, moments = result.mean_orders()
    assert l1 >= 1.9
    assert linf >= 1.9
    assert moments == pytest.approx(2, abs=0.05)
    assert_documented(result)


def test_circle_first_order():
    rows = table([mf.circle(cells) for cells in (64, 512, 1024)], -1, order=1).rows
    assert rows[-1].l1_order >= 0.95
    assert rows[-1].linf_order >= 0.95


def test_hexagons_first_order(spreading):
    rows = table(icospheres((4, 5)), -1, spreading, order=1).rows
    assert rows[-1].l1_order >= 0.94
    assert rows[-1].linf_order >= 0.85


@pytest.mark.slow
def test_hexagons_first_order_to_level_6(spreading):
    rows = table(icospheres((5, 6)), -1, spreading, order=1).rows
    assert rows[-1].l1_order >= 0.95
    assert rows[-1].linf_order >= 0.9


def assert_triangles(levels, sign, reference, linf_order):
    result = table(icospheres(levels, "triangles"), sign, reference)
    assert_documented(result)
    l1, linf, moments = result.mean_orders()
    assert l1 >= 1.8
    assert linf >= linf_order
    assert moments >= 1.95


# On triangles the velocity takes over the error of slopes from three neighbours where five
# triangles meet; with sign +1 the mass collects at one of these points.


def test_triangles(spreading):
    assert_triangles((3, 4), -1, spreading, 1.35)


def test_triangles_clustering(clustering):
    assert_triangles((3, 4), 1, clustering, 0.5)


@pytest.mark.slow
def test_triangles_to_level_5(spreading):
    assert_triangles((3, 4, 5), -1, spreading, 1.35)


@pytest.mark.slow
def test_triangles_clustering_to_level_5(clustering):
    assert_triangles((3, 4, 5), 1, clustering, 0.7)


def test_hexagons_clustering(clustering):
    result = table(icospheres((3, 4, 5)), 1, clustering)
    assert_documented(result)
    l1, linf, moments = result.mean_orders()
    assert l1 >= 1.95
    assert linf >= 1.8
    assert moments >= 1.95


@pytest.mark.slow
def test_hexagons_clustering_to_level_6(clustering):
    # Mass gathers at a pole, which is one of the twelve pentagons.
    l1, linf, _ = table(icospheres((3, 4, 5, 6)), 1, clustering).mean_orders()
    assert l1 >= 1.95
    assert linf >= 1.6


def test_circle_clustering():
    meshes = [mf.circle(cells) for cells in (64, 128, 256, 512)]
    l1, linf, moments = table(meshes, 1).mean_orders()
    assert l1 >= 1.9
    assert linf >= 1.9
    assert moments >= 1.95


@pytest.mark.parametrize("sign", [-1, 1])
def test_random_voronoi_cells(sign, spreading, clustering, makers):
    # Cells with edges far from the arcs between the centres: the field velocity; the maximum
    # error sits in the worst cell of the mesh and has no clear order.
    meshes = [makers.voronoi(count, seed=1) for count in (642, 2562)]
    result = table(meshes, sign, spreading if sign < 0 else clustering)
    assert_documented(result)
    rows = result.rows
    assert rows[-1].l1_order >= 1.6
    assert rows[-1].moments_order >= 1.7
    assert rows[-1].l1 < 2.7e-3
    assert rows[-1].linf < 4e-2


@pytest.mark.parametrize("sign", [-1, 1])
def test_cubed_sphere(sign, spreading, clustering, makers):
    meshes = [makers.cubed_sphere(cells) for cells in (12, 24)]
    result = table(meshes, sign, spreading if sign < 0 else clustering)
    assert_documented(result)
    l1, linf, moments = result.mean_orders()
    assert l1 >= 1.8
    assert linf >= 1.65
    assert moments >= 1.95


@pytest.mark.slow
@pytest.mark.parametrize("sign", [-1, 1])
def test_random_voronoi_cells_to_10_242(sign, spreading, clustering, makers):
    meshes = [makers.voronoi(count, seed=1) for count in (642, 2562, 10242)]
    result = table(meshes, sign, spreading if sign < 0 else clustering)
    l1, linf, moments = result.mean_orders()
    assert l1 >= 1.7
    assert linf >= 0.9
    assert moments >= 1.9


# --- the reference -------------------------------------------------------------------------


def test_references_of_two_resolutions_agree(clustering):
    coarser = reference_solution(*setting(3, 1), mf.lebedev(23))
    difference = np.abs(coarser.coefficients - clustering.coefficients).max()
    assert 1e-13 < difference < 1e-10
    assert clustering.tail < 1e-12


def test_the_series_is_the_density(clustering):
    model, density, t_end = setting(3, 1)
    run = mf.evolve_characteristics(mf.lebedev(35), model, density, t_end, save=2)
    x = np.random.default_rng(3).normal(size=(50, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    assert np.abs(clustering(x) / run.density_at(x, t_end) - 1).max() < 1e-11


@pytest.mark.parametrize("n", [2, 3])
def test_expansions_are_exact_for_polynomials_and_report_their_tail(n):
    def polynomial(x):
        return 1 + x[:, 0] + x[:, 0] * x[:, 1] ** 2

    x = mf.product_sphere(n, 11).points
    series = expand(polynomial, n, 8)
    assert isinstance(series, Series)
    assert np.abs(series(x) - polynomial(x)).max() < 2e-13
    assert series.tail < 5e-14
    assert expand(lambda x: np.abs(x[:, 0]), n, 16).tail > 1e-3


def test_too_sharp_a_solution_has_no_spectral_reference():
    model = mf.SelfAttention([1.0, 4.0], sign=1)
    density = mf.von_mises_fisher([1.0, 1.0], 2.0)
    with pytest.raises(NonFiniteError, match="too sharp at t = 8"):
        reference_solution(model, density, 8.0, mf.circle(64))
    meshes = [mf.circle(cells) for cells in (16, 32, 64)]
    result = verify(meshes, model, density, 8.0)
    assert not result.spectral
    assert [row.cells for row in result.rows] == [16, 32]
    assert np.isnan([row.l1 for row in result.rows]).all()
    assert "l1" not in str(result)


# --- what verify returns -------------------------------------------------------------------


def exact_uniform(x):
    return np.ones(len(x))


def test_a_solution_at_rest_has_no_error():
    # A uniform density stays uniform under D = Id, on any mesh with a two-point velocity.
    model = mf.SelfAttention([1.0, 1.0], sign=1)
    rows = verify([mf.circle(16), mf.circle(32)], model, mf.uniform(), 1.0).rows
    assert max(max(row.l1, row.linf, row.moments) for row in rows) < 1e-13


def test_table_and_wanted_error():
    meshes = [mf.circle(cells) for cells in (64, 128, 256)]
    result = table(meshes, -1)
    first, second, third = result.rows
    assert np.isnan(first.l1_order)
    assert second.l1_order == pytest.approx(np.log2(first.l1 / second.l1))
    assert result.mean_orders()[1] == pytest.approx(np.log2(first.linf / third.linf) / 2)
    assert first.size == pytest.approx(2 * np.pi / 64)
    lines = str(result).splitlines()
    assert len(lines) == 5
    assert lines[1].split()[:2] == ["circle:64", "64"]
    assert f"{third.l1:.2e}" in lines[3]
    assert lines[4].startswith("mean order 1.9")
    # The size that the wanted error needs is the one that reaches it.
    wanted = third.l1 / 16
    cells = 2 * np.pi / result.size_for(wanted)
    reached = table([mf.circle(round(cells / 2)), mf.circle(round(cells))], -1).rows[-1].l1
    assert reached == pytest.approx(wanted, rel=0.1)
    with pytest.raises(InputError, match="must be > 0"):
        result.size_for(0.0)


def test_a_given_reference_is_used():
    model = mf.SelfAttention([1.0, 1.0], sign=-1)
    meshes = [mf.circle(32), mf.circle(64)]
    wrong = verify(meshes, model, mf.uniform(), 0.1, reference=lambda x: 2 * exact_uniform(x))
    assert wrong.rows[0].l1 == pytest.approx(1.0)
    right = verify(meshes, model, mf.uniform(), 0.1, reference=exact_uniform)
    assert right.rows[0].l1 < 1e-14


@pytest.mark.parametrize("meshes", [[], [mf.circle(8)], [mf.circle(8), mf.lebedev(5)]])
def test_needs_two_meshes(meshes):
    with pytest.raises(InputError, match="at least two meshes"):
        verify(meshes, mf.SelfAttention([1.0, 1.0]), mf.uniform(), 1.0)
