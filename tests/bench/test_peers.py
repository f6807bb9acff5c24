"""Drivers of other logs: what they print, and every way in which they may end."""

from __future__ import annotations

import json
import os
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from kraftfast.bench import floor, peers
from kraftfast.bench.results import plan
from kraftfast.bench.results.result import Result, Run, load
from kraftfast.errors import InputError, KraftfastError, TimedOut, VerificationFailed
from tests.cli.kit import ROOT

LINE: dict[str, Any] = {
    "peer": "fake", "version": "v1", "voters": 3, "client": "own process", "sync": True,
    "fsync": "none", "survives": "nothing", "value_bytes": 100, "mode": "latency", "window": 1,
    "seconds": 1.0, "records": 2000, "records_per_s": 2000.0, "p50_us": 5.0, "p99_us": 9,
    "p999_us": 10.0, "max_us": 11.0, "verified": True,
}  # fmt: skip
SCRIPT = "#!/bin/sh\n"


def program(place: Path, text: str, name: str = "fake") -> Path:
    """Make a driver that is a script."""
    path = place / name
    path.write_text(SCRIPT + text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def printing(place: Path, **changed: Any) -> Path:
    """Make a driver that prints a line; a key that is changed to ``...`` is left out."""
    line = {key: value for key, value in (LINE | changed).items() if value is not ...}
    (place / "line").write_text(json.dumps(line) + "\n")
    return program(place, f"cat {place}/line\n")


def work(place: Path, **changed: Any) -> peers.PeerWork:
    asked = {"mode": "latency", "value_bytes": 100, "seconds": 1.5, "durable": True}
    return peers.PeerWork(str(place), **asked | changed)


def test_a_driver_is_called_as_it_is_written(tmp_path: Path) -> None:
    printing(tmp_path)
    path = program(tmp_path, f'echo noise; echo "$@" >{tmp_path}/words; cat {tmp_path}/line\n')
    assert peers.run(path, work(tmp_path)) == LINE
    expected = f"--dir {tmp_path} --mode latency --value-bytes 100 --seconds 1.5"
    assert (tmp_path / "words").read_text().strip() == expected
    peers.run(path, work(tmp_path, durable=False))
    assert (tmp_path / "words").read_text().strip() == f"{expected} --no-sync"


def test_a_percentile_of_few_samples_is_left_out(tmp_path: Path) -> None:
    line = peers.run(printing(tmp_path, records=999), work(tmp_path))
    assert (line["p99_us"], line["p999_us"]) == (9, None)


@pytest.mark.parametrize(
    "changed, told",
    [
        ({"fsync": ...}, "fake: 'fsync' of its line is 'None'"),
        ({"fsync": ""}, "'fsync' of its line is ''"),
        ({"survives": "a\nb"}, "'survives'"),
        ({"version": 1}, "'version'"),
        ({"sync": 1}, "'sync' of its line is '1'"),
        ({"voters": True}, "'voters'"),
        ({"records": 1.5}, "'records'"),
        ({"records": 0}, "no record was acknowledged"),
        ({"p50_us": float("nan")}, "'p50_us' of its line is 'nan'"),
        ({"p50_us": -1.0}, "'p50_us'"),
        ({"max_us": 10**400}, "'max_us'"),
        ({"mode": "throughput"}, "measured throughput of 100 B, not latency of 100 B"),
        ({"value_bytes": 10}, "measured latency of 10 B"),
    ],
)
def test_a_line_that_is_none_is_told(changed: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(peers.PeerFailed, match="fake") as caught:
        peers.run(printing(tmp_path, **changed), work(tmp_path))
    assert told in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text, told",
    [
        ("true", "fake printed nothing"),
        ('echo \'{"peer": "fa\'', "printed no line of JSON, or a part of one"),
        ("echo 17", "printed no JSON object: 17"),
        ("echo one; echo two >&2; exit 3", "fake: exit code 3: two"),
        ("exit 3", "fake: exit code 3, and it said nothing"),
        ("kill -9 $$", "fake: killed by signal 9"),
        ("printf '%070000d\\n' 0", "printed no line of JSON"),
        ("printf '%099000d' 0; printf '%099000d' 0 >&2", "printed no line of JSON"),
    ],
)
def test_a_driver_that_fails_is_told(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(peers.PeerFailed) as caught:
        peers.run(program(tmp_path, text + "\n"), work(tmp_path))
    assert told in str(caught.value) and len(str(caught.value)) < 400


def test_what_a_voter_lacks_is_no_figure(tmp_path: Path) -> None:
    with pytest.raises(VerificationFailed, match="a voter lacks records"):
        peers.run(printing(tmp_path, verified=False), work(tmp_path))


def test_a_program_that_is_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a")
    for name, told in (("absent", "No such file"), ("text", "Permission"), (".", "Permission")):
        with pytest.raises(InputError, match=f"cannot start .*{told}"):
            peers.run(tmp_path / name, work(tmp_path))


@pytest.mark.parametrize("text", ["sleep 1000", "exec >&- 2>&-; sleep 1000", "sleep 1000 & wait"])
def test_one_that_hangs_is_ended_with_all_that_it_started(text: str, tmp_path: Path) -> None:
    path = program(tmp_path, f"echo $$ >{tmp_path}/group\n{text}\n")
    with pytest.raises(TimedOut, match="fake did not end within 0.5 s"):
        peers.run(path, work(tmp_path), timeout_s=0.5)
    group = int((tmp_path / "group").read_text())
    gone(group)


def test_one_that_does_not_end_when_asked_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "GRACE_S", 0.1)
    path = program(tmp_path, f"trap '' TERM\necho $$ >{tmp_path}/group\nsleep 1000\n")
    with pytest.raises(TimedOut):
        peers.run(path, work(tmp_path), timeout_s=0.5)
    gone(int((tmp_path / "group").read_text()))


def gone(group: int) -> None:
    """Wait until no process of a group is left; a killed one may be a zombie for a moment."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.02)
    raise AssertionError(f"of the group {group} something is left")


def test_drivers_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each name has its driver in the clone, and each driver a line in the README."""
    assert peers.drivers() == ROOT / "bench" / "peers"
    text = (peers.drivers() / "README.md").read_text()
    script = (peers.drivers() / "build.sh").read_text()
    for name in peers.NAMES:
        assert f"| `{name}` |" in text and name in script, name
    monkeypatch.setattr(peers.kraftfast, "__file__", str(tmp_path / "a" / "b.py"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="built from a clone"):
        peers.drivers()


def test_a_driver_that_cannot_be_built_is_told(tmp_path: Path) -> None:
    assert peers.build(tmp_path / "new", "other") == "not built: there is no driver of that name"
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot build into .*: "):
        peers.build(tmp_path / "file", "other")


def test_a_build_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "build.sh").write_text('echo $$ >"$1/group"; sleep 1000\n')
    monkeypatch.setattr(peers, "drivers", lambda: tmp_path)
    monkeypatch.setattr(peers, "BUILD_TIMEOUT_S", 0.5)
    assert peers.build(tmp_path / "f", "x").startswith("it was not built within ")
    gone(int((tmp_path / "f" / "group").read_text()))


def test_a_build_that_is_killed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "build.sh").write_text("kill -9 $$\n")
    monkeypatch.setattr(peers, "drivers", lambda: tmp_path)
    assert peers.build(tmp_path / "f", "x") == "not built: it ended with -9, and said nothing"


