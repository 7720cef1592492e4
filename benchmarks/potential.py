"""How accurate and how fast the potential is: prints the tables of the README.

Run as ``python benchmarks/potential.py [accuracy] [speed] [growth] [step] [keops]`` (all of
them by default). Dense sums at large sizes are timed on a slice of targets and scaled up to
all of them; the tables say so. Ratios compare times of one run.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import meanfield as mf
from meanfield.dynamics.finite_volume import FiniteVolumes
from meanfield.dynamics.timestepping import SSPRK3

SLICE = 2000
MATRICES = {
    "Id": np.eye(3),
    "diag(.3,.6,1)": np.diag([0.3, 0.6, 1.0]),
    "diag(-1,.5,1)": np.diag([-1.0, 0.5, 1.0]),
    "nonsymmetric": np.array([[0.2, -0.9, 0.1], [0.5, 0.3, -0.4], [0.0, 0.6, -0.5]]),
}


def best(function, repeats: int = 3) -> float:
    """The shortest time of a few calls, in seconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def measures(mesh) -> dict[str, np.ndarray]:
    """Masses that are uniform, concentrated on 1 % of the sphere, and partly zero."""
    height = mesh.points @ [0.6, 0.0, 0.8]
    cap = np.where(height > 0.98, mesh.weights, 0.0)
    half = np.where(mesh.points[:, 2] > 0.3, mesh.weights, 0.0)
    return {
        "uniform": mesh.weights,
        "1 % of the sphere": cap / cap.sum(),
        "with zeros": half / half.sum(),
    }


def accuracy(level: int = 5, norms=(1, 5, 20, 100, 200)):
    """Errors of log Z and of its differences across edges, over max(1, ||D||)."""
    mesh = mf.icosphere(level)
    first, second = mesh.edge_cells.T
    rows = []
    for norm in norms:
        for name, D in MATRICES.items():
            interaction = mf.Interaction(norm * D / np.linalg.norm(D, 2))
            exact = interaction.on(mesh, method="direct")
            bounds = [interaction.on(mesh)]
            if norm > 1:
                bounds.append(interaction.on(mesh, method="clustered"))
            for what, masses in measures(mesh).items():
                reference = exact.log_potential(masses)
                for bound in bounds:
                    error = (bound.log_potential(masses) - reference) / max(1, norm)
                    jump = np.abs(error[first] - error[second]).max()
                    rows.append((norm, name, what, bound.method, np.abs(error).max(), jump))
    return rows


def print_accuracy() -> None:
    rows = [row for row in accuracy() if row[3] != "direct"]
    print(f"{'||D||':>6} {'method':>10} {'log Z':>9} {'edges':>9}   (worst over D and masses)")
    for norm in sorted({row[0] for row in rows}):
        for method in sorted({row[3] for row in rows if row[0] == norm}):
            chosen = [row for row in rows if row[0] == norm and row[3] == method]
            worst = [max(row[k] for row in chosen) for k in (4, 5)]
            print(f"{norm:6g} {method:>10} {worst[0]:9.1e} {worst[1]:9.1e}")


def speed(level: int, norm: float) -> tuple[int, str, float, float]:
    """Cells, method, seconds of dense sums (scaled from a slice) and of the potential."""
    mesh = mf.icosphere(level, centroidal=False)
    interaction = mf.Interaction(norm * MATRICES["diag(.3,.6,1)"])
    masses = mf.von_mises_fisher([0.3, -0.5, 0.8], 2.0)(mesh.points) * mesh.weights
    masses /= masses.sum()
    bound = interaction.on(mesh)
    bound.log_potential(masses)
    part = interaction.on(mesh, at=mesh.points[:SLICE], method="direct")
    dense = best(lambda: part.log_potential(masses), 2) * mesh.n_cells / SLICE
    return mesh.n_cells, bound.method, dense, best(lambda: bound.log_potential(masses))


def print_speed() -> None:
    print(f"{'cells':>9} {'||D||':>6} {'method':>10} {'dense*':>9} {'time':>9} {'ratio':>8}")
    for level, norm in ((5, 2), (6, 2), (6, 200), (7, 200), (8, 2)):
        cells, method, dense, seconds = speed(level, norm)
        ratio = dense / seconds
        print(f"{cells:9,} {norm:6g} {method:>10} {dense:9.2f} {seconds:9.4f} {ratio:8.0f}")
    print(f"* tiled sums over all pairs, timed on {SLICE:,} targets and scaled to all cells")


