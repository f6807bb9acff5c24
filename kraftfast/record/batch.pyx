"""Record batches (Kafka's format v2): headers, views, records one by one, and the deep check.

Source: Kafka's ``DefaultRecordBatch`` and ``DefaultRecord``; the refusals of ``kafka-raft`` are
those of ``org.apache.kafka.raft.internals.RecordsIterator``.
"""

from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport (
    INT64_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t,
)

from kraftfast.record.checksum cimport crc_extend

from kraftfast import errors, limits
from kraftfast.record import compression, shapes
from kraftfast.record.shapes import Codec, Record


cdef extern from "varint.h" nogil:
    uint16_t kf_load16(const uint8_t *p)
    uint32_t kf_load32(const uint8_t *p)
    uint64_t kf_load64(const uint8_t *p)
    void kf_store16(uint8_t *p, uint16_t v)
    void kf_store32(uint8_t *p, uint32_t v)
    void kf_store64(uint8_t *p, uint64_t v)
    const uint8_t *kf_varint_get(const uint8_t *p, const uint8_t *end, int32_t *value)
    const uint8_t *kf_varlong_get(const uint8_t *p, const uint8_t *end, int64_t *value)


cdef int64_t BATCH_BYTES_MAX = limits.BATCH_BYTES_MAX
cdef int64_t RECORDS_PER_BATCH_MAX = limits.RECORDS_PER_BATCH_MAX
cdef int32_t HEADERS_PER_RECORD_MAX = limits.HEADERS_PER_RECORD_MAX

assert limits.BATCH_HEADER_BYTES == HEADER_BYTES
assert max(shapes.Fault) == FAULT_CONTROL_BATCH, "the two lists of faults go together"

RULES = {"any": RULES_ANY, "kafka-raft": RULES_KAFKA_RAFT}


# --- headers ---


cdef int parse_header(const uint8_t *p, int64_t available, BatchHeader *header) noexcept nogil:
    cdef int64_t room
    if available < HEADER_BYTES:
        return FAULT_SHORT
    header.base_offset = <int64_t>kf_load64(p)
    header.size = <int64_t><int32_t>kf_load32(p + 8) + 12
    header.leader_epoch = <int32_t>kf_load32(p + 12)
    header.crc = kf_load32(p + 17)
    header.attributes = <int16_t>kf_load16(p + 21)
    header.last_offset_delta = <int32_t>kf_load32(p + 23)
    header.base_timestamp = <int64_t>kf_load64(p + 27)
    header.max_timestamp = <int64_t>kf_load64(p + 35)
    header.producer_id = <int64_t>kf_load64(p + 43)
    header.producer_epoch = <int16_t>kf_load16(p + 51)
    header.base_sequence = <int32_t>kf_load32(p + 53)
    header.record_count = <int32_t>kf_load32(p + 57)
    if header.size < HEADER_BYTES or header.size > BATCH_BYTES_MAX:
        return FAULT_LENGTH
    if p[16] != 2:
        return FAULT_MAGIC
    if header.attributes & ~ATTRIBUTES_KNOWN or header.attributes & CODEC_MASK > 4:
        return FAULT_ATTRIBUTES
    if header.last_offset_delta < 0 or header.record_count < 0:
        return FAULT_COUNT
    if header.record_count > <int64_t>header.last_offset_delta + 1:
        return FAULT_COUNT
    room = header.size - HEADER_BYTES
    if header.record_count > RECORDS_PER_BATCH_MAX or (
        not header.attributes & CODEC_MASK and header.record_count > room // RECORD_BYTES_MIN
    ):
        return FAULT_COUNT
    if header.base_offset < 0 or header.base_offset > INT64_MAX - 1 - header.last_offset_delta:
        return FAULT_OFFSETS  # the exclusive end must fit too
    if header.leader_epoch < -1:
        return FAULT_EPOCH
    return FAULT_TRUNCATED if header.size > available else FAULT_NONE


cdef void write_header(uint8_t *p, const BatchHeader *header) noexcept nogil:
    kf_store64(p, <uint64_t>header.base_offset)
    kf_store32(p + 8, <uint32_t>(header.size - 12))
    kf_store32(p + 12, <uint32_t>header.leader_epoch)
    p[16] = 2
    kf_store32(p + 17, header.crc)
    kf_store16(p + 21, <uint16_t>header.attributes)
    kf_store32(p + 23, <uint32_t>header.last_offset_delta)
    kf_store64(p + 27, <uint64_t>header.base_timestamp)
    kf_store64(p + 35, <uint64_t>header.max_timestamp)
    kf_store64(p + 43, <uint64_t>header.producer_id)
    kf_store16(p + 51, <uint16_t>header.producer_epoch)
    kf_store32(p + 53, <uint32_t>header.base_sequence)
    kf_store32(p + 57, <uint32_t>header.record_count)


