"""The interaction kernel exp(x.Dy), and its integrals against measures."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from meanfield.errors import DensityError, InputError, MatrixError, PointsError
from meanfield.model.clustered import ClusteredSum, cluster_count, worthwhile
from meanfield.model.direct import DirectSum
from meanfield.model.separable import MAX_DEGREE, SeparableSum, kernel_degree
from meanfield.sphere.geometry import tangential
from meanfield.sphere.spaces import as_points

METHODS = ("auto", "direct", "separable", "clustered")
FEW_PAIRS = 250_000  # below this number of pairs direct sums are the fastest and most exact
ACCURACY = 1e-9  # relative error of the potential, over max(1, ||D||), that "auto" allows


def square_matrix(matrix, name: str = "D") -> np.ndarray:
    """Check a matrix and return it as float64.

    Parameters
    ----------
    matrix : array_like, shape (n, n), or (n,) for a diagonal one
    name : str
        What errors call it.

    Raises
    ------
    MatrixError
        If it is not square with n >= 2, or has NaN or infinite entries.

    Examples
    --------
    >>> square_matrix([1, 2]).tolist()
    [[1.0, 0.0], [0.0, 2.0]]
    """
    try:
        matrix = np.array(matrix, dtype=float)
    except (TypeError, ValueError):
        raise MatrixError(f"{name} must be an n x n array of real numbers") from None
    if matrix.ndim == 1:
        matrix = np.diag(matrix)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) < 2:
        raise MatrixError(f"{name} must have shape (n, n) with n >= 2, got {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise MatrixError(f"{name} contains NaN or infinity")
    return matrix


@dataclass(frozen=True, eq=False)
class Interaction:
    """The kernel ``K(x, y) = exp(x.Dy)`` on the unit sphere of R^n.

    Parameters
    ----------
    D : array_like, shape (n, n) or (n,)
        Any real matrix; a vector means a diagonal matrix. It is never symmetrised.

    Raises
    ------
    MatrixError
        If D is not square or not finite.

    References
    ----------
    Burger, Kabri, Korolev, Roith, Weigand (2025), eq. (1.2).

    Examples
    --------
    >>> from meanfield.sphere.meshes import circle
    >>> import numpy as np
    >>> mesh = circle(64)
    >>> round(float(Interaction([[0, -1], [1, 0]]).on(mesh).energy(mesh.weights)), 12)
    1.266065877752
    """

    D: np.ndarray

    def __post_init__(self):
        object.__setattr__(self, "D", square_matrix(self.D))

    @property
    def dimension(self) -> int:
        """The dimension n."""
        return len(self.D)

    @cached_property
    def norm(self) -> float:
        """Spectral norm of D: exponents lie in [-norm, norm]."""
        return float(np.linalg.norm(self.D, 2))

    @cached_property
    def symmetric(self) -> bool:
        """Whether D is symmetric to round-off, so that the flow has an energy."""
        return bool(np.abs(self.D - self.D.T).max() <= 1e-14 * max(self.norm, 1e-300))

    def log_kernel(self, x, y) -> np.ndarray:
        """``x.Dy`` for all pairs: shapes (m, n) and (k, n) to (m, k)."""
        return np.asarray(x, dtype=float) @ self.D @ np.asarray(y, dtype=float).T

    def kernel(self, x, y) -> np.ndarray:
        """``exp(x.Dy)`` for all pairs: shapes (m, n) and (k, n) to (m, k)."""
        return np.exp(self.log_kernel(x, y))

    def on(self, space, at=None, method: str = "auto") -> BoundInteraction:
        """Bind the kernel to the points of a space: the reusable plan for its integrals.

        Parameters
        ----------
        space : Space, Measure, or array_like, shape (k, n)
            Where the masses sit.
        at : Space, Measure, or array_like, shape (m, n), optional
            Where integrals are evaluated; the points of ``space`` by default.
        method : {"auto", "direct", "separable", "clustered"}
            How; see `BoundInteraction`.

        Returns
        -------
        BoundInteraction
        """
        return BoundInteraction(self, space, at, method)


class BoundInteraction:
    """Integrals of exp(x.Dy) against masses at fixed points.

    ``method="direct"`` sums over all pairs, exact to round-off. ``"separable"`` goes through
    harmonics, in linear time and with an error relative to the *largest* potential.
    ``"clustered"`` uses expansions between clusters of points, in a time that grows like
    ``||D||^((n-1)/2)`` times the number of points, with an error of about 1e-8 relative to every
    potential. The last two exist on S^1 and S^2. ``"auto"`` takes the separable way where the
    error it estimates for the logarithm of the smallest potential is below
    ``1e-9 max(1, ||D||)``; elsewhere clusters, or direct sums where points are few.
    ``.method`` says what the last evaluation used.
    """

    def __init__(self, interaction: Interaction, space, at=None, method: str = "auto"):
        if method not in METHODS:
            raise InputError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
        self.interaction = interaction
        self.sources = as_points(space)
        self.targets = self.sources if at is None else as_points(at)
        n = interaction.dimension
        for points in (self.sources, self.targets):
            if points.shape[1] != n:
                raise PointsError(f"D is {n} x {n} but the points are in R^{points.shape[1]}")
        if method in ("separable", "clustered") and n > 3:
            raise InputError(
                f"the {method} method exists on S^1 and S^2 only, use method='auto' or 'direct'"
            )
        self._exact = method != "auto"  # the caller's choice is not second-guessed
        self._choice = method if self._exact else self._first_choice()
        self.method = self._choice

    def _first_choice(self) -> str:
        norm, n = self.interaction.norm, self.interaction.dimension
        few = len(self.sources) * len(self.targets) <= FEW_PAIRS
        if not few and n <= 3 and kernel_degree(norm, n) <= MAX_DEGREE[n]:
            return "separable"
        return self._safe_choice()

    def _safe_choice(self) -> str:
        """The fastest method that is accurate for every measure."""
        norm, n = self.interaction.norm, self.interaction.dimension
        sizes = len(self.targets), len(self.sources)
        clusters = n <= 3 and worthwhile(cluster_count(norm, n), *sizes)
        return "clustered" if clusters and sizes[0] * sizes[1] > FEW_PAIRS else "direct"

    @cached_property
    def _direct(self) -> DirectSum:
        return DirectSum(self.targets, self.sources, self.interaction.D)

    @cached_property
    def _separable(self) -> SeparableSum:
        return SeparableSum(self.targets, self.sources, self.interaction.D)

    @cached_property
    def _clustered(self) -> ClusteredSum:
        return ClusteredSum(self.targets, self.sources, self.interaction.D)

    def sums(self, masses, fields=None) -> tuple[np.ndarray, np.ndarray]:
        """Integrals ``int K(x, y) (1, f(y)) dmu(y)`` as ``exp(shift) * sums``.

        Parameters
        ----------
        masses : array_like, shape (k,)
            Nonnegative masses of the sources.
        fields : array_like, shape (k, f), optional
            Values of f at the sources.

        Returns
        -------
        shift : ndarray, shape (m,)
            Logarithmic scale of each target.
        sums : ndarray, shape (m, 1 + f)
            The potential in column 0, the integrals of the fields after it.

        Raises
        ------
        DensityError
            If masses has the wrong shape.
        """
        masses = np.asarray(masses, dtype=float)
        if masses.shape != (len(self.sources),):
            raise DensityError(f"masses must have shape ({len(self.sources)},), got {masses.shape}")
        fields = None if fields is None else np.asarray(fields, dtype=float)
        self.method = self._choice
        if self.method == "separable" and not self._exact:
            shift, sums = self._separable.sums(masses, fields)
            allowed = ACCURACY * max(1.0, self.interaction.norm)
            if SeparableSum.relative_error(sums) <= allowed:
                return shift, sums
            self.method = self._safe_choice()
        return getattr(self, f"_{self.method}").sums(masses, fields)

    def log_potential(self, masses) -> np.ndarray:
        """``log Z(x)``, ``Z(x) = int K(x, y) dmu(y)``, at the targets: shape (k,) to (m,)."""
        shift, sums = self.sums(masses)
        return shift + np.log(sums[:, 0])

    def potential(self, masses) -> np.ndarray:
        """``Z(x)`` at the targets; infinite where its logarithm is above 709."""
        with np.errstate(over="ignore"):
            return np.exp(self.log_potential(masses))

    def average(self, masses, fields) -> np.ndarray:
        """Attention averages ``int K f dmu / int K dmu`` at the targets: (k, f) to (m, f)."""
        _, sums = self.sums(masses, fields)
        return sums[:, 1:] / sums[:, :1]

    def gradient(self, masses) -> np.ndarray:
        """Tangential gradient of ``log Z`` at the targets, shape (m, n)."""
        D = self.interaction.D
        return tangential(self.targets, self.average(masses, self.sources @ D.T))

    def log_energy(self, masses) -> float:
        """Logarithm of ``E = int int K dmu dmu``; needs the targets to be the sources.

        Raises
        ------
        InputError
            If the integrals were bound to other points.
        """
        return self.log_mean(masses, self.log_potential(masses))

    def energy(self, masses) -> float:
        """``E = int int exp(x.Dy) dmu dmu`` (eq. (1.2)); infinite above exp(709)."""
        with np.errstate(over="ignore"):
            return float(np.exp(self.log_energy(masses)))

    def log_mean(self, masses, log_potential) -> float:
        """Logarithm of ``int Z dmu`` from ``log Z`` at the points that carry the masses."""
        if self.targets is not self.sources:
            raise InputError("energies need the potential at the points of the masses: use at=None")
        shift = log_potential.max()
        return float(shift + np.log(np.dot(masses, np.exp(log_potential - shift))))

    def __repr__(self) -> str:
        return (
            f"BoundInteraction({len(self.sources)} sources, {len(self.targets)} targets, "
            f"method={self.method!r})"
        )
