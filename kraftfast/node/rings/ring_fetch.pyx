"""Another replica on this host: Fetch traffic over rings, both ways. The base class of `RingPeer`.

On the leader's side it answers with a reference into one of the leader's segments, or with the
bytes themselves where they are few or the follower could not map the segment: in parts, one for
each of its Fetches, where a batch is larger than what the ring carries at once. On the follower's
side it maps the leader's segments read-only and copies from there. It compares the generation word
before and after each batch, in a segment that has one (D20).
"""

import fcntl
import os
import stat
import sys

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from kraftfast.core.messages cimport FetchRequest, FetchResponse
from kraftfast.errors import ErrorCode, StorageError
from kraftfast import limits
from kraftfast.log.log cimport Log
from kraftfast.log.reading import served
from kraftfast.log.segment import LOG_SUFFIX, segment_name
from kraftfast.log.segment cimport KF_PAGE_MAGIC
from kraftfast.log.segment_file cimport SegmentFile
from kraftfast.link.timed_events cimport (
    E_ACKNOWLEDGE, E_COPY, E_SEND, E_TRAVEL, kf_events_note, kf_events_on,
)
from kraftfast.link.stats cimport *
from kraftfast.node.translation.wire_values import error_code
from kraftfast.record.judge cimport KF_BATCH_INCOMPLETE, KF_BATCH_OK, KF_BATCH_STALE
from kraftfast.ring.layout cimport *
from kraftfast.ring.calls cimport *
from kraftfast.ring.spsc cimport *
from kraftfast.types import Endpoint, OffsetAndEpoch


cdef extern from "flusher.h":
    uint64_t kf_now_ns() nogil

cdef extern from "crc32c.h":
    uint32_t kf_crc32c(uint32_t crc, const void *p, size_t n) nogil

cdef enum:
    INLINE_BYTES_MAX = 16 * 1024   # up to here bytes are cheaper than a reference
    ANSWER_BYTES_MAX = 256 * 1024  # what one answer carries as bytes at most

INLINE_MAX, ANSWER_HEAD_BYTES = INLINE_BYTES_MAX, sizeof(AnswerMessage)
KIND_REQUEST, KIND_RESPONSE, KIND_FETCH, KIND_ANSWER = REQUEST, RESPONSE, FETCH, ANSWER
cdef object NO_ERROR = ErrorCode.NONE

cdef uint64_t PAGE_BYTES = limits.PAGE_BYTES
cdef uint64_t TURN_BYTES_MAX = limits.TURN_BYTES_MAX
cdef uint64_t BATCH_BYTES_MAX = limits.BATCH_BYTES_MAX
cdef bytes MAGIC = int(KF_PAGE_MAGIC).to_bytes(8, sys.byteorder)
MAPPED_SEGMENTS_MAX = 2
MAPS_KEPT_MS = 1000
"""After the last reference: their owner can neither trim them, nor get the blocks of those that it
removes."""


def open_peer_segment(str path, uint64_t inode):
    """Return another replica's segment as a SegmentFile, with a shared lock; None if it is gone.

    The file's number is compared under the lock: before, its owner may use it for another segment.
    """
    try:  # where another process says: a pipe there must not make this one wait
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        status = os.fstat(fd)
        if status.st_ino == inode and stat.S_ISREG(status.st_mode):
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if os.stat(path).st_ino == inode:
                size = os.fstat(fd).st_size
                at = size - PAGE_BYTES
                paged = at >= 0 and not at % PAGE_BYTES and os.pread(fd, 8, at) == MAGIC
                file = SegmentFile(path, fd, size, False)
                file.paged = paged
                return file
    except StorageError:
        return None
    except OSError:
        pass
    os.close(fd)
    return None


cdef bint serves(SegmentFile file, uint64_t generation):
    """Return whether a file can be the one that was referred to under ``generation``.

    A trimmed one has none, and its bytes never change again; but its name and its number may be
    those of another one by now (D20).
    """
    return generation != 0 or not file.paged


