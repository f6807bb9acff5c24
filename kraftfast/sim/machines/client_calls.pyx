"""What compiled code of clients calls, in the simulator: its clock, connections, doorbells."""

from cpython.buffer cimport PyBUF_WRITABLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport EAGAIN
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kraftfast.client.clock cimport Clock
from kraftfast.client.producer.socket_calls cimport Stream
from kraftfast.ring.spsc cimport Doorbell, PeerDoorbell, kf_doorbell_page

import select


cdef class SimClock(Clock):
    """The time of a world."""

    cdef object world

    def __init__(self, world):
        self.world = world

    cdef uint64_t monotonic_ns(self) noexcept nogil:
        with gil:
            return <uint64_t>self.world.now_us * 1000

    cdef int64_t wall_ms(self) noexcept nogil:
        with gil:
            return <int64_t>self.world.now_us // 1000


cdef class SimStream(Stream):
    """A simulated socket; see ``kraftfast.sim.machines.tcp``."""

    cdef object sock

    def __init__(self, sock):
        self.sock, self.fd = sock, sock.fileno()

    cdef Py_ssize_t send(self, const void *data, size_t size) noexcept:
        try:
            return self.sock.sendmsg([PyBytes_FromStringAndSize(<const char *>data, size)])
        except OSError as error:
            return -error.errno

    cdef Py_ssize_t receive(self, void *data, size_t size) noexcept:
        cdef bytes found
        try:
            found = self.sock.recv(size)
        except OSError as error:
            return -error.errno
        memcpy(data, <const char *>found, len(found))
        return len(found)

    cdef Py_ssize_t peek(self) noexcept:
        cdef int events = self.sock.readiness()
        if self.sock.inbox:
            return 1
        if self.sock.at_end:
            return 0
        return -self.sock.error if events & select.EPOLLERR else -EAGAIN

    cdef bint is_ready(self, bint room) noexcept nogil:
        with gil:
            events = self.sock.readiness()
            wanted = select.EPOLLIN | select.EPOLLERR | (select.EPOLLOUT if room else 0)
            return bool(events & wanted)


cdef class ProgramDoorbell(Doorbell):
    """The doorbell of a program: its flag in real memory, its pipe a ``SimWaker``."""

    cdef object waker
    cdef Py_buffer view

    def __init__(self, memory, waker, int far_fd):
        PyObject_GetBuffer(memory, &self.view, PyBUF_WRITABLE)
        self.memory, self.page = memory, <kf_doorbell_page *>self.view.buf
        self.waker, self.fd, self.far_fd = waker, waker.fileno(), far_fd

    @property
    def asleep(self) -> bool:
        """Whether others have to ring."""
        return (<const uint32_t *>self.page)[0] != 0

    def clear(self):
        self.waker.clear()

    def close(self):
        """Leave the descriptors to those that made them."""
        self.fd = self.far_fd = -1

    def __dealloc__(self):
        self.fd = self.far_fd = -1  # they are none of the kernel's
        if self.view.buf != NULL:
            PyBuffer_Release(&self.view)


cdef class ProgramPeerBell(PeerDoorbell):
    """The doorbell of a replica; ``bell``: its ``SimPeerBell``."""

    cdef object bell

    def __init__(self, bell):
        self.bell = bell

    cpdef bint ring(self):
        return self.bell.ring()

    def close(self):
        self.bell.close()
