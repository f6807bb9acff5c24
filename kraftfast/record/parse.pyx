"""Record batches on raw pointers: headers, records, the deep check. ``batch`` has it for Python.

Source: Kafka's ``DefaultRecordBatch`` and ``DefaultRecord``; the refusals of ``kafka-raft`` are
those of ``org.apache.kafka.raft.internals.RecordsIterator``.
"""

from libc.stdint cimport (
    INT64_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t,
)

from kraftfast.record.checksum cimport crc_extend

from kraftfast import limits
from kraftfast.record import shapes


cdef extern from "batch_header.h" nogil:
    enum:
        KF_BATCH_OK
        KF_BATCH_EMPTY
        KF_BATCH_LENGTH
        KF_BATCH_MAGIC
        KF_BATCH_ATTRIBUTES
        KF_BATCH_COUNT
        KF_BATCH_OFFSET
        KF_BATCH_EPOCH
        KF_BATCH_BYTES_MAX
        KF_BATCH_RECORDS_MAX
    ctypedef struct kf_batch_header:
        int64_t base_offset
        int64_t base_timestamp
        int64_t max_timestamp
        int64_t producer_id
        int32_t leader_epoch
        int32_t last_offset_delta
        int32_t base_sequence
        int32_t record_count
        uint32_t size
        uint32_t crc
        int16_t attributes
        int16_t producer_epoch
    int kf_batch_read_header(const uint8_t *b, size_t available, kf_batch_header *h)

cdef extern from "varint.h" nogil:
    uint16_t kf_load16(const uint8_t *p)
    uint32_t kf_load32(const uint8_t *p)
    uint64_t kf_load64(const uint8_t *p)
    void kf_store16(uint8_t *p, uint16_t v)
    void kf_store32(uint8_t *p, uint32_t v)
    void kf_store64(uint8_t *p, uint64_t v)
    const uint8_t *kf_varint_get(const uint8_t *p, const uint8_t *end, int32_t *value)
    const uint8_t *kf_varlong_get(const uint8_t *p, const uint8_t *end, int64_t *value)


cdef int32_t HEADERS_PER_RECORD_MAX = limits.HEADERS_PER_RECORD_MAX

assert limits.BATCH_HEADER_BYTES == HEADER_BYTES
assert limits.BATCH_BYTES_MAX == KF_BATCH_BYTES_MAX
assert limits.RECORDS_PER_BATCH_MAX == KF_BATCH_RECORDS_MAX
assert max(shapes.Fault) == FAULT_CONTROL_BATCH, "the two lists of faults go together"


# --- headers ---


cdef int parse_header(const uint8_t *p, int64_t available, BatchHeader *header) noexcept nogil:
    cdef kf_batch_header h
    if available < HEADER_BYTES:
        return FAULT_SHORT
    cdef int fault = kf_batch_read_header(p, <size_t>available, &h)
    if fault == KF_BATCH_EMPTY or fault == KF_BATCH_LENGTH:
        return FAULT_LENGTH
    if fault == KF_BATCH_MAGIC:
        return FAULT_MAGIC
    header.base_offset, header.size, header.leader_epoch = h.base_offset, h.size, h.leader_epoch
    header.crc, header.attributes = h.crc, h.attributes
    header.last_offset_delta, header.record_count = h.last_offset_delta, h.record_count
    header.base_timestamp, header.max_timestamp = h.base_timestamp, h.max_timestamp
    header.producer_id, header.producer_epoch = h.producer_id, h.producer_epoch
    header.base_sequence = h.base_sequence
    if fault == KF_BATCH_OK:
        return FAULT_NONE
    if fault == KF_BATCH_ATTRIBUTES:
        return FAULT_ATTRIBUTES
    if fault == KF_BATCH_COUNT:
        return FAULT_COUNT
    if fault == KF_BATCH_OFFSET:
        return FAULT_OFFSETS
    return FAULT_EPOCH if fault == KF_BATCH_EPOCH else FAULT_TRUNCATED


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


cdef const uint8_t *parse_bytes(
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
    const uint8_t *p, int64_t size, const BatchHeader *header, int rules, int64_t *number,
    int64_t *largest_timestamp,
) noexcept nogil:
    cdef RecordFields record
    cdef int64_t largest_delta = INT64_MIN
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
        if record.timestamp_delta > largest_delta:
            largest_delta = record.timestamp_delta
        p = record.end
    number[0] = -1
    largest_timestamp[0] = header.base_timestamp + largest_delta if header.record_count else -1
    return FAULT_NONE if p == end else FAULT_TRAILING


cdef int check_whole(
    const uint8_t *p, int64_t available, int rules, BatchHeader *header, int64_t *number,
    int64_t *largest_timestamp,
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
    return check_records(p + HEADER_BYTES, header.size - HEADER_BYTES, header, rules, number,
                         largest_timestamp)
