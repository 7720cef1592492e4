"""Where particles start: random points from independent streams, and checks of given ones."""

from __future__ import annotations

import numpy as np

from meanfield.arguments import whole
from meanfield.errors import DensityError, PointsError
from meanfield.measures import probability_vector
from meanfield.sphere.geometry import normalize as scale_to_sphere
from meanfield.sphere.geometry import unit_points


def random_points(n_points: int, n: int, seed: int, starts: int | None = None) -> np.ndarray:
    """Uniformly distributed points on S^{n-1}, one independent stream for each start.

    Parameters
    ----------
    n_points : int, >= 1
        Particles N of a start.
    n : int, >= 2
        Dimension of the surrounding space.
    seed : int or numpy.random.SeedSequence
        The same seed gives the same points, and start k is the same whatever the number of
        starts.
    starts : int, optional
        Number of starts; without it the points of start 0 alone.

    Returns
    -------
    ndarray, shape (N, n) or (starts, N, n)

    Raises
    ------
    InputError
        If a number is too small or not an integer.

    Examples
    --------
    >>> points = random_points(100, 3, seed=1, starts=5)
    >>> points.shape, bool((points[0] == random_points(100, 3, seed=1)).all())
    ((5, 100, 3), True)
    """
    for name, value, least in (("n_points", n_points, 1), ("n", n, 2), ("starts", starts, 1)):
        if value is not None:
            whole(value, name, least)
    if isinstance(seed, np.random.SeedSequence):
        # A fresh copy: spawning counts up in the sequence and would not repeat itself.
        sequence = np.random.SeedSequence(seed.entropy, spawn_key=seed.spawn_key)
    else:
        sequence = np.random.SeedSequence(seed)
    streams = sequence.spawn(1 if starts is None else int(starts))
    shape = (int(n_points), int(n))
    draws = np.stack([np.random.default_rng(stream).normal(size=shape) for stream in streams])
    points = scale_to_sphere(draws)
    return points[0] if starts is None else points


def starting_points(points, n: int, normalize: bool = False) -> np.ndarray:
    """Check the points of one start or of an ensemble.

    Parameters
    ----------
    points : array_like, shape (N, n) or (starts, N, n)
    n : int
        Dimension of the model.
    normalize : bool
        Scale any nonzero vectors to the sphere; otherwise lengths within 1e-5 of one are
        corrected and others refused.

    Returns
    -------
    ndarray, shape (N, n) or (starts, N, n)

    Raises
    ------
    PointsError
        For no points, starts of different sizes, NaN, zero vectors, points off the sphere, or
        a dimension that is not the model's.

    Examples
    --------
    >>> starting_points([[3.0, 4.0]], 2, normalize=True).tolist()
    [[0.6, 0.8]]
    """
    try:
        points = np.asarray(points, dtype=float)
    except (TypeError, ValueError):
        raise PointsError(
            "points must be numbers of shape (N, n), or (starts, N, n) with the same number of "
            "particles in every start"
        ) from None
    if points.ndim not in (2, 3) or points.size == 0:
        raise PointsError(
            f"points must have shape (N, n) or (starts, N, n), none of them 0; got {points.shape}"
        )
    if points.shape[-1] != n:
        raise PointsError(f"D is {n} x {n} but the points are in R^{points.shape[-1]}")
    if normalize:
        return scale_to_sphere(points)
    try:
        return unit_points(points.reshape(-1, n)).reshape(points.shape)
    except PointsError as error:
        raise PointsError(str(error).replace("normalise it first", "or pass normalize=True")) from (
            error
        )


def particle_weights(weights, count: int) -> np.ndarray:
    """Check the weights of the particles: equal ones when None.

    Parameters
    ----------
    weights : array_like, shape (N,), or None
    count : int
        The number of particles N.

    Returns
    -------
    ndarray, shape (N,)

    Raises
    ------
    DensityError
        If they are negative, not finite, or do not sum to one.

    Examples
    --------
    >>> particle_weights(None, 4).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    if weights is None:
        return np.full(count, 1.0 / count)
    try:
        return probability_vector(weights, count)
    except DensityError as error:
        raise DensityError(f"weights of particles: {error}") from error
    except (TypeError, ValueError):
        raise DensityError(f"weights must be {count} numbers") from None
