# Batches from values, straight into memory that the caller owns: many in one go, or one by one.
#
# The bytes at dst are a whole batch once a function returned a size; until then everything up to
# dst + capacity may be written over. Values may change while they are read: the CRC is that of what
# was stored.
from cpython.object cimport PyObject
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

# What a batch is given beside its records.
ctypedef struct BatchSettings:
    int64_t base_offset  # >= 0; a producer leaves 0, the leader stamps it
    int64_t timestamp  # milliseconds, of every record that has none of its own
    int64_t producer_id  # these three -1 unless the producer is idempotent
    int32_t base_sequence
    int32_t leader_epoch  # -1: to be stamped
    int16_t producer_epoch
    int16_t attributes  # CONTROL, TRANSACTIONAL or 0
    bint kafka_raft  # refuse what Kafka's raft reader refuses (RULES_KAFKA_RAFT)

# 0, -1, -1, ... : a batch without producer, to be stamped, that takes any records.
cdef BatchSettings default_settings(int64_t timestamp) noexcept nogil

cdef enum EncodeFault:
    ENCODE_OK = 0
    ENCODE_OFFSETS = -1  # offsets of a column decrease or leave its data
    ENCODE_REFUSED = -2  # settings.kafka_raft does not take this record
    ENCODE_TIMESTAMP = -3  # timestamps of one batch too far apart
    ENCODE_HEADERS = -4  # a HeaderFault

# --- one by one ---

# A batch that is being built. Invariants: start + 61 <= summed <= at <= end; crc is that of the
# bytes from start + 61 to summed; count records lie before at.
ctypedef struct OpenBatch:
    uint8_t *start
    uint8_t *at
    uint8_t *end
    uint8_t *summed
    int64_t base_timestamp
    int64_t max_timestamp
    uint32_t crc
    int32_t count
    BatchSettings settings

# Begins a batch of at most `capacity` bytes at dst (never more than limits.BATCH_BYTES_MAX).
cdef void open_batch(OpenBatch *batch, uint8_t *dst, int64_t capacity,
                     const BatchSettings *settings) noexcept nogil

# Appends a record without key and headers; size -1 is a null value. 1: done; 0: no room, nothing
# changed; below 0: an EncodeFault, nothing changed.
cdef int append_value(OpenBatch *batch, const uint8_t *value, int64_t size) noexcept nogil

# The same with everything that a record may have; `headers` are encoded already, without the count.
cdef int append_record(OpenBatch *batch, int64_t timestamp, const uint8_t *key, int64_t key_size,
                       const uint8_t *value, int64_t value_size, const uint8_t *headers,
                       int64_t headers_size, int32_t header_count) noexcept nogil

# Writes header and CRC. The bytes of the batch, 0 if it holds no record.
cdef int64_t close_batch(OpenBatch *batch) noexcept nogil

# --- many in one go ---

cdef enum ColumnKind:
    COLUMN_FIXED = 0  # value i: value_size bytes at data + i * stride
    COLUMN_OFFSETS32 = 1  # value i: data + offsets[i] .. data + offsets[i + 1]
    COLUMN_OFFSETS64 = 2
    COLUMN_BYTES = 3  # value i: the bytes object items[i]

# A run of byte strings.
ctypedef struct Column:
    ColumnKind kind
    const uint8_t *data
    int64_t data_size  # bytes at data
    int64_t value_size
    int64_t stride
    const void *offsets  # count + 1 of them
    PyObject **items
    const uint8_t *valid  # a bit for each value, lowest first, 0 for null; NULL: none is null
    int64_t valid_first  # number of the bit of value 0
    int64_t count

cdef enum:
    OUTSIDE = -2  # a value does not lie in its column's data

# Size of value number `i` and where it is; -1 if it is null, OUTSIDE.
cdef int64_t value_at(const Column *column, int64_t i, const uint8_t **value) noexcept nogil

# Headers of records as Arrow keeps them: those of record i are items offsets[i] .. offsets[i + 1].
ctypedef struct HeaderColumn:
    const int32_t *offsets  # count + 1 of them
    const uint8_t *valid  # of the records' lists, as a Column's; null stands for no header
    int64_t valid_first
    const uint8_t *item_valid  # of the items
    int64_t item_valid_first
    Column keys
    Column values
    int64_t count

cdef enum HeaderFault:
    HEADERS_OUTSIDE = -1  # offsets decrease or leave the items, or a key or value its data
    HEADERS_TOO_MANY = -2  # HEADERS_PER_RECORD_MAX
    HEADERS_NO_KEY = -3  # one is null, or its key is

# Bytes that the headers of record `i` take, without their count, which goes to `count`; or a
# HeaderFault.
cdef int64_t headers_size(const HeaderColumn *column, int64_t i, int32_t *count) noexcept nogil

ctypedef struct Encoded:
    int64_t size  # bytes of the batch, 0 if not one record fitted
    int64_t records  # taken from the column
    int fault  # an EncodeFault at record number `records`; what came before is in the batch

# Appends record `i` of such columns, of which keys and headers may be NULL; as append_record.
cdef int append_from(OpenBatch *batch, int64_t timestamp, const Column *values, const Column *keys,
                     const HeaderColumn *headers, int64_t i) noexcept nogil

# As many values from number `first` on as fit into one batch of `capacity` bytes. keys, headers and
# timestamps (one a record) may be NULL.
cdef Encoded encode_columns(uint8_t *dst, int64_t capacity, const Column *values,
                            const Column *keys, const HeaderColumn *headers,
                            const int64_t *timestamps, int64_t first,
                            const BatchSettings *settings) noexcept nogil
