"""A producer's hot path on one host: records are encoded straight into the ring to the leader.

Nothing here blocks or starts a thread, and everything runs under the interpreter's lock, which is
what makes it thread-safe. A batch leaves when it is full, when nothing else is under way (so that
an idle quorum answers at once), or when it is sealed.
"""

import time

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from kraftfast.client.ledger cimport Ledger
from kraftfast.errors import ErrorCode, NotLeader, PeerGone, RecordsRefused, RecordTooLarge
from kraftfast.link.stats cimport kf_histogram, kf_histogram_add, kf_histogram_quantile
from kraftfast.record.builder cimport Values
from kraftfast.record.encode cimport *
from kraftfast.ring.layout cimport *
from kraftfast.ring.calls cimport *
from kraftfast.ring.spsc cimport *


cdef extern from "flusher.h":
    uint64_t kf_now_ns() nogil

cdef extern from "sched.h" nogil:
    int sched_yield()

cdef extern from "time.h" nogil:
    pass

cdef enum:
    HEAD = sizeof(BatchMessage)
    BATCHES_MAX = 1 << 15        # under way at once; a power of two
    RECORD_OVERHEAD = 61 + 64


cdef struct Sent:
    int64_t first_ticket
    int64_t records
    uint64_t began_ns       # when its first record was handed over
    uint64_t position       # of the ring behind it
    uint8_t *batch          # in the ring's memory; whole until the ring's other end has released it
    uint32_t size


