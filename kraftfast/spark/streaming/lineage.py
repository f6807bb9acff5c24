"""Of which log an offset of a stream is: kept in the checkpoint, and compared with what is there.

An offset says only how many records come before. So the checkpoint names the cluster, the
directories of the replicas, and the epochs that lead up to the offset: a log that was made again,
or cut, is told instead of being followed from the middle.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from kraftfast.errors import ForeignDirectory, InconsistentClusterId
from kraftfast.log.reading.extents import Extent
from kraftfast.spark.reading.committed import QUORUM

LOGS = "logs"
"""The key of an offset of Spark's beside those of logs; its value is JSON."""
EPOCHS_MAX = 16
NAMES_MAX = 3
ANEW = "to read it, begin with another checkpointLocation, or convert to another folder"

Offsets = dict[str, Any]
"""As Spark keeps them: by log where its next record is, and :data:`LOGS`."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """Which log it is, and how it led up to an offset; empty where that is not known."""

    cluster: str = ""
    directories: tuple[str, ...] = ()
    """Ids of the directories of its replicas."""
    epochs: tuple[tuple[int, int], ...] = ()
    """(epoch, offset of a record of it), rising; the last epoch is also that of the last record."""

    def compare(self, name: str, cluster: str, directories: tuple[str, ...]) -> None:
        """Compare with the log that is there now. Raises what names the cause.

        One directory in common is enough: disks are replaced one by one.
        """
        if self.cluster and cluster and self.cluster != cluster:
            raise InconsistentClusterId(
                f"{name} was of cluster {self.cluster} when it was read, and is of cluster "
                f"{cluster} by now: {ANEW}"
            )
        if self.directories and directories and not set(self.directories) & set(directories):
            raise ForeignDirectory(
                f"none of the directories that {name} was read from is there by now: the log, or "
                f"its replica, has been made again; {ANEW}"
            )

    def compare_epochs(self, name: str, end: int, extent: Extent) -> None:
        """Compare what was read, up to ``end``, with the log. Raises ForeignDirectory."""
        for epoch, offset in self.epochs:
            self.compare_epoch(name, offset, epoch, extent.epoch_at(offset))
        if self.epochs:
            self.compare_epoch(name, end - 1, self.last_epoch, extent.epoch_at(end - 1))

    def compare_epoch(self, name: str, offset: int, epoch: int, found: int) -> None:
        """Compare one record, of ``epoch`` when it was read; ``found`` is -1 if it is not there."""
        if found not in (-1, epoch):
            raise ForeignDirectory(
                f"the record at offset {offset} of {name} was of epoch {epoch} when it was read, "
                f"and is of epoch {found} by now: this is another log, or it was cut; {ANEW}"
            )

    @property
    def last_epoch(self) -> int:
        """Return the epoch of the last record that was read, -1 if it is not known."""
        return self.epochs[-1][0] if self.epochs else -1


def epochs_before(extent: Extent, end: int) -> tuple[tuple[int, int], ...]:
    """Return the newest epochs that begin before an offset, for a lineage.

    >>> epochs_before(Extent(0, 9, ((1, 0), (3, 5), (4, 8))), 7)
    ((1, 0), (3, 5))
    """
    found = [each for each in extent.epochs if each[1] < end]
    return tuple(found[-EPOCHS_MAX:]) if end <= extent.end_offset else ()


def positions(offset: Offsets) -> dict[str, int]:
    """Return where the next record of each log is."""
    return {name: value for name, value in offset.items() if name != LOGS}


def lineages(offset: Offsets) -> dict[str, Lineage]:
    """Return the lineage of each log, none for an offset of an earlier version.

    >>> lineages(marked({"quorum": 5}, {"quorum": Lineage("c", ("d",), ((1, 0),))}))
    {'quorum': Lineage(cluster='c', directories=('d',), epochs=((1, 0),))}
    """
    found = json.loads(offset.get(LOGS) or "{}")
    return {
        name: Lineage(
            each["cluster"], tuple(each["directories"]),
            tuple((epoch, offset) for epoch, offset in each["epochs"]),
        )
        for name, each in found.items()
    }  # fmt: skip


def check_names(noted: Collection[str], place: str, found: Collection[str], strict: bool) -> None:
    """Check that a log of the checkpoint is among those that are there. Raises ForeignDirectory.

    A new name is read from its log's start: by another path all would be read once more. Not
    ``strict``: all logs but that of a whole quorum may be gone.
    """
    mixed = (QUORUM in noted) != (QUORUM in found)
    if noted and found and not set(noted) & set(found) and (mixed or strict):
        gone = "" if mixed else "; if what was read is gone, set failOnDataLoss to false"
        raise ForeignDirectory(
            f"the checkpoint is of {_said(noted)}, and {place} is {_said(found)}: give the path "
            f"that was read; {ANEW}{gone}"
        )


def _said(names: Collection[str]) -> str:
    if QUORUM in names:
        return "a whole quorum"
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return f"the log {', '.join(sorted(names)[:NAMES_MAX])}{more}"


def marked(ends: dict[str, int], found: dict[str, Lineage]) -> Offsets:
    """Return an offset for Spark to keep."""
    text = json.dumps({name: asdict(each) for name, each in found.items()}, separators=(",", ":"))
    return {**ends, LOGS: text}
