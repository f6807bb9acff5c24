"""A replica's directory: which replica it belongs to, what was promised about it, and its lock.

    DIR/meta.properties         node, cluster and directory id (Kafka's)
    DIR/kraftfast.properties    durability, accepted records, topic: the mark that the log is ours
    DIR/boot-id                 durability=memory only: under which boot it was last written
    DIR/.lock                   held while a process uses it
    DIR/nursery/                segments that are being prepared, or wait to be used again
    DIR/<topic>-<partition>/    segments, indexes, checkpoints, quorum-state (Kafka's)

Sources: Kafka's ``meta.properties`` and ``partition.metadata``; KIP-853.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from kraftfast import forks
from kraftfast.errors import ForeignDirectory, InvalidOption, NotFormatted
from kraftfast.log.disk import Disk
from kraftfast.log.small_files import properties
from kraftfast.log.small_files.committed_floor import FLOOR
from kraftfast.types import (
    METADATA_PARTITION,
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    ZERO_UUID,
    KRaftVersion,
    KRaftVoters,
    Uuid,
    uuid_from_text,
    uuid_text,
)

if TYPE_CHECKING:
    from kraftfast.record.batch import RecordsMode

META = "meta.properties"
OPTIONS = "kraftfast.properties"
BOOT_ID = "boot-id"
PARTITION_METADATA = "partition.metadata"
NURSERY = "nursery"
SET_ASIDE = ".set-aside"
"""How the name of a replaced replica's directory ends, then a "+" for each that was there."""
DURABILITIES = ("majority", "all", "memory")
KAFKA_RAFT = "kafka-raft"
RECORDS = ("any", KAFKA_RAFT)


class MetaProperties(NamedTuple):
    """``meta.properties``, version 1."""

    cluster_id: str
    node_id: int
    directory_id: Uuid


class _LogOptions(NamedTuple):
    durability: str
    records: RecordsMode
    topic: str
    topic_id: Uuid


class LogOptions(_LogOptions):
    """What was promised about a log when it was formatted; the same on every replica.

    Raises InvalidOption for a durability or records that there are not, and for a witness that
    would acknowledge from memory: Kafka's leaders take each Fetch for what is on disk (D3).
    """

    __slots__ = ()

    def __new__(
        cls,
        durability: str = "majority",
        records: str = "any",
        topic: str = METADATA_TOPIC,
        topic_id: Uuid = METADATA_TOPIC_ID,
    ) -> LogOptions:
        if durability not in DURABILITIES:
            raise InvalidOption(f"durability must be one of {DURABILITIES}, not {durability!r}")
        if records not in RECORDS:
            raise InvalidOption(f"records must be one of {RECORDS}, not {records!r}")
        if (durability, records) == ("memory", KAFKA_RAFT):
            raise InvalidOption(
                "durability=memory does not go with records=kafka-raft: Kafka's controllers count "
                "what a witness has as on its disk; choose durability=majority"
            )
        checked = cast("RecordsMode", records)  # one of RECORDS
        return super().__new__(cls, durability, checked, topic, topic_id)


def random_uuid() -> Uuid:
    """Return a new id whose text does not start with a dash, as Kafka's never do."""
    while True:
        uuid = os.urandom(16)
        if not uuid_text(uuid).startswith("-") and uuid[:15] != bytes(15):
            return uuid


def read_fields(disk: Disk, file: str) -> dict[str, str]:
    """Read a properties file. Raises FileNotFoundError, ForeignDirectory."""
    try:
        return properties.decode(disk.read_file(file))
    except ValueError:
        raise ForeignDirectory(f"{file} is not a properties file") from None


def encode_meta(meta: MetaProperties, stamp: str | None = None) -> bytes:
    """Encode ``meta.properties`` in the order in which Kafka's come out."""
    fields = {
        "node.id": str(meta.node_id),
        "directory.id": uuid_text(meta.directory_id),
        "version": "1",
        "cluster.id": meta.cluster_id,
    }
    return properties.encode(fields, stamp)


def encode_partition_metadata(topic_id: Uuid) -> bytes:
    """Encode ``partition.metadata``, without a newline at the end."""
    return f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode()