def test_without_its_tools_a_driver_is_not_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tool in ("dirname", "mkdir", "sh"):
        (tmp_path / tool).symlink_to(f"/usr/bin/{tool}")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert peers.build(tmp_path / "f", "kafka") == "not built: it needs a JDK, 17 or later"


ASKED: dict[str, Any] = {
    "only": ["floor", "kraftfast", "kraftfast-socket", "etcd"], "peers": Path("/p"), "rounds": 2,
    "seconds": 1.0, "total": 8.0, "durability": "memory", "kills": 1, "timeout": 9.0,
}  # fmt: skip


def test_the_plan_has_each_in_each_mode() -> None:
    made = plan.of_table(peers.table(ASKED), "peers")
    names = [each.name for each in made.measures]
    assert names[:5] == [f"{name}, latency" for name in ASKED["only"]] + ["floor, throughput"]
    assert names[-1] == "kraftfast, failover" and len(names) == 9 and made.repeat == 2
    words = {each.name: " ".join((each.command, *each.options)) for each in made.measures}
    assert words["etcd, latency"] == (
        "peer --program /p/bin/etcd --mode latency --record-size 100 --seconds 1.0 "
        "--durability memory --timeout 9.0"
    )
    assert "--transport socket" in words["kraftfast-socket, throughput"]
    assert all("--durability memory" in each for each in words.values())


def test_rows_are_medians_with_ranges() -> None:
    runs = [
        Run("etcd, latency", number, "", 0.0, 0.0, [LINE | {"p50_us": us, "p99_us": None}])
        for number, us in enumerate((3.0, 1.0, 2.0))
    ]
    runs.append(Run("kraftfast, failover", 0, "", 0.0, 0.0, [{"p50_us": 1.0}]))
    (row,) = peers.rows(Result("peers", "", {}, {}, runs))
    assert (row["name"], row["mode"], row["fsync"], row["runs"]) == ("etcd", "latency", "none", 3)
    assert (row["p50_us"], row["p50_us_min"], row["p50_us_max"], row["p99_us"]) == (2, 1, 3, None)


def test_ours_say_what_they_flush() -> None:
    measured = dict.fromkeys(("records", "seconds", "user_s", "system_s", "p50_us"), 1.0)
    measured |= dict.fromkeys(("p99_us", "p999_us", "max_us"), 1.0)
    for durable, told in ((True, "a power cut of all voters"), (False, "no power cut")):
        line = floor.line(floor.Work("", 1, 1, 1, 1, durable), ("write", "growing"), measured)
        assert line["fsync"] and told in line["survives"]


def test_what_failed_is_kept_in_the_result(tmp_path: Path) -> None:
    result = Result("peers", "", {}, {}).with_failure("etcd, latency", "etcd: exit code 1")
    result.save(tmp_path / "r.json")
    assert load(tmp_path / "r.json").failures == {"etcd, latency": "etcd: exit code 1"}
    document = json.loads((tmp_path / "r.json").read_text())
    (tmp_path / "r.json").write_text(json.dumps(document | {"failures": [1]}))
    with pytest.raises(KraftfastError, match="wrong type"):
        load(tmp_path / "r.json")
    del document["failures"]
    (tmp_path / "r.json").write_text(json.dumps(document))
    assert load(tmp_path / "r.json").failures == {}, "written by an earlier version"
