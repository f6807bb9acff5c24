"""How a quorum of one host lies on disk: ``quorum.json``, and a directory for each replica."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from kraftfast import limits
from kraftfast.arguments import one_of, replica_id, shown, whole_number
from kraftfast.errors import ForeignDirectory, InvalidOption, NotFormatted, StorageError
from kraftfast.log.small_files.directory import (
    DURABILITIES,
    META,
    RECORDS,
    SET_ASIDE,
    LogOptions,
    MetaProperties,
    format_directory,
    read_meta,
    read_options,
)
from kraftfast.log.snapshots.snapshot_files import BOOTSTRAP, snapshot_path
from kraftfast.node.storage.description import (
    DESCRIPTION,
    Description,
    changing,
    check_made_with,
    locked,
    read_description,
    write_description,
)
from kraftfast.node.storage.storage_host import HOST, DiskHost
from kraftfast.node.witness import refuse_local
from kraftfast.types import (
    METADATA_PARTITION,
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    Endpoint,
    KRaftVersion,
    KRaftVoters,
    Uuid,
    Voter,
    VoterSet,
    uuid_from_text,
    uuid_text,
)

ON_THIS_HOST = Endpoint("CONTROLLER", "localhost", 0)
"""Of a replica that is reached over rings alone: port 0 is nowhere."""
PORT_MAX = 2**16 - 1
PLAN = DESCRIPTION + ".new"
"""What is being formatted; deleted once ``quorum.json`` is written."""


class Directories(dict[int, str]):
    """Replica id -> its directory. An id that is not there, or is none, raises InvalidOption."""

    def __getitem__(self, id: int) -> str:
        return super().__getitem__(replica_id("a replica's id", id))

    def __missing__(self, id: object) -> str:
        known = ", ".join(map(str, self))
        raise InvalidOption(f"there is no replica {id!r}; the replicas are {known}")


def quorum_path(path: str | os.PathLike[str], host: DiskHost = HOST) -> str:
    """Return the absolute path of a quorum's directory. Raises InvalidOption."""
    try:
        found = os.fspath(path)
    except TypeError:
        found = None
    if not isinstance(found, str):  # bytes too: the workers' configuration is text
        raise InvalidOption(f"a quorum's directory must be a str or a Path, not {shown(path)}")
    if not found or "\0" in found:
        raise InvalidOption(f"a quorum's directory cannot be called {found!r}")
    try:
        found = os.path.abspath(found)
    except FileNotFoundError:
        raise InvalidOption(
            f"a quorum's directory cannot be {found}: the working directory is gone"
        ) from None
    try:
        found.encode()
    except UnicodeEncodeError:  # it is told to workers, and stands in files, as UTF-8
        raise InvalidOption(f"a quorum's directory cannot be {found!r}: it is not UTF-8") from None
    above = found
    while not host.has_name(above) and above != os.path.dirname(above):
        above = os.path.dirname(above)
    if not host.is_directory(above):
        raise InvalidOption(f"a quorum's directory cannot be {found}: {above} is no directory")
    return found


def replica_directories(path: str, voters: list[int]) -> Directories:
    """Return replica id -> its directory."""
    return Directories((id, os.path.join(path, str(id))) for id in voters)


def on_one_device(directories: Mapping[int, str], host: DiskHost = HOST) -> list[list[int]]:
    """Return the ids of replicas that share a device, a list for each: one loss takes all (D19)."""
    devices: dict[int, list[int]] = {}
    for id, directory in sorted(directories.items()):
        with contextlib.suppress(OSError):  # a directory that is missing is told elsewhere
            devices.setdefault(host.device_of(directory), []).append(id)
    return [ids for ids in devices.values() if len(ids) > 1]


def on_device_of(place: str, directories: Mapping[int, str], host: DiskHost = HOST) -> list[int]:
    """Return the ids of replicas that are on the device of ``place``, which exists."""
    device: int = host.device_of(place)
    found: list[int] = []
    for id, directory in sorted(directories.items()):
        with contextlib.suppress(OSError):  # one that is gone shares nothing
            if host.device_of(directory) == device:
                found.append(id)
    return found


def shared_device_text(ids: list[int]) -> str:
    """Return the warning about replicas that share a device (D19)."""
    named = ", ".join(str(id) for id in ids)
    return f"replicas {named} are on one device: if it is lost, all of them are (D19)"


