"""Local constants against finite differences, against each other, and in closed form."""

import tracemalloc

import numpy as np
import pytest

from meanfield.errors import DensityError, InputError, MatrixError, NonFiniteError, PointsError
from meanfield.measures import Measure
from meanfield.regularity import jacobians, local
from meanfield.regularity.heads import TransformerHead
from meanfield.regularity.local import local_constant
from meanfield.regularity.operators import causal_mask, self_attention
from meanfield.regularity.potentials import Bilinear, Custom, Gaussian, ScaledDotProduct


def a_potential(name, d, rng):
    B = rng.standard_normal((d, d))
    Q, K = rng.standard_normal((2, 3, d))
    return {
        "dot": lambda: ScaledDotProduct(),
        "-dot": lambda: ScaledDotProduct(-1.0),
        "bilinear": lambda: Bilinear(B, 1.5),
        "gaussian": lambda: Gaussian(1.3),
        "head": lambda: TransformerHead(Q, K, query_bias=Q[:, 0], key_bias=K[:, 0]),
        "custom": lambda: Custom(
            lambda x, y: np.sin(x @ B @ y.T),
            lambda x, y: np.cos(x @ B @ y.T)[..., None] * (y @ B.T),
            lambda x, y: np.cos(x @ B @ y.T)[..., None] * (x @ B)[:, None],
        ),
    }[name]()


def finite_differences(x, w, potential, W, causal, h=1e-5):
    """``(w_i / w_j) d(W A_i) / d x_j``, shape (i, j, m, d), by fourth-order differences."""
    mask = causal_mask(len(x)) if causal else None

    def outputs(tokens):
        return self_attention(Measure(tokens, w), potential, W, mask).points

    J = np.empty((len(x), len(x), len(W), x.shape[1]))
    for j in range(len(x)):
        for k in range(x.shape[1]):
            e = np.zeros_like(x)
            e[j, k] = h
            near, far = outputs(x + e) - outputs(x - e), outputs(x + 2 * e) - outputs(x - 2 * e)
            J[:, j, :, k] = (8 * near - far) / (12 * h) * (w / w[j])[:, None]
    return J


def brute_force(J, rng, starts=200, steps=100):
    """Maximum over tokens and l2 unit vectors of the sum of norms, by many ascents."""
    best = 0.0
    for j in range(J.shape[1]):
        u = rng.standard_normal((starts, J.shape[3]))
        for _ in range(steps):
            u /= np.linalg.norm(u, axis=1, keepdims=True)
            images = np.einsum("imk,sk->sim", J[:, j], u)
            norms = np.linalg.norm(images, axis=2)
            best = max(best, norms.sum(1).max())
            u = np.einsum("imk,sim->sk", J[:, j], images / np.maximum(norms, 1e-300)[..., None])
    return best


