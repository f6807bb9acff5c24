"""Rebuild the directory of one replica from its peers, while the others go on.

The old (id, directory) leaves the voter set first: from then on a disk that returns has no vote and
its acknowledgements do not count. Then the directory is set aside, a fresh one with a new directory
id takes its place, and the replica votes again once it has caught up (KIP-853; at ``kraft.version``
0 a voter has no directory id, and a replaced disk could vote again for less than it has
acknowledged).

Where the directory is a link to another disk, what it leads to is set aside and made again there:
the replica must not move to the disk of the others. The link itself is set aside only if the
directory in which its target stood is gone.

Every step can be repeated: ``quorum.json`` holds what is under way (``Replacement``).
"""

from __future__ import annotations

import os
import time
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
from kraftfast.log.disk import Disk
from kraftfast.log.small_files.directory import random_uuid, read_meta
from kraftfast.node.storage.description import (
    Description,
    Replacement,
    changing,
    read_description,
    write_description,
)
from kraftfast.node.storage.local_layout import format_replica, options_of, place_of, set_aside
from kraftfast.node.storage.stored_replica import stored_replica
from kraftfast.types import ZERO_UUID, Endpoint, Uuid, uuid_from_text, uuid_text

LOCK_FILE = ".lock"


@dataclass(slots=True)
class ReplacementPlan:
    """The steps for one replica, and what was done. ``admin``: of the quorum, which must run."""

    path: str
    id: int
    admin: Any
    directory_id: Uuid
    """The id of the new directory."""
    old_directory_id: Uuid | None
    """The id that the voter set names for this replica; None if it names none, or the new one."""
    votes: bool
    """Whether the replica must be a voter in the end."""
    joined: bool
    """Whether the voter set names the new one: an earlier attempt got that far."""
    voters_left: tuple[int, ...]
    """The voters until then."""
    place: str
    """Where its files are: behind a link, else ``directory``. The new ones are made there."""
    fault: str
    """What is wrong with the old directory; empty if nothing was found."""
    set_aside: str | None = None
    """Where the old directory is now."""

    @property
    def directory(self) -> str:
        return os.path.join(self.path, str(self.id))

    def run(self, wait_for: Callable[[str, float], tuple[Endpoint, ...]], deadline: float) -> None:
        """Carry out the plan. ``wait_for(directory, deadline)``: endpoints of a replica that runs.

        Raises RequestRefused, TimedOut, NoQuorum, DirectoryInUse, StorageError. Every step can be
        repeated.
        """
        with changing(self.path) as description:
            description.kraft_version = max(description.kraft_version, 1)
            planned = Replacement(uuid_text(self.directory_id), self.votes)
            description.replacing.setdefault(self.id, planned)
        if self.old_directory_id is not None:
            left = _left(deadline)
            self.admin.remove_voter(self.id, self.old_directory_id, timeout=left)
        with changing(self.path) as description:
            self._make(description)
            write_description(self.path, description)  # the supervisor looks when it moves
        endpoints = wait_for(self.directory, deadline)
        if self.votes and not self.joined:
            self.admin.add_voter(self.id, self.directory_id, endpoints, timeout=_left(deadline))
        with changing(self.path) as description:
            description.replacing.pop(self.id, None)

    def _make(self, description: Description) -> None:
        if stored_id(self.directory) != self.directory_id:
            refuse_running(self.directory)
            self.set_aside = set_aside(self.place)
            format_replica(self.path, description, self.id, self.directory_id)


def plan_replacement(path: str, id: int, admin: Any, timeout: float) -> ReplacementPlan:
    """Return what has to be done, without changing anything.

    Raises InvalidOption (no such replica, or its files cannot be renamed where they are),
    DirectoryInUse (it runs), RequestRefused (the quorum is at kraft.version
    0, or it is the only voter), NoQuorum, NotFormatted, StorageError.
    """
    description = read_description(path)
    if id not in description.replicas:
        known = ", ".join(map(str, description.replicas))
        raise InvalidOption(f"{path} has no replica {id}; its replicas are {known}")
    options_of(path, description, id)
    directory = os.path.join(path, str(id))
    place = place_of(directory)
    refuse_place(place, path, [other for other in description.replicas if other != id])
    begun = description.replacing.get(id)
    new_id = random_uuid() if begun is None else uuid_from_text(begun.directory_id)
    if stored_id(directory) != new_id:
        refuse_running(directory)
    voters = {each.id: each.directory_id for each in admin.describe(timeout=timeout).voters}
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
    old_id = voters.get(id)
    return ReplacementPlan(
        path=path,
        id=id,
        place=place,
        admin=admin,
        directory_id=new_id,
        old_directory_id=None if old_id == new_id else old_id,
        joined=old_id == new_id,
        votes=id in voters if begun is None else begun.votes,
        voters_left=tuple(sorted(set(voters) - {id})),
        fault=fault_of(directory),
    )


def refuse_place(place: str, path: str, others: list[int]) -> None:
    """Raise InvalidOption if setting ``place`` aside would fail, or would take more with it."""
    if os.path.ismount(place):
        raise InvalidOption(
            f"{place} is a mount point, which cannot be renamed: make a directory inside it, and "
            "let a link in the quorum's directory lead there"
        )
    taken = os.path.join(os.path.realpath(os.path.dirname(place)), os.path.basename(place))
    for kept in [path, *(os.path.join(path, str(other)) for other in others)]:
        if os.path.commonpath([os.path.realpath(kept), taken]) == taken:
            raise InvalidOption(f"{place} holds {kept}, which is not replaced: mend the link first")


def stored_id(directory: str) -> Uuid | None:
    """Return the directory id that is stored there, None if none can be read."""
    try:
        return read_meta(Disk(), directory).directory_id
    except StorageError:
        return None


def refuse_running(directory: str) -> None:
    """Raise DirectoryInUse if a process runs this replica."""
    if Disk().is_locked(os.path.join(directory, LOCK_FILE)):
        raise DirectoryInUse(f"a process runs {directory}: a replica that runs is not replaced")


def fault_of(directory: str) -> str:
    """Return what is wrong with a directory; empty if a process runs it, or could."""
    try:
        if not Disk().is_locked(os.path.join(directory, LOCK_FILE)):
            state_fault = stored_replica(directory).state_fault
            return "" if state_fault is None else str(state_fault)
    except NotFormatted:
        return f"{directory} is not formatted, or gone"
    except (KraftfastError, AssertionError) as error:
        return str(error)
    return ""


def _left(deadline: float) -> float:
    return max(0.001, deadline - time.monotonic())
