"""The voters as the logs have them, whatever replicas believe (KIP-853).

The oracle reads the KRaftVersion and KRaftVoters records of every batch that a leader appends, and
so knows which voter set counts at each place of each log, and holds the core to that:
what is committed (D16), which replicas count (D19), and when a set may follow another (D17).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from kraftfast.core.effects import AppendControl, VotersChanged
from kraftfast.core.membership.voter_controls import VoterControls
from kraftfast.core.membership.voter_history import VoterHistory
from kraftfast.node.storage.voter_records import controls_of
from kraftfast.sim.machines.machine import Machine, first_voters
from kraftfast.sim.require import require
from kraftfast.types import KRaftVersion, KRaftVoters, LeaderChange, VoterSet

if TYPE_CHECKING:
    from kraftfast.sim.machines.process import Process
    from kraftfast.sim.oracles.shadow import BatchId, Shadow
    from kraftfast.sim.oracles.world_invariants import Oracle

Kind = TypeVar("Kind")
ATTRIBUTES_AT, CONTROL = 22, 0x20
"""Where a batch's header says that it is a control batch."""


class VoterOracle:
    """What logs say about the voters.

    Invariants: ``records`` holds every control batch with such records that a leader ever appended;
    ``committed`` ascends.
    """

    records: dict[tuple[int, int], VoterControls]  # by epoch and base offset of their batch
    committed: list[tuple[int, KRaftVersion | KRaftVoters]]

    def __init__(self, oracle: Oracle) -> None:
        self.oracle, self.world = oracle, oracle.world
        self.first = first_voters(self.world.settings)
        self.records = {}
        self.committed = []
        self._checked: dict[int, Any] = {}  # what was last found to be as the log says

    # --- what is in the logs --------------------------------------------------------------------

    def learn(self, batch: BatchId, data: Any) -> None:
        """Note that a leader appended this batch."""
        if data[ATTRIBUTES_AT] & CONTROL:
            found = controls_of([bytes(data)])
            if found:
                self.records[batch.epoch, batch.base_offset] = found

    def base(self, machine: Machine) -> list[tuple[int, KRaftVersion | KRaftVoters]]:
        """Return what a machine's bootstrap snapshot says."""
        if machine.bootstrap is None:
            return []
        return [(-1, KRaftVersion(1)), (-1, KRaftVoters(machine.bootstrap))]

    def filed(self, end_offset: int) -> list[tuple[int, KRaftVersion | KRaftVoters]]:
        """Return what a snapshot of the committed log up to there says, as the core files it."""
        history = VoterHistory(self.committed)
        version = history.version_at(end_offset)
        voters = history.voters_at(end_offset)
        if version < 1:
            return []
        found: list[tuple[int, KRaftVersion | KRaftVoters]] = [
            (end_offset - 1, KRaftVersion(version))
        ]
        return found if voters is None else [*found, (end_offset - 1, voters)]

    def of(self, batch: BatchId) -> VoterControls:
        """Return the records of a batch that say who votes."""
        return self.records.get((batch.epoch, batch.base_offset), ())

    def committed_by(self, batch: BatchId, voters: VoterSet) -> None:
        """Note that a batch was committed, by a majority of these."""
        found = self.of(batch)
        if found:
            self._check_on_disks(batch, voters)
        self.committed += found
        self.world.counts["voter sets committed"] += sum(
            1 for _, each in found if isinstance(each, KRaftVoters)
        )

    def _check_on_disks(self, batch: BatchId, voters: VoterSet) -> None:
        """D10: who votes is on the disks of a majority, whatever the durability.

        Whoever lost its memory goes by the voters that its disk knows.
        """
        there = [key.id for key in voters.keys if batch in self.oracle.gone.get(key, ())]
        there += [each.id for each in self.machines(voters) if self._is_on_disk(each, batch)]
        require(
            len(there) >= voters.majority,
            f"D10: {self.of(batch)} are committed, which of {voters} only {there} have on disk",
        )

    def _is_on_disk(self, machine: Machine, batch: BatchId) -> bool:
        """Return whether a machine has a batch on its disk, be it in a snapshot."""
        shadow = self.oracle.shadow(machine.id)
        if machine.rotten or batch.end_offset <= shadow.in_log_from():
            return True
        entry = shadow.below(batch.end_offset)
        if entry is None or entry.batch != batch:
            return False
        return self.oracle.is_stable(machine, entry)

    def latest(self) -> KRaftVoters:
        """Return the last voter record that is committed."""
        for _, control in reversed(self.committed):
            if isinstance(control, KRaftVoters):
                return control
        return KRaftVoters(self.first)

    def sets_in_play(self) -> list[VoterSet]:
        """Return the committed set, and every one that stands behind it in some log."""
        return [each.voters for each in self._in_play()]

    def targets_in_play(self) -> list[tuple[int, ...]]:
        """Return the targets of reassignments that stand with these sets."""
        return [each.target for each in self._in_play() if each.target is not None]

    def _in_play(self) -> list[KRaftVoters]:
        last = self.committed[-1][0] if self.committed else -1
        found = [self.latest()]
        for shadow in self.oracle.shadows.values():
            for offset, control in shadow.changes:
                if offset > last and isinstance(control, KRaftVoters):
                    found.append(control)
        return found

    def are_known_without(self, machine: Machine) -> bool:
        """Return whether all the other first voters have on disk that later ones are committed.

        And at most a minority of the first voters has lost its disk then, this machine too.
        """
        offsets = [offset for offset, each in self.committed if isinstance(each, KRaftVoters)]
        if not offsets or machine.id not in self.first:
            return False
        first = [each for each in self.world.machines if each.id in self.first]
        others = [each for each in first if each is not machine]
        if 2 * (1 + sum(each.formats > 1 for each in others)) >= len(first):
            return False
        return all(
            each.is_sound
            and each.process is not None
            and min(each.process.core.high_watermark, each.process.log.flushed_end_offset)
            > offsets[0]
            for each in others
        )

    # --- voters, by replica -----------------------------------------------------------------------

    def replay(self, process: Process) -> VoterHistory:
        """Replay one log up to the end that its core knows (I16)."""
        shadow, end = self.oracle.shadow(process.id), process.core.end_offset
        return VoterHistory([*shadow.base, *self._below(shadow, end)])

    def _below(self, shadow: Shadow, end: int) -> Iterator[tuple[int, KRaftVersion | KRaftVoters]]:
        return (change for change in shadow.changes if change[0] < end)

    def in_force(self, process: Process) -> VoterSet:
        """Return the set in force at this replica: the last of its log, committed or not (D16)."""
        shadow, end = self.oracle.shadow(process.id), process.core.end_offset
        for changes in (shadow.changes, shadow.base):
            for offset, control in reversed(changes):
                if offset < end and isinstance(control, KRaftVoters):
                    return control.voters
        configured: VoterSet = process.config.voter_set()
        return configured

    def machines(self, voters: VoterSet) -> list[Machine]:
        """Return the machines of a voter set, without those whose disk was replaced (D19)."""
        return [machine for machine in self.world.machines if voters.is_voter(machine.key)]

    # --- what must hold -------------------------------------------------------------------------

    def check(self, process: Process) -> None:
        """After every turn: I16, a replica believes its log; I17, a removed leader resigns."""
        core, shadow = process.core, self.oracle.shadow(process.id)
        begin, changes, end = max(shadow.base_end, process.log.log_start_offset), shadow.changes, 0
        if changes:
            end = core.end_offset
        below = sum(1 for change in changes if change[0] < end)
        known = (process, begin, below, len(changes), core.history.last_offset, core.voters)
        if self._checked.get(process.id) != known:
            believed = filed_from(core.history, begin)
            said = filed_from(self.replay(process), begin)
            require(believed == said, f"I16: {process.id} believes {believed}, its log says {said}")
            voters = self.in_force(process)
            require(
                core.voters == voters,
                f"I16: {process.id} lets {core.voters} vote, its log says {voters}",
            )
            self._checked[process.id] = known
        if core.role == "leader" and not core.voters.is_voter(process.machine.key):
            removed_at = core.history.latest_offset
            require(
                core.high_watermark <= removed_at,
                f"I17: {process.id} leads on, and its removal at {removed_at} is committed",
            )

    def changed(self, process: Process, effect: VotersChanged) -> None:
        """Note that a replica says that another set is in force."""
        self.world.count("voter sets in force")
        require(
            effect.voters == process.core.voters,
            f"I16: {process.id} tells of {effect.voters}, and lets {process.core.voters} vote",
        )

    def appends(self, process: Process, effect: AppendControl) -> None:
        """D17, I16: one change at a time, from a set that is committed, in an epoch that is."""
        sets = [each for each in effect.records if isinstance(each, KRaftVoters)]
        if not sets or any(isinstance(each, LeaderChange) for each in effect.records):
            return  # none, or the same set written down again by a new leader
        shadow = self.oracle.shadow(process.id)
        own = next(each.batch for each in shadow.entries if each.batch.epoch == effect.epoch)
        before = self.oracle.committed_to(shadow.start)
        given_up = before is not None and before.epoch == effect.epoch  # and so committed
        require(
            given_up or own.end_offset <= shadow.high_watermark,
            f"D17: {process.id} changes the voters before it committed {own}",
        )
        uncommitted = [
            offset
            for offset, each in shadow.changes
            if isinstance(each, KRaftVoters) and offset >= shadow.high_watermark
        ]
        require(
            not uncommitted,
            f"D17, I16: {process.id} changes the voters above those at {uncommitted}",
        )
        now, then = self.in_force(process), sets[-1].voters
        require(
            len(set(now.ids) ^ set(then.ids)) <= 1,
            f"D17: {process.id} goes from {now} to {then} in one step",
        )
        moved = [voter.id for voter in then if voter.id in now and not now.is_voter(voter.key)]
        require(not moved, f"D19: {process.id} gives {moved} other directories")
        self.world.early.shrinks(process, now, then)
        self.world.early.grows(process, now, then)


def filed_from(history: VoterHistory, begin: int) -> VoterHistory:
    """Return the history as a snapshot that ends at ``begin`` would keep it."""

    def filed(entries: list[tuple[int, Kind]]) -> list[tuple[int, Kind]]:
        below = [(begin - 1, value) for offset, value in entries if offset < begin]
        return below[-1:] + [entry for entry in entries if entry[0] >= begin]

    result = VoterHistory()
    result.versions = filed(history.versions)
    result.voter_sets = filed(history.voter_sets)
    return result
