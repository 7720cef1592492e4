"""Variations of the energy against finite differences, and the residual of stationary states."""

import numpy as np
import pytest
from scipy.special import spherical_in

import meanfield as mf
from meanfield.equilibria.discrete_states import (
    four_point_state,
    orthogonal_pairs,
    two_point_state,
)
from meanfield.equilibria.variations import (
    first_variation,
    hessian_operator,
    second_variation,
    stationarity_residual,
)
from meanfield.sphere.geometry import exp_map, normalize, tangential

# Central differences of order eight.
OFFSETS = np.array([-4, -3, -2, -1, 1, 2, 3, 4])
STENCIL = np.array([3, -32, 168, -672, 672, -168, 32, -3]) / 840
STEP = 0.02


class Quadratic:
    """A random smooth field b + A x + (x.Cx) d on R^n with its Jacobian."""

    def __init__(self, rng, n):
        self.A, self.C = rng.normal(scale=0.3, size=(2, n, n))
        self.b, self.d = rng.normal(scale=0.3, size=(2, n))

    def __call__(self, x):
        bend = np.einsum("ma,ab,mb->m", x, self.C, x)
        return self.b + x @ self.A.T + bend[:, None] * self.d

    def jacobian(self, x):
        slope = x @ (self.C + self.C.T)
        return self.A + self.d[None, :, None] * slope[:, None, :]


def case(n, seed=0, count=12):
    rng = np.random.default_rng(100 * n + seed)
    D = rng.normal(size=(n, n))
    points = normalize(rng.normal(size=(count, n)))
    measure = mf.Measure(points, rng.dirichlet(np.ones(count)))
    return (D + D.T) / 2, measure, Quadratic(rng, n), Quadratic(rng, n)


def transported(measure, field, t, steps=24):
    """The measure after moving with x' = P_x V(x) for a time t, by classical Runge-Kutta."""

    def speed(x):
        return tangential(x, field(x))

    x, h = measure.points, t / steps
    for _ in range(steps):
        k1 = speed(x)
        k2 = speed(x + h / 2 * k1)
        k3 = speed(x + h / 2 * k2)
        k4 = speed(x + h * k3)
        x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return mf.Measure(normalize(x), measure.masses)


def energy(D, measure):
    return mf.Interaction(D).on(measure).energy(measure.masses)


def flow_derivative(function, measure, field):
    values = [function(transported(measure, field, k * STEP)) for k in OFFSETS]
    return STENCIL @ values / STEP


def geodesic_derivative(D, measure, V, W):
    """Mixed second difference of the energy in normal coordinates around each point."""
    x = measure.points
    first, second = tangential(x, V(x)), tangential(x, W(x))
    values = [
        [
            energy(D, mf.Measure(exp_map(x, STEP * (j * first + k * second)), measure.masses))
            for k in OFFSETS
        ]
        for j in OFFSETS
    ]
    return STENCIL @ np.array(values) @ STENCIL / STEP**2


@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize("seed", [0, 1])
def test_against_finite_differences(n, seed):
    D, measure, V, W = case(n, seed)
    found = first_variation(measure, V, mf.Interaction(D))
    expected = flow_derivative(lambda mu: energy(D, mu), measure, V)
    assert abs(found - expected) < 1e-9 * max(1, abs(expected))
    found = second_variation(measure, V, W, mf.Interaction(D))
    expected = geodesic_derivative(D, measure, V, W)
    assert abs(found - expected) < 2e-9 * abs(expected)
    assert found == pytest.approx(second_variation(measure, W, V, D), rel=1e-12)
    found = second_variation(measure, V, W, D, kind="flow", jacobian=W.jacobian)
    expected = flow_derivative(lambda mu: first_variation(mu, W, D), measure, V)
    assert abs(found - expected) < 2e-9 * abs(expected)


def printed_second_variation(D, measure, V, W):
    """Lemma 4.4 as it is printed; the missing last factor of its second term taken as W."""
    x, a = measure.points, measure.masses
    weights = np.exp(x @ D @ x.T) * np.outer(a, a)
    forces = (x @ D)[None] - (x @ D @ x.T)[..., None] * x[:, None]
    along = [np.einsum("ija,ia->ij", forces, field(x)) for field in (V, W)]
    moved = np.einsum("mab,mb->ma", V.jacobian(x), tangential(x, W(x)))
    derivative = tangential(x, moved) - np.sum(x * V(x), axis=1)[:, None] * tangential(x, W(x))
    return float(np.sum(weights * (along[0] * along[1] + derivative @ (x @ D).T)))


@pytest.mark.parametrize("n", [2, 3, 4])
def test_the_printed_lemma_fails(n):
    D, measure, V, W = case(n)
    expected = flow_derivative(lambda mu: first_variation(mu, W, D), measure, V)
    for factor in (1, 2):
        found = factor * printed_second_variation(D, measure, V, W)
        assert abs(found - expected) > 1e-2 * abs(expected)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_the_operator_is_the_form_and_symmetric(n):
    D, measure, V, W = case(n)
    H = hessian_operator(measure, D)
    v, w = V(measure.points).ravel(), W(measure.points).ravel()
    expected = second_variation(measure, V, W, D)
    assert w @ (H @ v) == pytest.approx(expected, rel=1e-12)
    assert v @ (H @ w) == pytest.approx(expected, rel=1e-12)


