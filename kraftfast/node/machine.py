"""What a replica asks of its machine."""

from __future__ import annotations

import resource


def boot_id() -> str:
    """Which boot of the machine this is."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def take_all_descriptors() -> None:
    """As many as this user may have: a producer takes eight of its leader, a map counts too."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
