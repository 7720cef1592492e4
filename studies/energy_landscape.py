"""The energy landscape of few clusters on S^1, with the extrema that searches find drawn in.

First the four points (+-cos phi, +-sin phi) for D = diag(l1, l2), both positive: their energy
cosh(l1 cos^2 phi) cosh(l2 sin^2 phi) over phi has one minimum between the axes (Lemma 4.8).
Four particles that descend from random starts find it, or come to rest higher, with three or
four of them on one side of an axis; many particles go below it, down to the exact minimum. Then
one and two clusters at the axes for D = diag(-1, l2): which of them are local maxima of the
energy under small displacements, and what `maximize` and `minimize` find from random bumps. The
maximum switches at l2 = ln cosh 1; pairs at +-e_1 and one cluster at e_2 are local maxima
together for 0 < l2 < tanh 1.

Run as `python studies/energy_landscape.py`; Burger, Kabri, Korolev, Roith, Weigand (2025).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.optimize import brentq

import meanfield as mf
from meanfield.equilibria.discrete_states import four_point_angle, four_point_energy
from meanfield.equilibria.two_point_rates import two_point_rates

RANGE = (0.3, 10.0)
TABLE = ((1.0, 2.0), (1.0, 8.0), (8.0, 9.0))  # pairs (l1, l2) whose root energies are printed
FOUR_STARTS, BUMPS, SEED = 16, 6, 11
CELLS = 180  # a multiple of 4: the axes are nodes
SWITCH, LAST = np.log(np.cosh(1.0)), np.tanh(1.0)
AXES = {"e_1": np.array([1.0, 0.0]), "e_2": np.array([0.0, 1.0])}
STATES = {
    "one cluster at $e_2$": ("e_2", 1.0, "tab:blue"),
    "pair at $\\pm e_1$": ("e_1", 0.5, "tab:green"),
    "pair at $\\pm e_2$": ("e_2", 0.5, "tab:orange"),
    "one cluster at $e_1$": ("e_1", 1.0, "tab:red"),
}


def four_particles(l2: float, l1: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where random starts lead: angles (starts, 4) in [0, pi/2], energies, whether at rest.

    Next to l1 = l2 they turn longer than the run; the energy has six right digits all the same.
    """
    model = mf.SelfAttention([l1, l2], sign=-1)
    points = mf.random_points(4, 2, SEED, starts=FOUR_STARTS)
    run = mf.evolve_particles(points, model, 800.0, stationary=1e-6, save=2)
    last = np.abs(run.points[-1])
    return np.arctan2(last[..., 1], last[..., 0]), run.energy[-1], np.isfinite(run.stopped)


def found_extrema(l2: float) -> tuple[np.ndarray, np.ndarray]:
    """Energies of maxima and of minima for D = diag(-1, l2), from bumps in random directions."""
    mesh, interaction = mf.circle(CELLS), mf.Interaction([-1.0, l2])
    bumps = [mf.von_mises_fisher(z, 1.0) for z in mf.random_points(BUMPS, 2, SEED)]
    high = [mf.maximize(mesh, interaction, start=bump).energy for bump in bumps]
    low = [mf.minimize(mesh, interaction, start=bump).energy for bump in bumps]
    return np.array(high), np.array(low)


def state_energy(axis: str, t: float, l2):
    """Energy of t delta_z + (1-t) delta_-z at an axis for D = diag(-1, l2)."""
    level = l2 if axis == "e_2" else -np.ones_like(l2)
    return (t**2 + (1 - t) ** 2) * np.exp(level) + 2 * t * (1 - t) * np.exp(-level)


def locally_maximal(axis: str, t: float, values: np.ndarray) -> np.ndarray:
    """Whether no small displacement of the state raises the energy, for every l2."""
    return np.array([two_point_rates([-1.0, l2], AXES[axis], t).stable for l2 in values])


def computed_switch() -> float:
    """Where the best of the maxima that searches find changes from the pair to one cluster."""

    def lead(l2: float) -> float:
        one = mf.maximize(mf.circle(CELLS), mf.Interaction([-1.0, l2]),
                          start=mf.von_mises_fisher(AXES["e_2"], 4.0)).log_energy  # fmt: skip
        pair = mf.maximize(mf.circle(CELLS), mf.Interaction([-1.0, l2]),
                           start=mf.mixture([mf.von_mises_fisher(s * AXES["e_1"], 4.0)
                                             for s in (1, -1)])).log_energy  # fmt: skip
        return one - pair

    return brentq(lead, 0.3, 0.6, xtol=1e-12)


