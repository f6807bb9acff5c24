"""Timed events in shared memory: one process writes, others follow what it does.

A ring wraps over what was not read in time; the reader says how many events that were. Events are
recorded only while they are read; without a reader that costs a load and a branch.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint64_t

from kraftfast.buffer cimport Hold, hold

from kraftfast.errors import PeerGone
from kraftfast.link.memory_file import MemoryFile


cdef extern from "events.h":
    uint64_t KF_EVENTS_MAGIC
    void kf_events_init(kf_events *e, uint64_t capacity) nogil
    void kf_events_switch(kf_events *e, int on) nogil
    uint64_t kf_events_read(const kf_events *e, uint64_t capacity, uint64_t *from_number,
                            uint64_t *lost, kf_event *out, uint64_t room) nogil

cdef uint64_t CAPACITY = 1 << 16
cdef uint64_t READ_MAX = 1 << 14
HEAD_BYTES = sizeof(kf_events)
FILE_BYTES = HEAD_BYTES + CAPACITY * sizeof(kf_event)
KINDS = {
    "queue": E_QUEUE,
    "append": E_APPEND,
    "send": E_SEND,
    "travel": E_TRAVEL,
    "copy": E_COPY,
    "flush": E_FLUSH,
    "acknowledge": E_ACKNOWLEDGE,
    "commit": E_COMMIT,
    "answer": E_ANSWER,
    "resolve": E_RESOLVE,
    "callback": E_CALLBACK,
    "high_watermark": E_HIGH_WATERMARK,
    "role": E_ROLE,
    "epoch": E_EPOCH,
}


cdef class Events:
    """The writer's side, in a sealed memory file (``file``). Raises OSError without memory."""

    def __init__(self):
        self.file = MemoryFile("kraftfast-events", FILE_BYTES)
        cdef Hold held = hold(self.file.memory, writable=True)
        self.ring = <kf_events *>held.data
        kf_events_init(self.ring, CAPACITY)

    def begin(self):
        """Record events from now on, for one reader more."""
        self.users += 1
        kf_events_switch(self.ring, 1)

    def end(self):
        """Record no events for a reader that went, and none at all after the last one."""
        assert self.users > 0
        self.users -= 1
        kf_events_switch(self.ring, self.users > 0)

    @property
    def is_on(self) -> bool:
        """Whether events are noted."""
        return kf_events_on(self.ring)

    def note(self, str kind, int64_t offset, uint32_t count, uint64_t arg, uint64_t ns):
        """Record an event, if events are read."""
        if kf_events_on(self.ring):
            kf_events_note(self.ring, KINDS[kind], offset, count, arg, ns)

    def view(self) -> EventsView:
        """Return a reader of this very ring."""
        return EventsView(self.file.memory)


cdef class EventsView:
    """A reader, over the map of a ring; it begins with what is noted next.

    Raises PeerGone if it is none.
    """

    def __init__(self, memory):
        cdef Hold held = hold(memory)
        cdef const kf_events *ring = <const kf_events *>held.data
        if held.size < <int64_t>FILE_BYTES or (<const uint64_t *>ring)[0] != KF_EVENTS_MAGIC \
                or ring.capacity != CAPACITY:
            raise PeerGone("not the events of a process of this version")
        self.memory, self.ring, self.capacity = held, ring, CAPACITY
        self.next_number = (<const uint64_t *>ring)[2]

    @property
    def lost(self) -> int:
        """How many events were overwritten before they were read."""
        return self.lost_count

    def read(self) -> bytes:
        """Return the next events, 32 bytes each, b"" if there are none: at most 16,384."""
        cdef bytes found = PyBytes_FromStringAndSize(NULL, READ_MAX * sizeof(kf_event))
        cdef uint64_t n = kf_events_read(self.ring, self.capacity, &self.next_number,
                                         &self.lost_count, <kf_event *>PyBytes_AS_STRING(found),
                                         READ_MAX)
        return found[:n * sizeof(kf_event)]
