"""The ring's two ends and the doorbell, for Python and Cython callers."""

import os

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy
from posix.unistd cimport close as c_close

from kraftfast.buffer cimport Hold, hold

from kraftfast.errors import InvalidOption, PeerGone
from kraftfast.ring.calls cimport *


cdef extern from "ring.h":
    size_t kf_ring_file_bytes(uint32_t capacity)
    int kf_ring_format_producer(void *file, uint32_t capacity, uint64_t generation)
    int kf_ring_format_consumer(void *file, uint32_t capacity, uint64_t generation)
    int kf_ring_attach_out(
        kf_ring_out *r, void *producer_file, size_t size, const void *consumer_file)
    int kf_ring_attach_in(
        kf_ring_in *r, const void *producer_file, size_t size, void *consumer_file)
    uint64_t kf_ring_position(const kf_ring_out *r) nogil
    size_t KF_RING_OUT_BYTES "sizeof(kf_ring_out)"
    size_t KF_RING_IN_BYTES "sizeof(kf_ring_in)"


cdef extern from "crc32c.h":
    uint32_t kf_crc32c(uint32_t crc, const void *p, size_t n) nogil


PAGE_BYTES = KF_RING_PAGE
OWN_FLAGS = os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC
"""Of a doorbell's pipe: a ring never waits, and needs no reader on the other side to be safe."""
assert sizeof(RingMessage) == sizeof(kf_ring_message)


def producer_file_bytes(uint32_t capacity) -> int:
    """Return how large the producer's memory file is; the consumer's is one page."""
    return kf_ring_file_bytes(capacity)


def format_producer(memory, uint32_t capacity, uint64_t generation):
    """Write the constant words of a producer's file. Raises InvalidOption for a bad capacity."""
    cdef Hold held = hold(memory, writable=True)
    small = <size_t>held.size < kf_ring_file_bytes(capacity)
    if small or kf_ring_format_producer(held.data, capacity, generation):
        raise InvalidOption(f"ring capacity {capacity}: not a power of two that fits its file")


def format_consumer(memory, uint32_t capacity, uint64_t generation):
    """Write the constant words of a consumer's file. Raises InvalidOption for a bad capacity."""
    cdef Hold held = hold(memory, writable=True)
    if held.size < KF_RING_PAGE or kf_ring_format_consumer(held.data, capacity, generation):
        raise InvalidOption(f"ring capacity {capacity}: not a power of two that fits its file")


cdef class RingOut:
    """The producer's end. Not thread-safe.

    ``own`` is the writable map of the producer's file, ``peer`` a read-only one of the consumer's.
    Raises PeerGone if the two files do not belong together.
    """

    def __cinit__(self):
        self.ring = <kf_ring_out *>calloc(1, KF_RING_OUT_BYTES)
        if self.ring == NULL:
            raise MemoryError("ring")

    def __dealloc__(self):
        free(self.ring)

    def __init__(self, own, peer):
        cdef Hold written = hold(own, writable=True)
        cdef Hold read = hold(peer)
        if read.size < KF_RING_PAGE or written.size < KF_RING_PAGE or \
                kf_ring_attach_out(self.ring, written.data, written.size, read.data):
            raise PeerGone("the two files of a ring do not fit each other")
        self.memory = (written, read)

    cdef uint8_t *claim(self, uint32_t length) noexcept nogil:
        return kf_ring_claim(self.ring, length)

    cdef void commit(self, uint32_t length, uint32_t kind, uint32_t crc) noexcept nogil:
        kf_ring_commit(self.ring, length, kind, crc)
        self.position = kf_ring_position(self.ring)

    cpdef publish(self):
        """Make everything committed visible to the consumer."""
        kf_ring_publish(self.ring)

    cpdef bint send(self, uint32_t kind, payload):
        """Commit a copy of ``payload``, with its CRC. False: no room now; nothing was sent."""
        cdef Hold held = hold(payload)
        cdef uint32_t length = <uint32_t>held.size
        cdef uint8_t *slot = kf_ring_claim(self.ring, length) if length == held.size else NULL
        if slot == NULL:
            return False
        if length:
            memcpy(slot, held.data, length)
        self.commit(length, kind, kf_crc32c(0, slot, length))
        return True

    @property
    def payload_max(self) -> int:
        """The longest payload that ever fits, bytes."""
        return kf_ring_payload_max(self.ring)

    def has_room(self, uint32_t length) -> bool:
        """Return whether a claim would succeed now."""
        return kf_ring_has_room(self.ring, length) == 1

    def want_room(self):
        """Ask to be woken once the consumer releases; then look at ``has_room`` before a sleep."""
        kf_ring_want_room(self.ring)

    def drained(self) -> bool:
        """Return whether the consumer has released everything."""
        return bool(kf_ring_drained(self.ring))

    @property
    def taken(self) -> int:
        """How far the consumer has looked, in bytes ever committed: nothing beyond was acted on."""
        return kf_ring_taken(self.ring)

    cpdef bint faulted(self):
        """Return whether the consumer's words made no sense: fence it (R7)."""
        return kf_ring_out_faulted(self.ring) != 0


