"""Runs of the command that survive signals: they end after a step, and say how to go on."""

from __future__ import annotations

import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from meanfield.cli.messages import FAILED, INTERRUPTED, TERMINATED, fail, say
from meanfield.dynamics.evolution import UnresolvedWarning
from meanfield.dynamics.timestepping import LongRunWarning
from meanfield.errors import ComputationError, FileError
from meanfield.results.checkpoints import INTERVAL, RecoveryWarning, checkpoint_paths
from meanfield.results.provenance import command_line
from meanfield.results.recorded_runs import Recorded
from meanfield.results.recording import RecordingError, partial_path
from meanfield.results.ugrid import READ_ERRORS, open_netcdf

Resume = Annotated[
    bool,
    typer.Option("--resume", help="Go on with a run that was stopped; a complete one is left."),
]
Checkpoint = Annotated[
    float,
    typer.Option(
        metavar="SECONDS", help="Time between two checkpoints, for --resume; 0: every step."
    ),
]
DEFAULT_CHECKPOINT = INTERVAL


class Signals:
    """SIGINT and SIGTERM as a wish to stop, that a run grants after its current step.

    A second SIGINT stops at once. Handlers are set in the main thread only, and put back.

    Parameters
    ----------
    at_once : bool
        Stop at the first signal, where there are no steps to wait for.

    Examples
    --------
    >>> with Signals() as signals:
    ...     signals.wanted()
    False
    """

    def __init__(self, at_once: bool = False):
        self.at_once, self.caught, self._before = at_once, None, {}

    def wanted(self) -> bool:
        """Whether a signal has come."""
        return self.caught is not None

    @property
    def status(self) -> int:
        """The exit status that belongs to the signal."""
        return TERMINATED if self.caught == signal.SIGTERM else INTERRUPTED

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._catch)
        return self

    def __exit__(self, *_) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        # A wish that came during a part of something larger is a wish to stop that too.
        outer = getattr(self._before.get(self.caught), "__self__", None)
        if isinstance(outer, Signals):
            outer._catch(self.caught, None)

    def _catch(self, number: int, _) -> None:
        second = self.wanted() and number == signal.SIGINT
        self.caught = self.caught or number
        if second or self.at_once:
            raise KeyboardInterrupt


@contextmanager
def _said() -> Iterator[None]:
    """Say the warnings of a run at once, one line each; the summary has those of its end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnresolvedWarning)
        for kind in (RecoveryWarning, LongRunWarning):
            warnings.simplefilter("always", kind)
        warnings.showwarning = lambda message, *_, **__: say("warning", str(message))
        yield


def survive(output: Path, run: Callable[[Callable[[], bool]], Recorded]) -> Recorded | int:
    """Carry a run out, or say in one line why it ended and how it goes on.

    Parameters
    ----------
    output : Path
    run : callable
        Takes a function that says whether to stop.

    Returns
    -------
    Recorded or int
        The complete run, or the exit status.
    """
    with Signals() as signals, _said():
        try:
            recorded = run(signals.wanted)
        except RecordingError as error:
            return fail(FAILED, f"{error}; {remains(output)}")
        except ComputationError as error:
            return fail(FAILED, f"{error}; {remains(output)}")
        except KeyboardInterrupt:
            return fail(signals.status, f"interrupted at once; {remains(output)}; {go_on()}")
    if recorded.complete:
        return recorded
    return fail(signals.status, f"interrupted; {remains(output, recorded.reached)}; {go_on()}")


def go_on() -> str:
    """The command that goes on with this one.

    Examples
    --------
    >>> go_on().endswith("--resume")
    True
    """
    words = [word for word in sys.argv if word != "--resume"]
    return f"to go on: {command_line([*words, '--resume'])}"


def remains(output: Path, reached: float | None = None) -> str:
    """What is left of a run that was stopped.

    Parameters
    ----------
    output : Path
    reached : float, optional
        Time of the last checkpoint, where it is known.
    """
    partial = partial_path(output)
    if not partial.exists():
        saved = any(path.exists() for path in checkpoint_paths(output))
        return "the state is in a checkpoint" if saved else "nothing was saved"
    try:
        with open_netcdf(partial) as stored:
            times = stored["time"].values
    except (FileError, *READ_ERRORS):
        return f"{partial} cannot be read"
    times = times[np.isfinite(times)]
    if not len(times):
        return f"no frame was saved ({partial} can be removed)"
    last = times[-1] if reached is None else max(reached, times[-1])
    frames = "the frame" if len(times) == 1 else f"the {len(times)} frames"
    are = "is" if len(times) == 1 else "are"
    return f"the last good time is t = {last:g}, {frames} up to it {are} in {partial}"


def kept(path: Path | None, resume: bool, overwrite: bool) -> Path | None:
    """A picture to be made; none if it is there already and the run is only resumed."""
    there = path is not None and path.exists()
    return None if there and resume and not overwrite else path
