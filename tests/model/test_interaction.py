"""Integrals of the kernel against closed forms and against plain sums."""

import numpy as np
import pytest
from scipy.special import i0, spherical_in

import meanfield as mf
from meanfield.errors import DensityError, InputError, MatrixError, PointsError
from meanfield.model.direct import DirectSum
from meanfield.model.separable import harmonic_parity, kernel_blocks

RNG = np.random.default_rng(7)
MATRICES = {
    "identity": np.eye(3),
    "definite": np.diag([0.3, 0.6, 1.0]),
    "indefinite": np.diag([-1.0, 0.5, 1.0]),
    "singular": np.diag([0.0, 0.0, -1.0]),
    "nonsymmetric": RNG.standard_normal((3, 3)),
    "rotation": np.linalg.qr(RNG.standard_normal((3, 3)))[0],
    "zero": np.zeros((3, 3)),
}


def scaled(name, norm):
    D = MATRICES[name]
    return norm * D / max(np.linalg.norm(D, 2), 1e-300)


def plain(D, x, y, masses):
    kernel = np.exp(x @ D @ y.T)
    return kernel @ masses, kernel @ (masses[:, None] * y)


@pytest.mark.parametrize("method", ["direct", "separable", "clustered"])
@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("n", [2, 3])
def test_against_plain_sums(method, name, n):
    D = scaled(name, 2.0)[:n, :n]
    rng = np.random.default_rng(1)
    x, y = (p / np.linalg.norm(p, axis=1)[:, None] for p in rng.standard_normal((2, 400, n)))
    masses = rng.random(400)
    masses[:100] = 0
    masses /= masses.sum()
    bound = mf.Interaction(D).on(y, at=x, method=method)
    potential, moment = plain(D, x, y, masses)
    tolerance = 1e-8 if method == "clustered" else 2e-12
    assert np.abs(bound.potential(masses) / potential - 1).max() < tolerance
    assert np.abs(bound.average(masses, y) - moment / potential[:, None]).max() < tolerance
    assert bound.method == method


@pytest.mark.parametrize("method", ["direct", "separable", "clustered", "auto"])
@pytest.mark.parametrize("name", ["definite", "indefinite", "nonsymmetric"])
def test_gradient_is_the_gradient(method, name):
    interaction = mf.Interaction(scaled(name, 2.0))
    masses = RNG.random(200)
    masses /= masses.sum()
    sources, at, direction = RNG.standard_normal((3, 200, 3))
    sources /= np.linalg.norm(sources, axis=1)[:, None]
    at /= np.linalg.norm(at, axis=1)[:, None]
    direction -= np.sum(direction * at, axis=1)[:, None] * at
    gradient = interaction.on(sources, at=at, method=method).gradient(masses)
    assert np.abs(np.sum(gradient * at, axis=1)).max() < 1e-14
    step = 1e-5
    ends = []
    for sign in (1, -1):
        moved = at + sign * step * direction
        moved /= np.linalg.norm(moved, axis=1)[:, None]
        ends.append(interaction.on(sources, at=moved, method="direct").log_potential(masses))
    slope = (ends[0] - ends[1]) / (2 * step)
    assert np.abs(np.sum(gradient * direction, axis=1) - slope).max() < 2e-8


def test_uniform_potentials_in_closed_form():
    # int exp(beta x.y) dmu_0 is I_0 on S^1 and sinh(beta)/beta on S^2.
    circle = mf.circle(10_000)
    for beta, value in ((200, 196.432529354), (1000, 995.627308890)):
        bound = mf.Interaction(beta * np.eye(2)).on(circle, at=circle.points[:50])
        assert bound.log_potential(circle.weights) == pytest.approx(value, abs=1e-9)
    sphere = mf.lebedev(131)
    for beta in (1.0, 5.0, 20.0):
        log_z = mf.Interaction(beta * np.eye(3)).on(sphere).log_potential(sphere.weights)
        assert log_z == pytest.approx(np.log(np.sinh(beta) / beta), abs=1e-11)


def test_energy_values():
    circle = mf.circle(64)
    values = {
        ((0, -1), (1, 0)): 1.266065877752,
        ((1, 2), (0, 1)): 1.982764159094,
        ((1, 0), (0, 1)): i0(1.0),
    }
    for D, energy in values.items():
        for given in (D, np.array(D), np.array(D, dtype=np.float32), [list(row) for row in D]):
            bound = mf.Interaction(given).on(circle)
            assert bound.energy(circle.weights) == pytest.approx(energy, abs=5e-13)
    sphere = mf.lebedev(47)
    bound = mf.Interaction([1, 2, -1]).on(sphere)
    assert bound.energy(sphere.weights) == pytest.approx(1.376077897274, abs=1e-12)
    density = mf.von_mises_fisher([0, 0, 1], 3.0)(sphere.points)
    masses = density * sphere.weights
    assert bound.energy(masses / masses.sum()) == pytest.approx(0.783955164741, abs=1e-12)


