"""Where there are only .py files: the readers in Python against the compiled ones, and a zip."""

from __future__ import annotations

import gzip
import pickle
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftfast import limits
from kraftfast.errors import KraftfastError
from kraftfast.log import scan
from kraftfast.record import columns, compression, control, headers, pure, pure_crc, rows
from kraftfast.record.checksum import crc32c
from kraftfast.record.shapes import Codec, Record
from kraftfast.spark.reading import pure_readers, uncompiled
from tests.spark.kit import LogFiles, rows_of

ROOT = Path(__file__).resolve().parents[2]
BYTES = st.none() | st.binary(max_size=80)
HEADERS = st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3).map(tuple)


def compress(codec: Codec, block: bytes) -> bytes:
    if codec == Codec.GZIP:
        return gzip.compress(block)
    if codec == Codec.SNAPPY:
        packed: bytes = pytest.importorskip("snappy").compress(block)
        return packed
    if codec == Codec.LZ4:
        packed = pytest.importorskip("lz4.frame").compress(block)
        return packed
    return compression.compress(codec, memoryview(block))


def with_codec(data: bytes, codec: Codec) -> bytes:
    """The same batch, compressed, as writers of Kafka's do it."""
    if codec == Codec.NONE:
        return data
    block = compress(codec, data[limits.BATCH_HEADER_BYTES :])
    attributes = struct.unpack_from(">h", data, 21)[0] | codec
    under = struct.pack(">h", attributes) + data[23 : limits.BATCH_HEADER_BYTES] + block
    length = struct.pack(">i", 9 + len(under))
    return data[:8] + length + data[12:17] + struct.pack(">I", crc32c(under)) + under


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Batches that follow each other: codecs, nulls, headers, producers, control batches, gaps."""
    offset, found = draw(st.integers(0, 50)), []
    for epoch in range(draw(st.integers(1, 4))):
        if draw(st.integers(0, 4)) == 0:
            more = {"base_offset": offset, "timestamp": 0, "leader_epoch": epoch}
            found.append(control.control_batch([control.SnapshotFooter()], **more))
            offset += 1
            continue
        count = draw(st.integers(1, 70))
        few = [(draw(BYTES), draw(BYTES), draw(HEADERS), draw(st.integers(0, 1 << 40)))] * 2
        few.append((b"k", b"v", (), 5))
        records = [
            Record(offset + i, few[i % 3][3], few[i % 3][0], few[i % 3][1], few[i % 3][2])
            for i in range(count)
        ]
        if draw(st.booleans()) and count > 2:
            records.pop(1)
        made = {"producer_id": 9, "producer_epoch": 2, "base_sequence": 2**31 - 2}
        data = pure.encode_batch(
            records, leader_epoch=epoch, **(made if draw(st.booleans()) else {})
        )
        found.append(with_codec(data, draw(st.sampled_from(Codec))))
        offset += count
    return b"".join(found)


@st.composite
def torn(draw: st.DrawFn) -> bytes:
    """Such a log, then a few bytes changed, some where a CRC that was made anew covers them."""
    data = bytearray(draw(logs()))
    for _ in range(draw(st.integers(0, 2))):
        data[draw(st.integers(0, len(data) - 1))] ^= 1 << draw(st.integers(0, 7))
    if draw(st.booleans()):
        try:
            size = pure.batch_at(data).size
            struct.pack_into(">I", data, 17, crc32c(data[21:size]))
        except KraftfastError:
            pass
    return bytes(data) + bytes(draw(st.integers(0, 70)))


def outcome(call: Any, *args: Any, **more: Any) -> Any:
    """What a decoder found, in plain values; or why it refused, and where."""
    try:
        return values_of(call(*args, **more))
    except KraftfastError as error:
        return type(error), getattr(error, "position", None), getattr(error, "reason", None)


def values_of(found: Any) -> Any:
    if hasattr(found, "to_pylist"):
        return found.to_pylist(), found.null_count, found.offsets.dtype, found.to_arrow()
    if hasattr(found, "tolist"):
        return found.dtype, found.tolist()
    if hasattr(found, "__slots__"):
        more = ("sequences",) if hasattr(found, "sequences") else ()
        named = {name: values_of(getattr(found, name)) for name in found.__slots__}
        return named | {name: values_of(getattr(found, name)()) for name in more}
    return found


def decoders_agree(data: bytes) -> None:
    for more in (
        {}, {"first_offset": 20, "end_offset": 60, "control": True},
        {"records_max": 10, "contents": False}, {"bytes_max": 300, "verify_crc": False},
    ):  # fmt: skip
        found = outcome(pure_readers.decode_rows, data, **more)
        assert found == outcome(rows.decode_rows, data, **more), more
    for more in ({}, {"verify_crc": True}, {"batches_max": 2}):
        found = outcome(pure_readers.decode_headers, data, **more)
        assert found == outcome(headers.decode_headers, data, **more), more
    start = int.from_bytes(data[:8], "big") & (1 << 40) - 1
    for more in ({}, {"verify_crc": True}, {"end_offset": start + 60}, {"bytes_max": 300}):
        walked = pure_readers.walk(data, 0, len(data), start, **more)
        assert walked == scan.walk(data, 0, len(data), start, **more), more
        assert pure_readers.fault_text(walked[3]) == scan.fault_text(walked[3])
    assert pure_readers.data_end(data, 0, len(data)) == scan.data_end(data, 0, len(data))


@settings(max_examples=100, deadline=None)
@given(logs())
def test_sound_logs_are_the_same(data: bytes) -> None:
    decoders_agree(data)
    assert len(pure_readers.decode_rows(data, control=True)) == len(list(rows_in(data)))


def rows_in(data: bytes) -> Any:
    for batch in pure.batches(data):
        yield from batch.records()


@settings(max_examples=200, deadline=None)
@given(torn())
def test_damage_is_refused_alike(data: bytes) -> None:
    decoders_agree(data)


def test_recorded_logs(golden: Path) -> None:
    paths = [path for kind in ("*.log", "*.checkpoint") for path in golden.rglob(kind)]
    assert len(paths) > 20
    for path in paths:
        decoders_agree(path.read_bytes())


def test_columns_and_faults_that_have_no_batch() -> None:
    data = pure.encode_batch(pure.values_to_records([b"a", b"b"], timestamp=3))
    for keys in (True, False):
        found, compiled = (each.decode_columns(data, keys=keys) for each in (pure_readers, columns))
        assert values_of(found.values) == values_of(compiled.values)
        assert found.timestamps.tolist() == compiled.timestamps.tolist() == [3, 3]
        assert (found.keys is None) == (compiled.keys is None) == (not keys)
    for position, end in ((5, 3), (0, len(data) + 1)):
        for name in ("decode_rows", "decode_headers"):
            compiled = rows if name == "decode_rows" else headers
            found, wanted = (
                outcome(getattr(each, name), data, position, end)
                for each in (pure_readers, compiled)
            )
            assert found[0] == wanted[0], name


def test_last_pages() -> None:
    """The words of a prepared segment's last page, sound and with bits of it changed."""

    def slot(sequence: int, *words: int) -> bytes:
        data = struct.pack("=QqiIqiIQQ4x", sequence, *words, *([0] * (8 - len(words))))
        return data + struct.pack("=I", crc32c(data))

    page = bytearray(limits.PAGE_BYTES)
    struct.pack_into("=Q", page, 0, pure_readers.PAGE_MAGIC)
    page[512:640] = slot(4, 30, 3, 0, 20, 2, 0) + slot(3, 20, 2, 0, 20, 2, 0)
    check = (5 << 20 >> 16 ^ 5 << 20 ^ 0x5A5A) & 0xFFFF
    struct.pack_into("=Q", page, 1024, 7)
    struct.pack_into("=Q", page, 1088, check << 48 | 5 << 20)
    assert pure_readers.page_words(page) == (7, 5 << 20, (30, 3), (20, 2)) == scan.page_words(page)
    other = bytearray(page)
    for at in (512, 576):
        other[at : at + 64] = page[512 + 576 - at :][:64]  # no slot is where it belongs
    assert pure_readers.page_words(other) == (7, 5 << 20, None, None) == scan.page_words(other)
    struct.pack_into("=QQ", page, 1152, 77, 77 ^ 2**64 - 1)  # a file that is used again
    assert (
        pure_readers.page_words(page) == scan.page_words(page) == (7, 0, (30, 3), (20, 2))
    )  # no end
    ends = [slot(4, 30, 3, 0, 20, 2, 0, 9, 0), slot(5, 30, 3, 0, 20, 2, 0, 9, 4711)]
    page[1536:1664] = b"".join(ends)
    assert pure_readers.page_words(page) == scan.page_words(page) == (7, 4711, (30, 3), (20, 2))
    for at in (
        0,
        512,
        520,
        540,
        572,
        576,
        584,
        639,
        1024,
        1088,
        1093,
        1152,
        1536,
        1600,
        1650,
        4000,
    ):
        for changed in ({at}, {at, 515}, {at, 580}):
            other = bytearray(page)
            for each in changed:
                other[each] ^= 0x21
            assert pure_readers.page_words(other) == scan.page_words(other), changed


