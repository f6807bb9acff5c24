"""How long a quorum is without a leader, and whether it changes one that lives.

    python bench/failover.py --dir DIR [--kills 50] [--resets 50] [--transport ring|socket|both]
                             [--busy 0]

Kills: kill -9 of the leader under load, again and again. Each time: from the signal to the first
commit of a later epoch that a client is told of, as one producer with a window of batches sees it.
A split vote is an epoch that began and had no leader.

Resets: every TCP connection of a live leader is reset at once, again and again, with producer and
replicas over sockets. No epoch may begin. Needs root and ``ss``.

``--busy N``: meanwhile N processes want a processor each, as on a machine with other work.

Prints a table, and one JSON line for each row.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kraftfast.client.producer.tickets import Batch
from kraftfast.errors import KraftfastError, TimedOut
from kraftfast.log.small_files import epoch_checkpoint
from kraftfast.quorum import LocalQuorum

BARS_MS = {"ring": (50.0, 500.0), "socket": (300.0, 1500.0)}
"""(p50, worst) that is asked for, milliseconds."""
BATCH_BYTES, WINDOW_BATCHES = 16384, 64
WHOLE_S_MAX = 60.0


class Load:
    """One producer, always with something under way, and the moments of its commits."""

    # committed: (when it was told, base offset) of every batch. records: how many they held.

    def __init__(self, quorum: LocalQuorum, value_bytes: int, pause_s: float) -> None:
        self.producer = quorum.producer(batch_bytes=BATCH_BYTES, window=WINDOW_BATCHES)
        self.committed: list[tuple[float, int]] = []
        self.records = 0
        self._value, self._pause_s = b"x" * value_bytes, pause_s
        self._stop = threading.Event()
        self.producer.on_commit(self._told)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _told(self, batch: Batch) -> None:
        if batch.error is None:
            self.committed.append((time.monotonic(), batch.base_offset))
            self.records += batch.end_ticket - batch.first_ticket

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.producer.append(self._value, timeout=30.0)
            except KraftfastError as error:
                print(f"append: {error}", file=sys.stderr)
            time.sleep(self._pause_s)

    def wait_commit(self, count: int, timeout: float = WHOLE_S_MAX) -> None:
        """Until more than ``count`` batches were committed. Raises TimedOut."""
        deadline = time.monotonic() + timeout
        while len(self.committed) <= count:
            if time.monotonic() >= deadline:
                raise TimedOut(f"no commit within {timeout} s")
            time.sleep(0.001)

    def first_commit_from(self, offset: int) -> float:
        """When the first batch at or behind this offset was told."""
        while True:
            count = len(self.committed)
            found = [at for at, base_offset in self.committed if base_offset >= offset]
            if found:
                return min(found)
            self.wait_commit(count)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self.producer.close()


def wait_whole(quorum: LocalQuorum) -> tuple[int, int]:
    """(leader, epoch) once all replicas are up, follow it, and have what is committed."""
    deadline = time.monotonic() + WHOLE_S_MAX
    while time.monotonic() < deadline:
        found = list(quorum.statuses().values())
        leaders = [status["node_id"] for status in found if status["role"] == "leader"]
        whole = len(found) == len(quorum.directories) and len(leaders) == 1
        if whole and len({status["epoch"] for status in found}) == 1:
            marks = [status["high_watermark"] for status in found]
            if min(marks) >= 0 and max(marks) - min(marks) < 1000:
                return leaders[0], found[0]["epoch"]
        time.sleep(0.02)
    raise TimedOut(f"the quorum was not whole again within {WHOLE_S_MAX} s")


def start_of(quorum: LocalQuorum, id: int, epoch: int) -> int:
    """Where the first epoch from this one on begins, by a replica's checkpoint."""
    path = os.path.join(quorum.directories[id], f"{quorum.description.topic}-0")
    file = os.path.join(path, epoch_checkpoint.NAME)
    with open(file, "rb") as opened:
        entries = epoch_checkpoint.decode(opened.read(), file)
    return min(start for number, start in entries if number >= epoch)


def say(text: str) -> None:
    """Progress, for people only."""
    if sys.stderr.isatty():
        print(f"\r{text}", end="", file=sys.stderr, flush=True)


