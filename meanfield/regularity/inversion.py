"""Inverses of residual attention blocks, and representations of infinite depth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from meanfield.errors import InputError, NonFiniteError
from meanfield.measures import Measure
from meanfield.regularity.certificates import Contraction
from meanfield.regularity.domains import Domain, check_norm, vector_norm
from meanfield.regularity.operators import self_attention
from meanfield.regularity.potentials import Potential, as_matrix, as_points

SETTLED = 1e-9  # steps below this, relative to the first, are round-off: no factor is taken


@dataclass(frozen=True, eq=False)
class FixedPoint:
    """Result of a fixed-point iteration of tokens.

    Attributes
    ----------
    tokens : ndarray, shape (N, d)
    steps : int
        Applications of the map.
    step_sizes : ndarray, shape (steps,)
        ``(1/N) sum_i |x_{k+1} - x_k|_i`` in the norm.
    converged : bool
    certificate : Contraction or None
    norm : str
    """

    tokens: np.ndarray
    steps: int
    step_sizes: np.ndarray
    converged: bool
    certificate: Contraction | None
    norm: str

    @property
    def worst_factor(self) -> float:
        """The largest quotient of two successive steps, round-off excluded; 0 if there is none."""
        sizes = self.step_sizes[self.step_sizes > SETTLED * self.step_sizes[0]]
        return float((sizes[1:] / sizes[:-1]).max(initial=0.0))

    @property
    def error(self) -> float:
        """A-posteriori error ``q / (1 - q)`` times the last step; NaN without a certificate."""
        if self.certificate is None:
            return float("nan")
        return self.certificate.error(1, self.step_sizes[-1])

    def __repr__(self) -> str:
        state = "converged" if self.converged else "NOT CONVERGED"
        return (
            f"FixedPoint({len(self.tokens)} tokens, {state} after {self.steps} steps, "
            f"worst step factor {self.worst_factor:.3g})"
        )


def attention_block(potential: Potential, scale: float = 1.0, value=None) -> Callable:
    """The map ``x -> c A(x)`` of tokens of equal weight: (N, d) to (N, d).

    Parameters
    ----------
    potential : Potential
    scale : float
    value : array_like, shape (d, d), optional

    Returns
    -------
    callable

    Examples
    --------
    >>> from meanfield.regularity.potentials import Gaussian
    >>> attention_block(Gaussian(), 0.5)([[1.0], [1.0]]).tolist()
    [[0.5], [0.5]]
    """
    value = None if value is None else as_matrix(value, "value")
    return lambda x: scale * self_attention(Measure(x), potential, value).points


def invert(
    outputs,
    block: Callable,
    domain: Domain,
    certificate: Contraction | None = None,
    norm: str = "l2",
    tolerance: float = 1e-13,
    max_steps: int = 2000,
) -> FixedPoint:
    """Invert a residual block ``y = x + g(x)`` on E by ``x <- P(y - g(x))``.

    Iterations leave E, where the constant of g holds, so that they are projected onto it: the
    nearest point for a ball, a clip for a box.

    Parameters
    ----------
    outputs : array_like, shape (N, d)
        y, the image of tokens in E.
    block : callable
        g, (N, d) to (N, d), such as `attention_block`.
    domain : Box or Ball
    certificate : Contraction, optional
        With a factor below one; without it the iteration is tried.
    norm : {"l2", "l1"}
        Of the step sizes; that of the certificate, if there is one.
    tolerance : float
        The iteration ends when a step is below this times the size of E.
    max_steps : int

    Returns
    -------
    FixedPoint
        ``converged`` is false if the steps did not become small.

    Raises
    ------
    ConvergenceError
        If the certificate refuses.
    PointsError
        If the outputs are not finite.
    InputError
        If the block does not return as many tokens, or the domain has another dimension.

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), Section 6.3.

    Examples
    --------
    >>> from meanfield.regularity.certificates import certify
    >>> from meanfield.regularity.domains import Box
    >>> from meanfield.regularity.potentials import ScaledDotProduct
    >>> G, E, x = ScaledDotProduct(), Box(0.1, 1), np.array([[0.1], [-0.05]])
    >>> g = attention_block(G, 0.5)
    >>> found = invert(x + g(x), g, E, certify(G, E, 2, 0.5, norm="l1"))
    >>> bool(np.abs(found.tokens - x).max() < 1e-13)
    True
    """
    y = _fitting(outputs, domain)
    g, run = _checked(block, y.shape), _Iteration(domain, certificate, norm, tolerance, max_steps)
    return run(lambda x: domain.project(y - g(x)), domain.project(y))


def infinite_depth(
    inputs,
    block: Callable,
    domain: Domain,
    injection: Callable | None = None,
    certificate: Contraction | None = None,
    norm: str = "l2",
    tolerance: float = 1e-13,
    max_steps: int = 2000,
) -> FixedPoint:
    """The representation of infinite depth ``H = g(P(H + s(X)))`` with shared weights.

    Parameters
    ----------
    inputs : array_like, shape (N, d)
        X.
    block : callable
        g, such as `attention_block`.
    domain : Box or Ball
        E; what g sees is projected onto it.
    injection : callable, optional
        s, (N, d) to (N, d); the identity when omitted.
    certificate, norm, tolerance, max_steps
        As in `invert`.

    Returns
    -------
    FixedPoint

    Raises
    ------
    ConvergenceError
        If the certificate refuses.
    PointsError, InputError
        As in `invert`.

    References
    ----------
    Vuckovic, Baratin, Tachet des Combes (2020), eq. (4).

    Examples
    --------
    >>> from meanfield.regularity.domains import Box
    >>> from meanfield.regularity.potentials import ScaledDotProduct
    >>> H = infinite_depth([[0.5]], attention_block(ScaledDotProduct(), 0.5), Box(2.0, 1))
    >>> H.tokens.round(12).tolist()
    [[0.5]]
    """
    x = _fitting(inputs, domain)
    injected = x if injection is None else _fitting(injection(x), domain)
    if injected.shape != x.shape:
        raise InputError(f"the injection must return shape {x.shape}, got {injected.shape}")
    g, run = _checked(block, x.shape), _Iteration(domain, certificate, norm, tolerance, max_steps)
    return run(lambda h: g(domain.project(h + injected)), np.zeros_like(x))


def _fitting(tokens, domain) -> np.ndarray:
    x = as_points(tokens, "tokens")
    if x.shape[1] != domain.dimension:
        raise InputError(f"tokens live in R^{x.shape[1]}, the domain in R^{domain.dimension}")
    return x


def _checked(block: Callable, shape) -> Callable:
    """The block, refusing outputs of another shape or with NaN."""

    def checked(x):
        images = np.asarray(block(x), dtype=float)
        if images.shape != shape:
            raise InputError(f"the block must return shape {shape}, got {images.shape}")
        if not np.isfinite(images).all():
            raise NonFiniteError("the block returned NaN or infinity")
        return images

    return checked


@dataclass(frozen=True, eq=False)
class _Iteration:
    """``x <- step(x)`` until the steps are small."""

    domain: Domain
    certificate: Contraction | None
    norm: str
    tolerance: float
    max_steps: int

    def __call__(self, step: Callable, x: np.ndarray) -> FixedPoint:
        norm, certificate = check_norm(self.norm), self.certificate
        if self.max_steps < 1:
            raise InputError(f"max_steps must be positive, got {self.max_steps}")
        if certificate is not None:
            certificate.require()
            if certificate.domain != self.domain:
                raise InputError(
                    f"the certificate holds on {certificate.domain}, not on {self.domain}"
                )
            if certificate.n_tokens not in (None, len(x)):
                raise InputError(
                    f"the certificate holds for {certificate.n_tokens} tokens, not for {len(x)}"
                )
            norm = certificate.norm
        small = self.tolerance * self.domain.half_width
        sizes = [np.inf]
        while sizes[-1] > small and len(sizes) <= self.max_steps:
            new = step(x)
            sizes.append(vector_norm(new - x, norm).mean())
            x = new
        done = bool(sizes[-1] <= small)
        return FixedPoint(x, len(sizes) - 1, np.array(sizes[1:]), done, certificate, norm)