def test_the_operator_of_many_points_matches_direct_sums():
    mesh = mf.icosphere(4)
    measure = mf.Measure(mesh.points, mesh.weights, mesh)
    field = Quadratic(np.random.default_rng(0), 3)(mesh.points).ravel()
    fast, exact = (hessian_operator(measure, [0.5, 1.0, 2.0], m) for m in ("auto", "direct"))
    expected = exact @ field
    assert np.abs(fast @ field - expected).max() < 1e-9 * np.abs(expected).max()


def test_flow_and_geodesic_agree_where_the_state_is_stationary():
    state, (_, _, V, W) = two_point_state([0.0, 1.0], 0.3), case(2)
    geodesic = second_variation(state, V, W, [1.0, 2.0])
    flow = second_variation(state, V, W, [1.0, 2.0], kind="flow", jacobian=W.jacobian)
    assert flow == pytest.approx(geodesic, rel=1e-14)


def symmetric(rng, n, low=-2.0, high=2.0):
    axes = np.linalg.qr(rng.normal(size=(n, n)))[0]
    return (axes * rng.uniform(low, high, n)) @ axes.T, axes


class TestStationary:
    @pytest.mark.parametrize("norm", ["L2", "sup"])
    @pytest.mark.parametrize("n", [2, 3, 5])
    def test_diracs_pairs_and_mixtures_at_eigenvectors(self, n, norm):
        rng = np.random.default_rng(n)
        for size in (1.0, 30.0, 1000.0):
            D, _ = symmetric(rng, n)
            D = size * (D + D.T) / 2
            axes = np.linalg.eigh(D)[1].T
            states = [mf.Measure(axes[:1])]
            states += [two_point_state(z, t) for z in axes for t in (0.5, 0.2)]
            states += [orthogonal_pairs(axes[:k], rng.dirichlet(np.ones(k))) for k in (2, n)]
            for state in states:
                assert stationarity_residual(state, mf.Interaction(D), norm) <= 1e-14

    @pytest.mark.parametrize(
        "pair", [(1, 8), (8, 9), (1, 2), (-1, 2), (0.1, -7), (-3, -3), (40, 9)]
    )
    def test_four_points(self, pair):
        state = four_point_state(mf.four_point_angle(*pair))
        assert stationarity_residual(state, mf.Interaction(np.array(pair, float)), "sup") <= 1e-14
        beside = four_point_state(mf.four_point_angle(*pair) + 0.01)
        assert stationarity_residual(beside, mf.Interaction(np.array(pair, float))) > 5e-5

    def test_the_balanced_pair_that_is_no_eigenvector(self):
        z, D = np.array([1.0, 1.0]) / np.sqrt(2), mf.Interaction([1.0, -1.0])
        assert stationarity_residual(two_point_state(z), D) <= 1e-14
        assert stationarity_residual(two_point_state(z, 0.4), D) > 0.1
        # Lemma 4.6 for definite D: only eigenvectors, whatever t.
        for t in (0.2, 0.5, 1.0):
            assert stationarity_residual(two_point_state(z, t), mf.Interaction([1.0, 2.0])) > 0.1

    @pytest.mark.parametrize("eigenvalues", [(1, 1), (2, -2), (3, 3, 3), (1, -1, 1), (-2, -2, -2)])
    def test_uniform_for_equal_moduli(self, eigenvalues):
        D = mf.Interaction(np.array(eigenvalues, float))
        assert stationarity_residual(mf.uniform(), D) <= 1e-14

    def test_uniform_for_unequal_moduli(self):
        assert stationarity_residual(mf.uniform(), mf.Interaction([1.0, 1.5])) > 0.05
        # The force in closed form: c_n I_{n/2}(r)/r^{n/2} P_x D^2 x, for n = 3 i_1(r)/r.
        D, x = np.array([1.0, 1.0, 1.5]), mf.lebedev(59)
        r = np.linalg.norm(x.points * D, axis=1)
        force = tangential(x.points, x.points * D**2) * (spherical_in(1, r) / r)[:, None]
        speed = np.linalg.norm(force, axis=1) / spherical_in(0, r) / 1.5
        found = stationarity_residual(mf.uniform(), mf.Interaction(D), space=x)
        assert found == pytest.approx(np.sqrt(x.integrate(speed**2)), rel=1e-13)

    def test_exact_minimizers(self):
        for D in ([1.0, 1.1], [1.0, 2.0], [1.0, 1.0, 1.5]):
            assert stationarity_residual(mf.exact_minimizer(D)) <= 1e-13

    @pytest.mark.parametrize("D", [[1.0, 1.1], [1.0, 2.0], [3.0, 5.0]])
    def test_the_hessian_at_exact_minimizers_is_not_negative(self, D):
        mesh = mf.circle(96)
        masses = mesh.weights * mf.exact_minimizer(D)(mesh.points)
        measure = mf.Measure(mesh.points, masses / masses.sum(), mesh)
        size = 2 * len(mesh)
        found = np.linalg.eigvalsh(hessian_operator(measure, D) @ np.eye(size))
        assert found.min() > -1e-13 * found.max()


