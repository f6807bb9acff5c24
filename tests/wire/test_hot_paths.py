"""Fetch and Produce of one partition: the hot paths against the tables, byte for byte."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftfast import limits
from kraftfast.errors import MalformedFrame, UnencodableMessage, UnsupportedVersion
from kraftfast.wire import fetch, frame, produce
from kraftfast.wire.fetch import PartitionFetch, PartitionFetched
from kraftfast.wire.messages import (
    FetchRequest,
    FetchResponse,
    ProduceRequest,
    ProduceResponse,
)
from kraftfast.wire.produce import PartitionProduce, PartitionProduced
from tests.wire.agreement import agree, outcome


def ints(bits: int) -> st.SearchStrategy[int]:
    top = 2 ** (bits - 1)
    return st.sampled_from([-1, 0, 1, top - 1, -top]) | st.integers(-top, top - 1)


TEXT = st.sampled_from(
    ["", "t", "__cluster_metadata", "\xe9\u20ac\U0001f4a9", "x" * 2000]
) | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
UUID = st.just(bytes(16)) | st.binary(min_size=16, max_size=16)
RECORDS = st.none() | st.binary(max_size=300) | st.integers(0, 40_000).map(bytes)


def flats(cls: type, **strategies: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Objects with any subset of the fields given."""
    return st.fixed_dictionaries({}, optional=strategies).map(lambda fields: cls(**fields))


FETCH = flats(
    PartitionFetch,
    cluster_id=st.none() | TEXT, replica_id=ints(32), replica_epoch=ints(64),
    max_wait_ms=ints(32), min_bytes=ints(32), max_bytes=ints(32), isolation_level=ints(8),
    session_id=ints(32), session_epoch=ints(32), topic=TEXT, topic_id=UUID, partition=ints(32),
    current_leader_epoch=ints(32), fetch_offset=ints(64), last_fetched_epoch=ints(32),
    log_start_offset=ints(64), partition_max_bytes=ints(32), replica_directory_id=UUID,
    high_watermark=ints(64), durability=ints(8), rack_id=TEXT,
    observer_endpoints=st.lists(st.builds(FetchRequest.ObserverEndpoint, TEXT, TEXT,
                                          st.integers(0, 65535)), max_size=2),
    observer_kraft_versions=st.lists(ints(16), max_size=2),
)  # fmt: skip
FETCHED = flats(
    PartitionFetched,
    throttle_time_ms=ints(32), error_code=ints(16), session_id=ints(32), topic=TEXT, topic_id=UUID,
    partition=ints(32), partition_error_code=ints(16), high_watermark=ints(64),
    last_stable_offset=ints(64), log_start_offset=ints(64), diverging_epoch=ints(32),
    diverging_end_offset=ints(64), leader_id=ints(32), leader_epoch=ints(32),
    snapshot_end_offset=ints(64), snapshot_epoch=ints(32), preferred_read_replica=ints(32),
    aborted_transactions=st.none() | st.lists(
        st.builds(FetchResponse.AbortedTransaction, ints(64), ints(64)), max_size=2),
    records=RECORDS,
    node_endpoints=st.lists(
        st.builds(FetchResponse.NodeEndpoint, ints(32), TEXT, ints(32), st.none() | TEXT),
        max_size=2),
)  # fmt: skip
PRODUCE = flats(
    PartitionProduce,
    transactional_id=st.none() | TEXT, acks=ints(16), timeout_ms=ints(32), topic=TEXT,
    topic_id=UUID, partition=ints(32), records=RECORDS,
)  # fmt: skip
PRODUCED = flats(
    PartitionProduced,
    throttle_time_ms=ints(32), topic=TEXT, topic_id=UUID, partition=ints(32),
    error_code=ints(16), base_offset=ints(64), log_append_time_ms=ints(64),
    log_start_offset=ints(64), error_message=st.none() | TEXT, leader_id=ints(32),
    leader_epoch=ints(32),
    record_errors=st.lists(
        st.builds(ProduceResponse.RecordError, ints(32), st.none() | TEXT), max_size=2),
    node_endpoints=st.lists(
        st.builds(ProduceResponse.NodeEndpoint, ints(32), TEXT, ints(32), st.none() | TEXT),
        max_size=2),
)  # fmt: skip

