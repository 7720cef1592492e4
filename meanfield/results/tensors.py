"""Arrays by name from safetensors and npz files; no pickle is ever opened."""

from __future__ import annotations

import json
import zipfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from meanfield.errors import FileError, InputError, MatrixError
from meanfield.results.files import reason

PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
FLOATS = ("F64", "F32", "F16")


def refuse_pickle(path: Path) -> None:
    """Refuse files that hold a pickle, by their name.

    Raises
    ------
    FileError

    Examples
    --------
    >>> refuse_pickle(Path("pytorch_model.bin"))
    Traceback (most recent call last):
    ...
    meanfield.errors.FileError: pytorch_model.bin is a pickle, which can run code when it is \
opened: save the model as safetensors (save_pretrained of transformers does)
    """
    if path.suffix in PICKLES:
        raise FileError(
            f"{path} is a pickle, which can run code when it is opened: save the model as "
            "safetensors (save_pretrained of transformers does)"
        )


class Tensors:
    """The tensors of one or several safetensors files, read one at a time when asked for.

    Parameters
    ----------
    paths : list of Path

    Raises
    ------
    InputError
        If the package safetensors is not installed.
    FileError
        If a file is missing or damaged.
    """

    def __init__(self, paths: list[Path]):
        try:
            from safetensors import SafetensorError, safe_open
        except ImportError:
            raise InputError(
                "safetensors files need the package safetensors: pip install 'meanfield[models]'"
            ) from None
        self._stack, self._where = ExitStack(), {}
        self.source = paths[0] if len(paths) == 1 else paths[0].parent
        for path in paths:
            refuse_pickle(path)
            if not path.is_file():
                raise FileError(f"cannot read {path}: No such file or directory")
            try:
                opened = self._stack.enter_context(safe_open(path, framework="numpy"))
            except (SafetensorError, OSError) as error:
                self._stack.close()
                raise FileError(f"{path} is no safetensors file: {reason(error)}") from None
            self._where |= dict.fromkeys(opened.keys(), opened)

    def __enter__(self) -> Tensors:
        return self

    def __exit__(self, *_) -> None:
        self._stack.close()

    def names(self) -> set[str]:
        """The names of all tensors."""
        return set(self._where)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, without reading it."""
        return tuple(self._found(name).get_slice(name).get_shape())

    def get(self, name: str, shape: tuple[int, ...] | None = None, keep=False) -> np.ndarray:
        """One tensor as float64.

        Parameters
        ----------
        name : str
        shape : tuple of int, optional
            What it must be.
        keep : bool
            Leave it in the precision of the file.

        Raises
        ------
        FileError
            If there is none of this name, or its numbers are of another kind.
        MatrixError
            If the shape is another, or a value is not finite.
        """
        part = self._found(name).get_slice(name)
        kind, found = part.get_dtype(), tuple(part.get_shape())
        if kind not in FLOATS:
            raise FileError(
                f"{self.source}: {name} is stored as {kind}; {', '.join(FLOATS)} can be read"
            )
        if shape is not None and found != shape:
            raise MatrixError(f"{self.source}: {name} has shape {found}, it must be {shape}")
        array = self._found(name).get_tensor(name)
        if not np.isfinite(array).all():
            raise MatrixError(f"{self.source}: {name} contains NaN or infinity")
        return array if keep else array.astype(float)

    def _found(self, name: str):
        if name not in self._where:
            raise FileError(f"{self.source} has no tensor {name}")
        return self._where[name]


def model_tensors(folder: Path) -> Tensors:
    """The tensors of a model directory: one file, or the files that an index names.

    Raises
    ------
    FileError
        If there are none; a pickle is refused by name.
    """
    if (folder / SINGLE).is_file():
        return Tensors([folder / SINGLE])
    if (folder / INDEX).is_file():
        names = read_json(folder / INDEX).get("weight_map")
        if not isinstance(names, dict) or not names:
            raise FileError(f"{folder / INDEX} has no weight_map")
        files = sorted({str(name) for name in names.values()})
        for name in files:
            if Path(name).name != name:
                raise FileError(f"{folder / INDEX} names {name!r}, which is not in its folder")
        return Tensors([folder / name for name in files])
    for path in sorted(folder.iterdir()):
        refuse_pickle(path)
    raise FileError(f"{folder} holds neither {SINGLE} nor {INDEX}")


def read_json(path: Path) -> dict:
    """A JSON file that holds an object.

    Raises
    ------
    FileError
        If it is missing or something else.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(f"cannot read {path}: {reason(error)}") from None
    except (ValueError, RecursionError):
        raise FileError(f"{path} is no JSON file") from None
    if not isinstance(found, dict):
        raise FileError(f"{path} holds no JSON object")
    return found


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an npz file.

    Raises
    ------
    FileError
        If it is missing, damaged, or holds objects (a pickle).
    """
    try:
        stored = np.load(path, allow_pickle=False)
        if isinstance(stored, np.ndarray):
            raise FileError(f"{path} holds one array: an npz file has named ones")
        with stored:
            return {name: stored[name] for name in stored.files}
    except OSError as error:
        raise FileError(f"cannot read {path}: {reason(error)}") from None
    except FileError:
        raise
    except ValueError:  # the text of NumPy advises to load the pickle
        raise FileError(
            f"{path} is no npz file of plain arrays: it is damaged or holds a pickle"
        ) from None
    except (EOFError, zipfile.BadZipFile) as error:
        raise FileError(f"{path} is no npz file of plain arrays: {reason(error)}") from None
