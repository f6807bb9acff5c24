"""The system calls that name, read and sync files: what the simulator replaces.

A small file is replaced as Kafka does it (``Utils.atomicMoveWithFallback``): a temporary file,
fsync, rename, fsync of the directory.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct

from kraftfast.errors import DirectoryInUse, DirectoryMoved, FlushFailed, StorageError
from kraftfast.limits import PAGE_BYTES
from kraftfast.log.regular import open_regular
from kraftfast.log.segment_file import SegmentFile, exchange_names, storage_failure

TMP_SUFFIX = ".tmp"
FLOCK = struct.Struct("@hhqqi4x")
"""``struct flock``: type, whence, start, length, pid."""


def storage_error(doing: str, path: str, error: OSError) -> StorageError:
    """Return the typed error for a failed system call on ``path``."""
    if error.errno is None:
        return StorageError(f"{doing} {path}: {error}")
    failure: StorageError = storage_failure(doing, path, error.errno)
    return failure


class NewFile:
    """A file that is written from its beginning, piece by piece, and named when it is whole.

    Raises StorageError or a subclass; nothing is durable before ``sync``.
    """

    path: str
    size: int  # bytes written

    def __init__(self, path: str, fd: int) -> None:
        self.path, self.size = path, 0
        self._fd = fd

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append. Raises DiskFull, and then part of it may stand there."""
        view = memoryview(data)
        try:
            while view:
                written = os.write(self._fd, view)
                self.size += written
                view = view[written:]
        except OSError as error:
            raise storage_error("cannot write", self.path, error) from None

    def sync(self) -> None:
        """Put everything written on disk. Raises FlushFailed (D9)."""
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise FlushFailed(f"fsync of {self.path} failed: {error.strerror}") from None

    def protect(self) -> None:
        """Make it read-only: nothing may be written to it from now on."""
        try:
            os.fchmod(self._fd, 0o400)
        except OSError as error:
            raise storage_error("cannot protect", self.path, error) from None

    def close(self) -> None:
        """Give the descriptor back; again is harmless."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class StoredFile:
    """A file that no longer changes, read in pieces. Raises StorageError."""

    path: str
    size: int  # bytes

    def __init__(self, path: str, fd: int) -> None:
        self.path, self._fd = path, fd
        self.size = os.fstat(fd).st_size

    def read_at(self, position: int, bytes_max: int) -> bytes:
        """Return what stands at ``position``: less than asked for only at the end of the file."""
        try:
            return os.pread(self._fd, bytes_max, position)
        except OSError as error:
            raise storage_error("cannot read", self.path, error) from None

    def close(self) -> None:
        """Give the descriptor back; again is harmless."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            self.close()


