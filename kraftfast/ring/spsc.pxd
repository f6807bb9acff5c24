"""The ring's two ends and the doorbell, for Cython callers (cext/ring.h says what each call does)."""

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef extern from "ring.h":
    ctypedef struct kf_ring_producer_page:
        pass
    ctypedef struct kf_ring_consumer_page:
        pass
    ctypedef struct kf_ring_out:
        int fault
    ctypedef struct kf_ring_in:
        uint64_t tail
        int fault
    ctypedef struct kf_ring_message:
        const uint8_t *payload
        uint32_t length
        uint32_t kind
        uint32_t crc
    ctypedef struct kf_doorbell_page:
        pass
    uint8_t *kf_ring_claim(kf_ring_out *r, uint32_t length) nogil
    void kf_ring_commit(kf_ring_out *r, uint32_t length, uint32_t kind, uint32_t crc) nogil
    void kf_ring_abort(kf_ring_out *r) nogil
    void kf_ring_publish(kf_ring_out *r) nogil
    uint32_t kf_ring_payload_max(const kf_ring_out *r) nogil
    int kf_ring_drained(const kf_ring_out *r) nogil
    void kf_ring_want_room(kf_ring_out *r) nogil
    int kf_ring_has_room(kf_ring_out *r, uint32_t length) nogil
    int kf_ring_peek(kf_ring_in *r, kf_ring_message *m) nogil
    void kf_ring_release(kf_ring_in *r) nogil
    int kf_ring_publish_tail(kf_ring_in *r) nogil
    int kf_ring_waiting(const kf_ring_in *r) nogil
    void kf_ring_take(kf_ring_in *r) nogil
    uint64_t kf_ring_taken(const kf_ring_out *r) nogil
    void kf_doorbell_sleep(kf_doorbell_page *d) nogil
    void kf_doorbell_awake(kf_doorbell_page *d) nogil
    int kf_doorbell_asleep(const kf_doorbell_page *d) nogil
    int kf_doorbell_ring(const kf_doorbell_page *d, int eventfd) nogil


cdef class RingOut:
    cdef kf_ring_out ring
    cdef object memory               # the two mappings, kept while the ring is used
    cdef readonly uint64_t position  # bytes committed so far: where the next message starts

    cdef uint8_t *claim(self, uint32_t length) noexcept nogil
    cdef void commit(self, uint32_t length, uint32_t kind, uint32_t crc) noexcept nogil
    cpdef publish(self)
    cpdef bint send(self, uint32_t kind, payload)
    cpdef bint faulted(self)


cdef class RingIn:
    cdef kf_ring_in ring
    cdef kf_ring_message message
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
    cdef readonly int fd

    cdef void sleep(self) noexcept nogil
    cdef void awake(self) noexcept nogil


cdef class PeerDoorbell:
    cdef const kf_doorbell_page *page
    cdef object memory
    cdef readonly int fd

    cpdef bint ring(self)
    cdef bint asleep(self) noexcept nogil
