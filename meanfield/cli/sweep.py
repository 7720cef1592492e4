"""The verb `sweep` of the command."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from tqdm import tqdm

from meanfield.cli import options
from meanfield.cli.messages import FAILED, INTERRUPTED, TERMINATED, fail, say
from meanfield.cli.pictures import check_picture, draw
from meanfield.cli.surviving import Signals
from meanfield.cli.sweep_plan import VARY_HELP, Member, Plan, read_plan
from meanfield.cli.sweep_workers import Outcome, in_this_process, on_cluster, on_this_machine
from meanfield.errors import FileError, InputError
from meanfield.results.dataset import save_dataset
from meanfield.results.files import check_output, only_writer, replacing
from meanfield.results.sweep_dataset import Row, read_row, sweep_dataset

SHOWN = 5  # errors that are printed


def sweep_command(
    command: Annotated[
        str,
        typer.Argument(
            metavar="COMMAND|FILE.toml",
            help="A command in quotes with places {name} for what varies, or a TOML file with "
            "command, [vary] and seed.",
        ),
    ],
    vary: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUES", help=f"{VARY_HELP}; once for every name."),
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Processes on this machine; one per core.")
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="tcp://HOST:PORT", help="A running dask.distributed cluster."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of random starts of the members, 0 by default.")
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Try failed members again.")] = False,
    output: options.Output = Path("sweep.nc"),
    plot: options.Picture = None,
    overwrite: options.Overwrite = False,
) -> int:
    """Run a command over a grid of parameters, and save one dataset with an axis for each.

    Every member is kept in the folder FILE.nc.members, and is not computed again: after an
    interruption, or with more values, the same command goes on. A member that fails is recorded
    with its error. Members of a particles sweep without --seed get seeds of their own.
    """
    plan = read_plan(command, vary or [], seed)
    check_output(output, overwrite)
    check_picture(plot, overwrite)
    if scheduler is not None and processes is not None:
        raise InputError("give either --processes or --scheduler")
    with only_writer(output):
        return _sweep(plan, output, retry, processes, scheduler, plot, overwrite)


def _sweep(plan: Plan, output: Path, retry, processes, scheduler, plot, overwrite) -> int:
    """Compute what is missing and combine all members; the exit status."""
    began = time.perf_counter()
    folder = Folder(output.with_name(output.name + ".members"), retry)
    members = list(plan)
    todo = [member for member in members if not folder.knows(member)]
    known = len(members) - len(todo)
    rows: dict[tuple, Row] = {}
    status = _work(todo, rows, folder, processes, scheduler)
    if status:
        done = sum(folder.knows(member) for member in members)
        return fail(
            status,
            f"interrupted; {done} of {len(members)} members are in {folder.path}; to go on, give "
            "the same command again",
        )
    failed = {member: folder.error(member) for member in members if folder.error(member)}
    if len(failed) == len(members):
        return fail(
            FAILED,
            f"all {len(members)} members failed, nothing is written (--retry tries again); the "
            f"first one: {failed[members[0]]}",
        )
    for member in members:
        if member.index not in rows and member not in failed:
            rows[member.index] = read_row(folder.result(member))
    dataset = _combined(plan, rows, {member.index: words for member, words in failed.items()})
    save_dataset(dataset, output, overwrite)
    print(summary(plan, known, len(failed)))
    print(f"  {time.perf_counter() - began:.1f} s; written: {output}")
    draw(dataset, plot, overwrite)
    for member in list(failed)[:SHOWN]:
        say("warning", f"failed: meanfield {' '.join(member.words)}: {failed[member]}")
    if failed:
        return fail(FAILED, f"{len(failed)} of {len(members)} members failed (--retry tries again)")
    return 0


def _work(todo: list[Member], rows: dict, folder: Folder, processes, scheduler) -> int:
    """Compute members and fill in their rows: 0, or the exit status of an interruption."""
    with Signals(at_once=True) as signals:
        try:
            with closing(_run(todo, folder, processes, scheduler)) as outcomes:
                for member, outcome in tqdm(outcomes, total=len(todo), unit="member", disable=None):
                    stopped = outcome.status in (INTERRUPTED, TERMINATED)
                    if not stopped:
                        folder.note(member, outcome)
                    if outcome.row is not None:
                        rows[member.index] = outcome.row
                    # An exception that a signal raises may be lost, in a finalizer for one.
                    if stopped or signals.wanted():
                        return signals.status if signals.wanted() else outcome.status
        except KeyboardInterrupt:
            return signals.status
    return 0


@dataclass(frozen=True)
class Folder:
    """The results of the members of a sweep, one file for each, made when it is first used.

    Parameters
    ----------
    path : Path
    retry : bool
        Whether members that failed are forgotten.
    """

    path: Path
    retry: bool

    def __post_init__(self):
        try:
            self.path.mkdir(exist_ok=True)
        except OSError as error:
            raise FileError(f"cannot make the folder {self.path}: {error.strerror}") from error
        if not os.access(self.path, os.W_OK | os.X_OK):
            raise FileError(f"the folder {self.path} cannot be written to")
        if self.retry:
            for path in self.path.glob("*.error.json"):
                path.unlink()

    def result(self, member: Member) -> Path:
        """The file of a member that is complete."""
        return self.path / f"{member.name}.nc"

    def _error(self, member: Member) -> Path:
        return self.path / f"{member.name}.error.json"

    def error(self, member: Member) -> str | None:
        """Why a member failed; None if it did not."""
        if self.result(member).exists() or not self._error(member).exists():
            return None
        try:
            return str(json.loads(self._error(member).read_text(encoding="utf-8"))["message"])
        except (OSError, ValueError, KeyError, TypeError):
            return "unknown: the record of the error cannot be read"

    def knows(self, member: Member) -> bool:
        """Whether a member needs no more computing."""
        return self.result(member).exists() or self._error(member).exists()

    def note(self, member: Member, outcome: Outcome) -> None:
        """Record what became of a member.

        Raises
        ------
        FileError
        """
        if outcome.status == 0 or self.result(member).exists():
            if outcome.file is not None:
                with replacing(self.result(member)) as temporary:
                    temporary.write_bytes(outcome.file)
            return
        record = {"command": list(member.words), "status": outcome.status}
        record["message"] = outcome.message or f"exit status {outcome.status}"
        with replacing(self._error(member), overwrite=True) as temporary:
            temporary.write_text(json.dumps(record), encoding="utf-8")


def _run(todo, folder: Folder, processes, scheduler) -> Iterator[tuple[Member, Outcome]]:
    """The outcomes of members, as they come."""
    if not todo:
        return
    processes = min(processes or os.cpu_count() or 1, len(todo))
    if scheduler is not None:
        yield from on_cluster(todo, scheduler)
    elif processes == 1:
        yield from in_this_process(todo, folder.result)
    else:
        yield from on_this_machine(todo, folder.result, processes)


def _combined(plan: Plan, rows: dict[tuple, Row], errors: dict[tuple, str]):
    parameters = {
        "verb": "sweep",
        "command": plan.command,
        "vary": {name: list(values) for name, values in plan.axes.items()},
        "seed": plan.seed,
    }
    return sweep_dataset(plan.axes, rows, errors, parameters)


def summary(plan: Plan, known: int, failed: int) -> str:
    """What a sweep did, in a few lines.

    Examples
    --------
    >>> print(summary(Plan("evolve --D {l},1 --t-end 1", {"l": (0.5, 2.0)}), 1, 0))
    meanfield evolve --D {l},1 --t-end 1
      l: 2 values, 0.5 ... 2.0
      2 members: 2 complete (1 of them before), 0 failed
    """
    lines = [f"meanfield {' '.join(plan.words)}"]
    for name, values in plan.axes.items():
        lines.append(f"  {name}: {len(values)} values, {values[0]} ... {values[-1]}")
    before = f" ({known} of them before)" if known else ""
    lines.append(f"  {len(plan)} members: {len(plan) - failed} complete{before}, {failed} failed")
    return "\n".join(lines)
