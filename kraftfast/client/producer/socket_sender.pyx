"""The way to a leader over TCP: Kafka's Produce requests, pipelined, answered in order.

A batch is encoded where its frame will be: the request goes around it, and the frame leaves as one
piece. Sending and receiving never wait, so they keep the interpreter's lock.
"""

import os
import select

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from libc.errno cimport EAGAIN, EINTR
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from kraftfast.buffer cimport Hold, hold
from kraftfast.client.producer.outcomes cimport Outcomes
from kraftfast.client.producer.sender cimport COMMITTED, NOT_APPENDED, REFUSED_BATCH, UNKNOWN
from kraftfast.client.producer.sender cimport Sender, Sent
from kraftfast.client.producer.socket_calls cimport Stream
from kraftfast.wire.produce cimport PartitionProduced

from kraftfast import limits
from kraftfast.client.producer.refusals import NOT_LEADER_CODES, REFUSALS
from kraftfast.errors import ErrorCode, MalformedFrame, NotLeader, PeerGone, UnsupportedVersion
from kraftfast.types import ZERO_UUID
from kraftfast.wire import produce
from kraftfast.wire.messages import ApiKey


cdef extern from "varint.h" nogil:
    enum:
        KF_VARINT_MAX
    void kf_store32(uint8_t *p, uint32_t v)
    size_t kf_uvarint_size(uint32_t v)
    uint8_t *kf_uvarint_put(uint8_t *p, uint32_t v)

cdef enum:
    RECEIVES_A_TURN = 16
    ANSWER_BYTES_MAX = 64 * 1024
    ACKS_ALL = -1
    CORRELATION_AT = 8          # in a frame: after its length, API and version
    FLEXIBLE_FROM = 9           # versions from here on give lengths as varints
    WITHOUT_TOPIC_IDS = 12      # the last version that names the topic

REQUEST_TIMEOUT_MS = 30_000
"""For so long the server may keep a batch without an answer."""

cdef uint64_t LAST_ANSWERS_NS = 1_000_000_000  # after the first one that it does not lead


cdef struct Frame:
    uint8_t *start
    int64_t size


