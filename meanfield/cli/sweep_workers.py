"""Who runs the members of a sweep: this process, others on this machine, a dask cluster."""

from __future__ import annotations

import contextlib
import io
import logging
import multiprocessing
import os
import re
import signal
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import threadpoolctl

from meanfield.cli.messages import FAILED, INTERRUPTED, TERMINATED, say
from meanfield.cli.sweep_plan import Member
from meanfield.errors import ComputationError, InputError
from meanfield.results.sweep_dataset import Row, read_row

TRIES = 2  # a member whose process dies this often has failed
ADDRESS = re.compile(r"((tcp|tls|ws|wss)://)?[^/\s]+:\d{1,5}")
AHEAD = 2  # members given out per worker, so that none waits

_stopped = False  # in a worker that a signal told to stop: it begins nothing more
_one_at_a_time = threading.Lock()  # threads of a process share its output streams


@dataclass(frozen=True)
class Outcome:
    """What became of a member.

    Attributes
    ----------
    status : int
        The exit status of its command.
    message : str
        The last line on its error stream.
    row : Row or None
        What the sweep keeps of its result, read where it was computed.
    file : bytes or None
        Its result, unless it was written in place.
    """

    status: int
    message: str
    row: Row | None = None
    file: bytes | None = None


def run_member(words: tuple[str, ...], path: str) -> Outcome:
    """Run one member in this process, going on with what there is of it.

    Parameters
    ----------
    words : tuple of str
        Its command line.
    path : str
        Where to write its result.
    """
    outcome = _run([*words, "--output", path, "--resume"])
    return Outcome(0, "", read_row(path)) if Path(path).exists() else outcome


def run_on_worker(words: tuple[str, ...]) -> Outcome:
    """Run one member in a worker of a cluster and send its result back.

    Parameters
    ----------
    words : tuple of str
        Its command line.
    """
    import dask

    # Files are of this process alone: without this, xarray asks the cluster for a lock.
    with TemporaryDirectory() as folder, dask.config.set(scheduler="synchronous"):
        place = Path(folder, "run.nc")
        outcome = _run([*words, "--output", str(place)])
        if not place.exists():
            return outcome
        return Outcome(0, "", read_row(place), place.read_bytes())


def _run(arguments: list[str]) -> Outcome:
    global _stopped
    from meanfield.cli.app import main

    if _stopped:
        return Outcome(INTERRUPTED, "interrupted")
    errors = io.StringIO()
    silent = contextlib.redirect_stdout(io.StringIO())
    with _one_at_a_time, silent, contextlib.redirect_stderr(errors):
        try:
            status = main(arguments)
        except Exception as error:
            status = FAILED
            print(f"{type(error).__name__}: {error}", file=errors)
    _stopped = status in (INTERRUPTED, TERMINATED)
    lines = errors.getvalue().strip().splitlines()
    return Outcome(status, lines[-1].removeprefix("meanfield: error: ") if lines else "")


def in_this_process(members: Iterable[Member], path_of) -> Iterator[tuple[Member, Outcome]]:
    """One member after the other."""
    global _stopped
    _stopped = False
    for member in members:
        yield member, run_member(member.words, str(path_of(member)))


def on_this_machine(
    members: Iterable[Member], path_of, processes: int
) -> Iterator[tuple[Member, Outcome]]:
    """Members in several processes; one whose process dies is tried again, alone."""
    suspects: list[Member] = []
    todo = deque(members)
    while todo:
        with _pool(processes) as pool:
            running: dict[Future, Member] = {}
            try:
                for member, outcome in _feed(pool, todo, running, path_of, AHEAD * processes):
                    yield member, outcome
            except BrokenProcessPool:
                suspects += running.values()
    for member in suspects:
        yield member, _alone(member, path_of)


def _feed(
    pool, todo: deque, running: dict, path_of, ahead: int
) -> Iterator[tuple[Member, Outcome]]:
    """Keep a pool busy; ``running`` always says which members it has."""
    while True:
        while todo and len(running) < ahead:
            member = todo[0]
            running[pool.submit(run_member, member.words, str(path_of(member)))] = member
            todo.popleft()
        if not running:
            return
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            outcome = future.result()
            yield running.pop(future), outcome


def _alone(member: Member, path_of) -> Outcome:
    """A member in a process of its own, which may have killed the last one it was in."""
    for _ in range(TRIES - 1):
        with _pool(1) as pool, contextlib.suppress(BrokenProcessPool):
            return pool.submit(run_member, member.words, str(path_of(member))).result()
    return Outcome(FAILED, f"its process died, {TRIES} times (out of memory?)")


@contextlib.contextmanager
def _pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Fresh processes that share the cores; when the sweep stops, their members stop too."""
    threads = max(1, (os.cpu_count() or 1) // processes)
    with _environment("OMP_NUM_THREADS", str(threads)):
        pool = ProcessPoolExecutor(
            processes,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_prepare,
            initargs=(threads,),
        )
        try:
            yield pool
        except (KeyboardInterrupt, GeneratorExit):
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()  # a member makes a checkpoint first
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _prepare(threads: int) -> None:
    """A new worker: no interrupts between members, its share of the cores."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    threadpoolctl.threadpool_limits(threads)


def _end_with_parent() -> None:
    """End this worker when the sweep was killed: it would wait for members for ever."""
    multiprocessing.parent_process().join()
    while True:  # the first signal only ends the member, with a checkpoint
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1.0)


@contextlib.contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    """A variable that child processes inherit, unless the user has set it."""
    missing = name not in os.environ
    os.environ.setdefault(name, value)
    try:
        yield
    finally:
        if missing:
            del os.environ[name]


def on_cluster(
    members: Iterable[Member], address: str, timeout: float = 30.0
) -> Iterator[tuple[Member, Outcome]]:
    """Members on a running dask.distributed cluster; the results come back to this process.

    A member whose worker dies is given to another one.

    Raises
    ------
    InputError
        If dask.distributed is not installed, or there is no scheduler at the address.
    ComputationError
        If the connection is lost.
    """
    try:
        from distributed import Client, as_completed
    except ImportError:
        raise InputError("--scheduler needs dask: pip install 'meanfield[distributed]'") from None
    if not ADDRESS.fullmatch(address):
        raise InputError(f"no scheduler answers at {address!r}: an address is tcp://HOST:PORT")
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # errors are told once
    try:
        client = Client(address, timeout=timeout, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"no scheduler answers at {address}: {error}") from None
    with client:
        if not client.scheduler_info()["workers"]:
            say("warning", f"{address} has no workers yet: the sweep waits for them")
        futures = {}
        for member in members:
            key = f"meanfield-{member.name}-{time.time_ns()}"
            futures[client.submit(run_on_worker, member.words, key=key, pure=False)] = member
        for future in as_completed(list(futures), loop=client.loop):
            member = futures.pop(future)
            if future.status == "finished":
                outcome = future.result()
            elif future.status == "cancelled":
                raise ComputationError(f"the scheduler at {address} was lost")
            else:
                error = future.exception()
                outcome = Outcome(FAILED, f"{type(error).__name__}: {error}")
            future.release()
            yield member, outcome
