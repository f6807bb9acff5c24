"""Waiting that a signal handler cannot break: see news.pyx."""


cdef class News:
    cdef list waiters
    cdef object lock

    # A thread that will wait: what it looks at after this cannot change without its being told.
    cdef object enter(self)
    cdef int leave(self, waiter) except -1
    cpdef tell(self)
