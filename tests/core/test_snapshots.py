"""Snapshots by single steps: what is refused, and what a start from one looks like."""

from __future__ import annotations

import pytest

from kraftfast.core import effects as fx
from kraftfast.core import events as ev
from kraftfast.core import messages as msg
from kraftfast.core.config import QuorumConfig
from kraftfast.core.membership.voter_history import VoterHistory
from kraftfast.core.trail import EpochTrail
from kraftfast.errors import InvalidOption
from kraftfast.limits import DOWNLOAD_PAUSE_MS_MAX, FETCH_MAX_WAIT_MS
from kraftfast.types import KRaftVersion, KRaftVoters, OffsetAndEpoch, VoterSet
from tests.core.disk import voter_of
from tests.core.replicas import correlation_of, key, replica, started


def from_snapshot(offset: int = 30, epoch: int = 4, **options: object):
    """A replica whose log begins, and ends, behind a snapshot."""
    it = replica(epoch=5, leader=2, snapshots=(OffsetAndEpoch(offset, epoch),), **options)
    log = it._state.log
    log.trail = EpochTrail()
    log.start_offset = log.end_offset = log.flushed_end_offset = offset
    return it


def test_a_start_from_a_snapshot() -> None:
    """What it holds was committed; the first Fetch goes on from its end, in its epoch (11)."""
    it = from_snapshot()
    effects = it.start(0)
    assert fx.AdvanceHighWatermark(30) in effects
    (sent,) = [each.request for each in effects if isinstance(each, fx.Send)]
    assert (sent.fetch_offset, sent.last_fetched_epoch) == (30, 4)
    it.check_invariants()


# covers: testStartupWithInvalidSnapshotState
def test_a_log_that_starts_nowhere_is_refused() -> None:
    """Where it starts above 0, a snapshot must end there."""
    with pytest.raises(InvalidOption, match="no snapshot ends"):
        replica(log=((2, 10),), log_start_offset=5)


def answered(it: object, now_ms: int = 10, **options: object) -> list:
    response = msg.FetchResponse(leader_id=2, leader_epoch=5, **options)
    return it.step(ev.ResponseReceived(2, correlation_of(it, 2), response), now_ms)


def asks_for_a_slice(effects: list) -> bool:
    requests = [each.request for each in effects if isinstance(each, fx.Send)]
    return any(isinstance(each, msg.FetchSnapshotRequest) for each in requests)


def test_a_snapshot_below_the_commit_is_refused() -> None:
    """I7: no leader has a snapshot in place of what is committed here."""
    it = started(epoch=5, leader=2, log=((2, 10),))
    answered(it, high_watermark=9)
    assert it.high_watermark == 9
    effects = answered(it, high_watermark=9, snapshot_id=OffsetAndEpoch(8, 3))
    assert not any(isinstance(each, fx.Send) for each in effects)
    it.step(ev.Tick(), 100)
    effects = answered(it, 110, high_watermark=12, snapshot_id=OffsetAndEpoch(12, 3))
    (sent,) = [each.request for each in effects if isinstance(each, fx.Send)]
    assert isinstance(sent, msg.FetchSnapshotRequest)


# covers: KRaftControlRecordStateMachineTest.testUpdateWithSnapshot, testFetchResponseWithSnapshotId
# covers: testTruncateFullyToLatestSnapshot
def test_an_installed_snapshot_brings_its_voters() -> None:
    """KIP-630 with KIP-853: log, voters and high watermark are those of the snapshot."""
    it = started(epoch=5, leader=2, log=((2, 10),))
    place = OffsetAndEpoch(30, 4)
    answered(it, high_watermark=40, snapshot_id=place)
    slice_ = msg.FetchSnapshotResponse(
        leader_id=2, leader_epoch=5, snapshot_id=place, size=10, position=0, records_bytes=10
    )
    effects = it.step(ev.ResponseReceived(2, correlation_of(it, 2), slice_, "slice"), 20)
    assert effects == [fx.WriteSlice("slice", place, 0, True)]
    effects = it.step(ev.SliceWritten(place, 10), 30)
    assert effects == [fx.InstallSnapshot(place, 1)]
    voters = VoterSet(voter_of(key(id)) for id in (1, 2))
    history = VoterHistory([(29, KRaftVersion(1)), (29, KRaftVoters(voters))])
    effects = it.step(ev.SnapshotInstalled(place, history), 40)
    assert effects[:2] == [fx.AdvanceHighWatermark(30), fx.VotersChanged(1, voters)]
    assert (it.log_start_offset, it.end_offset, it.high_watermark) == (30, 30, 30)
    it.check_invariants()