@pytest.mark.parametrize("name", ["dot", "-dot", "bilinear", "gaussian", "head", "custom"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("seed", [0, 1])
def test_equal_to_brute_force(name, causal, seed):
    rng = np.random.default_rng([seed, causal])
    N, d = rng.integers(2, 9, 2)
    x, w = rng.standard_normal((N, d)), rng.uniform(0.1, 1, N)
    w /= w.sum()
    W = rng.standard_normal((rng.integers(1, 6), d)) if seed else np.eye(d)
    potential = a_potential(name, d, rng)
    J = finite_differences(x, w, potential, W, causal)
    value = W if seed else None
    in_l1 = local_constant(x, potential, w, value, "l1", causal)
    in_l2 = local_constant(x, potential, w, value, "l2", causal)
    assert in_l1.value == pytest.approx(np.abs(J).sum((0, 2)).max(), rel=1e-9)
    assert in_l2.value == pytest.approx(brute_force(J, rng), rel=1e-9)
    assert in_l1.exact
    assert in_l2.exact
    for found, order in ((in_l1, 1), (in_l2, 2)):
        moved = J[:, found.token] @ found.direction
        assert np.linalg.norm(found.direction, order) == pytest.approx(1)
        assert np.linalg.norm(moved, order, axis=1).sum() == pytest.approx(found.value, rel=1e-9)


def test_constant_potential_is_the_lookup():
    # A maps mu to its mean: moving one token moves every output by its weight
    constant = Custom(
        lambda x, y: np.zeros((len(x), len(y))),
        lambda x, y: np.zeros((1, 1, x.shape[1])),
        lambda x, y: np.zeros((1, 1, x.shape[1])),
    )
    W = np.array([[1.0, -2.0], [3.0, 0.5]])
    x = np.random.default_rng(0).standard_normal((6, 2))
    assert local_constant(x, constant, norm="l1").value == pytest.approx(1, rel=1e-14)
    assert local_constant(x, constant, value=W, norm="l1").value == pytest.approx(4, rel=1e-13)
    spectral = np.linalg.norm(W, 2)
    assert local_constant(x, constant, value=W).value == pytest.approx(spectral, rel=1e-10)


def test_three_gaussian_tokens_in_closed_form():
    r = 1.2
    near, far = np.exp(-(r**2)), np.exp(-4 * r**2)
    middle = (1 + 4 * r**2 * near) / (1 + 2 * near)
    p = near / (1 + near + far)
    outer = r * (1 - far) / (1 + near + far)
    expected = middle + 2 * p * abs(1 - 2 * outer * r)
    for norm in ("l1", "l2"):
        found = local_constant([[-r], [0.0], [r]], Gaussian(), norm=norm)
        assert found.token == 1
        assert found.value == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["head", "gaussian", "custom"])
@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_streamed_search_equals_full_search(name, norm, monkeypatch):
    rng = np.random.default_rng(5)
    x, W = 0.7 * rng.standard_normal((25, 6)), rng.standard_normal((4, 6))
    potential = a_potential(name, 6, rng)
    full = local_constant(x, potential, value=W, norm=norm)
    monkeypatch.setattr(jacobians, "BLOCK", 200)
    monkeypatch.setattr(local, "COLUMN_BLOCK", 300)
    monkeypatch.setattr(local, "COLUMN_WORK", 9e5)  # of about 2e6 entries
    monkeypatch.setattr(local, "SMALL", 0)
    streamed = local_constant(x, potential, value=W, norm=norm)
    assert streamed.token == full.token
    assert streamed.value == pytest.approx(full.value, rel=1e-11)
    assert streamed.upper >= full.value * (1 - 1e-12)
    assert (streamed.per_token <= full.per_token_upper * (1 + 1e-9)).all()
    assert (streamed.per_token_upper >= full.per_token * (1 - 1e-9)).all()


@pytest.mark.parametrize("name", ["-dot", "gaussian", "head"])
def test_duality_bounds_every_direction_and_is_sharp_at_the_best(name):
    rng = np.random.default_rng(8)
    x, W = rng.standard_normal((7, 4)), rng.standard_normal((3, 4))
    potential = a_potential(name, 4, rng)
    at = jacobians.SelfAttentionAt(potential, x, value=W)
    found = local_constant(x, potential, value=W)
    at_best = local._dual_bound(at, found.token, found.direction)
    assert at_best == pytest.approx(found.value, rel=1e-9)
    values, spectral = found.per_token, local._spectral_bounds(at)
    for j in range(7):
        for u in rng.standard_normal((20, 4)):
            assert local._dual_bound(at, j, u / np.linalg.norm(u)) >= values[j] * (1 - 1e-12)
        factors, D, g, own = at.matrices(j)
        norms = np.linalg.norm(W + D[:, :, None] * g[:, None], 2, axis=(1, 2))
        assert factors @ norms + np.linalg.norm(own, 2) <= spectral[j]


@pytest.mark.parametrize("name", ["gaussian", "bilinear", "custom"])
def test_bounds_hold_where_the_search_is_cut_short(name, monkeypatch):
    rng = np.random.default_rng(6)
    x, potential = rng.standard_normal((25, 6)), a_potential(name, 6, rng)
    full = {norm: local_constant(x, potential, norm=norm) for norm in ("l1", "l2")}
    monkeypatch.setattr(local, "SMALL", 0)
    monkeypatch.setattr(local, "COLUMN_WORK", 1.0)
    for norm in ("l1", "l2"):
        short = local_constant(x, potential, norm=norm, refine=0)
        assert short.value <= full[norm].value * (1 + 1e-12)
        assert full[norm].value < short.upper
        assert not short.exact


def test_memory_is_not_quadratic(monkeypatch):
    monkeypatch.setattr(jacobians, "BLOCK", 2**12)
    x = np.random.default_rng(0).standard_normal((600, 3))
    for norm in ("l1", "l2"):
        tracemalloc.start()
        local_constant(x, ScaledDotProduct(), norm=norm, refine=4)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < len(x) ** 2 * 8 / 2


def test_large_scores_stay_finite():
    x = 1e3 * np.random.default_rng(0).standard_normal((12, 5))
    for potential in (ScaledDotProduct(), ScaledDotProduct(-1.0), Gaussian()):
        for norm in ("l1", "l2"):
            found = local_constant(x, potential, norm=norm)
            assert np.isfinite([found.value, found.upper]).all()
            assert found.value > 0


def test_a_split_token_keeps_the_constant():
    # equal tokens may be merged: the derivative in one of them, per weight, is the same
    x = np.array([[0.3, -0.2], [0.9, 0.4], [-0.5, 0.1]])
    merged = local_constant(x, ScaledDotProduct(), [0.5, 0.25, 0.25], norm="l1")
    split = local_constant(x[[0, 0, 1, 2]], ScaledDotProduct(), norm="l1")
    assert split.value >= merged.value * (1 - 1e-12)


def test_causal_first_token_sees_itself():
    x = np.random.default_rng(1).standard_normal((5, 3))
    last = local_constant(x, ScaledDotProduct(), norm="l1", causal=True).per_token[-1]
    J = finite_differences(x, np.full(5, 0.2), ScaledDotProduct(), np.eye(3), True)
    assert np.abs(J[:-1, -1]).max() < 1e-10
    assert last == pytest.approx(np.abs(J[-1, -1]).sum(0).max(), rel=1e-9)


def test_bad_input():
    x, G = np.ones((2, 2)), ScaledDotProduct()
    with pytest.raises(InputError, match="'l1' or 'l2'"):
        local_constant(x, G, norm="linf")
    with pytest.raises(PointsError, match="NaN"):
        local_constant([[np.nan, 0.0]], G)
    with pytest.raises(PointsError, match="real numbers"):
        local_constant([["a", "b"]], G)
    with pytest.raises(MatrixError, match="real numbers"):
        local_constant(x, G, value=[[1.0, 2.0], [3.0]])
    with pytest.raises(DensityError, match="NaN"):
        local_constant(x, G, [np.nan, 1.0])
    with pytest.raises(DensityError, match="shape"):
        local_constant(x, G, [1.0])
    with pytest.raises(DensityError, match="positive"):
        local_constant(x, G, [0.0, 1.0])
    with pytest.raises(MatrixError, match="value must have shape"):
        local_constant(x, G, value=np.eye(3))
    with pytest.raises(MatrixError, match="NaN"):
        local_constant(x, G, value=[[np.nan, 1.0]])
    with pytest.raises(MatrixError):
        local_constant(x, Bilinear(np.eye(3)))
    with pytest.raises(InputError, match="Potential"):
        local_constant(x, lambda a, b: a @ b.T)
    with pytest.raises(InputError, match="starts"):
        local_constant(x, G, starts=0)
    with pytest.raises(InputError, match="gradient"):
        local_constant(x, Custom(lambda a, b: a @ b.T))
    broken = Custom(lambda a, b: a @ b.T, lambda a, b: b * np.nan, lambda a, b: a[:, None])
    with pytest.raises(NonFiniteError, match="gradient"):
        local_constant(x, broken)
