"""How regular is attention? Printed bounds, bounds that hold, and what a search finds.

The Lipschitz constant of ``mu -> mu A_mu`` in W1 on the box [-r, r]^d with the scaled dot product
and with its negative: the printed bound of Theorem 14, the corrected one for general potentials,
the one for exponential potentials, with K_N for 20 tokens, and adversarial lower bounds. The
printed bound is false in small domains: the crossing lines tell where. With the Gaussian
potential on the line: printed Corollary 17, the bounds that hold, the search, and three clusters
of tokens, which pass the printed bound for large N. Random pairs with exact W1 try all bounds.

Run as `python studies/regularity_bounds.py`; Vuckovic, Baratin, Tachet des Combes (2020).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import ot
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy.optimize import brentq, minimize_scalar

import meanfield as mf
from meanfield import regularity as reg

CASES = [(1, 0.1), (1, 0.3), (1, 1.0), (1, 1.5), (2, 0.1), (2, 1.0), (4, 0.1), (4, 1.0)]
TOKENS = 20
ATOMS = 6
COLUMNS = ("printed", "corrected generic", "corrected generic, second form", "exponential",
           "exponential, K_N", "dot, 20 tokens", "minus dot, 20 tokens",
           "minus dot, 6 weighted")  # fmt: skip
GAUSSIAN_TOKENS = (2, 5, 10, 20, 30)
WIDE = reg.Box(4.0, 1)  # stands for the line: the tokens found stay within +-2.5
CROSSING_DIMENSIONS = (1, 2, 4, 8, 16, 32, 64)
SEARCHED_DIMENSION = 4  # largest one of a crossing with what the search finds
PAIRS = 625  # random pairs for each unit of resolution
FLOOR = 1e-6  # least weight of the six atoms: the suprema are attained as a weight vanishes
ROUND_OFF = 1e-9  # relative, of ratios of distances


def dot(d: int, sign: int = 1) -> reg.ScaledDotProduct:
    """``exp(+-x.y / sqrt d)``."""
    return reg.ScaledDotProduct(sign * np.sqrt(d))


def formulas(d: int, r: float) -> dict[str, float]:
    """The bounds of the box [-r, r]^d in l1, without any search."""
    box = reg.Box(r, d)
    constants = reg.potential_constants(dot(d), box, "l1")
    bounds = [
        reg.attention_bound(constants, variant="paper"),
        reg.attention_bound(constants, form="lipschitz"),
        reg.attention_bound(constants, form="supremum"),
        reg.exponential_attention_bound(dot(d), box, "l1"),
        reg.exponential_attention_bound(dot(d), box, "l1", n_tokens=TOKENS),
    ]
    return dict(zip(COLUMNS[:5], (bound.value for bound in bounds), strict=True))


def weighted_search(d: int, r: float, starts: int) -> float:
    """The largest constant found for minus the dot product and six weighted atoms."""
    return reg.adversarial_constant(
        dot(d, -1), reg.Box(r, d), ATOMS, "l1", weights="free", starts=starts, floor=FLOOR
    ).value


def searches(d: int, r: float, starts: int) -> dict[str, float]:
    """Lower bounds of the true constants, found by a search and confirmed by differences."""
    found = [
        reg.adversarial_constant(dot(d, sign), reg.Box(r, d), TOKENS, "l1", starts=starts).value
        for sign in (1, -1)
    ]
    return dict(zip(COLUMNS[5:], [*found, weighted_search(d, r, starts)], strict=True))


def crossing(d: int, other, low: float = 1e-3, high: float = 5.0, accuracy: float = 1e-10) -> float:
    """The r between low and high at which the printed bound equals another function of r."""

    def gap(log_r):
        r = np.exp(log_r)
        return np.log(formulas(d, r)["printed"] / other(r))

    return float(np.exp(brentq(gap, np.log(low), np.log(high), xtol=accuracy)))


def crossing_lines(starts: int) -> dict[int, dict[str, float]]:
    """For each d the r below which the printed bound is false, and above which it is true.

    It is less than 1, which a single token attains; less than what the search finds (small d
    only); more than the bound for exponential potentials.
    """
    lines = {}
    for d in CROSSING_DIMENSIONS:
        one = crossing(d, lambda r: 1.0)
        above = crossing(d, lambda r, d=d: formulas(d, r)["exponential"])
        found = np.nan
        if d <= SEARCHED_DIMENSION:
            found = crossing(d, lambda r, d=d: weighted_search(d, r, starts), one, above, 1e-4)
        lines[d] = {"printed below 1": one, "printed below found": found, "printed true": above}
    return lines


def three_clusters(n_tokens: int, r: float) -> float:
    """Stretch by the Gaussian attention of a move of one token at 0, half of the others at +-r.

    The sum of the derivatives of all outputs, closed form; the distance moved is 1/N.
    """
    others = n_tokens - 1
    near = np.exp(-(r**2))
    alone = 1 / (1 + others * near)
    own = alone + 2 * r**2 * (1 - alone)
    total = near + others / 2 * (1 + near**4)
    mean = r * others / 2 * (1 - near**4) / total
    return own + others * near / total * abs(1 - 2 * r * mean)


def best_clusters(n_tokens: int) -> tuple[float, float]:
    """The largest stretch of three clusters, and its r."""
    found = minimize_scalar(
        lambda r: -three_clusters(n_tokens, r), bounds=(0.3, 6.0), method="bounded"
    )
    return -float(found.fun), float(found.x)


def gaussian_crossing() -> int:
    """The least odd N at which three clusters pass the printed Corollary 17, d = 1."""
    low, high = 1_001, 100_001
    while high - low > 2:
        middle = (low + high) // 2 | 1
        if (
            best_clusters(middle)[0]
            > reg.gaussian_attention_bound(middle, 1, variant="paper").value
        ):
            high = middle
        else:
            low = middle
    return high


def random_pair(rng, box) -> tuple[mf.Measure, mf.Measure]:
    """Two measures in the box: unrelated, or one with a token moved or a mass changed."""
    sizes = rng.integers(1, 7, size=2)
    corners = rng.random() < 0.5

    def tokens(size):
        x = rng.uniform(-1, 1, size=(size, box.dimension))
        return box.half_width * (np.sign(x) if corners else x)

    def masses(size):
        return None if rng.random() < 0.5 else rng.dirichlet(np.full(size, 0.5))

    first = mf.Measure(tokens(sizes[0]), masses(sizes[0]))
    kind = rng.integers(3)
    if kind == 0:
        return first, mf.Measure(tokens(sizes[1]), masses(sizes[1]))
    if kind == 1:
        moved = first.points.copy()
        moved[0] *= 1 - 10 ** rng.uniform(-4, 0)
        return first, mf.Measure(moved, first.masses)
    share = 10 ** rng.uniform(-4, -1)
    points = np.concatenate([first.points, tokens(1)])
    return first, mf.Measure(points, np.append((1 - share) * first.masses, share))


def distance(a: mf.Measure, b: mf.Measure, norm: str) -> float:
    """Exact W1."""
    metric = {"l1": "cityblock", "l2": "euclidean"}[norm]
    return ot.emd2(a.masses, b.masses, ot.dist(a.points, b.points, metric=metric))


def equal_weights(*measures: mf.Measure) -> bool:
    """Whether all masses of a measure are the same, for each of them."""
    return all(np.ptp(measure.masses) < 1e-15 for measure in measures)


def applicable_bounds(potential, box, norm, pair) -> dict[str, reg.Bound]:
    """The bounds that hold for a pair, and the printed Theorem 14."""
    constants = reg.potential_constants(potential, box, norm)
    found = {
        "printed": reg.attention_bound(constants, variant="paper"),
        "generic": reg.attention_bound(constants, form="lipschitz"),
        "generic, second form": reg.attention_bound(constants, form="supremum"),
    }
    equal, sizes = equal_weights(*pair), [len(measure) for measure in pair]
    if potential.exponential:
        found["exponential"] = reg.exponential_attention_bound(potential, box, norm)
        if equal and sizes[0] == sizes[1]:
            found["exponential, K_N"] = reg.exponential_attention_bound(
                potential, box, norm, n_tokens=sizes[0]
            )
    elif equal and norm == "l2":
        found["gaussian"] = reg.gaussian_attention_bound(
            sizes[0], box.dimension, sizes[1], self_token=True
        )
    return found


def random_pairs(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Ratios of exact W1 after and before attention over each bound, for random pairs.

    Returns
    -------
    dict of ndarray
        For each bound the ratios over it where it applies: above 1 the bound is violated.
    """
    rng = np.random.default_rng(seed)
    shares: dict[str, list[float]] = {}
    tried = 0
    while tried < count:
        d = int(rng.choice([1, 2, 4]))
        box = reg.Box(float(rng.choice([0.1, 0.3, 1.0, 1.5])), d)
        norm = str(rng.choice(["l1", "l2"]))
        potential = [dot(d), dot(d, -1), reg.Gaussian(), reg.Bilinear(rng.normal(size=(d, d)) / d)][
            rng.integers(4)
        ]
        pair = random_pair(rng, box)
        before = distance(*pair, norm)
        if before < 1e-7:  # equal measures
            continue
        tried += 1
        after = distance(*(reg.self_attention(measure, potential) for measure in pair), norm)
        for name, bound in applicable_bounds(potential, box, norm, pair).items():
            shares.setdefault(name, []).append(after / before / bound.value)
    return {name: np.array(values) for name, values in shares.items()}


