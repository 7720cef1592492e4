"""Runs that survive: recorded as they go, with checkpoints, and continued after a stop."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from meanfield.dynamics.evolution import (
    UnresolvedWarning,
    check_arguments,
    initial_masses,
    run_parameters,
    unresolved,
)
from meanfield.dynamics.finite_volume import frames
from meanfield.dynamics.particles import ParticleRun
from meanfield.dynamics.timestepping import Frame, save_times, watched
from meanfield.equilibria.mirror_search import Search
from meanfield.errors import FileError
from meanfield.results.checkpoints import (
    INTERVAL,
    Checkpoints,
    RecoveryWarning,
    check_same_run,
)
from meanfield.results.dataset import save_dataset
from meanfield.results.files import check_output, only_writer, reason
from meanfield.results.particle_recording import ParticleRecorder
from meanfield.results.recording import FrameFile, Recorder, partial_path, read_frame
from meanfield.results.ugrid import READ_ERRORS, open_netcdf


def never() -> bool:
    """No reason to stop."""
    return False


@dataclass(frozen=True)
class Recorded:
    """What became of a recorded run.

    Attributes
    ----------
    path : Path
        The output; it is there if ``complete``.
    complete : bool
        Whether the run came to its end; otherwise ``resume=True`` goes on with it.
    found : bool
        Whether it was complete before, so that nothing was computed.
    frames : int
        Frames that are saved.
    time : float or None
        Of the last of them.
    reached : float or None
        How far the checkpoint is, which may be later.
    """

    path: Path
    complete: bool
    found: bool = False
    frames: int = 0
    time: float | None = None
    reached: float | None = None


def record_evolution(
    path,
    mesh,
    model,
    density,
    t_end: float,
    save=None,
    order: int = 2,
    cfl: float = 0.45,
    checkpoint: float = INTERVAL,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = False,
    stop: Callable[[], bool] = never,
) -> Recorded:
    """Run `evolve` into a file, so that it survives whatever happens to the process.

    Frames are in ``NAME.nc.partial`` as soon as they are computed; the state between them is in
    one of two checkpoints, ``.NAME.nc.checkpoint-0`` and ``-1``. ``NAME.nc`` appears when the
    run is complete, at once. Memory does not grow with the number of frames.

    Parameters
    ----------
    path : path-like
        The output, a NetCDF file that `open_run` reads.
    mesh, model, density, t_end, save, order, cfl, progress
        As for `evolve`.
    checkpoint : float, >= 0
        Seconds between two checkpoints; 0 for one at every step.
    resume : bool
        Go on with an earlier run with the same parameters from its last good state, if there is
        one; the result is bit for bit that of an uninterrupted run. A complete one is left.
    overwrite : bool
        Replace an existing output, or what is left of another run.
    stop : callable, optional
        Asked after every step: True ends the run with a checkpoint.

    Returns
    -------
    Recorded

    Raises
    ------
    FileError
        If there are files that may not be replaced, that belong to another run (the message
        says what differs), or that cannot be written.
    InputError, StiffnessError, NonFiniteError
        As `evolve`.

    Warns
    -----
    RecoveryWarning
        If something that an earlier run has left is damaged, or a checkpoint cannot be written.
    UnresolvedWarning
        As `evolve`.

    Examples
    --------
    >>> import meanfield as mf
    >>> from tempfile import TemporaryDirectory
    >>> model = mf.SelfAttention([1.0, 2.0], sign=-1)
    >>> density = mf.von_mises_fisher([1, 1], 2.0)
    >>> with TemporaryDirectory() as folder:
    ...     setting = (f"{folder}/run.nc", mf.circle(32), model, density, 0.5)
    ...     first = record_evolution(*setting)
    ...     again = record_evolution(*setting, resume=True)
    ...     run = mf.open_run(first.path)
    >>> first.complete, again.found, len(run.times)
    (True, True, 21)
    """
    check_arguments(mesh, model, order, cfl)
    times = save_times(t_end, save)
    masses, factor = initial_masses(mesh, density)
    parameters = run_parameters(mesh, model, density, times, order, cfl, factor, masses)
    with only_writer(path):
        checkpoints = Checkpoints(path, parameters, checkpoint)
        if _is_complete(path, checkpoints, resume, overwrite):
            return Recorded(Path(path), True, found=True)
        with Recorder(path, mesh, model, times, parameters, overwrite, resume) as recorder:
            start = _last_instant(recorder, checkpoints, resume)
            steps = frames(mesh, model, masses, times, order, cfl, start, every_step=True)
            steps = watched(steps, len(times), times[-1], progress, recorder.count)
            last, complete = _survive(steps, recorder, checkpoints, stop)
            message = unresolved(mesh, last) if complete and last is not None else None
            if message:
                warnings.warn(message, UnresolvedWarning, stacklevel=2)
            return _ended(recorder, checkpoints, last, complete)


def record_particles(
    path,
    run: ParticleRun,
    checkpoint: float = INTERVAL,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = False,
    stop: Callable[[], bool] = never,
) -> Recorded:
    """Run `evolve_particles` or `transformer` into a file; see `record_evolution`.

    Parameters
    ----------
    path : path-like
    run : ParticleRun
        From `meanfield.dynamics.particles.prepare_flow` or ``prepare_layers``, which take the
        arguments of `evolve_particles` and `transformer`.
    checkpoint, resume, overwrite, progress, stop
        As for `record_evolution`; a run is continued from its checkpoints only.

    Returns
    -------
    Recorded

    Raises
    ------
    FileError, StiffnessError, NonFiniteError

    Examples
    --------
    >>> import meanfield as mf
    >>> from meanfield.dynamics.particles import prepare_flow
    >>> from tempfile import TemporaryDirectory
    >>> flow = prepare_flow([[1.0, 0.0], [0.6, 0.8]], mf.SelfAttention([1.0, 2.0]), t_end=1.0)
    >>> with TemporaryDirectory() as folder:
    ...     record_particles(f"{folder}/run.nc", flow).complete
    True
    """
    intervals = run.plan.intervals
    with only_writer(path):
        checkpoints = Checkpoints(path, run.parameters, checkpoint)
        if _is_complete(path, checkpoints, resume, overwrite):
            return Recorded(Path(path), True, found=True)
        with ParticleRecorder(path, run, overwrite, resume) as recorder:
            state = None
            if resume:
                state = checkpoints.newest(recorder.count)
                if state is None and recorder.count:
                    _from_the_beginning(recorder)
                recorder.rewind(0 if state is None else state.frames)
            else:
                checkpoints.remove()
            steps = run.frames(None if state is None else state.arrays)
            steps = watched(steps, len(intervals), run.announced_end, progress, recorder.count)
            last, complete = _survive(steps, recorder, checkpoints, stop)
            return _ended(recorder, checkpoints, last, complete)


def record_extremum(
    path,
    search: Search,
    checkpoint: float = INTERVAL,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = False,
    stop: Callable[[], bool] = never,
) -> Recorded:
    """Run `minimize` or `maximize` with checkpoints, and save what it finds.

    Parameters
    ----------
    path : path-like
    search : Search
        From `meanfield.equilibria.mirror_descent.prepare`.
    checkpoint, resume, overwrite, progress, stop
        As for `record_evolution`. There are no frames: only checkpoints are continued.

    Returns
    -------
    Recorded

    Raises
    ------
    FileError, NonFiniteError

    Examples
    --------
    >>> import meanfield as mf
    >>> from meanfield.equilibria.mirror_descent import prepare
    >>> from tempfile import TemporaryDirectory
    >>> search = prepare(mf.circle(64), mf.Interaction([1.0, 1.5]))
    >>> with TemporaryDirectory() as folder:
    ...     record_extremum(f"{folder}/min.nc", search).complete
    True
    """
    with only_writer(path):
        checkpoints = Checkpoints(path, search.parameters, checkpoint)
        if _is_complete(path, checkpoints, resume, overwrite):
            return Recorded(Path(path), True, found=True)
        check_output(path, overwrite)
        state = None
        if resume:
            state = checkpoints.newest()
        elif checkpoints.exist() and not overwrite:
            raise FileError(
                f"{checkpoints.paths[0]} exists, from a search that was stopped: continue it "
                "(--resume), choose another name or allow overwriting (--overwrite)"
            )
        else:
            checkpoints.remove()
        found = None
        for instant in search.steps(None if state is None else state.arrays, progress):
            found = instant.result
            wanted = stop()
            if wanted or checkpoints.due:
                checkpoints.write(instant.snapshot(), 0)
            if wanted and found is None:
                return Recorded(Path(path), False, reached=float(len(instant.search.rows)))
        save_dataset(found.to_dataset(), path, overwrite)
        checkpoints.remove()
        return Recorded(Path(path), True)


def _is_complete(path, checkpoints: Checkpoints, resume: bool, overwrite: bool) -> bool:
    """Whether the run to be resumed is there, and nothing is left to do."""
    going_on = partial_path(path).exists() or checkpoints.exist()
    if not resume or (overwrite and going_on):
        return False
    complete = is_complete(path, checkpoints.parameters, overwrite)
    if complete:
        checkpoints.remove()  # a process that was killed at its very end has left them
    return complete


def is_complete(path, parameters: dict, overwrite: bool = False) -> bool:
    """Whether a file holds the complete run with these parameters.

    Parameters
    ----------
    path : path-like
    parameters : dict
        What rebuilds the run.
    overwrite : bool
        Whether a file with something else may be replaced.

    Raises
    ------
    FileError
        If the file holds something else and may not be replaced; the message says what differs.
    """
    path = Path(path)
    if not path.exists():
        return False
    try:
        with open_netcdf(path) as stored:
            check_same_run(path, json.loads(stored.attrs["parameters"]), parameters)
    except (FileError, *READ_ERRORS) as error:
        if overwrite:
            return False
        if isinstance(error, FileError):
            raise
        raise FileError(f"{path} is no complete run: {reason(error)}") from error
    return True


def _last_instant(recorder: Recorder, checkpoints: Checkpoints, resume: bool) -> Frame | None:
    """Where an evolution goes on: its last frame, or a checkpoint after it."""
    if not resume:
        checkpoints.remove()
        return None
    state, frame = checkpoints.newest(recorder.count), None
    if recorder.count:
        try:
            frame = read_frame(recorder.partial, recorder.count - 1)
        except FileError as error:
            warnings.warn(f"{error}: it is computed again", RecoveryWarning, stacklevel=3)
            recorder.rewind(0 if state is None else state.frames)
    if state is not None:
        instant = Frame.restored(state.arrays)
        if frame is None or instant.time > frame.time:
            return instant
    elif frame is None and resume:
        recorder.rewind(0)
    return frame


def _from_the_beginning(recorder: FrameFile) -> None:
    warnings.warn(
        f"there is no good checkpoint beside {recorder.partial}: the run starts from the beginning",
        RecoveryWarning,
        stacklevel=3,
    )


def _survive(
    steps: Iterable, recorder: FrameFile, checkpoints: Checkpoints, stop: Callable[[], bool]
) -> tuple[object, bool]:
    """Record frames, and a checkpoint when one is due or the run is to stop.

    Returns
    -------
    tuple of the last instant and whether the run came to its end
    """
    instant = None
    for instant in steps:
        if instant.saved:
            recorder.append(instant)
        wanted = stop()
        if wanted or checkpoints.due:
            recorder.synchronise()
            checkpoints.write(instant.snapshot(), recorder.count)
        if wanted and recorder.count < recorder.total:
            return instant, False
    return instant, True


def _ended(recorder: FrameFile, checkpoints: Checkpoints, last, complete: bool) -> Recorded:
    if complete:
        recorder.finish(ended=True)
        checkpoints.remove()
    else:
        recorder.close()
    return Recorded(
        recorder.path,
        complete,
        frames=recorder.count,
        time=recorder.last_time,
        reached=None if last is None else last.time,
    )
