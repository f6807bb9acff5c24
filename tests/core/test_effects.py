"""Single steps and exactly what they want done, with the durability that each effect relies on."""

from __future__ import annotations

import pytest

from kraftfast import limits
from kraftfast.core import effects as fx
from kraftfast.core import events as ev
from kraftfast.core import messages as msg
from kraftfast.core.config import Durability, QuorumConfig
from kraftfast.core.replica import Replica
from kraftfast.core.trail import EpochTrail
from kraftfast.errors import ErrorCode, ForeignDirectory, InvalidOption, NotLeader
from kraftfast.types import (
    ZERO_UUID,
    ElectionState,
    Endpoint,
    LeaderChange,
    OffsetAndEpoch,
    ReplicaKey,
    Voter,
    VoterSet,
)
from tests.core.disk import NoJitter
from tests.core.replicas import (
    candidate,
    correlation_of,
    directory,
    fetch,
    key,
    leader,
    replica,
    started,
    vote,
)

NO_PLACE = OffsetAndEpoch(-1, -1)
"""Of static voters, which stand in no log."""
ONE = msg.LeaderIdentity(key(1).directory_id, NO_PLACE)


def test_a_follower_starts_by_fetching_what_it_has_on_disk() -> None:
    it = replica(epoch=3, leader=2, log=((1, 5), (3, 10)), cluster_id="quorum")
    request = msg.FetchRequest(
        epoch=3,
        replica=key(1),
        fetch_offset=10,
        last_fetched_epoch=3,
        high_watermark=-1,
        max_wait_ms=500,
        max_bytes=limits.FETCH_MAX_BYTES,
        cluster_id="quorum",
    )
    assert it.start(0) == [
        fx.PersistQuorumState(3, 2, None),
        fx.RoleChanged("follower", 3, 2),
        fx.Send(2, 1, request, after=fx.FlushedTo(10)),
    ]


def test_a_candidate_asks_for_votes_while_its_own_is_written() -> None:
    it = started(epoch=5, log=((5, 10),))
    it.step(ev.Tick(), 1000)
    granted = msg.VoteResponse(leader_epoch=5, vote_granted=True)
    effects = it.step(ev.ResponseReceived(2, correlation_of(it, 2), granted), 1001)
    asked = [
        fx.Send(
            voter_id,
            effects[i].correlation,
            msg.VoteRequest(6, key(1), 5, 10, voters_at=NO_PLACE, voter=ReplicaKey(voter_id)),
            after=fx.FlushedTo(10),  # D21
        )
        for i, voter_id in enumerate((2, 3))
    ]
    assert effects == [
        *asked,
        fx.PersistQuorumState(6, -1, key(1)),  # D5: before an answer is looked at
        fx.RoleChanged("candidate", 6, -1),
    ]


def test_a_granted_vote_is_on_disk_before_the_answer_leaves() -> None:
    it = started(epoch=5, log=((5, 10),))
    assert it.step(vote(3, 6, 10, 5), 1) == [
        fx.PersistQuorumState(6, -1, key(3)),
        fx.RoleChanged("unattached", 6, -1),
        fx.Reply(
            ("from", 3),
            msg.VoteResponse(leader_id=-1, leader_epoch=6, vote_granted=True),
            after=fx.Persisted(6),  # D5, I10
        ),
    ]


def test_a_pre_vote_relies_on_nothing() -> None:
    it = started(epoch=5, log=((5, 10),))
    assert it.step(vote(3, 5, 10, 5, pre_vote=True), 1) == [
        fx.Reply(
            ("from", 3),
            msg.VoteResponse(leader_id=-1, leader_epoch=5, vote_granted=True),
            after=None,
        )
    ]


def test_an_elected_leader_persists_appends_and_makes_itself_known() -> None:
    at = (Endpoint("CONTROLLER", "localhost", 9093),)
    voters = VoterSet([Voter(1, directory(1), at), Voter(2, directory(2)), Voter(3)])
    it = candidate(1, 4, voters)
    granted = msg.VoteResponse(leader_epoch=4, vote_granted=True)
    effects = it.step(ev.ResponseReceived(2, correlation_of(it, 2), granted), 7)
    assert [(send.peer_id, send.request, send.after) for send in effects[:2]] == [
        (voter.id, msg.BeginQuorumEpochRequest(4, 1, at, ONE, voter=voter.key), None)
        for voter in (voters.voters[1], voters.voters[2])
    ]
    assert effects[2:] == [
        fx.PersistQuorumState(4, 1, None),  # D5: before the first append
        fx.RoleChanged("leader", 4, 1, at),
        fx.AppendControl(4, (LeaderChange.of(1, (1, 2, 3), (1, 2)),)),
    ]