def main(output="output", resolution: int = 41) -> dict[str, float]:
    """Draw the picture; return energies at the roots, the switch, and errors against theory.

    Parameters
    ----------
    output : path-like
        Folder of ``energy_landscape.png`` and ``energy_landscape.npz``.
    resolution : int
        Number of values of l2 at which extrema are searched.
    """
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    roots = {f"E{pair}": float(four_point_energy(*pair, four_point_angle(*pair))) for pair in TABLE}
    positive = np.geomspace(*RANGE, resolution)
    rests = [four_particles(float(l2)) for l2 in positive]
    theory = np.array([four_point_energy(1.0, l2, four_point_angle(1.0, l2)) for l2 in positive])
    exact = np.array([mf.exact_minimizer([1.0, float(l2)]).energy for l2 in positive])
    signed = np.linspace(-1.0, 1.2, resolution)
    extrema = [found_extrema(float(l2)) for l2 in signed]
    highest = np.array([high.max() for high, _ in extrema])
    lowest = np.array([low.min() for _, low in extrema])
    maximum = np.maximum(np.exp(signed), np.cosh(1.0))
    draw(positive, rests, theory, exact, signed, extrema).savefig(
        folder / "energy_landscape.png", dpi=150
    )
    np.savez_compressed(
        folder / "energy_landscape.npz", l2=positive, four_points=theory, minimum=exact,
        rest_energy=np.stack([energy for _, energy, _ in rests]),
        signed_l2=signed, maxima=np.stack([high for high, _ in extrema]),
        minima=np.stack([low for _, low in extrema]),
    )  # fmt: skip
    best = np.array([energy.min() for _, energy, _ in rests])
    return {
        **roots,
        "four_particles_error": float(np.abs(best / theory - 1).max()),
        "share_at_the_root": float(np.mean(np.concatenate(
            [np.abs(e / t - 1) < 1e-6 for (_, e, _), t in zip(rests, theory, strict=True)]))),
        "largest_four_points_over_minimum": float((theory / exact).max()),
        "switch": float(SWITCH),
        "computed_switch": computed_switch(),
        "maximum_error": float(np.abs(highest / maximum - 1).max()),
        "minimum_error": float(np.abs(lowest * np.e - 1).max()),
    }  # fmt: skip


def draw(positive, rests, theory, exact, signed, extrema) -> Figure:
    """Four pictures: the landscape over phi, roots over (l1, l2), excess energies, clusters."""
    figure = Figure(figsize=(12, 9), layout="constrained")
    (top, plane), (excess, clusters) = figure.subplots(2, 2)
    draw_landscape(figure, top, positive, rests)
    draw_roots(figure, plane)
    draw_excess(excess, positive, rests, theory, exact)
    draw_clusters(clusters, signed, extrema)
    return figure


def draw_landscape(figure, ax, positive, rests) -> None:
    """The energy over (l2, phi), scaled from its minimum to its maximum for every l2."""
    fine, phi = np.geomspace(*RANGE, 300), np.linspace(0, np.pi / 2, 241)
    height = np.log(four_point_energy(1.0, fine[:, None], phi))
    height -= height.min(axis=1, keepdims=True)
    image = ax.pcolormesh(fine, phi, (height / height.max(axis=1, keepdims=True)).T,
                          cmap="viridis", shading="gouraud", rasterized=True)  # fmt: skip
    root = [four_point_angle(1.0, l2) for l2 in fine]
    ax.plot(fine, root, "w-", lw=1.5, label="stationary angle (Lemma 4.8)")
    for l2, (angles, energy, still) in zip(positive, rests, strict=True):
        best = angles[still & (energy < energy.min() * (1 + 1e-6))]
        ax.plot(np.full(best.size, l2), best.ravel(), "o", mfc="none", mec="tab:red", ms=4.5,
                label="four particles at rest" if l2 == positive[0] else None)  # fmt: skip
    ax.set(xscale="log", xlabel="$\\lambda_2$", ylabel="$\\varphi$")
    ax.set_title("four points, D = diag(1, $\\lambda_2$)")
    ax.set_yticks(np.pi * np.array([0, 0.125, 0.25, 0.375, 0.5]),
                  ["0", "π/8", "π/4", "3π/8", "π/2"])  # fmt: skip
    plain_log(ax.xaxis)
    ax.legend(fontsize=8, loc="upper right")
    figure.colorbar(image, ax=ax, label="log E, from its minimum (0) to its maximum (1)")


