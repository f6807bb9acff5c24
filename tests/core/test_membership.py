"""Membership by single steps: who counts, under which directory id, and from when."""

from __future__ import annotations

import pytest

from kraftfast import limits
from kraftfast.core import effects as fx
from kraftfast.core import events as ev
from kraftfast.core import messages as msg
from kraftfast.core.config import QuorumConfig
from kraftfast.core.membership.voter_history import VoterHistory
from kraftfast.core.replica import Replica
from kraftfast.core.trail import EpochTrail
from kraftfast.errors import ErrorCode
from kraftfast.types import (
    ElectionState,
    Endpoint,
    KRaftVersion,
    KRaftVoters,
    ReplicaKey,
    Voter,
    VoterSet,
)
from tests.core.disk import NoJitter, voter_of
from tests.core.replicas import candidate, correlation_of, fetch, key, leader
from tests.core.scenario import Scenario

SET = VoterSet(voter_of(key(id)) for id in (1, 2, 3))


def history(*voter_sets: VoterSet, at: int = -1) -> VoterHistory:
    """kraft.version 1 and these sets, one offset each from ``at`` on."""
    controls: list = [(at, KRaftVersion(1))]
    controls += [(at + i, KRaftVoters(each)) for i, each in enumerate(voter_sets)]
    return VoterHistory(controls)


def dynamic_leader(**options: object):
    """Leads 1 2 3 with their directories; the set is in the log at 1, nothing is committed."""
    return leader(log=((3, 5),), history=history(SET, at=1), epoch=4, **options)


def test_another_directory_does_not_acknowledge() -> None:
    """D19, D16: a wiped disk under an old id is an observer."""
    it = dynamic_leader()
    wiped = msg.FetchRequest(4, ReplicaKey(2, b"w" * 16), it.end_offset, 4)
    assert not any(
        isinstance(effect, fx.AdvanceHighWatermark)
        for effect in it.step(ev.RequestReceived("w", wiped), 10)
    )
    seen = it.describe(10)
    assert [each.key.directory_id[:1] for each in seen.observers] == [b"w"]
    effects = it.step(fetch(2, 4, it.end_offset, 4), 20)
    assert fx.AdvanceHighWatermark(it.end_offset) in effects
    it.check_invariants()


def test_a_fetch_of_an_older_epoch_is_no_sign_of_a_voter() -> None:
    """D19: it says which disk an observer has; a voter that asks so does not follow this leader."""
    it = dynamic_leader()
    state = it._state.leader
    due_ms = state.check_quorum_deadline_ms
    for asker in (key(2), ReplicaKey(1, b"z" * 16), ReplicaKey(-1, b"z" * 16)):
        request = msg.FetchRequest(3, asker, it.end_offset, 3)
        (answer,) = it.step(ev.RequestReceived("old", request), 10)
        assert answer.response.partition_error is ErrorCode.FENCED_LEADER_EPOCH
    assert state.check_quorum_deadline_ms == due_ms and not state.observers
    newer = msg.FetchRequest(5, ReplicaKey(2, b"w" * 16), it.end_offset, 4)
    it.step(ev.RequestReceived("new", newer), 20)
    assert not state.observers  # it is this leader that may not be one any more


# covers: testAddVoterFailsWhenLosingLeadership, testRemoveVoterFailsWhenLosingLeadership
# covers: all-end-with-the-leadership
@pytest.mark.parametrize("kind", ["remove", "add", "update"])
def test_changes_end_with_the_leadership(kind: str) -> None:
    it = dynamic_leader()
    it.step(fetch(2, 4, it.end_offset, 4), 10)
    it.step(fetch(4, 4, it.end_offset, 4), 10)
    request, first = {
        "remove": (msg.RemoveRaftVoterRequest(key(3)), fx.AppendControl),
        "add": (msg.AddRaftVoterRequest(key(4), voter_of(key(4)).endpoints, 0), fx.Probe),
        "update": (
            msg.UpdateRaftVoterRequest(4, key(3), voter_of(key(3)).endpoints, 0, 1),
            fx.Probe,
        ),
    }[kind]
    effects = it.step(ev.RequestReceived("op", request), 20)
    assert isinstance(effects[0], first)
    effects = it.step(ev.ResignRequested(4), 30)
    (answer,) = [each for each in effects if isinstance(each, fx.Reply) and each.source == "op"]
    found = answer.response.partition_error if kind == "update" else answer.response.error
    assert found is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert it.step(ev.Probed(1, ErrorCode.NONE, 0, 1), 40) == [], "what it found comes too late"


