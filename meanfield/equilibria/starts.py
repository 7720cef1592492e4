"""Where the search for extrema of the energy starts."""

from __future__ import annotations

import numpy as np

from meanfield.equilibria.discrete_states import log_cosh
from meanfield.errors import DensityError, PointsError
from meanfield.measures import probability_vector
from meanfield.model.densities import mixture, uniform, von_mises_fisher
from meanfield.sphere.spaces import Space

CONCENTRATION = 4.0  # of the bumps: wide, so that they reach other extrema if theirs is not best
TILT = 0.3  # off the eigenvector, against every symmetry


def start_masses(space: Space, D: np.ndarray, start, sign: int) -> tuple[np.ndarray, object]:
    """Masses to start from, and how they are recorded.

    Parameters
    ----------
    space : Space
    D : ndarray, shape (n, n)
        Symmetric.
    start : callable, array_like of shape (m,), or None
        A density, masses, or the default.
    sign : int
        1 to minimise, -1 to maximise.

    Returns
    -------
    masses : ndarray, shape (m,)
    described : dict or str
        The parameters of the density, as far as they are known.

    Raises
    ------
    PointsError
        If the space lies in another dimension than D.
    DensityError
        If the density or the masses are negative, not finite, or zero.

    Examples
    --------
    >>> from meanfield.sphere.meshes import circle
    >>> start_masses(circle(4), np.diag([1.0, 2.0]), None, 1)[0].tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    if space.dimension != len(D):
        raise PointsError(f"D is {len(D)} x {len(D)} but the points are in R^{space.dimension}")
    density = default_start(D, sign) if start is None else start
    if not callable(density):
        return probability_vector(density, len(space)), "masses"
    values = np.asarray(density(space.points), dtype=float)
    if values.shape != (len(space),):
        raise DensityError(f"a density must have shape ({len(space)},), got {values.shape}")
    if not (np.isfinite(values).all() and (values >= 0).all() and values.any()):
        raise DensityError("a density must be finite, >= 0 and not zero everywhere")
    masses = values * space.weights
    described = density.parameters() if hasattr(density, "parameters") else "callable"
    return masses / masses.sum(), described


def default_start(D: np.ndarray, sign: int):
    """The density that `minimize` and `maximize` start from by default.

    Uniform where the energy is convex: to minimise with positive semidefinite D. Elsewhere
    bumps near the eigenvectors that carry the extremum in theory, tilted out of every symmetry
    plane, since uniform and symmetric starts may be stationary or lead to saddles.

    Parameters
    ----------
    D : ndarray, shape (n, n)
        Symmetric.
    sign : int
        1 to minimise, -1 to maximise.

    Returns
    -------
    callable
        A density.

    Examples
    --------
    >>> default_start(np.diag([1.0, 2.0]), 1).parameters()
    {'kind': 'uniform'}
    """
    eigenvalues, axes = np.linalg.eigh(D)
    a, b = max(eigenvalues[-1], 0.0), max(-eigenvalues[0], 0.0)
    if sign == 1 and eigenvalues[0] >= -1e-12 * max(a, b):
        return uniform()
    single = sign == 1 or a >= log_cosh(b)
    order = axes if sign == 1 or not single else axes[:, ::-1]  # the wanted eigenvector first
    mean = order @ (TILT ** np.arange(len(D)))
    bump = von_mises_fisher(mean, CONCENTRATION)
    if single:
        return bump
    return mixture([bump, von_mises_fisher(-mean, CONCENTRATION)])
