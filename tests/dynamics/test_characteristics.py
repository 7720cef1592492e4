"""Evolution along characteristics against exact solutions, itself, and finite volumes."""

from functools import cache

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.linalg import expm
from scipy.special import ive, roots_gegenbauer

import meanfield as mf
from meanfield.dynamics.characteristics import CharacteristicEvolution, evolve_characteristics
from meanfield.dynamics.node_flow import velocity_and_divergence, volume_error
from meanfield.errors import DensityError, InputError, PointsError, StiffnessError
from meanfield.sphere.geometry import normalize, tangent_frames

MEAN = np.array([0.3, -0.5, 0.8])
# Central difference of order 6, on steps 1, 2, 3.
CENTRAL = np.array([3 / 4, -3 / 20, 1 / 60])
TURN = np.array([[0.0, -1.0, 0.4], [1.0, 0.0, -0.7], [-0.4, 0.7, 0.0]])


def random_points(count, n, seed=0):
    return normalize(np.random.default_rng(seed).normal(size=(count, n)))


@cache
def reference(order: int, sign: int) -> CharacteristicEvolution:
    model = mf.SelfAttention([0.5, 1.0, 2.0], sign=sign)
    density = mf.von_mises_fisher(MEAN, 2.0)
    return evolve_characteristics(mf.lebedev(order), model, density, t_end=1.0, save=5)


@cache
def circle_reference(cells: int, sign: int) -> CharacteristicEvolution:
    model = mf.SelfAttention([0.5, 2.0], sign=sign)
    density = mf.von_mises_fisher(MEAN[:2], 2.0)
    return evolve_characteristics(mf.circle(cells), model, density, t_end=1.0, save=5)


def largest_difference(a, b) -> float:
    return max(np.abs(p - q).max() for p, q in zip(a.moments(), b.moments(), strict=True))


def conformal_density(z):
    """The push-forward of the uniform measure under a Moebius map of the sphere."""
    z = np.asarray(z, dtype=float)
    r2 = z @ z

    def density(x):
        return ((1 - r2) / np.sum((x - z) ** 2, axis=1)) ** (len(z) - 1)

    return density


def conformal_mean(z):
    heights, weights = roots_gegenbauer(80, len(z) / 2 - 1) if len(z) > 2 else roots_chebyshev()
    r = np.linalg.norm(z)
    values = ((1 - r**2) / (1 + r**2 - 2 * r * heights)) ** (len(z) - 1)
    return (weights @ (heights * values)) / weights.sum() * z / r


def roots_chebyshev(count=80):
    return np.cos(np.pi * (np.arange(count) + 0.5) / count), np.ones(count)


def conformal_parameter(z, V, t):
    """z' = (1 + |z|^2) b / 2 - (b.z) z with b = V m(z): the whole equation when D = 0."""

    def rate(_, z):
        b = V @ conformal_mean(z)
        return (1 + z @ z) / 2 * b - (b @ z) * z

    return solve_ivp(rate, (0, t), z, method="DOP853", rtol=1e-13, atol=1e-13).y[:, -1]


# --- convergence ---------------------------------------------------------------------------


def test_moments_agree_between_lebedev_orders_spreading():
    for coarse in (41, 47):
        assert largest_difference(reference(coarse, -1), reference(65, -1)) < 3e-11
    assert largest_difference(reference(41, -1), reference(47, -1)) < 3e-11


def test_moments_agree_between_lebedev_orders_clustering():
    assert largest_difference(reference(47, 1), reference(65, 1)) < 1e-9
    assert largest_difference(reference(41, 1), reference(65, 1)) < 1e-8


@pytest.mark.parametrize("sign", [-1, 1])
def test_moments_agree_between_circles(sign):
    fine = circle_reference(256, sign)
    for cells, bound in ((64, {-1: 1e-10, 1: 5e-8}[sign]), (128, {-1: 1e-14, 1: 1e-12}[sign])):
        assert largest_difference(circle_reference(cells, sign), fine) < bound


def test_tolerances_leave_only_the_error_of_the_quadrature():
    default = circle_reference(64, 1)
    model, density = default.model, mf.von_mises_fisher(MEAN[:2], 2.0)
    exact = evolve_characteristics(
        default.space, model, density, 1.0, save=5, rtol=3e-14, atol=1e-15
    )
    loose = evolve_characteristics(default.space, model, density, 1.0, save=5, rtol=1e-8, atol=1e-8)
    assert np.abs(default.points - exact.points).max() < 1e-11
    assert np.abs(default.log_density - exact.log_density).max() < 3e-11
    assert 1e-10 < np.abs(loose.points - exact.points).max() < 1e-6


