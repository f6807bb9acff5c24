"""A stream goes on with the log that it read, and tells when another one is in its place."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows  # noqa: E402

import kraftfast  # noqa: E402
from kraftfast import errors  # noqa: E402
from kraftfast.spark.reading.committed import OneLog  # noqa: E402
from kraftfast.spark.reading.sources import LogSource  # noqa: E402
from kraftfast.spark.streaming.leader_connection import LeaderLine  # noqa: E402
from kraftfast.spark.streaming.lineage import lineages, positions  # noqa: E402
from kraftfast.spark.streaming.stream import StreamReader  # noqa: E402
from tests.spark.kit import LogFiles, read_all, struct  # noqa: E402
from tests.spark.test_committed import SMALL, Quorum  # noqa: E402


def reader(where: dict[str, str], **options: str) -> StreamReader:
    found: StreamReader = LogSource(where | options).streamReader(struct(["offset", "value"]))
    return found


def read_from(where: dict[str, str], start: Any = None) -> tuple[Any, list[bytes]]:
    """(the end, the values) of all there is, by a reader of its own."""
    one = reader(where)
    start = one.initialOffset() if start is None else start
    end = one.latestOffset(start, ReadAllAvailable())
    return end, [row["value"] for row in read_all(one, one.partitions(start, end))]


@pytest.fixture
def quorum(tmp_path: Path) -> Quorum:
    made = Quorum(tmp_path / "quorum")
    for id in (1, 2, 3):
        made.replica(id, (1, 100), (2, 20))
    return made


def test_what_a_checkpoint_says_of_the_log(quorum: Quorum) -> None:
    where = {"path": str(quorum.path)}
    end, found = read_from(where)
    assert positions(end) == {"quorum": 120} and len(found) == 120
    (lineage,) = lineages(end).values()
    assert lineage.cluster == quorum.cluster_id
    assert len(lineage.directories) == 3 and lineage.epochs == ((1, 0), (2, 100))
    assert read_from(where, end) == (end, []), "to the letter the same: Spark compares the text"
    assert reader(where).partitions({"quorum": 0}, {"quorum": 110}), "an earlier version's offset"


def test_a_log_made_anew_is_told(quorum: Quorum, tmp_path: Path) -> None:
    """Of another cluster; or of the same id, in other directories; with other epochs."""
    where = {"path": str(quorum.path)}
    end, _ = read_from(where)
    shutil.rmtree(quorum.path)
    anew = Quorum(quorum.path)
    for id in (1, 2, 3):
        anew.replica(id, (1, 100), (2, 90))
    with pytest.raises(errors.InconsistentClusterId, match="of cluster .* when it was read"):
        read_from(where, end)
    with pytest.raises(errors.InconsistentClusterId):
        reader(where).partitions({"quorum": 0}, end)  # a micro-batch that is tried again
    shutil.rmtree(quorum.path)
    anew = Quorum(quorum.path)
    anew.cluster_id = quorum.cluster_id
    for id in (1, 2, 3):
        anew.replica(id, (1, 100), (2, 90))
    with pytest.raises(errors.ForeignDirectory, match="has been made again"):
        read_from(where, end)


def test_a_checkpoint_of_other_logs_is_refused(quorum: Quorum) -> None:
    """Else all would be read again, and a wrong path would stay in the checkpoint."""
    whole, one, other = ({"path": str(quorum.path / each)} for each in ("", "1", "2"))
    for of, where in ((whole, one), (one, whole), (one, other)):
        end, _ = read_from(of)
        with pytest.raises(errors.ForeignDirectory, match="^the checkpoint is of .* and .* is"):
            read_from(where, end)
        with pytest.raises(errors.ForeignDirectory):
            reader(where).partitions({}, end)  # a micro-batch that is tried again
    end, _ = read_from(one)
    more = reader({"path": str(quorum.path / "*")}).latestOffset(end, ReadAllAvailable())
    assert len(positions(more)) == 3, "logs that are new, beside the one that was read"
    loose = reader(other, failOnDataLoss="false").latestOffset(end, ReadAllAvailable())
    assert len(positions(loose)) == 2, "that one may be gone"


def test_disks_are_replaced_one_by_one(quorum: Quorum) -> None:
    where = {"path": str(quorum.path)}
    end, _ = read_from(where)
    for id in (1, 2):
        shutil.rmtree(quorum.path / str(id))
        quorum.replica(id, (1, 100), (2, 30))
    assert len(read_from(where, end)[1]) == 10


def test_a_log_that_was_cut_below_what_was_read_is_told(quorum: Quorum) -> None:
    where = {"path": str(quorum.path)}
    end, _ = read_from(where)
    for id in (1, 2, 3):
        (quorum.path / str(id) / "__cluster_metadata-0" / f"{100:020d}.log").unlink()
        files = LogFiles(quorum.path / str(id))
        files.end_offset = 100
        files.append(files.roll(), [b"other %d" % n for n in range(50)], epoch=3)
    with pytest.raises(errors.ForeignDirectory, match="of epoch 2 when .* is of epoch 3"):
        read_from(where, end)


def test_a_copy_of_a_log_is_compared_by_its_epochs(log: LogFiles) -> None:
    where = {"path": str(log.path)}
    end, found = read_from(where)
    assert len(found) == 120
    for file in log.log_path.iterdir():
        file.unlink()
    log.end_offset = 0
    log.fill(segments=1, batches=40, records=4)
    with pytest.raises(errors.ForeignDirectory, match="this is another log"):
        read_from(where, end)


def test_a_replica_that_is_behind_is_no_damage(
    quorum: Quorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader is gone: who runs does not hold yet all that it said was committed."""
    where = {"path": str(quorum.path)}
    end, _ = read_from(where)
    behind = quorum.path / "2" / "__cluster_metadata-0" / f"{100:020d}.log"
    behind.write_bytes(b"")
    running = {str(quorum.path / "2"): 100}
    monkeypatch.setattr(OneLog, "high_watermark", lambda self: running.get(self.place.directory))
    one = reader(where, timeout="0.2")
    rows = read_all(one, one.partitions({"quorum": 50}, end))
    assert [row["offset"] for row in rows] == list(range(50, 120))
    running |= {str(quorum.path / str(id)): 0 for id in (1, 3)}  # all run; none of them knows yet
    learns = threading.Timer(0.2, running.update, [{str(quorum.path / "3"): 120}])
    learns.start()
    one = reader(where, timeout="20")
    rows = read_all(one, one.partitions({"quorum": 50}, end))
    assert [row["offset"] for row in rows] == list(range(50, 120))
    learns.join()
    for id in (1, 3):
        shutil.rmtree(quorum.path / str(id))
    with pytest.raises(errors.NoQuorum, match="offset 119 was committed, and no replica"):
        reader(where, timeout="0.2").partitions({"quorum": 50}, end)


