"""What went wrong, in one line: Spark wraps a worker's exception in a page of text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from kraftfast import errors
from kraftfast.errors import KraftfastError, SparkFailed

OURS = re.compile(r"kraftfast\.errors\.(\w+): (.+)")
THEIRS = re.compile(r"^\w*(?:Error|Exception): (.+)", re.MULTILINE)
OF_PY4J = re.compile(r"\AAn error occurred while calling .*\n: (?:[\w.$]+: )?")
"""What stands before the first line that says anything."""
TEXT_MAX = 400


def explain(error: BaseException) -> KraftfastError:
    """Return the failure of ours that an exception of Spark's wraps, or one with its first line.

    >>> text = "[X] failed\\nTraceback ...\\nkraftfast.errors.CorruptLog: a.log is damaged\\n at Y"
    >>> explain(RuntimeError(text))
    CorruptLog('a.log is damaged')
    >>> explain(RuntimeError("[PATH_NOT_FOUND] no such path\\nstack"))
    SparkFailed('[PATH_NOT_FOUND] no such path')
    >>> explain(RuntimeError("An error occurred while calling o1.x.\\n: java.lang.E: no file\\n"))
    SparkFailed('no file')
    """
    if isinstance(error, KraftfastError):
        return error
    text = OF_PY4J.sub("", str(error))
    found = OURS.findall(text)
    if found:
        name, message = found[-1]
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, KraftfastError):
            return kind(message.strip())
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    inner = THEIRS.findall(text)
    first = lines[0] if lines else type(error).__name__
    if inner and inner[-1].strip() not in first:
        first = f"{first}: {inner[-1].strip()}"
    return SparkFailed(first[:TEXT_MAX])


@contextmanager
def told() -> Iterator[None]:
    """Raise what :func:`explain` makes of Spark's exceptions inside the ``with`` block."""
    try:
        yield
    except KraftfastError:
        raise
    except Exception as error:
        module = type(error).__module__
        if module.startswith(("pyspark", "py4j", "grpc")):
            raise explain(error) from None
        raise
