"""The statistics pages of all replicas of a directory: found, kept, and read at any time.

A thread of its own looks for replicas that have started or ended. Reading a page
waits for no replica, also not for one that hangs.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kraftfast.client.watch import Watch
from kraftfast.errors import KraftfastError, StorageError, forbidden, scarce
from kraftfast.link.stats import STAGES, TROUBLES, StatsView, bucket_tops
from kraftfast.link.unix_socket import credentials
from kraftfast.live.facts import LogPlace, ReplicaProcess, place_of, process_of
from kraftfast.log.disk import Disk
from kraftfast.log.small_files.directory import META, read_meta
from kraftfast.node.storage.local_layout import LiveDirectories

LOOK_S = 0.5
PLACE_S = 5.0
"""How often the files of a log are counted."""
NS_PER_S = 1_000_000_000
SILENT_S_MAX = 5.0
"""A loop stores its words every 0.2 s, an idle one every 0.5 s: after this time it hangs."""


@dataclass(frozen=True, slots=True)
class StageFigures:
    """The histogram of a stage: sum of its times in nanoseconds, and its buckets as they are."""

    sum_ns: int
    buckets: bytes


EMPTY = StageFigures(0, bytes(8 * len(bucket_tops())))


@dataclass(frozen=True, slots=True)
class Sample:
    """What was seen of one replica at ``at_ns`` (monotonic). ``error``: why it is not ``up``.

    ``words``, ``noted``: as of the page, by their names; empty before the replica was first seen.
    """

    id: int
    at_ns: int
    up: bool
    error: str = ""
    pid: int = 0
    role: str = "stopped"
    words: Mapping[str, int] = field(default_factory=dict)
    noted: Mapping[str, int] = field(default_factory=dict)
    stages: Mapping[str, StageFigures] = field(default_factory=dict)
    process: ReplicaProcess | None = None
    place: LogPlace | None = None

    @property
    def troubles(self) -> list[str]:
        """The names of what is wrong, by the replica's own word (``link.stats.TROUBLES``)."""
        bits = self.noted.get("troubles", 0)
        return [name for bit, name in enumerate(TROUBLES) if bits >> bit & 1]

    @property
    def lag_records(self) -> int | None:
        """How many records the leader has told to be committed that are not in this log yet.

        None until it has told that, since this replica last began to follow it: also while a
        snapshot is copied.
        """
        if self.role == "leader":
            return 0
        told = self.noted.get("leader_high_watermark", -1)
        return None if told < 0 else max(0, told - self.words["end_offset"])

    @property
    def loop_age_s(self) -> float | None:
        """How long ago the replica's loop last stored its words, seconds; None: it never did."""
        noted_ns = self.noted.get("noted_ns", 0)
        return max(0, self.at_ns - noted_ns) / NS_PER_S if noted_ns else None

    @property
    def hangs(self) -> bool:
        """Whether its loop has not turned for long."""
        return self.loop_age_s is not None and self.loop_age_s > SILENT_S_MAX

    @property
    def leader_id(self) -> int:
        """The leader by the replica's word, -1 if it knows none, or hangs: its word is old then."""
        return -1 if self.hangs else self.words["leader_id"]


def _stage(stats: StatsView, name: str) -> StageFigures:
    """Return a stage; those without a sample, of which there are many, share their buckets."""
    count, sum_ns = stats.total(name)
    return StageFigures(sum_ns, stats.buckets(name)) if count else EMPTY


class _Page:
    """One replica that was found: its watch, its process, and its files when last counted."""

    # log_path: as the replica said. place: counted by the thread that looks for replicas.

    def __init__(self, directory: str) -> None:
        self.watch = Watch(directory)
        self.pid = credentials(self.watch.sock).pid
        self.place = place_of(self.watch.log_path)
        self.placed_s = time.monotonic()

    def count_files(self) -> None:
        """Count the files of the log again when it is time."""
        if time.monotonic() - self.placed_s >= PLACE_S:
            self.place, self.placed_s = place_of(self.watch.log_path), time.monotonic()