@pytest.mark.parametrize("sign", [-1, 1])
def test_volume_error_indicates_the_resolution(sign):
    for order in (41, 47):
        error = largest_difference(reference(order, sign), reference(65, sign))
        assert error < reference(order, sign).audit["volume_error"].max() < 1e4 * error


def test_agrees_with_finite_volumes_to_second_order():
    model = mf.SelfAttention([[0.5, 0.3], [-0.2, 1.5]], V=[[0.4, -1.0], [0.8, -0.3]])
    density = mf.von_mises_fisher(MEAN[:2], 2.0)
    exact = evolve_characteristics(mf.circle(64), model, density, 0.5, save=2)
    errors = []
    for cells in (64, 128):
        run = mf.evolve(mf.circle(cells), model, density, 0.5, save=2)
        errors.append(np.abs(run.density[-1] - exact.density_at(run.mesh, 0.5)).mean())
    assert errors[1] < 1e-3
    assert np.log2(errors[0] / errors[1]) > 1.85


# --- the equation --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("V", "normalized"), [(None, True), (None, False), (TURN + np.diag([0.3, -0.5, 0.1]), True)]
)
def test_density_solves_the_equation_at_random_points(V, normalized):
    """d_t rho + div(rho v) by differences of density_at and velocity_at alone."""
    D = [0.5, 1.0, 2.0] if V is None else [[0.5, 0.2, 0.0], [-0.4, 1.0, 0.3], [0.1, 0.0, -0.6]]
    sign = -1 if V is None else None
    model = mf.SelfAttention(D, sign=sign, V=V, normalized=normalized)
    density = mf.von_mises_fisher(MEAN, 2.0)
    run = evolve_characteristics(mf.lebedev(29), model, density, 0.5, save=2)
    x, t, h = random_points(10, 3), 0.25, 0.006
    residual = np.zeros(len(x))
    for k, weight in enumerate(CENTRAL, start=1):
        difference = run.density_at(x, t + k * h) - run.density_at(x, t - k * h)
        residual += weight * difference / h
    frames = tangent_frames(x)
    steps = [s * k * h for k in (1, 2, 3) for s in (1, -1)]
    for axis in range(2):
        e = frames[:, axis]
        # Great circles through x; the flux component along their constant plane direction e.
        moved = np.concatenate([np.cos(a) * x + np.sin(a) * e for a in steps])
        flux = run.density_at(moved, t)[:, None] * run.velocity_at(moved, t)
        along = np.einsum("kia,ia->ki", flux.reshape(6, len(x), 3), e)
        # The tangent turns with the circle: e.F has the derivative (grad_e F).e at x itself.
        for k, weight in enumerate(CENTRAL):
            residual += weight * (along[2 * k] - along[2 * k + 1]) / h
    scale = np.abs(run.density_at(x, t)).max()
    assert np.abs(residual).max() < 1e-9 * scale


@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize("normalized", [True, False])
def test_divergence_is_the_divergence_of_the_velocity(n, normalized):
    rng = np.random.default_rng(n)
    model = mf.SelfAttention(
        rng.normal(size=(n, n)), V=rng.normal(size=(n, n)), normalized=normalized
    )
    nodes, masses = random_points(30, n, seed=1), rng.dirichlet(np.ones(30))
    x, h = random_points(20, n, seed=2), 0.01
    velocity, divergence = velocity_and_divergence(model, nodes, masses, x)
    np.testing.assert_allclose(velocity, model.on(nodes, at=x).velocity(masses), rtol=0, atol=1e-13)
    differences = np.zeros(len(x))
    for axis in range(n):
        e = np.eye(n)[axis] - x[:, axis, None] * x  # P_x e_axis
        for k, weight in enumerate(CENTRAL, start=1):
            ahead, _ = velocity_and_divergence(model, nodes, masses, normalize(x + k * h * e))
            behind, _ = velocity_and_divergence(model, nodes, masses, normalize(x - k * h * e))
            differences += weight / h * (ahead - behind)[:, axis]
    # sum_a e_a . (J P e_a) = tr(J P): the divergence, whatever J is along the normal.
    np.testing.assert_allclose(
        divergence, differences, rtol=1e-7, atol=1e-7 * np.abs(divergence).max()
    )


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("sign", [-1, 1])
def test_energy_follows_the_dissipation_identity(sign, normalized):
    model = mf.SelfAttention([0.5, 1.0, -1.0], sign=sign, normalized=normalized)
    h = 0.01
    times = 0.2 + h * np.arange(-3, 4)
    run = evolve_characteristics(mf.lebedev(21), model, mf.von_mises_fisher(MEAN, 2.0), 0.3, times)
    ahead, behind = run.energy[4:], run.energy[2::-1]
    rate = CENTRAL @ (ahead - behind) / h
    assert rate == pytest.approx(2 * sign * run.dissipation[3], rel=1e-9)
    np.testing.assert_allclose(np.exp(run.log_energy), run.energy, rtol=1e-14)


