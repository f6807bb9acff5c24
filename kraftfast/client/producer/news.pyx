"""Wait and lock so that a signal handler which raises leaves no lock taken.

Python runs signal handlers between bytecodes. One that raises (Ctrl-C, a time limit by SIGALRM) may
do so inside ``threading.Condition`` after its lock was taken and before the ``with`` block that
would release it began: the lock stays taken for ever. Compiled code runs no handlers, except where
a lock is waited for, and there the lock is not taken yet.
"""

import time
from _thread import allocate_lock

from libc.stdint cimport int64_t

from kraftfast.errors import NoQuorum


cdef class Waiter:
    """A thread that waits. Its fields: ``news.pxd``."""


cdef class News:
    """Wakes the threads that wait for something to happen."""

    # lock: makes a lock for each that waits.

    def __init__(self, lock=allocate_lock):
        self.waiters, self.lock = [], lock

    cdef Waiter enter(self, int64_t ticket):
        cdef Waiter waiter = Waiter.__new__(Waiter)
        waiter.lock, waiter.ticket = self.lock(), ticket
        waiter.lock.acquire()
        self.waiters.append(waiter)
        return waiter

    cdef int leave(self, Waiter waiter) except -1:
        if waiter.told:
            self.waking -= 1
        elif waiter in self.waiters:
            self.waiters.remove(waiter)
        return 0

    cdef int wake(self, Waiter waiter) except -1:
        waiter.told = True
        self.waking += 1
        waiter.lock.release()
        return 0

    cdef list take_all(self):
        """Take all waiters off the list.

        The new list is made first: that may collect garbage, and other threads run meanwhile.
        """
        cdef list none = [], found = self.waiters
        self.waiters = none
        return found

    cpdef tell(self):
        """Wake all threads that wait now."""
        cdef Waiter waiter
        for waiter in self.take_all():
            self.wake(waiter)

    cdef int tell_resolved(self, int64_t resolved) except -1:
        """Wake those whose tickets are resolved or are the next ones.

        If there are none, wake the one that came first: it takes in answers for all from now on.
        """
        cdef Waiter waiter
        cdef list waiters = self.take_all()
        for waiter in waiters:
            if waiter.ticket > resolved:
                self.waiters.append(waiter)
        if len(self.waiters) == len(waiters):
            return self.tell_one()
        for waiter in waiters:
            if waiter.ticket <= resolved:
                self.wake(waiter)
        return 0

    cdef int tell_one(self) except -1:
        """Wake the thread that came first."""
        if self.waiters:
            self.wake(self.waiters.pop(0))
        return 0

    def wait(self, condition, double timeout_s=-1):
        """Wait once, for :meth:`tell` or the timeout, unless ``condition()`` holds already.

        Whatever makes the condition true must call :meth:`tell` afterwards.
        """
        cdef Waiter waiter = self.enter(0)
        try:
            if not condition():
                waiter.lock.acquire(True, timeout_s)
        finally:
            self.leave(waiter)


cdef class HeldNews:
    """Hold a lock, waited for until a deadline: ``with HeldNews(...):``. Raises NoQuorum."""

    cdef object lock, now
    cdef double deadline

    def __init__(self, lock, double deadline, now=time.monotonic):
        self.lock, self.deadline, self.now = lock, deadline, now

    def __enter__(self):
        if not self.lock.acquire(True, max(0.0, self.deadline - self.now())):
            raise NoQuorum("no leader could be found: another thread is still looking for one")

    def __exit__(self, *_exc):
        self.lock.release()


def call_alone(lock, News news, call):
    """Call ``call()`` with the lock held, unless another thread holds it; then tell ``news``."""
    if lock.acquire(False):
        try:
            call()
        finally:
            lock.release()
            news.tell()
