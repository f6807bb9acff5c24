"""What the control groups of this process allow, of version 1 or 2."""

from __future__ import annotations

import os
from collections.abc import Iterator

CGROUP = "/sys/fs/cgroup"
OWN_CGROUP = "/proc/self/cgroup"
DEFAULT_PERIOD_US = 100_000
"""Of version 1, which tells the quota alone; it is hardly ever changed."""


def values(name: str, controller: str, old_name: str) -> Iterator[str]:
    """Yield a setting of this process's cgroup and of those above it: ``old_name`` in version 1."""
    for folder, is_old in _folders(controller):
        try:
            yield _text(os.path.join(folder, old_name if is_old else name)).strip()
        except OSError:
            pass  # a container may not see its cgroup's real path


def tasks_room() -> int | None:
    """Return how many processes and threads may still be started; None without a limit."""
    found: list[int] = []
    for folder, _ in _folders("pids"):
        try:
            most = _text(os.path.join(folder, "pids.max"))
            now = _text(os.path.join(folder, "pids.current"))
        except OSError:
            continue
        if most.strip() != "max":
            found.append(max(0, int(most) - int(now)))
    return min(found, default=None)


def cpu_quota() -> float | None:
    """Return how many processors' time the cgroup gives; None without a limit."""
    found: list[float] = []
    for line in values("cpu.max", "cpu", "cpu.cfs_quota_us"):
        words = line.split()
        if len(words) == 2 and words[0] != "max":
            found.append(int(words[0]) / int(words[1]))
        elif len(words) == 1 and int(words[0]) > 0:
            found.append(int(words[0]) / DEFAULT_PERIOD_US)
    return min(found) if found else None


def _text(path: str) -> str:
    with open(path) as file:
        return file.read()


def _folders(controller: str) -> Iterator[tuple[str, bool]]:
    """Yield the folders that may hold this controller's settings, and if they are of version 1."""
    try:
        lines = _text(OWN_CGROUP).splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = os.path.join(CGROUP, controllers).rstrip("/")
        folder = os.path.join(root, path.strip("/")).rstrip("/")
        while folder != root:
            yield folder, bool(controllers)
            folder = os.path.dirname(folder)
        yield root, bool(controllers)
