"""The quick paths of a producer: see appender.pyx."""

from libc.stdint cimport int64_t

from kraftfast.client.producer.outcomes cimport Outcomes
from kraftfast.client.producer.news cimport News
from kraftfast.client.producer.sender cimport Sender


cdef class Appender:
    cdef readonly object host        # what it runs on
    cdef public Outcomes outcomes    # tickets and what became of them
    cdef public Sender sender        # to the leader, None while there is none
    cdef public bint keeper_sleeps   # wake_threads() is wanted once a batch stays open
    cdef public bint caller_sleeps   # wake_threads() is wanted after the next append
    cdef readonly bint pumping       # a thread sleeps on the sender's descriptors,
    cdef readonly News news          # the others wait to be told what it took in
    cdef public int64_t reported_to  # a call raised that tickets below it have no outcome in time

    cpdef wait_resolved(self, int64_t ticket, double deadline)
    cpdef pump(self, Sender sender, int64_t ticket, double deadline)
    cdef int await_news(self, int64_t ticket, double timeout_s) except -1
    cdef int all_run(self) except -1
