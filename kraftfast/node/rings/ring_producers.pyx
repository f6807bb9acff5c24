"""Producers on this host: their batches go into the log, and what became of them goes back.

Each producer has a ring each way. The leader takes batches in ring order, stamps and copies them
(``Log.append_batch``), and answers by runs: so many batches, from this base offset, committed.
"""

from collections import deque

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from kraftfast.errors import (
    CorruptBatch, ErrorCode, RecordsRefused, RecordTooLarge, UnsupportedCodec,
)
from kraftfast.log.log cimport Log
from kraftfast.log.idempotence.producers cimport Producers
from kraftfast.link.timed_events cimport E_APPEND, E_COMMIT, E_QUEUE, kf_events_note, kf_events_on
from kraftfast.link.stats cimport *
from kraftfast.record.batch import check_batches
from kraftfast.record.judge cimport KF_BATCH_OK, KF_BATCH_RECORDS
from kraftfast.node.failures import describe, is_of_the_log
from kraftfast.ring.layout cimport *
from kraftfast.ring.calls cimport *
from kraftfast.ring.spsc cimport *


cdef extern from "flusher.h":
    uint64_t kf_now_ns() nogil


cdef int DUPLICATE = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
DEFERRED_MAX = 4096  # I25: answers that wait while the ring of a producer is full
RUNS_MAX = 1 << 16  # I25: of one producer; twice the batches of the widest window


cdef class AppendRun:
    """Batches of one producer that follow each other in the log and wait for their commit.

    With an ``error`` they were refused (``end_offset`` 0) or stand in the log already, at an
    unknown offset (DUPLICATE_SEQUENCE_NUMBER). A producer learns of its batches in order.
    """

    cdef uint64_t first_batch, batches
    cdef int64_t base_offset, end_offset
    cdef uint64_t appended_ns
    cdef int32_t error


cdef void note_batch(Stats stats, int64_t base, int64_t end, uint64_t sent_ns,
                     uint64_t took_ns) noexcept:
    """Record that a batch which was sent at ``sent_ns`` and taken at ``took_ns`` is in the log."""
    cdef uint32_t records = <uint32_t>(end - base)
    kf_events_note(stats.events, E_QUEUE, base, records, sent_ns, took_ns)
    kf_events_note(stats.events, E_APPEND, base, records, took_ns, kf_now_ns())


