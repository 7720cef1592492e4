"""Frames to disk as they come."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
import xarray as xr

from meanfield.dynamics.timestepping import Frame
from meanfield.errors import FileError
from meanfield.results.checkpoints import check_same_run
from meanfield.results.dataset import (
    MASS_TOLERANCE,
    SERIES,
    STATE,
    known_parameters,
    open_frames,
    run_dataset,
)
from meanfield.results.files import WRITE_ERRORS, check_output, reason, settle
from meanfield.results.frame_layout import in_time, prepare, row_places, shorten
from meanfield.results.ugrid import READ_ERRORS, open_netcdf


class RecordingError(FileError):
    """Writing failed in the middle of a run; the frames before are good."""


class FrameFile:
    """Variables in time that grow row by row in a file, which is valid at every moment.

    The file ``NAME.nc.partial`` gets its full size and structure before the first row, with
    NaN for what is missing. A row then only changes bytes in place, its time last: whenever
    the process is killed, the file opens and the rows whose time is a number are complete;
    and a full disk is noticed before anything is computed. When all rows are there, the file
    is synchronised and renamed to ``NAME.nc``.

    Parameters
    ----------
    path : path-like
        The final file.
    head : xarray.Dataset
        The dataset without rows: its time has length zero.
    count : int
        How many rows will come.
    overwrite : bool
        Whether an existing file, or the partial file of a stopped run, may be replaced.
    resume : bool
        Go on with the partial file of a stopped run with the same parameters, if there is one.

    Attributes
    ----------
    path, partial : Path
        The final file and the one that is written to.
    count : int
        The number of rows written so far.
    total : int
        The number of rows that there is room for.
    last_time : float or None
        The time of the last row.

    Raises
    ------
    FileError
        If the output exists and ``overwrite`` is False, cannot be written, or the partial file
        belongs to another run.
    """

    def __init__(self, path, head: xr.Dataset, count: int, overwrite=False, resume=False):
        self.path, self.partial = check_output(path, overwrite), partial_path(path)
        self.total, self.count, self.last_time = count, 0, None
        self._descriptor = None
        if resume and self.partial.exists():
            self._reopen(head)
        elif self.partial.exists() and not overwrite:
            raise FileError(
                f"{self.partial} exists, from a run that was stopped or still goes on: continue "
                "it (--resume), choose another name or allow overwriting (--overwrite)"
            )
        else:
            self._make(head)
        with self._writing():
            self._descriptor = os.open(self.partial, os.O_RDWR)

    def _make(self, head: xr.Dataset) -> None:
        # Under its own name the file appears when it is ready: a reader that opened it
        # while HDF5 still writes would lock the writer out. One that a killed process has
        # left holds no row, and is written anew.
        making = self.partial.with_name(self.partial.name + ".making")
        try:
            with self._writing():
                self._places = prepare(making, head, self.total)
                os.replace(making, self.partial)
        except FileError:
            making.unlink(missing_ok=True)
            raise

    def _reopen(self, head: xr.Dataset) -> None:
        with open_netcdf(self.partial) as stored:
            try:
                parameters = json.loads(stored.attrs["parameters"])
                same = set(stored.variables) == set(head.variables) and all(
                    variable.shape == stored[name].shape
                    and np.array_equal(variable.values, stored[name].values)
                    for name, variable in head.variables.items()
                    if "time" not in variable.dims and name != "stopped"
                )
                times = stored["time"].values
            except READ_ERRORS as error:
                raise FileError(f"{self.partial} is damaged: {reason(error)}") from error
        check_same_run(self.partial, parameters, json.loads(head.attrs["parameters"]))
        if not same or len(times) != self.total:
            raise FileError(
                f"{self.partial} belongs to another run: its mesh, its points or its number of "
                "frames differ; start anew with --overwrite and without --resume"
            )
        good = np.isfinite(times)
        self.count = self.total if good.all() else int(good.argmin())
        self.last_time = float(times[self.count - 1]) if self.count else None
        try:
            with h5py.File(self.partial) as file:
                self._places = row_places(file, in_time(head))
        except (*READ_ERRORS, *WRITE_ERRORS) as error:
            raise FileError(f"{self.partial} is damaged: {reason(error)}") from error

    def put(self, time: float, values: dict) -> None:
        """Write one row, completely before its time.

        Raises
        ------
        FileError
            If there is no room, or writing fails.
        """
        if self.count == self.total:
            raise FileError(f"{self.partial} has room for {self.total} frames only")
        with self._writing(RecordingError):
            for name, value in (values | {"time": time}).items():
                place = self._places[name]
                _write_at(self._descriptor, place[min(self.count, len(place) - 1)], value)
        self.count += 1
        self.last_time = float(time)

    def rewind(self, count: int) -> None:
        """Forget the rows after so many: they will be written again."""
        with self._writing():
            for place in self._places["time"][count : self.count]:
                _write_at(self._descriptor, place, np.nan)
            self.count, self.last_time = count, None
            if count:
                data = os.pread(self._descriptor, 8, self._places["time"][count - 1])
                self.last_time = float(np.frombuffer(data, "<f8")[0])

    def synchronise(self) -> None:
        """Force the rows to the disk: a checkpoint that counts them must not be ahead."""
        with self._writing(RecordingError):
            os.fsync(self._descriptor)

    def finish(self, ended: bool = False) -> None:
        """Give the complete file its final name.

        Parameters
        ----------
        ended : bool
            No more rows will come, even if there is room for some.

        Raises
        ------
        FileError
            If rows are missing, or the file cannot be completed.
        """
        self.close()
        if self.count < self.total and not ended:
            raise FileError(f"{self.partial} holds {self.count} of {self.total} frames")
        with self._writing(RecordingError):
            if self.count < self.total:
                shorten(self.partial, self.path, self.count)
            else:
                settle(self.partial, self.path)

    def close(self) -> None:
        """Stop recording; the partial file keeps the rows it has."""
        if self._descriptor is not None:
            with self._writing():
                descriptor, self._descriptor = self._descriptor, None
                os.close(descriptor)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace) -> None:
        if kind is None and self._descriptor is not None:
            self.finish()
        else:
            self.close()

    @contextmanager
    def _writing(self, kind: type[FileError] = FileError) -> Iterator[None]:
        try:
            yield
        except WRITE_ERRORS as error:
            raise kind(f"cannot write {self.partial}: {reason(error)}") from error


class Recorder(FrameFile):
    """Writes the frames of an evolution to a file while it is computed; see `FrameFile`.

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
    overwrite, resume : bool
        As for `FrameFile`.

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

    def __init__(
        self, path, mesh, model, times, parameters: dict, overwrite=False, resume: bool = False
    ):
        self.times = np.asarray(times, dtype=float)
        self.weights = mesh.weights
        nothing = np.empty(0)
        audit = dict.fromkeys(SERIES, nothing)
        masses, state = np.empty((0, mesh.n_cells)), np.empty((0, 2))
        parameters = known_parameters(mesh, model, parameters)
        head = run_dataset(mesh, parameters, nothing, masses, audit, state)
        super().__init__(path, head, len(self.times), overwrite, resume)

    def record(self, frames: Iterable[Frame]) -> Iterator[Frame]:
        """Write frames and pass them on."""
        for frame in frames:
            self.append(frame)
            yield frame

    def append(self, frame: Frame) -> None:
        """Write one frame.

        Raises
        ------
        FileError
            If the frame is not the next one, or writing fails.
        """
        if self.count == len(self.times) or frame.time != self.times[self.count]:
            raise FileError(f"the frame at t = {frame.time:g} is not the next one to be recorded")
        values = {"mass": frame.masses, "density": frame.masses / self.weights, STATE: frame.state}
        self.put(frame.time, values | frame.audit)


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
    """One frame of a saved run, finished or not, from which it can be continued.

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
        As `open_run`, and if the file is older than the state that it must have.
    """
    with open_frames(path, partial=True) as dataset:
        if STATE not in dataset:
            raise FileError(f"{path} has no {STATE}: save it with this version of meanfield")
        try:
            frame = dataset.isel(time=index)
            masses = frame["mass"].values
            if not (masses.min() >= 0 and abs(masses.sum() - 1) <= MASS_TOLERANCE):
                raise FileError(f"{path} is damaged: frame {index} is not what was saved")
            return Frame(
                time=float(frame["time"]),
                masses=masses,
                audit={name: float(frame[name]) for name in SERIES},
                state=frame[STATE].values,
            )
        except IndexError:
            count = dataset.sizes["time"]
            raise FileError(f"{path} has {count} frames, there is no frame {index}") from None
        except READ_ERRORS as error:
            raise FileError(f"{path} is damaged: {reason(error)}") from error
