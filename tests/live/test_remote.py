"""What a leader tells of its quorum, as samples."""

from __future__ import annotations

import pytest

from kraftfast.client.admin.quorum_info import QuorumInfo, ReplicaState
from kraftfast.errors import NoQuorum
from kraftfast.live import remote_status
from kraftfast.live.readiness import why_not_ready
from kraftfast.live.remote_status import RemotePages, samples_of
from kraftfast.types import ZERO_UUID
from tests.live.kit import wait_until

NOW_MS = 1_000_000


def replica(id: int, end_offset: int, fetched_ms: int = NOW_MS) -> ReplicaState:
    return ReplicaState(id, ZERO_UUID, end_offset, fetched_ms, fetched_ms)


INFO = QuorumInfo(
    1,
    7,
    90,
    (replica(3, 80, NOW_MS - 10_001), replica(1, 100), replica(2, 80, NOW_MS - 9_999)),
    (replica(9, 5, -1),),
)


def test_each_replica_by_its_id() -> None:
    samples = samples_of(INFO)
    assert [each.id for each in samples] == [1, 2, 3, 9]
    assert [each.role for each in samples] == ["leader", "follower", "stopped", "stopped"]
    assert [each.error for each in samples[2:]] == [
        "it has not fetched for 10 s",
        "it has not fetched from this leader",
    ]
    assert [each.lag_records for each in samples[:2]] == [0, 10]
    assert why_not_ready(samples[1]) == "" and why_not_ready(samples[0]) == ""
    assert samples[0].words["high_watermark"] == 90 and samples[0].words["epoch"] == 7


def test_a_quorum_that_does_not_answer_is_down_until_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote_status, "ASK_S", 0.01)
    answers = True

    def describe(_timeout: float) -> QuorumInfo:
        if not answers:
            raise NoQuorum("no server answers")
        return INFO

    with RemotePages(describe, 1.0) as pages:
        assert pages.samples()[0].up
        answers = False
        wait_until(lambda: not pages.samples()[0].up)
        assert pages.samples()[0].error == "no server answers"
        answers = True
        wait_until(lambda: pages.samples()[0].up)


def test_the_first_answer_must_come() -> None:
    def describe(_timeout: float) -> QuorumInfo:
        raise NoQuorum("no server answers")

    with pytest.raises(NoQuorum):
        RemotePages(describe, 1.0)
