"""Fig. 3: how do particles spread when they descend the energy?

400 particles under eq. (5.1) with the minus sign, for a definite and for singular positive
semidefinite matrices on S^2 as published, and on S^1. For definite D they cover the sphere, and
their energy is close to the minimum over all measures; for singular D they end on its null
space, where the energy is exactly one, the minimum (Theorem 3.4).

Run as `python studies/minimizing_particles.py`; Burger, Kabri, Korolev, Roith, Weigand (2025).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.special import i0
from sphere_drawing import draw_circle, draw_globe, draw_points

import meanfield as mf
from meanfield.dynamics.particle_starts import random_points
from meanfield.dynamics.particles import evolve_particles

# Name: matrix, step, and the minimum of E over all measures where it is known in closed form.
CASES = {
    "S2 Id": ([1.0, 1.0, 1.0], 0.1, np.sinh(1.0)),
    "S2 diag(1 1/4 1)": ([1.0, 0.25, 1.0], 0.5, None),
    "S2 diag(1 0 1)": ([1.0, 0.0, 1.0], 0.75, 1.0),
    "S2 diag(0 0 1)": ([0.0, 0.0, 1.0], 0.75, 1.0),
    "S1 Id": ([1.0, 1.0], 0.1, i0(1.0)),
    "S1 diag(1 1/4)": ([1.0, 0.25], 0.5, None),
    "S1 diag(1 0)": ([1.0, 0.0], 0.75, 1.0),
}
ITERATIONS = 20_000
SEED = 3


def null_distance(D, final) -> float:
    """Largest distance of a particle to the null space of D; NaN for a definite D."""
    image = final[:, np.array(D) > 0]
    return float(np.linalg.norm(image, axis=1).max()) if min(D) == 0 else np.nan


def main(output="output", resolution: int = 400) -> dict[str, dict[str, float]]:
    """Draw the picture; return energies and distances to the null space.

    Parameters
    ----------
    output : path-like
        Folder of ``minimizing_particles.png`` and ``minimizing_particles.npz`` (final states).
    resolution : int
        Number of particles; there are 50 times as many iterations.
    """
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(13, 6.6), layout="constrained")
    axes = figure.subplots(2, 4).ravel()
    numbers, states = {}, {}
    iterations = min(ITERATIONS, 50 * resolution)
    for ax, (name, (D, step, minimum)) in zip(axes, CASES.items(), strict=False):
        model = mf.SelfAttention(D, sign=-1, normalized=False)
        points = random_points(resolution, len(D), SEED)
        marks = np.unique(np.rint(np.geomspace(1, iterations, 41)).astype(int))
        run = evolve_particles(points, model, iterations * step, method="projected_euler",
                               step=step, save=[0.0, *(marks * step)])  # fmt: skip
        final = states[name.replace("/", ":")] = run.points[-1]
        numbers[name] = {
            "energy": float(run.energy[-1]),
            "minimum": np.nan if minimum is None else float(minimum),
            "null_distance": null_distance(D, final),
        }
        above = "" if minimum is None else f"\nabove the minimum by {run.energy[-1] - minimum:.1e}"
        title = f"{name}: E = {run.energy[-1]:.6f}{above}"
        if len(D) == 2:
            draw_circle(ax, title)
            ax.scatter(*final.T, s=7, color="tab:blue", alpha=0.5, linewidths=0)
        else:
            draw_globe(ax, title)
            draw_points(ax, final, "tab:blue", size=7)
        draw_energy(axes[-1], name, run, minimum)
    axes[-1].set(xlabel="time", ylabel="E minus its minimum", xscale="log", yscale="log")
    axes[-1].set_title("dashed: minus its last value", fontsize=9)
    axes[-1].legend(fontsize=7)
    figure.suptitle(f"{resolution} particles after {iterations:,} steps (hollow: far side)")
    figure.savefig(folder / "minimizing_particles.png", dpi=150)
    np.savez_compressed(folder / "minimizing_particles.npz", **states)
    return numbers


def draw_energy(ax, name: str, run, minimum) -> None:
    """The energy above its minimum over time; above its last value where none is known."""
    known = minimum is not None
    excess = run.energy - (minimum if known else run.energy[-1])
    shown = slice(None, None if known else -6)  # close to the end the last value is no minimum
    ax.plot(run.times[shown], excess[shown], "-" if known else "--", label=name)
    ax.set_ylim(1e-11, 1)


if __name__ == "__main__":
    for name, row in main().items():
        print(f"{name}: " + ", ".join(f"{key} {value:.6g}" for key, value in row.items()))
