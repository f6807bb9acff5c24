"""From which replica of this host a consumer reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftfast.client.admin.admin_ways import LocalWay
from kraftfast.client.client_host import ClientHost
from kraftfast.client.consumer import consumer as module
from kraftfast.client.consumer.consumer import Consumer
from kraftfast.client.local_connector import LocalConnector
from kraftfast.client.producer.outcomes import Outcomes
from kraftfast.errors import NoQuorum, OffsetOutOfRange, PeerGone, StorageError
from kraftfast.link import unix_socket
from kraftfast.link.ring_link import SOCKET_NAME
from kraftfast.log.snapshots.log_start import install_snapshot
from tests.log.kit import Home, content, fill, snapshot

END, LATER = 60, 40


class Shown:
    """What a replica shows of itself, without a process."""

    replicas: dict[str, Shown] = {}

    def __init__(self, home: Home, start: int, leads: bool) -> None:
        self.log_path, self.log_start_offset, self.directory_id = home.log_path, start, ""
        self.high_watermark = self.end_offset = END
        self.leads, self.runs = leads, True
        self.replicas[home.path] = self

    @classmethod
    def of(cls, directory: str, _cluster_id: str, _host: ClientHost, _timeout: float) -> Shown:
        if directory not in cls.replicas:
            raise PeerGone("it has ended")
        return cls.replicas[directory]

    def alive(self) -> bool:
        return self.runs

    def wait_beyond(self, offset: int, _timeout: float) -> bool:
        return self.high_watermark > offset

    def close(self) -> None:
        pass


@pytest.fixture
def replicas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Shown, Shown, Any]]:
    """A follower with all of the log, and a leader that came by a snapshot."""
    whole, later = Home(tmp_path / "1"), Home(tmp_path / "2")
    fill(whole.open(), LATER)
    snapshot_id = snapshot(later, LATER)
    install_snapshot(later.open(), snapshot_id)
    before = len(content(whole.log))
    fill(whole.log, END - LATER)
    tail = content(whole.log)[before:]
    assert later.log.copy(tail, 1) == len(tail)
    monkeypatch.setattr(module, "Watch", Shown.of)
    yield (
        Shown(whole, 0, False),
        Shown(later, LATER, True),
        {1: whole.path, 2: later.path},
    )
    whole.kill()
    later.kill()


def test_a_replica_that_holds_the_record_is_read(replicas: tuple[Shown, Shown, Any]) -> None:
    """Not the one that leads, if that begins later."""
    *_, directories = replicas
    with Consumer(directories, 20) as consumer:
        assert [record.offset for record in consumer] == list(range(20, END))


def test_a_source_that_begins_later_all_at_once(replicas: tuple[Shown, Shown, Any]) -> None:
    """Another one that still holds the record is read; where none does, it is said."""
    whole, later, directories = replicas
    whole.leads, later.leads = True, False
    with Consumer(directories, 50) as consumer:
        consumer.position = 45
        whole.log_start_offset = 55
        assert next(iter(consumer)).offset == 45
        later.log_start_offset = 58
        with pytest.raises(OffsetOutOfRange) as caught:
            next(iter(consumer))
        assert caught.value.log_start_offset in (55, 58)


@pytest.mark.parametrize("runs", [False, True])
def test_another_source_is_read_where_the_directory_of_one_is_gone(
    runs: bool, replicas: tuple[Shown, Shown, Any]
) -> None:
    """Its disk is being replaced, say."""
    whole, _, directories = replicas
    with Consumer(directories, LATER) as consumer:
        whole.leads, whole.runs = True, True
        consumer._choose_source(0.0)
        whole.runs = runs
        path = Path(whole.log_path)
        gone = path.rename(path.with_name("gone"))
        if not runs:
            whole.replicas.pop(str(path.parent))
        assert [record.offset for record in consumer] == list(range(LATER, END))
        gone.rename(path)


def test_one_that_alone_has_the_record_must_have_a_directory_that_can_be_read(
    replicas: tuple[Shown, Shown, Any],
) -> None:
    whole, _, directories = replicas
    with Consumer(directories, LATER - 1) as consumer:
        path = Path(whole.log_path)
        gone = path.rename(path.with_name("gone"))
        with pytest.raises(StorageError, match="cannot list"):
            list(consumer)
        gone.rename(path)


def test_why_no_replica_can_be_read_is_told(tmp_path: Path) -> None:
    """Not that none runs, where this process has no descriptor left to look, say."""
    place = str(tmp_path / "1")
    with pytest.raises(NoQuorum, match=f"^no replica runs: no replica answers on '{place}/") as it:
        Consumer({1: place}, timeout=0.01)
    assert str(it.value).endswith(": No such file or directory")
    with pytest.raises(NoQuorum, match="^no replica runs: there is none$"):
        Consumer({}, timeout=0.01)


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[dict[int, str]]:
    """Two directories: a replica that takes connections and does not answer, and none."""
    directories = {id: str(tmp_path / str(id)) for id in (1, 2)}
    (tmp_path / "1").mkdir()
    with unix_socket.listen(f"{directories[1]}/{SOCKET_NAME}"):
        yield directories


def produce(directories: dict[int, str]) -> None:
    LocalConnector(directories, 1024, 1).connect(Outcomes(), 0, time.monotonic() + 0.05)


def ask_for_leader(directories: dict[int, str]) -> None:
    LocalWay(directories).to_leader(time.monotonic() + 0.05)


def consume(directories: dict[int, str]) -> None:
    Consumer({1: directories[1]}, timeout=0.05)


@pytest.mark.parametrize("use", [produce, ask_for_leader, consume])
def test_a_replica_that_is_silent_is_not_told_to_be_gone(
    silent: dict[int, str], use: Callable[[dict[int, str]], None]
) -> None:
    with pytest.raises(NoQuorum, match="^cannot reach the quorum: .* answer.*") as it:
        use(silent)
    assert "runs" not in str(it.value)


@pytest.mark.parametrize("leads", [False, True])
def test_a_committed_offset_is_not_refused_while_nobody_knows_that_it_is(
    leads: bool, replicas: tuple[Shown, Shown, Any]
) -> None:
    """Restarted replicas know it late, and without a leader never: a program that is told that its
    offset is beyond the end would begin again (I20)."""
    whole, later, directories = replicas
    whole.high_watermark = later.high_watermark = END - 20
    later.leads = leads
    with Consumer(directories, END) as consumer:
        if leads:
            assert list(consumer) == []
        else:
            with pytest.raises(NoQuorum, match=f"no leader runs .* {END} is committed"):
                list(consumer)
        consumer.position = END + 1
        with pytest.raises(OffsetOutOfRange if leads else NoQuorum):
            list(consumer)
