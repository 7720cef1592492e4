"""Growth rates and index against closed forms, finite differences and simulated growth."""

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import gamma, iv

import meanfield as mf
from meanfield.equilibria.discrete_states import (
    four_point_state,
    orthogonal_pairs,
    two_point_state,
)
from meanfield.equilibria.linearization import frames
from meanfield.equilibria.variations import second_variation
from meanfield.sphere.geometry import normalize, tangential


def uniform_rate(degree, level, n, sign, normalized=True):
    """Growth of Y_l of the uniform density for D = level Id, in closed form."""
    size, order = abs(level), n / 2 - 1 + degree
    bessel = iv(order, size) * (np.sign(level) ** degree)
    if normalized:
        factor = 1 / iv(n / 2 - 1, size)
    else:
        factor = gamma(n / 2) * 2 ** (n / 2 - 1) * size ** (1 - n / 2)
    return sign * degree * (degree + n - 2) * factor * bessel


def expected_rates(level, n, sign, normalized, modes):
    """The unstable ones first, then the strongest decaying ones, with multiplicities."""
    degrees = np.arange(1, 16)
    counts = np.full(15, 2) if n == 2 else 2 * degrees + 1
    rates = [uniform_rate(k, level, n, sign, normalized) for k in degrees]
    rates = np.sort(np.repeat(rates, counts))[::-1]
    unstable = rates[rates > 1e-3][:modes]
    return np.sort(np.concatenate([unstable, rates[::-1][: modes - len(unstable)]]))[::-1]


def numerical_rates(measure, model, step=1e-4):
    """Eigenvalues of the Jacobian of the particle velocities, by central differences."""
    points, basis = measure.points, frames(measure.points)
    count, n = points.shape
    size = count * (n - 1)

    def speeds(coordinates):
        moved = normalize(points + np.einsum("ma,man->mn", coordinates, basis))
        return np.einsum("man,mn->ma", basis, model.on(moved).velocity(measure.masses)).ravel()

    unit = step * np.eye(size).reshape(size, count, n - 1)
    columns = [(speeds(e) - speeds(-e)) / (2 * step) for e in unit]
    rates = np.linalg.eigvals(np.stack(columns, axis=1))
    return rates[np.lexsort((rates.imag, -rates.real))]


class TestUniform:
    @pytest.mark.parametrize("method", ["dense", "iterative"])
    @pytest.mark.parametrize("normalized", [True, False])
    @pytest.mark.parametrize("sign", [1, -1])
    @pytest.mark.parametrize("level", [1.0, -2.0, 3.0])
    def test_on_the_circle(self, level, sign, normalized, method):
        model = mf.SelfAttention(level * np.eye(2), sign, normalized=normalized)
        found = mf.stability(mf.uniform(), model, space=mf.circle(64), method=method)
        expected = expected_rates(level, 2, sign, normalized, 6)
        assert np.abs(found.rates - expected).max() < 2e-14
        assert found.stationary
        assert found.kind == "density"

    @pytest.mark.parametrize(("level", "sign", "normalized"), [
        (1.0, 1, True), (1.0, -1, False), (-2.0, 1, False), (-2.0, -1, True), (3.0, 1, True),
    ])  # fmt: skip
    def test_on_the_sphere_matrix_free(self, level, sign, normalized):
        model = mf.SelfAttention(level * np.eye(3), sign, normalized=normalized)
        space = mf.lebedev(29)
        found = mf.stability(mf.uniform(), model, modes=9, space=space, method="iterative")
        expected = expected_rates(level, 3, sign, normalized, 9)
        assert np.abs(found.rates - expected).max() < 2e-13
        assert found.converged

    def test_on_icosphere_5(self):
        found = mf.stability(mf.uniform(), mf.SelfAttention([1, 1, 1]), 8, space=mf.icosphere(5))
        expected = expected_rates(1.0, 3, 1, True, 8)
        assert np.abs(found.rates / expected - 1).max() < 1e-9  # 1 % was asked for

    @pytest.mark.parametrize("level", [4, pytest.param(5, marks=pytest.mark.slow)])
    def test_negative_on_icospheres(self, level):
        model = mf.SelfAttention([-2.0, -2.0, -2.0], -1)
        found = mf.stability(mf.uniform(), model, modes=8, space=mf.icosphere(level))
        expected = expected_rates(-2.0, 3, -1, True, 8)
        assert np.abs(found.rates / expected - 1).max() < {4: 3e-4, 5: 6e-5}[level]

    def test_in_four_dimensions(self):
        found = mf.stability(
            mf.uniform(), mf.SelfAttention(np.eye(4)), modes=5, space=mf.product_sphere(4, 8)
        )
        expected = [uniform_rate(1, 1.0, 4, 1)] * 4 + [uniform_rate(2, 1.0, 4, 1)]
        assert np.abs(found.rates - expected).max() < 5e-6  # the error of the rule

    def test_index(self):
        # Descending, D = Id: no direction grows; ascending, all do: 2 l + 1 of each degree.
        down = mf.stability(mf.uniform(), mf.SelfAttention([1, 1, 1], -1), space=mf.lebedev(23))
        assert (down.index, down.complete, down.stable) == (0, True, True)
        model = mf.SelfAttention([1.0, 1.0, 1.0])
        up = mf.stability(mf.uniform(), model, space=mf.lebedev(23), tolerance=0.05)
        assert (up.index, up.complete, up.stable) == (3 + 5 + 7, True, False)
        few = mf.stability(
            mf.uniform(), model, space=mf.lebedev(23), tolerance=0.05, method="iterative"
        )
        assert few.index >= 6
        assert not few.complete
        many = mf.stability(
            mf.uniform(), model, 20, space=mf.lebedev(23), tolerance=0.05, method="iterative"
        )
        assert (many.index, many.complete) == (15, True)

    def test_fields_are_gradients_of_harmonics(self):
        space = mf.lebedev(35)
        found = mf.stability(mf.uniform(), mf.SelfAttention([1, 1, 1]), modes=3, space=space)
        x, phi = space.points, found.potentials
        linear = np.einsum("p,kp,pn->kn", space.weights, phi, x) * 3
        assert np.abs(phi - linear @ x.T).max() < 1e-12
        gradient = tangential(x, np.broadcast_to(linear[:, None], (3, *x.shape)))
        assert np.abs(found.fields - gradient).max() < 1e-12
        lengths = np.sum(found.fields**2, axis=2) @ space.weights
        assert np.abs(lengths - 1).max() < 1e-13


