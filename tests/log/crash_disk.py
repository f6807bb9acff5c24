"""A disk that forgets: what was not synced is there after a power cut, or is not, sector by sector.

Files are anonymous memory, so that the log maps and stores as ever; names are tables. Every call is
a step, and the power may be cut before any of them. After a cut each sector of 512 bytes of a file
holds what the last sync put there or what was stored since, each directory has some of the changes
since it was synced (the first ones, or any), and a file has its old length or its new one (D10 and
14).
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from pathlib import Path

from kraftfast.errors import DirectoryInUse, DiskFull, FlushFailed, StorageError
from kraftfast.log.disk import TMP_SUFFIX, Disk, StoredFile
from kraftfast.log.segment_file import SegmentFile
from kraftfast.sim.machines.file_names import Unmoved

PAGE, SECTOR = 4096, 512
Pages = dict[int, bytes]


class PowerCut(Exception):
    """The machine stops here."""


class Inode:
    """A file: its memory, and what of it is on stable storage."""

    count = 0

    def __init__(self, size: int = 0, pages: Pages | None = None) -> None:
        Inode.count += 1
        self.number = Inode.count
        self.fd = os.memfd_create("inode", os.MFD_CLOEXEC)
        self.stable: Pages = dict(pages or {})
        self.stable_size = size
        self.lengths: list[int] = []
        os.ftruncate(self.fd, size)
        for number, page in self.stable.items():
            os.pwrite(self.fd, page[: size - number * PAGE], number * PAGE)

    def __del__(self) -> None:
        os.close(self.fd)

    @property
    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def pages(self) -> Pages:
        """What is in memory; pages that are holes are left out."""
        found: Pages = {}
        at, size = 0, self.size
        try:
            while at < size:
                start = os.lseek(self.fd, at, os.SEEK_DATA)
                at = os.lseek(self.fd, start, os.SEEK_HOLE)
                for number in range(start // PAGE, -(-at // PAGE)):
                    found[number] = os.pread(self.fd, PAGE, number * PAGE).ljust(PAGE, b"\0")
        except OSError as error:
            assert error.errno == errno.ENXIO
        return found

    def sync(self) -> None:
        self.stable, self.stable_size, self.lengths = self.pages(), self.size, []

    def after_cut(self, chance: random.Random, kept: float) -> Inode:
        """The file as the next boot finds it; ``kept``: how likely a store since the sync stays."""
        blank = bytes(PAGE)
        pages, size = dict(self.stable), self.stable_size
        done = sum(chance.random() < kept for _ in self.lengths)  # changes of length keep order
        for length in self.lengths[:done]:
            size = length
            pages = {number: page for number, page in pages.items() if number * PAGE < length}
            if length // PAGE in pages:
                pages[length // PAGE] = pages[length // PAGE][: length % PAGE].ljust(PAGE, b"\0")
        # Stores reach what they were made into: not what a change of length that was lost made.
        reach = size if done == len(self.lengths) else min(self.stable_size, *self.lengths) - PAGE
        for number, new in self.pages().items():
            old = pages.get(number, blank)
            if new != old and number * PAGE < reach:
                pages[number] = b"".join(
                    (new if chance.random() < kept else old)[at : at + SECTOR]
                    for at in range(0, PAGE, SECTOR)
                )
        return Inode(size, pages)


class Directory:
    """Names: those in use, those on stable storage, and the changes between."""

    def __init__(self, names: dict[str, Inode] | None = None) -> None:
        self.names = dict(names or {})
        self.stable = dict(self.names)
        self.changes: list[dict[str, Inode | None]] = []

    def change(self, name: str, inode: Inode | None) -> None:
        self.change_together({name: inode})

    def change_together(self, change: dict[str, Inode | None]) -> None:
        """One change of several names: a cut leaves all of it or nothing."""
        self.changes.append(change)
        _apply(self.names, change)

    def sync(self) -> None:
        self.stable, self.changes = dict(self.names), []


def left(
    changes: list[dict[str, Inode | None]], chance: random.Random
) -> list[dict[str, Inode | None]]:
    """Return what a power cut leaves of these: a journal keeps the first, others keep any."""
    if chance.random() < 0.5:
        return changes[: chance.randint(0, len(changes))]
    return [each for each in changes if chance.random() < 0.5]


def _apply(names: dict[str, Inode], change: dict[str, Inode | None]) -> None:
    for name, inode in change.items():
        if inode is None:
            names.pop(name, None)
        else:
            names[name] = inode


class CrashFile(SegmentFile):
    """A mapped file of a :class:`CrashDisk`."""

    def __init__(self, disk: CrashDisk, node: Inode, path: str, writable: bool) -> None:
        super().__init__(path, os.open(f"/proc/self/fd/{node.fd}", os.O_RDWR), node.size, writable)
        self.disk, self.node = disk, node

    def inode(self) -> int:
        return self.node.number

    def sync(self) -> None:
        self.disk.step(f"sync {self.path}")
        self.disk.sync_node(self.node, self.path)

    def reserve(self, start: int, end: int) -> None:
        if start < end:
            self.disk.step(f"reserve {self.path}")
            self.disk.spend(end - start)

    def zero(self, start: int, end: int) -> None:
        if start < end:
            self.disk.step(f"zero {self.path}")
            os.pwrite(self.fd, bytes(end - start), start)
            self.node.sync()

    def populate(self, start: int, end: int) -> None:
        pass

    def resize(self, size: int) -> None:
        self.disk.step(f"resize {self.path}")
        super().resize(size)
        self.node.lengths.append(size)


class CrashNewFile:
    """A file of a :class:`CrashDisk` that is written in pieces."""

    def __init__(self, disk: CrashDisk, node: Inode, path: str) -> None:
        self.disk, self.node, self.path, self.size = disk, node, path, 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.disk.step(f"write {self.path}")
        self.disk.spend(len(data))
        os.pwrite(self.node.fd, data, self.size)
        self.size += len(data)
        self.node.lengths.append(self.size)

    def sync(self) -> None:
        self.disk.step(f"sync {self.path}")
        self.disk.sync_node(self.node, self.path)

    def protect(self) -> None:
        pass

    def close(self) -> None:
        pass


class CrashDisk(Unmoved, Disk):
    """Directories and files in memory. ``cut_at``: the step before which the power is cut."""

    def __init__(self, cut_at: int = -1) -> None:
        self.directories: dict[str, Directory] = {}
        self.cut_at = cut_at
        self.steps: list[str] = []
        self.locks: set[str] = set()
        self.fail_syncs_from = -1
        self.syncs = 0
        self.space = -1

    @classmethod
    def holding(cls, directory: str, source: Path) -> CrashDisk:
        """A disk with a copy of a real directory and those in it, all on stable storage."""
        disk = cls()
        for path in [source, *(found for found in source.iterdir() if found.is_dir())]:
            names = {}
            for file in path.iterdir():
                if file.is_file():
                    data = file.read_bytes()
                    pages = {at // PAGE: data[at : at + PAGE] for at in range(0, len(data), PAGE)}
                    names[file.name] = Inode(
                        len(data), {n: p.ljust(PAGE, b"\0") for n, p in pages.items()}
                    )
            disk.directories[os.path.join(directory, path.relative_to(source)).rstrip("/.")] = (
                Directory(names)
            )
        return disk

    # --- faults ---

    def step(self, what: str) -> None:
        if len(self.steps) == self.cut_at:
            raise PowerCut(what)
        self.steps.append(what)

    def sync_node(self, node: Inode, path: str) -> None:
        self.syncs += 1
        if 0 <= self.fail_syncs_from < self.syncs:
            raise FlushFailed(f"fsync of {path} failed: made to fail")
        node.sync()

    def spend(self, size: int) -> None:
        if self.space >= 0:
            if size > self.space:
                raise DiskFull("no space left: the test has used it up")
            self.space -= size

    def after_cut(self, chance: random.Random, kept: float) -> CrashDisk:
        """The disk at the next boot."""
        disk = CrashDisk()
        images: dict[int, Inode] = {}
        for path, directory in self.directories.items():
            names = dict(directory.stable)
            for change in left(directory.changes, chance):
                _apply(names, change)
            for node in names.values():
                if node.number not in images:
                    images[node.number] = node.after_cut(chance, kept)
            disk.directories[path] = Directory(
                {n: images[node.number] for n, node in names.items()}
            )
        return disk

    # --- the seam ---

    def _at(self, path: str) -> tuple[Directory, str]:
        directory, name = os.path.split(path)
        return self.directories[directory], name

    def _node(self, path: str) -> Inode:
        directory, name = os.path.split(path)
        if directory not in self.directories or name not in self.directories[directory].names:
            raise FileNotFoundError(path)
        return self.directories[directory].names[name]

    def exists(self, path: str) -> bool:
        try:
            return path in self.directories or bool(self._node(path))
        except FileNotFoundError:
            return False

    def list_directory(self, path: str) -> list[str]:
        inside = [os.path.basename(p) for p in self.directories if os.path.dirname(p) == path]
        return sorted(
            [*inside, *(self.directories[path].names if path in self.directories else ())]
        )

    def make_directory(self, path: str) -> None:
        self.directories.setdefault(path, Directory())

    def read_file(self, path: str, bytes_max: int = 16 * 1024 * 1024) -> bytes:
        node = self._node(path)
        return os.pread(node.fd, node.size, 0)

    def replace_file(self, path: str, data: bytes) -> None:
        directory, name = self._at(path)
        self.step(f"write {path}")
        self.spend(len(data))
        node = Inode()
        directory.change(name + TMP_SUFFIX, node)
        os.pwrite(node.fd, data, 0)
        self.step(f"sync {path}{TMP_SUFFIX}")
        self.sync_node(node, path)
        self.rename(path + TMP_SUFFIX, path)
        self.sync_directory(os.path.dirname(path))

    def rewrite_file(self, path: str, data: bytes) -> None:
        directory, name = self._at(path)
        tmp = name + TMP_SUFFIX
        self.step(f"write {path}")
        if tmp not in directory.names:
            self.spend(PAGE)
            directory.change(tmp, Inode())
        node = directory.names[tmp]
        self.spend(max(0, len(data) - -(-node.size // PAGE) * PAGE) if node.size else 0)
        os.pwrite(node.fd, data, 0)  # in place: what stood there is gone
        node.lengths += [len(data)] if len(data) != node.size else []
        os.ftruncate(node.fd, len(data))
        self.step(f"sync {path}{TMP_SUFFIX}")
        self.sync_node(node, path)
        self.step(f"exchange {path}")
        old = directory.names.get(name)
        directory.change_together({name: node, tmp: old})
        self.sync_directory(os.path.dirname(path))
        if old is None:
            self.reserve_rewrite(path)

    def reserve_rewrite(self, path: str) -> None:
        directory, name = self._at(path)
        if name + TMP_SUFFIX not in directory.names and not 0 <= self.space < PAGE:
            self.step(f"reserve {path}{TMP_SUFFIX}")
            self.spend(PAGE)
            node = Inode()
            directory.change(name + TMP_SUFFIX, node)
            os.pwrite(node.fd, bytes(PAGE), 0)
            node.lengths.append(PAGE)

    def create_file(self, path: str) -> CrashNewFile:  # type: ignore[override]
        directory, name = self._at(path)
        if name in directory.names:
            raise FileExistsError(path)
        self.step(f"create {path}")
        node = Inode()
        directory.change(name, node)
        return CrashNewFile(self, node, path)

    def open_file(self, path: str) -> StoredFile:
        return StoredFile(path, os.open(f"/proc/self/fd/{self._node(path).fd}", os.O_RDONLY))

    def rename(self, source: str, target: str) -> None:
        self.step(f"rename {target}")
        node = self._node(source)
        directory, name = self._at(target)
        if directory is self._at(source)[0]:  # one change: never both names, never none
            directory.change_together({name: node, os.path.basename(source): None})
            return
        directory.change(name, node)
        self._at(source)[0].change(os.path.basename(source), None)

    def unlink(self, path: str) -> None:
        self.step(f"unlink {path}")
        directory, name = self._at(path)
        if name in directory.names:
            directory.change(name, None)

    def sync_directory(self, path: str) -> None:
        self.step(f"sync {path}")
        self.syncs += 1
        if 0 <= self.fail_syncs_from < self.syncs:
            raise FlushFailed(f"fsync of {path} failed: made to fail")
        self.directories[path].sync()

    def sync_name(self, path: str) -> None:
        """Do nothing: a directory is durable here once it is made."""

    def open_directory(self, path: str) -> int:
        return -1

    def close_directory(self, fd: int) -> None:
        pass

    def file_bytes(self, path: str) -> int:
        return self._node(path).size

    def create_segment(self, path: str, capacity: int) -> SegmentFile:
        self.step(f"create {path}")
        directory, name = self._at(path)
        node = Inode()
        os.ftruncate(node.fd, capacity)
        node.lengths.append(capacity)
        directory.change(name, node)
        return CrashFile(self, node, path, True)

    def open_segment(self, path: str, writable: bool) -> SegmentFile:
        try:
            return CrashFile(self, self._node(path), path, writable)
        except FileNotFoundError:
            raise StorageError(f"cannot open {path}") from None

    def lock(self, path: str) -> int:
        if path in self.locks:
            raise DirectoryInUse(f"another process holds {path}")
        self.locks.add(path)
        return len(self.locks)

    def unlock(self, fd: int) -> None:
        self.locks.clear()


KEPT = (0.0, 1.0, 0.5, 0.9, 0.1)
"""How likely an unsynced sector or length survives, one trial each."""


def cuts(disk: CrashDisk, seed: int) -> Iterator[CrashDisk]:
    """Disks as a power cut now may leave them."""
    for trial, kept in enumerate(KEPT):
        yield disk.after_cut(random.Random(seed * 31 + trial), kept)
