"""Frames to disk as they come."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np

from meanfield.dynamics.timestepping import Frame
from meanfield.errors import FileError
from meanfield.results.dataset import (
    CHUNK_BYTES,
    SERIES,
    STATE,
    known_parameters,
    netcdf_bytes,
    open_frames,
    run_dataset,
)
from meanfield.results.files import WRITE_ERRORS, check_output, reason, settle
from meanfield.results.ugrid import READ_ERRORS

INDEX_BYTES = 256  # more than HDF5 needs to find one chunk
BLOCK_BYTES = 2**20


class Recorder:
    """Writes the frames of an evolution to a file while it is computed.

    The file ``NAME.nc.partial`` gets its full size and structure before the first frame, with
    NaN for what is missing. A frame then only changes bytes in place, its time last: whenever
    the process is killed, the file opens and the frames whose time is a number are complete;
    and a full disk is noticed before anything is computed. When all frames are there, the file
    is synchronised and renamed to ``NAME.nc``.

    Parameters
    ----------
    path : path-like
        The final file.
    mesh : Mesh
    model : SelfAttention
    times : array_like, shape (t,)
        The times of the frames that will come.
    parameters : dict
        What rebuilds the run.
    overwrite : bool
        Whether an existing file, or the partial file of a stopped run, may be replaced.

    Attributes
    ----------
    path, partial : Path
        The final file and the one that is written to.
    count : int
        The number of frames written so far.
    last_time : float or None
        The time of the last of them.

    Raises
    ------
    FileError
        If the output exists and ``overwrite`` is False, or cannot be written.

    Examples
    --------
    >>> import meanfield as mf
    >>> from meanfield.dynamics.finite_volume import frames
    >>> from meanfield.results.dataset import open_run
    >>> from tempfile import TemporaryDirectory
    >>> mesh, model = mf.circle(8), mf.SelfAttention([1.0, 2.0], sign=-1)
    >>> with TemporaryDirectory() as folder:
    ...     path, times = Path(folder, "run.nc"), np.linspace(0, 1, 3)
    ...     with Recorder(path, mesh, model, times, {}) as recorder:
    ...         for frame in recorder.record(frames(mesh, model, mesh.weights, times)):
    ...             pass
    ...     open_run(path).times.tolist()
    [0.0, 0.5, 1.0]
    """

    def __init__(self, path, mesh, model, times, parameters: dict, overwrite: bool = False):
        self.path = check_output(path, overwrite)
        self.partial = partial_path(path)
        if self.partial.exists() and not overwrite:
            raise FileError(
                f"{self.partial} exists, from a run that was stopped or still goes on: choose "
                "another name or allow overwriting (--overwrite)"
            )
        self.times = np.asarray(times, dtype=float)
        self.weights = mesh.weights
        self.count = 0
        parameters = known_parameters(mesh, model, parameters)
        # Under its own name the file appears when it is ready: a reader that opened it
        # while HDF5 still writes would lock the writer out.
        making = self.partial.with_name(self.partial.name + ".making")
        try:
            with self._writing():
                self._places = _prepare(making, mesh, parameters, len(self.times))
                os.replace(making, self.partial)
                self._descriptor = os.open(self.partial, os.O_RDWR)
        except FileError:
            making.unlink(missing_ok=True)
            raise

    @property
    def last_time(self) -> float | None:
        """The time of the last frame that was written."""
        return float(self.times[self.count - 1]) if self.count else None

    def record(self, frames: Iterable[Frame]) -> Iterator[Frame]:
        """Write frames and pass them on."""
        for frame in frames:
            self.append(frame)
            yield frame

    def append(self, frame: Frame) -> None:
        """Write one frame, completely before its time.

        Raises
        ------
        FileError
            If the frame is not the next one, or writing fails.
        """
        if self.count == len(self.times) or frame.time != self.times[self.count]:
            raise FileError(f"the frame at t = {frame.time:g} is not the next one to be recorded")
        values = {"mass": frame.masses, "density": frame.masses / self.weights, STATE: frame.state}
        with self._writing():
            for name, value in (values | frame.audit | {"time": frame.time}).items():
                _write_at(self._descriptor, self._places[name][self.count], value)
        self.count += 1

    def finish(self) -> None:
        """Give the complete file its final name.

        Raises
        ------
        FileError
            If frames are missing, or the file cannot be completed.
        """
        self.close()
        if self.count < len(self.times):
            raise FileError(f"{self.partial} holds {self.count} of {len(self.times)} frames")
        with self._writing():
            settle(self.partial, self.path)

    def close(self) -> None:
        """Stop recording; the partial file keeps the frames it has."""
        with self._writing():
            os.close(self._descriptor)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, kind, error, trace) -> None:
        if kind is None:
            self.finish()
        else:
            self.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except WRITE_ERRORS as error:
            raise FileError(f"cannot write {self.partial}: {reason(error)}") from error


def _prepare(path: Path, mesh, parameters: dict, count: int) -> dict[str, np.ndarray]:
    """Make the file with all frames missing.

    Returns
    -------
    dict of str to ndarray of int, shape (count,)
        Where in the file the row of each frame begins, for every variable in time.
    """
    nothing = np.empty(0)
    audit = dict.fromkeys(SERIES, nothing)
    masses, state = np.empty((0, mesh.n_cells)), np.empty((0, 2))
    head = run_dataset(mesh, parameters, nothing, masses, audit, state)
    names = [name for name, variable in head.variables.items() if "time" in variable.dims]
    rows = [8 * int(np.prod(head[name].shape[1:])) for name in names]
    path.write_bytes(netcdf_bytes(head, count))
    # HDF5 may crash on a full disk, so plain writing finds out whether there is room.
    _reserve(path, sum(row * (count + 1) + INDEX_BYTES * count + CHUNK_BYTES for row in rows))
    with h5py.File(path, "r+") as file:
        for name in names:
            _fill(file[name], count)
        file.flush()
        return {name: _row_offsets(file[name]) for name in names}


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


def _row_offsets(variable: h5py.Dataset) -> np.ndarray:
    """Where in the file the rows of an uncompressed variable begin; chunks hold whole rows."""
    count, rows = len(variable), variable.chunks[0]
    rest = (0,) * (variable.ndim - 1)
    chunks = np.array(
        [variable.id.get_chunk_info_by_coord((start, *rest)).byte_offset
         for start in range(0, count, rows)]
    )  # fmt: skip
    row_bytes = variable.dtype.itemsize * int(np.prod(variable.shape[1:]))
    number = np.arange(count)
    return chunks[number // rows] + number % rows * row_bytes


def _write_at(descriptor: int, offset: int, value) -> None:
    """Write float64 values at a place of a file."""
    data = memoryview(np.ascontiguousarray(value, dtype="<f8")).cast("B")
    while data:
        written = os.pwrite(descriptor, data, offset)
        data, offset = data[written:], offset + written


def partial_path(path) -> Path:
    """The file that is written to until a run is complete: ``NAME.nc.partial``.

    Examples
    --------
    >>> partial_path("run.nc").name
    'run.nc.partial'
    """
    path = Path(path)
    return path.with_name(path.name + ".partial")


def read_frame(path, index: int = -1) -> Frame:
    """One frame of a recorded run, finished or not, from which it can be continued.

    Parameters
    ----------
    path : path-like
        ``NAME.nc`` or ``NAME.nc.partial``.
    index : int
        Which of the frames that there are; the last by default.

    Returns
    -------
    Frame

    Raises
    ------
    FileError
        As `open_run`, and if the file was not written by a `Recorder`.
    """
    with open_frames(path, partial=True) as dataset:
        if STATE not in dataset:
            raise FileError(f"{path} has no {STATE}: only recorded runs can be continued")
        try:
            frame = dataset.isel(time=index)
            return Frame(
                time=float(frame["time"]),
                masses=frame["mass"].values,
                audit={name: float(frame[name]) for name in SERIES},
                state=frame[STATE].values,
            )
        except IndexError:
            count = dataset.sizes["time"]
            raise FileError(f"{path} has {count} frames, there is no frame {index}") from None
        except READ_ERRORS as error:
            raise FileError(f"{path} is damaged: {reason(error)}") from error
