"""One replica by itself: its process, its disk, and a world that keeps what leaves it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kraftfast.core import effects as fx
from kraftfast.core.config import QuorumConfig
from kraftfast.core.control import KRaftVersion, KRaftVoters
from kraftfast.core.voters import VoterSet
from kraftfast.types import OffsetAndEpoch
from tests.core.disk import Message
from tests.core.host import Host
from tests.core.world import World
from tests.model.storing import CHANCE


class Violation(Exception):
    """Something that must never be."""


class Killed(Exception):
    """The process dies before this turn's quorum-state is written."""


@dataclass(frozen=True)
class Setting:
    """What all replicas of a search have in common."""

    ids: tuple[int, ...]
    voters: tuple[int, ...]
    streaming: bool = True
    dynamic: bool = False  # kraft.version 1, the voters are in the bootstrap snapshot
    turn_records: int = 100
    config: QuorumConfig = QuorumConfig(
        inline_flush_bytes_max=0, follower_inline_flush_bytes_max=0
    )


class Alone(World):
    """The world of one turn: it keeps what leaves."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(random=CHANCE)
        self.setting = setting
        self.config = setting.config
        self.with_endpoints = setting.dynamic
        self.voters = VoterSet() if setting.dynamic else VoterSet.of(*setting.voters)
        self.turn_records = setting.turn_records
        self.out: list[Message] = []
        self.facts: list[tuple[Any, ...]] = []
        self.dies = False
        self.host: Host

    def send(self, message: Message) -> None:
        self.out.append(message)

    def new_value(self, id: int) -> str:
        return f"{id}.{self.host.lives}"

    def new_batch(self) -> int:
        return 1 + len(self.host.disk.records)

    def disk_held(self, id: int) -> bool:
        return True  # a flush ends by an action of its own

    def elected(self, epoch: int, leader_id: int) -> None:
        self.facts.append(("elected", epoch, self.host.lives, tuple(self.host.disk.records)))

    def committed(self, host: Host, start: int, end: int) -> None:
        assert host.replica is not None
        records, voters = tuple(host.disk.records[:end]), host.replica.voters
        self.facts.append(("committed", end, records, voters, host.replica.epoch))

    def barrier_passed(self, barrier: tuple[int, int], offset: int) -> None:
        self.facts.append(("read", barrier[1], offset))

    def snapshot_made(
        self, snapshot_id: OffsetAndEpoch, content: tuple[KRaftVersion | KRaftVoters, ...]
    ) -> None:
        self.facts.append(("snapshot", snapshot_id, content))


class Lone(Host):
    """A replica, its disk, and what the search remembers of it."""

    def __init__(self, world: Alone, id: int) -> None:
        super().__init__(world, id)
        self.directory_id = b""
        self.lives = 0  # starts, so that two leaderships of one replica write different records
        self.generations: dict[int, int] = {}  # of requests to a peer that were given up
        self.phantom: OffsetAndEpoch | None = None

    def do_PersistQuorumState(self, effect: fx.PersistQuorumState, follow_on: list) -> None:
        if self.world.dies:
            raise Killed
        standing = self.disk.quorum_state
        if standing is not None:
            assert effect.epoch >= standing.epoch, "I9"
            if effect.epoch == standing.epoch and standing.voted is not None:
                assert effect.voted == standing.voted or effect.leader_id == self.id, "I9"
        super().do_PersistQuorumState(effect, follow_on)
