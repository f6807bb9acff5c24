"""The notation of the tables and the codec that they drive."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from kraftfast import limits, varints
from kraftfast.errors import MalformedFrame, UnencodableMessage, UnsupportedVersion
from kraftfast.types import METADATA_TOPIC_ID, ZERO_UUID
from kraftfast.wire.messages import (
    ApiVersionsResponse,
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotResponse,
    MetadataRequest,
    SaslAuthenticateRequest,
    VoteRequest,
    VoteResponse,
)
from kraftfast.wire.notation import VERSION_MAX, Versions, parse, snake_case, versions
from kraftfast.wire.primitives import Reader, read_tags, read_uvarint
from kraftfast.wire.schema import Message, define
from tests.wire.strategies import any_message


def sample(table: str, flexible: str = "1+", served: str = "0-3") -> Any:
    """A throw-away message class."""
    return define("Sample", 99, served, flexible, table, __name__)


# --- notation ---------------------------------------------------------------------------------


def test_versions_notation() -> None:
    assert versions("2") == Versions(2, 2) and str(Versions(2, 2)) == "2"
    assert versions("2-5") == Versions(2, 5) and str(Versions(2, 5)) == "2-5"
    assert versions("2+") == Versions(2, VERSION_MAX) and str(versions("2+")) == "2+"
    assert 7 not in versions("none") and 3 in versions("2-5") and 6 not in versions("2-5")


def test_snake_case() -> None:
    assert snake_case("LeaderEpoch") == "leader_epoch"
    assert snake_case("KRaftVersionFeature") == "kraft_version_feature"
    assert snake_case("Host") == "host"


def test_a_field_with_everything() -> None:
    (field,) = parse("AnId:i64?1+@2-5=0x10 #7 ign")
    assert (field.name, field.attribute, field.kind, field.array) == ("AnId", "an_id", "i64", False)
    assert (field.nullable, field.versions) == (versions("1+"), versions("2-5"))
    assert (field.default, field.tag, field.ignorable) == (16, 7, True)


def test_structs_and_separators() -> None:
    outer, after = parse("Things[ A:i8; B:[i32]\n C{D:str}@2+ ]?1+=null; E:bool=true")
    assert outer.array and outer.struct_name == "Thing" and outer.default is None
    assert [inner.name for inner in outer.fields] == ["A", "B", "C"]
    assert outer.fields[1].array and outer.fields[1].default == ()
    assert outer.fields[2].struct_name == "C" and outer.fields[2].versions == versions("2+")
    assert after.default is True


@pytest.mark.parametrize("table", ["A", "A:i7", "A[B:i8", "A{B:i8]", "A:i8 @", "A:i8=x", "A:str=1"])
def test_a_mistake_in_a_table_is_noticed(table: str) -> None:
    with pytest.raises((AssertionError, ValueError)):
        parse(table)


def test_a_table_nested_too_deeply_is_refused() -> None:
    deep = limits.SCHEMA_DEPTH_MAX
    parse("A{" * (deep - 1) + "B:i8" + "}" * (deep - 1))
    with pytest.raises(AssertionError, match="nested"):
        parse("A{" * deep + "B:i8" + "}" * deep)


# --- classes ----------------------------------------------------------------------------------


def test_defaults_are_kafkas_and_never_shared() -> None:
    one, other = FetchRequest(), FetchRequest()
    assert (one.replica_id, one.max_bytes, one.session_epoch) == (-1, 2**31 - 1, -1)
    assert one.cluster_id is None and one.rack_id == "" and one.topics == []
    partition = FetchRequest.Partition()
    assert partition.high_watermark == 2**63 - 1 and partition.replica_directory_id == ZERO_UUID
    one.topics.append("x")
    one.replica_state.replica_id = 5
    assert other.topics == [] and other.replica_state.replica_id == -1


def test_decoded_defaults_are_never_shared() -> None:
    raw = FetchResponse(responses=[FetchResponse.Response(partitions=[FetchResponse.Partition()])])
    data = raw.encode(13)
    one, other = FetchResponse.decode(data, 13), FetchResponse.decode(data, 13)
    one.responses[0].partitions[0].snapshot_id.epoch = 5
    one.node_endpoints.append("x")
    assert other.responses[0].partitions[0].snapshot_id.epoch == -1
    assert other.node_endpoints == []


def test_repr_says_what_is_told() -> None:
    request = VoteRequest(cluster_id="c", topics=[VoteRequest.Topic(topic_name="t")])
    assert repr(request) == "VoteRequest(cluster_id='c', topics=[Topic(topic_name='t')])"
    assert request == VoteRequest(cluster_id="c", topics=[VoteRequest.Topic(topic_name="t")])
    assert request != VoteRequest(cluster_id="d", topics=[VoteRequest.Topic(topic_name="t")])


def test_two_structs_of_one_name_are_noticed() -> None:
    with pytest.raises(AssertionError, match="two structs"):
        sample("A{X:i8}; B[A{Y:i8}]")


# --- bytes ------------------------------------------------------------------------------------


@given(any_message())
@settings(max_examples=400, deadline=None)
def test_what_is_encoded_is_decoded(choice: tuple[Message, int]) -> None:
    message, version = choice
    raw = message.encode(version)
    assert type(message).decode(raw, version) == message
    assert type(message).decode(memoryview(b"ab" + raw), version, 2) == message
    assert b"".join(message.encode_pieces(version)) == raw


def test_bytes_of_a_message_written_by_hand() -> None:
    cls = sample("A:i16; S:str?; L[X:u16; U:uuid]; N:[i32]@1+; T:i8 #3; V:str?=null #1; B:bool")
    message = cls(a=-2, s="é", l=[cls.L(x=65535, u=METADATA_TOPIC_ID)], n=[7], t=5, v="w", b=True)
    assert message.encode(1) == (
        b"\xff\xfe" b"\x03\xc3\xa9" b"\x02\xff\xff" + bytes(15) + b"\x01\x00"
        b"\x02\x00\x00\x00\x07" b"\x01" b"\x02" b"\x01\x02\x02w" b"\x03\x01\x05"
    )  # fmt: skip
    plain = cls(a=1, s=None, l=[], b=False)
    assert plain.encode(1) == b"\x00\x01\x00\x01\x01\x00\x00"
    flat = sample("A:i16; S:str?; L[X:u16]; N:[i32]; D:bytes", flexible="none")
    message = flat(a=1, s="é", l=[flat.L(x=2)], n=[-1], d=b"z")
    assert message.encode(0) == (
        b"\x00\x01" b"\x00\x02\xc3\xa9" b"\x00\x00\x00\x01\x00\x02"
        b"\x00\x00\x00\x01\xff\xff\xff\xff" b"\x00\x00\x00\x01z"
    )  # fmt: skip
    assert flat(s=None).encode(0)[2:4] == b"\xff\xff"


def test_tagged_fields_are_sorted_and_omitted_at_their_default() -> None:
    cls = sample("A:i8 #300; B:i8=4 #2")
    assert cls(b=4).encode(1) == b"\x00"
    assert cls(a=1, b=5).encode(1) == b"\x02\x02\x01\x05\xac\x02\x01\x01"
    assert cls.decode(b"\x01\x02\x01\x04", 1) == cls()  # told though default: accepted


def test_unknown_tags_are_skipped_and_kept_nowhere() -> None:
    cls = sample("A:i8 #1")
    raw = b"\x03\x00\x02??\x01\x01\x09\x05\x00"
    assert cls.decode(raw, 1) == cls(a=9)
    assert cls.decode(raw, 1).encode(1) == b"\x01\x01\x01\x09"


def test_our_own_tag_in_fetch() -> None:
    partition = FetchRequest.Partition(fetch_offset=5, durability=1)
    message = FetchRequest(topics=[FetchRequest.Topic(partitions=[partition])])
    for version in range(13, 19):
        raw = message.encode(version)
        assert b"\x90\x4e\x01\x01" in raw
        assert FetchRequest.decode(raw, version).topics[0].partitions[0].durability == 1
    raw = message.encode(12)
    assert FetchRequest.decode(raw, 12).topics[0].partitions[0].durability == 0


def test_our_own_tags_in_vote() -> None:
    request = VoteRequest(
        topics=[VoteRequest.Topic(partitions=[VoteRequest.Partition(unanimous=True)])]
    )
    response = VoteResponse(
        topics=[VoteResponse.Topic(partitions=[VoteResponse.Partition(in_doubt=True)])]
    )
    refusal = VoteResponse(
        topics=[VoteResponse.Topic(partitions=[VoteResponse.Partition(has_no_log=True)])]
    )
    knowing = VoteResponse(
        topics=[VoteResponse.Topic(partitions=[VoteResponse.Partition(voters_committed=True)])]
    )
    for version in range(3):
        assert VoteRequest.decode(request.encode(version), version) == request
        assert VoteResponse.decode(knowing.encode(version), version) == knowing
        assert VoteResponse.decode(response.encode(version), version) == response
        assert VoteResponse.decode(refusal.encode(version), version) == refusal
        assert b"\x91\x4e\x01\x01" in request.encode(version)
        assert b"\x92\x4e\x01\x01" in response.encode(version)


def test_records_are_not_copied() -> None:
    partition = FetchResponse.Partition(records=memoryview(bytearray(b"r" * 1000)))
    message = FetchResponse(responses=[FetchResponse.Response(partitions=[partition])])
    before, records, after = message.encode_pieces(13)
    assert records is partition.records
    raw = bytearray(before) + records + after
    decoded = FetchResponse.decode(memoryview(raw), 13).responses[0].partitions[0].records
    raw[raw.index(b"r")] = ord("s")
    assert decoded[0] == ord("s")
    snapshot = FetchSnapshotResponse.Partition(unaligned_records=b"u" * 10)
    pieces = FetchSnapshotResponse(
        topics=[FetchSnapshotResponse.Topic(partitions=[snapshot, snapshot])]
    ).encode_pieces(1)
    assert [piece is snapshot.unaligned_records for piece in pieces] == [
        False, True, False, True, False,
    ]  # fmt: skip


# --- versions that lack a field ---------------------------------------------------------------


def test_a_pre_vote_cannot_be_said_to_an_old_peer() -> None:
    partition = VoteRequest.Partition(pre_vote=True)
    request = VoteRequest(topics=[VoteRequest.Topic(partitions=[partition])])
    assert VoteRequest.decode(request.encode(2), 2) == request
    with pytest.raises(UnsupportedVersion, match="pre_vote"):
        request.encode(1)
    partition.pre_vote = False
    request.encode(1)


def test_an_ignorable_field_is_dropped() -> None:
    endpoint = BeginQuorumEpochRequest.LeaderEndpoint("CONTROLLER", "h", 1)
    request = BeginQuorumEpochRequest(voter_id=3, leader_endpoints=[endpoint])
    assert BeginQuorumEpochRequest.decode(request.encode(0), 0) == BeginQuorumEpochRequest()


@pytest.mark.parametrize(
    ("message", "version"),
    [
        (FetchRequest(forgotten_topics_data=[FetchRequest.ForgottenTopicsData()]), 6),
        (FetchRequest(replica_state=FetchRequest.ReplicaState(replica_id=1)), 14),
        (FetchRequest(replica_id=1), 15),
        (FetchResponse(session_id=1), 6),
        (FetchResponse(node_endpoints=[FetchResponse.NodeEndpoint()]), 15),
        (MetadataRequest(allow_auto_topic_creation=False), 3),
    ],
)
def test_a_field_that_may_not_be_dropped(message: Message, version: int) -> None:
    with pytest.raises(UnsupportedVersion):
        message.encode(version)


@pytest.mark.parametrize("version", [-1, 3, 99])
def test_versions_that_we_do_not_speak(version: int) -> None:
    with pytest.raises(UnsupportedVersion):
        VoteRequest().encode(version)
    with pytest.raises(UnsupportedVersion):
        VoteRequest.decode(b"", version)


# --- values that do not fit -------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        VoteRequest(voter_id=2**31),
        VoteRequest(voter_id="1"),
        VoteRequest(voter_id=None),
        VoteRequest(cluster_id=b"bytes"),
        VoteRequest(cluster_id="\ud800"),
        VoteRequest(cluster_id="x" * 32768),
        VoteRequest(topics=None),
        VoteRequest(topics=5),
        VoteRequest(topics=["not a topic"]),
        VoteRequest(topics=[VoteRequest.Topic(topic_name=None)]),
        VoteRequest(
            topics=[VoteRequest.Topic(partitions=[VoteRequest.Partition(voter_directory_id=b"1")])]
        ),
    ],
)
def test_a_value_that_does_not_fit_its_field(message: VoteRequest) -> None:
    with pytest.raises(UnencodableMessage, match="VoteRequest v2"):
        message.encode(2)


def test_null_and_pieces_that_cannot_be() -> None:
    with pytest.raises(UnencodableMessage):
        MetadataRequest(topics=None).encode(0)
    assert MetadataRequest(topics=None).encode(1) == b"\xff\xff\xff\xff"
    with pytest.raises(UnencodableMessage):
        SaslAuthenticateRequest(auth_bytes=None).encode(2)
    with pytest.raises(UnencodableMessage, match="one piece"):
        SaslAuthenticateRequest(auth_bytes=memoryview(b"abcd")[::2]).encode(2)


# --- bounds -----------------------------------------------------------------------------------


@given(value=...)
def test_uvarint_round_trip(value: int) -> None:
    value %= 2**32
    out = bytearray()
    varints.write(out, value)
    r = Reader(bytes(out), 0, "")
    assert read_uvarint(r) == value and r.at == len(out) <= 5


@pytest.mark.parametrize(
    "raw", [b"", b"\x80", b"\x80\x00", b"\xff\xff\xff\xff\x10", b"\x80\x80\x80\x80\x80\x00",
            b"\xff\xff\xff\xff\x80\x00", b"\x81\x80\x00"],
)  # fmt: skip
def test_uvarints_that_are_refused(raw: bytes) -> None:
    with pytest.raises(MalformedFrame):
        read_uvarint(Reader(raw, 0, ""))


@pytest.mark.parametrize(
    "raw",
    [
        b"\x02\x01\x01\x05\x01\x01\x06",  # the same tag twice
        b"\x02\x02\x00\x01\x01\x05",  # not ascending
        b"\x01\x07\x05\x00",  # a field beyond the end
        b"\x01\x01\x02\x00\x00",  # a known field with a byte too many
        b"\x01\x01\x00",  # a known field with a byte too few
        b"\x41" + b"".join(bytes([tag, 0]) for tag in range(2, 67)),  # 65 tags
        b"\xff\xff\xff\xff\x0f",  # 2**32 - 1 tags
    ],
)
def test_tagged_fields_that_are_refused(raw: bytes) -> None:
    with pytest.raises(MalformedFrame):
        sample("A:i8 #1").decode(raw, 1)


def test_an_unknown_tag_cannot_end_beyond_the_frame() -> None:
    """In a request nothing else looks at where the last field ends."""
    with pytest.raises(MalformedFrame):
        read_tags(Reader(b"\x01\x07\x05\x00", 0, ""), {}, [])


def test_a_tagged_field_cannot_read_beyond_itself() -> None:
    cls = sample("S:str #1; T:str #2")
    assert cls.decode(b"\x02\x01\x02\x02a\x02\x02\x02b", 1) == cls(s="a", t="b")
    with pytest.raises(MalformedFrame):
        cls.decode(b"\x02\x01\x02\x05a\x02\x02\x02b", 1)


def test_an_unknown_tag_may_not_be_large() -> None:
    cls, size = sample("A:i8 #1"), limits.TAGGED_FIELD_BYTES_MAX
    for n, fits in ((size, True), (size + 1, False)):
        raw = bytearray(b"\x01\x05")
        varints.write(raw, n)
        raw += bytes(n)
        if fits:
            assert cls.decode(bytes(raw), 1) == cls()
        else:
            with pytest.raises(MalformedFrame):
                cls.decode(bytes(raw), 1)


@pytest.mark.parametrize(
    ("table", "raw", "why"),
    [
        ("S:str", b"\x00\x00", "length of -1"),
        ("S:str?", b"\x80\x80\x80\x80\x08\x00", "length of 2147483647"),
        ("S:str", b"\x03\xc3\x28\x00", "UTF-8"),
        ("B:bytes", b"\x06abc\x00", "length of 5"),
        ("L[A:i8]", b"\x00\x00", "array of -1"),
        ("L[A:i8]", b"\x03\x01\x00\x00", "array of 2"),  # of at least 2 bytes each, in 3
        ("N:[i64]", b"\x02\x00\x00\x00\x00\x00\x00\x00", "array of 1"),
        ("A:i8", b"\x01\x00\x00", "1 bytes too many"),
        ("A:i32", b"\x01\x00\x00", "4 bytes are needed"),
    ],
)
def test_lengths_that_are_refused(table: str, raw: bytes, why: str) -> None:
    with pytest.raises(MalformedFrame, match=why):
        sample(table).decode(raw, 1)


@pytest.mark.parametrize(
    ("table", "raw"),
    [
        ("S:str?", b"\xff\xfe"),  # -2
        ("S:str", b"\xff\xff"),
        ("S:str", b"\x00"),
        ("B:bytes", b"\xff\xff\xff\xff"),
        ("L[A:i8]", b"\xff\xff\xff\xff"),
        ("L[A:i8]?", b"\xff\xff\xff\xfe"),
        ("L[A:i8]", b"\x7f\xff\xff\xff\x00"),
    ],
)
def test_lengths_that_are_refused_in_the_old_form(table: str, raw: bytes) -> None:
    with pytest.raises(MalformedFrame):
        sample(table).decode(raw, 0)


def test_array_elements_and_text_of_a_message_are_capped() -> None:
    cls = sample("L[M:[i8]]; S:[str]")
    half = limits.MESSAGE_ELEMENTS_MAX // 2
    fits = cls(l=[cls.L(m=[0] * (half - 1)), cls.L(m=[0] * (half - 1))])
    assert cls.decode(fits.encode(1), 1) == fits
    fits.l[0].m.append(0)
    with pytest.raises(MalformedFrame, match="array"):
        cls.decode(fits.encode(1), 1)
    count = limits.MESSAGE_TEXT_BYTES_MAX // 2**14
    text = cls(s=["x" * 2**14] * count)
    assert cls.decode(text.encode(1), 1) == text
    text.s.append("x")
    with pytest.raises(MalformedFrame, match="string"):
        cls.decode(text.encode(1), 1)


def test_an_error_says_what_and_where() -> None:
    with pytest.raises(MalformedFrame, match=r"ApiVersionsResponse v0, near byte 2 of 4"):
        ApiVersionsResponse.decode(b"\x00\x00\x00\x00", 0)
