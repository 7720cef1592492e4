"""Named errors: what was wrong and what to do about it, in one line.

Every error of the library is an `InputError` (a ``ValueError``: the caller can mend the
input) or a `ComputationError` (a ``RuntimeError``: the input was understood but the
computation could not be carried through). The command maps the first to exit status 2 and
the second to exit status 1.
"""


class InputError(ValueError):
    """The input is not what the function takes; the message says what is allowed."""


class MatrixError(InputError):
    """A matrix (D or V) has the wrong shape or entries that are not finite."""


class DensityError(InputError):
    """A density or a vector of masses is negative, not finite, or has the wrong total."""


class PointsError(InputError):
    """Points are not finite, not on the sphere, or cannot be read."""


class MeshError(InputError):
    """A mesh or a quadrature rule does not exist or is not a valid one."""


class FileError(InputError):
    """A file is missing, cannot be read or written, or would be overwritten."""


class SizeError(InputError):
    """The request would not fit into memory; the message states the estimate."""


class ComputationError(RuntimeError):
    """The computation was stopped; what had been computed before stays valid."""


class StiffnessError(ComputationError):
    """The flow is too fast for explicit time steps in double precision."""


class NonFiniteError(ComputationError):
    """A value became infinite or not a number."""


class ConvergenceError(ComputationError):
    """An iteration or an expansion did not reach the accuracy it must have."""
