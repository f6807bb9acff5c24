"""Damage to a file, as a disk does it."""

from __future__ import annotations

import os
from pathlib import Path


def flip(path: str | Path, position: int) -> None:
    """Change one bit of the byte at a position; the same call again changes it back."""
    with open(path, "r+b") as file:
        byte = os.pread(file.fileno(), 1, position)[0]
        os.pwrite(file.fileno(), bytes([byte ^ 1]), position)
