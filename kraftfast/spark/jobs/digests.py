"""What a piece of a log amounts to, in one row: enough to see that replicas are the same.

Headers are reduced where they are read, so that next to nothing crosses into the JVM.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kraftfast.spark.jobs.tasks import fan_out
from kraftfast.spark.reading.splits import Piece, open_segment, segment_base

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHUNK_BATCHES = 1 << 14
DIGEST_MASK = 2**64 - 1
HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)
IDENTITY = (
    "base_offset", "end_offset", "epoch", "count", "crc", "attributes", "producer_id",
    "producer_epoch", "base_sequence", "size", "base_timestamp", "max_timestamp",
)  # fmt: skip


@dataclass(slots=True)
class Digest:
    """Of one piece. ``digest``: the sum over the batches that all replicas should have, which does
    not depend on where segments begin; ``faults``: CRCs that do not hold, gaps, epochs that fall,
    and a tail that is no batch."""

    replica: str
    base_offset: int
    end_offset: int
    batches: int = 0
    records: int = 0
    bytes: int = 0
    digest: int = 0
    first_epoch: int = -1
    last_epoch: int = -1
    faults: int = 0

    def add(self, rows: Any, shared: range) -> None:
        """Add headers that follow those so far. ``shared``: the offsets that all replicas have."""
        expected = np.concatenate([[self.end_offset], rows["end_offset"][:-1]])
        epochs = np.concatenate([[self.last_epoch], rows["epoch"]])
        self.faults += int((~rows["crc_ok"]).sum())
        self.faults += int((rows["base_offset"] != expected).sum())
        self.faults += int((epochs[1:] < epochs[:-1]).sum())
        common = rows[(rows["base_offset"] >= shared.start) & (rows["end_offset"] <= shared.stop)]
        self.digest = self.digest + int(_hashes(common).sum()) & DIGEST_MASK
        if not self.batches:
            self.first_epoch = int(rows["epoch"][0])
        self.batches += len(rows)
        self.records += int(rows["count"].sum())
        self.bytes += int(rows["size"].sum())
        self.end_offset, self.last_epoch = int(rows["end_offset"][-1]), int(rows["epoch"][-1])


def _hashes(rows: Any) -> Any:
    """Return a number of 64 bits for each header, of all that replicas have alike."""
    found = np.zeros(len(rows), np.uint64)
    for name in IDENTITY:
        found ^= rows[name].astype(np.int64).view(np.uint64)
        found *= HASH_FACTOR
        found ^= found >> np.uint64(29)
    return found


def digest_of(piece: Piece, shared: range) -> Digest:
    """Return the digest of a piece, with every CRC computed again.

    ``shared``: the offsets that all replicas have.
    """
    segment = open_segment(*segment_base(piece.path))
    found = Digest(piece.replica, piece.first_offset, piece.first_offset)
    position, end = piece.position, piece.end if piece.end >= 0 else segment.limit
    while position < end:
        headers = segment.headers(position, end, batches_max=CHUNK_BATCHES, verify_crc=True)
        rows = headers.rows[headers.rows["end_offset"] <= piece.end_offset]
        if len(rows):
            found.add(rows, shared)
        cut = len(rows) < len(headers.rows) or found.end_offset >= piece.end_offset
        if cut or headers.fault or headers.position == position:
            found.faults += bool(headers.fault) and not cut
            break
        position = headers.position
    return found


def digests(spark: SparkSession, pieces: list[Piece], shared: range) -> list[Digest]:
    """Return the digest of each piece, read by tasks; in the order of the pieces."""
    found = fan_out(spark, lambda piece: astuple(digest_of(piece, shared)), pieces)
    return [Digest(*row) for row in found]


def alike(found: list[Digest], replicas: list[str]) -> bool:
    """Return whether every replica is sound, without gaps between its pieces, and the same as the
    others.

    >>> same = [Digest(name, 0, 5, 1, 5, 99, 7, 1, 1) for name in "ab"]
    >>> alike(same, ["a", "b"]), alike([same[0], Digest("b", 0, 5, 1, 5, 99, 8)], ["a", "b"])
    (True, False)
    """
    sums = set[int]()
    for name in replicas:
        mine = [each for each in found if each.replica == name]
        if any(each.faults for each in mine):
            return False
        held = [each for each in mine if each.batches]
        for one, other in zip(held, held[1:]):
            if one.end_offset != other.base_offset or one.last_epoch > other.first_epoch:
                return False
        sums.add(sum(each.digest for each in mine) & DIGEST_MASK)
    return len(sums) <= 1
