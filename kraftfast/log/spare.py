"""The file of the next segment on its way: its blocks, its pages, and its last page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraftfast.limits import PAGE_BYTES
from kraftfast.log.segment import Segment
from kraftfast.log.used_again import take_in

if TYPE_CHECKING:
    from kraftfast.log.segment_file import SegmentFile


class Spare:
    """The next segment's file on its way: its blocks, then its last page.

    The page is on disk before its magic is stored, and the magic before the file gets a segment's
    name: so a file among the segments that has no page was trimmed, or is Kafka's (D10). A file
    that is used again and was not trimmed keeps its page, and gets a key (``take_in``).
    """

    # file: a SegmentFile in the nursery. reserved: bytes from the start that may be stored into.
    # zeroed: those whose blocks were written. key: of this life of the file, or 0. used: it had
    # another one. paged: it was not trimmed since. how: as ``Settings.how``. cached: of a used one,
    # bytes from the start whose pages are there, to be stored into. stage: what comes next.

    BLOCKS, PAGES, PAGE, DRAFTED, SEALED, READY = range(6)

    def __init__(
        self,
        file: SegmentFile,
        capacity: int,
        stride: int,
        generation: int,
        how: str,
        key: int = 0,
        used: bool = False,
        paged: bool = False,
    ) -> None:
        self.file, self.capacity, self.generation = file, capacity, generation
        self.how, self.key, self.used, self.paged = how, key, used, paged
        self.cached = 0
        self.wanted = min(page_end(stride), capacity)
        if used:  # all of it, and its last page unless that is there with its words
            self.wanted = capacity if paged else capacity + PAGE_BYTES
        self.reserved = self.zeroed = 0
        self.stage = Spare.BLOCKS

    def next_work(self) -> tuple[str, int, int]:
        """Return (what, start, end): what the preparer has to do next."""
        if self.stage == Spare.BLOCKS:
            return "reserve", 0, self.wanted
        if self.stage == Spare.PAGES:
            return "cached", 0, self.capacity
        if self.stage == Spare.PAGE:
            return "zero", self.capacity, self.capacity + PAGE_BYTES
        return "sync", 0, 0

    def advance(self, done: int = 0) -> None:
        """Record that the work at hand is done, and up to where."""
        if self.stage == Spare.BLOCKS:
            self.reserved = min(self.wanted, self.capacity)
            self.zeroed = self.capacity if self.used else 0
            if self.used and self.how == "mapped":
                self.stage = Spare.PAGES
            else:
                self._keep_page()
            return
        if self.stage == Spare.PAGES:
            self.cached = done
            self._keep_page()
            return
        if self.stage == Spare.PAGE:
            self._segment().draft_page(0, 0, self.generation, self.key)
        elif self.stage == Spare.DRAFTED:
            self._segment().seal_page()
        self.stage += 1

    def _keep_page(self) -> None:
        """Go on with the last page; a file that was not trimmed has one."""
        if not self.paged:
            self.stage = Spare.PAGE
        elif take_in(self._segment(), self.key):
            self.stage = Spare.READY
        else:
            self.stage = Spare.SEALED

    def _segment(self) -> Segment:
        return Segment(self.file, 0, self.capacity)

    def finish(self) -> None:
        """Do what is left, now. Raises DiskFull."""
        while self.stage != Spare.READY:
            if self.stage != Spare.PAGES:
                do_now(self.file, *self.next_work())
            self.advance()

    def prepare_up_to(self, end: int, how: str) -> None:
        """Have so many bytes ready for quick flushes, or stores; for start-up."""
        self.finish()
        if self.zeroed < end:
            self.file.prepare(self.zeroed, end, how)
            self.zeroed = end
            self.reserved = max(self.reserved, end)


def do_now(file: Any, what: str, start: int, end: int) -> None:
    """Do here and now what the preparer would do with a range of a file. Raises DiskFull."""
    if what == "sync":
        file.sync()
    elif what != "cached":
        getattr(file, what)(start, end)


def page_end(position: int) -> int:
    """Return the end of the page that ends at or behind a position."""
    return -(-position // PAGE_BYTES) * PAGE_BYTES
