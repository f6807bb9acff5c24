"""The codecs: what others write is read, what is broken refused, what explodes stopped (S9)."""

from __future__ import annotations

import gzip
import struct
import sys
import tracemalloc
from collections.abc import Callable

import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kraftfast import errors, limits
from kraftfast.record import batch, columns, compression, pure
from kraftfast.record.shapes import Codec, Record

MIB = 1 << 20


def xerial(data: bytes, block: int = 32 * 1024) -> bytes:
    """As snappy-java's SnappyOutputStream frames it, which Kafka uses."""
    out = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for at in range(0, len(data), block):
        packed = snappy.compress(data[at : at + block])
        out += struct.pack(">i", len(packed)) + packed
    return out


def zstd_stream(data: bytes) -> bytes:
    """Without the content size in the frame, as Kafka's output stream writes it."""
    stream = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    return stream.compress(data) + stream.flush()


WRITERS: dict[str, tuple[Codec, Callable[[bytes], bytes]]] = {
    "gzip": (Codec.GZIP, gzip.compress),
    "snappy-raw": (Codec.SNAPPY, snappy.compress),
    "snappy-xerial": (Codec.SNAPPY, xerial),
    "lz4": (Codec.LZ4, lz4.frame.compress),
    "zstd": (Codec.ZSTD, zstandard.ZstdCompressor().compress),
    "zstd-stream": (Codec.ZSTD, zstd_stream),
}
EACH = pytest.mark.parametrize("name", WRITERS)


def read(codec: Codec, data: bytes) -> bytes:
    return compression.decompress(codec, memoryview(data))


@EACH
@given(data=st.binary(max_size=5000), times=st.sampled_from([1, 1, 3, 40]))
def test_reads_what_others_write(name: str, data: bytes, times: int) -> None:
    codec, write = WRITERS[name]
    assert read(codec, write(data * times)) == data * times


@EACH
def test_reads_large_blocks(name: str) -> None:
    codec, write = WRITERS[name]
    data = b"".join(b"%d of them, " % i for i in range(400_000))
    assert len(data) > 5 * MIB
    assert read(codec, write(data)) == data


@EACH
@given(data=st.binary(min_size=1, max_size=300), place=st.floats(0, 1), value=st.integers(0, 255))
def test_damage_is_a_typed_error_or_other_data(
    name: str, data: bytes, place: float, value: int
) -> None:
    codec, write = WRITERS[name]
    changed = bytearray(write(data))
    changed[int(place * (len(changed) - 1))] = value
    for broken in (bytes(changed), bytes(changed[: int(place * len(changed))])):
        try:
            read(codec, broken)
        except errors.CorruptBatch:
            pass


@EACH
@given(data=st.binary(min_size=30, max_size=300), cut=st.integers(1, 10))
def test_a_stream_that_is_cut_off_gives_a_part_at_most(name: str, data: bytes, cut: int) -> None:
    codec, write = WRITERS[name]
    try:
        got = read(codec, write(data)[:-cut])
    except errors.CorruptBatch:
        return
    # zstd's end mark may be all that was cut; the others say how much there must be.
    assert data.startswith(got) and (got != data or codec == Codec.ZSTD)


@pytest.mark.parametrize("name", ["gzip", "lz4"])
def test_bytes_behind_the_stream(name: str) -> None:
    codec, write = WRITERS[name]
    for behind in (b"x", write(b"more"), bytes(100_000)):
        with pytest.raises(errors.CorruptBatch, match="behind the compressed stream"):
            read(codec, write(b"data") + behind)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
@given(noise=st.binary(max_size=100))
def test_noise(codec: Codec, noise: bytes) -> None:
    try:
        read(codec, noise)
    except errors.CorruptBatch:
        pass


# --- bombs ---


def peak_mib(call: Callable[[], object]) -> float:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1] / MIB
    finally:
        tracemalloc.stop()


def refused_as_bomb(codec: Codec, data: bytes) -> None:
    with pytest.raises(errors.CorruptBatch, match="expands|declares"):
        read(codec, data)


@pytest.mark.parametrize("name", ["gzip", "lz4", "zstd", "zstd-stream"])
def test_the_output_is_bounded(name: str) -> None:
    codec, write = WRITERS[name]
    noise = bytes(range(256)) * 4  # enough to stay under the ratio where a codec allows it
    bomb = write((noise + bytes(200_000)) * 400)
    assert limits.DECOMPRESSED_BYTES_MAX < 75 * MIB
    assert peak_mib(lambda: refused_as_bomb(codec, bomb)) < 2 * 64 + 8


