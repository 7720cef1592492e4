"""Print the tables of accuracy.md.

Run as ``python docs/accuracy.py [circle] [hexagons] [triangles] [other] [characteristics]
[energies] [guide]``, all of them by default: about ten minutes on one core.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path

import numpy as np

import meanfield as mf
from meanfield.dynamics.evolution import initial_masses
from meanfield.dynamics.verification import Verification, reference_solution, verify

MEAN = np.array([0.3, -0.5, 0.8])
DIAGONAL = {2: [0.5, 2.0], 3: [0.5, 1.0, 2.0]}
END = {-1: 1.0, 1: 0.3}
SIGNS = (-1, 1)
WANTED = (1e-2, 1e-3, 1e-4, 1e-5)
SAMPLES = 500  # random points at which densities from characteristics are compared
LEVELS = {"hexagons": (3, 4, 5, 6), "triangles": (3, 4, 5)}
VORONOI = (642, 2562, 10242)
CUBES = (12, 24, 48)
CIRCLES = (64, 128, 256, 512, 1024)
LEBEDEV = (11, 17, 23, 29, 35, 41, 47, 59)
RINGS = (16, 24, 32, 48, 64, 96)


def setting(n: int, sign: int):
    """Model, density and end time."""
    model = mf.SelfAttention(DIAGONAL[n], sign=sign)
    return model, mf.von_mises_fisher(MEAN[:n], 2.0), END[sign]


@cache
def reference(n: int, sign: int):
    """The solution at the end time, as a series of harmonics."""
    return reference_solution(*setting(n, sign))


@cache
def makers():
    """The script that makes the stored meshes."""
    path = Path(__file__).parents[1] / "meshes" / "make_meshes.py"
    spec = importlib.util.spec_from_file_location("make_meshes", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def meshes(kind: str) -> tuple[mf.Mesh, ...]:
    """Meshes of a kind, coarse to fine."""
    if kind == "circle":
        return tuple(mf.circle(cells) for cells in CIRCLES)
    if kind == "voronoi":
        return tuple(makers().voronoi(count, seed=1) for count in VORONOI)
    if kind == "cubed sphere":
        return tuple(makers().cubed_sphere(cells) for cells in CUBES)
    return tuple(mf.icosphere(level, kind) for level in LEVELS[kind])


@cache
def table(kind: str, sign: int, order: int) -> Verification:
    """Finite volumes against characteristics on the meshes of a kind."""
    n = meshes(kind)[0].dimension
    return verify(meshes(kind), *setting(n, sign), order, reference(n, sign))


def title(text: str) -> None:
    """Announce a table."""
    print(f"\n--- {text}\n", flush=True)


def print_table(kind: str, sign: int, order: int = 2) -> None:
    """Print one convergence table."""
    title(f"{kind}, sign {sign:+d}, t = {END[sign]:g}, order {order}")
    print(table(kind, sign, order), flush=True)


def circle() -> None:
    """Arcs of S^1."""
    print_table("circle", -1)
    print_table("circle", -1, order=1)
    print_table("circle", 1)


def hexagons() -> None:
    """Hexagons of the icosphere."""
    print_table("hexagons", -1)
    print_table("hexagons", -1, order=1)
    print_table("hexagons", 1)


def triangles() -> None:
    """Triangles of the icosphere."""
    for sign in SIGNS:
        print_table("triangles", sign)


def other() -> None:
    """Meshes that take the field velocity."""
    for kind in ("voronoi", "cubed sphere"):
        for sign in SIGNS:
            print_table(kind, sign)


def characteristics() -> None:
    """Moved nodes against the finest of them."""
    for n, rules in ((2, [mf.circle(m) for m in RINGS]), (3, [mf.lebedev(m) for m in LEBEDEV])):
        for sign in SIGNS:
            title(f"characteristics on S^{n - 1}, sign {sign:+d}, t = {END[sign]:g}")
            finest = mf.circle(256) if n == 2 else mf.lebedev(77)
            print_characteristics(rules, finest, *setting(n, sign))


def print_characteristics(rules, finest, model, density, t_end) -> None:
    """Errors of moments, energy and density against those of the finest nodes."""
    x = np.random.default_rng(0).normal(size=(SAMPLES, model.dimension))
    x /= np.linalg.norm(x, axis=1, keepdims=True)

    def results(space):
        run = mf.evolve_characteristics(space, model, density, t_end, save=2)
        first, second = run.moments()
        moments = np.concatenate([first[-1], second[-1].ravel()])
        return moments, run.energy[-1], run.density_at(x, t_end), run.audit["volume_error"][-1]

    exact = results(finest)
    heads = ("moments", "energy", "density", "volume")
    print(f"{'nodes':>12} {'count':>6}" + "".join(f" {head:>9}" for head in heads))
    for space in rules:
        found = results(space)
        errors = [float(np.abs(a - b).max()) for a, b in zip(found[:3], exact[:3], strict=True)]
        figures = "".join(f" {value:9.2e}" for value in (*errors, found[3]))
        print(f"{space.name:>12} {len(space):>6}" + figures, flush=True)


def energies() -> None:
    """The energies of two densities whose values are known."""
    title("energies of D = diag(1, 2, -1): uniform 1.376077897274, vMF(e_z, 3) 0.783955164741")
    print(f"{'space':>22} {'points':>7} {'uniform':>9} {'order':>5} {'vMF':>9} {'order':>5}")
    for kind in ("hexagons", "triangles"):
        previous = None
        for level in (2, 3, 4, 5):
            previous = _print_energies(mf.icosphere(level, kind), previous)
    for degree in (5, 7, 9, 11, 15, 17):
        _print_energies(mf.lebedev(degree), None)


def _print_energies(space, previous) -> np.ndarray:
    """Print errors, and orders relative to those of the mesh before."""
    density = mf.von_mises_fisher([0, 0, 1], 3.0)
    if isinstance(space, mf.Mesh):
        masses, _ = initial_masses(space, density)
    else:
        masses = space.weights * density(space.points)
        masses /= masses.sum()
    bound = mf.Interaction([1.0, 2.0, -1.0]).on(space)
    found = np.array([bound.energy(space.weights), bound.energy(masses)])
    errors = np.abs(found - [1.376077897274, 0.783955164741])
    orders = ["", ""] if previous is None else [f"{p:.2f}" for p in np.log2(previous / errors)]
    figures = zip(errors, orders, strict=True)
    columns = "".join(f" {error:9.2e} {order:>5}" for error, order in figures)
    print(f"{space.name:>22} {len(space):7,}" + columns)
    return errors


def guide() -> None:
    """Cells that a wanted L1 error of the density needs, from the tables above."""
    for sign in SIGNS:
        title(f"cells (and size h) for a wanted L1 error, sign {sign:+d}, t = {END[sign]:g}")
        print(f"{'error':>14}" + "".join(f" {wanted:>18.0e}" for wanted in WANTED))
        for kind in ("circle", "hexagons", "triangles", "voronoi", "cubed sphere"):
            result = table(kind, sign, 2)
            last = result.rows[-1]
            power = 1 if kind == "circle" else 2
            line = f"{kind:>14}"
            for wanted in WANTED:
                size = result.size_for(wanted)
                cells = float(f"{last.cells * (last.size / size) ** power:.2g}")
                entry = f"{cells:,.0f} ({size:.2g})"
                line += f" {entry:>18}"
            print(line, flush=True)


TABLES = (circle, hexagons, triangles, other, characteristics, energies, guide)


def main(*names: str) -> None:
    """Print the tables of these names, or all."""
    for function in TABLES:
        if not names or function.__name__ in names:
            function()


if __name__ == "__main__":
    main(*sys.argv[1:])
