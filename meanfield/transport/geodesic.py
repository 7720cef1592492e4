"""The result of `mobility_distance`."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from meanfield.measures import Measure
from meanfield.result import Result
from meanfield.sphere.meshes import Mesh


@dataclass(frozen=True, eq=False)
class Geodesic(Result):
    """A shortest curve between two measures for the distance W_m, and its length.

    Attributes
    ----------
    kind : {"cloud", "mesh"}
        Particles that move, or masses of the cells of a mesh.
    distance : float
        W_m, as far as the discretisation knows it: for clouds the length of the curve that was
        found, an upper bound.
    times : ndarray, shape (T + 1,)
        From 0 to 1.
    points : ndarray, shape (T + 1, m, n) for clouds, (m, n) for a mesh
        Unit vectors; particles move along the arcs between their places at ``times``.
    masses : ndarray, shape (m,) for clouds, (T + 1, m) for a mesh
        Nonnegative, with sum one.
    velocities : ndarray, shape (T, m, n)
        Of the particles, or at the centres of the cells, in the middle of each interval.
    speed : ndarray, shape (T,)
        ``(int Z |v|^2 dmu)^(1/2)`` in each interval; constant along a geodesic (eq. (A.9)).
    lower, upper : float
        ``sqrt(C) W_2 <= W_m <= sqrt(C~) W_2`` for ``C <= K <= C~`` (Theorem 2.3, corrected).
        NaN until `mobility_distance` has filled them in.
    converged : bool
    residual : float
        How far from stationary, relative; what it measures is in the notes of the method.
    mesh : Mesh or None
    parameters : dict
        What rebuilds the result.

    References
    ----------
    Burger, Kabri, Korolev, Roith, Weigand (2025), eq. (2.3), Theorem 2.3, Corollary 2.5.
    """

    kind: str
    distance: float
    times: np.ndarray
    points: np.ndarray
    masses: np.ndarray
    velocities: np.ndarray
    speed: np.ndarray
    converged: bool
    residual: float
    lower: float = np.nan
    upper: float = np.nan
    mesh: Mesh | None = None
    parameters: dict = field(default_factory=dict)

    @property
    def speed_variation(self) -> float:
        """``max |speed - mean| / mean``; zero along an exact geodesic, and for distance zero."""
        mean = float(self.speed.mean())
        return float(np.abs(self.speed - mean).max() / mean) if mean > 0 else 0.0

    def at(self, frame: int) -> Measure:
        """The measure at ``times[frame]``."""
        if self.kind == "mesh":
            return Measure(self.points, self.masses[frame], self.mesh)
        return Measure(self.points[frame], self.masses)

    def to_dataset(self):
        """The geodesic as an xarray dataset."""
        from meanfield.results.geodesic_dataset import geodesic_dataset

        return geodesic_dataset(self)

    def __repr__(self) -> str:
        state = "converged" if self.converged else "NOT CONVERGED"
        where = self.mesh.name if self.kind == "mesh" else f"{len(self.masses)} particles"
        return (
            f"Geodesic of {where}, {len(self.speed)} intervals: W_m = {self.distance:.10g} in "
            f"[{self.lower:.6g}, {self.upper:.6g}], {state}, residual {self.residual:.1e}, "
            f"speed constant to {self.speed_variation:.1e}"
        )
