"""Voters come and go while producers append: what was acknowledged stays, in order, once.

KIP-853 and KIP-642 with real processes, over rings and over sockets; read barriers meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from kraftfast.errors import (
    ErrorCode,
    InvalidOption,
    KraftfastError,
    RequestRefused,
    TimedOut,
    UnknownOutcome,
)
from kraftfast.node.storage.description import read_description
from kraftfast.node.storage.local_layout import format_replica
from kraftfast.quorum import LocalQuorum
from tests.processes.kit import (
    PATIENCE_S,
    a_quorum,
    followers_of,
    go_on,
    leader_of,
    loads,
    pid_of,
    settled,
    verify,
    wait_back,
    wait_until,
)

pytestmark = pytest.mark.processes
TRANSPORTS = pytest.mark.parametrize("transport", ["ring", "socket"])


def voters_of(quorum: LocalQuorum) -> tuple[int, ...]:
    return quorum.describe(timeout=PATIENCE_S).voter_ids


@TRANSPORTS
def test_voters_come_and_go(tmp_path: Path, transport: str) -> None:
    """One more, then the leader less; whoever was removed stays out, also when it starts again."""
    with a_quorum(tmp_path / "q", transport=transport, kraft_version=1) as quorum:
        with loads(quorum) as running:
            assert quorum.add_voter(timeout=PATIENCE_S) == 4
            assert voters_of(quorum) == (1, 2, 3, 4)
            go_on(running)
            removed = leader_of(quorum)
            quorum.remove_voter(removed, timeout=PATIENCE_S)
            go_on(running)
            left = tuple(id for id in (1, 2, 3, 4) if id != removed)
            assert leader_of(quorum) in left
            pid = pid_of(quorum, removed)
            quorum.kill(removed)
            wait_back(quorum, removed, pid)
            go_on(running)
            info = quorum.describe()
            assert info.voter_ids == left
            assert [each.id for each in info.observers] == [removed]
            assert quorum.status(removed)["role"] == "follower"
        verify(quorum, settled(quorum), running)


@TRANSPORTS
def test_an_upgrade_puts_the_voters_into_the_log(tmp_path: Path, transport: str) -> None:
    """Before it no voter can be added; after it the log alone says who votes, at a restart too."""
    path = tmp_path / "q"
    settings = {"transport": transport, "fetch_timeout_ms": 700, "kraft_version": 0}
    with a_quorum(path, **settings) as quorum:
        with loads(quorum) as running:
            with pytest.raises(RequestRefused) as refused:
                quorum.add_voter(timeout=PATIENCE_S)
            assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION
            quorum.upgrade(timeout=PATIENCE_S)
            with pytest.raises(RequestRefused) as refused:
                quorum.upgrade(0)
            assert refused.value.code == ErrorCode.INVALID_UPDATE_VERSION
            quorum.add_voter(4, timeout=PATIENCE_S)
            leader = leader_of(quorum)
            pid = pid_of(quorum, leader)
            quorum.kill(leader)
            go_on(running)
            wait_back(quorum, leader, pid)
        verify(quorum, settled(quorum), running)
    with a_quorum(path, transport=transport) as quorum:
        assert voters_of(quorum) == (1, 2, 3, 4)
        assert {status["kraft_version"] for status in quorum.statuses().values()} == {1}


@TRANSPORTS
def test_a_reassignment_survives_its_leader(tmp_path: Path, transport: str) -> None:
    """(1, 2, 3) to (4, 5, 6), and kill -9 of whoever leads in the middle of it."""
    with a_quorum(tmp_path / "q", transport=transport, kraft_version=1) as quorum:
        with loads(quorum) as running:
            killed = []

            def kill_in_the_middle() -> None:
                wait_until(lambda: set(status_voters(quorum)) & {4, 5, 6})
                killed.append(leader_of(quorum))
                quorum.kill(killed[0])

            killer = threading.Thread(target=kill_in_the_middle)
            killer.start()
            quorum.reassign((4, 5, 6), timeout=PATIENCE_S)
            killer.join()
            go_on(running)
            assert killed
            info = quorum.describe(timeout=PATIENCE_S)
            assert info.voter_ids == (4, 5, 6) and info.leader_id in info.voter_ids
            assert info.target is None and info.ended_target is None
        verify(quorum, settled(quorum), running)


def status_voters(quorum: LocalQuorum) -> list[int]:
    """Who votes, by the word of any replica that has it."""
    return max((each["voters"] for each in quorum.statuses().values()), default=[])


def has_caught_up(quorum: LocalQuorum, id: int) -> bool:
    """Return whether the leader knows that this replica has all that is committed."""
    info = quorum.describe()
    found = info.find(id)
    return found is not None and found.log_end_offset >= info.high_watermark


def asked_to_wait_for_a_silent_one(quorum: LocalQuorum) -> None:
    """Have 4 take the place of 3, and be silent; a leader elected meanwhile must hear it first."""
    for attempt in range(5):
        quorum.kill(4, signal.SIGSTOP)
        time.sleep(0.5)  # longer than a replica may be silent that is to be added
        try:
            quorum.admin().reassign((1, 2, 4), wait=False, timeout=PATIENCE_S)
            return
        except RequestRefused as error:
            if error.code != ErrorCode.INVALID_REPLICA_ASSIGNMENT or attempt == 4:
                raise
        quorum.kill(4, signal.SIGCONT)
        wait_until(lambda: has_caught_up(quorum, 4))


def test_a_reassignment_is_cancelled(tmp_path: Path) -> None:
    with a_quorum(tmp_path / "q", kraft_version=1, fetch_timeout_ms=400) as quorum:
        quorum.add_replica(4)
        admin = quorum.admin()
        wait_until(lambda: has_caught_up(quorum, 4))  # by then it has told its address
        asked_to_wait_for_a_silent_one(quorum)
        assert admin.reassignment() == (1, 2, 4)
        assert quorum.describe().target == (1, 2, 4)
        admin.reassign(None, timeout=PATIENCE_S)
        info = quorum.describe()
        assert (info.voter_ids, info.target, info.ended_target) == ((1, 2, 3), None, (1, 2, 4))
        assert admin.reassignment() is None
        with pytest.raises(RequestRefused) as refused:
            admin.reassign(None, timeout=PATIENCE_S)
        assert refused.value.code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        for target in ((1, 2, 9), (1, 1, 2), ()):
            with pytest.raises(RequestRefused) as refused:
                admin.reassign(target, timeout=PATIENCE_S)
            assert refused.value.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


@TRANSPORTS
def test_leadership_is_handed_over(tmp_path: Path, transport: str) -> None:
    """To whom it is wanted, under load; the quorum hardly stops."""
    with a_quorum(tmp_path / "q", transport=transport) as quorum:
        with loads(quorum) as running:
            for _ in range(3):
                target = followers_of(quorum)[-1]
                assert quorum.transfer(target, timeout=PATIENCE_S) == target
                assert quorum.transfer(target, timeout=PATIENCE_S) == target  # nothing to do
                go_on(running)
            with pytest.raises(RequestRefused) as refused:
                quorum.transfer(9)
            assert refused.value.code == ErrorCode.VOTER_NOT_FOUND
        verify(quorum, settled(quorum), running)


@TRANSPORTS
def test_a_read_barrier_knows_all_that_was_acknowledged(tmp_path: Path, transport: str) -> None:
    """By any replica's word; in a minority by nobody's, and never less than was acknowledged."""
    settings: dict[str, Any] = {"transport": transport, "fetch_timeout_ms": 700}
    with a_quorum(tmp_path / "q", **settings) as quorum, quorum.producer() as producer:
        for number in range(20):
            offset = producer.append_wait(b"%d" % number, timeout=PATIENCE_S)
            assert quorum.read_barrier(number % 3 + 1, timeout=PATIENCE_S) > offset
        assert asyncio.run(quorum.async_admin().read_barrier(timeout=PATIENCE_S)) > offset
        leader = leader_of(quorum)
        others = followers_of(quorum)
        for id in others:
            quorum.kill(id, signal.SIGSTOP)
        with pytest.raises(TimedOut):
            quorum.read_barrier(leader, timeout=0.3)
        for id in others:
            quorum.kill(id, signal.SIGCONT)
        quorum.read_barrier(leader, timeout=PATIENCE_S)


def test_a_leader_that_was_away_reads_nothing_old(tmp_path: Path) -> None:
    """It slept through an election: its barrier is the new leader's, or none."""
    with a_quorum(tmp_path / "q", fetch_timeout_ms=500) as quorum, quorum.producer() as producer:
        producer.append_wait(b"before", timeout=PATIENCE_S)
        for _ in range(3):
            old = leader_of(quorum)
            quorum.kill(old, signal.SIGSTOP)
            offset = append(producer, b"by another leader")
            reader = Reader(quorum, old)
            reader.start()
            quorum.kill(old, signal.SIGCONT)
            reader.join(PATIENCE_S)
            assert reader.offsets, "the sleeper was never asked"
            assert all(each > offset for each in reader.offsets), (reader.offsets, offset)