cdef void stamp_header(uint8_t *p, int64_t base_offset, int32_t leader_epoch) noexcept nogil:
    kf_store64(p, <uint64_t>base_offset)
    kf_store32(p + 12, <uint32_t>leader_epoch)


cdef bint crc_holds(const uint8_t *p, const BatchHeader *header) noexcept nogil:
    return crc_extend(0, p + CRC_FROM, <size_t>(header.size - CRC_FROM)) == header.crc


# --- records ---


cdef inline const uint8_t *parse_bytes(
    const uint8_t *p, const uint8_t *end, int32_t *size, int *fault
) noexcept nogil:
    """A size and that many bytes (-1: null, none): where the bytes begin, NULL at a fault."""
    p = kf_varint_get(p, end, size)
    if p is NULL:
        fault[0] = FAULT_RECORD_FIELD
    elif size[0] < -1 or size[0] > end - p:
        fault[0] = FAULT_RECORD_SIZE
        return NULL
    return p


cdef int walk_headers(const uint8_t *p, const uint8_t *end, int32_t count) noexcept nogil:
    cdef int32_t size
    cdef int fault
    for _ in range(count):
        p = parse_bytes(p, end, &size, &fault)
        if p is NULL or size < 0:  # the key of a header is never null
            return FAULT_RECORD_HEADERS
        p = parse_bytes(p + size, end, &size, &fault)
        if p is NULL:
            return FAULT_RECORD_HEADERS
        p += max(size, 0)
    return FAULT_NONE if p == end else FAULT_RECORD_HEADERS


cdef int parse_record(const uint8_t *p, const uint8_t *end, RecordFields *record) noexcept nogil:
    cdef int32_t length
    cdef int fault = FAULT_NONE
    p = kf_varint_get(p, end, &length)
    if p is NULL:
        return FAULT_RECORD_FIELD
    if length < RECORD_BYTES_MIN - 1 or length > end - p:
        return FAULT_RECORD_LENGTH
    record.end = end = p + length
    p = kf_varlong_get(p + 1, end, &record.timestamp_delta)  # attributes have no meaning yet
    if p is NULL:
        return FAULT_RECORD_FIELD
    p = kf_varint_get(p, end, &record.offset_delta)
    if p is NULL:
        return FAULT_RECORD_FIELD
    record.key = p = parse_bytes(p, end, &record.key_size, &fault)
    if p is NULL:
        return fault
    p = parse_bytes(p + max(record.key_size, 0), end, &record.value_size, &fault)
    record.value = p
    if p is NULL:
        return fault
    p = kf_varint_get(p + max(record.value_size, 0), end, &record.header_count)
    if p is NULL:
        return FAULT_RECORD_FIELD
    record.headers = p
    if record.header_count == 0:
        return FAULT_NONE if p == end else FAULT_RECORD_HEADERS
    if record.header_count < 0 or record.header_count > HEADERS_PER_RECORD_MAX:
        return FAULT_RECORD_HEADERS
    return walk_headers(p, end, record.header_count)


cdef bint timestamp_fits(const BatchHeader *header, int64_t delta) noexcept nogil:
    if delta > 0:
        return header.base_timestamp <= INT64_MAX - delta
    return header.base_timestamp >= INT64_MIN - delta


# --- the deep check ---


cdef int check_record(
    const RecordFields *record, const BatchHeader *header, int rules
) noexcept nogil:
    """What the rules say of one record that is well framed."""
    cdef bint control = header.attributes & CONTROL
    if not timestamp_fits(header, record.timestamp_delta):
        return FAULT_RECORD_TIMESTAMP
    if control and (record.key_size < 4 or record.key[0] & 0x80):
        return FAULT_CONTROL_KEY  # a negative version, as in ControlRecordType.parseTypeId
    if not rules & RULES_KAFKA_RAFT:
        return FAULT_NONE
    if record.timestamp_delta != 0:
        return FAULT_HAS_TIMESTAMP_DELTA
    if record.header_count:
        return FAULT_HAS_HEADERS
    if control:
        if record.value_size <= 0:
            return FAULT_CONTROL_EMPTY
        if not 2 <= <int16_t>kf_load16(record.key + 2) <= 6:  # LEADER_CHANGE .. KRAFT_VOTERS
            return FAULT_CONTROL_UNKNOWN
        return FAULT_NONE
    if record.key_size != -1:
        return FAULT_HAS_KEY
    return FAULT_NO_VALUE if record.value_size <= 0 else FAULT_NONE


