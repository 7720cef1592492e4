"""Bounds: the numbers of the theory, sharpness, random pairs with exact W1, refusals."""

import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp

import meanfield as mf
from meanfield import regularity as reg
from meanfield.errors import InputError, MatrixError, PointsError
from meanfield.regularity.constants import largest_score, steepness
from meanfield.regularity.domains import matrix_norm, vector_norm

NORMS = ("l1", "l2")
METRICS = {"l1": "cityblock", "l2": "euclidean"}
# d, r, printed Theorem 14, corrected for general G, for exponential G, with K_20.
BOXES = [
    (1, 0.1, 0.0816, 1.051, 1.051, 1.049),
    (1, 0.3, 0.862, 1.539, 1.503, 1.476),
    (1, 1.0, 59.1, 37.9, 23.17, 14.7),
    (1, 1.5, 1620, 1014, 497.3, 35.9),
    (2, 0.1, 0.233, 1.073, 1.072, 1.069),
    (2, 1.0, 383, 121, 66.2, 24.9),
    (4, 0.1, 0.666, 1.104, 1.102, 1.098),
    (4, 1.0, 3494, 547, 275, 33.3),
]
seeds = st.integers(0, 2**32 - 1)


def w1(a, b, norm):
    metric = METRICS[norm]
    return ot.emd2(a.masses, b.masses, ot.dist(a.points, b.points, metric=metric))


def digits(value, like):
    """Whether a value rounds to a printed one, given with its last digit."""
    text = f"{like:.10g}"
    last = len(text.split(".")[1]) if "." in text else 0
    return abs(value - like) <= 0.51 * 10.0**-last


@pytest.mark.parametrize("row", BOXES, ids=lambda row: f"d={row[0]}, r={row[1]}")
def test_boxes(row):
    d, r, *expected = row
    G, box = reg.ScaledDotProduct(), reg.Box(r, d)
    constants = reg.potential_constants(G, box, "l1")
    found = [
        reg.attention_bound(constants, variant="paper"),
        reg.attention_bound(constants, form="lipschitz"),
        reg.exponential_attention_bound(G, box, "l1"),
        reg.exponential_attention_bound(G, box, "l1", n_tokens=20),
    ]
    assert all(digits(b.value, e) for b, e in zip(found, expected, strict=True)), found
    assert [b.certifies for b in found] == [False, True, True, True]
    # The closed forms of the box.
    s = np.sqrt(d) * r**2
    assert found[2].value == pytest.approx(s + np.exp(2 * s) * (1 + 2 * s), rel=1e-13)
    assert found[1].value == pytest.approx(1 + 5 * s * np.exp(2 * s), rel=1e-13)


@pytest.mark.parametrize(
    ("d", "r", "value"), [(1, 1, 29.6), (1, 1.5, 698), (2, 1, 88.7), (4, 1, 382)]
)
def test_second_form(d, r, value):
    c = reg.potential_constants(reg.ScaledDotProduct(), reg.Box(r, d), "l1")
    assert digits(reg.attention_bound(c, form="supremum").value, value)
    assert reg.attention_bound(c).value == reg.attention_bound(c, form="supremum").value


@settings(max_examples=60, deadline=None, derandomize=True)
@given(seed=seeds, norm=st.sampled_from(NORMS), round_domain=st.booleans())
def test_constants_bound_the_potential(seed, norm, round_domain):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 4))
    E = reg.Ball(rng.uniform(0.2, 2), d) if round_domain else reg.Box(rng.uniform(0.2, 2), d)
    potential = [
        reg.Bilinear(rng.normal(size=(d, d))),
        reg.ScaledDotProduct(-1.0),
        reg.Gaussian(0.7),
    ][rng.integers(3)]
    x, y = (E.project(E.half_width * rng.uniform(-1.5, 1.5, size=(200, d))) for _ in range(2))
    log = potential.log(x, y)
    for query, rows in ((None, slice(None)), (x[0], slice(0, 1))):
        c = reg.potential_constants(potential, E, norm, query)
        values, at = log[rows], x[rows]
        assert values.max() <= c.log_supremum + 1e-12
        assert values.min() >= c.log_infimum - 1e-12
        by_query = vector_norm(potential.grad_query(at, y), norm, dual=True) * np.exp(values)
        by_key = vector_norm(potential.grad_key(at, y), norm, dual=True) * np.exp(values)
        assert by_query.max() <= np.exp(c.log_query) * (1 + 1e-12)
        assert by_key.max() <= np.exp(c.log_key) * (1 + 1e-12)


