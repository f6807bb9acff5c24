"""An uncertain end: the log may have lost records that this replica acknowledged (D10).

Two ways lead there. After a crash the end of the log was damaged where an acknowledgement may have
gone out (a *phantom tail*); or a ``durability=memory`` replica lost its memory. A replica in doubt
neither campaigns in the ordinary way nor helps elect a log that may be shorter than what it
acknowledged (I21), until it has fetched that again.

If every replica were in that state, none could ever lead. So there are *unanimous* elections: the
sender marks its requests as such, asks every voter, and leads only if all of them grant. The
longest log of all voters wins then, which no acknowledged record can be missing from unless it is
lost everywhere; the winner reports the possible loss.
"""

from __future__ import annotations

from msgspec import Struct

from kraftfast.core.log_view import LogView
from kraftfast.types import OffsetAndEpoch


class Doubt(Struct, eq=False):
    """What this replica may have acknowledged beyond its log.

    Invariants: ``phantom_tail`` is above the durable end of the log, compared as (epoch, offset)
    and never as a length: else a legitimate leader of a later epoch would be refused for ever.
    """

    phantom_tail: OffsetAndEpoch | None  # upper bound of what may have been acknowledged
    memory_lost: bool  # durability=memory: what was acknowledged is not known at all
    possible_loss: bool = False  # this replica led out of doubt: committed records may be missing
    refused_in_doubt: bool = False  # a voter in doubt refused: the next campaign asks unanimously

    def exists(self) -> bool:
        """Return whether this replica's end is uncertain."""
        return self.phantom_tail is not None or self.memory_lost

    def allows(self, last_epoch: int, last_offset: int) -> bool:
        """Return whether a log with this end may be voted for in an ordinary election (I21)."""
        if self.memory_lost:
            return False
        tail = self.phantom_tail
        return tail is None or (last_epoch, last_offset) >= (tail.epoch, tail.offset)

    def covered(self, log: LogView) -> None:
        """End a doubt about a phantom tail that the log has on disk again.

        Only a leader's records extend a log in doubt, so whatever reaches that far came from one;
        a process that ended before its mark was removed finds it so at its next start.
        """
        tail, end_offset = self.phantom_tail, log.ackable_end_offset()
        if tail is not None:
            if (log.epoch_before(end_offset), end_offset) >= (tail.epoch, tail.offset):
                self.phantom_tail = None

    def refetched(self, log: LogView, high_watermark: int) -> None:
        """Record that a leader's records are on disk here up to the log's durable end, which may be
        enough.

        ``high_watermark`` is what a leader gave since the start, -1 if none did yet.
        """
        self.covered(log)
        if self.memory_lost and 0 <= high_watermark <= log.ackable_end_offset():
            self.memory_lost = False

    def calls_for_unanimity(self) -> bool:
        """Return whether the campaign that begins now must win every voter.

        A replica that is not in doubt itself takes turns: an ordinary campaign, then, if a voter
        in doubt refused it, a unanimous one.
        """
        refused = self.refused_in_doubt
        self.refused_in_doubt = False
        return refused or self.exists()

    def led_out(self) -> None:
        """Record that every voter agreed that this replica's log is the longest of all."""
        self.phantom_tail = None
        self.memory_lost = False
        self.possible_loss = True
