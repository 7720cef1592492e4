"""Where a result comes from: the attributes of every file."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

CONVENTIONS = "CF-1.11 UGRID-1.0"
REFERENCES = (
    "M. Burger, S. Kabri, Y. Korolev, T. Roith, L. Weigand (2025): Analysis of mean-field models "
    "arising from self-attention dynamics in transformer architectures with layer normalization"
)
# The packages whose version may change a number.
PACKAGES = ("numpy", "scipy", "ducc0", "fenics-basix", "xarray", "h5netcdf", "h5py", "POT")
GIT_SECONDS = 5.0


def attributes(title: str, parameters: dict, command: str | None = None) -> dict[str, str]:
    """The global attributes of a dataset.

    Parameters
    ----------
    title : str
    parameters : dict
        What rebuilds the result; stored as one JSON string.
    command : str, optional
        What was run; the command line of this process by default.

    Returns
    -------
    dict of str to str
        ``title``, ``source``, ``history``, ``references``, ``Conventions``, ``parameters`` and
        ``environment``, the last two JSON strings.

    Examples
    --------
    >>> attributes("A run", {"D": [1.0, 2.0]})["parameters"]
    '{"D": [1.0, 2.0]}'
    """
    return {
        "Conventions": CONVENTIONS,
        "title": title,
        "source": f"meanfield {installed('meanfield')}",
        "history": f"{now()} {command or command_line()}",
        "references": REFERENCES,
        "parameters": to_json(parameters),
        "environment": to_json(environment()),
    }


def environment() -> dict:
    """Python, platform, versions of packages, and the git revision of the current folder.

    Returns
    -------
    dict
        ``git`` is None outside a repository.

    Examples
    --------
    >>> environment()["packages"]["numpy"] == np.__version__
    True
    """
    return {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "packages": {name: installed(name) for name in PACKAGES},
        "git": git_revision(),
    }


def installed(package: str) -> str:
    """The version of an installed package, "unknown" if it is not installed as a package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def command_line(arguments: list[str] | None = None) -> str:
    """The command line as one would type it, without the folder of the program.

    Parameters
    ----------
    arguments : list of str, optional
        The program and its arguments; those of this process by default.

    Examples
    --------
    >>> command_line(["/usr/bin/meanfield", "evolve", "--D", "[[1, 0], [0, 2]]"])
    "meanfield evolve --D '[[1, 0], [0, 2]]'"
    """
    program, *rest = sys.argv if arguments is None else arguments
    return shlex.join([Path(program).name or "python", *rest])


def now() -> str:
    """The time as ISO 8601 in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def git_revision() -> str | None:
    """The git revision of the current folder, with "-dirty" after changes; None without one."""
    try:
        answer = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=GIT_SECONDS,
            check=True,
            env=os.environ | {"GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() or None


def to_json(value) -> str:
    """One line of JSON; NumPy scalars and arrays, tuples and paths become plain values.

    Raises
    ------
    ValueError, TypeError
        For NaN, infinity, and types that have no plain form.

    Examples
    --------
    >>> to_json({"t": np.float64(0.5), "D": np.eye(2)})
    '{"t": 0.5, "D": [[1.0, 0.0], [0.0, 1.0]]}'
    """
    return json.dumps(value, default=_plain, allow_nan=False)


def _plain(value):
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
