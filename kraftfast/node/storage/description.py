"""``quorum.json``: the replicas of a quorum on one host, and what was decided about them.

Several processes change it: the one that runs the quorum, ``kraftfast quorum``, ``kraftfast
storage``. A process that changes it must hold a lock from the read to the write, and must replace
the file whole and durably. Reading needs no lock.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec

from kraftfast import forks, limits
from kraftfast.errors import DirectoryInUse, ForeignDirectory, InvalidOption, NotFormatted
from kraftfast.log.small_files.directory import DURABILITIES, RECORDS
from kraftfast.node.storage.storage_host import HOST, DiskHost
from kraftfast.types import METADATA_TOPIC

DESCRIPTION = "quorum.json"
LOCK = DESCRIPTION + ".lock"
RUN_LOCK = ".lock"
LOCK_S_MAX = 10.0
"""How long to wait for the lock: a change takes milliseconds, a new directory included."""
Id = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
KNOWN: dict[str, Sequence[object]] = {
    "durability": DURABILITIES,
    "records": RECORDS,
    "kraft_version": range(limits.KRAFT_VERSION_MIN, limits.KRAFT_VERSION_MAX + 1),
}


class Replacement(msgspec.Struct, frozen=True):
    """A replica whose directory is being rebuilt from its peers.

    It must be written before the first step, and removed after the last one or when an operator
    decides whether the replica votes. It says no more than which directory the last attempt was
    to make: a directory that is not there must never be made with that id (D19).
    """

    directory_id: str
    """The id of the new directory, drawn by the attempt that made it, or was about to."""
    votes: bool
    """Whether the replica was a voter, and has to become one again."""


class Description(msgspec.Struct):
    """``quorum.json``: what was decided when the quorum was made, and the replicas added since.

    ``voters``: the first ones. From ``kraft.version`` 1 on the present ones stand in the log.
    ``kraft_version``: a lower bound; must never fall. From 1 on no replica is given static voters.
    ``replacing``: replicas whose replacement is under way.
    """

    cluster_id: Annotated[str, msgspec.Meta(min_length=1)]
    voters: Annotated[list[Id], msgspec.Meta(min_length=1)]
    durability: str = "majority"
    records: str = "any"
    topic: str = METADATA_TOPIC
    version: Literal[1] = 1
    added: list[Id] = []
    kraft_version: int = 0
    replacing: dict[int, Replacement] = {}

    def __post_init__(self) -> None:
        if len(set(self.replicas)) < len(self.replicas):
            raise ValueError(f"voters and added name a replica twice: {self.replicas}")
        for key, known in KNOWN.items():
            value = getattr(self, key)
            if value not in known:
                names = " or ".join(map(repr, known))
                raise ValueError(f"{key} is {value!r}, not {names}")  # a ValidationError of decode

    @property
    def replicas(self) -> list[int]:
        """The ids of all replicas here: the first voters, and those added since."""
        return [*self.voters, *self.added]

    @property
    def next_id(self) -> int:
        """The id of the next replica, where none is asked for."""
        return max(self.replicas) + 1

    def check_added(self, id: int) -> None:
        """Raise InvalidOption for one of the first voters: they start with the quorum."""
        if id in self.voters:
            raise InvalidOption(f"{id} is among the first voters of this quorum: it stays")


def check_made_with(path: str, known: Description, asked: Mapping[str, Any]) -> None:
    """Raise InvalidOption if a quorum was made otherwise than is asked; None: as it was."""
    found = {"voters": len(known.voters), "durability": known.durability, "records": known.records}
    for name, value in asked.items():
        if value is not None and value != found[name]:
            raise InvalidOption(f"{path} was made with {name} {found[name]}, not {value}")


def read_description(path: str, host: DiskHost = HOST) -> Description:
    """Return the description of a quorum. Raises NotFormatted, ForeignDirectory."""
    file = os.path.join(path, DESCRIPTION)
    try:
        return msgspec.json.decode(host.disk.read_file(file), type=Description)
    except FileNotFoundError:
        raise NotFormatted(f"{path} holds no quorum: {_what_is_there(path, host)}") from None
    except msgspec.DecodeError as error:
        raise ForeignDirectory(f"{file} does not parse: {error}") from None


def _what_is_there(path: str, host: DiskHost) -> str:
    """Return what a path leads to instead of a quorum."""
    if not host.is_directory(path):
        return "there is no such directory"
    above = os.path.dirname(path.rstrip("/"))
    text = f"there is no {DESCRIPTION}"
    if above and host.has_name(os.path.join(above, DESCRIPTION)):
        text += f"; the one that it lies in does: {above}"
    return text


def write_description(path: str, description: Description, host: DiskHost = HOST) -> None:
    """Store ``quorum.json`` durably. The caller must hold the lock (:func:`locked`)."""
    host.disk.replace_file(os.path.join(path, DESCRIPTION), msgspec.json.encode(description))


class HeldLock:
    """A lock file of a quorum's directory, held by this process alone: no forked child keeps it.

    It is released when the process ends, and when the object is collected. Raises DirectoryInUse,
    StorageError.
    """

    _fd = -1

    def __init__(self, path: str, name: str, host: DiskHost = HOST) -> None:
        self._disk, self._directory = host.disk, path
        self._disk.hold(path)
        try:
            self._fd = self._disk.lock(os.path.join(path, name))
        except BaseException:
            self._disk.let_go(path)
            raise
        forks.own(self)

    def check(self) -> None:
        """Check that the directory is still at its path. Raises StorageError."""
        self._disk.check_held(self._directory)

    def release(self) -> None:
        """Release the lock. A second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._disk.unlock(fd)
            self._disk.let_go(self._directory)

    disown = __del__ = release

    def __enter__(self) -> HeldLock:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.release()