@pytest.mark.parametrize("norm", NORMS)
def test_constants_are_attained(norm):
    # Corners of the box for the dot product, singular vectors of B for the ball in l2.
    d, r = 3, 0.7
    G, corner = reg.ScaledDotProduct(), np.full((1, d), r)
    c = reg.potential_constants(G, reg.Box(r, d), norm)
    assert G.log(corner, corner).item() == pytest.approx(c.log_supremum, rel=1e-14)
    assert G.log(corner, -corner).item() == pytest.approx(c.log_infimum, rel=1e-14)
    slope = vector_norm(G.grad_key(corner, corner), norm, dual=True).item()
    assert np.log(slope) + c.log_supremum == pytest.approx(c.log_key, abs=1e-14)
    # For one query the steepest key is the corner that its scores grow towards.
    q = np.array([0.1, -0.5, 0.3])
    c = reg.potential_constants(G, reg.Box(r, d), norm, query=q)
    best = r * np.sign(q)[None]
    slope = vector_norm(G.grad_key(q[None], best), norm, dual=True).item()
    assert np.log(slope) + G.log(q[None], best).item() == pytest.approx(c.log_key, abs=1e-14)
    B = np.random.default_rng(0).normal(size=(d, d))
    left, sizes, right = np.linalg.svd(B)
    E = reg.Ball(r, d)
    assert r**2 * left[:, 0] @ B @ right[0] == pytest.approx(largest_score(B, E), rel=1e-14)
    assert steepness(B, E, "l2") == pytest.approx(r * sizes[0], rel=1e-14)
    # The Gaussian is steepest at distance bandwidth / sqrt 2, or as far as E reaches.
    for size in (5.0, 0.1):
        c = reg.potential_constants(reg.Gaussian(), reg.Box(size, 1), norm)
        t = np.linspace(0, 2 * size, 20001)
        assert (2 * t * np.exp(-(t**2))).max() == pytest.approx(np.exp(c.log_key), rel=1e-7)
        assert c.log_infimum == pytest.approx(-4 * size**2)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("E", [reg.Ball(1.3, 3), reg.Box(1.3, 3)], ids=str)
def test_diameters_are_attained(E, norm):
    far = np.full((1, 3), 5.0) if norm == "l1" or isinstance(E, reg.Box) else np.eye(1, 3) * 5
    x = E.project(far)
    assert E.contains(x).all()
    assert vector_norm(2 * x, norm).item() == pytest.approx(E.diameter(norm), rel=1e-14)


def test_projection_and_lookup_factors():
    rng = np.random.default_rng(1)
    W = rng.normal(size=(4, 3))
    for norm in NORMS:
        bound = reg.lookup_bound(W, norm)
        x, y = rng.normal(size=(2, 2000, 3))
        ratios = vector_norm((x - y) @ W.T, norm) / vector_norm(x - y, norm)
        assert 0.7 * bound.value < ratios.max() <= bound.value
        assert reg.projection_bound(norm, 3).value == 1
    best = np.abs(W).sum(0).argmax()  # a unit vector attains the l1 norm
    assert np.abs(W[:, best]).sum() == pytest.approx(reg.lookup_bound(W, "l1").value, rel=1e-14)
    # The row convention: the l1 norm of x -> x W is the largest row sum.
    assert matrix_norm(W, "l1", rows=True) == pytest.approx(np.abs(W).sum(1).max(), rel=1e-15)
    # Proposition 22 is an equality: W1 of images of Dirac measures.
    L = reg.lookup(W)
    e = np.eye(3)[best]
    images = L.at(e), L.at(np.zeros(3))
    assert w1(*images, "l1") == pytest.approx(reg.lookup_bound(W, "l1").value, rel=1e-14)


@pytest.mark.parametrize("n", [1, 2, 7, 100, 10**6])
def test_lemma_25_is_sharp(n):
    sharp, printed = reg.gaussian_mean_bound(n), reg.gaussian_mean_bound(n, "paper")
    z = np.linspace(0, 8, 400001)
    values = n * z * np.exp(-(z**2)) / (1 + n * np.exp(-(z**2)))
    assert values.max() == pytest.approx(sharp.value, rel=1e-9)
    assert sharp.value < printed.value
    assert (sharp.certifies, printed.certifies) == (True, False)
    w = mp.lambertw(n / (2 * mp.sqrt(mp.e)))
    assert sharp.value == pytest.approx(float(w / mp.sqrt(w + 0.5)), rel=1e-14)


