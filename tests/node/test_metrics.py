"""Kafka's metrics under Kafka's names, as ``status`` tells them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from kraftfast.client.local_socket import ask
from kraftfast.node.metrics import current_state
from kraftfast.quorum import LocalQuorum

RAFT, CONTROLLER = "kafka.server:type=raft-metrics", "kafka.controller:type=KafkaController"
EVERYWHERE = {
    "current-state", "current-leader", "current-vote", "current-vote-directory-id",
    "current-epoch", "high-watermark", "log-end-offset", "log-end-epoch",
    "number-unknown-voter-connections", "number-of-voters", "commit-latency-avg",
    "commit-latency-max", "election-latency-avg", "election-latency-max", "fetch-records-rate",
    "append-records-rate", "poll-idle-ratio-avg",
}  # fmt: skip
LEADER_ONLY = {"number-of-observers", "uncommitted-voter-change"}


def metrics(directory: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = ask(directory, {"kind": "status"})["metrics"]
    return found


# covers: testMetrics
def test_leader_and_followers_tell_what_they_did(tmp_path: Path) -> None:
    with LocalQuorum(str(tmp_path), voters=3) as quorum, quorum.producer() as producer:
        for _ in range(20):
            end = producer.append_wait(b"x" * 100, timeout=20) + 1
        leader_id = metrics(quorum.directories[1])[RAFT]["current-leader"]
        of = {id: metrics(directory) for id, directory in quorum.directories.items()}
        lead = of[leader_id][RAFT]
        assert set(lead) == EVERYWHERE | LEADER_ONLY
        assert lead["current-state"] == "leader" and lead["current-vote"] == leader_id
        assert lead["high-watermark"] == lead["log-end-offset"] == end
        assert lead["log-end-epoch"] == lead["current-epoch"] >= 1
        assert lead["append-records-rate"] > 0 == lead["fetch-records-rate"]
        assert 0 < lead["commit-latency-avg"] <= lead["commit-latency-max"] * 1.02
        assert 0 < lead["election-latency-avg"] <= lead["election-latency-max"]
        assert 0 < lead["poll-idle-ratio-avg"] <= 1
        assert (lead["number-of-voters"], lead["number-of-observers"]) == (3, 0)
        assert of[leader_id][CONTROLLER]["ActiveControllerCount"] == 1
        assert of[leader_id][CONTROLLER]["NewActiveControllersCount"] == 1
        assert of[leader_id][CONTROLLER]["LastCommittedRecordOffset"] == end - 1
        for id in set(of) - {leader_id}:
            follower = of[id][RAFT]
            assert set(follower) == EVERYWHERE
            assert follower["current-state"] == "follower"
            assert follower["fetch-records-rate"] > 0 == follower["append-records-rate"]
            assert follower["commit-latency-avg"] is None
            assert of[id][CONTROLLER]["ActiveControllerCount"] == 0
        quorum.add_replica()
        deadline = time.monotonic() + 20
        while metrics(quorum.directories[leader_id])[RAFT]["number-of-observers"] != 1:
            assert time.monotonic() < deadline, "the observer is not counted"
            time.sleep(0.02)


@pytest.mark.parametrize(
    ("role", "voted", "voter", "word"),
    [
        ("leader", False, True, "leader"),
        ("leader", False, False, "leader"),  # one that removed itself, until that is committed
        ("candidate", True, True, "candidate"),
        ("prospective", False, True, "prospective"),
        ("prospective", True, True, "prospective-voted"),
        ("unattached", True, True, "unattached-voted"),
        ("follower", True, True, "follower"),
        ("follower", False, False, "observer"),
        ("unattached", False, False, "observer"),
        ("resigned", False, True, "unattached"),
    ],
)
def test_states_have_kafkas_words(role: str, voted: bool, voter: bool, word: str) -> None:
    assert current_state(role, voted, voter) == word
