"""Fig. 5: how good is the asymptotic minimiser for D = Id + eps M?

On S^1 with M = diag(0, 1), as published, and on S^2 with M = diag(0, 0, 1), which the paper
leaves open: the first order of Theorem 4.14, the second order, and the density
``exp(-2 Upsilon (q - mean q))``, q = x.Mx, normalised, which on S^1 is ``exp(Upsilon cos 2t)``,
with the exponent printed in (5.6), ``(e/2) eps + eps^2/5``, and with the corrected one. Errors
are against the exact minimiser, the largest over the sphere. The first order has error
O(eps^2); an exponential with the right exponent too, since its second harmonics are not exact;
the printed exponent is wrong in its first term.

Run as `python studies/perturbation_of_identity.py`; Burger, Kabri, Korolev, Roith, Weigand
(2025), Theorem 4.14 and Section 5.2.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import meanfield as mf
from meanfield.equilibria.mirror_descent import minimize
from meanfield.sphere.geometry import directions

FIT = 0.03  # largest eps of the fitted slopes
CELLS = 1000  # N of the published figure
PUBLISHED = np.linspace(0.9, 1.3, 9) - 1  # values of eps
MIRROR = {"method": "mirror", "step": 0.1, "max_iterations": 1500}
STYLES = {
    "first order": ("o-", "C0"),
    "second order": ("s-", "C2"),
    "exponential, (5.6) as printed": ("x--", "C3"),
    "exponential, corrected": ("+--", "C1"),
}


def perturbation(n: int) -> np.ndarray:
    """M = diag(0, ..., 0, 1)."""
    return np.diag(np.eye(n)[-1])


def nodes(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Half a meridian from the equator to the pole, closed, and angles from the equator."""
    angle = np.linspace(0, np.pi / 2, 721)
    flat = directions(angle)
    return np.insert(flat, 1, 0.0, axis=1) if n == 3 else flat, angle


def corrected_exponent(n: int) -> np.ndarray:
    """Coefficients of eps and eps^2 in the exponent of ``exp(-2 Upsilon (q - mean q))``.

    The part of the logarithm of the second-order density in the second harmonics: its
    projection on q.
    """
    rule = mf.product_sphere(n, 31)
    q = rule.points[:, -1] ** 2 - 1 / n
    one = mf.perturbed_minimizer(perturbation(n), 1.0, order=1)(rule.points)
    two = mf.perturbed_minimizer(perturbation(n), 1.0, order=2)(rule.points)
    first, second = one - 1, two - one
    logarithm = np.stack([first, second - first**2 / 2])
    return -0.5 * (logarithm * q) @ rule.weights / rule.integrate(q**2)


def exponential(n: int, upsilon: float, x: np.ndarray) -> np.ndarray:
    """The density ``exp(-2 Upsilon q)``, normalised."""
    rule = mf.product_sphere(n, 127)
    mean = rule.integrate(np.exp(-2 * upsilon * rule.points[:, -1] ** 2))
    return np.exp(-2 * upsilon * x[:, -1] ** 2) / mean


def candidates(n: int, eps: float, x: np.ndarray) -> dict[str, np.ndarray]:
    """The asymptotic densities at points; the printed exponent exists on S^1 only."""
    M = perturbation(n)
    first, second = corrected_exponent(n)
    found = {
        "first order": mf.perturbed_minimizer(M, eps, order=1)(x),
        "second order": mf.perturbed_minimizer(M, eps, order=2)(x),
        "exponential, corrected": exponential(n, first * eps + second * eps**2, x),
    }
    if n == 2:
        printed = np.e / 2 * eps + eps**2 / 5
        found["exponential, (5.6) as printed"] = exponential(n, printed, x)
    return found


def exact(n: int, eps: float):
    """The exact minimiser for D = Id + eps M."""
    return mf.exact_minimizer(np.eye(n) + eps * perturbation(n))


def sup_errors(n: int, values: np.ndarray) -> dict[str, np.ndarray]:
    """Largest errors over the sphere for each eps; all densities are zonal."""
    x, _ = nodes(n)
    rows = []
    for eps in values:
        reference = exact(n, eps)(x)
        found = candidates(n, eps, x)
        rows.append({name: np.abs(found[name] - reference).max() for name in found})
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def slopes(values, errors) -> dict[str, float]:
    """Slopes of log error over log eps, fitted for eps up to `FIT`."""
    small = values <= FIT
    fit = {n: np.polyfit(np.log(values[small]), np.log(e[small]), 1)[0] for n, e in errors.items()}
    return {name: float(slope) for name, slope in fit.items()}


