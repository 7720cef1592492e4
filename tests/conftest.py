"""Shared fixtures: the real tokens that ship with the project, and the command."""

import os
import shlex
from pathlib import Path

# Before NumPy loads: tests run side by side, and threads of small products only wait.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest

DATA = Path(__file__).parents[1] / "data"
HEADS = {4: [-0.541, -0.497, -0.487], 5: [0.6432325753, -0.5358525405, 0.5239927316]}


@pytest.fixture(scope="session")
def token_points():
    """Points of the tokens of one head, and its D."""

    def read(head):
        path = DATA / "tokens" / f"tokens_head{head}.csv"
        points = np.loadtxt(path, delimiter=",", skiprows=1, usecols=(1, 2, 3))
        return points / np.linalg.norm(points, axis=1)[:, None], HEADS[head]

    return read


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    """Run in an empty folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def command(capsys):
    """Run a command line; its status, standard output and error lines."""
    from meanfield.cli import main

    def run(line):
        status = main(shlex.split(line))
        captured = capsys.readouterr()
        return status, captured.out, captured.err.splitlines()

    return run