def violations(shares: np.ndarray) -> int:
    """How often a bound is violated."""
    return int((shares > 1 + ROUND_OFF).sum())


def main(output="output", resolution: int = 8) -> dict[str, float]:
    """Draw the picture; return the numbers of all tables.

    Parameters
    ----------
    output : path-like
        Folder of ``regularity_bounds.png``, ``regularity_bounds.csv`` (the boxes),
        ``regularity_bounds_crossing.csv`` and ``regularity_bounds_gaussian.csv``.
    resolution : int
        Starts of each search; there are 625 times as many random pairs.
    """
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    rows = {case: formulas(*case) | searches(*case, resolution) for case in CASES}
    lines = crossing_lines(resolution)
    gaussian = gaussian_study(resolution)
    pairs = random_pairs(PAIRS * resolution)
    write(folder, rows, lines, gaussian)
    draw(rows, lines, gaussian, pairs).savefig(folder / "regularity_bounds.png", dpi=150)
    numbers = {
        f"d = {d}, r = {r:g}, {name}": value
        for (d, r), row in rows.items()
        for name, value in row.items()
    }
    for d, line in lines.items():
        numbers |= {f"d = {d}, {name}, r": value for name, value in line.items()}
    for row in gaussian:
        numbers |= {f"Gaussian, N = {row['N']:.0f}, {name}": row[name] for name in list(row)[1:]}
    numbers["Gaussian, three clusters pass the printed bound from N"] = gaussian_crossing()
    for name, shares in pairs.items():
        numbers[f"random pairs, {name}, tried"] = len(shares)
        numbers[f"random pairs, {name}, violated"] = violations(shares)
        numbers[f"random pairs, {name}, largest share"] = shares.max()
    return {name: float(value) for name, value in numbers.items()}