cdef class RingSender:
    """One producer's ring to one leader. ``link`` is its RingLink; ``ledger`` outlives it.

    ``batch_bytes``: a batch is closed when it is about this large. ``window``: batches that may be
    under way. ``broken``: why nothing can be sent any more, or None.
    """

    cdef readonly object link
    cdef public object broken
    cdef readonly Ledger ledger
    cdef readonly int64_t batch_bytes, window
    cdef RingOut out
    cdef RingIn inbox
    cdef OpenBatch batch
    cdef BatchSettings settings
    cdef bint open, kafka_raft
    cdef uint8_t *slot
    cdef int64_t open_first
    cdef uint64_t open_began
    cdef Sent *sent
    cdef uint64_t sent_head, sent_tail        # numbers of batches, counted over the ring's life
    cdef bint unpublished
    cdef kf_histogram *latency
    cdef readonly uint64_t bytes_sent
    cdef int countdown

    def __init__(self, link, Ledger ledger, int64_t batch_bytes, int64_t window, bint kafka_raft):
        self.link, self.ledger = link, ledger
        self.out, self.inbox = link.out, link.inbox
        payload_max = kf_ring_payload_max(self.out.ring)
        self.batch_bytes = min(batch_bytes, payload_max - HEAD)
        self.window = min(window, BATCHES_MAX - 1)
        self.kafka_raft = kafka_raft
        self.sent = <Sent *>calloc(BATCHES_MAX, sizeof(Sent))
        self.latency = <kf_histogram *>calloc(1, sizeof(kf_histogram))
        if self.sent == NULL or self.latency == NULL:
            raise MemoryError("producer")
        self._new_settings()

    def __dealloc__(self):
        free(self.sent)
        free(self.latency)

    cdef _new_settings(self):
        self.settings = default_settings(<int64_t>(time.time() * 1000))
        self.settings.kafka_raft = self.kafka_raft

    # --- handing over -----------------------------------------------------------------------------

    cdef int _begin(self, int64_t capacity) except -1:
        """Open a batch in a claimed slot: 1, or 0 if the ring has no room now."""
        cdef uint64_t now
        self.slot = kf_ring_claim(self.out.ring, <uint32_t>(capacity + HEAD))
        if self.slot == NULL:
            if kf_ring_out_faulted(self.out.ring):
                self.broken = PeerGone("the replica broke the rules of the ring")
                raise self.broken
            return 0
        now = kf_now_ns()
        if now - self.open_began > 1000000:
            self._new_settings()
        self.open_began = now
        open_batch(&self.batch, self.slot + HEAD, capacity, &self.settings)
        self.open_first = self.ledger.next_ticket
        self.open = True
        return 1

    cdef int _close(self) except -1:
        """Close the open batch and commit it to the ring."""
        cdef BatchMessage head
        cdef Sent *entry
        cdef int64_t size
        self.open = False
        size = close_batch(&self.batch)
        if size == 0:
            kf_ring_abort(self.out.ring)
            return 0
        head.sent_ns, head.reserved = kf_now_ns(), 0
        memcpy(self.slot, &head, HEAD)
        entry = &self.sent[self.sent_head & (BATCHES_MAX - 1)]
        entry.first_ticket = self.open_first
        entry.records = self.ledger.next_ticket - self.open_first
        entry.began_ns = self.open_began
        entry.batch, entry.size = self.slot + HEAD, <uint32_t>size
        self.out.commit(<uint32_t>(size + HEAD), BATCH, 0)
        entry.position = self.out.position
        self.sent_head += 1
        self.bytes_sent += size
        self.unpublished = True
        return 0

    cdef int _publish(self) except -1:
        if self.unpublished:
            kf_ring_publish(self.out.ring)
            self.unpublished = False
            self.link.bell.ring()
        return 0

    cdef bint _may_send(self):
        return self.sent_head - self.sent_tail < <uint64_t>self.window

    def append(self, bytes value not None) -> int:
        """Hand over a record with a value alone; its ticket, or -1 if there is no room now."""
        cdef int done
        if self.broken is not None:
            raise self.broken
        if not self.open and not self._open_for(len(value)):
            return -1
        done = append_value(&self.batch, <const uint8_t *>value, len(value))
        if done != 1:
            return self._append_slow(value, None, (), None, done)
        self.ledger.next_ticket += 1
        if self.sent_head == self.sent_tail:
            self._close()
            self._publish()
        else:
            self.countdown -= 1
            if self.countdown <= 0:
                self.countdown = 64
                if kf_ring_waiting(self.inbox.ring):
                    self.poll()
        return self.ledger.next_ticket - 1

    def append_record(self, value, key, headers, timestamp) -> int:
        """Hand over any record; its ticket, or -1 if there is no room now.

        ``value``, ``key``: bytes or None; ``headers``: [(str, bytes or None)]; ``timestamp``: ms or None.
        """
        if self.broken is not None:
            raise self.broken
        return self._append_slow(value, key, headers, timestamp, 0)

    cdef int _open_for(self, Py_ssize_t size) except -1:
        """Open a batch with room for one record of about this size: 1, or 0 for no room now."""
        cdef int64_t capacity = self.batch_bytes
        if size + RECORD_OVERHEAD > capacity:
            capacity = size + RECORD_OVERHEAD
            if capacity + HEAD > kf_ring_payload_max(self.out.ring):
                raise RecordTooLarge(f"a record of {size} bytes; this ring takes {self.record_bytes_max}")
        if not self._may_send():
            self.poll()
            if not self._may_send():
                return 0
        return self._begin(capacity)

    cdef int64_t _append_slow(self, value, key, headers, timestamp, int done) except -2:
        """What does not fit the open batch, or has more than a value."""
        cdef Py_ssize_t size = record_size(value, key, headers)
        if done < 0:
            raise RecordsRefused("this log takes only records with a value, without key and headers")
        if self.open:
            done = self._try_record(value, key, headers, timestamp)
            if done == 0:
                self._close()
                self._publish()
        if not self.open:
            if not self._open_for(size):
                return -1
            done = self._try_record(value, key, headers, timestamp)
        if done != 1:
            self._close()
            self._publish()
            if done == 0:
                raise RecordTooLarge(f"a record of {size} bytes; this ring takes {self.record_bytes_max}")
            raise RecordsRefused("this log does not take such a record (records=kafka-raft)")
        self.ledger.next_ticket += 1
        if self.sent_head == self.sent_tail:
            self._close()
            self._publish()
        return self.ledger.next_ticket - 1

    cdef int _try_record(self, value, key, headers, timestamp) except -9:
        cdef bytes encoded = encode_headers(headers)
        cdef const uint8_t *value_at = <const uint8_t *><bytes>value if value is not None else NULL
        cdef const uint8_t *key_at = <const uint8_t *><bytes>key if key is not None else NULL
        return append_record(
            &self.batch, self.settings.timestamp if timestamp is None else timestamp,
            key_at, len(key) if key is not None else -1,
            value_at, len(value) if value is not None else -1,
            <const uint8_t *>encoded, len(encoded), len(headers))

    def append_values(self, Values values not None, int64_t first) -> int:
        """Hand over values from number ``first`` on, as many as there is room for; how many.

        The open batch is sealed before, and nothing stays open after.
        """
        cdef Encoded encoded
        cdef int64_t taken = 0, capacity
        cdef Column *column = &values.column
        if self.broken is not None:
            raise self.broken
        self.seal()
        while first + taken < column.count:
            if not self._may_send():
                break
            if not self._begin(self.batch_bytes):
                break
            with nogil:
                encoded = encode_columns(self.batch.start, self.batch_bytes, column, NULL, NULL,
                                         first + taken, &self.settings)
            if encoded.records == 0:
                self.open = False
                kf_ring_abort(self.out.ring)
                self._raise_fault(encoded.fault, first + taken)
                item = values[first + taken]
                if self._append_slow(item, None, (), None, 0) < 0:
                    break
                self.seal()
                taken += 1
                continue
            self.ledger.next_ticket += encoded.records
            self._commit_encoded(encoded.size)
            taken += encoded.records
            self._publish()
        return taken

    cdef int _commit_encoded(self, int64_t size) except -1:
        """Commit a batch that ``encode_columns`` wrote whole into the open slot."""
        cdef BatchMessage head
        cdef Sent *entry = &self.sent[self.sent_head & (BATCHES_MAX - 1)]
        self.open = False
        head.sent_ns, head.reserved = kf_now_ns(), 0
        memcpy(self.slot, &head, HEAD)
        entry.first_ticket = self.open_first
        entry.records = self.ledger.next_ticket - self.open_first
        entry.began_ns = self.open_began
        entry.batch, entry.size = self.slot + HEAD, <uint32_t>size
        self.out.commit(<uint32_t>(size + HEAD), BATCH, 0)
        entry.position = self.out.position
        self.sent_head += 1
        self.bytes_sent += size
        self.unpublished = True
        return 0

    def _raise_fault(self, int fault, int64_t number):
        if fault == ENCODE_OFFSETS:
            raise RecordsRefused(f"the offsets of value {number} decrease or leave its data")
        if fault == ENCODE_REFUSED:
            raise RecordsRefused(f"this log does not take value {number} (records=kafka-raft)")

    def resend(self, const uint8_t[::1] batch, int64_t records, uint64_t began_ns) -> bool:
        """Hand over a batch that another ring never took; its records keep their tickets.

        False: no room now.
        """
        assert not self.open
        cdef uint32_t size = <uint32_t>batch.shape[0]
        if not self._may_send():
            return False
        self.slot = kf_ring_claim(self.out.ring, size + HEAD)
        if self.slot == NULL:
            return False
        memcpy(self.slot + HEAD, &batch[0], size)
        self.open_first = self.ledger.next_ticket
        self.open_began = began_ns
        self.ledger.next_ticket += records
        self._commit_encoded(size)
        self._publish()
        return True

    def seal(self):
        """Send what is in the open batch."""
        if self.open:
            self._close()
        self._publish()

    # --- what comes back --------------------------------------------------------------------------

    cpdef bint poll(self):
        """Take in answers; True if any ticket was resolved. Seals if nothing is under way."""
        cdef int64_t before = self.ledger.resolved
        cdef RingMessage *m = &self.inbox.message
        cdef int found
        while True:
            found = kf_ring_peek(self.inbox.ring, m)
            if found != 1:
                if found < 0:
                    self.broken = PeerGone("the replica broke the rules of the ring")
                break
            if m.kind == ACK and m.length == sizeof(AckMessage):
                self._acknowledged(<const AckMessage *>m.payload)
            elif m.kind == REFUSED and m.length == sizeof(RefusedMessage):
                self._refused(<const RefusedMessage *>m.payload)
            elif m.kind == NOT_LEADER and m.length == sizeof(LeaderMessage):
                self._not_leader(<const LeaderMessage *>m.payload)
            else:
                self.broken = PeerGone(f"a message of kind {m.kind} from the replica")
                break
            kf_ring_release(self.inbox.ring)
        if kf_ring_publish_tail(self.inbox.ring):
            self.link.bell.ring()
        if self.open and self.sent_head == self.sent_tail and self.broken is None:
            self.seal()
        return self.ledger.resolved != before

    cdef int _acknowledged(self, const AckMessage *m) except -1:
        cdef Sent *entry
        cdef uint64_t i, now = kf_now_ns()
        cdef int64_t offset = m.base_offset
        if m.first_batch != self.sent_tail or m.batches > self.sent_head - self.sent_tail:
            self.broken = PeerGone("an acknowledgement of what was not sent")
            return 0
        for i in range(m.batches):
            entry = &self.sent[self.sent_tail & (BATCHES_MAX - 1)]
            self.ledger.committed(entry.first_ticket, entry.records, offset)
            kf_histogram_add(self.latency, now - entry.began_ns)
            offset += entry.records
            self.sent_tail += 1
        if offset != m.end_offset:
            self.broken = PeerGone("an acknowledgement whose offsets do not fit its batches")
        return 0

    cdef int _refused(self, const RefusedMessage *m) except -1:
        cdef uint64_t i
        cdef Sent *entry
        if m.first_batch != self.sent_tail or m.batches > self.sent_head - self.sent_tail:
            self.broken = PeerGone("a refusal of what was not sent")
            return 0
        for i in range(m.batches):
            entry = &self.sent[self.sent_tail & (BATCHES_MAX - 1)]
            self.ledger.failed(entry.first_ticket + entry.records, refusal(m.error, m.leader_id))
            self.sent_tail += 1
        return 0

    cdef int _not_leader(self, const LeaderMessage *m) except -1:
        leader_id = m.leader_id
        self.broken = NotLeader(f"the replica does not lead; replica {leader_id} may" if leader_id >= 0
                                else "the replica does not lead, nobody is known to", leader_id)
        return 0

    def give_up(self, unknown):
        """The ring is no use any more: what was taken has an unknown outcome, the rest comes back.

        ``unknown`` is the exception for records that may or may not be committed. Returns
        [(batch, records, began ns)] that the replica never looked at, the open batch last.
        Their tickets are taken back: hand them over again, in order, before anything else.
        """
        cdef Sent *entry
        cdef uint64_t number = self.sent_tail, taken = kf_ring_taken(self.out.ring)
        if self.open:
            self._close()
        while number < self.sent_head:
            entry = &self.sent[number & (BATCHES_MAX - 1)]
            if entry.position > taken:
                break
            self.ledger.failed(entry.first_ticket + entry.records, unknown)
            number += 1
        back = []
        while number < self.sent_head:
            entry = &self.sent[number & (BATCHES_MAX - 1)]
            back.append((bytes((<const uint8_t *>entry.batch)[:entry.size]), entry.records, entry.began_ns))
            self.ledger.next_ticket -= entry.records
            number += 1
        self.sent_tail = self.sent_head
        return back

    # --- waiting ----------------------------------------------------------------------------------

    def spin(self, int64_t ticket, int spin_us) -> bool:
        """Take in answers until ``ticket`` is resolved, yielding for up to ``spin_us``."""
        cdef uint64_t until = kf_now_ns() + <uint64_t>spin_us * 1000
        cdef bint news
        while True:
            self.poll()
            if self.ledger.resolved > ticket or self.broken is not None:
                return True
            with nogil:
                while True:
                    news = kf_ring_waiting(self.inbox.ring)
                    if news or kf_now_ns() >= until:
                        break
                    sched_yield()
            if not news:
                return False

    def news(self) -> bool:
        """Whether an answer is there (the re-check of a sleeper, R12)."""
        return kf_ring_waiting(self.inbox.ring) != 0

    def want_room(self):
        """Ask to be woken when the replica takes something."""
        kf_ring_want_room(self.out.ring)

    @property
    def under_way(self) -> int:
        """Batches that are sent and not answered."""
        return self.sent_head - self.sent_tail

    @property
    def has_open(self) -> bool:
        """Whether records wait in an open batch."""
        return self.open

    @property
    def record_bytes_max(self) -> int:
        """The largest value that one record may have."""
        return kf_ring_payload_max(self.out.ring) - HEAD - RECORD_OVERHEAD

    def latency_us(self, double quantile) -> float:
        """Quantile of the time from the first record of a batch to its commit, microseconds."""
        return kf_histogram_quantile(self.latency, quantile) / 1000

    def latency_max_us(self) -> float:
        return (<const uint64_t *>self.latency)[2] / 1000

    def reset_latency(self):
        """Forget the samples so far (after a warm-up)."""
        cdef Py_ssize_t i
        for i in range(sizeof(kf_histogram) // 8):
            (<uint64_t *>self.latency)[i] = 0


cdef Py_ssize_t record_size(value, key, headers):
    """About how many bytes a record's own data has."""
    size = (len(value) if value is not None else 0) + (len(key) if key is not None else 0)
    for name, content in headers:
        size += len(name) * 4 + 10 + (len(content) if content is not None else 0)
    return size


def encode_headers(headers) -> bytes:
    """Headers as they stand in a record, without their count."""
    if not headers:
        return b""
    parts = []
    for name, content in headers:
        raw = name.encode()
        parts += [zigzag(len(raw)), raw, zigzag(-1 if content is None else len(content)), content or b""]
    return b"".join(parts)


def zigzag(int64_t value) -> bytes:
    """A varint as records have it."""
    cdef uint64_t rest = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    out = bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def refusal(int32_t error, int32_t leader_id):
    """The exception for a batch that was not appended."""
    from kraftfast.errors import DiskFull, QuorumError, RecordTooLarge

    if error == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return NotLeader("the replica does not lead", leader_id)
    if error == ErrorCode.KAFKA_STORAGE_ERROR:
        return DiskFull("the leader has no space left to prepare its log; nothing was appended")
    if error == ErrorCode.MESSAGE_TOO_LARGE:
        return RecordTooLarge("a batch that does not fit a segment of the leader; it was not appended")
    return QuorumError(f"the leader refused the append: {ErrorCode(error).name}")