def one_level(level: int) -> None:
    """Time of a potential, and peak memory of everything; run in a process of its own."""
    start = time.perf_counter()
    mesh = mf.icosphere(level, centroidal=False)
    built = time.perf_counter() - start
    masses = mf.von_mises_fisher([0.3, -0.5, 0.8], 2.0)(mesh.points) * mesh.weights
    masses /= masses.sum()
    bound = mf.Interaction([0.5, 1.0, 2.0]).on(mesh)
    bound.log_potential(masses)
    seconds = best(lambda: bound.log_potential(masses), 5)
    print(mesh.n_cells, seconds, peak_memory(), built)


def peak_memory() -> float:
    """Peak resident memory of this process in GiB (Linux)."""
    # Not from getrusage, which counts the process that started this one as well.
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**20


def growth(levels=(5, 6, 7, 8, 9)):
    """(cells, seconds, peak GiB, seconds of the mesh) for each level, in fresh processes."""
    rows = []
    for level in levels:
        code = f"import runpy; runpy.run_path({__file__!r})['one_level']({level})"
        out = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        cells, *figures = out.stdout.split()
        rows.append((int(cells), *map(float, figures)))
    return rows


def print_growth() -> None:
    rows = growth()
    power = np.polyfit(*np.log([row[:2] for row in rows]).T, 1)[0]
    print(f"{'cells':>10} {'potential':>10} {'mesh':>8} {'peak memory, mesh and all':>26}")
    for cells, seconds, peak, built in rows:
        print(f"{cells:10,} {seconds:9.4f}s {built:7.2f}s {peak:22.2f} GiB")
    print(f"time grows like cells^{power:.2f}")


def step_times(level: int) -> dict[str, float]:
    """Seconds of the parts of a second-order step."""
    mesh = mf.icosphere(level, centroidal=False)
    scheme = FiniteVolumes(mesh, mf.SelfAttention([0.5, 1.0, 2.0], sign=-1))
    masses = mf.von_mises_fisher([0.3, -0.5, 0.8], 2.0)(mesh.points) * mesh.weights
    masses /= masses.sum()
    rates = scheme.rates(masses)
    dt = scheme.largest_step(rates, 0.45)
    log_z = scheme.bound.log_potential(masses)
    gradient = scheme.slopes.gradient(log_z)
    velocity = scheme.velocity(log_z, gradient).copy()
    density = masses / mesh.weights
    change = scheme.divergence @ velocity

    def step():
        return scheme.step(masses, np.zeros(2), scheme.rates(masses), dt, SSPRK3)

    return {
        "potential": best(lambda: scheme.bound.log_potential(masses)),
        "slopes of log Z": best(lambda: scheme.slopes.gradient(log_z)),
        "edge velocity": best(lambda: scheme.velocity(log_z, gradient)),
        "reconstruction": best(lambda: scheme.reconstruction.upwind(density, velocity)),
        "divergence": best(lambda: scheme.divergence @ velocity),
        "audit": best(lambda: scheme._energy(masses, log_z, gradient, change)),
        "right-hand side": best(lambda: scheme.rates(masses)),
        "SSPRK3 step": best(step),
    }


def print_step(level: int = 8) -> None:
    times = step_times(level)
    print(f"level {level}: seconds, and in potentials")
    for part, seconds in times.items():
        print(f"{part:>16} {seconds:8.4f} {seconds / times['potential']:6.1f}")


def print_keops() -> None:
    try:
        from pykeops.numpy import Vi, Vj
    except ImportError:
        print("pykeops is not installed: no comparison")
        return
    mesh = mf.icosphere(6, centroidal=False)
    D = np.diag([0.5, 1.0, 2.0])
    log_masses = np.log(mesh.weights)[:, None]
    kernel = (Vi(mesh.points @ D) | Vj(mesh.points)) + Vj(log_masses)

    def reduce():
        return kernel.logsumexp(axis=1, backend="CPU")

    bound = mf.Interaction(D).on(mesh)
    error = np.abs(np.ravel(reduce()) - bound.log_potential(mesh.weights)).max()
    theirs = best(reduce, 2)
    ours = best(lambda: bound.log_potential(mesh.weights))
    print(
        f"level 6, {mesh.n_cells:,} cells: pykeops on the CPU {theirs:.2f} s, meanfield "
        f"{ours:.4f} s, ratio {theirs / ours:.0f}, largest difference of log Z {error:.1e}"
    )


TABLES = {
    "accuracy": print_accuracy,
    "speed": print_speed,
    "growth": print_growth,
    "step": print_step,
    "keops": print_keops,
}


def main(names) -> None:
    unknown = set(names) - set(TABLES)
    if unknown:
        sys.exit(f"unknown table {', '.join(sorted(unknown))}; there are {', '.join(TABLES)}")
    for name in names or TABLES:
        print(f"\n{name}")
        TABLES[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
