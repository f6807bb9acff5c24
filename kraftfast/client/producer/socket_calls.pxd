"""A connected socket as a sender uses it, for compiled code: see socket_calls.pyx."""


cdef class Stream:
    cdef readonly int fd

    # Each returns the bytes that went, or an errno below 0.
    cdef Py_ssize_t send(self, const void *data, size_t size) noexcept
    cdef Py_ssize_t receive(self, void *data, size_t size) noexcept
    # Whether there is a byte to read: 1, an end: 0; an errno below 0, EAGAIN if neither.
    cdef Py_ssize_t peek(self) noexcept
    # Whether there is something to read or, with ``room``, room to send.
    cdef bint is_ready(self, bint room) noexcept nogil
