"""The result of `evolve_particles` and `transformer`."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from meanfield.dynamics.particle_clusters import Clusters, find_clusters
from meanfield.dynamics.particle_fields import chunk_size, make_field
from meanfield.errors import InputError
from meanfield.measures import Measure
from meanfield.model.attention import SelfAttention
from meanfield.result import Result


@dataclass(frozen=True, eq=False)
class ParticleEvolution(Result):
    """Particles at the saved times.

    Attributes
    ----------
    times : ndarray, shape (t,)
    points : ndarray, shape (t, N, n), or (t, starts, N, n) for an ensemble
        Unit vectors.
    weights : ndarray, shape (N,)
        Nonnegative, with sum one.
    model : SelfAttention or MultiHead
    stopped : ndarray, shape () or (starts,)
        When a start became stationary (its points stay the same from then on); NaN where it
        did not, or was not asked to stop.
    parameters : dict
        What rebuilds the run from its first frame.
    """

    times: np.ndarray
    points: np.ndarray
    weights: np.ndarray
    model: object
    stopped: np.ndarray
    parameters: dict = field(default_factory=dict)

    @property
    def starts(self) -> int | None:
        """The number of starts of an ensemble, None for a single one."""
        return self.points.shape[1] if self.points.ndim == 4 else None

    @cached_property
    def log_energy(self) -> np.ndarray:
        """Logarithm of `energy`, computed when first asked for."""
        if not isinstance(self.model, SelfAttention):
            return np.full(self.points.shape[:-2], np.nan)
        return log_energies(self.points, self.model, self.weights)

    @property
    def energy(self) -> np.ndarray:
        """``E = sum_ij a_i a_j exp(x_i.Dx_j)``, shape (t,) or (t, starts); NaN for heads."""
        with np.errstate(over="ignore"):
            return np.exp(self.log_energy)

    @property
    def final(self) -> Measure:
        """The last state of a single start as a `Measure`.

        Raises
        ------
        InputError
            For an ensemble.
        """
        if self.starts is not None:
            raise InputError("an ensemble has many final states: choose one, run.start(k).final")
        return Measure(self.points[-1], self.weights)

    def start(self, index: int) -> ParticleEvolution:
        """One start of an ensemble as a run of its own."""
        if self.starts is None:
            raise InputError("this run has a single start only")
        return ParticleEvolution(
            self.times,
            self.points[:, index],
            self.weights,
            self.model,
            self.stopped[index],
            self.parameters,
        )

    def clusters(self, angle: float = 0.05, frame: int = -1) -> Clusters:
        """Clusters of a frame, the last by default: see `find_clusters`."""
        return find_clusters(self.points[frame], self.weights, angle)

    def to_dataset(self):
        """The run as an xarray dataset."""
        from meanfield.results.particle_dataset import particle_dataset

        return particle_dataset(self)

    def __repr__(self) -> str:
        starts = "" if self.starts is None else f"{self.starts} starts of "
        still = np.isfinite(self.stopped).sum()
        rest = f", {still} of {np.size(self.stopped)} stationary" if still else ""
        return (
            f"ParticleEvolution of {self.model}\n"
            f"  {starts}{len(self.weights)} particles in R^{self.points.shape[-1]}\n"
            f"  t = {self.times[0]:g} ... {self.times[-1]:g} in {len(self.times)} frames{rest}"
        )


def log_energies(points: np.ndarray, model: SelfAttention, weights: np.ndarray) -> np.ndarray:
    """Logarithm of ``E = sum_ij a_i a_j exp(x_i.Dx_j)`` of many sets of particles.

    Parameters
    ----------
    points : ndarray, shape (..., N, n)
    model : SelfAttention
    weights : ndarray, shape (N,)

    Returns
    -------
    ndarray, shape (...)

    Examples
    --------
    >>> pair = np.array([[1.0, 0.0], [-1.0, 0.0]])
    >>> energy = np.exp(log_energies(pair, SelfAttention([1.0, 1.0]), np.array([0.5, 0.5])))
    >>> bool(np.isclose(energy, np.cosh(1.0)))
    True
    """
    batch = points.reshape(-1, *points.shape[-2:]).transpose(2, 0, 1)
    size = chunk_size(model, batch.shape[1], len(weights))
    log_z = np.empty(batch.shape[1:])
    for first in range(0, len(log_z), size):
        chunk = np.ascontiguousarray(batch[:, first : first + size])
        log_z[first : first + size] = make_field(model, weights, chunk.shape[1]).log_potential(
            chunk
        )
    shift = log_z.max(axis=1)
    return (shift + np.log(np.exp(log_z - shift[:, None]) @ weights)).reshape(points.shape[:-2])
