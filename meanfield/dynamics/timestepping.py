"""Explicit time steps that keep positivity, save times, and frames."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from tqdm import tqdm

from meanfield.errors import InputError

DEFAULT_FRAMES = 21
MANY_STEPS = 1e7  # a run that will take more than this is announced
ESTIMATE_AFTER = 100  # steps after which the number of all steps is estimated


class LongRunWarning(UserWarning):
    """The run will take very many time steps."""


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
    """One instant of an evolution: everything that is needed to go on from it.

    Attributes
    ----------
    time : float
    masses : ndarray, shape (m,)
    audit : dict of str to float
        What `evolve` documents as its audit; between save times ``steps`` and ``cfl`` only.
    state : ndarray
        Accumulated integrals of the audit.
    saved : bool
        Whether this is a save time, and not a step on the way to one.
    """

    time: float
    masses: np.ndarray
    audit: dict[str, float] = field(default_factory=dict)
    state: np.ndarray | None = None
    saved: bool = True

    @property
    def steps(self) -> int:
        """Time steps taken so far."""
        return int(self.audit["steps"])

    def snapshot(self) -> dict[str, np.ndarray]:
        """The instant as named arrays, for a checkpoint; `restored` is the inverse.

        Examples
        --------
        >>> frame = Frame(0.5, np.ones(1), {"steps": 3.0, "cfl": 0.4}, np.zeros(2))
        >>> Frame.restored(frame.snapshot()).time
        0.5
        """
        return {
            "time": np.array(self.time),
            "masses": self.masses,
            "state": self.state,
            "steps": np.array(self.audit["steps"]),
            "cfl": np.array(self.audit["cfl"]),
        }

    @classmethod
    def restored(cls, arrays: dict[str, np.ndarray]) -> Frame:
        """An instant from the arrays of a `snapshot`."""
        audit = {name: float(arrays[name]) for name in ("steps", "cfl")}
        return cls(float(arrays["time"]), arrays["masses"], audit, arrays["state"], saved=False)


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


def watched(
    frames: Iterable, count: int, t_end: float | None, show: bool, done: int = 0
) -> Iterator:
    """Pass frames and steps on, with a bar for the frames, and announce a very long run.

    Parameters
    ----------
    frames : iterable of Frame or ParticleFrame
        With the steps between the save times.
    count : int
        How many frames there will be.
    t_end : float or None
        Time of the last of them; None if the run may end long before, so that nothing can be
        said about its length.
    show : bool
        Show a progress bar, with steps and their estimated number, on a terminal.
    done : int
        Frames that an earlier run has already saved.

    Warns
    -----
    LongRunWarning
        If, by the first steps, more than 1e7 will be needed.

    Examples
    --------
    >>> instants = [Frame(0.0, None, {"steps": 0}), Frame(1.0, None, {"steps": 9})]
    >>> len(list(watched(instants, 2, 1.0, show=False)))
    2
    """
    first, began, said = None, time.monotonic(), False
    with tqdm(total=count, initial=done, unit="frame", disable=None if show else True) as bar:
        for frame in frames:
            first = first or (frame.time, frame.steps)
            steps, span = frame.steps - first[1], frame.time - first[0]
            if t_end is not None and steps and span > 0 and not (said and bar.disable):
                total = frame.steps + steps * (t_end - frame.time) / span
                bar.set_postfix_str(f"step {frame.steps} of about {total:.2g}", refresh=False)
                if not said and steps >= ESTIMATE_AFTER:
                    said = True
                    if total > MANY_STEPS:
                        rest = (time.monotonic() - began) * (total - frame.steps) / steps
                        warnings.warn(_announcement(total, rest), LongRunWarning, stacklevel=2)
            if frame.saved:
                bar.update()
            yield frame


def _announcement(steps: float, seconds: float) -> str:
    return (
        f"about {steps:.1e} time steps will be needed, {duration(seconds)} at the present speed; "
        "a shorter time or a coarser mesh needs fewer"
    )


def duration(seconds: float) -> str:
    """A length of time in words.

    Examples
    --------
    >>> duration(90), duration(5e5), duration(1e11)
    ('2 minutes', '6 days', '3169 years')
    """
    scales = {"years": 31_556_952, "days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}
    unit = next((unit for unit, length in scales.items() if seconds >= 1.5 * length), "seconds")
    return f"{seconds / scales[unit]:.0f} {unit}"
