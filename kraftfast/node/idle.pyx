"""The one place where a replica sleeps: spin a little, announce it, look again, then wait (R12).

Waking a halted CPU costs more than any mechanism, so that while something is in flight the loop
yields and looks for a while before it blocks; an idle replica never polls.
"""

import os
import select

from libc.stdint cimport uint64_t
from libc.stdlib cimport free, realloc
from posix.unistd cimport read

from kraftfast.ring.calls cimport *
from kraftfast.ring.spsc cimport *


cdef extern from "flusher.h":
    int kf_flusher_busy(const kf_flusher *f) nogil
    uint64_t kf_now_ns() nogil

cdef extern from "stay_awake.h":
    kf_stay_awake *kf_stay_awake_new(int waits_fd)
    void kf_stay_awake_keep(kf_stay_awake *v, uint64_t now_ns, uint64_t until_ns) nogil
    void kf_stay_awake_free(kf_stay_awake *v) nogil

cdef extern from "sched.h" nogil:
    int sched_yield()

cdef extern from "sys/epoll.h" nogil:
    int epoll_wait(int epfd, epoll_event *events, int maxevents, int timeout)

cdef enum:
    EVENTS_MAX = 64
    PIPE_READ_BYTES = 4096
    EPOLL_EVERY = 32   # spins between looks at sockets: a system call, rings are none

# A yield that took LONG_YIELD_NS gave a whole time slice to a process with work of its own. Then
# the loop does not yield for a while: the kernel prefers a thread that wakes to one that runs, and
# one that yields comes behind all. The pause doubles, up to the maximum, if the next long yield
# comes within its length.
cdef enum:
    LONG_YIELD_NS = 2_000_000
    PAUSE_NS_MIN = 5_000_000
    PAUSE_NS_MAX = 320_000_000