def run_lock(path: str, host: DiskHost = HOST) -> HeldLock:
    """Hold the lock of the process that runs a quorum, so that no second one starts it."""
    return HeldLock(path, RUN_LOCK, host)


@contextlib.contextmanager
def locked(path: str, host: DiskHost = HOST) -> Iterator[None]:
    """Exclude all others, threads too, that would change a quorum's description.

    Raises DirectoryInUse if that takes too long, StorageError.
    """
    deadline = host.monotonic() + LOCK_S_MAX
    while True:
        try:
            held = HeldLock(path, LOCK, host)
            break
        except DirectoryInUse:
            if host.monotonic() >= deadline:
                raise DirectoryInUse(f"another process is changing {path}; try again") from None
            host.sleep(0.01)
    try:
        yield
    finally:
        held.release()


@contextlib.contextmanager
def changing(path: str, host: DiskHost = HOST) -> Iterator[Description]:
    """Yield the description under the lock, and store its changes unless an exception is raised.

    Raises NotFormatted, ForeignDirectory, DirectoryInUse, StorageError.
    """
    read_description(path, host)  # no lock file where there is no quorum
    with locked(path, host):
        host.disk.sync_directory(path)  # D18: who wrote it last may have been killed before it did
        description = read_description(path, host)
        before = msgspec.json.encode(description)
        yield description
        if msgspec.json.encode(description) != before:
            write_description(path, description, host)


def forget_replacements(path: str, ids: Iterable[int] | None = None, host: DiskHost = HOST) -> None:
    """Forget that replicas are being replaced, once it was decided who votes. None: all of them."""
    begun = read_description(path, host).replacing
    if any(id in begun for id in (begun if ids is None else ids)):
        with changing(path, host) as description:
            for id in list(description.replacing if ids is None else ids):
                description.replacing.pop(id, None)


def raise_kraft_version(path: str, kraft_version: int, host: DiskHost = HOST) -> None:
    """Record that the quorum is at this ``kraft.version``, unless that is known."""
    if read_description(path, host).kraft_version < kraft_version:
        with changing(path, host) as description:
            description.kraft_version = max(description.kraft_version, kraft_version)
