"""Every change of role, legal and illegal (Kafka: QuorumStateTest, one test per pair)."""

from __future__ import annotations

from itertools import product

import pytest

from kraftfast.core import events as ev
from kraftfast.core import messages as msg
from kraftfast.core.elections.candidate import Candidate
from kraftfast.core.elections.election import Election
from kraftfast.core.replica import Replica
from kraftfast.core.roles import (
    START,
    TRANSITIONS,
    Role,
    check_transition,
    is_legal,
    transition_picture,
)
from kraftfast.core.transitions import (
    grant_vote,
    persist_quorum_state,
    transition_to_follower,
    transition_to_unattached,
)
from kraftfast.errors import ErrorCode
from kraftfast.types import ZERO_UUID, Endpoint, OffsetAndEpoch, ReplicaKey, Voter, VoterSet
from tests.core.replicas import (
    candidate,
    correlation_of,
    directory,
    key,
    leader,
    replica,
    started,
)

U, P, C = Role.UNATTACHED, Role.PROSPECTIVE, Role.CANDIDATE
L, F, R = Role.LEADER, Role.FOLLOWER, Role.RESIGNED

LEGAL = {
    # what a voter in epoch 5 may become in the same, the next and a later epoch
    (U, 5): {F, P},
    (U, 6): {U, F},
    (U, 8): {U, F},
    (F, 5): {U, F, P},
    (F, 6): {U, F},
    (F, 8): {U, F},
    (P, 5): {U, F},
    (P, 6): {U, F, C},
    (P, 8): {U, F},
    (C, 5): {P, U, F, L},
    (C, 6): {U, F},
    (C, 8): {U, F},
    (L, 5): {R},
    (L, 6): {U, F},
    (L, 8): {U, F},
    (R, 5): {P},
    (R, 6): {U, F},
    (R, 8): {U, F},
}
"""Written down here a second time, in another shape, so that a slip in the table shows."""


# covers: QuorumStateTest.testUnattachedTo*, QuorumStateTest.testFollowerTo*
# covers: QuorumStateTest.testProspectiveTo*, QuorumStateTest.testCandidateTo*
# covers: QuorumStateTest.testLeaderTo*, QuorumStateTest.testResignedTo*
@pytest.mark.parametrize(
    ("source", "target", "epoch"), list(product(Role, Role, (4, 5, 6, 8))), ids=str
)
def test_each_pair(source: Role, target: Role, epoch: int) -> None:
    legal = target in LEGAL.get((source, epoch), set())
    assert is_legal(source, target, 5, epoch, voter=True) is legal
    if legal:
        check_transition(source, target, 5, epoch, voter=True)
    else:
        with pytest.raises(AssertionError, match="illegal transition"):
            check_transition(source, target, 5, epoch, voter=True)


# covers: QuorumStateTest.testObserver*
@pytest.mark.parametrize(("source", "target", "epoch"), list(product(Role, Role, (5, 6, 8))))
def test_observers_only_look_for_a_leader_and_follow(
    source: Role, target: Role, epoch: int
) -> None:
    """Or leave what they were as voters: a removed leader resigns."""
    if is_legal(source, target, 5, epoch, voter=False):
        assert target in (U, F) or (source, target) == (L, R)


def test_the_picture_shows_every_line_of_the_table() -> None:
    picture = transition_picture()
    for transition in TRANSITIONS:
        line = f"    {transition.source.value} --> {transition.target.value}: "
        (found,) = [each for each in picture.splitlines() if each.startswith(line)]
        assert transition.when in found
    assert picture.count("[*] -->") == len(START)


# --- the same through a replica ---------------------------------------------------------------


def prospective(**stored: int) -> Replica:
    """One whose timer is over: 2 s, whatever it waited for."""
    it = started(epoch=5, **stored)
    it.step(ev.Tick(), 2000)
    assert it.role == "prospective"
    return it


