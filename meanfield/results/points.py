"""Points on the sphere from text files, and their longitudes and latitudes."""

from __future__ import annotations

import csv
import re
import warnings
from pathlib import Path

import numpy as np

from meanfield.errors import FileError, PointsError
from meanfield.results.files import reason
from meanfield.sphere.geometry import normalize

# The columns that make points, in order of preference.
CARTESIAN = (("x", "y", "z"), ("x", "y"))
GEOGRAPHIC = (("lon", "lat"), ("longitude", "latitude"))


def read_points(path) -> np.ndarray:
    """Read points from a CSV file.

    Parameters
    ----------
    path : path-like
        Comma-separated with a header that names ``x,y,z``, ``x,y`` or ``lon,lat`` (degrees);
        other columns are ignored. Or numbers only (commas or blanks between them), two or more
        a row: Cartesian components.

    Returns
    -------
    ndarray, shape (m, n)
        Scaled to unit length.

    Raises
    ------
    FileError
        If the file is missing or unreadable.
    PointsError
        If columns are missing, a value is not a finite number, or a point is the zero vector;
        the message names the row, counted from 1 without the header.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "tokens.csv")
    ...     _ = path.write_text("token,x,y\\nthe,3,4\\n")
    ...     read_points(path).tolist()
    [[0.6, 0.8]]
    """
    path = Path(path)
    line, before = _first_line(path)
    header = _header(line)
    if header is None:
        return _unit(_numbers(path, "," if "," in line else None), path)
    for names in CARTESIAN + GEOGRAPHIC:
        if set(names) <= set(header):
            columns = [header.index(name) for name in names]
            table = _numbers(path, ",", before + 1, columns)
            return _directions(table, path) if names in GEOGRAPHIC else _unit(table, path)
    raise PointsError(
        f"{path} has the columns {', '.join(header)}: points need x,y,z or x,y or lon,lat"
    )


def _first_line(path: Path) -> tuple[str, int]:
    """The first line that is no comment, and the number of lines before it."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            for number, line in enumerate(file):
                if line.strip() and not line.startswith("#"):
                    return line, number
    except UnicodeDecodeError:
        raise PointsError(f"{path} is not a text file: points are read from CSV") from None
    except OSError as error:
        raise FileError(f"cannot read {path}: {reason(error)}") from None
    raise PointsError(f"{path} is empty")


def _header(line: str) -> list[str] | None:
    """Names of the columns in lower case; None if the line holds numbers."""
    fields = re.split(r"[,\s]+", line.strip().strip(","))
    try:
        [float(entry) for entry in fields]
    except ValueError:
        return [name.strip().lower() for name in next(csv.reader([line.strip()]))]
    return None


def _numbers(path: Path, delimiter: str | None, skip: int = 0, columns=None) -> np.ndarray:
    """The table of numbers, shape (m, k), after a header or without one."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "loadtxt: input contained no data")
            table = np.loadtxt(
                path,
                delimiter=delimiter,
                skiprows=skip,
                usecols=columns,
                quotechar='"',
                # A column of tokens may well contain the sign of comments.
                comments=None if skip else "#",
                encoding="utf-8-sig",
                ndmin=2,
            )
    except ValueError as error:
        raise PointsError(f"{path}: {_counted_from_one(error)}") from None
    except OSError as error:
        raise FileError(f"cannot read {path}: {reason(error)}") from None
    if len(table) == 0:
        raise PointsError(f"{path} holds no points")
    if table.shape[1] < 2:
        raise PointsError(f"{path} has one column: points need two components or more")
    bad = ~np.isfinite(table).all(axis=1)
    if bad.any():
        raise PointsError(f"{path}: row {bad.argmax() + 1} contains NaN or infinity")
    return table


def _counted_from_one(error: ValueError) -> str:
    """The message of numpy's reader; it counts rows from 0 where a text is not a number."""
    message = str(error).split(";")[0].rstrip(".")
    if not message.startswith("could not convert"):
        return message
    return re.sub(r"row (\d+)", lambda found: f"row {int(found[1]) + 1}", message)


def _unit(vectors: np.ndarray, path: Path) -> np.ndarray:
    zero = ~vectors.any(axis=1)
    if zero.any():
        raise PointsError(
            f"{path}: row {zero.argmax() + 1} is the zero vector, which has no direction"
        )
    return normalize(vectors)


def _directions(degrees: np.ndarray, path: Path) -> np.ndarray:
    beyond = np.abs(degrees[:, 1]) > 90
    if beyond.any():
        raise PointsError(
            f"{path}: row {beyond.argmax() + 1} has the latitude {degrees[beyond.argmax(), 1]:g}, "
            "not in [-90, 90] degrees"
        )
    return from_degrees(*degrees.T)


def from_degrees(longitude: np.ndarray, latitude: np.ndarray) -> np.ndarray:
    """Unit vectors from longitudes and latitudes.

    Parameters
    ----------
    longitude, latitude : ndarray, shape (m,), degrees

    Returns
    -------
    ndarray, shape (m, 3)

    Examples
    --------
    >>> from_degrees(np.array([0.0, 90.0]), np.array([0.0, 0.0])).round(15).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    longitude, latitude = np.radians(longitude), np.radians(latitude)
    x, y = np.cos(longitude), np.sin(longitude)
    return normalize(np.stack([x * np.cos(latitude), y * np.cos(latitude), np.sin(latitude)], -1))


def to_degrees(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Longitudes in (-180, 180] and latitudes of unit vectors.

    Parameters
    ----------
    points : ndarray, shape (m, 3)

    Returns
    -------
    longitude, latitude : ndarray, shape (m,), degrees

    Examples
    --------
    >>> to_degrees(np.array([[0.0, -1.0, 0.0]]))
    (array([-90.]), array([0.]))
    """
    x, y, z = points.T
    return np.degrees(np.arctan2(y, x)), np.degrees(np.arctan2(z, np.hypot(x, y)))