class Disk:
    """Files of one machine. Methods raise :class:`StorageError` or a kind of it, no ``OSError``.

    A directory that is held (``hold``) is followed: what is below its path is looked for in that
    directory, wherever it was moved, and not in another one that took its name (D18).

    While it holds one, it keeps a descriptor that stands for nothing. Where the process has no
    other left, this one makes way for a file that is to be written: epochs and votes are stored,
    and elections go on.
    """

    def __init__(self) -> None:
        self._held: dict[str, int] = {}  # directory -> its descriptor; inner ones are behind outer
        self._reserve: list[int] = []  # at most one; popped and appended by any thread

    def hold(self, path: str) -> None:
        """Follow the directory that is at ``path`` now. Raises DirectoryInUse, StorageError."""
        path = path.rstrip("/") or "/"
        if path in self._held:
            raise DirectoryInUse(f"this process holds {path} already")
        try:
            fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise storage_error("cannot open", path, error) from None
        if not os.path.exists(f"/proc/self/fd/{fd}"):
            os.close(fd)
            raise StorageError(f"{path} cannot be held: /proc is not mounted here")
        self._held = dict(sorted({**self._held, path: fd}.items(), key=lambda each: len(each[0])))
        self._refill()

    def let_go(self, path: str) -> None:
        """Follow it no longer; nothing if it is not held."""
        held = dict(self._held)  # a thread may look through the other one at the moment
        fd = held.pop(path.rstrip("/") or "/", None)
        self._held = held
        if fd is not None:
            os.close(fd)
        if not held:
            self._spend()

    def _refill(self) -> None:
        """Reserve a descriptor, unless there is one, or none to be had now."""
        if self._held and not self._reserve:
            with contextlib.suppress(OSError):
                self._reserve.append(os.open("/", os.O_PATH | os.O_CLOEXEC))

    def _spend(self) -> bool:
        """Give up the reserved descriptor. False: there is none."""
        try:
            os.close(self._reserve.pop())
        except IndexError:
            return False
        return True

    def _open(self, path: str, flags: int) -> int:
        """Open a file that must be written, with the last descriptor if need be."""
        self._refill()
        try:
            return self._open_now(path, flags)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._spend():
                raise
            return self._open_now(path, flags)

    def _open_now(self, path: str, flags: int) -> int:
        """Open a regular file, or a directory. Raises OSError, ForeignDirectory."""
        if flags & os.O_DIRECTORY:
            return os.open(self.at(path), flags | os.O_CLOEXEC)
        return open_regular(self.at(path), flags, path)

    def check_held(self, path: str) -> None:
        """Check that ``path`` still leads to the directory that is held. Raises StorageError."""
        fd = self._held.get(path.rstrip("/") or "/")
        if fd is not None:
            self.check_place(path, fd)

    def check_place(self, path: str, fd: int) -> None:
        """Check that ``path`` still leads to what is open as ``fd``. Raises StorageError.

        Where it does not, a start would not find what is acknowledged, and a process that goes by
        the path meets something else. A look that fails says nothing: there will be another one.
        """
        try:
            found, held = os.stat(path), os.fstat(fd)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError:
            return
        else:
            if (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino):
                return
        text = f"{path} was moved, removed or replaced while it was in use"
        with contextlib.suppress(OSError):
            now = os.readlink(f"/proc/self/fd/{fd}")
            if now != path and not now.endswith(" (deleted)"):
                text += f"; what it was is {now} now: stop what runs it, then move it back or start"
                raise DirectoryMoved(f"{text} it there")
        raise StorageError(text)

    def at(self, path: str) -> str:
        """Return the path by which the kernel finds a file, through the directory that is held.

        For one system call; a path below no held directory is returned as it is. Paths are compared
        as text, so a held one must be written alike.
        """
        for held, fd in reversed(self._held.items()):
            if path.startswith(held) and path[len(held) : len(held) + 1] in ("", "/"):
                return f"/proc/self/fd/{fd}{path[len(held) :]}"
        return path

    def secret(self, most: int) -> int:
        """Return a number from 1 to ``most`` that cannot be foretold."""
        return 1 + int.from_bytes(os.urandom(16)) % most

    def new_generation(self) -> int:
        """Return a generation that no file began with before (D20): names, and the numbers of
        files, are used again."""
        return self.secret(2**62)

    def boot_id(self, path: str) -> str:
        """Return an id that each boot of the host of ``path`` changes. Raises StorageError."""
        from kraftfast.log import boot  # for durability=memory alone

        return boot.kernel_boot_id()

    def exists(self, path: str) -> bool:
        return os.path.exists(self.at(path))

    def list_directory(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; none if there is no such directory."""
        try:
            return sorted(os.listdir(self.at(path)))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise storage_error("cannot list", path, error) from None

    def make_directory(self, path: str) -> None:
        """Create a directory for its owner alone, durably; nothing if it is there."""
        if os.path.isdir(self.at(path)):
            return
        parent = os.path.dirname(os.path.abspath(path))
        if not os.path.isdir(self.at(parent)):
            self.make_directory(parent)
        try:
            os.mkdir(self.at(path), 0o700)
        except OSError as error:
            if not os.path.isdir(self.at(path)):  # else another process was quicker
                raise storage_error("cannot create", path, error) from None
        self.sync_directory(parent)

    def read_file(self, path: str, bytes_max: int = 16 * 1024 * 1024) -> bytes:
        """Return the whole of a small file. Raises ``FileNotFoundError`` if there is none."""
        try:
            with open(self._open_now(path, os.O_RDONLY), "rb") as file:
                data = file.read(bytes_max + 1)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise storage_error("cannot read", path, error) from None
        if len(data) > bytes_max:
            raise StorageError(f"{path} is larger than {bytes_max} bytes")
        return data

    def replace_file(self, path: str, data: bytes) -> None:
        """Write a small file so that after a crash it is wholly old or wholly new, and durable."""
        self._replace(path, data, False)

    def rewrite_file(self, path: str, data: bytes) -> None:
        """Do as :meth:`replace_file`, but without new space once it was done before.

        The two files change names, and the old one keeps its blocks for the next time: on a full
        disk elections and cuts go on. A file of less than a page needs no more than it had.
        """
        self._replace(path, data, True)

    def _replace(self, path: str, data: bytes, keep: bool) -> None:
        tmp = path + TMP_SUFFIX
        try:
            fd = self._open(tmp, os.O_WRONLY | os.O_CREAT)
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(fd, view) :]
                os.ftruncate(fd, len(data))
                self._sync(fd, tmp)
            finally:
                os.close(fd)
            exchanged = keep and exchange_names(self.at(tmp), self.at(path))
            if not exchanged:
                os.rename(self.at(tmp), self.at(path))
        except OSError as error:
            if not keep:
                self.unlink(tmp)
            raise storage_error("cannot write", path, error) from None
        self.sync_directory(os.path.dirname(path))
        if keep and not exchanged:  # the first one took the blocks that were held
            self.reserve_rewrite(path)

    def reserve_rewrite(self, path: str) -> None:
        """Hold the space of one :meth:`rewrite_file` as far as there is any."""
        with contextlib.suppress(OSError):
            fd = self._open_now(path + TMP_SUFFIX, os.O_WRONLY | os.O_CREAT)
            try:
                if not os.fstat(fd).st_size:
                    os.write(fd, bytes(PAGE_BYTES))
            finally:
                os.close(fd)

    def create_file(self, path: str) -> NewFile:
        """Create a file to be written in pieces. Raises ``FileExistsError`` if there is one."""
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            return NewFile(path, os.open(self.at(path), flags, 0o600))
        except FileExistsError:
            raise
        except OSError as error:
            raise storage_error("cannot create", path, error) from None

    def open_file(self, path: str) -> StoredFile:
        """Open a file to be read in pieces. Raises ``FileNotFoundError`` if there is none."""
        try:
            return StoredFile(path, self._open_now(path, os.O_RDONLY))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise storage_error("cannot open", path, error) from None

    def rename(self, source: str, target: str) -> None:
        """Rename without making it durable: ``sync_directory`` does."""
        try:
            os.rename(self.at(source), self.at(target))
        except OSError as error:
            raise storage_error("cannot rename to", target, error) from None

    def unlink(self, path: str) -> None:
        """Remove a file if it is there, without making it durable."""
        try:
            os.unlink(self.at(path))
        except FileNotFoundError:
            pass
        except OSError as error:
            raise storage_error("cannot remove", path, error) from None

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable (D18)."""
        try:
            fd = self._open(path or ".", os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise storage_error("cannot open", path, error) from None
        try:
            self._sync(fd, path)
        finally:
            os.close(fd)
            self._refill()

    def sync_name(self, path: str) -> None:
        """Make the name of a file or directory durable where it stands (D18).

        Everything is put on disk where its directory cannot be opened: it may be passed through by
        all, and read by root alone.
        """
        parent = os.path.dirname(os.path.abspath(path))
        if os.access(self.at(parent), os.R_OK):
            self.sync_directory(parent)
        else:
            os.sync()

    def open_directory(self, path: str) -> int:
        """Open a directory: a descriptor for a flush that has to cover its names."""
        try:
            return self._open(path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise storage_error("cannot open", path, error) from None

    def close_directory(self, fd: int) -> None:
        os.close(fd)

    # --- files that their owner goes on changing: what readers use --------------------------------

    pread = staticmethod(os.pread)
    close = staticmethod(os.close)

    def open_to_read(self, path: str) -> int:
        """Open a file that may change meanwhile. Raises ``FileNotFoundError`` if there is none."""
        try:
            return self._open_now(path, os.O_RDONLY)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise storage_error("cannot open", path, error) from None

    def share(self, fd: int) -> bool:
        """Have the owner of a segment leave it as long as ``fd`` is open (D20).

        False: it is at work on it. Raises OSError.
        """
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def identity(self, file: int | str) -> tuple[int, int]:
        """Return inode and size of a descriptor or path. Raises OSError."""
        status = os.stat(self.at(file) if isinstance(file, str) else file)
        return status.st_ino, status.st_size

    def file_bytes(self, path: str) -> int:
        return self._status(path).st_size

    def modified_ms(self, path: str) -> int:
        """Return when a file was last written, in ms since 1970. Raises StorageError."""
        return self._status(path).st_mtime_ns // 1_000_000

    def _status(self, path: str) -> os.stat_result:
        try:
            return os.stat(self.at(path))
        except OSError as error:
            raise storage_error("cannot stat", path, error) from None

    def create_segment(self, path: str, capacity: int) -> SegmentFile:
        """Create a sparse file of ``capacity`` bytes (not prepared), mapped writable."""
        try:
            fd = self._open_now(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        except OSError as error:
            raise storage_error("cannot create", path, error) from None
        try:
            os.ftruncate(fd, capacity)
        except OSError as error:
            os.close(fd)
            self.unlink(path)
            raise storage_error("cannot create", path, error) from None
        return SegmentFile(path, fd, capacity, True)

    def open_segment(self, path: str, writable: bool) -> SegmentFile:
        """Open an existing file, mapped as long as it is now."""
        try:
            fd = self._open_now(path, os.O_RDWR if writable else os.O_RDONLY)
            size = os.fstat(fd).st_size
        except OSError as error:
            raise storage_error("cannot open", path, error) from None
        return SegmentFile(path, fd, size, writable)

    def lock(self, path: str) -> int:
        """Hold the lock file of a directory; the descriptor keeps it. Raises DirectoryInUse.

        A record lock of the open file description: Kafka's (a record lock of its process) and ours
        exclude each other, and closing another descriptor of the file does not lose it.
        """
        try:
            fd = self._open_now(path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise storage_error("cannot open", path, error) from None
        try:
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        except OSError as error:
            os.close(fd)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise storage_error("cannot lock", path, error) from None
            from kraftfast.log.holder import holder_of

            why = f"{holder_of(path)} holds {os.path.dirname(path)} (lock file {path})"
            raise DirectoryInUse(why) from None
        return fd

    def is_locked(self, path: str) -> bool:
        """Return whether a process holds a lock file; nothing is changed."""
        try:
            fd = open_regular(path, os.O_RDONLY)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise storage_error("cannot open", path, error) from None
        try:
            asked = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, asked)
            return bool(FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
        finally:
            os.close(fd)

    def unlock(self, fd: int) -> None:
        os.close(fd)

    def _sync(self, fd: int, path: str) -> None:
        try:
            os.fsync(fd)
        except OSError as error:  # D9: final, for every caller
            raise FlushFailed(f"fsync of {path} failed: {error.strerror}") from None


DISK = Disk()
"""Of those who only read, and follow no directory."""