class TestPairs:
    def test_the_top_pair_changes_stability_where_theory_says(self):
        def index(level):
            model = mf.SelfAttention([level, 1.0])
            return mf.stability(two_point_state([1.0, 0.0]), model, tolerance=1e-9).index

        low, high = 1.1, 1.3
        assert (index(low), index(high)) == (1, 0)
        while high - low > 1e-7:
            middle = (low + high) / 2
            low, high = (middle, high) if index(middle) else (low, middle)
        exact = brentq(lambda L: L * np.tanh(L) - 1, 1.0, 2.0)
        assert exact == pytest.approx(1.19968, abs=1e-5)
        assert abs((low + high) / 2 - exact) < 2e-7

    def test_the_lower_eigenvalue_up_to_tanh_1(self):
        for level, unstable in ((0.7615, 0), (0.7617, 1)):
            found = mf.stability(two_point_state([0.0, 1.0]), mf.SelfAttention([level, 1.0]))
            assert found.index == unstable

    def test_the_boundary_for_unequal_masses(self):
        def wanted(L, other, r):
            s = L * (r + 1 / r)
            return np.exp(2 * L) * (L - other) > (s + np.sqrt(s**2 - 4 * (L**2 - other**2))) / 2

        rng = np.random.default_rng(0)
        stable = 0
        for _ in range(200):
            L = rng.uniform(0.2, 3)
            other, r = rng.uniform(-L, L), np.exp(rng.uniform(-3, 3))
            pair = two_point_state([1.0, 0.0], r / (1 + r))
            found = mf.stability(pair, mf.SelfAttention([L, other]))
            assert (found.index == found.splitting_index) == wanted(L, other, r)
            # For negative eigenvalues members leave the lighter cluster before it moves.
            assert found.stable == wanted(L, max(other, 0.0), r)
            stable += found.stable
        assert 50 < stable < 150

    @pytest.mark.parametrize("sign", [1, -1])
    @pytest.mark.parametrize("normalized", [True, False])
    def test_all_rates_in_closed_form(self, sign, normalized):
        L, others, t = 1.3, np.array([0.4, 0.9]), 0.3
        model = mf.SelfAttention([L, *others], sign, normalized=normalized)
        found = mf.stability(two_point_state([1.0, 0, 0], t), model, modes=20)
        e = np.exp([L, -L])
        weight = np.array([[t * e[0], (1 - t) * e[1]], [t * e[1], (1 - t) * e[0]]])
        own = np.diag(weight) - np.diag(weight[:, ::-1])  # what pulls back a test particle
        scale = weight.sum(axis=1) if normalized else np.ones(2)
        expected = np.repeat(-sign * L * own / scale, 2).tolist()
        for other in others:
            matrix = sign * (other * weight - L * np.diag(own)) / scale[:, None]
            expected += np.linalg.eigvals(matrix).tolist()
        assert np.abs(found.rates - np.sort(expected)[::-1]).max() < 1e-14
        assert found.splitting.sum() == 4

    def test_rotations_that_commute_with_D_are_neutral(self):
        pair = two_point_state([0, 0, 1.0])
        found = mf.stability(pair, mf.SelfAttention([1.0, 2.0, 2.0]))
        assert (found.index, found.neutral, found.symmetries) == (1, 1, 1)
        assert mf.stability(pair, mf.SelfAttention([1.0, 1.5, 2.0])).symmetries == 0
        assert mf.stability(pair, mf.SelfAttention([2.0, 2.0, 2.0])).symmetries == 2
        turned = mf.stability(pair, mf.SelfAttention([1.0, 1.0, 3.0]))
        assert (turned.symmetries, turned.neutral) == (0, 0)  # the pair does not move


