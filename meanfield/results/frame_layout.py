"""Files with room for all rows: made whole, then written to in place."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import h5py
import numpy as np
import xarray as xr

from meanfield.results.dataset import CHUNK_BYTES, netcdf_bytes
from meanfield.results.files import settle

INDEX_BYTES = 256  # more than HDF5 needs to find one chunk
BLOCK_BYTES = 2**20


def in_time(head: xr.Dataset) -> list[str]:
    """The variables that a row has values of; ``stopped`` is one for all rows."""
    names = [str(name) for name, variable in head.variables.items() if "time" in variable.dims]
    return names + [name for name in ("stopped",) if name in head]


def prepare(path: Path, head: xr.Dataset, count: int) -> dict[str, np.ndarray]:
    """Make the file with all rows missing.

    Returns
    -------
    dict of str to ndarray of int, shape (count,)
        Where in the file each row begins, for every variable in time.
    """
    names = [name for name, variable in head.variables.items() if "time" in variable.dims]
    rows = [8 * int(np.prod(head[name].shape[1:])) for name in names]
    path.write_bytes(netcdf_bytes(head, count))
    # HDF5 may crash on a full disk, so plain writing finds out whether there is room.
    _reserve(path, sum(row * (count + 1) + INDEX_BYTES * count + CHUNK_BYTES for row in rows))
    with h5py.File(path, "r+") as file:
        for name in names:
            _fill(file[name], count)
        file.flush()
        return row_places(file, in_time(head))


def _reserve(path: Path, size: int) -> None:
    """Lengthen a file by zeros on the disk."""
    zeros = bytes(BLOCK_BYTES)
    with path.open("ab") as file:
        for _ in range(-(-size // BLOCK_BYTES)):
            file.write(zeros)
        file.flush()
        os.fsync(file.fileno())


def _fill(variable: h5py.Dataset, count: int) -> None:
    """Give a variable its length, all NaN, one chunk at a time."""
    variable.resize(count, axis=0)
    rows = variable.chunks[0]
    for start in range(0, count, rows):
        variable[start : start + rows] = np.nan


def row_places(file: h5py.File, names: list[str]) -> dict[str, np.ndarray]:
    """Where in the file the rows of variables begin."""
    return {name: _row_offsets(file[name]) for name in names}


def _row_offsets(variable: h5py.Dataset) -> np.ndarray:
    """Where in the file the rows of an uncompressed variable begin; chunks hold whole rows."""
    if variable.chunks is None:
        return np.array([variable.id.get_offset()])
    count, rows = len(variable), variable.chunks[0]
    rest = (0,) * (variable.ndim - 1)
    chunks = np.array(
        [variable.id.get_chunk_info_by_coord((start, *rest)).byte_offset
         for start in range(0, count, rows)]
    )  # fmt: skip
    row_bytes = variable.dtype.itemsize * int(np.prod(variable.shape[1:]))
    number = np.arange(count)
    return chunks[number // rows] + number % rows * row_bytes


def shorten(partial: Path, path: Path, count: int) -> None:
    """The first rows of a partial file as the final one; the partial file goes last."""
    making = partial.with_name(partial.name + ".making")
    try:
        shutil.copyfile(partial, making)
        with h5py.File(making, "r+") as file:
            for variable in file.values():
                if variable.maxshape[:1] == (None,):
                    variable.resize(count, axis=0)
        settle(making, path)
    finally:
        making.unlink(missing_ok=True)
    partial.unlink()
