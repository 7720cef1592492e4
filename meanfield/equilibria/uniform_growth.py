"""How harmonics of the uniform density grow, in closed form."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln, ive

from meanfield.model.densities import log_zonal_mean

SAME = 1e-10  # of the largest: moduli that differ by less are equal
DEGREES = 60  # of the modes that are looked at


def uniform_growth(
    level: float, n: int, degrees, sign: int = 1, normalized: bool = True
) -> np.ndarray:
    """Linear growth rates of harmonics of the uniform density for ``D = level Id``.

    ``rho = 1 + eps Y_l`` grows like ``sign l (l+n-2) I_{n/2-1+l}(level) / I_{n/2-1}(level)`` in
    the normalised flow; without the division by Z, by the constant Z times as fast.

    Parameters
    ----------
    level : float
        Of either sign.
    n : int
    degrees : array_like of int
    sign : {1, -1}
    normalized : bool

    Returns
    -------
    ndarray, of the shape of degrees

    Notes
    -----
    Not in Burger, Kabri, Korolev, Roith, Weigand (2025); that uniform is stationary is there
    Lemma 4.10.

    Examples
    --------
    >>> uniform_growth(5.0, 2, [1, 2, 3]).round(6).tolist()
    [0.893383, 2.570587, 3.413392]
    """
    degrees = np.asarray(degrees)
    size, order = abs(float(level)), n / 2 - 1
    if size == 0:
        return np.zeros(degrees.shape)
    ratio = _bessel_ratio(order, size, degrees)
    rates = sign * degrees * (degrees + n - 2) * ratio * np.where(level < 0, (-1.0) ** degrees, 1.0)
    return rates if normalized else rates * np.exp(log_zonal_mean(size, n))


def _bessel_ratio(order: float, x: float, steps) -> np.ndarray:
    """``I_{order+k}(x) / I_order(x)``; the leading term of the series where both underflow."""
    low, high = ive(order, x), ive(order + steps, x)
    if low > 0:
        return high / low
    lead = gammaln(order + 1) - gammaln(order + steps + 1)
    return np.exp(lead + steps * np.log(x / 2))


def growth_of_uniform(eigenvalues, sign: int, normalized: bool) -> np.ndarray | None:
    """Rates of degrees 1, 2, ... where all |eigenvalues| are equal, not zero; otherwise None.

    With eigenvalues of both signs ``D = level R`` with a reflection R, and the harmonics with
    ``Y(Rx) = Y(x)`` and ``Y(Rx) = -Y(x)`` grow at opposite rates: the positive ones are given.

    Examples
    --------
    >>> growth_of_uniform(np.array([1.0, 2.0]), 1, True) is None
    True
    >>> growth_of_uniform(np.array([-1.0, 1.0]), 1, True)[:2].round(6).tolist()
    [0.44639, 0.42888]
    """
    size = np.abs(eigenvalues)
    if size.max() == 0 or size.max() - size.min() > SAME * size.max():
        return None
    degrees, level, n = np.arange(1, DEGREES + 1), float(size.mean()), len(eigenvalues)
    if (eigenvalues > 0).all() or (eigenvalues < 0).all():
        return uniform_growth(np.sign(eigenvalues[0]) * level, n, degrees, sign, normalized)
    return uniform_growth(level, n, degrees, 1, normalized)