@pytest.mark.processes
@pytest.mark.parametrize("how", ["path", "servers"])
def test_a_quorum_made_anew_at_the_same_place(tmp_path: Path, how: str) -> None:
    place = tmp_path / "quorum"
    settings: dict[str, Any] = {"transport": "socket", "durability": "memory", **SMALL}
    start: Any = None
    for word in (b"old", b"new"):
        shutil.rmtree(place, ignore_errors=True)
        with kraftfast.LocalQuorum(place, 1, **settings) as quorum, quorum.producer() as producer:
            servers = ",".join(f"{host}:{port}" for host, port in quorum.addresses.values())
            producer.append_many([b"%s %d" % (word, n) for n in range(600)])
            where = {"path": str(place)} if how == "path" else {"bootstrap.servers": servers}
            if start is None:
                start, found = read_from(where)
                assert len(found) == 600
                continue
            with pytest.raises(errors.InconsistentClusterId, match="checkpointLocation"):
                read_from(where, start)


@pytest.mark.processes
def test_a_query_keeps_one_connection_to_the_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle poll calls nobody anew, by address or by path."""
    calls = list[str]()
    attach, open_watch = LeaderLine._attach, OneLog._open_watch
    monkeypatch.setattr(
        LeaderLine, "_attach", lambda self, until: (calls.append("tcp"), attach(self, until))[1]
    )
    monkeypatch.setattr(
        OneLog, "_open_watch", lambda self: (calls.append("watch"), open_watch(self))[1]
    )
    with (
        kraftfast.LocalQuorum(
            tmp_path, 1, transport="socket", durability="memory", **SMALL
        ) as quorum,
        quorum.producer() as producer,
    ):
        producer.append_many([b"%d" % n for n in range(100)])
        servers = ",".join(f"{host}:{port}" for host, port in quorum.addresses.values())
        for where in ({"path": str(tmp_path)}, {"bootstrap.servers": servers}):
            calls.clear()
            one = reader(where)
            start = one.latestOffset(one.initialOffset(), ReadMaxRows(10))
            for _ in range(20):
                assert one.latestOffset(start, ReadMaxRows(10)) != start
                one.partitions({"quorum": 5}, start)
            assert len(calls) == 1
