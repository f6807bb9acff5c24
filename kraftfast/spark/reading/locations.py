"""Where logs are: a replica's directory, a log's own, one segment, a quorum's on this host.

A path may be a glob. How far a log may be read is told by ``committed``.
"""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass

from kraftfast.errors import ForeignDirectory, InputError, NotFormatted
from kraftfast.log.disk import Disk
from kraftfast.log.reading.at_rest import find_log
from kraftfast.log.reading.reader import SEGMENT_FILE, LogReader
from kraftfast.log.small_files.directory import META, SET_ASIDE, ReplicaDirectory


@dataclass(frozen=True, slots=True)
class Place:
    """One log. ``name``: its replica's directory, as in reports."""

    name: str
    log_path: str
    segment: str = ""
    """Only this file of it; "" for all."""
    directory: str = ""
    """The replica's whose log it is; "" for a log without one, as a copy of Kafka's."""

    def bases(self) -> list[int]:
        """Return base offsets of its segments, rising. Raises StorageError."""
        if self.segment:
            match = SEGMENT_FILE.fullmatch(self.segment)
            assert match is not None
            return [int(match[1])]
        return [base for base, _ in LogReader(self.log_path).segments()]


def find_places(pattern: str) -> list[Place]:
    """Return the logs that a path or glob names, in the order of their names.

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
        where = "" if os.path.isabs(pattern) else f": this process looks in {_working_directory()}"
        raise InputError(f"{pattern} does not exist{where}")
    found = [place for path in paths for place in _places_at(os.path.abspath(path))]
    return list(dict.fromkeys(found))


def _working_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "a directory that is gone"


def _places_at(path: str) -> list[Place]:
    if os.path.isfile(path):
        if SEGMENT_FILE.fullmatch(os.path.basename(path)) is None:
            raise InputError(f"{path} is no segment of a log, and no directory of one")
        log_path, name = os.path.split(path)
        found = find_log(Disk(), log_path)
        directory = found.path if isinstance(found, ReplicaDirectory) else ""
        return [Place(log_path, log_path, name, directory)]
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
    if isinstance(found, ReplicaDirectory):
        return Place(found.path, found.log_path, directory=found.path)
    return Place(path, found.log_path)


def _kafka_log(path: str) -> str:
    """Return the one directory with segments inside a directory without metadata, or ""."""
    found = [
        entry.path
        for entry in sorted(os.scandir(path), key=lambda entry: entry.name)
        if entry.is_dir() and any(SEGMENT_FILE.fullmatch(name) for name in os.listdir(entry.path))
    ]
    return found[0] if len(found) == 1 else ""


def replicas_in(path: str) -> list[str]:
    """Return the replicas' directories in a quorum's; none if it is no quorum's.

    One that was set aside holds what no replica owns now: it must not be read, nor counted.
    """
    if os.path.exists(os.path.join(path, META)):
        return []
    return sorted(
        entry.path
        for entry in os.scandir(path)
        if entry.is_dir()
        and not entry.name.rstrip("+").endswith(SET_ASIDE)
        and os.path.exists(os.path.join(entry.path, META))
    )


def holds_several(pattern: str) -> bool:
    """Return whether the rows of a path are of several logs. A quorum's replicas hold one."""
    quorum = os.path.isdir(pattern) and replicas_in(pattern)
    return not quorum and len(find_places(pattern)) > 1
