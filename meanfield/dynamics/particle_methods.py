"""Time steps for particles on the sphere.

A method is a Runge-Kutta tableau and a way to stay on the sphere, chosen independently:

- ``projected``: the tableau in R^n on the velocity extended by ``v(x / |x|)``, then
  ``x / |x|`` (Hairer, Lubich and Wanner, Geometric Numerical Integration, 2006, Algorithm
  IV.4.2);
- ``geodesic``: the tableau in normal coordinates of the tangent space at the start of the
  step, then the exponential map (the same book, Section IV.5.3).

Both keep the tableau's order. ``projected_euler`` is the paper's own step (5.1), which
projects ``x + h A(x)`` with the attention output A, not its tangential part: the layers of a
transformer. Arrays are component first, shape (n, starts, N).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meanfield.dynamics.particle_fields import dot, make_field
from meanfield.errors import InputError

CHECK = 10  # steps between two looks at the speed of the particles


@dataclass(frozen=True)
class Tableau:
    """An explicit Runge-Kutta method: ``k_i = f(x + h sum_j a_ij k_j)``, ``x + h sum b_i k_i``."""

    name: str
    order: int
    a: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]
    source: str


EULER = Tableau("Euler", 1, ((),), (1.0,), "Euler (1768)")
MIDPOINT = Tableau("midpoint", 2, ((), (1 / 2,)), (0.0, 1.0), "Runge (1895)")
RK4 = Tableau(
    "RK4",
    4,
    ((), (1 / 2,), (0.0, 1 / 2), (0.0, 0.0, 1.0)),
    (1 / 6, 1 / 3, 1 / 3, 1 / 6),
    "Kutta (1901)",
)


@dataclass(frozen=True)
class ParticleMethod:
    """A fixed-step method: a name, a stepper class and its tableau."""

    name: str
    stepper: type
    tableau: Tableau

    @property
    def order(self) -> int:
        """Order of convergence."""
        return self.tableau.order


class LayerSteps:
    """``x <- Pi(x + h A(x))``: projected Euler exactly as eq. (5.1), a transformer layer."""

    def __init__(self, model, weights: np.ndarray, shape: tuple[int, int, int], tableau=EULER):
        self.field = make_field(model, weights, shape[1])
        self.output = np.empty(shape)
        self.components = list(self.output)
        self.length = np.empty(shape[1:])

    def step(self, x: np.ndarray, h: float) -> None:
        """Advance x in place."""
        self.field(x, self.output)
        self.output *= h
        x += self.output
        self._normalize(x)

    def _normalize(self, x: np.ndarray) -> None:
        np.multiply(x, x, out=self.output)
        first, second, *others = self.components
        np.add(first, second, out=self.length)
        for other in others:
            self.length += other
        np.sqrt(self.length, out=self.length)
        x /= self.length

    def velocity(self, x: np.ndarray, out: np.ndarray) -> np.ndarray:
        """The tangential velocity at points of the sphere, written to out."""
        self.field(x, out)
        out -= dot(x, out) * x
        return out

    def speed(self, x: np.ndarray) -> np.ndarray:
        """The largest speed of a particle of each start, shape (starts,)."""
        v = self.velocity(x, self.output)
        return np.sqrt(dot(v, v).max(axis=-1))


class ProjectedSteps(LayerSteps):
    """A tableau in the surrounding space, projected at the end of the step."""

    def __init__(self, model, weights, shape, tableau):
        super().__init__(model, weights, shape, tableau)
        self.tableau = tableau
        self.slopes = [np.empty(shape) for _ in tableau.b]
        self.stage = np.empty(shape)

    def step(self, x, h):
        """Advance x in place."""
        for row, slope in zip(self.tableau.a, self.slopes, strict=True):
            self._combine(x, h, row, self.stage)
            self._normalize(self.stage)
            self.velocity(self.stage, slope)
        self._combine(x, h, self.tableau.b, x)
        self._normalize(x)

    def _combine(self, x, h, coefficients, out):
        """``x + h sum_j c_j k_j``."""
        if out is not x:
            out[:] = x
        for c, slope in zip(coefficients, self.slopes, strict=False):
            if c:
                out += (h * c) * slope


class GeodesicSteps(ProjectedSteps):
    """A tableau in normal coordinates: stages are ``exp_x(u)``, slopes are pulled back to u."""

    def step(self, x, h):
        """Advance x in place."""
        tangent = np.zeros_like(x)
        for row, slope in zip(self.tableau.a, self.slopes, strict=True):
            tangent[:] = 0.0
            self._combine(tangent, h, row, tangent)
            self._exponential(x, tangent, slope)
        tangent[:] = 0.0
        self._combine(tangent, h, self.tableau.b, tangent)
        radius = np.sqrt(dot(tangent, tangent))
        x *= np.cos(radius)
        x += np.sinc(radius / np.pi) * tangent
        self._normalize(x)

    def _exponential(self, x, u, slope):
        """Velocity at ``y = exp_x(u)``, as a rate of change of u."""
        radius = np.sqrt(dot(u, u))
        direction = u / np.where(radius > 0, radius, 1.0)
        cosine, sine = np.cos(radius), np.sin(radius)
        np.add(cosine * x, sine * direction, out=self.stage)
        self._normalize(self.stage)
        self.velocity(self.stage, slope)
        # The differential of exp_x keeps the part along the geodesic and scales the part
        # across it by sin r / r.
        along = cosine * direction - sine * x
        part = dot(slope, along)
        slope -= part * along
        slope /= np.sinc(radius / np.pi)
        slope += part * direction


METHODS = {
    method.name: method
    for method in (
        ParticleMethod("projected_euler", LayerSteps, EULER),
        ParticleMethod("projected_midpoint", ProjectedSteps, MIDPOINT),
        ParticleMethod("projected_rk4", ProjectedSteps, RK4),
        ParticleMethod("geodesic_euler", GeodesicSteps, EULER),
        ParticleMethod("geodesic_midpoint", GeodesicSteps, MIDPOINT),
        ParticleMethod("geodesic_rk4", GeodesicSteps, RK4),
    )
}


def fixed_step_method(name: str) -> ParticleMethod:
    """Look up a fixed-step method.

    Raises
    ------
    InputError
        If there is none of that name.

    Examples
    --------
    >>> fixed_step_method("geodesic_rk4").order
    4
    """
    if name not in METHODS:
        raise InputError(f"method must be 'adaptive' or one of {', '.join(METHODS)}; got {name!r}")
    return METHODS[name]


@dataclass(frozen=True)
class Interval:
    """What lies between two frames: its ends, and ``count`` steps of length ``h``."""

    start: float
    end: float
    count: int
    h: float


class SteppedStarts:
    """A chunk of starts that advance together with fixed steps.

    Parameters
    ----------
    points : ndarray, shape (starts, N, n)
    model, weights, method
    stationary : float or None
        A start all of whose particles are at most this fast stops.

    Attributes
    ----------
    points : ndarray, shape (starts, N, n)
    stopped : ndarray, shape (starts,)
        When a start stopped; NaN while it moves.
    time : float
    steps : int
        Taken since the beginning.
    """

    def __init__(self, points, model, weights, method: ParticleMethod, stationary):
        self.points = points.copy()
        self.stopped = np.full(len(points), np.nan)
        self._make = lambda shape: method.stepper(model, weights, shape, method.tableau)
        self._stationary = stationary
        self._moving = np.arange(len(points))
        self._x = np.ascontiguousarray(points.transpose(2, 0, 1))
        self._steps = self._make(self._x.shape)
        self._done = 0  # steps of the present interval
        self.time, self.steps = 0.0, 0

    def advance(self, interval: Interval, steps: int) -> bool:
        """Take at most so many more steps, a multiple of `CHECK`; True at the interval's end."""
        h, last = interval.h, min(interval.count, self._done + steps)
        with np.errstate(all="ignore"):  # what is not finite is found at the next frame
            while self._done < last and len(self._moving):
                rest = last - self._done
                block = rest if self._stationary is None else min(CHECK, rest)
                for _ in range(block):
                    self._steps.step(self._x, h)
                self._done += block
                self.steps += block
                self.time = interval.start + self._done * h
                if self._stationary is not None:
                    self._retire(self.time)
        self.points[self._moving] = self._x.transpose(1, 2, 0)
        complete = self._done >= interval.count or not len(self._moving)
        if complete:
            self._done, self.time = 0, interval.end
        return complete

    def snapshot(self) -> dict[str, np.ndarray]:
        """The state, one row for each start."""
        rows = np.full(len(self.points), 1)
        return {
            "points": self.points,
            "stopped": self.stopped,
            "done": rows * self._done,
            "steps": rows * self.steps,
        }

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Go back to a snapshot."""
        self.points, self.stopped = state["points"].copy(), state["stopped"].copy()
        self._done, self.steps = int(state["done"][0]), int(state["steps"][0])
        self._moving = np.flatnonzero(np.isnan(self.stopped))
        self._x = np.ascontiguousarray(self.points[self._moving].transpose(2, 0, 1))
        if len(self._moving):
            self._steps = self._make(self._x.shape)

    def _retire(self, time: float) -> None:
        """Take starts that stand still out of the computation."""
        still = self._steps.speed(self._x) <= self._stationary
        if still.any():
            self.points[self._moving[still]] = self._x[:, still].transpose(1, 2, 0)
            self.stopped[self._moving[still]] = time
            self._moving = self._moving[~still]
            self._x = np.ascontiguousarray(self._x[:, ~still])
            if len(self._moving):
                self._steps = self._make(self._x.shape)