FETCH_VERSIONS = st.integers(4, 18)
PRODUCE_VERSIONS = st.integers(3, 13)


@given(FETCH, FETCH_VERSIONS, ints(32), st.none() | TEXT)
@settings(max_examples=500, deadline=None)
def test_fetch_requests(flat: PartitionFetch, v: int, number: int, client_id: str | None) -> None:
    raw = outcome(fetch.encode_request, v, number, client_id, flat)
    assert raw == outcome(frame.encode_request, 1, v, number, client_id, flat.to_message(v))
    if isinstance(raw, bytes):
        header, message = frame.decode_request(raw[4:])
        hot = fetch.decode_request(v, raw[4:], header.body_start)
        assert type(hot) is PartitionFetch and hot.to_message(v) == message
        assert hot == PartitionFetch.from_message(message)


@given(FETCHED, FETCH_VERSIONS, ints(32))
@settings(max_examples=500, deadline=None)
def test_fetch_responses(flat: PartitionFetched, v: int, number: int) -> None:
    raw = outcome(fetch.encode_response, v, number, flat)
    assert raw == outcome(frame.encode_response, 1, v, number, flat.to_message())
    if isinstance(raw, bytes):
        again, message = frame.decode_response(1, v, raw[4:])
        hot_number, hot = fetch.decode_response(v, raw[4:])
        assert again == hot_number == number
        assert type(hot) is PartitionFetched and hot.to_message() == message
        assert hot == PartitionFetched.from_message(message)


@given(PRODUCE, PRODUCE_VERSIONS, ints(32), st.none() | TEXT)
@settings(max_examples=300, deadline=None)
def test_produce_requests(
    flat: PartitionProduce, v: int, number: int, client_id: str | None
) -> None:
    raw = outcome(produce.encode_request, v, number, client_id, flat)
    assert raw == outcome(frame.encode_request, 0, v, number, client_id, flat.to_message())
    header, message = frame.decode_request(raw[4:])
    hot = produce.decode_request(v, raw[4:], header.body_start)
    assert type(hot) is PartitionProduce and hot.to_message() == message


@given(PRODUCED, PRODUCE_VERSIONS, ints(32))
@settings(max_examples=400, deadline=None)
def test_produce_responses(flat: PartitionProduced, v: int, number: int) -> None:
    raw = outcome(produce.encode_response, v, number, flat)
    assert raw == outcome(frame.encode_response, 0, v, number, flat.to_message())
    if isinstance(raw, bytes):
        again, message = frame.decode_response(0, v, raw[4:])
        hot_number, hot = produce.decode_response(v, raw[4:])
        assert again == hot_number == number
        assert type(hot) is PartitionProduced and hot.to_message() == message


# --- the hot path is taken --------------------------------------------------------------------


