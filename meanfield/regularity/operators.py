"""Attention out of measures: Boltzmann-Gibbs, softmatch, lookup, projection to the mean."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import softmax

from meanfield.errors import InputError, NonFiniteError
from meanfield.measures import Measure
from meanfield.regularity.kernels import Deterministic, Finite, MarkovKernel, tabulated
from meanfield.regularity.potentials import Potential, as_points


def _log_masses(masses: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(masses)


def boltzmann_gibbs(measure: Measure, g: Callable, log: bool = False) -> Measure:
    """The measure ``Psi_g(nu) = g nu / nu(g)``.

    Parameters
    ----------
    measure : Measure
        ``nu``, points in R^d.
    g : callable
        Points (m, d) to positive finite values (m,).
    log : bool
        Whether the callable is log g, any finite values.

    Returns
    -------
    Measure
        On the same points.

    Raises
    ------
    InputError
        If g does not return one value a point.
    NonFiniteError
        If g is not positive and finite.

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Definition 3.

    Examples
    --------
    >>> nu = Measure([[1.0], [3.0]])
    >>> boltzmann_gibbs(nu, lambda y: y[:, 0]).masses.tolist()
    [0.25, 0.75]
    """
    values = np.asarray(g(measure.points), dtype=float)
    if values.shape != (len(measure),):
        raise InputError(f"g must return shape ({len(measure)},), got {values.shape}")
    if not np.isfinite(values).all() or (not log and (values <= 0).any()):
        raise NonFiniteError("g must be positive and finite on the points of the measure")
    logarithm = values if log else np.log(values)
    return Measure(measure.points, softmax(logarithm + _log_masses(measure.masses)))


def attention_weights(queries, measure: Measure, potential: Potential, mask=None) -> np.ndarray:
    """The softmatch probabilities ``G(x_i, y_j) nu_j / sum_k G(x_i, y_k) nu_k``.

    Parameters
    ----------
    queries : array_like, shape (m, d)
    measure : Measure
        Keys and their masses.
    potential : Potential
    mask : array_like of bool, shape (m, N), or callable, optional
        Which keys a query sees. A callable maps queries (m, d) and keys (N, d) to such an array;
        an array belongs to labelled queries, row i to the i-th of them (`causal_mask`).

    Returns
    -------
    ndarray, shape (m, N)

    Raises
    ------
    InputError
        If the mask does not fit, or a query sees no key of positive mass.

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Definitions 1 and 4.

    Examples
    --------
    >>> from meanfield.regularity.potentials import ScaledDotProduct
    >>> keys = Measure([[0.0], [np.log(3)]])
    >>> attention_weights([[1.0]], keys, ScaledDotProduct()).round(15).tolist()
    [[0.25, 0.75]]
    """
    queries = as_points(queries, "queries")
    scores = potential.log(queries, measure.points) + _log_masses(measure.masses)
    if mask is not None:
        seen = np.asarray(mask(queries, measure.points) if callable(mask) else mask)
        if seen.shape != scores.shape or seen.dtype != bool:
            raise InputError(
                f"the mask must be boolean of shape {scores.shape} (queries, keys), "
                f"got {seen.dtype} of shape {seen.shape}"
            )
        scores = np.where(seen, scores, -np.inf)
        empty = np.flatnonzero(np.isneginf(scores).all(axis=1))
        if empty.size:
            raise InputError(f"query {empty[0]} sees no key of positive mass: mend the mask")
    return softmax(scores, axis=1)


def causal_mask(count: int) -> np.ndarray:
    """The mask of a decoder: token i sees tokens 0 to i; booleans, shape (count, count).

    Examples
    --------
    >>> causal_mask(2).tolist()
    [[True, False], [True, True]]
    """
    return np.tri(count, dtype=bool)


def softmatch(measure: Measure, potential: Potential, mask=None) -> MarkovKernel:
    """The kernel ``Psi_G(nu)``: a query x goes to the Boltzmann-Gibbs measure of ``G(x, .)``.

    Parameters
    ----------
    measure : Measure
        ``nu``, the keys.
    potential : Potential
    mask : array_like of bool, shape (m, N), or callable, optional
        See `attention_weights`.

    Returns
    -------
    MarkovKernel

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Definition 4.

    Examples
    --------
    >>> from meanfield.regularity.potentials import Gaussian
    >>> softmatch(Measure([[-1.0], [1.0]]), Gaussian()).at([0.0]).masses.tolist()
    [0.5, 0.5]
    """
    return Finite(measure.points, lambda x: attention_weights(x, measure, potential, mask))


def lookup(keys=None, values=None) -> MarkovKernel:
    """The kernel of keys to values.

    Parameters
    ----------
    keys : callable, array_like, MarkovKernel, optional
        Alone: the lookup function, (N, d) to (N, e), or its matrix W, ``k -> W k``; the identity
        when omitted; a kernel is returned as it is. With ``values``: the keys, shape (N, d).
    values : array_like, shape (N, e), optional
        The values of the keys; duplicate keys go to the uniform mixture of their values.

    Returns
    -------
    MarkovKernel

    Raises
    ------
    MatrixError, PointsError
        If the matrix or the table is not a valid one.

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Definition 5; Remark 6 corrected.

    Examples
    --------
    >>> lookup([[0.0], [0.0]], [[1.0], [2.0]]).at([0.0]).masses.tolist()
    [0.5, 0.5]
    """
    if values is not None:
        return tabulated(keys, values)
    if isinstance(keys, MarkovKernel):
        return keys
    return Deterministic((lambda k: k) if keys is None else keys)


def project_to_mean(measure):
    """``Pi``: the Dirac measure at the mean.

    Parameters
    ----------
    measure : Measure or MarkovKernel
        Of a kernel K the kernel ``x -> Pi[K(x, .)]``.

    Returns
    -------
    Measure or MarkovKernel

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), eq. (2).

    Examples
    --------
    >>> project_to_mean(Measure([[0.0], [1.0]], [0.25, 0.75])).points.tolist()
    [[0.75]]
    """
    if isinstance(measure, MarkovKernel):
        return Deterministic(measure.on_function(lambda z: z))
    return Measure((measure.masses @ measure.points)[None])


def attention_kernel(measure: Measure, potential: Potential, values=None, mask=None):
    """The kernel ``A_mu(q) = Pi[Psi_{G(q, .)}(mu) L]``.

    Parameters
    ----------
    measure : Measure
        ``mu``, the keys.
    potential : Potential
    values : MarkovKernel, callable or array_like, optional
        The lookup L, see `lookup`; the identity when omitted.
    mask : array_like of bool, shape (m, N), or callable, optional
        See `attention_weights`.

    Returns
    -------
    MarkovKernel

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Definition 7 and Proposition 8.

    Examples
    --------
    >>> from meanfield.regularity.potentials import Gaussian
    >>> A = attention_kernel(Measure([[-1.0], [1.0]]), Gaussian(), values=[[2.0]])
    >>> A.at([0.0]).points.tolist()
    [[0.0]]
    """
    return project_to_mean(softmatch(measure, potential, mask) @ lookup(values))


def self_attention(measure: Measure, potential: Potential, values=None, mask=None) -> Measure:
    """The map ``mu -> mu A_mu``.

    The parameters are those of `attention_kernel`; atom i of the result is the image of atom i.

    Returns
    -------
    Measure

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Section 5.

    Examples
    --------
    >>> from meanfield.regularity.potentials import Custom
    >>> constant = Custom(lambda x, y: np.zeros((len(x), len(y))))
    >>> self_attention(Measure([[0.0], [1.0]]), constant).points.tolist()
    [[0.5], [0.5]]
    """
    return attention_kernel(measure, potential, values, mask).on_measure(measure)


def cross_attention(
    queries: Measure, keys: Measure, potential: Potential, values=None, mask=None
) -> Measure:
    """The measure ``rho A_mu``: queries rho attend to keys mu; the numbers of both may differ.

    The other parameters are those of `attention_kernel`.

    Returns
    -------
    Measure

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Section 6.1.

    Examples
    --------
    >>> from meanfield.regularity.potentials import Gaussian
    >>> out = cross_attention(Measure([[0.0]]), Measure([[-1.0], [1.0]]), Gaussian())
    >>> out.points.tolist()
    [[0.0]]
    """
    return attention_kernel(keys, potential, values, mask).on_measure(queries)