cdef class SocketSender(Sender):
    """Over one connection, which is its own from now on.

    ``connection``: greeted, to the leader; ``topic``, ``topic_id`` (None: not known): of partition
    0, to append to. ``node_id``, ``epoch``: the presumed leader, and since when.
    """

    cdef readonly object connection
    cdef object splitter                # of what comes back
    cdef Stream stream                  # the same
    cdef object waker                   # its descriptor is wake_fd
    cdef int version
    cdef int32_t first_correlation      # of batch 0; they count up
    cdef bytes prefix, suffix           # of a frame: up to the length of the batch, and behind it
    cdef Py_ssize_t prefix_bytes        # at most, with that length
    cdef Frame *frames                  # of batch n: frames[n & sent_mask]; like `sent`
    cdef list buffers                   # that they lie in, until their tickets resolve (R8, D24)
    cdef list spare                     # buffers of the usual size
    cdef object claimed                 # the buffer of the open claim
    cdef int64_t bytes_under_way, bytes_max
    cdef uint64_t send_number           # the batch whose frame is being sent,
    cdef int64_t send_at                # and how much of it the kernel has
    cdef uint64_t answer_number         # the batch whose answer is next; <= send_number
    cdef bint watches_room              # epoll watches for room to send, too
    cdef bint deaf                      # nothing more is to be read
    cdef uint64_t leave_ns              # when it breaks at the latest, once it is leaving,
    cdef object last_word               # and with which exception

    def __init__(self, connection, Outcomes outcomes, str topic, bytes topic_id,
                 int64_t batch_bytes, int64_t window, int node_id=-1, int epoch=-1):
        self.connection, self.node_id, self.epoch = connection, node_id, epoch
        self.splitter = connection.splitter
        self.splitter.frame_bytes_max = ANSWER_BYTES_MAX
        version_max = WITHOUT_TOPIC_IDS if topic_id is None else None
        self.version = connection.version_of(ApiKey.PRODUCE, version_max)
        self._make_template(topic, topic_id or ZERO_UUID)
        self.waker = connection.host.waker()
        try:
            self.set_up(
                connection.host, outcomes, batch_bytes, limits.BATCH_BYTES_MAX,
                min(window, limits.REQUESTS_OF_A_CONNECTION), self.waker.fileno())
            self.bytes_max = self.window * self.batch_bytes
            self.buffers, self.spare = [None] * (self.sent_mask + 1), []
            self.frames = <Frame *>calloc(self.sent_mask + 1, sizeof(Frame))
            if self.frames == NULL:
                raise MemoryError("producer")
            fd, self.first_correlation = connection.hand_over()
            self.stream = connection.host.stream(fd)
            self.epoll.register(fd, select.EPOLLIN)
        except BaseException:
            self.wake_fd = -1
            self.waker.close()
            raise

    def __dealloc__(self):
        free(self.frames)

    def _make_template(self, str topic, bytes topic_id):
        """Make what is the same in every frame: it takes no Python to send one."""
        request = produce.PartitionProduce(
            acks=ACKS_ALL, timeout_ms=REQUEST_TIMEOUT_MS, topic=topic, topic_id=topic_id,
            records=b"x",
        )
        pieces = produce.encode_request(self.version, 0, self.connection.CLIENT_ID, request)
        length = b"\x02" if self.version >= FLEXIBLE_FROM else b"\0\0\0\1"
        assert pieces[0].endswith(length), "the length of the records comes last"
        self.prefix = pieces[0][:-len(length)]
        self.suffix = pieces[2] if len(pieces) > 2 else b""
        self.prefix_bytes = len(self.prefix) + KF_VARINT_MAX

    # --- what leaves ------------------------------------------------------------------------------

    cdef uint8_t *claim(self, int64_t capacity) except? NULL:
        if self.bytes_under_way and self.bytes_under_way + capacity > self.bytes_max:
            return NULL
        if capacity <= self.batch_bytes and self.spare:
            self.claimed = self.spare.pop()
        else:
            self.claimed = PyByteArray_FromStringAndSize(
                NULL, self.prefix_bytes + max(capacity, self.batch_bytes) + len(self.suffix))
        return <uint8_t *>PyByteArray_AS_STRING(self.claimed) + self.prefix_bytes

    cdef void abandon(self) noexcept:
        self.claimed = None

    cdef int commit(self, Sent *entry) except -1:
        """Put the request around the batch: its length and number are all that is new in it."""
        cdef Frame *frame = &self.frames[self.sent_head & self.sent_mask]
        cdef uint8_t *at = entry.batch
        cdef uint32_t length = <uint32_t>entry.size
        if self.version >= FLEXIBLE_FROM:
            at -= kf_uvarint_size(length + 1)
            kf_uvarint_put(at, length + 1)
        else:
            at -= 4
            kf_store32(at, length)
        at -= len(self.prefix)
        memcpy(at, <const uint8_t *>self.prefix, len(self.prefix))
        memcpy(entry.batch + entry.size, <const uint8_t *>self.suffix, len(self.suffix))
        frame.start = at
        frame.size = entry.batch + entry.size + len(self.suffix) - at
        kf_store32(at, <uint32_t>(frame.size - 4))
        kf_store32(at + CORRELATION_AT, <uint32_t>self.correlation_of(self.sent_head))
        self.buffers[self.sent_head & self.sent_mask] = self.claimed
        self.claimed = None
        self.bytes_under_way += entry.size
        return 0

    cdef uint32_t correlation_of(self, uint64_t number) noexcept:
        return <uint32_t>((<uint64_t>self.first_correlation + number) & 0x7FFFFFFF)

    cdef int publish(self) except -1:
        """Give the kernel what it takes; the rest leaves when epoll says that there is room."""
        cdef Frame *frame
        cdef Py_ssize_t count
        if self.broken is not None or self.leaving or self.gone:
            return 0
        while self.send_number < self.sent_head:
            if self.is_idle() and self.has_ended():
                return 0
            frame = &self.frames[self.send_number & self.sent_mask]
            count = self.stream.send(frame.start + self.send_at,
                                     <size_t>(frame.size - self.send_at))
            if count < 0:
                if count == -EINTR:
                    continue
                if count != -EAGAIN:
                    self.fail(PeerGone(f"connection to the leader broken: {os.strerror(-count)}"))
                return 0
            self.send_at += count
            if self.send_at == frame.size:
                self.send_number += 1
                self.send_at = 0
        return 0

    cdef bint is_idle(self) noexcept:
        """Return whether nothing was sent that has no answer."""
        return self.send_at == 0 and self.send_number == self.answer_number

    cdef bint has_ended(self) except -1:
        """Return whether the leader hung up. While requests are under way :meth:`receive` notices.

        The kernel would take one more frame, and its outcome would be unknown.
        """
        cdef Py_ssize_t count = self.stream.peek()
        if count > 0 or count == -EAGAIN or count == -EINTR:
            return False
        self.fail(PeerGone("the connection to the leader ended"))
        return True

    cdef int release(self, uint64_t number) except -1:
        """Free the buffer; an answer alone does not: what it does not settle goes again (D24)."""
        cdef Sent *entry = self.batch_number(number)
        buffer, self.buffers[number & self.sent_mask] = self.buffers[number & self.sent_mask], None
        self.bytes_under_way -= entry.size
        if entry.size <= self.batch_bytes:
            self.spare.append(buffer)
        return 0

    cdef uint64_t untouched(self):
        """Return the number of the first batch whose frame is not whole: it is never looked at."""
        return self.send_number

    # --- what comes back --------------------------------------------------------------------------

    cdef bint waiting(self) noexcept nogil:
        return self.stream.is_ready(self.send_number < self.sent_head and not self.leaving)

    cdef int receive(self) except -1:
        cdef Hold room
        cdef Py_ssize_t count
        self.publish()
        for _ in range(RECEIVES_A_TURN):
            room = hold(self.splitter.room(), writable=True)  # Python code: other threads may run
            if self.gone or self.deaf:
                return 0
            count = self.stream.receive(room.data, <size_t>room.size)
            if count <= 0:
                if count == -EAGAIN or count == -EINTR:
                    break
                self.deaf = True
                why = os.strerror(-count) if count < 0 else "closed by the leader"
                self.fail(PeerGone(f"connection to the leader broken: {why}"))
                break
            try:
                self.splitter.received(count)
                while not self.gone and (frame := self.splitter.next_frame()) is not None:
                    self.on_response(frame)
            except (MalformedFrame, UnsupportedVersion) as error:
                self.deaf = True
                self.fail(PeerGone(f"the leader sends what is no answer: {error}"))
            except BaseException:  # a signal handler's: this answer is lost, the next would not fit
                self.deaf = True
                self.fail(PeerGone("taking in an answer was interrupted"))
                raise
            if count < room.size:
                break
        if self.leaving and (
            self.answer_number == self.send_number or self.clock.monotonic_ns() > self.leave_ns
        ):
            self.fail(self.last_word)
        return 0

    cdef int on_response(self, frame) except -1:
        """Set the state of the oldest batch without an answer. Raises MalformedFrame."""
        cdef Sent *entry
        cdef uint64_t number = self.answer_number
        if number == self.send_number:  # R8: its buffer is still being sent
            raise MalformedFrame("an answer before the request was sent whole")
        correlation_id, response = produce.decode_response(self.version, frame)
        expected = self.correlation_of(number)
        if self.gone:
            return 0
        if correlation_id != expected or type(response) is not PartitionProduced:
            raise MalformedFrame("an answer to another request")
        code = response.error_code
        if code == 0 and response.base_offset < 0:
            raise MalformedFrame("an acknowledgement without an offset")
        entry = self.batch_number(number)
        entry.error = code
        if code == 0:
            entry.state, entry.base_offset = COMMITTED, response.base_offset
        elif code in NOT_LEADER_CODES:
            entry.state = NOT_APPENDED
        else:
            told = code in REFUSALS or code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
            entry.state = REFUSED_BATCH if told else UNKNOWN
        self.answer_number += 1
        if code in NOT_LEADER_CODES or code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
            self.leave_after_answers(response.leader_id)
        return 0

    cdef int leave_after_answers(self, int32_t leader_id) except -1:
        """Send nothing more: the replica does not lead. Its answers to the rest still count."""
        if self.leaving:
            return 0
        self.leaving = True
        self.review()
        self.leave_ns = self.clock.monotonic_ns() + LAST_ANSWERS_NS
        self.last_word = NotLeader("the replica does not lead", leader_id)
        return 0

    # --- sleeping ---------------------------------------------------------------------------------

    cdef int announce_sleep(self) except -1:
        cdef bint wanted = self.send_number < self.sent_head and not self.leaving
        if wanted != self.watches_room:
            self.watches_room = wanted
            self.epoll.modify(self.stream.fd, select.EPOLLIN | (select.EPOLLOUT if wanted else 0))
        return 0

    cdef int attend_to(self, int fd, int events) except -1:
        if fd == self.wake_fd:
            self.waker.clear()
        return 0

    cdef int nudge(self) except -1:
        if self.wake_fd >= 0:
            self.waker.ring()
        return 0

    cdef int close_files(self) except -1:
        self.wake_fd = -1
        self.waker.close()
        self.epoll.close()
        self.connection.close()
        return 0
