"""Texts of different lengths: exact cases, and the bounds over random pairs."""

import numpy as np
import pytest

from meanfield.errors import InputError, MatrixError, PointsError
from meanfield.measures import Measure
from meanfield.regularity.domains import Ball, Box
from meanfield.regularity.lengths import (
    compare_texts,
    exact_wasserstein,
    smallest_bound,
    token_effects,
)
from meanfield.regularity.operators import self_attention
from meanfield.regularity.potentials import Bilinear, Custom, Gaussian, ScaledDotProduct

FLAT = ScaledDotProduct(1e12)  # G = 1: attention maps to the mean


def test_repeating_a_text_changes_nothing():
    x = np.random.default_rng(0).uniform(-1, 1, (4, 3))
    found = compare_texts(x, np.repeat(x, 3, axis=0), ScaledDotProduct(), Box(1.0, 3))
    assert found.input_distance < 1e-15
    assert found.output_distance < 1e-15


def test_flat_potential_moves_by_the_means():
    rng = np.random.default_rng(1)
    x, y = rng.uniform(-1, 1, (4, 3)), rng.uniform(-1, 1, (7, 3))
    W = rng.standard_normal((2, 3))
    for norm, order in (("l1", 1), ("l2", 2)):
        found = compare_texts(x, y, FLAT, Box(1.0, 3), W, norm)
        moved = W @ (x.mean(0) - y.mean(0))
        assert found.output_distance == pytest.approx(np.linalg.norm(moved, order), rel=1e-9)


def test_deleting_one_of_three_in_closed_form():
    effects = token_effects([[-1.0], [0.0], [1.0]], FLAT, Box(1.0, 1))
    np.testing.assert_allclose(effects.input_distance, [1 / 2, 1 / 3, 1 / 2], rtol=1e-12)
    np.testing.assert_allclose(effects.output_distance, [1 / 2, 0, 1 / 2], atol=1e-11)
    assert effects.bound.value == pytest.approx(1, abs=1e-10)


def test_negating_moves_one_token():
    x = np.array([[0.9, -0.4], [0.0, 0.0], [0.5, 0.5]])
    effects = token_effects(x, Gaussian(), Ball(1.0, 2), "negate", norm="l2", chosen=[0, 1])
    assert effects.input_distance[0] == pytest.approx(2 * np.linalg.norm(x[0]) / 3)
    assert effects.input_distance[1] == 0
    assert effects.output_distance[1] < 1e-15
    assert effects.ratio[1] == 0


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_bounds_hold_for_random_pairs_of_any_lengths(norm):
    rng = np.random.default_rng(2)
    closest = 0.0
    for _ in range(150):
        d, r = rng.integers(1, 4), rng.choice([0.1, 0.5, 1.0])
        x, y = (r * rng.choice([-1.0, 0.0, 1.0], (n, d)) for n in rng.integers(1, 7, 2))
        if rng.random() < 0.5:
            y = np.concatenate([x, y])
        potential = [ScaledDotProduct(), ScaledDotProduct(-1.0), Gaussian()][rng.integers(3)]
        found = compare_texts(x, y, potential, Box(r, d), norm=norm)
        assert found.bound.certifies
        assert found.output_distance <= found.bound.value * found.input_distance + 1e-12
        closest = max(closest, found.ratio / found.bound.value)
    assert closest > 0.8  # the bounds are not far away


def test_effects_stay_below_the_bound_and_pass_one():
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, (12, 2))
    potential, box = ScaledDotProduct(-0.5), Box(1.0, 2)
    for change in ("delete", "negate"):
        effects = token_effects(x, potential, box, change)
        assert (effects.ratio <= effects.bound.value).all()
        i = int(effects.ratio.argmax())
        signs = np.where(np.arange(len(x)) == i, -1.0, 1.0)[:, None]
        y = np.delete(x, i, axis=0) if change == "delete" else signs * x
        again = compare_texts(x, y, potential, box)
        assert again.ratio == pytest.approx(effects.ratio[i], rel=1e-9)
        assert again.bound.value == effects.bound.value


def test_bound_grows_with_the_common_length_and_stays_below_all_measures():
    potential, box = ScaledDotProduct(-1.0), Box(1.0, 1)
    same = smallest_bound(potential, box, "l1", n_tokens=6)
    other = smallest_bound(potential, box, "l1", n_tokens=6, other_tokens=5)
    every = smallest_bound(potential, box, "l1")
    assert same.value < other.value < every.value
    assert other.value == smallest_bound(potential, box, "l1", n_tokens=30).value


def test_exact_distance_of_outputs_by_hand():
    x, y = np.array([[0.0], [1.0]]), np.array([[0.5]])
    found = compare_texts(x, y, Gaussian(), Box(1.0, 1))
    outputs = self_attention(Measure(x), Gaussian()).points[:, 0]
    assert found.input_distance == pytest.approx(0.5)
    assert found.output_distance == pytest.approx(np.abs(outputs - 0.5).mean())
    assert exact_wasserstein(x, [0.25, 0.75], y, [1.0], "l1") == pytest.approx(0.5)


def test_bad_input():
    x, potential, box = np.zeros((3, 2)), ScaledDotProduct(), Box(1.0, 2)
    with pytest.raises(InputError, match="delete"):
        token_effects(x, potential, box, "swap")
    with pytest.raises(InputError, match="two tokens"):
        token_effects(x[:1], potential, box)
    with pytest.raises(InputError, match="chosen"):
        token_effects(x, potential, box, chosen=[3])
    with pytest.raises(InputError, match="chosen"):
        token_effects(x, potential, box, chosen=[])
    with pytest.raises(InputError, match="'l1' or 'l2'"):
        compare_texts(x, x, potential, box, norm="max")
    with pytest.raises(PointsError, match="outside"):
        compare_texts(x, x + 2, potential, box)
    with pytest.raises(PointsError, match="NaN"):
        compare_texts(x, x * np.nan, potential, box)
    with pytest.raises(PointsError):
        compare_texts(x, np.zeros((2, 3)), potential, box)
    with pytest.raises(MatrixError):
        compare_texts(x, x, potential, box, value=[[np.nan, 0.0]])
    with pytest.raises(MatrixError):
        compare_texts(x, x, Bilinear(np.eye(3)), box)
    with pytest.raises(InputError, match="given_constants"):
        compare_texts(x, x, Custom(lambda a, b: a @ b.T), box)
