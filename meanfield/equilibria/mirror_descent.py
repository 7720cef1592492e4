"""Extrema of the energy over probability vectors: entropic mirror descent, with a certificate.

The energy of masses a at the points of a space is ``E(a) = sum_ij a_i a_j K_ij``, its derivative
``2 Z``. A mirror step multiplies every mass by ``exp(-tau 2 Z_i)`` and normalises
(`meanfield.equilibria.mirror_search`).
"""

from __future__ import annotations

import hashlib

import numpy as np
from scipy.special import rel_entr

from meanfield.equilibria.exact import symmetric_matrix
from meanfield.equilibria.extremum import Extremum
from meanfield.equilibria.mirror_search import Search
from meanfield.equilibria.starts import start_masses
from meanfield.errors import InputError
from meanfield.model.interaction import Interaction
from meanfield.sphere.spaces import Space

METHODS = ("auto", "adaptive", "mirror")
MAX_ITERATIONS = 2000
PAPER_STEP = 0.1  # tau of Fig. 5 of the paper


def kullback_leibler(a, b) -> float:
    """Relative entropy ``sum a_i log(a_i/b_i)``, with ``0 log 0 = 0``.

    Parameters
    ----------
    a, b : array_like, shape (m,)
        Probability vectors.

    Returns
    -------
    float
        In [0, inf]; infinite where a has mass and b has none.

    Raises
    ------
    InputError
        If the shapes differ or there are negative or NaN entries.

    Examples
    --------
    >>> kullback_leibler([0.0, 0.5, 0.5], [0.0, 0.5, 0.5])
    0.0
    >>> kullback_leibler([0.3, 0.3, 0.4], [0.5, 0.5, 0.0])
    inf
    """
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if a.ndim != 1 or a.shape != b.shape:
        raise InputError(f"both must be vectors of one length, got shapes {a.shape} and {b.shape}")
    if not ((a >= 0).all() and (b >= 0).all()):
        raise InputError("entries must be >= 0")
    return float(rel_entr(a, b).sum())


def minimize(
    space: Space,
    interaction: Interaction,
    start=None,
    method: str = "auto",
    tolerance: float = 1e-10,
    max_iterations: int = MAX_ITERATIONS,
    step: float = PAPER_STEP,
    progress: bool = False,
) -> Extremum:
    """Minimise ``E = int int exp(x.Dy) dmu dmu`` over the probability vectors on a space.

    Parameters
    ----------
    space : Space
        Its points carry the masses; its weights turn densities into masses and back.
    interaction : Interaction
        With symmetric D.
    start : callable or array_like, shape (m,), optional
        A density, or masses that sum to one; masses that are zero stay zero. By default uniform
        for positive semidefinite D, where the minimum is global. Elsewhere uniform may be
        stationary, and a bump near the eigenvector of the smallest eigenvalue is taken.
    method : {"auto", "adaptive", "mirror"}
        ``"mirror"`` is the iteration of the paper with the fixed step ``step``. ``"adaptive"``
        tries longer steps and takes those that pass the test of relative smoothness.
        ``"auto"`` does a few of them; for positive semidefinite D on S^1 and S^2 it then solves
        for the limit of the iteration in the harmonics that double precision resolves, with
        moments over the nodes at hand (`meanfield.equilibria.polish`).
    tolerance : float
        Of the gap ``2 (E - min Z)`` relative to E.
    max_iterations : int
        Largest number of steps. Without convergence ``.converged`` is False.
    step : float
        tau of ``method="mirror"``.
    progress : bool
        Show a progress bar on a terminal.

    Returns
    -------
    Extremum
        For positive semidefinite D ``.gap`` bounds the distance to the smallest energy that
        masses at these points can have. From uniform masses the density is accurate up to
        ``.resolved_degree``; from random ones only the gap and the moments up to that degree
        are: what is finer stays as it was.

    Raises
    ------
    MatrixError
        If D is not symmetric: the gradient of the energy is 2 Z only then.
    DensityError, PointsError
        If the start or the points do not fit.
    InputError
        If an option is out of range.

    Notes
    -----
    The iteration is Burger, Kabri, Korolev, Roith, Weigand (2025), eqs. (5.3) and (5.4), on S^1
    there; the gradient is ``2 K m``, and the weights of the space enter only where densities
    do. A step of length tau passes the test if
    ``E' <= E + 2 int Z d(mu' - mu) + KL(mu', mu)/tau``. For ``tau <= 1/(2 sinh ||D||)`` it always
    does: with h = mu' - mu, ``h.Kh <= sinh(||D||) |h|_1^2 <= 2 sinh(||D||) KL(mu', mu)``.

    Examples
    --------
    >>> from meanfield.sphere.meshes import circle
    >>> found = minimize(circle(256), Interaction([1.0, 1.5]), tolerance=1e-12)
    >>> found.converged, round(found.energy, 12), found.applications < 60
    (True, 1.376306946263, True)
    """
    return prepare(space, interaction, start, method, tolerance, max_iterations, step).compute(
        progress
    )


