"""PySyncObj with its journal: three voters on loopback, the client in the leader's process.

PySyncObj never flushes its journal, a memory-mapped file: no run has flushes, asked for or not.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from importlib.metadata import version
from typing import Any

from pysyncobj import SyncObj, SyncObjConf, replicated

VOTERS = 3
LEAD_S, VERIFY_S, END_S = 60.0, 30.0, 10.0


class Counter(SyncObj):
    """A state machine that only counts."""

    def __init__(self, address: str, others: list[str], home: str, mode: str, first: bool) -> None:
        # what is best for each mode: with a period below 20 ms the leader sends again what the
        # followers are still working on, and they cut what they have applied
        pace = {"appendEntriesUseBatch": False}
        if mode == "throughput":
            pace = {"appendEntriesPeriod": 0.02}
        patience = 1.0 if first else 8.0  # voter 1 is to lead
        settings = SyncObjConf(
            journalFile=os.path.join(home, "journal"),
            autoTickPeriod=0.001,
            raftMinTimeout=patience,
            raftMaxTimeout=patience + 1,
            connectionTimeout=10.0,
            connectionRetryTime=0.2,
            logCompactionMinEntries=10**9,
            logCompactionMinTime=10**9,
            **pace,
        )
        super().__init__(address, others, settings)
        self.applied = 0

    @replicated
    def append(self, value: bytes) -> None:
        """Count one record."""
        self.applied += 1

    def wait_leads(self) -> None:
        """Wait until this voter leads and reaches the others."""
        until = time.monotonic() + LEAD_S
        while not (
            self.isReady() and self._isLeader() and all(map(self.isNodeConnected, self.otherNodes))
        ):
            if time.monotonic() > until:
                raise SystemExit("voter 1 does not lead")
            time.sleep(0.05)

    def wait_applied(self, want: int) -> int:
        """Return how many records are applied, once they are so many or time is up."""
        until = time.monotonic() + VERIFY_S
        while self.applied < want and time.monotonic() < until:
            time.sleep(0.01)
        return self.applied


def drive(voter: Counter, value: bytes, window: int, seconds: float) -> tuple[list[float], float]:
    """Keep ``window`` records outstanding; return the seconds of each, and of all."""
    free, took, failed = threading.Semaphore(window), [], []
    began = time.perf_counter()
    while time.perf_counter() - began < seconds and not failed:
        free.acquire()

        def done(_result: object, error: int, at: float = time.perf_counter()) -> None:
            (failed if error else took).append(time.perf_counter() - at)
            free.release()

        voter.append(value, callback=done)
    for _ in range(window):
        if not free.acquire(timeout=VERIFY_S):
            raise SystemExit("a record was never acknowledged")
    if failed:
        raise SystemExit(f"{len(failed)} records were refused")
    return took, time.perf_counter() - began


def free_ports() -> list[int]:
    """Return ports of 127.0.0.1 that are free now."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(VOTERS)]
    try:
        return [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()


def options() -> argparse.Namespace:
    """Return what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", required=True)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--mode", choices=("latency", "throughput"), default="latency")
    parser.add_argument("--window", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--no-sync", action="store_true", help="taken, and always so")
    parser.add_argument("--voter", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--ports", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


def start(asked: argparse.Namespace, ports: list[int]) -> Counter:
    """Start the voter that this process is."""
    home = os.path.join(asked.dir, f"pysyncobj-{asked.voter}")
    shutil.rmtree(home, ignore_errors=True)
    os.makedirs(home)
    names = [f"127.0.0.1:{port}" for port in ports]
    return Counter(names.pop(asked.voter - 1), names, home, asked.mode, asked.voter == 1)


def child(stack: ExitStack, number: int, ports: list[int]) -> Any:
    """Start another voter in a process of its own; it ends where its stdin ends."""
    command = [sys.executable, __file__, *sys.argv[1:], "--ports", ",".join(map(str, ports))]
    process = subprocess.Popen(
        [*command, "--voter", str(number)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    stack.callback(end, process)
    return process


def end(process: Any) -> None:
    """End a voter."""
    process.stdin.close()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()


def ask(process: Any, want: int) -> int:
    """Return how many records another voter has applied."""
    process.stdin.write(f"{want}\n")
    process.stdin.flush()
    return int(process.stdout.readline())


def measure(asked: argparse.Namespace, ports: list[int]) -> dict[str, Any]:
    """Run all three voters; return the line."""
    window = 1 if asked.mode == "latency" else asked.window
    with ExitStack() as stack:
        voter = start(asked, ports)
        others = [child(stack, number, ports) for number in range(2, VOTERS + 1)]
        voter.wait_leads()
        value = os.urandom(asked.value_bytes)
        warm, _ = drive(voter, value, window, 1)
        took, seconds = drive(voter, value, window, asked.seconds)
        want = len(warm) + len(took)
        applied = [voter.wait_applied(want), *(ask(each, want) for each in others)]
        voter.destroy()
    took.sort()

    def at(share: float) -> float:
        return round(took[int(share * (len(took) - 1))] * 1e6, 1)

    return {
        "peer": "pysyncobj",
        "version": version("pysyncobj"),
        "voters": VOTERS,
        "processes": VOTERS,
        "client": "in the leader",
        "sync": False,
        "fsync": "none: it never flushes",
        "survives": "the loss of one voter, no power cut",
        "value_bytes": asked.value_bytes,
        "mode": asked.mode,
        "window": window,
        "seconds": seconds,
        "records": len(took),
        "records_per_s": len(took) / seconds,
        "p50_us": at(0.5),
        "p99_us": at(0.99),
        "p999_us": at(0.999),
        "max_us": at(1),
        "verified": applied == [want] * VOTERS,
    }


def main() -> None:
    """Be one of the other voters, or all of it."""
    asked = options()
    if asked.voter > 1:
        voter = start(asked, [int(each) for each in asked.ports.split(",")])
        for line in sys.stdin:
            print(voter.wait_applied(int(line)), flush=True)
        voter.destroy()
    else:
        print(json.dumps(measure(asked, free_ports())))


if __name__ == "__main__":
    main()
