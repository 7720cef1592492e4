"""`evolve`: a density in, its evolution out."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass, field

import numpy as np

from meanfield.dynamics.finite_volume import MAX_CFL, frames
from meanfield.dynamics.timestepping import Frame, save_times, watched
from meanfield.errors import DensityError, InputError, PointsError, StiffnessError
from meanfield.measures import Measure, probability_vector
from meanfield.model.attention import SelfAttention
from meanfield.result import Result
from meanfield.sphere.meshes import Mesh
from meanfield.sphere.quadrature import cell_averages

MAX_SPEED = 1e12  # beyond it explicit steps make no progress in double precision
CONCENTRATED = {2: 5, 3: 20}  # a cluster on fewer cells than this has shrunk to the grid


class UnresolvedWarning(UserWarning):
    """The solution has features as small as the cells."""


@dataclass(frozen=True, eq=False)
class Evolution(Result):
    """The result of `evolve`.

    Attributes
    ----------
    times : ndarray, shape (t,)
    masses : ndarray, shape (t, cells)
        Each row is nonnegative and sums to one.
    mesh : Mesh
    model : SelfAttention
    audit : dict of str to ndarray, shape (t,)
        ``mass_error``; ``log_energy``; ``energy``; ``dissipation``; ``residual`` and
        ``residual_independent``: log E minus what the fluxes, respectively the integral
        ``int Z |v|^2 dmu``, add up to (the first is pure time error); ``cfl``: the largest CFL
        number so far; ``min_density``; ``cells_99``: the number of cells that hold 99 % of
        the mass; ``steps``. NaN where the model has no energy or is no gradient flow.
    parameters : dict
        What rebuilds the run, as far as it is known.
    state : ndarray, shape (t, 2), or None
        Accumulated integrals of the audit: with them a run can be continued.
    """

    times: np.ndarray
    masses: np.ndarray
    mesh: Mesh
    model: SelfAttention
    audit: dict[str, np.ndarray]
    parameters: dict = field(default_factory=dict)
    state: np.ndarray | None = None

    @property
    def energy(self) -> np.ndarray:
        """``E = int int exp(x.Dy) dmu dmu`` at the saved times, shape (t,)."""
        return self.audit["energy"]

    @property
    def dissipation(self) -> np.ndarray:
        """``int Z |v|^2 dmu >= 0``, shape (t,): dE/dt is ``2 sign`` times that."""
        return self.audit["dissipation"]

    @property
    def density(self) -> np.ndarray:
        """Densities relative to the uniform probability measure, shape (t, cells)."""
        return self.masses / self.mesh.weights

    @property
    def final(self) -> Measure:
        """The last state as a `Measure`."""
        return Measure(self.mesh.points, self.masses[-1], self.mesh)

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """First and second moments, shapes (t, n) and (t, n, n)."""
        x = self.mesh.centroids
        first = self.masses @ x
        second = np.einsum("tc,ca,cb->tab", self.masses, x, x, optimize=True)
        return first, second

    def to_dataset(self):
        """The run as an xarray dataset, UGRID 1.0 on S^1 and S^2."""
        from meanfield.results.dataset import evolution_dataset

        return evolution_dataset(self)

    def __repr__(self) -> str:
        energy = self.audit["log_energy"]
        return (
            f"Evolution of {self.model}\n"
            f"  on {self.mesh}\n"
            f"  t = {self.times[0]:g} ... {self.times[-1]:g} in {len(self.times)} frames, "
            f"{int(self.audit['steps'][-1])} steps\n"
            f"  log E = {energy[0]:.6g} ... {energy[-1]:.6g}, "
            f"min density {self.audit['min_density'].min():.3g}, "
            f"mass error {np.abs(self.audit['mass_error']).max():.1e}"
        )


def evolve(
    mesh: Mesh,
    model: SelfAttention,
    density,
    t_end: float,
    save=None,
    order: int = 2,
    cfl: float = 0.45,
    progress: bool = False,
) -> Evolution:
    """Solve d_t mu + div(mu v[mu]) = 0 by finite volumes.

    Parameters
    ----------
    mesh : Mesh
        `circle`, `icosphere`, `Mesh.from_cells` or `read_mesh`.
    model : SelfAttention
    density : callable or array_like, shape (cells,)
        A callable x (m, n) to (m,): density relative to the uniform probability measure, which
        is averaged over cells and normalised. An array: masses that sum to one.
    t_end : float, > 0
    save : int or array_like, optional
        Number of frames from 0 to t_end, or the times themselves; 21 frames by default.
    order : {1, 2}
        Piecewise constant densities and forward Euler, or linear densities and SSPRK3.
    cfl : float, in (0, 0.5]
        Largest part of its mass that may leave a cell of constant density in one step.
    progress : bool
        Show a progress bar on a terminal.

    Returns
    -------
    Evolution

    Raises
    ------
    InputError
        For arguments out of range (`DensityError` for the density).
    StiffnessError
        If the unnormalised flow is too fast for time steps.
    NonFiniteError
        If the computation broke down; the message says when.

    References
    ----------
    Burger, Kabri, Korolev, Roith, Weigand (2025), eqs. (1.7) and (2.6), corrected: the sign.

    Examples
    --------
    >>> from meanfield.sphere.meshes import circle
    >>> from meanfield.model.densities import von_mises_fisher
    >>> model = SelfAttention([1.0, 2.0], sign=-1)
    >>> run = evolve(circle(64), model, von_mises_fisher([1, 1], 2.0), t_end=1.0, save=5)
    >>> bool((np.diff(run.energy) < 0).all() and abs(run.masses[-1].sum() - 1) < 1e-14)
    True
    """
    check_arguments(mesh, model, order, cfl)
    times = save_times(t_end, save)
    masses, factor = initial_masses(mesh, density)
    iterator = frames(mesh, model, masses, times, order, cfl, every_step=True)
    iterator = watched(iterator, len(times), times[-1], progress)
    saved = [frame for frame in iterator if frame.saved]
    parameters = run_parameters(mesh, model, density, times, order, cfl, factor, masses)
    message = unresolved(mesh, saved[-1])
    if message:
        warnings.warn(message, UnresolvedWarning, stacklevel=2)
    return collect(saved, mesh, model, parameters)


def collect(saved: list[Frame], mesh, model, parameters: dict) -> Evolution:
    """Frames to an `Evolution`."""
    return Evolution(
        times=np.array([frame.time for frame in saved]),
        masses=np.stack([frame.masses for frame in saved]),
        mesh=mesh,
        model=model,
        audit={key: np.array([f.audit[key] for f in saved]) for key in saved[0].audit},
        parameters=parameters,
        state=np.stack([frame.state for frame in saved]),
    )


def run_parameters(mesh, model, density, times, order, cfl, factor, masses=None) -> dict:
    """What rebuilds a run, in types that JSON knows.

    A density that does not describe itself is known by the checksum of the initial masses.
    """
    describe = getattr(density, "parameters", None)
    if describe is not None:
        density = describe()
    else:
        density = {"kind": "callable" if callable(density) else "masses"}
        if masses is not None:
            density["sha256"] = checksum(masses)
    return {
        "verb": "evolve",
        "mesh": mesh.name,
        "D": model.D.tolist(),
        "V": model.V.tolist(),
        "sign": model.sign,
        "normalized": model.normalized,
        "density": density,
        "normalization_factor": factor,
        "t_end": float(times[-1]),
        "save": np.asarray(times).tolist(),
        "order": order,
        "cfl": cfl,
    }


def checksum(*arrays: np.ndarray) -> str:
    """SHA-256 of float64 arrays: equal exactly for equal numbers.

    Examples
    --------
    >>> checksum(np.zeros(2)) == checksum(np.zeros(1), np.zeros(1))
    True
    """
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array, dtype="<f8").tobytes())
    return digest.hexdigest()


def initial_masses(mesh: Mesh, density) -> tuple[np.ndarray, float]:
    """Cell masses of a density, normalised.

    Parameters
    ----------
    mesh : Mesh
    density : callable or array_like, shape (cells,)
        A callable x (m, n) to (m,) is a density relative to the uniform probability measure;
        an array holds masses and must sum to one.

    Returns
    -------
    masses : ndarray, shape (cells,)
    factor : float
        What the masses were multiplied with to sum to one.

    Raises
    ------
    DensityError
        If a value is negative or not finite, all are zero, or masses do not sum to one.

    Examples
    --------
    >>> from meanfield.sphere.meshes import circle
    >>> masses, factor = initial_masses(circle(4), lambda x: 2 + 0 * x[:, 0])
    >>> masses.tolist(), factor
    ([0.25, 0.25, 0.25, 0.25], 0.5)
    """
    if not callable(density):
        return probability_vector(density, mesh.n_cells), 1.0

    def checked(x):
        values = np.asarray(density(x), dtype=float)
        if values.shape != (len(x),):
            raise DensityError(f"the density must map (m, n) to (m,), it returned {values.shape}")
        if not np.isfinite(values).all():
            raise DensityError("the density is NaN or infinite somewhere")
        if values.min() < 0:
            raise DensityError(f"the density must be >= 0, it takes the value {values.min():.3g}")
        return values

    masses = cell_averages(mesh, checked) * mesh.weights
    total = masses.sum()
    if not total > 0:
        raise DensityError("the density is zero everywhere on this mesh (too narrow for it?)")
    return masses / total, float(1 / total)


def check_arguments(mesh: Mesh, model: SelfAttention, order, cfl) -> None:
    """Raise a named error for what `evolve` cannot run.

    Raises
    ------
    InputError, PointsError, StiffnessError
    """
    if not isinstance(mesh, Mesh):
        raise InputError(
            f"evolve needs a Mesh (circle, icosphere, ...), got {type(mesh).__name__}; "
            "on a Space without cells use evolve_characteristics"
        )
    if mesh.dimension != model.dimension:
        raise PointsError(
            f"D is {model.dimension} x {model.dimension} but the mesh lies in R^{mesh.dimension}"
        )
    if order not in (1, 2):
        raise InputError(f"order must be 1 or 2, got {order!r}")
    if not 0 < cfl <= MAX_CFL:
        raise InputError(f"cfl must be in (0, {MAX_CFL}], got {cfl:g}")
    if model.speed_bound > MAX_SPEED:
        raise StiffnessError(
            f"the unnormalised flow may reach the speed ||V|| exp(||D||) = "
            f"{model.value_norm:.3g} exp({model.interaction.norm:.3g}), out of reach for time "
            "steps; use the normalised flow (normalized=True) or a smaller D"
        )


def unresolved(mesh: Mesh, frame: Frame) -> str | None:
    """What to say when the mass sits on so few cells that the mesh no longer resolves it."""
    cells = int(frame.audit["cells_99"])
    if cells >= CONCENTRATED[mesh.dimension]:
        return None
    return f"unresolved: {cells} cells hold 99 % of the mass at t = {frame.time:g}"
