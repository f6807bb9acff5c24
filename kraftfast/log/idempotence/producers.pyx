"""What the log knows of idempotent producers: what each appended last, so that nothing comes twice.

A pure function of the log, the same on every replica: in force as soon as a batch is appended, and
undone when the log is cut. Of each producer the last batches are remembered, so that a duplicate
gets the offset of the original; an older duplicate is known by its sequence alone. At most
``producers_max`` are known; the one that was silent longest goes, those without a name first. One
that is unknown begins with sequence 0, or is refused (UNKNOWN_PRODUCER_ID).

Nothing is doubled because a producer was forgotten: of those the largest ids and the highest epochs
are kept (``forgotten.py``). A batch of an unknown producer that may be a repeat is refused with
UNKNOWN_PRODUCER_ID, whatever its sequence. Only in a higher epoch than it had it may begin again.
For the same reason an id that no leader can have handed out yet is refused.

A *name* stands for a producer id by a record in the log (``producer_records``). The next to ask
for it gets the same id with a higher epoch, which fences the last one; if it asks so, sequences
go on, so that a sequence is the number of a record under that name (modulo 2^31).

In snapshots the state is tagged fields of SnapshotFooter, which Kafka skips.
Sources: KIP-98, KIP-360; Kafka's ``ProducerStateManager`` and ``ProducerAppendInfo``.
"""

from bisect import bisect_right
from collections import OrderedDict

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kraftfast import limits
from kraftfast.errors import CorruptLog, ErrorCode, InvalidOption, KraftfastError
from kraftfast.log.idempotence.producer_records import names_in
from kraftfast.record.shapes import FAULT_TEXTS

from kraftfast.log.idempotence.producer_entry cimport SEQUENCE_MASK, ProducerEntry
from kraftfast.log.idempotence.producer_state cimport decode_state, encode_state
from kraftfast.log.segment cimport Segment
from kraftfast.record.judge cimport (
    KF_ATTRIBUTE_CONTROL, KF_BATCH_OFFSET, KF_BATCH_OK, kf_batch_check, kf_batch_header,
)

MARKS_MAX = 4
"""Segments back to which a cut is undone without reading more of the log."""

cdef enum:
    BEHIND_MAX = 1 << 30            # sequences further back than this are taken for ahead
    NAME_BATCH_BYTES_MAX = 4096

assert NAME_BATCH_BYTES_MAX > 2 * limits.PRODUCER_NAME_BYTES_MAX

cdef int UNKNOWN = ErrorCode.UNKNOWN_PRODUCER_ID
cdef int OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
cdef int DUPLICATE = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
cdef int FENCED = ErrorCode.INVALID_PRODUCER_EPOCH
cdef int INVALID = ErrorCode.INVALID_RECORD


