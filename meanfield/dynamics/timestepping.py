"""Explicit time steps that keep positivity, save times, and frames."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from tqdm import tqdm

from meanfield.errors import InputError

DEFAULT_FRAMES = 21


@dataclass(frozen=True)
class SSPMethod:
    """A strong-stability-preserving Runge-Kutta method in Shu-Osher form.

    Stage k is ``u_k = keep_k u_0 + (1 - keep_k) (u_{k-1} + dt F(u_{k-1}))``: convex
    combinations of Euler steps, so whatever an Euler step of the same size keeps (positivity,
    the maximum) the method keeps, at every stage.
    """

    name: str
    order: int
    keep: tuple[float, ...]
    source: str


EULER = SSPMethod("forward Euler", 1, (0.0,), "Euler (1768)")
SSPRK3 = SSPMethod(
    "SSPRK(3,3)", 3, (0.0, 3 / 4, 1 / 3), "C.-W. Shu and S. Osher (1988), eq. (2.18)"
)


@dataclass(frozen=True, eq=False)
class Frame:
    """One saved instant of an evolution: everything that is needed to go on from it.

    Attributes
    ----------
    time : float
    masses : ndarray, shape (m,)
    audit : dict of str to float
        What `evolve` documents as its audit.
    state : ndarray
        Accumulated integrals of the audit.
    """

    time: float
    masses: np.ndarray
    audit: dict[str, float] = field(default_factory=dict)
    state: np.ndarray | None = None


def save_times(t_end: float, save=None) -> np.ndarray:
    """The times at which frames are saved.

    Parameters
    ----------
    t_end : float, > 0
    save : int or array_like, optional
        The number of equally spaced frames from 0 to t_end (at least 2), or the times
        themselves, increasing, within [0, t_end]. 21 frames by default.

    Returns
    -------
    ndarray, shape (t,)

    Raises
    ------
    InputError
        If t_end is not positive and finite, or the times are not as above.

    Examples
    --------
    >>> save_times(1.0, 3).tolist(), save_times(1.0, [0.5]).tolist()
    ([0.0, 0.5, 1.0], [0.5])
    """
    try:
        t_end = float(t_end)
    except (TypeError, ValueError):
        raise InputError(f"t_end must be a number > 0, got {t_end!r}") from None
    if not (np.isfinite(t_end) and t_end > 0):
        raise InputError(f"t_end must be finite and > 0, got {t_end:g}")
    save = DEFAULT_FRAMES if save is None else save
    if np.ndim(save) == 0:
        if int(save) != save or save < 2:
            raise InputError(f"save must be a number of frames >= 2 or a list of times, got {save}")
        times = np.linspace(0.0, t_end, int(save))
        times[-1] = t_end
        return times
    times = np.asarray(save, dtype=float)
    if times.ndim != 1 or len(times) == 0 or not np.isfinite(times).all():
        raise InputError("save times must be a nonempty list of finite numbers")
    if times[0] < 0 or times[-1] > t_end or (np.diff(times) <= 0).any():
        raise InputError(f"save times must increase within [0, {t_end:g}]")
    return times


def even_step(remaining: float, largest: float) -> float:
    """The largest step that reaches the next save time in a whole number of equal steps.

    So output times are hit exactly and no tiny last step is needed.

    Examples
    --------
    >>> even_step(1.0, 0.3)
    0.25
    """
    if not largest < remaining:
        return remaining
    return float(remaining / np.ceil(remaining / largest))


def with_progress(frames, count: int, show: bool):
    """Pass frames on, with a progress bar on a terminal if ``show`` is True."""
    # disable=None switches the bar off when the output is not a terminal.
    yield from tqdm(frames, total=count, unit="frame", disable=None if show else True)
