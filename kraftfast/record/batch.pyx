"""Record batches (Kafka's format v2) in a buffer: views of them, their records, the deep check.

Source: Kafka's ``DefaultRecordBatch`` and ``DefaultRecord``.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t

from kraftfast.buffer cimport Hold, hold
from kraftfast.record.judge cimport (
    KF_ATTRIBUTE_APPEND_TIME, KF_ATTRIBUTE_CODEC, KF_ATTRIBUTE_CONTROL, KF_ATTRIBUTE_TRANSACTIONAL,
    KF_BATCH_BYTES_MAX, KF_BATCH_HEADER, KF_BATCH_INCOMPLETE, KF_BATCH_OK, KF_BATCH_OVERHEAD,
    KF_BATCH_RECORDS_MAX, KF_BATCH_TRAILING, KF_RECORD_HEADERS, KF_RECORD_HEADERS_MAX, KF_RULES_ANY,
    KF_RULES_KAFKA_RAFT, KF_RULES_NO_CONTROL, kf_batch_check_records, kf_batch_check_whole,
    kf_batch_crc_holds, kf_batch_header, kf_batch_read_header, kf_batch_stamp, kf_bytes_end,
    kf_bytes_get, kf_record, kf_record_next,
)

from kraftfast import errors, limits
from kraftfast.record import compression, shapes
from kraftfast.record.shapes import Codec, Record


assert limits.BATCH_HEADER_BYTES == KF_BATCH_HEADER
assert limits.BATCH_OVERHEAD_BYTES == KF_BATCH_OVERHEAD
assert limits.BATCH_BYTES_MAX == KF_BATCH_BYTES_MAX
assert limits.RECORDS_PER_BATCH_MAX == KF_BATCH_RECORDS_MAX
assert limits.HEADERS_PER_RECORD_MAX == KF_RECORD_HEADERS_MAX

RULES = {"any": KF_RULES_ANY, "kafka-raft": KF_RULES_KAFKA_RAFT}


# --- buffers ---


cdef int64_t bounded_end(Hold source, int64_t position, object end) except -1:
    """Return ``end`` or the end of the buffer; check that position lies before it."""
    cdef int64_t stop = source.size if end is None else <int64_t>end
    if not 0 <= position <= stop <= source.size:
        raise errors.InvalidOption(
            f"bytes {position} to {stop} of a buffer of {source.size} bytes"
        )
    return stop


# --- views ---


cdef class BatchView:
    """One batch in a buffer, which it keeps alive; made by this module's functions.

    The header fields are bounded, the CRC and the records are looked at only when asked for.
    """

    def __init__(self):
        raise TypeError("batches(), batch_at() and check_batch() make these")

    @property
    def base_offset(self) -> int:
        """Offset of the first record."""
        return self.header.base_offset

    @property
    def last_offset(self) -> int:
        """Offset of the last record, inclusive."""
        return self.header.base_offset + self.header.last_offset_delta

    @property
    def end_offset(self) -> int:
        """Offset after the last record."""
        return self.header.base_offset + self.header.last_offset_delta + 1

    @property
    def leader_epoch(self) -> int:
        """Epoch of the leader that appended it; -1 if not stamped."""
        return self.header.leader_epoch

    @property
    def attributes(self) -> int:
        """The bits as stored; see :mod:`kraftfast.record.shapes`."""
        return self.header.attributes

    @property
    def codec(self) -> Codec:
        """How the records are compressed."""
        return Codec(self.header.attributes & KF_ATTRIBUTE_CODEC)

    @property
    def is_control(self) -> bool:
        """Whether the records are control records."""
        return bool(self.header.attributes & KF_ATTRIBUTE_CONTROL)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.header.attributes & KF_ATTRIBUTE_TRANSACTIONAL)

    @property
    def base_timestamp(self) -> int:
        """Milliseconds; the records' timestamps are deltas to it."""
        return self.header.base_timestamp

    @property
    def max_timestamp(self) -> int:
        """Milliseconds; the largest timestamp, or that of the append for every record."""
        return self.header.max_timestamp

    @property
    def producer_id(self) -> int:
        """-1 if the producer is not idempotent."""
        return self.header.producer_id

    @property
    def producer_epoch(self) -> int:
        """-1 if the producer is not idempotent."""
        return self.header.producer_epoch

    @property
    def base_sequence(self) -> int:
        """Sequence number of the first record; -1 if the producer is not idempotent."""
        return self.header.base_sequence

    @property
    def record_count(self) -> int:
        """Number of records in the batch."""
        return self.header.record_count

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.header.size

    @property
    def crc(self) -> int:
        """The CRC-32C as stored."""
        return self.header.crc

    @property
    def data(self) -> memoryview:
        """The bytes of the whole batch, not copied."""
        return self.bytes_from(0)

    cdef object bytes_from(self, int64_t at):
        cdef object whole = memoryview(self.held().view.obj).cast("B")
        return whole[self.position + at : self.position + self.header.size]

    def crc_ok(self) -> bool:
        """Return whether the stored CRC-32C is that of the bytes. Raises nothing."""
        return kf_batch_crc_holds(self.held().data + self.position, &self.header)

    cdef Hold held(self):
        if self.source is None:
            raise TypeError("this BatchView holds no batch: kraftfast.testing.batch() makes one")
        return self.source

    cdef Hold decompressed(self):
        """Return the records' bytes of a compressed batch, within the bounds of S9.

        They are copied first: what a decompressor reads twice must not change in between (D20).
        """
        cdef int codec = self.header.attributes & KF_ATTRIBUTE_CODEC
        try:
            packed = memoryview(bytes(self.bytes_from(KF_BATCH_HEADER)))
            return hold(compression.decompress(codec, packed))
        except errors.CorruptBatch as error:
            raise errors.CorruptBatch(
                f"batch at byte {self.position}: {error}", self.position, error.reason
            ) from None

    def records(self) -> RecordIterator:
        """Return the records one by one; does not look at the CRC.

        Raises :class:`~kraftfast.errors.CorruptBatch` at the first bad one.
        """
        return RecordIterator(self)

    def first_from(self, int64_t timestamp, int64_t start_offset=0) -> tuple | None:
        """Return (offset, timestamp) of the first record at or after both, None without one.

        ``timestamp``: milliseconds. ``start_offset``: in the log, inclusive. Raises CorruptBatch or
        UnsupportedCodec.
        """
        cdef RecordIterator each = RecordIterator(self)
        cdef kf_record record
        cdef int64_t found
        while each.next_fields(&record):
            found = each.timestamp_of(&record)
            if found >= timestamp and self.header.base_offset + record.offset_delta >= start_offset:
                return self.header.base_offset + record.offset_delta, found
        return None

    def check(self, *, str records="any", bint control=True) -> None:
        """Check this batch down to the last record, as bytes from a stranger.

        ``records``: ``"any"``, or ``"kafka-raft"``, which refuses what Kafka's raft reader would.
        ``control``: False refuses control batches. Raises CorruptBatch, RecordsRefused,
        UnsupportedCodec, InvalidOption.
        """
        check_view(self, rules_of(records, control))

    def __repr__(self) -> str:
        return (
            f"BatchView(offsets {self.base_offset}..{self.last_offset}, "
            f"epoch {self.leader_epoch}, {self.record_count} records, {self.size} bytes "
            f"at {self.position})"
        )


