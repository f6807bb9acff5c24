"""A change of the voters is done once it is committed, also where its answer was lost."""

from __future__ import annotations

from typing import Any

import pytest

from kraftfast.client.admin.admin import Admin
from kraftfast.client.host import HOST
from kraftfast.errors import ErrorCode, PeerGone, RequestRefused
from kraftfast.wire.messages import (
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