def test_nonsymmetric_matrices_are_not_symmetrised():
    D = np.array([[0.3, 1.2, 0.0], [-0.4, 0.1, 0.7], [0.2, 0.0, -0.5]])
    masses = RNG.random(500)
    masses /= masses.sum()
    points = RNG.standard_normal((500, 3))
    points /= np.linalg.norm(points, axis=1)[:, None]
    forward = mf.Interaction(D).on(points, method="separable").log_potential(masses)
    backward = mf.Interaction(D.T).on(points, method="separable").log_potential(masses)
    assert np.abs(forward - np.log(plain(D, points, points, masses)[0])).max() < 1e-12
    assert np.abs(forward - backward).max() > 0.1
    assert not mf.Interaction(D).symmetric


def test_blocks_are_the_kernel():
    # B of D = lambda Id is diagonal with 4 pi i_l(lambda).
    blocks = kernel_blocks((2.0, 2.0, 2.0), 10)
    parity = harmonic_parity(3, 10)
    degrees = np.concatenate([np.arange(m, 11) for m in range(11)])
    degrees = np.concatenate([degrees, *[np.arange(m, 11) for m in range(1, 11)]])
    assert sum(len(block.index) for block in blocks) == 121
    for block in blocks:
        assert len(np.unique(parity[block.index], axis=0)) == 1
        exact = np.diag(4 * np.pi * spherical_in(degrees[block.index], 2.0)) * np.exp(-2.0)
        assert np.abs(block.matrix - exact).max() < 1e-13


def test_auto_leaves_the_separable_way_where_it_loses_digits():
    mesh = mf.icosphere(4)
    bound = mf.Interaction(20 * np.eye(3)).on(mesh)
    bound.log_potential(mesh.weights)
    assert bound.method == "separable"
    masses = np.exp(100 * (mesh.points[:, 2] - 1))
    masses /= masses.sum()
    exact = mf.Interaction(20 * np.eye(3)).on(mesh, method="direct").log_potential(masses)
    assert np.abs(bound.log_potential(masses) - exact).max() < 1e-8
    assert bound.method != "separable"


def test_no_overflow_at_large_norms():
    mesh = mf.icosphere(3)
    for norm in (200, 1000):
        bound = mf.Interaction(norm * np.diag([-1.0, 0.5, 1.0])).on(mesh)
        log_z = bound.log_potential(mesh.weights)
        assert np.isfinite(log_z).all()
        assert np.isfinite(bound.gradient(mesh.weights)).all()
        assert np.isfinite(bound.log_energy(mesh.weights))
    assert bound.energy(mesh.weights) == np.inf


def test_tiles_do_not_change_the_sum(monkeypatch):
    mesh = mf.icosphere(2)
    bound = DirectSum(mesh.points, mesh.points, np.diag([1.0, 2.0, 3.0]))
    whole = bound.sums(mesh.weights)[1]
    monkeypatch.setattr("meanfield.model.direct.TILE_ENTRIES", 1000)
    assert np.allclose(bound.sums(mesh.weights)[1], whole, rtol=1e-15, atol=0)


def test_temporaries_stay_small():
    import tracemalloc

    mesh = mf.icosphere(6)
    bound = mf.Interaction(np.eye(3)).on(mesh.points, at=mesh.points[:2000], method="direct")
    tracemalloc.start()
    bound.log_potential(mesh.weights)
    assert tracemalloc.get_traced_memory()[1] < 256 * 2**20
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("D", "message"),
    [
        ([[1.0, np.nan], [0.0, 1.0]], "NaN or infinity"),
        ([[1.0, np.inf], [0.0, 1.0]], "NaN or infinity"),
        ([[1.0, 2.0, 3.0], [0.0, 1.0, 1.0]], r"shape \(n, n\)"),
        ([1.0], r"n >= 2"),
        (3.0, r"shape \(n, n\)"),
        ([["a", "b"], ["c", "d"]], "real numbers"),
        ([[1j, 0], [0, 1]], "real numbers"),
    ],
)
def test_bad_matrices(D, message):
    with pytest.raises(MatrixError, match=message):
        mf.Interaction(D)


def test_bad_use():
    bound = mf.Interaction([1.0, 2.0]).on(mf.circle(8))
    with pytest.raises(DensityError, match=r"shape \(8,\)"):
        bound.potential(np.ones(7))
    with pytest.raises(InputError, match="auto, direct, separable, clustered"):
        mf.Interaction([1.0, 2.0]).on(mf.circle(8), method="magic")
    with pytest.raises(PointsError, match=r"points are in R\^3"):
        mf.Interaction([1.0, 2.0]).on(mf.lebedev(5))
    with pytest.raises(InputError, match=r"S\^1 and S\^2"):
        mf.Interaction(np.eye(4)).on(mf.product_sphere(4, 3), method="separable")
    other = mf.Interaction([1.0, 2.0]).on(mf.circle(8), at=mf.circle(6))
    with pytest.raises(InputError, match="at=None"):
        other.energy(np.full(8, 0.125))
