"""Does the minimiser for positive definite D charge every open set?

The paper conjectures full support. Here the smallest value of the exact density is computed
over a grid of D = diag(l1, l2) on S^1, in double precision, and in more digits where doubles do
not decide the sign; and over a coarse grid of D = diag(1, l2, l3) on S^2. On S^1 the limit of
small D with rho = (l2 - l1)/(l2 + l1) is known: the density is Jacobi's dn, whose minimum is
the square of the theta function ``theta_4(rho) = prod (1 - rho^2k)(1 - rho^(2k-1))^2``, positive
for every rho < 1. A value counts as decided if it is far above the round-off and the tail of the
expansion. No value below zero has been found; this is evidence, not a proof.

Run as `python studies/full_support.py`; Burger, Kabri, Korolev, Roith, Weigand (2025).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import meanfield as mf
from meanfield.errors import ConvergenceError

CIRCLE = (0.1, 10.0)  # range of l1, l2
SPHERE = (1.0, 4.0)  # range of l2, l3 for l1 = 1
RATIOS = (1.05, 16.0)
SCALES = (0.1, 1.0, 10.0)  # values of l1 for curves over the ratio
DIGITS = ((1.0, 12.0, 36), (10.0, 40.0, 40))  # l1, l2 and decimal digits
MARGIN = 100.0
DOUBLE = 13  # digits that double precision keeps of the coefficients


def smallest_density(D, precision="double") -> tuple[float, float]:
    """Smallest value of the exact density and its uncertainty; NaN where it is out of reach."""
    try:
        minimizer = mf.exact_minimizer(D, precision=precision)
    except ConvergenceError:
        return np.nan, np.nan
    size = np.abs(minimizer.coefficients).sum()
    digits = DOUBLE if precision == "double" else precision
    return minimizer.minimum, float(size * 10.0**-digits + minimizer.tail)


def decided(values: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """The values whose sign is beyond doubt, NaN for the others."""
    return np.where(np.abs(values) > MARGIN * errors, values, np.nan)


def circle_map(resolution: int) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues, and the decided minima for all pairs of them, symmetric."""
    eigenvalues = np.geomspace(*CIRCLE, resolution)
    found = np.full((2, resolution, resolution), np.nan)
    for i in range(resolution):
        for j in range(i + 1):
            if eigenvalues[i] <= RATIOS[1] * eigenvalues[j]:
                found[:, i, j] = smallest_density([eigenvalues[j], eigenvalues[i]])
            found[:, j, i] = found[:, i, j]
    return eigenvalues, decided(*found)


