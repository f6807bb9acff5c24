"""How long a program takes from its start to the first commit of a new quorum.

Each time is a new process: ``python -m kraftfast.bench.loads.starting DIRECTORY VOTERS DURABILITY
TRANSPORT`` prints what its parts took.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from statistics import median
from typing import Any

from kraftfast.errors import KraftfastError, TimedOut

TIMEOUT_S = 120.0
PARTS = ("import_ms", "quorum_ms", "first_commit_ms")


def measure(place: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Return the median and the worst of ``times`` starts, milliseconds. Raises TimedOut, and
    KraftfastError where one fails."""
    times = asked["times"]
    found = [_once(os.path.join(place, str(number)), asked) for number in range(times)]
    line: dict[str, Any] = {"times": times}
    for part in (*PARTS, "whole_ms"):
        values = [each[part] for each in found]
        line[part] = round(median(values), 1)
        line[f"{part.removesuffix('_ms')}_worst_ms"] = round(max(values), 1)
    line["disk_mib"] = round(median(each["disk_bytes"] for each in found) / (1 << 20), 1)
    line["p50_us"] = line["whole_ms"] * 1000
    line["max_us"] = line["whole_worst_ms"] * 1000
    return line


def _once(directory: str, asked: dict[str, Any]) -> dict[str, float]:
    command = [
        sys.executable,
        "-m",
        "kraftfast.bench.loads.starting",
        directory,
        str(asked["voters"]),
    ]
    command += [asked["durability"] or "majority", asked["transport"]]
    began = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise TimedOut(f"a start did not end within {TIMEOUT_S:.0f} s") from None
    if done.returncode:
        told = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise KraftfastError(f"a start failed: {told}")
    parts: dict[str, float] = json.loads(done.stdout)
    parts["whole_ms"] = (parts.pop("committed_at") - began) * 1000
    parts["disk_bytes"] = _disk_bytes(directory)
    shutil.rmtree(directory, ignore_errors=True)
    return parts


def _disk_bytes(directory: str) -> int:
    """Return what the files of a directory take up."""
    found = 0
    for folder, _, names in os.walk(directory):
        found += sum(os.lstat(os.path.join(folder, name)).st_blocks * 512 for name in names)
    return found


def main(directory: str, voters: int, durability: str, transport: Any) -> None:
    """Start a quorum, commit one record, print what took how long."""
    began = time.monotonic()
    import kraftfast

    start = kraftfast.LocalQuorum  # which imports the rest
    imported = time.monotonic()
    with start(directory, voters, durability=durability, transport=transport) as quorum:
        started = time.monotonic()
        with quorum.producer() as producer:
            producer.append_wait(b"value", timeout=TIMEOUT_S)
            committed = time.monotonic()
    moments = (began, imported, started, committed)
    parts = {name: (end - start) * 1000 for name, start, end in zip(PARTS, moments, moments[1:])}
    print(json.dumps(parts | {"committed_at": committed}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
