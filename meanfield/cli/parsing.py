"""What the words of the command mean: matrices, meshes, densities, save times."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from meanfield.errors import (
    DensityError,
    FileError,
    InputError,
    MatrixError,
    MeshError,
    SizeError,
)
from meanfield.model.densities import from_points, uniform, von_mises_fisher
from meanfield.results.files import reason
from meanfield.results.points import read_points
from meanfield.results.ugrid import read_mesh
from meanfield.sphere.icosphere import icosphere
from meanfield.sphere.meshes import circle
from meanfield.sphere.spaces import Space, lebedev

MATRIX_HELP = "a,b,c (a diagonal), a JSON matrix [[a,b],[c,d]], or a file .json, .csv, .txt, .npy"
MESH_HELP = (
    "icosphere:LEVEL, icosphere:LEVEL:triangles, circle:CELLS, lebedev:ORDER (nodes without "
    "cells), or a UGRID file FILE.nc"
)
DENSITY_HELP = "uniform, vmf:MEAN:CONCENTRATION (vmf:0,0,1:2), or FILE.csv[:CONCENTRATION]"
SAVE_HELP = "a number of frames, or a list of times a,b,c"
MAX_ARCS = 10_000_000
ARC_BYTES = 600
MAX_FRAMES = 1_000_000


def parse_matrix(text: str, name: str = "D") -> np.ndarray:
    """A matrix from the command line: its diagonal, JSON, or a file.

    Parameters
    ----------
    text : str
    name : str
        What errors call it.

    Returns
    -------
    ndarray, shape (n,) for a diagonal, else what was given

    Raises
    ------
    MatrixError
        If it is none of these.
    FileError
        If a file cannot be read.

    Examples
    --------
    >>> parse_matrix("-0.5,1,2").tolist(), parse_matrix("[[1, 0], [0, 2]]").tolist()
    ([-0.5, 1.0, 2.0], [[1.0, 0.0], [0.0, 2.0]])
    """
    text = text.strip()
    if text.startswith("["):
        return _json_matrix(text, name)
    numbers = parse_numbers(text)
    if numbers is not None:
        return np.array(numbers)
    path = Path(text)
    if path.suffix not in (".json", ".csv", ".txt", ".npy"):
        raise MatrixError(f"{name} is {text!r}, it must be {MATRIX_HELP}")
    try:
        if path.suffix == ".json":
            return _json_matrix(path.read_text(encoding="utf-8"), name)
        if path.suffix == ".npy":
            return np.load(path, allow_pickle=False)
        lines = path.read_text(encoding="utf-8-sig").replace(",", " ").splitlines()
        table = np.loadtxt(lines, ndmin=2) if any(map(str.strip, lines)) else np.empty((0, 0))
    except OSError as error:
        raise FileError(f"cannot read {path}: {reason(error)}") from None
    except ValueError as error:
        raise MatrixError(f"{path} holds no matrix: {str(error).splitlines()[0]}") from None
    return table[0] if len(table) == 1 else table


def _json_matrix(text: str, name: str) -> np.ndarray:
    try:
        # As float, so that an integer of any length has a value.
        return np.array(json.loads(text, parse_int=float), dtype=float)
    except (ValueError, TypeError, RecursionError):
        raise MatrixError(
            f"{name} is no JSON matrix of numbers like [[1, 0], [0, 2]]: {text[:40]!r}"
        ) from None


def parse_numbers(text: str) -> list[float] | None:
    """Numbers with commas between them; None if it is something else.

    Examples
    --------
    >>> parse_numbers("0,0.5,1"), parse_numbers("run.nc")
    ([0.0, 0.5, 1.0], None)
    """
    try:
        return [float(entry) for entry in text.split(",")]
    except ValueError:
        return None


def parse_save(text: str | None) -> int | list[float] | None:
    """A number of frames, or the times to save.

    Raises
    ------
    InputError
        If it is neither.

    Examples
    --------
    >>> parse_save("41"), parse_save("0,0.5,1"), parse_save(None)
    (41, [0.0, 0.5, 1.0], None)
    """
    if text is None:
        return None
    numbers = parse_numbers(text)
    if numbers is None:
        raise InputError(f"--save is {text!r}, it must be {SAVE_HELP}")
    if "," in text or "." in text:
        return numbers
    if not numbers[0] <= MAX_FRAMES:
        raise InputError(f"--save asks for {text} frames, it must be at most {MAX_FRAMES:,}")
    return int(numbers[0])


def parse_mesh(text: str) -> Space:
    """A mesh or a Lebedev rule from its name, the same that ``Mesh.name`` gives, or from a file.

    Raises
    ------
    MeshError
        If there is no such mesh.
    SizeError
        If it would not fit into memory.
    FileError
        If a file cannot be read.

    Examples
    --------
    >>> parse_mesh("icosphere:1:triangles").n_cells, parse_mesh("circle:64").n_cells
    (80, 64)
    """
    kind, *rest = text.split(":")
    if kind == "circle" and len(rest) == 1:
        cells = _whole(rest[0], text)
        if cells > MAX_ARCS:
            raise SizeError(
                f"{text} needs about {cells * ARC_BYTES / 2**30:.3g} GiB; at most {MAX_ARCS:,} "
                "arcs are taken"
            )
        return circle(cells)
    if kind == "lebedev" and len(rest) == 1:
        return lebedev(_whole(rest[0], text))
    if kind == "icosphere" and rest:
        level, *options = rest
        if not set(options) <= {"hexagons", "triangles", "raw"}:
            raise MeshError(f"--mesh is {text!r}, it must be {MESH_HELP}")
        cells = "triangles" if "triangles" in options else "hexagons"
        return icosphere(_whole(level, text), cells, centroidal="raw" not in options)
    if Path(text).suffix or Path(text).exists():
        return read_mesh(text)
    raise MeshError(f"--mesh is {text!r}, it must be {MESH_HELP}")


def _whole(text: str, mesh: str) -> int:
    # No more digits than any mesh could have, so that the number always is one.
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise MeshError(f"--mesh is {mesh!r}: {text[:40]!r} is no whole number, give {MESH_HELP}")
    return int(text)


def parse_density(text: str):
    """A density: uniform, von Mises-Fisher, or a kernel estimate from a file of points.

    Returns
    -------
    callable
        See `meanfield.uniform`, `meanfield.von_mises_fisher`, `meanfield.from_points`.

    Raises
    ------
    DensityError, PointsError, FileError
        If it is none of these.

    Examples
    --------
    >>> parse_density("vmf:0,0,2:5").parameters()
    {'kind': 'vmf', 'mean': [0.0, 0.0, 1.0], 'concentration': 5.0}
    """
    if text == "uniform":
        return uniform()
    kind, *rest = text.split(":")
    if kind == "vmf":
        values = [parse_numbers(part) for part in rest]
        if len(values) != 2 or None in values or len(values[1]) != 1:
            raise DensityError(f"--density is {text!r}, vmf needs vmf:MEAN:CONCENTRATION")
        return von_mises_fisher(values[0], values[1][0])
    name, concentration = text, None
    if rest and not Path(text).exists():
        name, last = text.rsplit(":", 1)
        numbers = parse_numbers(last)
        if numbers is None or len(numbers) != 1:
            raise DensityError(f"--density is {text!r}: {last!r} is no concentration")
        concentration = numbers[0]
    if not (Path(name).suffix or Path(name).exists()):
        raise DensityError(f"--density is {text!r}, it must be {DENSITY_HELP}")
    return from_points(read_points(name), concentration, source=name)
