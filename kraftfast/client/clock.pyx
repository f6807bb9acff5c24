"""The clocks of this machine, as compiled code reads them. The simulator has one of its own."""

from libc.stdint cimport int64_t, uint64_t


cdef extern from *:
    """
    #include <stdint.h>
    #include <time.h>
    static inline uint64_t kf_clock_ns(clockid_t clock) {
        struct timespec t;
        clock_gettime(clock, &t);
        return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
    }
    """
    ctypedef int clockid_t
    clockid_t CLOCK_MONOTONIC, CLOCK_REALTIME
    uint64_t kf_clock_ns(clockid_t clock) nogil


cdef class Clock:
    """Time since some moment, and the time of day."""

    cdef uint64_t monotonic_ns(self) noexcept nogil:
        return kf_clock_ns(CLOCK_MONOTONIC)

    cdef int64_t wall_ms(self) noexcept nogil:
        return <int64_t>(kf_clock_ns(CLOCK_REALTIME) // 1000000)