def gaussian_study(starts: int) -> list[dict[str, float]]:
    """The Gaussian potential on the line, tokens of equal weight."""
    rows = []
    for n in GAUSSIAN_TOKENS:
        found = reg.adversarial_constant(reg.Gaussian(), WIDE, n, "l2", starts=starts)
        rows.append({"N": n, "found": found.value} | gaussian_bounds(n))
    return rows


def gaussian_bounds(n: int) -> dict[str, float]:
    """Three clusters and all bounds."""
    return {
        "three clusters": best_clusters(n)[0] if n % 2 else np.nan,
        "from below": reg.gaussian_lower_bound(n).value,
        "printed": reg.gaussian_attention_bound(n, 1, variant="paper").value,
        "valid": reg.gaussian_attention_bound(n, 1, self_token=True).value,
    }


def write(folder, rows, lines, gaussian) -> None:
    """The tables as CSV."""

    def save(name, header, table):
        np.savetxt(folder / f"regularity_bounds{name}.csv", table, delimiter=",", fmt="%.10g",
                   header=",".join(title.replace(", ", " ") for title in header),
                   comments="")  # fmt: skip

    save("", ["d", "r", *COLUMNS], [[*case, *row.values()] for case, row in rows.items()])
    save("_crossing", ["d", *lines[1]], [[d, *line.values()] for d, line in lines.items()])
    save("_gaussian", gaussian[0], [list(row.values()) for row in gaussian])


def draw(rows, lines, gaussian, pairs) -> Figure:
    """Bounds over r, crossing lines, the Gaussian, random pairs."""
    figure = Figure(figsize=(13, 9), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, 2)
    draw_boxes(axes[0, 0], rows)
    draw_lines(axes[0, 1], lines)
    draw_gaussian(axes[1, 0], gaussian)
    draw_pairs(axes[1, 1], pairs)
    return figure


