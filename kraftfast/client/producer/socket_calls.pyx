"""System calls of a sender on its connection, none of which waits or runs Python code."""

from libc.errno cimport errno as c_errno
from libc.stdint cimport uint8_t


cdef extern from "sys/socket.h" nogil:
    int MSG_DONTWAIT
    int MSG_NOSIGNAL
    int MSG_PEEK
    Py_ssize_t c_send "send"(int fd, const void *data, size_t size, int flags)
    Py_ssize_t c_recv "recv"(int fd, void *data, size_t size, int flags)

cdef extern from "poll.h" nogil:
    short POLLIN
    short POLLOUT
    struct pollfd:
        int fd
        short events
        short revents
    int c_poll "poll"(pollfd *fds, unsigned long count, int timeout_ms)


cdef class Stream:
    """A connection by its descriptor, which is its user's to close."""

    def __init__(self, int fd):
        self.fd = fd

    cdef Py_ssize_t send(self, const void *data, size_t size) noexcept:
        cdef Py_ssize_t count = c_send(self.fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL)
        return count if count >= 0 else -c_errno

    cdef Py_ssize_t receive(self, void *data, size_t size) noexcept:
        cdef Py_ssize_t count = c_recv(self.fd, data, size, MSG_DONTWAIT)
        return count if count >= 0 else -c_errno

    cdef Py_ssize_t peek(self) noexcept:
        cdef uint8_t byte
        cdef Py_ssize_t count = c_recv(self.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT)
        return count if count >= 0 else -c_errno

    cdef bint is_ready(self, bint room) noexcept nogil:
        cdef pollfd watched
        watched.fd, watched.events, watched.revents = self.fd, POLLIN, 0
        if room:
            watched.events |= POLLOUT
        return c_poll(&watched, 1, 0) > 0
