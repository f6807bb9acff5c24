"""Python buffers, held by compiled code: what typed memoryviews do too, in ten times as much C."""

from libc.stdint cimport int64_t, uint8_t


# The bytes stay where they are for as long as this object lives.
cdef class Hold:
    cdef Py_buffer view
    cdef bint held
    cdef uint8_t *data  # stored to only if it was asked for writable
    cdef int64_t size


cdef Hold hold(object buffer, bint writable=*)

# Whether the bytes of a buffer are the addresses of Python objects, which mean nothing elsewhere.
cdef bint has_objects(object buffer) except -1

# A copy of the bytes of a buffer, contiguous or not. Raises TypeError, ValueError, BufferError.
cdef bytes bytes_in(object buffer)
