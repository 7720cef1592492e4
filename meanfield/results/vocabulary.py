"""Tokens of a model: its vocabulary, and texts as token numbers."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from meanfield.errors import FileError, InputError, PointsError
from meanfield.results.files import reason
from meanfield.results.tensors import read_json

SPACE = "Ġ"  # GPT-2 writes a blank before a word like this
SHORTEST = 3  # letters of what counts as a word
TOKENIZER = "tokenizer.json"


def read_vocabulary(folder: Path) -> dict[str, int]:
    """The tokens of a model directory and their numbers.

    Parameters
    ----------
    folder : Path
        With ``vocab.txt`` (one a line), ``vocab.json`` or ``tokenizer.json``.

    Raises
    ------
    FileError
        If there is none of these, or it cannot be read.
    """
    if (folder / "vocab.txt").is_file():
        try:
            lines = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise FileError(f"cannot read {folder / 'vocab.txt'}: {reason(error)}") from None
        return {line.rstrip("\r"): number for number, line in enumerate(lines) if line}
    if (folder / "vocab.json").is_file():
        path = folder / "vocab.json"
        found = read_json(path)
    elif (folder / TOKENIZER).is_file():
        path = folder / TOKENIZER
        model = read_json(path).get("model")
        found = model.get("vocab") if isinstance(model, dict) else None
    else:
        raise FileError(f"{folder} has no vocabulary: vocab.txt, vocab.json or {TOKENIZER}")
    if not isinstance(found, dict) or not all(isinstance(n, int) for n in found.values()):
        raise FileError(f"{path} holds no vocabulary of tokens and their numbers")
    return found


def words(
    vocabulary: dict[str, int], count: int, fewer: bool = False
) -> tuple[list[str], np.ndarray]:
    """The first words of a vocabulary: tokens of three ASCII letters or more.

    Parameters
    ----------
    vocabulary : dict of str to int
    count : int
        Positive.
    fewer : bool
        Take all where there are not as many.

    Returns
    -------
    words : list of str
    ids : ndarray of int, shape (count,)

    Raises
    ------
    InputError
        If there are not as many, or none.

    Examples
    --------
    >>> words({"[CLS]": 0, "the": 1, "##ing": 2, "is": 3, "and": 4}, 2)[0]
    ['the', 'and']
    >>> found, ids = words({"Ġcat": 7, "s": 1, "Ġsat": 5}, 2)
    >>> found, ids.tolist()
    (['sat', 'cat'], [5, 7])
    """
    plain = {token.removeprefix(SPACE): n for token, n in vocabulary.items() if _is_word(token)}
    found = sorted(plain.items(), key=lambda entry: entry[1])
    if fewer and found:
        count = min(count, len(found))
    if not 1 <= count <= len(found):
        raise InputError(f"the vocabulary has {len(found)} words, {count} were asked for")
    return [word for word, _ in found[:count]], np.array([n for _, n in found[:count]])


def _is_word(token: str) -> bool:
    word = token.removeprefix(SPACE)
    return word.isascii() and word.isalpha() and len(word) >= SHORTEST


def encode(folder: Path, text: str) -> np.ndarray:
    """Token numbers of a text, with the marks that the model puts around it, shape (N,).

    Raises
    ------
    FileError
        If the model directory has no ``tokenizer.json``.
    InputError
        If the package tokenizers is not installed.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise InputError(
            "texts need the package tokenizers: pip install 'meanfield[models]', or give numbers"
        ) from None
    path = folder / TOKENIZER
    if not path.is_file():
        raise FileError(f"{folder} has no {TOKENIZER}: give token numbers instead of a text")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises nothing narrower
        raise FileError(f"{path} is no tokenizer: {reason(error)}") from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return np.array(tokenizer.encode(text).ids, dtype=int)


def read_token_numbers(path: Path, folder: Path) -> np.ndarray:
    """Token numbers from a file: shape (N,).

    Parameters
    ----------
    path : Path
        ``.csv`` with a column ``id`` (numbers) or ``token`` (words of the vocabulary), or
        ``.txt``, a text.
    folder : Path
        The model directory.

    Raises
    ------
    FileError, PointsError
        If the file cannot be read, or holds no tokens of this model.
    InputError
        As `encode`.
    """
    try:
        content = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise FileError(f"{path} is not a text file") from None
    except OSError as error:
        raise FileError(f"cannot read {path}: {reason(error)}") from None
    if path.suffix == ".txt":
        if not content.strip():
            raise PointsError(f"{path} holds no text")
        return encode(folder, content)
    rows = list(csv.DictReader(content.splitlines()))
    if not rows or not {"id", "token"} & set(rows[0]):
        raise PointsError(f"{path} must have a header with a column id or token, and rows")
    if "id" in rows[0]:
        return np.array([_number(row["id"], n, path) for n, row in enumerate(rows, 1)])
    vocabulary = read_vocabulary(folder)
    for number, row in enumerate(rows, 1):
        if row["token"] not in vocabulary:
            raise PointsError(f"{path}: row {number}: {row['token']!r} is not in the vocabulary")
    return np.array([vocabulary[row["token"]] for row in rows])


def _number(text: str | None, row: int, path: Path) -> int:
    if text is None or not (text.isascii() and text.isdigit() and len(text) < 10):
        raise PointsError(f"{path}: row {row}: {text!r} is no token number")
    return int(text)
