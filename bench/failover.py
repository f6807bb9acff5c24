"""How long a quorum is without a leader: kill -9 of the leader under load, again and again.

    python bench/failover.py --dir DIR [--kills 50] [--transport ring|socket|both] [--json FILE]

Each time: from the signal to the next commit that a client is told of, as one producer with a
window of batches sees it. A split vote is an epoch that began and had no leader. Prints a table,
and one JSON line for each transport.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import threading
import time
from bisect import bisect_right
from pathlib import Path
from typing import Any

from kraftfast.client.local import LocalConnector
from kraftfast.client.producer import Batch, Producer
from kraftfast.errors import KraftfastError, PeerGone, TimedOut
from kraftfast.quorum import LocalQuorum

BARS_MS = {"ring": (50.0, 500.0), "socket": (300.0, 1500.0)}
"""(p50, worst) that is asked for, milliseconds."""


class Load:
    """One producer, always with something under way, and the moments of its commits."""

    # committed_at: when the last commit was told. _stop: ends the thread.

    def __init__(self, quorum: LocalQuorum, value_bytes: int, pause_s: float) -> None:
        self.producer = Producer(LocalConnector(quorum.directories, 16384, 64))
        self.committed_at: list[float] = []
        self.records = 0
        self._value, self._pause_s = b"x" * value_bytes, pause_s
        self._stop = threading.Event()
        self.producer.on_commit(self._told)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _told(self, batch: Batch) -> None:
        if batch.error is None:
            self.committed_at.append(time.monotonic())
            self.records += batch.end_ticket - batch.first_ticket

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.producer.append(self._value, timeout=30.0)
            except KraftfastError as error:
                print(f"append: {error}", file=sys.stderr)
            time.sleep(self._pause_s)

    def next_commit(self, moment: float, timeout: float) -> float:
        """Seconds from ``moment`` to the next commit. Raises TimedOut."""
        while time.monotonic() < moment + timeout:
            place = bisect_right(self.committed_at, moment)
            if place < len(self.committed_at):
                return self.committed_at[place] - moment
            time.sleep(0.0005)
        raise TimedOut(f"no commit within {timeout} s of a kill")

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self.producer.close()


def statuses(quorum: LocalQuorum) -> list[dict[str, Any]]:
    """Of every replica that answers."""
    found = []
    for id in quorum.directories:
        try:
            found.append(quorum.status(id))
        except (PeerGone, TimedOut):
            pass
    return found


def wait_whole(quorum: LocalQuorum, timeout: float = 60.0) -> tuple[int, int]:
    """(leader, epoch) once all replicas are up, follow it, and have what is committed."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        found = statuses(quorum)
        leaders = [status["node_id"] for status in found if status["role"] == "leader"]
        whole = len(found) == len(quorum.directories) and len(leaders) == 1
        if whole and len({status["epoch"] for status in found}) == 1:
            marks = [status["high_watermark"] for status in found]
            if min(marks) >= 0 and max(marks) - min(marks) < 1000:
                return leaders[0], found[0]["epoch"]
        time.sleep(0.02)
    raise TimedOut(f"the quorum was not whole again within {timeout} s")


def measure(directory: Path, transport: str, kills: int, args: argparse.Namespace) -> dict[str, Any]:
    """``kills`` failovers; milliseconds."""
    times_ms, split = [], 0
    with LocalQuorum(directory, voters=args.voters, transport=transport, segment_bytes=64 << 20,
                     stride_bytes=8 << 20) as quorum:  # fmt: skip
        load = Load(quorum, args.record_size, args.pause)
        try:
            for number in range(kills):
                leader, epoch = wait_whole(quorum)
                time.sleep(args.settle)
                moment = time.monotonic()
                quorum.kill(leader, signal.SIGKILL)
                times_ms.append(load.next_commit(moment, 60.0) * 1000)
                split += max(0, wait_whole(quorum)[1] - epoch - 1)
                if sys.stderr.isatty():
                    print(f"\r{transport}: {number + 1}/{kills}", end="", file=sys.stderr, flush=True)
        finally:
            load.close()
    times_ms.sort()
    bar = BARS_MS[transport]
    return {
        "transport": transport,
        "voters": args.voters,
        "kills": kills,
        "p50_ms": round(times_ms[len(times_ms) // 2], 1),
        "p90_ms": round(times_ms[int(len(times_ms) * 0.9)], 1),
        "worst_ms": round(times_ms[-1], 1),
        "split_votes": split,
        "records": load.records,
        "bar_p50_ms": bar[0],
        "bar_worst_ms": bar[1],
        "times_ms": [round(each, 1) for each in times_ms],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, required=True, help="where the quorums are made; left empty")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--transport", choices=[*BARS_MS, "both"], default="both")
    parser.add_argument("--voters", type=int, default=3)
    parser.add_argument("--record-size", type=int, default=100)
    parser.add_argument("--pause", type=float, default=0.0002, help="seconds between appends")
    parser.add_argument("--settle", type=float, default=0.1, help="seconds between whole and kill")
    parser.add_argument("--json", type=Path, help="append the JSON lines to this file")
    args = parser.parse_args()
    rows = []
    for transport in BARS_MS if args.transport == "both" else [args.transport]:
        directory = args.dir / f"failover-{transport}"
        try:
            rows.append(measure(directory, transport, args.kills, args))
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    print("from kill -9 of the leader to the next acknowledged commit, milliseconds")
    print(f"{'transport':>10} {'kills':>6} {'p50':>8} {'bar':>7} {'p90':>8} {'worst':>8} {'bar':>7} {'split votes':>12}")
    for row in rows:
        print(
            f"{row['transport']:>10} {row['kills']:>6} {row['p50_ms']:>8} {row['bar_p50_ms']:>7} {row['p90_ms']:>8} "
            f"{row['worst_ms']:>8} {row['bar_worst_ms']:>7} {row['split_votes']:>12}"
        )
    for row in rows:
        print(json.dumps(row))
        if args.json:
            with args.json.open("a") as file:
                file.write(json.dumps(row) + "\n")
    return 0 if all(r["p50_ms"] <= r["bar_p50_ms"] and r["worst_ms"] <= r["bar_worst_ms"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
