"""Nodes that move with the flow, and what they carry: the equation along characteristics."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.integrate import DOP853, OdeSolution, solve_ivp
from scipy.special import logsumexp

from meanfield.errors import DensityError, StiffnessError
from meanfield.measures import probability_vector
from meanfield.model.attention import SelfAttention
from meanfield.model.interaction import BoundInteraction
from meanfield.sphere.geometry import tangential
from meanfield.sphere.spaces import Space


def velocity_and_divergence(model: SelfAttention, nodes, masses, x):
    """The velocity of the measure ``sum_j masses_j delta_{nodes_j}`` and its divergence.

    Parameters
    ----------
    model : SelfAttention
    nodes : ndarray, shape (m, n)
        Unit vectors.
    masses : ndarray, shape (m,), nonnegative
    x : ndarray, shape (k, n)
        Unit vectors: where to evaluate.

    Returns
    -------
    velocity : ndarray, shape (k, n)
        Tangential.
    divergence : ndarray, shape (k,)
        On the sphere.

    Notes
    -----
    With ``v = P_x u`` and the Jacobian J of u, ``div v = tr(P_x J P_x) - (n - 1) x.u``. For the
    unnormalised flow ``u = int K V y dmu`` and ``J = int K V y (Dy)^T dmu``. The normalised flow
    has attention averages <.> instead of integrals, and ``J = <V y (Dy)^T> - <V y><Dy>^T``. So
    the first and second moments of y suffice, for any D and V.

    References
    ----------
    Burger, Kabri, Korolev, Roith, Weigand (2025), eqs. (1.7) and (5.1); the divergence is ours.

    Examples
    --------
    >>> model = SelfAttention([0.0, 0.0, 0.0], V=[1.0, 1.0, 1.0])
    >>> pole = np.array([[0.0, 0.0, 1.0]])
    >>> velocity, divergence = velocity_and_divergence(model, pole, np.ones(1), pole)
    >>> velocity.tolist(), divergence.tolist()
    ([[0.0, 0.0, 0.0]], [-2.0])
    """
    n, D, V = model.dimension, model.D, model.V
    row, column = np.triu_indices(n)
    fields = np.concatenate([nodes, nodes[:, row] * nodes[:, column]], axis=1)
    bound = BoundInteraction(model.interaction, nodes, at=x, method="direct")
    shift, sums = bound.sums(masses, fields)
    if model.normalized:
        moments = sums[:, 1:] / sums[:, :1]
    else:
        moments = sums[:, 1:] * np.exp(shift)[:, None]
    first, second = moments[:, :n], moments[:, n:]
    u = first @ V.T
    velocity = tangential(x, u)
    # tr(P V M D^T P) = sum_ab M_ab Q_ab, Q = D^T V - (D^T x)(V^T x)^T, over a <= b.
    Q, left, right = D.T @ V, x @ D, x @ V
    symmetric = Q[row, column] + Q[column, row]
    symmetric = symmetric - left[:, row] * right[:, column] - left[:, column] * right[:, row]
    symmetric[:, row == column] /= 2
    divergence = np.einsum("kp,kp->k", second, symmetric)
    divergence -= (n - 1) * np.einsum("ka,ka->k", x, u)
    if model.normalized:
        divergence -= np.einsum("ka,ka->k", velocity, first @ D.T)
    return velocity, divergence


@dataclass(frozen=True, eq=False)
class InitialDensity:
    """The density at time zero, through its logarithm, normalised on a space.

    Attributes
    ----------
    density : callable or None
        None if only masses were given: then nothing is known between the nodes.
    masses, log_values : ndarray, shape (m,)
        At the nodes.
    log_factor : float
        Logarithm of what the density was multiplied with.
    """

    density: object | None
    masses: np.ndarray
    log_values: np.ndarray
    log_factor: float = 0.0

    @classmethod
    def on(cls, space: Space, density) -> InitialDensity:
        """Evaluate a density, or take masses, on the nodes of a space."""
        if not callable(density):
            masses = probability_vector(density, len(space))
            with np.errstate(divide="ignore"):
                return cls(None, masses, np.log(masses / space.weights))
        values = _log_values(density, space.points)
        total = logsumexp(values, b=space.weights)
        if not np.isfinite(total):
            raise DensityError("the density is zero at every node (too narrow for this space?)")
        values = values - total
        return cls(density, space.weights * np.exp(values), values, float(-total))

    def log(self, x: np.ndarray) -> np.ndarray:
        """Logarithm of the normalised density: shape (k, n) to (k,).

        Raises
        ------
        DensityError
            If only masses are known.
        """
        if self.density is None:
            raise DensityError(
                "the run started from masses, which say nothing between the nodes; "
                "give the density as a callable"
            )
        return _log_values(self.density, x) + self.log_factor


def _log_values(density, x: np.ndarray) -> np.ndarray:
    """Logarithm of a density, by its own ``log`` if it has one; -inf where it is zero."""
    own = getattr(density, "log", None)
    values = np.asarray((own or density)(x), dtype=float)
    if values.shape != (len(x),):
        raise DensityError(f"the density must map (m, n) to (m,), it returned {values.shape}")
    if np.isnan(values).any() or (values == np.inf).any():
        raise DensityError("the density is NaN or infinite somewhere")
    if own is not None:
        return values
    if values.min() < 0:
        raise DensityError(f"the density must be >= 0, it takes the value {values.min():.3g}")
    with np.errstate(divide="ignore"):
        return np.log(values)


class Characteristics:
    """Points and the change of the log density along them, as one ordinary equation.

    The state is (points, change), flattened. The velocity is taken at the normalised points and
    scaled with their length: the direction moves right whatever the length, and dividing by
    the length puts a state back on the sphere without an error of first order.

    Parameters
    ----------
    model : SelfAttention
    masses : ndarray, shape (m,)
    """

    def __init__(self, model: SelfAttention, masses: np.ndarray):
        self.model, self.masses = model, masses

    @staticmethod
    def pack(points: np.ndarray) -> np.ndarray:
        """A state with no change of the log density yet: shape (k, n) to (k (n + 1),)."""
        return np.concatenate([points.ravel(), np.zeros(len(points))])

    def unpack(self, state: np.ndarray):
        """Points on the sphere (k, n), their lengths (k, 1) and the change (k,)."""
        n = self.model.dimension
        count = len(state) // (n + 1)
        points = state[: n * count].reshape(count, n)
        lengths = np.linalg.norm(points, axis=1, keepdims=True)
        return points / lengths, lengths, state[n * count :]

    def rate(self, state: np.ndarray, nodes: np.ndarray | None = None) -> np.ndarray:
        """Time derivative of a state, in the field of itself or of given nodes (m, n)."""
        x, lengths, _ = self.unpack(state)
        sources = x if nodes is None else nodes
        velocity, divergence = velocity_and_divergence(self.model, sources, self.masses, x)
        return np.concatenate([(lengths * velocity).ravel(), -divergence])


@dataclass(frozen=True, eq=False)
class NodeFlow:
    """The nodes at any time, and with them the velocity and the density anywhere.

    Attributes
    ----------
    equation : Characteristics
    start : InitialDensity
    solution : OdeSolution
        The interpolant of order 7 that comes with the steps.
    rtol, atol : float
    """

    equation: Characteristics
    start: InitialDensity
    solution: OdeSolution
    rtol: float
    atol: float

    def nodes(self, t: float) -> np.ndarray:
        """The moved nodes, shape (m, n)."""
        return self.equation.unpack(self.solution(t))[0]

    def velocity(self, x: np.ndarray, t: float) -> np.ndarray:
        """Velocity at points: shape (k, n) to (k, n)."""
        model, masses = self.equation.model, self.equation.masses
        velocity, _ = velocity_and_divergence(model, self.nodes(t), masses, x)
        return velocity

    def log_density(self, x: np.ndarray, t: float) -> np.ndarray:
        """Trace points back to time zero, and the log density forward: (k, n) to (k,)."""
        if t == 0:
            return self.start.log(x)
        result = solve_ivp(
            lambda s, state: self.equation.rate(state, self.nodes(s)),
            (t, 0.0),
            Characteristics.pack(x),
            method="DOP853",
            rtol=self.rtol,
            atol=self.atol,
        )
        if not result.success:
            raise StiffnessError(f"points could not be traced back beyond t = {result.t[-1]:g}")
        origins, _, change = self.equation.unpack(result.y[:, -1])
        return self.start.log(origins) - change


class NodeIntegration:
    """The time integration of the nodes of a space, a step at a time.

    Parameters
    ----------
    model : SelfAttention
    space : Space
    start : InitialDensity
    t_end, rtol, atol : float
    """

    def __init__(self, model, space: Space, start: InitialDensity, t_end, rtol, atol):
        self.start, self.rtol, self.atol = start, rtol, atol
        self.equation = Characteristics(model, start.masses)
        self.initial = self.equation.pack(space.points)
        self.solver = DOP853(
            lambda t, state: self.equation.rate(state),
            0.0,
            self.initial,
            t_end,
            rtol=rtol,
            atol=atol,
        )
        self.knots, self.pieces = [0.0], []

    def _step(self) -> None:
        self.solver.step()
        if self.solver.status == "failed":
            raise StiffnessError(f"no positive time step is possible at t = {self.solver.t:g}")
        self.knots.append(self.solver.t)
        self.pieces.append(self.solver.dense_output())

    def states(self, times):
        """Yield (points, change of the log density) and the number of steps at each time."""
        for time in times:
            while self.solver.t < time:
                self._step()
            state = self.pieces[-1](time) if time > 0 else self.initial
            points, _, change = self.equation.unpack(state)
            yield (points, change), len(self.pieces)

    def flow(self) -> NodeFlow:
        """The whole run up to t_end, for evaluation anywhere."""
        while self.solver.status == "running":
            self._step()
        solution = OdeSolution(self.knots, self.pieces)
        return NodeFlow(self.equation, self.start, solution, self.rtol, self.atol)


def volume_error(nodes: np.ndarray, weights: np.ndarray) -> float:
    """How far ``sum_i weights_i delta_{nodes_i}`` is from uniform, in moments up to degree two.

    With the initial weights times the Jacobian of the flow map this would be zero for an
    exact quadrature.

    Examples
    --------
    >>> volume_error(np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]), np.full(4, 0.25))
    0.0
    """
    second = np.einsum("m,ma,mb->ab", weights, nodes, nodes, optimize=True)
    n = nodes.shape[1]
    errors = (weights.sum() - 1, weights @ nodes, second - np.eye(n) / n)
    return float(max(np.abs(error).max() for error in errors))
