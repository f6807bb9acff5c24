"""kraftfast beside Kafka, etcd and Aeron Cluster, and the floor, by turns on the same disk.

    bench/peers/build.sh FOLDER
    python bench/beside_peers.py --peers FOLDER [--dir D] [--rounds 3] [--seconds 5] [--json FILE]

Three voters on this machine, every record on the disks of a majority before it is acknowledged.
Two kinds of runs: one 100 B record outstanding, and many 1 KiB records outstanding. In each round
every program runs once, in turn; a figure is the median of the rounds. Without ``--peers`` only
kraftfast and the floor run. ``--kills`` adds `kraftfast bench failover` over rings.

Prints a table. ``--json`` keeps every run with the date, the processors and the load of the
machine; bench/picture.py draws it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from against_floor import ROOT, ROWS, Row, run_floor, run_ours

from kraftfast.bench.floor import best

PEERS = ("aeron", "etcd", "kafka")
LATENCY, THROUGHPUT = ROWS[4], ROWS[3]
KEYS = ("records_per_s", "p50_us", "p99_us")
TIMEOUT_S = 300

assert LATENCY.mode == "latency" and (THROUGHPUT.record_bytes, THROUGHPUT.durability) == (
    1024,
    "majority",
)


def run_peer(program: Path, row: Row, place: str, seconds: float) -> dict[str, Any]:
    """One run of a peer, verified. Raises RuntimeError if it fails."""
    with tempfile.TemporaryDirectory(dir=place) as directory:
        command = [str(program), "--dir", directory, "--value-bytes", str(row.record_bytes)]
        command += ["--mode", row.mode, "--seconds", str(seconds)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        raise RuntimeError(f"{program.name}: exit code {done.returncode}: {done.stderr[-400:]}")
    found: dict[str, Any] = json.loads(lines[-1])
    if not found["verified"]:
        raise RuntimeError(f"{program.name}: a replica lacks what was acknowledged: {found}")
    return found


def best_floor(row: Row, place: str, asked: argparse.Namespace) -> dict[str, Any]:
    """Run each way of the floor once; return the best, by what the row measures."""
    return best(run_floor(row, place, asked), KEYS[row.mode == "latency"])


def run_failover(place: str, kills: int) -> dict[str, Any]:
    """kraftfast's leader, killed again and again: milliseconds to the first later commit."""
    command = [sys.executable, "-m", "kraftfast", "bench", "failover", "--dir", place]
    command += ["--kills", str(kills), "--json"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment
    )
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found | {"p50_ms": found["p50_us"] / 1000, "worst_ms": found["max_us"] / 1000}


def measure(asked: argparse.Namespace, place: str) -> list[dict[str, Any]]:
    """Every run: what ran, in which mode, and the figures that it printed."""
    runs: list[dict[str, Any]] = []
    for number in range(asked.rounds):
        for row in (LATENCY, THROUGHPUT):
            turns: dict[str, Callable[[], dict[str, Any]]] = {
                "floor": partial(best_floor, row, place, asked),
                "kraftfast": partial(run_ours, row, place, asked),
            }
            for name in PEERS if asked.peers else ():
                program = asked.peers / "bin" / name
                turns[name] = partial(run_peer, program, row, place, asked.seconds)
            for name in turns if number % 2 == 0 else reversed(turns):
                found = {"load": os.getloadavg()[0]} | turns[name]()
                kept = {key: found[key] for key in (*KEYS, "load", "version") if key in found}
                runs.append({"name": name, "mode": row.mode, **kept})
                print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return runs


def medians(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line for each program and mode."""
    found = []
    for name, mode in dict.fromkeys((run["name"], run["mode"]) for run in runs):
        same = [run for run in runs if (run["name"], run["mode"]) == (name, mode)]
        figures = {key: median(run[key] for run in same) for key in KEYS if key in same[0]}
        found.append({"name": name, "mode": mode, "version": same[0].get("version", ""), **figures})
    return found


def main() -> int:
    """Exit code 0 if every run succeeded."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", type=Path, help="where bench/peers/build.sh put the programs")
    parser.add_argument("--dir", default="/var/tmp", help="on the disk to be measured [/var/tmp]")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5, help="of a run of a peer [5]")
    parser.add_argument("--total", type=int, default=512, metavar="MIB", help="of values [512]")
    parser.add_argument("--kills", type=int, default=0, help="of leaders, for failover [0]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all runs here")
    asked = parser.parse_args(namespace=argparse.Namespace(more=[], long=0))
    began, idle = time.gmtime(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="kraftfast-peers-", dir=asked.dir) as place:
        runs = measure(asked, place)
        failover = run_failover(place, asked.kills) if asked.kills else None
    table = medians(runs)
    for line in table:
        print(json.dumps(line))
    if asked.json is not None:
        result = {
            "date": time.strftime("%Y-%m-%d", began),
            "processors": os.cpu_count(),
            "rounds": asked.rounds,
            "idle": idle,
            "load": [min(run["load"] for run in runs), max(run["load"] for run in runs)],
            "table": table,
            "failover": failover,
            "runs": runs,
        }
        asked.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