cdef BatchView view_at(Hold source, int64_t position, int64_t end, int *fault):
    cdef BatchView batch = BatchView.__new__(BatchView)
    batch.source = source
    batch.position = position
    fault[0] = kf_batch_read_header(source.data + position, end - position, &batch.header)
    return batch


cdef class BatchIterator:
    """The batches of a buffer in order; :func:`batches` makes it.

    ``position`` is where the next one begins, which after the last is where reading stopped.
    """

    cdef Hold source
    cdef int64_t end
    cdef bint partial
    cdef readonly int64_t position

    def __init__(self, buffer, int64_t position, end, bint partial):
        self.source = hold(buffer)
        self.end = bounded_end(self.source, position, end)
        self.position = position
        self.partial = partial

    def __iter__(self) -> BatchIterator:
        return self

    def __next__(self) -> BatchView:
        cdef int fault
        cdef BatchView batch
        if self.position == self.end:
            raise StopIteration
        batch = view_at(self.source, self.position, self.end, &fault)
        if self.partial and fault == KF_BATCH_INCOMPLETE:
            raise StopIteration
        if fault != KF_BATCH_OK:
            raise shapes.refusal(fault, self.position)
        self.position += batch.header.size
        return batch


def batch_at(buffer, int64_t position=0, end=None) -> BatchView:
    """Return the batch that begins at byte ``position``; its header is bounded, its CRC not looked
    at.

    Raises :class:`~kraftfast.errors.CorruptBatch`.
    """
    cdef Hold source = hold(buffer)
    cdef int fault
    cdef BatchView batch = view_at(source, position, bounded_end(source, position, end), &fault)
    if fault != KF_BATCH_OK:
        raise shapes.refusal(fault, position)
    return batch


