"""What is raised where something does not hold."""

from __future__ import annotations


class Violation(AssertionError):
    """Something that must hold does not."""


def require(holds: bool, text: str) -> None:
    """Raise :class:`Violation` unless it holds."""
    if not holds:
        raise Violation(text)


def expect(holds: bool, text: str) -> None:
    """End the run unless a client's own code told its program what it must."""
    assert holds, text
