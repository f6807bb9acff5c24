"""Where a follower looks for its leader: what it was told may be older than what it is told now."""

from __future__ import annotations

from typing import Any

from kraftfast.core import effects as fx
from kraftfast.core import events as ev
from kraftfast.core import messages as msg
from kraftfast.core.config import QuorumConfig
from kraftfast.core.replica import Replica
from kraftfast.errors import ErrorCode
from kraftfast.types import Endpoint, VoterSet
from tests.core.replicas import correlation_of, leader, replica, started


def follower_told_of(at: tuple[Endpoint, ...]) -> Replica:
    """Return an observer that follows replica 5 in epoch 7, and was told that it is ``at``."""
    it = replica(9, VoterSet(), config=QuorumConfig(bootstrap_ids=(-2, -3)))
    it.start(0)
    it.step(ev.ResponseReceived(-2, correlation_of(it, -2), names_leader(at)), 1)
    assert it.role == "follower"
    return it


def names_leader(at: tuple[Endpoint, ...]) -> msg.FetchResponse:
    return msg.FetchResponse(
        partition_error=ErrorCode.NOT_LEADER_OR_FOLLOWER,
        leader_id=5,
        leader_epoch=7,
        leader_endpoints=at,
    )


OLD_PLACE = (Endpoint("CONTROLLER", "before", 9093),)
NEW_PLACE = (Endpoint("CONTROLLER", "now", 9093),)


def moves(effects: list[Any]) -> list[Any]:
    return [each for each in effects if type(each) in (fx.LeaderMoved, fx.RoleChanged)]


def test_a_leader_that_is_not_where_one_said_is_looked_for_where_another_says() -> None:
    """It was told of by a replica with an old voter set, and leads for long (L1)."""
    it = follower_told_of(OLD_PLACE)
    due_ms = it._state.follower.fetch_deadline_ms
    failed = ev.RequestFailed(5, correlation_of(it, 5), ErrorCode.BROKER_NOT_AVAILABLE)
    asked = [each for each in it.step(failed, 2) if type(each) is fx.Send]
    for ms in range(3, 5_000):
        if asked:
            break
        asked = [each for each in it.step(ev.Tick(), ms) if type(each) is fx.Send]
    told = ev.ResponseReceived(asked[0].peer_id, asked[0].correlation, names_leader(NEW_PLACE))
    assert asked[0].peer_id < 0 and moves(it.step(told, 5_001)) == [fx.LeaderMoved(5, NEW_PLACE)]
    assert it._state.follower.fetch_deadline_ms == due_ms, "no timer begins anew"
    assert it.describe(5_002).leader_id == 5


def test_a_leader_in_reach_is_not_looked_for_where_others_say() -> None:
    """What others say may be older; what it says itself, or whoever is in its place, is not."""
    it = follower_told_of(NEW_PLACE)
    it.step(ev.LinkUp(5), 2)
    told = msg.QuorumEpochResponse(
        leader_id=5, leader_epoch=7, leader_endpoints=OLD_PLACE
    )  # to what was asked before
    assert moves(it.step(ev.ResponseReceived(2, 0, told), 3)) == []
    assert it._state.leader_endpoints == NEW_PLACE


def test_a_leader_says_itself_where_it_is() -> None:
    it = follower_told_of(OLD_PLACE)
    it.step(ev.LinkUp(5), 2)  # another replica has its old place
    answer = ev.ResponseReceived(5, correlation_of(it, 5), names_leader(NEW_PLACE))
    assert moves(it.step(answer, 3)) == [fx.LeaderMoved(5, NEW_PLACE)]
    request = msg.BeginQuorumEpochRequest(7, 5, leader_endpoints=OLD_PLACE)
    assert moves(it.step(ev.RequestReceived("s", request), 4)) == [fx.LeaderMoved(5, OLD_PLACE)]
    silent = msg.BeginQuorumEpochRequest(7, 5)
    assert moves(it.step(ev.RequestReceived("s", silent), 5)) == [], "it says nothing of it"


def test_a_leader_is_shown_while_it_answers() -> None:
    """Not to itself while others could lead, and not a dead one that is followed once more."""
    it = started(epoch=5, leader=2)
    assert (it.role, it.leader_id, it.heard_leader_id) == ("follower", 2, -1)
    good = msg.FetchResponse(leader_id=2, leader_epoch=5, high_watermark=0)
    it.step(ev.ResponseReceived(2, correlation_of(it, 2), good), 0)
    assert it.heard_leader_id == 2
    it.step(ev.Tick(), 2000)
    assert (it.role, it.leader_id, it.heard_leader_id) == ("prospective", 2, -1)
    for other in (2, 3):
        no = msg.VoteResponse(leader_id=2, leader_epoch=5)
        it.step(ev.ResponseReceived(other, correlation_of(it, other), no), 2000)
    assert (it.role, it.leader_id, it.heard_leader_id) == ("follower", 2, -1)
    assert leader().heard_leader_id == 1
    resigned = started(epoch=5, leader=1)
    assert (resigned.role, resigned.leader_id, resigned.heard_leader_id) == ("resigned", 1, -1)