def format_directory(
    disk: Disk,
    path: str,
    meta: MetaProperties,
    options: LogOptions,
    first: Sequence[KRaftVersion | KRaftVoters] = (),
) -> None:
    """Make an empty directory a replica's; ``first`` is what its bootstrap snapshot holds.

    Raises ForeignDirectory if it already is one's.
    """
    if disk.exists(os.path.join(path, META)):
        raise ForeignDirectory(f"{path} is already formatted")
    log_path = os.path.join(path, f"{options.topic}-{METADATA_PARTITION}")
    for made in (path, log_path, os.path.join(path, NURSERY)):
        disk.make_directory(made)
    disk.sync_name(path)  # D18: that of one that was there may be in the page cache alone
    partition = os.path.join(log_path, PARTITION_METADATA)
    disk.replace_file(partition, encode_partition_metadata(options.topic_id))
    disk.replace_file(os.path.join(path, OPTIONS), _encode_options(options))
    if first:
        from kraftfast.log.snapshots.snapshot_writer import (
            write_bootstrap,
        )  # replicas start meanwhile

        write_bootstrap(disk, log_path, first)
    disk.replace_file(os.path.join(path, META), encode_meta(meta))  # last: it says "done"


def read_meta(disk: Disk, path: str) -> MetaProperties:
    """Read ``meta.properties`` of a directory. Raises NotFormatted or ForeignDirectory.

    Version 0 (of the ZooKeeper era) may lack cluster and directory id, version 1 the latter: then
    they are empty and zero.
    """
    file = os.path.join(path, META)
    try:
        fields = read_fields(disk, file)
    except FileNotFoundError:
        raise NotFormatted(f"{path} is not formatted: there is no {META}") from None
    version = fields.get("version", "0")
    if version not in ("0", "1"):
        raise ForeignDirectory(f"{file} has version {version}; versions 0 and 1 are known")
    if version == "1" and not fields.get("cluster.id"):
        raise ForeignDirectory(f"{file} has no cluster.id")
    try:
        node_id = int(fields["node.id"] if "node.id" in fields else fields["broker.id"])
        text = fields.get("directory.id")
        directory_id = uuid_from_text(text) if text else ZERO_UUID
    except (KeyError, ValueError):
        raise ForeignDirectory(f"{file} has no valid node.id or directory.id") from None
    if not 0 <= node_id < 2**31:
        raise ForeignDirectory(f"{file} has node.id {node_id}")
    return MetaProperties(fields.get("cluster.id", ""), node_id, directory_id)


def _give_directory_id(disk: Disk, path: str) -> MetaProperties:
    """Write a directory id into ``meta.properties``, as Kafka does at its start."""
    file = os.path.join(path, META)
    fields = read_fields(disk, file)
    fields["directory.id"] = uuid_text(random_uuid())
    disk.replace_file(file, properties.encode(fields))
    return read_meta(disk, path)


def read_options(disk: Disk, path: str) -> LogOptions | None:
    """Return what the directory promises; None in one of Kafka's own, before the first write."""
    file = os.path.join(path, OPTIONS)
    try:
        fields = read_fields(disk, file)
    except FileNotFoundError:
        return None
    try:
        topic_id = uuid_from_text(fields["topic.id"])
        return LogOptions(fields["durability"], fields["records"], fields["topic"], topic_id)
    except (KeyError, ValueError, InvalidOption) as error:
        what = f"there is no {error}" if isinstance(error, KeyError) else str(error)
        raise ForeignDirectory(
            f"{file} does not parse: {what}; it is the same on every replica of a quorum"
        ) from None


def _encode_options(options: LogOptions) -> bytes:
    return properties.encode(
        {
            "version": "1",
            "durability": options.durability,
            "records": options.records,
            "topic": options.topic,
            "topic.id": uuid_text(options.topic_id),
        }
    )