cdef int check_records(
    const uint8_t *p, int64_t size, const BatchHeader *header, int rules, int64_t *number
) noexcept nogil:
    cdef RecordFields record
    cdef const uint8_t *end = p + size
    cdef int fault
    cdef int64_t i
    for i in range(header.record_count):
        number[0] = i
        fault = parse_record(p, end, &record)
        if fault == FAULT_NONE and record.offset_delta != i:
            fault = FAULT_RECORD_OFFSET
        if fault == FAULT_NONE:
            fault = check_record(&record, header, rules)
        if fault != FAULT_NONE:
            return fault
        p = record.end
    number[0] = -1
    return FAULT_NONE if p == end else FAULT_TRAILING


cdef int check_whole(
    const uint8_t *p, int64_t available, int rules, BatchHeader *header, int64_t *number
) noexcept nogil:
    cdef int fault = parse_header(p, available, header)
    number[0] = -1
    if fault != FAULT_NONE:
        return fault
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        return FAULT_COUNT  # S8: nothing was compacted away from a batch of ours
    if not crc_holds(p, header):
        return FAULT_CRC
    if rules & RULES_NO_CONTROL and header.attributes & CONTROL:
        return FAULT_CONTROL_BATCH
    if header.attributes & CODEC_MASK:
        return FAULT_COMPRESSED if rules & RULES_KAFKA_RAFT else FAULT_NONE
    return check_records(p + HEADER_BYTES, header.size - HEADER_BYTES, header, rules, number)


# --- buffers ---


cdef class Hold:
    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


cdef Hold hold(object buffer, bint writable=False):
    cdef Hold held = Hold.__new__(Hold)
    PyObject_GetBuffer(buffer, &held.view, PyBUF_WRITABLE if writable else PyBUF_SIMPLE)
    held.held = True
    held.data = <uint8_t *>held.view.buf
    held.size = held.view.len
    return held


cdef int64_t bounded_end(Hold source, int64_t position, object end) except -1:
    """``end`` or the end of the buffer; checks that position lies before it."""
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
        return Codec(self.header.attributes & CODEC_MASK)

    @property
    def is_control(self) -> bool:
        """Whether the records are control records."""
        return bool(self.header.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.header.attributes & TRANSACTIONAL)

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
        cdef object whole = memoryview(self.source.view.obj).cast("B")
        return whole[self.position + at : self.position + self.header.size]

    def crc_ok(self) -> bool:
        """Whether the stored CRC-32C is that of the bytes."""
        return crc_holds(self.source.data + self.position, &self.header)

    cdef Hold decompressed(self):
        """The records' bytes of a compressed batch, within the bounds of S9."""
        cdef int codec = self.header.attributes & CODEC_MASK
        try:
            return hold(compression.decompress(codec, self.bytes_from(HEADER_BYTES)))
        except errors.CorruptBatch as error:
            raise errors.CorruptBatch(
                f"batch at byte {self.position}: {error}", self.position, error.reason
            ) from None

    def records(self) -> RecordIterator:
        """The records one by one; does not look at the CRC.

        Raises :class:`~kraftfast.errors.CorruptBatch` at the first bad one.
        """
        return RecordIterator(self)

    def check(self, *, str records="any", bint control=True) -> None:
        """As :func:`check_batch` of this batch."""
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
    fault[0] = parse_header(source.data + position, end - position, &batch.header)
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
        if self.partial and (fault == FAULT_SHORT or fault == FAULT_TRUNCATED):
            raise StopIteration
        if fault != FAULT_NONE:
            raise shapes.refusal(fault, self.position)
        self.position += batch.header.size
        return batch


def batch_at(buffer, int64_t position=0, end=None) -> BatchView:
    """The batch that begins at byte ``position``; its header is bounded, its CRC not looked at.

    Raises :class:`~kraftfast.errors.CorruptBatch`.
    """
    cdef Hold source = hold(buffer)
    cdef int fault
    cdef BatchView batch = view_at(source, position, bounded_end(source, position, end), &fault)
    if fault != FAULT_NONE:
        raise shapes.refusal(fault, position)
    return batch


def batches(buffer, int64_t position=0, end=None, *, bint partial=False) -> BatchIterator:
    """The batches between two byte positions, in order, headers bounded, CRCs not looked at.

    With ``partial`` a last batch that is cut off ends the iteration (a Fetch answer may end so);
    else, as at anything that is no batch, :class:`~kraftfast.errors.CorruptBatch` is raised.
    """
    return BatchIterator(buffer, position, end, partial)


# --- records one by one ---