def test_the_log_may_take_its_time_for_the_record() -> None:
    """An append that waits for room outlives its deadline: nothing else is appended meanwhile."""
    it = dynamic_leader()
    it.step(fetch(2, 4, it.end_offset, 4), 10)
    it.step(ev.RequestReceived("op", msg.RemoveRaftVoterRequest(key(3))), 20)
    it.step(fetch(2, 4, it.end_offset, 4), 1500)
    effects = it.step(ev.Tick(), 2020)
    (answer,) = [each for each in effects if isinstance(each, fx.Reply)]
    assert answer.source == "op"
    assert answer.response.error is ErrorCode.REQUEST_TIMED_OUT
    again = it.step(ev.RequestReceived("op", msg.RemoveRaftVoterRequest(key(2))), 2030)
    assert again[0].response.error is ErrorCode.REQUEST_TIMED_OUT
    assert it.deadline_ms < 10_000, "no busy loop, no sleep for ever"
    end = it.end_offset
    smaller = KRaftVoters(SET.without(3))
    it.step(ev.Appended(4, end + 1, 100, ((end, smaller),)), 2040)
    it.check_invariants()
    assert it.voters == SET.without(3)


# covers: VoterSetHistoryTest.testAddAt, TreeMapLogHistoryTest.*
def test_what_is_filed_ascends() -> None:
    it = VoterHistory()
    assert it.latest is None and it.voters_at(100) is None and it.version_at(100) == 0
    it.add(-1, KRaftVoters(SET))
    it.add(99, KRaftVoters(SET.without(3)))
    for offset in (-2, 98, 99):
        with pytest.raises(ValueError, match="behind one at 99"):
            it.add(offset, KRaftVoters(SET))
    assert [at for at, _ in it.voter_sets] == [-1, 99]
    it.add(99, KRaftVersion(1))
    it.add(100, KRaftVoters(SET))
    asked = {0: SET, 99: SET, 100: SET.without(3), 101: SET, 1000: SET}
    for end, voters in asked.items():
        assert it.voters_at(end) == KRaftVoters(voters)


# covers: VoterSetHistoryTest.testTruncateTo
# covers: VoterSetHistoryTest.testTrimPrefixTo, KRaftControlRecordStateMachineTest.testTrimPrefixTo
# covers: TreeMapLogHistoryTest.*
def test_a_snapshot_is_asked_what_it_holds() -> None:
    """The newest at or below an offset; trimmed, it is still there."""
    smaller = SET.without(3)
    it = VoterHistory([(-1, KRaftVersion(1)), (-1, KRaftVoters(SET)), (7, KRaftVoters(smaller))])
    assert it.voters_at(7) == KRaftVoters(SET)
    assert it.voters_at(8) == KRaftVoters(smaller)
    assert (it.version_at(0), it.version_at(8)) == (1, 1)
    it.truncate_from_start(8)
    assert it.voter_sets == [(7, KRaftVoters(smaller))]
    assert it.version_at(8) == 1
    assert not it.truncate_to(8) and it.truncate_to(7)
    assert it.latest is None


