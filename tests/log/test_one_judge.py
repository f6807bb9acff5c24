"""The header of a batch has one judge: what one door takes, every reader behind it reads.

A batch that a leader took and a reader refuses would be committed, and then stop all readers and
state machines at its offset.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kraftfast.errors import CorruptBatch, CorruptLog
from kraftfast.log import scan
from kraftfast.record import batch, headers, pure
from kraftfast.spark.reading import pure_readers
from tests.log.kit import Home, append, fill
from tests.log.kit import batch as sound_batch

FIELDS = {  # by name: offset and format
    "base_offset": (0, ">q"),
    "length": (8, ">i"),
    "leader_epoch": (12, ">i"),
    "magic": (16, ">b"),
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "record_count": (57, ">i"),
}
GOOD = sound_batch([b"one", b"two", b"three"], epoch=1)
INT32, INT64 = 2**31, 2**63


def changed(data: bytes = GOOD, **fields: int) -> bytes:
    """The batch with other header fields, and a CRC that holds."""
    made = bytearray(data)
    for name, value in fields.items():
        at, form = FIELDS[name]
        struct.pack_into(form, made, at, value)
    end = max(12 + int.from_bytes(made[8:12], "big", signed=True), 21)
    struct.pack_into(">I", made, 17, crc32c(bytes(made[21:end])))
    return bytes(made)


def refused(reader: Callable[[bytes], Any], data: bytes) -> bool:
    try:
        reader(data)
    except CorruptBatch:
        return True
    return False


def reason(reader: Callable[[bytes], Any], data: bytes) -> str:
    """Why a reader refuses the batch."""
    with pytest.raises(CorruptBatch) as caught:
        reader(data)
    return caught.value.reason


def readers_verdicts(data: bytes) -> set[bool]:
    """Whether the readers of records refuse the header: consumers, Spark, snapshots, dumps."""
    found = headers.decode_headers(data)
    assert found.fault == pure_readers.decode_headers(data).fault
    if found.fault and not found.position:
        assert {reason(reader.batch_at, data) for reader in (batch, pure)} == {found.fault}
    return {
        refused(batch.batch_at, data),
        refused(pure.batch_at, data),
        found.position == 0,
        pure_readers.decode_headers(data).position == 0,
    }


def logs_verdicts(data: bytes) -> set[bool]:
    """Whether the log's own walks refuse it: recovery, scan, verify, append and copy."""
    base = int.from_bytes(data[:8], "big", signed=True)
    compiled, plain = (
        walk(data, 0, len(data), base, -INT32, verify_crc=True)
        for walk in (scan.walk, pure_readers.walk)
    )
    assert compiled == plain, "which fault is told, too"
    return {compiled[0] == 0}


def is_compacted(data: bytes) -> bool:
    """Whether records were taken out of the batch: Kafka's files have such, our log does not."""
    delta, count = (struct.unpack_from(FIELDS[name][1], data, FIELDS[name][0])[0]
                    for name in ("last_offset_delta", "record_count"))  # fmt: skip
    return bool(delta != count - 1)


def all_agree(data: bytes) -> None:
    readers, logs = readers_verdicts(data), logs_verdicts(data)
    assert len(readers) == len(logs) == 1, (readers, logs)
    assert logs == ({True} if is_compacted(data) else readers)


def test_all_agree_on_every_attribute_bit() -> None:
    for bits in range(-(2**15), 2**15):
        all_agree(changed(attributes=bits))
    known = [bits for bits in range(256) if logs_verdicts(changed(attributes=bits)) == {False}]
    assert known == [bits for bits in range(128) if bits & 7 <= 4]


def near(*values: int) -> st.SearchStrategy[int]:
    return st.sampled_from(sorted({each + d for each in values for d in (-2, -1, 0, 1, 2)}))


@settings(max_examples=300, deadline=None)
@given(
    st.fixed_dictionaries({}, optional={
        "base_offset": near(0, 5, INT64 - 3, 3 - INT64),
        "length": near(-INT32 + 2, 0, 49, len(GOOD) - 12, 8 * 1024 * 1024 - 12, INT32 - 3),
        "leader_epoch": near(0, INT32 - 3, 2 - INT32),
        "magic": st.sampled_from([0, 1, 2, 3, -1]),
        "attributes": st.integers(-8, 0x90),
        "last_offset_delta": near(-INT32 + 2, 0, 2, INT32 - 3),
        "record_count": near(-INT32 + 2, 0, 3, 1 << 22, INT32 - 3),
    })
)  # fmt: skip
@example({"leader_epoch": -2})
@example({"last_offset_delta": 3})
@example({"base_offset": INT64 - 3})
@example({"base_offset": INT64 - 4})
@example({"record_count": 0, "last_offset_delta": 0})
def test_all_agree_on_every_field(fields: dict[str, int]) -> None:
    all_agree(changed(**fields))


POISON = [bits for bits in range(128) if bits & 7 > 4 and not bits & 0x20]


@pytest.mark.parametrize("bits", POISON)
def test_a_codec_that_nobody_reads_enters_by_no_door(tmp_path: Any, bits: int) -> None:
    home = Home(tmp_path)
    log = home.open()
    append(log, GOOD)
    with pytest.raises(ValueError, match="unknown codec or attribute bits"):
        log.append(changed(attributes=bits), 1)
    poison = changed(base_offset=3, attributes=bits)
    assert log.copy(poison, 1) == 0 and log.damaged()
    assert log.end_offset == 3
    append(log, GOOD)


def test_a_codec_that_nobody_reads_is_damage_in_a_file(tmp_path: Any) -> None:
    home = Home(tmp_path)
    stored = fill(home.open(), 3)
    home.close()
    (path,) = home.segment_paths()
    Path(path).write_bytes(b"".join((stored[0], changed(stored[1], attributes=5), stored[2])))
    with pytest.raises(CorruptLog, match="unknown codec or attribute bits"):
        home.open()


@pytest.mark.parametrize("bits", [0x08, 0x10, 0x20, 0x40])
def test_a_producer_says_how_it_compressed_and_no_more(tmp_path: Any, bits: int) -> None:
    """Append times and horizons are the log's, control records the leader's; no transaction is
    ever finished here, so a batch of one must not be committed."""
    log = Home(tmp_path).open()
    with pytest.raises(ValueError, match="unknown codec or attribute bits"):
        log.append(changed(attributes=bits), 1)
    append(log, GOOD)
    assert log.copy(changed(base_offset=3, attributes=bits), 1) and not log.damaged()
