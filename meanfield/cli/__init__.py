"""The command `meanfield`."""

from meanfield.cli.app import main

__all__ = ["main"]
