"""What a process does for itself that PySpark's daemon forked to run our sources.

* It is silent where nobody waits for it any more. A query that has seen enough, or a session that
  ends, closes the connection to its workers; the last flush of a worker fails then, and the
  daemon's code prints a traceback that tells nothing.
* It keeps the garbage collector from what was imported. The daemon's code collects after every
  task, which took a third of all CPU time of workers (profiles/README.md).
"""

from __future__ import annotations

import gc
import sys
import traceback
from typing import Any

DAEMON = "pyspark.daemon"
_print = traceback.print_exc


def settle() -> None:
    """Arrange both, if this is such a process; once what it needs is imported."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name == DAEMON:
        traceback.print_exc = print_unless_gone
        gc.freeze()


def print_unless_gone(*args: Any, **settings: Any) -> None:
    """``traceback.print_exc``, but for an answer that nobody took."""
    if not isinstance(sys.exc_info()[1], BrokenPipeError | ConnectionResetError):
        _print(*args, **settings)