# covers: testForceDrainBeforeAppendLeaderChangeMessage
def test_no_record_is_taken_before_the_leader_change() -> None:
    it = candidate(epoch=4)
    granted = msg.VoteResponse(leader_epoch=4, vote_granted=True)
    it.step(ev.ResponseReceived(2, correlation_of(it, 2), granted), 7)
    assert it.step(ev.AppendsQueued(), 7) == []
    assert it.step(ev.Appended(4, 1, 100), 7) == [
        fx.Flush(1, inline=True),
        fx.DrainAppends(4, limits.TURN_BYTES_MAX),
    ]


def test_a_push_stops_at_the_end_that_the_core_knows() -> None:
    """The log may hold more: a control batch after what was drained, Appended still to come."""
    it = leader()
    it.step(fetch(2, 4, 0, 0, stream=9, opens=True, copied_end_offset=0), 1)
    it.step(ev.StreamAnswered(2, 9, 1), 1)
    effects = it.step(ev.Appended(4, 5, 400), 1)
    assert [(e.read_offset, e.end_offset_max) for e in effects if type(e) is fx.AnswerFetch] == [
        (1, 5)
    ]


def test_a_pushed_answer_carries_the_streams_number_and_goes_to_its_source() -> None:
    it = leader()
    effects = it.step(
        fetch(2, 4, 0, 0, stream=9, opens=True, copied_end_offset=0, max_bytes=700), 1
    )
    assert effects == [
        fx.AnswerFetch(
            ("from", 2),
            msg.FetchResponse(
                leader_id=1, leader_epoch=4, high_watermark=-1, log_start_offset=0, stream=9
            ),
            read_offset=0,
            max_bytes=700,
            end_offset_max=1,
        )
    ]
    assert it.step(ev.StreamAnswered(2, 9, 1), 1) == []
    it.check_invariants()


def test_an_answer_is_never_larger_than_a_batch_may_be() -> None:
    it = leader()
    (effect,) = it.step(fetch(2, 4, 0, 0, max_bytes=2**31 - 1), 1)
    assert effect.max_bytes == limits.BATCH_BYTES_MAX


def test_a_stream_update_acknowledges_only_what_is_on_disk() -> None:
    config = QuorumConfig(follower_inline_flush_bytes_max=0)
    it = started(epoch=5, leader=2, log=((5, 10),), config=config)
    it.step(ev.LinkUp(2, streaming=True), 0)
    pushed = msg.FetchResponse(
        leader_id=2, leader_epoch=5, high_watermark=10, stream=1, records_bytes=500
    )
    payload = object()  # whatever came with the answer goes where its records are written
    effects = it.step(ev.ResponseReceived(2, 0, pushed, payload), 1)
    assert effects == [fx.WriteFetched(payload, 5, 10)]
    effects = it.step(ev.FetchedWritten(15, 500), 1)
    update = msg.FetchRequest(
        epoch=5,
        replica=key(1),
        fetch_offset=10,
        last_fetched_epoch=5,
        high_watermark=10,
        max_wait_ms=500,
        max_bytes=limits.FETCH_MAX_BYTES,
        stream=1,
        copied_end_offset=15,
    )
    assert effects == [
        fx.AdvanceHighWatermark(10),
        fx.Flush(15),
        fx.Send(2, 0, update, after=fx.FlushedTo(10)),
    ]


def test_what_was_kept_of_a_rejected_answer_is_flushed_at_once() -> None:
    it = started(epoch=5, leader=2, log=((5, 10),))
    answer = msg.FetchResponse(leader_id=2, leader_epoch=5, high_watermark=8, records_bytes=500)
    it.step(ev.ResponseReceived(2, correlation_of(it, 2), answer), 1)
    assert it.step(ev.FetchedWritten(12, 200, rejected=True), 1) == [
        fx.AdvanceHighWatermark(8),
        fx.Flush(12, inline=True),
    ]
    assert it.step(ev.Flushed(12, 0), 2) == []
    (again,) = it.step(ev.Tick(), it.deadline_ms)
    assert again.request.fetch_offset == 12


def test_doubt_is_told() -> None:
    it = started(epoch=5, log=((5, 10),), phantom_tail=OffsetAndEpoch(15, 5))
    assert it.in_doubt and not it.possible_loss
    sole = started(1, VoterSet.of(1), epoch=5, voted=1, phantom_tail=OffsetAndEpoch(15, 5))
    assert (sole.role, sole.in_doubt, sole.possible_loss) == ("leader", False, True)


def test_a_memory_replica_says_so_and_relies_on_no_disk() -> None:
    config = QuorumConfig(durability=Durability.MEMORY)
    it = replica(epoch=5, leader=2, log=((5, 10),), flushed=0, config=config)
    send = it.start(0)[-1]
    assert (send.request.fetch_offset, send.request.in_memory, send.after) == (10, True, None)


