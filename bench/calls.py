"""One record a call, from one Python thread: ``append`` in a window, and an asyncio future each.

    python bench/calls.py --dir DIR [--records N] [--record-size 100] [--transport ring|socket]

Three voters, durable on a majority, everything prepared. At most 4096 records are under way.
Prints one JSON line: committed records a second of both. Bars: 800,000 and 250,000.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import time
from collections.abc import Callable

from kraftfast import LocalQuorum

WINDOW = 4096
STEP = 512
BARS = {"append_per_s": 800_000, "asyncio_per_s": 250_000}


def one_thread(quorum: LocalQuorum, value: bytes, records: int) -> None:
    """``append`` returns a number at once; what is ``WINDOW`` behind has to be committed."""
    with quorum.producer() as producer:
        append, tickets = producer.append, [0] * (WINDOW // STEP)
        for step in range(records // STEP):
            for _ in range(STEP):
                ticket = append(value)
            at = step % len(tickets)
            if tickets[at]:
                producer.wait(tickets[at], timeout=60)
            tickets[at] = ticket
        producer.wait(ticket, timeout=60)


def with_asyncio(quorum: LocalQuorum, value: bytes, records: int) -> None:
    """A future for every record, awaited in the order of its append."""

    async def run() -> None:
        async with quorum.async_producer() as producer:
            waiting: list[list[asyncio.Future[int]]] = []
            for _ in range(records // STEP):
                waiting.append([producer.append(value) for _ in range(STEP)])
                if len(waiting) == WINDOW // STEP:
                    for future in waiting.pop(0):
                        await future
            for futures in waiting:
                await asyncio.gather(*futures)

    asyncio.run(run())


def rate(
    run: Callable[[LocalQuorum, bytes, int], None], quorum: LocalQuorum, size: int, n: int
) -> float:
    """Committed records a second, once it is warm."""
    run(quorum, b"v" * size, 20_000)  # warm
    before = quorum.status(quorum.wait_leader())["high_watermark"]
    began = time.perf_counter()
    run(quorum, b"v" * size, n)
    seconds = time.perf_counter() - began
    committed = quorum.status(quorum.wait_leader())["high_watermark"] - before
    assert committed >= n // STEP * STEP, "every record was committed"
    found: float = committed / seconds
    return found


def main() -> int:
    """Exit code 1 if a bar was missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", default="/var/tmp", help="on the disk to be measured [/var/tmp]")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--record-size", type=int, default=100)
    parser.add_argument("--transport", choices=["ring", "socket"], default="ring")
    asked = parser.parse_args()
    place = os.path.join(asked.dir, f"kraftfast-calls-{os.getpid()}")
    prepared = 3 * asked.records * (asked.record_size + 40)
    try:
        with LocalQuorum(
            place, 3, transport=asked.transport, prepare_bytes=prepared,
            segment_bytes=max(256 << 20, prepared), timeout=120.0,
        ) as quorum:  # fmt: skip
            line = {
                "append_per_s": rate(one_thread, quorum, asked.record_size, asked.records),
                "asyncio_per_s": rate(with_asyncio, quorum, asked.record_size, asked.records),
            }
    finally:
        shutil.rmtree(place, ignore_errors=True)
    settings = {"record_bytes": asked.record_size, "transport": asked.transport, "window": WINDOW}
    print(json.dumps(settings | {name: round(value) for name, value in line.items()}))
    return int(any(line[name] < bar for name, bar in BARS.items()))


if __name__ == "__main__":
    sys.exit(main())