def check_ids(ids: Collection[int], port: int = 0) -> None:
    """Raise InvalidOption unless these are different ids of replicas that could all vote.

    One that stands there twice was meant to be another: 1,1 in place of 1,2 removes a voter.
    ``port``: replica N listens on ``port`` + N; 0: on none, or on any.
    """
    wrong = [id for id in ids if type(id) is not int or not 0 <= id < 2**31]
    if wrong:
        raise InvalidOption(f"a replica's id is from 0 to {2**31 - 1}, not {wrong[0]!r}")
    if len(set(ids)) < len(ids):
        raise InvalidOption(f"an id stands twice among {sorted(ids)}")
    last = max(ids, default=0)
    if port and port + last > PORT_MAX:
        raise InvalidOption(
            f"replica {last} would listen on port {port + last}: the last is {PORT_MAX}"
        )
    if len(ids) > limits.VOTERS_MAX:
        raise InvalidOption(f"a quorum has {limits.VOTERS_MAX} voters at most")


class LiveDirectories(Mapping[int, str]):
    """Replica id -> its directory, of those that live in a quorum's directory at the moment.

    Others may be added while a client looks for the leader among them. Raises NotFormatted,
    ForeignDirectory.
    """

    # path: the quorum's. found: what was there the last time.

    def __init__(self, path: str, host: DiskHost = HOST) -> None:
        self.path, self._host = path, host
        self.found = self._look()

    def _look(self) -> Directories:
        return replica_directories(self.path, read_description(self.path, self._host).replicas)

    def __getitem__(self, id: int) -> str:
        return self.found[id]

    def __contains__(self, id: object) -> bool:
        return id in self.found  # Mapping's own, and its ``get``, expect KeyError

    def get(self, id: int, default: Any = None) -> Any:
        return self.found.get(id, default)

    def __iter__(self) -> Iterator[int]:
        self.found = self._look()
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)


def open_or_format(
    path: str,
    voters: int | None,
    durability: str | None,
    records: str | None,
    kraft_version: int,
    endpoint_of: Callable[[int], Endpoint] | None = None,
    begin: Callable[[int], None] = lambda voters: None,
    host: DiskHost = HOST,
) -> tuple[Description, bool]:
    """Return the quorum in ``path``, and whether it was made now. None: as it is, or the default.

    Each replica says itself what is wrong with its own directory; here they are only compared with
    what ``quorum.json`` promises.
    ``begin(number of replicas)`` is called as soon as that is known, before a quorum is made.
    Raises InvalidOption where it was made with other values, ForeignDirectory, StorageError.
    """
    if voters is not None:
        voters = whole_number("voters", voters, 1, limits.VOTERS_MAX)
    if durability is not None:
        one_of("durability", durability, DURABILITIES)
    if records is not None:
        one_of("records", records, RECORDS)
    whole_number("kraft_version", kraft_version, 0, limits.KRAFT_VERSION_MAX)
    try:
        known = read_description(path, host)
        _check_promises(path, known, host)
    except NotFormatted:
        promised = durability or "majority", records or "any"
        refuse_local(promised[1])
        begin(3 if voters is None else voters)
        try:
            made = format_quorum(
                path,
                3 if voters is None else voters,
                *promised,
                kraft_version=kraft_version,
                endpoint_of=endpoint_of,
                host=host,
            )
            return made, True
        except ForeignDirectory:
            if not host.disk.exists(os.path.join(path, DESCRIPTION)):
                raise
            known = read_description(path, host)  # another process was quicker
    except ForeignDirectory as error:
        from kraftfast.node.storage.lost_description import advice

        raise ForeignDirectory("; ".join(filter(None, (str(error), advice(path, host))))) from None
    refuse_local(known.records)
    asked = {"voters": voters, "durability": durability, "records": records}
    check_made_with(path, known, asked)
    host.disk.sync_directory(path)  # D18: who made it may have been killed before it did
    begin(len(known.replicas))
    return known, False


def _check_promises(path: str, known: Description, host: DiskHost) -> None:
    """Raise ForeignDirectory if ``quorum.json`` promises something else than its replicas do."""
    for id, directory in replica_directories(path, known.replicas).items():
        try:
            made = read_options(host.disk, directory)
            if made is None or read_meta(host.disk, directory).cluster_id != known.cluster_id:
                continue
        except StorageError:
            continue
        for key in ("durability", "records", "topic"):
            said, is_so = getattr(known, key), getattr(made, key)
            if said != is_so:
                file = os.path.join(path, DESCRIPTION)
                raise ForeignDirectory(
                    f"{file}: {key} is {said!r}, but replica {id} was formatted with {is_so!r}"
                )


class Plan(msgspec.Struct, frozen=True):
    """``quorum.json.new``: the directories of a quorum that is being made."""

    log_name: str
    directory_ids: dict[int, str]


