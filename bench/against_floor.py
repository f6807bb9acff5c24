"""kraftfast against the floor: the least work that three voters can do, in C, on the same disk.

    python bench/against_floor.py [--dir D] [--pairs 5] [--quick] [--json FILE] [--beyond]

Floor and kraftfast run by turns, with the same value size and total, everything prepared before
the clock starts on both sides. A pair's ratio is ours over the floor's; a row shows the median of
the ratios (of p99 too), and the medians of both sides. ``--beyond`` adds, without a bar, runs ten
times longer than what was prepared: with all of the log kept, and with as much kept as was prepared
(old segments are used again, the steady state of a queue).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FLOOR_SOURCE = Path(__file__).with_name("floor.c")
FLOOR_LINE = re.compile(r"([\d.]+) records/s.*p50 ([\d.]+) us p99 ([\d.]+) us")
BATCH_BYTES = 64 * 1024
WINDOW = 32
PAIRS_MIN = 5
TIMEOUT_S = 900


@dataclass(frozen=True)
class Row:
    """One line of the table. ``bars``: by measured key, the least (of times: largest) ratio."""

    name: str
    record_bytes: int
    durability: str
    mode: str
    bars: dict[str, float]
    beyond: bool = False
    retained: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        """What is compared: more of the first is better, less of the others."""
        return ("records_per_s",) if self.mode == "throughput" else ("p50_us", "p99_us")


ROWS = (
    Row("100 B records, memory", 100, "memory", "throughput", {"records_per_s": 0.60}),
    Row("1 KiB records, memory", 1024, "memory", "throughput", {"records_per_s": 0.65}),
    Row(
        "100 B records, durable on a majority",
        100,
        "majority",
        "throughput",
        {"records_per_s": 0.70},
    ),
    Row(
        "1 KiB records, durable on a majority",
        1024,
        "majority",
        "throughput",
        {"records_per_s": 0.70},
    ),
    Row(
        "one outstanding 100 B record, durable",
        100,
        "majority",
        "latency",
        {"p50_us": 1.25, "p99_us": 1.6},
    ),
)
BEYOND = tuple(
    Row(f"{row.name}, {how}", row.record_bytes, row.durability, row.mode, {}, True, retained)
    for row in ROWS
    if row.mode == "throughput"
    for how, retained in (
        ("10 x what is prepared", False),
        ("10 x what is prepared and kept", True),
    )
)


@dataclass
class Measured:
    """The runs of a row, floor and ours by turns; ``ratios`` by key, a pair each."""

    row: Row
    floor: list[dict[str, float]] = field(default_factory=list)
    ours: list[dict[str, Any]] = field(default_factory=list)

    def ratios(self, key: str) -> list[float]:
        return [ours[key] / floor[key] for ours, floor in zip(self.ours, self.floor)]

    def summary(self) -> list[dict[str, Any]]:
        """One line for each key."""
        lines = []
        for key in self.row.keys:
            ratios, bar = self.ratios(key), self.row.bars.get(key)
            ratio = median(ratios)
            met = (
                None if bar is None else (ratio >= bar if key == "records_per_s" else ratio <= bar)
            )
            lines.append(
                {
                    "row": self.row.name,
                    "key": key,
                    "floor": median(run[key] for run in self.floor),
                    "ours": median(run[key] for run in self.ours),
                    "ratio": round(ratio, 3),
                    "ratio_min": round(min(ratios), 3),
                    "ratio_max": round(max(ratios), 3),
                    "bar": bar,
                    "met": met,
                }
            )
        return lines


def build_floor(source: Path, place: str) -> str:
    """Compile the yardstick; returns the program's path."""
    program = os.path.join(place, "floor")
    subprocess.run(
        ["cc", "-O3", "-march=native", "-o", program, str(source), "-lpthread"], check=True
    )
    return program


def run_floor(program: str, row: Row, place: str, total_mib: int) -> dict[str, float]:
    """One run of the floor."""
    durable, files = ("memory", "mapped") if row.durability == "memory" else ("durable", "recycled")
    batch, window = (BATCH_BYTES, WINDOW) if row.mode == "throughput" else (1, 1)
    arguments = (place, row.record_bytes, batch, total_mib, durable, window, "parallel", files)
    output = _run([program, *map(str, arguments)])
    found = FLOOR_LINE.search(output)
    if found is None:
        raise SystemExit(f"the floor printed {output!r}")
    return dict(zip(("records_per_s", "p50_us", "p99_us"), map(float, found.groups())))


