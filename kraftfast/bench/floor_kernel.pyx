"""The floor, by cext/bench_floor.c: the least work by which three voters can commit records."""

from libc.stdint cimport int64_t

import os

from kraftfast.log.disk import storage_error


cdef extern from "bench_floor.h" nogil:
    enum:
        KF_FLOOR_IN_PLACE
        KF_FLOOR_MAP
        KF_FLOOR_WRITE
        KF_FLOOR_DIRECT
        KF_FLOOR_PREPARED
        KF_FLOOR_MAPPED
        KF_FLOOR_RESERVED
        KF_FLOOR_GROWING
        KF_FLOOR_COLD

    ctypedef struct kf_floor_options:
        const char *directory
        size_t value_bytes
        size_t batch_bytes
        int64_t batches
        int window
        int durable
        int how
        int files
        size_t keep_bytes

    ctypedef struct kf_floor_result:
        int64_t records
        double seconds
        double p50_us
        double p99_us
        double p999_us
        double max_us
        double user_s
        double system_s
        char failed[96]
        int error

    int kf_floor_run(const kf_floor_options *options, kf_floor_result *result)


HOW = {
    "in-place": KF_FLOOR_IN_PLACE,
    "map": KF_FLOOR_MAP,
    "write": KF_FLOOR_WRITE,
    "direct": KF_FLOOR_DIRECT,
}
FILES = {
    "prepared": KF_FLOOR_PREPARED,
    "mapped": KF_FLOOR_MAPPED,
    "reserved": KF_FLOOR_RESERVED,
    "growing": KF_FLOOR_GROWING,
    "cold": KF_FLOOR_COLD,
}


def run(
    str directory, *, size_t value_bytes, size_t batch_bytes, int64_t batches, int window,
    bint durable, str how, str files, size_t keep_bytes=0
):
    """Run the floor in this process and two that it forks; return a dict.

    Its keys: ``records``, ``seconds``, ``p50_us``, ``p99_us``, ``p999_us``, ``max_us`` (of batches,
    from the encoding to the commit), ``user_s``, ``system_s`` (of all three). ``keep_bytes``: files
    are used in a circle; 0: they hold everything. Only for a process with one thread, which Ctrl-C
    may end. Raises StorageError, DiskFull.
    """
    cdef kf_floor_options options
    cdef kf_floor_result result
    cdef bytes path = directory.encode()
    options.directory = path
    options.value_bytes, options.batch_bytes = value_bytes, batch_bytes
    options.batches, options.window, options.durable = batches, window, durable
    options.how, options.files, options.keep_bytes = HOW[how], FILES[files], keep_bytes
    if kf_floor_run(&options, &result):
        error = OSError(result.error, os.strerror(result.error))
        raise storage_error(f"the floor: {result.failed.decode()} in", directory, error)
    return {
        "records": result.records,
        "seconds": result.seconds,
        "p50_us": result.p50_us,
        "p99_us": result.p99_us,
        "p999_us": result.p999_us,
        "max_us": result.max_us,
        "user_s": result.user_s,
        "system_s": result.system_s,
    }
