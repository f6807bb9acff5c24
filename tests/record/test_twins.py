"""The compiled codec and its plain-Python twin: the same bytes from the same records, the same
records from the same bytes, and the same fault for the same damage."""

from __future__ import annotations

import struct
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kraftfast import errors
from kraftfast.record import batch, builder, columns, pure
from kraftfast.record.shapes import Codec, Record

INT64 = st.integers(-(2**63), 2**63 - 1)
TIMESTAMPS = st.one_of(st.integers(1_700_000_000_000, 1_700_000_100_000), st.integers(0, 2**62))
TEXTS = st.text(max_size=9)
BYTES = st.one_of(st.binary(max_size=40), st.sampled_from([b"x" * 63, b"y" * 64, b"z" * 8192]))
NULLABLE = st.one_of(st.none(), BYTES)
HEADERS = st.lists(st.tuples(TEXTS, NULLABLE), max_size=3).map(tuple)

FIELDS = (
    "base_offset last_offset end_offset leader_epoch crc attributes base_timestamp max_timestamp "
    "producer_id producer_epoch base_sequence record_count size codec is_control is_transactional"
).split()


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    base = draw(st.sampled_from([0, 1, 63, 2**31, 2**62]))
    part = st.tuples(TIMESTAMPS, NULLABLE, NULLABLE, HEADERS)
    parts = draw(st.lists(part, min_size=1, max_size=9))
    return [Record(base + i, *part) for i, part in enumerate(parts)]


@st.composite
def producer_fields(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "leader_epoch": draw(st.integers(-1, 2**31 - 1)),
        "producer_id": draw(INT64),
        "producer_epoch": draw(st.integers(-(2**15), 2**15 - 1)),
        "base_sequence": draw(st.integers(-(2**31), 2**31 - 1)),
        "transactional": draw(st.booleans()),
    }


def built(records: list[Record], fields: dict[str, Any], capacity: int = 1 << 20) -> bytes:
    """By the compiled builder, record by record."""
    target = bytearray(capacity)
    chosen = builder.Settings(records[0].timestamp, base_offset=records[0].offset, **fields)
    open_batch = builder.BatchBuilder(target, chosen)
    for record in records:
        assert open_batch.append(record.value, record.key, record.headers, record.timestamp)
    size = open_batch.size
    assert open_batch.finish() == size
    return bytes(target[:size])


# covers: testMemoryRecords, testBuildBatch
@given(record_lists(), producer_fields())
def test_the_same_bytes_and_back(records: list[Record], fields: dict[str, Any]) -> None:
    data = pure.encode_batch(records, **fields)
    assert built(records, fields) == data
    compiled, plain = batch.check_batch(data), pure.check_batch(data)
    for name in FIELDS:
        assert getattr(compiled, name) == getattr(plain, name), name
    assert list(compiled.records()) == list(plain.records()) == records


@given(record_lists())
def test_compressed_and_back(records: list[Record]) -> None:
    plain = pure.encode_batch(records)
    compressed = builder.compress_batch(plain)
    assert len(compressed) <= len(plain)
    assert compressed == pure.encode_batch(records, codec=Codec.ZSTD)
    for reader in (batch, pure):
        assert list(reader.check_batch(compressed).records()) == records


@given(record_lists(), st.integers(0, 300))
def test_columns_of_many_batches(records: list[Record], cut: int) -> None:
    data = b"".join(pure.encode_batch([record]) for record in records)
    data += builder.compress_batch(pure.encode_batch(records[:1]))
    expected = [*records, records[0]]
    table = columns.decode_columns(data)
    assert table.offsets.tolist() == [record.offset for record in expected]
    assert table.timestamps.tolist() == [record.timestamp for record in expected]
    assert table.keys.to_pylist() == [record.key for record in expected]
    assert table.values.to_pylist() == [record.value for record in expected]
    # A cut answer gives the whole batches, and says where it stopped.
    short = columns.decode_columns(data[:cut], partial=True)
    whole = list(batch.batches(data[:cut], partial=True))
    assert len(short) == len(whole)
    assert short.position == sum(found.size for found in whole)


# --- damage ---


def outcome(reader: Any, data: bytes, rules: str) -> Any:
    """What a reader makes of bytes: the records, or which exception and why."""
    try:
        found = reader.check_batch(data, records=rules)
        return [tuple(record) for record in found.records()]
    except errors.KraftfastError as error:
        return type(error).__name__, str(error)


