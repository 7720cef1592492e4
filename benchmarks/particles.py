"""Speed of the particle methods: `python benchmarks/particles.py [--quick]`.

Iterations of eq. (5.1) against a plain NumPy loop, and against torch on the CPU where it is
installed; then an ensemble of 1,000 starts against Python loops over the starts. Every pair is
timed side by side, several times in turn, and the best times are compared.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import meanfield as mf
from meanfield.dynamics.particle_starts import random_points
from meanfield.dynamics.particles import transformer

STEP = 0.1


def plain(x: np.ndarray, D: np.ndarray, iterations: int) -> np.ndarray:
    """Eq. (5.1) as one would write it down."""
    count = len(x)
    for _ in range(iterations):
        images = x @ D
        x = x + STEP / count * (np.exp(x @ images.T) @ images)
        x = x / np.linalg.norm(x, axis=1, keepdims=True)
    return x


def with_torch(x: np.ndarray, D: np.ndarray, iterations: int) -> np.ndarray:
    """The same in torch, in double precision on the CPU."""
    import torch

    x, D, count = torch.from_numpy(x), torch.from_numpy(D), len(x)
    with torch.inference_mode():
        for _ in range(iterations):
            images = x @ D
            x = x + STEP / count * (torch.exp(x @ images.T) @ images)
            x = x / torch.linalg.norm(x, dim=1, keepdim=True)
    return x.numpy()


def ours(x: np.ndarray, D: np.ndarray, iterations: int) -> np.ndarray:
    """The library."""
    model = mf.SelfAttention(D, normalized=False)
    return transformer(x, model, iterations, step=STEP, save=2).points[-1]


def loop(one, starts: np.ndarray, D: np.ndarray, iterations: int) -> np.ndarray:
    """One start after the other."""
    return np.stack([one(x, D, iterations) for x in starts])


def best_times(calls: dict, rounds: int) -> dict[str, float]:
    """The shortest time of each call in seconds, the calls taking turns."""
    best = dict.fromkeys(calls, np.inf)
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def has_torch() -> bool:
    """Whether torch can be imported."""
    try:
        import torch  # noqa: F401
    except ImportError:
        return False
    return True


def single_runs(quick: bool) -> list[tuple]:
    """Seconds for 10,000 iterations: rows (n, N, ours, plain, torch)."""
    rows = []
    for n in (2, 3):
        D = np.diag(np.linspace(1.2, 1.0, n))
        for count in (100, 1000):
            iterations = (2000 if count == 100 else 50) if quick else 10_000
            x = random_points(count, n, seed=0)
            calls = {"ours": ours, "plain": plain}
            if has_torch():
                calls["torch"] = with_torch
            calls = {name: (lambda f=f: f(x, D, iterations)) for name, f in calls.items()}  # noqa: B023
            times = best_times(calls, 3 if quick or count == 100 else 1)
            scale = 10_000 / iterations
            rows.append((n, count, *(times.get(k, np.nan) * scale for k in calls)))
    return rows


def ensembles(quick: bool, starts: int = 1000) -> list[tuple]:
    """Microseconds per start and iteration: rows (n, N, ensemble, plain loop, own loop)."""
    rows = []
    for n in (2, 3):
        D = np.diag(np.linspace(1.2, 1.0, n))
        for count in (4, 8, 16, 32, 100):
            x = random_points(count, n, seed=0, starts=starts)
            few = x[:: starts // 10]
            iterations = 20 if quick else 100
            calls = {
                "ensemble": lambda x=x: ours(x, D, iterations),  # noqa: B023
                "plain": lambda few=few: loop(plain, few, D, 10 * iterations),  # noqa: B023
                "own": lambda few=few: loop(ours, few, D, 10 * iterations),  # noqa: B023
            }
            times = best_times(calls, 5)
            work = {"ensemble": starts * iterations, "plain": 100 * iterations}
            work["own"] = work["plain"]
            rows.append((n, count, *(1e6 * times[name] / work[name] for name in calls)))
    return rows


def main(quick: bool = False) -> None:
    """Print both tables."""
    print("10,000 iterations of eq. (5.1), seconds")
    names = ["meanfield", "plain NumPy", *(["torch"] if has_torch() else [])]
    print("n     N  " + "".join(f"{name:>14}" for name in names) + "   plain / meanfield")
    for n, count, *times in single_runs(quick):
        columns = "".join(f"{t:14.3f}" for t in times)
        print(f"{n}  {count:4}  {columns}   {times[1] / times[0]:.1f}")
    print("\n1,000 starts, microseconds per start and iteration")
    print("n     N      ensemble    plain loop      own loop   ratio to plain   to own loop")
    for n, count, together, plain_time, own in ensembles(quick):
        print(
            f"{n}  {count:4}  {together:12.3f}  {plain_time:12.2f}  {own:12.2f}"
            f"   {plain_time / together:14.1f}   {own / together:11.1f}"
        )


if __name__ == "__main__":
    main(quick="--quick" in sys.argv[1:])
