"""The floor beside which kraftfast is measured: the least work that the same records can cost.

``python -m kraftfast.bench.floor`` runs one way once, in a process of its own, for it forks.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import Any

from kraftfast.bench.results.report import SURVIVES
from kraftfast.errors import DiskFull, InvalidOption, KraftfastError, StorageError, TimedOut

TIMEOUT_S = 3_600.0
MIB = 1 << 20
RING_BYTES = 60 * MIB
RECORD_BYTES, RECORD_BYTES_MAX, BATCH_HEADER_BYTES = 10, 24, 61
"""As cext/bench_floor.c counts: beside a record's value, and before the records."""
BATCHES_MAX = 1 << 26
"""The leader keeps 24 bytes for each."""
RECORDS_PER_MILLION = 1e6
FILES = ("prepared", "growing", "again")
"""What the log is like when the clock starts: all prepared; nothing prepared; old files, as much as
is retained, used again in a circle."""
WAYS = {
    ("memory", "prepared"): (("in-place", "mapped"), ("write", "prepared")),
    ("durable", "prepared"): (("in-place", "prepared"), ("write", "prepared")),
    ("memory", "growing"): (("write", "growing"), ("map", "growing")),
    ("durable", "growing"): (("write", "growing"), ("direct", "growing")),
    ("memory", "again"): (("write", "cold"), ("map", "mapped")),
    ("durable", "again"): (("write", "cold"), ("direct", "cold")),
}
"""How the bytes get into files, and what those are beforehand. The best way of each pair counts."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be committed. ``keep_bytes``: with files "again", the circle that they make."""

    directory: str
    value_bytes: int
    batch_bytes: int
    total_bytes: int
    window: int
    durable: bool
    files: str = "prepared"
    keep_bytes: int = 0

    def __post_init__(self) -> None:
        if self.files not in FILES:
            raise InvalidOption(f"files are {', '.join(FILES)}, not {self.files!r}")
        if self.files == "again" and not self.keep_bytes:
            raise InvalidOption("files that are used again need to know how much is kept")
        if self.files != "again" and self.keep_bytes:
            raise InvalidOption("only files that are used again are kept in part")
        if self.batches > BATCHES_MAX:
            raise InvalidOption(f"that makes {self.batches} batches, at most {BATCHES_MAX} are run")
        if self.window > (most := max(1, RING_BYTES // self.batch_bytes_max)):
            raise InvalidOption(f"of such batches at most {most} can be under way in the floor")

    @property
    def ways(self) -> tuple[tuple[str, str], ...]:
        """Return the ways that are worth a run for this work: (how, files) each."""
        return WAYS["durable" if self.durable else "memory", self.files]

    @property
    def batches(self) -> int:
        """How many batches that makes: each holds as many records as fit, one at least."""
        return max(1, self.total_bytes // (self.batch_records * self.value_bytes))

    @property
    def batch_records(self) -> int:
        """How many records a batch holds."""
        return max(1, self.batch_bytes // (self.value_bytes + RECORD_BYTES))

    @property
    def batch_bytes_max(self) -> int:
        """How much of a file a batch takes at most."""
        return BATCH_HEADER_BYTES + self.batch_records * (self.value_bytes + RECORD_BYTES_MAX)

    @property
    def file_bytes(self) -> int:
        """How large each voter's file is."""
        return self.keep_bytes or self.batch_bytes_max * (self.batches + 1)


def run(work: Work, way: tuple[str, str], timeout: float = TIMEOUT_S) -> dict[str, Any]:
    """Run one way once, in a process of its own; return its line, as ``bench`` prints it.

    Raises StorageError where the files cannot be made (a file system without O_DIRECT among them),
    DiskFull, TimedOut.
    """
    asked = json.dumps([asdict(work), way])
    command = [sys.executable, "-m", "kraftfast.bench.floor", asked]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise TimedOut(f"the floor did not end within {timeout:.0f} s") from None
    if done.returncode:
        raise _failure(done.returncode, done.stderr)
    return line(work, way, json.loads(done.stdout))


def _failure(returncode: int, stderr: str) -> KraftfastError:
    """Return what the child's end means."""
    if returncode < 0:
        return StorageError(f"the process of the floor was killed by signal {-returncode}")
    told = stderr.strip().splitlines() or [f"the process of the floor: exit code {returncode}"]
    text = told[-1].removeprefix("StorageError: ").removeprefix("DiskFull: ")
    return DiskFull(text) if returncode == DiskFull.exit_code else StorageError(text)


def run_ways(work: Work) -> tuple[list[dict[str, Any]], list[str]]:
    """Run each way once; return their lines, and what kept the others from running.

    Raises StorageError if none runs, DiskFull, TimedOut.
    """
    lines, problems = [], []
    for way in work.ways:
        try:
            lines.append(run(work, way))
        except DiskFull:
            raise
        except StorageError as error:
            problems.append(f"{way[0]}, {way[1]}: {error}")
    if not lines:
        raise StorageError(f"no way of the floor runs here: {'; '.join(problems)}")
    return lines, problems


def line(work: Work, way: tuple[str, str], measured: dict[str, float]) -> dict[str, Any]:
    """Return what was measured under the keys that every harness prints."""
    records, seconds = int(measured["records"]), measured["seconds"]
    cpu_s = measured["user_s"] + measured["system_s"]
    return {
        "peer": "floor",
        "how": way[0],
        "files": way[1],
        "voters": 3,
        "processes": 3,
        "sync": work.durable,
        **dict(zip(("fsync", "survives"), SURVIVES["majority" if work.durable else "memory"])),
        "value_bytes": work.value_bytes,
        "batch_bytes": work.batch_bytes,
        "window": work.window,
        "retention_mib": work.keep_bytes / MIB or None,
        "seconds": round(seconds, 6),
        "records": records,
        "records_per_s": round(records / seconds, 1),
        **{key: round(measured[key], 1) for key in ("p50_us", "p99_us", "p999_us", "max_us")},
        "cpu_s_per_million_records": round(cpu_s / records * RECORDS_PER_MILLION, 4),
    }


def best(lines: list[dict[str, Any]], key: str = "records_per_s") -> dict[str, Any]:
    """Return the line that is best by a key: the most records a second, the least of a time."""
    return (max if key == "records_per_s" else min)(lines, key=lambda each: each[key])


def main(asked: str) -> None:
    """Run what the parent asked for and print what came of it; Ctrl-C ends it at once."""
    from kraftfast.bench import floor_kernel

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    fields, (how, files) = json.loads(asked)
    work = Work(**fields)
    measured = floor_kernel.run(
        work.directory,
        value_bytes=work.value_bytes,
        batch_bytes=work.batch_bytes,
        batches=work.batches,
        window=work.window,
        durable=work.durable,
        how=how,
        files=files,
        keep_bytes=work.keep_bytes,
    )
    print(json.dumps(measured))


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except KraftfastError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.stderr.flush()
        os._exit(error.exit_code)
