"""The records of a Fetch answer on their way: as bytes, or as a place in the leader's segment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraftfast.sim.paged_file import copy_reference

if TYPE_CHECKING:
    from kraftfast.core.effects import AnswerFetch
    from kraftfast.sim.machine import Machine
    from kraftfast.sim.process import Process


class Records:
    """The records of a Fetch answer, as bytes.

    ``pushed``: on a stream, which goes on behind all of them; else the answer may end in a part.
    """

    def __init__(self, data: bytes, pushed: bool) -> None:
        self.data, self.pushed = data, pushed

    def copy(self, process: Process, epoch: int) -> tuple[bool, bool]:
        """Into the log: (all taken, a part rejected). Neither: no room yet."""
        log = process.log
        taken = log.copy(self.data, epoch)
        if self.pushed:
            return taken == len(self.data), log.damaged() or log.cut_off()
        return taken == len(self.data) or log.cut_off(), log.damaged()


class Reference(Records):
    """Records that stay in the leader's segment until they are copied (D20)."""

    def __init__(self, machine: Machine, segment: Any, position: int, length: int) -> None:
        super().__init__(b"", True)
        self.machine = machine
        self.path, self.inode = segment.file.path, segment.file.inode()
        self.position, self.length = position, length
        self.generation = segment.generation()

    def copy(self, process: Process, epoch: int) -> tuple[bool, bool]:
        file = process.map_segment(self.machine, self.path, self.inode)
        if file is None or self.position + self.length > file.size:
            return False, True
        log = process.log
        taken = copy_reference(log, file, self.position, self.length, epoch, self.generation)
        process.world.counts["bytes copied by reference"] += taken
        return taken == self.length, log.damaged() or log.cut_off()


def read_answer(process: Process, effect: AnswerFetch) -> Records | None:
    """Read what answers a Fetch that is none of a stream; None: no records."""
    if effect.read_offset < 0:
        return None
    bound = min(effect.max_bytes, process.settings.fetch_max_bytes)
    found = process.log.locate(effect.read_offset, bound, effect.read_end_offset)
    if found is None:
        return None
    segment, position, length = found
    return Records(bytes(segment.file.view(position, position + length)), False)
