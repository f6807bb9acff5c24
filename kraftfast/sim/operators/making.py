"""A quorum's directories as they are made, added and set aside: with a crash at any system call.

What a program does before there is a replica, on a disk that nothing else is on. It dies at a call,
or its machine does, and does it again; then the directories must be those of one quorum.
"""

from __future__ import annotations

import os
from random import Random
from typing import TYPE_CHECKING, Any

from kraftfast.errors import ForeignDirectory, InvalidOption, KraftfastError
from kraftfast.log.small_files.directory import read_meta
from kraftfast.node.storage.description import read_description
from kraftfast.node.storage.local_layout import (
    PLAN,
    add_to_description,
    on_device_of,
    on_one_device,
    open_or_format,
    quorum_path,
    replica_directories,
    set_others_aside,
)
from kraftfast.node.storage.lost_description import lost_description
from kraftfast.sim.machines.sim_disk import Crash, SimDisk
from kraftfast.sim.require import expect

if TYPE_CHECKING:
    from collections.abc import Callable

PLACE = "/made"
CALLS_MAX = 60
TRIES_MAX = 12


class QuorumMaking:
    """Makes a quorum in :data:`PLACE`. ``host``: of the program, but for its disk."""

    # _leaves: replicas are being set aside. _ids: the directory id of each replica, once a call
    # that made it has returned (D19).

    def __init__(self, host: Any, random: Random) -> None:
        self._random = random
        self.disk = SimDisk(Random(random.getrandbits(64)))
        self.host = host
        self._ids: dict[int, bytes] = {}
        self._leaves = False

    def run(self) -> None:
        """Make it, and do all else with it that programs do."""
        voters = self._random.choice((1, 2, 3, 5))
        path = quorum_path(PLACE, self.host)
        version = self._random.choice((0, 1))
        self._again(
            lambda: open_or_format(path, voters, None, None, version, host=self.host),
        )
        known, is_new = open_or_format(path, None, None, None, 1, host=self.host)
        expect(known.voters == list(range(1, voters + 1)), f"D19: the voters are {known.voters}")
        expect(not is_new, "D19: a quorum is made twice")
        self._check()
        self._again(lambda: add_to_description(PLACE, 9, self.host))
        self._again(lambda: add_to_description(PLACE, None, self.host))
        self._check()
        directories = replica_directories(PLACE, read_description(PLACE, self.host).replicas)
        expect(on_one_device(directories, self.host) == [sorted(directories)], "all are here")
        expect(on_device_of(PLACE, directories, self.host) == sorted(directories), "all are here")
        self._refuse(voters)
        self._lose_description()
        self._leaves = True
        self._again(lambda: set_others_aside(PLACE, 1, self.host))
        expect(read_description(PLACE, self.host).replicas == [1], "others are set aside")

    def _again(self, call: Callable[[], object]) -> None:
        """Do something until no crash comes between; it may find that it was done."""
        for left in range(TRIES_MAX, -1, -1):
            crashes = left and self._random.random() < 0.7
            self.disk.crash_at(self._random.randint(0, CALLS_MAX) if crashes else -1)
            try:
                call()
                break
            except Crash:
                if self._random.random() < 0.5:
                    self.disk.lose_power()
                else:
                    self.disk.kill()
                self._check()
        self.disk.crash_at(-1)

    def _check(self) -> None:
        """D19: what ``quorum.json`` names is there, of this quorum, and keeps its directory id."""
        try:
            known = read_description(PLACE, self.host)
        except KraftfastError:
            return  # it is not made yet
        for id, directory in replica_directories(PLACE, known.replicas).items():
            if self._leaves and not self.disk.exists(directory):
                continue  # the description comes last; a second attempt finds that
            meta = read_meta(self.disk, directory)  # type: ignore[arg-type]
            expect(
                (meta.node_id, meta.cluster_id) == (id, known.cluster_id),
                f"D19: {directory} is of replica {meta.node_id} of {meta.cluster_id}",
            )
            before = self._ids.setdefault(id, meta.directory_id)
            expect(before == meta.directory_id, f"D19: replica {id} got another directory id")

    def _refuse(self, voters: int) -> None:
        """Ask for what was made otherwise, or is none."""
        for path, count, durability in (
            (PLACE, voters + 2, None), (PLACE, None, "all"), (f"{PLACE}/1", None, None),
        ):  # fmt: skip
            try:
                open_or_format(path, count, durability, None, 1, host=self.host)
            except (InvalidOption, ForeignDirectory):
                continue
            expect(False, f"D19: {path} is taken for another quorum than it is")

    def _lose_description(self) -> None:
        """Find out by the replicas what ``quorum.json`` said: a start says it, and makes nothing.

        The plan is removed first: with a plan, and before any replica has run, a start would make
        the quorum again.
        """
        self.disk.unlink(os.path.join(PLACE, PLAN))
        file = f"{PLACE}/quorum.json"
        data, known = self.disk.read_file(file), read_description(PLACE, self.host)
        self.disk.unlink(file)
        found = lost_description(PLACE, self.host)
        expect(
            found is not None and sorted(found.replicas) == sorted(known.replicas),
            f"D19: of {known} the replicas say {found}",
        )
        for broken in (None, b"{"):
            if broken is not None:
                self.disk.replace_file(file, broken)
            try:
                open_or_format(PLACE, None, None, None, 1, host=self.host)
            except ForeignDirectory as error:
                expect("quorum.json" in str(error), f"it says {error}")
            else:
                expect(False, "D19: a quorum is made over one whose description is lost")
        self.disk.replace_file(file, data)
