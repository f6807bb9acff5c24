"""The quick paths of a producer: see appender.pyx."""

from kraftfast.client.ledger cimport Ledger
from kraftfast.client.sender cimport Sender


cdef class Appender:
    cdef public Ledger ledger        # tickets and what became of them
    cdef public Sender sender        # to the leader, None while there is none
    cdef public bint keeper_sleeps   # wake_threads() is wanted once a batch stays open
    cdef public bint caller_sleeps   # wake_threads() is wanted after the next append
