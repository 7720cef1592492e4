"""Particle runs and transformers as datasets, and back."""

from __future__ import annotations

import json

import xarray as xr

from meanfield.dynamics.particle_evolution import ParticleEvolution
from meanfield.errors import FileError
from meanfield.results.dataset import restore_model
from meanfield.results.provenance import attributes
from meanfield.results.variables import positions, series, stored_points, time_axis

VERBS = ("evolve_particles", "transformer")


def particle_dataset(run: ParticleEvolution) -> xr.Dataset:
    """A particle run as a dataset.

    Parameters
    ----------
    run : ParticleEvolution

    Returns
    -------
    xarray.Dataset
        Dimensions ``time`` and ``point``, and ``start`` between them for an ensemble. The
        positions are ``x``, ``y`` and, on S^2, ``z``; in R^n, n > 3, one variable ``position``
        with the dimension ``component``. Further ``weight`` (point), ``energy`` and
        ``log_energy`` (time, for ensembles also start), and ``stopped``, NaN for a start that
        did not become stationary. The attribute ``parameters`` is a JSON string that rebuilds
        the run from its first frame.

    Examples
    --------
    >>> from meanfield.dynamics.particles import evolve_particles
    >>> from meanfield.model.attention import SelfAttention
    >>> model = SelfAttention([1.0, 2.0])
    >>> run = evolve_particles([[1.0, 0.0], [0.6, 0.8]], model, t_end=0.1, save=3)
    >>> dict(particle_dataset(run).sizes)
    {'time': 3, 'point': 2}
    """
    each = ("time",) if run.starts is None else ("time", "start")
    data = {
        **positions(run.points, (*each, "point"), "particles"),
        "weight": series(run.weights, ("point",), "weight of the particle"),
        "energy": series(run.energy, each, "energy, sum_ij a_i a_j exp(x_i.Dx_j)"),
        "log_energy": series(run.log_energy, each, "logarithm of the energy"),
        "stopped": series(run.stopped, each[1:], "time at which the start became stationary"),
    }
    return xr.Dataset(data, {"time": time_axis(run.times)}, attributes(_title(run), run.parameters))


def particle_evolution(dataset: xr.Dataset) -> ParticleEvolution:
    """A particle run back from its dataset, bit for bit.

    Parameters
    ----------
    dataset : xarray.Dataset
        As `particle_dataset` gives it, possibly saved and read again.

    Returns
    -------
    ParticleEvolution

    Raises
    ------
    FileError
        If the dataset is no particle run of this package.

    Examples
    --------
    >>> from meanfield.dynamics.particles import transformer
    >>> from meanfield.model.attention import SelfAttention
    >>> run = transformer([[1.0, 0.0], [0.6, 0.8]], SelfAttention([1.0, 2.0]), layers=2)
    >>> bool((particle_evolution(run.to_dataset()).points == run.points).all())
    True
    """
    try:
        parameters = json.loads(dataset.attrs["parameters"])
        if parameters["verb"] not in VERBS:
            raise FileError(f"the dataset holds the result of {parameters['verb']}, no particles")
        return ParticleEvolution(
            times=dataset["time"].values,
            points=stored_points(dataset),
            weights=dataset["weight"].values,
            model=restore_model(parameters),
            stopped=dataset["stopped"].values[()],
            parameters=parameters,
        )
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise FileError(f"the dataset is no particle run saved by meanfield: {error}") from error


def _title(run: ParticleEvolution) -> str:
    count, n = run.points.shape[-2:]
    starts = "" if run.starts is None else f"{run.starts} starts of "
    return f"Self-attention dynamics of {starts}{count} particles on S^{n - 1}"
