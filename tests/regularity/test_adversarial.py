"""Adversarial constants against the known suprema and the bounds that certify."""

import numpy as np
import pytest

from meanfield.errors import InputError
from meanfield.measures import Measure
from meanfield.regularity.adversarial import adversarial_constant, stretch
from meanfield.regularity.bounds import attention_bound
from meanfield.regularity.constants import potential_constants
from meanfield.regularity.domains import Ball, Box
from meanfield.regularity.exponential_bounds import (
    exponential_attention_bound,
    exponential_key_bound,
    exponential_query_bound,
)
from meanfield.regularity.gaussian_bounds import gaussian_attention_bound, gaussian_lower_bound
from meanfield.regularity.local import local_constant
from meanfield.regularity.operators import cross_attention
from meanfield.regularity.potentials import Bilinear, Custom, Gaussian, ScaledDotProduct

# d, r, and the suprema found for x.y/sqrt(d), its negative, and its negative with free weights
TABLE = [
    (1, 0.1, 1.013, 1.033, 1.041),
    (1, 0.3, 1.110, 1.337, 1.413),
    (1, 1.0, 2.166, 13.0, 22.17),
    (1, 1.5, 3.269, 28.7, 495.1),
    (2, 0.1, 1.023, 1.051, 1.058),
    (2, 1.0, 2.814, 22.4, 64.8),
    (4, 0.1, 1.034, 1.075, 1.082),
    (4, 1.0, 3.49, 29.0, 273.0),
]


@pytest.mark.parametrize(("d", "r", "dot", "minus", "weighted"), TABLE)
def test_suprema_of_the_dot_product(d, r, dot, minus, weighted):
    E, plus, negative = Box(r, d), ScaledDotProduct(), ScaledDotProduct(-np.sqrt(d))
    for potential, expected in ((plus, dot), (negative, minus)):
        found = adversarial_constant(potential, E, 20, starts=3)
        assert found.confirmed
        assert found.value > expected * 0.998
        assert found.value < exponential_attention_bound(potential, E, "l1", n_tokens=20).value
        assert E.contains(found.tokens).all()
    found = adversarial_constant(negative, E, 6, weights="free", starts=3, floor=1e-6 / 6)
    assert found.confirmed
    assert found.value > weighted * 0.999
    assert found.value < exponential_attention_bound(negative, E, "l1").value
    assert found.value < attention_bound(potential_constants(negative, E, "l1")).value
    # the key factor is sharp: attained to four digits
    assert found.value == pytest.approx(exponential_key_bound(negative, E, "l1").value, rel=1e-4)


@pytest.mark.parametrize(
    ("count", "expected"), [(2, 1.602), (5, 2.753), (10, 3.407), (20, 4.081), (30, 4.493)]
)
def test_suprema_of_the_gaussian(count, expected):
    found = adversarial_constant(Gaussian(), Box(4.0, 1), count, starts=3)
    assert found.confirmed
    assert found.value == pytest.approx(expected, rel=2.5e-4)  # known to four digits
    assert gaussian_lower_bound(count).value < found.value
    assert found.value < gaussian_attention_bound(count, 1, self_token=True).value


@pytest.mark.parametrize(("norm", "expected"), [("l1", 3.252), ("l2", 2.753)])
def test_gaussian_in_the_plane(norm, expected):
    found = adversarial_constant(Gaussian(), Box(3.0, 2), 5, norm=norm)
    assert found.confirmed
    assert found.value == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize("d", [2, 3])
def test_a_triangle_passes_what_lies_on_a_line(d):
    # one token, its mirror image, the others at one place; from starts on lines alone 34.03
    ball, minus = Ball(3.0, d), ScaledDotProduct(-1.0)
    found = adversarial_constant(minus, ball, 10, norm="l2", starts=3)
    assert found.confirmed
    assert found.value == pytest.approx(39.6419, rel=1e-5)
    bound = exponential_attention_bound(minus, ball, "l2", n_tokens=10)
    assert bound.value == pytest.approx(59.14, abs=0.005)
    assert np.linalg.norm(np.ptp(found.tokens[2:], axis=0)) < 0.01


def test_query_bound_is_attained():
    # keys at R and -R, the query at their centre
    R, h, G = 1.3, 1e-4, ScaledDotProduct(1.0)
    keys = Measure([[R, 0.0, 0.0], [-R, 0.0, 0.0]])
    out = [cross_attention(Measure([[s, 0.0, 0.0]]), keys, G).points[0, 0] for s in (h, -h)]
    slope = (out[0] - out[1]) / (2 * h)
    assert slope == pytest.approx(exponential_query_bound(G, Ball(R, 3), "l2").value, rel=1e-7)


def test_batched_constants_equal_the_local_one():
    rng = np.random.default_rng(0)
    B = rng.standard_normal((3, 3))
    custom = Custom(
        lambda x, y: np.tanh(x @ y.T),
        lambda x, y: (1 - np.tanh(x @ y.T) ** 2)[..., None] * y,
        lambda x, y: (1 - np.tanh(x @ y.T) ** 2)[..., None] * x[:, None],
    )
    x, w = rng.standard_normal((4, 6, 3)), rng.uniform(0.1, 1, (4, 6))
    w /= w.sum(1, keepdims=True)
    for potential in (Bilinear(B), Gaussian(0.8), custom):
        for norm in ("l1", "l2"):
            values, _ = stretch(potential, x, w, norm)
            local = [
                local_constant(t, potential, v, norm=norm).per_token[0]
                for t, v in zip(x, w, strict=True)
            ]
            # the batch takes few ascent steps in l2
            tolerance = {"l1": 1e-11, "l2": 1e-3}[norm]
            np.testing.assert_allclose(values, local, rtol=tolerance)


def test_weights_stay_above_the_floor():
    found = adversarial_constant(
        ScaledDotProduct(-1.0), Ball(0.5, 2), 4, norm="l2", weights="free", starts=2
    )
    assert found.weights.min() >= 1e-3 / 4 * (1 - 1e-12)
    assert found.weights.sum() == pytest.approx(1)
    assert found.confirmed
    bound = exponential_attention_bound(ScaledDotProduct(-1.0), Ball(0.5, 2), "l2").value
    assert 1.4 < found.value < bound  # a weight of zero would allow exp(.5) 1.5 = 2.47


def test_same_seed_same_constant():
    first, second = (
        adversarial_constant(Gaussian(), Box(2.0, 1), 4, starts=2, seed=7) for _ in range(2)
    )
    assert first.value == second.value
    np.testing.assert_array_equal(first.tokens, second.tokens)


def test_bad_input():
    G, E = ScaledDotProduct(), Box(1.0, 1)
    with pytest.raises(InputError, match="'l1' or 'l2'"):
        adversarial_constant(G, E, 3, norm="max")
    with pytest.raises(InputError, match="weights"):
        adversarial_constant(G, E, 3, weights="any")
    with pytest.raises(InputError, match="n_tokens"):
        adversarial_constant(G, E, 1)
    with pytest.raises(InputError, match="starts"):
        adversarial_constant(G, E, 3, starts=0)
    with pytest.raises(InputError, match="floor"):
        adversarial_constant(G, E, 3, weights="free", floor=0.0)
    with pytest.raises(InputError, match="Box or a Ball"):
        adversarial_constant(G, 1.0, 3)
    with pytest.raises(InputError, match="Potential"):
        adversarial_constant(np.eye(1), E, 3)
