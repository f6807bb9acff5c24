"""The calls of cext/ring.h, for our own modules: an embedder uses the classes of ``spsc``."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from kraftfast.ring.spsc cimport RingMessage, kf_doorbell_page, kf_ring_in, kf_ring_out


cdef extern from "ring.h":
    enum:
        KF_RING_PAGE
        KF_RING_PADDING
    ctypedef struct kf_ring_message:
        uint32_t crc
    uint8_t *kf_ring_claim(kf_ring_out *r, uint32_t length) nogil
    void kf_ring_commit(kf_ring_out *r, uint32_t length, uint32_t kind, uint32_t crc) nogil
    void kf_ring_abort(kf_ring_out *r) nogil
    void kf_ring_publish(kf_ring_out *r) nogil
    uint32_t kf_ring_payload_max(const kf_ring_out *r) nogil
    int kf_ring_out_faulted(const kf_ring_out *r) nogil
    int kf_ring_in_faulted(const kf_ring_in *r) nogil
    void kf_ring_fence(kf_ring_in *r) nogil
    void kf_ring_keep(kf_ring_out *r, uint64_t position) nogil
    int kf_ring_drained(const kf_ring_out *r) nogil
    void kf_ring_want_room(kf_ring_out *r) nogil
    int kf_ring_has_room(kf_ring_out *r, uint32_t length) nogil
    int kf_ring_peek(kf_ring_in *r, void *m) nogil  # a RingMessage, which has its layout
    void kf_ring_release(kf_ring_in *r) nogil
    int kf_ring_publish_tail(kf_ring_in *r) nogil
    int kf_ring_waiting(const kf_ring_in *r) nogil
    uint32_t kf_ring_fill_permille(const kf_ring_in *r) nogil
    void kf_ring_take(kf_ring_in *r) nogil
    uint64_t kf_ring_taken(const kf_ring_out *r) nogil
    void kf_doorbell_sleep(kf_doorbell_page *d) nogil
    void kf_doorbell_awake(kf_doorbell_page *d) nogil
    int kf_doorbell_asleep(const kf_doorbell_page *d) nogil
    int kf_doorbell_ring(const kf_doorbell_page *d, int fd) nogil
