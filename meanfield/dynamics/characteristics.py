"""Evolution along characteristics: the nodes of a quadrature move with the flow.

Under ``d_t mu + div(mu v) = 0`` mass moves with the points: with ``x_i' = v(x_i, t)`` the masses
``w_i rho(x_i(0))`` stay, and ``log rho`` along a node changes by minus the divergence of the
velocity. Integrals are sums over the moved nodes: the quadrature of the initial space, applied
to functions of the flow map. They converge spectrally as long as that map is smooth.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

import numpy as np
from scipy.special import logsumexp

from meanfield.dynamics.evolution import MAX_SPEED, UnresolvedWarning
from meanfield.dynamics.node_flow import InitialDensity, NodeFlow, NodeIntegration, volume_error
from meanfield.dynamics.timestepping import save_times, with_progress
from meanfield.errors import InputError, PointsError, StiffnessError
from meanfield.measures import Measure
from meanfield.model.attention import BoundAttention, SelfAttention
from meanfield.model.interaction import BoundInteraction
from meanfield.result import Result
from meanfield.sphere.spaces import Space, as_points

TOLERANCE = 1e-12  # of the time integration; what is left is the error of the quadrature
SMALLEST_RTOL = 3e-14  # below it the error estimates are round-off
UNRESOLVED = 0.1  # volume error that calls for a warning


@dataclass(frozen=True, eq=False)
class CharacteristicEvolution(Result):
    """The result of `evolve_characteristics`.

    Attributes
    ----------
    times : ndarray, shape (t,)
    points : ndarray, shape (t, m, n)
        The moved nodes; unit vectors.
    masses : ndarray, shape (m,)
        What each node carries, at all times; sums to one.
    log_density : ndarray, shape (t, m)
        Along the nodes, relative to the uniform probability measure; -inf where it is zero.
    space : Space
        The nodes at time zero.
    model : SelfAttention
    audit : dict of str to ndarray, shape (t,)
        ``log_energy``; ``energy``; ``dissipation`` (NaN if the model is no gradient flow);
        ``volume_error``: the error of the transported quadrature for the moments up to degree
        two of the uniform measure, an indicator of the resolution that in practice lies above
        the error of the moments of the solution; ``steps``.
    flow : NodeFlow
        What `density_at` and `velocity_at` evaluate.
    parameters : dict
        What rebuilds the run, as far as it is known.
    """

    times: np.ndarray
    points: np.ndarray
    masses: np.ndarray
    log_density: np.ndarray
    space: Space
    model: SelfAttention
    audit: dict[str, np.ndarray]
    flow: NodeFlow
    parameters: dict = field(default_factory=dict)

    @property
    def energy(self) -> np.ndarray:
        """``E = int int exp(x.Dy) dmu dmu`` at the saved times, shape (t,)."""
        return self.audit["energy"]

    @property
    def log_energy(self) -> np.ndarray:
        """Logarithm of the energy, shape (t,); finite whatever the size of D."""
        return self.audit["log_energy"]

    @property
    def dissipation(self) -> np.ndarray:
        """``int Z |v|^2 dmu`` (unnormalised: ``int |v|^2 dmu``): dE/dt over ``2 sign``."""
        return self.audit["dissipation"]

    @property
    def final(self) -> Measure:
        """The last state as a `Measure`."""
        return Measure(self.points[-1], self.masses)

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """First and second moments, shapes (t, n) and (t, n, n)."""
        first = np.einsum("m,tma->ta", self.masses, self.points)
        second = np.einsum("m,tma,tmb->tab", self.masses, self.points, self.points, optimize=True)
        return first, second

    def density_at(self, x, t: float) -> np.ndarray:
        """The density at any points and time, by tracing them back to time zero.

        Parameters
        ----------
        x : Space, Measure, or array_like, shape (k, n)
            Unit vectors.
        t : float, in [0, t_end]

        Returns
        -------
        ndarray, shape (k,)
            Relative to the uniform probability measure.

        Raises
        ------
        InputError, PointsError
            If t is out of range, or x does not consist of unit vectors of R^n.
        DensityError
            If the run started from masses instead of a density.
        """
        return np.exp(self.log_density_at(x, t))

    def log_density_at(self, x, t: float) -> np.ndarray:
        """Logarithm of `density_at`, shape (k, n) to (k,)."""
        return self.flow.log_density(*self._where(x, t))

    def velocity_at(self, x, t: float) -> np.ndarray:
        """The velocity at any points and time: shape (k, n) to (k, n), tangential."""
        return self.flow.velocity(*self._where(x, t))

    def _where(self, x, t) -> tuple[np.ndarray, float]:
        x = as_points(x)
        if x.shape[1] != self.space.dimension:
            raise PointsError(f"the points must lie in R^{self.space.dimension}, got {x.shape}")
        if np.ndim(t) != 0 or not 0 <= t <= self.flow.solution.t_max:
            raise InputError(f"t must be one time in [0, {self.flow.solution.t_max:g}], got {t!r}")
        return x, float(t)

    def to_dataset(self):
        """The run as an xarray dataset with the dimensions ``time`` and ``point``."""
        from meanfield.results.point_dataset import characteristics_dataset

        return characteristics_dataset(self)

    def __repr__(self) -> str:
        return (
            f"CharacteristicEvolution of {self.model}\n"
            f"  on {self.space}\n"
            f"  t = {self.times[0]:g} ... {self.times[-1]:g} in {len(self.times)} frames, "
            f"{int(self.audit['steps'][-1])} steps\n"
            f"  log E = {self.log_energy[0]:.6g} ... {self.log_energy[-1]:.6g}, "
            f"volume error {self.audit['volume_error'].max():.1e}"
        )


def evolve_characteristics(
    space: Space,
    model: SelfAttention,
    density,
    t_end: float,
    save=None,
    rtol: float = TOLERANCE,
    atol: float = TOLERANCE,
    progress: bool = False,
) -> CharacteristicEvolution:
    """Solve d_t mu + div(mu v[mu]) = 0 by moving the nodes of a space with the flow.

    Parameters
    ----------
    space : Space
        `lebedev`, `circle`, `product_sphere`, or any other; S^{n-1} for any n >= 2.
    model : SelfAttention
    density : callable or array_like, shape (m,)
        A callable x (m, n) to (m,): density relative to the uniform probability measure, smooth
        for spectral accuracy; it is normalised on the nodes. Its ``log`` is used if it has one.
        An array: masses that sum to one; then there is no density between the nodes.
    t_end : float, > 0
    save : int or array_like, optional
        Number of frames from 0 to t_end, or the times themselves; 21 frames by default.
    rtol, atol : float, optional
        Tolerances of the time integration, 1e-12 by default; rtol in [3e-14, 0.1].
    progress : bool
        Show a progress bar on a terminal.

    Returns
    -------
    CharacteristicEvolution

    Raises
    ------
    InputError
        For arguments out of range (`DensityError` for the density, `PointsError` for a model
        of another dimension).
    StiffnessError
        If the flow is too fast for explicit time steps.

    Warns
    -----
    UnresolvedWarning
        If the nodes no longer resolve the flow map at the end.

    Notes
    -----
    Dormand and Prince's method of order 8 with its interpolant of order 7 for the times in
    between; a step costs 15 evaluations of m^2 exponentials and keeps 64 m (n + 1) bytes.

    References
    ----------
    Burger, Kabri, Korolev, Roith, Weigand (2025), eq. (1.7). E. Hairer, S. P. Norsett,
    G. Wanner (1993), Solving Ordinary Differential Equations I, Section II.5 and II.10.

    Examples
    --------
    >>> from meanfield.sphere.meshes import circle
    >>> from meanfield.model.densities import von_mises_fisher
    >>> model = SelfAttention([0.5, 2.0], sign=-1)
    >>> density = von_mises_fisher([0.3, -0.5], 2.0)
    >>> coarse, fine = (
    ...     evolve_characteristics(circle(m), model, density, 0.5, save=3) for m in (64, 128)
    ... )
    >>> bool(np.abs(coarse.moments()[0] - fine.moments()[0]).max() < 1e-12)
    True
    """
    check_arguments(space, model, rtol, atol)
    times = save_times(t_end, save)
    start = InitialDensity.on(space, density)
    run = NodeIntegration(model, space, start, float(t_end), rtol, atol)
    states, steps = zip(*with_progress(run.states(times), len(times), progress), strict=True)
    points, change = (np.stack(part) for part in zip(*states, strict=True))
    audit = collect_audit(space, model, start.masses, points, change)
    audit["steps"] = np.array(steps, dtype=float)
    if audit["volume_error"][-1] > UNRESOLVED:
        warnings.warn(
            f"unresolved: at t = {times[-1]:g} the moved nodes integrate the uniform measure with "
            f"the error {audit['volume_error'][-1]:.2g}; use a finer space or a shorter time",
            UnresolvedWarning,
            stacklevel=2,
        )
    return CharacteristicEvolution(
        times=times,
        points=points,
        masses=start.masses,
        log_density=start.log_values + change,
        space=space,
        model=model,
        audit=audit,
        flow=run.flow(),
        parameters=run_parameters(space, model, density, times, t_end, rtol, atol, start),
    )


def check_arguments(space, model: SelfAttention, rtol, atol) -> None:
    """Raise a named error for what `evolve_characteristics` cannot run.

    Raises
    ------
    InputError, PointsError, StiffnessError
    """
    if not isinstance(space, Space):
        raise InputError(
            f"evolve_characteristics needs a Space (lebedev, circle, ...), got "
            f"{type(space).__name__}; points without weights are particles: evolve_particles"
        )
    if space.dimension != model.dimension:
        raise PointsError(
            f"D is {model.dimension} x {model.dimension} but the space lies in R^{space.dimension}"
        )
    if not (SMALLEST_RTOL <= rtol <= 0.1 and 0 < atol < np.inf):
        raise InputError(
            f"rtol must be in [{SMALLEST_RTOL:g}, 0.1] and atol positive, got {rtol:g}, {atol:g}"
        )
    if model.speed_bound > MAX_SPEED:
        raise StiffnessError(
            f"the unnormalised flow may reach the speed ||V|| exp(||D||) = "
            f"{model.value_norm:.3g} exp({model.interaction.norm:.3g}), out of reach for time "
            "steps; use the normalised flow (normalized=True) or a smaller D"
        )


def collect_audit(space, model, masses, points, change) -> dict[str, np.ndarray]:
    """Energies, dissipation and the error of the transported quadrature at the saved times.

    Parameters
    ----------
    space : Space
    model : SelfAttention
    masses : ndarray, shape (m,)
    points : ndarray, shape (t, m, n)
    change : ndarray, shape (t, m)
        Of the log density since time zero.

    Returns
    -------
    dict of str to ndarray, shape (t,)
    """
    rows = []
    for nodes, growth in zip(points, change, strict=True):
        bound = BoundInteraction(model.interaction, nodes, method="direct")
        log_z = bound.log_potential(masses)
        transported = space.weights * np.exp(-growth)
        rows.append(
            (
                bound.log_mean(masses, log_z),
                _log_dissipation(BoundAttention(model, bound), masses, log_z),
                volume_error(nodes, transported),
            )
        )
    log_energy, log_dissipation, volume = np.array(rows).T
    with np.errstate(over="ignore"):
        return {
            "log_energy": log_energy,
            "energy": np.exp(log_energy),
            "dissipation": np.exp(log_dissipation),
            "volume_error": volume,
        }


def _log_dissipation(bound: BoundAttention, masses, log_z) -> float:
    """Logarithm of ``int Z |v|^2 dmu``; NaN if the model is no gradient flow."""
    if not bound.model.is_gradient:
        return np.nan
    velocity = bound.velocity(masses)
    mobile = masses * np.einsum("ma,ma->m", velocity, velocity)
    return float(logsumexp(log_z if bound.model.normalized else np.zeros(len(masses)), b=mobile))


def run_parameters(space, model, density, times, t_end, rtol, atol, start) -> dict:
    """What rebuilds a run, in types that JSON knows."""
    describe = getattr(density, "parameters", None)
    if describe is not None:
        density = describe()
    else:
        density = {"kind": "callable" if callable(density) else "masses"}
    return {
        "verb": "evolve_characteristics",
        "mesh": space.name,
        "D": model.D.tolist(),
        "V": model.V.tolist(),
        "sign": model.sign,
        "normalized": model.normalized,
        "density": density,
        "normalization_factor": float(np.exp(start.log_factor)),
        "t_end": float(t_end),
        "save": times.tolist(),
        "rtol": float(rtol),
        "atol": float(atol),
    }
