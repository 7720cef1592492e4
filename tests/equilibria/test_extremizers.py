"""Table 1 as data: predicted extrema are attained and not beaten; states of two and four points."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import softmax
from scipy.stats import ortho_group

from meanfield.equilibria.discrete_states import (
    four_point_energy,
    four_point_state,
    orthogonal_pairs,
    two_point_is_stationary,
    two_point_state,
)
from meanfield.equilibria.exact import ExactMinimizer, exact_minimizer
from meanfield.equilibria.extremizers import extremizers, four_point_angle
from meanfield.errors import DensityError, InputError, MatrixError, PointsError

SWITCH = np.log(np.cosh(1.0))
SPECTRA = {  # class: what draws eigenvalues of it, n of them
    "positive definite": lambda rng, n: rng.uniform(1.0, 2.5, n),
    "positive semidefinite": lambda rng, n: np.append(0.0, rng.uniform(0.3, 3.0, n - 1)),
    "negative definite": lambda rng, n: -rng.uniform(0.3, 3.0, n),
    "negative semidefinite": lambda rng, n: np.append(0.0, -rng.uniform(0.3, 3.0, n - 1)),
    "indefinite": lambda rng, n: np.append(
        [rng.uniform(0.3, 3.0), -rng.uniform(0.3, 3.0)], rng.uniform(-3.0, 3.0, n - 2)
    ),
}


def energy(D, measure):
    return measure.masses @ np.exp(measure.points @ D @ measure.points.T) @ measure.masses


def gradient(D, measure):
    """Tangential force at every point, shape (m, n): zero at stationary points."""
    x, a = measure.points, measure.masses
    force = (np.exp(x @ D @ x.T) * a) @ x @ D.T
    return force - (force * x).sum(axis=1)[:, None] * x


def random_spectrum(rng, name, n):
    """Eigenvalues of the class; some repeated, nearly equal, zero or nearly zero."""
    values = SPECTRA[name](rng, n)
    scale = np.abs(values).max()
    if n > 2:  # copy an eigenvalue: exactly, within the tolerance, beyond it, or not at all
        gap = rng.choice([0.0, 1e-13, 1e-6, np.nan])
        if np.isfinite(gap):
            values[-1] = values[-2] + np.sign(values[-2]) * gap * scale
    if n > 3 and "definite" in name and 0 in values:
        values[1] = rng.choice([0.0, 1e-14 * scale])
    return values


@pytest.mark.parametrize("name", SPECTRA)
def test_random_matrices_of_every_class(name):
    rng = np.random.default_rng(len(name))
    for trial in range(200):
        n = 2 + trial % 4
        values = random_spectrum(rng, name, n)
        Q = ortho_group.rvs(n, random_state=rng)
        D = Q @ np.diag(values) @ Q.T
        D = (D + D.T) / 2
        theory = extremizers(D)
        assert theory.matrix_class == name
        scale = np.abs(values).max()
        for family in theory.minimizers + theory.maximizers:
            if family.measures:
                check_family(D, values, family, scale)
        check_energies(theory, values)
        check_not_beaten(rng, D, theory)


def check_family(D, values, family, scale):
    """Representatives have the energy and are stationary; the basis spans the eigenspace."""
    for measure in family.measures:
        assert energy(D, measure) == pytest.approx(family.energy, rel=2e-9)
        assert np.abs(gradient(D, measure)).max() < 1e-8 * max(1, family.energy) * scale
    B = family.basis
    np.testing.assert_allclose(B.T @ B, np.eye(B.shape[1]), atol=1e-13)
    value = np.trace(B.T @ D @ B) / B.shape[1]
    assert np.abs(D @ B - value * B).max() < 1e-9 * scale
    assert B.shape[1] == (np.abs(values - value) < 1e-9 * scale).sum()


def check_energies(theory, values):
    low, high = values.min(), values.max()
    if low > 0:
        assert theory.minimum_energy is None or 1 < theory.minimum_energy < np.cosh(low)
    else:
        assert theory.minimum_energy == pytest.approx(np.exp(low), rel=1e-12)
    expected = max(np.exp(max(high, 0.0)), np.cosh(min(low, 0.0)))
    assert theory.maximum_energy == pytest.approx(expected, rel=1e-12)


def check_not_beaten(rng, D, theory):
    n = len(D)
    x = rng.normal(size=(20, 6, n))
    x /= np.linalg.norm(x, axis=2)[:, :, None]
    weights = softmax(3 * rng.normal(size=(20, 6)), axis=1)
    axes = np.linalg.eigh(D)[1].T
    values = [w @ np.exp(p @ D @ p.T) @ w for w, p in zip(weights, x, strict=True)]
    values += [energy(D, two_point_state(z, t)) for z in axes for t in (0.0, 0.3, 0.5)]
    values += [energy(D, orthogonal_pairs(axes))]
    if theory.minimum_energy is not None:
        assert min(values) >= theory.minimum_energy * (1 - 1e-9)
    assert max(values) <= theory.maximum_energy * (1 + 1e-9)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_indefinite_maximum_is_reached_and_never_exceeded(n):
    """The new row of the table, by ascent of six weighted particles from 30 starts."""
    rng = np.random.default_rng(n)
    for _ in range(15):
        values = np.append([rng.uniform(0.1, 2.0), -rng.uniform(0.1, 2.0)],
                           rng.uniform(-2, 2, n - 2))  # fmt: skip
        D = np.diag(values)
        x = rng.normal(size=(30, 6, n))
        x /= np.linalg.norm(x, axis=2)[:, :, None]
        w = softmax(rng.normal(size=(30, 6)), axis=1)
        for _ in range(400):
            kernel = np.exp(np.einsum("tai,ij,tbj->tab", x, D, x))
            Z = np.einsum("tab,tb->ta", kernel, w)
            x = x + 0.3 * np.einsum("tab,tb,tbj->taj", kernel, w, x @ D) / Z[:, :, None]
            x /= np.linalg.norm(x, axis=2)[:, :, None]
            w = w * Z**0.3
            w /= w.sum(axis=1, keepdims=True)
        kernel = np.exp(np.einsum("tai,ij,tbj->tab", x, D, x))
        found = np.einsum("ta,tab,tb->t", w, kernel, w).max()
        bound = extremizers(D).maximum_energy
        assert found <= bound * (1 + 1e-12)
        assert found >= bound * (1 - 1e-3)


def test_switch_of_the_maximiser():
    def kinds(l2):
        return [family.kind for family in extremizers([-1.0, l2]).maximizers]

    low, high = 0.4, 0.5
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if kinds(middle) == ["pair"] else (low, middle)
    assert low == pytest.approx(0.433781, abs=5e-7)
    assert low == pytest.approx(SWITCH, abs=2e-10)
    assert kinds(SWITCH) == ["dirac", "pair"]
    assert [kinds(SWITCH - 1e-8), kinds(SWITCH + 1e-8)] == [["pair"], ["dirac"]]
    assert kinds(1.0) == kinds(2.0) == ["dirac"]


def test_sources_and_status():
    cases = {
        (1.0, -2.0): ("theorem", "Theorem 3.4", "new", "Remark 3.5"),
        (2.0, -1.0): ("theorem", "Theorem 3.4", "theorem", "Theorem 3.1"),
        (-1.0, -2.0): ("theorem", "Theorems 3.1", "theorem", "Theorem 3.15"),
        (0.0, -2.0): ("theorem", "Theorems 3.1", "theorem", "Theorem 3.15"),
        (0.0, 2.0): ("theorem", "Theorem 3.4", "theorem", "Theorem 3.1"),
        (1.0, 2.0): ("new", "Corollary 3.8", "theorem", "Theorem 3.1"),
        (2.0, 2.0): ("theorem", "Proposition 3.9", "theorem", "Theorem 3.1"),
    }
    for D, (low, low_source, high, high_source) in cases.items():
        theory = extremizers(D)
        lowest, highest = theory.minimizers[0], theory.maximizers[0]
        assert (lowest.status, highest.status) == (low, high)
        assert low_source in lowest.reference
        assert high_source in highest.reference
        text = theory.describe()
        assert text == repr(theory)
        for family in (lowest, highest):
            assert family.words in text
            assert f"E = {family.energy:.12g}" in text


def test_zero_and_null_space():
    zero = extremizers(np.zeros((3, 3)))
    assert (zero.matrix_class, zero.minimizers[0].kind, zero.maximizers[0].kind) == (
        "zero", "all", "all"
    )  # fmt: skip
    assert zero.minimum_energy == zero.maximum_energy == 1
    singular = extremizers([0.0, 0.0, 2.0]).minimizers[0]
    assert singular.kind == "null space"
    assert singular.basis.shape == (3, 2)
    assert len(singular.measures[-1]) == 4
    assert "dim N = 2" in singular.words


def test_no_mixtures_in_repeated_eigenspaces():
    D = np.diag([-1.0, -1.0, 2.0])
    family = extremizers(D).minimizers[0]
    assert family.energy == pytest.approx(0.3679, abs=5e-5)
    assert family.basis.shape == (3, 2)
    mixture = orthogonal_pairs(family.basis.T).points[:2]
    kernel = np.exp(mixture @ D @ mixture.T)
    assert kernel.mean() == pytest.approx(0.684, abs=5e-4)


def test_tolerances_are_explicit():
    D = [1e-9, 1.0]
    assert extremizers(D, zero_tolerance=1e-8).matrix_class == "positive semidefinite"
    assert extremizers(D).matrix_class == "positive definite"
    nearly = [-1.0, -1.0 - 1e-6, 0.5]
    assert extremizers(nearly).minimizers[0].basis.shape == (3, 1)
    assert extremizers(nearly, repeated_tolerance=1e-5).minimizers[0].basis.shape == (3, 2)
    for name in ("zero_tolerance", "repeated_tolerance"):
        with pytest.raises(InputError, match=name):
            extremizers(D, **{name: -1.0})
    with pytest.raises(MatrixError, match="shape"):
        extremizers(np.ones((2, 3)))


def test_positive_definite_minimiser():
    for D in ([1.0, 2.0], [1.0, 1.3, 1.7]):
        family = extremizers(D).minimizers[0]
        assert isinstance(family.density, ExactMinimizer)
        assert family.energy == exact_minimizer(D).energy
    four = extremizers([1.0, 2.0, 3.0, 4.0])
    assert four.minimum_energy is None
    assert four.minimizers[0].density is None
    assert "n = 2 and 3 only" in four.describe()
    out = extremizers([1.0, 30.0])
    assert out.minimum_energy is None
    assert "out of reach" in out.describe()
    uniform = extremizers(2 * np.eye(4)).minimizers[0]
    assert uniform.kind == "uniform"
    assert uniform.energy == pytest.approx(1.59063685464, rel=1e-11)  # I_1(2) at n = 4
    assert extremizers([1.0, 1.2], precision=20).minimizers[0].density.precision == 20


def test_large_norms_do_not_overflow():
    theory = extremizers([-1000.0, 998.0])
    assert [family.kind for family in theory.maximizers] == ["pair"]
    assert theory.maximum_log_energy == pytest.approx(1000 - np.log(2), rel=1e-15)
    assert theory.maximum_energy == np.inf
    assert theory.minimum_energy == 0
    assert theory.minimum_log_energy == -1000
    assert "log E = 999.306852819" in repr(theory)


class TestNotSymmetric:
    rng = np.random.default_rng(0)

    def random_energies(self, D):
        x = self.rng.normal(size=(200, 5, len(D)))
        x /= np.linalg.norm(x, axis=2)[:, :, None]
        return np.exp(np.einsum("tai,ij,tbj->tab", x, D, x)).mean(axis=(1, 2))

    def test_negative_eigenvalue_of_the_symmetric_part(self):
        D = np.array([[-1.0, 2.0], [0.0, 1.0]])
        theory = extremizers(D)
        assert theory.matrix_class == "not symmetric"
        family = theory.minimizers[0]
        assert (family.kind, family.status) == ("dirac", "new")
        assert family.energy == pytest.approx(np.exp(-np.sqrt(2)), rel=1e-14)
        for measure in family.measures:
            assert energy(D, measure) == pytest.approx(family.energy, rel=1e-14)
        assert self.random_energies(D).min() > family.energy
        assert theory.maximizers == ()
        assert "no energy principle" in repr(theory)

    def test_singular_and_definite_symmetric_part(self):
        rotation = np.array([[0.0, -1.0], [1.0, 0.0]])
        theory = extremizers(rotation)
        assert theory.minimum_energy == 1
        assert self.random_energies(rotation).min() > 1
        theory = extremizers(np.eye(2) + rotation)
        assert theory.minimizers == ()
        assert theory.minimum_energy is None
        assert "not known" in repr(theory)

    def test_top_eigenvalue_equal_to_the_norm(self):
        D = np.array([[3.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]])
        family = extremizers(D).maximizers[0]
        assert family.energy == pytest.approx(np.exp(3))
        np.testing.assert_allclose(np.abs(family.basis[:, 0]), [1, 0, 0], atol=1e-14)
        assert self.random_energies(D).max() < family.energy


class TestFourPoints:
    @pytest.mark.parametrize(
        ("l1", "l2", "expected", "tolerance"),
        [(1, 8, 1.5361394350, 5e-11), (8, 9, 923.5880976392, 5e-11), (1, 2, 1.44421, 5e-6)],
    )
    def test_published_energies(self, l1, l2, expected, tolerance):
        phi = four_point_angle(l1, l2)
        assert four_point_energy(l1, l2, phi) == pytest.approx(expected, abs=tolerance)
        found = energy(np.diag([l1, l2]), four_point_state(phi))
        assert found == pytest.approx(expected, abs=tolerance)

    @pytest.mark.parametrize("l1", [-3.0, 0.01, 1.0, 20.0, 1000.0])
    @pytest.mark.parametrize("l2", [-1.5, 0.5, 8.0, 1e-6])
    def test_angle_is_the_stationary_minimum(self, l1, l2):
        phi = four_point_angle(l1, l2)
        assert 0 < phi < np.pi / 2
        left = l1 * np.tanh(l1 * np.cos(phi) ** 2)
        assert left == pytest.approx(l2 * np.tanh(l2 * np.sin(phi) ** 2), rel=2e-10)
        if abs(l1) <= 20 and abs(l2) >= 0.5:
            assert np.abs(gradient(np.diag([l1, l2]), four_point_state(phi))).max() < 1e-6
            best = minimize_scalar(
                lambda t: np.log(four_point_energy(l1, l2, t)), bounds=(0, np.pi / 2),
                method="bounded", options={"xatol": 1e-10},
            )  # fmt: skip
            assert best.x == pytest.approx(phi, abs=1e-5)

    def test_symmetries(self):
        assert four_point_angle(2, 2) == pytest.approx(np.pi / 4, rel=1e-15)
        assert four_point_angle(2, 5) == pytest.approx(np.pi / 2 - four_point_angle(5, 2))
        assert four_point_angle(-2, 5) == four_point_angle(2, -5) == four_point_angle(2, 5)

    def test_extreme_ratios(self):
        """tan phi -> l1/l2 for small eigenvalues, l2^2 sin^2 phi -> l1 tanh l1 for large l2."""
        assert four_point_angle(1e-200, 1.0) == pytest.approx(1e-200, rel=1e-9)
        assert four_point_angle(1e-9, 3e-9) == pytest.approx(np.arctan(1 / 3), rel=1e-9)
        s = np.arctanh(np.tanh(1.0) / 1e8) / 1e8
        assert four_point_angle(1.0, 1e8) == pytest.approx(np.sqrt(s), rel=1e-10)
        assert np.isfinite(four_point_angle(1e8, 1e8))

    @pytest.mark.parametrize("pair", [(0.0, 1.0), (1.0, 0.0), (0.0, 0.0), (np.nan, 1), (1, np.inf)])
    def test_no_root(self, pair):
        with pytest.raises(InputError, match="finite and not zero"):
            four_point_angle(*pair)


class TestTwoPoints:
    def test_against_the_gradient(self):
        rng = np.random.default_rng(1)
        D = np.diag([1.0, -1.0, 0.4])
        balanced = np.array([1.0, 1.0, 0.0]) / np.sqrt(2)
        assert not two_point_is_stationary(D, balanced, 0.3)
        assert two_point_is_stationary(D, balanced)
        directions = [balanced, *np.eye(3), *rng.normal(size=(5, 3))]
        for z in directions:
            z = z / np.linalg.norm(z)
            for t in (0.2, 0.5, 0.9):
                flat = np.abs(gradient(D, two_point_state(z, t))).max() < 1e-12
                assert two_point_is_stationary(D, z, t) == flat

    def test_orthogonal_pairs_are_stationary(self):
        Q = ortho_group.rvs(4, random_state=2)
        D = Q @ np.diag([2.0, -1.0, 0.5, 0.0]) @ Q.T
        state = orthogonal_pairs(Q.T[:3], [0.5, 0.2, 0.3])
        assert np.abs(gradient(D, state)).max() < 1e-13
        assert np.abs(gradient(D, orthogonal_pairs(np.eye(4)[:2]))).max() > 1e-3

    def test_bad_input(self):
        with pytest.raises(InputError, match="t must"):
            two_point_state([1.0, 0.0], 1.5)
        with pytest.raises(PointsError, match="one unit vector"):
            two_point_state(np.eye(2))
        with pytest.raises(PointsError, match="acts on"):
            two_point_is_stationary(np.eye(3), [1.0, 0.0])
        with pytest.raises(PointsError, match="orthonormal"):
            orthogonal_pairs([[1.0, 0.0], [1.0, 0.0]])
        with pytest.raises(DensityError):
            orthogonal_pairs(np.eye(2), [0.5, 0.6])
