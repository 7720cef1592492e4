"""Fig. 2: do random starts end in one cluster or in two?

100 particles on S^1 ascend the energy for D = diag(lambda, 1) under eq. (5.1), from 1,000
uniformly random starts for each lambda (published: 100), to the published time 150 and on to
stationarity. Pairs of equal clusters at +-e_1 are local maximisers where lambda tanh lambda
> 1, that is lambda > 1.19968, and pairs at +-e_2 where lambda < tanh 1 = 0.7616; between the
two thresholds every start ends in one cluster. Unequal pairs need more, and the study checks
every pair that it finds against the exact condition for its masses.

Run as `python studies/one_or_two_clusters.py`; Burger, Kabri, Korolev, Roith, Weigand (2025).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.optimize import brentq

import meanfield as mf
from meanfield.dynamics.particle_clusters import find_clusters
from meanfield.dynamics.particle_starts import random_points
from meanfield.dynamics.particles import evolve_particles, transformer

PARTICLES, STEP = 100, 0.1
PUBLISHED_TIME, LONG_TIME = 150.0, 2000.0
GRID = np.linspace(0.0, 1.5, 20)  # as published
EXTRA = np.array([0.7, 0.74, 0.76, 0.77, 1.19, 1.2, 1.21, 1.225, 1.24, 1.3, 1.38])
# Of 100 starts: lambda, how many ended in one cluster, in two.
PUBLISHED = np.array([[1.184, 100, 0], [1.263, 45, 55], [1.342, 6, 94], [1.421, 3, 97],
                      [1.5, 1, 99]])  # fmt: skip
UPPER = brentq(lambda x: x * np.tanh(x) - 1, 1.0, 1.5)
LOWER = np.tanh(1.0)
ANGLE = 0.1
SEED = 5
COLUMNS = ("lambda", "one_published", "two_published", "other_published",
           "one_long", "two_long", "other_long", "moving", "unstable_pairs")  # fmt: skip


def counts_at(points) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Number of starts with one, two and other numbers of clusters; masses and centres too."""
    clusters = find_clusters(points, angle=ANGLE)
    one, two = (clusters.count == 1), (clusters.count == 2)
    numbers = np.array([one.sum(), two.sum(), (~one & ~two).sum()])
    return numbers, clusters, two


def stable_pair(lam: float, heavy: np.ndarray, at_first: np.ndarray) -> np.ndarray:
    """Whether antipodal clusters are a local maximiser.

    With r the ratio of the masses, L the eigenvalue of their axis and l the other one:
    2 e^{2L} (L - l) > L (r + 1/r) + sqrt(L^2 (r + 1/r)^2 - 4 (L^2 - l^2)).
    """
    L, other = np.where(at_first, lam, 1.0), np.where(at_first, 1.0, lam)
    r = heavy / (1 - heavy)
    s = L * (r + 1 / r)
    return 2 * np.exp(2 * L) * (L - other) > s + np.sqrt(s**2 - 4 * (L**2 - other**2))


def row(lam: float, starts: int) -> list[float]:
    """One value of lambda: counts at both times, and pairs that theory does not allow."""
    model = mf.SelfAttention([lam, 1.0], normalized=False)
    points = random_points(PARTICLES, 2, SEED, starts=starts)
    run = evolve_particles(points, model, LONG_TIME, method="projected_euler", step=STEP,
                           save=[PUBLISHED_TIME, LONG_TIME], stationary=1e-9)  # fmt: skip
    early, _, _ = counts_at(run.points[0])
    late, clusters, two = counts_at(run.points[-1])
    still = np.isfinite(run.stopped)
    first = np.abs(clusters.centres[:, 0, 0]) > 0.5
    stable = np.ones(starts, dtype=bool)
    settled = two & still
    stable[settled] = stable_pair(lam, clusters.masses[settled, 0], first[settled])
    return [lam, *early, *late, (~still).sum(), (~stable).sum()]


def wilson(successes, trials: int) -> np.ndarray:
    """The 95 % interval of a probability (Wilson 1927), shape (2, ...)."""
    z, p = 1.959963985, np.asarray(successes) / trials
    centre = (p + z**2 / (2 * trials)) / (1 + z**2 / trials)
    half = z * np.sqrt(p * (1 - p) / trials + z**2 / (4 * trials**2)) / (1 + z**2 / trials)
    return np.stack([centre - half, centre + half])


