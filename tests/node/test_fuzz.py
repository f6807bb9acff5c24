"""Any request that decodes is answered, whatever it says; any other ends its own connection.

Every request of every version that a replica serves, with values from the field tables: names,
ids and epochs of this quorum among them, so that it gets past the first checks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kraftfast.errors import ErrorCode, KraftfastError, PeerError
from kraftfast.node.tcp.sockets import SERVED_HERE
from kraftfast.types import METADATA_TOPIC, METADATA_TOPIC_ID
from kraftfast.wire import frame
from kraftfast.wire.messages import REQUESTS, ApiKey, ApiVersionsRequest, ProduceRequest
from kraftfast.wire.versions import SERVED
from tests.node.inside import Inside
from tests.wire.strategies import messages

EXAMPLES = 4
AT_ALL_EVENTS = ("host", "port", "timeout_ms", "max_wait_ms")
"""Fields that are never left to chance: where the replica connects to, and how long it waits."""
ANSWER_BYTES_MAX = 64 * 1024
ALL = [
    (api_key, version)
    for api_key in sorted(SERVED_HERE)
    for version in range(SERVED[api_key].first, SERVED[api_key].last + 1)
]
LAST = frame.encode_request(ApiKey.API_VERSIONS, 0, 78, "fuzz", ApiVersionsRequest())
quick = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


class Replicas:
    """One that leads, and one that cannot; made again when a request has moved them."""

    def __init__(self, path: Path) -> None:
        self.path, self.made = path, 0
        self.standing: dict[int, Inside] = {}

    def get(self, voters: int) -> Inside:
        """A replica of ``voters``; of one it leads."""
        found = self.standing.get(voters)
        if found is not None and not found.node.stopped:
            if voters > 1 or found.node.core.role == "leader":
                return found
        self.drop(voters)
        self.made += 1
        self.standing[voters] = Inside(self.path / str(self.made), voters)
        return self.standing[voters]

    def drop(self, voters: int) -> None:
        found = self.standing.pop(voters, None)
        if found is not None:
            found.close()


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    made = Replicas(tmp_path_factory.mktemp("fuzz"))
    yield made
    for voters in list(made.standing):
        made.drop(voters)


class Plausible:
    """Puts values of the quorum where they may stand; ``draw`` decides about each."""

    def __init__(self, data: Any, replica: Inside) -> None:
        self.data, core = data, replica.node.core
        partition = replica.node.partition
        assert (partition.topic, partition.topic_id) == (METADATA_TOPIC, METADATA_TOPIC_ID)
        ends = [0, replica.node.log.end_offset, core.high_watermark]
        epochs = [core.epoch, core.epoch + 1, -1, 0]
        self.values: dict[str, list[Any]] = {
            "cluster_id": [replica.cluster_id],
            "topic_name": [METADATA_TOPIC],
            "topic": [METADATA_TOPIC],
            "name": [METADATA_TOPIC, "CONTROLLER", "kraft.version"],
            "feature": ["kraft.version"],
            "topic_id": [METADATA_TOPIC_ID],
            "partition_index": [0],
            "partition": [0],
            "index": [0],
            "host": ["127.0.0.1", ""],
            "port": [0, 1],
            "voter_id": [1, 2, -1],
            "replica_id": [1, 2, 9, -1],
            "leader_id": [1, 2, -1],
            "candidate_id": [1, 2],
            "broker_id": [1],
            "node_id": [1, -1],
            "voter_directory_id": [replica.directory_id, bytes(16)],
            "replica_directory_id": [replica.directory_id, bytes(16)],
            "candidate_directory_id": [replica.directory_id, bytes(16)],
            "fetch_offset": ends,
            "last_offset": ends,
            "position": [0],
            "timestamp": [-6, -5, -4, -3, -2, -1, 0],
            "timeout_ms": [0, 1],
            "max_wait_ms": [0, 1],
            "acks": [-1, 0, 1],
            "max_version_level": [0, 1, 2],
            "upgrade_type": [1],
            "transfer_to": [-2, -1, 1, 9],
            "replicas": [[1], [1, 2], [], None],
        }
        for name in ("current_leader_epoch", "leader_epoch", "replica_epoch", "epoch"):
            self.values[name] = epochs
        self.values["last_fetched_epoch"] = self.values["last_offset_epoch"] = epochs

    def settle(self, value: Any) -> None:
        """Change a message in place."""
        for name in value.__struct_fields__:
            own = getattr(value, name)
            if isinstance(own, msgspec.Struct):
                self.settle(own)
            elif isinstance(own, list) and own and isinstance(own[0], msgspec.Struct):
                if self.data.draw(st.integers(0, 3)):
                    del own[1:]
                for each in own:
                    self.settle(each)
            elif name in AT_ALL_EVENTS or (
                name in self.values and self.data.draw(st.integers(0, 4))
            ):
                setattr(value, name, self.data.draw(st.sampled_from(self.values[name])))


def a_frame(data: Any, replica: Inside, api_key: int, version: int) -> bytes:
    """A request that its version can say."""
    body = data.draw(messages(REQUESTS[api_key], version))
    Plausible(data, replica).settle(body)
    try:
        return frame.encode_request(api_key, version, 77, "fuzz", body)
    except KraftfastError:  # null where this version has none
        body = data.draw(messages(REQUESTS[api_key], version))
        return frame.encode_request(api_key, version, 77, "fuzz", body)


def waits_for_answer(asked: bytes) -> bool:
    """Whether a request is to be answered."""
    header = frame.decode_request_header(asked[4:])
    if header.api_key != ApiKey.PRODUCE:
        return True
    message: Any = frame.decode_request_body(header, asked[4:])
    return bool(message.acks != 0)


def asks_to_wait(asked: bytes) -> bool:
    """Return whether a request is to wait for long at a replica without a leader, if it can say."""
    with suppress(KraftfastError):
        header = frame.decode_request_header(asked[4:])
        message: Any = frame.decode_request_body(header, asked[4:])
        barrier = getattr(message, "read_barrier", None)
        return barrier is not None and barrier.timeout_ms > 1_000
    return False


def check_answer(replica: Inside, api_key: int, version: int, answer: bytes) -> None:
    """It is framed, of this request, and of a size that nobody could amplify with."""
    assert len(answer) <= ANSWER_BYTES_MAX
    served = version
    if api_key == ApiKey.API_VERSIONS and answer[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2):
        served = 0
    number, _ = frame.decode_response(api_key, served, answer)
    assert number == 77


def only_refusals(replica: Inside) -> None:
    """What sessions raised was all about bytes of the other side."""
    raised, replica.raised[:] = list(replica.raised), []
    for error in raised:
        assert isinstance(error, PeerError), repr(error)


@pytest.mark.parametrize(("api_key", "version"), ALL)
@pytest.mark.parametrize("voters", [1, 3], ids=["leader", "no leader"])
@quick
@given(data=st.data())
def test_whatever_a_request_says(
    replicas: Replicas, voters: int, api_key: int, version: int, data: Any
) -> None:
    replica = replicas.get(voters)
    with replica.connect() as sock:
        asked = a_frame(data, replica, api_key, version)
        answers = replica.answers(sock, asked + LAST, 78)
        only_refusals(replica)
        if not waits_for_answer(asked):
            assert len(answers) < 2, "acks=0 has no answer; an error ends the connection"
            return
        assert len(answers) == 2, "hung up on what decodes"
        check_answer(replica, api_key, version, answers[0])
    assert not replica.node.lost


@pytest.mark.parametrize("voters", [1, 3], ids=["leader", "no leader"])
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_whatever_bytes_a_request_has(replicas: Replicas, voters: int, data: Any) -> None:
    """A byte here and there is another: answered or hung up on."""
    api_key, version = data.draw(st.sampled_from(ALL))
    replica = replicas.get(voters)
    asked = bytearray(a_frame(data, replica, api_key, version))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(4, len(asked) - 1))
        asked[at] = data.draw(st.sampled_from([0, 1, 2, 127, 128, 255]))
    assume(not asks_to_wait(bytes(asked)))
    with replica.connect() as sock:
        for answer in replica.answers(sock, bytes(asked) + LAST, 78):
            assert len(answer) <= ANSWER_BYTES_MAX
    only_refusals(replica)
    assert not replica.node.lost


@pytest.mark.parametrize("version", range(3, 14))
def test_a_replica_that_does_not_lead_says_so_in_every_version(
    replicas: Replicas, version: int
) -> None:
    replica, kind = replicas.get(3), ProduceRequest
    named = {"topic_id": METADATA_TOPIC_ID} if version >= 13 else {"name": METADATA_TOPIC}
    topic = kind.TopicData(**named, partition_data=[kind.PartitionData(index=0, records=b"")])
    request = kind(acks=-1, timeout_ms=0, topic_data=[topic])
    with replica.connect() as sock:
        asked = frame.encode_request(ApiKey.PRODUCE, version, 77, "client", request)
        answers = replica.answers(sock, asked + LAST, 78)
    only_refusals(replica)
    _, answer = frame.decode_response(ApiKey.PRODUCE, version, answers[0])
    (response,) = answer.responses[0].partition_responses
    assert response.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
