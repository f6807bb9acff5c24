"""kill -9 of leaders and followers under load: what was acknowledged stays, in order, once.

``test_exactly_once`` kills leaders again and again, and all replicas at once.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processes.kit import (
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
TRANSPORTS = ("ring", "socket")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_followers_are_killed_in_turn(tmp_path: Path, transport: str) -> None:
    """The others are a majority, and nobody else is elected."""
    with a_quorum(tmp_path / "q", transport=transport, fetch_timeout_ms=30_000) as quorum:
        with loads(quorum) as running:
            leader = leader_of(quorum)
            epoch = quorum.status(leader)["epoch"]
            for follower in followers_of(quorum):
                pid = pid_of(quorum, follower)
                quorum.kill(follower)
                go_on(running)
                wait_back(quorum, follower, pid)
            assert (leader_of(quorum), quorum.status(leader)["epoch"]) == (leader, epoch)
        verify(quorum, settled(quorum), running)


def test_a_minority_of_five_is_killed(tmp_path: Path) -> None:
    """The leader and a follower in one blow; they stay away, and three of five go on."""
    with a_quorum(tmp_path / "q", voters=5, restart=False) as quorum:
        with loads(quorum) as running:
            dead = [leader_of(quorum), followers_of(quorum)[0]]
            for id in dead:
                quorum.kill(id)
            go_on(running)
            alive = [id for id in quorum.directories if id not in dead]
            assert leader_of(quorum) in alive
        verify(quorum, settled(quorum, alive), running, alive)
    with a_quorum(tmp_path / "q", voters=5) as quorum:
        verify(quorum, settled(quorum), running)


def test_a_sole_voter_is_killed(tmp_path: Path) -> None:
    with a_quorum(tmp_path / "q", voters=1) as quorum:
        with loads(quorum, "ring") as running:
            for _ in range(3):
                pid = pid_of(quorum, 1)
                quorum.kill(1)
                wait_until(lambda pid=pid: quorum.supervisor.pid(1) not in (None, pid))
                go_on(running)
        verify(quorum, settled(quorum), running)


@pytest.mark.parametrize(
    "durability, flush",
    [("majority", "adaptive"), ("majority", "deferred"), ("majority", "parallel"),
     ("all", "deferred"), ("memory", "parallel")],
)  # fmt: skip
def test_every_durability_and_policy(tmp_path: Path, durability: str, flush: str) -> None:
    """The seeds of ``tests/sim`` meet the other pairs, and kill leaders of them."""
    with a_quorum(tmp_path / "q", durability=durability, flush=flush) as quorum:
        with loads(quorum, "ring") as running:
            quorum.kill(leader_of(quorum))
            go_on(running)
        verify(quorum, settled(quorum), running)
