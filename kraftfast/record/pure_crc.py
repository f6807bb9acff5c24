"""CRC-32C without anything compiled but numpy: for hosts that have not even the package ``crc32c``.

The bytes are laid out as rows of one length, whose checksums are taken side by side, a column at a
time; then they are put together, for the checksum of bytes with zeros behind them is linear.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_POLYNOMIAL: Final = 0x82F63B78  # Castagnoli's, reflected
_ALL_ONES: Final = 0xFFFFFFFF
_ROW_BYTES: Final = 256
_ROWS_MIN: Final = 8  # below, calls of numpy cost more than bytes one by one

Words = NDArray[np.uint32]


def _make_table() -> Words:
    words = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        words = words >> np.uint32(1) ^ np.where(words & 1, np.uint32(_POLYNOMIAL), np.uint32(0))
    return words


_TABLE: Final = _make_table()
_WORDS: Final[list[int]] = _TABLE.tolist()


def _step(states: Words, column: Words) -> Words:
    """Return checksums, each one byte further."""
    found: Words = _TABLE[(states ^ column) & 0xFF] ^ states >> np.uint32(8)
    return found


def _make_shift() -> list[list[int]]:
    """Return what each byte of a checksum becomes behind a row of zeros."""
    states = np.concatenate(
        [np.arange(256, dtype=np.uint32) << np.uint32(8 * place) for place in range(4)]
    )
    nothing = np.zeros_like(states)
    for _ in range(_ROW_BYTES):
        states = _step(states, nothing)
    found: list[list[int]] = states.reshape(4, 256).tolist()
    return found


_SHIFT: Final = _make_shift()


def crc32c(data: Any, value: int = 0) -> int:
    """Return the CRC-32C of ``data`` behind bytes whose CRC-32C is ``value``.

    >>> crc32c(b"123456789") == 0xE3069283 == crc32c(b"6789", crc32c(b"12345"))
    True
    """
    view = memoryview(data).cast("B")
    state = value ^ _ALL_ONES
    rows = len(view) // _ROW_BYTES
    if rows >= _ROWS_MIN:
        cut = rows * _ROW_BYTES
        table = np.frombuffer(view[:cut], np.uint8).reshape(rows, _ROW_BYTES)
        states = np.zeros(rows, np.uint32)
        for column in np.ascontiguousarray(table.T).astype(np.uint32):
            states = _step(states, column)
        first, second, third, fourth = _SHIFT
        for row in states.tolist():
            shifted = first[state & 0xFF] ^ second[state >> 8 & 0xFF]
            state = shifted ^ third[state >> 16 & 0xFF] ^ fourth[state >> 24] ^ row
        view = view[cut:]
    for byte in view:
        state = _WORDS[(state ^ byte) & 0xFF] ^ state >> 8
    return state ^ _ALL_ONES
