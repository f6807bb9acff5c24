"""Who holds a lock, in words: a program that opens a directory twice would look for another one."""

from __future__ import annotations

import os

DESCRIPTORS, THEIR_STATE = "/proc/self/fd", "/proc/self/fdinfo"


def holder_of(path: str) -> str:
    """Return whether this process or another one holds the lock on what is at ``path``.

    Raises nothing: what cannot be looked at is taken for another process's.
    """
    try:
        locked = os.stat(path)
        held = any(_is_lock(fd, locked) for fd in os.listdir(DESCRIPTORS))
    except OSError:
        held = False
    return "this process" if held else "another process"


def _is_lock(fd: str, locked: os.stat_result) -> bool:
    """Return whether a lock is held by this descriptor, whose file must be the locked one."""
    try:
        if not os.path.samestat(os.stat(f"{DESCRIPTORS}/{fd}"), locked):
            return False
        with open(f"{THEIR_STATE}/{fd}") as state:
            return any(line.startswith("lock:") for line in state)
    except OSError:  # it was closed meanwhile: that of the listing, say
        return False
