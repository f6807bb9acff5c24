"""Idempotent producers that have appended before, and that the replicas remember."""

from __future__ import annotations

from collections import deque
from typing import Any

from kraftfast import limits

TIMEOUT_S = 60.0
AT_ONCE = 32
"""Producers that are open at the same time: a commit is waited for while others are made."""
VALUE = b"retained"
MORE = 72
"""Producers of the benchmarks themselves, which must not make the replicas forget these."""


def settings(count: int) -> dict[str, int]:
    """Return the settings of a quorum that remembers so many."""
    return {"producers_max": min(limits.PRODUCERS_MAX, count + MORE)} if count else {}


def append_once_each(quorum: Any, count: int) -> None:
    """Have so many producers append one record each; then they are gone."""
    waiting: deque[tuple[Any, int]] = deque()
    try:
        for _ in range(count):
            if len(waiting) == AT_ONCE:
                _end(*waiting.popleft())
            producer = quorum.producer(idempotent=True, timeout=TIMEOUT_S)
            waiting.append((producer, producer.append(VALUE, timeout=TIMEOUT_S)))
        while waiting:
            _end(*waiting.popleft())
    finally:
        for producer, _ in waiting:
            producer.close()


def _end(producer: Any, ticket: int) -> None:
    """Wait for the commit of its record; close it."""
    with producer:
        producer.wait(ticket, timeout=TIMEOUT_S)
