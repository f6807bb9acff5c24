"""A change of the voters is done once it is committed, also where its answer was lost."""

from __future__ import annotations

from typing import Any

import pytest

from kraftfast.client.admin.admin import Admin
from kraftfast.client.client_host import HOST
from kraftfast.errors import ErrorCode, PeerGone, RequestRefused, TimedOut
from kraftfast.wire.messages import (
    AlterPartitionReassignmentsResponse,
    ApiKey,
    DescribeQuorumResponse,
    RemoveRaftVoterResponse,
)

TOPIC = "__cluster_metadata"
PLACE = DescribeQuorumResponse


class Leader:
    """Removes voter 2, and loses its first answer; commits that at once or never."""

    topic, host = TOPIC, HOST

    def __init__(self, commits: bool) -> None:
        self.commits, self.asked = commits, 0

    def to_leader(self, _deadline: float) -> Leader:
        return self

    def likely(self, _deadline: float) -> None:
        return None

    def learn_leader(self, _leader_id: int) -> None:
        pass

    def close(self) -> None:
        pass

    def ask(self, api_key: int, _body: Any, _deadline: float, _most: int | None = None) -> Any:
        if api_key == ApiKey.DESCRIBE_QUORUM:
            voters = [PLACE.CurrentVoter(replica_id=id) for id in (1, 3)]
            part = PLACE.Partition(current_voters=voters, uncommitted_voters=not self.commits)
            return PLACE(topics=[PLACE.Topic(topic_name=TOPIC, partitions=[part])])
        self.asked += 1
        if self.asked == 1:
            raise PeerGone("it went")
        return RemoveRaftVoterResponse(error_code=ErrorCode.VOTER_NOT_FOUND)


def test_a_removal_whose_answer_was_lost_is_done_once_it_is_committed() -> None:
    Admin(Leader(commits=True)).remove_voter(2, b"d" * 16, timeout=5)


def test_a_removal_that_is_not_committed_is_not_done() -> None:
    leader = Leader(commits=False)
    with pytest.raises(RequestRefused):
        Admin(leader).remove_voter(2, b"d" * 16, timeout=5)
    assert leader.asked == 2, "it was asked again"


class HandingOver(Leader):
    """Replica 1, which leads epoch 5, hands over to 2 as it was asked, and its answer is lost."""

    def __init__(self) -> None:
        super().__init__(commits=True)

    def ask(self, api_key: int, body: Any, _deadline: float, _most: int | None = None) -> Any:
        if api_key == ApiKey.DESCRIBE_QUORUM:
            leader = (2, 6) if self.asked else (1, 5)
            part = PLACE.Partition(leader_id=leader[0], leader_epoch=leader[1])
            return PLACE(topics=[PLACE.Topic(topic_name=TOPIC, partitions=[part])])
        self.asked += 1
        if self.asked == 1:
            raise PeerGone("it went")
        refused = body.transfer_to == 2
        code = ErrorCode.VOTER_NOT_FOUND if refused else ErrorCode.NONE
        return AlterPartitionReassignmentsResponse(error_code=code, transfer_to=-1)


@pytest.mark.parametrize("to", [2, None])
def test_a_transfer_whose_answer_was_lost_is_not_asked_for_again(to: int | None) -> None:
    """The next leader was asked to hand over to itself, and refused; or led for a moment alone."""
    leader = HandingOver()
    assert Admin(leader).transfer(to, timeout=5) == 2
    assert leader.asked == 1


def test_a_voter_that_leads_by_the_time_it_is_asked_has_been_handed_leadership() -> None:
    """Elected between the look at who leads and the request, it refuses: it is no other voter."""

    class Elected(HandingOver):
        def ask(self, api_key: int, body: Any, _deadline: float, _most: int | None = None) -> Any:
            if api_key != ApiKey.DESCRIBE_QUORUM:
                self.asked = max(self.asked, 1)
            return super().ask(api_key, body, _deadline, _most)

    assert Admin(Elected()).transfer(2, timeout=5) == 2


def test_a_leader_that_was_elected_again_is_asked_again() -> None:
    class Elected(HandingOver):
        def ask(self, api_key: int, body: Any, _deadline: float, _most: int | None = None) -> Any:
            if api_key == ApiKey.DESCRIBE_QUORUM and self.asked == 1:
                part = PLACE.Partition(leader_id=1, leader_epoch=6)
                return PLACE(topics=[PLACE.Topic(topic_name=TOPIC, partitions=[part])])
            return super().ask(api_key, body, _deadline, _most)

    leader = Elected()
    assert Admin(leader).transfer(timeout=5) == 2
    assert leader.asked == 2


@pytest.mark.parametrize("to, who", [(2, 3), (2, 1), (None, 1)])
def test_a_transfer_that_leads_to_another_leader_is_told(to: int | None, who: int) -> None:
    """It was told as done, and who relied on that stopped the leader."""

    class Elected(HandingOver):
        def ask(self, api_key: int, body: Any, _deadline: float, _most: int | None = None) -> Any:
            if api_key == ApiKey.DESCRIBE_QUORUM:
                leader = (who, 6) if self.asked else (1, 5)
                part = PLACE.Partition(leader_id=leader[0], leader_epoch=leader[1])
                return PLACE(topics=[PLACE.Topic(topic_name=TOPIC, partitions=[part])])
            self.asked += 1
            return AlterPartitionReassignmentsResponse(transfer_to=-1)

    with pytest.raises(TimedOut, match=f"was not elected: {who} leads"):
        Admin(Elected()).transfer(to, timeout=5)
