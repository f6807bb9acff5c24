"""A leader with a full disk hands over, whenever it leads, until one leads that has room (L6)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kraftfast.core import events as ev
from kraftfast.errors import DiskFull
from kraftfast.node.damage import Damage
from kraftfast.node.disk_space import FULL_MS_MAX, DiskSpace
from kraftfast.node.failures import Unanswered
from kraftfast.node.giving_way import PAUSE_MS_MAX
from kraftfast.testing import simulated
from kraftfast.testing.simulation import SimulatedQuorum
from kraftfast.types import ZERO_UUID, ReplicaKey

FETCH_TIMEOUT_MS = 2000
RECORD = bytes(200_000)
BLOCKS = 4
"""Left on a full disk: a simulated one reserves none for votes; the log needs more."""


class FullNode:
    """What ``DiskSpace`` sees of a leader whose disk is full; ``led``: when it let whom lead."""

    def __init__(self, *others: int, id: int = 1) -> None:
        self.config = SimpleNamespace(node_id=id)
        self.quorum_config = SimpleNamespace(fetch_timeout_ms=FETCH_TIMEOUT_MS)
        self.log = SimpleNamespace(error=DiskFull("no space left"), end_offset=7)
        self.voters = {
            each: SimpleNamespace(
                key=ReplicaKey(each, ZERO_UUID), log_end_offset=7, last_fetch_ms=1 << 40
            )
            for each in (id, *others)
        }
        self.core = SimpleNamespace(role="leader", describe=self.describe)
        self.appends_held, self.control = True, None
        self.led: list[tuple[int, int]] = []
        self.now_ms = 0
        self.space = DiskSpace()
        self.space.look_ms = 1 << 60
        self.damage = Damage()

    def describe(self, _now_ms: int) -> Any:
        """The quorum as the core describes it."""
        return SimpleNamespace(voters=tuple(self.voters.values()))

    def tell(self, _event: str, **_fields: object) -> None:
        """Say nothing."""

    def step(self, event: ev.Event) -> None:
        assert isinstance(event, ev.TransferRequested)
        self.led.append((self.now_ms, event.target_id))

    def until(self, ms: int) -> list[tuple[int, int]]:
        """Look every 100 ms; return what it has done so far."""
        while self.now_ms < ms:
            self.now_ms += 100
            self.damage.tend(self, self.now_ms)
            self.space.tend(self, self.now_ms)
        return self.led


def test_it_hands_over_by_turns_and_less_and_less_often() -> None:
    node = FullNode(1, 3, id=2)
    led = node.until(400_000)
    assert [id for _, id in led[:4]] == [3, 1, 3, 1], "not always to the same one"
    times = [ms for ms, _ in led]
    pauses = [after - before for before, after in zip(times, times[1:])]
    assert times[0] == 100 + FULL_MS_MAX
    assert pauses[:5] == [2000, 4000, 8000, 16_000, 32_000]
    assert set(pauses[5:]) == {PAUSE_MS_MAX}


def test_it_begins_again_once_there_was_space() -> None:
    node = FullNode(2, 3)
    node.until(40_000)
    error, node.log.error = node.log.error, None
    node.until(40_100)
    node.log.error, node.led = error, []
    assert node.until(45_000) == [(42_200, 2), (44_200, 3)]


def test_only_who_follows_and_has_all_is_to_lead() -> None:
    node = FullNode(2, 3, 4)
    node.voters[2].last_fetch_ms = -1  # it is dead
    node.voters[3].log_end_offset = 6
    assert node.until(3000) == [(2100, 4)]
    node.voters[4].log_end_offset = 6
    assert len(node.until(10_000)) == 1
    node.voters[3].log_end_offset = 7
    assert node.until(10_100)[1:] == [(10_100, 3)], "as soon as there is one"
    assert FullNode().until(10_000) == [], "the only voter stays"


@pytest.mark.parametrize(("held", "control", "led"), [(False, None, 0), (False, "it", 1)])
def test_it_leads_on_while_it_refuses_nothing(held: bool, control: Any, led: int) -> None:
    node = FullNode(2, 3)
    node.appends_held, node.control = held, control
    assert len(node.until(3000)) == led


def test_a_follower_with_a_full_disk_hands_nothing_over() -> None:
    node = FullNode(2, 3)
    node.core.role = "follower"
    assert node.until(10_000) == []


# --- a quorum -------------------------------------------------------------------------------------


@pytest.fixture
def quorum() -> SimulatedQuorum[Any]:
    return simulated(seed=1)


def hand_over(quorum: SimulatedQuorum[Any], id: int) -> None:
    """Have the leader hand over to a replica, and look on for a second."""
    leader = quorum.wait_leader()
    if leader != id:
        quorum._process(leader).step(ev.TransferRequested(Unanswered(), id))
        quorum.advance(1000)


def test_a_full_disk_that_leads_again_gives_way_again(quorum: SimulatedQuorum[Any]) -> None:
    """Found by a review: it gave way once, and refused all appends when it led again."""
    hand_over(quorum, 1)
    for id in (1, 2):
        quorum.cut_link(id, 3)
    quorum._machine(1).disk.fill_up(BLOCKS)
    appends = [quorum.append(RECORD) for _ in range(8)]
    quorum.wait(lambda: quorum.leader() == 2)
    quorum.kill(2, restart=False)
    for id in (1, 2):
        quorum.heal_link(id, 3)
    quorum.wait(lambda: quorum.leader() == 1)  # nobody else that runs has its log
    assert not appends[-1].is_acknowledged
    quorum.start(2)
    quorum.wait(lambda: appends[-1].is_acknowledged)
    assert quorum.leader() != 1


def test_two_full_disks_of_five_keep_the_others_from_nothing() -> None:
    """The two must not hand over to each other for ever."""
    quorum: SimulatedQuorum[Any] = simulated(seed=1, voters=5)
    hand_over(quorum, 1)
    for id in (1, 2):
        quorum._machine(id).disk.fill_up(BLOCKS)
    for _ in range(8):
        quorum.append_wait(RECORD, timeout_ms=60_000)
    assert quorum.wait_leader() in (3, 4, 5)


def test_a_majority_of_full_disks_is_no_quorum(quorum: SimulatedQuorum[Any]) -> None:
    """Appends go on once there is space, and epochs do not race meanwhile."""
    for id in (1, 2):
        quorum._machine(id).disk.fill_up(BLOCKS)
    appends = [quorum.append(RECORD) for _ in range(8)]
    quorum.advance(6000)
    assert not appends[-1].is_acknowledged
    assert max(quorum._process(id).core.epoch for id in quorum.ids) <= 8
    for id in (1, 2):
        quorum._machine(id).disk.give_space()
    quorum.wait(lambda: appends[-1].is_acknowledged)
