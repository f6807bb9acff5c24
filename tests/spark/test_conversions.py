"""A conversion that goes on takes what is new of the log that it has, and of no other one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

pytest.importorskip("pyspark")

import kraftfast  # noqa: E402
from kraftfast import errors  # noqa: E402
from kraftfast.spark.jobs import conversion  # noqa: E402
from kraftfast.spark.reading.sources import LogSource  # noqa: E402
from tests.spark.kit import LogFiles  # noqa: E402
from tests.spark.test_committed import SMALL, Quorum  # noqa: E402


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for a conversion, whose tasks run in this process."""
    monkeypatch.setattr(conversion, "register", lambda spark: None)
    monkeypatch.setattr(conversion, "fan_out", lambda spark, run, items: [*map(run, items)])
    return tmp_path / "parquet"


def convert(source: Path, target: Path) -> None:
    conversion.convert(None, str(source), str(target))  # type: ignore[arg-type]


def offsets(target: Path) -> list[int]:
    return sorted(parquet.read_table(target, columns=["offset"])["offset"].to_pylist())


@pytest.fixture
def quorum(tmp_path: Path) -> Quorum:
    made = Quorum(tmp_path / "quorum")
    for id in (1, 2, 3):
        made.replica(id, (1, 100), (2, 20))
    return made


def test_a_log_that_was_made_again_at_its_path_is_not_converted_to_the_folder_of_the_first(
    quorum: Quorum, target: Path
) -> None:
    convert(quorum.path, target)
    shutil.rmtree(quorum.path)
    anew = Quorum(quorum.path)
    for id in (1, 2, 3):
        anew.replica(id, (1, 100), (2, 20))
    with pytest.raises(errors.InconsistentClusterId, match="convert to another folder"):
        convert(quorum.path, target)


def test_a_replica_that_was_rebuilt_is_not_converted_to_the_folder_of_the_one_before(
    quorum: Quorum, target: Path
) -> None:
    """Its segments begin elsewhere: its records would stand in the folder twice."""
    convert(quorum.path, target)
    (kept,) = json.loads((target / conversion.MARK).read_text())["replicas"]
    for id in {"1", "2", "3"} - {Path(kept).name}:
        shutil.rmtree(quorum.path / id)
        quorum.replica(int(id), (1, 100), (2, 20))
    convert(quorum.path, target)
    shutil.rmtree(kept)
    quorum.replica(int(Path(kept).name), (1, 60), (1, 40), (2, 20))
    with pytest.raises(errors.ForeignDirectory, match="convert to another folder"):
        convert(quorum.path, target)
    assert offsets(target) == list(range(120))


def test_another_copy_of_a_log_is_told_by_its_epochs(log: LogFiles, target: Path) -> None:
    convert(log.path, target)
    convert(log.path, target)
    for file in log.log_path.iterdir():
        file.unlink()
    log.end_offset = 0
    log.fill(segments=1, batches=40, records=4)
    with pytest.raises(errors.ForeignDirectory, match="this is another log"):
        convert(log.path, target)


@pytest.mark.processes
def test_the_servers_of_another_quorum_are_told(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"transport": "socket", "durability": "memory", **SMALL}
    held: Any = {}
    for name in ("old", "new"):
        with kraftfast.LocalQuorum(tmp_path / name, 1, **settings) as quorum:
            with quorum.producer() as producer:
                producer.append_wait(b"one")
            servers = ",".join(f"{host}:{port}" for host, port in quorum.addresses.values())
            read = LogSource({"bootstrap.servers": servers}).read_options
            if held:
                with pytest.raises(errors.InconsistentClusterId):
                    conversion.compared([], held, read)
            else:
                held = conversion.compared([], {}, read)
                assert conversion.compared([], held, read) == held
