"""The earliest snapshot of a running quorum, fetched from its leader in slices as a replica does.

Source: KIP-630 (the snapshot id in the answer to Fetch, then FetchSnapshot).
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from kraftfast.errors import (
    ErrorCode,
    MalformedFrame,
    NoQuorum,
    NotLeader,
    OffsetOutOfRange,
    RequestRefused,
)
from kraftfast.log.disk import storage_error
from kraftfast.log.snapshots.snapshot_files import snapshot_name
from kraftfast.spark.reading.remote_ranges import open_quorum
from kraftfast.spark.spark_options import SparkLogOptions
from kraftfast.spark.streaming.leader_connection import PASSING, fetch_once
from kraftfast.types import METADATA_PARTITION, OffsetAndEpoch

if TYPE_CHECKING:
    from kraftfast.client.cluster import KnownLeader
    from kraftfast.client.connection import Connection

SLICE_BYTES = 1024 * 1024
RETRY_S = 0.1
COMES_BACK = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.BROKER_NOT_AVAILABLE,
    }
)  # fmt: skip
"""Answers after which the leader is looked for again."""

T = TypeVar("T")
Question = Callable[["Connection", "KnownLeader", float], T]


def _of_leader(options: SparkLogOptions, question: Question[T]) -> T:
    """Return what the leader answers, any leader until ``timeout``. Raises NoQuorum."""
    quorum = open_quorum(options)
    deadline = time.monotonic() + options.timeout
    while True:
        try:
            connection, leader = quorum.cluster.find_leader(deadline)
            try:
                return question(connection, leader, deadline)
            finally:
                connection.close()
        except PASSING as error:
            if time.monotonic() >= deadline:
                raise NoQuorum(f"no leader hands its snapshot out: {error}") from None
            time.sleep(RETRY_S)


def earliest_snapshot(options: SparkLogOptions) -> OffsetAndEpoch | None:
    """Return where the leader's earliest snapshot ends; None if none stands for a record.

    The log behind it is whole, and it is named to a replica that has nothing yet, which is what we
    ask as. Raises NoQuorum.
    """

    def ask(connection: Connection, leader: KnownLeader, deadline: float) -> OffsetAndEpoch | None:
        answer = fetch_once(
            connection, leader, options.topic, deadline, fetch_offset=0, last_fetched_epoch=0,
            max_bytes=1,  # and none for the partition
        )  # fmt: skip
        _check(answer.error_code or answer.partition_error_code)
        if answer.snapshot_end_offset <= 0:
            return None
        return OffsetAndEpoch(answer.snapshot_end_offset, answer.snapshot_epoch)

    return _of_leader(options, ask)


@contextmanager
def fetched_snapshot(options: SparkLogOptions, snapshot_id: OffsetAndEpoch) -> Iterator[str]:
    """Yield the path of a copy, as long as the ``with`` block lasts.

    Raises NoQuorum, OffsetOutOfRange if a later one has taken its place, StorageError.
    """
    with tempfile.TemporaryDirectory(prefix="kraftfast-snapshot-") as folder:
        path = os.path.join(folder, snapshot_name(snapshot_id))
        try:
            with open(path, "wb") as file:
                _of_leader(options, _copy(options, snapshot_id, file))
        except OSError as error:
            raise storage_error("cannot write", path, error) from None
        yield path


def _copy(options: SparkLogOptions, snapshot_id: OffsetAndEpoch, file: BinaryIO) -> Question[None]:
    """Append slices to a file until it is whole; another leader goes on behind the last one."""
    from kraftfast.wire.messages import ApiKey, FetchSnapshotRequest

    kind = FetchSnapshotRequest

    def ask(connection: Connection, leader: KnownLeader, deadline: float) -> None:
        size = -1
        while file.tell() != size:
            fields = kind.Partition(
                partition=METADATA_PARTITION,
                current_leader_epoch=leader.epoch,
                snapshot_id=kind.SnapshotId(snapshot_id.offset, snapshot_id.epoch),
                position=file.tell(),
            )
            topic = kind.Topic(name=options.topic, partitions=[fields])
            request = kind(replica_id=-1, max_bytes=SLICE_BYTES, topics=[topic])
            answer = _slice(connection.ask(ApiKey.FETCH_SNAPSHOT, request, deadline), snapshot_id)
            if answer.position != file.tell() or not len(answer.unaligned_records):
                raise MalformedFrame("a slice of the snapshot that was not asked for")
            size = answer.size
            file.write(answer.unaligned_records)
            deadline = time.monotonic() + options.timeout

    return ask


def _slice(answer: Any, snapshot_id: OffsetAndEpoch) -> Any:
    """Return the partition's part of an answer."""
    _check(answer.error_code)
    if len(answer.topics) != 1 or len(answer.topics[0].partitions) != 1:
        raise MalformedFrame("an answer without the partition that was asked for")
    found = answer.topics[0].partitions[0]
    if found.error_code == ErrorCode.SNAPSHOT_NOT_FOUND:
        text = f"the snapshot that ends at offset {snapshot_id.offset} has been replaced meanwhile"
        raise OffsetOutOfRange(text, snapshot_id.offset)
    _check(found.error_code)
    return found


def _check(code: int) -> None:
    if code in COMES_BACK:
        raise NotLeader(f"the server does not lead (error {code})")
    if code != ErrorCode.NONE:
        raise RequestRefused(f"the leader refuses to hand its snapshot out: error {code}", code)
