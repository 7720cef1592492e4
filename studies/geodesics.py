"""What does the nonlocal mobility do to geodesics?

W_m for K = exp(lambda x.y), lambda from -3 to 3, against W_2 (K = 1), between two clusters at a
right angle and between a cluster and the uniform density, on S^1 and S^2. The mobility Z is
largest, for lambda > 0, and smallest, for lambda < 0, where all mass is in one place: with
lambda > 0 mass spreads before it travels, with lambda < 0 it gathers. Beside W_m stands the
length in W_m of the W_2 geodesic. Between two Diracs W_m = exp(lambda/2) angle for lambda <= 0;
for lambda > 0 that is only what the straight path costs, and particles and cells find less.

On cells W_m of K = 1 stands for W_2 in all ratios: then exp(-|lambda|/2) <= W_m / W_2 <=
exp(|lambda|/2) holds without a discretisation error. The column W2 is exact for the points.

Run as `python studies/geodesics.py`; Burger, Kabri, Korolev, Roith, Weigand (2025), eq. (2.3)
and Theorem 2.3 (corrected).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

import meanfield as mf
from meanfield.plots.meshes import hemisphere_polygons, view_frame
from meanfield.sphere.geometry import directions
from meanfield.transport.mesh_tangent import tangent_velocity

LAMBDAS = np.array([-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0])
ON_CIRCLE, ON_SPHERE = (-3.0, -1.0, 0.0, 1.0, 3.0), (-3.0, 0.0, 3.0)  # drawn
PAIRS = ("two clusters", "cluster and uniform")
CONCENTRATION = {2: 20.0, 3: 10.0}
STEPS_ON_SPHERE = 8
ANGLE = np.pi / 2
FEW_CELLS = 300  # up to which the paths are also searched from the W_2 geodesic
PARTICLES, STARTS, CLOUD_STEPS = (1, 8, 24, 48, 96), (1, 4), 12
QUANTILES = 32  # particles beside the cells of S^1
COLOURS, POWER = "magma", 0.4  # of densities; the power shows thin mass
TICKS = (0, 0.3, 1, 3, 10, 20, 40)


def measures(mesh, pair: str) -> tuple[mf.Measure, mf.Measure]:
    """Clusters at -45 and 45 degrees in the plane of e_1 and e_2, or one at e_1 and uniform."""
    n = mesh.dimension
    turned = (-ANGLE / 2, ANGLE / 2) if pair == "two clusters" else (0.0,)
    means = np.pad(directions(np.array(turned)), ((0, 0), (0, n - 2)))
    found = []
    for mean in means:
        masses = mesh.weights * mf.von_mises_fisher(mean, CONCENTRATION[n])(mesh.points)
        found.append(mf.Measure(mesh.points, masses / masses.sum(), mesh))
    return found[0], (found[1] if len(found) > 1 else mf.Measure(mesh.points, mesh.weights, mesh))


def kernel(lam: float, n: int) -> mf.Interaction:
    """D = lambda Id."""
    return mf.Interaction(np.full(n, lam))


def spread(points, masses) -> np.ndarray:
    """``1 - |int x dmu|^2 = 1/2 int int |x - y|^2 dmu dmu``: 0 for a Dirac, 1 for uniform."""
    return 1 - np.sum((masses @ points) ** 2, axis=-1)


def length(path, interaction) -> float:
    """The length in W_m of a curve of masses on a mesh."""
    middle, change = (path.masses[1:] + path.masses[:-1]) / 2, np.diff(path.masses, axis=0)
    return float(np.mean([
        tangent_velocity(path.mesh, mass, step * len(change), interaction).speed
        for mass, step in zip(middle, change, strict=True)
    ]))  # fmt: skip


def geodesics(mesh, pair: str, lambdas, steps: int) -> tuple[list[dict], dict[float, mf.Geodesic]]:
    """Rows of the table, and the geodesics by lambda."""
    a, b = measures(mesh, pair)
    straight = mf.mobility_distance(a, b, 1.0, steps)
    exact = mf.wasserstein(a, b)
    rows, paths = [], {}
    for lam in lambdas:
        interaction = kernel(lam, mesh.dimension)
        best, other = mf.mobility_distance(a, b, interaction, steps), np.nan
        if mesh.n_cells <= FEW_CELLS:
            second = mf.mobility_distance(a, b, interaction, steps, start=straight.masses)
            best, worse = sorted((best, second), key=lambda path: path.distance)
            other = worse.distance / best.distance - 1
        paths[float(lam)] = best
        rows.append({
            "n": mesh.dimension,
            "pair": pair,
            "lambda": float(lam),
            "W_m": best.distance,
            "W2": exact,
            "W2_cells": straight.distance,
            "cloud": between_clouds(a, b, lam) if mesh.dimension == 2 else np.nan,
            "lower": np.exp(-abs(lam) / 2),
            "upper": np.exp(abs(lam) / 2),
            "ratio": best.distance / straight.distance,
            "ratio_of_W2_path": length(straight, interaction) / straight.distance,
            "other_start": other,
            "spread": spread(best.points, best.masses[steps // 2]),
            "speed_variation": best.speed_variation,
            "residual": best.residual,
            "converged": best.converged,
        })  # fmt: skip
    return rows, paths


def between_clouds(a: mf.Measure, b: mf.Measure, lam: float) -> float:
    """W_m between equal particles at the quantiles of masses on S^1, by particles."""
    ranks = (np.arange(QUANTILES) + 0.5) / QUANTILES
    ends = []
    for measure in (a, b):
        count = len(measure.masses)
        walls = (np.arange(count + 1) - 0.5) * 2 * np.pi / count - np.pi
        below = np.append(0.0, np.cumsum(np.roll(measure.masses, count // 2)))
        ends.append(directions(np.interp(ranks, below, walls)))
    return mf.mobility_distance(*ends, kernel(lam, 2), CLOUD_STEPS, starts=1).distance


def diracs(cells: int, lambdas) -> list[dict]:
    """Two Diracs at a right angle: the straight path, 24 particles, and cells of two sizes."""
    ends = directions(np.array([0.0, ANGLE]))
    rows = []
    for lam in lambdas:
        cloud = mf.mobility_distance(ends[:1], ends[1:], kernel(lam, 2), CLOUD_STEPS, 24)
        coarse, fine = (between_cells(count, lam) for count in (cells // 2, cells))
        rows.append({
            "lambda": float(lam),
            "straight": np.exp(lam / 2) * ANGLE,
            "cloud": cloud.distance,
            "coarse_cells": coarse.distance,
            "cells": fine.distance,
            "converged": cloud.converged and coarse.converged and fine.converged,
        })  # fmt: skip
    return rows


def between_cells(count: int, lam: float) -> mf.Geodesic:
    """Single cells of S^1 at a right angle."""
    mesh = mf.circle(count)
    a, b = (mf.Measure(mesh.points, np.eye(count)[cell], mesh) for cell in (0, count // 4))
    return mf.mobility_distance(a, b, kernel(lam, 2), count // 4)


def clouds(particles, starts, lam: float = LAMBDAS[-1]) -> np.ndarray:
    """What N particles reach between two Diracs, shape (particles, starts)."""
    ends = directions(np.array([0.0, ANGLE]))
    return np.array([
        [mf.mobility_distance(ends[:1], ends[1:], kernel(lam, 2), CLOUD_STEPS, count,
                              tried).distance for tried in starts]
        for count in particles
    ])  # fmt: skip


def main(output="output", resolution: int = 96) -> dict:
    """Draw the pictures; return the tables.

    Parameters
    ----------
    output : path-like
        Folder of ``geodesics.png``, ``geodesics_sphere.png``, ``geodesics.csv``,
        ``geodesics_diracs.csv`` and ``geodesics_clouds.csv``.
    resolution : int
        Cells on S^1, a multiple of 8; a quarter as many intervals of time. From 96 on S^2 has
        642 cells, below 162.
    """
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    meshes = (mf.circle(resolution), mf.icosphere(3 if resolution >= 96 else 2))
    table, paths = [], {}
    for mesh, steps in zip(meshes, (resolution // 4, STEPS_ON_SPHERE), strict=True):
        for pair in PAIRS:
            rows, paths[mesh.dimension, pair] = geodesics(mesh, pair, LAMBDAS, steps)
            table += rows
    points = diracs(resolution, LAMBDAS)
    counts = PARTICLES if resolution >= 96 else PARTICLES[:3]
    reached = clouds(counts, STARTS)
    write(folder / "geodesics.csv", table)
    write(folder / "geodesics_diracs.csv", points)
    names = ",".join(["particles", *(f"starts_{tried}" for tried in STARTS)])
    np.savetxt(folder / "geodesics_clouds.csv", np.column_stack([counts, reached]), delimiter=",",
               fmt="%.10g", header=names, comments="")  # fmt: skip
    draw_circle(table, paths, points).savefig(folder / "geodesics.png", dpi=150)
    draw_spheres(paths).savefig(folder / "geodesics_sphere.png", dpi=150)
    return {"geodesics": table, "diracs": points, "particles": counts, "clouds": reached}


def write(path: Path, rows: list[dict]) -> None:
    """A CSV file of rows."""
    lines = [",".join(rows[0])]
    lines += [",".join(text(value) for value in row.values()) for row in rows]
    path.write_text("\n".join(lines) + "\n")


def text(value) -> str:
    """A value in a table."""
    return f"{value:.8g}" if isinstance(value, float) else str(value)


def column(table, n: int, pair: str, name: str) -> np.ndarray:
    """One column of the table over lambda."""
    return np.array([row[name] for row in table if row["n"] == n and row["pair"] == pair])


def words(lam: float) -> str:
    """The title of a geodesic."""
    return "$W_2$ (λ = 0)" if lam == 0 else f"$W_m$, λ = {lam:g}".replace("-", "\N{MINUS SIGN}")


def draw_circle(table, paths, points) -> Figure:
    """Density over angle and time on S^1, one row for each pair; ratios and spread below."""
    figure = Figure(figsize=(13, 10.5), layout="constrained")
    FigureCanvasAgg(figure)
    *blocks, below = figure.subfigures(3, 1, height_ratios=(1, 1, 1.3))
    norm = PowerNorm(POWER, 0.0, max(
        (path.masses / path.mesh.weights).max()
        for pair in PAIRS for lam, path in paths[2, pair].items() if lam in ON_CIRCLE
    ))  # fmt: skip
    for block, pair in zip(blocks, PAIRS, strict=True):
        panels = block.subplots(1, len(ON_CIRCLE), sharey=True)
        for panel, lam in zip(panels, ON_CIRCLE, strict=True):
            image = draw_map(panel, paths[2, pair][lam], norm)
            panel.set_title(words(lam), fontsize=11)
        panels[0].set_ylabel(f"{pair}\nangle θ")
        bar = block.colorbar(image, ax=panels, pad=0.01, aspect=14, ticks=TICKS, format="%g")
        bar.set_label("density (uniform is 1)")
    panels = below.subplots(1, 3)
    draw_ratios(panels[0], table)
    draw_spread(panels[1], paths)
    draw_diracs(panels[2], points, paths[2, PAIRS[0]][0.0].mesh.n_cells)
    return figure


def draw_map(panel, path, norm):
    """The density of one geodesic on S^1, colours over time and angle."""
    mesh = path.mesh
    half = mesh.n_cells // 2
    density = np.roll(path.masses / mesh.weights, half, axis=1)
    edges = (np.arange(mesh.n_cells + 1) - 0.5) * 2 * np.pi / mesh.n_cells - np.pi
    step = path.times[1] / 2
    times = np.append(path.times - step, 1 + step).clip(0, 1)
    image = panel.pcolormesh(times, edges, density.T, norm=norm, cmap=COLOURS, rasterized=True)
    panel.set(xlabel="time t", xlim=(0, 1), ylim=(-np.pi, np.pi), xticks=(0, 0.5, 1))
    panel.set_yticks(np.pi * np.array([-1, -0.5, 0, 0.5, 1]), ["−π", "−π/2", "0", "π/2", "π"])
    return image


def draw_ratios(panel, table) -> None:
    """W_m / W_2 over lambda between its bounds, and for the W_2 geodesic."""
    fine = np.linspace(LAMBDAS[0], LAMBDAS[-1], 121)
    panel.fill_between(fine, np.exp(-abs(fine) / 2), np.exp(abs(fine) / 2), color="0.93",
                       label="between the bounds")  # fmt: skip
    for pair, style in zip(PAIRS, ("-", "--"), strict=True):
        for n, color in ((2, "C0"), (3, "C3")):
            ratios, along = (column(table, n, pair, name)
                             for name in ("ratio", "ratio_of_W2_path"))  # fmt: skip
            panel.semilogy(LAMBDAS, ratios, style, marker="o", ms=4, color=color,
                           label=f"$S^{n - 1}$, {pair}")  # fmt: skip
            panel.semilogy(LAMBDAS, along, "x", ms=6, color=color)
    panel.plot([], [], "x", color="0.3", label="along the $W_2$ geodesic")
    panel.set_yticks([0.25, 0.5, 1, 2, 4], ["1/4", "1/2", "1", "2", "4"])
    panel.minorticks_off()
    panel.set(xlabel="λ", ylabel="$W_m$ / $W_2$", title="distance", ylim=(0.2, 5.8))
    panel.legend(fontsize=8, loc="upper center")


def draw_spread(panel, paths) -> None:
    """The spread over time on S^1."""
    shades = ["k" if lam == 0 else colormaps["coolwarm"]((lam + 3) / 6) for lam in ON_CIRCLE]
    for pair, style in zip(PAIRS, ("-", "--"), strict=True):
        for lam, shade in zip(ON_CIRCLE, shades, strict=True):
            path = paths[2, pair][lam]
            panel.plot(path.times, spread(path.points, path.masses), style, color=shade,
                       label=words(lam) if style == "-" else None)  # fmt: skip
    panel.plot([], [], "--", color="0.3", label=PAIRS[1])
    panel.set(xlabel="time t", ylabel="1 − |mean|²", xlim=(0, 1), title="spread on $S^1$")
    panel.legend(fontsize=7.5, loc="center right", bbox_to_anchor=(1.0, 0.57))


def draw_diracs(panel, points, cells: int) -> None:
    """Two Diracs at a right angle, over the cost of the straight path."""
    straight = np.array([row["straight"] for row in points])
    for name, style, label in (
        ("cloud", "C0o-", "24 particles"),
        ("coarse_cells", "C1s:", f"two cells of {cells // 2}"),
        ("cells", "C1s-", f"two cells of {cells}"),
    ):
        panel.plot(LAMBDAS, [row[name] for row in points] / straight, style, ms=4, label=label)
    panel.axhline(1, color="k", lw=1, ls=":", label="straight path, exact for λ ≤ 0")
    panel.set(xlabel="λ", ylabel="$W_m$ / ($e^{λ/2}$ π/2)", title="two Diracs at π/2 on $S^1$")
    panel.margins(y=0.08)
    panel.legend(fontsize=8)


def draw_spheres(paths) -> Figure:
    """Densities on S^2: rows lambda, columns times, and the far side at half time."""
    figure = Figure(figsize=(11, 11.6), layout="constrained")
    FigureCanvasAgg(figure)
    blocks = figure.subfigures(2, 1)
    for block, pair in zip(blocks, PAIRS, strict=True):
        draw_block(block, {lam: paths[3, pair][lam] for lam in ON_SPHERE})
        block.suptitle(f"{pair} on $S^2$", fontsize=13)
    return figure


def draw_block(figure, paths) -> None:
    """One pair of measures."""
    mesh = next(iter(paths.values())).mesh
    steps = len(next(iter(paths.values())).speed)
    frames = [0, steps // 4, steps // 2, 3 * steps // 4, steps]
    top = max((path.masses / mesh.weights).max() for path in paths.values())
    norm = PowerNorm(POWER, 0.0, top)
    sides = [hemisphere_polygons(mesh.nodes, mesh.cell_nodes, view_frame([sign, 0.0, 0.0]))
             for sign in (1.0, -1.0)]  # fmt: skip
    panels = figure.subplots(len(paths), 6)
    for number, (row, (lam, path)) in enumerate(zip(panels, paths.items(), strict=True)):
        density = path.masses / mesh.weights
        for panel, frame in zip(row, frames, strict=False):
            draw_side(panel, sides[0], density[frame], norm)
            if number == 0:
                panel.set_title(f"t = {path.times[frame]:g}", fontsize=10)
        image = draw_side(row[5], sides[1], density[frames[2]], norm)
        row[0].set_ylabel(words(lam), fontsize=11)
    panels[0, 5].set_title(f"t = {path.times[frames[2]]:g}, far side", fontsize=10)
    bar = figure.colorbar(image, ax=panels, aspect=30, pad=0.01, ticks=TICKS, format="%g")
    bar.set_label("density (uniform is 1)")


def draw_side(panel, side, density, norm) -> PolyCollection:
    """One hemisphere in equal-area projection."""
    polygons, cells = side
    patches = PolyCollection(polygons, array=density[cells], cmap=COLOURS, norm=norm,
                             edgecolors="face", linewidths=0.3, rasterized=True)  # fmt: skip
    patches.set_in_layout(False)
    panel.add_collection(patches, autolim=False)
    panel.plot(*(np.sqrt(2) * directions(np.linspace(0, 2 * np.pi, 181))).T, color="0.2", lw=1)
    panel.set(xlim=(-1.45, 1.45), ylim=(-1.45, 1.45), aspect="equal", xticks=[], yticks=[])
    panel.set_frame_on(False)
    return patches


def show(rows: list[dict]) -> None:
    """Print a table."""
    width = {name: max(len(name), 10) for name in rows[0]}
    width |= {"n": 2, "pair": 20} if "pair" in width else {}
    print(" ".join(f"{name:>{size}}" for name, size in width.items()))
    for row in rows:
        cells = (f"{v:.5g}" if isinstance(v, float) else str(v) for v in row.values())
        print(" ".join(f"{cell:>{size}}" for cell, size in zip(cells, width.values(), strict=True)))


if __name__ == "__main__":
    results = main()
    show(results["geodesics"])
    show(results["diracs"])
    print("two Diracs, lambda = 3: particles, then W_m for", STARTS, "starts")
    print(np.column_stack([results["particles"], results["clouds"]]))
