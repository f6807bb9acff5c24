"""Where logs are: a replica's directory, a log's own, one segment, a quorum's on this host.

A path may be a glob. What a replica that runs does not know to be committed is not read (D11).
"""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass

from kraftfast.errors import (
    CorruptLog,
    ForeignDirectory,
    InputError,
    KraftfastError,
    NotFormatted,
    PeerGone,
)
from kraftfast.log.at_rest import find_log
from kraftfast.log.directory import META
from kraftfast.log.disk import Disk
from kraftfast.log.reader import SEGMENT_FILE, LogReader
from kraftfast.spark.plain import need_compiled
from kraftfast.types import SOCKET_NAME


@dataclass(frozen=True, slots=True)
class Place:
    """One log. ``name``: its replica's directory, as in reports."""

    name: str
    log_path: str
    segment: str = ""
    """Only this file of it; "" for all."""

    def committed_end(self) -> int | None:
        """Up to where the replica knows the log to be committed; None where none runs."""
        if not os.path.exists(os.path.join(self.name, SOCKET_NAME)):
            return None
        need_compiled(f"asking the replica in {self.name} how much is committed")
        from kraftfast.client.local import Watch  # only whoever meets one that runs needs it

        try:
            watch = Watch(self.name)
        except PeerGone:
            return None
        try:
            return max(0, watch.high_watermark)
        finally:
            watch.close()

    def end(self) -> int:
        """Where its committed part ends, or if no replica runs its last whole batch."""
        committed = self.committed_end()
        return LogReader(self.log_path).end_offset() if committed is None else committed

    def bases(self) -> list[int]:
        """Base offsets of its segments, rising. Raises StorageError."""
        if self.segment:
            match = SEGMENT_FILE.fullmatch(self.segment)
            assert match is not None
            return [int(match[1])]
        return [base for base, _ in LogReader(self.log_path).segments()]


def find_places(pattern: str) -> list[Place]:
    """The logs that a path or glob names, in the order of their names.

    A glob passes over files that are no segments, for a quorum's directory holds ``quorum.json``.
    Raises InputError where nothing is, NotFormatted and ForeignDirectory for what is no log.
    """
    paths = [pattern] if os.path.exists(pattern) else sorted(glob.glob(pattern))
    paths = [
        path
        for path in paths
        if os.path.isdir(path) or SEGMENT_FILE.fullmatch(os.path.basename(path))
    ] or paths
    if not paths:
        raise InputError(f"{pattern} does not exist")
    found = [place for path in paths for place in _places_at(os.path.abspath(path))]
    return list(dict.fromkeys(found))


def _places_at(path: str) -> list[Place]:
    if os.path.isfile(path):
        if SEGMENT_FILE.fullmatch(os.path.basename(path)) is None:
            raise InputError(f"{path} is no segment of a log, and no directory of one")
        log_path, name = os.path.split(path)
        return [Place(log_path, log_path, name)]
    children = replicas_in(path)
    return [_place_of(each) for each in children or [path]]


def _place_of(path: str) -> Place:
    try:
        found = find_log(Disk(), path)
    except NotFormatted:
        inside = _kafka_log(path)
        if inside:
            return Place(path, inside)
        raise
    if not os.path.isdir(found.log_path):
        raise ForeignDirectory(f"{path} holds no log: {found.log_path} does not exist")
    own = os.path.samefile(found.log_path, path)
    parent = os.path.dirname(path)
    replica = os.path.exists(os.path.join(parent, META))
    return Place(parent if own and replica else path, found.log_path)


def _kafka_log(path: str) -> str:
    """The one directory with segments inside a directory that says nothing of itself; or ""."""
    found = [
        entry.path
        for entry in sorted(os.scandir(path), key=lambda entry: entry.name)
        if entry.is_dir() and any(SEGMENT_FILE.fullmatch(name) for name in os.listdir(entry.path))
    ]
    return found[0] if len(found) == 1 else ""


def replicas_in(path: str) -> list[str]:
    """The replicas' directories in a quorum's; none if it is no quorum's."""
    if os.path.exists(os.path.join(path, META)):
        return []
    return sorted(
        entry.path
        for entry in os.scandir(path)
        if entry.is_dir() and os.path.exists(os.path.join(entry.path, META))
    )


def one_log(pattern: str) -> list[Place]:
    """As :func:`find_places`, but of a quorum's directory only the replica that has most."""
    if not os.path.isdir(pattern) or not replicas_in(pattern):
        return find_places(pattern)
    found: list[tuple[int, Place]] = []
    problem: KraftfastError | None = None
    for place in find_places(pattern):
        try:
            found.append((place.end(), place))
        except CorruptLog as error:
            problem = error
    if not found:
        assert problem is not None
        raise problem
    return [max(found, key=lambda each: each[0])[1]]
