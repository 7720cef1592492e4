"""The fast potentials against direct sums, at every norm of D."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import meanfield as mf
from meanfield.model.clustered import ClusteredSum, Monomials, make_clusters
from meanfield.model.direct import DirectSum

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("potential", BENCHMARKS / "potential.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("norm", [1, 5, 20, 100, 200])
def test_log_potential_and_edge_differences(benchmark, norm):
    # 10,242 cells; four D; uniform, 1 % of the sphere, exact zeros; auto and clustered.
    limit = 1e-11 if norm == 1 else 1e-8
    rows = benchmark.accuracy(level=5, norms=(norm,))
    assert len(rows) == (12 if norm == 1 else 24)
    for _, name, what, method, error, jump in rows:
        assert max(error, jump) <= limit, (name, what, method)
    methods = {row[3] for row in rows}
    assert "separable" in methods if norm <= 20 else "clustered" in methods


@pytest.mark.parametrize("n", [2, 3])
def test_clusters_hold_all_points(n):
    points = np.random.default_rng(0).standard_normal((500, n))
    points /= np.linalg.norm(points, axis=1)[:, None]
    clusters = make_clusters(points, 40)
    assert np.array_equal(np.sort(clusters.order), np.arange(500))
    sizes = np.diff(clusters.bounds)
    rebuilt = np.repeat(clusters.centres, sizes, axis=0) + clusters.offsets
    assert np.allclose(rebuilt, points[clusters.order], atol=1e-15)
    lengths = np.linalg.norm(clusters.offsets, axis=1)
    assert (lengths <= np.repeat(clusters.radii, sizes) + 1e-15).all()


def test_monomials_sum_to_the_exponential():
    v, w = np.random.default_rng(1).standard_normal((2, 7, 3)) * 0.4
    monomials = Monomials.up_to(3, 14)
    assert len(monomials) == 680
    product = np.sum(monomials(v) * monomials(w), axis=0)
    assert np.abs(product - np.exp(np.sum(v * w, axis=1))).max() < 1e-13


def test_many_chunks_and_fields_give_the_same_sums(monkeypatch):
    mesh = mf.icosphere(4)
    D = 50 * np.diag([-1.0, 0.5, 1.0])
    fields = mesh.points @ D.T
    masses = np.where(mesh.points[:, 0] > 0, mesh.weights, 0.0)
    shift, sums = DirectSum(mesh.points, mesh.points, D).sums(masses, fields)
    whole = ClusteredSum(mesh.points, mesh.points, D)
    ours, values = whole.sums(masses, fields)
    scaled = values * np.exp(ours - shift)[:, None]
    assert np.abs(scaled - sums).max() < 1e-8 * np.abs(sums).max()
    monkeypatch.setattr("meanfield.model.clustered.TARGET_CHUNK", 37)
    monkeypatch.setattr("meanfield.model.clustered.CHUNK_BYTES", 300_000)
    again = ClusteredSum(mesh.points, mesh.points, D).sums(masses, fields)[1]
    assert np.abs(again - values).max() < 1e-13 * np.abs(values).max()


def test_other_targets():
    mesh = mf.icosphere(4)
    D = 60 * np.array([[0.2, -0.9, 0.1], [0.5, 0.3, -0.4], [0.0, 0.6, -0.5]])
    at = mf.lebedev(65)
    fast = mf.Interaction(D).on(mesh, at=at, method="clustered").log_potential(mesh.weights)
    exact = mf.Interaction(D).on(mesh, at=at, method="direct").log_potential(mesh.weights)
    assert np.abs(fast - exact).max() < 1e-8


@pytest.mark.parametrize("beta", [2.0, 20.0, 200.0])
def test_the_uniform_density_on_a_million_arcs(beta):
    mesh = mf.circle(1_000_000)
    bound = mf.Interaction(beta * np.eye(2)).on(mesh)
    log_z = bound.log_potential(mesh.weights)
    assert bound.method == "separable"
    if beta == 200:
        assert log_z == pytest.approx(196.432529354, abs=1e-9)
    assert np.ptp(log_z) < 2e-12
    assert np.abs(bound.gradient(mesh.weights)).max() < 1e-12 * beta


def test_the_uniform_density_on_the_sphere():
    # Cell averages of the uniform density are not exactly a spherical design, so take Lebedev.
    sphere = mf.lebedev(131)
    bound = mf.Interaction(200 * np.eye(3)).on(sphere)
    assert bound.log_potential(sphere.weights) == pytest.approx(194.008535453, abs=1e-6)
    for beta in (1.0, 5.0, 20.0):
        speed = mf.SelfAttention(beta * np.eye(3)).on(sphere).velocity(sphere.weights)
        assert np.abs(speed).max() < 1e-12 * beta


@pytest.mark.slow
def test_memory_grows_with_the_cells(benchmark):
    rows = benchmark.growth((8, 9))
    assert rows[1][2] < 6
    assert rows[1][2] < 4.2 * rows[0][2]


@pytest.mark.slow
def test_a_level_8_run_fits_into_four_gibibytes(tmp_path):
    import os
    import shutil
    import sys

    command = shutil.which("meanfield", path=Path(sys.executable).parent)
    arguments = "evolve --mesh icosphere:8 --D 0.5,1,2 --sign -1 --density vmf:0.3,-0.5,0.8:2 "
    arguments += f"--t-end 0.09 --save 3 --output {tmp_path / 'run.nc'}"
    process = os.spawnv(os.P_NOWAIT, command, [command, *arguments.split()])
    _, status, usage = os.wait4(process, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert usage.ru_maxrss / 2**20 < 4
