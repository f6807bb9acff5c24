"""Field types of the mesh for compiled code. See ``mesh.py``."""

cimport cython

from kraftfast.node.node cimport Node


cdef class Mesh:
    cdef public Node node
    cdef public object loop
    cdef public dict directories, offers, retry, dying
    cdef public list peers
    cdef public long long due_ms

    @cython.locals(worked=bint)
    cpdef bint handle(self) except -1
