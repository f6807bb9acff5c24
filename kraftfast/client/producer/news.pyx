"""Wait and lock so that a signal handler which raises leaves no lock taken.

Python runs signal handlers between bytecodes. One that raises (Ctrl-C, a time limit by SIGALRM) may
do so inside ``threading.Condition`` after its lock was taken and before the ``with`` block that
would release it began: the lock stays taken for ever. Compiled code runs no handlers, except where
a lock is waited for, and there the lock is not taken yet.
"""

import time
from _thread import allocate_lock

from kraftfast.errors import NoQuorum


cdef class News:
    """Wakes all threads that wait for something to happen."""

    # waiters: a lock for each, taken; released by tell(). lock: makes one.

    def __init__(self, lock=allocate_lock):
        self.waiters, self.lock = [], lock

    cdef object enter(self):
        waiter = self.lock()
        waiter.acquire()
        self.waiters.append(waiter)
        return waiter

    cdef int leave(self, waiter) except -1:
        if waiter in self.waiters:
            self.waiters.remove(waiter)
        return 0

    cpdef tell(self):
        """Wake all threads that wait now."""
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            waiter.release()

    def wait(self, condition, double timeout_s=-1):
        """Wait once, for :meth:`tell` or the timeout, unless ``condition()`` holds already.

        Whatever makes the condition true must call :meth:`tell` afterwards.
        """
        waiter = self.enter()
        try:
            if not condition():
                waiter.acquire(True, timeout_s)
        finally:
            self.leave(waiter)


cdef class Held:
    """Hold a lock, waited for until a deadline: ``with Held(lock, deadline):``. Raises NoQuorum."""

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
