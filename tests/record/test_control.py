"""Control records: back and forth, what others may add, and every kind of bad value."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftfast import errors, limits, varints
from kraftfast.record import batch, control
from kraftfast.record.control import ControlType, OtherControl, SnapshotFooter, SnapshotHeader
from kraftfast.record.shapes import Record
from kraftfast.types import (
    Endpoint,
    KRaftVersion,
    KRaftVoters,
    LeaderChange,
    ReplicaKey,
    Voter,
    VoterSet,
)

IDS = st.integers(-(2**31), 2**31 - 1)
UUIDS = st.binary(min_size=16, max_size=16)
NAMES = st.text(max_size=8).map(str.upper).filter(lambda name: name == name.upper())
ENDPOINTS = st.builds(Endpoint, NAMES, st.text(max_size=20), st.integers(0, 65535))
VERSIONS = st.integers(-(2**15), 2**15 - 1)
VOTERS = st.builds(
    Voter,
    st.integers(0, 2**31 - 1),
    UUIDS,
    st.lists(ENDPOINTS, max_size=3).map(tuple),
    VERSIONS,
    VERSIONS,
)
TAGS = st.dictionaries(st.integers(0, 2**32 - 1), st.binary(max_size=300), max_size=3).map(
    lambda tags: tuple(sorted(tags.items()))
)
VOTER_SETS = st.lists(VOTERS, max_size=3, unique_by=lambda voter: voter.id).map(VoterSet)
KEYS0 = st.lists(IDS.map(ReplicaKey), max_size=4).map(tuple)
KEYS1 = st.lists(st.builds(ReplicaKey, IDS, UUIDS), max_size=4).map(tuple)
CONTROLS = st.one_of(
    st.builds(LeaderChange, IDS, KEYS0, KEYS0, st.just(0), TAGS),
    st.builds(LeaderChange, IDS, KEYS1, KEYS1, st.just(1), TAGS),
    st.builds(SnapshotHeader, st.integers(-(2**63), 2**63 - 1), TAGS),
    st.builds(SnapshotFooter, TAGS),
    st.builds(KRaftVersion, VERSIONS, TAGS),
    st.builds(KRaftVoters, VOTER_SETS, st.none() | st.lists(IDS, max_size=3).map(tuple), TAGS),
    st.builds(OtherControl, st.sampled_from([0, 1, 7, 99, -1]), st.binary(max_size=20)),
)


def record_of(kind: int, value: bytes | None) -> Record:
    return Record(0, 0, struct.pack(">hh", 0, kind), value)


# covers: testWithAllSupportedControlRecords
@given(st.lists(CONTROLS, min_size=1, max_size=4))
def test_back_and_forth(records: list[Any]) -> None:
    data = control.control_batch(records, timestamp=9, base_offset=5, leader_epoch=2)
    found = batch.check_batch(data)
    assert (found.is_control, found.base_offset, found.leader_epoch) == (True, 5, 2)
    assert found.max_timestamp == found.base_timestamp == 9
    assert [control.decode_control(record) for record in found.records()] == records


def test_listener_names_have_no_case() -> None:
    voters = KRaftVoters(VoterSet([Voter(1, bytes(16), (Endpoint("controller", "h", 1),), 0, 1)]))
    (record,) = batch.batch_at(
        control.control_batch([voters], timestamp=0, leader_epoch=0)
    ).records()
    assert control.decode_control(record).voters.voters[0].endpoints[0].name == "CONTROLLER"


def test_tagged_fields_inside_are_skipped() -> None:
    tag = b"\x01\x05\x02hi"  # one field, number 5, two bytes
    voter = struct.pack(">i16s", 7, b"d" * 16) + b"\x02\x02A\x02h\x00\x50" + tag
    voter += struct.pack(">hh", 0, 1) + tag + tag
    value = struct.pack(">h", 0) + b"\x02" + voter + tag
    decoded = control.decode_control(record_of(ControlType.KRAFT_VOTERS, value))
    expected = Voter(7, b"d" * 16, (Endpoint("A", "h", 80),), 0, 1)
    assert decoded == KRaftVoters(VoterSet([expected]), None, ((5, b"hi"),))
    change = struct.pack(">hi", 0, 3) + b"\x02" + struct.pack(">i", 4) + tag + b"\x01\x00"
    decoded = control.decode_control(record_of(ControlType.LEADER_CHANGE, change))
    assert decoded == LeaderChange(3, (ReplicaKey(4),), ())


def test_a_longer_key_is_tolerated() -> None:
    record = Record(0, 0, b"\0\0\0\4more", b"\0\0\0")
    assert control.decode_control(record) == SnapshotFooter()


@given(CONTROLS.filter(lambda each: not isinstance(each, OtherControl)), st.data())
def test_no_cut_decodes(record: Any, choice: st.DataObject) -> None:
    kind, value = control._encode(record)
    cut = choice.draw(st.integers(0, len(value) - 1))
    with pytest.raises(errors.CorruptBatch):
        control.decode_control(record_of(kind, value[:cut]))
    with pytest.raises(errors.CorruptBatch, match="behind the value"):
        control.decode_control(record_of(kind, value + b"\0"))


@given(CONTROLS, st.data())
def test_damage_is_a_typed_error_or_other_data(record: Any, choice: st.DataObject) -> None:
    kind, value = control._encode(record)
    changed = bytearray(value)
    for _ in range(choice.draw(st.integers(0, min(3, len(value))))):
        changed[choice.draw(st.integers(0, len(value) - 1))] = choice.draw(st.integers(0, 255))
    try:
        control.decode_control(record_of(choice.draw(st.sampled_from(ControlType)), bytes(changed)))
    except (errors.CorruptBatch, errors.UnsupportedVersion):
        pass


HUGE = b"\xff\xff\xff\xff\x0f"  # 2**32 - 1


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (ControlType.LEADER_CHANGE, None),
        (ControlType.LEADER_CHANGE, struct.pack(">hi", 0, 1) + HUGE),
        (ControlType.LEADER_CHANGE, struct.pack(">hi", 0, 1) + b"\x00\x01\x00"),  # a null array
        (ControlType.KRAFT_VOTERS, struct.pack(">h", 0) + b"\x03" + bytes(40)),
        (ControlType.KRAFT_VOTERS, b"\0\0\x02" + bytes(20) + HUGE + bytes(40)),
        (ControlType.KRAFT_VOTERS, b"\0\0\x02" + bytes(20) + b"\x02\x00" + bytes(40)),
        (ControlType.KRAFT_VOTERS, b"\0\0\x02" + bytes(20) + b"\x02\x02\xff" + bytes(40)),
        (ControlType.SNAPSHOT_FOOTER, b"\0\0" + HUGE),  # so many tagged fields
        (ControlType.SNAPSHOT_FOOTER, b"\0\0" + bytes([limits.TAGGED_FIELDS_MAX + 1]) + bytes(200)),
        (ControlType.SNAPSHOT_FOOTER, b"\0\0\x01\x00" + HUGE),
        (ControlType.SNAPSHOT_FOOTER, b"\0\0\x02\x05\x00\x05\x00"),  # the same one twice
        (ControlType.SNAPSHOT_FOOTER, b"\0\0\x02\x05\x00\x04\x00"),  # out of order
        (ControlType.SNAPSHOT_FOOTER, b"\0\0\x80\x00"),  # a count not in its shortest form
        (ControlType.SNAPSHOT_FOOTER, b"\0\0" + b"\x80" * 6),
        (ControlType.SNAPSHOT_FOOTER, b"\0\0\x00\x00"),  # a byte behind the value
        (ControlType.KRAFT_VERSION, struct.pack(">hh", 0, 1) + b"\x00\x00"),
    ],
)
def test_values_that_do_not_decode(kind: ControlType, value: bytes | None) -> None:
    with pytest.raises(errors.CorruptBatch, match="control record"):
        control.decode_control(record_of(kind, value))


def test_a_tagged_field_is_bounded() -> None:
    size = limits.TAGGED_FIELD_BYTES_MAX + 1
    value = b"\0\0\x01\x00" + varints.encoded(size) + bytes(size)
    with pytest.raises(errors.CorruptBatch, match="tagged field of"):
        control.decode_control(record_of(ControlType.SNAPSHOT_FOOTER, value))


@pytest.mark.parametrize("kind", ControlType)
def test_versions_made_after_this_code(kind: ControlType) -> None:
    for version in (2, -1):
        with pytest.raises(errors.UnsupportedVersion):
            control.decode_control(record_of(kind, struct.pack(">h", version) + bytes(20)))


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\x80\0\0\2"])
def test_keys_without_a_type(key: bytes | None) -> None:
    with pytest.raises(errors.CorruptBatch, match="key"):
        control.decode_control(Record(0, 0, key, b""))


@pytest.mark.parametrize(
    "record",
    [
        KRaftVersion(2**15),
        SnapshotHeader(2**63),
        LeaderChange(2**31, (), ()),
        KRaftVoters(VoterSet([Voter(1, bytes(16), (Endpoint("A", "h", 65536),))])),
        KRaftVoters(VoterSet([Voter(1, bytes(16), (Endpoint("A", "\ud800", 1),))])),
        KRaftVoters(VoterSet([Voter(1, bytes(15))])),
        LeaderChange(1, (ReplicaKey(1, b""),), (), 1),
    ],
)
def test_values_that_their_fields_cannot_hold(record: Any) -> None:
    with pytest.raises(errors.InvalidOption):
        control.control_batch([record], timestamp=0, leader_epoch=0)