def outcomes_agree(data: bytes) -> None:
    for rules in ("any", "kafka-raft"):
        assert outcome(batch, data, rules) == outcome(pure, data, rules)
    found: Any
    for reader in (batch, pure):  # without the check, nothing but typed errors either
        try:
            for found in reader.batches(data):
                list(found.records())
        except errors.KraftfastError:
            pass
    for decode in (columns.decode_columns, columns.decode_values):
        try:
            decode(data, control=True)
        except errors.KraftfastError:
            pass


def with_good_crc(data: bytearray) -> bytes:
    """Whoever writes bad batches on purpose computes their CRC too."""
    if len(data) > 21:
        data[17:21] = struct.pack(">I", crc32c(data[21:]))
    return bytes(data)


@settings(max_examples=400)
@given(record_lists(), st.data())
def test_the_same_fault_for_changed_bytes(records: list[Record], choice: st.DataObject) -> None:
    data = bytearray(pure.encode_batch(records))
    places = st.one_of(st.integers(0, len(data) - 1), st.integers(61, min(90, len(data) - 1)))
    for _ in range(choice.draw(st.integers(1, 3))):
        data[choice.draw(places)] = choice.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF, 0x10]))
    outcomes_agree(bytes(data))
    outcomes_agree(with_good_crc(data))


@settings(max_examples=200)
@given(record_lists(), st.data())
def test_the_same_fault_for_every_cut(records: list[Record], choice: st.DataObject) -> None:
    data = pure.encode_batch(records)
    cut = choice.draw(st.integers(0, len(data) - 1))
    outcomes_agree(data[:cut])
    shortened = bytearray(data[:cut])
    if cut > 61:  # a batch that says it is this long
        struct.pack_into(">i", shortened, 8, cut - 12)
        outcomes_agree(with_good_crc(shortened))


