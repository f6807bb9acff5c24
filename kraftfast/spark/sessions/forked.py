"""What a process does for itself that PySpark forked or started to run our sources.

* It is silent where no reader waits for it. A query that has seen enough, or a session that
  ends, closes the connection to its workers; the last flush of a worker fails then, and PySpark's
  daemon prints a traceback that tells nothing. So does the interpreter of a worker that has no
  daemon, as that of a stream's reader, which lives as long as its query.
* It keeps the garbage collector from what was imported. The daemon's code collects after every
  task, which took a third of all CPU time of workers (profiles/README.md).
* It keeps the memory of one record batch for the next. The C library gives blocks of this size back
  at once, and the kernel then clears every page of the next one.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import traceback
from types import TracebackType
from typing import Any

WORKERS = ("pyspark.daemon", "pyspark.worker", "pyspark.sql.worker.", "pyspark.sql.streaming.")
"""What the main module of such a process is called, or how its name begins."""
UNHEARD = (BrokenPipeError, ConnectionResetError)
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
BLOCK_BYTES_MAX = 32 << 20  # the most that glibc takes
KEPT_BYTES_MAX = 64 << 20
_print = traceback.print_exc
_settled_modules = 0


def settle() -> None:
    """Arrange all of it, if this is such a process; every task calls it before it begins.

    After the first time only if anything was imported since: what tasks leave is the collector's.
    """
    global _settled_modules
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is None or not spec.name.startswith(WORKERS) or len(sys.modules) == _settled_modules:
        return
    _settled_modules = len(sys.modules)
    traceback.print_exc = print_unless_gone
    sys.excepthook = end_unless_gone
    keep_memory()
    gc.freeze()


def print_unless_gone(*args: Any, **settings: Any) -> None:
    """``traceback.print_exc``, but for an answer that was not taken."""
    if not isinstance(sys.exc_info()[1], UNHEARD):
        _print(*args, **settings)


def end_unless_gone(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """``sys.excepthook``, but for an answer that was not taken."""
    if not isinstance(error, UNHEARD):
        sys.__excepthook__(kind, error, trace)


def keep_memory() -> None:
    """Tell glibc to keep what is freed, up to a bound; another C library has no such setting."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, BLOCK_BYTES_MAX)
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES_MAX)
