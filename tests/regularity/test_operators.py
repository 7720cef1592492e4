"""Attention out of measures is the attention of linear algebra: Propositions 8, 11 and 19."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meanfield as mf
from meanfield.errors import InputError, MatrixError, NonFiniteError, PointsError
from meanfield.regularity import (
    AttentionLayer,
    Bilinear,
    Custom,
    Deterministic,
    FeedForward,
    Finite,
    Gaussian,
    Mixture,
    MultiHeadLayer,
    ScaledDotProduct,
    attention,
    attention_kernel,
    boltzmann_gibbs,
    causal_mask,
    cross_attention,
    layer_of,
    lookup,
    multi_head_attention,
    project_to_mean,
    self_attention,
    softmatch,
)
from meanfield.regularity.operators import attention_weights

EXACT = 1e-14
seeds = st.integers(0, 2**32 - 1)


def tokens(rng, count, dimension):
    """Random tokens, some of them twice."""
    x = rng.normal(size=(count, dimension))
    return np.concatenate([x, x[: count // 2]])


def plain_attention(Q, K, V, a):
    """Definition 1, as it is written."""
    out = []
    for q in Q:
        scores = np.array([a(q, k) for k in K])
        weights = np.exp(scores - scores.max())
        out.append(sum(w * v for w, v in zip(weights / weights.sum(), V, strict=True)))
    return np.array(out)


def relative(found, expected):
    return np.abs(found - expected).max() / max(1.0, np.abs(expected).max())


POTENTIALS = {
    "dot": (ScaledDotProduct(), lambda q, k: q @ k / np.sqrt(len(q))),
    "minus dot": (ScaledDotProduct(-2.0), lambda q, k: -(q @ k) / 2),
    "gaussian": (Gaussian(1.5), lambda q, k: -((q - k) ** 2).sum() / 1.5**2),
    "custom": (
        Custom(lambda x, y: np.sin(x[:, :1] + 2 * y[:, 0])),
        lambda q, k: np.sin(q[0] + 2 * k[0]),
    ),
}


@pytest.mark.parametrize("name", POTENTIALS)
@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=seeds)
def test_proposition_8(name, seed):
    rng = np.random.default_rng(seed)
    potential, a = POTENTIALS[name]
    d, count = rng.integers(1, 5), rng.integers(1, 9)
    Q, K = rng.normal(size=(3, d)), tokens(rng, count, d)
    W = rng.normal(size=(2, d))
    expected = plain_attention(Q, K, K @ W.T, a)
    A = attention_kernel(mf.Measure(K), potential, values=W)
    assert relative(A.on_measure(mf.Measure(Q)).points, expected) < EXACT
    # A table of values: equal keys with different values.
    V = rng.normal(size=(len(K), 2))
    table = attention_kernel(mf.Measure(K), potential, values=lookup(K, V))
    assert relative(table.on_measure(mf.Measure(Q)).points, plain_attention(Q, K, V, a)) < EXACT


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=seeds)
def test_proposition_11(seed):
    rng = np.random.default_rng(seed)
    d = rng.integers(1, 6)
    X = tokens(rng, rng.integers(1, 9), d)
    WQ, WK, WV, W1 = rng.normal(size=(4, d, d)) / np.sqrt(d)
    W2, b = rng.normal(size=(d, d)), rng.normal(size=d)

    def network(x):
        return np.maximum(x @ W1.T + b, 0) @ W2.T

    scale = np.sqrt(d)
    expected = plain_attention(X @ WQ.T, X @ WK.T, X @ WV.T, lambda q, k: q @ k / scale)
    plain = attention(X, WQ, WK, WV, scale=scale)
    assert relative(plain, expected) < EXACT
    T = AttentionLayer.from_weights(WQ, WK, WV, scale) @ FeedForward(network)
    image = T(mf.Measure(X))
    assert relative(image.points, network(expected)) < 2 * EXACT
    np.testing.assert_array_equal(image.masses, mf.Measure(X).masses)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=seeds)
def test_proposition_19(seed):
    rng = np.random.default_rng(seed)
    d, inner, H = rng.integers(1, 6), rng.integers(1, 4), rng.integers(1, 5)
    X = tokens(rng, rng.integers(1, 9), d)
    WQ, WK, WV = rng.normal(size=(3, H, inner, d)) / np.sqrt(d)
    WO = rng.normal(size=(H * inner, d))
    scale = np.sqrt(d)  # the paper's
    side_by_side = np.concatenate([
        plain_attention(X @ q.T, X @ k.T, X @ v.T, lambda x, y: x @ y / scale)
        for q, k, v in zip(WQ, WK, WV, strict=True)
    ], axis=1)  # fmt: skip
    expected = side_by_side @ WO
    assert relative(multi_head_attention(X, WQ, WK, WV, WO, scale), expected) < EXACT
    heads = [AttentionLayer.from_weights(*W, scale) for W in zip(WQ, WK, WV, strict=True)]
    M = MultiHeadLayer(heads, WO.reshape(H, inner, d)) @ FeedForward(np.tanh)
    assert relative(M(mf.Measure(X)).points, np.tanh(expected)) < EXACT


def test_scale_defaults_to_the_head_dimension():
    rng = np.random.default_rng(0)
    X, (WQ, WK, WV) = rng.normal(size=(5, 4)), rng.normal(size=(3, 2, 4))
    practice = attention(X, WQ, WK, WV)
    np.testing.assert_array_equal(practice, attention(X, WQ, WK, WV, scale=np.sqrt(2)))
    assert np.abs(practice - attention(X, WQ, WK, WV, scale=2.0)).max() > 0.01
    layer = AttentionLayer.from_weights(WQ, WK, WV)
    assert relative(layer(mf.Measure(X)).points, practice) < EXACT


def test_boltzmann_gibbs_tilts():
    nu = mf.Measure([[0.0], [1.0], [2.0]], [0.5, 0.0, 0.5])
    tilted = boltzmann_gibbs(nu, lambda y: np.exp(y[:, 0]))
    np.testing.assert_allclose(tilted.masses, np.array([1, 0, np.e**2]) / (1 + np.e**2), rtol=1e-14)
    far = boltzmann_gibbs(nu, lambda y: 1e4 * y[:, 0], log=True)
    assert far.masses.tolist() == [0.0, 0.0, 1.0]
    with pytest.raises(NonFiniteError, match="positive"):
        boltzmann_gibbs(nu, lambda y: y[:, 0])
    with pytest.raises(InputError, match="shape"):
        boltzmann_gibbs(nu, lambda y: y)


def kernels(rng, d=2):
    keys = mf.Measure(rng.normal(size=(5, d)), rng.dirichlet(np.ones(5)))
    soft = softmatch(keys, ScaledDotProduct())
    moved = Deterministic(rng.normal(size=(d, d)))
    return soft, moved, Mixture([soft, moved], [0.3, 0.7]), soft @ moved @ soft


@pytest.mark.parametrize("index", range(4))
def test_kernels_act_on_measures_and_functions_alike(index):
    rng = np.random.default_rng(1)
    kernel = kernels(rng)[index]
    mu = mf.Measure(rng.normal(size=(4, 2)), rng.dirichlet(np.ones(4)))

    def f(x):
        return np.cos(x[:, 0]) + x[:, 1]

    image = kernel.on_measure(mu)
    assert image.masses.sum() == pytest.approx(1.0, abs=EXACT)
    assert image.masses @ f(image.points) == pytest.approx(
        mu.masses @ kernel.on_function(f)(mu.points), abs=EXACT
    )
    ones = kernel.on_function(lambda x: np.ones(len(x)))(mu.points)
    np.testing.assert_allclose(ones, 1.0, atol=EXACT)


def test_composition_is_associative_and_ordered():
    double, shift = Deterministic([[2.0]]), Deterministic(lambda x: x + 1)
    assert (double @ shift).at([3.0]).points.item() == 7
    assert (shift @ double).at([3.0]).points.item() == 8
    assert ((double @ shift) @ double).at([3.0]).points.item() == 14
    with pytest.raises(TypeError):
        double @ 2.0


def test_lookup_of_duplicate_keys_is_the_uniform_mixture():
    L = lookup([[0.0, 1.0], [2.0, 2.0], [0.0, 1.0]], [[1.0], [5.0], [4.0]])
    image = L.on_measure(mf.Measure([[0.0, 1.0], [2.0, 2.0]], [0.4, 0.6]))
    np.testing.assert_allclose(image.masses, [0.2, 0.6, 0.2], rtol=1e-15)
    mean = L.on_function(lambda v: v)(np.array([[0.0, 1.0]]))
    assert mean.item() == 2.5  # the sum of indicators of Remark 6 gives 5
    with pytest.raises(PointsError, match="no key"):
        L.at([0.0, 1.1])


def test_projection_keeps_the_mean():
    rng = np.random.default_rng(2)
    mu = mf.Measure(rng.normal(size=(6, 3)), rng.dirichlet(np.ones(6)))
    dirac = project_to_mean(mu)
    assert len(dirac) == 1
    np.testing.assert_allclose(dirac.points[0], mu.masses @ mu.points, rtol=1e-15)
    soft = softmatch(mu, Gaussian())
    A = project_to_mean(soft)
    for x in rng.normal(size=(3, 3)):
        np.testing.assert_allclose(
            A.at(x).points, project_to_mean(soft.at(x)).points, rtol=0, atol=EXACT
        )


def test_masks():
    rng = np.random.default_rng(3)
    X, (WQ, WK, WV) = rng.normal(size=(6, 3)), rng.normal(size=(3, 3, 3))
    full = attention(X, WQ, WK, WV, mask=causal_mask(6))
    for i in range(6):  # token i as if the later ones were not there
        prefix = attention(X[: i + 1], WQ, WK, WV)[-1]
        np.testing.assert_allclose(full[i], prefix, rtol=0, atol=EXACT)
    layer = AttentionLayer.from_weights(WQ, WK, WV, mask=causal_mask(6))
    assert relative(layer(mf.Measure(X)).points, full) < EXACT
    positive = softmatch(mf.Measure(X), Gaussian(), mask=lambda x, y: x[:, :1] * y[:, 0] > 0)
    image = positive.at([1.0, 0.0, 0.0])
    assert ((image.masses > 0) == (X[:, 0] > 0)).all()
    with pytest.raises(InputError, match="sees no key"):
        attention(X, WQ, WK, WV, mask=np.zeros((6, 6), dtype=bool))
    with pytest.raises(InputError, match="boolean"):
        attention(X, WQ, WK, WV, mask=causal_mask(5))
    with pytest.raises(InputError, match="boolean"):
        attention(X, WQ, WK, WV, mask=np.ones((6, 6)))


def test_cross_attention_of_different_lengths():
    rng = np.random.default_rng(4)
    Q, X = rng.normal(size=(3, 2)), rng.normal(size=(7, 4))
    WQ, WK, WV = (rng.normal(size=size) for size in ((3, 2), (3, 4), (5, 4)))
    plain = attention(Q, WQ, WK, WV, scale=2.0, keys=X)
    out = cross_attention(mf.Measure(Q), mf.Measure(X), Bilinear(WQ.T @ WK, 2.0), values=WV)
    assert relative(out.points, plain) < EXACT


def test_weights_and_repetitions_are_the_same():
    potential = ScaledDotProduct(-1.0)
    repeated = self_attention(mf.Measure([[0.3], [0.3], [0.3], [-1.0]]), potential)
    weighted = self_attention(mf.Measure([[0.3], [-1.0]], [0.75, 0.25]), potential)
    np.testing.assert_allclose(repeated.points[[0, 3]], weighted.points, rtol=0, atol=EXACT)


def test_nothing_overflows():
    keys = mf.Measure([[1.0], [2.0]])
    weights = attention_weights([[1000.0], [-1000.0]], keys, ScaledDotProduct(1e-3))
    assert weights.tolist() == [[0.0, 1.0], [1.0, 0.0]]


def test_layers_of_the_model_on_the_sphere():
    rng = np.random.default_rng(5)
    points = mf.random_points(20, 3, seed=6)
    D, V = rng.normal(size=(2, 3, 3))
    measure = mf.Measure(points, rng.dirichlet(np.ones(20)))
    one, two = mf.SelfAttention(D, V=V), mf.SelfAttention(-D)
    for model in (one, two, mf.MultiHead([one, two]), mf.MultiHead([one, two], combine="mean")):
        image = layer_of(model)(measure).points
        tangential = image - (image * points).sum(1)[:, None] * points
        np.testing.assert_allclose(
            tangential, model.on(points).velocity(measure.masses), rtol=0, atol=EXACT * 10
        )
    with pytest.raises(InputError, match="normalized"):
        layer_of(mf.SelfAttention(D, normalized=False))


def finite_difference(f, x, h=1e-6):
    steps = h * np.eye(x.size)
    return np.array([(f(x + e) - f(x - e)) / (2 * h) for e in steps])


@pytest.mark.parametrize(
    "potential",
    [Bilinear(np.arange(6.0).reshape(2, 3), -1.5), ScaledDotProduct(), Gaussian(0.8)],
    ids=["bilinear", "dot", "gaussian"],
)
def test_gradients_of_potentials(potential):
    rng = np.random.default_rng(7)
    keys = 3 if isinstance(potential, Bilinear) else 2
    x, y = rng.normal(size=(4, 2)), rng.normal(size=(5, keys))
    of_query = np.broadcast_to(potential.grad_query(x, y), (4, 5, 2))
    of_key = np.broadcast_to(potential.grad_key(x, y), (4, 5, keys))
    for i, j in ((0, 0), (3, 1), (2, 4)):
        by_x = finite_difference(lambda q, j=j: potential.log(q[None], y[j : j + 1]).item(), x[i])
        by_y = finite_difference(lambda k, i=i: potential.log(x[i : i + 1], k[None]).item(), y[j])
        np.testing.assert_allclose(of_query[i, j], by_x, atol=1e-8)
        np.testing.assert_allclose(of_key[i, j], by_y, atol=1e-8)


def test_bad_input_is_named():
    X, W = np.ones((3, 2)), np.eye(2)
    with pytest.raises(MatrixError, match="WK contains NaN"):
        attention(X, W, W * np.nan, W)
    with pytest.raises(MatrixError, match="must fit"):
        attention(X, W, np.ones((3, 2)), W)
    with pytest.raises(MatrixError, match="do not fit"):
        attention(np.ones((3, 4)), W, W, W)
    with pytest.raises(MatrixError, match="WO"):
        multi_head_attention(X, [W], [W], [W], np.ones((3, 2)))
    with pytest.raises(PointsError, match="NaN"):
        attention(X * np.nan, W, W, W)
    with pytest.raises(InputError, match="scale"):
        ScaledDotProduct(0.0)
    with pytest.raises(InputError, match="bandwidth"):
        Gaussian(-1.0)
    with pytest.raises(MatrixError, match="keys live"):
        Bilinear(np.ones((2, 3))).log(X, X)
    with pytest.raises(PointsError, match="R\\^2"):
        Gaussian().log(X, np.ones((2, 3)))
    with pytest.raises(InputError, match="key_gradient"):
        Custom(lambda x, y: x @ y.T).grad_key(X, X)
    with pytest.raises(NonFiniteError, match="positive and finite"):
        Custom(lambda x, y: np.full((3, 3), -np.inf)).log(X, X)
    with pytest.raises(InputError, match="must return shape"):
        Custom(lambda x, y: x).log(X, np.ones((4, 2)))
    with pytest.raises(InputError, match="Potential"):
        AttentionLayer(lambda x, y: x @ y.T)
    with pytest.raises(InputError, match="outputs"):
        MultiHeadLayer([AttentionLayer(Gaussian())], [W, W])
    with pytest.raises(InputError, match="kernels only"):
        Mixture([])
    with pytest.raises(PointsError, match="values"):
        lookup(X, np.ones((2, 2)))
    assert isinstance(lookup(X, X), Finite)
