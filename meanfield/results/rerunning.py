"""Saved results, computed again from what their files say."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr

from meanfield.dynamics.characteristics import evolve_characteristics
from meanfield.dynamics.evolution import collect, initial_masses
from meanfield.dynamics.finite_volume import frames
from meanfield.dynamics.particle_evolution import ParticleEvolution
from meanfield.dynamics.particle_starts import random_points
from meanfield.dynamics.particles import prepare_flow, prepare_layers
from meanfield.equilibria.mirror_descent import prepare
from meanfield.errors import FileError
from meanfield.model.densities import Mixture, Uniform, VonMisesFisher, from_points
from meanfield.model.interaction import Interaction
from meanfield.results.dataset import restore_model, restore_setting, stored_verb, written_frames
from meanfield.results.files import reason
from meanfield.results.particle_dataset import VERBS, particle_evolution
from meanfield.results.points import read_points
from meanfield.results.provenance import environment, installed
from meanfield.results.ugrid import READ_ERRORS, TOPOLOGY, open_netcdf, restore_mesh
from meanfield.sphere.meshes import circle
from meanfield.sphere.spaces import Space, lebedev

ROUND_OFF = 1e-9  # relative to the size of a variable, and at least to one: steps add it up


@dataclass(frozen=True, eq=False)
class Rerun:
    """What came out when a saved result was computed again.

    Attributes
    ----------
    path : Path
        The file.
    dataset : xarray.Dataset
        The new result.
    differences : dict of str to float
        Largest difference of every variable; infinite where shapes differ.
    scales : dict of str to float
        Largest size of every variable.
    versions : tuple of str
        What differs between the program then and now.
    """

    path: Path
    dataset: xr.Dataset
    differences: dict[str, float]
    scales: dict[str, float]
    versions: tuple[str, ...]

    @property
    def identical(self) -> bool:
        """Whether every number is the same, bit for bit."""
        return not any(self.differences.values())

    @property
    def agrees(self) -> bool:
        """Whether all differences are round-off."""
        return all(
            difference <= ROUND_OFF * max(1.0, self.scales[name])
            for name, difference in self.differences.items()
        )

    def __str__(self) -> str:
        if self.identical:
            words = f"identical, {len(self.differences)} variables bit for bit"
        else:
            words = "the same up to round-off" if self.agrees else "DIFFERENT"
        lines = [f"{self.path}: {words}"]
        for name, difference in self.differences.items():
            if difference:
                lines.append(f"  {name}: largest difference {difference:.3g}")
        return "\n".join([*lines, *(f"  {version}" for version in self.versions)])


def rerun(path) -> Rerun:
    """Compute a saved result again, from the parameters and the first frame in its file.

    Parameters
    ----------
    path : path-like
        A result of `evolve`, `evolve_characteristics`, `evolve_particles`, `transformer`,
        `minimize` or `maximize`.

    Returns
    -------
    Rerun
        On the same machine, with the same versions, bit for bit the same.

    Raises
    ------
    FileError
        If the file holds no such result, is incomplete, or does not say what it started from.

    Examples
    --------
    >>> import meanfield as mf
    >>> from tempfile import TemporaryDirectory
    >>> model = mf.SelfAttention([1.0, 2.0], sign=-1)
    >>> run = mf.evolve(mf.circle(16), model, mf.von_mises_fisher([1, 1], 2.0), t_end=0.1, save=3)
    >>> with TemporaryDirectory() as folder:
    ...     run.save(f"{folder}/run.nc")
    ...     rerun(f"{folder}/run.nc").identical
    True
    """
    with open_netcdf(path) as stored:
        verb = stored_verb(stored)
        again = AGAIN.get(verb)
        if again is None:
            what = "is no result of meanfield" if verb is None else f"holds a result of {verb}"
            raise FileError(f"{path} {what}: only {', '.join(AGAIN)} can be computed again")
        try:
            if "time" in stored.dims:
                written_frames(stored, path, partial=False)
            stored.load()
            new = again(stored, json.loads(stored.attrs["parameters"])).to_dataset()
            versions = tuple(_versions(stored))
        except READ_ERRORS as error:
            if isinstance(error, FileError):
                raise
            raise FileError(f"{path} cannot be computed again: {reason(error)}") from error
        names = sorted(set(stored.variables) | set(new.variables), key=str)
        found = {str(name): _difference(stored, new, name) for name in names}
        scales = {name: _size(stored, name) for name in found}
    return Rerun(Path(path), new, found, scales, versions)


def _difference(stored: xr.Dataset, new: xr.Dataset, name) -> float:
    """Largest difference; NaN agrees with NaN."""
    if name not in stored or name not in new or stored[name].shape != new[name].shape:
        return np.inf
    a, b = (np.atleast_1d(dataset[name].values) for dataset in (stored, new))
    if a.dtype.kind not in "fiub" or a.size == 0:
        return 0.0 if np.array_equal(a, b) else np.inf
    with np.errstate(invalid="ignore"):
        distance = np.abs(a.astype(float) - b.astype(float))
    distance[(a == b) | (np.isnan(a) & np.isnan(b))] = 0.0
    return float(np.nan_to_num(distance, nan=np.inf).max())


def _size(stored: xr.Dataset, name: str) -> float:
    if name not in stored or stored[name].dtype.kind not in "fiub":
        return 1.0
    values = np.abs(stored[name].values.astype(float))
    return float(np.max(values, where=np.isfinite(values), initial=0.0))


def _versions(stored: xr.Dataset) -> list[str]:
    """What differs in the surroundings of the run."""
    here, there = environment(), json.loads(stored.attrs["environment"])
    now = {"meanfield": installed("meanfield"), "python": here["python"], **here["packages"]}
    then = {"python": there["python"], **there["packages"]}
    then["meanfield"] = stored.attrs["source"].removeprefix("meanfield ")
    now |= {"platform": here["platform"], "git": here["git"]}
    then |= {"platform": there["platform"], "git": there["git"]}
    return [
        f"{name}: {then[name]} then, {now[name]} now"
        for name in then
        if name in now and then[name] != now[name]
    ]


# One function a verb ------------------------------------------------------------------------------


def _evolution(stored: xr.Dataset, parameters: dict):
    mesh, model, _ = restore_setting(stored)
    if stored["time"].values[0] == 0:
        masses = stored["mass"].values[0]
    else:
        masses, _ = initial_masses(mesh, density_of(parameters["density"]))
    times = stored["time"].values
    steps = frames(mesh, model, masses, times, parameters["order"], parameters["cfl"])
    return collect(list(steps), mesh, model, parameters)


def _characteristics(stored: xr.Dataset, parameters: dict):
    density = parameters["density"]
    start = stored["weight"].values if density["kind"] == "masses" else density_of(density)
    options = {name: parameters[name] for name in ("rtol", "atol")}
    return evolve_characteristics(
        _space(stored, parameters["mesh"]),
        restore_model(parameters),
        start,
        parameters["t_end"],
        parameters["save"],
        **options,
    )


def _particles(stored: xr.Dataset, parameters: dict) -> ParticleEvolution:
    run = particle_evolution(stored)
    start = parameters.get("start", {})
    if run.times[0] == 0:
        points = run.points[0]
    elif start.get("kind") == "random":
        n = run.points.shape[-1]
        points = random_points(start["count"], n, start["seed"], start["starts"])
    else:
        raise FileError("the file has no frame at t = 0, and does not say how the points began")
    if parameters["verb"] == "transformer":
        options = {name: parameters[name] for name in ("layers", "step", "save")}
        again = prepare_layers(points, run.model, **options)
    else:
        names = ("t_end", "save", "method", "step", "tolerance", "stationary")
        options = {name: parameters[name] for name in names}
        again = prepare_flow(points, run.model, **options)
    # Exactly what is stored: checking would normalise once more.
    exact = {"points": points, "weights": run.weights, "parameters": parameters}
    return dataclasses.replace(again, **exact).compute(progress=False)


def _extremum(stored: xr.Dataset, parameters: dict):
    names = ("method", "tolerance", "max_iterations", "step")
    return prepare(
        _space(stored, parameters["mesh"]),
        Interaction(parameters["D"]),
        density_of(parameters["start"]),
        sign=1 if parameters["verb"] == "minimize" else -1,
        **{name: parameters[name] for name in names},
    ).compute()


AGAIN: dict[str, Callable] = {
    "evolve": _evolution,
    "evolve_characteristics": _characteristics,
    **dict.fromkeys(VERBS, _particles),
    "minimize": _extremum,
    "maximize": _extremum,
}


def _space(stored: xr.Dataset, name: str) -> Space:
    """The space of a result: the mesh in the file, or the points in it."""
    if TOPOLOGY in stored:
        return restore_mesh(stored, name)
    kind, _, number = name.partition(":")
    if kind == "lebedev":
        return lebedev(int(number))
    if kind == "circle":
        return circle(int(number))
    raise FileError(f"the space {name} cannot be rebuilt from its name")


@dataclass(frozen=True)
class RandomDensity:
    """Independent exponential values: uniformly random masses where weights are equal.

    Examples
    --------
    >>> RandomDensity(1)(np.eye(3)).shape
    (3,)
    """

    seed: int

    def __call__(self, x) -> np.ndarray:
        return np.random.default_rng(self.seed).exponential(size=len(x))

    def parameters(self) -> dict:
        return {"kind": "random", "seed": self.seed}


def density_of(described: dict):
    """A density from its own parameters.

    Parameters
    ----------
    described : dict
        What ``density.parameters()`` gave.

    Raises
    ------
    FileError
        If it does not describe a density: masses and functions are not stored, and of points
        only the name of their file is.

    Examples
    --------
    >>> from meanfield.model.densities import von_mises_fisher
    >>> density = von_mises_fisher([1.0, 2.0], 3.0)
    >>> bool((density_of(density.parameters()).mean == density.mean).all())
    True
    """
    kind = described.get("kind")
    if kind == "uniform":
        return Uniform()
    if kind == "vmf":
        return VonMisesFisher(np.array(described["mean"]), described["concentration"])
    if kind == "mixture":
        parts = tuple(density_of(part) for part in described["parts"])
        return Mixture(parts, np.array(described["weights"]))
    if kind == "random":
        return RandomDensity(described["seed"])
    if kind == "points" and described.get("source"):
        points = read_points(described["source"])
        if len(points) == described["count"]:
            return from_points(points, described["concentration"], described["source"])
    raise FileError(f"it started from {kind!r}, which the file does not hold")
