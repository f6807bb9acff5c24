"""Faults aimed at moments that chance alone hardly ever meets: power cuts between two steps."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from kraftfast.core import events as ev
from kraftfast.limits import HELD_AGE_MS_MAX

if TYPE_CHECKING:
    from kraftfast.sim.machines.machine import Machine
    from kraftfast.sim.machines.process import Process
    from kraftfast.sim.settings import WorldSettings
    from kraftfast.sim.world import World

AIMS = (
    "quorum-state",
    "leader-epoch-checkpoint",
    ".checkpoint",  # a snapshot
    "committed-floor",
    "durable-end",
    "phantom-tail",
    "flush begins",
    "flush ends",
    "fdatasync",
    "unlink",
    "rename to",
    ".log",
)
"""Words of system calls: see ``SimDisk.crash_at``."""
SEGMENTS_AHEAD = 10
"""One flush covers 8 files (``KF_FLUSH_FILES_MAX``)."""


class Aimed:
    """The half of a :class:`~kraftfast.sim.faults.nemesis.Nemesis` that waits for a moment."""

    world: World
    random: Random
    settings: WorldSettings
    running: bool

    def _victim(self) -> Machine | None:
        raise NotImplementedError

    def _running(self) -> list[Machine]:
        raise NotImplementedError

    def _in_role(self, role: str) -> list[Machine]:
        return [each for each in self._running() if each.process and each.process.core.role == role]

    def _may_lose_power(self, machine: Machine) -> bool:
        raise NotImplementedError

    def _after(self, ms_min: int, ms_max: int, call: Any, *arguments: Any) -> None:
        self.world.later(self.random.randint(ms_min, ms_max) * 1000, call, *arguments)

    # --- between asking for votes and leading -----------------------------------------------------

    def _nominee(self) -> None:
        """Stop the leader while a follower's disk hangs; the follower campaigns, and loses power.

        Power goes at any point from its first pre-vote to its first records as a leader (D21).
        """
        leaders = self._in_role("leader")
        followers = self._in_role("follower")
        if not leaders or not followers:
            return
        leader, victim = self.random.choice(leaders), self.random.choice(followers)
        victim.disk_factor = self.random.choice((1, 30, 1000))
        lasts_ms = self.settings.fetch_timeout_ms * 4
        self._after(lasts_ms, lasts_ms, setattr, victim, "disk_factor", 1)
        self._after(1, 40, self._end, leader, leader.process, False)
        self._after(1, 40, self._watch, victim, self.world.now_us + lasts_ms * 1000)

    def _watch(self, machine: Machine, until_us: int) -> None:
        """Wait until the process of this machine campaigns, then a moment; then cut its power."""
        process = machine.process
        if not self.running or process is None or self.world.now_us >= until_us:
            return
        if process.core.role not in ("prospective", "candidate", "leader"):
            self.world.later(200, self._watch, machine, until_us)
        elif self._may_lose_power(machine):
            moment_us = self.random.choice((1, 300, 1_000, 5_000))
            self.world.later(moment_us, self._end, machine, process, True)

    def _end(self, machine: Machine, process: Any, power: bool) -> None:
        if self.running and machine.process is process:
            self.world.count("nominees without power" if power else "leaders of nominees killed")
            self.world.end(machine, power)

    # --- after a cut, after a stop ----------------------------------------------------------------

    def _deposed(self) -> None:
        """Cut a leader off with what it goes on appending; it cuts that, and ends just then.

        It is killed, loses power, or comes back to a disk whose last batches have changed. Now and
        then its flush hangs since before: then it learns of the cut late.
        """
        leader = self.world.leader()
        if leader is None:
            return
        lasts_ms = self.settings.fetch_timeout_ms * self.random.choice((2, 3, 5))
        hangs = any(each.flushes_hang for each in self.world.machines)
        if hangs or self.random.random() < 0.5:
            self._cut_off(leader, lasts_ms)
            return
        machine = leader.machine
        machine.flushes_hang = True
        self._after(lasts_ms + 5, lasts_ms + 300, setattr, machine, "flushes_hang", False)
        self._await_commits(leader, leader.log.end_offset, self.world.now_us + lasts_ms * 500)

    def _await_commits(self, leader: Process, begun: int, until_us: int) -> None:
        """Wait until others have committed what this leader's flush does not cover."""
        left_ms = (until_us - self.world.now_us) // 1000
        if not self.running or not leader.alive or left_ms <= 0:
            return
        ahead = leader.core.high_watermark > max(begun, leader.log.flushed_end_offset)
        if ahead and leader.flusher.busy():
            self.world.count("leaders cut off with a flush that hangs")
            self._cut_off(leader, left_ms + self.settings.fetch_timeout_ms)
        else:
            self.world.later(500, self._await_commits, leader, begun, until_us)

    def _cut_off(self, leader: Process, lasts_ms: int) -> None:
        """Cut this leader off for a while, in both directions."""
        machine, network = leader.machine, self.world.network
        others = [each.id for each in self.world.machines if each is not machine]
        pairs = {(machine.id, id) for id in others} | {(id, machine.id) for id in others}
        network.cut |= pairs
        self._after(lasts_ms, lasts_ms, network.cut.difference_update, pairs)
        until_us = self.world.now_us + lasts_ms * 3_000
        self._await_cut(machine, leader, leader.log.truncations, until_us)

    def _await_cut(self, machine: Machine, process: Process, cuts: int, until_us: int) -> None:
        if not self.running or machine.process is not process or self.world.now_us >= until_us:
            return
        if process.log.truncations == cuts:
            self.world.later(200, self._await_cut, machine, process, cuts, until_us)
            return
        if self.random.random() < 0.4:
            self._await_kept(machine, process, self.world.now_us + 50_000)
            return
        how = self.random.choice(("power", "power", "kill", "rot"))
        moment_us = self.random.choice((1, 1_000, 10_000))
        self.world.later(moment_us, self._end_after_cut, machine, process, how)

    def _await_kept(self, machine: Machine, process: Any, until_us: int) -> None:
        """Wait until what a cut kept is flushed; nothing should follow it yet, so that rot of it is
        told only by what the cut and that flush wrote (D10).
        """
        log = process.log
        if self.world.now_us < until_us and log.flushed_end_offset < log.end_offset:
            self.world.later(50, self._await_kept, machine, process, until_us)
        else:
            self._end_after_cut(machine, process, "rot")

    def _end_after_cut(self, machine: Machine, process: Any, how: str) -> None:
        if not self.running or machine.process is not process:
            return
        if how == "kill" or not self._may_lose_power(machine):
            self.world.end(machine, power=False)
        else:
            self.world.end(machine, power=True)
        self.world.count("ends after a cut")
        if how == "rot":
            self._rot_tail(machine)

    def _rot_tail(self, machine: Machine) -> None:
        raise NotImplementedError

    def _stop_and_power(self) -> None:
        """Stop a replica in order; its machine loses power right after that."""
        machine = self._victim()
        if machine is not None and machine.process is not None:
            process = machine.process
            process.enter(process.step, ev.ShutdownRequested(self.settings.fetch_timeout_ms))
            until_us = self.world.now_us + self.settings.fetch_timeout_ms * 3_000
            self._await_stop(machine, process, until_us)

    def _await_stop(self, machine: Machine, process: Any, until_us: int) -> None:
        if not self.running or self.world.now_us >= until_us:
            return
        if machine.process is process:
            self.world.later(200, self._await_stop, machine, process, until_us)
        elif self._may_lose_power(machine):
            self.world.count("power cut after a stop")
            self.world.end(machine, power=True)

    def _stop_far_ahead(self) -> None:
        """Stop a leader in order with more segments that are not flushed than one flush covers."""
        leader = self.world.leader()
        if leader is not None:
            leader.machine.flushes_hang = True
            longest_ms = min(self.settings.fetch_timeout_ms, HELD_AGE_MS_MAX)
            self._await_segments(leader, self.world.now_us + longest_ms * 900)

    def _await_segments(self, leader: Process, until_us: int) -> None:
        machine, log = leader.machine, leader.log
        behind = sum(each.base_offset >= log.flushed_end_offset for each in log.segments)
        late = self.world.now_us >= until_us
        if not self.running or not leader.alive or (late and behind <= 1):
            machine.flushes_hang = False
        elif behind < SEGMENTS_AHEAD and not late:
            self.world.later(500, self._await_segments, leader, until_us)
        else:
            self.world.count("stopped far ahead" if behind >= SEGMENTS_AHEAD else "stopped ahead")
            self._after(2_000, 2_000, setattr, machine, "flushes_hang", False)
            leader.enter(leader.step, ev.ShutdownRequested(self.settings.fetch_timeout_ms))
            self._await_stop(machine, leader, self.world.now_us + 2_000_000)

    # --- between the last slice of a snapshot and what takes the log's place ---------------------

    def _full_at_install(self) -> None:
        """Fill the disk of a replica when it has all of the leader's snapshot (D25)."""
        self._await_last_slice(self.world.now_us + self.settings.fetch_timeout_ms * 4_000)

    def _await_last_slice(self, until_us: int) -> None:
        if not self.running or self.world.now_us >= until_us:
            return
        for machine in self._running():
            follower = machine.process.core._state.follower if machine.process else None
            download = follower.download if follower is not None else None
            left = download.size - download.position if download is not None else -1
            if 0 <= left <= self.settings.fetch_snapshot_max_bytes:
                self.world.count("disks full at an install")
                machine.disk.fill_up(self.random.choice((0, 1, 1, 2, 3)))
                self._after(5, 200, machine.disk.give_space)
                return
        self.world.later(300, self._await_last_slice, until_us)

    # --- between quorum-state and log, append and flush, two names -------------------------------

    def _aimed_call(self) -> None:
        """Stop a machine at one of its next system calls of one kind, perhaps while it starts."""
        machine = self._victim() or self.random.choice(self.world.machines)
        word = self.random.choice(AIMS)
        machine.crash_loses_power = self.random.random() < 0.75
        machine.disk.crash_at(self.random.choice((0, 0, 0, 1, 2, 5)), word)
        if self.random.random() < 0.3 and machine.process is not None:
            self.world.end(machine, power=False)  # the call to stop at is one of its next start
            machine.disk.crash_at(self.random.choice((0, 0, 1, 3)), word)

    def _unflushed(self) -> None:
        """Cut a machine's power between an append and its flush, perhaps that of all at once."""
        machine = self._victim()
        if machine is not None and machine.process is not None:
            until_us = self.world.now_us + self.settings.fetch_timeout_ms * 2_000
            self._await_tail(machine, machine.process, until_us)

    def _await_tail(self, machine: Machine, process: Process, until_us: int) -> None:
        if not self.running or machine.process is not process or self.world.now_us >= until_us:
            return
        if process.log.end_offset == process.log.flushed_end_offset:
            self.world.later(100, self._await_tail, machine, process, until_us)
            return
        others = [each for each in self._running() if each is not machine]
        together = self.settings.durability != "memory" and self.random.random() < 0.3
        for each in [machine, *(others if together else [])]:
            if self._may_lose_power(each):
                self.world.count("power cut before a flush")
                self.world.end(each, power=True)
