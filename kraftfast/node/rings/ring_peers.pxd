"""Field types of the ring_peers for compiled code. See ``ring_peers.py``."""

cimport cython

from kraftfast.node.node cimport Node
from kraftfast.node.rings.ring_peer cimport RingPeer


cdef class LocalPeer(RingPeer):
    cdef public Node node
    cdef public long long since_ms
    cdef public dict waiting
    cdef public object repeated
    cdef public long long ring_bytes

    @cython.locals(kind=int)
    cpdef bint handle(self) except -1


cdef class RingPeers:
    cdef public Node node
    cdef public object loop, local, peer_type
    cdef public dict directories, offers, retry, dying
    cdef public list peers
    cdef public long long due_ms

    @cython.locals(peer=LocalPeer, worked=bint)
    cpdef bint handle(self) except -1

    @cython.locals(peer=LocalPeer)
    cpdef drop_broken(self)
