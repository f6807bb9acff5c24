"""What a leader knows of every other replica, and what waits for it; it decides nothing.

A replica becomes one in ``core/transitions.py`` (``transition_to_leader``), and acts in
``on_append``, ``on_fetch``, ``on_flushed`` and ``fetch_answers``.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from kraftfast import limits
from kraftfast.core.events import RequestReceived
from kraftfast.core.log_view import NEVER_MS
from kraftfast.core.membership.voter_change import VoterChange
from kraftfast.core.messages import Source
from kraftfast.core.replication.majority import Acknowledged
from kraftfast.core.roles import Role
from kraftfast.types import ZERO_UUID, Endpoint, ReplicaKey, Voter, VoterSet

NONE_ACKNOWLEDGED = Acknowledged(())


@dataclass(eq=False)
class Progress:
    """How far one other replica is, voter or observer.

    Invariants of an open stream: ``acknowledged_end_offset <= copied_end_offset <=
    sent_end_offset <= the log's end``; ``pushed`` ascends and lies above ``copied_end_offset``.
    """

    key: ReplicaKey
    slot: int  # its place among the acknowledgements, -1 for an observer
    acknowledged_end_offset: int = -1  # what it reported to have on disk (D3), -1: unknown
    last_fetch_ms: int = -1  # of a Fetch that fits this log, -1: never
    # of any Fetch, also one that needs a snapshot or a cut first, -1: never
    last_heard_ms: int = -1
    last_fetch_log_end_offset: int = -1  # the leader's end at that Fetch
    endpoints: tuple[Endpoint, ...] = ()  # an observer of ours sends them with its Fetch
    kraft_versions: tuple[int, ...] = ()  # and the range of kraft.version that it supports
    last_caught_up_ms: int = -1  # when it last had all the log, -1: never
    stream: int = 0  # number of the open stream, 0 for none
    source: Source = None  # where that stream's answers go
    max_bytes: int = 0  # what one answer may carry
    copied_end_offset: int = -1  # what it has copied
    sent_end_offset: int = -1  # what was pushed
    sent_high_watermark: int = -1  # the high watermark that was last pushed
    pushing: bool = False  # an answer with records goes to the ring, until StreamAnswered
    # the ends of pushed answers that it has not copied yet
    pushed: deque[int] = field(default_factory=deque)
    bare_unanswered: bool = False  # an answer without records was pushed, and no Fetch came since
    blocked: bool = False  # the ring had no room, and no Fetch came since
    last_push_ms: int = -1

    def fetched(self, fetch_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Record that a Fetch arrived; Kafka's rule for when the replica was last caught up."""
        if fetch_offset >= log_end_offset:
            self.last_caught_up_ms = now_ms
        elif fetch_offset >= self.last_fetch_log_end_offset and self.last_fetch_ms >= 0:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.last_fetch_ms = self.last_heard_ms = now_ms
        self.last_fetch_log_end_offset = log_end_offset

    def open_stream(
        self, stream: int, source: Source, fetch_offset: int, max_bytes: int, now_ms: int
    ) -> None:
        """Have answers pushed from ``fetch_offset`` on from now."""
        self.stream = stream
        self.source = source
        self.max_bytes = max_bytes
        self.copied_end_offset = fetch_offset
        self.sent_end_offset = fetch_offset
        self.sent_high_watermark = -1
        self.pushing = False
        self.pushed.clear()
        self.bare_unanswered = False
        self.blocked = False
        self.last_push_ms = now_ms

    def close_stream(self) -> None:
        """Stop pushing answers until a new stream is opened."""
        self.stream = 0
        self.source = None
        self.pushing = False
        self.pushed.clear()

    def read_to(self, copied_end_offset: int) -> None:
        """Record that the replica has copied what was pushed up to here."""
        self.copied_end_offset = copied_end_offset
        pushed = self.pushed
        while pushed and pushed[0] <= copied_end_offset:
            pushed.popleft()


class Transfer(Struct, eq=False):
    """A leader on its way to hand over: appends wait until ``target_id`` has everything."""

    target_id: int
    source: Source  # of the request
    answered: bool  # the request was answered, or there is none (a reassignment)
    deadline_ms: int  # the leader goes on then, or resigns if it must hand over
    in_any_case: bool = False  # it must


class Barrier(Struct, eq=False):
    """A reader that waits for the offset up to which it must read (ReadIndex)."""

    source: Source
    remote: bool  # asked by another replica for a reader of its own
    deadline_ms: int
    offset: int = -1  # the high watermark when it asked, -1 if that was not known
    round: int = 0  # of confirmations: those of this one and later ones came after it asked
    confirmed: bool = False  # that round is over; only the high watermark is missing
    correlation: int = 0  # of the request to the leader, 0 for none under way
    retry_at_ms: int = 0  # when the leader may be asked again


