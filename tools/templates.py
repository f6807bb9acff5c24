"""What is the same for each flat message: the functions between a frame and its fields."""

from __future__ import annotations

NOT_BY_HAND = "# Made by tools/flat_files.py from the tables of messages.py: make generate.\n"

HEAD = (
    NOT_BY_HAND
    + '''"""{room} of one topic and one partition, without copying the records.

A quorum's {room} names one topic and one partition. For that shape the functions here go straight
between bytes and a flat object. Whatever is unusual (other shapes, unknown tags, a field that the
version lacks, a prefix above ``SCRATCH_BYTES``, malformed bytes) goes through the tables of
``messages``, which is where every error is raised; the outcome is the same, byte for byte.
Source: {source} by Kafka's {room}Request.json, {room}Response.json.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport {stdint}

from kraftfast.wire.cursor cimport (
{cursor}
)

from kraftfast import limits
from kraftfast.types import ZERO_UUID
from kraftfast.wire import flat, frame as framing, messages
from kraftfast.wire.messages import ApiKey

cdef enum:
    VERSION_MIN = {first}
    VERSION_MAX = {last}
    API_KEY = {key}

assert (VERSION_MIN, VERSION_MAX) == messages.SERVED[API_KEY]
assert FRAME_BYTES_MAX == limits.FRAME_BYTES_MAX
assert API_KEY == ApiKey.{upper}
'''
)

DECODE_REQUEST = '''
def decode_request(int version, frame, Py_ssize_t start):
    """Return the request that begins at ``start`` of ``frame``: a :class:`{flat}`, or a
    ``messages.{of}`` if it has another shape.

    Raises :class:`MalformedFrame`, :class:`UnsupportedVersion`.
    """
    cdef {flat} request = {flat}.__new__({flat})
    cdef Py_buffer view
    cdef Source s
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        s.ok = VERSION_MIN <= version <= VERSION_MAX and 0 <= start <= view.len
        s.end = <const uint8_t*>view.buf + view.len
        s.at = <const uint8_t*>view.buf + start if s.ok else s.end
        _read_request(request, &s, version)
    except UnicodeDecodeError:
        s.ok = False
    finally:
        PyBuffer_Release(&view)
    if s.ok and s.at == s.end:
        return request
    message = messages.{of}.decode(frame, version, start)
    return {flat}.from_message(message) or message
'''

ENCODE_REQUEST = '''

def encode_request(int version, int32_t correlation_id, str client_id, {flat} request):
    """Return a whole frame, length and header included.

    Raises :class:`UnsupportedVersion` if ``request`` holds what ``version`` cannot say and may
    not drop, :class:`UnencodableMessage` if a value does not fit its field.
    """
    cdef uint8_t scratch[SCRATCH_BYTES]
    cdef Sink s
    begin_frame(&s, scratch)
    try:
        put_int16(&s, API_KEY)
        put_int16(&s, <int16_t>version)
        put_int32(&s, correlation_id)
        put_string(&s, client_id, False, True)
        if version >= {flexible_from}:
            put_uvarint(&s, 0)
        _write_request(request, &s, version)
    except UnicodeEncodeError:
        s.ok = False
    pieces = finish_frame(&s, scratch, 0, None, -1)
    if pieces is not None:
        return pieces[0]
    return framing.encode_request(
        API_KEY, version, correlation_id, client_id, request.to_message({version})
    )
'''

DECODE_RECORDS_REQUEST = '''
def decode_request(int version, frame, Py_ssize_t start):
    """Return the request that begins at ``start`` of ``frame``: a :class:`{flat}`, whose
    records are a memoryview into ``frame``, or a ``messages.{of}`` if it has
    another shape.

    Raises :class:`MalformedFrame`, :class:`UnsupportedVersion`.
    """
    cdef {flat} request = {flat}.__new__({flat})
    cdef Py_buffer view
    cdef Source s
    cdef const uint8_t* base
    cdef const uint8_t* records = NULL
    cdef Py_ssize_t records_bytes = -1
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        base = <const uint8_t*>view.buf
        s.ok = VERSION_MIN <= version <= VERSION_MAX and 0 <= start <= view.len
        s.end = base + view.len
        s.at = base + start if s.ok else s.end
        _read_request(request, &s, version, &records_bytes)
        if records_bytes >= 0:
            records = take(&s, records_bytes)
        if version >= {flexible_from}:
            _read_request_end(request, &s, version)
    except UnicodeDecodeError:
        s.ok = False
    finally:
        PyBuffer_Release(&view)
    if s.ok and s.at == s.end:
        if records_bytes >= 0:
            request.records = memoryview(frame)[records - base:records - base + records_bytes]
        return request
    message = messages.{of}.decode(frame, version, start)
    return {flat}.from_message(message) or message
'''

ENCODE_RECORDS_REQUEST = '''

def encode_request(int version, int32_t correlation_id, str client_id, {flat} request):
    """Return a whole frame, length and header too, as a list of one to three pieces to be sent in
    order; where there are records, the second is ``request.records`` itself.

    Raises :class:`UnsupportedVersion` if ``request`` holds what ``version`` cannot say and may
    not drop, :class:`UnencodableMessage` if a value does not fit its field.
    """
    cdef uint8_t scratch[SCRATCH_BYTES]
    cdef Sink s
    cdef Py_ssize_t prefix_bytes = 0, records_bytes = -1
    begin_frame(&s, scratch)
    try:
        records_bytes = bytes_of(request.records)
        put_int16(&s, API_KEY)
        put_int16(&s, <int16_t>version)
        put_int32(&s, correlation_id)
        put_string(&s, client_id, False, True)
        if version >= {flexible_from}:
            put_uvarint(&s, 0)
        _write_request(request, &s, version, records_bytes)
        prefix_bytes = s.at - scratch
        if version >= {flexible_from}:
            _write_request_end(request, &s, version)
    except (UnicodeEncodeError, TypeError, BufferError):
        s.ok = False
    pieces = finish_frame(&s, scratch, prefix_bytes, request.records, records_bytes)
    if pieces is not None:
        return pieces
    return framing.request_pieces(
        API_KEY, version, correlation_id, client_id, request.to_message({version})
    )
'''

