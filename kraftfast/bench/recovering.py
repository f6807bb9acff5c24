"""How long a quorum takes to open a log that is there: after a clean stop, and after a kill."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from kraftfast.bench import load, verify
from kraftfast.bench.inputs import Rows
from kraftfast.bench.measurement import end_of

TIMEOUT_S = 600.0


def measure(start: Callable[[], Any], rows: Rows, count: int) -> tuple[list[dict[str, Any]], str]:
    """Return (a line for each way to end, what the verification found wrong or "").

    ``start``: starts a quorum in one and the same directory. Each time runs until a read barrier
    has passed: until then nobody can know what is committed. That of the log without records is
    what processes and an election take.
    """
    with start():
        pass
    began = time.monotonic()
    with start() as quorum:
        lines = [_line("a clean stop without records", quorum, 0, began)]
        first_offset = end_of(quorum)
        with quorum.producer(record_bytes_max=rows.size) as producer:
            handed_over = load.throughput(producer, rows, count, None).handed_over
    size = handed_over * rows.size

    def check(quorum: Any) -> str:
        checker = partial(rows.checker, handed_over)
        return verify.verify(quorum, first_offset, end_of(quorum), checker)[1]

    began = time.monotonic()
    with start() as quorum:
        lines.append(_line("a clean stop", quorum, size, began))
        problem = check(quorum)
        if not problem:
            began = time.monotonic()
            for id in quorum.directories:
                quorum.kill(id)
            lines.append(_line("kill -9 of all replicas", quorum, size, began))
            problem = check(quorum)
    return [line | {"verified": not problem} for line in lines], problem


def _line(after: str, quorum: Any, size: int, began: float) -> dict[str, Any]:
    quorum.read_barrier(timeout=TIMEOUT_S)
    took_s = time.monotonic() - began
    return {
        "part": f"after {after}",
        "log_mib": round(size / (1 << 20), 1),
        "took_s": round(took_s, 3),
    }
