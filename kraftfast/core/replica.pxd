"""The door of the core for compiled callers. See ``replica.py``."""

cimport cython

from kraftfast.core.state cimport ReplicaState


cdef class Replica:
    cdef public ReplicaState _state
    cdef public object _stored

    cpdef list step(self, object event, long long now_ms)

    @cython.locals(state=ReplicaState)
    cpdef list _finish(self, long long now_ms)
