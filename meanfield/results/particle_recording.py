"""Frames of particles to disk as they come."""

from __future__ import annotations

import numpy as np

from meanfield.dynamics.particles import ParticleFrame, ParticleRun
from meanfield.results.particle_dataset import particle_dataset
from meanfield.results.recording import FrameFile
from meanfield.results.variables import positions


class ParticleRecorder(FrameFile):
    """Writes the frames of a run of particles while it is computed; see `FrameFile`.

    Parameters
    ----------
    path : path-like
        The final file.
    run : ParticleRun
    overwrite, resume : bool
        As for `FrameFile`.

    Examples
    --------
    >>> import meanfield as mf
    >>> from meanfield.dynamics.particles import prepare_layers
    >>> from tempfile import TemporaryDirectory
    >>> run = prepare_layers([[1.0, 0.0], [0.6, 0.8]], mf.SelfAttention([1.0, 2.0]), layers=2)
    >>> with TemporaryDirectory() as folder:
    ...     with ParticleRecorder(f"{folder}/run.nc", run) as recorder:
    ...         for frame in run.frames():
    ...             recorder.append(frame)
    ...     mf.open_run(f"{folder}/run.nc").times.tolist()
    [0.0, 1.0, 2.0]
    """

    def __init__(self, path, run: ParticleRun, overwrite: bool = False, resume: bool = False):
        self.run = run
        points = run.points if run.points.ndim == 3 else run.points[None]
        first = run.evolution(np.zeros(1), points[None], np.full(len(points), np.nan))
        head = particle_dataset(first).isel(time=slice(0))
        super().__init__(path, head, len(run.plan.intervals), overwrite, resume)

    def append(self, frame: ParticleFrame) -> None:
        """Write one frame; instants between save times are left out.

        Raises
        ------
        FileError
            If there is no room, or writing fails.
        """
        if not frame.saved:
            return
        evolution = self.run.evolution(np.array([frame.time]), frame.points[None], frame.stopped)
        row = ("point",) if evolution.starts is None else ("start", "point")
        places = positions(evolution.points[0], row, "particles")
        values = {name: variable.values for name, variable in places.items()}
        values |= {"energy": evolution.energy[0], "log_energy": evolution.log_energy[0]}
        self.put(frame.time, values | {"stopped": evolution.stopped})
