"""Batches from values on raw pointers: whole columns in one go, or record by record.

A producer encodes straight into the ring or frame that leaves its process. The CRC runs over each
piece right after it was written, while it is in the first cache. ``builder`` has these for Python.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from kraftfast.record.judge cimport (
    KF_ATTRIBUTE_CONTROL, KF_BATCH_CRC_AT, KF_BATCH_HEADER, KF_RECORD_BYTES_MIN, kf_batch_header,
    kf_batch_write_header,
)
from kraftfast.record.checksum cimport crc_combine, crc_extend

from kraftfast import limits


cdef extern from "varint.h" nogil:
    size_t kf_varint_size(int32_t v)
    size_t kf_varlong_size(int64_t v)
    uint8_t *kf_varint_put(uint8_t *p, int32_t v)
    uint8_t *kf_varlong_put(uint8_t *p, int64_t v)
    int KF_VARINT_MAX
    void kf_store32(uint8_t *p, uint32_t v)


cdef extern from *:
    """
    /* Values of the usual sizes are copied in place: a call costs as much as the copy. */
    static inline void copy_value(uint8_t *dst, const uint8_t *src, size_t n) {
        if (n < 16 || n > 256) {
            memcpy(dst, src, n);
            return;
        }
        for (size_t i = 0; i + 16 < n; i += 16) memcpy(dst + i, src + i, 16);
        memcpy(dst + n - 16, src + n - 16, 16);
    }
    #define ITEM_IS_NONE(items, i) ((items)[i] == Py_None)
    """
    void copy_value(uint8_t *dst, const uint8_t *src, size_t n) nogil
    bint ITEM_IS_NONE(PyObject **items, int64_t i) nogil


cdef extern from "Python.h" nogil:
    # On bytes objects that the caller keeps alive: they never change, so the GIL is not needed.
    char *PyBytes_AS_STRING(PyObject *o)
    Py_ssize_t PyBytes_GET_SIZE(PyObject *o)


cdef int64_t BATCH_BYTES_MAX = limits.BATCH_BYTES_MAX
cdef int64_t HEADERS_MAX = limits.HEADERS_PER_RECORD_MAX

cdef enum:
    SUM_BYTES = 16384  # summed at a time: a third of a first cache
    PREFIX_BYTES = 16  # at least what stands before a value: 4 + 1 + 1 + 4 + 1 + 4

assert limits.BATCH_BYTES_MAX < 1 << 26, "a length takes four bytes at most, an offset delta too"
assert limits.BATCH_BYTES_MAX // KF_RECORD_BYTES_MIN <= limits.RECORDS_PER_BATCH_MAX


cdef BatchSettings default_settings(int64_t timestamp) noexcept nogil:
    cdef BatchSettings settings
    settings.base_offset = 0
    settings.timestamp = timestamp
    settings.producer_id = settings.base_sequence = settings.producer_epoch = -1
    settings.leader_epoch = -1
    settings.attributes = 0
    settings.kafka_raft = False
    return settings


# --- one by one ---


cdef void open_batch(
    OpenBatch *batch, uint8_t *dst, int64_t capacity, const BatchSettings *settings
) noexcept nogil:
    batch.start = dst
    batch.end = dst + min(capacity, BATCH_BYTES_MAX)
    batch.at = batch.summed = dst + min(capacity, <int64_t>KF_BATCH_HEADER)
    batch.crc = 0
    batch.count = 0
    batch.settings = settings[0]
    batch.base_timestamp = batch.max_timestamp = settings.timestamp


cdef inline void sum_piece(OpenBatch *batch) noexcept nogil:
    batch.crc = crc_extend(batch.crc, batch.summed, <size_t>(batch.at - batch.summed))
    batch.summed = batch.at


cdef int append_value(OpenBatch *batch, const uint8_t *value, int64_t size) noexcept nogil:
    cdef int64_t length, room = batch.end - batch.at
    cdef uint8_t *p = batch.at
    if batch.settings.kafka_raft and (
        size <= 0 or batch.settings.attributes & KF_ATTRIBUTE_CONTROL
    ):
        return ENCODE_REFUSED
    if batch.base_timestamp != batch.settings.timestamp or size < 0:
        return append_record(batch, batch.settings.timestamp, NULL, -1, value, size, NULL, 0, 0)
    if size > room:
        return 0
    # attributes, timestamp delta 0, offset delta, null key, value and its size, no headers
    length = 4 + kf_varint_size(batch.count) + kf_varint_size(<int32_t>size) + size
    if length + <int64_t>kf_varint_size(<int32_t>length) > room:
        return 0
    p = kf_varint_put(p, <int32_t>length)
    p[0] = p[1] = 0
    p = kf_varint_put(p + 2, batch.count)
    p[0] = 1
    p = kf_varint_put(p + 1, <int32_t>size)
    copy_value(p, value, <size_t>size)
    p[size] = 0
    batch.at = p + size + 1
    batch.count += 1
    if batch.at - batch.summed >= SUM_BYTES:
        sum_piece(batch)
    return 1


cdef inline int64_t bytes_size(int64_t size) noexcept nogil:
    """Return the bytes that a key or value of this size takes, its own size included; -1: null."""
    return <int64_t>kf_varint_size(<int32_t>size) + max(size, 0)


cdef inline uint8_t *put_bytes(uint8_t *p, const uint8_t *data, int64_t size) noexcept nogil:
    p = kf_varint_put(p, <int32_t>size)
    if size > 0:
        copy_value(p, data, <size_t>size)
        p += size
    return p


cdef int append_record(
    OpenBatch *batch, int64_t timestamp, const uint8_t *key, int64_t key_size,
    const uint8_t *value, int64_t value_size, const uint8_t *headers, int64_t headers_size,
    int32_t header_count,
) noexcept nogil:
    cdef uint8_t *p = NULL
    cdef int put = begin_record(
        batch, timestamp, key, key_size, value, value_size, headers_size, header_count, &p)
    if put == 1:
        if headers_size:
            memcpy(p, headers, <size_t>headers_size)
        end_record(batch, timestamp, p + headers_size)
    return put


cdef inline void end_record(OpenBatch *batch, int64_t timestamp, uint8_t *end) noexcept nogil:
    """Record that all of a record stands below ``end``."""
    batch.at = end
    if batch.count == 0:
        batch.base_timestamp = batch.max_timestamp = timestamp
    batch.max_timestamp = max(batch.max_timestamp, timestamp)
    batch.count += 1
    if batch.at - batch.summed >= SUM_BYTES:
        sum_piece(batch)


cdef int begin_record(
    OpenBatch *batch, int64_t timestamp, const uint8_t *key, int64_t key_size,
    const uint8_t *value, int64_t value_size, int64_t headers_size, int32_t header_count,
    uint8_t **headers_at,
) noexcept nogil:
    """Put what stands before the headers, for which there is room then; as ``append_record``."""
    cdef int64_t length, delta, room = batch.end - batch.at
    cdef int64_t base = timestamp if batch.count == 0 else batch.base_timestamp
    cdef uint8_t *p = batch.at
    if batch.settings.kafka_raft and (
        timestamp != base or header_count or value_size <= 0
        or (key_size < 0 if batch.settings.attributes & KF_ATTRIBUTE_CONTROL else key_size >= 0)
    ):
        return ENCODE_REFUSED
    delta = <int64_t>(<uint64_t>timestamp - <uint64_t>base)
    if (delta > 0) != (timestamp > base):  # it wrapped around
        return ENCODE_TIMESTAMP
    if key_size > room or value_size > room or headers_size > room:
        return 0
    length = 1 + kf_varlong_size(delta) + kf_varint_size(batch.count)
    length += bytes_size(key_size) + bytes_size(value_size)
    length += kf_varint_size(header_count) + headers_size
    if length + KF_VARINT_MAX > room and (
        length > room or length + <int64_t>kf_varint_size(<int32_t>length) > room
    ):
        return 0
    p = kf_varint_put(p, <int32_t>length)
    p[0] = 0
    p = kf_varlong_put(p + 1, delta)
    p = kf_varint_put(p, batch.count)
    p = put_bytes(p, key, key_size)
    p = put_bytes(p, value, value_size)
    headers_at[0] = kf_varint_put(p, header_count)
    return 1


cdef void put_header(
    uint8_t *dst, int64_t size, int64_t count, int64_t base_timestamp, int64_t max_timestamp,
    const BatchSettings *settings,
) noexcept nogil:
    """Put everything but the CRC."""
    cdef kf_batch_header header
    header.base_offset = settings.base_offset
    header.size = <uint32_t>size
    header.leader_epoch = settings.leader_epoch
    header.crc = 0
    header.attributes = settings.attributes
    header.last_offset_delta = <int32_t>(count - 1)
    header.base_timestamp = base_timestamp
    header.max_timestamp = max_timestamp
    header.producer_id = settings.producer_id
    header.producer_epoch = settings.producer_epoch
    header.base_sequence = settings.base_sequence
    header.record_count = <int32_t>count
    kf_batch_write_header(dst, &header)


cdef inline void put_crc(uint8_t *dst, uint32_t crc) noexcept nogil:
    kf_store32(dst + 17, crc)


cdef int64_t close_batch(OpenBatch *batch) noexcept nogil:
    cdef int64_t size = batch.at - batch.start
    cdef uint32_t crc
    if batch.count == 0:
        return 0
    sum_piece(batch)
    put_header(
        batch.start, size, batch.count, batch.base_timestamp, batch.max_timestamp, &batch.settings
    )
    crc = crc_extend(0, batch.start + KF_BATCH_CRC_AT, KF_BATCH_HEADER - KF_BATCH_CRC_AT)
    put_crc(batch.start, crc_combine(crc, batch.crc, <size_t>(size - KF_BATCH_HEADER)))
    return size


# --- many in one go: values of one size, the quickest way ---


cdef int64_t count_fixed(int64_t size, int64_t left, int64_t *room, int delta_bytes) noexcept nogil:
    """Take the room for as many records as fit whose offset delta takes this many bytes."""
    cdef int64_t length = 4 + delta_bytes + <int64_t>kf_varint_size(<int32_t>size) + size
    cdef int64_t record = <int64_t>kf_varint_size(<int32_t>length) + length
    cdef int64_t deltas = <int64_t>1 << (7 * delta_bytes - 1)  # zig-zag: half of them
    if delta_bytes > 1:
        deltas -= <int64_t>1 << (7 * delta_bytes - 8)
    deltas = min(min(deltas, left), room[0] // record)
    room[0] -= deltas * record
    return deltas


cdef inline uint32_t delta_word(uint32_t delta) noexcept nogil:
    """Return the zig-zag varint of a delta, but for the continuation bits, lowest byte first."""
    cdef uint32_t v = delta << 1
    return (v & 0x7F) | (v & 0x3F80) << 1 | (v & 0x1FC000) << 2 | (v & 0xFE00000) << 3


cdef uint8_t *put_fixed(
    uint8_t *p, const uint8_t *end, const Column *values, int64_t first, int64_t count,
    uint32_t delta, int delta_bytes, uint32_t *crc,
) noexcept nogil:
    """Put records whose offset deltas, from ``delta`` on, take ``delta_bytes``; crc goes along."""
    cdef uint8_t prefix[PREFIX_BYTES]
    cdef uint8_t *summed = p
    cdef int64_t size = values.value_size
    cdef int64_t length = 4 + delta_bytes + <int64_t>kf_varint_size(<int32_t>size) + size
    cdef const uint8_t *value = values.data + first * values.stride
    cdef uint8_t *q = kf_varint_put(prefix, <int32_t>length)
    cdef int64_t delta_at = q + 2 - prefix
    cdef uint32_t word, around
    cdef int64_t prefix_size, i
    # All is the same in every record but the delta: its word is or-ed into the four bytes there.
    memset(q, 0, <size_t>(PREFIX_BYTES - (q - prefix)))
    for i in range(delta_bytes - 1):
        prefix[delta_at + i] = 0x80
    prefix[delta_at + delta_bytes] = 1  # null key
    q = kf_varint_put(prefix + delta_at + delta_bytes + 1, <int32_t>size)
    prefix_size = q - prefix
    memcpy(&around, prefix + delta_at, 4)
    for i in range(count):
        word = around | delta_word(delta + <uint32_t>i)
        if end - p >= PREFIX_BYTES:
            memcpy(p, prefix, PREFIX_BYTES)
            memcpy(p + delta_at, &word, 4)
        else:
            memcpy(prefix + delta_at, &word, 4)
            memcpy(p, prefix, <size_t>prefix_size)
        p += prefix_size
        copy_value(p, value, <size_t>size)
        p[size] = 0
        p += size + 1
        value += values.stride
        if p - summed >= SUM_BYTES:
            crc[0] = crc_extend(crc[0], summed, <size_t>(p - summed))
            summed = p
    crc[0] = crc_extend(crc[0], summed, <size_t>(p - summed))
    return p


cdef Encoded encode_fixed(
    uint8_t *dst, int64_t capacity, const Column *values, int64_t first,
    const BatchSettings *settings,
) noexcept nogil:
    cdef Encoded done
    cdef int64_t counts[5]
    cdef int64_t room = min(capacity, BATCH_BYTES_MAX) - KF_BATCH_HEADER
    cdef int64_t left = values.count - first
    cdef uint8_t *p = dst + KF_BATCH_HEADER
    cdef uint32_t crc
    cdef int delta_bytes
    done.size = done.records = 0
    done.fault = ENCODE_REFUSED if settings.kafka_raft and values.value_size == 0 else ENCODE_OK
    if done.fault != ENCODE_OK or room < 0:
        return done
    for delta_bytes in range(1, 5):
        # Where one class left no room for one more, the next, whose records are longer, finds none.
        counts[delta_bytes] = count_fixed(
            values.value_size, left - done.records, &room, delta_bytes
        )
        done.records += counts[delta_bytes]
    if done.records == 0:
        return done
    done.size = min(capacity, BATCH_BYTES_MAX) - room
    put_header(dst, done.size, done.records, settings.timestamp, settings.timestamp, settings)
    crc = crc_extend(0, dst + KF_BATCH_CRC_AT, KF_BATCH_HEADER - KF_BATCH_CRC_AT)
    left = 0
    for delta_bytes in range(1, 5):
        p = put_fixed(
            p, dst + done.size, values, first + left, counts[delta_bytes], <uint32_t>left,
            delta_bytes, &crc,
        )
        left += counts[delta_bytes]
    put_crc(dst, crc)
    return done


# --- many in one go: any columns ---


cdef inline bint is_valid(const uint8_t *valid, int64_t bit) noexcept nogil:
    return valid is NULL or valid[bit >> 3] >> (bit & 7) & 1


cdef int64_t value_at(const Column *column, int64_t i, const uint8_t **value) noexcept nogil:
    """See encode.pxd."""
    cdef int64_t begin, end
    if not is_valid(column.valid, column.valid_first + i):
        return -1
    if column.kind == COLUMN_BYTES:
        if ITEM_IS_NONE(column.items, i):
            return -1
        value[0] = <const uint8_t *>PyBytes_AS_STRING(column.items[i])
        return PyBytes_GET_SIZE(column.items[i])
    if column.kind == COLUMN_FIXED:
        value[0] = column.data + i * column.stride
        return column.value_size
    if column.kind == COLUMN_OFFSETS32:
        begin = (<const int32_t *>column.offsets)[i]
        end = (<const int32_t *>column.offsets)[i + 1]
    else:
        begin = (<const int64_t *>column.offsets)[i]
        end = (<const int64_t *>column.offsets)[i + 1]
    if begin < 0 or end < begin or end > column.data_size:
        return OUTSIDE
    value[0] = column.data + begin
    return end - begin


cdef int64_t headers_size(const HeaderColumn *column, int64_t i, int32_t *count) noexcept nogil:
    """See encode.pxd."""
    cdef const uint8_t *data = NULL
    cdef int64_t begin = column.offsets[i], end = column.offsets[i + 1]
    cdef int64_t item, key_size, value_size, size = 0
    count[0] = 0
    if not is_valid(column.valid, column.valid_first + i):
        return 0
    if begin < 0 or end < begin or end > column.keys.count or end > column.values.count:
        return HEADERS_OUTSIDE
    if end - begin > HEADERS_MAX:
        return HEADERS_TOO_MANY
    for item in range(begin, end):
        if not is_valid(column.item_valid, column.item_valid_first + item):
            return HEADERS_NO_KEY
        key_size = value_at(&column.keys, item, &data)
        value_size = value_at(&column.values, item, &data)
        if key_size == OUTSIDE or value_size == OUTSIDE:
            return HEADERS_OUTSIDE
        if key_size < 0:
            return HEADERS_NO_KEY
        size += bytes_size(key_size) + bytes_size(value_size)
    count[0] = <int32_t>(end - begin)
    return size


cdef uint8_t *put_headers(
    uint8_t *p, const uint8_t *stop, const HeaderColumn *column, int64_t i, int32_t count
) noexcept nogil:
    """Put ``count`` headers of record ``i``; NULL if they no longer end at ``stop``."""
    cdef const Column *part = NULL
    cdef const uint8_t *data = NULL
    cdef int64_t size, item = column.offsets[i], last = item + count
    cdef int which
    if item < 0 or last > column.keys.count or last > column.values.count:
        return NULL
    while item < last:
        for which in range(2):
            part = &column.values if which else &column.keys
            size = value_at(part, item, &data)
            if size < -1 or bytes_size(size) > stop - p:
                return NULL
            p = put_bytes(p, data, size)
        item += 1
    return p if p == stop else NULL


cdef int append_from(
    OpenBatch *batch, int64_t timestamp, const Column *values, const Column *keys,
    const HeaderColumn *headers, int64_t i,
) noexcept nogil:
    """Append record ``i`` of columns; as ``append_record``."""
    cdef const uint8_t *value = NULL
    cdef const uint8_t *key = NULL
    cdef uint8_t *p = NULL
    cdef int64_t key_size = -1, size = value_at(values, i, &value), header_bytes = 0
    cdef int32_t count = 0
    cdef int put
    if keys is not NULL:
        key_size = value_at(keys, i, &key)
    if size < -1 or key_size < -1:
        return ENCODE_OFFSETS
    if headers is not NULL:
        header_bytes = headers_size(headers, i, &count)
        if header_bytes < 0:
            return ENCODE_HEADERS
    put = begin_record(
        batch, timestamp, key, key_size, value, size, header_bytes, count, &p)
    if put == 1 and count:
        p = put_headers(p, p + header_bytes, headers, i, count)
        if p is NULL:  # they were changed meanwhile
            return ENCODE_HEADERS
    if put == 1:
        end_record(batch, timestamp, p)
    return put


cdef Encoded encode_columns(
    uint8_t *dst, int64_t capacity, const Column *values, const Column *keys,
    const HeaderColumn *headers, const int64_t *timestamps, int64_t first,
    const BatchSettings *settings,
) noexcept nogil:
    cdef OpenBatch batch
    cdef Encoded done
    cdef const uint8_t *value = NULL
    cdef int64_t size, i, stop = values.count
    cdef bint alone = keys is NULL and headers is NULL and timestamps is NULL
    cdef int put = 1
    if alone and values.kind == COLUMN_FIXED and values.valid is NULL:
        return encode_fixed(dst, capacity, values, first, settings)
    if keys is not NULL:
        stop = min(stop, keys.count)
    if headers is not NULL:
        stop = min(stop, headers.count)
    open_batch(&batch, dst, capacity, settings)
    for i in range(first, stop):
        if alone:
            size = value_at(values, i, &value)
            put = ENCODE_OFFSETS if size < -1 else append_value(&batch, value, size)
        else:
            put = append_from(
                &batch, settings.timestamp if timestamps is NULL else timestamps[i],
                values, keys, headers, i,
            )
        if put != 1:
            break
    done.records = batch.count
    done.size = close_batch(&batch)
    done.fault = min(put, 0)
    return done
