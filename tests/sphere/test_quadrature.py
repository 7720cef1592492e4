"""Exactness of the rules, order of cell averages on the sphere, energies with known values."""

import math
from itertools import pairwise

import numpy as np
import pytest

import meanfield as mf
from meanfield.dynamics.evolution import initial_masses
from meanfield.sphere.connectivity import next_corners
from meanfield.sphere.geometry import distance, normalize
from meanfield.sphere.quadrature import cell_averages, triangle_rule

KINDS = ("hexagons", "triangles")
D = [1.0, 2.0, -1.0]
UNIFORM_ENERGY = 1.376077897274
VMF_ENERGY = 0.783955164741  # mean e_z, concentration 3
EXPONENT = np.array([0.6, -0.3, 0.8])


def monomial_errors(degree: int, rule: int) -> np.ndarray:
    """Relative errors of a rule for x^a y^b, a + b = degree, on the reference triangle."""
    points, weights = triangle_rule(rule)
    errors = []
    for a in range(degree + 1):
        b = degree - a
        exact = math.factorial(a) * math.factorial(b) / math.factorial(degree + 2)
        errors.append(weights @ (points[:, 0] ** a * points[:, 1] ** b) / exact - 1)
    return np.abs(errors)


@pytest.mark.parametrize("degree", [1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 25])
def test_rules_are_exact_up_to_their_degree_and_no_further(degree):
    _, weights = triangle_rule(degree)
    assert (weights > 0).all()
    assert max(monomial_errors(p, degree).max() for p in range(degree + 1)) < 2e-14
    assert monomial_errors(degree + 1, degree).max() > 1e-8


def smooth(x, exponent=EXPONENT):
    return np.exp(x @ exponent)


def smooth_total(exponent) -> float:
    """The integral of exp(x.a) over the sphere: 4 pi sinh|a| / |a|."""
    size = np.linalg.norm(exponent)
    return 4 * np.pi * np.sinh(size) / size


def observed_orders(errors) -> np.ndarray:
    return np.log2([a / b for a, b in pairwise(errors)])


@pytest.mark.parametrize("cells", KINDS)
@pytest.mark.parametrize(("degree", "order"), [(1, 2), (2, 4), (3, 4), (4, 6), (5, 6)])
def test_sums_of_averages_converge_to_the_integral(cells, degree, order):
    # Symmetric neighbourhoods raise the order of even degrees by one.
    steep = 6 * EXPONENT
    exact = smooth_total(steep)
    errors = []
    for level in (2, 3, 4):
        mesh = mf.icosphere(level, cells)
        averages = cell_averages(mesh, lambda x: smooth(x, steep), degree)
        errors.append(abs(mesh.areas @ averages / exact - 1))
    assert errors[-1] > 1e-12
    assert abs(observed_orders(errors)[-1] - order) < 0.25


@pytest.mark.parametrize("cells", KINDS)
@pytest.mark.parametrize(
    ("degree", "order", "error"), [(1, 2, 5e-4), (2, 3, 5e-7), (3, 4, 4e-7), (4, 5, 4e-10)]
)
def test_single_averages_converge(cells, degree, order, error):
    errors = []
    for level in (2, 3, 4):
        mesh = mf.icosphere(level, cells)
        fine = cell_averages(mesh, smooth, 20)
        assert np.abs(cell_averages(mesh, smooth, 16) - fine).max() < 1e-14
        errors.append(np.abs(cell_averages(mesh, smooth, degree) - fine).max())
    # Even degrees gain up to one order on nearly symmetric cells.
    assert order - 0.1 < observed_orders(errors)[-1] < order + 1
    assert errors[-1] < error


def any_mesh(name):
    if name == "tetrahedron":
        corners = normalize(np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]]))
        return mf.Mesh.from_cells(corners, [[0, 1, 2], [0, 3, 1], [1, 3, 2], [2, 3, 0]])
    return mf.circle(7) if name == "circle" else mf.icosphere(2, name)


@pytest.mark.parametrize("name", ["tetrahedron", "circle", *KINDS])
@pytest.mark.parametrize("degree", [0, 1, 2, 5])
def test_constants_are_averaged_exactly(name, degree):
    averages = cell_averages(any_mesh(name), lambda x: np.full(len(x), 3.0), degree)
    assert np.abs(averages - 3.0).max() < 5e-15


def test_averages_are_divided_by_the_area_of_the_rule_not_by_the_exact_one():
    # The rule's own area of a face of the tetrahedron is far from pi, and yet constants are
    # exact; a linear function shows the difference.
    mesh = any_mesh("tetrahedron")
    points, weights = triangle_rule(2)
    corners = np.stack([mesh.centroids[0], *mesh.nodes[mesh.cell_nodes[0, :2]]])
    flat = np.column_stack([1 - points.sum(axis=1), points]) @ corners
    radius = np.linalg.norm(flat, axis=1)
    measure = weights * np.linalg.det(corners) / radius**3
    # By symmetry the other two thirds of the face add the same.
    area = 3 * measure.sum()
    assert abs(area - np.pi) > 0.01
    height = flat / radius[:, None] @ mesh.centroids[0]
    average = cell_averages(mesh, lambda x: x @ mesh.centroids[0])[0]
    assert average == pytest.approx(measure @ height / measure.sum(), abs=1e-14)


