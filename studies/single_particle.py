"""Fig. 1: where does one particle go?

One particle under eq. (5.1) is at rest for D = Id, and goes to plus or minus the top
eigenvector of a positive definite D with a simple largest eigenvalue: on S^2 as published
(30 starts, step 0.075, 1,500 iterations, D = Id and diag(1, 3, 4)), and on S^1.

Run as `python studies/single_particle.py`; Burger, Kabri, Korolev, Roith, Weigand (2025).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sphere_drawing import draw_circle, draw_globe, draw_paths, draw_points

import meanfield as mf
from meanfield.dynamics.particle_starts import random_points
from meanfield.dynamics.particles import transformer

CASES = {
    "S1 identity": [1.0, 1.0],
    "S1 diag(1 4)": [1.0, 4.0],
    "S2 identity": [1.0, 1.0, 1.0],
    "S2 diag(1 3 4)": [1.0, 3.0, 4.0],
}
STEP, ITERATIONS = 0.075, 1500
SEED = 1


def run(D, starts: int):
    """All starts of one matrix, with every iteration saved at the beginning."""
    model = mf.SelfAttention(D, normalized=False)
    points = random_points(1, len(D), SEED, starts=starts)
    # A short run with small steps shows the path that the published steps jump along.
    path = transformer(points, model, 300, step=STEP / 100, save=61).points[:, :, 0]
    final = transformer(points, model, ITERATIONS, step=STEP, save=2).points[-1, :, 0]
    return points[:, 0], path, final


def distance_to_prediction(D, start, final) -> float:
    """Largest distance to what Theorem 3.1 says: the start itself, or the top eigenvector."""
    if len(set(D)) == 1:
        return float(np.abs(final - start).max())
    top = np.zeros(len(D))
    top[int(np.argmax(D))] = 1.0
    return float(np.linalg.norm(final - np.sign(final @ top)[:, None] * top, axis=1).max())


def main(output="output", resolution: int = 30) -> dict[str, float]:
    """Draw the picture and return the distance to the prediction of each case.

    Parameters
    ----------
    output : path-like
        Folder of ``single_particle.png`` and ``single_particle.csv``.
    resolution : int
        Number of starts.
    """
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(12, 3.4), layout="constrained")
    errors = {}
    for ax, (name, D) in zip(figure.subplots(1, 4), CASES.items(), strict=True):
        start, path, final = run(D, resolution)
        errors[name] = distance_to_prediction(D, start, final)
        moves = len(set(D)) > 1
        entries = ", ".join(f"{value:g}" for value in D)
        title = f"D = diag({entries}): " + ("goes to the top axis" if moves else "stays")
        if len(D) == 2:
            draw_circle(ax, title)
            ax.plot(*path.transpose(2, 0, 1), color="tab:blue", lw=2, alpha=0.3)
            ax.scatter(*(0.93 * start).T, s=10, color="tab:blue", linewidths=0)
            ax.scatter(*final.T, s=28, marker="D", color="tab:red", linewidths=0, zorder=4)
        else:
            draw_globe(ax, title)
            draw_paths(ax, path.transpose(1, 0, 2), "tab:blue")
            draw_points(ax, start, "tab:blue", size=9)
            draw_points(ax, final, "tab:red", size=30, marker="D")
    figure.suptitle(
        f"{resolution} starts (blue) and where they are after 1,500 steps (red); hollow: far side"
    )
    figure.savefig(folder / "single_particle.png", dpi=150)
    rows = [f"{name},{error:.3e}" for name, error in errors.items()]
    text = "\n".join(["case,largest distance to the prediction", *rows, ""])
    (folder / "single_particle.csv").write_text(text)
    return errors


if __name__ == "__main__":
    for name, error in main().items():
        print(f"{name}: largest distance to the prediction {error:.1e}")