cdef class Idle:
    """Watches rings, the flusher and descriptors. It counts ``sleeps``, ``idle_ns`` in them,
    and ``long_yields``, which another process used."""

    def __init__(self, Doorbell bell, size_t flusher):
        self.bell = bell
        self.flusher = <kf_flusher *>flusher
        self.epoll = select.epoll()
        self.epoll_fd = self.epoll.fileno()
        self.watched = {}
        self.epoll.register(bell.fd, select.EPOLLIN)

    def stay_awake(self, int keep_us):
        """Let no processor halt for ``keep_us`` after :meth:`keep_awake`, by this thread."""
        try:
            waits_fd = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # a kernel that does not count: it is taken for one that is not busy
            waits_fd = -1
        self.awake = kf_stay_awake_new(waits_fd)
        self.keep_ns = <uint64_t>keep_us * 1000

    cpdef keep_awake(self):
        """Record that something is in flight."""
        cdef uint64_t now_ns
        if self.awake != NULL:
            now_ns = kf_now_ns()
            kf_stay_awake_keep(self.awake, now_ns, now_ns + self.keep_ns)

    cpdef flush_began(self):
        """Have the end of the flusher's work end a sleep, until ``flush_ended``."""
        self.flush_asked = True

    cpdef flush_ended(self):
        """Record that the end of a flush was taken."""
        self.flush_asked = False

    cpdef mute(self, bint muted):
        """Let messages on rings end no sleep, or let them again."""
        self.muted = muted

    def __dealloc__(self):
        if self.awake != NULL:
            kf_stay_awake_free(self.awake)
        free(self.rings)

    def watch(self, RingIn ring):
        """Watch this ring: news in it ends the wait."""
        if self.ring_count == self.ring_room:
            self.ring_room = max(16, self.ring_room * 2)
            self.rings = <kf_ring_in **>realloc(self.rings, self.ring_room * sizeof(kf_ring_in *))
            if self.rings == NULL:
                raise MemoryError("idle loop")
        self.rings[self.ring_count] = ring.ring
        self.watched[ring] = self.ring_count
        self.ring_count += 1

    def unwatch(self, RingIn ring):
        cdef int slot = self.watched.pop(ring)
        self.ring_count -= 1
        if slot != self.ring_count:
            self.rings[slot] = self.rings[self.ring_count]
            for other, other_slot in self.watched.items():
                if other_slot == self.ring_count:
                    self.watched[other] = slot

    def register(self, int fd, int events):
        """Watch this descriptor: its readiness ends the wait."""
        self.epoll.register(fd, events)

    def modify(self, int fd, int events):
        self.epoll.modify(fd, events)

    def unregister(self, int fd):
        self.epoll.unregister(fd)

    cdef bint _news(self) noexcept nogil:
        cdef int i
        if self.flush_asked and not kf_flusher_busy(self.flusher):
            return True
        if self.muted:
            return False
        for i in range(self.ring_count):
            if kf_ring_waiting(self.rings[i]):
                return True
        return False

    cpdef list poll(self):
        """Return the [(fd, events)] that are ready now, without waiting."""
        cdef epoll_event events[EVENTS_MAX]
        cdef int ready
        with nogil:  # a loop that is busy gives other threads of this process their turn here
            ready = epoll_wait(self.epoll_fd, events, EVENTS_MAX, 0)
        return self._list(events, ready)

    cdef void _pause_spinning(self, uint64_t now_ns) noexcept nogil:
        """Record a long yield that ended now."""
        if now_ns > self.pause_until_ns + self.pause_ns + LONG_YIELD_NS:
            self.pause_ns = PAUSE_NS_MIN
        else:
            self.pause_ns = min(2 * self.pause_ns, PAUSE_NS_MAX)
        self.pause_until_ns = now_ns + self.pause_ns
        self.long_yields += 1

    cpdef list spin(self, int spin_us, bint for_sockets=False):
        """Look around for up to ``spin_us``, yielding the CPU. None: nothing happened, or the
        processor is needed by others (``woke_ns`` is left as it was): sleep.

        ``for_sockets``: news comes by sockets. A yield may last as long as what others do.

        Else the [(fd, events)] that are ready; an empty list means a ring or the flusher.
        """
        cdef uint64_t now_ns = kf_now_ns(), before_ns
        cdef uint64_t until = now_ns + <uint64_t>spin_us * 1000
        cdef int i = 0, ready = 0
        cdef bint news = False
        cdef epoll_event events[EVENTS_MAX]
        if now_ns < self.pause_until_ns:
            return None
        with nogil:
            while True:
                news = self._news()
                if news:
                    break
                i += 1
                if for_sockets or i % EPOLL_EVERY == 0:
                    ready = epoll_wait(self.epoll_fd, events, EVENTS_MAX, 0)
                    if ready > 0:
                        break
                before_ns = kf_now_ns()
                if before_ns >= until:
                    break
                sched_yield()
                now_ns = kf_now_ns()
                if now_ns - before_ns >= LONG_YIELD_NS:
                    self._pause_spinning(now_ns)
            self.woke_ns = kf_now_ns()
        if not news and ready <= 0:
            return None
        return self._list(events, ready)

    cpdef list sleep(self, int timeout_ms):
        """Wait until there is something to do or ``timeout_ms`` have passed (-1: for ever).

        Returns the [(fd, events)] that are ready.
        """
        cdef epoll_event events[EVENTS_MAX]
        cdef int ready = 0
        cdef uint64_t began
        with nogil:
            began = kf_now_ns()
            kf_doorbell_sleep(self.bell.page)
            if not self._news():  # R12: look again after announcing it
                ready = epoll_wait(self.epoll_fd, events, EVENTS_MAX, timeout_ms)
            kf_doorbell_awake(self.bell.page)
            self.woke_ns = kf_now_ns()
            self.idle_ns += self.woke_ns - began
        self.sleeps += 1
        return self._list(events, ready)

    cdef list _list(self, epoll_event *events, int ready):
        cdef int i
        cdef char[PIPE_READ_BYTES] rings
        found = []
        for i in range(ready):  # below 0: interrupted by a signal, which Python handles after this
            if events[i].data.fd != self.bell.fd:
                found.append((events[i].data.fd, events[i].events))
            else:
                read(self.bell.fd, rings, PIPE_READ_BYTES)  # our own description: it never waits
        return found

    def close(self):
        self.epoll.close()
