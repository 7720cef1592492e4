"""What theory predicts, against the closed forms and against what the flow does."""

import numpy as np
import pytest

import meanfield as mf
from meanfield.equilibria.uniform_growth import uniform_growth
from meanfield.errors import InputError, MatrixError


def kinds(states):
    return [(state.kind, state.stable) for state in states]


def test_the_known_states_are_stationary_and_have_their_energies():
    for D in ([1.0, 1.5], [-1.0, 0.4], [2.0, 2.0], [-1.0, 0.2, 0.5], [1.0, 1.0, 3.0, -2.0]):
        for sign in (1, -1):
            for state in mf.predict(D, sign).states:
                if state.measure is None:
                    continue
                assert mf.stationarity_residual(state.measure, mf.Interaction(D)) < 1e-14
                energy = mf.Interaction(D).on(state.measure.points).energy(state.measure.masses)
                assert state.energy == pytest.approx(energy, rel=1e-13)


def test_stability_is_what_the_spectrum_says():
    """Stable or not, and the leading rate, for clusters of five matrices and both signs."""
    for D in ([1.0, 1.5], [1.0, 1.1], [-1.0, 0.4], [-1.0, 0.2, 0.5], [0.3, 1.0, 3.0, -2.0]):
        for sign in (1, -1):
            model = mf.SelfAttention(D, sign)
            for state in mf.predict(D, sign).states:
                if state.kind not in ("dirac", "pair", "four points"):
                    continue
                splits = state.kind != "four points"
                found = mf.stability(state.measure, model, splitting=splits)
                assert state.stable == (found.index == 0), state
                if splits:
                    assert state.rate == pytest.approx(found.rates[0], abs=1e-9)


@pytest.mark.parametrize("values", [(0.2, 9.0), (1.0, 1.001), (3.0, 3.0), (20.0, 5.0)])
def test_four_points_are_stable_among_four(values):
    state = next(s for s in mf.predict(values, -1).states if s.kind == "four points")
    assert state.stable
    found = mf.stability(state.measure, mf.SelfAttention(values, -1), splitting=False)
    assert found.index == 0


def test_four_point_energies():
    for values, energy in (((1.0, 8.0), 1.5361394350), ((8.0, 9.0), 923.5880976392)):
        state = next(s for s in mf.predict(values, -1).states if s.kind == "four points")
        assert state.energy == pytest.approx(energy, rel=1e-10)


def test_numbers_of_clusters():
    assert mf.predict([1.0, 1.19967]).clusters == (1,)
    assert mf.predict([1.0, 1.19969]).clusters == (1, 2)
    assert mf.predict([-1.0, -2.0, -0.5]).clusters == (2,)
    assert mf.predict([-1.0, 0.5]).clusters == (1, 2)
    assert mf.predict([-1.0, 0.5], -1).clusters == (1,)
    assert mf.predict([1.0, 2.0], -1).clusters == ()
    assert mf.predict([1.0, 0.0, 0.0], -1).clusters == ()
    assert mf.predict([0.0, -1.0]).clusters == (2,)
    np.testing.assert_allclose(np.abs(mf.predict([3.0, 1.0, 1.0]).directions), [[1], [0], [0]])


def test_targets():
    minimal = mf.predict([1.0, 2.0], sign=-1)
    assert minimal.energy == pytest.approx(1.438195706936078, rel=1e-12)
    assert minimal.density([[0.0, 1.0]])[0] == pytest.approx(0.110553808, abs=1e-9)
    switch = np.log(np.cosh(1.0))
    for shift, kind in ((1e-6, "dirac"), (-1e-6, "pair")):
        ascending = mf.predict([-1.0, switch + shift])
        assert ascending.targets[0].kind == kind
        assert ascending.energy == pytest.approx(max(np.cosh(1), np.exp(switch + shift)))
    assert mf.predict([-1.0, 0.5], sign=-1).energy == pytest.approx(np.exp(-1.0))