# covers: testLeaderUpdatesVoter
def test_a_leader_writes_down_where_it_listens_now() -> None:
    """With its first records, and nobody else's entry is touched."""
    elsewhere = (Endpoint("CONTROLLER", "far", 9099), Endpoint("CLIENT", "far", 9199))
    it = candidate(
        log=((3, 5),),
        history=history(SET, at=1),
        config=QuorumConfig(endpoints=elsewhere),
    )
    granted = msg.VoteResponse(leader_epoch=4, vote_granted=True)
    effects = it.step(ev.ResponseReceived(2, correlation_of(it, 2), granted), 0)
    (appended,) = [each for each in effects if isinstance(each, fx.AppendControl)]
    _, version, voters = appended.records
    assert version == KRaftVersion(1)
    assert voters.voters.endpoints(1) == elsewhere
    assert [voters.voters.get(id) for id in (2, 3)] == [SET.get(2), SET.get(3)]


# covers: testObserversDoNotAutoJoin
@pytest.mark.parametrize("local", [ReplicaKey(-1, b"x" * 16), key(4)])
def test_who_cannot_be_a_voter_does_not_try(local: ReplicaKey) -> None:
    """Without an id it has no name, without endpoints nobody could reach it."""
    at = () if local.id == 4 else (Endpoint("CONTROLLER", "far", 9099),)
    config = QuorumConfig(auto_join=True, endpoints=at, fetch_timeout_ms=100)
    it = Replica(
        config,
        local,
        VoterSet(),
        NoJitter(),
        0,
        ElectionState(4, 2),
        EpochTrail([(4, 0)]),
        5,
        5,
        history=history(SET, at=1),
    )
    effects = it.start(0)
    for now_ms in range(50, 2000, 50):
        heard = msg.FetchResponse(leader_id=2, leader_epoch=4, high_watermark=5)
        effects += it.step(ev.ResponseReceived(2, correlation_of(it, 2), heard), now_ms)
    sent = [each.request for each in effects if isinstance(each, fx.Send)]
    assert len(sent) > 30 and all(isinstance(each, msg.FetchRequest) for each in sent)


# covers: VoterSetTest.testAddVoter, VoterSetTest.testRemoveVoter, VoterSetTest.testUpdateVoter
def test_a_set_and_one_voter_more_less_or_otherwise() -> None:
    fourth = voter_of(key(4))
    more = SET.with_voter(fourth)
    assert more.ids == (1, 2, 3, 4) and more.get(4) == fourth and SET.ids == (1, 2, 3)
    assert more.without(4) == SET and SET.without(4) == SET
    moved = Voter(2, key(2).directory_id, (Endpoint("CONTROLLER", "far", 9099),))
    changed = SET.with_voter(moved)
    assert changed.ids == SET.ids and changed.get(2) == moved and changed.get(1) == SET.get(1)
    assert changed != SET and changed.is_voter(key(2))


def test_targets_that_were_given_up_are_told() -> None:
    """A record without the target ends the reassignment, wherever it comes from."""
    other = SET.without(3)
    given_up = VoterHistory([(1, KRaftVoters(SET, (1, 2))), (2, KRaftVoters(SET))])
    assert given_up.ended_target == (1, 2)
    reached = VoterHistory([(1, KRaftVoters(SET, (1, 2))), (2, KRaftVoters(other))])
    assert reached.ended_target is None
    later = VoterHistory([*given_up.voter_sets, (5, KRaftVoters(other))])
    assert later.ended_target == (1, 2)
    assert VoterHistory([(1, KRaftVoters(SET, (1, 2)))]).ended_target is None


# --- LeaderStateTest --------------------------------------------------------------------------


def change_to(it: object, voters: VoterSet, now_ms: int = 50) -> list:
    """The leader's log took another voter set."""
    end = it.end_offset
    effects = it.step(ev.Appended(4, end + 1, 100, ((end, KRaftVoters(voters)),)), now_ms)
    effects += it.step(ev.Flushed(end + 1, 0), now_ms)
    it.check_invariants()
    return effects


