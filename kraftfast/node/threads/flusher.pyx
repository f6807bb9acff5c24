"""The flush of the log: inside the loop when it is small, else by a C thread without the GIL."""

from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free

from kraftfast.errors import OutOfResources
from kraftfast.log.log cimport Log
from kraftfast.log.segment cimport kf_flush_job, kf_flush_run


cdef extern from "flusher.h":
    ctypedef struct kf_doorbell_page:
        pass
    int kf_flusher_start(kf_flusher *f, const kf_doorbell_page *doorbell, int doorbell_fd)
    void kf_flusher_ask(kf_flusher *f) nogil
    int kf_flusher_take(kf_flusher *f) nogil
    int kf_flusher_busy(const kf_flusher *f) nogil
    void kf_flusher_stop(kf_flusher *f) nogil
    uint64_t kf_now_ns() nogil


cdef class Flusher:
    """One flush at a time. ``began_ns``, ``duration_ns``: of the last one that ended.

    ``slowest_ns`` is the longest duration since ``take_slowest_ns``.
    ``truncations`` is the log's counter when the flush at hand began (D2).
    """

    def __init__(self, size_t doorbell, int doorbell_fd):
        self.thread = <kf_flusher *>calloc(1, sizeof(kf_flusher))
        if self.thread == NULL:
            raise MemoryError("flusher thread")
        if kf_flusher_start(self.thread, <const kf_doorbell_page *>doorbell, doorbell_fd):
            free(self.thread)
            self.thread = NULL
            raise OutOfResources("cannot start the flusher thread")

    @property
    def address(self) -> int:
        """Where the thread's state is, for the idle loop that watches it."""
        return <size_t>self.thread

    cpdef ask(self, Log log):
        """Begin a flush of everything appended so far. Raises FlushFailed."""
        self.truncations = log.truncations
        log.fill_flush(&self.thread.job)
        kf_flusher_ask(self.thread)

    cpdef run(self, Log log):
        """Flush everything appended so far, now. Raises FlushFailed, which is final (D9)."""
        cdef kf_flush_job job
        cdef uint64_t began = kf_now_ns(), ended
        cdef int error
        self.truncations = log.truncations
        log.fill_flush(&job)
        with nogil:
            error = kf_flush_run(&job)
            ended = kf_now_ns()
        self._note(began, ended - began)
        log.flush_done(error)

    cpdef bint take(self, Log log) except -1:
        """Return whether the flush at hand has ended; the log then counts it.

        Raises FlushFailed (D9).
        """
        if not kf_flusher_take(self.thread):
            return False
        self._note(self.thread.began_ns, self.thread.duration_ns)
        log.flush_done(self.thread.error)
        return True

    cdef void _note(self, uint64_t began_ns, uint64_t duration_ns) noexcept:
        self.began_ns, self.duration_ns = began_ns, duration_ns
        if duration_ns > self.slowest_ns:
            self.slowest_ns = duration_ns

    cpdef bint busy(self):
        """Return whether a flush is under way."""
        return kf_flusher_busy(self.thread) != 0

    cpdef uint64_t take_slowest_ns(self):
        """Return the longest duration since the last call, 0 if nothing was flushed."""
        cdef uint64_t slowest_ns = self.slowest_ns
        self.slowest_ns = 0
        return slowest_ns

    def close(self):
        """End the thread, after the flush under way."""
        self._stop()

    cdef _stop(self):
        if self.thread != NULL:
            with nogil:
                kf_flusher_stop(self.thread)
            free(self.thread)
            self.thread = NULL

    def __dealloc__(self):
        self._stop()
