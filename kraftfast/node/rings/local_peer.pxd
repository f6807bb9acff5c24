"""Field types of the peers for compiled code. See ``local_peer.py``."""

cimport cython

from kraftfast.node.node cimport Node
from kraftfast.node.rings.ring_peer cimport RingPeer


cdef class LocalPeer(RingPeer):
    cdef public Node node
    cdef public long long since_ms
    cdef public dict waiting
    cdef public object repeated
    cdef public object served
    cdef public long long ring_bytes

    @cython.locals(kind=int)
    cpdef bint handle(self) except -1