# covers: testUpdateHighWatermarkRemovingFollowerFromVoterStates
def test_a_removal_may_commit_what_waited() -> None:
    it = dynamic_leader()
    end = it.end_offset
    change_to(it, SET.without(3))
    assert it.high_watermark == -1
    effects = it.step(fetch(2, 4, end + 1, 4), 60)
    assert fx.AdvanceHighWatermark(end + 1) in effects
    alone = dynamic_leader()
    effects = change_to(alone, SET.without(3).without(2))
    assert fx.AdvanceHighWatermark(alone.end_offset) in effects


# covers: testHighWatermarkDoesNotDecreaseFromNewVoter, testHighWatermarkDoesIncreaseFromNewVoter
def test_a_new_voter_never_takes_back_a_commit() -> None:
    """I6."""
    it = dynamic_leader()
    end = it.end_offset
    it.step(fetch(2, 4, end, 4), 10)
    assert it.high_watermark == end
    fourth, fifth = voter_of(key(4)), voter_of(key(5))
    change_to(it, SET.with_voter(fourth))
    assert it.high_watermark == end
    it.step(fetch(2, 4, end + 1, 4), 60)
    assert it.high_watermark == end  # two of four
    effects = it.step(fetch(4, 4, end + 1, 4), 60)
    assert fx.AdvanceHighWatermark(end + 1) in effects
    change_to(it, SET.with_voter(fourth).with_voter(fifth))
    assert it.high_watermark == end + 1


def test_what_an_observer_told_does_not_count_for_the_voter_that_it_becomes() -> None:
    """D16: it may have told of what was not on its disk."""
    it = dynamic_leader()
    end = it.end_offset
    it.step(fetch(2, 4, end, 4), 10)
    it.step(fetch(4, 4, end, 4), 10)
    effects = change_to(it, VoterSet([voter_of(key(1)), voter_of(key(4)), voter_of(key(5))]))
    assert not any(isinstance(each, fx.AdvanceHighWatermark) for each in effects)
    assert it._state.leader.acknowledged.get(1) == -1
    assert it._state.leader.voters[4].acknowledged_end_offset == end  # what it told is known


# covers: testCheckQuorumAfterVoterSetChanges, testCheckQuorumWithOneVoter
def test_check_quorum_follows_the_voters() -> None:
    alone = VoterSet([voter_of(key(1))])
    it = leader(voters=alone, log=((3, 5),), history=history(alone, at=1), epoch=4)
    assert it._state.leader.check_quorum_deadline_ms > 1 << 60
    change_to(it, alone.with_voter(voter_of(key(2))), 100)
    assert it._state.leader.check_quorum_deadline_ms == 100 + 3000
    it.step(fetch(2, 4, it.end_offset, 4), 200)
    assert it._state.leader.check_quorum_deadline_ms == 200 + 3000
    it.step(ev.Tick(), 3200)
    assert it.role == "resigned"


# covers: testUpdateVotersFromNoDirectoryIdToDirectoryId
def test_voters_get_their_directory_ids() -> None:
    """What they told must be told anew."""
    it = leader()
    end = it.end_offset
    it.step(fetch(2, 4, end, 4), 10)
    assert it.high_watermark == end
    controls = ((end, KRaftVersion(1)), (end + 1, KRaftVoters(SET)))
    it.step(ev.Appended(4, end + 2, 200, controls), 20)
    it.step(ev.Flushed(end + 2, 0), 20)
    it.check_invariants()
    assert it.kraft_version == 1
    assert it._state.leader.voters[2].key == key(2)
    wiped = msg.FetchRequest(4, ReplicaKey(2, b"w" * 16), end + 2, 4)
    it.step(ev.RequestReceived("w", wiped), 30)
    assert it.high_watermark == end
    it.step(fetch(2, 4, end + 2, 4), 30)
    assert it.high_watermark == end + 2


