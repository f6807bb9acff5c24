"""An admin whose leader is a Kafka controller, which knows nothing of our additions."""

from __future__ import annotations

from typing import Any

import pytest

from kraftfast.client.admin.admin import Admin
from kraftfast.client.client_host import HOST
from kraftfast.errors import UnsupportedVersion
from kraftfast.types import METADATA_TOPIC
from kraftfast.wire import messages as wire
from kraftfast.wire.messages import ApiKey


class KafkaLeader:
    """A way to a leader that answers without our tagged fields."""

    topic, host = METADATA_TOPIC, HOST

    def to_leader(self, _deadline: float) -> KafkaLeader:
        return self

    def likely(self, _deadline: float) -> KafkaLeader:
        return self

    def ask(self, api_key: int, *_question: Any) -> Any:
        if api_key == ApiKey.ALTER_PARTITION_REASSIGNMENTS:
            return wire.AlterPartitionReassignmentsResponse(error_code=0)
        kind = wire.DescribeQuorumResponse
        part = kind.Partition(partition_index=0, leader_id=1, leader_epoch=3)
        return kind(topics=[kind.Topic(topic_name=self.topic, partitions=[part])])

    def learn_leader(self, _leader_id: int) -> None:
        pass

    def close(self) -> None:
        pass


def test_a_leader_that_cannot_hand_over_says_so() -> None:
    with pytest.raises(UnsupportedVersion, match="hand over"):
        Admin(KafkaLeader()).transfer(2, timeout=1)