def maximize(
    space: Space,
    interaction: Interaction,
    start=None,
    method: str = "auto",
    tolerance: float = 1e-10,
    max_iterations: int = MAX_ITERATIONS,
    step: float = PAPER_STEP,
    progress: bool = False,
) -> Extremum:
    """Maximise ``E = int int exp(x.Dy) dmu dmu`` over the probability vectors on a space.

    Parameters
    ----------
    space, interaction, method, tolerance, max_iterations, step, progress
        As for `minimize`; the tolerance is that of ``2 (max Z - E)`` relative to E.
    start : callable or array_like, shape (m,), optional
        As for `minimize`. By default one or two bumps near the eigenvectors that carry the
        maximum in theory; never uniform.

    Returns
    -------
    Extremum
        A stationary state that no small shift of mass improves; not necessarily the global
        maximum over the nodes, so that ``.gap`` is None. Clusters sit on single nodes: the
        energy is that of the nearest nodes, below the maximum over the sphere.

    Raises
    ------
    MatrixError, DensityError, PointsError, InputError
        As `minimize`.

    Examples
    --------
    >>> from meanfield.sphere.spaces import lebedev
    >>> found = maximize(lebedev(15), Interaction([-1.0, 0.5, 1.0]))
    >>> found.converged, round(found.energy, 12)
    (True, 2.718281828459)
    """
    return prepare(
        space, interaction, start, method, tolerance, max_iterations, step, sign=-1
    ).compute(progress)


def prepare(
    space: Space,
    interaction: Interaction,
    start=None,
    method: str = "auto",
    tolerance: float = 1e-10,
    max_iterations: int = MAX_ITERATIONS,
    step: float = PAPER_STEP,
    sign: int = 1,
) -> Search:
    """Check the arguments of `minimize` (``sign=1``) or `maximize` (-1); nothing is computed yet.

    Returns
    -------
    Search
        ``.compute()`` gives the `Extremum`, ``.steps()`` the instants on the way to it.

    Raises
    ------
    MatrixError, DensityError, PointsError, InputError
        As `minimize`.

    Examples
    --------
    >>> from meanfield.sphere.meshes import circle
    >>> search = prepare(circle(64), Interaction([1.0, 1.5]))
    >>> *_, last = search.steps()
    >>> last.result.converged
    True
    """
    if not isinstance(interaction, Interaction):
        interaction = Interaction(interaction)
    D = symmetric_matrix(interaction.D)
    _check(method, tolerance, max_iterations, step)
    masses, described = start_masses(space, D, start, sign)
    if isinstance(described, str):  # known by its checksum only
        digest = hashlib.sha256(masses.tobytes()).hexdigest()
        described = {"kind": described, "sha256": digest}
    return Search(
        space=space,
        interaction=interaction,
        D=D,
        sign=sign,
        masses=masses,
        parameters={
            "verb": "minimize" if sign == 1 else "maximize",
            "mesh": space.name,
            "D": interaction.D.tolist(),
            "start": described,
            "method": method,
            "tolerance": tolerance,
            "max_iterations": max_iterations,
            "step": step,
        },
    )


def _check(method, tolerance, max_iterations, step) -> None:
    if method not in METHODS:
        raise InputError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    if not tolerance > 0:
        raise InputError(f"tolerance must be positive, got {tolerance}")
    if int(max_iterations) != max_iterations or max_iterations < 0:
        raise InputError(f"max_iterations must be an integer >= 0, got {max_iterations}")
    if not (np.isfinite(step) and step > 0):
        raise InputError(f"step must be positive, got {step}")
