"""Field types of the peers for compiled code. See ``ring_peer.py``."""

cimport cython

from kraftfast.node.node cimport Node
from kraftfast.node.rings.ring_fetch cimport RingFetch


cdef class RingPeer(RingFetch):
    cdef public Node node
    cdef public long long since_ms
    cdef public dict waiting
    cdef public object repeated
    cdef public object served
    cdef public long long ring_bytes

    @cython.locals(kind=int)
    cpdef bint handle(self) except -1