@pytest.mark.parametrize("size", [0, 1, 255, 2047, 2048, 2049, 70_001])
def test_checksums(size: int) -> None:
    data = bytes(n * n % 251 for n in range(size))
    assert pure_crc.crc32c(data) == crc32c(data)
    assert pure_crc.crc32c(data[size // 3 :], pure_crc.crc32c(data[: size // 3])) == crc32c(data)


# --- a zip of the .py files alone -----------------------------------------------------------------

READ = """
import pickle, sys, warnings
archive, log, quorum = sys.argv[1:]
sys.path.insert(0, archive)
for name in ("crc32c", "msgspec", "zstandard", "click", "rich"):
    sys.modules[name] = None  # Spark's own needs are all that such a host has
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    import kraftfast.spark
    from kraftfast.spark.reading.sources import BatchesSource, LogSource, SnapshotSource
import kraftfast.record.rows
assert kraftfast.record.rows.decode_rows.__module__ == "kraftfast.spark.reading.pure_readers"

class Field:
    def __init__(self, text):
        self.name, self.kind = text.strip("`").replace("`", "").split(" ", 1)
        self.dataType = self

    def simpleString(self):
        return self.kind

class Schema(list):
    def __init__(self, source):
        super().__init__(Field(each) for each in source.schema().split(", "))
        self.names = [field.name for field in self]

def rows(source):
    reader = source.reader(Schema(source))
    batches = [each for part in reader.partitions() for each in reader.read(part)]
    return [row for batch in batches for row in batch.to_pylist()]

def refusal(call):
    try:
        call()
    except kraftfast.errors.KraftfastError as error:
        return f"{type(error).__name__}: {error}"

import kraftfast.errors
found = [rows(each({"path": log})) for each in (LogSource, BatchesSource, SnapshotSource)]
damaged = refusal(lambda: rows(LogSource({"path": log + "-damaged"})))
live = refusal(lambda: rows(LogSource({"path": quorum})))
servers = refusal(lambda: rows(LogSource({"bootstrap.servers": "127.0.0.1:1"})))
from kraftfast.spark.writing.sink import SinkOptions
sink = refusal(lambda: SinkOptions.of({"path": quorum}, "kraftfast").producer("x"))
from kraftfast.log.snapshots.log_start import delete_before
other = refusal(delete_before)
words = [str(each.message) for each in told if each.category is RuntimeWarning]
sys.stdout.buffer.write(pickle.dumps((found, damaged, [live, servers, sink, other], words)))
"""


def archive_of_py_files(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for each in sorted((ROOT / "kraftfast").rglob("*.py")):
            archive.write(each, each.relative_to(ROOT))


@pytest.mark.processes
def test_a_zip_of_py_files_reads_the_same(log: LogFiles, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    import kraftfast
    from kraftfast.spark.reading.sources import BatchesSource, LogSource, SnapshotSource

    log.snapshot(40, [(b"k", b"state")])
    log.copy(tmp_path / "replica-damaged").flip(13)
    archive = tmp_path / "kraftfast.zip"
    archive_of_py_files(archive)
    small = {"stride_bytes": 1 << 20, "prepare_bytes": 1 << 20, "segment_bytes": 8 << 20}
    path = tmp_path / "quorum"
    with kraftfast.LocalQuorum(path, 1, durability="memory", **small):  # type: ignore[arg-type]
        args = [sys.executable, "-c", READ, str(archive), str(log.path), str(path)]
        done = subprocess.run(args, capture_output=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    found, damaged, refused, words = pickle.loads(done.stdout)
    sources = (LogSource, BatchesSource, SnapshotSource)
    assert found == [rows_of(each({"path": str(log.path)})) for each in sources]
    assert "CorruptLog" in damaged and "CRC-32C does not match" in damaged
    missing = f" needs {uncompiled.MISSING}"
    assert all(each.startswith("NotCompiled: ") and each.endswith(missing) for each in refused)
    told = [each.removeprefix("NotCompiled: ").removesuffix(missing) for each in refused]
    asked = f"asking the replica in {path / '1'} how much is committed"
    function = "delete_before of kraftfast.log.snapshots.log_start"
    assert told == [asked, "reading from servers", "writing", function]
    assert words == [uncompiled.SLOW]
