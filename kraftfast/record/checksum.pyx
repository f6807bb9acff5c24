"""CRC-32C (Castagnoli), the checksum of record batches, by the kernels of cext/crc32c.c."""

from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer,
)
from libc.stdint cimport uint32_t, uint8_t

from kraftfast import errors


cdef extern from "crc32c.h" nogil:
    uint32_t kf_crc32c(uint32_t crc, const void *p, size_t n)
    uint32_t kf_crc32c_copy(uint32_t crc, void *dst, const void *src, size_t n)
    uint32_t kf_crc32c_combine(uint32_t crc_a, uint32_t crc_b, size_t n_b)

    ctypedef struct kf_crc32c_variant:
        const char *name
        uint32_t (*crc)(uint32_t crc, const void *p, size_t n) noexcept nogil
        uint32_t (*copy)(uint32_t crc, void *dst, const void *src, size_t n) noexcept nogil
        uint32_t (*combine)(uint32_t crc_a, uint32_t crc_b, size_t n_b) noexcept nogil

    const kf_crc32c_variant *kf_crc32c_variants(size_t i)


cdef enum:
    GIL_BYTES = 65536  # from here on others may run meanwhile; below it the hand-over costs more


cdef uint32_t crc_extend(uint32_t crc, const uint8_t *p, size_t n) noexcept nogil:
    return kf_crc32c(crc, p, n)


cdef uint32_t crc_copy(uint32_t crc, uint8_t *dst, const uint8_t *src, size_t n) noexcept nogil:
    return kf_crc32c_copy(crc, dst, src, n)


cdef uint32_t crc_combine(uint32_t crc_a, uint32_t crc_b, size_t n_b) noexcept nogil:
    return kf_crc32c_combine(crc_a, crc_b, n_b)


cdef const kf_crc32c_variant *find_variant(str name) except NULL:
    cdef size_t i = 0
    while kf_crc32c_variants(i) is not NULL:
        if name is None or kf_crc32c_variants(i).name.decode() == name:
            return kf_crc32c_variants(i)
        i += 1
    raise errors.InvalidOption(f"no CRC-32C variant {name!r} on this CPU: have {variants()}")


def variants() -> tuple[str, ...]:
    """Return the names of the variants that this CPU runs, fastest (the one in use) first."""
    names = []
    while kf_crc32c_variants(len(names)) is not NULL:
        names.append(kf_crc32c_variants(len(names)).name.decode())
    return tuple(names)


def crc32c(data, uint32_t value=0, *, str variant=None) -> int:
    """Return the CRC-32C of ``data`` (any contiguous buffer), continued from ``value``.

    ``variant`` asks for one of :func:`variants` instead of the fastest (for tests).

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    cdef const kf_crc32c_variant *chosen = find_variant(variant)
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if view.len < GIL_BYTES:
            return chosen.crc(value, view.buf, <size_t>view.len)
        with nogil:
            value = chosen.crc(value, view.buf, <size_t>view.len)
        return value
    finally:
        PyBuffer_Release(&view)


def crc32c_copy(destination, source, uint32_t value=0, *, str variant=None) -> int:
    """Copy ``source`` to the start of ``destination``; return the CRC-32C of what was stored.

    The two may not overlap. Raises :class:`~kraftfast.errors.InvalidOption` if it does not fit.
    """
    cdef const kf_crc32c_variant *chosen = find_variant(variant)
    cdef Py_buffer to, origin
    PyObject_GetBuffer(destination, &to, PyBUF_WRITABLE)
    try:
        PyObject_GetBuffer(source, &origin, PyBUF_SIMPLE)
        try:
            if origin.len > to.len:
                raise errors.InvalidOption("the source is longer than the destination")
            if origin.len < GIL_BYTES:
                return chosen.copy(value, to.buf, origin.buf, <size_t>origin.len)
            with nogil:
                value = chosen.copy(value, to.buf, origin.buf, <size_t>origin.len)
            return value
        finally:
            PyBuffer_Release(&origin)
    finally:
        PyBuffer_Release(&to)


def combine(uint32_t first, uint32_t second, size_t second_size, *, str variant=None) -> int:
    """Return the CRC-32C of two pieces from those of each and the second's length in bytes."""
    return find_variant(variant).combine(first, second, second_size)
