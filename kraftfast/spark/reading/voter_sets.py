"""The voter sets in the files of a log that is not open: of its snapshots and its records."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from contextlib import suppress

from kraftfast.errors import StorageError
from kraftfast.log.disk import Disk
from kraftfast.log.reading.copied_file import OPEN_END
from kraftfast.log.reading.extents import Extent
from kraftfast.log.reading.held_segment import HeldSegment
from kraftfast.log.reading.reader import LogReader
from kraftfast.log.small_files import quorum_state
from kraftfast.log.snapshots.snapshot_files import snapshot_ids
from kraftfast.log.snapshots.snapshot_reader import open_snapshot
from kraftfast.record.batch import BatchView
from kraftfast.record.control import ControlType, decode_control
from kraftfast.record.shapes import CONTROL
from kraftfast.spark.reading.certain import SetAt
from kraftfast.types import KRaftVoters, VoterSet

DESCRIPTION = "quorum.json"
CHUNK_BATCHES = 1 << 14


def sets_in_force(log_path: str, offset: int) -> list[SetAt]:
    """Return the voter set in force at ``offset``, and all later ones of the log, in order.

    Empty for a log that names none, as at kraft.version 0. Raises StorageError, CorruptBatch.
    """
    disk, found = Disk(), []
    ids = [each for each in snapshot_ids(disk, log_path) if each.offset <= offset]
    begin = ids[-1].offset if ids else 0
    for each in ids[-1:]:
        with open_snapshot(disk, log_path, each) as snapshot:
            found += [(begin - 1, record) for record in snapshot.controls]
    records = found + list(_voters_records(log_path, begin))
    sets = [(at, each.voters) for at, each in records if isinstance(each, KRaftVoters)]
    below = [each for each in sets if each[0] < offset]
    return below[-1:] + sets[len(below) :]


def _voters_records(log_path: str, begin: int) -> Iterator[tuple[int, object]]:
    """Return KRaftVoters records from the batch that holds ``begin`` on, with their offsets."""
    ends = [base for base, _ in LogReader(log_path).segments()] + [OPEN_END]
    for base, following in itertools.pairwise(ends):  # a new replica has no segment yet
        if following <= begin:
            continue
        segment = HeldSegment(log_path, base)
        _, position = segment.place(begin)
        while True:
            found = segment.headers(position, segment.limit, batches_max=CHUNK_BATCHES)
            rows = found.rows[found.rows["attributes"] & CONTROL != 0]
            for at, size in zip(rows["position"].tolist(), rows["size"].tolist(), strict=True):
                yield from _of_batch(segment.batch(at, at + size), begin)
            position = found.position
            if len(found.rows) < CHUNK_BATCHES:
                break


def _of_batch(batch: BatchView, begin: int) -> Iterator[tuple[int, object]]:
    for record in batch.records():
        kind = int.from_bytes((record.key or b"")[2:4], "big")
        if kind == ControlType.KRAFT_VOTERS and record.offset >= begin:
            yield record.offset, decode_control(record)


def snapshot_epoch(log_path: str) -> int:
    """Return the epoch of the last record in a log's newest snapshot; -1 if there is none.

    Nothing may follow it: a replica that fetched it goes on from there.
    """
    return max((each.epoch for each in snapshot_ids(Disk(), log_path)), default=-1)


def stored_epoch(log_path: str, extent: Extent) -> int | None:
    """Return the newest epoch that a replica stored or has records of; None if that is unknown."""
    path = os.path.join(log_path, quorum_state.NAME)
    epochs = extent.epochs
    try:
        state = quorum_state.decode(Disk().read_file(path), path)
    except (FileNotFoundError, StorageError):
        return None
    return max(state.epoch, epochs[-1][0] if epochs else 0, snapshot_epoch(log_path))


def static_voters(log_path: str) -> VoterSet | None:
    """Return those that ``quorum-state`` names at kraft.version 0; None if it names none."""
    path = os.path.join(log_path, quorum_state.NAME)
    with suppress(FileNotFoundError, StorageError):
        data = Disk().read_file(path)
        quorum_state.decode(data, path)
        ids = quorum_state.static_voter_ids(data)
        return None if ids is None else VoterSet.of(*ids)
    return None


def described_voters(path: str) -> VoterSet | None:
    """Return the voters that ``quorum.json`` in a quorum's directory names, for logs that do not.

    None where it does not parse, and where replicas were added: then only logs have the voters.
    """
    try:
        found = json.loads(Disk().read_file(os.path.join(path, DESCRIPTION)))
        return None if found.get("added") else VoterSet.of(*found["voters"])
    except (OSError, ValueError, LookupError, TypeError, AttributeError, StorageError):
        return None
