"""What a stream follows: a quorum's servers, or the logs of a path. Both tell where they end and
which logs they are; what is open stays open between triggers.
"""

from __future__ import annotations

import time
from collections.abc import Collection

from kraftfast.errors import InvalidOption, NoQuorum, OffsetOutOfRange
from kraftfast.spark.reading import splits
from kraftfast.spark.reading.committed import QUORUM, Bounded, Logs, OneLog
from kraftfast.spark.reading.locations import find_places
from kraftfast.spark.spark_options import SparkLogOptions
from kraftfast.spark.streaming.leader_connection import LeaderLine, Seen
from kraftfast.spark.streaming.lineage import Lineage, check_names, epochs_before

RETRY_S = 0.05
Ends = dict[str, int]
"""By the name of a log, an offset."""


class Servers:
    """A quorum's log, by its servers."""

    # line: to the leader. at, seen: the offset it was asked at last, and the answer. compared: the
    # connection whose leader was seen to hold what was read before.

    def __init__(self, options: SparkLogOptions) -> None:
        self.line = LeaderLine(options)
        self.at, self.seen = 0, Seen(0, 0)
        self.compared: object = None

    def ends(self, begin: Ends) -> Ends:
        """Return how far the log is committed. Raises NoQuorum."""
        self.at = begin.get(QUORUM, self.at)
        self.seen = self.line.look(self.at)
        return {QUORUM: self.seen.high_watermark}

    def check_names(self, noted: Collection[str]) -> None:
        """Check that this is what a checkpoint is of. Raises ForeignDirectory."""
        check_names(noted, self.line.options.servers, (QUORUM,), True)

    def starts(self) -> Ends:
        """Return where the log starts. Raises NoQuorum."""
        return {QUORUM: self.line.look(0).log_start_offset}

    def compare(self, begin: Ends, then: dict[str, Lineage], fresh: bool) -> None:
        """Compare what was read with the log; ``fresh``: its records too."""
        for name, lineage in then.items():
            lineage.compare(self.line.options.servers, *self.line.identity())
            end = begin.get(name, 0)
            if fresh and lineage.epochs and end > 0 and self.compared is not self.line.connection:
                found = self.line.look(end - 1).epoch
                lineage.compare_epoch(self.line.options.servers, end - 1, lineage.last_epoch, found)
                self.compared = self.line.connection

    def lineages(self, ends: Ends) -> dict[str, Lineage]:
        """Return which log it is, up to the ends."""
        end = ends.get(QUORUM, 0)
        seen = self.seen
        if end > 0 and not self.at < end <= seen.end_offset:
            seen = self.line.look(end - 1)
        epoch = seen.epoch if end > 0 else -1
        epochs = ((epoch, end - 1),) if epoch >= 0 else ()
        return {QUORUM: Lineage(*self.line.identity(), epochs)}

    def close(self) -> None:
        """Hang up."""
        self.line.close()


class Paths:
    """The logs of a path; of a quorum's directory whichever replica may be read."""

    # options: path and how far. logs: with what tells how far they are committed. now: those to
    # read, as the last question for the ends found them.

    def __init__(self, options: SparkLogOptions) -> None:
        self.options = options
        self.logs = Logs.of(options)
        self.now: dict[str, Bounded] = {}

    def bounded(self) -> dict[str, Bounded]:
        """Return the logs by name, each with its bound."""
        self.now = self.logs.bounded()
        return self.now

    def ends(self, _begin: Ends) -> Ends:
        """Return how far each log may be read."""
        return {name: each.end_offset for name, each in self.bounded().items()}

    def check_names(self, noted: Collection[str]) -> None:
        """Check that a log of the checkpoint is among those to read. Raises ForeignDirectory."""
        found, strict = self.now or self.bounded(), self.options.fail_on_data_loss
        check_names(noted, self.options.path, found, strict)

    def starts(self) -> Ends:
        """Return where each log starts."""
        return {name: splits.log_start(each.log.place) for name, each in self.bounded().items()}

    def compare(self, begin: Ends, then: dict[str, Lineage], fresh: bool) -> None:
        """Compare what was read with the logs; ``fresh``: their records too."""
        for name, lineage in then.items():
            if name == QUORUM or self.options.fail_on_data_loss:
                lineage.compare(self._told(name), *self._identity(name))
            end, now = begin.get(name, 0), self.now.get(name)
            if fresh and now is not None and end > 0 and now.end_offset >= end:
                lineage.compare_epochs(self._told(name), end, now.log.extent(end))

    def lineages(self, ends: Ends) -> dict[str, Lineage]:
        """Return which logs they are, up to the ends."""
        found = {}
        for name, each in self.now.items():
            end = ends.get(name, 0)
            epochs = epochs_before(each.log.extent(end), end) if each.end_offset >= end else ()
            found[name] = Lineage(*self._identity(name), epochs)
        return found

    def close(self) -> None:
        """Let go of the replicas."""
        self.logs.close()

    def _told(self, name: str) -> str:
        return self.options.path if name == QUORUM else name

    def _identity(self, name: str) -> tuple[str, tuple[str, ...]]:
        logs = [log for log in self.logs.each() if name in (QUORUM, log.place.name)]
        found = [log.identity() for log in logs]
        cluster = next((cluster for cluster, _ in found if cluster), "")
        return cluster, tuple(sorted({directory for _, directory in found if directory}))

    def log_to_read(self, name: str, begin: int, end: int, lineage: Lineage | None) -> OneLog:
        """Return a log that holds all below ``end``, of the epoch that it was when it was planned.

        What was handed out as committed is on a majority of the replicas, but any one of them may
        be behind after a change of leader: such a one is no damage, and another one is read, as
        soon as it is there. After ``timeout`` seconds one will do that begins at ``end`` or behind
        it, where the last record is gone everywhere; raises NoQuorum if there is none. It is taken
        at once if already the plan was made by such a one: others may hold a dead leader's tail.
        """
        if name != QUORUM:
            bounded = self.bounded().get(name)
            return OneLog(find_places(name)[0]) if bounded is None else bounded.log
        epoch = -1 if lineage is None else lineage.last_epoch
        deadline = time.monotonic() + self.options.timeout
        while True:
            chosen = self.bounded()[QUORUM].log
            begins_behind = splits.log_start(chosen.place) >= end
            if begins_behind and epoch < 0:
                return chosen
            found = self.logs.holders(end, epoch)
            found.sort(key=lambda log: log is not chosen)
            for log in found:
                if splits.log_start(log.place) <= begin:
                    return log
            if found:
                return found[0]
            if time.monotonic() >= deadline:
                if begins_behind:
                    return chosen
                raise NoQuorum(
                    f"offset {end - 1} was committed, and no replica in {self.options.path} holds "
                    f"it within {self.options.timeout:g} s"
                )
            time.sleep(RETRY_S)


def check_start(name: str, offset: int, start: int, options: SparkLogOptions) -> None:
    """Raise OffsetOutOfRange if records that are to be read are gone, unless that is allowed."""
    if offset < start and options.fail_on_data_loss:
        text = (
            f"{name} starts at offset {start} by now, and offset {offset} is to be read: set "
            "failOnDataLoss to false to go on with its snapshot, or where it starts"
        )
        raise OffsetOutOfRange(text, start)


def check_end(name: str, offset: int, end: int) -> None:
    """Raise InvalidOption if the log does not reach the offset that reading is to begin at.

    ``end`` is 0 while a new leader does not know what is committed.
    """
    if 0 < end < offset:
        raise InvalidOption(
            f"startOffset={offset}: {name} is committed up to offset {end}, and nothing beyond is "
            "there to be read"
        )
