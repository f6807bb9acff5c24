"""Many batches to whole rows: every field of a record and of its batch, laid out as Arrow does.

What a record has of its own is taken apart here; what it shares with its batch is repeated by
numpy. Headers, which few records have, cost a pass of their own where there are any.
"""

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t

import numpy as np

from kraftfast.buffer cimport Hold, hold
from kraftfast.record.columns cimport (
    Arrays, Bytes, Part, Parts, bounded_bytes, find_parts, next_record, put,
)
from kraftfast.record.judge cimport (
    KF_ATTRIBUTE_APPEND_TIME, KF_BATCH_OK, KF_RECORD_HEADERS, kf_bytes_end, kf_bytes_get, kf_record,
)

from kraftfast.record import shapes
from kraftfast.record.columnar import SHARED, Rows


cdef struct Target:
    int64_t *offsets
    int64_t *timestamps
    int64_t *header_ends  # of each row, among all headers
    int64_t count
    int64_t header_count
    int64_t first_offset
    int64_t end_offset
    bint contents
    Bytes keys
    Bytes values


cdef int fill(const Part *part, Target *target, int64_t *number) noexcept nogil:
    cdef kf_record record
    cdef const uint8_t *p = part.records
    cdef int64_t offset, i
    cdef int32_t last_delta = -1
    cdef int fault
    for number[0] in range(part.header.record_count):
        fault = next_record(part, &p, number[0], &last_delta, &record)
        if fault != KF_BATCH_OK:
            return fault
        offset = part.header.base_offset + record.offset_delta
        if offset < target.first_offset or offset >= target.end_offset:
            continue
        i = target.count
        target.offsets[i] = offset
        target.timestamps[i] = (
            part.header.max_timestamp if part.header.attributes & KF_ATTRIBUTE_APPEND_TIME
            else part.header.base_timestamp + record.timestamp_delta
        )
        if target.contents:
            put(&target.keys, i, record.key, record.key_size)
            put(&target.values, i, record.value, record.value_size)
            target.header_count += record.header_count
            target.header_ends[i] = target.header_count
        target.count = i + 1
    return KF_BATCH_OK


cdef int fill_headers(
    const Part *part, int64_t first_offset, int64_t end_offset, int64_t count, Bytes *keys,
    Bytes *values, int64_t *at,
) noexcept nogil:
    """Store the headers of a part, ``count`` of all parts at most.

    The bytes may have changed since they were counted: every size is judged again, and what a part
    holds never outgrows its bytes, since no two fields of it overlap.
    """
    cdef kf_record record
    cdef const uint8_t *p = part.records
    cdef const uint8_t *q
    cdef int64_t offset, number
    cdef int32_t _, size, last_delta = -1
    cdef int fault = KF_BATCH_OK
    for number in range(part.header.record_count):
        fault = next_record(part, &p, number, &last_delta, &record)
        if fault != KF_BATCH_OK:
            return fault
        offset = part.header.base_offset + record.offset_delta
        if offset < first_offset or offset >= end_offset:
            continue
        q = record.headers
        if record.header_count > count - at[0]:
            return KF_RECORD_HEADERS
        for _ in range(record.header_count):
            q = kf_bytes_get(q, record.end, &size, &fault)
            if q is NULL or size < 0:
                return KF_RECORD_HEADERS
            put(keys, at[0], q, size)
            q = kf_bytes_get(q + size, record.end, &size, &fault)
            if q is NULL:
                return KF_RECORD_HEADERS
            put(values, at[0], q, size)
            q = kf_bytes_end(q, size)
            at[0] += 1
    return KF_BATCH_OK


cdef object header_columns(Parts parts, int64_t count, int64_t first_offset, int64_t end_offset):
    """Return (keys, values) of all headers."""
    cdef Arrays keys = Arrays.__new__(Arrays)
    cdef Arrays values = Arrays.__new__(Arrays)
    cdef Bytes of_keys, of_values
    cdef int64_t i, at = 0
    keys.allocate(count, parts.byte_count, &of_keys)
    values.allocate(count, parts.byte_count, &of_values)
    for i in range(parts.count):
        fault = fill_headers(
            &parts.parts[i], first_offset, end_offset, count, &of_keys, &of_values, &at
        )
        if fault == KF_BATCH_OK and i == parts.count - 1 and at != count:
            fault = KF_RECORD_HEADERS
        if fault != KF_BATCH_OK:  # D20: another process changed them since the first pass
            raise shapes.refusal(fault, parts.parts[i].position)
    return keys.cut(count, &of_keys), values.cut(count, &of_values)


def decode_rows(
    buffer, int64_t position=0, end=None, *, int64_t first_offset=0,
    int64_t end_offset=INT64_MAX, records_max=None, bytes_max=None, bint contents=True,
    bint control=False, bint verify_crc=True,
) -> Rows:
    """Return the records of the batches between two byte positions, as rows.

    Records from ``first_offset`` on and below ``end_offset``, without those of control batches
    unless ``control``; without keys, values and headers unless ``contents``. Whole batches are
    taken until there are ``records_max`` records or ``bytes_max`` bytes of them (default and most:
    1 GiB), so up to one batch more; ``position`` of the answer says where to go on.

    Raises :class:`~kraftfast.errors.CorruptBatch` or ``UnsupportedCodec``.

    >>> from kraftfast.record import pure
    >>> data = pure.encode_batch(pure.values_to_records([b"a", b"b"], timestamp=0), leader_epoch=7)
    >>> found = decode_rows(data, first_offset=1)
    >>> found.offsets.tolist(), found.values.to_pylist(), found.spread("epoch").tolist()
    ([1], [b'b'], [7])
    """
    cdef Parts parts = find_parts(
        buffer, position, end, first_offset, (1 << 62) if records_max is None else records_max,
        bounded_bytes(bytes_max), control, False, end_offset, verify_crc,
    )
    cdef Target target
    cdef list holds
    cdef Arrays keys = Arrays.__new__(Arrays)
    cdef Arrays values = Arrays.__new__(Arrays)
    cdef int64_t number = -1, i, before
    cdef int fault = KF_BATCH_OK
    shared = np.empty(parts.count, SHARED)
    arrays = [np.empty(parts.record_count, np.int64) for _ in range(3 if contents else 2)]
    holds = [hold(each, writable=True) for each in arrays]
    target.offsets = <int64_t *>(<Hold>holds[0]).data
    target.timestamps = <int64_t *>(<Hold>holds[1]).data
    target.count = target.header_count = 0
    target.first_offset, target.end_offset = first_offset, end_offset
    target.contents = contents
    if contents:
        target.header_ends = <int64_t *>(<Hold>holds[2]).data
        keys.allocate(parts.record_count, parts.byte_count, &target.keys)
        values.allocate(parts.record_count, parts.byte_count, &target.values)
    for i in range(parts.count):
        before = target.count
        with nogil:
            fault = fill(&parts.parts[i], &target, &number)
        if fault != KF_BATCH_OK:
            raise shapes.refusal(fault, parts.parts[i].position, number)
        header = &parts.parts[i].header
        shared[i] = (
            header.base_offset, header.producer_id, header.leader_epoch, header.base_sequence,
            header.producer_epoch, header.attributes, target.count - before,
        )
    made = Rows(
        arrays[0][: target.count], arrays[1][: target.count], shared, parts.position,
        keys.cut(target.count, &target.keys) if contents else None,
        values.cut(target.count, &target.values) if contents else None,
    )
    if contents and target.header_count:
        made.header_ends = arrays[2][: target.count]
        made.header_keys, made.header_values = header_columns(
            parts, target.header_count, first_offset, end_offset
        )
    return made
