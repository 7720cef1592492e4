"""Heads of transformers: the form, its origin, its leading directions, constants and bounds."""

import numpy as np
import pytest

from meanfield.errors import InputError, MatrixError, PointsError
from meanfield.regularity.domains import Ball
from meanfield.regularity.exponential_bounds import exponential_attention_bound
from meanfield.regularity.head_constants import clustered_tokens, head_constants
from meanfield.regularity.heads import TransformerHead, product_svd
from meanfield.regularity.local import local_constant
from meanfield.regularity.potentials import Bilinear


def random_head(seed=0, h=3, d=7, k=4, size=1.0):
    rng = np.random.default_rng(seed)
    return TransformerHead(
        query=size * rng.normal(size=(h, d)),
        key=rng.normal(size=(h, d)),
        value=rng.normal(size=(k, d)),
        output=rng.normal(size=(d, k)),
        query_bias=rng.normal(size=h),
        key_bias=rng.normal(size=h),
        value_bias=rng.normal(size=k),
    )


def tokens_of(seed=1, count=9, d=7):
    return np.random.default_rng(seed).normal(size=(count, d))


def textbook(head, x):
    """Softmax attention as it is written everywhere."""
    q, k = x @ head.query.T + head.query_bias, x @ head.key.T + head.key_bias
    p = np.exp(q @ k.T / head.scale)
    p /= p.sum(axis=1, keepdims=True)
    return (p @ (x @ head.value.T + head.value_bias)) @ head.output.T


def test_attention_is_the_textbook_one():
    head, x = random_head(), tokens_of()
    np.testing.assert_allclose(head.attend(x, x), textbook(head, x), rtol=0, atol=1e-13)


def test_gradients_of_the_scores():
    head, x, step = random_head(), tokens_of(), 1e-6
    moves = step * np.eye(7)
    for which, gradient in ((0, head.grad_query(x[:1], x[1:2])), (1, head.grad_key(x[:1], x[1:2]))):
        ends = [x[:2].copy() for _ in range(14)]
        for end, move in zip(ends, [*moves, *-moves], strict=True):
            end[which] += move
        values = np.array([head.log(end[:1], end[1:])[0, 0] for end in ends])
        found = (values[:7] - values[7:]) / (2 * step)
        np.testing.assert_allclose(gradient[0, 0], found, atol=1e-8)


@pytest.mark.parametrize("norm", ["l2", "l1"])
def test_the_local_constant_is_that_of_the_textbook_map(norm):
    head, x = random_head(), tokens_of(count=5)
    order = {"l1": 1, "l2": 2}[norm]
    found = local_constant(x, head, value=head.value_map, norm=norm)
    u = found.direction
    step = 1e-6 * u / np.linalg.norm(u, order)
    ends = []
    for sign in (1, -1):
        moved = x.copy()
        moved[found.token] += sign * step
        ends.append(textbook(head, moved))
    change = np.linalg.norm(ends[0] - ends[1], order, axis=1).sum() / 2e-6
    assert found.value == pytest.approx(change, rel=1e-7)


def test_spectrum_is_that_of_the_symmetric_part():
    for h, d in ((3, 7), (5, 7)):
        head = random_head(h=h, d=d)
        values, vectors = head.spectrum
        full = np.linalg.eigvalsh((head.form + head.form.T) / 2)
        expected = full[np.argsort(-np.abs(full))]
        count = min(2 * h, d)
        assert len(values) == count
        np.testing.assert_allclose(np.sort(values), np.sort(expected[:count]), atol=1e-13)
        np.testing.assert_allclose(expected[count:], 0, atol=1e-13)
        symmetric = (head.form + head.form.T) / 2
        np.testing.assert_allclose(symmetric @ vectors, vectors * values, atol=1e-13)
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(count), atol=1e-13)


def test_singular_values_of_a_product():
    rng = np.random.default_rng(4)
    left, right = rng.normal(size=(9, 2)), rng.normal(size=(6, 2))
    U, s, V = product_svd(left, right)
    np.testing.assert_allclose(U * s @ V.T, left @ right.T, atol=1e-14)
    assert random_head().form_norm == pytest.approx(np.linalg.norm(random_head().form, 2))


def test_from_its_centre_the_head_is_bilinear():
    head, x = random_head(), tokens_of()
    centre = head.bilinear_centre(x.mean(axis=0))
    np.testing.assert_allclose(head.form.T @ centre + head.tilt, 0, atol=1e-13)
    plain = Bilinear(head.form).log(x - centre, x - centre)
    difference = head.log(x, x) - plain
    # What depends on the query alone changes no attention.
    np.testing.assert_allclose(difference, difference[:, :1] + 0 * difference, atol=1e-12)
    # The nearest one: the way there is orthogonal to all directions that keep it bilinear.
    away = x.mean(axis=0) - centre
    null = np.linalg.svd(head.query)[2][3:]
    np.testing.assert_allclose(null @ away, 0, atol=1e-13)
    with pytest.raises(InputError, match="outside the range of W_Q"):
        TransformerHead(np.zeros((1, 2)), [[1.0, 0.0]], query_bias=[1.0]).bilinear_centre([0, 0])