def test_no_dissipation_is_claimed_for_a_general_value_matrix():
    model = mf.SelfAttention([1.0, 2.0], V=[[0.0, -1.0], [1.0, 0.0]])
    run = evolve_characteristics(mf.circle(32), model, mf.von_mises_fisher([1, 0], 1.0), 0.1, 2)
    assert np.isnan(run.dissipation).all()


# --- exact solutions -----------------------------------------------------------------------


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize(
    ("space", "z"),
    [(mf.circle(64), [0.3, 0.2]), (mf.lebedev(47), [0.2, -0.1, 0.3]),
     (mf.product_sphere(4, 9), [0.05, 0.1, -0.1, 0.05])],
    ids=["S1", "S2", "S3"],
)  # fmt: skip
def test_rigid_rotation_for_no_kernel_and_antisymmetric_values(space, z, normalized):
    """D = 0, V antisymmetric: a conformal density turns as a rigid body, its nodes do not."""
    n, z = len(z), np.array(z)
    V = np.random.default_rng(n).normal(size=(n, n))
    V -= V.T
    model = mf.SelfAttention(np.zeros((n, n)), V=V, normalized=normalized)
    run = evolve_characteristics(space, model, conformal_density(z), 1.5, save=2)
    r = np.linalg.norm(z)
    angle = 1.5 * (1 + r**2) / (2 * r) * np.linalg.norm(conformal_mean(z))
    rotation = expm(angle * V)
    x = random_points(40, n)
    tolerance = {2: 1e-13, 3: 2e-10, 4: 5e-7}[n]  # of the quadrature
    np.testing.assert_allclose(
        run.density_at(x, 1.5), conformal_density(z)(x @ rotation), rtol=0, atol=tolerance
    )
    np.testing.assert_allclose(
        run.moments()[0][-1], rotation @ run.moments()[0][0], rtol=0, atol=tolerance
    )
    assert np.abs(run.points[-1] - run.points[0] @ rotation.T).max() > 0.1


@pytest.mark.parametrize("space", [mf.circle(128), mf.lebedev(59)], ids=["S1", "S2"])
def test_conformal_densities_for_no_kernel_and_any_values(space):
    n = space.dimension
    V = (TURN + np.array([[0.5, 0.8, 0.0], [-0.2, 0.3, 0.0], [0.1, 0.0, -0.6]]))[:n, :n]
    z = np.array([0.3, 0.1, -0.2])[:n]
    run = evolve_characteristics(
        space, mf.SelfAttention(np.zeros((n, n)), V=V), conformal_density(z), 1.0, save=3
    )
    for k, t in enumerate(run.times[1:], start=1):
        exact = conformal_density(conformal_parameter(z, V, t))
        np.testing.assert_allclose(np.exp(run.log_density[k]), exact(run.points[k]), rtol=1e-10)


def test_order_parameter_on_the_circle_is_a_logistic_curve():
    """D = 0, V = a + omega J: the Poisson kernels of the Kuramoto model, in closed form."""
    a, omega, t = 0.7, 2.0, 1.0
    model = mf.SelfAttention([0.0, 0.0], V=[[a, -omega], [omega, a]])
    run = evolve_characteristics(mf.circle(128), model, conformal_density([0.4, 0.0]), t, save=2)
    growth = 1 - 0.16 + 0.16 * np.exp(a * t)
    radius = np.sqrt(0.16 * np.exp(a * t) / growth)
    phase = omega * t / 2 + omega * np.log(growth) / (2 * a)
    exact = radius * np.array([np.cos(phase), np.sin(phase)])
    np.testing.assert_allclose(run.moments()[0][-1], exact, rtol=0, atol=1e-12)


@pytest.mark.parametrize("normalized", [True, False])
def test_points_rotate_rigidly_around_the_uniform_density(normalized):
    """D = lambda Id, V antisymmetric: int K y dmu_0 is parallel to x, so v(x) = c V x."""
    strength = 1.3
    model = mf.SelfAttention(np.full(3, strength), V=TURN, normalized=normalized)
    run = evolve_characteristics(mf.lebedev(35), model, mf.uniform(), 2.0, save=3)
    rate = ive(1.5, strength) / ive(0.5, strength)
    if not normalized:
        rate *= np.sinh(strength) / strength
    for t, points in zip(run.times, run.points, strict=True):
        np.testing.assert_allclose(
            points, run.points[0] @ expm(rate * t * TURN).T, rtol=0, atol=1e-11
        )
    np.testing.assert_allclose(run.log_density, 0.0, rtol=0, atol=1e-12)


