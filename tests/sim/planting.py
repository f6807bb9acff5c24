"""Tell what is planted for the rules of the simulator's oracles.

Each plant breaks one rule in a quorum that is well, as a bug would have done, and has the oracle
look at it. Its rule is what the oracle must say; ``{}`` stands for anything.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kraftfast.log.segment import LOG_SUFFIX, segment_name
from kraftfast.sim.machines.process import Process
from kraftfast.types import ElectionState
from tests.sim.kit import Quorum
from tests.sim.steps import BESIDE, NEVER_ENDS, dynamic, with_snapshots

Patch = pytest.MonkeyPatch
NAMES = "id", "machine", "directory", "disk", "config"


class Scene:
    """A quorum that has committed something and is at rest, and two of its replicas."""

    def __init__(self, quorum: Quorum, patch: Patch) -> None:
        self.quorum, self.patch = quorum, patch
        self.world, self.oracle = quorum.world, quorum.world.oracle
        quorum.start()
        quorum.reach(10)
        for producer in self.world.producers:
            producer.running = False
        quorum.wait(self.world.is_settled)
        self.leader = quorum.process(quorum.leader())
        self.other = quorum.process(next(id for id in quorum.ids if id != self.leader.id))
        self.shadow = self.oracle.shadow(self.other.id)
        self.last = self.shadow.entries[-1].batch

    @property
    def epoch(self) -> int:
        return self.leader.core.epoch

    def append(self) -> None:
        """One more batch, to the leader."""
        producer = self.world.producers[0]
        producer.leader_id = self.leader.id
        producer.append()

    def unflushed(self) -> None:
        """The leader has a batch that is not on its disk, which does not answer."""
        self.leader.machine.disk_factor = NEVER_ENDS
        self.append()
        self.world.run(100, lambda: self.leader.log.end_offset > self.leader.log.flushed_end_offset)

    def flip(self, process: Process, place: int = 70) -> None:
        """Change a byte of the last batch that nobody is told of."""
        entry = self.oracle.shadow(process.id).entries[-1]
        name = segment_name(entry.segment_base) + LOG_SUFFIX
        path = f"{self.world.log_path(process.machine)}/{name}"
        file = process.machine.disk.paged_file(path)
        assert file is not None
        file.flip(entry.position + place, 0)

    def promises(self, state: ElectionState | None) -> None:
        """Quorum-state of every replica says this, on the disk."""
        self.patch.setattr(self.oracle, "stable_promise", lambda machine: state)

    def process_of(self, **words: Any) -> Any:
        """The other replica's process, but for what a bug did to it."""
        mine = {each: getattr(self.other, each) for each in NAMES}
        values: dict[str, Any] = mine | {"durability": self.other.durability, "rots": False}
        values |= {
            "core": self.other.core,
            "log": self.other.log,
            "quorum_config": self.other.quorum_config,
        }
        return SimpleNamespace(**(values | words))

    def log_of(self, **words: Any) -> Any:
        """Its log, likewise."""
        log = self.other.log
        names = (
            "end_offset", "flushed_end_offset", "log_start_offset", "segments", "epochs",
            "producers", "bytes_appended",
        )  # fmt: skip
        return SimpleNamespace(**({each: getattr(log, each) for each in names} | words))

    def core_of(self, process: Process, **words: Any) -> Any:
        """A core, likewise."""
        names = ("end_offset", "history", "voters", "role", "high_watermark", "epoch", "last_epoch")
        return SimpleNamespace(**({each: getattr(process.core, each) for each in names} | words))


Plant = Callable[[Scene], Any]
PLANTS: dict[str, tuple[Plant, Callable[[], Quorum]]] = {}


def static() -> Quorum:
    return Quorum(1, transport="ring", **BESIDE)


def with_voter_records() -> Quorum:
    return dynamic(1)


def with_state() -> Quorum:
    return with_snapshots(1, retention_bytes=0, snapshot_bytes=500)


def plant(rule: str, quorum: Callable[[], Quorum] = static) -> Callable[[Plant], Plant]:
    """Say which rule a function breaks."""

    def noted(function: Plant) -> Plant:
        assert rule not in PLANTS, rule
        PLANTS[rule] = function, quorum
        return function

    return noted
