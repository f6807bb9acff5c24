"""What a leader takes from a ring at a look is what the readers' own check takes."""

from __future__ import annotations

import random
import struct

import pytest
from crc32c import crc32c

from kraftfast.errors import CorruptBatch
from kraftfast.record.batch import check_batches
from kraftfast.record.pure import encode_batch
from kraftfast.record.shapes import Codec, Record
from kraftfast.sim.machines.paged_file import is_plain


def sealed(batch: bytes | bytearray) -> bytes:
    """With its length and the CRC of what it holds."""
    data = bytearray(batch)
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


def a_batch(draw: random.Random) -> bytes:
    """Of any shape: sizes where a length takes one byte more, headers, nulls, many records."""
    count = draw.choice((1, 2, 3, 70, 200))
    sizes = (None, 0, 1, 20, 56, 63, 64, 200, 8100, 8200)
    records = []
    for offset in range(count):
        key, value = (draw.choice(sizes[: 10 if count < 4 else 7]) for _ in range(2))
        headers = [("h" * draw.randrange(70), draw.choice((None, b"", b"v" * 100)))]
        records.append(
            Record(
                offset,
                1_700_000_000_000 + draw.randrange(-100, 100_000),
                None if key is None else b"k" * key,
                None if value is None else b"v" * value,
                headers * draw.choice((0, 0, 0, 1, 3)),
            )
        )
    return bytes(encode_batch(records))


def is_good(batch: bytes) -> bool:
    try:
        check_batches(batch, control=False)
    except CorruptBatch:
        return False
    return True


@pytest.mark.parametrize("seed", range(4))
def test_what_it_takes_every_reader_takes(seed: int) -> None:
    draw = random.Random(seed)
    taken = refused = 0
    for _ in range(150):
        good = a_batch(draw)
        assert is_plain(good) and is_good(good), "encoders make nothing else"
        for _ in range(10):
            data = bytearray(good)
            for _ in range(draw.choice((1, 1, 2))):
                at = draw.choice((61 + draw.randrange(min(20, len(data) - 61)),
                                  draw.randrange(61, len(data))))  # fmt: skip
                other = data[at] ^ 1, draw.randrange(256)
                data[at] = draw.choice((0, 1, 2, 0x7F, 0x80, 0xFF, *other))
            if draw.random() < 0.2:
                del data[draw.randrange(61, len(data)) :]
            if draw.random() < 0.1:
                data += bytes(draw.randrange(3))
            damaged = sealed(data)
            assert is_plain(damaged) == is_good(damaged), f"seed {seed}: {damaged.hex()}"
            taken, refused = taken + is_plain(damaged), refused + (not is_plain(damaged))
    assert taken > 50 and refused > 300


def test_compressed_records_are_left_to_others() -> None:
    packed = encode_batch([Record(0, 0, None, b"a" * 900)], codec=Codec.ZSTD)
    assert is_good(packed) and not is_plain(packed)