def test_a_transfer_and_its_reader_end_with_the_leadership() -> None:
    """Whoever waits for a leader is told; a reader of this process asks the next one."""
    it = dynamic_leader()
    it.step(ev.TransferRequested("op", 2), 10)
    remote = msg.ReadBarrierRequest(2000)
    it.step(ev.RequestReceived("r", remote), 10)
    it.step(ev.ReadBarrierRequested("here", 5000), 10)
    effects = it.step(ev.ResignRequested(4), 20)
    told = {each.source: each.response for each in effects if isinstance(each, fx.Reply)}
    assert told["op"].error is told["r"].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    effects = it.step(ev.RequestReceived("b", msg.BeginQuorumEpochRequest(5, 2)), 30)
    (asked,) = [
        each
        for each in effects
        if isinstance(each, fx.Send) and isinstance(each.request, msg.ReadBarrierRequest)
    ]
    answer = msg.ReadBarrierResponse(offset=9, leader_id=2, leader_epoch=5)
    effects = it.step(ev.ResponseReceived(2, asked.correlation, answer), 40)
    assert effects == [fx.AnswerReadBarrier("here", 9)]


# --- targets (KIP-642) ------------------------------------------------------------------------

AT = voter_of(key(4)).endpoints


def observed(it: object, replica: ReplicaKey, now_ms: int, **told: object) -> None:
    request = msg.FetchRequest(4, replica, it.end_offset, 4, **told)
    it.step(ev.RequestReceived("o", request), now_ms)


def assign(it: object, target: tuple[int, ...] | None, now_ms: int) -> msg.Response | None:
    """The answer, or None if the target was appended; then it is committed."""
    request = msg.AlterPartitionReassignmentsRequest(target)
    (effect,) = it.step(ev.RequestReceived("op", request), now_ms)
    if isinstance(effect, fx.Reply):
        return effect.response
    end = it.end_offset
    it.step(ev.Appended(4, end + 1, 100, ((end, effect.records[0]),)), now_ms)
    it.step(ev.Flushed(end + 1, 0), now_ms)
    return None


def test_an_observer_that_does_not_say_where_it_is_cannot_be_a_target() -> None:
    """Kafka's do not: they are added by name."""
    it = dynamic_leader()
    it.step(fetch(2, 4, it.end_offset, 4), 10)
    observed(it, key(4), 10)
    refused = assign(it, (1, 2, 4), 20)
    assert refused.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "add-controller" in refused.message
    observed(it, key(4), 30, observer_endpoints=AT, observer_kraft_versions=(0, 0))
    assert assign(it, (1, 2, 4), 40).error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    observed(it, key(4), 50, observer_endpoints=AT, observer_kraft_versions=(0, 1))
    assert assign(it, (1, 2, 4), 60) is None
    assert it.describe(70).target == (1, 2, 4)


def test_an_id_under_two_directories_waits() -> None:
    """Which of the two is meant nobody can tell."""
    it = dynamic_leader()
    told = {"observer_endpoints": AT, "observer_kraft_versions": (0, 1)}
    it.step(fetch(2, 4, it.end_offset, 4), 10)
    observed(it, key(4), 10, **told)
    assert assign(it, (1, 2, 4), 20) is None
    observed(it, ReplicaKey(4, b"z" * 16), 30, **told)
    observed(it, key(4), 30, **told)
    effects = it.step(fetch(2, 4, it.end_offset, 4), 40)  # commits the target: the first move
    assert not any(isinstance(each, fx.Probe) for each in effects)
    leading = it._state.leader
    leading.forget(leading.observers[ReplicaKey(4, b"z" * 16)])
    effects = it.step(ev.Tick(), 300)
    (probe,) = [each for each in effects if isinstance(each, fx.Probe)]
    assert (probe.voter_id, probe.endpoints) == (4, AT)


def test_an_id_whose_new_disk_was_heard_waits() -> None:
    """D19: the new disk's Fetch does not fit the log yet, but says that it runs."""
    it = dynamic_leader()
    told = {"observer_endpoints": AT, "observer_kraft_versions": (0, 1)}
    it.step(fetch(2, 4, it.end_offset, 4), 10)
    observed(it, key(4), 10, **told)
    assert assign(it, (1, 2, 4), 20) is None
    diverging = msg.FetchRequest(4, ReplicaKey(4, b"z" * 16), it.end_offset, 3)
    it.step(ev.RequestReceived("o", diverging), 30)
    effects = it.step(fetch(2, 4, it.end_offset, 4), 40)  # commits the target: the first move
    assert not any(isinstance(each, fx.Probe) for each in effects)