@given(st.binary(max_size=200))
@example(bytes(61))
@example(b"\xff" * 100)
def test_the_same_fault_for_noise(noise: bytes) -> None:
    outcomes_agree(noise)
    header = pure.encode_batch([Record(0, 0, None, b"")], leader_epoch=1)[:57]
    for count in (1, 3, len(noise) // 7):
        data = bytearray(header + struct.pack(">i", count) + noise)
        struct.pack_into(">i", data, 8, len(data) - 12)
        struct.pack_into(">i", data, 23, max(count, 1) - 1)
        outcomes_agree(with_good_crc(data))


# --- columns of values against record by record ---

VALUE_LISTS = st.lists(BYTES, min_size=1, max_size=300)


def encode_all(values: builder.Values, capacity: int, **more: Any) -> tuple[bytes, list[int]]:
    """All values in batches of at most so many bytes, and the counts of their records."""
    out, counts = b"", []
    while sum(counts) < len(values):
        target = bytearray(b"\xaa" * (capacity + 8))
        size, taken = values.encode_into(
            target, builder.Settings(77), start=sum(counts), capacity=capacity, **more
        )
        assert taken > 0
        assert target[capacity:] == b"\xaa" * 8, "wrote past the capacity"
        out += target[:size]
        counts.append(taken)
    return out, counts


def expected_batches(values: list[bytes], counts: list[int]) -> bytes:
    out, at = b"", 0
    for count in counts:
        out += pure.encode_batch(pure.values_to_records(values[at : at + count], 77))
        at += count
    return out


def as_columns(values: list[bytes]) -> dict[str, builder.Values]:
    blob = b"".join(values)
    ends = np.cumsum([0, *map(len, values)])
    return {
        "list": builder.Values(values),
        "int64": builder.Values(blob, ends.astype(np.int64)),
        "int32": builder.Values(blob, ends.astype(np.int32)),
    }


@given(VALUE_LISTS, st.integers(100, 20000))
def test_columns_encode_as_the_twin_does(values: list[bytes], capacity: int) -> None:
    capacity += max(map(len, values))
    for kind, column in as_columns(values).items():
        data, counts = encode_all(column, capacity)
        assert data == expected_batches(values, counts), kind
        for i, found in enumerate(batch.check_batches(data)):  # each is as full as can be
            if i + 1 < len(counts):
                following = pure.values_to_records(values[sum(counts[:i]) :][: counts[i] + 1], 77)
                assert len(pure.encode_batch(following)) > capacity >= found.size


@given(
    st.integers(1, 300).flatmap(
        lambda size: st.tuples(st.just(size), st.binary(min_size=size, max_size=size))
    ),
    st.integers(1, 700),
    st.integers(0, 5000),
)
@example((1, b"x"), 9000, 100_000)  # offset deltas of one, two and three bytes
@example((1, b"x"), 8193, 10)
@example((16, b"x" * 16), 65, 2000)
def test_fixed_sizes_encode_as_the_twin_does(one: tuple[int, bytes], count: int, more: int) -> None:
    size, value = one
    rows = np.frombuffer(value * count, np.uint8).reshape(count, size)
    values = [value] * count
    capacity = 61 + size + 12 + more
    for column in (builder.Values(rows), builder.Values(value * count, size=size)):
        data, counts = encode_all(column, capacity)
        assert data == expected_batches(values, counts)
        assert encode_all(builder.Values(values), capacity) == (data, counts)


@given(record_lists())
def test_keys_and_timestamps_of_columns(records: list[Record]) -> None:
    bare = [Record(i, each.timestamp, each.key, each.value) for i, each in enumerate(records)]
    values = builder.Values([each.value for each in bare])
    target = bytearray(1 << 18)
    size, taken = values.encode_into(
        target,
        builder.Settings(0),
        keys=builder.Values([each.key for each in bare]),
        timestamps=np.array([each.timestamp for each in bare], np.int64),
    )
    assert taken == len(bare)
    assert target[:size] == pure.encode_batch(bare)


@given(record_lists(), st.integers(0, 2000))
def test_a_full_builder_changes_nothing(records: list[Record], capacity: int) -> None:
    target = bytearray(b"\xaa" * (capacity + 16))
    chosen = builder.Settings(records[0].timestamp, base_offset=records[0].offset)
    open_batch = builder.BatchBuilder(target, chosen, capacity=capacity)
    kept: list[Record] = []
    for each in records:
        whole = [*kept, each._replace(offset=records[0].offset + len(kept))]
        fits = len(pure.encode_batch(whole)) <= capacity
        assert open_batch.append(each.value, each.key, each.headers, each.timestamp) == fits
        kept = whole if fits else kept
        assert open_batch.record_count == len(kept)
    size = open_batch.finish()
    assert target[capacity:] == b"\xaa" * 16
    assert target[:size] == (pure.encode_batch(kept) if kept else b"")


# --- the twin stands alone ---


def test_the_twin_needs_no_compiled_module() -> None:
    program = (
        "import sys, importlib.abc\n"
        "class Refuse(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        compiled = ('batch', 'builder', 'checksum', 'columns', 'encode', 'parse')\n"
        "        if name in ['kraftfast.record.' + each for each in compiled]:\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "from kraftfast.record import control, pure\n"
        "data = control.control_batch([control.KRaftVersion(1)], timestamp=1, leader_epoch=1)\n"
        "print(control.decode_control(next(pure.check_batch(data).records())).kraft_version)\n"
        "extension = [name for name in sys.modules if name.startswith('kraftfast') and\n"
        "             getattr(sys.modules[name], '__file__', '').endswith('.so')]\n"
        "print(extension)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stdout.split() == ["1", "[]"], ran.stderr


@pytest.mark.parametrize("module", "batch builder columns control pure compression".split())
def test_importing_loads_nothing_above(module: str) -> None:
    program = (
        f"import sys, kraftfast.record.{module}\n"
        "above = ('asyncio', 'multiprocessing', 'click', 'rich', 'pyarrow', 'zstandard')\n"
        "ours = [n for n in sys.modules if n.startswith('kraftfast.') and n.split('.')[1] not in\n"
        "        ('record', 'types', 'limits', 'errors', 'arguments', 'varints', 'buffer',\n"
        "         '_cyutility')]\n"
        "print([name for name in above if name in sys.modules], ours)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stdout.strip() == "[] []", ran.stderr


def test_a_batch_of_no_records_has_no_bytes_for_them() -> None:
    """Decoders that count records would pass over the bytes behind such a header."""
    made = bytearray(pure.encode_batch([Record(5, 1_700_000_000_000, None, b"value")]))
    struct.pack_into(">i", made, 57, 0)
    struct.pack_into(">I", made, 17, crc32c(bytes(made[21:])))
    bare = made[:61]
    struct.pack_into(">i", bare, 8, 61 - 12)
    struct.pack_into(">I", bare, 17, crc32c(bytes(bare[21:])))
    for module in (batch, pure):
        (found,) = module.batches(bytes(bare))
        assert list(found.records()) == []
        with pytest.raises(errors.CorruptBatch):
            list(module.batches(bytes(made)))
    for decode in (columns.decode_columns, columns.decode_values):
        decode(bytes(bare))
        with pytest.raises(errors.CorruptBatch):
            decode(bytes(made))
