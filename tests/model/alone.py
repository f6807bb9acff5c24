"""One replica by itself: its process, its disk, and a world that keeps what leaves it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from kraftfast.core import effects as fx
from kraftfast.core import events as ev
from kraftfast.core import messages as msg
from kraftfast.core.config import QuorumConfig
from kraftfast.core.elections.resigned import Resigned
from kraftfast.errors import ErrorCode, InvalidOption
from kraftfast.node.executor import Executor
from kraftfast.types import (
    Endpoint,
    KRaftVersion,
    KRaftVoters,
    LeaderChange,
    OffsetAndEpoch,
    ReplicaKey,
    Voter,
    VoterSet,
)
from tests.core.disk import Message, controls_of, voter_of
from tests.core.host import Host
from tests.core.world import World
from tests.model import displaced, promises, timeless
from tests.model.marks import of_effect
from tests.model.moving import keeps_the_target, stays_out
from tests.model.storing import CHANCE

CLUSTER = "kite"
OUTSIDE = -1
"""The peer id of operators and consumers."""
CHANGES = (
    msg.AddRaftVoterResponse,
    msg.RemoveRaftVoterResponse,
    msg.UpdateFeaturesResponse,
    msg.AlterPartitionReassignmentsResponse,
)


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
    upgrades: bool = False  # static voters that can be upgraded to kraft.version 1
    wipes: tuple[str, ...] = ()  # how a disk can be replaced: "empty", "alone"
    floors: tuple[int, ...] = ()  # whose committed floor is written at each step (D23)
    hurt_max: int = -1  # disks that may lose what was flushed; -1: a minority of the voters
    witnesses: tuple[int, ...] = ()  # voters that never campaign
    in_memory: tuple[int, ...] = ()  # voters that acknowledge from memory
    moved: tuple[int, ...] = ()  # voters whose entries say another place than theirs
    lies: bool = False  # an answer may name a diverging offset inside a batch
    upgraded: bool = False  # static voters; all replicas are voters in the log as it begins
    auto_join: bool = False  # observers make themselves voters
    strangers: bool = False  # one that no voter set names, and that has no log, asks for votes
    emptied: tuple[int, ...] = ()  # whose disks are replaced as it begins, after a power cut
    asks: bool = False  # a replica that knows no leader is configured to ask all others
    begin: str = ""  # the name of what else is done before it begins

    @property
    def config(self) -> QuorumConfig:
        """What is configured everywhere: no flush inside a step, and the first voters are known."""
        return QuorumConfig(
            inline_flush_bytes_max=0, follower_inline_flush_bytes_max=0,
            bootstrap_ids=self.ids if self.asks else self.voters if self.dynamic else (),
            auto_join=self.auto_join,
        )  # fmt: skip

    def entry_of(self, key: ReplicaKey) -> Voter:
        """Return a first voter's entry."""
        entry = voter_of(key)
        if key.id in self.moved:
            there = Endpoint("CONTROLLER", f"host{key.id}", 9000)
            entry = entry._replace(endpoints=(there,))
        return entry

    @property
    def volatile(self) -> bool:
        """Whether what is committed may be nowhere but in memory."""
        return set(self.in_memory) >= set(self.voters)

    @property
    def changes_voters(self) -> bool:
        """Whether the log has the voters, or may have them."""
        return self.dynamic or self.upgrades or self.upgraded

    @property
    def minority(self) -> int:
        """How many voters may fail."""
        return (len(self.ids if self.upgraded else self.voters) - 1) // 2

    @property
    def bears(self) -> int:
        """How many disks may lose what was flushed, and nothing that is committed is lost.

        A configuration names no directory, so a disk that is replaced votes in the old one's place.
        """
        named = self.dynamic or self.upgraded or not self.wipes
        return self.minority if named or self.hurt_max < 0 else 0

    @property
    def begins_anew(self) -> bool:
        """Whether a replaced disk may begin a log of its own, by the configuration."""
        return bool(self.wipes) and not self.dynamic

    def configs(self) -> dict[int, QuorumConfig]:
        """Return the configurations that differ from the common one."""
        return {
            id: replace(
                self.config, campaign=id not in self.witnesses,
                durability="memory" if id in self.in_memory else "majority",
            )
            for id in {*self.witnesses, *self.in_memory}
        }  # fmt: skip


