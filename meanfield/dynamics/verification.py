"""How accurate is it: finite volumes against characteristics, and observed orders."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass

import numpy as np

from meanfield.dynamics.characteristics import evolve_characteristics
from meanfield.dynamics.evolution import UnresolvedWarning, evolve
from meanfield.errors import InputError, NonFiniteError
from meanfield.model.attention import SelfAttention
from meanfield.sphere.harmonics import harmonic_transform
from meanfield.sphere.meshes import Mesh, circle
from meanfield.sphere.quadrature import cell_averages
from meanfield.sphere.spaces import Space, lebedev, product_sphere

DEGREE = {2: 120, 3: 48}  # of the harmonic series of the reference
REFERENCE_TOLERANCE = 1e-6  # of the series tail: beyond it the reference is not trusted


@dataclass(frozen=True, eq=False)
class Series:
    """A density as a series of harmonics, evaluated anywhere by a fast transform.

    Attributes
    ----------
    coefficients : ndarray
        In the order of `harmonic_transform`.
    degree : int
    n : int
    tail : float
        Largest coefficient among the last eighth of the degrees, over the largest of all.
    """

    coefficients: np.ndarray
    degree: int
    n: int
    tail: float

    def __call__(self, x) -> np.ndarray:
        """Values at points: shape (m, n) to (m,)."""
        return harmonic_transform(x, self.degree).synthesize(self.coefficients)


def expand(function, n: int, degree: int) -> Series:
    """Project a function on S^1 or S^2 to harmonics up to a degree.

    Parameters
    ----------
    function : callable
        From points (m, n) to values (m,).
    n : int, 2 or 3
    degree : int

    Returns
    -------
    Series

    Examples
    --------
    >>> series = expand(lambda x: 1 + x[:, 0], 3, 8)
    >>> bool(np.abs(series(np.eye(3)) - [2, 1, 1]).max() < 1e-12)
    True
    """
    rule = product_sphere(n, 2 * degree)
    transform = harmonic_transform(rule.points, degree)
    values = np.asarray(function(rule.points), dtype=float)
    coefficients = transform.analyze(values * rule.weights * rule.surface)
    sizes = np.abs(coefficients)
    tail = sizes[transform.degree > 7 * degree / 8].max(initial=0.0) / sizes.max()
    return Series(coefficients, degree, n, float(tail))


def reference_solution(model: SelfAttention, density, t_end: float, space: Space | None = None):
    """The solution at ``t_end`` from characteristics, as a series of harmonics.

    Parameters
    ----------
    model : SelfAttention
    density : callable
    t_end : float
    space : Space, optional
        Nodes; 256 on the circle and the Lebedev rule of order 65 by default.

    Returns
    -------
    Series

    Raises
    ------
    NonFiniteError
        If the solution has become too sharp for the nodes or the series.
    """
    n = model.dimension
    if space is None:
        space = circle(256) if n == 2 else lebedev(65)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnresolvedWarning)
        run = evolve_characteristics(space, model, density, t_end, save=2)
    if run.audit["volume_error"][-1] < 0.1:
        series = expand(lambda x: run.density_at(x, t_end), n, DEGREE[n])
        if series.tail < REFERENCE_TOLERANCE:
            return series
    raise NonFiniteError(f"the solution is too sharp at t = {t_end:g} for a spectral reference")


@dataclass(frozen=True)
class Row:
    """One resolution of a convergence table; orders are relative to the row before."""

    mesh: str
    cells: int
    size: float
    l1: float
    linf: float
    moments: float
    seconds: float
    l1_order: float = np.nan
    linf_order: float = np.nan
    moments_order: float = np.nan


@dataclass(frozen=True, eq=False)
class Verification:
    """The result of `verify`.

    Attributes
    ----------
    rows : tuple of Row
        Coarse to fine.
    spectral : bool
        Whether the reference is the spectral one; else errors are differences of moments to
        the finest mesh, and ``l1``, ``linf`` are NaN.
    """

    rows: tuple[Row, ...]
    spectral: bool

    def mean_orders(self) -> tuple[float, float, float]:
        """Mean observed orders over all rows: L1, L-infinity, moments."""
        first, last = self.rows[0], self.rows[-1]
        span = np.log(first.size / last.size)
        return tuple(
            float(np.log(getattr(first, key) / getattr(last, key)) / span)
            for key in ("l1", "linf", "moments")
        )

    def size_for(self, error: float) -> float:
        """The cell size at which the error (L1, else moments) falls to a wanted value.

        Parameters
        ----------
        error : float, > 0

        Returns
        -------
        float
            Extrapolated from the finest row with the mean observed order.
        """
        if not error > 0:
            raise InputError(f"the wanted error must be > 0, got {error}")
        l1, _, moments = self.mean_orders()
        order, now = (l1, self.rows[-1].l1) if self.spectral else (moments, self.rows[-1].moments)
        return float(self.rows[-1].size * (error / now) ** (1 / order))

    def __str__(self) -> str:
        head = f"{'mesh':>22} {'cells':>8} {'h':>8}"
        columns = ["l1", "linf", "moments"] if self.spectral else ["moments"]
        lines = [head + "".join(f" {c:>9} {'order':>5}" for c in columns) + f" {'time':>8}"]
        for row in self.rows:
            line = f"{row.mesh:>22} {row.cells:8,} {row.size:8.4f}"
            for column in columns:
                order = getattr(row, f"{column}_order")
                order = "" if np.isnan(order) else f"{order:5.2f}"
                line += f" {getattr(row, column):9.2e} {order:>5}"
            lines.append(line + f" {row.seconds:7.2f}s")
        if len(self.rows) > 1:
            l1, linf, moments = self.mean_orders()
            text = f"mean order {l1:.2f} in L1, {linf:.2f} in L-infinity, " if self.spectral else ""
            lines.append(f"{text or 'mean order '}{moments:.2f} in moments")
        return "\n".join(lines)


def verify(meshes, model: SelfAttention, density, t_end: float, order: int = 2, reference=None):
    """Run a model on several meshes and compare with a reference.

    Parameters
    ----------
    meshes : sequence of Mesh
        Coarse to fine, at least two.
    model : SelfAttention
    density : callable
    t_end : float, > 0
    order : {1, 2}
        Of the finite volumes.
    reference : callable, optional
        The exact density at ``t_end``. By default `reference_solution`; where the solution is
        too sharp for it, moments are compared with those of the finest mesh.

    Returns
    -------
    Verification
        Errors of cell averages in the mean (L1, with respect to mu_0) and maximum norm, and of
        all first and second moments. ``print`` it for a table.

    Raises
    ------
    InputError
        If there are fewer than two meshes, or one is not a Mesh.

    Examples
    --------
    >>> from meanfield.model.densities import von_mises_fisher
    >>> model = SelfAttention([0.5, 2.0], sign=-1)
    >>> density = von_mises_fisher([1, 1], 2.0)
    >>> table = verify([circle(64), circle(128)], model, density, 0.5)
    >>> 1.9 < table.mean_orders()[0] < 2.1
    True
    """
    meshes = list(meshes)
    if len(meshes) < 2 or not all(isinstance(mesh, Mesh) for mesh in meshes):
        raise InputError("verify needs at least two meshes, coarse to fine")
    if reference is None:
        try:
            reference = reference_solution(model, density, t_end)
        except NonFiniteError:
            reference = None
    runs = [_timed(mesh, model, density, t_end, order) for mesh in meshes]
    if reference is None:
        exact = _moments(meshes[-1], runs[-1][0])
        meshes, runs = meshes[:-1], runs[:-1]
    else:
        exact = _exact_moments(reference, model.dimension)
    rows: list[Row] = []
    for mesh, (masses, seconds) in zip(meshes, runs, strict=True):
        l1 = linf = np.nan
        if reference is not None:
            error = np.abs(masses / mesh.weights - cell_averages(mesh, reference))
            l1, linf = float(mesh.weights @ error), float(error.max())
        moments = float(np.abs(_moments(mesh, masses) - exact).max())
        row = Row(mesh.name, mesh.n_cells, mesh.cell_size, l1, linf, moments, seconds)
        rows.append(_with_orders(row, rows[-1] if rows else None))
    return Verification(tuple(rows), reference is not None)


def _timed(mesh, model, density, t_end, order):
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnresolvedWarning)
        masses = evolve(mesh, model, density, t_end, save=2, order=order).masses[-1]
    return masses, time.perf_counter() - start


def _with_orders(row: Row, before: Row | None) -> Row:
    if before is None:
        return row
    ratio = np.log(before.size / row.size)
    orders = {
        f"{key}_order": float(np.log(getattr(before, key) / getattr(row, key)) / ratio)
        for key in ("l1", "linf", "moments")
    }
    return Row(**{**row.__dict__, **orders})


def _moments(mesh: Mesh, masses: np.ndarray) -> np.ndarray:
    x = mesh.centroids
    return np.concatenate(
        [masses @ x, np.einsum("c,ca,cb->ab", masses, x, x, optimize=True).ravel()]
    )


def _exact_moments(reference, n: int) -> np.ndarray:
    rule = product_sphere(n, 120)
    masses = rule.weights * reference(rule.points)
    x = rule.points
    return np.concatenate([masses @ x, np.einsum("c,ca,cb->ab", masses, x, x).ravel()])