KINDS = {
    "unattached": lambda: started(epoch=5),
    "unattached voted": lambda: started(epoch=5, voted=3),
    "unattached with leader": lambda: started(epoch=5, leader=9),  # nobody knows where 9 is
    "follower": lambda: started(epoch=5, leader=2),
    "follower voted": lambda: started(epoch=5, leader=2, voted=3),
    "prospective": lambda: prospective(),
    "prospective voted": lambda: prospective(voted=3),
    "prospective with leader": lambda: prospective(leader=2),
    "prospective voted with leader": lambda: prospective(leader=2, voted=3),
    "candidate": lambda: candidate(epoch=5),
    "leader": lambda: leader(epoch=5),
    "resigned": lambda: started(epoch=5, leader=1),
}
"""A voter of three, in epoch 5, in each role and with what the role may know."""


# covers: QuorumStateTest.testUnattachedTo*, QuorumStateTest.testUnattachedVotedTo*
# covers: QuorumStateTest.testUnattachedWithLeaderTo*, QuorumStateTest.testFollowerTo*
# covers: QuorumStateTest.testFollowerVotedTo*, QuorumStateTest.testProspectiveTo*
# covers: QuorumStateTest.testProspectiveVotedTo*, QuorumStateTest.testProspectiveWithLeaderTo*
# covers: QuorumStateTest.testCandidateTo*, QuorumStateTest.testLeaderTo*
# covers: QuorumStateTest.testResignedTo*
@pytest.mark.parametrize("kind", KINDS)
def test_any_role_follows_the_leader_of_a_higher_epoch(kind: str) -> None:
    it = KINDS[kind]()
    it.step(ev.RequestReceived("b", msg.BeginQuorumEpochRequest(6, 3)), 2000)
    assert (it.role, it.epoch, it.leader_id) == ("follower", 6, 3)
    assert it._state.voted is None
    it.check_invariants()


# covers: QuorumStateTest.testUnattachedTo*, QuorumStateTest.testFollowerTo*
# covers: QuorumStateTest.testProspectiveTo*, QuorumStateTest.testCandidateTo*
# covers: QuorumStateTest.testLeaderTo*, QuorumStateTest.testResignedTo*
@pytest.mark.parametrize("kind", KINDS)
def test_any_role_goes_back_for_a_higher_epoch_without_leader(kind: str) -> None:
    it = KINDS[kind]()
    behind = msg.VoteRequest(9, key(3), 0, 0, speaks_pre_vote=False)
    it.step(ev.RequestReceived("v", behind), 2000)
    assert (it.role, it.epoch, it.leader_id) == ("unattached", 9, -1)
    it.check_invariants()


# covers: QuorumStateTest.testUnattachedTo*, QuorumStateTest.testFollowerTo*
# covers: QuorumStateTest.testProspectiveTo*, QuorumStateTest.testCandidateTo*
# covers: QuorumStateTest.testLeaderTo*, QuorumStateTest.testResignedTo*
@pytest.mark.parametrize("kind", KINDS)
def test_no_role_goes_down_in_epoch(kind: str) -> None:
    it = KINDS[kind]()
    before = (it.role, 5, it.leader_id, it._state.voted)
    for request in (
        msg.BeginQuorumEpochRequest(4, 3),
        msg.EndQuorumEpochRequest(4, 3),
        msg.VoteRequest(4, key(3), 0, 99),
    ):
        it.step(ev.RequestReceived("x", request), 2000)
        assert (it.role, it.epoch, it.leader_id, it._state.voted) == before
    with pytest.raises(AssertionError):
        transition_to_unattached(it._state, 4, -1, 2000)


@pytest.mark.parametrize("kind", KINDS)
def test_who_leads_this_epoch_is_learnt_once(kind: str) -> None:
    """A vote given stays; who has a leader, is one or was one hears of no second one."""
    it = KINDS[kind]()
    before = (it.role, it.leader_id)
    voted = it._state.voted
    it.step(ev.RequestReceived("x", msg.BeginQuorumEpochRequest(5, 3)), 2000)
    if it.role == "follower" and it.leader_id == 3:
        assert before[1] == -1
    else:
        assert (it.role, it.leader_id) == before and before[1] != -1
    assert it._state.voted == voted
    it.check_invariants()