def append(producer: Any, value: bytes) -> int:
    """Append, however often it takes; the offset of the one that was acknowledged."""
    while True:
        try:
            return int(producer.append_wait(value, timeout=PATIENCE_S))
        except UnknownOutcome:
            pass


class Reader(threading.Thread):
    """Asks one replica for barriers, from before it wakes up until it has answered some."""

    def __init__(self, quorum: LocalQuorum, id: int) -> None:
        super().__init__(daemon=True)
        self.quorum, self.id = quorum, id
        self.offsets: list[int] = []

    def run(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while len(self.offsets) < 3 and time.monotonic() < deadline:
            try:
                self.offsets.append(self.quorum.read_barrier(self.id, timeout=2.0))
            except KraftfastError:
                pass


@TRANSPORTS
def test_an_observer_follows_and_serves_reads(tmp_path: Path, transport: str) -> None:
    with a_quorum(tmp_path / "q", transport=transport) as quorum:
        with loads(quorum) as running:
            observer = quorum.add_replica(timeout=PATIENCE_S)
            go_on(running)
            end_offset = quorum.read_barrier(observer, timeout=PATIENCE_S)
            with quorum.consumer(0, replica=observer) as consumer:
                read = 0
                while consumer.position < end_offset:
                    assert consumer.wait(PATIENCE_S)
                    read += sum(1 for _ in consumer)
            assert read > 20
            info = quorum.describe()
            assert [each.id for each in info.observers] == [observer]
        verify(quorum, settled(quorum), running)
        quorum.stop_replica(observer)
        assert observer not in quorum.directories


def test_a_wiped_disk_is_another_voter(tmp_path: Path) -> None:
    """Its id votes with the disk that it had: what the new one says counts for nothing (D19)."""
    path = tmp_path / "q"
    with a_quorum(path, kraft_version=1) as quorum:
        with loads(quorum) as running:
            quorum.add_voter(4, timeout=PATIENCE_S)
            directory_id, _ = quorum.identity(4)
            quorum.supervisor.remove(4)
            shutil.rmtree(quorum.directories[4])
            format_replica(str(path), quorum.description, 4)
            assert quorum.identity(4)[0] != directory_id
            quorum.supervisor.add(quorum._config(4), PATIENCE_S)
            wait_until(lambda: [each.id for each in quorum.describe().observers] == [4])
            with pytest.raises(RequestRefused) as refused:
                quorum.add_voter(4, timeout=PATIENCE_S)
            assert refused.value.code == ErrorCode.DUPLICATE_VOTER
            with pytest.raises(RequestRefused) as refused:
                quorum.admin().remove_voter(4, quorum.identity(4)[0], timeout=PATIENCE_S)
            assert refused.value.code == ErrorCode.VOTER_NOT_FOUND
            quorum.remove_voter(4, timeout=PATIENCE_S)
            quorum.add_voter(4, timeout=PATIENCE_S)
            go_on(running)
            found = quorum.describe().find(4)
            assert found is not None and found.directory_id == quorum.identity(4)[0]
        verify(quorum, settled(quorum), running)


def test_who_answers_at_its_endpoint_is_somebody_else(tmp_path: Path) -> None:
    """A new voter that gives the address of another is not let in (KIP-853's probe)."""
    with a_quorum(tmp_path / "q", kraft_version=1, transport="socket") as quorum:
        quorum.add_replica(4)
        wait_until(lambda: quorum.describe().find(4))
        directory_id, (endpoint,) = quorum.identity(4)
        follower = followers_of(quorum)[0]
        (its,) = quorum.identity(follower)[1]
        wrong = endpoint._replace(port=its.port)
        with pytest.raises(TimedOut, match="4 did not answer at its endpoints"):
            quorum.admin().add_voter(4, directory_id, [wrong], timeout=5.0)
        with pytest.raises(RequestRefused, match="no endpoint for listener CONTROLLER"):
            nameless = [wrong._replace(name="X")]
            quorum.admin().add_voter(4, directory_id, nameless, timeout=PATIENCE_S)
        assert voters_of(quorum) == (1, 2, 3)
        quorum.add_voter(4, timeout=PATIENCE_S)


def test_the_directories_remember_who_was_added(tmp_path: Path) -> None:
    path = tmp_path / "q"
    with a_quorum(path, kraft_version=1, voters=1) as quorum:
        assert quorum.add_voter(timeout=PATIENCE_S) == 2
        assert quorum.add_replica(timeout=PATIENCE_S) == 3
        quorum.remove_voter(1, timeout=PATIENCE_S)
        assert voters_of(quorum) == (2,)
    with a_quorum(path, voters=1) as quorum:
        assert sorted(quorum.directories) == [1, 2, 3]
        assert voters_of(quorum) == (2,)
        with pytest.raises(RequestRefused) as refused:
            quorum.remove_voter(2)  # the last one
        assert refused.value.code == ErrorCode.VOTER_NOT_FOUND
        assert os.path.exists(os.path.join(path, "3", "meta.properties"))
        before = read_description(str(path)), sorted(os.listdir(path))
        for call, *wrong in (
            (quorum.add_replica, -1, 2**31, "2"),
            (quorum.add_voter, -1),
            (quorum.reassign, [1, 7, -3], range(65)),
            (quorum.status, 9),
            (quorum.watch, 9),
            (quorum.kill, 9),
            (quorum.read_barrier, 9),
            (lambda id: quorum.consumer(replica=id), 9),
        ):
            for argument in wrong:
                with pytest.raises(InvalidOption):
                    call(argument)
        assert before == (read_description(str(path)), sorted(os.listdir(path)))


@TRANSPORTS
def test_everything_at_once(tmp_path: Path, transport: str) -> None:
    """Six replicas are killed at random while voters change and producers append."""
    chance = random.Random(853)
    settings: dict[str, Any] = {"transport": transport, "fetch_timeout_ms": 800}
    with a_quorum(tmp_path / "q", kraft_version=1, **settings) as quorum:
        for _ in range(3):
            quorum.add_replica(timeout=PATIENCE_S)
        ids = sorted(quorum.directories)
        with loads(quorum, pause=0.002) as running:
            over = threading.Event()

            def kill_now_and_then() -> None:
                while not over.wait(chance.uniform(0.3, 2.0)):
                    quorum.kill(chance.choice(ids))

            killer = threading.Thread(target=kill_now_and_then)
            killer.start()
            try:
                for _ in range(8):
                    change_something(quorum, random.Random(chance.random()))
            finally:
                over.set()
                killer.join()
            go_on(running)
            target = ids[-3:]
            quorum.reassign(target, timeout=PATIENCE_S)
            assert voters_of(quorum) == tuple(target)
        verify(quorum, settled(quorum), running)


def change_something(quorum: LocalQuorum, chance: random.Random) -> None:
    """One change of the voters or of the leader; it may be refused, or not done in time."""
    ids = sorted(quorum.directories)
    try:
        match chance.choice(("add", "remove", "transfer", "reassign")):
            case "add":
                quorum.add_voter(chance.choice(ids), timeout=10.0)
            case "remove" if len(voters_of(quorum)) > 3:
                quorum.remove_voter(chance.choice(voters_of(quorum)), timeout=10.0)
            case "transfer":
                quorum.transfer(timeout=10.0)
            case _:
                quorum.reassign(chance.sample(ids, 3), timeout=15.0)
    except KraftfastError:
        pass  # whatever it was, what was acknowledged must be there
