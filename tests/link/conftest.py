"""What every test of this room has to keep."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


def open_files() -> dict[int, str]:
    """Descriptor -> what it is, of this process."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            pass  # the listing itself, which has ended
    return found


@pytest.fixture(autouse=True)
def nothing_leaks() -> Iterator[None]:
    """What a test opened is closed when it returns: a map holds a descriptor too, by its object."""
    before = open_files()
    yield
    left = {fd: what for fd, what in open_files().items() if before.get(fd) != what}
    assert not left, f"left open: {left}"
