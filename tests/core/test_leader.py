"""What a leader commits and when (Kafka: LeaderStateTest)."""

from __future__ import annotations

import pytest

from kraftfast.core import effects as fx
from kraftfast.core import events as ev
from kraftfast.core import messages as msg
from kraftfast.core.config import QuorumConfig
from kraftfast.core.replica import Replica
from kraftfast.types import ReplicaKey, Voter, VoterSet
from tests.core.replicas import correlation_of, directory, fetch, key, leader, started, win


def commits(effects: list[fx.Effect]) -> list[int]:
    return [each.offset for each in effects if isinstance(each, fx.AdvanceHighWatermark)]


def settled(it: Replica, event: ev.Event, now_ms: int = 0) -> list[fx.Effect]:
    """A step, and the flushes that it asks for done at once."""
    effects = it.step(event, now_ms)
    for each in effects:
        if isinstance(each, fx.Flush):
            effects = effects + settled(it, ev.Flushed(each.end_offset, 0), now_ms)
    it.check_invariants()
    return effects


def append(it: Replica, count: int) -> list[fx.Effect]:
    return settled(it, ev.Appended(it.epoch, it.end_offset + count, count * 100))


def acknowledge(it: Replica, id: int, offset: int) -> list[int]:
    """Up to where is committed once a replica told that it has everything below ``offset``."""
    epoch = it._state.log.trail.epoch_at(offset - 1) if offset else 0
    return commits(settled(it, fetch(id, it.epoch, offset, epoch)))[-1:]


# covers: testUpdateHighWatermarkQuorumSizeOne
def test_one_voter_commits_with_its_own_disk() -> None:
    """D15."""
    it = leader(voters=VoterSet.of(1))
    assert it.high_watermark == 1
    assert commits(it.step(ev.Appended(4, 2, 100), 0)) == []
    assert commits(it.step(ev.Flushed(2, 0), 0)) == [2]
    assert commits(append(it, 4)) == [6]


# covers: testUpdateHighWatermarkQuorumSizeTwo
def test_two_voters_need_both() -> None:
    it = leader(voters=VoterSet.of(1, 2))
    assert it.high_watermark == -1
    assert acknowledge(it, 2, 0) == []
    assert acknowledge(it, 2, 1) == [1]
    append(it, 4)
    assert acknowledge(it, 2, 3) == [3]
    assert acknowledge(it, 2, 5) == [5]


# covers: testUpdateHighWatermarkQuorumSizeThree
def test_three_voters_need_two() -> None:
    it = leader(log=((3, 10),))
    append(it, 4)
    assert it.epoch_start_offset == 10
    assert acknowledge(it, 2, 10) == [], "only old records"
    assert acknowledge(it, 2, 11) == [11]
    assert acknowledge(it, 3, 9) == []
    assert acknowledge(it, 3, 15) == [15]
    assert acknowledge(it, 2, 15) == []


def test_five_voters_take_the_middle_one() -> None:
    it = leader(voters=VoterSet.of(1, 2, 3, 4, 5))
    append(it, 20)
    assert acknowledge(it, 2, 3) == []
    assert acknowledge(it, 3, 9) == [3]
    assert acknowledge(it, 4, 9) == [9]
    assert acknowledge(it, 5, 21) == []
    assert acknowledge(it, 2, 21) == [21]


def test_observers_commit_nothing() -> None:
    it = leader()
    assert acknowledge(it, 9, 1) == []
    assert acknowledge(it, 8, 1) == []
    assert it.high_watermark == -1


def test_a_voters_id_in_another_directory_is_an_observer() -> None:
    voters = VoterSet([Voter(id, directory(id)) for id in (1, 2, 3)])
    it = leader(voters=voters)
    for stranger in (ReplicaKey(2, b"z" * 16), ReplicaKey(2)):
        request = fetch(2, 4, 1, 4)
        request.request.replica = stranger
        assert commits(it.step(request, 0)) == []
    assert [each.key.id for each in it.describe(0).observers] == [2, 2]
    assert acknowledge(it, 2, 1) == [1]


# covers: testNonMonotonicHighWatermarkUpdate
def test_a_follower_that_lost_its_log_takes_nothing_back() -> None:
    it = leader()
    append(it, 9)
    assert acknowledge(it, 2, 10) == [10]
    assert acknowledge(it, 2, 4) == []
    assert it.high_watermark == 10
    append(it, 2)
    assert acknowledge(it, 2, 9) == []
    assert acknowledge(it, 2, 12) == [12]


# covers: testNonMonotonicLocalEndOffsetUpdate
def test_the_log_never_shrinks_under_a_leader() -> None:
    it = leader()
    append(it, 4)
    with pytest.raises(AssertionError):
        it.step(ev.Appended(4, 3, 100), 0)


def test_a_flush_beyond_the_end_is_a_broken_invariant() -> None:
    it = leader()
    with pytest.raises(AssertionError, match="I11"):
        it.step(ev.Flushed(99, 0), 0)


# covers: testUpdateHighWatermarkQuorumRemovingLeaderFromVoterStates
def test_a_leader_outside_the_set_commits_by_the_others() -> None:
    """D16, I17."""
    from kraftfast.core.replication.high_watermark import acknowledge_self
    from kraftfast.core.replication.leader import Leader

    it = leader()
    outside = Leader.elected(VoterSet.of(2, 3, 4), key(1), 0)
    assert (outside.slot, outside.needed_of_others) == (-1, 2)
    assert set(outside.voters) == {2, 3, 4}
    assert not acknowledge_self(it._state, outside)


