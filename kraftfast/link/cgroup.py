"""What the control groups of this process allow, of version 1 or 2."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")


def values(name: str, controller: str, old_name: str) -> Iterator[str]:
    """Yield a setting of this process's cgroup and of those above it: ``old_name`` in version 1."""
    for folder, is_old in _folders(controller):
        try:
            yield (folder / (old_name if is_old else name)).read_text().strip()
        except OSError:
            pass  # a container may not see its cgroup's real path


def tasks_room() -> int | None:
    """Return how many processes and threads may still be started; None without a limit."""
    found: list[int] = []
    for folder, _ in _folders("pids"):
        try:
            most, now = ((folder / name).read_text() for name in ("pids.max", "pids.current"))
        except OSError:
            continue
        if most.strip() != "max":
            found.append(max(0, int(most) - int(now)))
    return min(found, default=None)


def _folders(controller: str) -> Iterator[tuple[Path, bool]]:
    """Yield the folders that may hold this controller's settings, and if they are of version 1."""
    try:
        lines = OWN_CGROUP.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = CGROUP / controllers
        here = root / path.strip("/")
        for folder in (here, *here.parents):
            yield folder, bool(controllers)
            if folder == root:
                break
