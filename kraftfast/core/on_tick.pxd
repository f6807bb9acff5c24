"""The timers of each role, for compiled callers. See ``on_tick.py``."""

cimport cython

from kraftfast.core.replication.leader cimport Leader
from kraftfast.core.log_view cimport LogView
from kraftfast.core.state cimport QuorumState


cpdef poll(QuorumState state, long long now_ms)


@cython.locals(due='long long', least='long long')
cpdef long long due_ms(QuorumState state) except? -1

cpdef timers_of(QuorumState state)

cpdef long long shutdown_due_ms(QuorumState state, object current) except? -1
cpdef long long resign_due_ms(QuorumState state, Leader leader) except? -1
cpdef long long transfer_due_ms(QuorumState state, Leader leader) except? -1
cpdef long long begin_quorum_epoch_due_ms(QuorumState state, Leader leader) except? -1
cpdef long long parked_due_ms(QuorumState state, Leader leader) except? -1


@cython.locals(log=LogView)
cpdef long long flush_due_ms(QuorumState state, Leader leader) except? -1
