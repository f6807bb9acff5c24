"""Rebuild the directory of one replica from its peers, while the others go on.

The old (id, directory) leaves the voter set first: from then on a disk that returns has no vote and
its acknowledgements do not count. Then the directory is set aside, a fresh one with a new directory
id takes its place, and the replica votes again once it has caught up (KIP-853; at ``kraft.version``
0 a voter has no directory id, and a replaced disk could vote again for less than it has
acknowledged).

A directory id is drawn by the attempt that formats the directory, and never formatted again: a
voter set may name it, and what its disk has promised (D19). A later attempt goes on with the
directory that an earlier one made while nothing is wrong with it; else it draws another id, and the
one before leaves the voter set. ``quorum.json`` holds what is under way (``Replacement``), so that
the command can be repeated after any step.

Where the directory is a link to another disk, what it leads to is set aside and made again there:
the replica must not move to the disk of the others. It does so only if it is told to, where its own
is not mounted, or gone. The link itself is set aside only if the directory in which its target
stood is gone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kraftfast.errors import (
    DirectoryInUse,
    ErrorCode,
    InvalidOption,
    KraftfastError,
    NotFormatted,
    RequestRefused,
    StorageError,
)
from kraftfast.log.small_files.directory import read_meta
from kraftfast.node.storage.description import (
    Description,
    Replacement,
    changing,
    read_description,
    write_description,
)
from kraftfast.node.storage.local_layout import (
    format_replica,
    on_device_of,
    options_of,
    place_of,
    replica_directories,
    set_aside,
)
from kraftfast.node.storage.storage_host import HOST, DiskHost
from kraftfast.node.storage.stored_replica import stored_replica
from kraftfast.types import ZERO_UUID, Endpoint, Uuid, uuid_text

LOCK_FILE = ".lock"


@dataclass(slots=True)
class ReplacementPlan:
    """The steps for one replica, and what was done. ``admin``: of the quorum, which must run."""

    path: str
    id: int
    admin: Any
    begun: Replacement | None
    """What an earlier attempt left in ``quorum.json``."""
    stored: Uuid | None
    """The directory id that is stored now."""
    made: bool
    """Whether an earlier attempt made the new directory, and nothing is wrong with it."""
    directory_id: Uuid
    """The id of the new directory."""
    old_directory_id: Uuid | None
    """The id that the voter set names for this replica; None if it names none, or the new one."""
    votes: bool
    """Whether the replica must be a voter in the end."""
    joined: bool
    """Whether the voter set names the new one, which runs: nothing is left to do."""
    voters_left: tuple[int, ...]
    """The voters until then."""
    place: str
    """Where its files are: behind a link, else ``directory``. The new ones are made there."""
    share_device: bool
    """Whether it may move to a device that holds other replicas."""
    fault: str
    """What is wrong with the old directory; empty if nothing was found."""
    host: DiskHost = HOST
    set_aside: str | None = None
    """Where the old directory is now."""

    @property
    def directory(self) -> str:
        return os.path.join(self.path, str(self.id))

    @property
    def refusal(self) -> str:
        """Why it is not made there; empty if it is."""
        return "" if self.share_device or self.made else self.move

    @property
    def move(self) -> str:
        """What says that the replica would move to the device of others; empty if it stays."""
        if not self.host.is_link(self.directory) or self._disk_is_there():
            return ""
        above = os.path.dirname(self.place)
        directories = replica_directories(
            self.path, read_description(self.path, self.host).replicas
        )
        kept = {k: v for k, v in directories.items() if k != self.id}
        others = on_device_of(above, kept, self.host)
        if not others:
            return ""
        target = self.host.real_path(self.directory)
        return (
            f"{self.directory} leads to {target}, where it is not, and "
            f"{above} is on the device of replica {', '.join(map(str, others))}: mount the disk of "
            f"replica {self.id}, or let it share that device (--share-device)"
        )

    def _disk_is_there(self) -> bool:
        """Return whether the place of the files holds the replica that votes, if one does."""
        return self.stored is not None and self.old_directory_id in (None, self.stored)

    def run(self, wait_for: Callable[[str, float], tuple[Endpoint, ...]], deadline: float) -> None:
        """Carry out the plan. ``wait_for(directory, deadline)``: endpoints of a replica that runs.

        Raises RequestRefused, TimedOut, NoQuorum, DirectoryInUse, StorageError, InvalidOption. It
        can be repeated after any step, with a new plan.
        """
        self.check_place()
        if not self.joined:
            if not self.made:
                self.host.refuse_unwritable(os.path.dirname(self.place))  # before its voter leaves
            self._begin()
            if self.old_directory_id is not None:
                left = self._left(deadline)
                self.admin.remove_voter(self.id, self.old_directory_id, timeout=left)
            with changing(self.path, self.host) as description:
                self._make(description)
                # the supervisor looks when it moves
                write_description(self.path, description, self.host)
            endpoints = wait_for(self.directory, deadline)
            if self.votes:
                self.admin.add_voter(
                    self.id, self.directory_id, endpoints, timeout=self._left(deadline)
                )
        with changing(self.path, self.host) as description:
            if self._is_ours(description):
                del description.replacing[self.id]

    def check_place(self) -> None:
        """Raise InvalidOption if the replica would move to the device of others unasked."""
        if self.refusal:
            raise InvalidOption(self.refusal)

    def _begin(self) -> None:
        with changing(self.path, self.host) as description:
            now = description.replacing.get(self.id), stored_id(self.directory, self.host)
            if now != (self.begun, self.stored):
                raise self._overtaken()
            description.kraft_version = max(description.kraft_version, 1)
            planned = Replacement(uuid_text(self.directory_id), self.votes)
            description.replacing[self.id] = planned

    def _make(self, description: Description) -> None:
        """Format the new directory, once: an id that may have run must not come again (D19)."""
        if not self._is_ours(description):
            raise self._overtaken()
        if not self.made:
            refuse_running(self.directory, self.host)
            now = place_of(self.directory, self.host), stored_id(self.directory, self.host)
            if now != (self.place, self.stored):
                raise InvalidOption(f"{self.directory} is not what it was when this began")
            self.check_place()  # its disk may have gone since
            self.set_aside = set_aside(self.place, self.host)
            self.made = True
            format_replica(self.path, description, self.id, self.directory_id, self.host)

    def _is_ours(self, description: Description) -> bool:
        begun = description.replacing.get(self.id)
        return begun is not None and begun.directory_id == uuid_text(self.directory_id)

    def _left(self, deadline: float) -> float:
        return max(0.001, deadline - self.host.monotonic())

    def _overtaken(self) -> DirectoryInUse:
        return DirectoryInUse(
            f"{self.directory}: another command replaced this replica, or decided whether it "
            "votes, since this one began; run it again if the replica is still down"
        )


def plan_replacement(
    path: str,
    id: int,
    admin: Any,
    timeout: float,
    share_device: bool = False,
    host: DiskHost = HOST,
) -> ReplacementPlan:
    """Return what has to be done, without changing anything.

    Raises InvalidOption (no such replica, or its files cannot be renamed where they are),
    DirectoryInUse (it runs), RequestRefused (the quorum is at kraft.version
    0, or it is the only voter), NoQuorum, NotFormatted, StorageError.
    """
    description = read_description(path, host)
    if id not in description.replicas:
        known = ", ".join(map(str, description.replicas))
        raise InvalidOption(f"{path} has no replica {id}; its replicas are {known}")
    options_of(path, description, id, host)
    directory = os.path.join(path, str(id))
    place = place_of(directory, host)
    refuse_place(place, path, [other for other in description.replicas if other != id], host)
    begun = description.replacing.get(id)
    stored, fault = stored_id(directory, host), fault_of(directory, host)
    made = not fault and is_planned(stored, begun)
    if not made:
        refuse_running(directory, host)
    info = admin.describe(timeout=timeout)
    voters = {each.id: each.directory_id for each in info.voters}
    refuse_voters(voters, id)
    named = voters.get(id)
    if made and named == stored and not is_running(directory, host):
        made = False  # it has voted since, and is down: that replacement is over
    new_id = stored if made and stored is not None else host.random_uuid()
    return ReplacementPlan(
        path=path,
        id=id,
        admin=admin,
        begun=begun,
        stored=stored,
        made=made,
        directory_id=new_id,
        old_directory_id=None if named == new_id else named,
        votes=named is not None or (begun is not None and begun.votes),
        joined=named == new_id and info.voters_committed,
        voters_left=tuple(sorted(set(voters) - {id})),
        place=place,
        share_device=share_device,
        fault=fault,
        host=host,
    )


def is_planned(stored: Uuid | None, begun: Replacement | None) -> bool:
    """Return whether the directory that is there is the new one of this replacement."""
    return begun is not None and stored is not None and begun.directory_id == uuid_text(stored)


def refuse_voters(voters: dict[int, Uuid], id: int) -> None:
    """Raise RequestRefused if no voter can be replaced, or this is the only one."""
    if ZERO_UUID in voters.values():
        raise RequestRefused(
            "UNSUPPORTED_VERSION: the quorum is at kraft.version 0, where a replaced disk would "
            "vote under its old id: kraftfast quorum upgrade --feature kraft.version=1 comes first",
            ErrorCode.UNSUPPORTED_VERSION,
        )
    if list(voters) == [id]:
        raise RequestRefused(
            f"VOTER_NOT_FOUND: {id} is the only voter, so there is no replica to copy from",
            ErrorCode.VOTER_NOT_FOUND,
        )


def refuse_place(place: str, path: str, others: list[int], host: DiskHost = HOST) -> None:
    """Raise InvalidOption if setting ``place`` aside would fail, or would take more with it."""
    if host.is_mount(place):
        raise InvalidOption(
            f"{place} is a mount point, which cannot be renamed: make a directory inside it, and "
            "let a link in the quorum's directory lead there"
        )
    taken = os.path.join(host.real_path(os.path.dirname(place)), os.path.basename(place))
    for kept in [path, *(os.path.join(path, str(other)) for other in others)]:
        if os.path.commonpath([host.real_path(kept), taken]) == taken:
            raise InvalidOption(f"{place} holds {kept}, which is not replaced: mend the link first")


def stored_id(directory: str, host: DiskHost = HOST) -> Uuid | None:
    """Return the directory id that is stored there, None if none can be read."""
    try:
        return read_meta(host.disk, directory).directory_id
    except StorageError:
        return None


def is_running(directory: str, host: DiskHost = HOST) -> bool:
    """Return whether a process runs this replica."""
    return host.disk.is_locked(os.path.join(directory, LOCK_FILE))


def refuse_running(directory: str, host: DiskHost = HOST) -> None:
    """Raise DirectoryInUse if a process runs this replica."""
    if is_running(directory, host):
        raise DirectoryInUse(f"a process runs {directory}: a replica that runs is not replaced")


def fault_of(directory: str, host: DiskHost = HOST) -> str:
    """Return what is wrong with a directory; empty if a process runs it, or could."""
    try:
        if not is_running(directory, host):
            state_fault = stored_replica(directory, host.disk).state_fault
            return "" if state_fault is None else str(state_fault)
    except NotFormatted:
        return f"{directory} is not formatted, or gone"
    except (KraftfastError, AssertionError) as error:
        return str(error)
    return ""
