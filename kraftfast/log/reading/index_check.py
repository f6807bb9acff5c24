"""The index files beside a segment, held against its batches (``verify``)."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import NoReturn

from kraftfast.log.disk import Disk
from kraftfast.log.reading.reader import corrupt_log
from kraftfast.log.segment import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from kraftfast.record.batch import BatchView

INDEX_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
INDEX_FILE_BYTES_MAX = 64 * 1024 * 1024
INDEX_ENTRIES = {INDEX_SUFFIX: INDEX_ENTRY, TIME_INDEX_SUFFIX: TIME_ENTRY}


class IndexCheck:
    """The entries of one index file, compared as the batches come by.

    A replica that runs may remove the file at any time: it is missing then.
    """

    # entries: those that are left. next: the one that comes, or None. count: those that were right.
    # largest: the largest timestamp of the batches that were met.

    def __init__(self, path: str, base_offset: int, indexed: bool) -> None:
        self.path, self.base_offset = path, base_offset
        self.missing = not indexed
        self.entries = index_entries(path) if indexed else iter(())
        self.count, self.largest, self.next = 0, -1, None
        try:
            self.next = next(self.entries, None)
        except FileNotFoundError:
            self.missing = True

    def meet_place(self, found: BatchView, position: int) -> None:
        """Check an entry: (offset of the batch's last record, its position)."""
        while self.next is not None and self.next[1] <= position:
            if self.next != (found.last_offset - self.base_offset, position):
                self.refuse("points to no batch")
            self.pass_by()

    def meet_time(self, found: BatchView) -> None:
        """Check an entry: (timestamp, offset of a record of the batch whose largest it is).

        No earlier batch has one as large: a search for that time begins at this batch.
        """
        while self.next is not None and self.base_offset + self.next[1] <= found.last_offset:
            if self.next[0] != found.max_timestamp:
                self.refuse("has not the largest timestamp of its batch")
            if self.next[0] <= self.largest:
                self.refuse("has a timestamp that an earlier batch has")
            self.pass_by()
        self.largest = max(self.largest, found.max_timestamp)

    def pass_by(self) -> None:
        self.count += 1
        self.next = next(self.entries, None)

    def finish(self) -> int | None:
        """Return how many entries there are, all of them right; None without the file."""
        if self.next is not None:
            self.refuse("points behind the last batch")
        return None if self.missing else self.count

    def hold_whole(self, made: bytes) -> None:
        """Compare the file, if there is one, with the bytes that its segment's batches make."""
        try:
            stored = made if self.missing else Disk().read_file(self.path, INDEX_FILE_BYTES_MAX)
        except FileNotFoundError:
            stored, self.missing = made, True
        if stored != made:
            same = len(os.path.commonprefix([stored, made]))
            self.count = same // INDEX_ENTRIES[os.path.splitext(self.path)[1]].size
            self.refuse("is missing: the next start writes the file again")

    def refuse(self, why: str) -> NoReturn:
        size = INDEX_ENTRIES[os.path.splitext(self.path)[1]].size
        raise corrupt_log(
            self.path, self.count * size, self.base_offset, f"entry {self.count} {why}"
        )


def index_entries(path: str) -> Iterator[tuple[int, int]]:
    """Yield the pairs of an ``.index`` (relative offset, position) or a ``.timeindex`` (timestamp,
    relative offset), in order; the zeros that Kafka prepares behind them are left out.

    Raises CorruptLog where they do not rise, or what is behind them is not zeros.
    """
    entry = INDEX_ENTRIES[os.path.splitext(path)[1]]
    data = Disk().read_file(path, INDEX_FILE_BYTES_MAX)
    before: tuple[int, int] | None = None
    for at in range(0, len(data) - entry.size + 1, entry.size):
        one, other = entry.unpack_from(data, at)
        if (one, other) == (0, 0) and not data[at:].strip(b"\0"):
            return
        if min(one, other) < 0 or (before is not None and (one <= before[0] or other <= before[1])):
            raise corrupt_log(path, at, 0, "its entries do not rise")
        before = one, other
        yield before
    if len(data) % entry.size:
        raise corrupt_log(path, len(data) // entry.size * entry.size, 0, "part of an entry")
