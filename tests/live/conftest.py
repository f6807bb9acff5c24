"""Fixtures of running commands, as in ``tests/cli``."""

from tests.cli.conftest import program

__all__ = ["program"]
