"""Time, memory and errors of geodesics between densities: `python benchmarks/distance.py`."""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time

import numpy as np

import meanfield as mf

ANGLE = np.pi / 2
LARGE = {"circle:256 x 64": (mf.circle, 256, 64), "icosphere:3 x 32": (mf.icosphere, 3, 32)}


def bumps(mesh):
    """Two smooth densities a quarter turn apart, as cell masses."""
    ends = np.eye(mesh.dimension)[:2]
    masses = [mf.von_mises_fisher(end, 8.0)(mesh.points) * mesh.weights for end in ends]
    return [mf.Measure(mesh.points, mass / mass.sum(), mesh) for mass in masses]


def cells(mesh):
    """All mass in one cell, and in another about a quarter turn away."""
    ends = np.eye(mesh.dimension)[:2]
    places = [int(np.argmax(mesh.points @ end)) for end in ends]
    return [mf.Measure(mesh.points, np.eye(len(mesh))[place], mesh) for place in places]


def one(name: str, kind: str) -> str:
    """One geodesic, with its time and the peak memory of this process."""
    make, size, steps = LARGE[name]
    mesh = make(size)
    a, b = {"smooth": bumps, "one cell": cells}[kind](mesh)
    began = time.perf_counter()
    found = mf.mobility_distance(a, b, mf.Interaction(np.ones(mesh.dimension)), steps=steps)
    seconds = time.perf_counter() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return (
        f"{name:>18} {kind:>9} {found.distance:>10.6f} {found.residual:>9.1e} "
        f"{found.speed_variation:>9.1e} {seconds:>7.1f} {memory:>7.2f}"
    )


def errors() -> None:
    """Single cells a quarter turn apart for D = -Id, where the distance is known."""
    exact = np.exp(-0.5) * ANGLE
    print(f"\nD = -Id, one cell to another at pi/2, exact {exact:.10f}")
    print(f"{'mesh':>14} {'steps':>6} {'W_m':>10} {'error':>8}")
    for size, steps in ((32, 16), (64, 32), (128, 64)):
        mesh = mf.circle(size)
        found = mf.mobility_distance(*cells(mesh), mf.Interaction([-1.0, -1.0]), steps=steps)
        error = found.distance / exact - 1
        print(f"{mesh.name:>14} {steps:>6} {found.distance:>10.6f} {error:>8.2%}")
    ends = [mf.Measure(np.eye(2)[[k]]) for k in range(2)]
    found = mf.mobility_distance(*ends, mf.Interaction([-1.0, -1.0]))
    print(f"{'particles':>14} {32:>6} {found.distance:>10.6f} {found.distance / exact - 1:>8.1e}")


def particles(counts, starts) -> None:
    """D = 3 Id: what particles reach when the mass may spread, on S^2."""
    straight = np.exp(1.5) * ANGLE
    print(f"\nD = 3 Id on S^2, two Diracs at pi/2, straight path {straight:.4f}; CPU seconds")
    print(f"{'particles':>10} " + " ".join(f"{f'{k} starts':>10}" for k in starts) + "     seconds")
    ends = [mf.Measure(np.eye(3)[[k]]) for k in range(2)]
    for count in counts:
        began = time.process_time()
        row = [
            mf.mobility_distance(
                *ends, mf.Interaction([3.0] * 3), particles=count, starts=k
            ).distance
            for k in starts
        ]
        seconds = time.process_time() - began
        print(f"{count:>10} " + " ".join(f"{v:>10.4f}" for v in row) + f" {seconds:>11.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args().one
    if chosen:
        print(one(*chosen))
        return
    print("D = Id; seconds and GiB of the whole process")
    header = ("mesh x steps", "masses", "W_m", "residual", "speed", "seconds", "GiB")
    print("{:>18} {:>9} {:>10} {:>9} {:>9} {:>7} {:>7}".format(*header))
    for name in LARGE:
        for kind in ("smooth", "one cell"):
            # A process of its own, so that the peak memory is its own.
            words = [sys.executable, __file__, "--one", name, kind]
            print(subprocess.run(words, capture_output=True, text=True, check=True).stdout, end="")
    errors()
    particles((12, 24, 48, 96), (1, 4))


if __name__ == "__main__":
    main()