def draw_roots(figure, ax) -> None:
    """The logarithm of the energy at the root over both eigenvalues."""
    axis = np.geomspace(*RANGE, 60)
    energy = np.array([[four_point_energy(a, b, four_point_angle(a, b)) for a in axis]
                       for b in axis])  # fmt: skip
    lines = ax.contourf(axis, axis, np.log(energy), levels=np.geomspace(0.01, 10, 13),
                        norm="log", cmap="cividis", extend="max")  # fmt: skip
    for l1, l2 in TABLE:
        value = four_point_energy(l1, l2, four_point_angle(l1, l2))
        ax.plot(l1, l2, "wo", mec="k", ms=6)
        ax.annotate(f"E = {value:.6g} ", (l1, l2), (-7, -9), textcoords="offset points", ha="right",
                    va="center", fontsize=9, color="w", fontweight="bold")  # fmt: skip
    ax.set(xscale="log", yscale="log", xlabel="$\\lambda_1$", ylabel="$\\lambda_2$", aspect="equal")
    ax.set_title("least energy of four points, D = diag($\\lambda_1$, $\\lambda_2$)")
    plain_log(ax.xaxis)
    plain_log(ax.yaxis)
    bar = figure.colorbar(lines, ax=ax, label="log E")
    bar.set_ticks([0.01, 0.1, 1, 10], labels=["0.01", "0.1", "1", "10"])


def draw_excess(ax, positive, rests, theory, exact) -> None:
    """Energies over the minimum of all measures."""
    ax.plot(positive, theory / exact - 1, "-", color="tab:red", lw=2,
            label="four points at the stationary angle")  # fmt: skip
    for index, (_, energy, _) in enumerate(rests):
        ax.plot(np.full(len(energy), positive[index]), energy / exact[index] - 1, "k.", ms=3,
                label="four particles, 16 random starts" if index == 0 else None)  # fmt: skip
    for height, words in ((0.25, "three on one side of an axis"), (1.0, "all four on one side")):
        ax.text(10.0, height, words, fontsize=8, ha="right")
    ax.set(xscale="log", yscale="log", xlabel="$\\lambda_2$", ylim=(1e-6, 2),
           ylabel="E / min E $-$ 1 (minimum over all measures)")  # fmt: skip
    ax.set_title("how far four points are from the minimum")
    plain_log(ax.xaxis)
    ax.legend(fontsize=8, loc="lower left")


def draw_clusters(ax, signed, extrema) -> None:
    """One and two clusters for diag(-1, l2), full lines where they are local maxima."""
    fine = np.linspace(signed[0], signed[-1], 600)
    for name, (axis, t, color) in STATES.items():
        energy, stable = state_energy(axis, t, fine), locally_maximal(axis, t, fine)
        ax.plot(fine, energy, ":", color=color, lw=1.2)
        ax.plot(fine, np.where(stable, energy, np.nan), "-", color=color, lw=2, label=name)
    for index, marker, label in ((0, "^", "found by maximize"), (1, "v", "found by minimize")):
        values = np.repeat(signed, len(extrema[0][index]))
        ax.plot(values, np.concatenate([pair[index] for pair in extrema]), f"k{marker}", ms=3.5,
                mfc="none", mew=0.8, label=label)  # fmt: skip
    marks = ((0.0, "0", -4, "right"), (SWITCH, f"ln cosh 1\n= {SWITCH:.6f}", -4, "right"),
             (LAST, "tanh 1", 4, "left"))  # fmt: skip
    for height, (place, words, shift, side) in zip((0.55, 0.65, 0.55), marks, strict=True):
        ax.axvline(place, color="0.6", lw=0.8, ls="--" if place != SWITCH else "-", zorder=0)
        ax.annotate(words, (place, height), (shift, 0), textcoords="offset points", fontsize=8,
                    ha=side)  # fmt: skip
    ax.set(xlabel="$\\lambda_2$", ylabel="energy", title="clusters, D = diag(-1, $\\lambda_2$)")
    ax.legend(fontsize=8, loc="upper left", title="full: local maximum", title_fontsize=8)


def plain_log(axis) -> None:
    """Plain numbers on a logarithmic axis."""
    axis.set_ticks([0.3, 0.5, 1, 2, 5, 10], labels=["0.3", "0.5", "1", "2", "5", "10"])
    axis.set_ticks([], minor=True)


if __name__ == "__main__":
    for name, value in main().items():
        print(f"{name}: {value:.12g}")
