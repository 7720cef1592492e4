"""Fig. 7: one cluster or two for indefinite D = diag(-1, l2)?

The energies of one cluster at an axis, e^{l2} and e^{-1}, and of an antipodal pair, cosh l2 and
cosh 1, as published; then the exact switching point l2 = ln cosh 1 of the maximiser, and the
largest energy that particles find from random starts, which never exceeds the maximum.

Run as `python studies/energies_one_two_clusters.py`; Burger, Kabri, Korolev, Roith, Weigand
(2025), Remark 3.5 and Section 5.3.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.optimize import brentq

import meanfield as mf
from meanfield.dynamics.particle_evolution import log_energies
from meanfield.dynamics.particle_starts import random_points
from meanfield.dynamics.particles import evolve_particles

STATES = {
    "one cluster at $e_2$: $e^{\\lambda_2}$": np.array([[0.0, 1.0], [0.0, 1.0]]),
    "pair at $\\pm e_2$: cosh $\\lambda_2$": np.array([[0.0, 1.0], [0.0, -1.0]]),
    "pair at $\\pm e_1$: cosh 1": np.array([[1.0, 0.0], [-1.0, 0.0]]),
    "one cluster at $e_1$: $e^{-1}$": np.array([[1.0, 0.0], [1.0, 0.0]]),
}
SWITCH = np.log(np.cosh(1.0))
PARTICLES, SEED = 20, 4


def energy(points: np.ndarray, l2: float) -> float:
    """Energy of equal masses at the points for D = diag(-1, l2)."""
    weights = np.full(len(points), 1 / len(points))
    return float(np.exp(log_energies(points, mf.SelfAttention([-1.0, l2]), weights)))


def computed_switch() -> float:
    """Where the energies of the two maximisers cross, found from their energies."""
    one, _, pair, _ = STATES.values()
    return brentq(lambda l2: energy(one, l2) - energy(pair, l2), 0.0, 1.0, xtol=1e-14)


def best_found(l2: float, starts: int) -> tuple[float, float]:
    """Largest energy that particles reach, and the share of starts that reach one cluster."""
    model = mf.SelfAttention([-1.0, l2], normalized=False)
    points = random_points(PARTICLES, 2, SEED, starts=starts)
    run = evolve_particles(points, model, 500.0, method="projected_rk4", step=0.2,
                           stationary=1e-9, save=2)  # fmt: skip
    return float(run.energy[-1].max()), float((run.clusters().count == 1).mean())


def main(output="output", resolution: int = 100) -> dict[str, float]:
    """Draw the picture; return the switching points and how far particles stay from the maximum.

    Parameters
    ----------
    output : path-like
        Folder of ``energies_one_two_clusters.png`` and ``.csv``.
    resolution : int
        Number of values of l2 in [-1, 1]; particles run at every fifth of them, from as many
        starts.
    """
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    values = np.linspace(-1.0, 1.0, resolution)
    energies = np.array([[energy(points, l2) for points in STATES.values()] for l2 in values])
    tried = values[::5]
    found = np.array([best_found(l2, resolution) for l2 in tried])
    maximum = np.maximum(np.exp(np.maximum(tried, 0.0)), np.cosh(1.0))
    draw(values, energies, tried, found).savefig(folder / "energies_one_two_clusters.png", dpi=150)
    np.savetxt(folder / "energies_one_two_clusters.csv", np.column_stack([values, energies]),
               delimiter=",", header="l2,one_e2,pair_e2,pair_e1,one_e1", comments="")  # fmt: skip
    return {
        "switch": float(SWITCH),
        "computed_switch": computed_switch(),
        "largest_excess": float((found[:, 0] - maximum).max()),
        "largest_shortfall": float((maximum - found[:, 0]).max()),
    }


def draw(values, energies, tried, found) -> Figure:
    """Energies over l2 with the switching point, and the share of single clusters."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    ax, right = figure.subplots(1, 2, width_ratios=[3, 2])
    for column, (name, style) in enumerate(zip(STATES, ("-", "--", "-", ":"), strict=True)):
        ax.plot(values, energies[:, column], style, label=name)
    ax.plot(tried, found[:, 0], "k.", ms=5, label="largest energy of particles")
    ax.axvline(SWITCH, color="0.6", lw=1)
    ax.annotate(f"ln cosh 1 = {SWITCH:.6f}", (SWITCH, 0.55), (-6, 0), ha="right", fontsize=9,
                textcoords="offset points")  # fmt: skip
    ax.set(xlabel="$\\lambda_2$", ylabel="energy", title="D = diag(-1, $\\lambda_2$)")
    ax.legend(fontsize=8)
    right.plot(tried, found[:, 1], "k.-")
    right.axvline(SWITCH, color="0.6", lw=1)
    right.set(xlabel="$\\lambda_2$", ylim=(-0.03, 1.03), ylabel="share of starts",
              title="random starts that end in one cluster")  # fmt: skip
    return figure


if __name__ == "__main__":
    for name, value in main().items():
        print(f"{name}: {value:.12g}")