def test_lemma_25_holds_for_unequal_numbers():
    rng = np.random.default_rng(2)
    for n in (2, 5, 30):
        z = np.abs(rng.normal(1.2, 0.6, size=(20000, n)))
        kernel = np.exp(-(z**2))
        found = ((z * kernel).sum(1) / (1 + kernel.sum(1))).max()
        bound = reg.gaussian_mean_bound(n).value
        assert 0.8 * bound < found <= bound


def test_lemma_26():
    rng = np.random.default_rng(3)

    def product(a, b):
        points = np.concatenate([np.repeat(a.points, len(b), 0), np.tile(b.points, (len(a), 1))], 1)
        return mf.Measure(points, np.outer(a.masses, b.masses).ravel())

    for _ in range(20):
        a, b, c, d = (
            mf.Measure(rng.normal(size=(4, 2)), rng.dirichlet(np.ones(4))) for _ in range(4)
        )
        for norm in NORMS:
            bound = reg.product_bound(w1(a, c, norm), w1(b, d, norm), norm).value
            found = w1(product(a, b), product(c, d), norm)
            assert found <= bound * (1 + 1e-12)
            if norm == "l1":
                assert found == pytest.approx(bound, rel=1e-12)


@pytest.mark.parametrize("reach", [1e-1, 1e-2, 1e-3])
def test_query_bound_is_sharp(reach):
    # One key gains what the other loses: at x = 0 the ratio is slope Dm / (2 G(0)), and
    # G(0) -> eps as E shrinks.
    level, slope, h = 0.5, 0.25, 1e-6
    G = reg.Custom(lambda x, y: np.log(level + slope * np.sign(y[:, 0]) * x))
    dip = slope * reach
    E = reg.Box(reach, 1)
    c = reg.given_constants(slope, 0.0, level - dip, level + dip, E, "l1")
    mu = mf.Measure([[-reach], [reach]])
    outputs = [reg.softmatch(mu, G).at([x]) for x in (h, -h)]
    ratio = w1(*outputs, "l1") / (2 * h)
    bound = reg.query_bound(c)
    assert ratio == pytest.approx(bound.value * (1 - dip / level), rel=1e-8)
    assert reg.query_bound(c, "paper").value == pytest.approx(4 * bound.value)


@pytest.mark.parametrize("d", [1, 2, 5])
def test_exponential_query_bound_is_attained_on_the_ball(d):
    rng = np.random.default_rng(d)
    B, R = rng.normal(size=(d, d)), 1.7
    E, G = reg.Ball(R, d), reg.Bilinear(B)
    bound = reg.exponential_query_bound(G, E, "l2")
    left, sizes, right = np.linalg.svd(B)
    assert bound.value == pytest.approx(sizes[0] * R**2, rel=1e-13)
    A = reg.attention_kernel(mf.Measure([R * right[0], -R * right[0]]), G)
    h = 1e-5
    out = A.on_measure(mf.Measure([h * left[:, 0], -h * left[:, 0]])).points
    assert np.linalg.norm(out[0] - out[1]) / (2 * h) == pytest.approx(bound.value, rel=1e-7)


@pytest.mark.parametrize(("norm", "E"), [("l1", reg.Box(0.9, 1)), ("l2", reg.Ball(0.9, 3))])
def test_exponential_key_bound_is_attained(norm, E):
    # A vanishing mass at the far end of the steepest direction, all others at the near end.
    G = reg.ScaledDotProduct(1.0)
    d, w, h = E.dimension, 1e-6, 1e-4
    q = 0.9 * np.eye(d)[0]
    ends = np.stack([q, -q])
    moved = np.stack([q * (1 - h), -q])
    images = [
        reg.softmatch(mf.Measure(points, [w, 1 - w]), G).on_function(lambda z: z)(q[None])
        for points in (ends, moved)
    ]
    ratio = vector_norm(images[0] - images[1], norm).item() / (w * 0.9 * h)
    bound = reg.exponential_key_bound(G, E, norm)
    assert ratio == pytest.approx(bound.value, rel=3e-4)
    assert ratio <= bound.value
    assert reg.exponential_key_bound(G, E, norm, query=q).value == pytest.approx(bound.value)
    assert reg.exponential_key_bound(G, E, norm, query=q / 2).value < bound.value


