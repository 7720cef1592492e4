"""How long do clusters live before they merge?

For D = beta Id on S^1 with sign +1 a nearly uniform density first breaks into clusters, more of
them for larger beta, which then stand almost still: the energy is a staircase over the logarithm
of time. Two clusters of mass 1/2 at the angle gamma close with the speed of two tokens,

    d gamma/dt = -2 beta sin(gamma) / (1 + exp(beta (1 - cos gamma))),

so that they take a time ``exp(beta (1 - cos gamma_0)) / (2 beta^2 sin^2 gamma_0)`` for large beta;
the exact time is an expression in exponential integrals. Particles that have met are replaced by
one heavier particle, which lets a run go on to t = 1e8. Finite volumes follow the first
phase; when a cluster has shrunk to a cell it holds itself there, and stays for ever where the
pull of the others is below about beta h/2, h the size of a cell.

Run as `python studies/metastability.py`; Burger, Kabri, Korolev, Roith, Weigand (2025).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy.special import exp1, expi

import meanfield as mf
from meanfield.sphere.geometry import angles, directions

BETAS = (5.0, 10.0, 20.0, 40.0)
SHOWN = 20.0  # beta of the picture of the density
FORMED = 2.0  # time at which clusters have formed and particles are first merged
TIMES = np.geomspace(1e-3, FORMED, 81)  # saved until then
COUNTED = 10.0  # clusters are counted from this time over beta on
LAST = 1e8
MEET = 1e-4  # angle at which particles become one
LINK = 0.05  # angle of single linkage when clusters are counted
MERGED = 0.1  # angle at which a pair counts as merged
SOME = np.array([2.0, 4.0, 6.0, 8.0, 10.0])
PAIRS = {  # initial angle: values of beta for particles
    1.0: np.append(SOME, np.arange(15.0, 41.0, 5.0)),
    2.0: np.append(SOME, np.arange(12.0, 21.0, 2.0)),
}
FIT_FROM = 15.0  # rates are fitted for beta from here on, or from half the largest one
GRID_BETAS = (2.0, 4.0, 6.0, 8.0, 10.0, 12.0)  # for pairs of finite-volume clusters
GRID_ANGLE = 1.0
MODES, AMPLITUDE, SEED = 12, 0.05, 8


@dataclass(frozen=True, eq=False)
class History:
    """Particles over time: times (t,), and for each time points (k, 2) and weights (k,)."""

    times: np.ndarray
    points: list[np.ndarray]
    weights: list[np.ndarray]
    model: mf.SelfAttention

    @property
    def counts(self) -> np.ndarray:
        """Number of clusters, shape (t,)."""
        pairs = zip(self.points, self.weights, strict=True)
        return np.array([mf.find_clusters(x, w, LINK).count for x, w in pairs])

    @property
    def energy(self) -> np.ndarray:
        """``E e^{-beta}``, one for a single cluster, shape (t,)."""
        kernel = self.model.interaction
        pairs = zip(self.points, self.weights, strict=True)
        return np.array([w @ np.exp(kernel.log_kernel(x, x) - kernel.norm) @ w for x, w in pairs])


def mean_to_angle(mean) -> np.ndarray:
    """Angle of two equal clusters with this mean, ``2 arccos |mean|``: shape (t, 2) to (t,)."""
    return 2 * np.arccos(np.minimum(np.linalg.norm(mean, axis=-1), 1.0))


def attention(beta: float) -> mf.SelfAttention:
    """D = beta Id, ascending the energy."""
    return mf.SelfAttention([beta, beta])


def merging_time(beta, start, end=MERGED):
    """Time in which the angle of two tokens falls from start to end, exact."""

    def primitive(angle):
        near, far = beta * (1 - np.cos(angle)), beta * (1 + np.cos(angle))
        slow = expi(near) + np.exp(2 * beta) * exp1(far)
        return (np.log(np.tan(angle / 2)) + slow / 2) / (2 * beta)

    return primitive(start) - primitive(end)


def merged(points, weights) -> tuple[np.ndarray, np.ndarray]:
    """Particles within `MEET` of each other as one, at their centre and with their weight."""
    clusters = mf.find_clusters(points, weights, MEET)
    return clusters.centres, clusters.masses


def long_run(points, weights, beta: float, t_start: float, t_end: float) -> History:
    """Particles until one is left, merged when they meet.

    Intervals are a tenth of the time that has passed, and short against the time in which the
    fastest particle would meet another one.
    """
    model = attention(beta)
    times, states = [t_start], [merged(points, weights)]
    while len(states[-1][1]) > 1 and times[-1] < t_end:
        points, weights = states[-1]
        speed = np.linalg.norm(model.on(points).velocity(weights), axis=1).max()
        length = min(0.3 / (beta * max(speed, 1e-300)), 0.1 * max(times[-1], 1 / beta))
        run = mf.evolve_particles(points, model, length, weights=weights, save=2)
        times.append(times[-1] + length)
        states.append(merged(run.points[-1], weights))
    return History(np.array(times), *(list(part) for part in zip(*states, strict=True)), model)


def start_density(x) -> np.ndarray:
    """Nearly uniform: small Fourier modes with fixed random phases and sizes."""
    rng = np.random.default_rng(SEED)
    phases, sizes = rng.uniform(0, 2 * np.pi, MODES), rng.uniform(0.3, 1.0, MODES) * AMPLITUDE
    theta = np.arctan2(x[:, 1], x[:, 0])[:, None]
    return 1 + np.cos(np.arange(1, MODES + 1) * theta + phases) @ sizes


def start_particles(count: int) -> np.ndarray:
    """Quantiles of the nearly uniform density, shape (count, 2)."""
    mesh = mf.circle(4096)
    masses = mf.cell_averages(mesh, start_density) * mesh.weights
    cdf = np.concatenate([[0.0], np.cumsum(masses)])
    theta = 2 * np.pi * (np.arange(4097) - 0.5) / 4096
    return directions(np.interp((np.arange(count) + 0.5) / count, cdf / cdf[-1], theta))


def from_uniform(beta: float, count: int) -> History:
    """Particles from the nearly uniform start until one is left, or `LAST`."""
    run = mf.evolve_particles(start_particles(count), attention(beta), FORMED, save=TIMES)
    late = long_run(run.points[-1], run.weights, beta, FORMED, LAST)
    return History(
        np.concatenate([TIMES[:-1], late.times]),
        [*run.points[:-1], *late.points],
        [run.weights] * (len(TIMES) - 1) + late.weights,
        late.model,
    )


def finite_volumes(density, beta: float, cells: int, times) -> mf.Evolution:
    """The density; that it shrinks to the grid is what the study is about."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", mf.UnresolvedWarning)
        return mf.evolve(mf.circle(cells), attention(beta), density, times[-1], save=times)


