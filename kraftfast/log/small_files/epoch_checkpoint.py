"""``leader-epoch-checkpoint``: where each epoch starts (Kafka's ``LeaderEpochCheckpointFile``).

Text: the version ``0``, the number of entries, then ``epoch startOffset`` a line.
Source: Kafka's ``LeaderEpochCheckpointFile``.
"""

from __future__ import annotations

from collections.abc import Sequence

from kraftfast.errors import ForeignDirectory

NAME = "leader-epoch-checkpoint"

EpochStarts = list[tuple[int, int]]
"""(epoch, start offset), both strictly rising by epoch; start offsets never fall."""


def encode(entries: Sequence[tuple[int, int]]) -> bytes:
    """Return the file's bytes.

    >>> encode([(1, 0), (3, 46)])
    b'0\\n2\\n1 0\\n3 46\\n'
    """
    lines = ["0", str(len(entries)), *(f"{epoch} {start}" for epoch, start in entries)]
    return ("\n".join(lines) + "\n").encode()


def decode(data: bytes, path: str = NAME) -> EpochStarts:
    """Return the entries.

    Raises ForeignDirectory for anything that Kafka would not have written.
    """
    try:
        version, count, *lines = data.decode("ascii").splitlines()
        pairs = (line.split(" ") for line in lines)
        entries = [(_number(epoch, 2**31), _number(start, 2**63)) for epoch, start in pairs]
        if version != "0" or _number(count, 2**31) != len(entries):
            raise ValueError
    except ValueError:
        raise ForeignDirectory(f"{path} does not parse as an epoch checkpoint") from None
    for (epoch, start), (next_epoch, next_start) in zip(entries, entries[1:]):
        if next_epoch <= epoch or next_start < start:
            raise ForeignDirectory(f"{path}: epoch {next_epoch} does not follow epoch {epoch}")
    return entries


def _number(text: str, end: int) -> int:
    number = int(text) if text.isdecimal() else -1
    if not 0 <= number < end:
        raise ValueError
    return number