# covers: testCannotFollowSelf
@pytest.mark.parametrize("kind", KINDS)
def test_nobody_follows_himself(kind: str) -> None:
    it = KINDS[kind]()
    role = it.role
    for epoch in (5, 6):
        it.step(ev.RequestReceived("x", msg.BeginQuorumEpochRequest(epoch, 1)), 2000)
        assert (it.role, it.epoch) == (role, 5)
    with pytest.raises(AssertionError):
        transition_to_follower(it._state, 6, 1, (), 2000)


# covers: testRejectPreVoteIfRemoteLogIsNotUpToDate
@pytest.mark.parametrize("kind", KINDS)
def test_no_role_grants_a_pre_vote_to_a_shorter_log(kind: str) -> None:
    it = KINDS[kind]()
    log = it._state.log
    log.trail.assign(5, log.end_offset)
    log.appended(log.end_offset + 3, 300, 1000)
    before = (it.role, it.epoch, it.leader_id, it._state.voted)
    for epoch, offset in ((5, it.end_offset - 1), (4, 99)):
        request = msg.VoteRequest(6, key(3), epoch, offset, pre_vote=True)
        (answer,) = it.step(ev.RequestReceived("p", request), 1000)
        assert not answer.response.vote_granted
        assert answer.response.partition_error == ErrorCode.NONE
    assert (it.role, it.epoch, it.leader_id, it._state.voted) == before


# covers: testHandlePreVoteRequestAsFollowerWithVotedCandidate, ProspectiveStateTest.testGrantVote
# covers: ResignedStateTest.testGrantVote, UnattachedStateTest.testGrantVote
@pytest.mark.parametrize("kind", KINDS)
def test_a_pre_vote_is_granted_by_all_but_who_leads_or_hears_a_leader(kind: str) -> None:
    it = KINDS[kind]()
    before = (it.role, it.epoch, it.leader_id, it._state.voted)
    request = msg.VoteRequest(5, key(3), 4, 99, pre_vote=True)
    if kind == "leader":
        request = msg.VoteRequest(6, key(3), 5, 99, pre_vote=True)
    (answer,) = it.step(ev.RequestReceived("p", request), 1000)
    assert answer.response.vote_granted is (kind != "leader")
    if it.role == "follower":
        heard = msg.FetchResponse(leader_id=2, leader_epoch=5, high_watermark=0)
        it.step(ev.ResponseReceived(2, correlation_of(it, 2), heard), 1000)
        (answer,) = it.step(ev.RequestReceived("p", request), 1000)
        assert not answer.response.vote_granted
    assert (it.role, it.epoch, it.leader_id, it._state.voted) == before


# covers: testCannotTransitionToFollowerWithNoLeaderEndpoint
def test_nobody_follows_without_a_way_to_the_leader() -> None:
    """A voter set is a way."""
    it = started(epoch=5)
    with pytest.raises(AssertionError, match="no way to leader 9"):
        transition_to_follower(it._state, 6, 9, (), 0)


# covers: testCanBecomeFollowerOfNonVoter
def test_a_leader_outside_the_voter_set_is_followed() -> None:
    it = started(epoch=5)
    at = (Endpoint("CONTROLLER", "far", 9093),)
    it.step(ev.RequestReceived("x", msg.BeginQuorumEpochRequest(5, 9, at)), 0)
    assert (it.role, it.leader_id) == ("follower", 9)


# covers: testFollowerToFollowerSameEpochAndMoreEndpoints
def test_only_more_endpoints_of_the_same_leader_are_a_change() -> None:
    one = (Endpoint("A", "h", 1),)
    two = (*one, Endpoint("B", "h", 2))
    it = started(epoch=5)
    for at, changes in ((one, True), (one, False), (two, True), (one, False)):
        effects = it.step(ev.RequestReceived("x", msg.BeginQuorumEpochRequest(5, 3, at)), 0)
        assert any(type(each).__name__ == "RoleChanged" for each in effects) is changes


