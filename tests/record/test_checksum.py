"""CRC-32C from Python: against the crc32c package, in pieces, for every variant of this CPU."""

from __future__ import annotations

import mmap

import crc32c as package
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftfast import errors
from kraftfast.record import checksum

VARIANTS = checksum.variants()


def test_the_fastest_comes_first_and_portable_last() -> None:
    assert VARIANTS[-1] == "portable"
    assert len(set(VARIANTS)) == len(VARIANTS)
    assert checksum.crc32c(b"123456789") == 0xE3069283


@pytest.mark.parametrize("variant", VARIANTS)
@given(data=st.binary(max_size=3000), start=st.integers(0, 2**32 - 1))
def test_equals_the_package(variant: str, data: bytes, start: int) -> None:
    expected = package.crc32c(data, start)
    assert checksum.crc32c(data, start, variant=variant) == expected
    target = bytearray(len(data) + 3)
    assert checksum.crc32c_copy(target, data, start, variant=variant) == expected
    assert target == data + bytes(3)


@pytest.mark.parametrize("variant", VARIANTS)
@given(first=st.binary(max_size=300), second=st.binary(max_size=3000))
def test_pieces_combine(variant: str, first: bytes, second: bytes) -> None:
    a, b = checksum.crc32c(first), checksum.crc32c(second)
    whole = package.crc32c(first + second)
    assert checksum.combine(a, b, len(second), variant=variant) == whole
    assert checksum.crc32c(second, a, variant=variant) == whole


@pytest.mark.parametrize("size", [65535, 65536, 1 << 20])
def test_large_pieces_and_any_buffer(size: int) -> None:
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    expected = package.crc32c(data)
    with mmap.mmap(-1, size + 64) as mapped:
        assert checksum.crc32c_copy(memoryview(mapped)[61:], data) == expected
        assert checksum.crc32c(memoryview(mapped)[61 : 61 + size]) == expected


def test_refusals() -> None:
    with pytest.raises(errors.InvalidOption, match="longer"):
        checksum.crc32c_copy(bytearray(3), b"1234")
    with pytest.raises(errors.InvalidOption, match="no CRC-32C variant 'abacus'"):
        checksum.crc32c(b"", variant="abacus")
    with pytest.raises(BufferError):
        checksum.crc32c_copy(b"1234", b"1234")
