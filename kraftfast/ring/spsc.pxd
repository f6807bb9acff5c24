"""The ring's two ends and the doorbell, for Cython callers; cext/ring.h says what a call does."""

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t


# The C structs are opaque here, so that a module which cimports this needs no header of ours.
cdef extern from *:
    """
    typedef struct kf_ring_out kf_ring_out;
    typedef struct kf_ring_in kf_ring_in;
    typedef struct kf_doorbell_page kf_doorbell_page;
    """
    ctypedef struct kf_ring_out
    ctypedef struct kf_ring_in
    ctypedef struct kf_doorbell_page


# One message: its payload lies in the ring until it is released.
cdef struct RingMessage:
    const uint8_t *payload
    uint32_t length
    uint32_t kind
    uint32_t crc


cdef class RingOut:
    cdef kf_ring_out *ring
    cdef object memory               # the two mappings, kept while the ring is used
    cdef readonly uint64_t position  # bytes committed so far: where the next message starts

    cdef uint8_t *claim(self, uint32_t length) noexcept nogil
    cdef void commit(self, uint32_t length, uint32_t kind, uint32_t crc) noexcept nogil
    cpdef publish(self)
    cpdef bint send(self, uint32_t kind, payload)
    cpdef bint faulted(self)


cdef class RingIn:
    cdef kf_ring_in *ring
    cdef RingMessage message
    cdef object memory

    cdef int peek(self) noexcept nogil
    cdef void release(self) noexcept nogil
    cpdef bint publish_tail(self)
    cpdef bint waiting(self)
    cpdef bint faulted(self)
    cpdef receive(self)


cdef class Doorbell:
    cdef kf_doorbell_page *page
    cdef readonly object memory
    cdef readonly int fd, far_fd

    cdef void sleep(self) noexcept nogil
    cdef void awake(self) noexcept nogil


cdef class PeerDoorbell:
    cdef const kf_doorbell_page *page
    cdef object memory
    cdef readonly int fd

    cpdef bint ring(self)
    cdef bint asleep(self) noexcept nogil
