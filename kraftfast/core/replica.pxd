"""The door of the core for compiled callers. See ``replica.py``."""

cimport cython

from kraftfast.core.state cimport QuorumState


cdef class Replica:
    cdef public QuorumState _state
    cdef public object _stored

    cpdef list step(self, object event, long long now_ms)

    @cython.locals(state=QuorumState)
    cpdef list _finish(self, long long now_ms)
