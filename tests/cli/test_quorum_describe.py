"""``kraftfast quorum describe`` against what Kafka's own tool printed of the same quorums."""

from __future__ import annotations

import pytest

from kraftfast.cli.quorum.describe import replication_text, status_text
from kraftfast.client.admin.quorum_info import QuorumInfo, ReplicaState
from kraftfast.types import ZERO_UUID, Endpoint, uuid_from_text

# golden/tools/dynamic-4.3.0/21-leader-removed-status.txt and 01-observers-status.txt
STATUS = """\
ClusterId:              Z29sZGVuLWR5bmFtaWM0Mw
LeaderId:               4
LeaderEpoch:            5
HighWatermark:          117
MaxFollowerLag:         0
MaxFollowerLagTimeMs:   126
CurrentVoters:          [{"id": 3, "directoryId": "T4cwf6JzC5iQVwEErlvjag", "endpoints": \
["CONTROLLER://127.0.0.1:22113"]}, {"id": 4, "directoryId": "eO3-McUUCP6RW2Ep7dcy1Q", \
"endpoints": ["CONTROLLER://127.0.0.1:22104"]}]
CurrentObservers:       []
"""
# golden/tools/dynamic-4.3.0/02-observers-replication.txt
REPLICATION = """\
NodeId\tDirectoryId           \tLogEndOffset\tLag\tLastFetchTimestamp\tLastCaughtUpTimestamp\t\
Status  \t
1     \tySWdiugrS3GB-HBRouTS2w\t29          \t0  \t1795265180117     \t1795265180117        \t\
Leader  \t
2     \t0yQRfqPAxZCu9iOE4mLQNg\t29          \t0  \t1795265180105     \t1795265180105        \t\
Observer\t
3     \tT4cwf6JzC5iQVwEErlvjag\t29          \t0  \t1795265180105     \t1795265180105        \t\
Observer\t
"""


def replica(id: int, directory: str, end: int, at_ms: int, port: int = 0) -> ReplicaState:
    places = (Endpoint("CONTROLLER", "127.0.0.1", port),) if port else ()
    directory_id = uuid_from_text(directory) if directory else ZERO_UUID
    return ReplicaState(id, directory_id, end, at_ms, at_ms, places)


def test_status_is_kafkas() -> None:
    info = QuorumInfo(
        4, 5, 117,
        (
            replica(3, "T4cwf6JzC5iQVwEErlvjag", 117, 1000, 22113),
            replica(4, "eO3-McUUCP6RW2Ep7dcy1Q", 117, 1126, 22104),
        ),
        (),
    )  # fmt: skip
    assert status_text("Z29sZGVuLWR5bmFtaWM0Mw", info) == STATUS


def test_replication_is_kafkas() -> None:
    info = QuorumInfo(
        1, 1, 28,
        (replica(1, "ySWdiugrS3GB-HBRouTS2w", 29, 1795265180117),),
        (
            replica(2, "0yQRfqPAxZCu9iOE4mLQNg", 29, 1795265180105),
            replica(3, "T4cwf6JzC5iQVwEErlvjag", 29, 1795265180105),
        ),
    )  # fmt: skip
    assert replication_text(info, None) == REPLICATION
    told = replication_text(info, 1795265180120)
    assert "3 ms ago " in told and "15 ms ago" in told


@pytest.mark.parametrize(
    ("voters", "leader", "lag", "lag_ms"),
    [
        ((replica(1, "", 9, 50), replica(2, "", 4, 20)), 1, 5, 30),
        ((replica(1, "", 9, 50), replica(2, "", 9, 20)), 1, 0, 0),  # the leader is the last one
        ((replica(1, "", 9, 50), replica(2, "", -1, -1)), 1, 10, -1),
        ((replica(1, "", 9, 50),), 3, -1, -1),  # who leads is not told
    ],
)
def test_lag(voters: tuple[ReplicaState, ...], leader: int, lag: int, lag_ms: int) -> None:
    told = status_text("c", QuorumInfo(leader, 1, 4, voters, ()))
    assert f"MaxFollowerLag:         {lag}\nMaxFollowerLagTimeMs:   {lag_ms}\n" in told
    assert 'CurrentVoters:          [{"id": 1}' in told


def test_a_reassignment_has_lines_of_its_own() -> None:
    info = QuorumInfo(1, 1, 4, (replica(1, "", 9, 50),), (), (4, 5), (6,))
    assert status_text("c", info).endswith(
        "TargetVoters:           [4, 5]\nEndedTarget:            [6]\n"
    )
    never = QuorumInfo(1, 1, 4, (replica(1, "", 9, 50),), (replica(2, "", -1, -1),))
    assert "\t-1                \t-1                   \tObserver\t" in replication_text(never, 99)