def main(output="output", resolution: int = 1000) -> dict[str, np.ndarray]:
    """Draw the picture; return the table by columns.

    Parameters
    ----------
    output : path-like
        Folder of ``one_or_two_clusters.png`` and ``one_or_two_clusters.csv``.
    resolution : int
        Number of starts for each value of lambda; below 100 only every fourth value is run.
    """
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    values = np.sort(np.concatenate([GRID, EXTRA]))[:: 1 if resolution >= 100 else 4]
    table = np.array([row(float(lam), resolution) for lam in values])
    np.savetxt(folder / "one_or_two_clusters.csv", table, delimiter=",", fmt="%.6g",
               header=",".join(COLUMNS), comments="")  # fmt: skip
    columns = dict(zip(COLUMNS, table.T, strict=True))
    draw(columns, resolution).savefig(folder / "one_or_two_clusters.png", dpi=150)
    return columns


def draw(columns, starts: int) -> Figure:
    """The probability over lambda, and trajectories as in Fig. 2 (right)."""
    figure = Figure(figsize=(13, 4.4), layout="constrained")
    ax, *others = figure.subplots(1, 3, width_ratios=[3, 1.4, 1.4])
    for suffix, color, label in (
        ("published", "tab:blue", f"t = {PUBLISHED_TIME:g}, as published"),
        ("long", "tab:red", f"at rest, or t = {LONG_TIME:g}"),
    ):
        two = columns[f"two_{suffix}"]
        low, high = wilson(two, starts)
        errors = np.abs(np.stack([two / starts - low, high - two / starts]))
        ax.errorbar(columns["lambda"], two / starts, errors, fmt="o-", ms=3, lw=1, color=color,
                    capsize=2, label=f"{starts} starts, {label}")  # fmt: skip
    low, high = wilson(PUBLISHED[:, 2], 100)
    share = PUBLISHED[:, 2] / 100
    ax.errorbar(PUBLISHED[:, 0], share, np.abs([share - low, high - share]), fmt="kD", ms=4,
                capsize=3, lw=1, label="published, 100 starts")  # fmt: skip
    for threshold, name in ((LOWER, "tanh 1"), (UPPER, "λ tanh λ = 1")):
        ax.axvline(threshold, color="0.6", lw=1, ls="--")
        side = "left" if threshold == LOWER else "right"
        ax.text(threshold, 0.62 if side == "left" else 0.42, f" {name} \n {threshold:.5f} ",
                fontsize=8, ha=side)  # fmt: skip
    ax.set(xlabel="λ", ylabel="probability of two clusters", title="D = diag(λ, 1), N = 100")
    ax.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.635, 1.0))
    draw_trajectories(others)
    return figure


def draw_trajectories(axes) -> None:
    """Angles over time for D = diag(1, 1.25), step 0.075, 1,400 steps: one cluster, and two."""
    model = mf.SelfAttention([1.0, 1.25], normalized=False)
    run = transformer(random_points(PARTICLES, 2, SEED, starts=20), model, 1400, step=0.075)
    counts = run.clusters(ANGLE).count
    for ax, wanted, words in zip(axes, (1, 2), ("one cluster", "two clusters"), strict=True):
        points = run.points[1:, int(np.argmax(counts == wanted))]
        theta = np.arctan2(points[..., 1], points[..., 0])
        theta[1:][np.abs(np.diff(theta, axis=0)) > np.pi] = np.nan  # no line across the cut
        ax.plot(run.times[1:], theta, color="tab:blue", lw=0.6, alpha=0.6)
        ax.set(
            xscale="log", xlabel="time", title=f"D = diag(1, 1.25), {words}", ylim=(-np.pi, np.pi)
        )
        ax.set_yticks(np.pi * np.array([-1, -0.5, 0, 0.5, 1]), ["-π", "-π/2", "0", "π/2", "π"])
    axes[0].set_ylabel("angle")


if __name__ == "__main__":
    result = main()
    print(" ".join(f"{name:>15}" for name in COLUMNS))
    for values in zip(*result.values(), strict=True):
        print(" ".join(f"{value:15.6g}" for value in values))