@pytest.mark.parametrize("slope", [0.01, 0.9, 1.5, 4.0, 30.0])
@pytest.mark.parametrize("count", [1, 2, 20, 1000])
def test_token_factor_is_the_maximum(slope, count):
    r = np.sqrt(slope / 2)  # k Dm = 2 r^2 on [-r, r]
    bound = reg.exponential_key_bound(reg.ScaledDotProduct(), reg.Box(r, 1), "l1", n_tokens=count)
    p = np.linspace(0, 1, 200001) / (1 + (count - 1) * np.exp(-slope))
    assert (count * p * (1 + slope * (1 - p))).max() == pytest.approx(bound.value, rel=1e-8)
    if count == 1:
        assert bound.value == pytest.approx(1 if slope <= 1 else (1 + slope) ** 2 / (4 * slope))
    general = reg.exponential_key_bound(reg.ScaledDotProduct(), reg.Box(r, 1), "l1").value
    assert bound.value <= general * (1 + 1e-12)


def test_ball_total():
    B = np.diag([2.0, -1.0])
    beta = 2 * 0.8**2
    bound = reg.exponential_attention_bound(
        reg.Bilinear(B), reg.Ball(0.8, 2), "l2", lookup=reg.lookup_bound(3 * np.eye(2), "l2")
    )
    expected = 3 * (beta + np.exp(2 * beta) * (1 + 2 * beta))
    assert bound.value == pytest.approx(expected, rel=1e-13)


def test_gaussian_bounds():
    # Corollary 17 at d = 1 for N = 2 and 30 as printed.
    assert digits(reg.gaussian_attention_bound(2, 1, variant="paper").value, 9.61)
    assert digits(reg.gaussian_attention_bound(30, 1, variant="paper").value, 11.25)
    for n in (3, 31, 1001):
        w = mp.lambertw((n - 1) / mp.e)
        assert reg.gaussian_lower_bound(n).value == pytest.approx(float(2 * w), rel=1e-14)
        for d in (1, 3):
            upper = reg.gaussian_attention_bound(n, d)
            g = reg.gaussian_mean_bound(n - 1).value
            rest = 1 + np.sqrt(2 * d) + 2 * g * (d / 2) ** 0.25
            assert upper.value == pytest.approx(float(2 * w) + np.sqrt(n) * rest, rel=1e-13)
            tight = reg.gaussian_attention_bound(n, d, effective=2.0)
            assert tight.value == pytest.approx(float(2 * w) + np.sqrt(2) * rest, rel=1e-13)
    assert reg.gaussian_lower_bound(30).value == reg.gaussian_lower_bound(29).value
    # Other lengths: the least common multiple, printed: the minimum.
    other = reg.gaussian_attention_bound(4, 1, 6)
    assert other.value == reg.gaussian_attention_bound(12, 1).value
    assert "Theorem 16" in other.item
    printed = reg.gaussian_attention_bound(4, 1, 6, variant="paper")
    assert printed.value == reg.gaussian_attention_bound(4, 1, variant="paper").value
    alone = reg.gaussian_attention_bound(1, 2)
    assert alone.value == pytest.approx(1 + np.sqrt(4))


def test_gaussian_lower_bound_is_reached():
    # (N-1)/2 tokens at each of -r and r, the query at 0: 2 Var of the softmax is the bound.
    n = 101
    bound = reg.gaussian_lower_bound(n).value
    r = np.linspace(0.5, 4, 200001)
    p = (n - 1) * np.exp(-(r**2)) / (1 + (n - 1) * np.exp(-(r**2)))
    assert (2 * r**2 * p).max() == pytest.approx(bound, rel=1e-8)


