"""What is done to a quorum that runs: processes die or stand still, voters come and go."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable

from kraftfast.testing import QuorumUnderTest

TIMEOUT_S = 90.0


class Faults:
    """One fault a call, at random. ``counts``: name -> so many were made.

    Calls return once every replica runs and has caught up again. Raises AssertionError where one
    does not within ``TIMEOUT_S``, KraftfastError where there is no leader to ask.
    """

    def __init__(self, quorum: QuorumUnderTest, seed: int) -> None:
        self.quorum, self.chance = quorum, random.Random(seed)
        self.kinds: list[Callable[[], object]] = [
            self.kill_leader,
            self.kill_follower,
            self.kill_all,
            self.cut_leader,
            self.cut_follower,
            self.transfer,
            self.replace,
            self.grow_and_shrink,
        ]
        self.counts = {kind.__name__: 0 for kind in self.kinds}

    def one(self) -> str:
        """Make one; return its name."""
        kind = self.chance.choice(self.kinds)
        kind()
        self.counts[kind.__name__] += 1
        self.wait_whole()
        return kind.__name__

    def wait_whole(self) -> None:
        """Wait until every replica has what is committed now."""
        deadline = time.monotonic() + TIMEOUT_S
        end_offset = self.quorum.read_barrier(timeout=TIMEOUT_S)
        while time.monotonic() < deadline:
            statuses = self.quorum.statuses()
            if len(statuses) == len(self.quorum.directories) and all(
                each["high_watermark"] >= end_offset for each in statuses.values()
            ):
                return
            time.sleep(0.05)
        raise AssertionError(
            f"not all replicas came back in {TIMEOUT_S} s: {self.quorum.statuses()}"
        )

    def _follower(self) -> int:
        leader = self.quorum.wait_leader(TIMEOUT_S)
        return self.chance.choice([id for id in self.quorum.directories if id != leader])

    def kill_leader(self) -> None:
        self.quorum.kill(self.quorum.wait_leader(TIMEOUT_S))

    def kill_follower(self) -> None:
        self.quorum.kill(self._follower())

    def kill_all(self) -> None:
        for id in self.quorum.directories:
            self.quorum.kill(id)

    def cut_leader(self) -> None:
        self._cut(self.quorum.wait_leader(TIMEOUT_S))

    def cut_follower(self) -> None:
        self._cut(self._follower())

    def _cut(self, id: int) -> None:
        with self.quorum.cut_off(id):
            time.sleep(self.chance.uniform(0.1, 5.0))

    def transfer(self) -> None:
        self.quorum.transfer(self._follower(), timeout=TIMEOUT_S)

    def replace(self) -> None:
        """Take the directory of a follower away, and have the others fill a new one."""
        id = self._follower()
        directory = self.quorum.directories[id]
        lost = directory + ".lost"
        os.rename(directory, lost)
        self.quorum.kill(id)
        deadline = time.monotonic() + TIMEOUT_S
        while id not in self.quorum.faults:
            assert time.monotonic() < deadline, "a replica without a directory runs"
            time.sleep(0.05)
        self.quorum.replace(id, timeout=TIMEOUT_S)
        shutil.rmtree(lost)

    def grow_and_shrink(self) -> None:
        """Add a voter, and remove it or an older one."""
        id = self.quorum.add_voter(timeout=TIMEOUT_S)
        directory = self.quorum.directories[id]
        self.wait_whole()
        self.quorum.remove_voter(id, stop=True, timeout=TIMEOUT_S)
        shutil.rmtree(directory)
