"""Where a replica sleeps, for compiled code. See ``idle.pyx``."""

from libc.stdint cimport uint64_t

from kraftfast.ring.calls cimport kf_ring_in
from kraftfast.ring.spsc cimport Doorbell


cdef extern from "flusher.h":
    ctypedef struct kf_flusher:
        pass

cdef extern from "stay_awake.h":
    ctypedef struct kf_stay_awake:
        pass

cdef extern from "sys/epoll.h" nogil:
    ctypedef union epoll_data:
        int fd
    cdef struct epoll_event:
        unsigned int events
        epoll_data data


cdef class Idle:
    cdef object epoll
    cdef Doorbell bell
    cdef kf_ring_in **rings
    cdef int ring_count, ring_room
    cdef dict watched              # RingIn -> its slot
    cdef kf_flusher *flusher
    cdef readonly bint flush_asked  # the loop waits for the flusher: its end ends a sleep
    cdef readonly bint muted        # messages on rings end no sleep: they could not be stored now
    cdef readonly uint64_t sleeps, idle_ns
    cdef public uint64_t woke_ns  # when the last wait ended
    cdef int epoll_fd
    cdef kf_stay_awake *awake                # NULL: processors may halt
    cdef uint64_t keep_ns          # for so long after something was in flight
    cdef uint64_t pause_ns         # the length of the last pause
    cdef public uint64_t pause_until_ns  # no spinning till then, after a long yield
    cdef readonly uint64_t long_yields

    cpdef keep_awake(self)
    cpdef flush_began(self)
    cpdef flush_ended(self)
    cpdef mute(self, bint muted)
    cpdef list poll(self)
    cpdef list spin(self, int spin_us, bint for_sockets=*)
    cpdef list sleep(self, int timeout_ms)
    cdef bint _news(self) noexcept nogil
    cdef void _pause_spinning(self, uint64_t now_ns) noexcept nogil
    cdef list _list(self, epoll_event *events, int ready)
