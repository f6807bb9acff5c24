"""A file whose bytes are the log's memory."""

import errno
import fcntl
import os

from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.errno cimport EINTR
from libc.errno cimport errno as c_errno
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from posix.unistd cimport close as close_fd
from posix.unistd cimport pread

from kraftfast.errors import CorruptLog, DiskFull, FlushFailed, OutOfResources, StorageError
from kraftfast.limits import BATCH_BYTES_MAX, PAGE_BYTES, PREPARE_PIECE_BYTES


cdef extern from "mapping.h":
    uint8_t *kf_map(int fd, size_t bytes, int writable) nogil
    int kf_unmap(void *map, size_t bytes) nogil
    uint8_t *kf_private(size_t bytes) nogil
    void kf_forget(uint8_t *memory, uint64_t start, uint64_t end) nogil
    int kf_reserve(int fd, uint64_t start, uint64_t end) nogil
    int kf_write_zeros(int fd, uint64_t start, uint64_t end, uint32_t piece) nogil
    void kf_populate(uint8_t *map, uint64_t start, uint64_t end) nogil
    int kf_sync(int fd) nogil
    int kf_names(int fd) nogil
    int kf_write_all(int fd, const uint8_t *source, size_t n, uint64_t at) nogil
    int kf_exchange_names(const char *one, const char *other) nogil

cdef uint64_t LOOK_BYTES = BATCH_BYTES_MAX  # ahead: a batch is all there
cdef uint64_t PAGE = PAGE_BYTES
cdef uint64_t ZERO_BYTES = 64 * PREPARE_PIECE_BYTES  # flushed at once


def exchange_names(str one, str other) -> bool:
    """Exchange the names of two files at once; False if one is missing or the file system cannot.

    Raises OSError.
    """
    cdef bytes first = os.fsencode(one), second = os.fsencode(other)
    cdef const char *a = first
    cdef const char *b = second
    cdef int error
    with nogil:
        error = kf_exchange_names(a, b)
    if error in (errno.ENOENT, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
        return False
    if error:
        raise OSError(error, os.strerror(error))
    return True


def storage_failure(str doing, str path, int code):
    """Return the typed error for a system call on ``path`` that failed with ``code``."""
    text = f"{doing} {path}: {os.strerror(code)}"
    if code in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"no space left: {text}")
    if code == errno.EFBIG:
        return DiskFull(f"{text}: raise the limit of a file's size (ulimit -f unlimited)")
    if code == errno.ENOMEM:
        text += ": raise the limit of memory or addresses (ulimit -v unlimited)"
    elif code == errno.EMFILE:
        text += ": raise the limit of open files (ulimit -n)"
    elif code not in (errno.ENFILE, errno.EAGAIN):
        return StorageError(text)
    return OutOfResources(text)


