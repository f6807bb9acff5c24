"""``kraftfast bench peers``: drivers that are scripts, beside the floor and kraftfast itself."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kraftfast.bench import peers
from kraftfast.bench.results import plan
from kraftfast.bench.results.result import load
from kraftfast.cli.bench.bench_results import check_options
from tests.bench.test_peers import LINE, gone
from tests.cli.kit import environment, fails, run

pytestmark = pytest.mark.processes

FAKE = """#!/bin/sh
while [ $# -gt 0 ]; do
    case $1 in
    --mode) mode=$2 ;;
    --value-bytes) size=$2 ;;
    esac
    shift
done
"""


def fake(folder: Path, name: str, ending: str = "", **changed: Any) -> None:
    """Make a driver that does as it was asked, at once, and then what ``ending`` says."""
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    line = json.dumps(LINE | {"peer": name, "mode": "MODE", "value_bytes": -1} | changed)
    line = line.replace("MODE", "'$mode'").replace("-1", "'$size'")
    path = folder / "bin" / name
    path.write_text(f"{FAKE}{ending}\nprintf '%s\\n' '{line}'\n")
    path.chmod(0o755)


def test_peers_are_measured(tmp_path: Path) -> None:
    """One result; what fails is named and left out, and the exit code says so."""
    fake(tmp_path, "one")
    fake(tmp_path, "two", "[ $mode = latency ] || { echo no room >&2; exit 3; }", sync=False)
    asked = ["--peers", tmp_path, "--only", "two,one,three", "--rounds", 1]
    asked += ["--dir", tmp_path / "d", "--results", tmp_path / "r"]
    done = run("bench", "peers", *asked, "--json")
    assert done.returncode == 1, done.stderr
    told = done.stderr.decode()
    assert "not measured: three: there is no " in told and "two: exit code 3: no room" in told
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["name"], row["mode"], row["runs"]) for row in rows] == [
        ("two", "latency", 1),
        ("one", "latency", 1),
        ("one", "throughput", 1),
    ]
    assert all(row["survives"] == "nothing" and row["p99_us"] == 9 for row in rows)
    (path,) = (tmp_path / "r").iterdir()
    result = load(path)
    assert result.complete and not (tmp_path / "d").exists()
    assert set(result.failures) == {"two, throughput", "three, latency", "three, throughput"}


def test_without_peers_only_ours_can_run() -> None:
    told = fails(run("bench", "peers", "--only", "etcd"), 3)
    assert "nothing to measure: etcd: --peers says where the drivers are" in told
    assert "--build needs --peers FOLDER" in fails(run("bench", "peers", "--build"), 2)
    done = run("bench", "peers", "--kills", 1, "--only", "floor,etcd")
    assert "--kills are of kraftfast" in fails(done, 2)


def test_a_driver_that_cannot_be_built_is_named(tmp_path: Path) -> None:
    done = run("bench", "peers", "--peers", tmp_path, "--only", "other", "--build")
    told = "nothing to measure: other: not built: there is no driver of that name"
    assert done.returncode == 3 and told in done.stderr.decode()


def test_one_driver_once(tmp_path: Path) -> None:
    fake(tmp_path, "one")
    program = ("--program", tmp_path / "bin" / "one", "--dir", tmp_path / "d")
    done = run("bench", "peer", *program, "--mode", "throughput", "--record-size", 7, "--json")
    line = json.loads(done.stdout)
    assert (line["peer"], line["mode"], line["value_bytes"]) == ("one", "throughput", 7)
    assert line["filesystem"]
    done = run("bench", "peer", *program)
    assert done.returncode == 0 and done.stdout.startswith(b"one v1, latency\n")
    fake(tmp_path, "one", verified=False)
    assert "one: a voter lacks records" in fails(run("bench", "peer", *program), 16)
    fake(tmp_path, "one", "sleep 1000")
    assert "one did not end within 0.2 s" in fails(
        run("bench", "peer", *program, "--timeout", 0.2), 15
    )
    assert not (tmp_path / "d").exists()


def test_what_is_ended_keeps_what_it_has(tmp_path: Path) -> None:
    """Ctrl-C while a driver runs: it ends with all that it started, and the result stays."""
    fake(tmp_path, "one")
    began = tmp_path / "began"
    fake(tmp_path, "two", f"echo $$ >{began}.new; mv {began}.new {began}; sleep 1000")
    command = [sys.executable, "-m", "kraftfast", "bench", "peers", "--peers", str(tmp_path)]
    command += [
        "--only",
        "one,two",
        "--rounds",
        "1",
        "--results",
        str(tmp_path / "r"),
        "--dir",
        str(tmp_path / "d"),
    ]
    process = subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 60
    while not began.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and b"cut short after 1 of 4 runs" in err, err
    assert b"one" in out and not (tmp_path / "d").exists()
    (path,) = (tmp_path / "r").iterdir()
    assert not load(path).complete
    gone(int(began.read_text()))


def test_ours_are_asked_for_what_they_know() -> None:
    """The plan's options are those of the commands: nothing of it is refused."""
    asked = {"only": [*peers.OURS, "one"], "peers": Path("/p"), "kills": 1, "rounds": 1}
    asked |= {"seconds": 0.1, "total": 1.0, "timeout": 1.0}
    for durability in ("majority", "memory"):
        table = peers.table(asked | {"durability": durability})
        check_options(plan.of_table(table, "peers"))


def test_names_are_of_programs() -> None:
    assert set(peers.NAMES).isdisjoint(peers.OURS)
    assert "'../x' is no name" in fails(run("bench", "peers", "--only", "../x"), 2)