def test_a_new_disk_without_a_log_is_not_the_first_to_be_forgotten() -> None:
    """D19, I25: strangers do not hide that the disk of 4 was replaced a moment ago."""
    it = dynamic_leader()
    it.step(fetch(2, 4, it.end_offset, 4), 10)
    observed(it, key(4), 10)
    diverging = msg.FetchRequest(4, ReplicaKey(4, b"z" * 16), it.end_offset, 3)
    it.step(ev.RequestReceived("o", diverging), 20)
    for number in range(limits.OBSERVERS_MAX - 1):  # the last one finds the table full
        observed(it, ReplicaKey(100 + number, b"s" * 16), 30)
    it.step(fetch(2, 4, it.end_offset, 4), 40)
    request = msg.AddRaftVoterRequest(key(4), voter_of(key(4)).endpoints, 0)
    (probe,) = it.step(ev.RequestReceived("op", request), 50)
    (answer,) = it.step(ev.Probed(probe.probe, ErrorCode.NONE, 0, 1), 60)
    assert answer.response.error is ErrorCode.REQUEST_TIMED_OUT  # it has not caught up


def test_an_addition_waits_for_a_fetch_of_its_own_disk() -> None:
    """D19: the Fetch of another disk of its id, heard at the same time, does not tell who is later.

    No order is known then, so the later one cannot be named; the addition goes on waiting.
    """
    it = dynamic_leader()
    it.step(fetch(2, 4, it.end_offset, 4), 10)
    it.step(fetch(4, 4, it.end_offset, 4), 10)
    request = msg.AddRaftVoterRequest(key(4), voter_of(key(4)).endpoints, 0)
    (probe,) = it.step(ev.RequestReceived("op", request), 10)
    it.step(ev.Probed(probe.probe, ErrorCode.NONE, 0, 1), 10)
    other = msg.FetchRequest(4, ReplicaKey(4, b"z" * 16), it.end_offset, 4)
    effects = it.step(ev.RequestReceived("o", other), 10) + it.step(ev.Tick(), 10)
    assert not any(isinstance(each, fx.AppendControl) for each in effects)
    effects = it.step(fetch(4, 4, it.end_offset, 4), 11)
    assert any(isinstance(each, fx.AppendControl) for each in effects)


def test_a_target_that_is_reached_is_nothing_to_do() -> None:
    it = dynamic_leader()
    it.step(fetch(2, 4, it.end_offset, 4), 10)
    assert assign(it, (3, 1, 2), 20) == msg.AlterPartitionReassignmentsResponse()
    for wrong in ((), (1, 1), (-1,), tuple(range(65))):
        assert assign(it, wrong, 20).error is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_full_set_is_reassigned_by_removing_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader of as many voters as fit goes to as many others, itself among those that go."""
    monkeypatch.setattr(limits, "VOTERS_MAX", 3)
    scenario = Scenario()
    scenario.run_block(
        [
            "bootstrap 1:a 2:b 3:c",
            *(f"observer {id}" for id in (4, 5, 6)),
            *(f"disk {id} wiped {name}" for id, name in ((4, "d"), (5, "e"), (6, "f"))),
            "config bootstrap_ids=1,2,3",
            "answer-probes",
            "show news",
            "jitter 0 300 600",
            "start all",
            "wait 3000",
            "to 1 assign 4,5,6",
            "wait 20000",
        ]
    )
    seen = scenario.run_block(["state"])
    assert [line for line in seen if " leader " in line][0][0] in "456", seen
    leading = next(
        host.replica for host in scenario.world.hosts.values() if host.replica.role == "leader"
    )
    assert leading.voters.ids == (4, 5, 6)
