"""Fig. 6: maximisers of the energy for negative definite D.

From random starts the ascending flow (5.1) gathers 100 particles in two antipodal clusters at
plus and minus an eigenvector of the smallest eigenvalue: any axis for -Id, e_3 for
-diag(1, 3, 4), as published on S^2, and the same on S^1. Which share goes to which side
depends on the start, and every share is stationary; only equal shares are the maximiser.

Run as `python studies/negative_definite.py`; Burger, Kabri, Korolev, Roith, Weigand (2025).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sphere_drawing import draw_circle, draw_globe, draw_points

import meanfield as mf
from meanfield.dynamics.particle_starts import random_points
from meanfield.dynamics.particles import transformer

CASES = {
    "S1 -Id": ([-1.0, -1.0], 0.06),
    "S1 -diag(1 2)": ([-1.0, -2.0], 1.0),
    "S2 -Id": ([-1.0, -1.0, -1.0], 0.06),
    "S2 -diag(1 3 4)": ([-1.0, -3.0, -4.0], 1.0),
}
STEP, ITERATIONS, PARTICLES = 0.1, 500, 100
SEED = 2


def run(D, starts: int):
    """The final states of an ensemble, their clusters and energies."""
    model = mf.SelfAttention(D, normalized=False)
    points = random_points(PARTICLES, len(D), SEED, starts=starts)
    return transformer(points, model, ITERATIONS, step=STEP, save=2)


def distance_to_pairs(D, final) -> float:
    """Largest distance of a particle to plus or minus the axis that the theory names."""
    if len(set(D)) == 1:
        # Any axis: that of the start's own particles, up to signs.
        axes = final[:, 0]
    else:
        axes = np.tile(np.eye(len(D))[int(np.argmin(D))], (len(final), 1))
    signs = np.sign(np.einsum("bni,bi->bn", final, axes))
    return float(np.linalg.norm(final - signs[..., None] * axes[:, None], axis=2).max())


def main(output="output", resolution: int = 100) -> dict[str, dict[str, float]]:
    """Draw the picture; return distance, cluster counts and energies of each case.

    Parameters
    ----------
    output : path-like
        Folder of ``negative_definite.png`` and ``negative_definite.csv``.
    resolution : int
        Number of starts for matrices with a simple smallest eigenvalue; a sixteenth of it
        (6 as published), at least two, for multiples of the identity.
    """
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(12, 6.2), layout="constrained")
    axes = figure.subplots(2, 4, height_ratios=[2, 1])
    numbers = {}
    for column, (name, (D, share)) in enumerate(CASES.items()):
        starts = max(2, round(share * resolution))
        result = run(D, starts)
        final, clusters = result.points[-1], result.clusters()
        lighter = clusters.masses[:, 1]
        numbers[name] = {
            "starts": starts,
            "distance": distance_to_pairs(D, final),
            "two_clusters": int((clusters.count == 2).sum()),
            "largest_energy": float(result.energy[-1].max()),
            "bound": float(np.cosh(min(D))),
            "smallest_share": float(lighter.min()),
        }
        draw_case(axes[:, column], name, D, clusters, numbers[name])
    figure.suptitle(
        f"Final states of {PARTICLES} particles: two antipodal clusters (one colour a start; "
        "area: share; hollow: far side)"
    )
    figure.savefig(folder / "negative_definite.png", dpi=150)
    columns = list(next(iter(numbers.values())))
    rows = [",".join([name, *(repr(row[c]) for c in columns)]) for name, row in numbers.items()]
    text = "\n".join([",".join(["case", *columns]), *rows, ""])
    (folder / "negative_definite.csv").write_text(text)
    return numbers


def draw_case(axes, name: str, D, clusters, numbers) -> None:
    """The clusters of one case, and how the particles are shared between them."""
    ax, below = axes
    title = f"{name}, {numbers['starts']} starts"
    (draw_circle if len(D) == 2 else draw_globe)(ax, title)
    shown = min(len(clusters.count), 6)
    for index in range(shown):
        color = f"C{index}"
        for centre, mass in zip(clusters.centres[index], clusters.masses[index], strict=True):
            size = 260 * mass
            if len(D) == 2:
                ax.scatter(*((1 - 0.05 * index) * centre), s=size / 2, color=color, linewidths=0)
            else:
                draw_points(ax, centre[None], color, size=size)
    below.hist(clusters.masses[:, 1], bins=np.linspace(0.255, 0.505, 26), color="tab:blue")
    below.set_xlabel("share of the lighter cluster", fontsize=9)
    below.set_title(
        f"largest E = {numbers['largest_energy']:.6g}, bound {numbers['bound']:.6g}", fontsize=9
    )


if __name__ == "__main__":
    for name, row in main().items():
        print(f"{name}: {row}")