def test_an_installed_snapshot_may_come_late() -> None:
    """Another leader was learnt of while it was put in place: the log is what it is."""
    it = started(epoch=5, leader=2)
    place = OffsetAndEpoch(30, 4)
    answered(it, high_watermark=40, snapshot_id=place)
    slice_ = msg.FetchSnapshotResponse(
        leader_id=2, leader_epoch=5, snapshot_id=place, size=10, position=0, records_bytes=10
    )
    it.step(ev.ResponseReceived(2, correlation_of(it, 2), slice_), 20)
    it.step(ev.SliceWritten(place, 10), 30)
    it.step(ev.RequestReceived("b", msg.BeginQuorumEpochRequest(6, 3)), 30)
    effects = it.step(ev.SnapshotInstalled(place, VoterHistory()), 30)
    assert (it.role, it.epoch, it.end_offset) == ("follower", 6, 30)
    (sent,) = [each.request for each in effects if isinstance(each, fx.Send)]
    assert (sent.fetch_offset, sent.last_fetched_epoch) == (30, 4)
    it.check_invariants()


# covers: testLatestSnapshotIdMissing
def test_a_snapshot_that_fails_its_check_changes_nothing() -> None:
    """D20: its CRCs are checked before it takes the log's place."""
    it = started(epoch=5, leader=2, log=((2, 10),))
    place = OffsetAndEpoch(30, 4)
    answered(it, high_watermark=40, snapshot_id=place)
    slice_ = msg.FetchSnapshotResponse(
        leader_id=2, leader_epoch=5, snapshot_id=place, size=10, position=0, records_bytes=10
    )
    it.step(ev.ResponseReceived(2, correlation_of(it, 2), slice_), 20)
    it.step(ev.SliceWritten(place, 10), 30)
    effects = it.step(ev.SnapshotInstalled(place, VoterHistory(), rejected=True), 40)
    assert not effects and it.end_offset == 10 and it.snapshots == ()
    effects = it.step(ev.Tick(), 100)
    (sent,) = [each.request for each in effects if isinstance(each, fx.Send)]
    assert isinstance(sent, msg.FetchRequest) and sent.fetch_offset == 10
    it.check_invariants()


def test_a_snapshot_that_cannot_be_put_in_place_is_not_fetched_at_once_again() -> None:
    """L7: a full disk would be sent it without end. The pause grows; the leader is heard."""
    it = started(epoch=5, leader=2, log=((2, 10),))
    place, now_ms, pauses = OffsetAndEpoch(30, 4), 10, []
    slice_ = msg.FetchSnapshotResponse(
        leader_id=2, leader_epoch=5, snapshot_id=place, size=10, position=0, records_bytes=10
    )
    for _ in range(12):
        began_ms = now_ms
        while not asks_for_a_slice(answered(it, now_ms, high_watermark=40, snapshot_id=place)):
            now_ms = it.deadline_ms
            it.step(ev.Tick(), now_ms)
            assert it.role == "follower"
        pauses.append(now_ms - began_ms)
        it.step(ev.ResponseReceived(2, correlation_of(it, 2), slice_), now_ms)
        it.step(ev.SliceWritten(place, 10), now_ms)
        it.step(ev.SnapshotInstalled(place, VoterHistory(), rejected=True), now_ms)
        now_ms = it.deadline_ms
        it.step(ev.Tick(), now_ms)
    assert pauses[:2] == [0, 0] and pauses[-1] > DOWNLOAD_PAUSE_MS_MAX / 2, "20 ms at first"
    assert pauses == sorted(pauses) and max(pauses) <= DOWNLOAD_PAUSE_MS_MAX + FETCH_MAX_WAIT_MS


def sent_by(effects: list) -> list:
    """The requests among these effects."""
    return [each.request for each in effects if isinstance(each, fx.Send)]


def test_who_writes_a_snapshot_is_not_silent() -> None:
    """L5: a sync and a check of all of it take seconds, and a leader without its majority resigns.

    What is answered changes nothing.
    """
    it = started(epoch=5, leader=2, log=((2, 10),))
    place, now_ms = OffsetAndEpoch(30, 4), 20
    answered(it, high_watermark=40, snapshot_id=place)
    slice_ = msg.FetchSnapshotResponse(
        leader_id=2, leader_epoch=5, snapshot_id=place, size=10, position=0, records_bytes=10
    )
    it.step(ev.ResponseReceived(2, correlation_of(it, 2), slice_), now_ms)
    for _ in range(4):
        assert it.deadline_ms == now_ms + FETCH_MAX_WAIT_MS
        now_ms = it.deadline_ms
        (sent,) = sent_by(it.step(ev.Tick(), now_ms))
        assert isinstance(sent, msg.FetchRequest) and sent.fetch_offset == 10
        assert not answered(it, now_ms + 1, high_watermark=41, snapshot_id=place)
    it.step(ev.Tick(), it.deadline_ms)  # one is under way when it is done
    effects = it.step(ev.SliceWritten(place, 10), now_ms)
    assert effects == [fx.InstallSnapshot(place, 1)]
    (sent,) = sent_by(it.step(ev.SnapshotInstalled(place, VoterHistory()), now_ms))
    assert (sent.fetch_offset, sent.last_fetched_epoch) == (30, 4)
    it.check_invariants()


