"""CRC-32C, and copying with it, beside the crc32c package and a bare copy.

python -m pytest bench/kernels/test_crc.py --benchmark-sort=mean
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import crc32c as package
import pytest

from kraftfast.record import checksum

SIZES = {"1 KiB": 1 << 10, "64 KiB": 1 << 16, "1 MiB": 1 << 20}
UNALIGNED = 61  # batches lie one behind the other, at any address


def bare_copy(target: memoryview, source: bytes) -> None:
    target[: len(source)] = source


def copy_then_sum(target: memoryview, source: bytes) -> int:
    target[: len(source)] = source
    return package.crc32c(target[: len(source)])


SUMS: dict[str, Callable[[bytes], int]] = {
    variant: lambda data, variant=variant: checksum.crc32c(data, variant=variant)
    for variant in checksum.variants()
} | {"crc32c package": package.crc32c}
COPIES: dict[str, Callable[[memoryview, bytes], Any]] = {
    variant: lambda to, data, variant=variant: checksum.crc32c_copy(to, data, variant=variant)
    for variant in checksum.variants()
} | {"copy, then crc32c package": copy_then_sum, "copy without a sum": bare_copy}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("way", SUMS)
def test_crc(benchmark: Any, way: str, size: str) -> None:
    benchmark.group = f"crc of {size}"
    data = bytes(range(256)) * (SIZES[size] // 256)
    assert benchmark(SUMS[way], data) == package.crc32c(data)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("way", COPIES)
def test_crc_and_copy(benchmark: Any, way: str, size: str) -> None:
    benchmark.group = f"crc and copy of {size}"
    data = bytes(range(256)) * (SIZES[size] // 256)
    target = memoryview(bytearray(len(data) + UNALIGNED))[UNALIGNED:]
    assert benchmark(COPIES[way], target, data) in (package.crc32c(data), None)
    assert target == data
