"""Fig. 4: the angle of four particles, and where the step is too large for it.

Four particles, one in each quadrant, descend the energy for D = diag(1, l2). At the stationary
state tanh(cos^2 phi) / tanh(l2 sin^2 phi) = l2 (Lemma 4.8 with l1 = 1). The printed start
(5.2) has only two different points; the corrected one, phi_i = (i - 1) pi/2 + pi/4, is used.
With the published step 0.05 the statistic drops to zero above l2 = 5.1: the first step
overshoots. Where it leads from the angle pi/4 beyond the mirror image -pi/4 the next steps go
farther, until two clusters at e_2 are left. That happens for steps above
2 / (l2 cosh(1/2) sinh(l2/2) + sinh(1/2) cosh(l2/2)), well before the stationary state itself is
unstable for the step, which is where the derivative of one step as a map of the angle is -1.

Run as `python studies/four_particles.py`; Burger, Kabri, Korolev, Roith, Weigand (2025).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.optimize import brentq

import meanfield as mf
from meanfield.dynamics.particles import evolve_particles
from meanfield.sphere.geometry import directions

START = directions(np.arange(4) * np.pi / 2 + np.pi / 4)
RANGE = (0.5, 10.0)
ITERATIONS = 10_000


def statistic(l2: float, step: float, iterations: int, stationary=None) -> float:
    """Mean of tanh(cos^2) / tanh(l2 sin^2) after some iterations of eq. (5.1)."""
    model = mf.SelfAttention([1.0, l2], sign=-1, normalized=False)
    run = evolve_particles(START, model, iterations * step, method="projected_euler", step=step,
                           stationary=stationary, save=2)  # fmt: skip
    cosine, sine = run.points[-1].T
    return float(np.mean(np.tanh(cosine**2) / np.tanh(l2 * sine**2)))


def converged(l2: float) -> float:
    """The statistic at the stationary state, by adaptive steps."""
    model = mf.SelfAttention([1.0, l2], sign=-1, normalized=False)
    run = evolve_particles(START, model, 500.0, stationary=1e-7, tolerance=1e-10, save=2)
    cosine, sine = run.points[-1].T
    return float(np.mean(np.tanh(cosine**2) / np.tanh(l2 * sine**2)))


def stationary_angle(l2: float) -> float:
    """The root of tanh(cos^2 phi) = l2 tanh(l2 sin^2 phi) in (0, pi/2)."""
    return brentq(
        lambda phi: np.tanh(np.cos(phi) ** 2) - l2 * np.tanh(l2 * np.sin(phi) ** 2),
        1e-9, np.pi / 2 - 1e-9, xtol=1e-15,
    )  # fmt: skip


def one_step(phi: float, l2: float, step: float) -> float:
    """Angle after one projected Euler step of the state with points at +-phi, pi +- phi."""
    c, s = np.cos(phi), np.sin(phi)
    # Sums of the kernel times Dy over the four points; two by two they combine to sinh, cosh.
    a, b = c * c, l2 * s * s
    force = np.array([c * np.sinh(a) * np.cosh(b), l2 * s * np.cosh(a) * np.sinh(b)])
    x, y = np.array([c, s]) - step * force
    return float(np.arctan2(y, x))


def overshooting_step(l2):
    """The step that leads from the angle pi/4 to -pi/4."""
    half = l2 / 2
    return 2 / (l2 * np.cosh(0.5) * np.sinh(half) + np.sinh(0.5) * np.cosh(half))


def unstable_step(l2: float) -> float:
    """The step at which the stationary state loses its stability."""
    phi, d = stationary_angle(l2), 1e-5

    def multiplier(step: float) -> float:
        return (one_step(phi + d, l2, step) - one_step(phi - d, l2, step)) / (2 * d) + 1

    upper = 1e-4
    while multiplier(upper) > 0:
        upper *= 1.5
    return brentq(multiplier, upper / 1.5, upper, xtol=1e-12)


def failure_map(values: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Relative error of the statistic for all l2 and steps, shape (steps, values)."""
    errors = [
        [abs(statistic(l2, step, max(400, int(100 / step)), 1e-7) / l2 - 1) for l2 in values]
        for step in steps
    ]
    return np.array(errors)