def draw_boxes(ax, rows) -> None:
    """d = 1: bounds as curves over r, what the search found as points."""
    r = np.geomspace(0.05, 2.0, 60)
    curves = [formulas(1, size) for size in r]
    styles = {"printed": "C3--", "corrected generic": "C0-", "exponential": "C2-",
              "exponential, K_N": "C1-"}  # fmt: skip
    for name, style in styles.items():
        label = f"exponential, {TOKENS} tokens" if name.endswith("K_N") else name
        ax.loglog(r, [row[name] for row in curves], style, label=label)
    sizes = [case[1] for case in rows if case[0] == 1]
    for name, mark in zip(COLUMNS[5:], ("C5s", "C1o", "C2^"), strict=True):
        found = [rows[1, size][name] for size in sizes]
        ax.plot(sizes, found, mark, mfc="none", ms=7, label=f"found: {name}")
    ax.axhline(1, color="0.6", lw=0.8)
    ax.set(xlabel="r", ylabel="Lipschitz constant, l1", title="scaled dot product on [-r, r]")
    ax.legend(fontsize=8)
    ax.grid(color="0.92")


def draw_lines(ax, lines) -> None:
    """Where the printed bound is false, open, true."""
    d = np.array(list(lines))
    one, found, true = np.array([list(line.values()) for line in lines.values()]).T
    ax.fill_between(d, 0.01, one, color="C3", alpha=0.3, label="printed < 1: false")
    ax.fill_between(d, one, true, color="0.85", label="printed < exponential bound")
    ax.fill_between(d, true, 1.0, color="C2", alpha=0.3, label="printed > exponential bound: true")
    ax.plot(d, one, "C3o-", d, true, "C2o-", ms=4)
    ax.plot(d, found, "kx--", ms=6, label="false below: the search finds more")
    ax.set(xscale="log", yscale="log", xlabel="dimension d", ylabel="r", xlim=(d[0], d[-1]),
           ylim=(0.012, 1.0), title="Theorem 14 as printed on [-r, r]^d")  # fmt: skip
    ax.set_xticks(d, [str(value) for value in d])
    ax.minorticks_off()
    ax.legend(fontsize=8, loc="upper right")


def draw_gaussian(ax, gaussian) -> None:
    """Bounds over N; the printed one is passed."""
    n = np.unique(np.geomspace(3, 1e7, 80).astype(int) | 1)
    table = [gaussian_bounds(int(value)) for value in n]
    labels = {"printed": ("C3--", "Corollary 17, printed"),
              "three clusters": ("C0-", "three clusters of tokens"),
              "from below": ("k:", "$2W_0((N-1)/e)$, from below")}  # fmt: skip
    for name, (style, label) in labels.items():
        ax.semilogx(n, [row[name] for row in table], style, label=label)
    ax.plot([row["N"] for row in gaussian], [row["found"] for row in gaussian], "C0o", mfc="none",
            label="found by the search")  # fmt: skip
    first = gaussian_crossing()
    ax.axvline(first, color="0.7", lw=0.8)
    ax.text(first * 1.2, 1, f"N = {first}", color="0.4", fontsize=9)
    ax.set(xlabel="N", ylabel="Lipschitz constant", title="Gaussian potential, d = 1", ylim=(0, 30))
    ax.legend(fontsize=8, loc="upper left")
    ax.grid(color="0.92")


def draw_pairs(ax, pairs) -> None:
    """How much of each bound random pairs use."""
    for k, (name, shares) in enumerate(pairs.items()):
        used = np.sort(shares)[::-1]
        style = "C3--" if name == "printed" else f"C{k}-" if k < 3 else f"C{k + 1}-"
        ax.semilogy(np.linspace(0, 1, len(used)), used, style,
                    label=f"{name}: {violations(shares)} of {len(shares)} violated")  # fmt: skip
    ax.axhline(1, color="0.6", lw=0.8)
    ax.set(xlabel="share of the random pairs", ylabel="stretch over bound", ylim=(1e-5, 30))
    ax.set_title("exact W1, random pairs of measures")
    ax.legend(fontsize=8)
    ax.grid(color="0.92")


if __name__ == "__main__":
    for name, value in main().items():
        print(f"{name}: {value:.6g}")