DECODE_RESPONSE = '''
def decode_response(int version, frame):
    """Correlation id and body of the response in ``frame``: a :class:`{flat}`, or a
    ``messages.{of}`` if it has another shape.

    Raises :class:`MalformedFrame`, :class:`UnsupportedVersion`.
    """
    cdef {flat} response = {flat}.__new__({flat})
    cdef Py_buffer view
    cdef Source s
    cdef int32_t correlation_id = 0
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        s.at = <const uint8_t*>view.buf
        s.end = s.at + view.len
        s.ok = VERSION_MIN <= version <= VERSION_MAX
        correlation_id = get_int32(&s)
        if version >= {flexible_from}:
            get_no_tags(&s)
        _read_response(response, &s, version)
    except UnicodeDecodeError:
        s.ok = False
    finally:
        PyBuffer_Release(&view)
    if s.ok and s.at == s.end:
        return correlation_id, response
    number, message = framing.decode_response(API_KEY, version, frame)
    return number, {flat}.from_message(message) or message
'''

ENCODE_RESPONSE = '''

def encode_response(int version, int32_t correlation_id, {flat} response):
    """Return a whole frame, length and header included. Raises as :func:`encode_request`."""
    cdef uint8_t scratch[SCRATCH_BYTES]
    cdef Sink s
    begin_frame(&s, scratch)
    try:
        put_int32(&s, correlation_id)
        if version >= {flexible_from}:
            put_uvarint(&s, 0)
        _write_response(response, &s, version)
    except UnicodeEncodeError:
        s.ok = False
    pieces = finish_frame(&s, scratch, 0, None, -1)
    if pieces is not None:
        return pieces[0]
    return framing.encode_response(
        API_KEY, version, correlation_id, response.to_message({version})
    )
'''

DECODE_RECORDS_RESPONSE = '''
def decode_response(int version, frame):
    """Correlation id and body of the response in ``frame``: a :class:`{flat}`, whose
    records are a memoryview into ``frame``, or a ``messages.{of}`` if it has
    another shape.

    Raises :class:`MalformedFrame`, :class:`UnsupportedVersion`.
    """
    cdef {flat} response = {flat}.__new__({flat})
    cdef Py_buffer view
    cdef Source s
    cdef int32_t correlation_id = 0
    cdef const uint8_t* base
    cdef const uint8_t* records = NULL
    cdef Py_ssize_t records_bytes = -1
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        base = <const uint8_t*>view.buf
        s.at, s.end, s.ok = base, base + view.len, VERSION_MIN <= version <= VERSION_MAX
        correlation_id = get_int32(&s)
        if version >= {flexible_from}:
            get_no_tags(&s)
        _read_response(response, &s, version, &records_bytes)
        if records_bytes >= 0:
            records = take(&s, records_bytes)
        if version >= {flexible_from}:
            _read_response_end(response, &s, version)
    except UnicodeDecodeError:
        s.ok = False
    finally:
        PyBuffer_Release(&view)
    if s.ok and s.at == s.end:
        if records_bytes >= 0:
            response.records = memoryview(frame)[records - base:records - base + records_bytes]
        return correlation_id, response
    number, message = framing.decode_response(API_KEY, version, frame)
    return number, {flat}.from_message(message) or message
'''

ENCODE_RECORDS_RESPONSE = '''

def encode_response(int version, int32_t correlation_id, {flat} response):
    """Return a whole frame, length and header too, as a list of one to three pieces to be sent in
    order; where there are records, the second is ``response.records`` itself.

    Raises as :func:`encode_request`.
    """
    cdef uint8_t scratch[SCRATCH_BYTES]
    cdef Sink s
    cdef Py_ssize_t prefix_bytes = 0, records_bytes = -1
    begin_frame(&s, scratch)
    try:
        records_bytes = bytes_of(response.records)
        put_int32(&s, correlation_id)
        if version >= {flexible_from}:
            put_uvarint(&s, 0)
        _write_response(response, &s, version, records_bytes)
        prefix_bytes = s.at - scratch
        if version >= {flexible_from}:
            _write_response_end(response, &s, version)
    except (UnicodeEncodeError, TypeError, BufferError):
        s.ok = False
    pieces = finish_frame(&s, scratch, prefix_bytes, response.records, records_bytes)
    if pieces is not None:
        return pieces
    return framing.response_pieces(
        API_KEY, version, correlation_id, response.to_message({version})
    )
'''

DOORS = {
    ("request", False): DECODE_REQUEST + ENCODE_REQUEST,
    ("request", True): DECODE_RECORDS_REQUEST + ENCODE_RECORDS_REQUEST,
    ("response", False): DECODE_RESPONSE + ENCODE_RESPONSE,
    ("response", True): DECODE_RECORDS_RESPONSE + ENCODE_RECORDS_RESPONSE,
}
"""By the direction, and whether records stand inside."""
