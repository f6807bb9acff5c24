"""Field types of the node for compiled code. See ``node.py``."""

from kraftfast.core.replica cimport Replica
from kraftfast.link.stats cimport Stats
from kraftfast.log.log cimport Log
from kraftfast.node.flusher cimport Flusher
from kraftfast.node.idle cimport Idle
from kraftfast.node.rings.ring_producers cimport RingProducers


cdef class Node:
    cdef public object config, host, disk, directory, key, partition, doorbell, voters, recovered
    cdef public str cluster_id, durability
    cdef public Stats stats
    cdef public Log log
    cdef public Replica core
    cdef public Flusher flusher
    cdef public Idle idle
    cdef public RingProducers ring_producers
    cdef public dict links
    cdef public object disk_space, damage, sockets, prober, stalled, control
    cdef public object applier, metrics, producer_ids, quorum_config
    cdef public object event_log, tell, failures, floor, seed
    cdef public object background, snapshots, retention, uncertainty
    cdef public list on_commit, on_role, on_voters
    cdef public long long stalled_ms, persisted_epoch, seen_ns, held_ns
    cdef public bint appends_held, flush_wanted, stopped, witness
    cdef object _events, _monotonic_ns
    cdef dict _handlers
    cdef str _state_path
    cdef bint _running

    cpdef long long now_ms(self) except -1
    cpdef step(self, event)
    cpdef run_events(self)
    cpdef list _decide(self, event)
    cpdef _carry_out(self, list effects)
    cpdef bint take_flush(self) except -1
    cpdef bint flush_inline(self) except -1
    cpdef tend(self)
    cpdef show_ends(self)
    cpdef publish(self)