cdef class RingIn:
    """The consumer's end. Not thread-safe.

    ``own`` is the writable map of the consumer's file, ``peer`` a read-only one of the producer's.
    Raises PeerGone if the two files do not belong together.
    """

    def __cinit__(self):
        self.ring = <kf_ring_in *>calloc(1, KF_RING_IN_BYTES)
        if self.ring == NULL:
            raise MemoryError("ring")

    def __dealloc__(self):
        free(self.ring)

    def __init__(self, own, peer):
        cdef Hold written = hold(own, writable=True)
        cdef Hold read = hold(peer)
        if read.size < KF_RING_PAGE or written.size < KF_RING_PAGE or \
                kf_ring_attach_in(self.ring, read.data, read.size, written.data):
            raise PeerGone("the two files of a ring do not fit each other")
        self.memory = (written, read)

    cdef int peek(self) noexcept nogil:
        return kf_ring_peek(self.ring, &self.message)

    cdef void release(self) noexcept nogil:
        kf_ring_release(self.ring)

    cpdef receive(self):
        """Return (kind, payload) of the next message, copied and its CRC checked, or None.

        A message that does not check fences the producer: ``faulted`` is True from then on.
        """
        if kf_ring_peek(self.ring, &self.message) != 1:
            return None
        cdef bytes payload = (<const uint8_t *>self.message.payload)[:self.message.length]
        kind, crc = self.message.kind, self.message.crc
        kf_ring_release(self.ring)
        if kf_crc32c(0, <const uint8_t *>payload, len(payload)) != crc:
            kf_ring_fence(self.ring)
            return None
        return kind, payload

    cpdef bint publish_tail(self):
        """Give back what was released. True: the producer waits for room, ring its doorbell."""
        return kf_ring_publish_tail(self.ring) != 0

    cpdef bint waiting(self):
        """Return whether a message is there (the re-check before sleeping, R12)."""
        return kf_ring_waiting(self.ring) != 0

    def fill_permille(self) -> int:
        """Return how much of the ring waits to be taken and released, 0 to 1000."""
        return kf_ring_fill_permille(self.ring)

    cpdef bint faulted(self):
        """Return whether the producer's words made no sense: fence it (R7)."""
        return kf_ring_in_faulted(self.ring) != 0


cdef class Doorbell:
    """How this process is woken: a flag that others read, and a pipe that they write.

    ``memory`` is the writable map of the flag's page. ``fd`` is this process's own open file
    description of the pipe, ``far_fd`` another one, to be passed: its holder may change its
    flags, and yet no call on ``fd`` blocks.
    """

    def __cinit__(self):
        self.fd = self.far_fd = -1

    def __init__(self, memory):
        cdef Hold held = hold(memory, writable=True)
        if held.size < KF_RING_PAGE:
            raise InvalidOption("a doorbell needs a page")
        self.memory = held
        self.page = <kf_doorbell_page *>held.data
        near_fd, self.far_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.fchmod(self.far_fd, 0o666)  # a replica that serves root opens root's pipes too
            self.fd = os.open(f"/proc/self/fd/{near_fd}", OWN_FLAGS)
        finally:
            os.close(near_fd)

    @property
    def address(self) -> int:
        """Where the flag is, for the C threads of this process."""
        return <size_t>self.page

    cdef void sleep(self) noexcept nogil:
        kf_doorbell_sleep(self.page)

    cdef void awake(self) noexcept nogil:
        kf_doorbell_awake(self.page)

    def going_to_sleep(self):
        """Announce sleep; re-check every source after this and before waiting on ``fd`` (R12)."""
        kf_doorbell_sleep(self.page)

    def woke_up(self):
        """Announce that this process is awake: others need not ring."""
        kf_doorbell_awake(self.page)

    def clear(self):
        """Take the rings out of the pipe."""
        try:
            os.read(self.fd, KF_RING_PAGE)
        except BlockingIOError:
            pass

    def close(self):
        fd, far_fd = self.fd, self.far_fd
        self.fd = self.far_fd = -1  # first: os.close lets other threads run
        if fd >= 0:
            os.close(fd)
        if far_fd >= 0:
            os.close(far_fd)

    def __dealloc__(self):
        if self.fd >= 0:
            c_close(self.fd)  # its user did not close it
        if self.far_fd >= 0:
            c_close(self.far_fd)


cdef class PeerDoorbell:
    """Another process's doorbell: its flag, mapped read-only, and a description of its pipe.

    The description is this process's own (``link.memory_file.own_bell``).
    """

    def __cinit__(self):
        self.fd = -1

    def __init__(self, memory, int fd):
        cdef Hold held = hold(memory)
        if held.size < KF_RING_PAGE:
            raise PeerGone("a doorbell needs a page")
        self.memory = held
        self.page = <const kf_doorbell_page *>held.data
        self.fd = fd

    cpdef bint ring(self):
        """Wake the other side if it sleeps. Call after publishing (R12)."""
        return kf_doorbell_ring(self.page, self.fd) != 0

    cdef bint asleep(self) noexcept nogil:
        return kf_doorbell_asleep(self.page) != 0

    def close(self):
        fd, self.fd = self.fd, -1  # first: os.close lets other threads run
        if fd >= 0:
            os.close(fd)

    def __dealloc__(self):
        if self.fd >= 0:
            c_close(self.fd)  # its user did not close it
