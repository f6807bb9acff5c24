"""Fork a sibling: a child of this process's parent, which waits for it and gets its exit code.

For a worker that has imported everything and opened nothing yet: the next one need not import it
again. Only a process with one thread may do this, as with every fork.
"""

import os

cdef extern from *:
    """
    #include <errno.h>
    #include <sched.h>
    #include <signal.h>
    #include <stddef.h>
    #include <sys/prctl.h>
    #include <sys/syscall.h>
    #include <unistd.h>

    #ifndef PR_GET_TID_ADDRESS
    #define PR_GET_TID_ADDRESS 40
    #endif

    /* As fork() of the C library, but with CLONE_PARENT: it too has the kernel write the child's
     * thread id to where the library keeps it. No handlers of pthread_atfork run; a process with
     * one thread holds no lock that a child could miss. -1 with errno where that cannot be. */
    static long kf_fork_sibling(void) {
    #if defined(__x86_64__) || defined(__aarch64__)
        const unsigned long flags = CLONE_PARENT | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;
        int *tid = NULL;
        if (prctl(PR_GET_TID_ADDRESS, &tid, 0, 0, 0)) return -1;
    #if defined(__x86_64__)
        return syscall(SYS_clone, flags | SIGCHLD, NULL, NULL, tid, 0UL);
    #else
        return syscall(SYS_clone, flags | SIGCHLD, NULL, NULL, 0UL, tid);
    #endif
    #else
        errno = ENOSYS;  /* the order of the arguments differs from machine to machine */
        return -1;
    #endif
    }
    """
    long kf_fork_sibling() nogil

cdef extern from "Python.h":
    void PyOS_BeforeFork()
    void PyOS_AfterFork_Parent()
    void PyOS_AfterFork_Child()

from libc.errno cimport errno


def fork_sibling() -> int:
    """Return the sibling's process id, and 0 in the sibling. Raises OSError."""
    cdef long pid
    cdef int failed
    PyOS_BeforeFork()
    pid = kf_fork_sibling()
    failed = errno
    if pid == 0:
        PyOS_AfterFork_Child()
    else:
        PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(failed, os.strerror(failed))
    return pid