class Alone(World):
    """The world of one turn: it keeps what leaves."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(random=CHANCE)
        self.now_ms = timeless.NOW_MS
        self.setting = setting
        self.config = setting.config
        self.configs = setting.configs()
        self.with_endpoints = setting.changes_voters
        self.voters = VoterSet() if setting.dynamic else VoterSet.of(*setting.voters)
        self.turn_records = setting.turn_records
        self.cluster_id = CLUSTER
        self.out: list[Message] = []
        self.facts: list[tuple[Any, ...]] = []
        self.dies = False
        self.asked: msg.Request | None = None  # what the step under way answers
        self.listening: displaced.Heard | None = None  # to what is said in it
        self.looked: Counter[str] = Counter()  # how often each rule had something to look at
        self.host: Host

    def send(self, message: Message) -> None:
        self.out.append(message)
        if isinstance(message.body, msg.TransferResponse) and not message.body.error:
            current = timeless.state_of(self.host.replica).current
            if isinstance(current, Resigned):
                end = len(self.host.disk.records)
                self.facts.append(("handed", current.successors[0].id, end))
        if message.target == OUTSIDE and isinstance(message.body, CHANGES):
            ended = message.body.error == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
            if ended or message.body.error == ErrorCode.NONE:
                assert self.host.replica is not None
                self.facts.append(("done", self.host.replica.history.last_offset))

    def new_value(self, id: int) -> str:
        return f"{id}.{self.host.lives}"

    def new_batch(self) -> int:
        return 1 + len(self.host.disk.records)

    def disk_held(self, id: int) -> bool:
        return True  # a flush ends by an action of its own

    def elected(self, epoch: int, leader_id: int) -> None:
        self.host.heard = {}
        displaced.begins_a_log(self.host)
        self.facts.append(("elected", epoch, self.host.lives, tuple(self.host.disk.records)))

    def committed(self, host: Host, start: int, end: int) -> None:
        assert host.replica is not None
        records, voters = tuple(host.disk.records[:end]), host.replica.voters
        replica = host.replica
        self.facts.append(("committed", end, records, voters, replica.epoch, str(replica.role)))

    def barrier_passed(self, barrier: tuple[int, int], offset: int) -> None:
        self.facts.append(("read", barrier[1], offset))

    def snapshot_made(
        self, snapshot_id: OffsetAndEpoch, content: tuple[KRaftVersion | KRaftVoters, ...]
    ) -> None:
        self.facts.append(("snapshot", snapshot_id, content))


class Lone(Host):
    """A replica, its disk, and what the search remembers of it."""

    world: Alone

    def __init__(self, world: Alone, id: int) -> None:
        super().__init__(world, id)
        self.directory_id = b""
        self.lives = 0  # starts, so that two leaderships of one replica write different records
        self.generations: dict[int, int] = {}  # of requests to a peer that were given up
        self.phantom: OffsetAndEpoch | None = None
        self.memory_lost = False  # with durability=memory, by a power cut: not noted as settled yet
        self.heard: dict[int, bytes] = {}  # by a leader: the directory of each id's last Fetch
        self.fetched = False  # the disk that is being added, since its id was probed
        self.replaced = False  # this is not the disk that its id had at first
        self.told_quorum = self.told_voters = False  # that its configuration counts no more
        self.refused = False  # a prospective replica without a log, by one that may have one
        self.listened = False  # for a quorum, as long as it must
        self.began = False  # the log that it has
        self.was_voter = False  # by a committed set, since the process started

    def _carry_out(self, effects: list[fx.Effect]) -> None:
        for effect in effects:
            mark = of_effect(self, effect)
            if mark is not None:
                self.world.marks.add(mark)
            stays_out(self, effect)
            Executor._carry_out(self, [effect])
        super()._carry_out([])  # all are carried out
        listening, self.world.listening = self.world.listening, None
        if listening is not None:
            listening.taken()

    def write_quorum_state(self, effect: fx.PersistQuorumState) -> None:
        if self.world.dies:
            raise Killed
        standing = self.disk.quorum_state
        if standing is not None:
            assert effect.epoch >= standing.epoch, "I9"
            if effect.epoch == standing.epoch and standing.voted is not None:
                self.world.looked["written again"] += 1
                assert effect.voted == standing.voted or effect.leader_id == self.id, "I9"
            if effect.epoch == standing.epoch and standing.leader_id == self.id:
                assert effect.leader_id == self.id, "I13, D4: it forgets that it led this epoch"
        super().write_quorum_state(effect)

    def _decide(self, event: ev.Event) -> list[fx.Effect]:
        self.world.asked = event.request if isinstance(event, ev.RequestReceived) else None
        promises.hears(self, self.world.asked)
        self.world.listening = displaced.Heard(self, event)
        return super()._decide(event)

    def _reply(self, effect: fx.Reply) -> None:
        asked = self.world.asked
        if isinstance(asked, msg.VoteRequest) and isinstance(effect.response, msg.VoteResponse):
            if effect.response.vote_granted:
                displaced.helps_nobody_of_old(self, asked)
                promises.grants(self, asked)
                promises.has_written(self, asked, effect)
            else:
                promises.refuses(self, asked, effect.response)
        elif isinstance(asked, msg.BeginQuorumEpochRequest):
            displaced.hears_its_leader(self, asked, effect.response)
        super()._reply(effect)

    def append_control(self, effect: fx.AppendControl) -> ev.Appended | None:
        history = self.disk.history()
        before, stands = history.latest, history.last_offset
        promises.changes_voters(self, effect)
        appended = super().append_control(effect)
        if self.replaced:  # else it could begin the very log that it had before
            name_leader(self, effect)
        for _, control in controls_of(self.disk.records[-1:], 0):
            if isinstance(control, KRaftVoters) and before is not None:
                keys = set(control.voters.keys) - set(before.voters.keys)
                self.world.facts.append(("added", tuple(sorted(keys))))
                if len(control.voters) < len(before.voters):
                    self.world.facts.append(("removed", stands, control.voters))
                promises.names_no_gone_disk(self, before.voters, control.voters)
                keeps_the_target(self, before, control)
        return appended

    def answer_fetch(self, effect: fx.AnswerFetch) -> None:
        super().answer_fetch(effect)
        displaced.says_what_is_committed(self, effect)
        answer = self.world.out[-1]
        if answer.target == OUTSIDE and answer.records:
            assert self.replica is not None
            end = answer.base_offset + len(answer.records)
            self.world.looked["consumed"] += 1
            assert end <= self.replica.high_watermark, "I20: a consumer reads ahead"

    def truncate_log(self, end_offset: int) -> int:
        self.world.looked["cut with a floor"] += self.disk.floor > 0
        assert end_offset >= self.disk.floor, "D23: what was committed is cut"
        return super().truncate_log(end_offset)

    def install_snapshot(self, effect: fx.InstallSnapshot) -> None:
        self.world.looked["installed with a floor"] += self.disk.floor > 0
        assert effect.snapshot_id.offset >= self.disk.floor, "D23: what was committed is cut"
        super().install_snapshot(effect)

    def make_snapshot(self, offset: int) -> None:
        try:
            super().make_snapshot(offset)
        except InvalidOption:
            pass  # refused: it would hold what is not committed, or not on disk


def name_leader(host: Lone, effect: fx.AppendControl) -> None:
    """Say in the record that an epoch begins with, too, which of the replica's lives led it."""
    at = len(host.disk.records) - len(effect.records)
    for place, control in enumerate(effect.records, at):
        if isinstance(control, LeaderChange):
            record = host.disk.records[place]
            host.disk.records[place] = record._replace(value=f"{record.value}.{host.lives}")
