"""Python buffers, held by compiled code for as long as it uses their bytes."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint8_t


cdef class Hold:
    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


cdef Hold hold(object buffer, bint writable=False):
    """Hold the bytes of ``buffer``, contiguous. Raises TypeError or BufferError for another one."""
    cdef Hold held = Hold.__new__(Hold)
    PyObject_GetBuffer(buffer, &held.view, PyBUF_WRITABLE if writable else PyBUF_SIMPLE)
    held.held = True
    held.data = <uint8_t *>held.view.buf
    held.size = held.view.len
    return held


cdef bint has_objects(object buffer) except -1:
    """Return False also for what is no buffer: the use of its bytes says why."""
    try:
        parts = memoryview(buffer).format.split(":")  # names of fields stand between colons
    except (TypeError, ValueError, BufferError):
        return False
    return "O" in "".join(parts[::2])


cdef bytes bytes_in(object buffer):
    if has_objects(buffer):
        raise TypeError("a buffer of Python objects")
    return bytes(memoryview(buffer))
