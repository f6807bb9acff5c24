"""What processes use: memory, descriptors, threads and mappings, as the kernel counts them."""

from __future__ import annotations

import os
from typing import NamedTuple


class Usage(NamedTuple):
    """Of one process. ``private_mb`` leaves out the pages of files, which the kernel takes back."""

    private_mb: float
    descriptors: int
    threads: int
    mappings: int


def usage_of(pid: int) -> Usage | None:
    """Return what a process uses now; None where it has ended."""
    try:
        with open(f"/proc/{pid}/status") as file:
            fields = dict(line.split(":", 1) for line in file)
        with open(f"/proc/{pid}/maps") as file:
            mappings = sum(1 for _ in file)
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))
        private_kb = int(fields["RssAnon"].split()[0])
    except (OSError, KeyError):
        return None
    return Usage(private_kb / 1024, descriptors, int(fields["Threads"]), mappings)