def test_who_writes_a_snapshot_hears_its_leader_fall_silent() -> None:
    """L1: a check of all of it takes long, and no other voter can be elected without this one.

    Nor is one elected while the leader answers the signs of life.
    """
    it = started(epoch=5, leader=2, log=((2, 10),))
    place, now_ms = OffsetAndEpoch(30, 4), 20
    answered(it, high_watermark=40, snapshot_id=place)
    slice_ = msg.FetchSnapshotResponse(
        leader_id=2, leader_epoch=5, snapshot_id=place, size=10, position=0, records_bytes=10
    )
    it.step(ev.ResponseReceived(2, correlation_of(it, 2), slice_), now_ms)
    asks = msg.VoteRequest(5, key(3), 4, 30, pre_vote=True, voter=key(1))
    timeout_ms = QuorumConfig().fetch_timeout_ms

    def is_granted() -> bool:
        (reply,) = it.step(ev.RequestReceived("asker", asks), now_ms)
        return reply.response.vote_granted

    for _ in range(2 * timeout_ms // FETCH_MAX_WAIT_MS):
        now_ms = it.deadline_ms
        assert sent_by(it.step(ev.Tick(), now_ms)) and not is_granted()
        answered(it, now_ms, high_watermark=41, snapshot_id=place)
    now_ms += timeout_ms - 1
    it.step(ev.Tick(), now_ms)
    assert not is_granted()
    now_ms += 1
    assert is_granted()
    it.check_invariants()


def test_a_slice_follows_the_answer_to_a_sign_of_life() -> None:
    """Only one Fetch is under way: what was written meanwhile goes on behind it."""
    it = started(epoch=5, leader=2, log=((2, 10),))
    place = OffsetAndEpoch(30, 4)
    answered(it, high_watermark=40, snapshot_id=place)
    slice_ = msg.FetchSnapshotResponse(
        leader_id=2, leader_epoch=5, snapshot_id=place, size=20, position=0, records_bytes=10
    )
    it.step(ev.ResponseReceived(2, correlation_of(it, 2), slice_), 20)
    assert sent_by(it.step(ev.Tick(), 20 + FETCH_MAX_WAIT_MS))
    assert not it.step(ev.SliceWritten(place, 10), 600)
    (sent,) = sent_by(answered(it, 610, high_watermark=41, snapshot_id=place))
    assert isinstance(sent, msg.FetchSnapshotRequest) and sent.position == 10
    it.check_invariants()


# covers: testVoterSetsWithStaticVoters, testStaticVotersIgnoredWithBootstrapSnapshot
# covers: KRaftControlRecordStateMachineTest.testEmptyPartition
# covers: KRaftControlRecordStateMachineTest.testUpdateWithEmptySnapshot
# covers: KRaftControlRecordStateMachineTest.testUpdateWithSnapshot
# covers: KRaftControlRecordStateMachineTest.testUpdateWithSnapshotAndLogOverride
def test_static_voters_count_where_no_record_says_otherwise() -> None:
    static = VoterSet.of(1, 2, 3)
    two = VoterSet(voter_of(key(id)) for id in (1, 2))
    one = VoterSet([voter_of(key(1))])
    assert started(voters=static).voters == static
    bootstrap = VoterHistory([(-1, KRaftVersion(1)), (-1, KRaftVoters(two))])
    it = started(voters=static, history=bootstrap)
    assert (it.voters, it.kraft_version) == (two, 1)
    it = from_snapshot(voters=static)
    assert (it.voters, it.kraft_version) == (static, 0), "of kraft.version 0: it names nobody"
    inside = VoterHistory([(29, KRaftVersion(1)), (29, KRaftVoters(two))])
    assert from_snapshot(voters=static, history=inside).voters == two
    inside.add(31, KRaftVoters(one))
    it = started(voters=static, log=((2, 40),), history=inside)
    assert it.voters == one, "the log's are later"


@pytest.mark.parametrize(("committed", "remembers"), [(9, True), (1, False)])
def test_who_was_a_voter_knows_it_behind_a_snapshot(committed: int, remembers: bool) -> None:
    """KAFKA-19850: whoever was removed does not join again; a set that was cut named nobody."""
    both, other = (VoterSet(voter_of(key(id)) for id in ids) for ids in ((1, 2), (2,)))
    history = VoterHistory([(0, KRaftVersion(1)), (1, KRaftVoters(both)), (5, KRaftVoters(other))])
    joins = QuorumConfig(auto_join=True)
    it = started(epoch=5, leader=2, log=((2, 10),), history=history, config=joins)
    answered(it, high_watermark=committed)
    place = OffsetAndEpoch(30, 4)
    answered(it, high_watermark=40, snapshot_id=place)
    slice_ = msg.FetchSnapshotResponse(
        leader_id=2, leader_epoch=5, snapshot_id=place, size=10, position=0, records_bytes=10
    )
    it.step(ev.ResponseReceived(2, correlation_of(it, 2), slice_), 20)
    effects = it.step(ev.SliceWritten(place, 10), 30)
    written = [each.was_voter for each in effects if isinstance(each, fx.PersistQuorumState)]
    assert written == [True] * remembers and isinstance(effects[-1], fx.InstallSnapshot)
    later = VoterHistory([(29, KRaftVersion(1)), (29, KRaftVoters(other))])
    it.step(ev.SnapshotInstalled(place, later), 40)
    assert it._state.was_voter is remembers
