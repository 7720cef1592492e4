"""What a sweep runs: a command with places to fill, and the values that fill them."""

from __future__ import annotations

import hashlib
import itertools
import re
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from meanfield.errors import FileError, InputError, SizeError
from meanfield.results.files import reason
from meanfield.results.provenance import installed

VERBS = ("evolve", "particles", "minimize")
OWN = ("--output", "--plot", "--movie", "--overwrite", "--resume")  # the sweep sets these
PLACE = re.compile(r"\{([A-Za-z]\w*)\}")
MAX_MEMBERS = 100_000
VARY_HELP = "NAME=START:STOP:COUNT, NAME=START:STOP:COUNT:log, NAME=A,B,C or NAME=A|B|C"


@dataclass(frozen=True)
class Member:
    """One run of a sweep.

    Attributes
    ----------
    index : tuple of int
        Its place in the grid.
    words : tuple of str
        Its command line, without the program and the output.
    """

    index: tuple[int, ...]
    words: tuple[str, ...]

    @property
    def name(self) -> str:
        """A name that belongs to this command line and this version of the package."""
        text = "\0".join([installed("meanfield"), *self.words])
        return hashlib.sha256(text.encode()).hexdigest()[:20]


@dataclass(frozen=True)
class Plan:
    """The members of a sweep.

    Parameters
    ----------
    command : str
        A command line of `evolve`, `particles` or `minimize` without an output, in which
        ``{name}`` stands for the value of an axis.
    axes : dict of str to tuple
        The values of every axis, numbers or texts.
    seed : int, optional
        Every member of a `particles` sweep that has no ``--seed`` gets one of its own,
        derived from this one and its command line, whatever else is in the grid.

    Raises
    ------
    InputError
        If the command is no such command, a place has no axis, an axis no place, or sets an
        option that belongs to the sweep.
    SizeError
        For more than 100,000 members.

    Examples
    --------
    >>> plan = Plan("evolve --D {l},1 --t-end 1", {"l": (0.5, 2.0)})
    >>> [" ".join(member.words) for member in plan]
    ['evolve --D 0.5,1 --t-end 1', 'evolve --D 2.0,1 --t-end 1']
    """

    command: str
    axes: dict[str, tuple]
    seed: int = 0

    def __post_init__(self):
        words = self.words
        if not words or words[0] not in VERBS:
            raise InputError(f"a sweep runs one of {', '.join(VERBS)}, got {self.command!r}")
        for word in words:
            if word.split("=")[0] in OWN:
                raise InputError(f"leave {word} out of the command: the sweep sets it")
        if not self.axes:
            raise InputError(f"nothing varies: give --vary {VARY_HELP}")
        places = set(PLACE.findall(self.command))
        for name in sorted(places - set(self.axes)):
            raise InputError(f"the command has {{{name}}} but there are no values for it (--vary)")
        for name, values in self.axes.items():
            if name not in places:
                raise InputError(f"{name} varies but the command has no {{{name}}}")
            if not values or len(set(values)) < len(values):
                raise InputError(f"the values of {name} must be different, and at least one")
        if len(self) > MAX_MEMBERS:
            raise SizeError(f"{len(self):,} members are too many, at most {MAX_MEMBERS:,}")

    @property
    def words(self) -> list[str]:
        """The command, split as a shell splits it."""
        try:
            words = shlex.split(self.command)
        except ValueError as error:
            raise InputError(f"cannot read the command {self.command!r}: {error}") from None
        return words[1:] if words[:1] == ["meanfield"] else words

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of values of every axis."""
        return tuple(len(values) for values in self.axes.values())

    def __len__(self) -> int:
        return prod(self.shape)

    def __iter__(self) -> Iterator[Member]:
        words = self.words
        own_seed = words[0] == "particles" and not any(
            word.split("=")[0] == "--seed" for word in words
        )
        for index in itertools.product(*map(range, self.shape)):
            chosen = {
                name: str(values[place])
                for (name, values), place in zip(self.axes.items(), index, strict=True)
            }
            filled = [PLACE.sub(lambda found, at=chosen: at[found[1]], word) for word in words]
            if own_seed:
                filled += ["--seed", str(_seed(self.seed, filled))]
            yield Member(index, tuple(filled))


def _seed(seed: int, words: list[str]) -> int:
    """Seeds of members: streams that do not overlap; of 53 bits, which JSON keeps everywhere."""
    digest = hashlib.sha256("\0".join(words).encode()).digest()
    entropy = [seed, *np.frombuffer(digest, "<u4").tolist()]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> np.uint64(11))


def read_plan(command: str, vary: list[str], seed: int | None = None) -> Plan:
    """The plan that the command line or a TOML file describes.

    Parameters
    ----------
    command : str
        A command line, or the name of a TOML file with ``command``, optionally ``seed``, and a
        table ``vary``, whose entries are lists of values or texts like those of ``vary``.
    vary : list of str
        ``NAME=VALUES``; they come on top of those in the file.
    seed : int, optional
        Instead of that in the file; 0 by default.

    Raises
    ------
    InputError, FileError

    Examples
    --------
    >>> read_plan("evolve --D {l},1 --t-end 1", ["l=0:1:3"]).axes
    {'l': (0.0, 0.5, 1.0)}
    """
    axes: dict[str, tuple] = {}
    if command.endswith(".toml"):
        command, axes, stored = _read_file(Path(command))
        seed = stored if seed is None else seed
    for text in vary:
        name, equals, values = text.partition("=")
        if not equals or not PLACE.fullmatch(f"{{{name}}}"):
            raise InputError(f"--vary is {text!r}, it must be {VARY_HELP}")
        axes[name] = parse_axis(name, values)
    return Plan(command, axes, seed or 0)


def _read_file(path: Path) -> tuple[str, dict[str, tuple], int]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(f"cannot read {path}: {reason(error)}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FileError(f"{path} is no TOML file: {error}") from error
    unknown = set(table) - {"command", "vary", "seed"}
    command, vary = table.get("command"), table.get("vary", {})
    seed = table.get("seed", 0)
    if unknown or not isinstance(command, str) or not isinstance(vary, dict):
        more = f"; unknown: {', '.join(sorted(unknown))}" if unknown else ""
        raise FileError(f'{path} must have command = "...", a table [vary] and perhaps seed{more}')
    if type(seed) is not int or seed < 0:
        raise FileError(f"{path}: seed must be a whole number >= 0, got {seed!r}")
    return command, {name: _values(path, name, given) for name, given in vary.items()}, seed


def _values(path: Path, name: str, given) -> tuple:
    if not PLACE.fullmatch(f"{{{name}}}"):
        raise FileError(f"{path}: {name!r} is no name, use letters, digits and _")
    if isinstance(given, str):
        return parse_axis(name, given)
    if isinstance(given, list) and all(type(value) in (int, float, str) for value in given):
        return _of_one_kind(given)
    raise FileError(f"{path}: {name} must be a list of numbers or texts, or a range in quotes")


def parse_axis(name: str, text: str) -> tuple:
    """The values of one axis: a range, or a list, of numbers or texts.

    Raises
    ------
    InputError

    Examples
    --------
    >>> parse_axis("l", "1:100:3:log"), parse_axis("m", "circle:8|circle:16")
    ((1.0, 10.0, 100.0), ('circle:8', 'circle:16'))
    """
    parts = text.split(":")
    numbers = [_number(part) for part in parts]
    if len(parts) >= 3 and None not in numbers[:3] and "|" not in text and "," not in text:
        return _range(name, text, numbers, parts[3:])
    values = text.split("|" if "|" in text else ",")
    if "" in (value.strip() for value in values):
        raise InputError(f"--vary {name}={text}: a value is missing; it must be {VARY_HELP}")
    converted = [_number(value) for value in values]
    return _of_one_kind(values if None in converted else converted)


def _range(name: str, text: str, numbers: list, rest: list[str]) -> tuple:
    start, stop, count = numbers[:3]
    spacing = {(): np.linspace, ("log",): np.geomspace}.get(tuple(rest))
    if spacing is None or not (float(count).is_integer() and 1 <= count <= MAX_MEMBERS):
        raise InputError(f"--vary {name}={text} is no range START:STOP:COUNT or with :log")
    if rest and not (start > 0 and stop > 0):
        raise InputError(f"--vary {name}={text}: a logarithmic range needs positive ends")
    return tuple(spacing(start, stop, int(count)).tolist())


def _number(text: str) -> float | int | None:
    """A finite number, whole ones as integers; None for anything else."""
    try:
        value = float(text)
    except ValueError:
        return None
    if not np.isfinite(value):
        return None
    whole = text.strip().lstrip("+-").isdigit() and abs(value) < 2**53
    return int(text) if whole else value


def _of_one_kind(values: list) -> tuple:
    """All integers, else all floats, else all texts."""
    if any(isinstance(value, str) for value in values):
        return tuple(str(value).strip() for value in values)
    if any(isinstance(value, float) for value in values):
        return tuple(float(value) for value in values)
    return tuple(values)
