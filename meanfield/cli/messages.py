"""What the command says on the standard error stream, and its exit statuses."""

from __future__ import annotations

import sys

BAD_INPUT, FAILED, INTERRUPTED, TERMINATED = 2, 1, 130, 143


def say(kind: str, message: str) -> None:
    """One line on the standard error stream."""
    print(f"meanfield: {kind}: {' '.join(message.split())}", file=sys.stderr)


def fail(status: int, message: str) -> int:
    """Say what went wrong, and give the exit status back."""
    say("error", message)
    return status