def test_a_diverging_answer_names_the_place() -> None:
    it = leader(log=((1, 5), (3, 9)))
    assert it.step(fetch(2, 4, 9, 2), 1) == [
        fx.Reply(
            ("from", 2),
            msg.FetchResponse(
                leader_id=1,
                leader_epoch=4,
                high_watermark=-1,
                log_start_offset=0,
                diverging=OffsetAndEpoch(5, 1),
                leader_identity=ONE,
            ),
        )
    ]


def test_records_of_a_leader_that_lost_its_role_stay_as_a_tail() -> None:
    it = leader()
    it.step(ev.AppendsQueued(), 1)  # the log is asked, and takes its time
    begin = msg.BeginQuorumEpochRequest(5, 2)
    effects = it.step(ev.RequestReceived("a", begin), 2)
    assert effects[-1].request.fetch_offset == 1
    first = effects[-1].correlation
    assert it.step(ev.Appended(4, 4, 300), 3) == [fx.Flush(4, inline=True)]
    it.check_invariants()
    (again,) = it.step(ev.Flushed(4, 0), 4)
    assert again.request.fetch_offset == 4 and again.request.last_fetched_epoch == 4
    late = msg.FetchResponse(leader_id=2, leader_epoch=5, high_watermark=0, records_bytes=100)
    assert it.step(ev.ResponseReceived(2, first, late), 5) == []


def test_a_flush_from_before_a_cut_counts_for_nothing() -> None:
    """D2: the completion says what stood there before, not what stands there now."""
    it = leader(log=((1, 5),))
    it.step(ev.AppendsQueued(), 1)
    it.step(ev.Appended(4, 9, 300), 1)
    state = it._state
    state.log.truncate(6)
    state.log.appended(9, 300, 1)
    assert it.flushed_end_offset == 6
    state.log.flushing = True
    it.step(ev.Flushed(9, 0), 2)
    assert it.flushed_end_offset == 6
    it.step(ev.Flushed(9, 1), 3)
    assert it.flushed_end_offset == 9


# covers: testNodeDirectoryId
def test_a_replica_needs_a_directory_id() -> None:
    with pytest.raises(InvalidOption, match="directory id"):
        Replica(
            QuorumConfig(),
            ReplicaKey(1, ZERO_UUID),
            VoterSet.of(1),
            NoJitter(),
            0,
            None,
            EpochTrail(),
            0,
            0,
        )


# covers: testNoLocalIdInitializationFailsIfElectionStateHasVotedCandidate
def test_a_vote_without_an_id_is_a_foreign_directory() -> None:
    with pytest.raises(ForeignDirectory):
        Replica(
            QuorumConfig(),
            ReplicaKey(-1, b"x" * 16),
            VoterSet.of(1),
            NoJitter(),
            0,
            ElectionState(3, voted=ReplicaKey(2)),
            EpochTrail(),
            0,
            0,
        )


# covers: testObserverFetchWithNoLocalId, testInitializeWithEmptyLocalId
def test_an_observer_without_an_id_has_no_vote() -> None:
    it = Replica(
        QuorumConfig(),
        ReplicaKey(-1, b"x" * 16),
        VoterSet.of(1, 2),
        NoJitter(),
        0,
        None,
        EpochTrail(),
        0,
        0,
    )
    send = it.start(0)[-1]
    assert isinstance(send, fx.Send) and send.request.replica.id == -1
    (answer,) = it.step(vote(2, 3, 9, 2), 1)[-1:] or [None]
    assert it.epoch == 3 and answer is not None
    assert all(not getattr(e, "voted", None) for e in it.step(vote(1, 4, 9, 2), 1))


# covers: testObserverUnattachedSendFetchToBootstrapServers
def test_bootstrap_servers_are_asked_for_the_leader() -> None:
    config = QuorumConfig(bootstrap_ids=(-2, -3))
    it = replica(9, VoterSet(), config=config)
    assert it.start(0)[-1].peer_id == -2
    told = msg.FetchResponse(
        partition_error=ErrorCode.NOT_LEADER_OR_FOLLOWER,
        leader_id=5,
        leader_epoch=7,
        leader_endpoints=(Endpoint("CONTROLLER", "far", 9093),),
    )
    effects = it.step(ev.ResponseReceived(-2, correlation_of(it, -2), told), 1)
    assert effects[1] == fx.RoleChanged("follower", 7, 5, told.leader_endpoints)
    assert effects[2].peer_id == 5


