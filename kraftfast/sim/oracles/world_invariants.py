"""What must hold after every event (docs/explanation/conditions.md), whatever has gone wrong.

The oracle sees what no replica can: all logs, all disks, all promises. It names every batch that
any leader ever appended, and the one before it; by that alone two logs that share a batch share
everything before it (I2, I3).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kraftfast.core.messages import (
    FetchRequest,
    FetchResponse,
    QuorumEpochResponse,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from kraftfast.errors import CorruptLog
from kraftfast.log.segment import LOG_SUFFIX, segment_name
from kraftfast.log.small_files import quorum_state
from kraftfast.sim.machines.paged_file import PagedFile, batches_of
from kraftfast.sim.machines.small_file import SmallFile
from kraftfast.sim.oracles.flush_oracle import FlushOracle
from kraftfast.sim.oracles.producer_oracle import check_epochs, check_producers
from kraftfast.sim.oracles.shadow import BatchEntry, BatchId, Shadow, was_cut, was_writing
from kraftfast.sim.oracles.snapshot_oracle import SnapshotOracle
from kraftfast.sim.oracles.vote_oracle import VoteOracle, is_same_vote
from kraftfast.sim.oracles.voter_oracle import VoterOracle
from kraftfast.sim.require import Violation, require
from kraftfast.types import ElectionState, ReplicaKey

if TYPE_CHECKING:
    from kraftfast.sim.machines.machine import Machine
    from kraftfast.sim.machines.process import Process
    from kraftfast.sim.world import World


class Oracle:
    """Everything that was appended, promised and committed so far."""

    shadows: dict[int, Shadow]
    leaders: dict[int, Process]  # epoch -> the process that led it (I1, I13)
    batches: dict[tuple[int, int], tuple[BatchId, BatchId | None]]
    """(epoch, base offset): the batch, and the one before it."""
    contents: dict[tuple[int, int], bytes]  # of each of them
    committed: list[BatchId]  # in order, from offset 0

    def __init__(self, world: World) -> None:
        self.world = world
        self.shadows = {}
        self.leaders = {}
        self.batches, self.contents = {}, {}
        self.committed = []
        self.gone: dict[ReplicaKey, set[BatchId]] = {}  # what replicas held whose disks are gone
        self.voters = VoterOracle(self)
        self.snapshots = SnapshotOracle(self)
        self.votes = VoteOracle(self)
        self.flushes = FlushOracle()

    @property
    def committed_end(self) -> int:
        """Exclusive end of what any leader ever committed."""
        return self.committed[-1].end_offset if self.committed else 0

    def shadow(self, id: int) -> Shadow:
        """Return what is known of the log of one replica."""
        if id not in self.shadows:
            self.shadows[id] = Shadow()
        return self.shadows[id]

    # --- the log grows, is flushed, is cut ------------------------------------------------------

    def observe(self, process: Process) -> None:
        """After every event: what was appended is known, what is called flushed is on the disk."""
        shadow, log = self.shadow(process.id), process.log
        if log.end_offset > shadow.end:
            self._extend(shadow, process)
        if log.end_offset < shadow.end:
            raise Violation(f"the log of {process.id} shrank without a cut")
        if log.flushed_end_offset > shadow.durable:
            self._check_flushed(shadow, process)

    def after_turn(self, process: Process) -> None:
        """Once all that followed from an event is done."""
        self.observe(process)
        self.voters.check(process)
        self.snapshots.check(process)
        self.flushes.check(process, process.ticked)
        process.ticked = False

    def _extend(self, shadow: Shadow, process: Process) -> None:
        log = process.log
        while shadow.end < log.end_offset:
            index = bisect_right(log.segments, shadow.end, key=lambda each: each.base_offset)
            segment = log.segments[index - 1]  # of what is below the log's start too
            found = batches_of(segment, shadow.end, shadow.next_position(segment.base_offset))
            if not found and process.machine.rotten:  # the headers before it have changed
                raise CorruptLog(f"no batch at offset {shadow.end}", segment.file.path)
            require(bool(found), f"I14: no batch at offset {shadow.end} of {process.id}")
            for base, end, epoch, crc, position, size in found:
                batch = BatchId(base, end, epoch, crc, size)
                if base != shadow.end:
                    raise Violation(f"I14: {batch} of {process.id} leaves a gap")
                before = shadow.entries[-1].batch if shadow.entries else self.committed_to(base)
                self._know(process, batch, before, segment, position)
                shadow.changes += [
                    change for change in self.voters.of(batch) if change[0] >= shadow.base_end
                ]
                shadow.entries.append(BatchEntry(batch, segment.base_offset, position))
                shadow.end = end

    def committed_to(self, offset: int) -> BatchId | None:
        """Return the committed batch before an offset at which a log begins."""
        index = bisect_left(self.committed, offset, key=lambda each: each.end_offset)
        found = index < len(self.committed) and self.committed[index].end_offset == offset
        return self.committed[index] if found else None

    def _know(
        self, process: Process, batch: BatchId, before: BatchId | None, segment: Any, at: int
    ) -> None:
        """I2, I3: the batch is the one that the epoch's only leader appended there, after that."""
        key = (batch.epoch, batch.base_offset)
        known = self.batches.get(key)
        if known is None:
            leader = self.leaders.get(batch.epoch)
            data = bytes(segment.file.view(at, at + batch.size))
            if leader is not process and not was_writing(leader, process, at, data):
                raise Violation(
                    f"I2: {process.id} holds {batch}, which the leader of epoch {batch.epoch} "
                    f"({leader.id if leader else 'nobody'}) never appended"
                )
            self.batches[key] = (batch, before)
            self.contents[key] = data
            self.voters.learn(batch, data)
            return
        if known[0] != batch:
            raise Violation(f"I2: {process.id} holds {batch}, others {known[0]}")
        if known[1] != before:
            raise Violation(f"I3: {process.id}: before {batch}: {before}, not {known[1]}")

    def _check_flushed(self, shadow: Shadow, process: Process) -> None:
        """D1, I11: what the log calls flushed is on the disk, names and all."""
        end = process.log.flushed_end_offset
        start = max(shadow.durable, process.log.log_start_offset)  # retention may end with an error
        for entry in shadow.between(start, end):
            if not self.is_stable(process.machine, entry):
                raise Violation(
                    f"D1: replica {process.id} calls {end} flushed, but {entry} is not on its disk"
                )
        shadow.durable = end

    def is_stable(self, machine: Machine, entry: BatchEntry) -> bool:
        """Return whether a batch is on a machine's disk, whole."""
        name = segment_name(entry.segment_base) + LOG_SUFFIX
        file = machine.disk.stable_file(f"{self.world.log_path(machine)}/{name}")
        if not isinstance(file, PagedFile):
            return False
        found = file.stable_batch(entry.position)
        return found is not None and (*found[:4], found[5]) == entry.batch

    def truncates(self, process: Process, end_offset: int) -> None:
        """I7: no committed batch is ever cut."""
        self.observe(process)
        shadow = self.shadow(process.id)
        cut = shadow.between(end_offset, shadow.end)
        self.world.count("truncations")
        for entry in cut:
            require(
                not self.is_committed(entry.batch),
                f"I7: {process.id} cuts {entry.batch}, which is committed",
            )
        require(
            shadow.high_watermark <= end_offset,
            f"I7: {process.id} cuts to {end_offset} below {shadow.high_watermark}",
        )
        del shadow.entries[len(shadow.entries) - len(cut) :]
        shadow.end = shadow.entries[-1].batch.end_offset if shadow.entries else shadow.start
        require(shadow.end == end_offset, f"{process.id} cuts to {end_offset}, inside a batch")
        shadow.durable = min(shadow.durable, end_offset)
        shadow.changes = [change for change in shadow.changes if change[0] < end_offset]
        shadow.being_cut = cut

    def truncated(self, process: Process) -> None:
        """Finish a cut: none of the batches that were cut may be recovered."""
        self.shadow(process.id).being_cut = []
        check_producers(process)
        check_epochs(process, self.shadow(process.id))

    # --- a process ends, and another begins -----------------------------------------------------

    def crashed(self, process: Process, power: bool) -> None:
        """Note what its log held until the crash; recovery says what became of it."""
        shadow = self.shadow(process.id)
        changing = shadow.being_cut or shadow.installing is not None
        if process.log.end_offset > shadow.end and not changing:
            with suppress(CorruptLog):
                self._extend(shadow, process)
        self.snapshots.crashed(process)
        shadow.lost_memory |= power

    def forgets(self, machine: Machine) -> None:
        """Note that a disk is replaced: what it held counts only for its old directory id (D19)."""
        shadow = self.shadow(machine.id)
        stored = shadow.end if self.world.settings.durability == "memory" else shadow.durable
        self.gone[machine.key] = {each.batch for each in shadow.between(0, stored)}
        self.shadows[machine.id] = Shadow()

    def recovered(self, process: Process, power: bool) -> None:
        """Check a recovered log (I14, I5): nothing is new, and nothing flushed is missing."""
        machine, log = process.machine, process.log
        old, new = self.shadow(process.id), Shadow()
        known = {each.batch.base_offset: each for each in old.entries + old.being_cut}
        self.shadows[process.id] = new
        new.start = new.end = log.segments[0].base_offset
        new.base_end = log.log_start_offset  # not the newest snapshot's end (D22)
        new.base = self.voters.filed(new.base_end) if new.base_end else self.voters.base(machine)
        self._extend(new, process)
        check_producers(process)
        check_epochs(process, new)
        for entry in new.entries:
            before = known.get(entry.batch.base_offset)
            require(
                (before is not None and entry.batch == before.batch)
                or was_cut(process, entry.position, self.bytes_of(entry.batch)),
                f"I14: {process.id} recovered {entry.batch} where {before} stood",
            )
        machine.disk.cut_write = None
        self.snapshots.check(process)
        if not self._began_anew(old, new, process, power):
            self._check_kept(old, new, process, power)
        if power and new.end < old.end:
            self.world.count("torn tails")
        if process.recovered.phantom_tail is not None:
            self.world.count("phantom tails")
        new.promised = old.promised
        self.votes.recovered(old, new, process)
        self._check_promise(process, new)
        self.observe(process)

    def _began_anew(self, old: Shadow, new: Shadow, process: Process, power: bool) -> bool:
        """Return whether nothing is left of a log that was behind its snapshot, or beside it.

        What a power cut took from it, a majority has elsewhere (or had, in memory alone).
        """
        if new.entries or new.end <= old.start:
            return False
        self.world.count("logs begun anew at a start")
        for entry in old.between(new.end, old.durable if power else old.end):
            require(
                not self.is_committed(entry.batch),
                f"I5: {process.id} begins anew at {new.end} and drops {entry.batch}",
            )
        return True

    def _check_kept(self, old: Shadow, new: Shadow, process: Process, power: bool) -> None:
        if not process.machine.rotten:
            kept = old.durable if power else old.end
            require(
                new.end >= kept, f"I5: {process.id} recovered {new.end} of {kept} (power: {power})"
            )
        require(
            new.end >= old.durable or process.recovered.phantom_tail is not None,
            f"D10: {process.id} forgot silently what it had flushed: {new.end} of {old.durable}",
        )

    def _check_promise(self, process: Process, shadow: Shadow) -> None:
        """I9: neither the epoch falls nor the vote changes across a crash."""
        promised, stored = shadow.promised, process.persisted
        if promised is None:
            return
        require(stored is not None, f"I9: {process.id} forgot {promised}")
        assert stored is not None
        require(
            stored.epoch >= promised.epoch,
            f"I9: {process.id} went from {promised} to {stored}",
        )
        if stored.epoch == promised.epoch and promised.voted is not None:
            require(
                is_same_vote(stored.voted, promised.voted) or stored.leader_id == process.id,
                f"I9: {process.id} votes again: {promised}, then {stored}",
            )

    # --- promises ---------------------------------------------------------------------------------

    def stable_promise(self, machine: Machine) -> ElectionState | None:
        """Return what quorum-state says on the disk."""
        path = f"{self.world.log_path(machine)}/{quorum_state.NAME}"
        file = machine.disk.stable_file(path)
        if not isinstance(file, SmallFile) or not file.stable:
            return None
        return _decode(file.stable)

    def persisted(self, process: Process) -> None:
        """D5: it is on the disk when the call returns; I9: and goes on from what was."""
        shadow = self.shadow(process.id)
        self._check_promise(process, shadow)
        require(
            self.stable_promise(process.machine) == process.persisted,
            f"D5: {process.persisted} of {process.id} is not on its disk",
        )
        shadow.promised = process.persisted

    def _in_memory(self, process: Process) -> bool:
        return process.durability == "memory"

    def _promised_epoch(self, process: Process) -> int:
        stable = self.stable_promise(process.machine)
        return stable.epoch if stable else -1

    def request_leaves(self, process: Process, request: Request) -> None:
        """I10, I11, D21: what a request promises is on the disk before it leaves."""
        if isinstance(request, FetchRequest):
            self._acknowledges(process, request)
        elif isinstance(request, VoteRequest):
            self.votes.asked(process, request)

    def _acknowledges(self, process: Process, request: FetchRequest) -> None:
        self.observe(process)
        shadow = self.shadow(process.id)
        require(
            request.fetch_offset <= shadow.end,
            f"I11: {process.id} acknowledges {request.fetch_offset} of {shadow.end}",
        )
        if not self._in_memory(process):
            require(
                request.fetch_offset <= shadow.durable,
                f"I11: {process.id} acknowledges {request.fetch_offset}, on disk: {shadow.durable}",
            )
        require(
            self._promised_epoch(process) >= request.epoch,
            f"I10: {process.id} fetches in {request.epoch} before that is on its disk",
        )

    def response_leaves(self, process: Process, request: Any, response: Response) -> None:
        """Check that a promised vote or epoch is on disk before the answer leaves (I10)."""
        if isinstance(response, VoteResponse) and isinstance(request, VoteRequest):
            if response.vote_granted:
                self.votes.granted(process, request)
        elif isinstance(response, (FetchResponse, QuorumEpochResponse)):
            require(
                self._promised_epoch(process) >= response.leader_epoch,
                f"I10: {process.id} answers in {response.leader_epoch} before that is on its disk",
            )

    def counts_votes(self, process: Process, epoch: int) -> None:
        """I10, D5: a candidate's own vote is on the disk when the first of another is counted."""
        stable = self.stable_promise(process.machine)
        held = stable is not None and (stable.epoch, stable.voted and stable.voted.id)
        own = held == (epoch, process.id)
        require(own, f"I10: {process.id} is a candidate in {epoch} with {stable} on its disk")

    # --- leaders ----------------------------------------------------------------------------------

    def elected(self, process: Process, epoch: int) -> None:
        """I1, I13: no other, no earlier process led it; I4: it has what was committed before."""
        self.observe(process)
        other = self.leaders.setdefault(epoch, process)
        require(other is process, f"I1, I13: epoch {epoch} is led again, by {process.id}")
        self.votes.elected(process, epoch)
        self.flushes.began(process)
        self.world.count("elections")
        earlier = bisect_left(self.committed, epoch, key=lambda each: each.epoch)
        if earlier:  # it may win late, when voters have gone on: then it can commit nothing
            last = self.committed[earlier - 1]
            require(
                self._has(self.shadow(process.id), last),
                f"I4: {process.id} leads epoch {epoch} without {last}, which is committed",
            )

    def appends(self, process: Process, epoch: int) -> None:
        """I13: only as the leader of that epoch, and only this process; D5: which is on disk."""
        require(
            self.leaders.get(epoch) is process,
            f"I13: {process.id} appends in epoch {epoch}, which it does not lead",
        )
        stable = self.stable_promise(process.machine) or ElectionState(-1)
        leads = stable.epoch > epoch or (stable.epoch == epoch and stable.leader_id == process.id)
        require(leads, f"D5: {process.id} appends in {epoch}, and its disk says {stable}")

    # --- what is committed ----------------------------------------------------------------------

    def is_committed(self, batch: BatchId) -> bool:
        """Return whether a leader has committed exactly this batch."""
        index = bisect_left(self.committed, batch.base_offset, key=lambda each: each.base_offset)
        return index < len(self.committed) and self.committed[index] == batch

    def advances(self, process: Process, offset: int) -> None:
        """Note that a replica learns that everything below ``offset`` is committed (I5, I6, I8)."""
        self.observe(process)
        shadow = self.shadow(process.id)
        require(
            shadow.high_watermark < offset <= shadow.end,
            f"I6: {process.id} goes from {shadow.high_watermark} to {offset} of {shadow.end}",
        )
        shadow.high_watermark = offset
        if offset == 0:
            return  # the beginning, which every replica has
        if offset > self.committed_end:
            require(
                process.core.role in ("leader", "resigned"),  # it may resign with the commit (I17)
                f"I6: {process.id} says {offset}, no leader more than {self.committed_end}",
            )
            self._commit(process, shadow, offset)
        last = self.committed_to(offset)
        if last is None or not self._has(shadow, last):
            raise Violation(
                f"I8: {process.id} commits {shadow.below(offset)} at {offset}, others {last}"
            )

    def content(self, start: int, end: int) -> bytes:
        """Return the committed batches from one offset to another, as every log has them."""
        first = bisect_left(self.committed, start, key=lambda each: each.base_offset)
        last = bisect_left(self.committed, end, key=lambda each: each.base_offset)
        batches = self.committed[first:last]
        return b"".join(self.bytes_of(each) for each in batches)

    def bytes_of(self, batch: BatchId) -> bytes:
        """Return the bytes of a batch that some replica held."""
        return self.contents[batch.epoch, batch.base_offset]

    def _has(self, shadow: Shadow, batch: BatchId) -> bool:
        """Return whether a replica has a committed batch, in its log or in its snapshot."""
        if batch.end_offset <= shadow.start:
            return True
        entry = shadow.below(batch.end_offset)
        return entry is not None and entry.batch == batch

    def _commit(self, process: Process, shadow: Shadow, offset: int) -> None:
        fresh = shadow.between(self.committed_end, offset)
        require(
            process.core.epoch == fresh[-1].batch.epoch,
            f"D6: {process.id} commits {fresh[-1].batch} in epoch {process.core.epoch}",
        )
        require(
            not self.committed or self._has(shadow, self.committed[-1]),
            f"I8: {process.id} commits {fresh[0].batch} and has no {self.committed[-1:]}",
        )
        voters = self.voters.in_force(process)  # D16
        holders = [m.id for m in self.voters.machines(voters) if self._holds(m, fresh)]
        batches = {entry.batch for entry in fresh}
        holders += [key.id for key in voters.keys if batches <= self.gone.get(key, set())]
        require(
            len(holders) >= voters.majority,
            f"I5: {process.id} commits up to {offset}, which of {voters} only {holders} have on "
            f"{'memory' if self.world.settings.durability == 'memory' else 'disk'}",
        )
        self.votes.committed(process.core.epoch, fresh[-1].batch)
        for entry in fresh:
            self.committed.append(entry.batch)
            self.voters.committed_by(entry.batch, voters)

    def _holds(self, machine: Machine, entries: list[BatchEntry]) -> bool:
        """Return whether a machine has these batches where this durability wants them."""
        shadow = self.shadow(machine.id)
        start, last = shadow.in_log_from(), entries[-1].batch
        mine = shadow.between(max(start, entries[0].batch.base_offset), last.end_offset)
        memory = self.world.settings.durability == "memory"
        if memory and machine.memory_in_doubt:
            return True  # it may have; while a minority is in doubt nothing is lost by that
        wanted = [each for each in entries if each.batch.end_offset > start]
        if [entry.batch for entry in mine] != [entry.batch for entry in wanted]:
            lost = shadow.lost or (0, 0)  # it said so before its disk lost that: it knows (D10)
            return machine.rotten and lost >= (last.epoch, last.end_offset)
        return memory or machine.rotten or all(self.is_stable(machine, entry) for entry in mine)

    def acknowledged_by_all(self, process: Process, offset: int) -> None:
        """durability=all: every voter has it on its disk, or had it before that was replaced.

        Those of the set in force, and those of the last committed one: it may be in force again.
        """
        self.observe(process)
        last = self.shadow(process.id).below(offset)  # none: all of it is in a snapshot
        for voters in (self.voters.in_force(process), self.voters.latest().voters):
            for machine in self.voters.machines(voters):
                require(
                    machine.rotten or last is None or self._holds(machine, [last]),
                    f"durability=all: {machine.id} does not hold everything below {offset}",
                )

    def was_read(self, base_offset: int, end_offset: int, crc: int) -> None:
        """I20: a consumer gets what is committed, and nothing else."""
        index = bisect_left(self.committed, base_offset, key=lambda each: each.base_offset)
        require(
            index < len(self.committed)
            and self.committed[index].base_offset == base_offset
            and self.committed[index].end_offset == end_offset
            and self.committed[index].crc == crc,
            f"I20: a consumer read [{base_offset}, {end_offset}), which is not committed",
        )


@lru_cache(maxsize=1024)
def _decode(data: bytes) -> ElectionState:
    return quorum_state.decode(data)
