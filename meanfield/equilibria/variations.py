"""First and second variations of the energy, and how far a state is from stationary."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import LinearOperator

from meanfield.equilibria.exact import symmetric_matrix
from meanfield.equilibria.linearization import Linearization
from meanfield.equilibria.starts import start_masses
from meanfield.errors import InputError, MatrixError, PointsError
from meanfield.measures import Measure
from meanfield.model.attention import SelfAttention
from meanfield.model.heads import MultiHead
from meanfield.sphere.geometry import tangential, unit_points
from meanfield.sphere.meshes import circle
from meanfield.sphere.spaces import Space, lebedev, product_sphere

KINDS = ("geodesic", "flow")
NORMS = ("L2", "sup")


def first_variation(measure: Measure, field, interaction) -> float:
    """``dE(mu; V) = 2 int int K(x, y) P_x Dy . V(x) dmu(y) dmu(x)``.

    The derivative of the energy along ``d_t mu + div(mu P_x V) = 0``.

    Parameters
    ----------
    measure : Measure
        A point cloud, or masses at the points of a `Space`.
    field : callable or array_like, shape (m, n)
        V as a function of points (m, n), or its values at the points of the measure; it is
        projected to the tangent spaces.
    interaction : Interaction, or array_like, shape (n, n) or (n,)
        With symmetric D.

    Returns
    -------
    float
        Infinite beyond the range of float64.

    Raises
    ------
    MatrixError
        If D is not symmetric.
    PointsError
        If shapes do not fit or a value is not finite.

    Notes
    -----
    Burger, Kabri, Korolev, Roith, Weigand (2025), eq. (4.4), corrected: the factor 2.

    Examples
    --------
    >>> import meanfield as mf
    >>> value = first_variation(Measure([[0.6, 0.8]]), [[-0.8, 0.6]], mf.Interaction([1.0, 2.0]))
    >>> bool(np.isclose(value, 2 * 0.48 * np.exp(1.64)))
    True
    """
    line, _ = _linearize(measure, interaction)
    V = field_values(field, line.points, "field")
    slopes = np.sum(tangential(line.points, line.force) * V, axis=1)
    with np.errstate(over="ignore"):
        return 2 * float(np.sum(measure.masses * np.exp(line.shift) * slopes))


def second_variation(
    measure: Measure, V, W, interaction, kind: str = "geodesic", jacobian=None
) -> float:
    """Second derivative of the energy in the directions of two vector fields.

    Parameters
    ----------
    measure : Measure
    V, W : callable or array_like, shape (m, n)
        As in `first_variation`.
    interaction : Interaction, or array_like, shape (n, n) or (n,)
        With symmetric D.
    kind : {"geodesic", "flow"}
        The geodesic Hessian, a symmetric bilinear form; or ``d/dt dE(mu_t; W)`` while mu_t moves
        with V, which adds ``dE(mu; nabla_V W)``. They agree where mu is stationary.
    jacobian : callable or array_like, shape (m, n, n), optional
        Needed for ``"flow"``: the derivative of W as a function on R^n,
        ``J[i, a, b] = d W_a / d x_b``.

    Returns
    -------
    float
        Infinite beyond the range of float64.

    Raises
    ------
    InputError
        If the kind is unknown, or the Jacobian is missing.
    MatrixError, PointsError
        As in `first_variation`.

    Notes
    -----
    Burger, Kabri, Korolev, Roith, Weigand (2025), Lemma 4.4, corrected (nonlocal terms, W and a
    factor are missing there): for tangential fields the Hessian is ``2 int int K [(V(x).Dy)
    (W(x).Dy) - (x.Dy) V(x).W(x) + (V(y).Dx)(W(x).Dy) + W(x).DV(y)]``, and
    ``nabla_V(P W) = P(J_W V) - (x.W) V``.

    Examples
    --------
    A single point at e1, turned: E = exp(cos^2 t + 2 sin^2 t) has E'' = 2e at t = 0.

    >>> import meanfield as mf
    >>> point, turn = Measure([[1.0, 0.0]]), [[0.0, 1.0]]
    >>> bool(np.isclose(second_variation(point, turn, turn, mf.Interaction([1.0, 2.0])), 2 * np.e))
    True
    """
    if kind not in KINDS:
        raise InputError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    if kind == "flow" and jacobian is None:
        raise InputError("the flow second variation needs jacobian, the derivative of W")
    line, _ = _linearize(measure, interaction)
    x = line.points
    first = tangential(x, field_values(V, x, "V"))
    raw = field_values(W, x, "W")
    change = line.apply_local(first) + line.mixed(first)
    slopes = np.sum(change * tangential(x, raw), axis=1)
    if kind == "flow":
        moved = np.einsum("mab,mb->ma", field_values(jacobian, x, "jacobian", matrices=True), first)
        derivative = moved - np.sum(x * raw, axis=1)[:, None] * first
        slopes += np.sum(tangential(x, line.force) * derivative, axis=1)
    with np.errstate(over="ignore"):
        return 2 * float(np.sum(measure.masses * np.exp(line.shift) * slopes))


def hessian_operator(measure: Measure, interaction, method: str = "auto") -> LinearOperator:
    """The geodesic Hessian as a matrix-free symmetric operator on flattened fields.

    Parameters
    ----------
    measure : Measure
    interaction : Interaction, or array_like, shape (n, n) or (n,)
        With symmetric D.
    method : {"auto", "direct", "separable", "clustered"}
        How sums over the points are evaluated: see `Interaction.on`.

    Returns
    -------
    scipy.sparse.linalg.LinearOperator, shape (m n, m n)
        ``W.ravel() @ (H @ V.ravel())`` is ``second_variation(measure, V, W, interaction)``. One
        application costs one evaluation of the kernel sums with n + n^2 fields, in O(m) memory.

    Raises
    ------
    MatrixError, PointsError
        As in `first_variation`.

    Examples
    --------
    >>> import meanfield as mf
    >>> H = hessian_operator(Measure([[1.0, 0.0]]), mf.Interaction([1.0, 2.0]))
    >>> (H @ np.array([0.0, 1.0]) / np.e).round(12).tolist()
    [0.0, 2.0]
    """
    line, measure = _linearize(measure, interaction, method)
    x = line.points
    with np.errstate(over="ignore"):
        weights = 2 * (measure.masses * np.exp(line.shift))[:, None]

    def apply(vector):
        xi = tangential(x, np.reshape(vector, x.shape))
        return (weights * (line.apply_local(xi) + line.mixed(xi))).ravel()

    return LinearOperator((x.size, x.size), matvec=apply, rmatvec=apply, dtype=float)


def stationarity_residual(state, interaction=None, norm: str = "L2", space=None):
    """How fast a state moves, relative to the fastest that its model allows; 0 if stationary.

    A measure is stationary iff ``P_x int K(x, y) Dy dmu(y) = 0`` at mu-almost every x. The
    residual is a norm over mu of that vector over ``Z(x) |D|``, the velocity ``grad log Z`` of
    the normalised flow over its bound: a number between 0 and 1 for every D, which never
    overflows and is the same for both signs and both flows.

    Parameters
    ----------
    state : Measure, result, or callable
        A measure, a run (its final state), an `Extremum`, or a density such as
        `exact_minimizer` or `uniform` gives.
    interaction : Interaction, SelfAttention, MultiHead, or array_like, optional
        Of an `Interaction` or a matrix, D must be symmetric. A model may have any D and V: then
        the residual is that of its velocity, with V for D. By default the state's own.
    norm : {"L2", "sup"}
        Root mean square over mu, or the largest value where mu has mass. Densities on a mesh are
        taken as masses at the cell centres: in L2 cells that hold next to nothing do not count.
    space : Space, optional
        Where a callable is sampled; by default circle(512), lebedev(101), or a product rule.

    Returns
    -------
    float, or ndarray of shape (starts,) for an ensemble of particles

    Raises
    ------
    InputError
        If the model or the norm is missing or unknown.
    MatrixError
        If D of an interaction is not symmetric.
    PointsError, DensityError
        If the state is not one on the sphere in the dimension of D.

    Notes
    -----
    Burger, Kabri, Korolev, Roith, Weigand (2025), eq. (4.5).

    Examples
    --------
    >>> import meanfield as mf
    >>> stationarity_residual(Measure([[1.0, 0.0], [-1.0, 0.0]]), mf.Interaction([1.0, 2.0]))
    0.0
    >>> round(stationarity_residual(Measure([[0.6, 0.8]]), mf.Interaction([1.0, 2.0])), 12)
    0.24
    """
    if norm not in NORMS:
        raise InputError(f"norm must be one of {', '.join(NORMS)}, got {norm!r}")
    if getattr(state, "starts", None) is not None:
        each = [state.start(k) for k in range(state.starts)]
        return np.array([stationarity_residual(one, interaction, norm) for one in each])
    resolved = resolve(state, interaction, space)
    measure, model = resolved.measure, resolved.model
    if isinstance(model, MultiHead):
        speed = model.on(measure.points).velocity(measure.masses) / (model.speed_bound or 1.0)
        return field_norm(speed, measure.masses, norm)
    line = Linearization(unit_points(measure.points), measure.masses, model.D, model.V)
    return field_norm(line.averages / (model.value_norm or 1.0), measure.masses, norm)


def field_norm(values: np.ndarray, masses: np.ndarray, norm: str = "L2") -> float:
    """Root mean square over the masses, or the largest length where there is mass.

    Examples
    --------
    >>> field_norm(np.array([[0.0, 3.0], [9.0, 9.0]]), np.array([1.0, 0.0]), "sup")
    3.0
    """
    lengths = np.linalg.norm(values, axis=1)
    if norm == "sup":
        return float(lengths[masses > 0].max())
    return float(np.sqrt(np.dot(masses, lengths**2)))


@dataclass(frozen=True, eq=False)
class Resolved:
    """A state of any kind as a measure, with its model.

    Attributes
    ----------
    measure : Measure
    model : SelfAttention or MultiHead
    smooth : bool
        Whether the points are nodes of a quadrature for a density, not particles.
    """

    measure: Measure
    model: object
    smooth: bool


def resolve(state, model=None, space=None) -> Resolved:
    """Find the measure and the model of a result, a measure, clusters or a density.

    Raises
    ------
    InputError
        If the model is missing, or the state is of an unknown kind.
    MatrixError
        If an interaction is given whose D is not symmetric.
    PointsError
        If dimensions do not fit.

    Examples
    --------
    >>> import meanfield as mf
    >>> from meanfield.model.densities import uniform
    >>> resolve(uniform(), mf.Interaction([1.0, 2.0]), circle(16)).smooth
    True
    """
    model = _model(state, model)
    smooth = True
    if hasattr(state, "final"):
        measure = state.final
        smooth = measure.space is not None or hasattr(state, "log_density")
    elif isinstance(state, Measure):
        measure, smooth = state, state.space is not None
    elif hasattr(state, "centres"):
        measure, smooth = _cluster_measure(state), False
    elif callable(state):
        space = default_space(model.dimension) if space is None else space
        if not isinstance(space, Space):
            raise InputError(f"space must be a Space or a Mesh, got {type(space).__name__}")
        measure = Measure(space.points, start_masses(space, model.D, state, 1)[0], space)
    else:
        raise InputError(
            f"a state is a Measure, a result, clusters or a density, got {type(state).__name__}"
        )
    if measure.dimension != model.dimension:
        raise PointsError(
            f"D is {model.dimension} x {model.dimension} but the points are in "
            f"R^{measure.dimension}"
        )
    return Resolved(measure, model, smooth)


def default_space(n: int) -> Space:
    """Where densities are sampled if nobody says where.

    Examples
    --------
    >>> default_space(2).name
    'circle:512'
    """
    if n == 2:
        return circle(512)
    return lebedev(101) if n == 3 else product_sphere(n, 12)


def _model(state, model):
    """The model given, or that of the state; an interaction becomes V = D."""
    if model is None:
        model = getattr(state, "model", None)
    if model is None and hasattr(state, "interaction"):  # an Extremum: the flow that leads to it
        sign = -1 if state.parameters.get("verb", "minimize") == "minimize" else 1
        return SelfAttention(symmetric_matrix(state.interaction.D), sign)
    if model is None and hasattr(state, "eigenvalues"):  # an exact minimiser
        return SelfAttention(state.D, -1)
    if model is None:
        raise InputError(f"a {type(state).__name__} has no model: pass an Interaction or a model")
    if isinstance(model, SelfAttention | MultiHead):
        return model
    return SelfAttention(symmetric_matrix(getattr(model, "D", model)), 1)


def _cluster_measure(clusters) -> Measure:
    """Clusters of one start as points with masses."""
    if np.ndim(clusters.count):
        raise InputError("clusters of an ensemble have many states: choose one start")
    if not np.isfinite(clusters.centres).all():
        raise InputError("a cluster has no centre: choose a smaller angle to find clusters")
    return Measure(clusters.centres, clusters.masses)


def _linearize(measure, interaction, method: str = "auto") -> tuple[Linearization, Measure]:
    if isinstance(interaction, SelfAttention):
        interaction = interaction.interaction
    D = symmetric_matrix(getattr(interaction, "D", interaction))
    if not isinstance(measure, Measure):
        raise InputError(f"measure must be a Measure, got {type(measure).__name__}")
    if measure.dimension != len(D):
        raise MatrixError(f"D is {len(D)} x {len(D)}, the points are in R^{measure.dimension}")
    return Linearization(unit_points(measure.points), measure.masses, D, D, method), measure


def field_values(field, points, name: str, matrices: bool = False) -> np.ndarray:
    """Values of a vector (or matrix) field at points, checked.

    Raises
    ------
    PointsError
        If the shape is wrong or a value is not finite.

    Examples
    --------
    >>> field_values(lambda x: 2 * x, np.eye(2), "V").tolist()
    [[2.0, 0.0], [0.0, 2.0]]
    """
    values = np.asarray(field(points) if callable(field) else field, dtype=float)
    shape = (*points.shape, points.shape[1]) if matrices else points.shape
    if values.shape != shape:
        raise PointsError(f"{name} must have shape {shape}, got {values.shape}")
    if not np.isfinite(values).all():
        raise PointsError(f"{name} contains NaN or infinity")
    return values