def published_comparison(eps: float) -> dict[str, float]:
    """l2 errors of the vectors of masses on 1000 points, and what 1500 mirror steps leave.

    The fourth harmonic of the logarithm of the density shows it: mirror descent has hardly
    begun to move it when the energy has long been flat.
    """
    mesh = mf.circle(CELLS)
    interaction = mf.Interaction(np.eye(2) + eps * perturbation(2))
    reference = exact(2, eps)(mesh.points)
    found = candidates(2, eps, mesh.points)
    wave = np.cos(4 * np.arctan2(mesh.points[:, 1], mesh.points[:, 0]))
    mirror = minimize(mesh, interaction, **MIRROR)
    polished = minimize(mesh, interaction)
    return {
        "l2_first_order": float(np.linalg.norm(found["first order"] - reference) / CELLS),
        "l2_printed": float(
            np.linalg.norm(found["exponential, (5.6) as printed"] - reference) / CELLS
        ),
        "cos4_exact": 2 * float(mesh.integrate(np.log(reference) * wave)),
        "cos4_mirror": 2 * float(mesh.integrate(np.log(mirror.density) * wave)),
        "cos4_polished": 2 * float(mesh.integrate(np.log(polished.density) * wave)),
        "mirror_energy_excess": mirror.energy / polished.energy - 1,
    }


def main(output="output", resolution: int = 25) -> dict[str, dict[str, float]]:
    """Draw the picture; return fitted slopes for n = 2 and 3, and the published comparison.

    Parameters
    ----------
    output : path-like
        Folder of ``perturbation_of_identity.png`` and ``.csv``.
    resolution : int
        Number of values of eps from 1e-3 to 1.
    """
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    values = np.geomspace(1e-3, 1.0, resolution)
    errors = {n: sup_errors(n, values) for n in (2, 3)}
    fitted = {n: slopes(values, errors[n]) for n in (2, 3)}
    columns = [f"n{n} {name}".replace(",", "") for n in (2, 3) for name in errors[n]]
    table = np.column_stack([values, *errors[2].values(), *errors[3].values()])
    np.savetxt(folder / "perturbation_of_identity.csv", table, delimiter=",", comments="",
               header=",".join(["eps", *columns]))  # fmt: skip
    draw(values, errors, fitted).savefig(folder / "perturbation_of_identity.png", dpi=150)
    return {
        "slopes n=2": fitted[2],
        "slopes n=3": fitted[3],
        "exponent n=2": dict(zip(("eps", "eps^2"), corrected_exponent(2).tolist(), strict=True)),
        "exponent n=3": dict(zip(("eps", "eps^2"), corrected_exponent(3).tolist(), strict=True)),
        "eps=0.1": published_comparison(0.1),
        "eps=0.3": published_comparison(0.3),
    }


def draw(values, errors, fitted) -> Figure:
    """Densities and errors, S^1 above, S^2 below."""
    figure = Figure(figsize=(11, 8), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(2, 2, width_ratios=[4, 5])
    for (left, right), n in zip(panels, (2, 3), strict=True):
        draw_densities(left, n)
        draw_errors(right, n, values, errors[n], fitted[n])
    return figure


def draw_densities(ax, n: int) -> None:
    """Exact densities for the published eps, and the first order at both ends."""
    x, angle = nodes(n)
    shades = colormaps["coolwarm"]((PUBLISHED + 0.3) / 0.6)
    for eps, shade in zip(PUBLISHED, shades, strict=True):
        label = f"ε = {eps:.2f}" if eps in PUBLISHED[[0, 2, 4, 8]] else None
        ax.plot(angle, exact(n, eps)(x), color=shade, label=label)
    for eps in PUBLISHED[[0, -1]]:
        first = mf.perturbed_minimizer(perturbation(n), eps)(x)
        ax.plot(angle, first, "k:", lw=1, label="first order" if eps > 0 else None)
    ax.set_xticks(np.arange(5) * np.pi / 8, ["0", "π/8", "π/4", "3π/8", "π/2"])
    ax.set(xlabel=("angle θ" if n == 2 else "latitude"), ylabel="density (uniform is 1)")
    diagonal = "diag(1, 1 + ε)" if n == 2 else "diag(1, 1, 1 + ε)"
    ax.set_title(f"exact minimisers on $S^{n - 1}$, D = {diagonal}")
    ax.legend(fontsize=8)


def draw_errors(ax, n: int, values, errors, fitted) -> None:
    """Errors over eps with their slopes."""
    for name in STYLES:
        if name in errors:
            style, colour = STYLES[name]
            label = f"{name}: slope {fitted[name]:.2f}"
            ax.loglog(values, errors[name], style, color=colour, ms=4, label=label)
    ax.axvspan(values[0], FIT, color="0.95", zorder=0)
    ax.text(values[0] * 1.1, 0.02, "slopes fitted here", transform=ax.get_xaxis_transform(),
            fontsize=8, color="0.4")  # fmt: skip
    ax.set(xlabel="ε", ylabel="largest error of the density")
    ax.set_title(f"against the exact minimiser on $S^{n - 1}$")
    ax.grid(color="0.9")
    ax.legend(fontsize=8)


if __name__ == "__main__":
    for name, numbers in main().items():
        print(name, {key: float(f"{value:.6g}") for key, value in numbers.items()})
