"""What time it is, for compiled code of this room."""

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
    static inline uint64_t monotonic_ns(void) { return kf_clock_ns(CLOCK_MONOTONIC); }
    static inline int64_t wall_ms(void) { return (int64_t)(kf_clock_ns(CLOCK_REALTIME) / 1000000); }
    """
    uint64_t monotonic_ns() nogil
    int64_t wall_ms() nogil