@pytest.mark.parametrize("epoch", [3, 4])
def test_a_leader_that_ended_and_came_back_elsewhere_is_found(epoch: int) -> None:
    """No process is where it was: only who is told where it is now can connect to it (L5)."""
    at = (Endpoint("CONTROLLER", "elsewhere", 9093),)
    it = replica(9, VoterSet.of(1, 2, 3), epoch=3)
    it.start(0)
    it.step(ev.PeerEnded(2), 1)
    told = msg.FetchResponse(
        partition_error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id=2, leader_epoch=epoch
    )
    it.step(ev.ResponseReceived(1, correlation_of(it, 1), told), 2)
    assert it.role == "unattached"
    told.leader_endpoints = at
    asked = fx.Send(2, 0, msg.ReadBarrierRequest(0))
    for ms in range(3, 5_000):
        if asked.peer_id != 2:
            break
        if asked.correlation:
            it.step(ev.RequestFailed(2, asked.correlation, ErrorCode.BROKER_NOT_AVAILABLE), ms)
        asked = next((each for each in it.step(ev.Tick(), ms) if type(each) is fx.Send), asked)
    effects = it.step(ev.ResponseReceived(asked.peer_id, asked.correlation, told), 5_001)
    assert fx.RoleChanged("follower", epoch, 2, at) in effects
    it.step(ev.PeerEnded(2), 5_002)
    assert it._state.peers.is_ended(2)


def test_resigning_without_leading_is_an_error_of_the_caller() -> None:
    it = started(epoch=5, leader=2)
    with pytest.raises(NotLeader) as caught:
        it.step(ev.ResignRequested(5), 1)
    assert caught.value.leader_id == 2
    for epoch in (6, -1):
        with pytest.raises(InvalidOption):
            it.step(ev.ResignRequested(epoch), 1)
    it.check_invariants()
    assert it.role == "follower"


def test_observers_are_bounded() -> None:
    """I25: a stranger who invents ids drives out other strangers, never voters."""
    it = leader()
    for id in range(100, 100 + limits.OBSERVERS_MAX + 10):
        request = msg.FetchRequest(4, ReplicaKey(id, b"o" * 16), 1, 4)
        it.step(ev.RequestReceived(id, request), id)
    described = it.describe(2000)
    assert len(described.observers) == limits.OBSERVERS_MAX
    assert described.observers[0].key.id == 110
    assert len(described.voters) == 3


def test_parked_fetches_are_bounded() -> None:
    it = leader()
    it._state.leader.parked = [None] * limits.PARKED_FETCHES_MAX
    (effect,) = it.step(fetch(9, 4, 1, 4, max_wait_ms=500), 1)
    assert effect.read_offset == -1


def test_strangers_who_name_leaders_fill_no_memory() -> None:
    it = started(epoch=5, leader=2)
    for epoch in range(6, 2000):
        request = msg.BeginQuorumEpochRequest(epoch, 1000 + epoch)
        it.step(ev.RequestReceived("s", request), 1)
    assert len(it._state.peers._peers) < 10


# covers: fetch-sends-the-configured-max-bytes
def test_a_follower_asks_for_as_many_bytes_as_it_is_told_to() -> None:
    it = replica(epoch=3, leader=2, config=QuorumConfig(fetch_max_bytes=12_345))
    assert it.start(0)[-1].request.max_bytes == 12_345


# covers: leader-obeys-the-max-bytes-of-the-request
@pytest.mark.parametrize("asked", [0, 1, 700, 1 << 20])
def test_a_leader_sends_as_many_bytes_as_it_is_asked_for(asked: int) -> None:
    """Whatever it asks for itself; the log makes at least one batch of it."""
    it = leader(config=QuorumConfig(fetch_max_bytes=50))
    (effect,) = it.step(fetch(2, 4, 0, 0, max_bytes=asked), 1)
    assert effect.max_bytes == asked


# covers: testDescribeQuorumWithOnlyStaticVoters
def test_static_voters_are_described_without_directory_ids() -> None:
    it = leader(voters=VoterSet.of(1, 2))
    it.step(fetch(2, 4, 1, 4), 7)
    assert [each.key for each in it.describe(9).voters] == [ReplicaKey(1), ReplicaKey(2)]


def test_only_who_may_not_know_is_told_with_records_where_the_leader_is() -> None:
    """An observer as long as it stays where it is; a voter never."""
    at = (Endpoint("CONTROLLER", "localhost", 9093),)
    voters = VoterSet([Voter(1, directory(1), at), Voter(2, directory(2))])
    it = leader(voters=voters)
    it.step(ev.Appended(4, 9, 800), 0)

    def told(id: int, offset: int) -> bool:
        effects = it.step(fetch(id, 4, offset, 4 if offset else 0), 1)
        (effect,) = [each for each in effects if isinstance(each, fx.AnswerFetch)]
        assert effect.response.leader_endpoints in ((), at)
        return effect.response.leader_endpoints == at

    assert [told(9, offset) for offset in (0, 0, 3, 5, 5, 6)] == [True, True, False, False, True,
                                                                 False]  # fmt: skip
    assert not any(told(2, offset) for offset in (0, 0, 3, 3))