# covers: testUnattachedCannotAddVotedStateForSelf
def test_nobody_votes_for_himself_by_request() -> None:
    it = started(epoch=5)
    with pytest.raises(AssertionError):
        grant_vote(it._state, key(1), 0)


def test_a_vote_is_kept_within_its_epoch_and_gone_with_it() -> None:
    it = started(epoch=5, voted=3)
    it.step(ev.RequestReceived("x", msg.BeginQuorumEpochRequest(5, 2)), 0)
    assert it._state.voted == key(3)
    it.step(ev.RequestReceived("x", msg.BeginQuorumEpochRequest(6, 2)), 0)
    assert it._state.voted is None


def test_a_second_vote_in_an_epoch_is_a_broken_invariant() -> None:
    it = started(epoch=5, voted=3)
    with pytest.raises(AssertionError, match="I9"):
        persist_quorum_state(it._state, 5, -1, key(2))


# covers: testHighWatermarkRetained
def test_the_high_watermark_is_kept_but_by_leaders() -> None:
    """Unknown again when elected or resigned."""
    it = started(epoch=5, leader=2, log=((5, 10),))
    good = msg.FetchResponse(leader_id=2, leader_epoch=5, high_watermark=8)
    it.step(ev.ResponseReceived(2, correlation_of(it, 2), good), 0)
    it.step(ev.RequestReceived("x", msg.BeginQuorumEpochRequest(6, 3)), 0)
    assert it.high_watermark == 8
    it.step(ev.Tick(), 2000)
    assert (it.role, it.high_watermark) == ("prospective", 8)
    yes = msg.VoteResponse(leader_epoch=6, vote_granted=True)
    it.step(ev.ResponseReceived(2, correlation_of(it, 2), yes), 2000)
    assert (it.role, it.high_watermark) == ("candidate", 8)
    yes = msg.VoteResponse(leader_epoch=7, vote_granted=True)
    it.step(ev.ResponseReceived(2, correlation_of(it, 2), yes), 2000)
    assert (it.role, it.high_watermark) == ("leader", -1)
    assert it._state.committed_offset == 8


def test_election_timers_are_drawn_between_once_and_twice_the_timeout() -> None:
    from random import Random

    deadlines = {replica_with(Random(seed)).deadline_ms for seed in range(200)}
    assert min(deadlines) >= 1000 and max(deadlines) < 2000
    assert len(deadlines) > 100


def replica_with(random: object) -> Replica:
    it = replica(epoch=5, voted=1, random=random)
    it.start(0)
    return it


# covers: UnattachedStateTest.testElectionTimeout
def test_timers_of_the_unattached() -> None:
    """What is left of an old timer goes on; a follower's or a leader's successor draws anew."""
    it = started(epoch=5)
    state = it._state
    it.step(ev.RequestReceived("v", msg.VoteRequest(6, key(3), 0, 0, voter=ReplicaKey(1))), 400)
    assert state.current.election_deadline_ms == 1400, "a vote granted begins a fresh timer"
    it.step(ev.RequestReceived("v", msg.VoteRequest(7, key(3), 0, 0, voter=ReplicaKey(2))), 600)
    assert (it.epoch, state.current.election_deadline_ms) == (7, 1400)
    it.step(ev.RequestReceived("b", msg.BeginQuorumEpochRequest(7, 3)), 700)
    it.step(ev.RequestReceived("v", msg.VoteRequest(8, key(2), 0, 0, voter=ReplicaKey(2))), 800)
    assert (it.epoch, state.current.election_deadline_ms) == (8, 1800)


# --- elections --------------------------------------------------------------------------------


def election(*ids: int, unanimous: bool = False, may_flip: bool = False) -> Election:
    return Election(VoterSet.of(*ids), key(1), unanimous, may_flip)


