"""Linear stability of stationary states: growth rates, their fields, and the index.

A small displacement ``xi`` of a stationary state grows at the rates r with
``r xi = (local xi + mixed(xi)) / Z`` (unnormalised flow: without 1/Z), see
`meanfield.equilibria.linearization`. For gradient models this operator is self-adjoint with the
weights ``a Z`` (unnormalised: ``a``), so rates are real.

- *Particles and clusters.* Clusters move as points. Members of a cluster may also separate: then
  the mixed terms cancel, and the rates are those of a test particle, the eigenvalues of the local
  term. A flow of measures in which a test particle leaves is unstable, so these count.
- *Densities.* At a stationary density Z is constant where there is mass, so the local term
  vanishes almost everywhere, and the mixed term is a compact operator: its rates accumulate at
  zero, where also all displacements are that leave the density as it is. Fields are gradients
  of a potential phi, and the density changes by ``-div(rho grad phi)``: mass gathers where phi
  is large. The nodes of a quadrature or the centres of cells stand for the density.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from meanfield.arguments import positive, whole
from meanfield.equilibria.linearization import Linearization
from meanfield.equilibria.spectrum import Operator, Spectrum, find_spectrum, splitting_spectrum
from meanfield.equilibria.variations import field_norm, resolve
from meanfield.errors import ComputationError, InputError
from meanfield.model.attention import SelfAttention
from meanfield.model.heads import MultiHead
from meanfield.result import Result
from meanfield.sphere.geometry import unit_points
from meanfield.sphere.spaces import Space

ANGLE = 0.05  # radians; particles of a run that are closer are one cluster
TOLERANCES = {"clusters": 1e-6, "density": 1e-4}  # densities come to rest more slowly than any rate
# Points with less of the largest mass are left out; tails of densities are not test particles.
NEGLIGIBLE = {"clusters": 1e-200, "density": 1e-12}
LARGEST_LOGARITHM = 700.0
FLAT = 0.05  # of |V|: a smaller local term is the error of a density that is stationary
EQUAL = 1e-10  # of the norm: what commutes with D and V up to round-off


@dataclass(frozen=True, eq=False)
class Stability(Result):
    """Rates of small displacements of a state; see `stability`.

    Attributes
    ----------
    stationary : bool
        Whether the residual is within the tolerance. If not, rates and index describe how
        neighbours separate for a short time only.
    residual : float
        `stationarity_residual` in L2.
    rates : ndarray, shape (k,)
        Leading growth rates, descending by their real part; complex without an energy.
    fields : ndarray, shape (k, m, n)
        Their displacements at the points, with ``int |xi|^2 dmu = 1``. Of a splitting mode: the
        direction along which members of one cluster separate, half of them to either side.
    potentials : ndarray, shape (k, m), or None
        For densities and gradient models: phi with ``xi = grad phi``, mean zero over the state.
    splitting : ndarray of bool, shape (k,)
        Which modes separate members of a cluster.
    index : int
        Number of unstable directions, modes of clusters and splitting ones together.
    splitting_index : int
        How many of them are splitting modes, counted once for each cluster and direction.
    complete : bool
        Whether the index is exact; otherwise it is a lower bound.
    neutral : int or None
        Number of modes of clusters at rate zero; None for densities, where they are infinitely
        many, and if not all were found.
    symmetries : int
        Dimension of the rotations that commute with D and V and move the state: that many zero
        rates are no degeneracy.
    tolerance : float
    threshold : float
        Rates within it count as zero.
    converged : bool
        Whether the eigenvalue iteration converged.
    kind : {"clusters", "density"}
    points : ndarray, shape (m, n)
    masses : ndarray, shape (m,)
    model : SelfAttention
    space : Space or None
        What the points belong to.
    parameters : dict
    """

    stationary: bool
    residual: float
    rates: np.ndarray
    fields: np.ndarray
    potentials: np.ndarray | None
    splitting: np.ndarray
    index: int
    splitting_index: int
    complete: bool
    neutral: int | None
    symmetries: int
    tolerance: float
    threshold: float
    converged: bool
    kind: str
    points: np.ndarray
    masses: np.ndarray
    model: SelfAttention
    space: Space | None = None
    parameters: dict = field(default_factory=dict)

    @property
    def stable(self) -> bool:
        """Whether the state is stationary and no direction is unstable."""
        return self.stationary and self.index == 0 and self.complete

    def to_dataset(self):
        """The result as an xarray dataset."""
        from meanfield.results.stability_dataset import stability_dataset

        return stability_dataset(self)

    def describe(self) -> str:
        """What was found, in a few lines."""
        count = len(self.points)
        noun = "cluster" if count == 1 else "clusters"
        what = f"density on {count} points" if self.kind == "density" else f"{count} {noun}"
        if self.kind == "clusters" and count <= 6:
            what += f" (masses {', '.join(f'{mass:.4g}' for mass in self.masses)})"
        words = "yes" if self.stationary else "NO"
        lines = [
            f"Stability of {what} under {self.model}",
            f"  stationary: {words}, residual {self.residual:.2g} (tolerance {self.tolerance:g})",
            f"  index: {self._index_words()}",
        ]
        names = {"density": "rates of largest size", "clusters": "leading rates"}
        rates = ", ".join(
            f"{_number(rate)}{' (splitting)' if split else ''}"
            for rate, split in zip(self.rates, self.splitting, strict=True)
        )
        lines.append(f"  {names[self.kind]}: {rates}")
        if not self.converged:
            lines.append("  NOT CONVERGED: the iteration for the eigenvalues stopped early")
        return "\n".join(lines)

    def _index_words(self) -> str:
        text = f"{'' if self.complete else 'at least '}{self.index}"
        if self.splitting_index:
            text += f" ({self.splitting_index} of them separate members of a cluster)"
        if not self.stationary:
            text += ", of a state that is not stationary"
        elif self.stable or self.index:
            text += ", stable" if self.stable else ", unstable"
        if self.neutral:
            text += f"; {self.neutral} neutral, {min(self.symmetries, self.neutral)} by symmetry"
        return text

    def __repr__(self) -> str:
        return self.describe()


def stability(
    state,
    model: SelfAttention | None = None,
    modes: int = 6,
    tolerance: float | None = None,
    space=None,
    angle: float = ANGLE,
    splitting: bool = True,
    method: str = "auto",
    kind: str | None = None,
) -> Stability:
    """Leading growth rates of small displacements of a stationary state, and its index.

    Parameters
    ----------
    state : Measure, result, Clusters, or callable
        What `stationarity_residual` takes, and what `find_clusters` gives. Particles of a run
        are merged into clusters first. Points of a `Measure` without a space are particles
        that are taken as they are.
    model : SelfAttention, optional
        By default that of the run; for an `Extremum` and an exact minimiser the normalised flow
        that leads to it.
    modes : int, >= 1
        How many rates to find (all of them if there are fewer).
    tolerance : float, > 0, optional
        A state is stationary up to this residual; and a rate counts as zero up to the larger of
        the two, times ``|V|`` (unnormalised flow: times ``|V|`` and the mean of Z). By default
        1e-6, and 1e-4 for densities, whose slow modes take long to decay.
    space : Space, optional
        Where a callable is sampled: see `stationarity_residual`.
    angle : float
        In radians: particles of a run that are closer are one cluster.
    splitting : bool
        Whether members of a cluster may separate. False: the system of whole clusters.
    method : {"auto", "dense", "iterative"}
        All rates from a matrix, or the leading ones by Lanczos (Arnoldi) iteration, matrix-free
        in linear memory. "auto" takes a matrix up to 1,500 unknowns.
    kind : {"clusters", "density"}, optional
        What the points of the state stand for. By default a density where they belong to a
        `Space`, or are nodes that moved along characteristics.

    Returns
    -------
    Stability

    Raises
    ------
    InputError
        For arguments out of range, an ensemble, a missing model, or heads.
    ComputationError
        If rates of the unnormalised flow are beyond the range of float64.

    Notes
    -----
    For gradient models, real rates of the operator above; for others the eigenvalues with the
    largest real part. The uniform density for D = lambda Id grows at
    ``s l(l+n-2) I_{n/2-1+l}(lambda)/I_{n/2-1}(lambda)``, and ``t delta_z + (1-t) delta_-z`` at
    the top eigenvector (Burger, Kabri, Korolev, Roith, Weigand (2025), Lemma 4.6) is stable for
    t = 1/2 iff ``L tanh L > l`` for all other eigenvalues l; neither is in the paper.

    Examples
    --------
    >>> import meanfield as mf
    >>> pair = mf.Measure([[0.0, 1.0], [0.0, -1.0]])
    >>> stability(pair, mf.SelfAttention([1.0, 1.3])).index
    0
    >>> stability(pair, mf.SelfAttention([1.0, 1.1])).rates.round(6).tolist()
    [0.119451, -0.08005, -0.880549, -0.880549]
    """
    modes = whole(modes, "modes", 1)
    _check(tolerance, method, kind)
    measure, model, kind = _prepared(state, model, space, angle, kind)
    tolerance = TOLERANCES[kind] if tolerance is None else float(tolerance)
    carried = measure.masses > NEGLIGIBLE[kind] * measure.masses.max()
    points = unit_points(measure.points)
    line = Linearization(points[carried], measure.masses[carried], model.D, model.V)
    residual = field_norm(line.averages / (model.value_norm or 1.0), line.masses)
    threshold = _scale(line, model) * max(tolerance, residual)
    flat = kind == "density" and _local_size(line) <= FLAT * model.value_norm
    operator = Operator(line, model.normalized, model.is_gradient, with_local=not flat)
    found = find_spectrum(operator, modes, threshold, compact=flat, method=method)
    parts = [found]
    if splitting and kind == "clusters":
        parts.append(splitting_spectrum(operator, threshold))
    rates, fields, split = _leading(parts, modes, flat)
    potentials = None
    if flat and model.is_gradient:
        potentials = _spread(_potentials(operator, rates, fields, model.sign, threshold), carried)
    return Stability(
        stationary=bool(residual <= tolerance),
        residual=residual,
        rates=rates,
        fields=_spread(fields, carried),
        potentials=potentials,
        splitting=split,
        index=sum(part.unstable for part in parts),
        splitting_index=sum(part.unstable for part in parts[1:]),
        complete=found.complete,
        neutral=None if kind == "density" else found.neutral,
        symmetries=_symmetries(line, model),
        tolerance=tolerance,
        threshold=threshold,
        converged=found.converged,
        kind=kind,
        points=points,
        masses=measure.masses,
        model=model,
        space=measure.space,
        parameters=_parameters(model, measure.space, modes, tolerance),
    )


def _number(rate) -> str:
    return f"{rate:.6g}" if rate.imag else f"{rate.real:.6g}"


def _check(tolerance, method, kind) -> None:
    if tolerance is not None:
        positive(tolerance, "tolerance")
    if method not in ("auto", "dense", "iterative"):
        raise InputError(f"method must be one of auto, dense, iterative, got {method!r}")
    if kind not in (None, *TOLERANCES):
        raise InputError(f"kind must be one of {', '.join(TOLERANCES)}, got {kind!r}")


def _prepared(state, model, space, angle: float, kind: str | None):
    """The measure, with particles of a run merged into clusters, its model, and its kind."""
    if getattr(state, "starts", None) is not None:
        raise InputError("an ensemble has many final states: choose one, run.start(k)")
    model = getattr(state, "model", None) if model is None else model
    if isinstance(model, MultiHead):
        raise InputError("stability is known for SelfAttention models, not for several heads")
    if hasattr(state, "clusters"):
        state = state.clusters(angle)
    resolved = resolve(state, model, space)
    kind = kind or ("density" if resolved.smooth else "clusters")
    return resolved.measure, resolved.model, kind


def _local_size(line: Linearization) -> float:
    """Root mean square over mu of the local term over Z."""
    squares = np.sum(line.local**2, axis=(1, 2)) / line.potential**2
    return float(np.sqrt(np.dot(line.masses, squares)))


def _parameters(model: SelfAttention, space, modes: int, tolerance: float) -> dict:
    return {
        "verb": "stability",
        "D": model.D.tolist(),
        "V": model.V.tolist(),
        "sign": model.sign,
        "normalized": model.normalized,
        "mesh": getattr(space, "name", None),
        "modes": int(modes),
        "tolerance": tolerance,
    }


def _scale(line: Linearization, model: SelfAttention) -> float:
    """The size that rates may have.

    Raises
    ------
    ComputationError
        If the unnormalised flow is too fast for float64.
    """
    if model.normalized:
        return model.value_norm
    log_z = line.log_potential
    if log_z.max() > LARGEST_LOGARITHM:
        raise ComputationError(
            f"rates of the unnormalised flow are about exp({log_z.max():.0f}), beyond the range "
            "of numbers: take the normalised flow, whose index is the same"
        )
    return model.value_norm * float(np.dot(line.masses, np.exp(log_z)))


def _leading(parts: list[Spectrum], modes: int, compact: bool):
    """The wanted modes of all parts, descending: rates, fields, and which are splitting."""
    rates = np.concatenate([part.rates for part in parts])
    fields = np.concatenate([part.fields for part in parts])
    split = np.repeat(np.arange(len(parts)) > 0, [len(part.rates) for part in parts])
    order = np.argsort(-rates.real, kind="stable")
    chosen = order if compact else order[:modes]
    return rates[chosen], fields[chosen], split[chosen]


def _potentials(operator: Operator, rates, fields, sign: int, threshold: float) -> np.ndarray:
    """phi with ``xi = grad phi``: the change of s log Z (s Z) over the rate, shape (k, m)."""
    line = operator.line
    result = np.zeros(fields.shape[:2])
    for number in np.flatnonzero(np.abs(rates) > threshold):
        change = sign * line.potential_change(fields[number]) * np.exp(operator.log_scale)
        result[number] = (change - np.dot(line.masses, change)) / rates[number]
    return result


def _spread(values: np.ndarray, carried: np.ndarray) -> np.ndarray:
    """Values on the points that carry mass as values on all points, zero elsewhere."""
    if carried.all():
        return values
    result = np.zeros((len(values), len(carried), *values.shape[2:]), dtype=values.dtype)
    result[:, carried] = values
    return result


def _symmetries(line: Linearization, model: SelfAttention) -> int:
    """Dimension of the fields A x of skew A that commute with D and V."""
    n = model.dimension
    rows, columns = np.triu_indices(n, 1)
    skew = np.zeros((len(rows), n, n))
    numbers = np.arange(len(rows))
    skew[numbers, rows, columns], skew[numbers, columns, rows] = 1.0, -1.0
    both = [
        (M @ skew - skew @ M).reshape(len(rows), -1) / (np.abs(M).max() or 1.0)
        for M in (model.D, model.V)
    ]
    _, singular, basis = np.linalg.svd(np.concatenate(both, axis=1).T)
    commuting = basis[np.append(singular, np.zeros(len(rows) - len(singular))) <= EQUAL]
    if not len(commuting):
        return 0
    turns = np.einsum("ka,aij->kij", commuting, skew)
    moved = np.einsum("kij,mj->kmi", turns, line.points) * np.sqrt(line.masses)[:, None]
    lengths = np.linalg.svd(moved.reshape(len(turns), -1), compute_uv=False)
    return int((lengths > np.sqrt(EQUAL)).sum())
