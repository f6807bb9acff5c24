"""The names of a simulated disk, as processes see them and as they are on it, and its readers."""

from __future__ import annotations

from random import Random
from typing import NamedTuple, TypeAlias

from kraftfast.sim.machines.paged_file import PagedFile
from kraftfast.sim.machines.small_file import SmallFile

File: TypeAlias = SmallFile | PagedFile


class NameChange(NamedTuple):
    """One change of names in a directory: a rename within it is one change, never half of one."""

    removed: str | None
    put: str | None
    node: File | DirNode | None


class DirNode:
    """Names, as processes see them and as they are on the disk."""

    entries: dict[str, File | DirNode]
    stable: dict[str, File | DirNode]
    pending: list[NameChange]  # not on the disk yet, oldest first

    def __init__(self) -> None:
        self.entries = {}
        self.stable = {}
        self.pending = []

    def change(self, removed: str | None, put: str | None, node: File | DirNode | None) -> None:
        """Visible at once, durable later."""
        if removed is not None:
            self.entries.pop(removed, None)
        if put is not None:
            assert node is not None
            self.entries[put] = node
        self.pending.append(NameChange(removed, put, node))

    def settle(self, changes: list[NameChange]) -> None:
        """These changes reach the disk."""
        for removed, put, node in changes:
            if removed is not None:
                self.stable.pop(removed, None)
            if put is not None:
                assert node is not None
                self.stable[put] = node

    def sync(self) -> None:
        """Put all names on the disk."""
        self.settle(self.pending)
        self.pending = []

    def lose_power(self, random: Random) -> None:
        """Lose what was not synced: a journal keeps a prefix of the changes, others any part."""
        pending, self.pending = self.pending, []
        if random.random() < 0.5:
            self.settle(pending[: random.randint(0, len(pending))])
        else:
            self.settle([change for change in pending if random.random() < 0.5])
        self.entries = dict(self.stable)


class Unmoved:
    """What a disk does about directories that are moved while a process uses them: none is here."""

    def hold(self, path: str) -> None:
        """Do nothing: the path leads to the directory as long as the process lives."""

    let_go = check_held = hold

    def check_place(self, path: str, fd: int) -> None:
        """Do nothing, likewise."""

    def at(self, path: str) -> str:
        return path


class CutWrite(NamedTuple):
    """A pwrite into a segment in which its process stopped: a part of it reached the file."""

    position: int
    data: bytes

    def holds(self, position: int, data: bytes) -> bool:
        """Return whether these bytes were to be written there."""
        at = position - self.position
        return at >= 0 and self.data.startswith(data, at)


class SharedFiles:
    """What a disk does for readers of segments that their owner goes on changing."""

    # _shared: descriptors that hold the shared lock of their file.

    _shared: set[int]

    def paged_file(self, path: str) -> PagedFile | None:
        raise NotImplementedError

    def close_fd(self, fd: int) -> None:
        raise NotImplementedError

    def _paged(self, fd: int) -> PagedFile:
        raise NotImplementedError

    def _new_fd(self, target: PagedFile | str) -> int:
        raise NotImplementedError

    def _find(self, path: str) -> File | DirNode | None:
        raise NotImplementedError

    def modified_ms(self, path: str) -> int:
        node = self._find(path)
        assert isinstance(node, PagedFile | SmallFile), path
        return int(node.modified_ms)

    def open_to_read(self, path: str) -> int:
        return self._new_fd(self._found(path))

    def _found(self, path: str) -> PagedFile:
        paged = self.paged_file(path)
        if paged is None:
            raise FileNotFoundError(path)
        return paged

    def share(self, fd: int) -> bool:
        paged = self._paged(fd)
        if paged.excluded:
            return False
        if fd not in self._shared:
            self._shared.add(fd)
            paged.sharers += 1
        return True

    def leave_shared(self) -> None:
        """Take back all locks that readers held."""
        for fd in self._shared:
            self._paged(fd).sharers -= 1
        self._shared.clear()

    def identity(self, file: int | str) -> tuple[int, int]:
        paged = self._paged(file) if isinstance(file, int) else self._found(file)
        return paged.number, paged.size

    def pread(self, fd: int, size: int, position: int) -> bytes:
        paged = self._paged(fd)
        end: int = min(position + size, paged.size)
        return bytes(paged.read(position, end)) if position < end else b""

    def close(self, fd: int) -> None:
        if fd in self._shared:
            self._shared.discard(fd)
            self._paged(fd).sharers -= 1
        self.close_fd(fd)
