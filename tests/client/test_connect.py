"""A second process reaches a quorum by its directory, as the one that runs it does."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kraftfast
from kraftfast.errors import (
    Closed,
    ForeignDirectory,
    InvalidOption,
    NoQuorum,
    NotFormatted,
    StorageError,
)
from kraftfast.quorum import LocalQuorum

SMALL = {"segment_bytes": 32 << 20, "stride_bytes": 8 << 20}

pytestmark = pytest.mark.processes

OTHER = """
import asyncio, sys
import kraftfast

async def later(quorum):
    async with quorum.async_producer() as producer:
        offset = await producer.append_wait(b"asyncio")
    assert await quorum.async_admin().read_barrier() > offset
    return offset

with kraftfast.connect(sys.argv[1]) as quorum:
    assert isinstance(quorum, kraftfast.Quorum)
    with quorum.producer() as producer:
        first = producer.append_wait(b"blocking", timeout=10)
    second = asyncio.run(later(quorum))
    assert quorum.read_barrier() > second > first
    assert sorted(quorum.admin().describe().voter_ids) == [1, 2, 3]
    with quorum.consumer(from_offset=first) as consumer:
        assert [each.value for each in consumer.read(2)] == [b"blocking", b"asyncio"]
print(first, second, quorum.topic)
"""


def where_of(quorum: LocalQuorum) -> str:
    addresses = [f"{host}:{port}" for host, port in quorum.addresses.values()]
    return ",".join(addresses) or quorum.path


def test_another_process_has_all_clients(quorum: LocalQuorum) -> None:
    command = [sys.executable, "-c", OTHER, where_of(quorum)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    first, second, topic = done.stdout.split()
    assert topic == quorum.topic
    with quorum.consumer(int(first)) as consumer:
        assert [each.offset for each in consumer.read(2)] == [int(first), int(second)]
    assert len(quorum.statuses()) == 3, "it stopped no worker"


def test_a_directory_and_servers_give_one_type(quorum: LocalQuorum) -> None:
    with kraftfast.connect(where_of(quorum)) as reached:
        assert isinstance(reached, kraftfast.Quorum) and isinstance(quorum, kraftfast.Quorum)
        producer, admin = reached.producer(), reached.admin()
    with producer:
        assert producer.append_wait(b"it has a connection of its own", timeout=10) > 0
    for call in (reached.producer, reached.consumer, reached.admin, reached.read_barrier):
        with pytest.raises(Closed, match="the quorum is closed"):
            call()
    with pytest.raises(Closed):
        admin.describe()
    reached.close()


def test_it_goes_on_when_the_leader_is_killed(mortal_quorum: LocalQuorum) -> None:
    with kraftfast.connect(where_of(mortal_quorum)) as reached, reached.producer() as producer:
        first = producer.append_wait(b"before", timeout=10)
        leader = mortal_quorum.leader()
        assert leader is not None
        mortal_quorum.kill(leader)
        second = producer.append_wait(b"after", timeout=30)
        assert reached.read_barrier(timeout=30) > second
        with reached.consumer(first) as consumer:
            assert [each.value for each in consumer.read(2)] == [b"before", b"after"]


def test_a_quorum_that_is_started_again(tmp_path: Path) -> None:
    path = tmp_path / "q"
    with LocalQuorum(path, voters=1, **SMALL):
        reached = kraftfast.connect(path)
        with reached.producer() as producer:
            first = producer.append_wait(b"before", timeout=10)
    with pytest.raises(NoQuorum, match="no process runs a replica of .*start and serve do"):
        kraftfast.connect(path, timeout=0.1)
    with pytest.raises(NoQuorum):
        reached.read_barrier(timeout=0.1)
    with LocalQuorum(path, **SMALL), reached:
        assert reached.read_barrier() > first
        with reached.producer() as producer, reached.consumer(first) as consumer:
            assert producer.append_wait(b"after", timeout=10) > first
            assert [each.value for each in consumer.read(2)] == [b"before", b"after"]
        with kraftfast.connect(path / "1") as one:  # a replica's own directory will do
            assert one.topic == reached.topic and one.read_barrier() > first


def test_asyncio_has_no_wait_of_its_own(ring_quorum: LocalQuorum) -> None:
    async def run() -> list[int]:
        with kraftfast.connect(ring_quorum.path) as reached:
            async with reached.async_producer() as producer:
                return list(await asyncio.gather(*(producer.append_wait(b"x") for _ in range(9))))

    assert len(set(asyncio.run(run()))) == 9


def test_what_is_no_quorum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "quorum.json").write_text("{")
    (tmp_path / "file").write_text("")
    wrong: list[tuple[object, type[Exception], str]] = [
        ("./missing", NotFormatted, "missing holds no quorum"),
        ("missing", InvalidOption, "'missing' is no directory, and no address"),
        ("empty", NotFormatted, "empty holds no quorum"),
        (tmp_path / "empty", NotFormatted, "empty holds no quorum"),
        ("./foreign", ForeignDirectory, "does not parse"),
        ("file", InvalidOption, "is no directory"),
        ("host:port", InvalidOption, "port"),
        ("host:1,", InvalidOption, "host"),
        ("./missing,host:1", InvalidOption, "a directory or addresses, not both"),
        (["./empty", "host:1"], InvalidOption, "empty"),
        (b"empty", InvalidOption, "a quorum's directory, or the host:port of servers"),
    ]
    for where, error, words in wrong:
        with pytest.raises(error, match=words):
            kraftfast.connect(where, timeout=0.1)  # type: ignore[arg-type]


def test_another_log_than_the_one_that_was_asked_for(ring_quorum: LocalQuorum) -> None:
    with pytest.raises(InvalidOption, match="is called .*, not 'another'"):
        kraftfast.connect(ring_quorum.path, topic="another")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_directory_of_another_user(ring_quorum: LocalQuorum) -> None:
    os.chmod(ring_quorum.path, 0o700)
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        try:
            kraftfast.connect(ring_quorum.path, timeout=0.1)
        except StorageError as error:
            os._exit(0 if "Permission denied" in str(error) else 2)
        except BaseException:
            os._exit(3)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_an_address_of_ipv6_is_told_as_it_is_typed() -> None:
    with pytest.raises(NoQuorum, match=r"\[::1\]:1\b"):
        kraftfast.connect([("::1", 1)], timeout=0.1)