def test_projection_on_the_sphere():
    head, x = random_head(), tokens_of()
    D, points = head.on_sphere(x)
    values, vectors = head.spectrum
    squared = ((x @ vectors[:, :3]) ** 2).sum() / len(x)
    np.testing.assert_allclose(np.diag(D), values[:3] * squared, rtol=1e-14)
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1, atol=1e-15)
    for directions in (1, 7):
        with pytest.raises(InputError, match="has 6 directions: between 2 and as many"):
            head.on_sphere(x, directions)
    with pytest.raises(PointsError, match="zero"):
        head.on_sphere(np.zeros((2, 7)))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("seed", range(3))
def test_constants_lie_between_their_bounds(seed, norm, causal):
    head, x = random_head(seed, size=0.4), tokens_of(seed)
    found = head_constants(head, x, norm, causal)
    assert 0 < found.local.value <= found.adversarial <= found.tokens_bound.value
    assert found.tokens_bound.certifies
    if causal:
        assert found.measures_bound is None
        return
    assert found.tokens_bound.value <= found.measures_bound.value * (1 + 1e-12)


@pytest.mark.parametrize("causal", [False, True])
def test_bounds_hold_at_random_tokens_in_the_ball(causal):
    head, x = random_head(5, size=0.3), tokens_of(5, count=6)
    found = head_constants(head, x, causal=causal)
    centre = head.bilinear_centre(x.mean(axis=0))
    rng = np.random.default_rng(0)
    for _ in range(40):
        y = rng.normal(size=x.shape)
        y *= found.radius * rng.uniform(size=(len(y), 1)) / np.linalg.norm(y, axis=1)[:, None]
        y[1:] = y[1:2] if rng.uniform() < 0.5 else y[1:]
        local = local_constant(y + centre, head, value=head.value_map, causal=causal)
        assert local.value <= found.tokens_bound.value


def test_without_scores_the_bound_for_a_causal_head_is_the_harmonic_sum():
    # All weights equal: query i passes on 1/i of token 1, which 1 + 1/2 + ... + 1/N attains.
    head = TransformerHead(np.zeros((2, 3)), np.ones((2, 3)))
    found = head_constants(head, tokens_of(d=3, count=6), causal=True)
    harmonic = (1 / np.arange(1, 7)).sum()
    assert found.local.value == pytest.approx(harmonic, rel=1e-12)
    assert found.tokens_bound.value == pytest.approx(harmonic, rel=1e-12)
    plain = head_constants(head, tokens_of(d=3, count=6))
    assert plain.local.value == pytest.approx(1, rel=1e-12)
    assert plain.tokens_bound.value == pytest.approx(1, rel=1e-12)


def test_the_search_comes_close_to_the_bound():
    # The general search of `adversarial_constant` finds 12.969 and 34.028 here.
    head = TransformerHead(np.eye(2), -np.eye(2), scale=1.0)
    for radius, least in ((1.5, 12.95), (3.0, 39.6)):
        tokens = clustered_tokens(head, radius, 10)
        assert np.linalg.norm(tokens, axis=1).max() <= radius * (1 + 1e-12)
        bound = exponential_attention_bound(Bilinear(head.form), Ball(radius, 2), "l2", n_tokens=10)
        assert least < local_constant(tokens, head).value < bound.value


def test_a_head_without_a_centre_has_no_bounds():
    head = TransformerHead(np.zeros((1, 3)), [[1.0, 0.0, 0.0]], query_bias=[1.0])
    found = head_constants(head, np.eye(3))
    assert (found.tokens_bound, found.measures_bound) == (None, None)
    assert found.adversarial == found.local.value > 0


BAD = [
    ({"key": np.eye(3)}, MatrixError, "query has shape"),
    ({"value": np.eye(2)}, MatrixError, "give both value and output"),
    ({"value": np.eye(2), "output": np.eye(3)}, MatrixError, "they must be"),
    ({"query": [[np.nan, 0], [0, 1]]}, MatrixError, "query contains NaN"),
    ({"key_bias": [1.0]}, MatrixError, "key_bias must be 2 finite numbers"),
    ({"scale": 0.0}, InputError, "scale must be positive"),
]


@pytest.mark.parametrize(("change", "error", "message"), BAD)
def test_bad_heads(change, error, message):
    with pytest.raises(error, match=message):
        TransformerHead(**({"query": np.eye(2), "key": np.eye(2)} | change))


def test_bad_tokens():
    head = random_head()
    with pytest.raises(InputError, match="two tokens or more"):
        head_constants(head, tokens_of(count=1))
    with pytest.raises(MatrixError, match=r"takes queries of shape \(m, 7\), got \(2, 3\)"):
        head.log(np.ones((2, 3)), np.ones((2, 7)))
    with pytest.raises(InputError, match="norm must be"):
        head_constants(head, tokens_of(), norm="linf")
