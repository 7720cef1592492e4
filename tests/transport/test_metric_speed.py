"""Metric speed and the energy dissipation inequality: flows, perturbed curves, geodesics."""

import numpy as np
import pytest
from scipy.integrate import simpson

import meanfield as mf
from meanfield.errors import InputError
from meanfield.sphere.geometry import normalize, tangential
from meanfield.transport.metric_speed import curve_slope

FLOWS = [([1.0, -0.5, 2.0], 1), ([1.0, 2.0], -1), ([2.0, 2.0, 2.0], -1)]


def particle_run(D, sign, save=41, normalized=True):
    points = mf.random_points(12, len(D), 3)
    model = mf.SelfAttention(D, sign, normalized=normalized)
    return mf.evolve_particles(points, model, 1.0, save=save, tolerance=1e-11)


@pytest.mark.parametrize(("D", "sign"), FLOWS)
@pytest.mark.parametrize("normalized", [True, False])
def test_dissipation_equality_along_flows(D, sign, normalized):
    """Zero up to Simpson's rule in time: order four in the number of frames."""
    defects = []
    for save in (11, 21, 41):
        found = mf.maximal_slope(particle_run(D, sign, save, normalized))
        assert found.energy_change < 0
        assert found.kinetic == pytest.approx(found.slope, rel=1e-12)
        defects.append(abs(found.defect) / -found.energy_change)
    assert defects[2] < 3e-6
    assert np.log2(defects[0] / defects[2]) / 2 > 3.5, defects


@pytest.mark.parametrize(("D", "sign"), FLOWS)
def test_perturbed_curves_pay_more(D, sign):
    """The defect is half the squared distance of the velocities: order two in the size."""
    run = particle_run(D, sign, save=81)
    noise = np.random.default_rng(1).normal(size=run.points.shape[1:])
    bump = np.sin(np.pi * run.times)[:, None, None] * tangential(run.points, noise)
    defects = [
        curve_slope(normalize(run.points + size * bump), run.weights, run.times, run.model).defect
        for size in (0.0, 0.05, 0.1)
    ]
    assert 0 < defects[0] < 1e-3 * defects[1]  # arcs are no flow either
    assert np.log2(defects[2] / defects[1]) == pytest.approx(2, abs=0.15)


@pytest.mark.parametrize(("D", "sign"), FLOWS)
def test_flows_are_longer_than_geodesics_and_descend_fastest(D, sign):
    run = particle_run(D, sign)
    length = simpson(mf.metric_speed(run), x=run.times)
    kernel = mf.Interaction(D)
    start = mf.Measure(run.points[0])
    shortest = mf.mobility_distance(start, run, kernel, 16, 12, 2)
    straight = mf.mobility_distance(start, run, 1.0, 16, 12)
    assert shortest.converged
    assert 0.9 * length < shortest.distance < length
    energy_change = mf.maximal_slope(run).energy_change
    for curve in (shortest, straight):
        found = mf.maximal_slope(curve, run.model, duration=1.0)
        assert found.energy_change == pytest.approx(energy_change, rel=1e-9)
        assert found.defect > 0.01 * -energy_change
    kinetic = mf.maximal_slope(shortest, run.model, duration=1.0).kinetic
    assert kinetic == pytest.approx(shortest.distance**2 / 2, rel=1e-4)
    slower = mf.maximal_slope(shortest, run.model, duration=2.0).kinetic
    assert slower == pytest.approx(kinetic / 2, rel=1e-12)


def test_speed_of_two_particles_by_hand():
    """Two particles at angle phi on S^1, D = L Id: Z = (e^L + e^(L cos))/2, |v| known."""
    strength, angle = 1.3, 2.0
    points = np.array([[1.0, 0.0], [np.cos(angle), np.sin(angle)]])
    run = mf.evolve_particles(points, mf.SelfAttention([strength, strength]), 0.5, save=3)
    near, far = np.exp(strength), np.exp(strength * np.cos(angle))
    speed = strength * np.sin(angle) * far / (near + far)
    expected = np.sqrt((near + far) / 2) * speed
    assert mf.metric_speed(run)[0] == pytest.approx(expected, rel=1e-14)


def test_densities_on_meshes_and_moving_nodes():
    """The squared speed is the dissipation of the audit; the equality holds at order two."""
    model = mf.SelfAttention([1.0, 2.0], -1)
    density = mf.von_mises_fisher([1, 1], 2.0)
    defects = []
    for cells in (32, 64, 128):
        run = mf.evolve(mf.circle(cells), model, density, 1.0, save=41)
        change = mf.maximal_slope(run).energy_change
        defects.append(mf.maximal_slope(run).defect / -change)
    assert np.abs(mf.metric_speed(run) ** 2 / run.dissipation - 1).max() < 5e-3
    assert defects[2] < 5e-4
    assert np.log2(defects[0] / defects[2]) / 2 > 1.9, defects
    nodes = mf.evolve_characteristics(mf.circle(64), model, density, 1.0, save=41)
    assert np.abs(mf.metric_speed(nodes) ** 2 / nodes.dissipation - 1).max() < 1e-10
    assert abs(mf.maximal_slope(nodes).defect) < 1e-6


def test_bad_input():
    ensemble = mf.evolve_particles(
        mf.random_points(4, 3, 1, starts=2), mf.SelfAttention([1.0, 1.0, 1.0]), 0.1, save=2
    )
    with pytest.raises(InputError, match="choose one"):
        mf.metric_speed(ensemble)
    assert mf.metric_speed(ensemble.start(0)).shape == (2,)
    with pytest.raises(InputError, match="a run or a geodesic"):
        mf.metric_speed(np.eye(2))
    turning = mf.SelfAttention([1.0, 1.0], V=[[0.0, -1.0], [1.0, 0.0]])
    run = mf.evolve_particles(np.eye(2), turning, 0.1, save=2)
    assert mf.metric_speed(run).min() > 0
    with pytest.raises(InputError, match="no gradient flow"):
        mf.maximal_slope(run)
    geodesic = mf.mobility_distance([[1.0, 0.0]], [[0.0, 1.0]], 1.0, 4)
    assert np.array_equal(mf.metric_speed(geodesic), geodesic.speed)
    with pytest.raises(InputError, match="give the model"):
        mf.maximal_slope(geodesic)
    with pytest.raises(InputError, match="duration must be > 0"):
        mf.maximal_slope(geodesic, mf.SelfAttention([1.0, 1.0]), 0.0)
    with pytest.raises(InputError, match="its own model"):
        mf.maximal_slope(ensemble.start(0), mf.SelfAttention([1.0, 1.0, 1.0]))
