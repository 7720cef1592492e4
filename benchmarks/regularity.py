"""Local Lipschitz constants of large heads: `python benchmarks/regularity.py [--quick]`.

Time, peak memory of the process, and how far the proved bound lies above the value, for a head
of size 32 on normalised random tokens in R^384, each case in a process of its own.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import time

import numpy as np

from meanfield.regularity.heads import TransformerHead
from meanfield.regularity.local import local_constant

DIMENSION, HEAD = 384, 32


def case(count: int, norm: str, with_value: bool) -> tuple:
    """Value, proved bound, seconds and peak memory in GiB of one local constant."""
    rng = np.random.default_rng(0)
    tokens = rng.standard_normal((count, DIMENSION))
    spread = 1.5 / np.sqrt(DIMENSION)
    query, key = spread * rng.standard_normal((2, HEAD, DIMENSION))
    left, right = rng.standard_normal((2, DIMENSION, HEAD)) / np.sqrt(DIMENSION)
    value = left @ right.T if with_value else None
    start = time.perf_counter()
    found = local_constant(tokens, TransformerHead(query, key), value=value, norm=norm)
    seconds = time.perf_counter() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return found.value, found.upper, seconds, memory


def main(quick: bool = False) -> None:
    """Print the table."""
    print("   N  norm  value map      value   bound/value  seconds    GiB")
    context = multiprocessing.get_context("spawn")
    for count in (256, 512) if quick else (1024, 4096):
        for norm in ("l2", "l1"):
            for with_value in (False, True):
                with context.Pool(1) as pool:
                    value, upper, seconds, memory = pool.apply(case, (count, norm, with_value))
                kind = "matrix" if with_value else "identity"
                print(
                    f"{count:5d}  {norm:>3}  {kind:>9}  {value:10.5g}  {upper / value:11.9f}  "
                    f"{seconds:7.1f}  {memory:6.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main("--quick" in sys.argv[1:])
