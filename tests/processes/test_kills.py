"""kill -9 of leaders and followers under load: what was acknowledged stays, in order, once."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.processes.kit import (
    a_quorum,
    followers_of,
    leader_of,
    loads,
    pid_of,
    settled,
    verify,
    wait_back,
    wait_until,
)

pytestmark = pytest.mark.processes
TRANSPORTS = ("ring", "socket")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_leader_is_killed_again_and_again(tmp_path: Path, transport: str) -> None:
    with a_quorum(tmp_path / "q", transport=transport) as quorum:
        with loads(quorum) as running:
            for _ in range(5):
                time.sleep(0.3)
                leader = leader_of(quorum)
                pid = pid_of(quorum, leader)
                moment = time.monotonic()
                quorum.kill(leader)
                assert running[0].next_commit_after(moment) < 10.0
                wait_back(quorum, leader, pid)
        log = verify(quorum, settled(quorum), running)
    assert len(log) > 500


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_followers_are_killed_in_turn(tmp_path: Path, transport: str) -> None:
    with a_quorum(tmp_path / "q", transport=transport) as quorum:
        with loads(quorum) as running:
            epoch = quorum.status(leader_of(quorum))["epoch"]
            for _ in range(2):
                for follower in followers_of(quorum):
                    pid = pid_of(quorum, follower)
                    moment = time.monotonic()
                    quorum.kill(follower)
                    assert running[0].next_commit_after(moment) < 2.0, "the others are a majority"
                    wait_back(quorum, follower, pid)
            assert quorum.status(leader_of(quorum))["epoch"] == epoch, "nobody else was elected"
        verify(quorum, settled(quorum), running)


def test_all_are_killed_at_once_and_start_again(tmp_path: Path) -> None:
    with a_quorum(tmp_path / "q") as quorum:
        with loads(quorum) as running:
            for _ in range(3):
                time.sleep(0.4)
                pids = {id: pid_of(quorum, id) for id in quorum.directories}
                moment = time.monotonic()
                for id in quorum.directories:
                    quorum.kill(id)
                for id, pid in pids.items():
                    wait_until(lambda id=id, pid=pid: quorum.supervisor.pid(id) not in (None, pid))
                assert running[0].next_commit_after(moment + 0.05) < 20.0
        verify(quorum, settled(quorum), running)


def test_a_minority_of_five_is_killed(tmp_path: Path) -> None:
    with a_quorum(tmp_path / "q", voters=5) as quorum:
        with loads(quorum) as running:
            time.sleep(0.3)
            leader = leader_of(quorum)
            moment = time.monotonic()
            quorum.kill(leader)
            quorum.kill(followers_of(quorum)[0] if leader_of(quorum) != leader else 1 + leader % 5)
            assert running[0].next_commit_after(moment + 0.01) < 10.0
            time.sleep(0.3)
        verify(quorum, settled(quorum), running)


def test_a_sole_voter_is_killed(tmp_path: Path) -> None:
    with a_quorum(tmp_path / "q", voters=1) as quorum:
        with loads(quorum, 1) as running:
            for _ in range(3):
                time.sleep(0.3)
                moment = time.monotonic()
                quorum.kill(1)
                assert running[0].next_commit_after(moment + 0.02) < 10.0
        verify(quorum, settled(quorum), running)


@pytest.mark.parametrize("durability", ["majority", "all", "memory"])
@pytest.mark.parametrize("flush", ["adaptive", "deferred", "parallel"])
def test_every_durability_and_policy(tmp_path: Path, durability: str, flush: str) -> None:
    with a_quorum(tmp_path / "q", durability=durability, flush=flush) as quorum:
        with loads(quorum) as running:
            time.sleep(0.3)
            moment = time.monotonic()
            quorum.kill(leader_of(quorum))
            assert running[0].next_commit_after(moment) < 10.0
            time.sleep(0.2)
        verify(quorum, settled(quorum), running)


def test_what_was_committed_is_there_after_a_restart_of_everything(tmp_path: Path) -> None:
    with a_quorum(tmp_path / "q") as quorum:
        with loads(quorum) as running:
            time.sleep(0.5)
        end_offset = settled(quorum)
    with a_quorum(tmp_path / "q", voters=None) as quorum:
        verify(quorum, end_offset, running)
        assert settled(quorum) > end_offset, "a new epoch has a record of its own"
        for id in quorum.directories:
            quorum.kill(id, signal.SIGTERM)  # gracefully: the supervisor starts it again
        verify(quorum, settled(quorum), running)