class TestClusters:
    @pytest.mark.parametrize("normalized", [True, False])
    @pytest.mark.parametrize("n", [2, 3, 5])
    def test_against_the_jacobian_of_particles(self, n, normalized):
        rng = np.random.default_rng(n)
        axes = np.linalg.qr(rng.normal(size=(n, n)))[0]
        D = (axes * rng.uniform(-1.5, 2, n)) @ axes.T
        state = orthogonal_pairs(axes.T[: n - 1], rng.dirichlet(np.ones(n - 1)))
        model = mf.SelfAttention((D + D.T) / 2, -1, normalized=normalized)
        found = mf.stability(state, model, modes=100, splitting=False)
        expected = numerical_rates(state, model)
        assert np.abs(found.rates - expected).max() < 1e-7
        for method in ("dense", "iterative"):
            few = mf.stability(state, model, modes=2, splitting=False, method=method)
            assert np.abs(few.rates - found.rates[:2]).max() < 1e-11

    @pytest.mark.parametrize("normalized", [True, False])
    def test_models_without_an_energy(self, normalized):
        D = np.array([[1.2, 0, 0], [0, 0.5, 0.8], [0, -0.3, 0.7]])
        V = np.array([[-0.9, 0, 0], [0, 0.4, 1.1], [0, -0.6, 0.2]])
        model = mf.SelfAttention(D, V=V, normalized=normalized)
        pair = two_point_state([1.0, 0, 0], 0.35)
        found = mf.stability(pair, model, modes=4, splitting=False)
        expected = numerical_rates(pair, model)
        distances = np.abs(found.rates[:, None] - expected)
        assert max(distances.min(axis=0).max(), distances.min(axis=1).max()) < 1e-7
        assert np.iscomplexobj(found.rates)
        assert "+0j" not in repr(found)
        assert found.index == 4
        # Test particles: the Jacobian of their velocity in the fixed field of the pair.
        split = mf.stability(pair, model, modes=20)
        assert split.splitting_index == int((split.rates[split.splitting].real > 0).sum())

    def test_many_points_matrix_free(self):
        # A uniform polygon is stationary for D = Id; without an energy as well, for V = -2 D.
        points = mf.circle(24).points
        for model in (mf.SelfAttention([2, 2], -1), mf.SelfAttention([2, 2], V=[-2.0, -2.0])):
            state = mf.Measure(points)
            dense = mf.stability(state, model, modes=5, splitting=False, method="dense")
            free = mf.stability(state, model, modes=5, splitting=False, method="iterative")
            assert np.abs(np.sort(dense.rates.real) - np.sort(free.rates.real)).max() < 1e-9
            assert dense.neutral >= 1
        double = mf.SelfAttention([2.0, 2.0], V=[[-3.0, 0.0], [0.0, -3.0]])
        third = mf.SelfAttention([2.0, 2.0], V=[[-2.0, 0.0], [0.0, -2.0]])
        rates = [mf.stability(mf.Measure(points), m, 24, splitting=False).rates.real
                 for m in (double, third)]  # fmt: skip
        assert np.abs(np.sort(rates[0]) - 1.5 * np.sort(rates[1])).max() < 1e-12

    def test_four_points_are_stable_but_their_members_separate(self):
        state = four_point_state(mf.four_point_angle(1.0, 8.0))
        model = mf.SelfAttention([1.0, 8.0], -1)
        assert mf.stability(state, model, splitting=False).stable
        found = mf.stability(state, model)
        assert (found.index, found.splitting_index) == (4, 4)
        # A test particle feels minus the second derivative of log Z.
        x = state.points[0]
        turn = np.array([-x[1], x[0]])
        h = 1e-3
        near = [np.cos(k * h) * x + np.sin(k * h) * turn for k in (-1, 0, 1)]
        log_z = model.interaction.on(state, at=np.array(near)).log_potential(state.masses)
        assert found.rates[0] == pytest.approx(-(log_z @ [1, -2, 1]) / h**2, rel=1e-3)

    def test_particles_of_a_run_are_merged_and_grow_as_predicted(self):
        model = mf.SelfAttention([1.0, 1.1])
        pair = two_point_state([0.0, 1.0])
        found = mf.stability(pair, model)
        start = normalize(pair.points + 1e-5 * found.fields[0])
        run = mf.evolve_particles(start, model, t_end=8.0, save=3)
        away = np.linalg.norm(run.points - pair.points, axis=(1, 2))
        assert np.log(away[2] / away[1]) / 4 == pytest.approx(found.rates[0], rel=1e-4)
        points = mf.random_points(40, 2, seed=1)
        run = mf.evolve_particles(points, mf.SelfAttention([1.0, 1.5]), t_end=60.0, save=2)
        merged = mf.stability(run)
        assert len(merged.points) == run.clusters().count == 2
        assert merged.stable
        assert merged.rates.max() < -0.1

    def test_large_norms(self):
        found = mf.stability(two_point_state([0.0, 1.0], 0.3), mf.SelfAttention([900.0, 1000.0]))
        assert found.stable
        assert found.rates[0] == pytest.approx(-100.0, rel=1e-12)
        with pytest.raises(mf.errors.ComputationError, match="take the normalised flow"):
            mf.stability(
                two_point_state([0.0, 1.0]), mf.SelfAttention([900.0, 1000.0], normalized=False)
            )

    def test_the_quadratic_form_is_the_hessian(self):
        # For the unnormalised flow r = H(xi, xi)/2 for fields of length one.
        state, D = two_point_state([0.0, 0, 1.0], 0.4), [0.5, 1.0, 1.5]
        found = mf.stability(state, mf.SelfAttention(D, normalized=False), 4, splitting=False)
        forms = [second_variation(state, xi, xi, D) / 2 for xi in found.fields]
        assert found.rates == pytest.approx(forms, rel=1e-12)


