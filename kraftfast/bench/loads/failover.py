"""How long a quorum is without a leader, and whether it changes one that lives.

Kills: kill -9 of the leader under load, again and again. Each time: from the signal to the first
commit of a later epoch that a client is told of, as one producer with a window of batches sees it.
A split vote is an epoch that began and had no leader.

Resets: every TCP connection of a live leader is reset at once, again and again, with producer and
replicas over sockets. No epoch may begin. Needs root and ``ss``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

from kraftfast.client.producer.tickets import TicketedBatch
from kraftfast.errors import HostUnsupported, KraftfastError, TimedOut
from kraftfast.log.small_files import epoch_checkpoint

BATCH_BYTES, WINDOW_BATCHES = 16384, 64
WHOLE_S_MAX = 60.0
APPEND_TIMEOUT_S = 30.0
BEHIND_MAX = 1000
"""Records that a follower may lack for the quorum to count as whole."""

Progress = Callable[[int], None]


class Load:
    """One producer, always with something under way, and the moments of its commits."""

    # committed: (when it was told, base offset) of every batch. records: how many they held.
    # failed: appends that were refused, the last reason.

    def __init__(self, quorum: Any, value_bytes: int, pause_s: float) -> None:
        self.producer = quorum.producer(batch_bytes=BATCH_BYTES, window=WINDOW_BATCHES)
        self.committed: list[tuple[float, int]] = []
        self.records, self.failed = 0, ""
        self._value, self._pause_s = b"x" * value_bytes, pause_s
        self._stop = threading.Event()
        self.producer.on_commit(self._told)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _told(self, batch: TicketedBatch) -> None:
        if batch.error is None:
            self.committed.append((time.monotonic(), batch.base_offset))
            self.records += batch.end_ticket - batch.first_ticket

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.producer.append(self._value, timeout=APPEND_TIMEOUT_S)
            except KraftfastError as error:
                self.failed = str(error)
            time.sleep(self._pause_s)

    def wait_commit(self, count: int, timeout: float = WHOLE_S_MAX) -> None:
        """Wait until more than ``count`` batches were committed. Raises TimedOut."""
        deadline = time.monotonic() + timeout
        while len(self.committed) <= count:
            if time.monotonic() >= deadline:
                why = f": {self.failed}" if self.failed else ""
                raise TimedOut(f"no commit within {timeout:.0f} s{why}")
            time.sleep(0.001)

    def first_commit_from(self, offset: int) -> float:
        """Return when the first batch at or behind this offset was told."""
        while True:
            count = len(self.committed)
            found = [at for at, base_offset in self.committed if base_offset >= offset]
            if found:
                return min(found)
            self.wait_commit(count)

    def close(self) -> None:
        """End the load."""
        self._stop.set()
        self._thread.join()
        self.producer.close()


def wait_whole(quorum: Any) -> tuple[int, int]:
    """Wait until all replicas are up, follow one leader, and have what is committed.

    Returns (leader, epoch). Raises TimedOut.
    """
    deadline = time.monotonic() + WHOLE_S_MAX
    while time.monotonic() < deadline:
        found = list(quorum.statuses().values())
        leaders = [status["node_id"] for status in found if status["role"] == "leader"]
        whole = len(found) == len(quorum.directories) and len(leaders) == 1
        if whole and len({status["epoch"] for status in found}) == 1:
            marks = [status["high_watermark"] for status in found]
            if min(marks) >= 0 and max(marks) - min(marks) < BEHIND_MAX:
                return leaders[0], found[0]["epoch"]
        time.sleep(0.02)
    raise TimedOut(f"the quorum was not whole again within {WHOLE_S_MAX:.0f} s")


def start_of(quorum: Any, id: int, epoch: int) -> int:
    """Return where the first epoch from this one on begins, by a replica's checkpoint."""
    path = os.path.join(quorum.directories[id], f"{quorum.description.topic}-0")
    file = os.path.join(path, epoch_checkpoint.NAME)
    with open(file, "rb") as opened:
        entries = epoch_checkpoint.decode(opened.read(), file)
    return min(start for number, start in entries if number >= epoch)


@contextmanager
def loaded(quorum: Any, asked: dict[str, Any]) -> Iterator[Load]:
    """Give the load while it runs."""
    load = Load(quorum, asked["record_size"], asked["pause"])
    try:
        yield load
    finally:
        load.close()


def measure_kills(quorum: Any, asked: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """Kill the leader ``kills`` times; return a line."""
    times_ms, split = [], 0
    with loaded(quorum, asked) as load:
        for number in range(asked["kills"]):
            leader, epoch = wait_whole(quorum)
            load.wait_commit(len(load.committed))
            time.sleep(asked["settle"])
            moment = time.monotonic()
            quorum.kill(leader)
            load.wait_commit(len(load.committed))
            later, later_epoch = wait_whole(quorum)
            split += later_epoch - epoch - 1
            begin = start_of(quorum, later, epoch + 1)
            times_ms.append((load.first_commit_from(begin) - moment) * 1000)
            progress(number + 1)
    times_ms.sort()
    return {
        "part": "kill -9 of the leader",
        "times": len(times_ms),
        "p50_us": round(median(times_ms) * 1000),
        "max_us": round(times_ms[-1] * 1000),
        "split_votes": split,
        "records": load.records,
        "times_ms": [round(each, 1) for each in times_ms],
    }


def check_resets() -> None:
    """Raise HostUnsupported where connections cannot be reset."""
    if shutil.which("ss") is None:
        raise HostUnsupported("resets need `ss` (iproute2), and there is none")
    if os.geteuid() != 0:
        raise HostUnsupported("resets need root: `ss -K` ends connections of other processes")


def connections(pid: int) -> list[tuple[int, int]]:
    """Return (local, remote) port of every TCP connection of a process."""
    done = subprocess.run(["ss", "-tnpH"], capture_output=True, text=True, check=True, timeout=60)
    fields = [line.split() for line in done.stdout.splitlines() if f"pid={pid}," in line]
    return [(int(line[3].rsplit(":", 1)[1]), int(line[4].rsplit(":", 1)[1])) for line in fields]


def reset(pid: int) -> int:
    """Reset all connections of a process with one command; return how many there were."""
    pairs = connections(pid)
    if pairs:
        terms = " or ".join(f"( sport = :{here} and dport = :{there} )" for here, there in pairs)
        command = ["ss", "-K", "-tn", terms]
        subprocess.run(command, capture_output=True, check=True, timeout=60)
    return len(pairs)


def measure_resets(quorum: Any, asked: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """Reset all connections of the leader ``resets`` times; return a line with epochs begun."""
    leader, epoch = wait_whole(quorum)
    count = 0
    with loaded(quorum, asked) as load:
        for number in range(asked["resets"]):
            load.wait_commit(len(load.committed))
            time.sleep(asked["settle"])
            pid = quorum.supervisor.pid(leader)
            assert pid is not None
            count += reset(pid)
            load.wait_commit(len(load.committed))
            progress(number + 1)
    later, later_epoch = wait_whole(quorum)
    return {
        "part": "reset of all connections",
        "times": asked["resets"],
        "connections": count,
        "epoch_changes": later_epoch - epoch,
        "same_leader": later == leader,
        "records": load.records,
    }


@contextmanager
def other_work(processes: int) -> Iterator[None]:
    """Keep so many processors busy beside what is measured."""
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(processes)]
    try:
        yield
    finally:
        for each in busy:
            each.kill()
            each.wait()


BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(100_000))"
"""Ends with the process that started it."""
