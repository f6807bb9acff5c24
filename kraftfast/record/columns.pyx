"""Many batches to columns: offsets, timestamps, keys and values laid out as Arrow lays them out.

Two passes: the headers say how many records and bytes there can be at most, and are bounded by the
bytes that are there; then every record is taken apart once and its value copied once.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

import numpy as np

from kraftfast.buffer cimport Hold, hold
from kraftfast.record.batch cimport BatchView, bounded_end, view_at
from kraftfast.record.judge cimport (
    KF_ATTRIBUTE_APPEND_TIME, KF_ATTRIBUTE_CODEC, KF_ATTRIBUTE_CONTROL, KF_BATCH_COUNT,
    KF_BATCH_CRC, KF_BATCH_HEADER, KF_BATCH_INCOMPLETE, KF_BATCH_OK, KF_BATCH_TRAILING,
    KF_RECORD_BYTES_MIN, kf_batch_crc_holds, kf_batch_header, kf_record, kf_record_next,
)

from kraftfast import errors
from kraftfast.record import shapes
from kraftfast.record.columnar import BytesColumn, Columns


cdef enum:
    BYTES_MAX = 1 << 30  # of keys and values in one go: 32-bit offsets hold twice as much
    GIL_BYTES = 1 << 18  # from here on others may run while records are taken apart


cdef class Parts:
    """The first pass: which batches, and how much they can hold at most."""

    def __dealloc__(self):
        free(self.parts)

    cdef int add(self, BatchView batch) except -1:
        cdef Part *part
        cdef Hold records
        if self.count == self.room:
            part = <Part *>realloc(self.parts, (2 * self.room + 16) * sizeof(Part))
            if part is NULL:
                raise MemoryError
            self.parts = part
            self.room = 2 * self.room + 16
        part = &self.parts[self.count]
        part.header = batch.header
        part.position = batch.position
        part.records = self.source.data + batch.position + KF_BATCH_HEADER
        part.size = batch.header.size - KF_BATCH_HEADER
        if batch.header.attributes & KF_ATTRIBUTE_CODEC:
            records = batch.decompressed()
            self.decompressed.append(records)
            part.records, part.size = records.data, records.size
        if part.header.record_count > part.size // KF_RECORD_BYTES_MIN:
            raise shapes.refusal(KF_BATCH_COUNT, batch.position)
        self.count += 1
        self.record_count += part.header.record_count
        self.byte_count += part.size
        return 0


cdef Parts find_parts(
    buffer, int64_t position, end, int64_t first_offset, int64_t records_max, int64_t bytes_max,
    bint control, bint partial, int64_t end_offset=INT64_MAX, bint verify_crc=True,
):
    """Return the batches of a buffer with records from ``first_offset`` to ``end_offset``."""
    cdef Parts parts = Parts.__new__(Parts)
    cdef BatchView batch
    cdef int fault
    cdef bint sound
    cdef int64_t stop
    parts.source = hold(buffer)
    parts.decompressed = []
    stop = bounded_end(parts.source, position, end)
    while position < stop and parts.record_count < records_max and parts.byte_count < bytes_max:
        batch = view_at(parts.source, position, stop, &fault)
        if partial and fault == KF_BATCH_INCOMPLETE:
            break
        if fault == KF_BATCH_OK and batch.header.base_offset >= end_offset:
            break
        sound = fault != KF_BATCH_OK or not verify_crc
        if not sound and not kf_batch_crc_holds(parts.source.data + position, &batch.header):
            fault = KF_BATCH_CRC
        if fault != KF_BATCH_OK:
            raise shapes.refusal(fault, position)
        position += batch.header.size
        if batch.header.attributes & KF_ATTRIBUTE_CONTROL and not control:
            continue
        if batch.header.base_offset + batch.header.last_offset_delta >= first_offset:
            parts.add(batch)
    parts.position = position
    return parts


cdef int next_record(
    const Part *part, const uint8_t **p, int64_t number, int32_t *last_delta, kf_record *record
) noexcept nogil:
    """Record ``number`` of a part; after its last one, whether anything is left over."""
    cdef const uint8_t *end = part.records + part.size
    cdef int fault = kf_record_next(p[0], end, &part.header, last_delta, record)
    if fault != KF_BATCH_OK:
        return fault
    p[0] = record.end
    if number == part.header.record_count - 1 and record.end != end:
        return KF_BATCH_TRAILING
    return KF_BATCH_OK


# --- the second pass, to columns ---


cdef struct Target:
    int64_t *offsets
    int64_t *timestamps
    int64_t count
    Bytes values
    Bytes keys


cdef void put(Bytes *column, int64_t i, const uint8_t *data, int32_t size) noexcept nogil:
    if size >= 0:
        memcpy(column.data + column.at, data, <size_t>size)
        column.at += size
        column.valid[i >> 3] |= <uint8_t>(1 << (i & 7))
    else:
        column.null_count += 1
    column.offsets[i + 1] = column.at


cdef int fill(
    const Part *part, Target *target, bint keys, int64_t first_offset, int64_t *number
) noexcept nogil:
    cdef kf_record record
    cdef const kf_batch_header *header = &part.header
    cdef const uint8_t *p = part.records
    cdef int64_t offset, i
    cdef int32_t last_delta = -1
    cdef int fault
    for number[0] in range(header.record_count):
        fault = next_record(part, &p, number[0], &last_delta, &record)
        if fault != KF_BATCH_OK:
            return fault
        offset = header.base_offset + record.offset_delta
        if offset < first_offset:
            continue
        i = target.count
        target.offsets[i] = offset
        target.timestamps[i] = (
            header.max_timestamp if header.attributes & KF_ATTRIBUTE_APPEND_TIME
            else header.base_timestamp + record.timestamp_delta
        )
        put(&target.values, i, record.value, record.value_size)
        if keys:
            put(&target.keys, i, record.key, record.key_size)
        target.count = i + 1
    return KF_BATCH_OK


cdef int fill_all(
    Parts parts, Target *target, bint keys, int64_t first_offset, int64_t *position,
    int64_t *number,
) noexcept nogil:
    cdef int64_t i
    cdef int fault
    for i in range(parts.count):
        position[0] = parts.parts[i].position
        fault = fill(&parts.parts[i], target, keys, first_offset, number)
        if fault != KF_BATCH_OK:
            return fault
    return KF_BATCH_OK


cdef class Arrays:
    """The numpy arrays behind a :class:`Bytes`, cut to length in the end."""

    cdef int allocate(self, int64_t count, int64_t size, Bytes *column) except -1:
        cdef Hold offsets, data, valid
        self.offsets = np.empty(count + 1, np.int32)
        self.offsets[0] = 0
        self.data = np.empty(size, np.uint8)
        self.valid = np.zeros((count + 7) // 8, np.uint8)
        offsets = hold(self.offsets, writable=True)
        data = hold(self.data, writable=True)
        valid = hold(self.valid, writable=True)
        self.holds = [offsets, data, valid]
        column.offsets = <int32_t *>offsets.data
        column.data = data.data
        column.valid = valid.data
        column.at = 0
        column.null_count = 0
        return 0

    cdef object cut(self, int64_t count, const Bytes *column):
        return BytesColumn(
            self.offsets[: count + 1],
            self.data[: column.at],
            self.valid[: (count + 7) // 8] if column.null_count else None,
            column.null_count,
        )


cdef int64_t bounded_bytes(bytes_max) except -1:
    cdef int64_t bound = BYTES_MAX if bytes_max is None else min(<int64_t>bytes_max, BYTES_MAX)
    if bound < 1:
        raise errors.InvalidOption(f"bytes_max={bytes_max}")
    return bound


def decode_columns(
    buffer, int64_t position=0, end=None, *, int64_t first_offset=0, records_max=None,
    bytes_max=None, bint keys=True, bint control=False, bint partial=False,
) -> Columns:
    """Return the records of the batches between two byte positions, as columns.

    Records below ``first_offset`` are left out, and control batches unless ``control``. Whole
    batches are taken until there are ``records_max`` records or ``bytes_max`` bytes of them
    (default and most: 1 GiB), so up to one batch more; ``position`` of the answer says where to
    go on. Every CRC is checked. ``partial`` as for :func:`kraftfast.record.batch.batches`.

    Raises :class:`~kraftfast.errors.CorruptBatch` or ``UnsupportedCodec``.

    >>> from kraftfast.record import pure
    >>> data = pure.encode_batch(pure.values_to_records([b"a", b"b"], timestamp=0))
    >>> found = decode_columns(data, first_offset=1)
    >>> found.offsets.tolist(), found.values.to_pylist()
    ([1], [b'b'])
    """
    cdef Parts parts = find_parts(
        buffer, position, end, first_offset, (1 << 62) if records_max is None else records_max,
        bounded_bytes(bytes_max), control, partial,
    )
    cdef Target target
    cdef Hold offsets_held, timestamps_held
    cdef Arrays values = Arrays.__new__(Arrays)
    cdef Arrays of_keys = Arrays.__new__(Arrays)
    cdef int64_t at = -1, number = -1
    cdef int fault
    offsets = np.empty(parts.record_count, np.int64)
    timestamps = np.empty(parts.record_count, np.int64)
    offsets_held = hold(offsets, writable=True)
    timestamps_held = hold(timestamps, writable=True)
    target.offsets = <int64_t *>offsets_held.data
    target.timestamps = <int64_t *>timestamps_held.data
    target.count = 0
    values.allocate(parts.record_count, parts.byte_count, &target.values)
    if keys:
        of_keys.allocate(parts.record_count, parts.byte_count, &target.keys)
    if parts.byte_count < GIL_BYTES:
        fault = fill_all(parts, &target, keys, first_offset, &at, &number)
    else:
        with nogil:
            fault = fill_all(parts, &target, keys, first_offset, &at, &number)
    if fault != KF_BATCH_OK:
        raise shapes.refusal(fault, at, number)
    return Columns(
        offsets[: target.count],
        timestamps[: target.count],
        of_keys.cut(target.count, &target.keys) if keys else None,
        values.cut(target.count, &target.values),
        parts.position,
    )


# --- the second pass, to Python objects ---


def decode_values(
    buffer, int64_t position=0, end=None, *, int64_t first_offset=0, records_max=None,
    bytes_max=None, bint control=False, bint partial=False,
) -> list[bytes | None]:
    """Return only the values of :func:`decode_columns`, as a list of bytes (``None`` for null)."""
    cdef Parts parts = find_parts(
        buffer, position, end, first_offset, (1 << 62) if records_max is None else records_max,
        bounded_bytes(bytes_max), control, partial,
    )
    cdef kf_record record
    cdef const uint8_t *p
    cdef Part *part
    cdef int64_t i, number
    cdef int32_t last_delta
    cdef int fault
    cdef list values = []
    for i in range(parts.count):
        part = &parts.parts[i]
        p = part.records
        last_delta = -1
        for number in range(part.header.record_count):
            fault = next_record(part, &p, number, &last_delta, &record)
            if fault != KF_BATCH_OK:
                raise shapes.refusal(fault, part.position, number)
            if part.header.base_offset + record.offset_delta < first_offset:
                continue
            values.append(
                None if record.value_size < 0
                else PyBytes_FromStringAndSize(<const char *>record.value, record.value_size)
            )
    return values
