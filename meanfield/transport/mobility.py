"""`mobility_distance`: the distance W_m of the nonlocal mobility, and its geodesics."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from meanfield.errors import InputError
from meanfield.measures import Measure
from meanfield.sphere.meshes import Mesh
from meanfield.transport.cloud_geodesics import cloud_geodesic
from meanfield.transport.geodesic import Geodesic
from meanfield.transport.kernels import Kernel, as_kernel
from meanfield.transport.mesh_geodesics import mesh_geodesic
from meanfield.transport.wasserstein import checked_pair, wasserstein_bounds

__all__ = ["Geodesic", "mobility_distance"]

METHODS = ("auto", "cloud", "mesh")


def mobility_distance(
    a,
    b,
    interaction,
    steps: int = 32,
    particles: int | None = None,
    starts: int = 4,
    seed: int = 0,
    method: str = "auto",
    progress: bool = False,
    **options,
) -> Geodesic:
    """The distance W_m between two measures, and a geodesic.

    ``W_m(a, b)^2 = inf int_0^1 int Z_{mu_t} |v_t|^2 dmu_t dt`` over all curves of measures from
    a to b that are moved by velocities v_t, with ``Z_mu(x) = int K(x, y) dmu(y)``.

    Measures on one Mesh are densities, and the problem is discretised on its cells
    (`mesh_geodesic`). Other measures are point clouds: particles move between them
    (`cloud_geodesic`), and what is found is an upper bound.

    Parameters
    ----------
    a, b : Measure, array_like of shape (m, n), or a result with ``.final``
        On the unit sphere. An array means points with equal masses.
    interaction : Interaction, or float > 0
        The kernel K: ``exp(x.Dy)``, or a constant c, for which ``W_m = sqrt(c) W_2``.
    steps : int, >= 1
        Intervals T of time.
    particles, starts, seed
        For clouds: see `cloud_geodesic`.
    method : {"auto", "cloud", "mesh"}
        "auto" takes the cells where both measures live on the same mesh.
    progress : bool
        Show a progress bar on a terminal.
    **options
        Passed on to `cloud_geodesic` or `mesh_geodesic`.

    Returns
    -------
    Geodesic

    Raises
    ------
    InputError
        For different spaces, a kernel without a positive lower bound, or options out of range
        (`PointsError`, `DensityError` for the measures).
    ConvergenceError
        If the optimal transport it starts from was not solved.

    References
    ----------
    Burger, Kabri, Korolev, Roith, Weigand (2025), eq. (2.3), Theorems 2.2 and 2.3 (corrected).

    Examples
    --------
    >>> import meanfield as mf
    >>> found = mobility_distance([[1.0, 0.0]], [[0.0, 1.0]], mf.Interaction([-1.0, -1.0]), 8)
    >>> round(found.distance, 6), found.converged  # exp(-1/2) pi/2
    (0.952736, True)
    """
    a, b = checked_pair(a, b, 2, "geodesic")
    kernel = as_kernel(interaction, a.dimension)
    if method not in METHODS:
        raise InputError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    shared = method != "cloud" and on_mesh(a, b)
    if method == "mesh" and not shared:
        raise InputError("method='mesh' needs two measures on the cells of one mesh")
    if shared:
        options = {"progress": progress, **options}
        found = mesh_geodesic(a.space, a.masses, b.masses, kernel, steps, **options)
    else:
        options = {"seed": seed, "progress": progress, **options}
        found = cloud_geodesic(a, b, kernel, steps, particles, starts, **options)
    return _with_bounds(found, a, b, kernel)


def on_mesh(a: Measure, b: Measure) -> bool:
    """Whether both measures are masses of the cells of the same mesh.

    Raises
    ------
    InputError
        If they live on two different meshes.

    Examples
    --------
    >>> on_mesh(Measure([[1.0, 0.0]]), Measure([[0.0, 1.0]]))
    False
    """
    if not (isinstance(a.space, Mesh) and isinstance(b.space, Mesh)):
        return False
    same = a.space is b.space or (
        np.array_equal(a.space.points, b.space.points)
        and np.array_equal(a.space.cell_nodes, b.space.cell_nodes)
    )
    if not same:
        raise InputError(
            f"the measures live in different spaces, {a.space.name} and {b.space.name}: evolve "
            "both on one mesh, or compare them as point clouds (method='cloud')"
        )
    return True


def _with_bounds(found: Geodesic, a: Measure, b: Measure, kernel: Kernel) -> Geodesic:
    """The geodesic with the bounds of Theorem 2.3 (corrected) filled in."""
    least, most = wasserstein_bounds(a, b)
    smallest, largest = kernel.bounds
    return replace(found, lower=np.sqrt(smallest) * least, upper=np.sqrt(largest) * most)