def early_times(beta: float) -> np.ndarray:
    """Those of `TIMES` for which the density is computed: until it has shrunk to the grid."""
    last = np.searchsorted(TIMES, max(0.5, COUNTED / beta), side="right")
    return TIMES[:last]


def peaks(run: mf.Evolution) -> np.ndarray:
    """Number of clusters of the density, runs of cells above the uniform density, shape (t,)."""
    above = run.density > 1
    return (above & ~np.roll(above, 1, axis=1)).sum(axis=1)


def particle_pair(beta: float, start: float, count: int) -> float:
    """Merging time of two clusters of ``count`` particles, 0.1 wide; tokens if count is 1."""
    spread = 0.1 * ((np.arange(count) + 0.5) / count - 0.5)
    theta = np.concatenate([spread - start / 2, spread + start / 2])
    weights = np.full(2 * count, 0.5 / count)
    history = long_run(directions(theta), weights, beta, 0.0, 10 * merging_time(beta, start))
    means = [w @ x for x, w in zip(history.points, history.weights, strict=True)]
    return crossing(history.times, mean_to_angle(means))


def grid_pair(beta: float, cells: int) -> tuple[np.ndarray, np.ndarray]:
    """Times and angles of two bumps of standard deviation 0.05 under finite volumes."""
    bumps = [mf.von_mises_fisher(x, 400.0) for x in directions([-GRID_ANGLE / 2, GRID_ANGLE / 2])]
    times = np.linspace(0.0, 3 * merging_time(beta, GRID_ANGLE), 601)
    run = finite_volumes(mf.mixture(bumps), beta, cells, times)
    return run.times, mean_to_angle(run.moments()[0])


