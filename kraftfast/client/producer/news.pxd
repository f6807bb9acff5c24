"""Waiting that a signal handler cannot break: see news.pyx."""

from libc.stdint cimport int64_t


cdef class Waiter:
    cdef object lock        # taken; released when the thread is told
    cdef int64_t ticket     # what it waits for
    cdef bint told


cdef class News:
    cdef list waiters
    cdef object lock
    cdef Py_ssize_t waking  # threads that were told and did not run yet

    # A thread that will wait: what it looks at after this cannot change without its being told.
    cdef Waiter enter(self, int64_t ticket)
    cdef int leave(self, Waiter waiter) except -1
    cdef int wake(self, Waiter waiter) except -1
    cdef list take_all(self)
    cpdef tell(self)
    cdef int tell_resolved(self, int64_t resolved) except -1
    cdef int tell_one(self) except -1