cdef class RingProducer:
    """The leader's side of one producer process on this host (its own side is ``RingSender``).

    ``link``: its :class:`RingLink`; ``cut_off``: why it was dropped.
    """

    cdef readonly object link
    cdef RingIn inbox
    cdef RingOut out
    cdef object runs               # deque of AppendRun, by offset
    cdef readonly uint64_t taken   # batches taken from the ring so far
    cdef int64_t committed         # everything below may be acknowledged
    cdef readonly str cut_off
    cdef readonly bint told_not_leader
    cdef bint unsent               # messages are in `out` that are not published
    cdef object deferred           # messages that `out` had no room for: (kind, bytes), in order

    def __init__(self, link):
        self.link, self.inbox, self.out = link, link.inbox, link.out
        self.runs = deque()
        self.deferred = deque()

    cpdef bint waiting(self):
        """Return whether batches are queued that may be taken."""
        return self.may_take() and kf_ring_waiting(self.inbox.ring) != 0

    cdef bint may_take(self):
        """Return whether batches of this producer may still be taken.

        Never again once it was told that this replica does not lead, even if this replica leads
        again: the producer hands what was not taken to another leader (I24).
        """
        return self.cut_off is None and not self.told_not_leader

    def failed(self, error):
        """Cut this producer off. Raise ``error`` if the log raised it: where a batch is stored in
        part, only the next start finds the end."""
        if is_of_the_log(error):
            raise error
        self.cut_off = self.cut_off or describe(error)

    @property
    def unanswered(self) -> int:
        """How many runs wait for their commit."""
        return len(self.runs)

    cdef bint _send(self, uint32_t kind, const void *message, uint32_t length):
        """Put a message into the ring, behind those that it had no room for yet."""
        cdef uint8_t *slot = NULL
        if not self.deferred:
            slot = kf_ring_claim(self.out.ring, length)
        if slot == NULL:
            self.deferred.append((kind, bytes((<const uint8_t *>message)[:length])))
            if len(self.deferred) > DEFERRED_MAX:
                self.cut_off = "it does not read its answers"
            return False
        memcpy(slot, message, length)
        self.out.commit(length, kind, 0)
        self.unsent = True
        return True

    def publish(self):
        """Show the producer the messages in its ring, and wake it if it sleeps."""
        cdef uint8_t *slot
        while self.deferred:
            kind, payload = self.deferred[0]
            slot = kf_ring_claim(self.out.ring, <uint32_t>len(payload))
            if slot == NULL:
                break
            memcpy(slot, <const uint8_t *>payload, len(payload))
            self.out.commit(<uint32_t>len(payload), kind, 0)
            self.deferred.popleft()
            self.unsent = True
        if self.unsent:
            kf_ring_publish(self.out.ring)
            self.unsent = False
            self.link.bell.ring()

    def refuse(self, int32_t error):
        """Answer every queued batch with ``error``: it was not appended (disk full, say)."""
        cdef uint64_t batches = 0
        if not self.may_take():
            return
        while kf_ring_peek(self.inbox.ring, &self.inbox.message) == 1:
            kf_ring_take(self.inbox.ring)
            kf_ring_release(self.inbox.ring)
            batches += 1
        if batches:
            self._note_refused(batches, error)
            self._answer_refused()
            if kf_ring_publish_tail(self.inbox.ring):
                self.link.bell.ring()

    cdef _note_refused(self, uint64_t batches, int32_t error, int64_t end_offset=0):
        """Keep a refusal of batches, to be sent once ``end_offset`` is committed."""
        cdef AppendRun run = AppendRun.__new__(AppendRun)
        run.first_batch, run.batches = self.taken, batches
        run.error, run.end_offset = error, end_offset
        self.taken += batches
        self._wait(run)

    cdef int _wait(self, AppendRun run) except -1:
        """Keep what is to be answered later. A producer without a window is cut off: what is
        refused takes no room in its ring, nor in the log."""
        self.runs.append(run)
        if len(self.runs) > RUNS_MAX and self.cut_off is None:
            self.cut_off = f"it waits for more than {RUNS_MAX} answers"
        return 0

    cdef _answer_refused(self):
        """Send the refusals that come next, as soon as everything before them is resolved."""
        cdef AppendRun run
        cdef RefusedMessage message
        while self.runs:
            run = self.runs[0]
            if not run.error or run.end_offset > self.committed:
                break
            memset(&message, 0, sizeof(message))
            message.first_batch, message.batches = run.first_batch, run.batches
            message.error = run.error
            self._send(REFUSED, &message, sizeof(message))
            self.runs.popleft()

    def say_not_leader(self, int32_t leader_id):
        """Take nothing more; what was taken and not acknowledged has an unknown outcome."""
        cdef LeaderMessage message
        message.leader_id = leader_id
        self.runs.clear()
        self.told_not_leader = True
        self._send(NOT_LEADER, &message, sizeof(message))

    cdef int64_t drain(self, Log log, int32_t epoch, int64_t bytes_max, Stats stats) except -1:
        """Append queued batches until the ring is empty or about ``bytes_max`` are taken; bytes."""
        cdef int64_t appended = 0
        cdef uint64_t began = kf_now_ns(), sent, batches = 0, before = self.taken
        cdef int64_t base = log.end_offset
        cdef BatchMessage head
        cdef bint refused = False, noted = kf_events_on(stats.events)
        cdef uint64_t took = began
        cdef int64_t first = base
        while appended < bytes_max and self.next_batch():
            memcpy(&head, self.inbox.message.payload, sizeof(head))
            if noted:
                took, first = kf_now_ns(), log.end_offset
            kf_ring_take(self.inbox.ring)  # before the append: what lies behind was never looked at
            if not self.append(log, epoch):
                if not log.refusal:
                    break
                base = self._note_run(base, log.end_offset, batches, stats)
                batches, refused = 0, True
                self._note_refusal(log)
                kf_ring_release(self.inbox.ring)
                continue
            sent = head.sent_ns
            if sent < began:
                stats.sample(S_QUEUE, began - sent, 1)
            if noted:
                note_batch(stats, first, log.end_offset, sent, took)
            appended += self.inbox.message.length - sizeof(head)
            batches += 1
            kf_ring_release(self.inbox.ring)
        self._note_run(base, log.end_offset, batches, stats)
        stats.add(W_BYTES, appended)
        if refused:
            self.commit(self.committed, stats)  # what was refused or a duplicate may be told now
        if self.taken > before and kf_ring_publish_tail(self.inbox.ring):
            self.link.bell.ring()
        return appended

    cdef bint next_batch(self) except -1:
        """Return whether a batch is at hand: ``inbox.message``."""
        cdef int found
        if not self.may_take():
            return False
        found = kf_ring_peek(self.inbox.ring, &self.inbox.message)
        if found != 1:
            if found < 0:
                self.cut_off = "its ring breaks the rules"
            return False
        if self.inbox.message.kind != BATCH or self.inbox.message.length <= sizeof(BatchMessage):
            self.cut_off = f"a message of kind {self.inbox.message.kind}, not a batch"
            return False
        return True

    cdef bint append(self, Log log, int32_t epoch) except -1:
        """Append the batch at hand. False: refused (``log.refusal``), no room, or cut off."""
        cdef const uint8_t *batch = self.inbox.message.payload + sizeof(BatchMessage)
        cdef size_t size = self.inbox.message.length - sizeof(BatchMessage)
        try:
            if log.append_batch(batch, size, epoch, False, True):
                return True
            if log.fault == KF_BATCH_RECORDS:
                return self.append_unusual(log, epoch, <bytes>batch[:size])
        except RecordTooLarge:
            log.refusal = ErrorCode.MESSAGE_TOO_LARGE
        if log.fault != KF_BATCH_OK:  # D20: a producer whose batch failed is cut off
            self.cut_off = f"its batch does not check: {log.fault_text()}"
        return False

    cdef bint append_unusual(self, Log log, int32_t epoch, bytes batch) except -1:
        """Do as :meth:`append`, of a private copy whose records have to be looked at one by one.

        Else what no reader takes would be committed, and stop them all. Over a socket every batch
        is looked at so.
        """
        try:
            check_batches(batch, control=False)
            return log.append(batch, epoch)
        except (CorruptBatch, RecordsRefused, UnsupportedCodec, ValueError) as error:
            self.cut_off = f"its batch does not check: {error}"
        return False

    cdef _note_refusal(self, Log log):
        """Keep the answer to a batch that the log refused, or that is a duplicate."""
        cdef Producers known = log.producers
        cdef AppendRun run
        if log.refusal != DUPLICATE:
            self._note_refused(1, log.refusal)
        elif known.original_offset < 0:
            self._note_refused(1, DUPLICATE, known.original_end)
        else:
            run = AppendRun.__new__(AppendRun)
            run.first_batch, run.batches = self.taken, 1
            run.base_offset, run.end_offset = known.original_offset, known.original_end
            run.appended_ns = kf_now_ns()
            self.taken += 1
            self._wait(run)

    cdef int64_t _note_run(self, int64_t base, int64_t end, uint64_t batches,
                           Stats stats) except -1:
        """Keep a run of batches that were appended, if any, until its commit; return its end."""
        cdef AppendRun run
        if batches:
            run = AppendRun.__new__(AppendRun)
            run.first_batch, run.batches = self.taken, batches
            run.base_offset, run.end_offset = base, end
            run.appended_ns = kf_now_ns()
            self.taken += batches
            self._wait(run)
            stats.add(W_BATCHES, batches)
            stats.add(W_RECORDS, end - base)
        return end

    def commit(self, int64_t end_offset, Stats stats):
        """Answer every run below ``end_offset``: acknowledged, or refused.

        This is the commit of records; ``out.commit`` ends the write of a ring's message.
        """
        cdef AppendRun run
        cdef AckMessage message
        cdef uint64_t now = 0
        self.committed = end_offset
        while self.runs:
            run = self.runs[0]
            if run.end_offset > end_offset:
                break
            if run.error:
                self._answer_refused()
                continue
            if now == 0:
                now = kf_now_ns()
            stats.sample(S_COMMIT, now - run.appended_ns, run.batches)
            if kf_events_on(stats.events):
                kf_events_note(stats.events, E_COMMIT, run.base_offset,
                               <uint32_t>(run.end_offset - run.base_offset), run.appended_ns, now)
            message.first_batch, message.batches = run.first_batch, run.batches
            message.base_offset, message.end_offset = run.base_offset, run.end_offset
            message.sent_ns = now
            self._send(ACK, &message, sizeof(message))
            self.runs.popleft()

    def close(self):
        self.runs.clear()
        self.link.close()