# covers: testTwoNodeQuorumVoteRejected, testTwoNodeQuorumVoteGranted
# covers: testThreeNodeQuorumVoteGranted
# covers: testThreeNodeQuorumVoteRejected
def test_a_majority_wins_and_its_impossibility_loses() -> None:
    two = election(1, 2)
    assert not two.is_won() and not two.is_lost() and two.unrecorded() == (2,)
    assert two.record(2, False) and two.is_lost()
    granted = election(1, 2)
    assert granted.record(2, True) and granted.is_won()
    three = election(1, 2, 3)
    assert three.record(2, False) and not three.is_lost()
    assert three.record(3, True) and three.is_won() and three.unrecorded() == ()
    refused = election(1, 2, 3)
    assert refused.record(2, False) and refused.record(3, False) and refused.is_lost()
    assert election(1).is_won()
    assert not election(1, 2, 3).is_lost(without=1)
    assert election(1, 2, 3).is_lost(without=2)


# covers: testCannotChangeVoteGrantedToRejected, testCannotChangeVoteRejectedToGranted
# covers: testIdempotentGrant, testIdempotentReject, testCanChangePreVote, testOverWritingVote
def test_real_votes_do_not_flip_pre_votes_do() -> None:
    real = election(1, 2, 3)
    assert real.record(2, True) and real.record(2, True)
    assert not real.record(2, False) and real.is_won()
    no = election(1, 2, 3)
    assert no.record(2, False) and no.record(2, False)
    assert not no.record(2, True) and no.rejected == {2}
    pre = election(1, 2, 3, may_flip=True)
    assert pre.record(2, True) and pre.record(2, False)
    assert pre.rejected == {2} and pre.granted == {1}


# covers: testCannotGrantOrRejectNonVoters, testCannotRejectVoteFromLocalId
def test_votes_of_non_voters_and_against_oneself_do_not_count() -> None:
    it = election(1, 2, 3, may_flip=True)
    assert not it.record(9, True) and not it.record(1, False)
    assert it.granted == {1}


# covers: testInvalidVoterSet
def test_whoever_is_no_voter_has_no_vote() -> None:
    """A replica whose removal is not committed may have the only log that can lead."""
    it = Election(VoterSet.of(2, 3), key(1), False, False)
    assert it.granted == set() and it.unrecorded() == (2, 3)
    assert it.record(2, True) and not it.is_won()
    assert it.record(3, True) and it.is_won()


def test_another_voter_set_counts_in_the_middle_of_an_election() -> None:
    it = election(1, 2, 3)
    assert it.record(2, True) and it.is_won()
    it.adopt(VoterSet.of(1, 3, 4, 5), key(1))
    assert it.granted == {1} and it.needed == 3 and not it.is_won()
    it.adopt(VoterSet.of(3), key(1))
    assert it.granted == set() and it.unrecorded() == (3,)


def test_a_unanimous_election_needs_everybody() -> None:
    it = election(1, 2, 3, unanimous=True)
    assert it.record(2, True) and not it.is_won()
    assert it.record(3, True) and it.is_won()
    lost = election(1, 2, 3, unanimous=True)
    assert lost.record(2, False) and lost.is_lost()


def test_a_vote_that_flips_is_ignored_by_a_candidate() -> None:
    it = candidate(epoch=5)
    current = it._state.current
    assert isinstance(current, Candidate)
    no = msg.VoteResponse(leader_epoch=5, vote_granted=False)
    it.step(ev.ResponseReceived(2, correlation_of(it, 2), no), 0)
    yes = msg.VoteResponse(leader_epoch=5, vote_granted=True)
    it._state.peers.sent(2, 0)
    it.step(ev.ResponseReceived(2, correlation_of(it, 2), yes), 0)
    assert it.role == "candidate"


# --- voter sets -------------------------------------------------------------------------------