cdef tuple decode_headers(const RecordFields *record, int64_t position, int64_t number):
    """The headers, bounded once more: another process may have changed them since the walk."""
    cdef list headers = []
    cdef const uint8_t *p = record.headers
    cdef int32_t size = -1
    cdef int fault
    for _ in range(record.header_count):
        p = parse_bytes(p, record.end, &size, &fault)
        if p is NULL or size < 0:
            raise shapes.refusal(FAULT_RECORD_HEADERS, position, number)
        key = PyUnicode_DecodeUTF8(<const char *>p, size, "surrogateescape")
        p = parse_bytes(p + size, record.end, &size, &fault)
        if p is NULL:
            raise shapes.refusal(FAULT_RECORD_HEADERS, position, number)
        headers.append((key, decode_bytes(p, size)))
        p += max(size, 0)
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
    cdef int64_t last_delta  # offset delta of the record before; they only grow

    def __init__(self, BatchView batch not None):
        self.batch = batch
        self.last_delta = -1
        if batch.header.attributes & CODEC_MASK:
            self.source = batch.decompressed()
            self.p = self.source.data
            self.end = self.p + self.source.size
        else:
            self.source = batch.source
            self.p = self.source.data + batch.position + HEADER_BYTES
            self.end = self.p + batch.header.size - HEADER_BYTES

    def __iter__(self) -> RecordIterator:
        return self

    def __next__(self) -> Record:
        cdef RecordFields record
        cdef BatchHeader *header = &self.batch.header
        cdef int fault
        if self.number == header.record_count:
            if self.p != self.end:
                raise shapes.refusal(FAULT_TRAILING, self.batch.position)
            raise StopIteration
        fault = parse_record(self.p, self.end, &record)
        if fault == FAULT_NONE:
            if not self.last_delta < record.offset_delta <= header.last_offset_delta:
                fault = FAULT_RECORD_OFFSET
            elif not timestamp_fits(header, record.timestamp_delta):
                fault = FAULT_RECORD_TIMESTAMP
        if fault != FAULT_NONE:
            raise shapes.refusal(fault, self.batch.position, self.number)
        headers = ()
        if record.header_count:
            headers = decode_headers(&record, self.batch.position, self.number)
        self.p = record.end
        self.number += 1
        self.last_delta = record.offset_delta
        return new_tuple(Record, (
            header.base_offset + record.offset_delta,
            header.max_timestamp if header.attributes & LOG_APPEND_TIME
            else header.base_timestamp + record.timestamp_delta,
            decode_bytes(record.key, record.key_size),
            decode_bytes(record.value, record.value_size),
            headers,
        ))


# --- the deep check, for Python ---


cdef int rules_of(str records, bint control) except -1:
    if records not in RULES:
        raise errors.InvalidOption(f"records={records}: known are {', '.join(RULES)}")
    return <int>RULES[records] | (0 if control else RULES_NO_CONTROL)


cdef int check_view(BatchView batch, int rules) except -1:
    cdef int64_t number
    cdef Hold body
    cdef int fault = check_whole(
        batch.source.data + batch.position, batch.source.size - batch.position, rules,
        &batch.header, &number,
    )
    if fault == FAULT_NONE and batch.header.attributes & CODEC_MASK:
        body = batch.decompressed()
        fault = check_records(body.data, body.size, &batch.header, rules, &number)
    if fault != FAULT_NONE:
        raise shapes.refusal(fault, batch.position, number)
    return 0


def check_batch(
    buffer, int64_t position=0, end=None, *, str records="any", bint control=True
) -> BatchView:
    """Checks the batch at byte ``position`` down to the last record, as bytes from a stranger.

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
    """:func:`check_batch` of every batch between two byte positions, which leave nothing over."""
    cdef int rules = rules_of(records, control)
    cdef list checked = []
    for batch in BatchIterator(buffer, position, end, False):
        check_view(batch, rules)
        checked.append(batch)
    return checked


def stamp(buffer, int64_t base_offset, int32_t leader_epoch, int64_t position=0) -> None:
    """Sets base offset and leader epoch of the batch at byte ``position`` of a writable buffer.

    Both lie outside the CRC, which stays as it is. Raises
    :class:`~kraftfast.errors.CorruptBatch` if there is no batch, ``InvalidOption`` if the values
    cannot be.
    """
    cdef Hold target = hold(buffer, writable=True)
    cdef int fault
    cdef BatchView batch = view_at(target, position, bounded_end(target, position, None), &fault)
    if fault != FAULT_NONE:
        raise shapes.refusal(fault, position)
    if not 0 <= base_offset <= INT64_MAX - 1 - batch.header.last_offset_delta or leader_epoch < 0:
        raise errors.InvalidOption(f"base offset {base_offset}, leader epoch {leader_epoch}")
    stamp_header(target.data + position, base_offset, leader_epoch)