class TestDensities:
    @pytest.mark.parametrize("D", [[1.0, 1.1], [1.0, 2.0], [3.0, 5.0]])
    def test_the_exact_minimizer_has_no_negative_direction(self, D):
        minimizer = mf.exact_minimizer(D)
        found = mf.stability(minimizer, modes=1500)
        assert found.stable
        # All 512 eigenvalues of the second variation: none is negative beyond round-off.
        assert found.rates.max() < 1e-14 * max(D)
        up = mf.stability(minimizer, mf.SelfAttention(D, 1))
        assert up.index > 4
        assert up.rates.max() == pytest.approx(-found.rates.min(), rel=1e-12)

    def test_the_exact_minimizer_on_the_sphere(self):
        found = mf.stability(mf.exact_minimizer([1.0, 1.5, 2.0]), space=mf.lebedev(29), modes=700)
        assert found.rates.max() < 2e-14
        assert found.stable
        free = mf.stability(
            mf.exact_minimizer([1.0, 1.5, 2.0]), space=mf.lebedev(29), method="iterative"
        )
        assert free.stable
        assert np.abs(free.rates - np.sort(found.rates)[5::-1]).max() < 1e-9

    def test_a_minimum_on_a_mesh(self):
        # The discrete minimum is exact for its own masses; rates converge to the exact ones.
        found = mf.stability(mf.minimize(mf.icosphere(2), mf.Interaction([1.0, 1.0, 1.5])))
        exact = mf.stability(mf.exact_minimizer([1.0, 1.0, 1.5]), space=mf.lebedev(35))
        assert found.stable
        assert np.abs(found.rates - exact.rates).max() < 1e-5

    def test_an_evolved_density_decays_as_predicted(self):
        model = mf.SelfAttention([1.0, 1.2], -1)
        exact = mf.stability(mf.exact_minimizer([1.0, 1.2]), modes=2)
        slow = mf.evolve(mf.circle(128), model, mf.von_mises_fisher([1, 1], 0.2), 40.0, save=41)
        found = mf.stability(slow, tolerance=1e-2)
        assert found.index == 0
        assert found.rates[-2:] == pytest.approx(exact.rates, rel=1e-2)

    def test_moved_nodes_are_a_density(self):
        model = mf.SelfAttention([1.0, 1.0], -1)
        run = mf.evolve_characteristics(
            mf.circle(64), model, mf.von_mises_fisher([1, 1], 0.05), 4.0, save=2
        )
        found = mf.stability(run, tolerance=0.05)
        assert found.kind == "density"
        assert found.rates[-1] == pytest.approx(uniform_rate(1, 1.0, 2, -1), rel=1e-2)
        assert found.space is None

    def test_a_narrow_density_is_a_cluster(self):
        # Its centre returns at 1 - 1.5; members at -1.5, more slowly in its tails.
        mesh, model = mf.circle(256), mf.SelfAttention([1.0, 1.5])
        found = mf.stability(mf.von_mises_fisher([0, 1], 1e3), model, 3, space=mesh, tolerance=0.1)
        assert found.rates[0] == pytest.approx(-0.5, rel=1e-2)
        assert ((found.rates[1:] > -1.5) & (found.rates[1:] < -1.3)).all()

    @pytest.mark.parametrize("space", [mf.circle(16), mf.lebedev(59)])
    def test_nothing_moves_without_values(self, space):
        still = mf.SelfAttention(np.zeros(space.dimension))
        found = mf.stability(mf.uniform(), still, space=space)
        assert found.stationary
        assert (found.index, np.abs(found.rates).max()) == (0, 0.0)

    def test_cells_without_mass(self):
        mesh = mf.circle(64)
        masses = np.where(mesh.points[:, 0] > 0.99, 1.0, 0.0)
        state = mf.Measure(mesh.points, masses / masses.sum(), mesh)
        found = mf.stability(state, mf.SelfAttention([1.0, 0.5]), modes=2)
        assert not found.stationary
        assert np.isfinite(found.fields).all()
        assert not found.fields[:, masses == 0].any()