def batches(buffer, int64_t position=0, end=None, *, bint partial=False) -> BatchIterator:
    """Return the batches between two byte positions, in order, headers bounded, CRCs not looked at.

    With ``partial`` a last batch that is cut off ends the iteration (a Fetch answer may end so);
    else, as at anything that is no batch, :class:`~kraftfast.errors.CorruptBatch` is raised.

    >>> from kraftfast.record import pure
    >>> data = pure.encode_batch(pure.values_to_records([b"a", b"b"], timestamp=0))
    >>> [(found.position, found.record_count) for found in batches(data + data)]
    [(0, 2), (77, 2)]
    """
    return BatchIterator(buffer, position, end, partial)


# --- records one by one ---


cdef tuple decode_headers(const kf_record *record, int64_t position, int64_t number):
    """Return the headers, bounded again: another process may have changed them meanwhile."""
    cdef list headers = []
    cdef const uint8_t *p = record.headers
    cdef int32_t size = -1
    cdef int fault
    for _ in range(record.header_count):
        p = kf_bytes_get(p, record.end, &size, &fault)
        if p is NULL or size < 0:
            raise shapes.refusal(KF_RECORD_HEADERS, position, number)
        key = PyUnicode_DecodeUTF8(<const char *>p, size, "surrogateescape")
        p = kf_bytes_get(p + size, record.end, &size, &fault)
        if p is NULL:
            raise shapes.refusal(KF_RECORD_HEADERS, position, number)
        headers.append((key, decode_bytes(p, size)))
        p = kf_bytes_end(p, size)
    return tuple(headers)


cdef inline object decode_bytes(const uint8_t *p, int32_t size):
    return None if size < 0 else PyBytes_FromStringAndSize(<const char *>p, size)


cdef object new_tuple = tuple.__new__


cdef class RecordIterator:
    """The records of one batch in order; ``BatchView.records()`` makes it."""

    cdef BatchView batch
    cdef Hold source  # of the records: the batch's own, or of what was decompressed
    cdef const uint8_t *p
    cdef const uint8_t *end
    cdef int64_t number  # of the next record, from 0
    cdef int32_t last_delta  # offset delta of the record before, -1 at first; they only grow

    def __init__(self, BatchView batch not None):
        self.batch = batch
        self.last_delta = -1
        if batch.header.attributes & KF_ATTRIBUTE_CODEC:
            self.source = batch.decompressed()
            self.p = self.source.data
            self.end = self.p + self.source.size
        else:
            self.source = batch.held()
            self.p = self.source.data + batch.position + KF_BATCH_HEADER
            self.end = self.p + batch.header.size - KF_BATCH_HEADER

    def __iter__(self) -> RecordIterator:
        return self

    cdef bint next_fields(self, kf_record *record) except -1:
        """Take the next record; 0 behind the last one."""
        cdef kf_batch_header *header = &self.batch.header
        cdef int fault
        if self.number == header.record_count:
            if self.p != self.end:
                raise shapes.refusal(KF_BATCH_TRAILING, self.batch.position)
            return 0
        fault = kf_record_next(self.p, self.end, header, &self.last_delta, record)
        if fault != KF_BATCH_OK:
            raise shapes.refusal(fault, self.batch.position, self.number)
        self.p = record.end
        self.number += 1
        return 1

    cdef inline int64_t timestamp_of(self, const kf_record *record) noexcept:
        cdef kf_batch_header *header = &self.batch.header
        if header.attributes & KF_ATTRIBUTE_APPEND_TIME:
            return header.max_timestamp
        return header.base_timestamp + record.timestamp_delta

    def __next__(self) -> Record:
        cdef kf_record record
        if not self.next_fields(&record):
            raise StopIteration
        headers = ()
        if record.header_count:
            headers = decode_headers(&record, self.batch.position, self.number - 1)
        return new_tuple(Record, (
            self.batch.header.base_offset + record.offset_delta,
            self.timestamp_of(&record),
            decode_bytes(record.key, record.key_size),
            decode_bytes(record.value, record.value_size),
            headers,
        ))