def format_quorum(
    path: str,
    voters: int,
    durability: str = "majority",
    records: str = "any",
    topic: str = METADATA_TOPIC,
    cluster_id: str | None = None,
    kraft_version: int = 1,
    endpoint_of: Callable[[int], Endpoint] | None = None,
    host: DiskHost = HOST,
) -> Description:
    """Make the directories of a new quorum, of a new cluster if no ``cluster_id`` is given.

    ``kraft_version`` 1 puts the voters into a bootstrap checkpoint, with ``endpoint_of(id)``
    (default: reached over rings alone); 0 leaves them static. What a
    killed process left is made again from the beginning.
    Raises InvalidOption; ForeignDirectory if there is one already.
    """
    voters = whole_number("voters", voters, 1, limits.VOTERS_MAX)
    if type(kraft_version) is not int or kraft_version not in (0, 1):
        raise InvalidOption(f"kraft.version must be 0 or 1, not {kraft_version}")
    disk = host.disk
    topic_id = METADATA_TOPIC_ID if topic == METADATA_TOPIC else host.random_uuid()
    options = LogOptions(durability, records, topic, topic_id)
    cluster_id = cluster_id or uuid_text(host.random_uuid())
    description = Description(cluster_id, list(range(1, voters + 1)), durability, records, topic)
    description.kraft_version = kraft_version
    ids = {id: host.random_uuid() for id in description.voters}
    first: tuple[KRaftVersion, KRaftVoters] | tuple[()] = ()
    if kraft_version == 1:
        places = {id: endpoint_of(id) if endpoint_of else ON_THIS_HOST for id in ids}
        entries = [Voter(id, its, (places[id],), 0, 1) for id, its in ids.items()]
        first = (KRaftVersion(1), KRaftVoters(VoterSet(entries)))
    if disk.exists(path):
        disk.sync_name(path)  # D18: who made it may have been killed before it did
    else:
        disk.make_directory(path)
    with locked(path, host):
        if disk.exists(os.path.join(path, DESCRIPTION)):
            raise ForeignDirectory(f"{path} already holds a quorum")
        _undo_unfinished(path, host)
        plan = Plan(f"{topic}-{METADATA_PARTITION}", {id: uuid_text(ids[id]) for id in ids})
        disk.replace_file(os.path.join(path, PLAN), msgspec.json.encode(plan))
        directories = replica_directories(path, description.voters).items()
        at_once(
            (
                partial(
                    format_directory, disk, directory, MetaProperties(cluster_id, id, ids[id]),
                    options, first,
                )
                for id, directory in directories
            ), host,
        )  # fmt: skip
        write_description(path, description, host)
        disk.unlink(os.path.join(path, PLAN))
        disk.sync_directory(path)
    return description


def at_once(calls: Iterable[Callable[[], object]], host: DiskHost = HOST) -> None:
    """Make calls that wait for the disk, each in a thread. Raises what the first that fails does.

    All of them have ended then, also where this thread is interrupted: one that comes late makes no
    call. (A signal may interrupt ``Thread.start``, which leaves a thread that cannot be joined.)
    """
    errors: list[BaseException] = []
    changed = host.condition()
    under_way, abandoned = 0, False

    def make(call: Callable[[], object]) -> None:
        nonlocal under_way
        with changed:
            if abandoned:
                return
            under_way += 1
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)
        with changed:
            under_way -= 1
            changed.notify()

    threads = [host.thread(partial(make, call), "kraftfast-format") for call in calls]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        with changed:
            abandoned = True
            changed.wait_for(lambda: not under_way)
    if errors:
        raise errors[0]


def _undo_unfinished(path: str, host: DiskHost) -> None:
    """Take back what a process formatted that ended before ``quorum.json`` was there.

    Nothing has run there: the ids are those that it had planned, and there is no segment.
    Raises ForeignDirectory where that is not so.
    """
    disk, file = host.disk, os.path.join(path, PLAN)
    try:
        plan = msgspec.json.decode(disk.read_file(file), type=Plan)
    except FileNotFoundError:
        _refuse_replicas(path, host)
        return
    except msgspec.DecodeError as error:
        raise ForeignDirectory(f"{file} does not parse: {error}") from None
    for id, text in plan.directory_ids.items():
        directory = os.path.join(path, str(id))
        log_path = os.path.join(directory, plan.log_name)
        with contextlib.suppress(NotFormatted):
            if read_meta(disk, directory).directory_id != uuid_from_text(text):
                raise ForeignDirectory(f"{directory} belongs to another quorum")
        if any(name.endswith(".log") for name in disk.list_directory(log_path)):
            raise ForeignDirectory(f"{directory} holds a log, but {path} has no {DESCRIPTION}")
        for left in (os.path.join(directory, META), snapshot_path(log_path, BOOTSTRAP)):
            disk.unlink(left)
            if disk.exists(os.path.dirname(left)):  # D18: none comes back beside the next plan
                disk.sync_directory(os.path.dirname(left))