class TestResult:
    found = mf.stability(two_point_state([0.0, 1.0]), mf.SelfAttention([1.0, 1.1]))

    def test_words(self):
        text = repr(self.found)
        assert "2 clusters (masses 0.5, 0.5)" in text
        assert "stationary: yes, residual 0 (tolerance 1e-06)" in text
        assert "index: 1, unstable" in text
        assert "0.119451, -0.0800499, -0.880549 (splitting)" in text
        beside = mf.stability(mf.Measure([[0.6, 0.8]]), mf.SelfAttention([1.0, 2.0]))
        assert "stationary: NO" in repr(beside)
        assert "of a state that is not stationary" in repr(beside)
        assert not beside.stable
        split = mf.stability(two_point_state([1.0, 0.0], 1.0), mf.SelfAttention([1.0, 1.0], -1))
        assert "index: 1 (1 of them separate members of a cluster), unstable" in repr(split)
        assert "1 neutral, 1 by symmetry" in repr(split)

    @pytest.mark.parametrize(("changes", "message"), [
        ({"modes": 0}, "modes must be an integer >= 1"),
        ({"modes": "all"}, "modes must be an integer >= 1"),
        ({"tolerance": 0.0}, "tolerance must be finite and > 0"),
        ({"method": "exact"}, "method must be one of auto, dense, iterative"),
        ({"kind": "cloud"}, "kind must be one of clusters, density"),
    ])  # fmt: skip
    def test_bad_input(self, changes, message):
        with pytest.raises(mf.errors.InputError, match=message):
            mf.stability(two_point_state([0.0, 1.0]), mf.SelfAttention([1.0, 1.1]), **changes)

    def test_rates_are_as_uncertain_as_the_state(self):
        model = mf.SelfAttention([1.0, 2.0])
        beside = mf.stability(mf.Measure([[0.6, 0.8]]), model, tolerance=1e-3)
        assert beside.threshold == pytest.approx(2 * 0.24, rel=1e-12)
        at_rest = mf.stability(mf.Measure([[0.0, 1.0]]), model, tolerance=1e-3)
        assert at_rest.threshold == pytest.approx(2e-3, rel=1e-12)

    def test_bad_states(self):
        model = mf.SelfAttention([1.0, 1.1])
        with pytest.raises(mf.errors.InputError, match="has no model"):
            mf.stability(two_point_state([0.0, 1.0]))
        with pytest.raises(mf.errors.InputError, match="not for several heads"):
            mf.stability(two_point_state([0.0, 1.0]), mf.MultiHead([model]))
        run = mf.evolve_particles(mf.random_points(4, 2, seed=0, starts=2), model, t_end=0.1)
        with pytest.raises(mf.errors.InputError, match="choose one"):
            mf.stability(run)
        opposite = mf.find_clusters([[1.0, 0.0], [-1.0, 0.0]], angle=3.0)
        assert mf.stability(opposite, model).stationary
