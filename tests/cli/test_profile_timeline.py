"""``kraftfast profile timeline``: real quorums; what the trace holds, and how it fails."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kraftfast as library
from tests.cli.kit import fails, run
from tests.cli.logs import Done
from tests.cli.test_bad_input import BAD

pb = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")


def stages(path: Path) -> dict[int, set[tuple[str, str]]]:
    """(process, stage) of what each flow passes."""
    trace = pb.Trace()
    trace.ParseFromString(path.read_bytes())
    tracks = {p.track_descriptor.uuid: p.track_descriptor for p in trace.packet}
    found: dict[int, set[tuple[str, str]]] = defaultdict(set)
    for packet in trace.packet:
        event = packet.track_event
        for flow in event.flow_ids:
            process = tracks[tracks[event.track_uuid].parent_uuid].process.process_name
            found[flow].add((process.rstrip("123"), event.name))
    return found


ALL = {
    ("producer", "claim"), ("replica ", "queue"), ("replica ", "append"), ("replica ", "send"),
    ("replica ", "travel"), ("replica ", "copy"), ("replica ", "fdatasync"),
    ("replica ", "acknowledge"), ("replica ", "committed"), ("producer", "answer"),
    ("producer", "resolved"),
}  # fmt: skip


@pytest.mark.processes
@pytest.mark.parametrize("what", ["latency", "throughput"])
def test_commits_are_followed_from_their_claim_to_their_end(what: str, tmp_path: Path) -> None:
    trace, scratch = tmp_path / "trace", tmp_path / "scratch"
    scratch.mkdir()
    args = ("--dir", scratch, "--seconds", 0.5, "--slow", 0, "--json")
    done = run("profile", "timeline", what, "-o", trace, *args)
    assert done.returncode == 0, done.stderr
    said, *slow = [json.loads(line) for line in done.stdout.splitlines()]
    assert said["slow"] >= len(slow) > 0 and said["batches"] > 0
    assert set(said["events"]) == {"producer", "replica 1", "replica 2", "replica 3"}
    assert any(passed >= ALL for passed in stages(trace).values())
    slowest = slow[0]
    assert slowest["ms"] >= slow[-1]["ms"] and slowest["flushes"]
    assert {each["stage"] for each in slowest["stages"]} >= {"queue", "append", "copy", "commit"}
    assert not list(scratch.iterdir()), "it removes what it made"


@pytest.mark.processes
def test_a_quorum_that_runs_is_recorded(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    with library.LocalQuorum(tmp_path / "q", voters=3) as quorum, quorum.producer() as producer:
        done = threading.Event()

        def append() -> None:
            while not done.is_set():
                producer.append_wait(b"x" * 100, timeout=30)

        thread = threading.Thread(target=append)
        thread.start()
        try:
            made = run("profile", "timeline", "--attach", tmp_path / "q", "-o", trace,
                       "--seconds", 0.5, "--slow", 0)  # fmt: skip
        finally:
            done.set()
            thread.join()
        assert made.returncode == 0, made.stderr
        text = made.stdout.decode()
        assert " of 3 processes in 0." in text and "commits took more than 0 ms" in text
        wanted = {pair for pair in ALL if pair[0] != "producer"}
        assert any(passed >= wanted for passed in stages(trace).values())


@pytest.mark.processes
def test_callbacks_are_noted(tmp_path: Path) -> None:
    with library.LocalQuorum(tmp_path / "q", voters=1) as quorum, quorum.producer() as producer:
        from kraftfast.bench.profiling.event_collector import Collector

        called: list[Any] = []
        producer.on_commit(called.append)
        absent = {9: str(tmp_path / "absent")}
        collector = Collector({**quorum.directories, **absent}, producer.latencies)
        with collector.collecting():
            producer.append_wait(b"x", timeout=30)
            producer.close()
        assert collector.recording is not None and collector.missing.keys() == {9}
        (found,) = [each for each in collector.recording.processes if not each.id]
        (callback,) = found.of("callback")
        assert callback["offset"] == called[0].base_offset and callback["count"] == 1
        assert 0 < callback["arg"] <= callback["ns"]


@pytest.mark.parametrize("options, said", [
    ((), "name either WHAT to run, or with --attach"),
    (("latency", "--attach", "."), "name either WHAT to run, or with --attach"),
    (("--attach", ".", "--window", 4), "--window belongs to a benchmark"),
    (("latency", "--batch-bytes", 1000), "--batch-bytes belongs to throughput"),
    (("latency", "-o", "absent/x"), "cannot write absent/x: No such file or directory"),
    (("latency", "-o", "."), "is a directory"),
    (("latency", "--slow", "nan"), "no finite number"),
])  # fmt: skip
def test_bad_options_are_told_before_anything_runs(
    options: tuple[object, ...],
    said: str,
    kraftfast: Callable[..., Done],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = kraftfast("profile", "timeline", *options)
    assert done.code in (2, 3) and said in done.err and done.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_what_is_no_quorum_is_one_plain_line(
    kraftfast: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("a")
    for value in BAD:
        done = kraftfast("profile", "timeline", "--attach", value, "--seconds", 0.01)
        assert done.code not in (0, 70) and done.err.count("\n") == 1, (value, done)
        assert "Traceback" not in done.err and "report it" not in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.processes
def test_a_quorum_that_does_not_run_is_told(tmp_path: Path) -> None:
    with library.LocalQuorum(tmp_path / "q", voters=1):
        pass
    text = fails(run("profile", "timeline", "--attach", tmp_path / "q", "-o", tmp_path / "t"), 12)
    assert "no replica passes its events" in text and not (tmp_path / "t").exists()
