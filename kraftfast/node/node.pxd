"""Field types of the node for compiled code. See ``node.py``."""

from kraftfast.core.replica cimport Replica
from kraftfast.link.stats cimport Stats
from kraftfast.log.log cimport Log
from kraftfast.node.executor cimport Executor
from kraftfast.node.threads.flusher cimport Flusher
from kraftfast.node.idle cimport Idle
from kraftfast.node.rings.ring_producers cimport RingProducers


cdef class Node(Executor):
    cdef public object config, host, disk, directory, key, partition, doorbell, voters, recovered
    cdef public str cluster_id, durability
    cdef public Stats stats
    cdef public Log log
    cdef public Replica core
    cdef public Flusher flusher
    cdef public Idle idle
    cdef public RingProducers ring_producers
    cdef public dict links
    cdef public object disk_space, damage, sockets, prober
    cdef public object applier, metrics, producer_ids, quorum_config
    cdef public object event_log, tell, failures, floor, seed
    cdef public object background, snapshots, retention, uncertainty
    cdef public list on_commit, on_role, on_voters
    cdef public long long seen_ns, held_ns
    cdef public bint appends_held, witness
    cdef object _monotonic_ns
    cdef str _state_path

    cpdef long long now_ms(self) except -1
    cpdef woke(self, long long woke_ns)
    cpdef list _decide(self, event)
    cpdef long long end_offset(self) except -1
    cpdef long long flushed_end_offset(self) except -1
    cpdef object link_for(self, effect)
    cpdef reply_to(self, source, response)
    cpdef long long take_appends(self, effect) except -1
    cpdef object copy_fetched(self, effect)
    cpdef begin_flush(self)
    cpdef run_flush(self)
    cpdef wait_for_flush(self)
    cpdef bint take_flush(self) except -1
    cpdef tend(self)
    cpdef show_ends(self)
    cpdef publish(self)
