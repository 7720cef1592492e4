"""How fast do particles approach the density?

N = 10^2 ... 10^5 particles on S^1 for D = diag(1, 2), and the density that finite volumes compute
from the same start, a mixture of two bumps. Starts are drawn at random from the initial density,
or are its quantiles (i - 1/2)/N. The error is the 1-Wasserstein distance on the circle, exact
through the distribution functions, and the distance of the first and second moments. Random
starts err like N^(-1/2). Quantiles err like pi/(2N) in W1, at any time; their moments converge
faster than any power of 1/N, since the quantile function of a smooth positive density is smooth
and periodic up to a shift, until the error of the finite volumes is left. The law holds under the
normalised flow (1.6), under the unnormalised one (5.1), and for the layers of a transformer:
layers of step h have a limit of their own, which is O(h) away from the density of the flow.

Run as `python studies/mean_field_limit.py`; Burger, Kabri, Korolev, Roith, Weigand (2025),
eqs. (1.4)-(1.7) and (5.1). W1 on the circle: J. Rabin, J. Delon, Y. Gousseau (2011), Transportation
distances on the circle.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy.interpolate import CubicSpline
from scipy.optimize import brentq

import meanfield as mf
from meanfield.sphere.geometry import angles, directions

TURN = 2 * np.pi
D = [1.0, 2.0]
START = mf.mixture(
    [mf.von_mises_fisher([1.0, 0.3], 2.0), mf.von_mises_fisher([-0.6, 1.0], 1.0)], [0.6, 0.4]
)
# Law: whether the attention is normalised, the end time, the step of layers.
LAWS = {
    "normalised flow": (True, 1.0, None),
    "unnormalised flow": (False, 0.3, None),
    "layers": (True, 1.0, 0.01),
}
STEPS = np.array([0.2, 0.1, 0.05, 0.02, 0.01])
SEED = 6
BUDGET = 200_000  # particles of all random starts of one size, which are 4 to 100
FLOOR = 4.0  # rates are fitted to errors above this multiple of the error of the finite volumes
COLUMNS = ("law", "start", "N", "starts", "W1", "W1_deviation", "moments", "moments_deviation",
           "W1_initial")  # fmt: skip


def cut(cells: int) -> np.ndarray:
    """Angles of the faces of `mf.circle(cells)`, one turn from the lower face of cell 0."""
    return TURN * (np.arange(cells + 1) - 0.5) / cells


def distribution(masses) -> tuple[np.ndarray, np.ndarray]:
    """Faces and the distribution function there, linear in between."""
    return cut(len(masses)), np.concatenate([[0.0], np.cumsum(masses)])


def circle_distance(widths, left, right) -> float:
    """W1 on the circle, ``min_c int |F - G - c|``, F - G linear on intervals.

    Parameters
    ----------
    widths, left, right : ndarray, shape (k,)
        Lengths of the intervals, and F - G at their ends.
    """
    low, high = np.minimum(left, right), np.maximum(left, right)
    span = np.maximum(high - low, 1e-300)

    def below(c: float) -> float:
        return widths @ np.clip((c - low) / span, 0, 1) - widths.sum() / 2

    # The minimum is at the median, where the integral is flat: digits of c do not matter.
    c = brentq(below, low.min() - 1e-9, high.max() + 1e-9, xtol=1e-12)
    a, b = left - c, right - c
    crossing = a * b < 0
    gap = np.where(crossing, np.abs(b - a), 1.0)
    parts = np.where(crossing, (a * a + b * b) / (2 * gap), np.abs(a + b) / 2)
    return float(widths @ parts)


def particles_to_density(points, nodes, cdf) -> float:
    """W1 between equal particles on S^1 and a measure with a piecewise linear distribution."""
    theta = np.sort((angles(points) - nodes[0]) % TURN + nodes[0])
    breaks = np.sort(np.concatenate([nodes, theta]))
    smooth = np.interp(breaks, nodes, cdf)
    counted = np.searchsorted(theta, breaks[:-1], side="right") / len(theta)
    return circle_distance(np.diff(breaks), smooth[:-1] - counted, smooth[1:] - counted)


def density_to_density(nodes, cdf, others, other_cdf) -> float:
    """W1 between two measures with piecewise linear distributions, cut at the same angle."""
    breaks = np.sort(np.concatenate([nodes, others]))
    gap = np.interp(breaks, nodes, cdf) - np.interp(breaks, others, other_cdf)
    return circle_distance(np.diff(breaks), gap[:-1], gap[1:])


def levels(count: int) -> np.ndarray:
    """Where quantile starts sit in the distribution: (i - 1/2)/N."""
    return (np.arange(count) + 0.5) / count


def from_quantiles(points) -> tuple[np.ndarray, np.ndarray]:
    """The distribution whose quantiles (i - 1/2)/N are the points, linear in between."""
    start = cut(1024)[0]
    count = len(points)
    theta = np.unwrap(angles(points))
    values = levels(count)
    turns = np.arange(-2, 3)[:, None]
    theta, values = (theta + TURN * turns).ravel(), (values + turns).ravel()
    inside = theta[(theta > start) & (theta < start + TURN)]
    nodes = np.concatenate([[start], inside, [start + TURN]])
    cdf = np.interp(nodes, theta, values)
    return nodes, cdf - cdf[0]


def initial_distribution(cells: int = 4096) -> tuple[np.ndarray, np.ndarray]:
    """The distribution function of the start at the faces, exact to round-off."""
    mesh = mf.circle(cells)
    masses = mf.cell_averages(mesh, START) * mesh.weights
    nodes, cdf = distribution(masses)
    return nodes, cdf / cdf[-1]


def initial_quantiles() -> CubicSpline:
    """Angles over levels in [0, 1]: the inverse distribution function of the start."""
    nodes, cdf = initial_distribution()
    return CubicSpline(cdf, nodes)


def moments(points, masses=None) -> np.ndarray:
    """First and second moments of points (..., N, 2), shape (..., 6)."""
    count = points.shape[-2]
    masses = np.full(count, 1 / count) if masses is None else masses
    first = np.einsum("i,...ia->...a", masses, points)
    second = np.einsum("i,...ia,...ib->...ab", masses, points, points, optimize=True)
    return np.concatenate([first, second.reshape(*first.shape[:-1], 4)], axis=-1)


def moved(points, law: str, step=None) -> np.ndarray:
    """The particles at the end of a law, shape (starts, N, 2)."""
    normalized, t_end, default = LAWS[law]
    model = mf.SelfAttention(D, normalized=normalized)
    step = default if step is None else step
    if step is None:
        return mf.evolve_particles(points, model, t_end, save=2).points[-1]
    return mf.transformer(points, model, round(t_end / step), step=step, save=2).points[-1]


def finite_volumes(law: str, cells: int):
    """The density at the end of a law: distribution and moments, and their errors.

    Errors are differences from characteristics on 256 nodes, which are spectrally accurate.
    """
    normalized, t_end, _ = LAWS[law]
    model = mf.SelfAttention(D, normalized=normalized)
    masses = mf.evolve(mf.circle(cells), model, START, t_end, save=2).masses[-1]
    nodes, cdf = distribution(masses)
    mean = moments(mf.circle(cells).points, masses)
    exact = mf.evolve_characteristics(mf.circle(256), model, START, t_end, save=2)
    fine = mf.circle(2 * cells)
    values = exact.density_at(fine.points, t_end) * fine.weights
    error = density_to_density(nodes, cdf, *distribution(values / values.sum()))
    moment_error = np.linalg.norm(mean - moments(exact.points[-1], exact.masses))
    return (nodes, cdf), mean, error, float(moment_error)


def errors(points, reference, mean) -> tuple[np.ndarray, np.ndarray]:
    """W1 and moment errors of an ensemble, each of shape (starts,)."""
    distances = np.array([particles_to_density(start, *reference) for start in points])
    return distances, np.linalg.norm(moments(points) - mean, axis=-1)


def rows(law: str, sizes, reference, mean, quantile) -> list[list]:
    """Errors for all N, random and quantile starts."""
    initial, found = initial_distribution(), []
    for k, count in enumerate(sizes):
        starts = int(np.clip(BUDGET // count, 4, 100))
        draws = np.random.default_rng([SEED, k]).random((starts, count))
        for name, u in (("random", draws), ("quantile", levels(count)[None])):
            points = directions(quantile(u))
            before = np.mean([particles_to_density(start, *initial) for start in points])
            w1, moment = errors(moved(points, law), reference, mean)
            found.append([law, name, count, len(points), w1.mean(), w1.std(), moment.mean(),
                          moment.std(), before])  # fmt: skip
    return found


def rate(table, law: str, start: str, column: int, floor: float) -> float:
    """Slope of log error over log N, fitted above the floor; NaN with fewer than two points."""
    data = np.array([[row[2], row[column]] for row in table if row[:2] == [law, start]])
    data = data[data[:, 1] > floor]
    return float(np.polyfit(*np.log(data.T), 1)[0]) if len(data) > 1 else np.nan


def layer_limits(reference, count: int) -> np.ndarray:
    """W1 between the limits of layers and the density of the flow, one for each of `STEPS`."""
    points = directions(initial_quantiles()(levels(count)))
    return np.array([
        density_to_density(*reference, *from_quantiles(moved(points, "layers", step)))
        for step in STEPS
    ])  # fmt: skip


def main(output="output", resolution: int = 100_000) -> dict[str, float]:
    """Draw the picture; return fitted rates, and errors of the references.

    Parameters
    ----------
    output : path-like
        Folder of ``mean_field_limit.png`` and ``mean_field_limit.csv``.
    resolution : int
        The largest N; from 10^2 on there are two sizes a decade. At least 1,000.
    """
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    sizes = np.rint(10 ** np.arange(2, np.log10(resolution) + 0.01, 0.5)).astype(int)
    cells = int(np.clip(resolution // 4, 512, 2048))
    quantile = initial_quantiles()
    table, floors, numbers = [], {}, {}
    for law in LAWS:
        density, mean, *floor = finite_volumes(law, cells)
        if law == "layers":
            # Layers have their own limit; the flow's density is the one of the normalised flow.
            limits = layer_limits(density, 20_000)
            final = moved(directions(quantile(levels(20_000))), law)
            density, mean, floor = from_quantiles(final), moments(final), [1e-8, 1e-13]
        floors[law] = floor
        table += rows(law, sizes, density, mean, quantile)
        for start, name in (("random", "W1"), ("random", "moments"), ("quantile", "W1")):
            column = COLUMNS.index(name)
            least = FLOOR * floor[column // 5]
            numbers[f"{law}, {start}, rate of {name}"] = rate(table, law, start, column, least)
        # Moments of quantiles have no rate: the error is round-off, or the reference's.
        numbers[f"{law}, quantile, moments at N = 1000"] = next(
            row[6] for row in table if row[:3] == [law, "quantile", 1000]
        )
    numbers |= {f"{law}, W1 error of the reference": floors[law][0] for law in floors}
    numbers |= {f"{law}, moment error of the reference": floors[law][1] for law in floors}
    numbers["layers, order in the step"] = float(np.polyfit(np.log(STEPS), np.log(limits), 1)[0])
    numbers["layers, distance over step"] = float(limits[-1] / STEPS[-1])
    final = [row for row in table if row[1] == "quantile"]
    numbers["quantiles, N W1"] = float(np.mean([row[2] * row[8] for row in final]))
    write(folder / "mean_field_limit.csv", table)
    draw(table, floors, limits, numbers).savefig(folder / "mean_field_limit.png", dpi=150)
    return numbers


def write(path, table) -> None:
    """The table as CSV."""
    lines = [",".join(v if isinstance(v, str) else f"{v:.6g}" for v in row) for row in table]
    path.write_text("\n".join([",".join(COLUMNS), *lines, ""]))


def draw(table, floors, limits, numbers) -> Figure:
    """Errors over N for the three laws, W1 above and moments below; limits of layers."""
    figure = Figure(figsize=(13, 7.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, 4)
    for line, (k, name) in enumerate(((4, "W1"), (6, "moments"))):
        for ax, law in zip(axes[line], LAWS, strict=False):
            draw_law(ax, table, law, k, name, floors[law][line], numbers)
    axes[0, 3].loglog(STEPS, limits, "ko-", ms=4)
    axes[0, 3].loglog(STEPS, limits[-1] * STEPS / STEPS[-1], color="0.7", lw=1)
    axes[0, 3].set(xlabel="step h of a layer", ylabel="W1 to the density of the flow")
    order = numbers["layers, order in the step"]
    axes[0, 3].set_title(f"limit of layers: order {order:.2f}", fontsize=10)
    theta = np.linspace(-np.pi, np.pi, 721)
    axes[1, 3].plot(theta, START(directions(theta)), color="0.6", label="start")
    for law, style in (("normalised flow", "C0"), ("unnormalised flow", "C1--")):
        normalized, t_end, _ = LAWS[law]
        run = mf.evolve_characteristics(mf.circle(256), mf.SelfAttention(D, normalized=normalized),
                                        START, t_end, save=2)  # fmt: skip
        axes[1, 3].plot(theta, run.density_at(directions(theta), t_end), style,
                        label=f"{law}, t = {t_end:g}")  # fmt: skip
    axes[1, 3].set(xlabel="angle", ylabel="density (uniform is 1)")
    axes[1, 3].legend(fontsize=7)
    return figure


def draw_law(ax, table, law, column, name, floor, numbers) -> None:
    """Mean errors with their deviations, guides of slope -1/2 and -1, the reference's error."""
    for start, color in (("random", "C0"), ("quantile", "C3")):
        data = np.array([[r[2], r[column], r[column + 1]] for r in table if r[:2] == [law, start]])
        value = numbers.get(f"{law}, {start}, rate of {name}")
        label = f"{start}: " + ("no power of N" if value is None else f"rate {value:.2f}")
        ax.errorbar(data[:, 0], data[:, 1], np.minimum(data[:, 2], 0.9 * data[:, 1]), fmt="o-",
                    ms=4, lw=1, capsize=2, color=color, label=label)  # fmt: skip
        if start == "random" or name == "W1":
            slope = -0.5 if start == "random" else -1.0
            ax.plot(data[:, 0], data[0, 1] * (data[:, 0] / data[0, 0]) ** slope, ":", color=color)
    if law != "layers":
        ax.axhline(floor, color="0.5", lw=1, ls="--", label="error of the finite volumes")
    _, t_end, step = LAWS[law]
    words = f"{law}, t = {t_end:g}" + ("" if step is None else f", h = {step:g}, to their limit")
    ax.set(xscale="log", yscale="log", xlabel="N", ylabel=f"error: {name}")
    ax.set_title(words, fontsize=10)
    ax.legend(fontsize=7)


if __name__ == "__main__":
    for name, value in main().items():
        print(f"{name}: {value:.6g}")