# --- the deep check, for Python ---


cdef int rules_of(str records, bint control) except -1:
    if records not in RULES:
        raise errors.InvalidOption(f"records={records}: known are {', '.join(RULES)}")
    return <int>RULES[records] | (0 if control else KF_RULES_NO_CONTROL)


cdef int check_view(BatchView batch, int rules) except -1:
    cdef int64_t number
    cdef Hold body, source = batch.held()
    cdef int fault = kf_batch_check_whole(
        source.data + batch.position, source.size - batch.position, rules,
        &batch.header, &number, &batch.largest_timestamp,
    )
    if fault == KF_BATCH_OK and batch.header.attributes & KF_ATTRIBUTE_CODEC:
        body = batch.decompressed()
        fault = kf_batch_check_records(
            body.data, body.size, &batch.header, rules, &number, &batch.largest_timestamp
        )
    if fault != KF_BATCH_OK:
        raise shapes.refusal(fault, batch.position, number)
    return 0


def check_batch(
    buffer, int64_t position=0, end=None, *, str records="any", bint control=True
) -> BatchView:
    """Check the batch at byte ``position`` down to the last record, as bytes from a stranger.

    Framing, CRC, count, bounds of every record, offsets 0 .. n-1 without a gap. ``records`` is
    ``"any"`` or ``"kafka-raft"``, which refuses what Kafka's raft reader would: timestamps of a
    record's own, headers, keys, null or empty values, compression, unknown control records.
    ``control=False`` refuses control batches: a producer has no business with them.

    Raises :class:`~kraftfast.errors.CorruptBatch`, ``RecordsRefused`` or ``UnsupportedCodec``,
    each naming the place and the reason. Decompression is bounded (S9).
    """
    cdef int rules = rules_of(records, control)
    cdef BatchView batch = batch_at(buffer, position, end)
    check_view(batch, rules)
    return batch


def check_batches(
    buffer, int64_t position=0, end=None, *, str records="any", bint control=True
) -> list[BatchView]:
    """Do as :func:`check_batch` for all batches between two byte positions, and nothing else."""
    cdef int rules = rules_of(records, control)
    cdef list checked = []
    for batch in BatchIterator(buffer, position, end, False):
        check_view(batch, rules)
        checked.append(batch)
    return checked


def stamp(buffer, int64_t base_offset, int32_t leader_epoch, int64_t position=0) -> None:
    """Set base offset and leader epoch of the batch at byte ``position`` of a writable buffer.

    Both lie outside the CRC, which stays as it is. Raises
    :class:`~kraftfast.errors.CorruptBatch` if there is no batch, ``InvalidOption`` if the values
    cannot be.
    """
    cdef Hold target = hold(buffer, writable=True)
    cdef int fault
    cdef BatchView batch = view_at(target, position, bounded_end(target, position, None), &fault)
    if fault != KF_BATCH_OK:
        raise shapes.refusal(fault, position)
    if not 0 <= base_offset <= INT64_MAX - 1 - batch.header.last_offset_delta or leader_epoch < 0:
        raise errors.InvalidOption(f"base offset {base_offset}, leader epoch {leader_epoch}")
    kf_batch_stamp(target.data + position, base_offset, leader_epoch)
