"""Adversarial lower bounds of the global Lipschitz constants of self-attention on a domain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from meanfield.errors import ComputationError, InputError
from meanfield.measures import Measure
from meanfield.regularity.domains import Ball, Box, Domain, check_norm, vector_norm
from meanfield.regularity.lengths import exact_wasserstein
from meanfield.regularity.local import local_constant
from meanfield.regularity.operators import self_attention
from meanfield.regularity.potentials import Potential

FLOOR = 1e-3  # times 1 / N: the least weight of a token
DIFFERENCE = 1e-6  # step of the gradients, relative to the domain
ROUND_OFF = 1e-15  # of outputs, relative to the domain
AGREEMENT = 1e-3  # relative agreement of value and confirming difference
POOL = 64  # random configurations that are looked at for each start
ROUNDS = 6  # most rounds of exchange and ascent
WEIGHTS = ("equal", "free")


@dataclass(frozen=True, eq=False)
class AdversarialConstant:
    """A configuration of tokens at which self-attention stretches distances by ``value``.

    A lower bound of the constant on the domain, never an upper one: it certifies nothing.

    Attributes
    ----------
    value : float
        The exact local constant at the tokens.
    norm : str
    potential : Potential
    domain : Domain
    tokens : ndarray, shape (N, d)
    weights : ndarray, shape (N,)
    token : int
        The token that is moved.
    direction : ndarray, shape (d,)
    labelled_ratio, wasserstein_ratio : float
        Ratio of the distances of outputs and inputs after a small move inside the domain, for
        labelled tokens and for W1 by an exact solver.
    starts, seed : int
    """

    value: float
    norm: str
    potential: Potential
    domain: Domain
    tokens: np.ndarray
    weights: np.ndarray
    token: int
    direction: np.ndarray
    labelled_ratio: float
    wasserstein_ratio: float
    starts: int
    seed: int

    @property
    def confirmed(self) -> bool:
        """Whether the finite differences of both distances agree with the value to 0.1 %."""
        ratios = np.array([self.labelled_ratio, self.wasserstein_ratio])
        return bool((np.abs(ratios - self.value) <= AGREEMENT * self.value).all())

    def __repr__(self) -> str:
        state = "confirmed" if self.confirmed else "NOT CONFIRMED"
        size = f"{len(self.tokens)} tokens"
        return f"AdversarialConstant({self.value:.6g}, {self.norm}, {size}, {state})"


def adversarial_constant(
    potential: Potential,
    domain: Domain,
    n_tokens: int,
    norm: str = "l1",
    weights: str = "equal",
    starts: int = 8,
    floor: float | None = None,
    seed: int = 0,
) -> AdversarialConstant:
    """Search for the tokens in a domain at which the local Lipschitz constant is largest.

    Starts are the best of many random configurations (inside, at corners, clustered) and of
    clustered ones on lines and triangles; each is improved by projected quasi-Newton ascent and by
    exchanging tokens for other places. The winner is confirmed by finite differences of the
    distances themselves, since a vanishing weight makes a search report spurious constants.

    Parameters
    ----------
    potential : Potential
    domain : Box or Ball
        Where the tokens live; a large one stands for the whole space.
    n_tokens : int
        At least 2.
    norm : {"l1", "l2"}
    weights : {"equal", "free"}
        Whether the weights are part of the search.
    starts : int
    floor : float, optional
        The least weight, in (0, 1/N]; 1e-3 / N when omitted.
    seed : int

    Returns
    -------
    AdversarialConstant

    Raises
    ------
    InputError
        If an argument is not one of those listed.
    ComputationError
        If no start gives a finite value.

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Theorems 14 and 16: what their constants are
    compared with.

    Examples
    --------
    >>> from meanfield.regularity.potentials import ScaledDotProduct
    >>> found = adversarial_constant(ScaledDotProduct(-1.0), Box(0.1, 1), 4, starts=2)
    >>> round(found.value, 4), found.confirmed
    (1.0101, True)
    """
    _check(potential, domain, n_tokens, weights, starts)
    check_norm(norm)
    free = weights == "free"
    floor = FLOOR / n_tokens if floor is None else float(floor)
    if not 0 < floor <= 1 / n_tokens:
        raise InputError(f"floor must be in (0, 1/N] = (0, {1 / n_tokens:.3g}], got {floor}")
    search = _Search(potential, domain, n_tokens, norm, free, floor)
    rng = np.random.default_rng(seed)
    best, where = -np.inf, None
    for start in search.starts(rng, starts):
        value, z = search.improve(start)
        if np.isfinite(value) and value > best:
            best, where = value, z
    if where is None:
        raise ComputationError("no start gave a finite constant: take a smaller domain")
    x, w = search.unpack(where[None])
    return _confirmed(search, x[0], w[0], starts, seed)


def _check(potential, domain, n_tokens, weights, starts) -> None:
    if not isinstance(potential, Potential):
        raise InputError(f"potential must be a Potential, got {type(potential).__name__}")
    if not isinstance(domain, Box | Ball):
        raise InputError(f"domain must be a Box or a Ball, got {type(domain).__name__}")
    if int(n_tokens) != n_tokens or n_tokens < 2:
        raise InputError(f"n_tokens must be an integer >= 2, got {n_tokens}")
    if weights not in WEIGHTS:
        raise InputError(f"weights must be 'equal' or 'free', got {weights!r}")
    if int(starts) != starts or starts < 1:
        raise InputError(f"starts must be a positive integer, got {starts}")


@dataclass(frozen=True, eq=False)
class _Search:
    """The local constant of token 0 as a function of one vector: tokens, and logits of weights."""

    potential: Potential
    domain: Domain
    count: int
    norm: str
    free: bool
    floor: float

    def unpack(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Tokens (s, N, d) in the domain and weights (s, N)."""
        size = self.count * self.domain.dimension
        x = self.domain.project(z[:, :size].reshape(len(z), self.count, -1))
        if not self.free:
            return x, np.full((len(z), self.count), 1 / self.count)
        return x, self.floor + (1 - self.count * self.floor) * softmax(z[:, size:], axis=1)

    def pack(self, x: np.ndarray, logits: np.ndarray) -> np.ndarray:
        """The inverse, for tokens (s, N, d) and logits (s, N)."""
        flat = x.reshape(len(x), -1)
        return np.concatenate([flat, logits], axis=1) if self.free else flat

    def values(self, z: np.ndarray, direction=None) -> np.ndarray:
        """Local constants of token 0, over all directions or for one: shape (s,)."""
        found, _ = stretch(self.potential, *self.unpack(z), self.norm, direction)
        return found

    def value_and_gradient(self, z: np.ndarray) -> tuple[float, np.ndarray]:
        """Negative, for a minimiser; the best direction is held fixed (envelope theorem)."""
        value, direction = stretch(self.potential, *self.unpack(z[None]), self.norm)
        step = DIFFERENCE * self.domain.half_width
        moves = step * np.eye(len(z))
        ends = self.values(np.concatenate([z + moves, z - moves]), direction[0])
        return -value[0], -(ends[: len(z)] - ends[len(z) :]) / (2 * step)

    def climb(self, z: np.ndarray) -> tuple[float, np.ndarray]:
        """Quasi-Newton ascent."""
        size, r = self.count * self.domain.dimension, self.domain.half_width
        inside = r * (1 - 2 * DIFFERENCE)  # differences then stay on one side of the boundary
        bounds = [(-inside, inside)] * size + [(-25.0, 25.0)] * (len(z) - size)
        z = np.clip(z, *np.array(bounds).T)
        found = minimize(
            self.value_and_gradient, z, jac=True, method="L-BFGS-B", bounds=bounds,
            options={"maxiter": 200},
        )  # fmt: skip
        outward = found.x.copy()
        outward[:size] = np.where(
            np.abs(outward[:size]) >= inside, np.sign(outward[:size]) * r, outward[:size]
        )
        ends = self.values(np.stack([found.x, outward]))
        return (ends[1], outward) if ends[1] >= ends[0] else (ends[0], found.x)

    def exchange(self, value: float, z: np.ndarray) -> tuple[float, np.ndarray]:
        """Move one token at a time to the place of another, its mirror image or the centre."""
        d = self.domain.dimension
        x = z[: self.count * d].reshape(self.count, d)
        places = np.concatenate([x, -x, np.zeros((1, d))])
        places = np.unique(places.round(12), axis=0)
        for i in range(self.count):
            trials = np.repeat(z[None], len(places), axis=0)
            trials[:, i * d : (i + 1) * d] = places
            found = self.values(trials)
            if found.max() > value:
                value, z = found.max(), trials[found.argmax()]
        return value, z

    def improve(self, z: np.ndarray) -> tuple[float, np.ndarray]:
        """Ascent and exchange in turn, while they help."""
        value, z = self.climb(z)
        for _ in range(ROUNDS):
            swapped, moved = self.exchange(value, z)
            if swapped <= value * (1 + 1e-9):
                break
            value, z = self.climb(moved)
            if swapped > value:
                value, z = swapped, moved
        return value, z

    def starts(self, rng, number: int) -> np.ndarray:
        """The best structured and random configurations, as vectors."""
        d, r = self.domain.dimension, self.domain.half_width
        corners = np.sign(rng.standard_normal((4, d)))
        lines = r * np.concatenate([np.eye(d), np.ones((1, d)), corners])
        x = self._collinear(lines)
        if d > 1 and self.count > 2:
            x = np.concatenate([x, self._triangles(lines, rng)])
        logits = np.zeros(x.shape[:2])
        logits[:, 0] = rng.uniform(-12, 2, len(x))
        structured, random = self.pack(x, logits), self._random(rng, POOL * number)
        chosen = []
        for pool, share in ((structured, (number + 1) // 2), (random, number // 2)):
            found = self.values(pool)
            chosen.append(pool[np.argsort(-np.where(np.isfinite(found), found, -1))[:share]])
        return np.concatenate(chosen)

    def _random(self, rng, number: int) -> np.ndarray:
        shape, r = (number, self.count, self.domain.dimension), self.domain.half_width
        x = rng.uniform(-r, r, shape)
        x[::2] = r * np.sign(x[::2])
        x[1::4] *= rng.uniform(0, 1, (len(x[1::4]), 1, 1))
        return self.pack(x, 2 * rng.standard_normal(shape[:2]))

    def _collinear(self, lines) -> np.ndarray:
        """Token 0 at a, -a or the centre, m others at a, the rest at -a, for lines through 0."""
        N, sizes = self.count, np.geomspace(0.05, 1, 24)
        shares = np.unique(np.linspace(0, N - 1, min(N, 9)).astype(int))
        line, size, share, own = (
            grid.ravel()
            for grid in np.meshgrid(np.arange(len(lines)), sizes, shares, [-1, 0, 1], indexing="ij")
        )
        signs = np.where(np.arange(1, N) <= share[:, None], 1.0, -1.0)
        signs = np.concatenate([own[:, None], signs], axis=1)
        return signs[:, :, None] * size[:, None, None] * lines[line][:, None]

    def _triangles(self, lines, rng) -> np.ndarray:
        """Token 0, its mirror image in a line, and the rest at one end of the line."""
        across = rng.standard_normal(lines.shape)
        square = (lines**2).sum(1, keepdims=True)
        across -= (across * lines).sum(1, keepdims=True) / square * lines
        across *= np.sqrt(square) / np.linalg.norm(across, axis=1, keepdims=True)
        angles, sizes = np.pi / 16 * np.arange(1, 9), np.geomspace(0.05, 1, 12)
        grids = np.meshgrid(np.arange(len(lines)), angles, sizes)
        line, angle, size = (grid.reshape(-1, 1) for grid in grids)
        along, angle, size = lines[line], angle[..., None], size[..., None]
        pair = np.array([[1.0], [-1.0]]) * np.sin(angle) * across[line] - np.cos(angle) * along
        rest = np.repeat(along, self.count - 2, axis=1)
        return size * np.concatenate([pair, rest], axis=1)


def stretch(potential, x, w, norm: str, direction=None) -> tuple[np.ndarray, np.ndarray]:
    """Local constants of token 0 of many configurations.

    Parameters
    ----------
    potential : Potential
    x : ndarray, shape (s, N, d)
    w : ndarray, shape (s, N)
    norm : {"l1", "l2"}
    direction : ndarray, shape (d,), optional
        All directions when omitted.

    Returns
    -------
    values : ndarray, shape (s,)
    directions : ndarray, shape (s, d)
    """
    J = first_token_jacobians(potential, x, w)
    s, d = len(x), x.shape[2]
    if direction is None and norm == "l1":
        sums = np.abs(J).sum((1, 2))
        return sums.max(1), np.eye(d)[sums.argmax(1)]
    if direction is None:
        trials = [_climb_directions(J, np.broadcast_to(e, (s, d))) for e in _directions(d)]
        best = np.argmax([value for value, _ in trials], axis=0)
        pick = (best, np.arange(s))
        return np.array([v for v, _ in trials])[pick], np.array([u for _, u in trials])[pick]
    return vector_norm(J @ direction, norm).sum(1), np.broadcast_to(direction, (s, d))


def _directions(d: int) -> np.ndarray:
    return np.concatenate([np.eye(d), np.ones((1, d))]) if d > 1 else np.eye(1)


def _climb_directions(J: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Maximise ``sum_i |J_i u|_2`` over unit u by ``u <- gradient``."""
    u = u / np.linalg.norm(u, axis=1, keepdims=True)
    for _ in range(40 if u.shape[1] > 1 else 0):
        images = np.einsum("sikl,sl->sik", J, u)
        images /= np.maximum(np.linalg.norm(images, axis=2, keepdims=True), 1e-300)
        u = np.einsum("sikl,sik->sl", J, images)
        u /= np.maximum(np.linalg.norm(u, axis=1, keepdims=True), 1e-300)
    return np.linalg.norm(np.einsum("sikl,sl->sik", J, u), axis=2).sum(1), u


def first_token_jacobians(potential, x, w) -> np.ndarray:
    """``(w_i / w_0) J_i0`` for many configurations, shape (s, N, d, d)."""
    s, N, d = x.shape
    flat = x.reshape(s * N, d)
    scores = _scores(potential, x)
    log_ratio = scores - logsumexp(scores, axis=2, b=w[:, None, :], keepdims=True)
    p = np.exp(log_ratio) * w[:, None, :]
    means = p @ x
    c = np.exp(log_ratio[:, :, 0]) * w
    g = _gradients(potential, "key", flat, x)
    J = (x[:, None, 0] - means)[..., None] * g[..., None, :]
    J += np.eye(d)
    J *= c[:, :, None, None]
    r = _gradients(potential, "query", flat, x)
    J[:, 0] += np.einsum("sk,ska,skb->sab", p[:, 0], x - means[:, :1], r)
    return J


def _scores(potential, x) -> np.ndarray:
    if potential.exponential:
        return x @ potential.matrix(x.shape[2]) @ x.transpose(0, 2, 1)
    return np.stack([potential.log(tokens, tokens) for tokens in x])


def _gradients(potential, slot: str, flat, x) -> np.ndarray:
    """``grad_2 a(x_i, x_0)`` for slot "key", ``grad_1 a(x_0, x_i)`` for "query": (s, N, d)."""
    parts = getattr(potential, f"grad_{slot}_parts")(flat, flat)
    if parts is not None:
        of_query, of_key = (np.broadcast_to(part, flat.shape).reshape(x.shape) for part in parts)
        return of_query + of_key[:, :1] if slot == "key" else of_query[:, :1] + of_key
    found = []
    for tokens in x:
        if slot == "key":
            shape = (len(tokens), 1, tokens.shape[1])
            found.append(np.broadcast_to(potential.grad_key(tokens, tokens[:1]), shape)[:, 0])
        else:
            shape = (1, *tokens.shape)
            found.append(np.broadcast_to(potential.grad_query(tokens[:1], tokens), shape)[0])
    return np.stack(found)


def _confirmed(search: _Search, x, w, starts: int, seed: int) -> AdversarialConstant:
    local = local_constant(x, search.potential, w, norm=search.norm)
    domain, j = search.domain, local.token
    # truncation error ~ step, round-off ~ ROUND_OFF / (w_j step): equal at the root
    move = np.sqrt(ROUND_OFF / w[j]) * domain.half_width * local.direction
    if x[j] @ move > 0:
        move = -move  # towards the inside
    moved = x.copy()
    moved[j] += move
    moved = domain.project(moved)
    outputs = self_attention(Measure(x, w), search.potential).points
    changed = self_attention(Measure(moved, w), search.potential).points
    distance = w[j] * vector_norm(moved[j] - x[j], search.norm)
    labelled = (w * vector_norm(changed - outputs, search.norm)).sum() / distance
    exact = exact_wasserstein(outputs, w, changed, w, search.norm)
    exact /= exact_wasserstein(x, w, moved, w, search.norm)
    return AdversarialConstant(
        local.value, search.norm, search.potential, domain, x, w, j, local.direction,
        float(labelled), float(exact), starts, seed,
    )  # fmt: skip
