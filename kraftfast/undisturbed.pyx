"""A hook of ``fork`` that no signal disturbs.

Python runs signal handlers between bytecodes, those of a hook too, and drops what they raise there:
a Ctrl-C, which every process of a terminal gets, would end the hook half-way, and the child would
go on without the rest of it. What comes before the hook runs would be told to the parent, where
signals are written to a descriptor that the child has as well. So signals wait while a process
forks: in the parent for that, in the child until the hook has ended.
"""

cdef extern from *:
    """
    #include <signal.h>
    #include <stddef.h>

    /* before: what the thread blocked. depth: of forks within the hooks of a fork. */
    static _Thread_local struct { sigset_t before; int depth; } kf_held;

    static void kf_hold_signals(void) {
        /* Signals that a thread causes itself stay: blocked, they would kill without a word. */
        static const int own[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
        sigset_t all;
        if (kf_held.depth++) return;
        sigfillset(&all);
        for (size_t i = 0; i < sizeof own / sizeof *own; i++) sigdelset(&all, own[i]);
        pthread_sigmask(SIG_BLOCK, &all, &kf_held.before);
    }
    static void kf_release_signals(void) {
        if (kf_held.depth && --kf_held.depth == 0)
            pthread_sigmask(SIG_SETMASK, &kf_held.before, NULL);
    }
    """
    void kf_hold_signals()
    void kf_release_signals()

cdef enum:
    SIGNALS = 64    # kinds of them

cdef extern from "Python.h":
    int PyErr_CheckSignals() except -1


def hold_signals():
    """Hold signals, before a fork."""
    kf_hold_signals()


def release_signals():
    """Release them after it, in the parent; handlers run once the hooks have ended."""
    kf_release_signals()


cdef class Undisturbed:
    """Calls ``hook`` after a fork, in the child, from its beginning to its end.

    What a handler raises then is dropped with a message, as in all hooks of Python.
    """

    cdef object hook

    def __init__(self, hook):
        self.hook = hook

    def __call__(self):
        try:
            self.hook()
        finally:
            kf_release_signals()
            for _ in range(SIGNALS):  # a handler that raises leaves the others for the next call
                if handle_signals():
                    break


cdef bint handle_signals() noexcept:
    PyErr_CheckSignals()
    return True