# covers: testIsVoterWithDirectoryId, testIsVoterWithoutDirectoryId
def test_a_voter_with_a_directory_is_only_that_directory() -> None:
    voters = VoterSet([Voter(1, directory(1)), Voter(2)])
    assert voters.is_voter(key(1)) and not voters.is_voter(ReplicaKey(1, b"z" * 16))
    assert not voters.is_voter(ReplicaKey(1))
    assert voters.is_voter(key(2)) and voters.is_voter(ReplicaKey(2))
    assert not voters.is_voter(key(3))
    assert voters.is_only_voter(key(1)) is False
    assert VoterSet([Voter(1, directory(1))]).is_only_voter(key(1))


def test_ranks_leave_the_dead_out() -> None:
    voters = VoterSet.of(3, 5, 8)
    assert [voters.rank(id, without=3) for id in (5, 8)] == [0, 1]
    assert [voters.rank(id, without=8) for id in (3, 5)] == [0, 1]
    assert voters.others(key(5)) == (3, 8)
    assert (VoterSet.of(1).majority, voters.majority, VoterSet.of(1, 2, 3, 4).majority) == (1, 2, 3)


def test_who_forgot_that_it_led_is_elected_again() -> None:
    """Found by a seed: a leader crashed after it had told of itself, before that was written.

    Who followed it named it in every answer, and the answers counted for nothing: with the third
    voter dead nobody was ever elected.
    """
    for directory_id in (ZERO_UUID, directory(1), directory(9)):
        it = started(epoch=5, voted=1, log=((4, 10),))
        it.step(ev.Tick(), 2000)
        identity = msg.UNSAID._replace(directory_id=directory_id)
        answer = msg.VoteResponse(
            leader_id=1, leader_epoch=5, vote_granted=True, leader_identity=identity
        )
        it.step(ev.ResponseReceived(2, correlation_of(it, 2), answer), 2001)
        assert (it.role, it.epoch, it.leader_id) == ("candidate", 6, -1)
        it.check_invariants()
        it.step(ev.ResponseReceived(2, correlation_of(it, 2), answer), 2002)
        assert it.role == "candidate", "that was an answer of the epoch before"


def test_a_later_epoch_in_which_others_follow_this_replica_is_learnt() -> None:
    """L1: its directory is from before that epoch, or a bit was flipped on the way to a follower.

    The other voter had the shorter log, so only this one could be elected; it named this one as the
    leader of its epoch in every answer, and they counted for nothing.
    """
    it = started(epoch=2, voters=VoterSet.of(1, 2), log=((1, 10),))
    it.step(ev.Tick(), 2000)
    assert it.role == "prospective"
    answer = msg.VoteResponse(
        partition_error=ErrorCode.FENCED_LEADER_EPOCH, leader_id=1, leader_epoch=9
    )
    it.step(ev.ResponseReceived(2, correlation_of(it, 2), answer), 2001)
    assert (it.epoch, it.leader_id) == (9, -1)
    it.check_invariants()
    it.step(ev.Tick(), 6000)
    granted = msg.VoteResponse(leader_id=1, leader_epoch=9, vote_granted=True)
    it.step(ev.ResponseReceived(2, correlation_of(it, 2), granted), 6001)
    assert (it.role, it.epoch, it.leader_id) == ("candidate", 10, -1)
    it.check_invariants()


def test_what_is_said_of_the_voters_counts_where_this_id_is_named() -> None:
    """Found by a reviewer: two replaced disks began a second log beside committed records (D23)."""
    for epoch in (0, 5):
        it = started(epoch=epoch)
        identity = msg.LeaderIdentity(directory(9), OffsetAndEpoch(1, 4), True)
        answer = msg.FetchResponse(
            partition_error=ErrorCode.FENCED_LEADER_EPOCH, leader_id=1, leader_epoch=5,
            leader_identity=identity,
        )  # fmt: skip
        asked = it._state.peers.fetching
        assert asked is not None and not it._state.superseded
        it.step(ev.ResponseReceived(asked.id, asked.correlation, answer), 1)
        assert it._state.superseded and it.epoch == 5
        it.check_invariants()
