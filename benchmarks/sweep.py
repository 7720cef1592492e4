"""Throughput of sweeps in one and two processes: `python benchmarks/sweep.py`."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

COMMAND = "evolve --D 1,{l},0.5 --sign -1 --mesh icosphere:3 --density vmf:0,0,1:2 --t-end 5"
SCRIPT = "import sys; from meanfield.cli import main; sys.exit(main())"


def seconds(members: int, processes: int) -> float:
    """Wall-clock time of a whole sweep, the start of the processes included."""
    with TemporaryDirectory() as folder:
        words = ["sweep", COMMAND, "--vary", f"l=0.5:2:{members}", "--processes", str(processes)]
        output = ["--output", str(Path(folder, "sweep.nc"))]
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-c", SCRIPT, *words, *output], check=True, capture_output=True
        )
        return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    print(f"{given.members} members: meanfield {COMMAND}")
    print("one process   two processes   ratio")
    for _ in range(given.rounds):
        one, two = seconds(given.members, 1), seconds(given.members, 2)
        print(f"{one:>9.1f} s {two:>13.1f} s {one / two:>9.2f}")


if __name__ == "__main__":
    main()