def test_compositions():
    rng = np.random.default_rng(4)
    heads, outputs, expected = [], rng.normal(size=(3, 2, 4)), 0.0
    E, C = reg.Ball(1.0, 4), 1.0
    for h in range(3):
        WQ, WK, WV = rng.normal(size=(3, 2, 4)) / 3
        layer = reg.AttentionLayer.from_weights(WQ, WK, WV)
        C = reg.exponential_attention_bound(layer.potential, E, "l2").value
        value = reg.lookup_bound(WV, "l2")
        heads.append(reg.exponential_attention_bound(layer.potential, E, "l2", lookup=value))
        expected += C * np.linalg.norm(WV, 2) * np.linalg.norm(outputs[h], 2)
    several = reg.multi_head_bound(heads, outputs)
    assert several.value == pytest.approx(expected, rel=1e-13)
    # In l1 the outputs, which act from the right, have the largest row sum.
    W = np.array([[1.0, -2.0, 0.0], [0.5, 0.0, 0.5]])
    two = [reg.lookup_bound(2.0, "l1"), reg.lookup_bound(1.0, "l1")]
    assert reg.multi_head_bound(two, [W, W]).value == pytest.approx(2 * 3 + 3, rel=1e-14)
    network = reg.lookup_bound(2.5, "l2")
    deep = reg.depth_bound(several, network, several)
    assert deep.value == pytest.approx(2.5 * expected**2, rel=1e-12)
    assert deep.certifies
    assert "each layer maps into the domain of the next" in deep.unchecked
    with pytest.raises(InputError, match="outputs"):
        reg.multi_head_bound(heads, outputs[:2])
    with pytest.raises(InputError, match="at least one"):
        reg.depth_bound()
    with pytest.raises(InputError, match="from above"):
        reg.depth_bound(network, reg.attention_lower_bound(norm="l2"))


def test_values_beyond_doubles():
    bound = reg.exponential_attention_bound(reg.ScaledDotProduct(), reg.Box(100.0, 64), "l1")
    k = 2 * np.sqrt(64) * 100.0**2
    assert bound.value == np.inf
    assert bound.log10_value == pytest.approx((k + np.log1p(k)) / np.log(10), rel=1e-14)
    assert bound.certifies
    many = reg.exponential_attention_bound(
        reg.ScaledDotProduct(), reg.Box(100.0, 64), "l1", n_tokens=64
    )
    assert np.isfinite(many.value)


def test_layer_norm_scale():
    """Gaussian weights, tokens of norm sqrt d, d = N = 64: the mean-field bound says nothing."""
    d = 64
    rng = np.random.default_rng(5)
    WQ, WK = rng.normal(size=(2, d, d)) / np.sqrt(d)
    G, E = reg.Bilinear(WQ.T @ WK, np.sqrt(d)), reg.Ball(np.sqrt(d), d)
    tokens = reg.exponential_attention_bound(G, E, "l2", n_tokens=64)
    everything = reg.exponential_attention_bound(G, E, "l2")
    beta = np.linalg.norm(G.matrix(d), 2) * d
    assert tokens.value < 64 * (1 + 2 * beta) ** 2 / (8 * beta) + beta + 1e-9
    assert everything.log10_value > 10
    assert 1e2 < tokens.value < 1e3


def test_records():
    c = reg.given_constants(0.0, 1.0, 0.5, 2.5, reg.Box(1.0, 1), "l1")
    bound = reg.attention_bound(c, lookup=2.0)
    assert bound.certifies
    assert bound.source.endswith("Theorem 14, corrected")
    assert "the constants are those of G on E" in bound.unchecked
    assert "Lip(l) is measured in l1" in bound.unchecked
    assert "all tokens lie in E" in bound.unchecked
    assert str(bound) == "Theorem 14 (valid, l1): <= 18, certifies"
    printed = reg.attention_bound(c, lookup=2.0, variant="paper")
    assert str(printed) == "Theorem 14 (paper, l1): <= 16, does not certify"
    # What rests on a bound that does not certify does not certify either.
    doubtful = reg.attention_bound(c, lookup=printed)
    assert doubtful.variant == "valid"
    assert not doubtful.certifies
    assert not reg.depth_bound(bound, printed).certifies
    # The Gaussian bound needs the self token.
    assert [reg.gaussian_attention_bound(5, 1, self_token=t).certifies
            for t in (True, None, False)] == [True, True, False]  # fmt: skip
    assert reg.attention_lower_bound().kind == "lower"