def ratio_curves(resolution: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ratios, minima for each scale (scales, ratios), and their limit for small D."""
    ratios = np.geomspace(*RATIOS, resolution)
    found = [[smallest_density([scale, scale * r]) for r in ratios] for scale in SCALES]
    values, errors = np.moveaxis(np.array(found), 2, 0)
    return ratios, decided(values, errors), theta_limit(ratios)


def theta_limit(ratios) -> np.ndarray:
    """``theta_4(rho)^2``, rho = (ratio - 1)/(ratio + 1)."""
    rho = ((ratios - 1) / (ratios + 1))[:, None]
    k = np.arange(1, 400)
    return np.prod((1 - rho ** (2 * k)) * (1 - rho ** (2 * k - 1)) ** 2, axis=1) ** 2


def sphere_map(resolution: int) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues l2, l3 and the decided minima for D = diag(1, l2, l3), symmetric."""
    eigenvalues = np.linspace(*SPHERE, resolution)
    found = np.full((2, resolution, resolution), np.nan)
    for i in range(resolution):
        for j in range(i + 1):
            found[:, i, j] = smallest_density([1.0, eigenvalues[j], eigenvalues[i]])
            found[:, j, i] = found[:, i, j]
    return eigenvalues, decided(*found)


def main(output="output", resolution: int = 30) -> dict[str, float]:
    """Draw the picture; return the smallest minima and how many are negative or not decided.

    Parameters
    ----------
    output : path-like
        Folder of ``full_support.png`` and ``full_support.npz``.
    resolution : int
        Number of eigenvalues on S^1; a fourth of it, at least three, on S^2. Below 20, nothing is
        computed in more digits.
    """
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    eigenvalues, circle = circle_map(resolution)
    ratios, curves, limit = ratio_curves(resolution)
    coarse, sphere = sphere_map(max(3, resolution // 4))
    digits = np.array(
        [
            (l1, l2, *smallest_density([l1, l2], precision))
            for l1, l2, precision in (DIGITS if resolution >= 20 else ())
        ]
    ).reshape(-1, 4)
    np.savez_compressed(folder / "full_support.npz", eigenvalues=eigenvalues, circle=circle,
                        ratios=ratios, scales=SCALES, curves=curves, limit=limit, coarse=coarse,
                        sphere=sphere, digits=digits)  # fmt: skip
    draw(eigenvalues, circle, ratios, curves, limit, coarse, sphere, digits).savefig(
        folder / "full_support.png", dpi=150
    )
    near = np.isfinite(curves[0])
    return {
        "smallest_circle": float(np.nanmin(circle)),
        "smallest_sphere": float(np.nanmin(sphere)),
        "negative": int((circle < 0).sum() + (curves < 0).sum() + (sphere < 0).sum()),
        "undecided_circle": int(np.isnan(circle).sum()),
        "undecided_sphere": int(np.isnan(sphere).sum()),
        "smallest_in_digits": float(digits[:, 2].min(initial=np.inf)),
        "limit_error": float(np.abs(curves[0] / limit - 1)[near].max()),
    }


def draw(eigenvalues, circle, ratios, curves, limit, coarse, sphere, digits) -> Figure:
    """Maps of the minimum on S^1 and S^2, and its fall with the ratio of the eigenvalues."""
    figure = Figure(figsize=(14, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    left, middle, right = figure.subplots(1, 3)
    draw_map(left, eigenvalues, circle, "$S^1$: D = diag($\\lambda_1$, $\\lambda_2$)")
    left.set(xscale="log", yscale="log", xlabel="$\\lambda_1$", ylabel="$\\lambda_2$")
    middle.semilogy(ratios, limit, color="0.75", lw=5, label="small D: $\\theta_4(\\rho)^2$")
    for scale, row in zip(SCALES, curves, strict=True):
        middle.semilogy(ratios, row, ".-", ms=4, label=f"$\\lambda_1$ = {scale:g}")
    if len(digits):
        middle.semilogy(digits[:, 1] / digits[:, 0], digits[:, 2], "k*", ms=9,
                        label="36 and 40 digits")  # fmt: skip
    middle.set(xlabel="$\\lambda_2/\\lambda_1$", ylabel="smallest density")
    middle.set_title("$S^1$: fall with the ratio of eigenvalues", fontsize=10)
    middle.grid(color="0.9")
    middle.legend(fontsize=8)
    draw_map(right, coarse, sphere, "$S^2$: D = diag(1, $\\lambda_2$, $\\lambda_3$)")
    right.set(xlabel="$\\lambda_2$", ylabel="$\\lambda_3$")
    return figure


def draw_map(ax, eigenvalues, values, title: str) -> None:
    """Logarithm of the minimum; hatched where double precision does not decide."""
    ax.set_facecolor("0.92")
    mesh = ax.pcolormesh(eigenvalues, eigenvalues, np.log10(np.where(values > 0, values, np.nan)),
                         cmap="viridis", shading="nearest")  # fmt: skip
    ax.set_title(f"{title}\ngrey: not decided in double precision", fontsize=10)
    ax.set_aspect("equal")
    ax.figure.colorbar(mesh, ax=ax, label="log10 of the smallest density", shrink=0.9)


if __name__ == "__main__":
    for name, value in main().items():
        print(f"{name}: {value:.6g}")
