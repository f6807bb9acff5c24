"""The way to a leader on this host: batches are encoded straight into the ring that it reads."""

import select

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kraftfast.client.producer.outcomes cimport Outcomes
from kraftfast.client.producer.sender cimport (
    COMMITTED, REFUSED_BATCH, SENT, Sender, Sent,
)
from kraftfast.link.timed_events cimport E_ANSWER, kf_events_note, kf_events_on
from kraftfast.ring.layout cimport (
    ACK, BATCH, NOT_LEADER, REFUSED, AckMessage, BatchMessage, LeaderMessage, RefusedMessage,
)
from kraftfast.ring.calls cimport (
    kf_ring_abort, kf_ring_claim, kf_ring_has_room, kf_ring_keep, kf_ring_out_faulted,
    kf_ring_payload_max, kf_ring_peek, kf_ring_publish, kf_ring_publish_tail, kf_ring_release,
    kf_ring_taken, kf_ring_waiting, kf_ring_want_room,
)
from kraftfast.ring.spsc cimport Doorbell, PeerDoorbell, RingIn, RingMessage, RingOut

from kraftfast.client.client_host import HOST
from kraftfast.errors import NotLeader, PeerGone

cdef enum:
    HEAD = sizeof(BatchMessage)


cdef class RingSender(Sender):
    """Over a pair of rings. ``link``: its RingLink; ``own_doorbell``: how the replica wakes us.

    ``hello``: what the replica said of itself; ``node_id``, ``epoch``: the leader, and since when.
    """

    cdef readonly object link, own_doorbell, hello
    cdef RingOut out
    cdef RingIn inbox
    cdef PeerDoorbell bell
    cdef Doorbell doorbell
    cdef uint64_t published     # position up to which the replica may look
    cdef uint32_t wanted        # bytes for which the ring had no room at the last claim, or 0
    cdef bint final             # the replica takes nothing more from this ring

    def __init__(self, link, own_doorbell, Outcomes outcomes, int64_t batch_bytes, int64_t window,
                 host=HOST):
        hello = link.hello
        self.link, self.own_doorbell, self.hello = link, own_doorbell, hello
        self.node_id, self.epoch = hello.node_id, hello.epoch
        self.kafka_raft = hello.records == "kafka-raft"
        self.out, self.inbox, self.bell = link.out, link.inbox, link.bell
        self.doorbell = own_doorbell.bell
        kf_ring_keep(self.out.ring, 0)
        self.set_up(host, outcomes, batch_bytes,
                    <int64_t>kf_ring_payload_max(self.out.ring) - HEAD, window, self.doorbell.fd)
        for fd in (link.sock.fileno(), link.pidfd):
            self.epoll.register(fd, select.EPOLLIN)

    # --- what leaves ------------------------------------------------------------------------------

    cdef uint8_t *claim(self, int64_t capacity) except? NULL:
        cdef uint32_t length = <uint32_t>(capacity + HEAD)
        cdef uint8_t *slot = kf_ring_claim(self.out.ring, length)
        if slot == NULL:
            if kf_ring_out_faulted(self.out.ring):
                self.fail(PeerGone("the replica broke the rules of the ring"))
            self.wanted = length
            return NULL
        self.wanted = 0
        return slot + HEAD

    cdef void abandon(self) noexcept:
        kf_ring_abort(self.out.ring)

    cdef int commit(self, Sent *entry) except -1:
        cdef BatchMessage head
        head.sent_ns, head.reserved = self.clock.monotonic_ns(), 0
        memcpy(entry.batch - HEAD, &head, HEAD)
        self.out.commit(<uint32_t>(entry.size + HEAD), BATCH, 0)
        entry.place = self.out.position
        return 0

    cdef int publish(self) except -1:
        if self.published != self.out.position:
            kf_ring_publish(self.out.ring)
            self.published = self.out.position
            self.bell.ring()
        return 0

    cdef int release(self, uint64_t number) except -1:
        """Let the room of this batch be used again, only from here on (D24)."""
        kf_ring_keep(self.out.ring, self.batch_number(number).place)
        return 0

    cdef uint64_t untouched(self):
        """Return the number of the first batch that the replica certainly never looked at (I24)."""
        cdef uint64_t number = self.sent_tail
        cdef uint64_t place = kf_ring_taken(self.out.ring) if self.final else self.published
        while number < self.sent_head and self.batch_number(number).place <= place:
            number += 1
        return number

    # --- what comes back --------------------------------------------------------------------------

    cdef bint waiting(self) noexcept nogil:
        return kf_ring_waiting(self.inbox.ring) != 0

    cdef int receive(self) except -1:
        cdef RingMessage *m = &self.inbox.message
        cdef int found = 0
        while not self.gone:
            found = kf_ring_peek(self.inbox.ring, m)
            if found != 1:
                break
            if m.kind == ACK and m.length == sizeof(AckMessage):
                self.on_ack(<const AckMessage *>m.payload)
            elif m.kind == REFUSED and m.length == sizeof(RefusedMessage):
                self.on_refused(<const RefusedMessage *>m.payload)
            elif m.kind == NOT_LEADER and m.length == sizeof(LeaderMessage):
                self.on_not_leader(<const LeaderMessage *>m.payload)
            else:
                self.fail(PeerGone(f"a message of kind {m.kind} from the replica"))
            kf_ring_release(self.inbox.ring)
            if self.broken is not None:
                break
        if found < 0:
            self.fail(PeerGone("the replica broke the rules of the ring"))
        if kf_ring_publish_tail(self.inbox.ring):
            self.bell.ring()
        return 0

    cdef bint are_under_way(self, uint64_t first, uint64_t batches) except -1:
        """Return whether these are batches that wait for an answer."""
        cdef uint64_t number
        if first < self.sent_tail or first > self.sent_head or batches > self.sent_head - first:
            return False
        for number in range(first, first + batches):
            if self.batch_number(number).state != SENT:
                return False
        return True

    cdef int on_ack(self, const AckMessage *m) except -1:
        cdef Sent *entry
        cdef uint64_t number, first = m.first_batch, batches = m.batches
        cdef int64_t offset = m.base_offset, records = 0
        cdef uint64_t now = self.clock.monotonic_ns()
        if self.are_under_way(first, batches):
            for number in range(first, first + batches):
                records += self.batch_number(number).records
            if offset >= 0 and m.end_offset - offset == records:
                self.note_told(now - m.sent_ns if now > m.sent_ns else 0, batches)
                if kf_events_on(self.events[0]):
                    kf_events_note(self.events[0], E_ANSWER, offset, <uint32_t>records, m.sent_ns,
                                   now)
                for number in range(first, first + batches):
                    entry = self.batch_number(number)
                    entry.state, entry.base_offset = COMMITTED, offset
                    offset += entry.records
                return 0
        return self.fail(PeerGone("an acknowledgement that does not fit what was sent"))

    cdef int on_refused(self, const RefusedMessage *m) except -1:
        """Mark batches as refused; those before them may still wait for an answer."""
        cdef Sent *entry
        cdef uint64_t number, first = m.first_batch, batches = m.batches
        if not self.are_under_way(first, batches):
            return self.fail(PeerGone("a refusal that does not fit what was sent"))
        for number in range(first, first + batches):
            entry = self.batch_number(number)
            entry.state, entry.error = REFUSED_BATCH, m.error
        return 0

    cdef int on_not_leader(self, const LeaderMessage *m) except -1:
        leader_id = m.leader_id
        self.final = True
        who = f"replica {leader_id} may" if leader_id >= 0 else "no leader is known"
        return self.fail(NotLeader(f"the replica does not lead, {who}", leader_id))

    # --- sleeping ---------------------------------------------------------------------------------

    def want_room(self):
        if self.wanted and not self.gone:
            kf_ring_want_room(self.out.ring)
            self.bell.ring()

    cdef int announce_sleep(self) except -1:
        self.doorbell.sleep()
        return 0

    cdef bint must_stay_awake(self) except -1:
        if self.wanted and kf_ring_has_room(self.out.ring, self.wanted):
            self.wanted = 0  # said once: a caller that only polls must be able to sleep
            return True
        return self.waiting()

    def woke_up(self):
        self.doorbell.awake()

    cdef int attend_to(self, int fd, int events) except -1:
        if fd == self.wake_fd:
            self.doorbell.clear()
        else:
            self.replica_gone()
        return 0

    def replica_gone(self):
        """Fail: the replica ended, or dropped this ring. Answers that came before still count."""
        self.poll()
        self.final = True
        self.fail(PeerGone(f"the replica (process {self.link.pid}) is gone"))

    cdef int close_files(self) except -1:
        self.wake_fd = -1
        self.epoll.close()
        self.link.close()
        self.own_doorbell.close()
        return 0
