"""Workers that nobody waits for any more end without a word.

A query that has seen enough, or a session that ends, closes the connection to its Python workers.
The last flush of a worker fails then, and PySpark's daemon, from which it was forked, prints a
traceback that tells nothing. This is for the process of such a worker alone.
"""

from __future__ import annotations

import sys
import traceback
from typing import Any

DAEMON = "pyspark.daemon"
_print = traceback.print_exc


def hush() -> None:
    """Do so in this process, if it is such a worker."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name == DAEMON:
        traceback.print_exc = print_unless_gone


def print_unless_gone(*args: Any, **settings: Any) -> None:
    """``traceback.print_exc``, but for an answer that nobody took."""
    if not isinstance(sys.exc_info()[1], BrokenPipeError | ConnectionResetError):
        _print(*args, **settings)
