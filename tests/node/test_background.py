"""Jobs that are done beside the loop."""

from __future__ import annotations

import time

import pytest

from kraftfast.errors import FlushFailed
from kraftfast.link.kernel import THREADS
from kraftfast.node.threads.background import Background


def test_jobs_run_beside_in_order_and_are_told_of_in_the_loop() -> None:
    beside = Background(THREADS)
    try:
        found: list[int] = []

        def take(count: int) -> None:
            deadline = time.monotonic() + 20
            while len(found) < count and time.monotonic() < deadline:
                beside.take()
                time.sleep(0.001)

        for number in range(50):
            beside.ask(lambda number=number: number * number, found.append)  # type: ignore[misc]
        take(50)
        assert found == [number * number for number in range(50)]

        def fail() -> None:
            raise FlushFailed("of a snapshot")

        beside.ask(fail, lambda _: None)
        with pytest.raises(FlushFailed):  # D9: it ends the loop
            take(51)
    finally:
        beside.close()
    beside.tell(lambda: None)  # nobody looks any more
