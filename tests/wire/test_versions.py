"""Which versions, and the rules of ApiVersions."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftfast.errors import ErrorCode, UnsupportedVersion
from kraftfast.wire import frame
from kraftfast.wire.messages import ApiKey, ApiVersionsRequest, ApiVersionsResponse
from kraftfast.wire.notation import Versions
from kraftfast.wire.versions import (
    SERVED,
    api_versions_refusal,
    api_versions_response,
    negotiate,
    offered_versions,
)

FEATURES = {"kraft.version": Versions(0, 1), "metadata.version": Versions(7, 29)}


def test_what_we_serve() -> None:
    assert {ApiKey(key).name: str(versions) for key, versions in SERVED.items()} == {
        "PRODUCE": "3-13", "FETCH": "4-18", "LIST_OFFSETS": "1-11", "METADATA": "0-13",
        "OFFSET_FETCH": "1-5", "FIND_COORDINATOR": "0-6",
        "SASL_HANDSHAKE": "0-1", "API_VERSIONS": "0-5", "INIT_PRODUCER_ID": "0-5",
        "OFFSET_FOR_LEADER_EPOCH": "2-4",
        "SASL_AUTHENTICATE": "0-2", "ALTER_PARTITION_REASSIGNMENTS": "0-1",
        "LIST_PARTITION_REASSIGNMENTS": "0", "VOTE": "0-2", "BEGIN_QUORUM_EPOCH": "0-1",
        "END_QUORUM_EPOCH": "0-1", "DESCRIBE_QUORUM": "0-2", "UPDATE_FEATURES": "0-2",
        "FETCH_SNAPSHOT": "0-1", "DESCRIBE_CLUSTER": "0-2", "ADD_RAFT_VOTER": "0-1",
        "REMOVE_RAFT_VOTER": "0", "UPDATE_RAFT_VOTER": "0",
    }  # fmt: skip


def test_negotiation() -> None:
    assert negotiate(ApiKey.VOTE, {52: Versions(0, 1)}) == 1
    assert negotiate(ApiKey.VOTE, {52: Versions(0, 7)}) == 2
    assert negotiate(ApiKey.FETCH, {1: Versions(0, 17)}) == 17
    for theirs in (Versions(3, 4), Versions(1, 0), Versions(-3, -1)):
        with pytest.raises(UnsupportedVersion, match="API 52"):
            negotiate(ApiKey.VOTE, {52: theirs})
    with pytest.raises(UnsupportedVersion, match="none"):
        negotiate(ApiKey.VOTE, {})
    with pytest.raises(UnsupportedVersion):
        negotiate(999, {999: Versions(0, 0)})


def test_the_answer_lists_every_api_and_produce_from_0() -> None:
    answer = api_versions_response(4)
    offered = offered_versions(answer)
    assert offered[ApiKey.PRODUCE] == Versions(0, 13)
    assert {key: v for key, v in offered.items() if key} == {
        key: v for key, v in SERVED.items() if key
    }
    assert [entry.api_key for entry in answer.api_keys] == sorted(SERVED)
    assert negotiate(ApiKey.PRODUCE, offered) == 13
    fewer = api_versions_response(0, {52: Versions(0, 2)})
    assert offered_versions(fewer) == {52: Versions(0, 2)}


def test_features() -> None:
    levels = {"kraft.version": 1, "metadata.version": 29}
    answer = api_versions_response(4, supported=FEATURES, finalized=levels, finalized_epoch=5)
    assert [(f.name, f.min_version, f.max_version) for f in answer.supported_features] == [
        ("kraft.version", 0, 1), ("metadata.version", 7, 29),
    ]  # fmt: skip
    assert [
        (f.name, f.min_version_level, f.max_version_level) for f in answer.finalized_features
    ] == [("kraft.version", 1, 1), ("metadata.version", 29, 29)]
    assert answer.finalized_features_epoch == 5
    # Below v4 a feature that begins at 0 is left out.
    answer = api_versions_response(3, supported=FEATURES)
    assert [f.name for f in answer.supported_features] == ["metadata.version"]
    # kraft.version 0 is not finalized.
    answer = api_versions_response(4, finalized={"kraft.version": 0, "metadata.version": 29})
    assert [f.name for f in answer.finalized_features] == ["metadata.version"]
    for version in range(6):
        assert ApiVersionsResponse.decode(answer.encode(version), version).error_code == 0


@pytest.mark.parametrize("name", ["a", "apache-kafka-java", "lib.rd-kafka2", "9"])
def test_software_names_that_pass(name: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version="4.3.0")
    assert api_versions_refusal(request, 3) == ErrorCode.NONE


@pytest.mark.parametrize("name", ["", "-a", "a-", ".", "a b", "a\n", "ä", "a_b"])
def test_software_names_that_kafka_refuses(name: str) -> None:
    good, bad = "x", name
    for first, second in ((good, bad), (bad, good)):
        request = ApiVersionsRequest(client_software_name=first, client_software_version=second)
        assert api_versions_refusal(request, 3) == ErrorCode.INVALID_REQUEST
        assert api_versions_refusal(request, 2) == ErrorCode.NONE


def test_cluster_and_node_id_come_together() -> None:
    def refusal(version: int, **ids: object) -> ErrorCode:
        names = {"client_software_name": "x", "client_software_version": "1"}
        return api_versions_refusal(ApiVersionsRequest(**names, **ids), version)

    assert refusal(5) == refusal(5, cluster_id="c", node_id=1) == ErrorCode.NONE
    assert refusal(5, cluster_id="c") == refusal(5, node_id=1) == ErrorCode.INVALID_REQUEST
    assert refusal(4, node_id=1) == ErrorCode.NONE


def test_version_5_by_hand() -> None:
    """No library and no recorded frame has it yet: the bytes of KIP-1242."""
    request = ApiVersionsRequest("a", "b", "c", 3)
    assert request.encode(5) == b"\x02a\x02b\x02c\0\0\0\x03\0"
    assert request.encode(4) == b"\x02a\x02b\0"
    assert ApiVersionsRequest.decode(b"\x02a\x02b\0\xff\xff\xff\xff\0", 5) == ApiVersionsRequest(
        "a", "b"
    )


PROBE = bytes.fromhex("0012 0063 000003ef 0005 70726f6265 00 00")  # ApiVersions v99, as recorded


def test_an_unknown_version_of_api_versions_is_answered_in_version_0() -> None:
    header = frame.decode_request_header(PROBE)
    assert header == (18, 99, 0x3EF, "probe", 16) and not header.served
    with pytest.raises(UnsupportedVersion):
        frame.decode_request(PROBE)
    answer = frame.unsupported_api_versions(header.correlation_id)
    assert answer == bytes.fromhex("00000010 000003ef 0023 00000001 0012 0000 0005")
    # The asker reads it as version 0, whatever it asked, and takes the highest common version.
    for asked in (0, 3, 5):
        number, body = frame.decode_response(18, asked, answer[4:])
        assert number == 0x3EF and body.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert negotiate(18, offered_versions(body)) == 5


def test_kafkas_own_answer_to_an_unknown_version(golden: Path) -> None:
    folder = golden / "frames" / "18-ApiVersions"
    for name in ("v99-response-001.bin", "v99-response-002.bin"):
        raw = (folder / name).read_bytes()
        number, body = frame.decode_response(18, 4, raw[4:])
        ours = frame.unsupported_api_versions(number)
        assert ours[:-1] == raw[:-1]  # all but the newest version that each side has
        assert body.api_keys == [ApiVersionsResponse.ApiKey(18, 0, 4)]
    for name in ("v99-request-001.bin", "v99-request-002.bin"):
        assert (folder / name).read_bytes()[4:] == PROBE