cdef void note_copy(Stats stats, int64_t base, int64_t end, uint64_t sent_ns,
                    uint64_t began_ns) noexcept:
    """Record that records which the leader sent at ``sent_ns`` are in the log."""
    cdef uint32_t records = <uint32_t>(end - base)
    kf_events_note(stats.events, E_TRAVEL, base, records, sent_ns, began_ns)
    kf_events_note(stats.events, E_COPY, base, records, began_ns, kf_now_ns())


cdef class RingFetch:
    """A replica at the other end of two rings.

    ``key``: its replica key. ``log_path``: where its segments are, to be mapped. ``broken``: why
    the link has to be dropped, or None.
    """

    def __init__(self, link, key, str log_path, open_segment=open_peer_segment,
                 uint64_t inline_max=INLINE_BYTES_MAX):
        self.open_segment, self.inline_max = open_segment, inline_max
        self.link, self.key, self.id, self.log_path = link, key, key.id, log_path
        self.inbox, self.out = link.inbox, link.out
        self.bytes_max = min(ANSWER_BYTES_MAX, self.out.payload_max - sizeof(AnswerMessage))
        self.cluster_id = link.hello.cluster_id
        self.endpoints = tuple([Endpoint(*each) for each in link.hello.endpoints])
        self.kraft_versions = link.hello.kraft_versions or ()
        self.maps = {}
        self.offset = self.fresh_offset = -1

    cpdef bint intact(self):
        """Return whether neither side has broken the rings' rules; the kernel reports death."""
        if self.broken is None and (self.out.faulted() or self.inbox.faulted()):
            self.broken = "its ring breaks the rules"
        return self.broken is None

    # --- messages -------------------------------------------------------------------------------

    cpdef int peek(self):
        """Return the kind of the next message, 0 if there is none, -1 (and ``broken``)."""
        cdef RingMessage *m = &self.inbox.message
        cdef uint32_t checked
        cdef int found = kf_ring_peek(self.inbox.ring, m)
        if found == 0:
            return 0
        if found < 0:
            self.broken = "its ring breaks the rules"
            return -1
        checked = m.length
        if m.kind == ANSWER:  # what follows it are batches, which have their own CRC
            checked = sizeof(AnswerMessage) if m.length >= sizeof(AnswerMessage) else 0
        if m.kind not in (REQUEST, RESPONSE, FETCH, ANSWER) or \
                kf_crc32c(0, m.payload, checked) != m.crc or (m.kind == ANSWER and not checked):
            self.broken = f"a message of kind {m.kind} does not check"
            return -1
        return m.kind

    def payload(self) -> bytes:
        """Return a copy of the message at hand."""
        return bytes((<const uint8_t *>self.inbox.message.payload)[:self.inbox.message.length])

    cpdef release(self):
        """Release the message at hand."""
        kf_ring_release(self.inbox.ring)

    cpdef publish_tail(self):
        """Give the room of released messages back."""
        if kf_ring_publish_tail(self.inbox.ring):
            self.link.bell.ring()

    cpdef publish(self):
        """Show the other side what is in the ring; wake it unless that can wait (``quiet``)."""
        if not self.unsent:
            return
        kf_ring_publish(self.out.ring)
        self.unsent = False
        if not self.quiet:
            self.link.bell.ring()

    cpdef wake(self):
        """Ring the other side's bell: it has something to look at, or soon will."""
        self.quiet = False
        self.link.bell.ring()

    cpdef bint send(self, int kind, payload) except -1:
        """Put a message of Kafka's framing into the ring; False if the ring has no room."""
        if not self.out.send(kind, payload):
            return False
        self.unsent, self.quiet = True, False
        return True

    # --- Fetch as follower ------------------------------------------------------------------------

    cpdef bint send_fetch(self, FetchRequest request) except -1:
        """Put a Fetch of a stream into the ring; False if the ring has no room."""
        cdef FetchMessage m
        cdef uint8_t *slot = kf_ring_claim(self.out.ring, sizeof(m))
        if slot == NULL:
            return False
        memset(&m, 0, sizeof(m))
        m.stream, m.epoch = request.stream, request.epoch
        m.fetch_offset, m.read_offset = request.fetch_offset, request.copied_end_offset
        m.high_watermark, m.last_fetched_epoch = request.high_watermark, request.last_fetched_epoch
        m.max_wait_ms, m.max_bytes = request.max_wait_ms, request.max_bytes
        m.flags = FETCH_OPENS if request.opens else 0
        if request.in_memory:
            m.flags |= FETCH_IN_MEMORY
        if self.ask_for_bytes:
            m.flags |= FETCH_BYTES_ONLY
        m.sent_ns = kf_now_ns()
        memcpy(slot, &m, sizeof(m))
        self.out.commit(sizeof(m), FETCH, kf_crc32c(0, &m, sizeof(m)))
        if request.opens:
            self.ask_for_bytes = False  # holds up to the end of the segment that was not mapped
            self.parts = None
        self.unsent, self.quiet = True, False
        return True

    cpdef FetchResponse decode_answer(self):
        """Return the ANSWER at hand as a FetchResponse; its records stay in the ring.

        Return None, and set ``broken``, if its length does not fit.
        """
        cdef AnswerMessage *m = &self.answer_message
        memcpy(m, self.inbox.message.payload, sizeof(AnswerMessage))  # once (R3)
        cdef int64_t records = self._records()
        if records < 0:
            self.broken = "an answer whose length does not fit"
            return None
        other = None
        if m.flags & (ANSWER_DIVERGING | ANSWER_SNAPSHOT):
            other = OffsetAndEpoch(m.other_offset, m.other_epoch)
        if self.maps and not m.flags & ANSWER_REFERENCE:
            if m.sent_ns - self.mapped_ns > MAPS_KEPT_MS * 1_000_000:
                self.forget_maps()
        error = error_code(m.error) if m.error else NO_ERROR
        return FetchResponse(
            error=error if m.flags & ANSWER_TOP_LEVEL else NO_ERROR,
            partition_error=NO_ERROR if m.flags & ANSWER_TOP_LEVEL else error,
            leader_id=m.leader_id,
            leader_epoch=m.leader_epoch,
            high_watermark=m.high_watermark,
            log_start_offset=m.log_start_offset,
            diverging=other if m.flags & ANSWER_DIVERGING else None,
            snapshot_id=other if m.flags & ANSWER_SNAPSHOT else None,
            stream=m.stream,
            records_bytes=records,
        )

    cdef int64_t _records(self) except -2:
        """Return the bytes of records that the ANSWER at hand has, or makes whole; -1: no answer.

        Of a batch that comes in parts only the last one has any: the core asks for the next one as
        after an answer without records.
        """
        cdef AnswerMessage *m = &self.answer_message
        cdef uint64_t here = self.inbox.message.length - sizeof(AnswerMessage)
        cdef const uint8_t *part = self.inbox.message.payload
        if not m.flags & ANSWER_PART:
            return m.length if m.flags & ANSWER_REFERENCE or m.length == here else -1
        if m.position == 0:
            self.parts = bytearray()
        if self.parts is None or m.position != <uint64_t>len(self.parts) or not here \
                or m.length > BATCH_BYTES_MAX or here > m.length - m.position:  # S7, I25
            return -1
        self.parts += part[sizeof(AnswerMessage):self.inbox.message.length]
        return m.length if <uint64_t>len(self.parts) == m.length else 0

    cpdef tuple copy_records(self, Log log, int32_t epoch, Stats stats):
        """Copy the records of the ANSWER at hand into the log: (all taken, a part rejected).

        Neither: the log has no room for the rest yet.
        """
        cdef AnswerMessage *m = &self.answer_message
        cdef const uint8_t *source
        cdef const uint8_t *page = NULL
        cdef SegmentFile file
        cdef uint64_t taken, began = 0
        cdef int64_t first = log.end_offset
        cdef bint noted = kf_events_on(stats.events)
        if m.flags & ANSWER_REFERENCE:
            file = self._map(m.segment_base, m.segment_inode)
            if file is None or m.length > file.size or m.position > file.size - m.length \
                    or not serves(file, m.generation):  # S7
                self.ask_for_bytes = True
                log.fault = KF_BATCH_STALE
                return False, True
            self.mapped_ns = m.sent_ns
            source = file.base + m.position
            if m.generation:
                if file.size < PAGE_BYTES or file.size % PAGE_BYTES:  # no last page: trimmed by now
                    log.fault = KF_BATCH_STALE
                    return False, True
                page = file.base + file.size - PAGE_BYTES
        elif m.flags & ANSWER_PART:
            source = self.parts
        else:
            source = self.inbox.message.payload
            source += sizeof(AnswerMessage)
        if noted:
            began = kf_now_ns()
        taken = log.copy_fetched(source, m.length, epoch, page, m.generation)
        if log.fault not in (KF_BATCH_OK, KF_BATCH_INCOMPLETE, KF_BATCH_STALE):
            self.ask_for_bytes = True  # L5: the leader then looks for damage, and may hand over
        if taken == m.length:
            self.parts = None
            stats.sample(S_TRAVEL, kf_now_ns() - m.sent_ns, 1)
        if noted and log.end_offset > first:
            note_copy(stats, first, log.end_offset, m.sent_ns, began)
        return taken == m.length, log.fault != KF_BATCH_OK

    cdef SegmentFile _map(self, int64_t base, uint64_t inode):
        """Return the leader's segment, mapped and held by a shared lock; None if there is none."""
        cdef SegmentFile file = self.maps.get((base, inode))
        if file is not None:
            return file
        path = os.path.join(self.log_path, segment_name(base) + LOG_SUFFIX)
        file = self.open_segment(path, inode)
        if file is None:
            return None
        if not file.share():  # its owner is about to trim or cut it
            file.close()
            return None
        self.maps[(base, inode)] = file
        while len(self.maps) > MAPPED_SEGMENTS_MAX:
            self.maps.pop(next(iter(self.maps))).close()
        return file

    # --- Fetch as leader --------------------------------------------------------------------------

    cpdef FetchRequest decode_fetch(self):
        """Return the FETCH at hand as a FetchRequest; None, and set ``broken``, if it is none."""
        cdef FetchMessage m
        if self.inbox.message.length != sizeof(m):
            self.broken = "a Fetch of another length"
            return None
        memcpy(&m, self.inbox.message.payload, sizeof(m))
        if not m.stream:
            self.broken = "a Fetch of no stream"
            return None
        if self.stats is not None and kf_events_on(self.stats.events):
            kf_events_note(self.stats.events, E_ACKNOWLEDGE, m.fetch_offset, <uint32_t>self.id,
                           m.sent_ns, kf_now_ns())
        if m.flags & FETCH_OPENS:
            self.bytes_only = m.flags & FETCH_BYTES_ONLY
            self.segment = None  # a batch that went in parts begins again
            self.fresh_offset = -1
        return FetchRequest(
            epoch=m.epoch,
            replica=self.key,
            fetch_offset=m.fetch_offset,
            last_fetched_epoch=m.last_fetched_epoch,
            high_watermark=m.high_watermark,
            max_wait_ms=m.max_wait_ms,
            max_bytes=max(m.max_bytes, 0),
            stream=m.stream,
            opens=bool(m.flags & FETCH_OPENS),
            copied_end_offset=m.read_offset,
            in_memory=bool(m.flags & FETCH_IN_MEMORY),
            cluster_id=self.cluster_id,
            observer_endpoints=self.endpoints if m.flags & FETCH_OPENS else (),
            observer_kraft_versions=self.kraft_versions if m.flags & FETCH_OPENS else (),
        )

    cpdef int64_t push(self, FetchResponse response, int64_t read_offset, int64_t max_bytes,
                       Log log, int64_t below=-1) except -2:
        """Put an answer into the ring, with records from ``read_offset`` to ``below`` (-1: all).

        Returns the end offset of what it carries: ``read_offset`` if the ring had no room, or not
        for the whole of a batch, whose next part goes with the next call.
        """
        cdef AnswerMessage m
        cdef uint64_t length = 0, inline_length = 0
        cdef int64_t end_offset = read_offset
        cdef uint8_t *slot
        cdef bint fits, reached
        memset(&m, 0, sizeof(m))
        if read_offset >= 0 and read_offset < log.end_offset:
            if not self._seek(log, read_offset):
                return read_offset
            bound = min(max_bytes, TURN_BYTES_MAX if not self.bytes_only else self.bytes_max)
            length, end_offset = log.span(self.segment, self.position, self.offset, bound, below)
            if not length:
                served.raise_damage(log, self.segment, read_offset)  # D10
            if not self.parted and (self.bytes_only or read_offset != self.fresh_offset):
                # Asked for as bytes, it may have been damaged when it was copied.
                length, end_offset = served.sound_part(
                    log, self.segment, self.position, length, read_offset, self.bytes_only
                )
            fits = length <= kf_ring_payload_max(self.out.ring) - sizeof(m)
            if not self.bytes_only and (length > self.inline_max or not fits):
                m.flags |= ANSWER_REFERENCE
            elif not fits:  # L5: no reference that the follower could not follow
                m.flags |= ANSWER_PART
                inline_length = min(length - self.parted, self.bytes_max)
            else:
                if length > self.bytes_max:
                    length, end_offset = log.span(
                        self.segment, self.position, self.offset, self.bytes_max, below
                    )
                inline_length = length
        slot = kf_ring_claim(self.out.ring, sizeof(m) + inline_length)
        if slot == NULL:
            return read_offset
        self._fill(&m, response, length)
        if inline_length:
            memcpy(slot + sizeof(m), self.segment.file.base + self.position + m.position,
                   inline_length)
        memcpy(slot, &m, sizeof(m))
        self.out.commit(sizeof(m) + inline_length, ANSWER, kf_crc32c(0, &m, sizeof(m)))
        if not (self.unsent and not self.quiet):
            self.quiet = length == 0 and m.error == 0
        self.unsent = True
        if m.flags & ANSWER_PART:
            self.parted += inline_length
            if self.parted < length:
                return read_offset
            self.parted = 0
        if length and self.stats is not None and kf_events_on(self.stats.events):
            kf_events_note(self.stats.events, E_SEND, read_offset,
                           <uint32_t>(end_offset - read_offset), <uint64_t>self.id, m.sent_ns)
        self.position += length
        self.offset = end_offset if length else self.offset
        if length:
            reached = end_offset >= log.end_offset or 0 <= below <= end_offset
            self.fresh_offset = end_offset if reached else -1
        return end_offset

    cdef _fill(self, AnswerMessage *m, FetchResponse response, uint64_t length):
        m.stream, m.leader_id = response.stream, response.leader_id
        m.leader_epoch = response.leader_epoch
        m.error = response.partition_error
        if response.error:
            m.error = response.error
            m.flags |= ANSWER_TOP_LEVEL
        m.high_watermark, m.log_start_offset = response.high_watermark, response.log_start_offset
        other = response.diverging
        if other is not None:
            m.flags |= ANSWER_DIVERGING
        elif response.snapshot_id is not None:
            other = response.snapshot_id
            m.flags |= ANSWER_SNAPSHOT
        if other is not None:
            m.other_offset, m.other_epoch = other.offset, other.epoch
        m.length = length
        if m.flags & ANSWER_PART:
            m.position = self.parted
        if m.flags & ANSWER_REFERENCE:
            m.segment_base, m.position = self.segment.base_offset, self.position
            m.segment_inode = self.segment.file.inode()
            m.generation = self.segment.generation()
        m.sent_ns = kf_now_ns()

    cdef bint _seek(self, Log log, int64_t offset):
        """Put the cursor at ``offset``: nothing to do while a stream goes on."""
        if self.segment is not None and self.offset == offset and self.segment.file.base != NULL \
                and self.position < self.segment.position and self.segment.end_offset > offset:
            return True
        found = log.segment_of(offset)
        if found is None:
            return False
        if self.segment is not None and found is not self.segment:
            self.bytes_only = False  # asked for because of one segment, which may be gone by now
        position, base_offset = found.place_of(offset)
        if position < 0:
            served.raise_damage(log, found, offset)
        self.segment = found  # with its place, or a later call would take another's
        self.position, self.offset, self.parted = position, base_offset, 0
        return True

    def forget_maps(self):
        """Let go of the other side's segments, so that it may trim them, and use them again."""
        for file in self.maps.values():
            file.close()
        self.maps.clear()

    def close(self):
        self.forget_maps()
        self.link.close()