# covers: testGetNonLeaderFollowersByFetchOffsetDescending
def test_successors_are_the_longest_logs() -> None:
    it = leader(voters=VoterSet.of(1, 2, 3, 4))
    append(it, 9)
    acknowledge(it, 3, 10)
    acknowledge(it, 4, 2)
    assert [each.id for each in it._state.leader.successors()] == [3, 4, 2]


# covers: testCheckQuorum, testCheckQuorumWithOneVoter
# covers: testLeaderShouldNotResignLeadershipIfOnlyOneVoters
def test_check_quorum_counts_voters_once() -> None:
    it = leader(voters=VoterSet.of(1, 2, 3, 4, 5))
    state = it._state.leader
    assert state.check_quorum_deadline_ms == 3000
    for id, renewed in ((2, 3000), (2, 3000), (9, 3000), (3, 4000), (4, 4000)):
        it.step(fetch(id, 4, 1, 4), 1000)
        assert state.check_quorum_deadline_ms == renewed
    it.step(fetch(2, 4, 1, 4), 2000)
    assert state.check_quorum_deadline_ms == 5000
    sole = leader(voters=VoterSet.of(1))
    assert sole._state.leader.check_quorum_deadline_ms > 2**60


def test_a_stuck_disk_does_not_unseat_a_sole_voter() -> None:
    it = leader(voters=VoterSet.of(1))
    it.step(ev.Appended(4, 2, 10**6), 0)
    it.step(ev.Tick(), 60_000)
    assert it.role == "leader"


@pytest.mark.parametrize("policy", ["deferred", "parallel", "adaptive"])
def test_every_policy_commits_everything_with_one_flush_at_a_time(policy: str) -> None:
    it = leader(config=QuorumConfig(flush=policy))
    flushing: list[int] = []  # the end of the flush under way

    def step(event: ev.Event, now_ms: int) -> None:
        started = [each.end_offset for each in it.step(event, now_ms) if isinstance(each, fx.Flush)]
        assert len(started) + len(flushing) <= 1
        flushing.extend(started)
        it.check_invariants()

    for end_offset in range(2, 60):
        now_ms = end_offset * 7
        step(ev.Appended(4, end_offset, 40_000), now_ms)
        step(fetch(2, 4, end_offset - 1, 4), now_ms)
        step(ev.Tick(), now_ms)
        if flushing and end_offset % 3 == 0:
            step(ev.Flushed(flushing.pop(), 0), now_ms)
    step(fetch(2, 4, 59, 4), 420)
    while flushing:
        step(ev.Flushed(flushing.pop(), 0), 420)
    assert it.high_watermark == it.flushed_end_offset == 59


def confirm(it: Replica, id: int, now_ms: int) -> list[fx.Effect]:
    """A voter answers BeginQuorumEpoch: it follows this leader."""
    follows = msg.QuorumEpochResponse(leader_id=1, leader_epoch=it.epoch)
    return it.step(ev.ResponseReceived(id, correlation_of(it, id), follows), now_ms)


def asks_for_confirmation(effects: list[fx.Effect]) -> bool:
    return any(
        isinstance(getattr(each, "request", None), msg.BeginQuorumEpochRequest) for each in effects
    )


def test_a_barrier_that_an_earlier_leadership_confirmed_is_confirmed_again() -> None:
    """D21: asked for, again where no answer comes, and awaited beside the commit."""
    it = leader(config=QuorumConfig(fetch_timeout_ms=60_000))
    it.step(ev.ReadBarrierRequested("reader", 30_000), 0)
    for _ in range(2):  # the first answers what was sent before the question
        confirm(it, 2, 0)
    it.step(ev.ResignRequested(4), 0)
    it.step(ev.Tick(), 4_000)
    win(it, 1, None, "leader", 4_000)
    end_offset = it.end_offset + 1
    it.step(ev.Appended(it.epoch, end_offset, 100), 4_000)
    it.step(ev.Flushed(end_offset, 0), 4_000)
    effects = it.step(fetch(2, it.epoch, end_offset, it.epoch), 4_000)
    assert it.high_watermark == end_offset
    assert not any(isinstance(each, fx.AnswerReadBarrier) for each in effects)
    it.step(ev.Tick(), 6_100)  # no answer came
    assert asks_for_confirmation(it.step(ev.Tick(), 6_200))
    assert fx.AnswerReadBarrier("reader", end_offset) in confirm(it, 2, 6_200)


@pytest.mark.parametrize("epoch", [7, 5_000])
def test_an_only_voter_whose_first_record_waits_for_room_still_hears_of_its_cluster(
    epoch: int,
) -> None:
    """D23: it has been elected, and has no log yet; a replica shows that its disk was replaced."""
    it = started(1, VoterSet.of(1), cluster_id="kite")
    it.step(ev.Tick(), 4_000)  # its LeaderChange is not appended
    assert (it.role, it.epoch, it.end_offset) == ("leader", 1, 0)
    told = msg.FetchRequest(epoch, key(2), 9, 1, cluster_id="kite")
    it.step(ev.RequestReceived("2", told), 4_001)
    it.check_invariants()
    assert it.role != "leader"
    it.step(ev.Tick(), 60_000)
    assert (it.role, it.end_offset) == ("unattached", 0)
    assert "does not lead" in it.warning


def test_a_ring_that_takes_an_answer_after_the_end_of_a_leadership_changes_nothing() -> None:
    it = started(epoch=4, leader=2)
    assert it.step(ev.StreamAnswered(2, 1, 5), 0) == []