def test_queries_are_checked():
    c = reg.potential_constants(reg.ScaledDotProduct(), reg.Ball(1.0, 2), "l2")
    asked = reg.attention_query_bound(c)
    checked = reg.attention_query_bound(c, queries=[[0.6, 0.8]])
    assert "the queries lie in E" in asked.unchecked
    assert "the queries lie in E" not in checked.unchecked
    with pytest.raises(PointsError, match="1 of 2 queries lie outside"):
        reg.attention_query_bound(c, queries=[[0.6, 0.8], [1.0, 1.0]])
    with pytest.raises(PointsError, match="outside"):
        reg.potential_constants(reg.ScaledDotProduct(), reg.Box(1.0, 1), "l1", query=[1.1])
    with pytest.raises(PointsError, match="outside"):
        reg.exponential_key_bound(reg.ScaledDotProduct(), reg.Box(1.0, 1), "l1", query=[1.1])
    # Corollary 15: Lip(l) a Dm / (2 eps) = 3 beta exp(2 beta) on the ball, beta = R^2 / sqrt 2.
    beta = 1 / np.sqrt(2)
    valued = reg.attention_query_bound(c, lookup=3.0)
    assert valued.value == pytest.approx(3 * beta * np.exp(2 * beta), rel=1e-13)
    # Printed: d^{3/2} and a factor 4 larger, with constants in l1; true.
    box = reg.Box(0.5, 4)
    l1 = reg.potential_constants(reg.ScaledDotProduct(), box, "l1")
    printed = reg.attention_query_bound(l1, variant="paper")
    s = 2 * 0.5**2
    assert printed.norm == "l2"
    assert printed.value == pytest.approx(4**1.5 * 2 * 2 * s * np.exp(2 * s), rel=1e-13)


def refused(error, match, function, *args, **keywords):
    with pytest.raises(error, match=match):
        function(*args, **keywords)


def test_bad_input_is_named():
    G, box = reg.ScaledDotProduct(), reg.Box(1.0, 2)
    c1 = reg.potential_constants(G, box, "l1")
    c2 = reg.potential_constants(G, box, "l2")
    l2 = reg.lookup_bound(np.eye(2), "l2")
    for bound in (reg.attention_bound, reg.cross_attention_bound):
        refused(InputError, "one norm throughout", bound, c1, lookup=l2)
    refused(InputError, "one norm", reg.exponential_attention_bound, G, box, "l1", lookup=l2)
    refused(InputError, "one norm", reg.gaussian_attention_bound, 3, 2, lookup=l2, variant="paper")
    refused(InputError, "one norm", reg.attention_query_bound, c1)
    refused(InputError, "one norm", reg.attention_query_bound, c2, variant="paper")
    mixed = (reg.lookup_bound(1.0, "l1"), l2)
    refused(InputError, "one norm", reg.depth_bound, *mixed)
    refused(InputError, "one norm", reg.multi_head_bound, mixed, [np.eye(2)] * 2)
    refused(InputError, "norm must be", reg.potential_constants, G, box, "l3")
    refused(InputError, "inf G", reg.given_constants, 1.0, 1.0, 0.0, 1.0, box, "l1")
    refused(InputError, "inf G", reg.given_constants, 1.0, 1.0, 1.0, np.inf, box, "l1")
    refused(InputError, "finite and >= 0", reg.given_constants, np.nan, 1.0, 1.0, 1.0, box, "l1")
    refused(MatrixError, "NaN", reg.lookup_bound, [[np.nan]], "l1")
    refused(InputError, "Lip", reg.lookup_bound, np.nan, "l1")
    refused(MatrixError, "NaN", reg.Bilinear, [[np.nan]])
    refused(MatrixError, "live in", reg.exponential_query_bound, reg.Bilinear(np.eye(3)), box, "l1")
    wide = reg.Bilinear(np.ones((2, 3)))
    refused(MatrixError, "share E", reg.exponential_key_bound, wide, box, "l1")
    refused(InputError, "exponential", reg.exponential_key_bound, reg.Gaussian(), box, "l1")
    custom = reg.Custom(lambda x, y: x @ y.T)
    refused(InputError, "given_constants", reg.potential_constants, custom, box, "l1")
    refused(InputError, "variant", reg.attention_bound, c1, variant="printed")
    refused(InputError, "form", reg.attention_bound, c1, form="best")
    refused(InputError, "l1 only", reg.exponential_query_bound, G, box, "l2", form="oscillation")
    refused(InputError, "n_tokens", reg.exponential_key_bound, G, box, "l1", n_tokens=0)
    refused(InputError, "N_eff", reg.gaussian_attention_bound, 3, 1, effective=4)
    refused(InputError, "n must be", reg.gaussian_mean_bound, 0)
    refused(InputError, "radius", reg.Ball, -1.0, 2)
    refused(InputError, "dimension", reg.Box, 1.0, 1.5)
    refused(PointsError, "R\\^1", box.require, [[0.5]])
