"""kraftfast against the floor: the least work that three voters can do, in C, on the same disk.

    python bench/against_floor.py [--dir D] [--pairs 7] [--rows TEXT] [--quick] [--json FILE]

Floor and kraftfast run by turns. Of the ways to put bytes into files that suit a row the best is
the floor of that pair (``kraftfast bench floor``). A pair's ratio is ours over the floor's; a line
shows the median of the ratios with their range, and the medians of both sides.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from kraftfast.bench.floor import Work, best, run_ways  # noqa: E402
from kraftfast.errors import KraftfastError  # noqa: E402

MIB = 1 << 20
BATCH_BYTES = 64 * 1024
WINDOW = 32
PAIRS = 7
TOTAL_MIB, LONG_MIB, PREPARED_MIB, KEPT_MIB, LATENCY_MIB = 512, 4096, 64, 512, 1
TIMEOUT_S = 1800
INTERRUPTED = 130
RATE, P50, P99, P999, CPU = (
    "records_per_s",
    "p50_us",
    "p99_us",
    "p999_us",
    "cpu_s_per_million_records",
)


@dataclass(frozen=True)
class Row:
    """One line of the table. ``bars``: by measured key, the least (of all but a rate: the largest)
    ratio. ``files``: what the log is when the clock starts, as in ``kraftfast bench floor``.
    ``more``: options of ours. ``busy``: so many processes that only count run beside both sides."""

    name: str
    record_bytes: int
    durability: str
    bars: dict[str, float]
    files: str = "prepared"
    mode: str = "throughput"
    more: Sequence[str] = ()
    busy: int = 0

    @property
    def is_long(self) -> bool:
        """Return whether it goes far beyond what is prepared."""
        return self.files != "prepared"


ROWS = (
    Row("100 B, memory, prepared", 100, "memory", {RATE: 0.75, CPU: 1.5}),
    Row("1 KiB, memory, prepared", 1024, "memory", {RATE: 0.75, CPU: 1.5}),
    Row("100 B, durable, prepared", 100, "majority", {RATE: 0.80, CPU: 1.5}),
    Row("1 KiB, durable, prepared", 1024, "majority", {RATE: 0.80, CPU: 1.5}),
    Row("one outstanding 100 B, durable", 100, "majority", {P50: 1.05, P99: 1.3}, mode="latency"),
    Row("1 KiB, durable, grown", 1024, "majority", {RATE: 0.75, P999: 3.0}, "growing"),
    Row("1 KiB, durable, retention", 1024, "majority", {RATE: 0.75}, "again"),
    Row("1 KiB, memory, grown", 1024, "memory", {RATE: 0.70}, "growing"),
    Row("1 KiB, memory, retention", 1024, "memory", {RATE: 0.70}, "again"),
    Row(
        "one outstanding 100 B, --idle poll", 100, "majority", {P50: 1.05, P99: 0.75},
        mode="latency", more=("--idle", "poll"),
    ),
    Row(
        "one outstanding 100 B, segments of 8 MiB roll and go", 100, "majority", {P99: 2.0},
        mode="latency",
        more="--prepare 8 --segment-bytes 8MiB --retention 16 --total 20".split(),
    ),
    Row("100 B, durable, a busy loop beside", 100, "majority", {RATE: 0.70}, busy=1),
    Row(
        "one outstanding 100 B, a busy loop beside", 100, "majority", {P50: 1.3},
        mode="latency", busy=1,
    ),
    Row("100 B, durable, two busy loops beside", 100, "majority", {RATE: 0.70}, busy=2),
    Row(
        "one outstanding 100 B, two busy loops beside", 100, "majority", {P50: 1.3},
        mode="latency", busy=2,
    ),
    Row(
        "1 KiB like JSON, zstd, durable", 1024, "majority", {RATE: 1.5},
        more=("--compression", "zstd", "--values", "json"),
    ),
)  # fmt: skip


class RunFailed(Exception):
    """kraftfast ended with an error, or its log was not what was appended."""


@dataclass
class Measured:
    """The runs of a row; ``floor`` has the lines of every way, a list for each pair.

    ``failed``: what was said of pairs that do not count, because ours failed.
    """

    row: Row
    floor: list[list[dict[str, Any]]] = field(default_factory=list)
    ours: list[dict[str, Any]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def summary(self) -> list[dict[str, Any]]:
        """Return one line for each key with a bar."""
        return [self._line(key, bar) for key, bar in self.row.bars.items()]

    def _line(self, key: str, bar: float) -> dict[str, Any]:
        pairs = [
            (ours[key], best(lines, key)[key])
            for ours, lines in zip(self.ours, self.floor)
            if ours[key] is not None
        ]
        if not pairs:
            return {"row": self.row.name, "key": key, "bar": bar, "met": None}
        ratios = sorted(ours / floor for ours, floor in pairs)
        ratio = median(ratios)
        return {
            "row": self.row.name,
            "key": key,
            "floor": median(floor for _, floor in pairs),
            "ours": median(ours for ours, _ in pairs),
            "ratio": round(ratio, 3),
            "ratio_min": round(ratios[0], 3),
            "ratio_max": round(ratios[-1], 3),
            "bar": bar,
            "met": ratio >= bar if key == RATE else ratio <= bar,
        }


def total_mib(row: Row, asked: argparse.Namespace) -> int:
    """Return how many MiB of values a run of this row commits."""
    if row.mode == "latency":
        return LATENCY_MIB
    return int(asked.long if row.is_long else asked.total)


def run_floor(row: Row, place: str, asked: argparse.Namespace) -> list[dict[str, Any]]:
    """Run each way of the floor once. A way that does not run here is named."""
    batch, window = (BATCH_BYTES, WINDOW) if row.mode == "throughput" else (1, 1)
    work = Work(
        place,
        row.record_bytes,
        batch,
        total_mib(row, asked) * MIB,
        window,
        row.durability != "memory",
        row.files,
        KEPT_MIB * MIB if row.files == "again" else 0,
    )
    lines, problems = run_ways(work)
    for problem in problems:
        print(f"\nnot measured: {problem}", file=sys.stderr)
    return lines


def run_ours(row: Row, place: str, asked: argparse.Namespace) -> dict[str, Any]:
    """Run kraftfast once, verified. Raises RunFailed."""
    command = [sys.executable, "-m", "kraftfast", "bench", row.mode, "--dir", place, "--json"]
    command += ["--record-size", str(row.record_bytes), "--durability", row.durability]
    command += ["--total", str(total_mib(row, asked))]
    if row.mode == "throughput":
        command += ["--window", str(WINDOW), "--batch-bytes", str(BATCH_BYTES)]
    if row.is_long:
        command += ["--prepare", str(PREPARED_MIB)]
    if row.files == "again":
        command += ["--retention", str(KEPT_MIB), "--warm-up", str(2 * KEPT_MIB)]  # as the floor
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    }
    try:
        done = subprocess.run(
            [*command, *row.more, *asked.more],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        raise RunFailed(f"{' '.join(command)}: no end within {TIMEOUT_S} s") from None
    if done.returncode:
        told = done.stderr.strip()[-400:]
        raise RunFailed(f"{' '.join(command)}: exit code {done.returncode}: {told}")
    line: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert line["verified"], "kraftfast ends with an error where the verification fails"
    return line


UNITS = {
    RATE: "records/s",
    P50: "p50, us",
    P99: "p99, us",
    P999: "p99.9, us",
    CPU: "CPU s a million records",
}


def show(lines: list[dict[str, Any]], pairs: int) -> None:
    """Print the table, in Markdown."""
    print(f"\n| three voters, medians of {pairs} | floor | kraftfast | ratio (range) | bar | |")
    print("| --- | --- | --- | --- | --- | --- |")
    for line in lines:
        what = f"{line['row']}: {UNITS[line['key']]}"
        bar = f"at {'least' if line['key'] == RATE else 'most'} {line['bar']:.2f}"
        if line["met"] is None:
            print(f"| {what} | | | too few samples | {bar} | |")
            continue
        met = "met" if line["met"] else "MISSED"
        spread = f"{line['ratio']:.2f} ({line['ratio_min']:.2f}-{line['ratio_max']:.2f})"
        digits = ",.2f" if line["key"] == CPU else ",.0f"
        floor, ours = format(line["floor"], digits), format(line["ours"], digits)
        print(f"| {what} | {floor} | {ours} | {spread} | {bar} | {met} |")


def options() -> argparse.Namespace:
    """Return what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dir", default="/var/tmp", help="on the disk to be measured [/var/tmp]")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="floor and ours, by turns [7]")
    parser.add_argument(
        "--total", type=int, default=TOTAL_MIB, metavar="MIB", help="of prepared rows [512]"
    )
    parser.add_argument(
        "--long", type=int, default=LONG_MIB, metavar="MIB", help="of the other rows [4096]"
    )
    parser.add_argument(
        "--quick", action="store_true", help="one pair of 64 MiB each: a check, no measurement"
    )
    parser.add_argument(
        "--rows", default="", metavar="TEXT", help="only rows whose name contains this"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all runs here")
    parser.add_argument(
        "more", nargs="*", metavar="-- OPTION", help="further options of kraftfast bench"
    )
    asked = parser.parse_args()
    if asked.pairs < 1:
        parser.error(f"--pairs wants at least 1, not {asked.pairs}")
    if asked.json is not None and (asked.json.is_dir() or not asked.json.parent.is_dir()):
        parser.error(f"--json cannot be {asked.json}: a file in a directory that is there is meant")
    if not any(asked.rows in row.name for row in ROWS):
        parser.error(f"no row's name contains {asked.rows!r}")
    if asked.quick:
        asked.pairs, asked.total, asked.long = 1, 64, 64
    return asked


@contextmanager
def busy_beside(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run so many processes that use a processor each."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield loops
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def measure(each: Measured, place: str, asked: argparse.Namespace) -> None:
    """Run all pairs of a row."""
    turns: list[Callable[..., Any]] = [run_floor, run_ours]
    for pair in range(asked.pairs):
        try:
            found = {  # a drift hurts both alike
                turn: turn(each.row, place, asked)
                for turn in (turns if pair % 2 == 0 else reversed(turns))
            }
        except RunFailed as error:
            each.failed.append(str(error))
            print(f"\n{error}", file=sys.stderr)
            continue
        each.floor.append(found[run_floor])
        each.ours.append(found[run_ours])
        print(".", end="", file=sys.stderr, flush=True)


def main() -> int:
    """Exit code 1 if a run failed, or a bar was missed (that never with --quick); 130: Ctrl-C."""
    asked = options()
    measured = [Measured(row) for row in ROWS if asked.rows in row.name]
    ended = 0
    with tempfile.TemporaryDirectory(prefix="kraftfast-floor-", dir=asked.dir) as place:
        try:
            for each in measured:
                with busy_beside(each.row.busy):
                    measure(each, place, asked)
        except KeyboardInterrupt:
            print("\nstopped: what was measured so far", end="", file=sys.stderr)
            ended = INTERRUPTED
        except KraftfastError as error:  # of the floor: the host will not do for the next pair
            print(f"\nagainst_floor: {error}", end="", file=sys.stderr)
            ended = 1
    print(file=sys.stderr)
    lines = [line for each in measured if each.ours and each.floor for line in each.summary()]
    show(lines, asked.pairs)
    if asked.json is not None:
        runs = [
            {"row": asdict(each.row), "floor": each.floor, "ours": each.ours, "failed": each.failed}
            for each in measured
        ]
        asked.json.write_text(json.dumps({"table": lines, "runs": runs}, indent=1))
    failed = sum(len(each.failed) for each in measured)
    if failed:
        print(f"{failed} runs failed and do not count", file=sys.stderr)
    missed = not asked.quick and any(line["met"] is False for line in lines)
    return ended or int(missed or failed > 0)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (KraftfastError, OSError) as error:
        sys.exit(f"against_floor: {error}")
