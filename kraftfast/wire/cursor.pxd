"""Bounded reading and writing of Kafka's primitive types and frames, for the two hot messages.

A Source or a Sink that runs out, or meets what is not in canonical form, clears ``ok`` and from
then on reads zeros or writes nothing: callers check ``ok`` once, at the end. Every step compares
what it needs with what remains (S7, S11); no pointer is ever moved past ``end``.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef extern from "varint.h" nogil:
    uint16_t kf_load16(const uint8_t* p)
    uint32_t kf_load32(const uint8_t* p)
    uint64_t kf_load64(const uint8_t* p)
    void kf_store16(uint8_t* p, uint16_t v)
    void kf_store32(uint8_t* p, uint32_t v)
    void kf_store64(uint8_t* p, uint64_t v)
    size_t kf_uvarint_size(uint32_t v)
    uint8_t* kf_uvarint_put(uint8_t* p, uint32_t v)
    const uint8_t* kf_uvarint_get(const uint8_t* p, const uint8_t* end, uint32_t* value)


cdef struct Source:
    const uint8_t* at  # next byte to read; at <= end
    const uint8_t* end
    bint ok


cdef struct Tags:  # a walk over the tagged fields at the end of a struct
    uint32_t left  # how many are still to come
    int64_t tag  # of the field at hand, -1 before the first
    uint32_t size  # of the field at hand
    const uint8_t* start  # of the field at hand, NULL before the first


cdef struct Sink:
    uint8_t* at  # next byte to write; at <= end
    uint8_t* end
    bint ok


cdef inline bint has(Source* s, Py_ssize_t n) noexcept nogil:
    """Whether ``n`` more bytes are there; clears ``ok`` if not."""
    if s.ok and 0 <= n <= s.end - s.at:
        return True
    s.ok = False
    return False


cdef inline const uint8_t* take(Source* s, Py_ssize_t n) noexcept nogil:
    """The next ``n`` bytes where they lie, or NULL."""
    cdef const uint8_t* start = s.at
    if not has(s, n):
        return NULL
    s.at += n
    return start


cdef inline int get_int8(Source* s) noexcept nogil:
    cdef const uint8_t* p = take(s, 1)
    return 0 if p == NULL else <signed char>p[0]


cdef inline int16_t get_int16(Source* s) noexcept nogil:
    cdef const uint8_t* p = take(s, 2)
    return 0 if p == NULL else <int16_t>kf_load16(p)


cdef inline int32_t get_int32(Source* s) noexcept nogil:
    cdef const uint8_t* p = take(s, 4)
    return 0 if p == NULL else <int32_t>kf_load32(p)


cdef inline int64_t get_int64(Source* s) noexcept nogil:
    cdef const uint8_t* p = take(s, 8)
    return 0 if p == NULL else <int64_t>kf_load64(p)


cdef inline uint32_t get_uvarint(Source* s) noexcept nogil:
    """At most 32 bits, in the shortest form."""
    cdef uint32_t value = 0
    cdef const uint8_t* behind = kf_uvarint_get(s.at, s.end, &value)
    if behind == NULL or not s.ok:
        s.ok = False
        return 0
    s.at = behind
    return value


cdef inline Tags begin_tags(Source* s) noexcept nogil:
    cdef Tags tags
    tags.left, tags.tag, tags.size, tags.start = get_uvarint(s), -1, 0, NULL
    return tags


cdef inline bint next_tag(Source* s, Tags* tags) noexcept nogil:
    """Whether there is another tagged field: ``tags.tag``, of ``tags.size`` bytes, at ``s.at``.

    The field before must have been read to its end; tags ascend.
    """
    cdef uint32_t tag
    if tags.start != NULL and s.at - tags.start != <Py_ssize_t>tags.size:
        s.ok = False
    if tags.left == 0 or not s.ok:
        return False
    tags.left -= 1
    tag = get_uvarint(s)
    if <int64_t>tag <= tags.tag:
        s.ok = False
    tags.tag, tags.size = tag, get_uvarint(s)
    tags.start = s.at
    return s.ok


cdef inline void get_no_tags(Source* s) noexcept nogil:
    """The end of a struct without tagged fields."""
    if get_uvarint(s) != 0:
        s.ok = False


cdef inline void get_one(Source* s, bint flexible) noexcept nogil:
    """The length of an array of one element."""
    if flexible:
        if get_uvarint(s) != 2:
            s.ok = False
    elif get_int32(s) != 1:
        s.ok = False


cdef inline bint get_null(Source* s, bint flexible) noexcept nogil:
    """Whether an array is null; one with anything in it is for the tables."""
    cdef int64_t n = <int64_t>get_uvarint(s) - 1 if flexible else get_int32(s)
    if n != -1 and n != 0:
        s.ok = False
    return n == -1


cdef inline void get_nothing(Source* s, bint flexible) noexcept nogil:
    """An empty array; one with anything in it is for the tables."""
    if get_null(s, flexible):
        s.ok = False


cdef inline bint fits(Sink* s, Py_ssize_t n) noexcept nogil:
    """Whether ``n`` more bytes fit; clears ``ok`` if not."""
    if s.ok and 0 <= n <= s.end - s.at:
        return True
    s.ok = False
    return False


cdef inline uint8_t* claim(Sink* s, Py_ssize_t n) noexcept nogil:
    """Where the next ``n`` bytes go, or NULL."""
    cdef uint8_t* start = s.at
    if not fits(s, n):
        return NULL
    s.at += n
    return start


cdef inline void put_int8(Sink* s, int value) noexcept nogil:
    cdef uint8_t* p = claim(s, 1)
    if p != NULL:
        p[0] = <uint8_t>value


cdef inline void put_int16(Sink* s, int16_t value) noexcept nogil:
    cdef uint8_t* p = claim(s, 2)
    if p != NULL:
        kf_store16(p, <uint16_t>value)


cdef inline void put_int32(Sink* s, int32_t value) noexcept nogil:
    cdef uint8_t* p = claim(s, 4)
    if p != NULL:
        kf_store32(p, <uint32_t>value)


cdef inline void put_int64(Sink* s, int64_t value) noexcept nogil:
    cdef uint8_t* p = claim(s, 8)
    if p != NULL:
        kf_store64(p, <uint64_t>value)


cdef inline void put_uvarint(Sink* s, uint32_t value) noexcept nogil:
    cdef uint8_t* p = claim(s, <Py_ssize_t>kf_uvarint_size(value))
    if p != NULL:
        kf_uvarint_put(p, value)


cdef inline void put_one(Sink* s, bint flexible) noexcept nogil:
    """The length of an array of one element."""
    if flexible:
        put_uvarint(s, 2)
    else:
        put_int32(s, 1)


cdef inline void put_nothing(Sink* s, bint null, bint flexible) noexcept nogil:
    """An array that is empty or null."""
    if flexible:
        put_uvarint(s, not null)
    else:
        put_int32(s, -1 if null else 0)


cdef inline void put_checked_int8(Sink* s, int value) noexcept nogil:
    if not -128 <= value <= 127:
        s.ok = False
    put_int8(s, value)


cdef inline void put_bytes(Sink* s, const void* data, Py_ssize_t n) noexcept nogil:
    if fits(s, n):
        memcpy(s.at, data, n)
        s.at += n


# --- strings and uuids: these touch Python objects --------------------------------------------


cdef enum:
    STRING_BYTES_MAX = 32767
    UUID_BYTES = 16


cdef inline str get_string(Source* s, bint flexible, bint nullable):
    """None for null. Raises UnicodeDecodeError."""
    cdef Py_ssize_t n = <Py_ssize_t>get_uvarint(s) - 1 if flexible else get_int16(s)
    cdef const uint8_t* start
    if n == -1 and nullable:
        return None
    if n > STRING_BYTES_MAX:
        s.ok = False
    start = take(s, n)
    if start == NULL:
        return None
    return PyUnicode_DecodeUTF8(<const char*>start, n, NULL)


cdef inline bytes get_uuid(Source* s):
    cdef const uint8_t* start = take(s, UUID_BYTES)
    if start == NULL:
        return None
    return PyBytes_FromStringAndSize(<const char*>start, UUID_BYTES)


cdef inline int put_string(Sink* s, str text, bint flexible, bint nullable) except -1:
    """Null for None. Raises UnicodeEncodeError."""
    cdef Py_ssize_t n = -1
    cdef const char* raw = NULL
    if text is not None:
        raw = PyUnicode_AsUTF8AndSize(text, &n)
        if n > STRING_BYTES_MAX:
            s.ok = False
    elif not nullable:
        s.ok = False
    if flexible:
        put_uvarint(s, <uint32_t>(n + 1))
    else:
        put_int16(s, <int16_t>n)
    if n > 0:
        put_bytes(s, raw, n)
    return 0


cdef inline Py_ssize_t compact_string_bytes(str text) except -1:
    """How many bytes ``put_string`` takes for it in flexible form."""
    cdef Py_ssize_t n
    PyUnicode_AsUTF8AndSize(text, &n)
    return n + <Py_ssize_t>kf_uvarint_size(<uint32_t>(n + 1))


cdef inline bint put_uuid(Sink* s, bytes uuid) noexcept:
    if uuid is None or PyBytes_GET_SIZE(uuid) != UUID_BYTES:
        s.ok = False
    else:
        put_bytes(s, PyBytes_AS_STRING(uuid), UUID_BYTES)
    return s.ok


# --- records and frames -----------------------------------------------------------------------


cdef enum:
    SCRATCH_BYTES = 1024  # what stands around the records of a frame; longer is left to the tables
    FRAME_BYTES_MAX = 104857600


cdef inline Py_ssize_t get_records_bytes(Source* s, bint flexible) noexcept nogil:
    """The length before a records field; -1 for null."""
    cdef Py_ssize_t n = <Py_ssize_t>get_uvarint(s) - 1 if flexible else get_int32(s)
    if n < -1:
        s.ok = False
    return n


cdef inline void put_records_bytes(Sink* s, Py_ssize_t n, bint flexible) noexcept nogil:
    if n > FRAME_BYTES_MAX:
        s.ok = False
    elif flexible:
        put_uvarint(s, <uint32_t>(n + 1))
    else:
        put_int32(s, <int32_t>n)


cdef inline Py_ssize_t bytes_of(object records) except -2:
    """The size of a buffer, -1 for None. Raises TypeError or BufferError for anything else,
    buffers that do not lie in one piece among it."""
    cdef Py_buffer view
    cdef Py_ssize_t size
    if records is None:
        return -1
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    size = view.len
    PyBuffer_Release(&view)
    return size


cdef inline void begin_frame(Sink* s, uint8_t* scratch) noexcept nogil:
    """Start writing to SCRATCH_BYTES of ``scratch``, after room for the length."""
    s.at, s.end, s.ok = scratch, scratch + SCRATCH_BYTES, True
    put_int32(s, 0)


cdef inline list finish_frame(
    Sink* s, uint8_t* scratch, Py_ssize_t prefix_bytes, object records, Py_ssize_t records_bytes
):
    """The frame in pieces, with ``records`` after ``prefix_bytes`` of what was written; None if
    it was not ``ok`` or is too large."""
    cdef Sink length
    cdef Py_ssize_t written = s.at - scratch
    cdef int64_t total = written - 4 + (records_bytes if records_bytes > 0 else 0)
    if not s.ok or total > FRAME_BYTES_MAX:
        return None
    length.at, length.end, length.ok = scratch, scratch + 4, True
    put_int32(&length, <int32_t>total)
    if records_bytes <= 0:
        return [PyBytes_FromStringAndSize(<const char*>scratch, written)]
    pieces = [PyBytes_FromStringAndSize(<const char*>scratch, prefix_bytes), records]
    if written > prefix_bytes:
        scratch += prefix_bytes
        pieces.append(PyBytes_FromStringAndSize(<const char*>scratch, written - prefix_bytes))
    return pieces