def _refuse_replicas(path: str, host: DiskHost) -> None:
    """Raise ForeignDirectory if a replica is at ``path`` or above, or some are in it."""
    replica = os.path.abspath(path)
    while not host.disk.exists(os.path.join(replica, META)):
        replica, below = os.path.dirname(replica), replica
        if replica == below:
            break
    else:
        raise ForeignDirectory(
            f"{replica} is the directory of one replica: a quorum has a directory of its own, "
            f"{replica} may be one in {os.path.dirname(replica)}"
        )
    if not any(name.isdecimal() for name in host.disk.list_directory(path)):
        return  # as a rule: what reads replicas' files is not imported

    from kraftfast.node.storage.lost_description import advice

    todo = advice(path, host)
    if todo:
        raise ForeignDirectory(f"{path} holds replicas of a quorum, but no {DESCRIPTION}: {todo}")


def add_to_description(
    path: str, id: int | None, host: DiskHost = HOST, port: int = 0
) -> tuple[int, Uuid]:
    """Make one more replica of a quorum, unless it is there; return its id and directory id.

    Its supervisor starts it (``LocalQuorum.adopt``). ``id`` None: the next one, which no other
    process takes meanwhile. ``port``: as :func:`check_ids`. Raises InvalidOption, NotFormatted,
    StorageError.
    """
    check_ids([] if id is None else [id], port)
    with changing(path, host) as description:
        if id is None:
            id = description.next_id
            check_ids([id], port)
        if id in description.replicas:
            return id, read_meta(host.disk, os.path.join(path, str(id))).directory_id
        directory_id = format_replica(path, description, id, host=host)
        description.added.append(id)
    return id, directory_id


def format_replica(
    path: str,
    description: Description,
    id: int,
    directory_id: Uuid | None = None,
    host: DiskHost = HOST,
) -> Uuid:
    """Make a directory for one more replica of a quorum; returns its directory id.

    It holds what is promised of the others. One that was made before is taken as it is.
    """
    disk = host.disk
    options = options_of(path, description, id, host)
    directory = os.path.join(path, str(id))
    try:
        meta = read_meta(disk, directory)
        disk.sync_directory(directory)  # D18: its maker may have been killed before it did
    except NotFormatted:
        meta = MetaProperties(description.cluster_id, id, directory_id or host.random_uuid())
        format_directory(disk, place_of(directory, host), meta, options)
    if (meta.node_id, meta.cluster_id) != (id, description.cluster_id):
        raise ForeignDirectory(f"{directory} belongs to another quorum")
    return meta.directory_id


def options_of(path: str, description: Description, id: int, host: DiskHost = HOST) -> LogOptions:
    """Return the log options of another replica than ``id``. Raises NotFormatted if none has."""
    for other, directory in replica_directories(path, description.replicas).items():
        if other != id:
            with contextlib.suppress(StorageError):
                options = read_options(host.disk, directory)
                if options is not None:
                    return options
    raise NotFormatted(f"{path}: no other replica can be read")


def place_of(directory: str, host: DiskHost = HOST) -> str:
    """Return where the files of a replica are: what a link leads to, unless that disk is gone."""
    if not host.is_link(directory):
        return directory
    place = host.real_path(directory)
    return place if host.is_directory(os.path.dirname(place)) else directory


def set_aside(directory: str, host: DiskHost = HOST) -> str | None:
    """Rename a replica's directory durably; return its new name, None if it does not exist."""
    disk = host.disk
    if not host.has_name(directory):  # a link to a disk that is gone is set aside too
        return None
    aside = directory + SET_ASIDE
    while host.has_name(aside):
        aside += "+"
    disk.rename(directory, aside)
    disk.sync_directory(os.path.dirname(directory))
    return aside


def set_others_aside(path: str, id: int, host: DiskHost = HOST) -> list[str]:
    """Leave one replica of a quorum; the directories of the others are renamed, not removed.

    Returns what they are called now. Raises NotFormatted where there is no quorum, StorageError.
    """
    with changing(path, host) as description:
        others = [other for other in description.replicas if other != id]
        moved = [set_aside(os.path.join(path, str(other)), host) for other in others]
        description.voters, description.added = [id], []
        description.kraft_version, description.replacing = 1, {}
    return [aside for aside in moved if aside is not None]