@pytest.fixture
def no_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the tables unusable, so that only what does without them passes."""
    for cls in (FetchRequest, FetchResponse, ProduceRequest, ProduceResponse):
        monkeypatch.setattr(cls, "PLANS", dict.fromkeys(range(-1, 20), "poison"))


RAFT_FETCH = {
    "cluster_id": "Zr4IJKLmTj2bQ1mGrM2wwg", "replica_id": 2, "max_wait_ms": 500,
    "topic_id": bytes(15) + b"\x01", "current_leader_epoch": 5, "fetch_offset": 99,
    "last_fetched_epoch": 5, "replica_directory_id": b"d" * 16, "high_watermark": 90,
    "durability": 1,
}  # fmt: skip


@pytest.mark.parametrize("version", range(4, 19))
def test_usual_fetches_do_without_the_tables(no_tables: None, version: int) -> None:
    fields = dict(RAFT_FETCH)
    if version < 12:
        del fields["last_fetched_epoch"]
    raw = fetch.encode_request(version, 7, "raft-client-2", PartitionFetch(**fields))
    start = 4 + 10 + 13 + (version >= 12)
    hot = fetch.decode_request(version, raw[4:], start - 4)
    assert type(hot) is PartitionFetch and (hot.replica_id, hot.fetch_offset) == (2, 99)
    assert hot.high_watermark == (90 if version >= 18 else 2**63 - 1)
    fetched = PartitionFetched(high_watermark=5, records=b"r" * 9)
    if version >= 12:
        fetched.leader_id, fetched.diverging_epoch, fetched.snapshot_end_offset = 1, 2, 3
    answer = b"".join(fetch.encode_response(version, 7, fetched))
    assert fetch.decode_response(version, answer[4:])[1].to_message() == fetched.to_message()


@pytest.mark.parametrize("version", range(3, 14))
def test_usual_produces_do_without_the_tables(no_tables: None, version: int) -> None:
    flat = PartitionProduce(acks=-1, timeout_ms=500, partition=3, records=b"r" * 9)
    raw = b"".join(produce.encode_request(version, 7, "me", flat))
    start = 4 + 10 + 2 + (version >= 9)
    assert produce.decode_request(version, raw[4:], start - 4) == flat
    produced = PartitionProduced(base_offset=5, error_code=3)
    answer = produce.encode_response(version, 7, produced)
    assert produce.decode_response(version, answer[4:]) == (7, produced)


# --- records stay where they are --------------------------------------------------------------


def test_records_are_not_copied() -> None:
    records = memoryview(bytearray(b"r" * 5000))
    pieces = fetch.encode_response(18, 1, PartitionFetched(records=records))
    assert len(pieces) == 3 and pieces[1] is records
    pieces = fetch.encode_response(11, 1, PartitionFetched(records=records))
    assert len(pieces) == 2 and pieces[1] is records
    for nothing in (None, b""):
        assert len(fetch.encode_response(18, 1, PartitionFetched(records=nothing))) == 1
    pieces = produce.encode_request(10, 1, "c", PartitionProduce(records=records))
    assert len(pieces) == 3 and pieces[1] is records
    raw = bytearray(b"".join(pieces))[4:]
    view = memoryview(raw)
    hot = produce.decode_request(10, view, frame.decode_request_header(view).body_start)
    raw[raw.index(b"rrr")] = ord("s")
    assert hot.records[0] == ord("s") and len(hot.records) == 5000


def test_the_unusual_keeps_records_in_place_too() -> None:
    endpoints = [FetchResponse.NodeEndpoint(1, "h", 2)]
    records = memoryview(b"r" * 5000)
    flat = PartitionFetched(records=records, node_endpoints=endpoints)
    assert fetch.encode_response(18, 1, flat)[1] is records


# --- bytes that are not quite so --------------------------------------------------------------


@given(st.data())
@settings(max_examples=800, deadline=None)
def test_changed_bytes(data: st.DataObject) -> None:
    flat = data.draw(st.one_of(FETCH, FETCHED, PRODUCE, PRODUCED))
    fetching = isinstance(flat, PartitionFetch | PartitionFetched)
    version = data.draw(FETCH_VERSIONS if fetching else PRODUCE_VERSIONS)
    message = flat.to_message(version) if type(flat) is PartitionFetch else flat.to_message()
    raw = outcome(message.encode, version)
    if not isinstance(raw, bytes):
        return
    changed = bytearray(raw)
    at = data.draw(st.integers(0, len(raw)) | st.integers(max(0, len(raw) - 40), len(raw)))
    new = data.draw(st.binary(max_size=3) | st.sampled_from([b"\x80\x00", b"\xff" * 5, b"\x01"]))
    changed[at : at + data.draw(st.integers(0, 3))] = new
    agree(type(message), bytes(changed), version)
    agree(type(message), raw + b"\0", version)
    agree(type(message), raw[:at], version)
    # Layouts of neighbouring versions often differ in tags only.
    agree(type(message), raw, max(version - 1, message.VERSIONS.first))


def with_partition_tags(tags: bytes) -> bytes:
    """A Fetch request, v18, with this tag section in its partition."""
    raw = PartitionFetch(durability=1).to_message(18).encode(18)
    assert raw.count(b"\x01\x90\x4e\x01\x01") == 1
    return raw.replace(b"\x01\x90\x4e\x01\x01", tags)


@pytest.mark.parametrize(
    ("tags", "durability"),
    [
        (b"\x01\x90\x4e\x01\x02", 2),
        (b"\x02\x90\x4e\x01\x02\x91\x4e\x03xyz", 2),  # an unknown one after it
        (b"\x02\x03\x00\x90\x4e\x01\x02", 2),  # and before it
        (b"\x01\x91\x4e\x01\x02", 0),
        (b"\x02\x90\x4e\x01\x02\x90\x4e\x01\x02", None),  # twice
        (b"\x02\x90\x4e\x01\x02\x01\x08" + bytes(8), None),  # not ascending
        (b"\x01\x90\x4e\x00\x02", None),  # its size too small
        (b"\x01\x90\x4e\x02\x02", None),  # too large
        (b"\x01\x90\xce\x00\x01\x02", None),  # a tag not in its shortest form
        (b"\x81\x80\x80\x80\x10\x90\x4e\x01\x02", None),  # 2**32 + 1 tags
    ],
)
def test_tags_in_all_forms(tags: bytes, durability: int | None) -> None:
    result = agree(FetchRequest, with_partition_tags(tags), 18)
    if durability is None:
        assert result is MalformedFrame
    else:
        assert result.topics[0].partitions[0].durability == durability


def test_a_tag_of_a_later_version_is_skipped() -> None:
    raw = PartitionFetch(replica_directory_id=b"d" * 16).to_message(17).encode(17)
    assert agree(FetchRequest, raw, 16).topics[0].partitions[0].replica_directory_id == bytes(16)
    raw = PartitionFetch(high_watermark=5).to_message(18).encode(18)
    assert agree(FetchRequest, raw, 17).topics[0].partitions[0].high_watermark == 2**63 - 1
    raw = PartitionProduced(leader_id=5).to_message().encode(10)
    leader = agree(ProduceResponse, raw, 9).responses[0].partition_responses[0].current_leader
    assert leader == ProduceResponse.CurrentLeader()
    raw = PartitionFetched(node_endpoints=[FetchResponse.NodeEndpoint(1)]).to_message().encode(16)
    assert agree(FetchResponse, raw, 15).node_endpoints == []


# --- other shapes, other errors ---------------------------------------------------------------


def topics(*counts: int) -> list[Any]:
    return [
        FetchRequest.Topic(partitions=[FetchRequest.Partition() for _ in range(count)])
        for count in counts
    ]


@pytest.mark.parametrize(
    "message",
    [
        FetchRequest(),
        FetchRequest(topics=topics(0)),
        FetchRequest(topics=topics(2)),
        FetchRequest(topics=topics(1, 1)),
        FetchRequest(topics=topics(1), forgotten_topics_data=[FetchRequest.ForgottenTopicsData()]),
    ],
)
def test_other_shapes_come_as_messages(message: FetchRequest) -> None:
    for version in (7, 13, 18):
        assert fetch.decode_request(version, message.encode(version), 0) == message
        assert PartitionFetch.from_message(message) is None


def test_other_shapes_of_the_others() -> None:
    raw = frame.encode_response(1, 18, 7, FetchResponse(error_code=104))
    assert fetch.decode_response(18, raw[4:]) == (7, FetchResponse(error_code=104))
    assert produce.decode_request(10, ProduceRequest().encode(10), 0) == ProduceRequest()
    raw = frame.encode_response(0, 10, 7, ProduceResponse())
    assert produce.decode_response(10, raw[4:]) == (7, ProduceResponse())


@pytest.mark.parametrize("version", [-1, 2, 19, 99])
def test_versions_that_we_do_not_speak(version: int) -> None:
    for act in (
        lambda: fetch.decode_request(version, b"", 0),
        lambda: fetch.encode_request(version, 1, "c", PartitionFetch()),
        lambda: fetch.decode_response(version, bytes(9)),
        lambda: fetch.encode_response(version, 1, PartitionFetched()),
        lambda: produce.decode_request(version, b"", 0),
        lambda: produce.encode_request(version, 1, "c", PartitionProduce()),
        lambda: produce.decode_response(version, bytes(9)),
        lambda: produce.encode_response(version, 1, PartitionProduced()),
    ):
        with pytest.raises(UnsupportedVersion):
            act()


def test_what_a_version_cannot_say() -> None:
    for version, fields in ((11, {"last_fetched_epoch": 1}), (14, {"replica_epoch": 1})):
        with pytest.raises(UnsupportedVersion):
            fetch.encode_request(version, 1, "c", PartitionFetch(**fields))
    for version, fields in (
        (6, {"session_id": 1}), (10, {"preferred_read_replica": 1}), (11, {"leader_id": 1}),
        (11, {"leader_epoch": 1}), (11, {"diverging_epoch": 1}), (11, {"snapshot_epoch": 1}),
        (11, {"diverging_end_offset": 1}), (11, {"snapshot_end_offset": 1}),
    ):  # fmt: skip
        with pytest.raises(UnsupportedVersion):
            fetch.encode_response(version, 1, PartitionFetched(**fields))
    with pytest.raises(UnsupportedVersion):
        produce.encode_response(9, 1, PartitionProduced(leader_id=1))


@pytest.mark.parametrize(
    "fields",
    [
        {"topic_id": b"short"}, {"topic_id": None}, {"cluster_id": "\ud800"},
        {"rack_id": None}, {"rack_id": "x" * 32768}, {"durability": 200},
        {"replica_directory_id": b""}, {"isolation_level": -129},
    ],
)  # fmt: skip
def test_values_that_do_not_fit(fields: dict[str, Any]) -> None:
    with pytest.raises(UnencodableMessage):
        fetch.encode_request(18, 1, "c", PartitionFetch(**fields))


@pytest.mark.parametrize("records", [5, "text", memoryview(b"abcd")[::2]])
def test_records_that_are_no_bytes(records: Any) -> None:
    with pytest.raises(UnencodableMessage):
        fetch.encode_response(18, 1, PartitionFetched(records=records))
    with pytest.raises(UnencodableMessage):
        produce.encode_request(10, 1, "c", PartitionProduce(records=records))


def test_a_frame_above_the_cap() -> None:
    records = bytes(limits.FRAME_BYTES_MAX)
    with pytest.raises(UnencodableMessage, match="frame"):
        fetch.encode_response(18, 1, PartitionFetched(records=records))
    with pytest.raises(UnencodableMessage, match="frame"):
        produce.encode_request(10, 1, "c", PartitionProduce(records=records))


def test_a_start_outside_the_frame() -> None:
    for start, error in ((5, MalformedFrame), (-1, AssertionError)):
        with pytest.raises(error):
            fetch.decode_request(18, b"abcd", start)
        with pytest.raises(error):
            produce.decode_request(10, b"abcd", start)


def test_flat_messages_compare_and_show() -> None:
    flat = PartitionFetch(replica_id=2, topic="t")
    assert flat == PartitionFetch(topic="t", replica_id=2) != PartitionFetch(topic="t")
    assert repr(flat) == "PartitionFetch(replica_id=2, topic='t')"
    assert flat != "something else"
    for cls in (PartitionFetch, PartitionFetched, PartitionProduce, PartitionProduced):
        assert repr(cls()) == f"{cls.__name__}()"
        with pytest.raises(TypeError, match="no field 'offset'"):
            cls(offset=1)
