"""Control batches of a log, for compiled code. See ``control_scan.pyx``."""

from libc.stdint cimport int64_t

from kraftfast.log.log cimport Log


cpdef list control_batches(Log log, int64_t from_offset)