def holding_beta(cells: int) -> float:
    """From which beta on a pair in single cells pulls less than a cell holds it.

    The velocity of each of the two is then beta h/2, that of a cluster's own pull at the edge
    of its cell: ``2 sin(gamma) / (1 + exp(beta (1 - cos gamma))) = h``.
    """
    size = 2 * np.pi / cells
    return float(np.log(2 * np.sin(GRID_ANGLE) / size - 1) / (1 - np.cos(GRID_ANGLE)))


def crossing(times, angle) -> float:
    """When the angle falls below `MERGED`, interpolated; NaN if it does not."""
    below = np.flatnonzero(angle < MERGED)
    if len(below) == 0:
        return np.nan
    k = below[0]
    last = np.log(angle[k - 1 : k + 1])  # the angle of a merging pair decays exponentially
    return float(np.interp(-np.log(MERGED), -last, times[k - 1 : k + 1]))


def exponential_rates(betas, times) -> tuple[float, float]:
    """Slopes of log T and of log(beta^2 T) over beta, for large beta."""
    large = betas >= min(FIT_FROM, betas.max() / 2)
    b, t = betas[large], times[large]
    return tuple(float(np.polyfit(b, np.log(y), 1)[0]) for y in (t, b**2 * t))


def pair_study(count: int) -> dict[float, dict[str, np.ndarray]]:
    """Merging times by initial angle: two tokens, clusters, and the exact expression."""
    return {
        start: {
            "beta": betas,
            "exact": merging_time(betas, start),
            "tokens": np.array([particle_pair(beta, start, 1) for beta in betas]),
            "clusters": np.array([particle_pair(beta, start, count) for beta in betas]),
        }
        for start, betas in PAIRS.items()
    }


