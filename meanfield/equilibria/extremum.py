"""The result of `minimize` and `maximize`."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from meanfield.measures import Measure
from meanfield.model.interaction import Interaction
from meanfield.result import Result
from meanfield.sphere.spaces import Space


@dataclass(frozen=True, eq=False)
class Extremum(Result):
    """What `minimize` or `maximize` found.

    Attributes
    ----------
    masses : ndarray, shape (m,)
        At the points of the space; >= 0, they sum to one.
    log_energy : float
        Logarithm of ``E = int int exp(x.Dy) dmu dmu``.
    residual : float
        How far from stationary, relative to the energy: ``2 (1 - min Z/E)`` over all nodes for
        a minimum, ``2 (max Z/E - 1)`` for a maximum. Its round-off is about 1e-14 times the
        largest Z/E.
    converged : bool
        Whether the residual is at most the tolerance. Where D is positive semidefinite this
        proves a minimum; elsewhere, and for maxima, it says that no small shift of mass between
        nodes helps, which a local extremum or a saddle satisfies too.
    resolved_degree : int or None
        Harmonics up to this degree are determined by the energy in double precision; finer
        detail of the density is that of the start. None without a polish: nothing is claimed.
    certified : bool
        Whether ``energy - gap`` is a lower bound of the energy of all masses on these points.
    history : dict of str to ndarray, shape (k,)
        ``applications`` (of the kernel, so far), ``log_energy``, ``energy``, ``gap``
        (the residual times the energy).
    space : Space
    interaction : Interaction
    parameters : dict
        What rebuilds the result.
    """

    masses: np.ndarray
    log_energy: float
    residual: float
    converged: bool
    resolved_degree: int | None
    certified: bool
    history: dict[str, np.ndarray]
    space: Space
    interaction: Interaction
    parameters: dict = field(default_factory=dict)

    @property
    def energy(self) -> float:
        """The energy; infinite beyond the range of float64."""
        with np.errstate(over="ignore"):
            return float(np.exp(self.log_energy))

    @property
    def gap(self) -> float | None:
        """``2 (E - min Z)``, which bounds E minus its minimum over the nodes; None if not known.

        Known for minima and positive semidefinite D, where the energy is convex.
        """
        if not self.certified:
            return None
        # Log domain: the energy may be infinite, and a zero residual stays zero.
        with np.errstate(over="ignore", divide="ignore"):
            return float(np.exp(self.log_energy + np.log(self.residual)))

    @property
    def applications(self) -> int:
        """How often the kernel was applied; a Newton step of the polish counts as one."""
        return int(self.history["applications"][-1])

    @property
    def density(self) -> np.ndarray:
        """Relative to the uniform probability measure, at the points: shape (m,)."""
        return self.masses / self.space.weights

    @property
    def final(self) -> Measure:
        """The measure."""
        return Measure(self.space.points, self.masses, self.space)

    def to_dataset(self):
        """The result as an xarray dataset."""
        from meanfield.results.extremum_dataset import extremum_dataset

        return extremum_dataset(self)

    def __repr__(self) -> str:
        verb = self.parameters.get("verb", "minimize")
        state = "converged" if self.converged else "NOT CONVERGED"
        bound = (
            f"gap {self.gap:.1e}" if self.certified else f"relative residual {self.residual:.1e}"
        )
        degree = "" if self.resolved_degree is None else f", degree {self.resolved_degree} resolved"
        energy = (
            f"E = {self.energy:.15g}"
            if self.log_energy < 700
            else f"log E = {self.log_energy:.15g}"
        )
        return (
            f"Extremum ({verb}) on {self.space.name}: {energy}, {bound}, {state} after "
            f"{self.applications} kernel applications{degree}"
        )
