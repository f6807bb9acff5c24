"""A digest of many records that does not depend on their order: whether two runs had the same."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from kraftfast.record.builder cimport Values
from kraftfast.record.encode cimport Column, HeaderColumn, headers_size, value_at

cdef uint64_t FACTOR = 0x9E3779B97F4A7C15
cdef uint64_t SEED_1 = 0x243F6A8885A308D3
cdef uint64_t SEED_2 = 0x13198A2E03707344
NO_RECORDS = (0, 0)


cdef inline uint64_t mix(uint64_t hashed, uint64_t word) noexcept nogil:
    hashed = (hashed ^ word) * FACTOR
    return hashed ^ (hashed >> 29)


cdef uint64_t mix_bytes(uint64_t hashed, const uint8_t *data, int64_t size) noexcept nogil:
    """Take in a size, -1 for null, and so many bytes."""
    cdef uint64_t word = 0
    hashed = mix(hashed, <uint64_t>(size + 2))
    while size >= 8:
        memcpy(&word, data, 8)
        hashed, data, size = mix(hashed, word), data + 8, size - 8
    if size > 0:
        word = 0
        memcpy(&word, data, <size_t>size)
        hashed = mix(hashed, word)
    return hashed


cdef uint64_t record_hash(uint64_t hashed, const Column *values, const Column *keys,
                          const HeaderColumn *headers, int64_t i) noexcept nogil:
    cdef const uint8_t *data = NULL
    cdef int64_t size = value_at(values, i, &data), item
    cdef int32_t count = 0
    hashed = mix_bytes(hashed, data, size)
    size = -1 if keys is NULL else value_at(keys, i, &data)
    hashed = mix_bytes(hashed, data, size)
    if headers is not NULL and headers_size(headers, i, &count) < 0:
        count = 0
    for item in range(count):
        size = value_at(&headers.keys, headers.offsets[i] + item, &data)
        hashed = mix_bytes(hashed, data, size)
        size = value_at(&headers.values, headers.offsets[i] + item, &data)
        hashed = mix_bytes(hashed, data, size)
    return mix(hashed, FACTOR)


def add_digest(tuple digest not None, Values values not None) -> tuple:
    """Take some records into a digest: two sums of their hashes, modulo 2^64.

    The records must have passed ``check_values``.
    """
    cdef uint64_t first = digest[0], second = digest[1]
    cdef int64_t i
    with nogil:
        for i in range(values.column.count):
            first += record_hash(SEED_1, &values.column, values.keys, values.headers, i)
            second += record_hash(SEED_2, &values.column, values.keys, values.headers, i)
    return first, second