def test_uniform_density_rests_for_a_multiple_of_the_identity():
    run = evolve_characteristics(
        mf.lebedev(35), mf.SelfAttention([-1.5, -1.5, -1.5]), mf.uniform(), 1.0, save=2
    )
    np.testing.assert_allclose(run.points[-1], run.points[0], rtol=0, atol=1e-13)
    np.testing.assert_allclose(run.energy, np.sinh(1.5) / 1.5, rtol=1e-14)
    assert run.dissipation.max() < 1e-25


# --- anywhere, any time --------------------------------------------------------------------


@pytest.mark.parametrize("sign", [-1, 1])
def test_tracing_back_from_the_nodes_finds_what_they_carry(sign):
    run = reference(41, sign)
    for k in (0, 2, 4):
        log_density = run.log_density_at(run.points[k], run.times[k])
        np.testing.assert_allclose(log_density, run.log_density[k], rtol=0, atol=2e-11)
        speed = run.velocity_at(run.points[k], run.times[k])
        bound = run.model.on(run.points[k], method="direct")
        np.testing.assert_allclose(speed, bound.velocity(run.masses), rtol=0, atol=1e-12)


@pytest.mark.parametrize("sign", [-1, 1])
def test_mass_and_moments_of_the_density_between_the_nodes(sign):
    run, fixed = circle_reference(128, sign), mf.circle(400)
    density = run.density_at(fixed, 1.0)
    assert density.min() > 0
    assert fixed.integrate(density) == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(
        fixed.integrate(density[:, None] * fixed.points), run.moments()[0][-1], rtol=0, atol=1e-12
    )


def test_mass_of_the_density_on_a_fixed_lebedev_rule():
    run, fixed = reference(41, -1), mf.lebedev(59)
    density = run.density_at(fixed, 1.0)
    assert fixed.integrate(density) == pytest.approx(1, abs=1e-12)
    second = np.einsum("m,ma,mb->ab", fixed.weights * density, fixed.points, fixed.points)
    np.testing.assert_allclose(second, run.moments()[1][-1], rtol=0, atol=1e-10)


def test_nodes_stay_on_the_sphere_and_keep_their_masses():
    run = reference(47, 1)
    assert np.abs(np.linalg.norm(run.points, axis=2) - 1).max() < 1e-15
    assert run.masses.sum() == pytest.approx(1, abs=1e-14)
    first, second = run.moments()
    assert first.shape == (5, 3)
    np.testing.assert_allclose(np.trace(second, axis1=1, axis2=2), 1, rtol=0, atol=1e-14)
    assert (np.diff(run.energy) > 0).all()
    assert (np.diff(reference(47, -1).energy) < 0).all()


def test_frames_do_not_depend_on_each_other():
    many = circle_reference(64, 1)
    model, density = many.model, mf.von_mises_fisher(MEAN[:2], 2.0)
    few = evolve_characteristics(many.space, model, density, 1.0, save=[0.25, 0.5])
    np.testing.assert_array_equal(few.points, many.points[1:3])
    # The run goes on to t_end whatever is saved.
    x = random_points(5, 2)
    np.testing.assert_array_equal(few.density_at(x, 1.0), many.density_at(x, 1.0))


# --- densities -----------------------------------------------------------------------------


def test_zeros_of_the_density_stay_zeros():
    space, model = mf.circle(64), mf.SelfAttention([1.0, 2.0], sign=-1)
    run = evolve_characteristics(space, model, lambda x: np.maximum(x[:, 0], 0) ** 4, 1.0, save=3)
    empty = space.points[:, 0] <= 0
    assert (run.masses[empty] == 0).all()
    assert (run.log_density[:, empty] == -np.inf).all()
    assert np.isfinite(run.log_density[:, ~empty]).all()
    assert (run.density_at(run.points[-1][empty], 1.0) == 0).all()
    assert np.isfinite(run.points).all()


