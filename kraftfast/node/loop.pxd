"""Field types of the loop for compiled code. See ``loop.py``."""

cimport cython

from kraftfast.node.node cimport Node
from kraftfast.node.rings.ring_peer cimport RingPeer


cdef class Loop:
    cdef public Node node
    cdef public dict handlers
    cdef public object ring_peers, door, placement, sockets, resolver, signals, stop_at_ms
    cdef public int spin_us
    cdef set _forgotten
    cdef long long _turns, _progress, _tended_ms
    cdef int _latency_fd
    cdef object __weakref__

    @cython.locals(node=Node, before="long long", now_ms="long long", worked=bint, peer=RingPeer)
    cpdef bint turn(self) except -1

    @cython.locals(node=Node)
    cpdef _tend(self, long long now_ms)

    @cython.locals(before="long long", committed="long long")
    cpdef bint _in_flight(self) except -1

    @cython.locals(node=Node, now_ms="long long", due="long long")
    cpdef long long _sleep_ms(self) except -1
