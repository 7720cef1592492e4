"""Files that appear completely or not at all."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from meanfield.errors import FileError

if sys.platform != "win32":
    import fcntl

# What Python raises when the file system refuses, and what h5py makes of it.
WRITE_ERRORS = (OSError, RuntimeError)


def check_output(path, overwrite: bool = False) -> Path:
    """Refuse an output that exists or cannot be written, before anything is computed.

    Parameters
    ----------
    path : path-like
    overwrite : bool
        Whether an existing file may be replaced.

    Returns
    -------
    Path

    Raises
    ------
    FileError
        If the file exists and ``overwrite`` is False, or the folder is missing or read-only.

    Examples
    --------
    >>> check_output("no-such-folder/run.nc")
    Traceback (most recent call last):
    ...
    meanfield.errors.FileError: the folder no-such-folder does not exist: make it first
    """
    path = Path(path)
    if path.is_dir():
        raise FileError(f"{path} is a folder: give the name of a file")
    if not path.parent.is_dir():
        raise FileError(f"the folder {path.parent} does not exist: make it first")
    if path.exists() and not overwrite:
        raise FileError(f"{path} exists: choose another name or allow overwriting (--overwrite)")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise FileError(f"the folder {path.parent} cannot be written to")
    return path


@contextmanager
def replacing(path, overwrite: bool = False) -> Iterator[Path]:
    """Give the name of a temporary file beside ``path`` that takes its place at the end.

    Parameters
    ----------
    path : path-like
    overwrite : bool

    Yields
    ------
    Path
        Where to write. On success the file is synchronised and renamed, which is atomic; on
        an error it is removed and an earlier file at ``path`` is as it was.

    Raises
    ------
    FileError
        As `check_output`, and for everything that goes wrong while writing.
    """
    path = check_output(path, overwrite)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        settle(temporary, path)
    except WRITE_ERRORS as error:
        raise FileError(f"cannot write {path}: {reason(error)}") from error
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def only_writer(path) -> Iterator[None]:
    """Keep other processes from recording the same output; a killed process lets it go.

    Parameters
    ----------
    path : path-like
        The output; the lock is on the empty file ``.NAME.lock`` beside it.

    Raises
    ------
    FileError
        If another process holds it, or the folder cannot be written to.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, only_writer(f"{folder}/run.nc"):
    ...     with only_writer(f"{folder}/run.nc"):
    ...         pass
    Traceback (most recent call last):
    ...
    meanfield.errors.FileError: another process is writing ...run.nc: wait for it, or stop it
    """
    path = check_output(path, overwrite=True)
    if sys.platform == "win32":
        yield
        return
    lock = path.with_name(f".{path.name}.lock")
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise FileError(f"cannot write {lock}: {reason(error)}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        message = f"another process is writing {path}: wait for it, or stop it"
        raise FileError(message) from None
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(descriptor)


def settle(temporary: Path, path: Path) -> None:
    """Force a written file to the disk and give it its final name.

    Parameters
    ----------
    temporary, path : Path
        In the same folder.
    """
    _synchronise(temporary, os.O_RDWR)
    os.replace(temporary, path)
    _synchronise(path.parent, os.O_RDONLY)  # the folder holds the new name


def _synchronise(path: Path, mode: int) -> None:
    descriptor = os.open(path, mode)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def reason(error: Exception) -> str:
    """What went wrong with a file, in one line.

    Examples
    --------
    >>> reason(OSError("file write failed: errno = 28, error message = 'No space left'"))
    'No space left'
    """
    inner = re.search(r"error message = '([^']*)'", str(error))
    if inner:
        return inner.group(1)
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return " ".join(str(error).split()) or type(error).__name__
