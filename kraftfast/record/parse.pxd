# Record batch v2 on raw pointers, for other compiled modules: headers, records, the deep check.
#
# Nothing here trusts a length: each function is told how many bytes there are and stays within.
# A "fault" is 0 or one of BatchFault; shapes.refusal() turns it into an exception.
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

cdef enum:
    HEADER_BYTES = 61  # of a batch
    CRC_FROM = 21  # the CRC covers the batch from here to its end
    RECORD_BYTES_MIN = 7  # of a record: length, five fields of one byte, header count

# The numbers of shapes.Fault.
cdef enum BatchFault:
    FAULT_NONE = 0
    FAULT_SHORT = 1
    FAULT_LENGTH = 2
    FAULT_MAGIC = 3
    FAULT_ATTRIBUTES = 4
    FAULT_COUNT = 5
    FAULT_OFFSETS = 6
    FAULT_EPOCH = 7
    FAULT_TRUNCATED = 8
    FAULT_CRC = 9
    FAULT_RECORD_LENGTH = 10
    FAULT_RECORD_FIELD = 11
    FAULT_RECORD_SIZE = 12
    FAULT_RECORD_HEADERS = 13
    FAULT_RECORD_OFFSET = 14
    FAULT_RECORD_TIMESTAMP = 15
    FAULT_CONTROL_KEY = 16
    FAULT_TRAILING = 17
    FAULT_COMPRESSED = 18
    FAULT_HAS_TIMESTAMP_DELTA = 19
    FAULT_HAS_HEADERS = 20
    FAULT_HAS_KEY = 21
    FAULT_NO_VALUE = 22
    FAULT_CONTROL_EMPTY = 23
    FAULT_CONTROL_UNKNOWN = 24
    FAULT_CONTROL_BATCH = 25

# What a check demands beyond a sound batch; may be or-ed.
cdef enum BatchRules:
    RULES_ANY = 0
    RULES_KAFKA_RAFT = 1  # only what Kafka's own raft reader takes
    RULES_NO_CONTROL = 2  # from a producer: no control batch

# The bits of BatchHeader.attributes.
cdef enum:
    CODEC_MASK = 0x07
    LOG_APPEND_TIME = 0x08
    TRANSACTIONAL = 0x10
    CONTROL = 0x20
    ATTRIBUTES_KNOWN = 0x7F

# The 61 bytes in front of the records, in native byte order. After parse_header() returned 0:
# 61 <= size <= limits.BATCH_BYTES_MAX, 0 <= record_count <= last_offset_delta + 1,
# 0 <= base_offset <= base_offset + last_offset_delta, leader_epoch >= -1, a known codec.
ctypedef struct BatchHeader:
    int64_t base_offset
    int64_t size  # of the whole batch in bytes: the length on disk counts 12 less
    int32_t leader_epoch  # -1: not stamped yet
    uint32_t crc  # of bytes 21 .. size
    int16_t attributes
    int32_t last_offset_delta
    int64_t base_timestamp  # milliseconds
    int64_t max_timestamp
    int64_t producer_id  # these three -1 if the producer is not idempotent
    int16_t producer_epoch
    int32_t base_sequence
    int32_t record_count

# One record; the pointers are into the bytes that were parsed.
ctypedef struct RecordFields:
    int64_t timestamp_delta
    int32_t offset_delta
    int32_t key_size  # -1: null
    int32_t value_size  # -1: null
    int32_t header_count
    const uint8_t *key
    const uint8_t *value
    const uint8_t *headers  # the first header; all of them lie within bounds
    const uint8_t *end  # the first byte behind the record

# Reads exactly the 61 bytes at p (none if available < 61) and bounds every field. The batch may
# take up to `available` bytes from p, of which only the header need be readable: copy the header
# into private memory, parse that, then trust header.size (D20). FAULT_TRUNCATED means that all
# else is well.
cdef int parse_header(const uint8_t *p, int64_t available, BatchHeader *header) noexcept nogil

# The 61 bytes of header to p, CRC included as it stands in the struct.
cdef void write_header(uint8_t *p, const BatchHeader *header) noexcept nogil

# Base offset and leader epoch of the batch at p; both lie outside its CRC.
cdef void stamp_header(uint8_t *p, int64_t base_offset, int32_t leader_epoch) noexcept nogil

# Whether the CRC of the whole batch at p (header.size bytes) is the one in its header.
cdef bint crc_holds(const uint8_t *p, const BatchHeader *header) noexcept nogil

# The record that begins at p and ends at or before end: a fault, or 0 and record filled in.
cdef int parse_record(const uint8_t *p, const uint8_t *end, RecordFields *record) noexcept nogil

# A size and that many bytes (size -1: null, none) at p: where the bytes begin, or NULL and *fault.
cdef const uint8_t *parse_bytes(const uint8_t *p, const uint8_t *end, int32_t *size,
                                int *fault) noexcept nogil

# Whether base timestamp + delta is an int64.
cdef bint timestamp_fits(const BatchHeader *header, int64_t delta) noexcept nogil

# The records (decompressed, if the batch is compressed) one by one: framing, offsets 0 .. n-1 with
# last_offset_delta = n-1, and what the rules demand. At a fault *record is the number of the
# record, -1 if it is not one record's. Without one *largest_timestamp is that of the records.
cdef int check_records(const uint8_t *p, int64_t size, const BatchHeader *header, int rules,
                       int64_t *record, int64_t *largest_timestamp) noexcept nogil

# Header, CRC and, unless it is compressed, the records of the batch at p, as above. header is
# filled in whenever the fault is FAULT_CRC or later. The bytes may not change meanwhile.
cdef int check_whole(const uint8_t *p, int64_t available, int rules, BatchHeader *header,
                     int64_t *record, int64_t *largest_timestamp) noexcept nogil
