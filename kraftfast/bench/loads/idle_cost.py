"""What a quorum costs that does nothing: processor time, and memory beside its mapped segments."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from kraftfast.bench.loads.sustained import cost_of

SETTLE_S = 2.0
BATCHES, BATCH_RECORDS = 20, 1000
KINDS = {"RssAnon:": "own", "RssFile:": "mapped_files", "RssShmem:": "rings"}
LOG_FILES = (".log", ".segment", ".spare")


def memory_bytes(pid: int) -> dict[str, int]:
    """Return the resident bytes of a process by kind: its own, of mapped files, of rings."""
    found = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        fields = line.split()
        if fields and fields[0] in KINDS:
            found[KINDS[fields[0]]] = int(fields[1]) * 1024
    return found


def segment_bytes(pid: int) -> int:
    """Return the resident bytes of mapped segments, which the page cache holds anyway."""
    resident, is_segment = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        fields = line.split()
        if len(fields) >= 5 and "-" in fields[0] and not fields[0].endswith(":"):
            is_segment = len(fields) > 5 and fields[5].endswith(LOG_FILES)
        elif is_segment and fields[0] == "Rss:":
            resident += int(fields[1]) * 1024
    return resident


def measure(quorum: Any, seconds: float) -> dict[str, Any]:
    """Append a little, so that every link and buffer is in use, then look at a quorum at rest."""
    with quorum.producer() as producer:
        for _ in range(BATCHES):
            producer.append_many([b"x" * 100] * BATCH_RECORDS)
        producer.flush()
    time.sleep(SETTLE_S)
    pids = [status["pid"] for status in quorum.statuses().values()]
    before, began = [cost_of("", pid) for pid in pids], time.monotonic()
    time.sleep(seconds)
    used = [cost_of("", pid) - earlier for pid, earlier in zip(pids, before)]
    elapsed = time.monotonic() - began
    percents = [100 * (each.user_s + each.system_s) / elapsed for each in used]
    beside = [sum(memory_bytes(pid).values()) - segment_bytes(pid) for pid in pids]
    return {
        "seconds": round(elapsed, 1),
        "core_percent": round(sum(percents), 2),
        "core_percent_of_each": [round(each, 2) for each in percents],
        "switches_per_s": round(sum(each.switches for each in used) / elapsed, 1),
        "memory_bytes": memory_bytes(pids[0]),
        "beside_segments_bytes": beside,
        "largest_worker_mb": round(max(beside) / 1e6, 1),
    }
