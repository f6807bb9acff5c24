"""A disk that a power cut can catch at any moment: the interface of ``kraftfast.log.disk.Disk``.

Names and bytes exist twice, as processes see them and as they are on the disk. A name is on the
disk once its directory was synced, a byte once its file was; before that anything may have
happened: no change, all changes, any part of them in any order.
Every system call is a place at which the machine can stop: see :meth:`SimDisk.crash_at`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from random import Random

from kraftfast.errors import DirectoryInUse, DiskFull, FlushFailed, StorageError
from kraftfast.limits import PAGE_BYTES
from kraftfast.log.disk import TMP_SUFFIX, storage_error
from kraftfast.sim.machines.file_names import CutWrite, DirNode, File, SharedFiles, Unmoved
from kraftfast.sim.machines.paged_file import PagedFile, SimSegmentFile
from kraftfast.sim.machines.small_file import SimNewFile, SimStoredFile, SmallFile

NO_LIMIT = 1 << 40


class Crash(BaseException):
    """The process ends here, inside a system call. Not an ``Exception``: none may eat it."""


class SimDisk(Unmoved, SharedFiles):
    """The files of one simulated machine. Raises StorageError or a subclass, like the real one.

    Paths are absolute. Every file belongs to the machine and outlives processes.
    """

    random: Random  # decides what a power cut leaves
    root: DirNode
    blocks_max: int  # how many blocks there are (ENOSPC)
    failing_syncs: int  # so many syncs from now on fail (EIO)
    lying_syncs: int  # so many syncs of segments from now on lose a page
    calls: int  # system calls so far
    cut_write: CutWrite | None  # the last one, until the next start
    failures: set[type[StorageError]]  # what it reported to the process that runs
    log: list[str] | None  # what was called, for traces

    def __init__(self, random: Random, wall_ms: Callable[[], int] = lambda: 0) -> None:
        self.random, self.wall_ms = random, wall_ms
        self.cut_write, self.log, self.failures = None, None, set()
        self.root, self.blocks_max = DirNode(), NO_LIMIT
        self.failing_syncs = self.lying_syncs = self.calls = 0
        self._calls_left, self._crash_word = -1, ""
        self._fill_word, self._fill_blocks = "", 0
        self._locks: set[str] = set()
        self._shared: set[int] = set()
        self._open: dict[int, PagedFile | str] = {}
        self._errors_seen: dict[int, int] = {}
        self._next_fd, self._next_inode = 3, 1
        self._generations = self._boots = 0

    # --- faults -------------------------------------------------------------------------------

    def crash_at(self, calls: int, word: str = "") -> tuple[int, str]:
        """Raise :class:`Crash` at the system call after the next ``calls`` that name this word.

        And at every one after it; negative: never. Return what was to be until now.
        """
        before = self._calls_left, self._crash_word
        self._calls_left, self._crash_word = calls, word
        return before

    def fill_up(self, blocks_free: int) -> None:
        """Leave so many free blocks."""
        self.blocks_max = self.used_blocks() + blocks_free

    def fill_at(self, word: str, blocks_free: int) -> None:
        """Leave so many free blocks from the next system call on that names this word."""
        self._fill_word, self._fill_blocks = word, blocks_free

    def give_space(self) -> None:
        """There is room again."""
        self.blocks_max, self._fill_word = NO_LIMIT, ""

    def kill(self) -> None:
        """Note that the process that used this disk is gone; its page cache is not."""
        self.crash_at(-1)
        self._locks.clear()
        self.leave_shared()
        self._open.clear()
        self.failing_syncs = self.lying_syncs = 0
        for file in self.segment_files():
            file.excluded = False

    @contextmanager
    def out_of_reach(self) -> Iterator[None]:
        """Let no system call through: the process that would make it is gone."""
        armed = self.crash_at(0)
        try:
            yield
        finally:
            self.leave_shared()
            self.crash_at(*armed)

    def lose_power(self) -> None:
        """Only what is on the disk is left (fault 3)."""
        self.kill()
        self._boots += 1
        kept = self.random.choice((0.0, 0.0, 0.5, 0.9, 1.0, self.random.random()))
        torn = self.random.choice((0.0, 0.3, 1.0))
        self._lose_power(self.root, kept, torn, set())

    def _lose_power(self, directory: DirNode, kept: float, torn: float, done: set[int]) -> None:
        nodes = [*directory.entries.values(), *directory.stable.values()]
        nodes += [change.node for change in directory.pending if change.node is not None]
        directory.lose_power(self.random)
        for node in nodes:
            if id(node) in done:
                continue
            done.add(id(node))
            if isinstance(node, DirNode):
                self._lose_power(node, kept, torn, done)
            elif isinstance(node, SmallFile):
                node.lose_power(self.random)
            else:
                node.lose_power(self.random, kept, torn)

    def write_back(self, share: float) -> None:
        """Write back some of what is dirty, names too, as the kernel does whenever it likes."""
        self._write_back(self.root, share)

    def _write_back(self, directory: DirNode, share: float) -> None:
        if directory.pending and self.random.random() < share:
            reached = self.random.randint(0, len(directory.pending))
            directory.settle(directory.pending[:reached])
            del directory.pending[:reached]
        for node in directory.entries.values():
            if isinstance(node, DirNode):
                self._write_back(node, share)
            elif isinstance(node, PagedFile):
                node.write_back(self.random, share)

    # --- what is where ------------------------------------------------------------------------

    def stable_file(self, path: str) -> File | None:
        """Return the file that has this name on the disk, if any; its bytes may not be there."""
        node: File | DirNode | None = self.root
        for name in _names(path):
            node = node.stable.get(name) if isinstance(node, DirNode) else None
        return None if isinstance(node, DirNode) else node

    def paged_file(self, path: str) -> PagedFile | None:
        """Return the segment file that processes see under this name."""
        node = self._find(path)
        return node if isinstance(node, PagedFile) else None

    def segment_files(self, directory: DirNode | None = None) -> list[PagedFile]:
        """Return all segment files that have a name."""
        found = []
        for node in (directory or self.root).entries.values():
            if isinstance(node, DirNode):
                found += self.segment_files(node)
            elif isinstance(node, PagedFile):
                found.append(node)
        return found

    def used_blocks(self, directory: DirNode | None = None) -> int:
        """Return blocks in use by everything that has a name."""
        used = 0
        for node in (directory or self.root).entries.values():
            if isinstance(node, DirNode):
                used += self.used_blocks(node)
            elif isinstance(node, PagedFile):
                used += node.blocks()
            else:
                used += -(-len(node.data) // PAGE_BYTES)
        return used

    # --- the interface of Disk ----------------------------------------------------------------

    def secret(self, most: int) -> int:
        return self.random.randint(1, most)

    def boot_id(self, path: str) -> str:
        return f"boot-{self._boots}"

    def new_generation(self) -> int:
        self._generations += 1
        return self._generations

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def list_directory(self, path: str) -> list[str]:
        node = self._find(path)
        return sorted(node.entries) if isinstance(node, DirNode) else []

    def make_directory(self, path: str) -> None:
        directory = self.root
        for name in _names(path):
            node = directory.entries.get(name)
            if node is None:
                self._call("mkdir", path)
                node = DirNode()
                directory.change(None, name, node)
                self._call("fsync of its parent", path)
                directory.sync()
            if not isinstance(node, DirNode):
                raise self._error(errno.ENOTDIR, "cannot create", path)
            directory = node

    def read_file(self, path: str, bytes_max: int = 16 * 1024 * 1024) -> bytes:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(path)
        if not isinstance(node, SmallFile):
            raise self._error(errno.EISDIR, "cannot read", path)
        if len(node.data) > bytes_max:
            raise StorageError(f"{path} is larger than {bytes_max} bytes")
        return node.data

    def replace_file(self, path: str, data: bytes) -> None:
        directory, name = self._parent(path)
        tmp = name + TMP_SUFFIX
        self._call("create", path + TMP_SUFFIX)
        file = SmallFile()
        directory.change(None, tmp, file)
        self.write_piece(file, data, path + TMP_SUFFIX)
        self.sync_small(file, path + TMP_SUFFIX)
        self._call("rename to", path)
        directory.change(tmp, name, file)
        self.sync_directory(os.path.dirname(path))

    rewrite_file = replace_file

    def reserve_rewrite(self, path: str) -> None:
        pass

    def create_file(self, path: str) -> SimNewFile:
        directory, name = self._parent(path)
        if name in directory.entries:
            raise FileExistsError(path)
        self._call("create", path)
        file = SmallFile()
        file.modified_ms = self.wall_ms()
        directory.change(None, name, file)
        return SimNewFile(self, file, path)

    def open_file(self, path: str) -> SimStoredFile:
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(path)
        if not isinstance(node, SmallFile):
            raise self._error(errno.EISDIR, "cannot read", path)
        return SimStoredFile(node.data, path)

    def rename(self, source: str, target: str) -> None:
        self._call("rename to", target)
        old_directory, old_name = self._parent(source)
        directory, name = self._parent(target)
        node = old_directory.entries.get(old_name)
        if node is None:
            raise self._error(errno.ENOENT, "cannot rename to", target)
        if directory is old_directory:
            directory.change(old_name, name, node)
        else:  # two directories: the file may be lost, or have both names
            directory.change(None, name, node)
            old_directory.change(old_name, None, None)

    def unlink(self, path: str) -> None:
        if self.exists(path):
            self._call("unlink", path)
            directory, name = self._parent(path)
            directory.change(name, None, None)

    def sync_directory(self, path: str) -> None:
        self._call("fsync", path)
        directory = self._directory(path)
        if self._fails():
            raise FlushFailed(f"fsync of {path} failed: {os.strerror(errno.EIO)}")
        directory.sync()

    def sync_name(self, path: str) -> None:
        self.sync_directory(os.path.dirname(path) or "/")

    def open_directory(self, path: str) -> int:
        return self._new_fd(path)

    def close_directory(self, fd: int) -> None:
        self.close_fd(fd)

    def file_bytes(self, path: str) -> int:
        node = self._find(path)
        if isinstance(node, SmallFile):
            return len(node.data)
        if isinstance(node, PagedFile):
            return int(node.size)
        raise self._error(errno.ENOENT, "cannot stat", path)

    def create_segment(self, path: str, capacity: int) -> SimSegmentFile:
        self._call("create", path)
        directory, name = self._parent(path)
        paged = PagedFile(self._next_inode, capacity)
        paged.modified_ms = self.wall_ms()
        self._next_inode += 1
        directory.change(None, name, paged)
        self._call("ftruncate", path)
        paged.resize(capacity)
        return SimSegmentFile(self, paged, path, self._new_fd(paged), True)

    def open_segment(self, path: str, writable: bool) -> SimSegmentFile:
        paged = self.paged_file(path)
        if paged is None:
            raise self._error(errno.ENOENT, "cannot open", path)
        return SimSegmentFile(self, paged, path, self._new_fd(paged), writable)

    def lock(self, path: str) -> int:
        if path in self._locks:
            owner = os.path.dirname(path)
            raise DirectoryInUse(f"another process holds {owner} (lock file {path})")
        self._locks.add(path)
        return self._new_fd(path)

    def unlock(self, fd: int) -> None:
        path = self._open.pop(fd, None)
        if isinstance(path, str):
            self._locks.discard(path)

    # --- what files written in pieces call ----------------------------------------------------

    def write_piece(self, file: SmallFile, data: bytes, path: str) -> None:
        """Append to a small file. Raises DiskFull."""
        self._call("write", path)
        before = -(-len(file.data) // PAGE_BYTES)
        after = -(-(len(file.data) + len(data)) // PAGE_BYTES)
        self._need_blocks(after - before, "cannot write", path)
        file.write(data)

    def sync_small(self, file: SmallFile, path: str) -> None:
        """fsync of a small file. Raises FlushFailed."""
        self._call("fsync", path)
        if self._fails():
            file.clean = True
            raise FlushFailed(f"fsync of {path} failed: {os.strerror(errno.EIO)}")
        file.sync()

    # --- what SimSegmentFile and SteppedFlush call ---------------------------------------------

    def sync_file(self, fd: int, path: str) -> None:
        """fdatasync. Raises FlushFailed."""
        self._call("fdatasync", path)
        self._paged(fd).begin_sync(self.random)
        if self._end_sync(fd):
            raise FlushFailed(f"fsync of {path} failed: {os.strerror(errno.EIO)}")

    def begin_sync(self, fd: int, *ranges: tuple[int, int]) -> None:
        """Begin a flush by descriptor: of all, or of these ranges of bytes."""
        target = self._open[fd]
        self._call("flush begins", self._text(target))
        if isinstance(target, PagedFile):
            target.begin_sync(self.random, *ranges)

    def end_sync(self, fd: int) -> int:
        """End it; return 0, or an errno."""
        target = self._open[fd]
        self._call("flush ends", self._text(target))
        if isinstance(target, PagedFile):
            return self._end_sync(fd)
        if self._fails():
            return errno.EIO
        directory = self._find(target)
        assert isinstance(directory, DirNode)
        directory.sync()
        return 0

    def reserve_file(self, fd: int, path: str, start: int, end: int) -> None:
        """Reserve blocks for [start, end); what they hold stays. Raises DiskFull."""
        self._call("fallocate", path)
        paged = self._paged(fd)
        self._need_blocks(paged.blocks_missing(start, end), "cannot reserve", path)
        paged.allocate(start, end)

    def zero_file(self, fd: int, path: str, start: int, end: int) -> None:
        """Write and sync zeros for [start, end). Raises DiskFull, StorageError."""
        self._call("write zeros", path)
        paged = self._paged(fd)
        self._need_blocks(paged.blocks_missing(start, end), "cannot prepare", path)
        paged.allocate(start, end)
        paged.zero(start, end)
        self._call("fdatasync of zeros", path)
        paged.begin_sync(self.random)
        if self._end_sync(fd):
            raise StorageError(f"cannot prepare {path}: {os.strerror(errno.EIO)}")

    def cut_in_write(self, position: int, data: bytes) -> None:
        """Note that a process stops inside a pwrite."""
        self.cut_write = CutWrite(position, data)

    def begin_write(self, path: str) -> None:
        """Begin a pwrite into a segment."""
        self._call("pwrite", path)

    def reopen(self, fd: int) -> int:
        """Open another descriptor of the same file, which gets reports of errors for itself."""
        return self._new_fd(self._paged(fd))

    def resize_file(self, paged: PagedFile, path: str, size: int) -> None:
        """ftruncate."""
        self._call("ftruncate", path)
        paged.modified_ms = self.wall_ms()
        paged.resize(size)

    def close_fd(self, fd: int) -> None:
        """Free the number; nothing is synced."""
        self._open.pop(fd, None)
        self._errors_seen.pop(fd, None)

    # --- inside -------------------------------------------------------------------------------

    def _call(self, what: str, path: str) -> None:
        """Begin a system call: the machine may stop here."""
        self.calls += 1
        if self.log is not None:
            self.log.append(f"{what} {path}")
        if self._fill_word and self._fill_word in path:
            self.fill_up(self._fill_blocks)
            self._fill_word = ""
        if self._calls_left >= 0 and self._crash_word in f"{what} {path}":
            self._calls_left -= 1
            if self._calls_left < 0:
                self.crash_at(0)
                raise Crash(f"at system call {self.calls}: {what} {path}")

    def _fails(self) -> bool:
        if self.failing_syncs:
            self.failing_syncs -= 1
            self.failures.add(FlushFailed)
            return True
        return False

    def _end_sync(self, fd: int) -> int:
        """Report every failure, its own or another's, once to each descriptor (errseq)."""
        paged = self._paged(fd)
        paged.modified_ms = self.wall_ms()
        if self._fails():
            paged.fail_sync(self.random)
        elif self.lying_syncs:
            self.lying_syncs -= 1
            paged.lie_about_sync(self.random)
        else:
            paged.end_sync(self.random)
        if paged.errors == self._errors_seen[fd]:
            return 0
        self._errors_seen[fd] = paged.errors
        self.failures.add(FlushFailed)
        return errno.EIO

    def _paged(self, fd: int) -> PagedFile:
        target = self._open[fd]
        assert isinstance(target, PagedFile)
        return target

    def _need_blocks(self, blocks: int, doing: str, path: str) -> None:
        if self.blocks_max < NO_LIMIT and self.used_blocks() + blocks > self.blocks_max:
            self.failures.add(DiskFull)
            raise self._error(errno.ENOSPC, doing, path)

    def _error(self, number: int, doing: str, path: str) -> StorageError:
        return storage_error(doing, path, OSError(number, os.strerror(number)))

    def _find(self, path: str) -> File | DirNode | None:
        node: File | DirNode | None = self.root
        for name in _names(path):
            node = node.entries.get(name) if isinstance(node, DirNode) else None
        return node

    def _parent(self, path: str) -> tuple[DirNode, str]:
        return self._directory(os.path.dirname(path)), os.path.basename(path)

    def _directory(self, path: str) -> DirNode:
        found = self._find(path)
        if not isinstance(found, DirNode):
            raise self._error(errno.ENOENT, "cannot open", path)
        return found

    def _new_fd(self, target: PagedFile | str) -> int:
        fd, self._next_fd = self._next_fd, self._next_fd + 1
        self._open[fd] = target
        if isinstance(target, PagedFile):
            self._errors_seen[fd] = target.errors
        return fd

    def _text(self, target: PagedFile | str) -> str:
        return target if isinstance(target, str) else f"file {target.number}"


@lru_cache(maxsize=4096)
def _names(path: str) -> tuple[str, ...]:
    return tuple(name for name in path.split("/") if name)
