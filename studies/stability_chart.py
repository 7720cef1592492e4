"""Where are one cluster and two antipodal clusters stable? The index, against closed forms.

The state t delta_z + (1-t) delta_-z, D z = L z, is stationary for every t; l is the other
eigenvalue. `meanfield.stability` counts its unstable directions under the ascending flow, on a
grid of t and l/L, once for L > 0 and once for L < 0, and for t = 1/2 over both eigenvalues. The
lines are closed forms: with h = |L| and r = t/(1-t) the pair is stable where
h (r + 1/r) < e^{2h} (h - l) + e^{-2h} (h + l), the same with l = 0, which keeps a cluster from
spreading, and, for L < 0, l > L; for t = 1/2 and l > 0 that is h tanh h > l.

Run as `python studies/stability_chart.py`; Burger, Kabri, Korolev, Roith, Weigand (2025), Lemmas
4.5 and 4.6 for the states; their stability is not there.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from scipy.optimize import brentq

import meanfield as mf
from meanfield.equilibria.discrete_states import two_point_state
from meanfield.equilibria.two_point_rates import largest_stable_share

LEVELS = (1.5, -1.0)  # L of the two charts over t
COLORS = ("#f4f4f4", "#9ecae1", "#4292c6", "#08519c")
UPPER = brentq(lambda x: x * np.tanh(x) - 1, 1.0, 1.5)
Z = np.array([0.0, 1.0])


def index(level: float, other: float, t: float) -> int:
    """Unstable directions of the pair for D = diag(other, level), z = e_2."""
    return mf.stability(two_point_state(Z, t), mf.SelfAttention([other, level])).index


def chart(level: float, ratios: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """The index for all l/|L| and t, shape (shares, ratios)."""
    return np.array([[index(level, ratio * abs(level), t) for ratio in ratios] for t in shares])


def plane(levels: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The index of equal clusters for all (L, l), shape (others, levels)."""
    return np.array([[index(level, other, 0.5) for level in levels] for other in others])


def predicted(level: float, other: float, t: float) -> bool:
    """Whether the closed form calls the pair stable."""
    bound = largest_stable_share(level, [other])
    return bound is not None and max(t, 1 - t) < bound


def computed_threshold() -> float:
    """L at which the pair becomes stable for l = 1, t = 1/2, from `stability` by bisection."""
    low, high = 1.0, 1.5
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if index(middle, 1.0, 0.5) else (low, middle)
    return (low + high) / 2


def agreement(measured: np.ndarray, stable: np.ndarray) -> float:
    """Share of the grid on which both agree about stability."""
    return float(((measured == 0) == stable).mean())


def main(output="output", resolution: int = 48) -> dict[str, float]:
    """Draw the picture; return the share of agreement of each chart, and the threshold.

    Parameters
    ----------
    output : path-like
        Folder of ``stability_chart.png`` and ``stability_chart.npz``.
    resolution : int
        Number of values on either axis of a chart.
    """
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    # Cells' centres: they avoid the values at which something is neutral
    ratios = centres(-1.3, 1.3, resolution)
    shares = centres(0.5, 1.0, resolution)
    charts = {level: chart(level, ratios, shares) for level in LEVELS}
    levels, others = centres(-2.0, 2.0, resolution), centres(-2.0, 2.0, resolution + 1)
    equal = plane(levels, others)
    numbers = {
        f"agreement_L={level:g}": agreement(measured, np.array(
            [[predicted(level, ratio * abs(level), t) for ratio in ratios] for t in shares]))
        for level, measured in charts.items()
    }  # fmt: skip
    numbers["agreement_equal"] = agreement(
        equal, np.array([[predicted(a, b, 0.5) for a in levels] for b in others])
    )
    numbers["threshold"], numbers["computed_threshold"] = UPPER, computed_threshold()
    draw(ratios, shares, charts, levels, others, equal).savefig(
        folder / "stability_chart.png", dpi=150
    )
    np.savez_compressed(
        folder / "stability_chart.npz", ratios=ratios, shares=shares, levels=levels, others=others,
        equal=equal, **{f"index_{level:g}": measured for level, measured in charts.items()},
    )  # fmt: skip
    return numbers


def centres(low: float, high: float, count: int) -> np.ndarray:
    """Centres of equal cells of an interval."""
    return low + (high - low) * (np.arange(count) + 0.5) / count


def draw(ratios, shares, charts, levels, others, equal) -> Figure:
    """Three charts of the index with the closed-form boundaries."""
    figure = Figure(figsize=(14, 4.8), layout="constrained")
    axes = figure.subplots(1, 3)
    cmap, norm = ListedColormap(COLORS), BoundaryNorm(np.arange(-0.5, len(COLORS)), len(COLORS))
    fine = np.linspace(ratios[0], ratios[-1], 1000)
    for ax, (level, measured) in zip(axes, charts.items(), strict=False):
        ax.pcolormesh(ratios, shares, measured, cmap=cmap, norm=norm, shading="nearest",
                      rasterized=True)  # fmt: skip
        bound = [largest_stable_share(level, [ratio * abs(level)]) for ratio in fine]
        draw_boundary(ax, fine, bound)
        ax.set(xlabel="$\\ell / |L|$", ylabel="t", ylim=(0.5, 1.0))
        ax.set_title(f"$t\\,\\delta_z + (1-t)\\,\\delta_{{-z}}$, L = {level:g}")
        ax.legend(fontsize=8, loc="lower center")
    image = axes[2].pcolormesh(levels, others, equal, cmap=cmap, norm=norm, shading="nearest",
                               rasterized=True)  # fmt: skip
    draw_plane_boundary(axes[2], levels)
    figure.colorbar(image, ax=axes, ticks=range(len(COLORS)), label="unstable directions")
    return figure


def draw_boundary(ax, fine, bound) -> None:
    """The curve of the largest stable share, down to t = 1/2 where it ends inside the chart."""
    shares = np.array([0.5 if share is None else share for share in bound])
    inside = np.flatnonzero(shares > 0.5)
    x, y = fine[inside], shares[inside]
    if inside[0] > 0:
        x, y = np.append(fine[inside[0]], x), np.append(0.5, y)
    ax.plot(np.append(x, x[-1]), np.append(y, 0.5), "-", color="tab:red", lw=2,
            label="closed form")  # fmt: skip
    ax.text(0.4, 0.3, "stable", transform=ax.transAxes, ha="center", color="0.3")


def draw_plane_boundary(ax, levels) -> None:
    """l = |L| tanh |L|, and l = L for L < 0."""
    fine = np.linspace(levels[0], levels[-1], 400)
    ax.plot(fine, np.abs(fine) * np.tanh(np.abs(fine)), "-", color="tab:red", lw=2,
            label="closed form: $\\ell = |L|$ tanh $|L|$, ...")  # fmt: skip
    ax.plot(fine[fine < 0], fine[fine < 0], "-", color="tab:red", lw=2)
    ax.plot([0, 0], [-2, 0], "-", color="tab:red", lw=2)
    for x, y in ((-1.3, 0.0), (1.1, -0.8)):
        ax.text(x, y, "stable", ha="center", color="0.3")
    ax.plot(UPPER, 1.0, "ko", ms=4)
    ax.annotate(f"{UPPER:.5f}", (UPPER, 1.0), (6, -3), textcoords="offset points", fontsize=8)
    ax.set(xlabel="L", ylabel="$\\ell$", title="equal clusters, t = 1/2", ylim=(-2, 2))
    ax.legend(fontsize=8, loc="lower right")


if __name__ == "__main__":
    for name, value in main().items():
        print(f"{name}: {value:.9g}")
