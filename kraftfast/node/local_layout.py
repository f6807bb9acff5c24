"""How a quorum of one host lies on disk: ``quorum.json``, and a directory for each replica."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

import msgspec

from kraftfast import limits
from kraftfast.errors import ForeignDirectory, InvalidOption, NotFormatted
from kraftfast.log.directory import (
    LogOptions,
    MetaProperties,
    format_directory,
    random_uuid,
    read_meta,
    read_options,
)
from kraftfast.log.disk import Disk
from kraftfast.record.control import KRaftVersion, KRaftVoters
from kraftfast.types import METADATA_TOPIC, METADATA_TOPIC_ID, Endpoint, Uuid, Voter, uuid_text

DESCRIPTION = "quorum.json"
ON_THIS_HOST = Endpoint("CONTROLLER", "localhost", 0)
"""Of a replica that is reached over rings alone: port 0 is nowhere."""


class Description(msgspec.Struct):
    """``quorum.json``: what was decided when the quorum was made, and who came later.

    ``voters``: the first ones. Who votes now stands in the log, from ``kraft.version`` 1 on.
    """

    cluster_id: str
    voters: list[int]
    durability: str = "majority"
    records: str = "any"
    topic: str = METADATA_TOPIC
    version: int = 1
    added: list[int] = []

    @property
    def replicas(self) -> list[int]:
        """Ids of all that live here: the first voters, and those added since."""
        return [*self.voters, *self.added]


def read_description(path: str) -> Description:
    """The description of a quorum. Raises NotFormatted, ForeignDirectory."""
    file = os.path.join(path, DESCRIPTION)
    try:
        return msgspec.json.decode(Disk().read_file(file), type=Description)
    except FileNotFoundError:
        raise NotFormatted(f"{path} holds no quorum: there is no {DESCRIPTION}") from None
    except msgspec.DecodeError as error:
        raise ForeignDirectory(f"{file} does not parse: {error}") from None


def replica_directories(path: str, voters: list[int]) -> dict[int, str]:
    """Replica id -> its directory."""
    return {id: os.path.join(path, str(id)) for id in voters}


class LiveDirectories(Mapping[int, str]):
    """Replica id -> its directory, of those that live in a quorum's directory at the moment.

    Others may be added while somebody looks for the leader among them. Raises NotFormatted,
    ForeignDirectory.
    """

    # path: the quorum's. found: what was there the last time.

    def __init__(self, path: str) -> None:
        self.path, self.found = path, replica_directories(path, read_description(path).replicas)

    def __getitem__(self, id: int) -> str:
        return self.found[id]

    def __iter__(self) -> Iterator[int]:
        self.found = replica_directories(self.path, read_description(self.path).replicas)
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)


def format_quorum(
    path: str,
    voters: int,
    durability: str = "majority",
    records: str = "any",
    topic: str = METADATA_TOPIC,
    cluster_id: str | None = None,
    kraft_version: int = 0,
) -> Description:
    """Make the directories of a new quorum, of a new cluster if no ``cluster_id`` is given.

    ``kraft_version`` 1 puts the voters into a bootstrap checkpoint, 0 leaves them static.
    Raises InvalidOption; ForeignDirectory if there is one already.
    """
    if not 1 <= voters <= limits.VOTERS_MAX:
        raise InvalidOption(f"voters must be from 1 to {limits.VOTERS_MAX}, not {voters}")
    if kraft_version not in (0, 1):
        raise InvalidOption(f"kraft.version must be 0 or 1, not {kraft_version}")
    disk = Disk()
    if disk.exists(os.path.join(path, DESCRIPTION)):
        raise ForeignDirectory(f"{path} already holds a quorum")
    topic_id = METADATA_TOPIC_ID if topic == METADATA_TOPIC else random_uuid()
    options = LogOptions(durability, records, topic, topic_id)
    cluster_id = cluster_id or uuid_text(random_uuid())
    description = Description(cluster_id, list(range(1, voters + 1)), durability, records, topic)
    disk.make_directory(path)
    ids = {id: random_uuid() for id in description.voters}
    first: tuple[KRaftVersion, KRaftVoters] | tuple[()] = ()
    if kraft_version == 1:
        entries = [Voter(id, its, (ON_THIS_HOST,), 0, 1) for id, its in ids.items()]
        first = (KRaftVersion(1), KRaftVoters(tuple(entries)))
    for id, directory in replica_directories(path, description.voters).items():
        meta = MetaProperties(description.cluster_id, id, ids[id])
        format_directory(disk, directory, meta, options, first)
    write_description(path, description)
    return description


def write_description(path: str, description: Description) -> None:
    """Store ``quorum.json``, durably."""
    Disk().replace_file(os.path.join(path, DESCRIPTION), msgspec.json.encode(description))


def add_to_description(path: str, id: int) -> Uuid:
    """Make one more replica of a quorum, unless it is there; returns its directory id.

    Whoever runs the quorum starts it (``LocalQuorum.adopt``). Raises NotFormatted, StorageError.
    """
    description = read_description(path)
    if id in description.replicas:
        return read_meta(Disk(), os.path.join(path, str(id))).directory_id
    directory_id = format_replica(path, description, id)
    description.added.append(id)
    write_description(path, description)
    return directory_id


def format_replica(path: str, description: Description, id: int) -> Uuid:
    """Make a directory for one more replica of a quorum; returns its directory id.

    It holds what is promised of the others. One that was made before is taken as it is.
    """
    disk = Disk()
    others = replica_directories(path, description.replicas)
    options = read_options(disk, next(iter(others.values())))
    assert options is not None, "the first replica's directory is ours"
    directory = os.path.join(path, str(id))
    try:
        meta = read_meta(disk, directory)
    except NotFormatted:
        meta = MetaProperties(description.cluster_id, id, random_uuid())
        format_directory(disk, directory, meta, options)
    if (meta.node_id, meta.cluster_id) != (id, description.cluster_id):
        raise ForeignDirectory(f"{directory} belongs to another quorum")
    return meta.directory_id


SET_ASIDE = ".set-aside"


def set_others_aside(path: str, id: int) -> list[str]:
    """Leave one replica of a quorum; the directories of the others are renamed, not removed.

    Returns what they are called now. Raises NotFormatted where there is no quorum, StorageError.
    """
    disk, description, made = Disk(), read_description(path), []
    for other, directory in replica_directories(path, description.replicas).items():
        if other == id or not disk.exists(directory):
            continue
        aside = directory + SET_ASIDE
        while disk.exists(aside):
            aside += "+"
        disk.rename(directory, aside)
        made.append(aside)
    disk.sync_directory(path)
    write_description(path, msgspec.structs.replace(description, voters=[id], added=[]))
    return made
