"""What observers cost a leader: CPU time while nothing happens, and the speed of commits.

    python bench/observers.py --dir DIR [--observers 300] [--seconds 10]

Each observer is a TCP connection with an id and a directory id of its own that fetches as Kafka's
do, over and over, and throws the records away. Prints one JSON line: CPU of the leader, alone and
with them (per cent of a core, nothing being appended), and the latency of single durable records.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import struct
import sys
import threading
import time
from pathlib import Path
from typing import Any

from idle import cpu_seconds

from kraftfast.quorum import LocalQuorum
from kraftfast.types import METADATA_TOPIC, METADATA_TOPIC_ID
from kraftfast.wire import fetch

VERSION, MAX_WAIT_MS, MAX_BYTES = 18, 500, 1 << 20
RECORDS = 300
ADDRESSES = 8


class Observers:
    """Many of them, in a thread of their own."""

    def __init__(self, count: int, address: tuple[str, int], cluster_id: str) -> None:
        self.count, self.address, self.cluster_id = count, address, cluster_id
        self.answers = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Observers:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._loop.call_soon_threadsafe(self._stop)
        self._thread.join()

    def _stop(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.call_later(0.1, self._loop.stop)

    def _run(self) -> None:
        for number in range(self.count):
            self._loop.create_task(self._follow(number))
        self._loop.run_forever()

    async def _follow(self, number: int) -> None:
        place = f"127.0.0.{2 + number % ADDRESSES}", 0  # a leader takes so many from one address
        reader, writer = await asyncio.open_connection(*self.address, local_addr=place)
        offset, epoch, high_watermark = 0, 0, -1
        while True:
            asked = self._question(number, offset, epoch, high_watermark)
            writer.write(fetch.encode_request(VERSION, 1, "observer", asked))
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            _, answer = fetch.decode_response(VERSION, await reader.readexactly(size))
            self.answers += 1
            high_watermark = max(high_watermark, answer.high_watermark)
            if answer.leader_epoch > epoch:
                epoch = answer.leader_epoch
            offset = max(offset, _end(answer.records, offset))

    def _question(self, number: int, offset: int, epoch: int, high_watermark: int) -> Any:
        return fetch.PartitionFetch(
            cluster_id=self.cluster_id,
            replica_id=1000 + number,
            max_wait_ms=MAX_WAIT_MS,
            max_bytes=MAX_BYTES,
            topic=METADATA_TOPIC,
            topic_id=METADATA_TOPIC_ID,
            partition=0,
            current_leader_epoch=epoch,
            fetch_offset=offset,
            last_fetched_epoch=epoch if offset else 0,
            replica_directory_id=(1000 + number).to_bytes(16, "big"),
            high_watermark=high_watermark,
        )


def _end(records: Any, offset: int) -> int:
    """Behind the last whole batch of an answer."""
    at = 0
    data = bytes(records or b"")
    while at + 61 <= len(data):
        base, length = struct.unpack_from(">qi", data, at)
        if at + 12 + length > len(data):
            break
        offset = base + struct.unpack_from(">i", data, at + 23)[0] + 1
        at += 12 + length
    return offset


def measure(quorum: LocalQuorum, leader: int, seconds: float) -> tuple[float, float, float]:
    """CPU of the leader while nothing is appended, per cent; of a commit, us; its latency, us."""
    pid = quorum.supervisor.pid(leader)
    assert pid is not None
    time.sleep(2.0)
    began, before = time.monotonic(), cpu_seconds(pid)
    time.sleep(seconds)
    percent = 100 * (cpu_seconds(pid) - before) / (time.monotonic() - began)
    with quorum.producer() as producer:
        took, before = [], cpu_seconds(pid)
        for _ in range(RECORDS):
            start = time.perf_counter()
            producer.append_wait(b"x" * 100, timeout=30)
            took.append(time.perf_counter() - start)
        spent = cpu_seconds(pid) - before
    median = sorted(took)[RECORDS // 2]
    return round(percent, 2), round(spent / RECORDS * 1e6), round(median * 1e6)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--dir", required=True)
    parser.add_argument("--observers", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    place = Path(options.dir) / f"kraftfast-observers-{os.getpid()}"
    try:
        with LocalQuorum(place, voters=3, transport="socket") as quorum:
            leader = quorum.describe().leader_id
            alone = measure(quorum, leader, options.seconds)
            address = quorum.addresses[leader]
            many = Observers(options.observers, address, quorum.description.cluster_id)
            with many as observers:
                among = measure(quorum, leader, options.seconds)
                seen = len(quorum.describe().observers)
            assert observers.answers > options.observers
        row = {
            "observers": seen,
            "leader_core_percent": {"alone": alone[0], "with_observers": among[0]},
            "leader_cpu_us_a_commit": {"alone": alone[1], "with_observers": among[1]},
            "commit_p50_us": {"alone": alone[2], "with_observers": among[2]},
        }
        print(json.dumps(row))
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