def main(output="output", resolution: int = 60) -> dict[str, float]:
    """Draw the picture; return errors and the measured and predicted thresholds.

    Parameters
    ----------
    output : path-like
        Folder of ``four_particles.png`` and ``four_particles.npz``.
    resolution : int
        Number of values of l2; a third of it for the map, with as many steps.
    """
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    values = np.linspace(*RANGE, resolution)
    iterations = min(ITERATIONS, 250 * resolution)
    curves = {
        "converged": np.array([converged(l2) for l2 in values]),
        "step 0.05": np.array([statistic(l2, 0.05, iterations) for l2 in values]),
        "step 0.0005": np.array([statistic(l2, 0.0005, iterations) for l2 in values]),
    }
    coarse = np.linspace(*RANGE, max(4, resolution // 3))
    steps = np.geomspace(2e-3, 2.0, max(4, resolution // 3))
    errors = failure_map(coarse, steps)
    draw(values, curves, coarse, steps, errors, iterations).savefig(
        folder / "four_particles.png", dpi=150
    )
    np.savez_compressed(folder / "four_particles.npz", l2=values, coarse=coarse, steps=steps,
                        errors=errors, **curves)  # fmt: skip
    fallen = values[curves["step 0.05"] < 1e-3]
    return {
        "error_converged": float(np.abs(curves["converged"] - values).max()),
        "first_failure": float(fallen.min()) if len(fallen) else np.nan,
        "predicted_failure": brentq(lambda l2: overshooting_step(l2) - 0.05, 2.0, 9.0),
        "unconverged_at_half": float(curves["step 0.0005"][0]),
    }


def draw(values, curves, coarse, steps, errors, iterations) -> Figure:
    """The statistic over l2, and the error over l2 and the step."""
    figure = Figure(figsize=(11, 4.4), layout="constrained")
    ax, right = figure.subplots(1, 2)
    ax.plot(values, values, color="0.7", lw=5, label="theory (Lemma 4.8)")
    ax.plot(values, curves["converged"], "k-", lw=1, label="adaptive steps, to stationarity")
    for name, marker in (("step 0.05", "o"), ("step 0.0005", "x")):
        ax.plot(values, curves[name], marker, ms=4, label=f"{name}, {iterations:,} iterations")
    ax.set(xlabel="$\\lambda_2$", ylabel="tanh(cos²φ) / tanh($\\lambda_2$ sin²φ)")
    ax.set_title("D = diag(1, $\\lambda_2$)")
    ax.legend(fontsize=8)
    mesh = right.pcolormesh(coarse, steps, np.log10(np.maximum(errors, 1e-8)), cmap="viridis",
                            shading="nearest", vmin=-8, vmax=0)  # fmt: skip
    right.plot(values, overshooting_step(values), "r-", lw=2, label="first step ends at -π/4")
    unstable = [unstable_step(l2) for l2 in values]
    right.plot(values, unstable, "r:", lw=2, label="stationary state unstable")
    right.axhline(0.05, color="w", lw=1, ls="--")
    right.text(coarse[0], 0.053, " published step 0.05", color="w", fontsize=8, va="bottom")
    right.set(yscale="log", xlabel="$\\lambda_2$", ylabel="step", ylim=(steps[0], steps[-1]))
    right.set_title("where the step is too large")
    right.legend(fontsize=8, loc="upper right")
    figure.colorbar(mesh, ax=right, label="log10 relative error of the statistic")
    return figure


if __name__ == "__main__":
    for name, value in main().items():
        print(f"{name}: {value:.8g}")