cdef class SegmentFile:
    """A mapped file. Takes over ``fd``. Raises StorageError if it cannot be mapped.

    The descriptor carries the file's ``flock``: shared by processes that map another's file,
    exclusive while its owner trims, recycles, cuts or zeroes it (D20).
    """

    def __init__(self, str path, int fd, uint64_t size, bint writable):
        self.path = path
        self.fd = fd
        self.writable = writable
        if fd >= 0 and size > 0:
            self.base = kf_map(fd, size, writable)
            if self.base == NULL:
                code = c_errno
                os.close(fd)
                self.fd = -1
                raise storage_failure("cannot map", path, code)
        self.size = self.mapped = size
        self.named = kf_names(fd) > 0

    cdef int write(self, uint64_t at, const uint8_t *source, size_t n) except -1:
        """Write bytes into the file, which the map shows at once. Raises StorageError."""
        cdef int error
        with nogil:
            error = kf_write_all(self.fd, source, n, at)
        if error:
            raise storage_failure("cannot write", self.path, error)
        return 0

    cdef adopt(self, size_t address, uint64_t size):
        self.base = <uint8_t *>address
        self.size = self.mapped = size

    @property
    def address(self) -> int:
        """Where the bytes are in this process; 0 while not mapped."""
        return <size_t>self.base

    def view(self, uint64_t start, uint64_t end):
        """Return the bytes [start, end) as a read-only memoryview. Valid until resize or close."""
        if start > end or end > self.size or (self.base == NULL and start < end):
            raise ValueError(f"[{start}, {end}) is not within {self.size} bytes of {self.path}")
        if start == end:
            return memoryview(b"")
        return PyMemoryView_FromMemory(<char*>self.base + start, end - start, PyBUF_READ)

    # --- of another process -------------------------------------------------------------------

    cpdef copy_pieces(self):
        """Read by copies from now on: the map of a file that is cut short is a SIGBUS (R10)."""
        assert not self.writable
        if self.base == NULL:
            return
        self._unmap()
        self.base = kf_private(self.size)
        if self.base == NULL:
            self.mapped = 0
            raise StorageError(f"no memory for pieces of {self.path}")
        self.copied = True
        self.mapped = self.size
        self.copy_page()

    cpdef copy_page(self):
        """Copy the last page, which tells whether the segment is prepared."""
        if self.copied and self.size >= PAGE:
            self._copy(self.size - PAGE, self.size)

    cdef int look(self, uint64_t start, uint64_t limit) except -1:
        """Have a batch that begins at ``start`` and ends before ``limit``, and none before it."""
        cdef uint64_t end = min(start + LOOK_BYTES, limit)
        if self.held_from <= start and end <= self.held_to:
            return 0
        if not self.held_from <= start <= self.held_to:
            self.look_away()
            self.held_from = self.held_to = start
        kf_forget(self.base, self.held_from, start)
        self.held_from = start
        end = min(end + LOOK_BYTES, limit)
        self._copy(self.held_to, end)
        self.held_to = end
        return 0

    cdef int look_away(self) except -1:
        """Give back the memory of what was looked at."""
        kf_forget(self.base, self.held_from, self.held_to)
        self.held_from = self.held_to = 0
        return 0

    cdef int _copy(self, uint64_t start, uint64_t end) except -1:
        cdef ssize_t got
        while start < end:
            with nogil:
                got = pread(self.fd, self.base + start, end - start, start)
            if got < 0:
                if c_errno == EINTR:
                    continue
                raise storage_failure("cannot read", self.path, c_errno)
            if got == 0:
                raise CorruptLog(
                    f"{self.path} ends at byte {start}, and had {self.size} when it was opened",
                    self.path, start, -1)
            start += got
        return 0

    # --- of this process ----------------------------------------------------------------------

    cpdef uint64_t inode(self):
        """Return the file's number, which tells whether a name still means the same file."""
        if self.number == 0 and self.fd >= 0:
            self.number = os.fstat(self.fd).st_ino
        return self.number

    cpdef sync(self):
        """Call fdatasync. Raises FlushFailed, which is final for the log (D9)."""
        try:
            os.fdatasync(self.fd)
        except OSError as error:
            raise FlushFailed(f"fsync of {self.path} failed: {error.strerror}") from None

    cpdef reserve(self, uint64_t start, uint64_t end):
        """Give [start, end) its blocks. Raises DiskFull."""
        cdef int error
        with nogil:
            error = kf_reserve(self.fd, start, end)
        if error:
            raise storage_failure("cannot reserve", self.path, error)

    cpdef zero(self, uint64_t start, uint64_t end):
        """Write zeros over [start, end) and put them on disk. Raises DiskFull, FlushFailed (D9)."""
        cdef uint32_t piece = PREPARE_PIECE_BYTES
        cdef uint64_t stop
        cdef int error = 0, unsynced = 0
        with nogil:
            while start < end and not error:
                stop = min(end, start + ZERO_BYTES)
                error = kf_write_zeros(self.fd, start, stop, piece)
                if not error:
                    error = unsynced = kf_sync(self.fd)
                start = stop
        if error:
            failure = storage_failure("cannot prepare", self.path, error)
            if unsynced and type(failure) is not DiskFull:
                raise FlushFailed(str(failure))
            raise failure

    cpdef populate(self, uint64_t start, uint64_t end):
        """Have the pages of [start, end) mapped, to be stored into; its blocks are reserved."""
        with nogil:
            kf_populate(self.base, start, end)

    def prepare(self, uint64_t start, uint64_t end, str how):
        """Reserve [start, end) and make it quick to flush (``written``) or to store into
        (``mapped``), now. Raises DiskFull.
        """
        self.reserve(start, end)
        if how == "written":
            self.zero(start, end)
        else:
            self.populate(start, end)

    cpdef store_again(self, uint64_t start, uint64_t end):
        """Store a byte of every page of [start, end) once more: the next sync writes them all."""
        cdef volatile uint8_t *byte
        while start < end:
            byte = self.base + start
            byte[0] = byte[0]
            start = (start | (<uint64_t>PAGE_BYTES - 1)) + 1

    cpdef uint64_t data_end(self):
        """Return where the last stored byte before the last page may be; beyond are zeros."""
        cdef uint64_t end = 0, limit = max(self.size, PAGE_BYTES) - PAGE_BYTES
        try:
            while end < limit:
                start = os.lseek(self.fd, end, os.SEEK_DATA)
                if start >= limit:
                    break
                end = os.lseek(self.fd, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:  # ENXIO: no data behind `end`
                return self.size
        return min(end, self.size)

    cpdef resize(self, uint64_t size):
        """Cut or extend (sparse); where it fails, file and map are as before.

        Views and addresses from before are gone if it grows; no code may look behind a cut.
        """
        cdef uint8_t *map
        try:
            os.ftruncate(self.fd, size)
        except OSError as error:
            raise storage_failure("cannot resize", self.path, error.errno) from None
        if size > self.mapped:
            map = kf_map(self.fd, size, self.writable)
            if map == NULL:
                code = c_errno
                os.ftruncate(self.fd, self.size)
                raise storage_failure("cannot map", self.path, code)
            self._unmap()
            self.base, self.mapped = map, size
        self.size = size

    cpdef rename(self, disk, str path):
        """Give the file another name on ``disk``; durable once its directory is synced."""
        disk.rename(self.path, path)
        self.path = path

    cpdef bint is_removed(self):
        """Return whether nothing leads to the file: it ends with its last descriptor."""
        return self.named and kf_names(self.fd) == 0

    cpdef bint has_other_names(self):
        """Return whether another name leads to the file: a copy by hard links."""
        return self.named and kf_names(self.fd) > 1

    cpdef bint share(self):
        """Hold the file's lock shared as long as it is open; False if its owner excludes others."""
        return self._flock(fcntl.LOCK_SH)

    cpdef bint exclude(self):
        """Keep others from mapping the file until ``readmit``; False while one does."""
        return self._flock(fcntl.LOCK_EX)

    cpdef readmit(self):
        """Let others map the file again."""
        fcntl.flock(self.fd, fcntl.LOCK_UN)

    def _flock(self, int how):
        try:
            fcntl.flock(self.fd, how | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    cpdef close(self):
        """Unmap and close; nothing is flushed."""
        if self.fd >= 0:
            self._unmap()
            os.close(self.fd)
        self.base = NULL
        self.fd = -1

    cdef _unmap(self):
        if self.base != NULL:
            kf_unmap(self.base, self.mapped)

    def __dealloc__(self):
        if self.fd >= 0:
            if self.base != NULL:
                kf_unmap(self.base, self.mapped)
            close_fd(self.fd)