class Pages:
    """The pages of the replicas in ``directory``: a quorum's, or one replica's.

    Raises NotFormatted, ForeignDirectory, StorageError for what is neither. ``lack``: what this
    process had not enough of, or that it may not look, when it last failed to look at one, or None.
    """

    # cluster_id: of the quorum, "" where each replica has its own folder. _pages: by id, of those
    # that were seen. _errors: by id, why there is no page now. _lock: guards both.

    def __init__(self, directory: str) -> None:
        self.directory = os.path.abspath(directory)
        self._known = dict(self._directories())
        self.cluster_id = self._cluster_id()
        self._pages: dict[int, _Page] = {}
        self._errors: dict[int, str] = {}
        self.lack: StorageError | None = None
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="kraftfast-pages", daemon=True)
        self.look()
        self._thread.start()

    def _directories(self) -> Mapping[int, str]:
        if os.path.exists(os.path.join(self.directory, META)):
            return {read_meta(Disk(), self.directory).node_id: self.directory}
        return LiveDirectories(self.directory)

    def _cluster_id(self) -> str:
        for place in self._known.values():
            try:
                return read_meta(Disk(), place).cluster_id
            except KraftfastError:
                continue  # its disk is gone, say
        return ""

    def _look_on(self) -> None:
        while not self._done.wait(LOOK_S):
            self.look()

    def look(self) -> None:
        """Find replicas that have started since the last look, and let go of those that ended."""
        try:
            self._known = dict(self._directories())
        except KraftfastError:
            pass  # the description is being replaced, or is gone: those that are known may run on
        for id, directory in self._known.items():
            page = self._pages.get(id)
            if page is not None and self._runs(id, page):
                page.count_files()
            else:
                self._find(id, directory)
        with self._lock:
            for id in self._pages.keys() - self._known.keys():
                self._pages.pop(id).watch.close()
                self._errors.pop(id, None)

    def _runs(self, id: int, page: _Page) -> bool:
        """Return whether a replica whose page was found still runs.

        Under the lock: a watch is not closed meanwhile, and its poll takes one caller at a time.
        """
        with self._lock:
            return id not in self._errors and page.watch.refusal is None and page.watch.alive()

    def _find(self, id: int, directory: str) -> None:
        try:
            found = _Page(directory)
        except KraftfastError as error:
            with self._lock:
                self._errors[id] = str(error)
                self.lack = scarce(error, "cannot look at a replica") or forbidden(error)
            return
        with self._lock:
            before, self._pages[id] = self._pages.get(id), found
            self._errors.pop(id, None)
            if before is not None:
                before.watch.close()

    def samples(self) -> list[Sample]:
        """Return what each replica's page says now, by ascending id."""
        with self._lock:
            known, pages, errors = sorted(self._known), dict(self._pages), dict(self._errors)
        return [self._sample(id, pages.get(id), errors.get(id, "")) for id in known]

    def _sample(self, id: int, page: _Page | None, error: str) -> Sample:
        now_ns = time.monotonic_ns()
        if page is None:
            return Sample(id, now_ns, False, error or "it has not been seen yet")
        up = self._runs(id, page)
        stats = page.watch.stats
        words: dict[str, Any] = stats.as_dict()
        role = words.pop("role")
        return Sample(
            id,
            now_ns,
            up,
            "" if up else error or "its process has ended",
            page.pid,
            role if up else "stopped",
            words,
            stats.noted(),
            {name: _stage(stats, name) for name in STAGES},
            process_of(page.pid) if up else None,
            page.place,
        )

    def close(self) -> None:
        """Let go of all replicas."""
        self._done.set()
        self._thread.join(2.0)
        with self._lock:
            for page in self._pages.values():
                page.watch.close()

    def __enter__(self) -> Pages:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
