"""Observers and idle connections beside a measurement: served all the time, or named."""

from __future__ import annotations

import resource
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kraftfast
from kraftfast.bench.loads import other_clients
from kraftfast.errors import HostUnsupported, KraftfastError, PeerGone
from kraftfast.record import pure
from tests.cli.kit import fails, run

ASKED = {"observers": 2, "connections": 3, "transport": "socket"}


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[kraftfast.LocalQuorum]:
    settings: dict[str, Any] = {"transport": "socket", "expose_without_authentication": True}
    with kraftfast.LocalQuorum(tmp_path / "quorum", voters=1, **settings) as made:
        yield made


@pytest.mark.processes
def test_they_are_served_meanwhile(quorum: kraftfast.LocalQuorum) -> None:
    with other_clients.connected(quorum, ASKED) as found, quorum.producer() as producer:
        end, until = producer.append_many([b"value"] * 50)[-1] + 1, time.monotonic() + 60
        while [each.log_end_offset for each in quorum.describe().observers] != [end] * 2:
            assert time.monotonic() < until
            time.sleep(0.01)
        assert found.costs()[0].name == "beside"
    assert 2 * 50 <= found.told["observed_records"] <= 2 * end
    with other_clients.connected(quorum, {}) as found:
        assert found.costs() == [] and found.told == {}


@pytest.mark.processes
def test_one_that_is_lost_is_an_error(quorum: kraftfast.LocalQuorum) -> None:
    why = "other_clients failed: .*closed 3 of 3 idle connections"
    with pytest.raises(KraftfastError, match=why):
        with other_clients.connected(quorum, ASKED | {"observers": 0}):
            quorum.kill(1)
            quorum.read_barrier(timeout=60)
    with pytest.raises(
        KraftfastError, match="other_clients failed: .*the connection of observer 100[01]$"
    ):
        with other_clients.connected(quorum, ASKED | {"connections": 0}):
            quorum.kill(1)
            quorum.read_barrier(timeout=60)


@pytest.mark.processes
def test_a_leader_that_takes_fewer_is_an_error(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"transport": "socket", "expose_without_authentication": True}
    with kraftfast.LocalQuorum(tmp_path / "q", voters=1, connections_max=2, **settings) as quorum:
        with pytest.raises(KraftfastError, match="it may have too many"):
            with other_clients.connected(quorum, ASKED | {"observers": 0}):
                pass


def test_a_host_that_allows_fewer_files_is_told_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for hard, count, refused in ((2000, 1300, False), (2000, 1400, True), (64, 1, True)):
        monkeypatch.setattr(resource, "getrlimit", lambda _which, hard=hard: (hard, hard))
        asked = {"connections": count - 1, "observers": 1}
        if refused:
            with pytest.raises(HostUnsupported, match=f"limit of {hard} open files"):
                other_clients.check_descriptors(asked)
        else:
            other_clients.check_descriptors(asked)
    other_clients.check_descriptors({})
    unlimited = resource.RLIM_INFINITY
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (unlimited, unlimited))
    other_clients.check_descriptors({"connections": 1 << 30})


@pytest.mark.processes
def test_the_refusal_is_one_line(tmp_path: Path) -> None:
    asked = ("bench", "idle", "--connections", 20_000, "--dir", tmp_path)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY or hard > 20_600:
        pytest.skip("this host allows as many")
    assert "open files leaves a leader" in fails(run(*asked), 6)


def test_a_connection_that_is_closed_is_seen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            server.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        with pytest.raises(PeerGone):
            other_clients.idle_connection(server.getsockname())
        thread.join()
        with socket.create_connection(server.getsockname()) as client:
            other = server.accept()[0]
            assert other_clients.is_open(client)
            other.close()
            client.settimeout(10)
            assert client.recv(1) == b"" and not other_clients.is_open(client)


def test_an_observer_goes_on_behind_the_last_whole_batch() -> None:
    records = pure.values_to_records([b"v"] * 12, 0)
    batches = [pure.encode_batch(records[7:10]), pure.encode_batch(records[10:])]
    data = b"".join(batches)
    assert other_clients.end_of_batches(data, 7) == 12
    for cut in range(len(batches[0]), len(data)):
        assert other_clients.end_of_batches(data[:cut], 7) == 10
    for cut in range(len(batches[0])):
        assert other_clients.end_of_batches(data[:cut], 7) == 7
    assert other_clients.end_of_batches(None, 5) == 5


def test_a_refused_observer_raises() -> None:
    class Answer:
        error_code, partition_error_code, leader_epoch = 0, 6, 1
        high_watermark, records = 1, b""

    class Fenced(Answer):
        partition_error_code = 74

    observer = other_clients.Observer(4, "cluster")
    with pytest.raises(KraftfastError, match="observer 1004 was refused: NOT_LEADER"):
        observer.took(Answer())
    observer.took(Fenced())
    assert (observer.epoch, observer.answers) == (1, 0), "it learns the epoch, once"
    with pytest.raises(KraftfastError, match="FENCED_LEADER_EPOCH"):
        observer.took(Fenced())
