"""D13, D14: how much a leader holds that is not on its disk, and for how long."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from kraftfast.sim.require import require

if TYPE_CHECKING:
    from kraftfast.core.replication.leader import Leader
    from kraftfast.core.state import QuorumState
    from kraftfast.sim.machines.process import Process


class Unflushed:
    """What one process appended and has not on disk: (exclusive end, bytes, when by its clock)."""

    def __init__(self, process: Process) -> None:
        self.appends: deque[tuple[int, int, int]] = deque()
        self.end, self.bytes_appended = process.log.end_offset, process.log.bytes_appended
        self.flushed = -1
        self.bytes = 0

    def look(self, process: Process) -> None:
        """Look at what came, what was cut, and what is on disk by now."""
        log, appends = process.log, self.appends
        now = log.end_offset, log.bytes_appended, log.flushed_end_offset
        if now == (self.end, self.bytes_appended, self.flushed):
            return
        self.flushed = log.flushed_end_offset
        while appends and appends[-1][0] > log.end_offset:
            self.bytes -= appends.pop()[1]
        if log.end_offset > self.end:
            size = log.bytes_appended - self.bytes_appended
            appends.append((log.end_offset, size, process.now_ms()))
            self.bytes += size
        self.end, self.bytes_appended = log.end_offset, log.bytes_appended
        while appends and appends[0][0] <= log.flushed_end_offset:
            self.bytes -= appends.popleft()[1]

    def age_ms(self, process: Process) -> int:
        """Return how long the oldest record has been waiting for the disk."""
        return process.now_ms() - self.appends[0][2] if self.appends else 0


class FlushOracle:
    """Holds every leader to the bounds of its configuration."""

    _unflushed: dict[int, tuple[Process, Unflushed]]

    def __init__(self) -> None:
        self._unflushed = {}
        self._began: dict[int, tuple[Process, int]] = {}

    def _of(self, process: Process) -> Unflushed:
        known = self._unflushed.get(process.id)
        if known is None or known[0] is not process:
            known = self._unflushed[process.id] = process, Unflushed(process)
        known[1].look(process)
        return known[1]

    def began(self, process: Process) -> None:
        """Note that a flush begins, or a leader that waits for one; when, by its clock."""
        self._began[process.id] = process, process.now_ms()

    def _age_ms(self, process: Process, runs: bool) -> int:
        """Return how long a flush has taken by the clock of its process; 0 if none runs."""
        known, began_ms = self._began.get(process.id, (None, 0))
        return process.now_ms() - began_ms if runs and known is process else 0

    def resigns(self, process: Process, leader: Leader) -> None:
        """Check a leader that resigned without a request: without others, or for a stuck flush.

        ``leader``: what it was until then.
        """
        state, config = process.core._state, process.quorum_config
        alone = process.now_ms() >= leader.check_quorum_deadline_ms
        if alone or state.shutting_down or not state.voters.is_voter(state.local):
            return
        if self._has_successor(state, leader):
            return
        age_ms = self._age_ms(process, state.log.flushing)  # it may have ended, untold
        require(
            age_ms >= config.fetch_timeout_ms,
            f"D13: {process.id} resigns though others fetch, and its flush has run for {age_ms} ms",
        )

    def _has_successor(self, state: QuorumState, leader: Leader) -> bool:
        """Return whether a reassignment takes a leader's place, and a voter that stays has all."""
        latest = state.history.latest
        if latest is None or latest.target is None or state.local.id in latest.target:
            return False
        staying = [each for id, each in leader.voters.items() if id in latest.target]
        return any(each.acknowledged_end_offset == state.log.end_offset for each in staying)

    def drains(self, process: Process) -> None:
        """Check that nothing is taken above the bound, or while the oldest waits too long."""
        if process.durability == "memory":
            return
        unflushed, config = self._of(process), process.quorum_config
        require(
            unflushed.bytes < config.unflushed_bytes_max,
            f"D14: {process.id} takes more above {unflushed.bytes} bytes that are not on disk",
        )
        age_ms = unflushed.age_ms(process)
        require(
            age_ms <= config.held_age_ms_max,
            f"D14: {process.id} takes more, and the oldest waits {age_ms} ms for its disk",
        )

    def check(self, process: Process, ticked: bool) -> None:
        """Check that a flush starts at half of the bound or when the oldest is old, and ends."""
        if process.durability == "memory" or process.blocked:
            return
        unflushed, config = self._of(process), process.quorum_config
        voters = process.core.voters.ids
        if ticked and process.core.role == "leader" and voters != (process.id,):
            age_ms = self._age_ms(process, process.flusher.busy())
            require(
                age_ms < config.fetch_timeout_ms,
                f"D13: {process.id} leads on, and its disk has not answered for {age_ms} ms",
            )
        if process.core.role != "leader" or process.flusher.busy() or not unflushed.appends:
            return
        require(
            unflushed.bytes * 2 < config.unflushed_bytes_max,
            f"D14: {process.id} has {unflushed.bytes} bytes that are not on disk, and no flush",
        )
        age_ms = unflushed.age_ms(process)
        require(
            not ticked or age_ms < config.unflushed_age_ms_max,
            f"D14: {process.id} has records that wait {age_ms} ms for their disk, and no flush",
        )