@pytest.mark.parametrize("cells", KINDS)
def test_cells_are_split_at_their_centres(cells):
    # The rule of degree one has one point: the middle of each triangle of the fan.
    mesh = mf.icosphere(1, cells)
    seen = []

    def record(x):
        seen.append(x)
        return np.ones(len(x))

    cell_averages(mesh, record, degree=1)
    used = mesh.cell_nodes >= 0
    here, there = mesh.nodes[mesh.cell_nodes], mesh.nodes[next_corners(mesh.cell_nodes)]
    middles = normalize((mesh.centroids[:, None] + here + there)[used])
    assert len(middles) == used.sum() == 2 * len(mesh.edge_cells)
    assert distance(np.concatenate(seen)[used.ravel()], middles).max() < 1e-15


def test_functions_are_evaluated_inside_the_cells_only():
    # A function that is infinite around the last node, where the -1 of pentagons would point
    # to if it were taken for a node number.
    mesh = mf.icosphere(1)
    last = mesh.nodes[-1]
    away = mesh.points @ last < 0
    assert (away & (mesh.cell_nodes[:, 5] < 0)).sum() == 6
    averages = cell_averages(mesh, lambda x: np.where(x @ last > 0.98, np.inf, 1.0), degree=4)
    assert np.abs(averages[away] - 1).max() < 1e-15


@pytest.mark.parametrize("degree", [1, 3, 7, 11])
def test_arc_averages_converge_at_the_order_of_gauss(degree):
    theta = np.arctan2(EXPONENT[1], EXPONENT[0])

    def derivative(x):
        angle = np.arctan2(x[:, 1], x[:, 0]) - theta
        return -np.sin(angle) * np.exp(np.cos(angle))

    errors = []
    for cells in (6, 12):
        mesh = mf.circle(cells)
        ends = np.exp(mesh.nodes @ [np.cos(theta), np.sin(theta)])
        exact = (ends[mesh.cell_nodes[:, 1]] - ends[mesh.cell_nodes[:, 0]]) / mesh.areas
        errors.append(np.abs(cell_averages(mesh, derivative, degree) - exact).max())
    assert errors[1] > 1e-15
    assert observed_orders(errors)[0] > degree + 0.8


def test_blocks_of_cells_do_not_change_the_answer(monkeypatch):
    mesh = mf.icosphere(2)
    whole = cell_averages(mesh, smooth, 4)
    monkeypatch.setattr("meanfield.sphere.quadrature.CHUNK", 100)
    assert np.array_equal(cell_averages(mesh, smooth, 4), whole)


# --- energies ------------------------------------------------------------------------------


def energy_errors(spaces) -> np.ndarray:
    """Errors of the energies of the uniform and the von Mises-Fisher density, shape (s, 2)."""
    density = mf.von_mises_fisher([0, 0, 1], 3.0)
    errors = []
    for space in spaces:
        bound = mf.Interaction(D).on(space)
        if isinstance(space, mf.Mesh):
            masses, _ = initial_masses(space, density)
        else:
            masses = space.weights * density(space.points)
            masses /= masses.sum()
        energies = bound.energy(space.weights), bound.energy(masses)
        errors.append(np.array(energies) - [UNIFORM_ENERGY, VMF_ENERGY])
    return np.abs(errors)


def test_known_energies_follow_from_one_integral():
    # E = int rho(x) Z(x); for the uniform density Z(x) = sinh|Dx| / |Dx|, in general
    # Z(x) = (concentration / sinh) sinh|Dx + concentration e_z| / |...|.
    rule = mf.product_sphere(3, 80)
    for concentration, energy in ((0.0, UNIFORM_ENERGY), (3.0, VMF_ENERGY)):
        size = np.linalg.norm(rule.points * D + [0, 0, concentration], axis=1)
        norm = concentration / np.sinh(concentration) if concentration else 1.0
        density = norm * np.exp(concentration * rule.points[:, 2])
        exact = rule.integrate(density * norm * np.sinh(size) / size)
        assert exact == pytest.approx(energy, abs=2e-12)


@pytest.mark.parametrize(("cells", "finest"), [("hexagons", 1.1e-4), ("triangles", 7e-5)])
def test_energies_on_meshes_are_second_order(cells, finest):
    errors = energy_errors([mf.icosphere(level, cells) for level in (2, 3, 4, 5)])
    for column in errors.T:
        assert np.abs(observed_orders(column) - 2).max() < 0.2
    assert errors[-1, 0] < 2e-8
    assert errors[-1, 1] < finest


def test_energies_on_lebedev_rules_are_spectral():
    errors = energy_errors([mf.lebedev(order) for order in (5, 7, 9, 11, 15)])
    # Two or four more degrees gain an ever larger factor, until the digits of the value end.
    for column in (errors[:4, 0], errors[:, 1]):
        gains = column[:-1] / column[1:]
        assert gains.min() > 12
    assert errors[3, 0] < 1e-11
    assert errors[4, 1] < 5e-11
    assert energy_errors([mf.lebedev(order) for order in (17, 29, 47)]).max() < 5e-13
