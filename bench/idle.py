"""What a quorum costs that does nothing: CPU time, and memory beside its mapped segments.

    python bench/idle.py --dir DIR [--voters 3] [--transport ring|socket] [--seconds 20]

Appends a little first, so that every link and buffer is in use; then measures all workers for so
long from /proc/PID/stat. Prints one JSON line. Bars: 1 % of a core in all, 100 MB for each worker.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from pathlib import Path

from kraftfast.quorum import LocalQuorum

CORE_PERCENT_MAX = 1.0
WORKER_BYTES_MAX = 100_000_000
SETTLE_S = 2.0
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far; its resolution is a tick, 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_A_SECOND


def memory_bytes(pid: int) -> dict[str, int]:
    """Resident memory of a process by kind: its own, of mapped files, of memory files (rings)."""
    names = {"RssAnon:": "own", "RssFile:": "mapped_files", "RssShmem:": "rings"}
    found = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        fields = line.split()
        if fields and fields[0] in names:
            found[names[fields[0]]] = int(fields[1]) * 1024
    return found


def segment_bytes(pid: int) -> int:
    """Resident bytes of mapped segments: what the page cache holds of the log anyway."""
    resident, is_segment = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        fields = line.split()
        if len(fields) >= 5 and "-" in fields[0] and not fields[0].endswith(":"):
            is_segment = len(fields) > 5 and fields[5].endswith((".log", ".segment", ".spare"))
        elif is_segment and fields[0] == "Rss:":
            resident += int(fields[1]) * 1024
    return resident


def measure(quorum: LocalQuorum, seconds: float) -> dict[str, object]:
    """One row."""
    with quorum.producer() as producer:
        for _ in range(20):
            producer.append_many([b"x" * 100] * 1000)
        producer.flush()
    time.sleep(SETTLE_S)
    pids = [quorum.supervisor.pid(id) for id in quorum.directories]
    assert None not in pids
    running = [pid for pid in pids if pid is not None]
    before, began = [cpu_seconds(pid) for pid in running], time.monotonic()
    time.sleep(seconds)
    spent = [cpu_seconds(pid) - cpu for pid, cpu in zip(running, before)]
    elapsed = time.monotonic() - began
    beside = []
    for pid in running:
        memory = memory_bytes(pid)
        beside.append(sum(memory.values()) - segment_bytes(pid))
    percent = 100 * sum(spent) / elapsed
    return {
        "voters": len(running),
        "transport": quorum.tuning.transport,
        "seconds": round(elapsed, 1),
        "core_percent": round(percent, 2),
        "core_percent_of_each": [round(100 * each / elapsed, 2) for each in spent],
        "memory_bytes": memory_bytes(running[0]),
        "beside_segments_bytes": beside,
        "met": percent < CORE_PERCENT_MAX and max(beside) < WORKER_BYTES_MAX,
    }


def main() -> int:
    """0 if the bars are met."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dir", type=Path, required=True, help="where the quorum is made")
    parser.add_argument("--voters", type=int, default=3)
    parser.add_argument("--transport", choices=["ring", "socket"], default="ring")
    parser.add_argument("--seconds", type=float, default=20.0)
    args = parser.parse_args()
    directory = args.dir / "idle"
    try:
        with LocalQuorum(directory, voters=args.voters, transport=args.transport) as quorum:
            row = measure(quorum, args.seconds)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(json.dumps(row))
    return 0 if row["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
