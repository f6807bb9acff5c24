"""What is said again over one connection: encoded and decoded once, and never another message."""

from __future__ import annotations

from typing import Any

import pytest

from kraftfast.errors import MalformedFrame
from kraftfast.wire import frame
from kraftfast.wire import messages as wire
from kraftfast.wire.messages import ApiKey
from kraftfast.wire.repeated import REMEMBERED_BYTES_MAX, Repeated

BEGIN, DESCRIBE = ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.DESCRIBE_QUORUM


def begin(voter: int = 2, cluster: str = "cluster") -> Any:
    return wire.BeginQuorumEpochRequest(cluster_id=cluster, voter_id=voter, topics=[])


def asked(timeout_ms: int) -> Any:
    kind = wire.DescribeQuorumRequest
    return kind(topics=[], read_barrier=kind.ReadBarrier(timeout_ms=timeout_ms))


def told(offset: int) -> Any:
    return wire.DescribeQuorumResponse(barrier_offset=offset)


REQUESTS = [
    (BEGIN, 1, 1, "a", begin()),
    (BEGIN, 1, 2, "a", begin()),
    (BEGIN, 1, -1, "a", begin(3)),
    (BEGIN, 1, 3, "a", begin()),
    (BEGIN, 1, 4, "another client", begin()),
    (BEGIN, 0, 5, "another client", begin()),
    (BEGIN, 0, 6, None, begin()),
    (DESCRIBE, 2, 7, "a", asked(5)),
    (DESCRIBE, 2, 2**31 - 1, "a", asked(6)),
    (DESCRIBE, 2, 9, "a", asked(6)),
    (DESCRIBE, 1, 10, "a", asked(6)),
    (BEGIN, 1, 11, "a", begin(cluster="c" * REMEMBERED_BYTES_MAX)),
    (BEGIN, 1, 12, "a", begin(cluster="c" * REMEMBERED_BYTES_MAX)),
    (BEGIN, 1, 13, "a", begin()),
]
RESPONSES = [
    (DESCRIBE, 2, 1, told(5)),
    (DESCRIBE, 2, 2, told(5)),
    (DESCRIBE, 2, -7, told(6)),
    (DESCRIBE, 1, 4, told(6)),
    (BEGIN, 1, 5, wire.BeginQuorumEpochResponse(topics=[])),
    (BEGIN, 0, 6, wire.BeginQuorumEpochResponse(topics=[])),
    (BEGIN, 1, 7, wire.BeginQuorumEpochResponse(error_code=3, topics=[])),
    (BEGIN, 1, 8, wire.BeginQuorumEpochResponse(error_code=3, topics=[])),
]


def test_what_is_said_is_what_frame_says() -> None:
    ours, theirs = Repeated(), Repeated()
    for request in REQUESTS:
        data = ours.encode_request(*request)
        assert data == frame.encode_request(*request)
        payload = data[frame.LENGTH_BYTES :]
        header = frame.decode_request_header(payload)
        assert theirs.decode_request(header, payload) == frame.decode_request_body(header, payload)
    for response in RESPONSES:
        data = theirs.encode_response(*response)
        assert data == frame.encode_response(*response)
        api_key, version, payload = *response[:2], data[frame.LENGTH_BYTES :]
        found = ours.decode_response(api_key, version, payload)
        assert found == frame.decode_response(api_key, version, payload)[1]


def test_the_same_bytes_in_another_version_are_another_message() -> None:
    repeated, data = Repeated(), b"\0\5\0\0\0\1\1\0\0\0\0"
    headers = [frame.RequestHeader(BEGIN, version, 1, None, 0) for version in (1, 0)]
    bodies = [repeated.decode_request(header, data) for header in headers]
    assert bodies == [frame.decode_request_body(header, data) for header in headers]
    assert bodies[0] != bodies[1]


def test_what_is_said_again_is_not_worked_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    repeated = Repeated()
    request = repeated.encode_request(BEGIN, 1, 1, "a", begin())[frame.LENGTH_BYTES :]
    header = frame.decode_request_header(request)
    first = repeated.decode_request(header, request)
    answer = wire.BeginQuorumEpochResponse(topics=[])
    response = repeated.encode_response(BEGIN, 1, 1, answer)[frame.LENGTH_BYTES :]
    repeated.decode_response(BEGIN, 1, response)
    for name in ("encode_request", "encode_response", "decode_request_body", "decode_response"):
        monkeypatch.setattr(frame, name, None)
    assert frame.correlation_id(repeated.encode_response(BEGIN, 1, 9, answer)[4:]) == 9
    again = repeated.encode_request(BEGIN, 1, 10, "a", begin())[frame.LENGTH_BYTES :]
    header = frame.decode_request_header(again)
    assert header.correlation_id == 10
    assert repeated.decode_request(header, again) is first
    assert repeated.decode_response(BEGIN, 1, (11).to_bytes(4, "big") + response[4:]) == answer


def test_what_does_not_decode_is_refused_each_time() -> None:
    repeated = Repeated()
    data = frame.encode_response(BEGIN, 1, 1, wire.BeginQuorumEpochResponse(topics=[]))
    payload = data[frame.LENGTH_BYTES :]
    for _ in range(2):
        repeated.decode_response(BEGIN, 1, payload)
        with pytest.raises(MalformedFrame):
            repeated.decode_response(BEGIN, 1, payload[:-1])
        with pytest.raises(MalformedFrame):
            repeated.decode_response(BEGIN, 1, payload[:2])


def test_nothing_else_and_nothing_large_is_remembered() -> None:
    repeated = Repeated()
    large = begin(cluster="c" * REMEMBERED_BYTES_MAX)
    other = wire.DescribeClusterRequest(endpoint_type=2)
    for api_key, version, body in ((BEGIN, 1, large), (ApiKey.DESCRIBE_CLUSTER, 1, other)):
        payload = repeated.encode_request(api_key, version, 1, "a", body)[frame.LENGTH_BYTES :]
        repeated.decode_request(frame.decode_request_header(payload), payload)
    assert not repeated._sent and not repeated._came
