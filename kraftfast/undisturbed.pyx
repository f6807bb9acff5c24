"""Hooks of ``fork`` that no signal disturbs.

Python runs signal handlers between bytecodes, those of a hook too, and drops what they raise there:
a Ctrl-C, which every process of a terminal gets, would end the hook half-way, and the child would
go on without the rest of it.
"""

cdef extern from *:
    """
    #include <signal.h>
    #include <stddef.h>

    /* Block what comes from outside. Signals that a thread causes itself stay: blocked, they would
     * kill without a word. */
    static void kf_hold_signals(sigset_t *before) {
        static const int own[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
        sigset_t held;
        sigfillset(&held);
        for (size_t i = 0; i < sizeof own / sizeof *own; i++) sigdelset(&held, own[i]);
        pthread_sigmask(SIG_BLOCK, &held, before);
    }
    static void kf_let_signals_come(const sigset_t *before) {
        pthread_sigmask(SIG_SETMASK, before, NULL);
    }
    """
    ctypedef struct sigset_t:
        pass
    void kf_hold_signals(sigset_t *before) nogil
    void kf_let_signals_come(const sigset_t *before) nogil

cdef enum:
    SIGNALS = 64    # kinds of them

cdef extern from "Python.h":
    int PyErr_CheckSignals() except -1


cdef class Undisturbed:
    """Calls ``hook`` from its beginning to its end; signals wait. Compiled: nothing comes before.

    What a handler raises is dropped with a message, as in all hooks of Python.
    """

    cdef object hook

    def __init__(self, hook):
        self.hook = hook

    def __call__(self):
        cdef sigset_t before
        kf_hold_signals(&before)
        handle_signals()  # those that came before; while they are held no others come
        try:
            self.hook()
        finally:
            kf_let_signals_come(&before)
            handle_signals()


cdef void handle_signals() noexcept:
    """Run the handlers of what has come. One that raises leaves the rest for another call."""
    for _ in range(SIGNALS):
        if handled():
            return


cdef bint handled() noexcept:
    PyErr_CheckSignals()
    return True