def test_the_ratio_is_bounded() -> None:
    bomb = zstd_stream(bytes(32 * MIB))
    assert len(bomb) < 32 * MIB / limits.DECOMPRESSION_RATIO_MAX
    allowed = max(MIB, len(bomb) * limits.DECOMPRESSION_RATIO_MAX)
    assert peak_mib(lambda: refused_as_bomb(Codec.ZSTD, bomb)) < allowed / MIB + 12
    assert read(Codec.ZSTD, zstd_stream(bytes(MIB))) == bytes(MIB)  # small ones may be anything


@pytest.mark.parametrize("declared", [2**20, 2**31, 2**32 - 1])
def test_snappy_that_declares_what_it_does_not_hold(declared: int) -> None:
    length = b""
    while declared > 0x7F:
        length += bytes([declared & 0x7F | 0x80])
        declared >>= 7
    block = length + bytes([declared]) + b"\x00a"
    framed = b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, len(block)) + block
    for data in (block, framed):
        assert peak_mib(lambda data=data: refused_as_bomb(Codec.SNAPPY, data)) < 1


def test_snappy_in_many_blocks_is_bounded_as_a_whole() -> None:
    packed = snappy.compress(bytes(4 * MIB))
    block = struct.pack(">i", len(packed)) + packed
    bomb = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + block * 17
    assert 17 * 4 * MIB > limits.DECOMPRESSED_BYTES_MAX
    assert peak_mib(lambda: refused_as_bomb(Codec.SNAPPY, bomb)) < 64 + 12


@pytest.mark.parametrize("level", [-131072, -10, 0, 3, 22])
def test_each_level_of_zstd_is_read(level: int) -> None:
    """Kafka's ``compression.zstd.level`` (KIP-390)."""
    data = b"".join(b'{"number": %d}' % number for number in range(10_000))
    packed = compression.compress(Codec.ZSTD, memoryview(data), level)
    assert read(Codec.ZSTD, packed) == data
    assert level < 0 or len(packed) < len(data) / 2


@pytest.mark.parametrize("window_log", [27, 28])
def test_zstd_with_a_huge_window(window_log: int) -> None:
    """That of level 22 is read."""
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=window_log)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    data = stream.compress(bytes(range(256)) * 100) + stream.flush()
    assert zstandard.get_frame_parameters(data).window_size == 1 << window_log
    if 1 << window_log <= limits.ZSTD_WINDOW_BYTES_MAX:
        assert read(Codec.ZSTD, data) == bytes(range(256)) * 100
        return
    with pytest.raises(errors.CorruptBatch, match="zstd"):
        read(Codec.ZSTD, data)


# --- in batches ---


def compressed_batch(block: bytes, codec: Codec, count: int = 1) -> bytes:
    data = bytearray(pure.encode_batch([Record(i, 5, None, b"") for i in range(count)])[:61])
    data += block
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">h", data, 21, codec)
    struct.pack_into(">I", data, 17, pure.crc32c(data[21:]))
    return bytes(data)


@EACH
def test_a_batch_of_each_codec(name: str) -> None:
    codec, write = WRITERS[name]
    records = [Record(i, 5, None, b"value %d" % i) for i in range(100)]
    data = compressed_batch(write(pure.encode_batch(records)[61:]), codec, 100)
    for reader in (batch, pure):
        assert list(reader.check_batch(data).records()) == records
        bad = compressed_batch(b"\xff" * 50, codec)
        with pytest.raises(errors.CorruptBatch, match="batch at byte 3: ") as refused:
            reader.check_batch(b"pad" + bad, 3)
        assert refused.value.position == 3


def test_a_batch_that_claims_more_records_than_it_holds() -> None:
    count = limits.RECORDS_PER_BATCH_MAX
    data = bytearray(compressed_batch(zstandard.compress(b""), Codec.ZSTD))
    struct.pack_into(">i", data, 23, count - 1)
    struct.pack_into(">i", data, 57, count)
    struct.pack_into(">I", data, 17, pure.crc32c(data[21:]))
    for decode in (columns.decode_columns, columns.decode_values):
        with pytest.raises(errors.CorruptBatch, match="record count"):
            decode(bytes(data))
    with pytest.raises(errors.CorruptBatch, match="record 0"):
        batch.check_batch(bytes(data))


# --- a codec that is not there ---


@pytest.mark.parametrize(
    ("codec", "package", "module"),
    [
        (Codec.SNAPPY, "python-snappy", "snappy"),
        (Codec.LZ4, "lz4", "lz4.frame"),
        (Codec.ZSTD, "zstandard", "zstandard"),
    ],
)
def test_the_missing_package_is_named(
    codec: Codec, package: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    data = compressed_batch(b"block", codec)
    for reader in (batch, pure):
        with pytest.raises(errors.UnsupportedCodec, match=f"pip install {package}"):
            reader.check_batch(data)