def measure_kills(quorum: LocalQuorum, args: argparse.Namespace) -> dict[str, Any]:
    """``args.kills`` failovers; milliseconds."""
    times_ms, split = [], 0
    load = Load(quorum, args.record_size, args.pause)
    try:
        for number in range(args.kills):
            leader, epoch = wait_whole(quorum)
            load.wait_commit(len(load.committed))
            time.sleep(args.settle)
            moment = time.monotonic()
            quorum.kill(leader, signal.SIGKILL)
            load.wait_commit(len(load.committed))
            later, later_epoch = wait_whole(quorum)
            split += later_epoch - epoch - 1
            begin = start_of(quorum, later, epoch + 1)
            times_ms.append((load.first_commit_from(begin) - moment) * 1000)
            say(f"{quorum.tuning.transport}: {number + 1}/{args.kills}")
    finally:
        load.close()
    times_ms.sort()
    bar = BARS_MS[quorum.tuning.transport]
    p50, worst = times_ms[len(times_ms) // 2], times_ms[-1]
    return {
        "fault": "kill -9 of the leader",
        "transport": quorum.tuning.transport,
        "times": args.kills,
        "p50_ms": round(p50, 1),
        "p90_ms": round(times_ms[int(len(times_ms) * 0.9)], 1),
        "worst_ms": round(worst, 1),
        "split_votes": split,
        "records": load.records,
        "busy": args.busy,
        "bar_p50_ms": bar[0],
        "bar_worst_ms": bar[1],
        "met": p50 <= bar[0] and worst <= bar[1],
        "times_ms": [round(each, 1) for each in times_ms],
    }


def connections(pid: int) -> list[tuple[int, int]]:
    """(local, remote) port of every TCP connection of a process."""
    done = subprocess.run(["ss", "-tnpH"], capture_output=True, text=True, check=True)
    fields = [line.split() for line in done.stdout.splitlines() if f"pid={pid}," in line]
    return [(int(line[3].rsplit(":", 1)[1]), int(line[4].rsplit(":", 1)[1])) for line in fields]


def reset(pid: int) -> int:
    """Reset all connections of a process with one command; how many there were."""
    pairs = connections(pid)
    terms = " or ".join(f"( sport = :{local} and dport = :{remote} )" for local, remote in pairs)
    subprocess.run(["ss", "-K", "-tn", terms], capture_output=True, check=True)
    return len(pairs)


def measure_resets(quorum: LocalQuorum, args: argparse.Namespace) -> dict[str, Any]:
    """``args.resets`` times all connections of the leader; counts epochs that began."""
    leader, epoch = wait_whole(quorum)
    count = 0
    load = Load(quorum, args.record_size, args.pause)
    try:
        for number in range(args.resets):
            load.wait_commit(len(load.committed))
            time.sleep(args.settle)
            pid = quorum.supervisor.pid(leader)
            assert pid is not None
            count += reset(pid)
            load.wait_commit(len(load.committed))
            say(f"resets: {number + 1}/{args.resets}")
    finally:
        load.close()
    later, later_epoch = wait_whole(quorum)
    return {
        "fault": "reset of all connections",
        "transport": "socket",
        "times": args.resets,
        "connections": count,
        "epoch_changes": later_epoch - epoch,
        "same_leader": later == leader,
        "records": load.records,
        "met": later_epoch == epoch,
    }


def run(args: argparse.Namespace) -> list[dict[str, Any]]:
    """All rows that are asked for."""
    rows = []
    for transport in BARS_MS if args.transport == "both" else [args.transport]:
        jobs = [measure_kills] if args.kills else []
        if transport == "socket" and args.resets:
            jobs.append(measure_resets)
        for job in jobs:
            directory = args.dir / f"failover-{transport}"
            settings = {"segment_bytes": 64 << 20, "stride_bytes": 8 << 20}
            try:
                with LocalQuorum(
                    directory, voters=args.voters, transport=transport, **settings
                ) as quorum:
                    rows.append({"voters": args.voters} | job(quorum, args))
            finally:
                shutil.rmtree(directory, ignore_errors=True)
    return rows


@contextmanager
def other_work(processes: int) -> Iterator[None]:
    """Keep so many processors busy beside what is measured."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for each in busy:
            each.kill()
            each.wait()


def show(rows: list[dict[str, Any]]) -> None:
    """The table."""
    names = ("p50_ms", "bar_p50_ms", "worst_ms", "bar_worst_ms", "split_votes", "epoch_changes")
    print("from kill -9 of the leader to the first commit of a later epoch, milliseconds")
    print(f"{'fault':<26}{'transport':>10}{'times':>7}" + "".join(f"{each:>14}" for each in names))
    for row in rows:
        values = "".join(f"{row.get(each, ''):>14}" for each in names)
        print(f"{row['fault']:<26}{row['transport']:>10}{row['times']:>7}{values}")
    for row in rows:
        print(json.dumps(row))


def main() -> int:
    """0 if every bar is met."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dir", type=Path, required=True, help="where the quorums are made")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--resets", type=int, default=50)
    parser.add_argument("--transport", choices=[*BARS_MS, "both"], default="both")
    parser.add_argument("--voters", type=int, default=3)
    parser.add_argument("--record-size", type=int, default=100)
    parser.add_argument("--pause", type=float, default=0.0002, help="seconds between appends")
    parser.add_argument("--busy", type=int, default=0, help="processes with other work beside")
    parser.add_argument("--settle", type=float, default=0.1, help="seconds before each fault")
    args = parser.parse_args()
    with other_work(args.busy):
        rows = run(args)
    show(rows)
    return 0 if all(row["met"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