cdef class Producers:
    """The producers that a log knows, at its end. Fields in ``producers.pxd``.

    Raises InvalidOption.
    """

    def __init__(self, int producers_max=limits.PRODUCERS):
        if not 1 <= producers_max <= limits.PRODUCERS_MAX:
            raise InvalidOption(f"from 1 to {limits.PRODUCERS_MAX} producers, not {producers_max}")
        self.producers_max = producers_max
        self.load(0, b"")

    # --- before an append -------------------------------------------------------------------------

    cdef int check(self, const kf_batch_header *h, int32_t epoch) except -1:
        """Check in Kafka's order: id, epoch, sequence. DUPLICATE_SEQUENCE_NUMBER comes with
        ``original_offset`` and ``original_end``; it is no answer before that is committed."""
        cdef ProducerEntry producer = self.newest
        cdef int64_t behind
        if h.producer_id < 0 or h.producer_epoch < 0 or h.base_sequence < 0:
            return INVALID
        if producer is None or producer.id != h.producer_id:
            producer = self.by_id.get(h.producer_id)
            if producer is None:
                if h.base_sequence or \
                        not self.forgotten.may_begin(h.producer_id, h.producer_epoch, epoch):
                    return UNKNOWN
                return 0
        if h.producer_epoch < producer.epoch:
            return FENCED
        if h.producer_epoch > producer.epoch:
            return OUT_OF_ORDER if h.base_sequence else 0
        if h.base_sequence == (producer.last_sequence + 1) & SEQUENCE_MASK:
            return 0
        behind = (producer.last_sequence - h.base_sequence) & SEQUENCE_MASK
        if behind >= min(producer.records, BEHIND_MAX) or behind < h.record_count - 1:
            return OUT_OF_ORDER
        self.original_offset = producer.offset_of(h.base_sequence, h.record_count)
        self.original_end = producer.end_of((h.base_sequence + h.record_count - 1) & SEQUENCE_MASK)
        return DUPLICATE

    # --- what the log holds -----------------------------------------------------------------------

    cdef int note(self, const kf_batch_header *h, int64_t base_offset,
                  const uint8_t *batch) except -1:
        if base_offset < self.origin_offset:
            return 0
        if not h.attributes & KF_ATTRIBUTE_CONTROL:
            return self.note_records(h, base_offset)
        if h.size <= NAME_BATCH_BYTES_MAX:
            self.note_controls(PyBytes_FromStringAndSize(<const char *>batch, h.size), base_offset)
        return 0

    cdef int note_records(self, const kf_batch_header *h, int64_t base_offset) except -1:
        """Record what stands in the log, even if no leader of ours would have taken it."""
        cdef ProducerEntry producer
        if h.producer_id < 0 or h.producer_epoch < 0 or h.base_sequence < 0:
            return 0
        producer = self.touch(h.producer_id, base_offset + h.record_count - 1)
        if producer.epoch != h.producer_epoch \
                or h.base_sequence != (producer.last_sequence + 1) & SEQUENCE_MASK:
            producer.restart()
            producer.epoch = h.producer_epoch
        producer.extend(h.base_sequence, h.record_count, base_offset)
        return 0

    cdef ProducerEntry touch(self, int64_t id, int64_t offset):
        """Make the producer with this id the youngest; if it is new, the oldest goes."""
        cdef ProducerEntry producer = self.newest
        if producer is None or producer.id != id:
            producer = self.by_id.get(id)
            if producer is None:
                producer = ProducerEntry.__new__(ProducerEntry)
                producer.id = id
                self.by_id[id] = self.nameless[id] = producer
                if len(self.by_id) > self.producers_max:
                    self.expire()
            elif producer.name is None:
                self.nameless.move_to_end(id)
            else:
                self.named_ones.move_to_end(id)
            self.newest = producer
        producer.touched_offset = offset
        return producer

    cdef int expire(self) except -1:
        """Forget one producer too many: one with a name stays while older ones have none."""
        of = self.nameless if len(self.nameless) > 1 or not self.named_ones else self.named_ones
        return self.forget(next(iter(of.values())))

    cdef int forget(self, ProducerEntry producer) except -1:
        """Forget a producer: a batch of it that comes again could not be told from a first one."""
        self.forgotten.add(producer.id, producer.epoch)
        return self.drop(producer)

    cdef int drop(self, ProducerEntry producer) except -1:
        del self.by_id[producer.id]
        if producer.name is None:
            del self.nameless[producer.id]
        else:
            del self.named_ones[producer.id]
            del self.by_name[producer.name]
        return 0

    def note_controls(self, bytes batch, int64_t base_offset):
        """Record a control batch: a name for a producer, mostly something else."""
        try:
            names = names_in(batch)
        except KraftfastError:
            return  # not ours, and not for us to judge
        for id, epoch, resumes, name in names:
            self.note_name(id, epoch, resumes, name, base_offset)

    cdef int note_name(self, int64_t id, int16_t epoch, bint resumes, str name,
                       int64_t offset) except -1:
        cdef ProducerEntry producer = self.by_name.get(name)
        self.newest = None
        if producer is not None and producer.id != id:  # its epochs ran out: another id for it
            if id in self.by_id:
                self.drop(self.by_id[id])
            self.forget(producer)
            producer.id, producer.name = id, None
            self.by_id[id] = self.nameless[id] = producer
        producer = self.touch(id, offset)
        if producer.name is not None:
            del self.by_name[producer.name]
        else:
            del self.nameless[id]
            self.named_ones[id] = producer
        producer.name, producer.epoch = name, epoch
        self.by_name[name] = producer
        if not resumes:
            producer.restart()
        return 0

    # --- looking ----------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.by_id)

    def get(self, int64_t id):
        """Return the producer with this id, or None."""
        return self.by_id.get(id)

    def named(self, str name not None):
        """Return the producer of this name, or None."""
        return self.by_name.get(name)

    @property
    def names_since(self) -> int:
        """A name that was used at this offset or later is known; 0: none was ever forgotten.

        The one that was silent longest is forgotten first, and one too many is forgotten at a
        time: while fewer names than that are known, none was, unless the limit was raised since.
        """
        full = self.forgotten and len(self.named_ones) >= self.producers_max - 1
        if not full and not self.forgotten.may_hold_names():
            return 0
        return next((each.touched_offset for each in self.named_ones.values()), 2**63 - 1)

    # --- cuts and snapshots -----------------------------------------------------------------------

    def mark(self, int64_t offset):
        """Record that a segment begins at ``offset``, the end so far: a cut starts from here.

        D22: below ``origin_offset`` nothing is filed, for the state there is not known.
        """
        if offset < self.origin_offset:
            return
        self.marks.append((offset, self.encode()))
        del self.marks[:-MARKS_MAX]

    def load(self, int64_t offset, bytes state not None):
        """Forget everything: at ``offset`` the state is this. Raises CorruptBatch,
        UnsupportedVersion.

        For a log that begins again behind a snapshot, and for one that stands on a snapshot before
        its batches are noted: those below ``offset`` are skipped.
        """
        found, forgotten = decode_state(state)
        self.forgotten = forgotten
        self.origin_offset, self.origin, self.marks = offset, state, []
        self.take_all(found)
        self.newest = None
        while len(self.by_id) > self.producers_max:
            self.expire()

    cdef int take_all(self, list producers) except -1:
        """Know these producers alone, by touched_offset."""
        self.by_id = {each.id: each for each in producers}
        named = [each for each in producers if each.name is not None]
        self.by_name = {each.name: each for each in named}
        self.nameless = OrderedDict((each.id, each) for each in producers if each.name is None)
        self.named_ones = OrderedDict((each.id, each) for each in named)
        return 0

    def before_cut(self, int64_t end_offset, list segments):
        """Return the state that :meth:`cut` takes; None if no producer is known.

        Reads the headers from the last mark on. Raises CorruptLog.
        """
        if not self.by_id and not self.forgotten:
            return None  # producers only go where another one comes
        return self.at(end_offset, segments)

    def cut(self, int64_t end_offset, Producers again):
        """Follow the log, which is cut to ``end_offset``: what stood beyond it never was."""
        self.marks = [mark for mark in self.marks if mark[0] <= end_offset]
        if again is not None:
            self.take_all(again.by_touch())
            self.forgotten, self.newest = again.forgotten, None

    def at(self, int64_t end_offset, list segments) -> Producers:
        """Return the state as of an earlier end of the log, at or above ``origin_offset``."""
        assert end_offset >= self.origin_offset, "what a snapshot holds is committed"
        place = bisect_right(self.marks, end_offset, key=lambda mark: mark[0])
        offset, state = self.marks[place - 1] if place else (self.origin_offset, self.origin)
        cdef Producers found = Producers(self.producers_max)
        found.load(offset, state)
        for segment in segments:
            if offset < end_offset \
                    and segment.end_offset > offset and segment.base_offset < end_offset:
                found.replay(segment, max(offset, segment.base_offset), end_offset)
        return found

    def freeze(self, int64_t end_offset, list segments) -> bytes:
        """Return the state as of ``end_offset``, encoded, for a snapshot that ends there.

        It is marked: the next snapshot, and the log that begins here, read no header again that
        was read for this one. A segment has a million of them, and the loop waits.
        """
        if not self.by_id and not self.forgotten:
            return b""
        state = self.at(end_offset, segments).encode()
        place = bisect_right(self.marks, end_offset, key=lambda mark: mark[0])
        if not place or self.marks[place - 1][0] != end_offset:
            self.marks.insert(place, (end_offset, state))
            del self.marks[:-MARKS_MAX]
        return state

    def forget_before(self, int64_t offset, list segments, bytes state=None):
        """Work out once more what came before ``offset``, where the log is about to begin, or take
        the ``state`` as of there. Raises CorruptLog.
        """
        if offset > self.origin_offset:
            self.origin = self.freeze(offset, segments) if state is None else state
            self.origin_offset = offset
            self.marks = [mark for mark in self.marks if mark[0] >= offset]

    def replay(self, Segment segment not None, int64_t offset, int64_t end_offset):
        """Record a segment's batches from ``offset``, where one begins, up to ``end_offset``.

        Raises CorruptLog: what is passed over would be appended a second time (D22).
        """
        cdef kf_batch_header h
        cdef int64_t position = segment.seek(offset, &offset)
        cdef const uint8_t *batch
        cdef int fault = KF_BATCH_OK
        if position < 0:
            position, fault = segment.indexed(offset), KF_BATCH_OFFSET
        while fault == KF_BATCH_OK and offset < end_offset \
                and position < <int64_t>segment.position:
            batch = segment.file.base + position
            fault = kf_batch_check(batch, segment.position - position, &h)
            if fault == KF_BATCH_OK and h.base_offset != offset:
                fault = KF_BATCH_OFFSET
            if fault != KF_BATCH_OK:
                break
            if h.producer_id != -1 or h.attributes & KF_ATTRIBUTE_CONTROL:
                self.note(&h, offset, batch)
            position += h.size
            offset += h.record_count
        if fault != KF_BATCH_OK:
            path, why = segment.file.path, FAULT_TEXTS[fault]
            raise CorruptLog(
                f"{path} is damaged at byte {position} (offset {offset}): {why}",
                path, position, offset)

    cdef list by_touch(self):
        return sorted(self.by_id.values(), key=lambda each: each.touched_offset)

    def encode(self) -> bytes:
        """Return the state, as :meth:`load` takes it; b"" if there is none."""
        return encode_state(self.by_touch(), self.forgotten)