def run_ours(row: Row, place: str, total_mib: int, more: list[str]) -> dict[str, Any]:
    """One run of kraftfast, verified."""
    command = [sys.executable, "-m", "kraftfast", "bench", row.mode, "--dir", place, "--json"]
    command += ["--record-size", str(row.record_bytes), "--durability", row.durability]
    if row.mode == "throughput":
        command += ["--window", str(WINDOW), "--batch-bytes", str(BATCH_BYTES)]
    if row.beyond:
        command += ["--total", str(10 * total_mib), "--prepare", str(total_mib)]
        if row.retained:
            segment_bytes = max(8, total_mib // 4) << 20
            command += ["--retention", str(total_mib), "--segment-bytes", str(segment_bytes)]
    else:
        command += ["--total", str(total_mib)]
    line: dict[str, Any] = json.loads(_run(command + more).splitlines()[-1])
    assert line["verified"], "kraftfast ends with an error where the verification fails"
    return line


def _run(command: list[str]) -> str:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    }
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment
    )
    if done.returncode:
        raise SystemExit(
            f"{' '.join(command)}: exit code {done.returncode}: {done.stderr.strip()[-400:]}"
        )
    return done.stdout


def show(lines: list[dict[str, Any]], pairs: int) -> None:
    """The table, in Markdown."""
    print(
        f"\n| three voters, medians of {pairs} pairs | floor | kraftfast | ratio (range) | bar | |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    for line in lines:
        unit = "records/s" if line["key"] == "records_per_s" else line["key"].replace("_us", ", us")
        sign = (
            ""
            if line["bar"] is None
            else ("at least " if line["key"] == "records_per_s" else "at most ")
        )
        bar = "" if line["bar"] is None else f"{sign}{line['bar']:.2f}"
        met = {None: "", True: "met", False: "MISSED"}[line["met"]]
        spread = f"{line['ratio']:.2f} ({line['ratio_min']:.2f}-{line['ratio_max']:.2f})"
        print(
            f"| {line['row']}: {unit} | {line['floor']:,.0f} | {line['ours']:,.0f} "
            f"| {spread} | {bar} | {met} |"
        )


def options() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dir", default="/var/tmp", help="on the disk to be measured [/var/tmp]")
    parser.add_argument("--floor-source", type=Path, default=FLOOR_SOURCE, help="[bench/floor.c]")
    parser.add_argument("--pairs", type=int, default=PAIRS_MIN, help="of runs, floor and ours [5]")
    parser.add_argument(
        "--total", type=int, default=512, metavar="MIB", help="of values, in throughput rows [512]"
    )
    parser.add_argument(
        "--quick", action="store_true", help="one pair and 64 MiB: a check, no measurement"
    )
    parser.add_argument(
        "--beyond", action="store_true", help="also runs ten times longer than what is prepared"
    )
    parser.add_argument(
        "--rows", default="", metavar="TEXT", help="only rows whose name contains this"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all runs here")
    parser.add_argument(
        "more", nargs="*", metavar="-- OPTION", help="further options of kraftfast bench"
    )
    asked = parser.parse_args()
    if not asked.floor_source.is_file():
        parser.error(f"there is no file {asked.floor_source}")
    if asked.quick:
        asked.pairs, asked.total = 1, 64
    return asked


def main() -> int:
    """Exit code 1 if a bar was missed (never with --quick)."""
    asked = options()
    rows = [row for row in (*ROWS, *(BEYOND if asked.beyond else ())) if asked.rows in row.name]
    measured = [Measured(row) for row in rows]
    with tempfile.TemporaryDirectory(prefix="kraftfast-floor-", dir=asked.dir) as place:
        floor = build_floor(asked.floor_source, place)
        for each in measured:
            total_mib = asked.total if each.row.mode == "throughput" else 1
            for pair in range(asked.pairs):
                turns = [
                    lambda: each.floor.append(run_floor(floor, each.row, place, total_mib)),
                    lambda: each.ours.append(run_ours(each.row, place, total_mib, asked.more)),
                ]
                for turn in turns if pair % 2 == 0 else reversed(turns):  # a drift hurts both alike
                    turn()
                print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    lines = [line for each in measured for line in each.summary()]
    show(lines, asked.pairs)
    if asked.json is not None:
        runs = [
            {"row": asdict(each.row), "floor": each.floor, "ours": each.ours} for each in measured
        ]
        asked.json.write_text(json.dumps({"table": lines, "runs": runs}, indent=1))
    return int(not asked.quick and any(line["met"] is False for line in lines))


if __name__ == "__main__":
    sys.exit(main())
