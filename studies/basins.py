"""Which stationary state do random starts reach?

Particles ascend the energy under the normalised flow (1.6) from uniformly random starts, and the
states at which they come to rest are counted, with 95 % intervals (Wilson), over one eigenvalue
of D: n = 2, D = diag(-1, x), where one cluster at e_2, pairs at +-e_1 and pairs at +-e_2 may all
be stable (the energy is largest at one cluster beyond x = ln cosh 1); n = 3, D = diag(-1, 0.2, x)
likewise; and n = 3, D = diag(0.5, 1, x), where pairs at the top eigenvector are stable beyond
x tanh x = 1. The two clusters of a pair rarely weigh the same: the last picture holds the heavier
share of every pair that rests against the largest stable share, which no pair exceeds.

Run as `python studies/basins.py`; Burger, Kabri, Korolev, Roith, Weigand (2025), Sections 4 and 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from one_or_two_clusters import wilson
from scipy.optimize import brentq

import meanfield as mf
from meanfield.equilibria.two_point_rates import largest_stable_share

PARTICLES, SEED = 32, 8
T_END, STEP, STILL = 600.0, 0.4, 1e-7
ANGLE = 0.05  # of a cluster
ALIGNED = 0.02  # in radians: clusters this close to an axis, and to antipodal, count
UPPER = brentq(lambda x: x * np.tanh(x) - 1, 1.0, 1.5)
SWITCH = (np.log(np.cosh(1.0)), "ln cosh 1")


@dataclass(frozen=True)
class Case:
    """A family D = diag(fixed, x) and the range of x."""

    fixed: tuple[float, ...]
    low: float
    high: float
    marks: tuple[tuple[float, str], ...]

    @property
    def title(self) -> str:
        return f"n = {len(self.fixed) + 1}, D = diag({', '.join(f'{v:g}' for v in self.fixed)}, x)"

    def matrix(self, x: float) -> list[float]:
        return [*self.fixed, x]


CASES = (
    Case((-1.0,), -0.65, 1.35, ((0.0, "0"), SWITCH, (np.tanh(1.0), "tanh 1"))),
    Case((-1.0, 0.2), -0.65, 1.35, ((0.2, "0.2"), SWITCH, (np.tanh(1.0), "tanh 1"))),
    Case((0.5, 1.0), 0.925, 1.925, ((1.0, "1"), (UPPER, "x tanh x = 1"))),
)


@dataclass(frozen=True, eq=False)
class Ends:
    """Where the starts of one D ended.

    Attributes
    ----------
    labels : list of str, one a start
        ``"1 at e_k"``, ``"2 at e_k"``, ``"other"`` or ``"moving"``.
    shares : ndarray, shape (starts,)
        Mass of the heaviest cluster.
    axis : ndarray of int, shape (starts,)
        The coordinate axis nearest to it.
    """

    labels: np.ndarray
    shares: np.ndarray
    axis: np.ndarray


def run_starts(D, starts: int) -> Ends:
    """Follow random starts until they rest, and name the states."""
    n = len(D)
    points = mf.random_points(PARTICLES, n, SEED, starts=starts)
    run = mf.evolve_particles(points, mf.SelfAttention(D), T_END, method="geodesic_rk4",
                              step=STEP, stationary=STILL, save=2)  # fmt: skip
    clusters = run.clusters(ANGLE)
    first = clusters.centres[:, 0]
    axis = np.abs(first).argmax(axis=1)
    aligned = np.abs(first).max(axis=1) > np.cos(ALIGNED)
    two = clusters.count == 2
    opposite = np.zeros(starts, dtype=bool)
    if two.any():
        second = clusters.centres[two, 1]
        opposite[two] = np.einsum("si,si->s", first[two], second) < -np.cos(ALIGNED)
    labels = np.full(starts, "other", dtype="<U12")
    for k in range(n):
        here = aligned & (axis == k)
        labels[here & (clusters.count == 1)] = f"1 at e_{k + 1}"
        labels[here & opposite] = f"2 at e_{k + 1}"
    labels[~np.isfinite(run.stopped) & (labels == "other")] = "moving"
    return Ends(labels, clusters.masses[:, 0], axis)


def stable_share(D, axis: int) -> float | None:
    """Up to which share of the heavier cluster pairs at an axis are stable; None for no share."""
    return largest_stable_share(D[axis], np.delete(D, axis)) if D[axis] else None


def violations(D, ends: Ends) -> int:
    """Pairs at rest that theory calls unstable."""
    count = 0
    for k in range(len(D)):
        shares = ends.shares[ends.labels == f"2 at e_{k + 1}"]
        bound = stable_share(D, k)
        count += len(shares) if bound is None else int((shares > bound).sum())
    return count


def main(output="output", resolution: int = 400) -> dict[str, dict]:
    """Draw the picture; return counts by case, x and state, and how often theory is violated.

    Parameters
    ----------
    output : path-like
        Folder of ``basins.png`` and ``basins.csv``.
    resolution : int
        Number of starts for each D; below 100 only five values of x are run, otherwise 21.
    """
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    results = {}
    for case in CASES:
        values = np.linspace(case.low, case.high, 5 if resolution < 100 else 21)
        ends = [run_starts(case.matrix(float(x)), resolution) for x in values]
        results[case.title] = {
            "x": values,
            "counts": count_states(ends),
            "violations": sum(violations(case.matrix(float(x)), end)
                              for x, end in zip(values, ends, strict=True)),
            "ends": ends,
        }  # fmt: skip
    write_table(folder / "basins.csv", results)
    draw(results, resolution).savefig(folder / "basins.png", dpi=150)
    return results


def count_states(ends: list[Ends]) -> dict[str, np.ndarray]:
    """How many starts ended in each state, for every value of x."""
    names = sorted({str(name) for end in ends for name in end.labels})
    return {name: np.array([(end.labels == name).sum() for end in ends]) for name in names}


def write_table(path: Path, results: dict) -> None:
    """One line for each case, x and state."""
    lines = ["case,x,state,starts"]
    for title, found in results.items():
        for name, counts in found["counts"].items():
            lines += [f'"{title}",{x:.6g},{name},{count}'
                      for x, count in zip(found["x"], counts, strict=True)]  # fmt: skip
    path.write_text("\n".join(lines) + "\n")


def draw(results, starts: int) -> Figure:
    """Shares of starts over x for every case, and the masses of the pairs."""
    figure = Figure(figsize=(12, 8.6), layout="constrained")
    axes = figure.subplots(2, 2).ravel()
    for ax, case in zip(axes, CASES, strict=False):
        draw_shares(ax, case, results[case.title], starts)
    draw_masses(axes[3], CASES[2], results[CASES[2].title])
    return figure


def draw_shares(ax, case: Case, found, starts: int) -> None:
    """Shares of the states with their intervals."""
    top = len(case.fixed) + 1
    colors = {"2 at e_1": "tab:orange", "1 at e_2": "tab:green", "2 at e_2": "tab:olive"}
    colors |= {f"1 at e_{top}": "tab:blue", f"2 at e_{top}": "tab:red"}  # on S^1 the top is e_2
    words = {"1": "one cluster at $\\pm e_{}$", "2": "pair at $\\pm e_{}$"}
    for name, counts in found["counts"].items():
        low, high = wilson(counts, starts)
        share = counts / starts
        label = words[name[0]].format(name[-1]) if name in colors else name
        ax.errorbar(found["x"], share, np.abs([share - low, high - share]), fmt="o-", ms=3, lw=1,
                    capsize=2, color=colors.get(name, "0.5"), label=label)  # fmt: skip
    mark(ax, case)
    ax.set(xlabel="x", ylabel=f"share of {starts} random starts", ylim=(-0.03, 1.03))
    ax.set_title(f"{case.title}, {PARTICLES} particles")
    ax.legend(fontsize=8)


def mark(ax, case: Case) -> None:
    """Where theory says that something changes."""
    for place, words in case.marks:
        ax.axvline(place, color="0.6", lw=0.8, ls="--", zorder=0)
        ax.annotate(words, (place, 0.5), (3, 0), textcoords="offset points", fontsize=8,
                    rotation=90, va="center", xycoords=("data", "axes fraction"))  # fmt: skip


def draw_masses(ax, case: Case, found) -> None:
    """The heavier share of every pair at the top axis against the largest stable one."""
    top = len(case.fixed)
    jitter = np.random.default_rng(SEED)
    step = found["x"][1] - found["x"][0]
    for x, end in zip(found["x"], found["ends"], strict=True):
        shares = end.shares[end.labels == f"2 at e_{top + 1}"]
        shift = jitter.uniform(-0.3, 0.3, len(shares)) * step
        ax.plot(x + shift, shares, ".", color="tab:red", ms=3, alpha=0.5)
    fine = np.linspace(UPPER + 1e-9, case.high + step / 2, 200)
    bound = [stable_share(case.matrix(float(x)), top) or 0.5 for x in fine]
    ax.plot(fine, bound, "k-", lw=1.5, label="largest stable share")
    ax.fill_between(fine, bound, 1.0, color="0.9", zorder=0, label="unstable")
    ax.set(xlabel="x", ylabel="share of the heavier cluster", ylim=(0.49, 1.0),
           xlim=(case.low, case.high + step / 2))  # fmt: skip
    ax.set_title(f"pairs at rest, {case.title}")
    ax.legend(fontsize=8, loc="upper left")


if __name__ == "__main__":
    for title, found in main().items():
        print(title, f"(pairs that theory calls unstable: {found['violations']})")
        names = list(found["counts"])
        print(" ".join(f"{name:>10}" for name in ["x", *names]))
        for index, x in enumerate(found["x"]):
            row = [f"{found['counts'][name][index]:10d}" for name in names]
            print(f"{x:10.4g} " + " ".join(row))
