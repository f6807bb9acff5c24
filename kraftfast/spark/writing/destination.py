"""Where the sink's records go, and where it keeps what it must know if it has to begin again."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kraftfast import limits
from kraftfast.errors import InvalidOption
from kraftfast.log.disk import Disk
from kraftfast.log.small_files.directory import META, read_meta
from kraftfast.spark.reading.locations import replicas_in
from kraftfast.spark.reading.remote_ranges import open_servers
from kraftfast.spark.reading.uncompiled import need_compiled
from kraftfast.spark.reading.voter_sets import DESCRIPTION
from kraftfast.spark.spark_options import (
    CODECS,
    SINK_BATCH_BYTES,
    SINK_OPTIONS,
    TIMEOUT_S,
    WRITE_MODES,
    Given,
    check_servers,
    local_path,
)
from kraftfast.types import METADATA_TOPIC

if TYPE_CHECKING:
    from kraftfast.client.consumer.consumer import RecordStream
    from kraftfast.client.producer.producer import Producer
    from kraftfast.client.quorum_base import Quorum

WINDOW_BATCHES = limits.PRODUCER_BATCHES
STAGING = "spark-sink"
"""The directory for what is staged, inside a quorum's or a query's."""
NAME_BYTES_MAX = 128
"""Of ``producerName``: query, batch and partition are added to it."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where records go. Either ``path``, a quorum's directory on this host, or ``servers``."""

    path: str
    """Absolute: tasks run in directories of their own."""
    servers: str
    topic: str
    timeout: float
    batch_bytes: int
    compression: str
    name: str
    """What the user calls the job; "" for nothing."""
    never_run: bool
    """The user says that no run of this job has appended anything."""
    mode: str
    staging: str
    """Absolute, as it was given; or ""."""
    checkpoint: str
    """Absolute, of a stream; or "" if it is none or not in a local directory."""

    @classmethod
    def of(cls, options: Any, source: str) -> SinkOptions:
        """Raises InvalidOption."""
        given = Given(options, SINK_OPTIONS, source)
        path, servers = given.text("path"), given.text("bootstrap.servers")
        if bool(path) == bool(servers):
            raise InvalidOption(f"{source} writes to either a path or bootstrap.servers")
        given.check_topic(path)
        name, checkpoint = given.text("producerName"), given.text("checkpointLocation")
        with suppress(InvalidOption):  # where the query keeps it is none of ours then
            checkpoint = _absolute(checkpoint)
        if not name.isprintable():  # errors and notes name it, in one line
            raise InvalidOption(f"producerName={name!r} has characters that cannot be printed")
        if len(name.encode()) > NAME_BYTES_MAX:
            raise InvalidOption(f"producerName has more than {NAME_BYTES_MAX} bytes")
        return cls(
            path=quorum_of(_absolute(path)),
            servers=_checked(servers),
            topic=given.text("topic", METADATA_TOPIC),
            timeout=given.seconds("timeout", TIMEOUT_S),
            batch_bytes=given.number("batchBytes", SINK_BATCH_BYTES, 1024, 4 << 20),
            compression=given.choice("compression", CODECS),
            name=name,
            never_run=given.flag("neverRun", False),
            mode=given.choice("writeMode", WRITE_MODES),
            staging=_absolute(given.text("stagingDir")),
            checkpoint=checkpoint if os.path.isabs(checkpoint) else "",
        )

    def check_place(self) -> None:
        """Before any task starts. Raises NotFormatted for what is no quorum's directory."""
        if self.path:
            self._directories()

    def _directories(self) -> Mapping[int, str]:
        from kraftfast.connected import directories_of

        return directories_of(self.path)

    def staging_root(self, stream: bool) -> str:
        """Return where jobs keep what they stage, and a stream or a job with a name what it has
        done.

        Raises InvalidOption where no directory is sure to be the same one at the next attempt.
        """
        if self.staging:
            return self.staging
        if stream and self.checkpoint:
            return os.path.join(self.checkpoint, STAGING)
        if self.path and replicas_in(self.path):
            return os.path.join(self.path, STAGING)
        if stream or self.name:
            what = "a stream" if stream else f"producerName={self.name}"
            raise InvalidOption(
                f"{what} keeps what it has written in a directory that all hosts mount: name it "
                "by stagingDir" + (", or by checkpointLocation" if stream else "")
            )
        return os.path.join(tempfile.gettempdir(), f"kraftfast-{STAGING}-{os.getuid()}")

    def _quorum(self) -> Quorum:
        """Return the quorum that runs there. Raises NoQuorum, NotCompiled."""
        need_compiled("writing")
        from kraftfast.connected import connect

        if self.servers:
            return open_servers(self.servers, self.topic, self.timeout)
        return connect(Path(self.path), timeout=self.timeout)

    def producer(self, name: str | None) -> Producer:
        """Return an idempotent producer, of this name or of none. Raises NoQuorum, NotCompiled.

        It ends at the first refusal: an attempt takes the number of the records that are stored
        for the number of its first rows that are.
        """
        producer = self._quorum().producer(
            batch_bytes=self.batch_bytes, window=WINDOW_BATCHES, timeout=self.timeout,
            idempotent=True, name=name, compression=self.compression,
        )  # fmt: skip
        producer.end_at_refusal()
        return producer

    def consumer(self, offset: int) -> RecordStream:
        """Return the committed records from an offset on. Raises NoQuorum."""
        return self._quorum().consumer(offset, timeout=self.timeout)

    def committed_end(self) -> int:
        """Some offset that is not above the log's end now. Raises NoQuorum."""
        return max(0, self._quorum().describe(timeout=self.timeout).high_watermark)

    def cluster_id(self) -> str:
        """Whose log it is. Raises NoQuorum, NotFormatted."""
        if self.servers:
            return open_servers(self.servers, self.topic, self.timeout).cluster.cluster_id or ""
        return read_meta(Disk(), next(iter(self._directories().values()))).cluster_id


def _absolute(path: str) -> str:
    """Raises InvalidOption for a path on another file system."""
    return os.path.abspath(local_path(path)) if path else ""


def _checked(servers: str) -> str:
    """Return addresses as they are, if they are some. Raises InvalidOption."""
    if servers:
        check_servers(servers)
    return servers


def quorum_of(path: str) -> str:
    """Return the directory of the quorum whose replica's ``path`` is; else ``path``.

    Records go to a quorum, and one of its replicas alone could not take them.
    """
    parent = os.path.dirname(path)
    single = os.path.exists(os.path.join(path, META))
    return parent if single and os.path.exists(os.path.join(parent, DESCRIPTION)) else path