class TestEveryResult:
    model = mf.SelfAttention([1.0, 2.0], sign=-1)

    def test_a_density_on_a_mesh(self):
        run = mf.evolve(mf.circle(64), self.model, mf.uniform(), t_end=40.0, save=2)
        start, end = mf.Measure(run.mesh.points, run.masses[0]), stationarity_residual(run)
        assert stationarity_residual(start, self.model) > 0.1
        assert end < 1e-4
        assert stationarity_residual(run, mf.Interaction([1.0, 2.0])) == end

    def test_characteristics(self):
        run = mf.evolve_characteristics(mf.circle(64), self.model, mf.uniform(), 2.0, save=2)
        assert 1e-3 < stationarity_residual(run) < stationarity_residual(mf.uniform(), self.model)

    def test_particles_and_ensembles(self):
        model = mf.SelfAttention([1.0, 2.0])
        points = mf.random_points(6, 2, seed=3, starts=2)
        run = mf.evolve_particles(points, model, t_end=40.0, save=2)
        found = stationarity_residual(run)
        assert found.shape == (2,)
        assert found[1] == stationarity_residual(run.start(1))
        assert found.max() < 1e-8

    def test_extrema(self):
        found = mf.minimize(mf.circle(64), mf.Interaction([1.0, 2.0]))
        assert stationarity_residual(found) < 1e-7
        top = mf.maximize(mf.circle(64), mf.Interaction([1.0, 2.0]))
        assert stationarity_residual(top) < 1e-8

    def test_models_without_an_energy(self):
        turning = mf.SelfAttention([1.0, 1.0], V=[[0.0, -1.0], [1.0, 0.0]])
        point = mf.Measure([[1.0, 0.0]])
        assert stationarity_residual(point, turning) == 1.0
        heads = mf.MultiHead([turning, mf.SelfAttention([1.0, 1.0], V=[[0.0, 1.0], [-1.0, 0.0]])])
        assert stationarity_residual(point, heads) == 0.0

    def test_zero_matrices(self):
        assert stationarity_residual(mf.Measure([[0.6, 0.8]]), mf.Interaction([0.0, 0.0])) == 0.0


class TestBadInput:
    point = mf.Measure([[1.0, 0.0]])

    def test_asymmetric_matrices(self):
        D = mf.Interaction([[1.0, 1.0], [0.0, 1.0]])
        for call in (
            lambda: first_variation(self.point, [[0.0, 1.0]], D),
            lambda: second_variation(self.point, [[0.0, 1.0]], [[0.0, 1.0]], D),
            lambda: stationarity_residual(self.point, D),
            lambda: hessian_operator(self.point, D),
        ):
            with pytest.raises(mf.errors.MatrixError, match="must be symmetric"):
                call()

    def test_words(self):
        turn = [[0.0, 1.0]]
        with pytest.raises(mf.errors.InputError, match="kind must be one of geodesic, flow"):
            second_variation(self.point, turn, turn, [1.0, 2.0], kind="third")
        with pytest.raises(mf.errors.InputError, match="needs jacobian"):
            second_variation(self.point, turn, turn, [1.0, 2.0], kind="flow")
        with pytest.raises(mf.errors.InputError, match="norm must be one of L2, sup"):
            stationarity_residual(self.point, mf.Interaction([1.0, 2.0]), "L1")
        with pytest.raises(mf.errors.InputError, match="pass an Interaction"):
            stationarity_residual(self.point)
        with pytest.raises(mf.errors.InputError, match="a state is a Measure"):
            stationarity_residual([[1.0, 0.0]], mf.Interaction([1.0, 2.0]))
        with pytest.raises(mf.errors.InputError, match="space must be a Space"):
            stationarity_residual(mf.uniform(), mf.Interaction([1.0, 2.0]), space=[[1.0, 0.0]])

    def test_shapes(self):
        with pytest.raises(mf.errors.PointsError, match="field must have shape"):
            first_variation(self.point, [0.0, 1.0], [1.0, 2.0])
        with pytest.raises(mf.errors.PointsError, match="field contains NaN"):
            first_variation(self.point, [[0.0, np.nan]], [1.0, 2.0])
        with pytest.raises(mf.errors.MatrixError, match="the points are in R"):
            first_variation(self.point, [[0.0, 1.0]], [1.0, 2.0, 3.0])
        with pytest.raises(mf.errors.PointsError, match="D is 3 x 3"):
            stationarity_residual(self.point, mf.Interaction([1.0, 2.0, 3.0]))