class ReplicaDirectory:
    """An opened directory; holds its lock until ``close``. Without ``lock`` nothing is written.

    Raises DirectoryInUse, NotFormatted, ForeignDirectory.
    """

    # path: the directory. meta: whose it is; never changes while open.
    # options: what was promised. log_path: where the segments are. adopted: Kafka's own directory,
    # to be recovered by Kafka's rule; True until mark_ours.

    def __init__(self, disk: Disk, path: str, lock: bool = True) -> None:
        self.disk = disk
        self.path = path
        self._lock: int | None = None
        self.log_path = path
        if lock and disk.exists(path):
            disk.hold(path)
            try:
                self._lock = disk.lock(self._lock_path)
            except BaseException:
                disk.let_go(path)
                raise
            forks.own(self)
        try:
            self.meta = read_meta(disk, path)
            if self._lock is not None and self.meta.directory_id == ZERO_UUID:
                self.meta = _give_directory_id(disk, path)
            options = read_options(disk, path)
            if options is None and disk.exists(os.path.join(path, FLOOR)):
                raise ForeignDirectory(
                    f"{path} has no {OPTIONS}, but kraftfast wrote its log: put that file back, "
                    "it is the same on every replica of a quorum"
                )
            self.adopted = options is None
            self.options = options or self._kafka_options()
        except Exception:
            self.close()
            raise
        self.log_path = os.path.join(path, f"{self.options.topic}-{METADATA_PARTITION}")

    def _kafka_options(self) -> LogOptions:
        """Return what a directory of Kafka's own amounts to: its topic and accepted records."""
        for name in self.disk.list_directory(self.path):
            file = os.path.join(self.path, name, "quorum-state")
            if not self.disk.exists(file):
                continue
            topic, _, partition_id = name.rpartition("-")
            if partition_id != str(METADATA_PARTITION):
                continue
            topic_id = METADATA_TOPIC_ID
            partition = os.path.join(self.path, name, PARTITION_METADATA)
            if self.disk.exists(partition):
                topic_id = decode_partition_metadata(self.disk.read_file(partition), partition)
            return LogOptions(records=KAFKA_RAFT, topic=topic, topic_id=topic_id)
        return LogOptions(records=KAFKA_RAFT)

    def mark_ours(self) -> None:
        """Have the log recovered by our rule from now on (D10). Call once its tail has been cut."""
        self.disk.make_directory(os.path.join(self.path, NURSERY))
        self.disk.make_directory(self.log_path)
        self.disk.replace_file(os.path.join(self.path, OPTIONS), _encode_options(self.options))
        self.adopted = False

    @property
    def in_memory(self) -> bool:
        """Whether records are acknowledged from memory (durability=memory)."""
        return self.options.durability == "memory"

    def keeps_memory(self) -> bool:
        """Return whether all that was appended in memory is still there, as far as the boot tells.

        It is lost with the page cache: another boot, and no clean close. Raises StorageError where
        the host does not tell its boot.
        """
        if not self.in_memory:
            return False
        stored = self._stored_boot_id()
        return stored is None or stored == self.disk.boot_id(self.path)

    def _stored_boot_id(self) -> str | None:
        try:
            stored = self.disk.read_file(os.path.join(self.path, BOOT_ID))
        except FileNotFoundError:
            return None
        return stored.decode("ascii", "replace")

    def write_boot_id(self) -> None:
        """Write it, durably before the first acknowledgement from memory.

        Where it stands already no space is needed: a full disk must not keep a killed replica from
        starting, which may have what to give up.
        """
        boot_id = self.disk.boot_id(self.path)
        if self._stored_boot_id() == boot_id:
            self.disk.sync_directory(self.path)  # a start that was killed may have named it
        else:
            self.disk.replace_file(os.path.join(self.path, BOOT_ID), boot_id.encode("ascii"))

    def clear_boot_id(self) -> None:
        """Remove it: after a clean close everything is on disk whatever the durability."""
        if self.disk.exists(os.path.join(self.path, BOOT_ID)):
            self.disk.unlink(os.path.join(self.path, BOOT_ID))
            self.disk.sync_directory(self.path)

    @property
    def _lock_path(self) -> str:
        return os.path.join(self.path, ".lock")

    def hold_log(self) -> None:
        """Follow the directory of the log, too, which exists by now."""
        if self._lock is not None:
            self.disk.let_go(self.log_path)
            self.disk.hold(self.log_path)

    def check(self) -> None:
        """Check that the paths still lead here. Raises StorageError (``Disk.check_place``)."""
        if self._lock is not None:
            self.disk.check_held(self.path)
            self.disk.check_held(self.log_path)
            self.disk.check_place(self._lock_path, self._lock)

    def close(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            self.disk.unlock(lock)
            self.disk.let_go(self.log_path)
            self.disk.let_go(self.path)

    disown = close  # in a forked child, which would hold the lock beyond the end of its parent


def decode_partition_metadata(data: bytes, path: str) -> Uuid:
    """Return the topic id of ``partition.metadata``. Raises ForeignDirectory."""
    try:
        fields = dict(line.split(": ", 1) for line in data.decode("ascii").splitlines() if line)
        if fields["version"] != "0":
            raise ValueError
        return uuid_from_text(fields["topic_id"])
    except (ValueError, KeyError, UnicodeDecodeError):
        raise ForeignDirectory(f"{path} does not parse") from None


class LooseLog(NamedTuple):
    """Segments outside a replica's directory, to be judged by Kafka's rule.

    ``adopted``: nothing of ours vouches for what is on disk.
    """

    path: str
    log_path: str
    adopted: bool = True

    def keeps_memory(self) -> bool:
        """Return False: nothing is known of a process that appended."""
        return False


LogDirectory = ReplicaDirectory | LooseLog