def test_density_is_normalised_and_narrow_ones_do_not_overflow():
    model, space = mf.SelfAttention([1.0, 1.0], sign=-1), mf.circle(256)
    scaled = evolve_characteristics(space, model, lambda x: 3 * np.exp(x[:, 0]), 0.1, save=2)
    plain = evolve_characteristics(space, model, mf.von_mises_fisher([1, 0], 1.0), 0.1, save=2)
    np.testing.assert_allclose(scaled.log_density, plain.log_density, rtol=0, atol=1e-13)
    np.testing.assert_allclose(
        scaled.density_at(space, 0.1), plain.density_at(space, 0.1), rtol=0, atol=1e-13
    )
    assert plain.parameters["normalization_factor"] == pytest.approx(1, abs=1e-14)
    narrow = evolve_characteristics(space, model, mf.von_mises_fisher([1, 0], 800.0), 0.1, save=2)
    assert np.isfinite(narrow.log_density).all()


def test_masses_instead_of_a_density():
    space, model = mf.circle(64), mf.SelfAttention([1.0, 2.0], sign=-1)
    density = mf.von_mises_fisher([1, 1], 2.0)
    by_density = evolve_characteristics(space, model, density, 0.2, save=2)
    by_masses = evolve_characteristics(space, model, by_density.masses, 0.2, save=2)
    np.testing.assert_allclose(by_masses.points, by_density.points, rtol=0, atol=1e-12)
    np.testing.assert_allclose(by_masses.log_density, by_density.log_density, rtol=0, atol=1e-11)
    with pytest.raises(DensityError, match="callable"):
        by_masses.density_at(space, 0.1)


# --- what is refused, what is said ---------------------------------------------------------


def test_unresolved_flow_maps_are_reported():
    model = mf.SelfAttention([0.5, 2.0], sign=1)
    with pytest.warns(mf.UnresolvedWarning, match="t = 4"):
        run = evolve_characteristics(mf.circle(32), model, mf.von_mises_fisher([1, 1], 1.0), 4.0)
    assert run.audit["volume_error"][0] < 1e-14
    assert len(run.times) == 21


def test_volume_error_sees_a_wrong_weight_and_a_wrong_moment():
    space = mf.lebedev(9)
    assert volume_error(space.points, space.weights) < 1e-15
    assert volume_error(space.points, 1.01 * space.weights) == pytest.approx(0.01, abs=1e-14)
    shifted = space.weights * (1 + 0.3 * space.points[:, 2])
    assert volume_error(space.points, shifted) == pytest.approx(0.1, abs=1e-14)
    # 1 + a P_2 leaves the total and the mean; int z^2 P_2 dmu_0 = 2/15.
    stretched = space.weights * (1 + 0.3 * (3 * space.points[:, 2] ** 2 - 1) / 2)
    assert volume_error(space.points, stretched) == pytest.approx(0.04, abs=1e-14)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"space": np.eye(2)}, InputError, "Space"),
        ({"space": mf.lebedev(9)}, PointsError, "R\\^3"),
        ({"density": lambda x: x[:, 0]}, DensityError, ">= 0"),
        ({"density": lambda x: x}, DensityError, "map"),
        ({"density": lambda x: np.full(len(x), np.nan)}, DensityError, "NaN"),
        ({"density": lambda x: np.zeros(len(x))}, DensityError, "zero"),
        ({"density": np.ones(16)}, DensityError, "density"),
        ({"t_end": -1.0}, InputError, "t_end"),
        ({"save": [0.5, 2.0]}, InputError, "save"),
        ({"rtol": 1e-16}, InputError, "rtol"),
        ({"atol": 0.0}, InputError, "atol"),
        ({"model": mf.SelfAttention([40.0, 1.0], normalized=False)}, StiffnessError, "normalized"),
    ],
)
def test_wrong_input_is_named(change, error, says):
    arguments = {
        "space": mf.circle(16),
        "model": mf.SelfAttention([1.0, 1.0]),
        "density": mf.uniform(),
        "t_end": 1.0,
    }
    with pytest.raises(error, match=says):
        evolve_characteristics(**(arguments | change))


def test_wrong_places_and_times_are_named():
    run = circle_reference(64, 1)
    for t in (-0.1, 1.1, np.nan, [0.1, 0.2]):
        with pytest.raises(InputError, match="t must"):
            run.density_at([[1.0, 0.0]], t)
    with pytest.raises(PointsError, match="R\\^2"):
        run.velocity_at(np.eye(3), 0.5)


def test_says_what_it_is():
    run = circle_reference(64, 1)
    assert "circle" in repr(run)
    assert "volume error" in repr(run)
    assert run.parameters["density"]["kind"] == "vmf"
    assert run.final.masses == pytest.approx(run.masses)
    assert run._repr_html_().startswith("<pre>CharacteristicEvolution")