def main(output="output", resolution: int = 600) -> dict[str, float]:
    """Draw the picture; return rates, errors, and the life of clusters.

    Parameters
    ----------
    output : path-like
        Folder of ``metastability.png``, ``metastability.csv`` (merging times of pairs) and
        ``metastability_counts.csv`` (energy and clusters over time).
    resolution : int
        Number of particles; clusters of pairs have a twentieth of them. There are about as many
        finite-volume cells, at least 128 and at most 512, half of them for pairs on a grid.
    """
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    cells = int(np.clip(2 ** round(np.log2(resolution)), 128, 512))
    histories = {beta: from_uniform(beta, resolution) for beta in BETAS}
    grids = {b: finite_volumes(start_density, b, cells, early_times(b)) for b in BETAS}
    pairs = pair_study(max(2, resolution // 20))
    held = {beta: grid_pair(beta, cells // 2) for beta in GRID_BETAS}
    numbers = summary(histories, grids, pairs) | {
        f"pair on a grid, beta = {beta:g}, T / exact": crossing(*path)
        / merging_time(beta, GRID_ANGLE)
        for beta, path in held.items()
    }
    numbers["pair on a grid, held from beta"] = holding_beta(cells // 2)
    write(folder, histories, grids, pairs)
    figure = draw(histories, grids, pairs, held, cells // 2)
    figure.savefig(folder / "metastability.png", dpi=150)
    return {name: float(value) for name, value in numbers.items()}


def summary(histories, grids, pairs) -> dict[str, float]:
    """The numbers of the study."""
    numbers = {}
    for start, found in pairs.items():
        where = f"pair from {start:g}"
        for name in ("exact", "tokens", "clusters"):
            plain, scaled = exponential_rates(found["beta"], found[name])
            numbers[f"{where}, {name}, rate of T"] = plain
            numbers[f"{where}, {name}, rate of beta^2 T"] = scaled
        numbers[f"{where}, predicted rate"] = 1 - np.cos(start)
        for name in ("tokens", "clusters"):
            ratio = found[name] / found["exact"]
            numbers[f"{where}, largest |{name} / exact - 1|"] = np.abs(ratio - 1).max()
    for beta, history in histories.items():
        where, counts = f"beta = {beta:g}", history.counts
        numbers[f"{where}, clusters formed"] = counts[history.times >= FORMED].max()
        numbers[f"{where}, clusters left"] = counts[-1]
        numbers[f"{where}, last time"] = history.times[-1]
        run = grids[beta]
        alive = run.audit["cells_99"] >= 5 * peaks(run)
        resolved = run.times[alive].max()
        numbers[f"{where}, finite volumes resolved until"] = resolved
        early = run.times <= resolved
        own = np.log(history.energy[: len(run.times)][early])
        error = run.audit["log_energy"][early] - beta - own
        numbers[f"{where}, energy of finite volumes against particles"] = np.abs(error).max()
    return numbers


def write(folder, histories, grids, pairs) -> None:
    """Both tables as CSV."""
    rows = [np.column_stack([np.full(len(p["beta"]), start), *p.values()])
            for start, p in pairs.items()]  # fmt: skip
    np.savetxt(folder / "metastability.csv", np.concatenate(rows), delimiter=",", fmt="%.10g",
               header="angle,beta,exact,tokens,clusters", comments="")  # fmt: skip
    rows = []
    for beta, history in histories.items():
        run = grids[beta]
        scaled = np.exp(run.audit["log_energy"] - beta)
        rows += [(beta, 0, *v) for v in zip(history.times, history.energy, history.counts,
                                            strict=True)]  # fmt: skip
        rows += [(beta, 1, *v) for v in zip(run.times, scaled, peaks(run), strict=True)]
    np.savetxt(folder / "metastability_counts.csv", rows, delimiter=",", fmt="%.8g", comments="",
               header="beta,finite_volumes,time,scaled_energy,clusters")  # fmt: skip


def draw(histories, grids, pairs, held, grid_cells: int) -> Figure:
    """Densities and particles; energy, counts; merging times."""
    figure = Figure(figsize=(17, 8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, 3)
    draw_profiles(axes[0, 0], histories[SHOWN], grids[SHOWN])
    draw_density(axes[0, 1], histories[SHOWN], grids[SHOWN])
    for k, (beta, history) in enumerate(histories.items()):
        run, color, label = grids[beta], f"C{k}", f"β = {beta:g}"
        grid = "finite volumes" if k == 0 else None
        axes[0, 2].semilogx(history.times, history.energy, color=color, label=label)
        axes[0, 2].plot(run.times, np.exp(run.audit["log_energy"] - beta), "k--", lw=1, label=grid)
        shown = history.times >= COUNTED / beta
        axes[1, 0].step(history.times[shown], history.counts[shown], where="post", color=color,
                        label=label)  # fmt: skip
        axes[1, 0].step(run.times, peaks(run), "--", where="post", color=color, lw=1)
    axes[0, 2].set(xlabel="time", ylabel="$E\\,e^{-β}$", title="energy (1: one cluster)")
    axes[1, 0].set(xscale="log", yscale="log", xlabel="time", ylabel="clusters")
    axes[1, 0].set_yticks(np.arange(1, 11), [*"12345678", "", "10"])
    axes[1, 0].minorticks_off()
    axes[1, 0].set_title("clusters of particles (dashed: bumps of the density)")
    for ax in (axes[0, 2], axes[1, 0]):
        ax.legend(fontsize=8)
        ax.grid(color="0.92")
    draw_pairs(axes[1, 1], pairs)
    draw_grid_pairs(axes[1, 2], held, grid_cells)
    return figure


def draw_profiles(ax, history, run) -> None:
    """Densities of finite volumes, and histograms of particles, at three times."""
    theta = angles(run.mesh.points)
    edges = np.linspace(0, 2 * np.pi, 65)
    for k, time in enumerate((1e-3, 0.15, 0.3)):
        frame = int(np.argmin(np.abs(run.times - time)))
        counts, _ = np.histogram(angles(history.points[frame]), edges)
        ax.stairs(counts * 64 / counts.sum(), edges, color=f"C{k}", alpha=0.35, fill=True)
        ax.plot(theta, run.density[frame], color=f"C{k}", lw=1.2,
                label=f"t = {run.times[frame]:.3g}")  # fmt: skip
    ax.set(xlabel="angle", ylabel="density (uniform is 1)", yscale="log", ylim=(0.05, 50))
    ax.set_title(f"β = {SHOWN:g}: finite volumes (lines), particles (areas)")
    ax.legend(fontsize=8)


def draw_density(ax, history, run) -> None:
    """The finite-volume density over log time as colours, clusters of particles as lines."""
    centre = angles(run.mesh.points)
    mesh = ax.pcolormesh(run.times, centre, np.log10(np.maximum(run.density.T, 1e-2)),
                         cmap="Blues", shading="nearest", vmin=-1, vmax=2)  # fmt: skip
    every = max(1, len(history.points[0]) // 60)
    early = [(t, x) for t, x in zip(history.times, history.points, strict=True) if t < FORMED]
    paths = np.array([angles(x[::every]) for _, x in early])
    paths[1:][np.abs(np.diff(paths, axis=0)) > np.pi] = np.nan  # no line across the cut
    ax.plot([t for t, _ in early], paths, color="C3", lw=0.5, alpha=0.7)
    late = range(len(early), len(history.times))
    times = np.concatenate([np.full(len(history.points[k]), history.times[k]) for k in late])
    theta = angles(np.concatenate([history.points[k] for k in late]))
    ax.plot(times, theta, ".", color="C3", ms=1.5)
    ax.set(xscale="log", xlabel="time", ylabel="angle", ylim=(0, 2 * np.pi))
    ax.set_xlim(run.times[0], history.times[-1])
    ax.set_title(
        f"β = {SHOWN:g}: finite volumes (blue, to t = {run.times[-1]:.2g}), particles (red)"
    )
    ax.figure.colorbar(mesh, ax=ax, label="log10 density")


def draw_pairs(ax, pairs) -> None:
    """Merging times over beta."""
    beta = np.linspace(1.5, 40, 300)
    for k, (start, found) in enumerate(pairs.items()):
        rate = exponential_rates(found["beta"], found["clusters"])[1]
        ax.semilogy(beta, merging_time(beta, start), color=f"C{k}",
                    label=f"two tokens from angle {start:g}, exact")  # fmt: skip
        ax.plot(beta, np.exp(beta * (1 - np.cos(start))) / (2 * (beta * np.sin(start)) ** 2), ":",
                color=f"C{k}", label="leading term")  # fmt: skip
        ax.plot(found["beta"], found["clusters"], "o", ms=5, mfc="none", color=f"C{k}",
                label=f"clusters: β²T grows like exp({rate:.4f} β), 1 - cos {start:g} = "
                f"{1 - np.cos(start):.4f}")  # fmt: skip
    ax.set(xlabel="β", ylabel="merging time T", title="two clusters of mass 1/2")
    ax.legend(fontsize=7)
    ax.grid(color="0.92")


def draw_grid_pairs(ax, held, cells: int) -> None:
    """Angles of pairs on a grid over time, in units of the exact merging time."""
    angle = np.linspace(GRID_ANGLE, 1e-3, 400)
    for k, (beta, (times, found)) in enumerate(held.items()):
        unit = merging_time(beta, GRID_ANGLE)
        ax.plot(times / unit, found, color=f"C{k}", label=f"β = {beta:g}")
        ax.plot(merging_time(beta, GRID_ANGLE, angle) / unit, angle, ":", color=f"C{k}", lw=1)
    ax.set(xlabel="time over exact merging time", ylabel="angle", xlim=(0, 3))
    ax.set_title(f"pairs on {cells} cells, held from about β = {holding_beta(cells):.1f}\n"
                 "(dotted: two tokens)", fontsize=10)  # fmt: skip
    ax.legend(fontsize=8)


if __name__ == "__main__":
    for name, value in main().items():
        print(f"{name}: {value:.8g}")