@pytest.mark.parametrize(("level", "sign"), [(2.0, 1), (2.0, -1), (-1.5, 1)])
@pytest.mark.parametrize("normalized", [True, False])
def test_growth_of_the_uniform_density(level, sign, normalized):
    """Against minus the divergence of the velocity of a slightly perturbed density."""
    model, eps = mf.SelfAttention([level, level], sign, normalized=normalized), 1e-5
    mesh = mf.circle(64)
    theta = np.arctan2(mesh.points[:, 1], mesh.points[:, 0])
    tangent = np.stack([-np.sin(theta), np.cos(theta)], 1)
    for k, rate in zip((1, 2, 3), uniform_growth(level, 2, [1, 2, 3], sign, normalized),
                       strict=True):  # fmt: skip
        speeds = [np.sum(model.on(mesh).velocity(mesh.weights * (1 + e * np.cos(k * theta)))
                         * tangent, axis=1) for e in (eps, -eps)]  # fmt: skip
        slope = 2 * np.mean((speeds[0] - speeds[1]) / (2 * eps) * np.sin(k * theta))
        assert -k * slope == pytest.approx(rate, abs=1e-8)


def test_growth_in_a_prediction():
    grown = mf.predict([5.0, 5.0, 5.0]).growth
    ratio = (np.cosh(5.0) / 5 - np.sinh(5.0) / 25) / (np.sinh(5.0) / 5)
    assert grown[0] == pytest.approx(2 * ratio, rel=1e-12)
    assert mf.predict([1.0, 2.0]).growth is None
    uniform = next(s for s in mf.predict([2.0] * 3, -1).states if s.kind == "uniform")
    assert uniform.stable
    np.testing.assert_allclose(mf.predict([1.0, -1.0]).growth, mf.predict([1.0, 1.0]).growth)
    assert np.isfinite(mf.predict([1e-7, 1e-7]).growth).all()


def test_a_reflection_grows_both_ways():
    """D = diag(1, -1): half of the harmonics grow under either sign, at the same rates."""
    prediction = mf.predict([1.0, -1.0])
    for sign in (1, -1):
        found = mf.stability(mf.uniform(), mf.SelfAttention([1.0, -1.0], sign), modes=2)
        assert prediction.growth.max() == pytest.approx(found.rates.max(), rel=1e-6)


@pytest.mark.parametrize("sign", [1, -1])
def test_rates_are_those_of_a_run(sign):
    """A cluster near its place comes closer at the predicted rate."""
    D = [0.5, 1.2] if sign == 1 else [0.5, -1.2]
    state = next(s for s in mf.predict(D, sign).stable if s.kind == "dirac")
    start = [[np.sin(0.01), np.cos(0.01)]]
    run = mf.evolve_particles(start, mf.SelfAttention(D, sign), 2.0, save=[1.0, 2.0],
                              tolerance=1e-12)  # fmt: skip
    rate = np.log(run.points[1, 0, 0] / run.points[0, 0, 0])
    # a single particle moves as a whole: L - l, here the slower one as well
    assert rate == pytest.approx(-abs(1.2 - 0.5) if sign == 1 else -1.7, abs=2e-4)
    assert state.rate == pytest.approx(-0.7 if sign == 1 else -1.2, abs=1e-12)


def test_words():
    text = mf.predict([1.0, 1.5]).describe()
    assert "shares up to 0.868891" in text
    assert "Clusters in the long run: 1 or 2" in text
    assert "fastest: degree 2, rate 1.97018106" in repr(mf.predict([3.0, 3.0, 3.0]))
    asymmetric = mf.predict([[1.0, 2.0], [0.0, 1.0]])
    assert asymmetric.states == ()
    assert "no gradient flow" in repr(asymmetric)
    assert mf.predict([0.0, 0.0]).states == ()
    assert mf.predict([1.0, 1.5])._repr_html_().startswith("<pre>Sign +1")


def test_bad_input_is_refused():
    with pytest.raises(InputError, match="sign must be 1 or -1"):
        mf.predict([1.0, 2.0], sign=0)
    with pytest.raises(MatrixError):
        mf.predict([1.0, np.nan])
