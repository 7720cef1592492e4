"""The last state of any saved result as measures, whatever kind of run it was."""

from __future__ import annotations

import json
from dataclasses import dataclass

from meanfield.errors import FileError
from meanfield.measures import Measure
from meanfield.model.attention import SelfAttention
from meanfield.model.heads import MultiHead
from meanfield.results.dataset import open_run, restore_model, stored_verb, written_frames
from meanfield.results.files import reason
from meanfield.results.particle_dataset import VERBS, particle_evolution
from meanfield.results.ugrid import READ_ERRORS, TOPOLOGY, open_netcdf, restore_mesh
from meanfield.results.variables import stored_points
from meanfield.sphere.spaces import Space

EXTREMA = {"minimize": -1, "maximize": 1}  # the sign of the flow that goes there
KINDS = ("evolve", "evolve_characteristics", *VERBS, *EXTREMA)


@dataclass(frozen=True, eq=False)
class EndState:
    """The last state of a saved result.

    Attributes
    ----------
    verb : str
        What was run.
    model : SelfAttention or MultiHead
        For extrema: the flow towards them.
    measures : tuple of Measure
        One, or as many as an ensemble has starts. On a mesh or quadrature rule with its space.
    time : float or None
        None for extrema.
    """

    verb: str
    model: SelfAttention | MultiHead
    measures: tuple[Measure, ...]
    time: float | None


def end_state(path) -> EndState:
    """Read the last state of a saved result; of a run that was stopped, the last frame.

    Parameters
    ----------
    path : path-like
        A file of `evolve`, `evolve_characteristics`, `evolve_particles`, `transformer`,
        `minimize` or `maximize`.

    Returns
    -------
    EndState

    Raises
    ------
    FileError
        If the file is missing, damaged, or of another kind.

    Examples
    --------
    >>> import tempfile, meanfield as mf
    >>> found = mf.minimize(mf.circle(16), mf.Interaction([1.0, 2.0]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found.save(f"{folder}/min.nc")
    ...     end = end_state(f"{folder}/min.nc")
    >>> end.verb, end.model.sign, end.measures
    ('minimize', -1, (Measure(16 points in R^2),))
    """
    with open_netcdf(path) as dataset:
        verb = stored_verb(dataset)
        if verb not in KINDS:
            raise FileError(f"{path} holds no run or extremum saved by meanfield")
        if verb == "evolve":
            run = open_run(path, partial=True)
            return EndState(verb, run.model, (run.final,), float(run.times[-1]))
        try:
            if verb in VERBS:
                return _particles(
                    verb, particle_evolution(written_frames(dataset, path, True).load())
                )
            return _on_points(verb, dataset)
        except FileError:
            raise
        except READ_ERRORS as error:
            raise FileError(f"{path} is damaged: {reason(error)}") from error


def _particles(verb: str, run) -> EndState:
    last = run.points[-1]
    starts = last if run.starts is not None else last[None]
    measures = tuple(Measure(points, run.weights) for points in starts)
    return EndState(verb, run.model, measures, float(run.times[-1]))


def _on_points(verb: str, dataset) -> EndState:
    """Of a run along characteristics, whose nodes move, or of an extremum on fixed points."""
    parameters = json.loads(dataset.attrs["parameters"])
    moved = verb == "evolve_characteristics"
    points = stored_points(dataset)
    if moved:
        model = restore_model(parameters)
        measure = Measure(points[-1], dataset["weight"].values)
        return EndState(verb, model, (measure,), float(dataset["time"].values[-1]))
    if TOPOLOGY in dataset:
        space = restore_mesh(dataset, parameters["mesh"])
    else:
        space = Space(points, dataset["quadrature_weight"].values, name=parameters["mesh"])
    measure = Measure(space.points, dataset["mass"].values, space)
    return EndState(verb, SelfAttention(parameters["D"], EXTREMA[verb]), (measure,), None)