@dataclass(eq=False)
class Parked:
    """A Fetch that waits for records or a new high watermark (KIP-1166)."""

    source: Source
    replica_id: int  # below 0: it has no id, and gets only what is committed (I20)
    offset: int
    max_bytes: int
    deadline_ms: int  # answered then, even without records
    tells_place: bool  # the answer says where the leader is
    is_voter: bool  # commits wait for it


@dataclass(eq=False, repr=False)
class Leader:
    """The leader of an epoch (Kafka's ``LeaderState``).

    Invariants: the high watermark moves only past ``epoch_start_offset`` (D6); the own
    acknowledgement is the flushed end (D1, I12); ``streams`` are the progresses with one open.
    """

    role = Role.LEADER

    epoch_start_offset: int  # the end of the log when elected
    began_ms: int = 0  # when elected
    acknowledged: Acknowledged = NONE_ACKNOWLEDGED  # by voter (D16)
    slot: int = -1  # the own place in it, -1 if this replica is no voter of the set
    # majority less one: how many others commit together with the own disk
    needed_of_others: int = 0
    voters: dict[int, Progress] = field(default_factory=dict)  # the other voters by id
    observers: dict[ReplicaKey, Progress] = field(default_factory=dict)
    streams: list[Progress] = field(default_factory=list)
    parked: list[Parked] = field(default_factory=list)
    parked_deadline_ms: int = NEVER_MS  # the earliest of them
    all_acknowledged: int = -1  # durability=all: what AcknowledgedByAll last said
    # voters that fetched since the check-quorum timer was last reset (Kafka: fetchedVoters)
    fetched_since: set[int] = field(default_factory=set)
    check_quorum_deadline_ms: int = NEVER_MS
    begin_quorum_epoch_at_ms: int = 0  # when BeginQuorumEpoch goes out next
    appends_queued: bool = False  # producers have queued appends that were not asked for yet (D14)
    draining: bool = False  # DrainAppends went out, Appended has not come
    flush_began_ms: int = 0  # when it last began one
    change: VoterChange | None = None  # of the voter set, under way (D17)
    # kraft.version 0: voters as their UpdateRaftVoter described them
    reported: dict[int, Voter] = field(default_factory=dict)
    transfer: Transfer | None = None  # this leader hands over as soon as it can
    assigning: bool = True  # a reassignment may be under way
    move_at_ms: int = 0  # when a reassignment looks for its next move
    handed_over_ms: int = -NEVER_MS  # when a transfer of leadership last failed
    barriers: list[Barrier] = field(default_factory=list)  # readers that wait, by when they asked
    barrier_round: int = 0  # of confirmations, the latest begun
    # voters that confirmed in that round that they follow this leader
    confirmed: set[int] = field(default_factory=set)
    # correlation of the BeginQuorumEpoch that asked each voter
    round_asks: dict[int, int] = field(default_factory=dict)
    # FetchSnapshots in a queue, with deadlines
    waiting_slices: deque[tuple[RequestReceived, int]] = field(default_factory=deque)
    # snapshots that are being fetched, by whom: core/snapshots/leases.py
    leases: dict[ReplicaKey, Any] = field(default_factory=dict)
    watches_commit: bool = True  # something waits for a commit: look after each

    @classmethod
    def elected(
        cls,
        voters: VoterSet,
        local: ReplicaKey,
        epoch_start_offset: int,
        began_ms: int = 0,
    ) -> Leader:
        """Return a leader that counts by this voter set."""
        leader = cls(epoch_start_offset, began_ms)
        leader.flush_began_ms = began_ms
        leader.adopt(voters, local, -1)
        return leader

    def grants_pre_vote(self) -> bool:
        """Return False: a leader is there, this one."""
        return False

    def adopt(self, voters: VoterSet, local: ReplicaKey, own_end_offset: int) -> None:
        """Count by this voter set from now on, without the leader if it is not in it (D16).

        A voter that stays keeps what it acknowledged. A new voter counts from its next Fetch on: as
        an observer it may have reported what was not on its disk. A removed voter is an observer.
        """
        before, acknowledged = self.voters, self.acknowledged
        self.voters = {}
        self.acknowledged = Acknowledged(voters.ids)
        for voter_id in voters.others(local):
            key = voters.key(voter_id)
            slot = self.acknowledged.slot(voter_id)
            progress = before.get(voter_id)
            if progress is not None and key == progress.key:
                del before[voter_id]
                self.acknowledged.put(slot, acknowledged.get(progress.slot))
            elif progress is not None and progress.key.directory_id == ZERO_UUID:
                del before[voter_id]  # the same one, of which now the directory is known
            else:
                progress = self.observers.pop(key, None) or Progress(key, slot)
            progress.key = key
            progress.slot = slot
            entry = voters.get(voter_id)
            assert entry is not None
            if entry.endpoints:  # should it be an observer again
                progress.endpoints = entry.endpoints
                progress.kraft_versions = (entry.kraft_version_min, entry.kraft_version_max)
            self.voters[voter_id] = progress
        for progress in before.values():
            progress.slot = -1
            self.observers[progress.key] = progress
        self.slot = self.acknowledged.slot(local.id) if voters.is_voter(local) else -1
        if self.slot >= 0:
            self.acknowledged.put(self.slot, own_end_offset)
        self.needed_of_others = voters.majority - (1 if self.slot >= 0 else 0)
        self.fetched_since &= set(self.voters)
        self.confirmed &= set(self.voters)

    def progress(self, key: ReplicaKey, voters: VoterSet, now_ms: int) -> Progress:
        """Return what is known of this replica; one with a wrong directory id counts as an
        observer.
        """
        if voters.is_voter(key):
            return self.voters[key.id]
        progress = self.observers.get(key)
        if progress is None:
            if len(self.observers) >= limits.OBSERVERS_MAX:  # I25: strangers can invent ids
                stalest = min(self.observers.values(), key=lambda each: each.last_heard_ms)
                self.forget(stalest)
            progress = self.observers[key] = Progress(key, -1)
        return progress

    def find(self, key: ReplicaKey) -> Progress | None:
        """Return what is known of this replica, if anything."""
        progress = self.voters.get(key.id)
        if progress is not None and (progress.key.directory_id in (ZERO_UUID, key.directory_id)):
            return progress
        return self.observers.get(key)

    def successor_of(self, progress: Progress) -> Progress | None:
        """Return the observer with this id and another directory that made contact later, or None.

        Its disk was replaced (D19). The hello of a socket names no directory, a Fetch does.
        """
        for key, each in self.observers.items():
            if key.id == progress.key.id and each.last_heard_ms > progress.last_heard_ms:
                return each
        return None

    def forget(self, observer: Progress) -> None:
        """Drop an observer."""
        if observer.stream:
            self.close_stream(observer)
        del self.observers[observer.key]

    def close_stream(self, progress: Progress) -> None:
        """Push nothing to this replica until it opens a new stream."""
        if progress.stream:
            progress.close_stream()
            self.streams.remove(progress)

    def update_check_quorum(self, voter_id: int, now_ms: int, timeout_ms: int) -> None:
        """Count a Fetch of a voter for check-quorum; a majority resets its timer (KIP-595).

        Kafka's ``LeaderState.updateCheckQuorumForFollowingVoter``.
        """
        fetched = self.fetched_since
        fetched.add(voter_id)
        if len(fetched) >= self.needed_of_others:
            fetched.clear()
            self.check_quorum_deadline_ms = now_ms + timeout_ms

    def count_as_silent(self, voter_id: int, now_ms: int, fetch_timeout_ms: int) -> None:
        """Count a voter as silent: its process ended, or its id runs with another directory.

        Only its next Fetch makes it count as alive again.
        """
        progress = self.voters.get(voter_id)
        if progress is not None:
            progress.last_fetch_ms = min(progress.last_fetch_ms, now_ms - fetch_timeout_ms)

    def successors(self, preferred_id: int = -1) -> tuple[ReplicaKey, ...]:
        """Return the other voters: a preferred one, then the longest log first; equals by id."""
        order = sorted(
            self.voters.values(),
            key=lambda each: (
                each.key.id != preferred_id,
                -each.acknowledged_end_offset,
                each.key.id,
            ),
        )
        return tuple([each.key for each in order])

    def check_invariants(self, end_offset: int) -> None:
        """Assert what the class promises."""
        for progress in (*self.voters.values(), *self.observers.values()):
            assert (progress.stream != 0) == (progress in self.streams)
            assert progress.acknowledged_end_offset <= end_offset
            if progress.stream:
                assert progress.acknowledged_end_offset <= progress.copied_end_offset
                assert progress.copied_end_offset <= progress.sent_end_offset <= end_offset
                assert list(progress.pushed) == sorted(progress.pushed)
                assert not progress.pushed or progress.pushed[0] > progress.copied_end_offset
        assert all([each.stream for each in self.streams])
        for slot in range(len(self.acknowledged)):
            assert self.acknowledged.get(slot) <= end_offset
