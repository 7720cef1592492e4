"""Fuzzed meshes: the same mesh in another order, rotated, perturbed, or broken."""

import functools
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

import meanfield as mf
from meanfield.errors import InputError, MeshError, PointsError
from meanfield.sphere.connectivity import FILL
from meanfield.sphere.geometry import exp_map, normalize, tangential

D = np.diag([0.5, 1.0, 2.0])
MEAN = np.array([0.3, -0.5, 0.8])
T_END = 0.2
UPRIGHT = np.eye(3)
KINDS = ("hexagons", "triangles")

fuzz = functools.partial(
    settings,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
seeds = st.integers(0, 2**32 - 1)
kinds = st.sampled_from(KINDS)


@functools.cache
def original(kind, level=2) -> mf.Mesh:
    return mf.icosphere(level, kind)


def shuffled(mesh, rng):
    """The same mesh: cells and nodes in another order, other starting corners, wider rows."""
    new = rng.permutation(len(mesh.nodes))
    order = rng.permutation(mesh.n_cells)
    nodes = np.empty_like(mesh.nodes)
    nodes[new] = mesh.nodes
    cells = np.full((mesh.n_cells, mesh.cell_nodes.shape[1] + rng.integers(3)), FILL)
    for row, source in zip(cells, mesh.cell_nodes[order], strict=True):
        corners = source[source != FILL]
        row[: len(corners)] = new[np.roll(corners, rng.integers(len(corners)))]
    return nodes, cells, order


def evolved(mesh, rotation=UPRIGHT):
    """A short run of the rotated model, its moments turned back."""
    model = mf.SelfAttention(rotation @ D @ rotation.T, sign=-1)
    run = mf.evolve(mesh, model, mf.von_mises_fisher(rotation @ MEAN, 2.0), T_END, save=2)
    first, second = run.moments()
    moments = first[-1] @ rotation, rotation.T @ second[-1] @ rotation
    return SimpleNamespace(run=run, moments=moments, energy=run.energy[-1])


@functools.cache
def original_run(kind, centres):
    mesh = original(kind)
    return evolved(mesh if centres else mf.Mesh.from_cells(mesh.nodes, mesh.cell_nodes))


def assert_same(one, other, moments, energy):
    for a, b in zip(one.moments, other.moments, strict=True):
        assert np.abs(a - b).max() <= moments
    assert abs(one.energy - other.energy) <= energy


@fuzz(max_examples=24)
@given(seed=seeds, kind=kinds, centres=st.booleans(), rotate=st.booleans())
def test_order_and_orientation_in_space_do_not_matter(seed, kind, centres, rotate):
    rng = np.random.default_rng(seed)
    mesh = original(kind)
    nodes, cells, order = shuffled(mesh, rng)
    rotation = Rotation.random(rng=rng).as_matrix() if rotate else UPRIGHT
    points = mesh.points[order] @ rotation.T if centres else None
    again = mf.Mesh.from_cells(nodes @ rotation.T, cells, points)
    same = mesh if centres else mf.Mesh.from_cells(mesh.nodes, mesh.cell_nodes)
    assert again.orthogonal == same.orthogonal
    assert np.abs(again.areas - mesh.areas[order]).max() < 1e-14
    assert np.abs(again.centroids - mesh.centroids[order] @ rotation.T).max() < 1e-13
    for values in ("edge_lengths", "edge_distances"):
        difference = np.sort(getattr(again, values)) - np.sort(getattr(same, values))
        assert np.abs(difference).max() < 1e-13
    # Edges join the same cells.
    assert edge_set(order[again.edge_cells]) == edge_set(mesh.edge_cells)
    answer = evolved(again, rotation)
    assert_same(answer, original_run(kind, centres), 1e-12, 1e-12)
    if centres:
        masses = original_run(kind, centres).run.masses[-1][order]
        assert np.abs(answer.run.masses[-1] - masses).max() < 1e-13


def edge_set(pairs):
    return set(map(tuple, np.sort(pairs, axis=1).tolist()))


@fuzz(max_examples=40)
@given(seed=seeds, kind=kinds, amplitude=st.floats(0, 0.6), alone=st.booleans())
def test_moved_nodes_give_nearly_the_same_answer_or_a_named_error(seed, kind, amplitude, alone):
    # Nodes move by up to this part of the size of the cells: one of them, or all.
    rng = np.random.default_rng(seed)
    mesh = original(kind)
    shifts = tangential(mesh.nodes, rng.uniform(-1, 1, mesh.nodes.shape))
    shifts *= amplitude * mesh.edge_lengths.mean() / np.linalg.norm(shifts, axis=1).max()
    if alone:
        shifts[np.arange(len(shifts)) != rng.integers(len(shifts))] = 0.0
    nodes = normalize(exp_map(mesh.nodes, shifts))
    try:
        moved = mf.Mesh.from_cells(nodes, mesh.cell_nodes)
    except MeshError as error:
        assert "convex" in str(error) or "cover" in str(error)  # noqa: PT017
        assert amplitude > 0.25
        return
    assert abs(moved.areas.sum() - 4 * np.pi) < 1e-12
    assert moved.areas.min() > 0
    assert np.array_equal(moved.edge_cells, mesh.edge_cells)
    answer = evolved(moved)
    assert abs(answer.run.masses[-1].sum() - 1) < 1e-14
    assert answer.run.masses.min() >= 0
    # Both have an error of second order, and its constant changes with the shape of the cells.
    room = 1e-10 + 2e-3 * amplitude
    assert_same(answer, original_run(kind, False), room, 4 * room)


# --- broken meshes -------------------------------------------------------------------------


def overwrite(nodes, cells, rng):
    choices = [-2, -1, len(nodes), 2**31, 2**32 + 1, -(2**32), 2**62, rng.integers(len(nodes))]
    cells[pick(cells, rng)] = choices[rng.integers(len(choices))]
    return nodes, cells


def swap(nodes, cells, rng):
    a, b = pick(cells, rng), pick(cells, rng)
    cells[a], cells[b] = cells[b], cells[a]
    return nodes, cells


def drop_cells(nodes, cells, rng):
    return nodes, np.delete(cells, rng.integers(len(cells), size=rng.integers(1, 9)), axis=0)


def repeat_cells(nodes, cells, rng):
    return nodes, np.concatenate([cells, cells[rng.integers(len(cells), size=2)]])


def reverse_cells(nodes, cells, rng):
    some = rng.random(len(cells)) < rng.random()
    cells[some] = cells[some, ::-1]
    return nodes, cells


def drop_column(nodes, cells, rng):
    return nodes, np.delete(cells, rng.integers(cells.shape[1]), axis=1)


def move_fill(nodes, cells, rng):
    cells[rng.integers(len(cells))] = FILL
    return nodes, cells


def no_number(nodes, cells, rng):
    cells = cells.astype(float)
    cells[pick(cells, rng)] = rng.choice([np.nan, np.inf, -np.inf, 0.5, 1e300])
    return nodes, cells


def other_shape(nodes, cells, rng):
    shapes = [cells.ravel(), cells[None], cells[:0], cells[:, :2], cells[:3], cells[:, :0], cells.T]
    return nodes, shapes[rng.integers(len(shapes))]


def ragged(nodes, cells, rng):
    rows = cells.tolist()
    del rows[rng.integers(len(rows))][0]
    return nodes, rows


def words(nodes, cells, rng):
    cells = cells.astype(object)
    cells[pick(cells, rng)] = [None, "seven", {}][rng.integers(3)]
    return nodes, cells


def shuffle_numbers(nodes, cells, rng):
    used = cells != FILL
    cells[used] = rng.permutation(cells[used])
    return nodes, cells


def merge_nodes(nodes, cells, rng):
    a, b = rng.integers(len(nodes), size=2)
    nodes[a] = nodes[b]
    return nodes, cells


def merge_numbers(nodes, cells, rng):
    a, b = rng.integers(len(nodes), size=2)
    cells[cells == a] = b
    return nodes, cells


def bad_node(nodes, cells, rng):
    values = [np.nan, np.inf, -np.inf, 1e200, 2.0]
    nodes[rng.integers(len(nodes)), rng.integers(3)] = values[rng.integers(len(values))]
    return nodes, cells


def exchange_nodes(nodes, cells, rng):
    a, b = rng.integers(len(nodes), size=2)
    nodes[[a, b]] = nodes[[b, a]]
    return nodes, cells


def flatten_nodes(nodes, cells, rng):
    axes = rng.permutation(3)
    nodes[:, axes[0]] *= 0.0
    nodes[:, axes[1]] *= rng.choice([1e-200, 1e-9, 1.0])
    return normalize(nodes + 1e-300), cells


def two_spheres(nodes, cells, rng):
    again = np.where(cells == FILL, FILL, cells + len(nodes))
    turned = nodes @ Rotation.random(rng=rng).as_matrix()
    return np.concatenate([nodes, turned]), np.concatenate([cells, again])


def mirror(nodes, cells, rng):
    return nodes * rng.choice([-1.0, 1.0], size=3), cells


def pick(cells, rng):
    return tuple(rng.integers(cells.shape))


CORRUPTIONS = [overwrite, swap, drop_cells, repeat_cells, reverse_cells, drop_column, move_fill,
               no_number, other_shape, ragged, words, shuffle_numbers, merge_nodes, merge_numbers,
               bad_node, exchange_nodes, flatten_nodes, two_spheres, mirror]  # fmt: skip


@pytest.mark.parametrize("corrupt", CORRUPTIONS, ids=lambda function: function.__name__)
@fuzz(max_examples=30)
@given(seed=seeds, kind=kinds, level=st.integers(0, 2))
def test_broken_meshes_give_a_named_error(corrupt, seed, kind, level):
    mesh = original(kind, level)
    rng = np.random.default_rng(seed)
    nodes, cells = corrupt(mesh.nodes.copy(), mesh.cell_nodes.astype(np.int64), rng)
    try:
        result = mf.Mesh.from_cells(nodes, cells)
    except (MeshError, PointsError) as error:
        assert 10 < len(str(error)) < 300  # noqa: PT017
        return
    # Nothing was broken: an entry was replaced by itself, a pair of axes was mirrored.
    assert np.array_equal(result.cell_nodes, mesh.cell_nodes) or corrupt is reverse_cells
    assert abs(result.areas.sum() - 4 * np.pi) < 1e-12
    assert np.abs(np.sort(result.areas) - np.sort(mesh.areas)).max() < 1e-12


@fuzz(max_examples=40)
@given(seed=seeds, kind=kinds)
def test_broken_centres_give_a_named_error(seed, kind):
    mesh = original(kind)
    rng = np.random.default_rng(seed)
    points = mesh.points.copy()
    row, other = rng.choice(len(points), size=2, replace=False)
    breaks = [
        lambda: points * np.where(np.arange(len(points)) == row, np.nan, 1.0)[:, None],
        lambda: points[:-1],
        lambda: points[:, :2],
        lambda: points * 2,
        lambda: np.concatenate([points[:row], points[other : other + 1], points[row + 1 :]]),
        lambda: -points,
    ]
    with pytest.raises(InputError):
        mf.Mesh.from_cells(mesh.nodes, mesh.cell_nodes, breaks[rng.integers(len(breaks))]())
