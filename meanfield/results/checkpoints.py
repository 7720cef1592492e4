"""Checkpoints: the state of a run between its frames, on disk twice, each complete or absent.

A checkpoint is one line that names the format, one line with the SHA-256 of the rest, and an
uncompressed ``.npz`` without pickles. Two files take turns, so that the one before is intact
whatever happens while one is written.
"""

from __future__ import annotations

import hashlib
import io
import json
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from meanfield.errors import FileError, InputError
from meanfield.results.files import WRITE_ERRORS, reason, settle
from meanfield.results.provenance import installed, to_json

MAGIC = b"meanfield checkpoint 1\n"
DIGEST_CHARACTERS = 64
ABOUT = "about"  # the entry that holds what is no array
SHORT = 60  # characters of a value in a message
INTERVAL = 60.0  # seconds between two checkpoints by default


class RecoveryWarning(UserWarning):
    """Something is wrong with what an earlier run has left, or with a checkpoint being written."""


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The state of a run at one instant.

    Attributes
    ----------
    arrays : dict of str to ndarray
        What the computation goes on from.
    number : int
        Counts the checkpoints of a run.
    frames : int
        Frames that the run had saved by then.
    parameters : dict
        What rebuilds the run.
    source : str
        Name and version of the program.
    """

    arrays: dict[str, np.ndarray]
    number: int
    frames: int
    parameters: dict
    source: str


def checkpoint_paths(path) -> tuple[Path, Path]:
    """The two files beside an output.

    Examples
    --------
    >>> [name.name for name in checkpoint_paths("run.nc")]
    ['.run.nc.checkpoint-0', '.run.nc.checkpoint-1']
    """
    path = Path(path)
    first, second = (path.with_name(f".{path.name}.checkpoint-{k}") for k in (0, 1))
    return first, second


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint completely or not at all.

    Raises
    ------
    FileError
        If it cannot be written; an earlier file of this name is then as it was.
    """
    about = {name: getattr(checkpoint, name) for name in ("number", "frames", "parameters")}
    about["source"] = checkpoint.source
    buffer = io.BytesIO()
    np.savez(buffer, **checkpoint.arrays, **{ABOUT: np.array(to_json(about))})
    content = buffer.getbuffer()
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("wb") as file:
            file.write(MAGIC + hashlib.sha256(content).hexdigest().encode() + b"\n")
            file.write(content)
        settle(temporary, path)
    except WRITE_ERRORS as error:
        temporary.unlink(missing_ok=True)
        raise FileError(f"cannot write the checkpoint {path}: {reason(error)}") from error


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint back and check that it is the one that was written.

    Raises
    ------
    FileError
        If the file is missing, cut off, damaged, or no checkpoint.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> state = Checkpoint({"masses": np.ones(2)}, 0, 3, {"verb": "evolve"}, "meanfield 1")
    >>> with TemporaryDirectory() as folder:
    ...     write_checkpoint(Path(folder, "c"), state)
    ...     read_checkpoint(Path(folder, "c")).arrays["masses"].tolist()
    [1.0, 1.0]
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileError(f"cannot read the checkpoint {path}: {reason(error)}") from None
    start = len(MAGIC) + DIGEST_CHARACTERS + 1
    if not content.startswith(MAGIC) or len(content) < start:
        raise FileError(f"{path} is no checkpoint of meanfield")
    digest = hashlib.sha256(content[start:]).hexdigest()
    if content[len(MAGIC) : start] != digest.encode() + b"\n":
        raise FileError(f"the checkpoint {path} is cut off or damaged")
    try:
        with np.load(io.BytesIO(content[start:]), allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        about = json.loads(str(arrays.pop(ABOUT)))
        return Checkpoint(
            arrays, about["number"], about["frames"], about["parameters"], about["source"]
        )
    except (KeyError, TypeError, ValueError, BadZipFile) as error:
        raise FileError(f"{path} is no checkpoint of this version: {reason(error)}") from None


def differences(stored: dict, wanted: dict) -> list[str]:
    """What differs between the parameters of two runs, in words.

    Examples
    --------
    >>> differences({"t_end": 1.0, "cfl": 0.45}, {"t_end": 2.0, "cfl": 0.45})
    ['t_end is 1.0 there, 2.0 here']
    """
    return list(_different("", stored, json.loads(to_json(wanted))))


def _different(name: str, there, here) -> Iterator[str]:
    """The innermost entries that differ: of a long list its length, or the first of them."""
    if there == here:
        return
    both = (there, here)
    if all(isinstance(value, dict) for value in both):
        for key in sorted(there.keys() | here.keys()):
            yield from _different(f"{name}.{key}".lstrip("."), there.get(key), here.get(key))
    elif all(isinstance(value, list) and len(json.dumps(value)) > SHORT for value in both):
        if len(there) == len(here):
            k = next(k for k in range(len(here)) if there[k] != here[k])
            yield from _different(f"{name}[{k}]", there[k], here[k])
        else:
            yield f"{name} has {len(there)} values there, {len(here)} here"
    else:
        yield f"{name} is {_short(there)} there, {_short(here)} here"


def _short(value) -> str:
    text = json.dumps(value)
    return text if len(text) <= SHORT else f"{text[: SHORT - 3]}..."


def check_same_run(path, stored: dict, wanted: dict) -> None:
    """Refuse to go on with the files of another run.

    Raises
    ------
    FileError
        The message says what differs.
    """
    different = differences(stored, wanted)
    if different:
        raise FileError(
            f"{path} belongs to another run: {'; '.join(different)}; give the same options, "
            "another name, or start anew with --overwrite and without --resume"
        )


class Checkpoints:
    """The two checkpoints of a run, written in turn at a wall-clock interval.

    Parameters
    ----------
    path : path-like
        The output of the run.
    parameters : dict
        What rebuilds the run.
    interval : float
        Seconds between two checkpoints; 0 for one at every step, infinity for none.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     checkpoints = Checkpoints(Path(folder, "run.nc"), {"verb": "evolve"})
    ...     checkpoints.write({"masses": np.ones(2)}, frames=1)
    ...     checkpoints.newest().frames
    True
    1
    """

    def __init__(self, path, parameters: dict, interval: float = INTERVAL):
        if not interval >= 0:
            raise InputError(f"the checkpoint interval must be >= 0 seconds, got {interval}")
        self.paths, self.parameters, self.interval = checkpoint_paths(path), parameters, interval
        self.number, self._failed = 0, False
        self._last = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether the interval has passed since the last one."""
        return time.monotonic() - self._last >= self.interval

    def exist(self) -> bool:
        """Whether an earlier run has left one."""
        return any(path.exists() for path in self.paths)

    def write(self, arrays: dict[str, np.ndarray], frames: int) -> bool:
        """Replace the older of the two; False if that fails, with a warning the first time.

        The run need not end for want of a checkpoint: the one before is as it was.
        """
        source = f"meanfield {installed('meanfield')}"
        checkpoint = Checkpoint(arrays, self.number, frames, self.parameters, source)
        self._last = time.monotonic()
        try:
            write_checkpoint(self.paths[self.number % 2], checkpoint)
        except FileError as error:
            if not self._failed:
                warnings.warn(f"{error}; the run goes on", RecoveryWarning, stacklevel=2)
            self._failed = True
            return False
        self.number, self._failed = self.number + 1, False
        return True

    def newest(self, frames: int | None = None) -> Checkpoint | None:
        """The last good one; warns of those that are not.

        Parameters
        ----------
        frames : int, optional
            How many frames there are; checkpoints that had more are not used.

        Raises
        ------
        FileError
            If the newest belongs to a run with other parameters.
        """
        good = []
        for path in self.paths:
            if not path.exists():
                continue
            try:
                found = read_checkpoint(path)
            except FileError as error:
                warnings.warn(f"{error}: it is not used", RecoveryWarning, stacklevel=2)
                continue
            check_same_run(path, found.parameters, self.parameters)
            if frames is not None and found.frames > frames:
                message = f"{path} knows of {found.frames} frames, there are {frames}"
                warnings.warn(f"{message}: it is not used", RecoveryWarning, stacklevel=2)
                continue
            good.append(found)
        newest = max(good, key=lambda found: found.number, default=None)
        if newest is not None:
            self.number = newest.number + 1
            self._note_version(newest)
        return newest

    def _note_version(self, checkpoint: Checkpoint) -> None:
        here = f"meanfield {installed('meanfield')}"
        if checkpoint.source != here:
            message = f"the run was begun by {checkpoint.source} and goes on with {here}"
            warnings.warn(f"{message}: digits may differ", RecoveryWarning, stacklevel=3)

    def remove(self) -> None:
        """Take them away, and what a killed process has left of one."""
        for path in self.paths:
            for name in (path, path.with_name(path.name + ".tmp")):
                try:
                    name.unlink(missing_ok=True)
                except OSError as error:
                    message = f"cannot remove {name}: {reason(error)}"
                    warnings.warn(message, RecoveryWarning, stacklevel=2)