cdef class RingProducers:
    """All producers on this host, drained in turn so that none starves the others."""

    def __init__(self):
        self.producers = []

    def add(self, RingProducer producer, idle):
        self.producers.append(producer)
        producer.committed = self.committed
        if not self.muted:
            idle.watch(producer.inbox)

    def remove(self, RingProducer producer, idle):
        self.producers.remove(producer)
        if not self.muted and not producer.told_not_leader:
            idle.unwatch(producer.inbox)

    def mute(self, idle):
        """Let new batches end no wait: there is no room for them now."""
        cdef RingProducer producer
        self.muted = True
        for producer in self.producers:
            if not producer.told_not_leader:
                idle.unwatch(producer.inbox)

    def unmute(self, idle):
        """Let new batches end a wait again."""
        cdef RingProducer producer
        self.muted = False
        for producer in self.producers:
            if not producer.told_not_leader:
                idle.watch(producer.inbox)

    def dismissed(self) -> list:
        """Return the producers to be dropped: they broke the rules, or have another leader now."""
        cdef RingProducer producer
        return [producer for producer in self.producers if producer.cut_off is not None
                or (producer.told_not_leader and not producer.unsent)]

    cpdef bint waiting(self):
        """Return whether any producer has batches queued."""
        cdef RingProducer producer
        for producer in self.producers:
            if producer.waiting():
                return True
        return False

    cpdef int64_t drain(self, Log log, int32_t epoch, int64_t bytes_max, Stats stats) except -1:
        """Append what is queued, at most about ``bytes_max``; returns the bytes appended."""
        cdef RingProducer producer
        cdef int64_t appended = 0
        cdef uint64_t began = kf_now_ns()
        cdef int count = len(self.producers), i
        if bytes_max <= 0:
            return 0  # and it is still the turn of the same one
        for i in range(count):
            producer = self.producers[(self.next + i) % count]
            try:
                appended += producer.drain(log, epoch, bytes_max - appended, stats)
            except Exception as error:
                producer.failed(error)
            if appended >= bytes_max:
                break
        if count:
            self.next = (self.next + 1) % count
        if appended:
            stats.sample(S_APPEND, kf_now_ns() - began, 1)
        return appended

    cpdef commit(self, int64_t end_offset, Stats stats):
        """Answer all runs below ``end_offset``: the high watermark, or what all voters hold."""
        cdef RingProducer producer
        self.committed = end_offset
        for producer in self.producers:
            try:
                producer.commit(end_offset, stats)
            except Exception as error:
                producer.failed(error)

    def refuse(self, int32_t error):
        """Refuse what is queued: nothing of it was appended."""
        cdef RingProducer producer
        for producer in self.producers:
            try:
                producer.refuse(error)
            except Exception as raised:
                producer.failed(raised)

    def say_not_leader(self, int32_t leader_id, idle):
        """Tell all producers; what they still send no longer wakes the loop."""
        cdef RingProducer producer
        for producer in self.producers:
            if not producer.told_not_leader:
                try:
                    producer.say_not_leader(leader_id)
                except Exception as error:
                    producer.failed(error)
                if not self.muted:
                    idle.unwatch(producer.inbox)

    cpdef publish(self):
        cdef RingProducer producer
        for producer in self.producers:
            if producer.unsent or producer.deferred:
                try:
                    producer.publish()
                except Exception as error:
                    producer.failed(error)
