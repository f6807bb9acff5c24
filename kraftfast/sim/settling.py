"""The end of a run: faults end, the quorum comes to rest, and must agree (L1 to L7, I8, I23)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kraftfast.sim.clients.clients import ACKNOWLEDGED, BARRIER_TIMEOUT_MS, Told
from kraftfast.sim.clients.watched_consumers import check_caught_up
from kraftfast.sim.faults.lost_majority import AFTER_MS
from kraftfast.sim.oracles.end_of_run import check_kept
from kraftfast.sim.require import Violation, require

if TYPE_CHECKING:
    from kraftfast.sim.clients.clients import Append, BarrierReader, SimProducer
    from kraftfast.sim.clients.kafka_consumer import KafkaConsumer
    from kraftfast.sim.faults.lost_majority import Survivors
    from kraftfast.sim.faults.nemesis import Nemesis
    from kraftfast.sim.machines.machine import Machine
    from kraftfast.sim.machines.network import HostPaths
    from kraftfast.sim.machines.process import Process
    from kraftfast.sim.operators.operator import Operator
    from kraftfast.sim.operators.supervising import Supervising
    from kraftfast.sim.oracles.world_invariants import Oracle
    from kraftfast.sim.settings import WorldSettings
    from kraftfast.types import VoterSet

APPENDS_MAX, AGAIN_MS = 5, 400
"""How often the last appends and reads are tried, since an election or a disk that was just full
may make them fail, and how long to wait between two attempts at appends."""
STUCK_MS = 10_000
"""How long a quorum must have looked stuck, twice in a row, to count as stuck; unless set."""
HAND_OVERS_MAX = 10
"""How often the leaders of an idle quorum may hand over, one after the other."""


def waits_for_disk(process: Process) -> bool:
    """Return whether producers' batches wait for a segment that is being prepared.

    The loop then looks each millisecond whether it is ready, and a call of the disk that began
    before the faults ended may take seconds.
    """
    return bool(process.ring_producers.waiting() and process.log.nursery.preparer.busy())


class Settling:
    """The half of a :class:`~kraftfast.sim.world.World` that ends it."""

    settings: WorldSettings
    oracle: Oracle
    operator: Operator
    machines: list[Machine]
    producers: list[SimProducer]
    consumers: list[KafkaConsumer]
    barriers: BarrierReader
    history: list[Append | Told]
    counts: Counter[str]
    nemesis: Nemesis
    network: HostPaths
    survivors: Survivors | None
    supervising: Supervising | None
    hand_overs = 0  # how often a replica was asked to hand over

    def run(self, duration_ms: float, until: Callable[[], bool] | None = None) -> bool:
        raise NotImplementedError

    def heal(self) -> None:
        raise NotImplementedError

    def leader(self) -> Process | None:
        raise NotImplementedError

    def voters(self) -> list[Machine]:
        raise NotImplementedError

    def voter_set(self) -> VoterSet:
        raise NotImplementedError

    def count(self, what: str) -> None:
        raise NotImplementedError

    def trace(self, text: str) -> None:
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        raise NotImplementedError

    def is_settled(self) -> bool:
        """Return whether a replica leads, and all have the whole log and know it committed."""
        for producer in self.producers:  # asked after each event
            if not producer.is_idle:
                return False
        leader = self.leader()
        if leader is None:
            return False
        end = leader.log.end_offset
        for machine in self.machines:
            if machine.dead or not machine.may_start or self._is_ahead(machine):
                continue
            process = machine.process
            if process is None or process.log.end_offset != end or process.door.queue:
                return False
            if process.flusher.busy():  # a disk that hangs since before is a reason to resign
                return False
            if process.core.high_watermark != end or process.core.epoch != leader.core.epoch:
                return False
            if process.applier is not None and process.applier.applied != end:
                return False
        if self.supervising is not None and self.supervising.acting:
            return False
        return self.operator.is_satisfied(leader)

    def _is_ahead(self, machine: Machine) -> bool:
        """Return whether a former voter campaigned in a later epoch than the leader's.

        No voter goes to that epoch by itself, because strangers move no epoch
        (core/elections/epochs.py). The former voter follows again after a later election.
        """
        leader, process = self.leader(), machine.process
        if leader is None or process is None or leader.core.voters.is_voter(machine.key):
            return False
        return process.core.epoch > leader.core.epoch

    def finish(self) -> None:
        """End the faults, let the quorum come to rest, and check what must hold at the end."""
        self.trace("the world heals")
        if self.survivors is not None:  # no quorum comes to rest without a majority
            self.nemesis.heal()
            self.run(AFTER_MS)
            self.survivors.check()
            return
        self.heal()
        self.barriers.running = False
        if self.settings.load_ms:
            self._catch_up_under_load()
        for producer in self.producers:
            producer.running = False
        if self._comes_to_rest():
            self._check_end()
        check_kept(self)  # type: ignore[arg-type]

    def _comes_to_rest(self) -> bool:
        """Return whether the quorum is at rest and takes appends; False where stuck by design."""
        if not self._settle("L1, L5, L6") or not self._takes_appends():
            return False
        self._rest()
        return self.is_settled() or self._settle("L1, L3, L6")

    def _takes_appends(self) -> bool:
        """Check that an append of each producer is acknowledged; return False where stuck (L2).

        One attempt may fail, on a connection that was lost before the faults ended.
        """
        for _ in range(APPENDS_MAX):
            before = len(self.history)
            for producer in self.producers:
                producer.leader_id = self.leader().id  # type: ignore[union-attr]
                producer.append()
            if not self._settle("L2"):
                return False
            made = [each for each in self.history[before:] if not isinstance(each, Told)]
            if all(each.outcome == ACKNOWLEDGED for each in made):
                return True
            self.run(AGAIN_MS)
        raise Violation(f"L2: no append is committed in a world that is well: {self.state()}")

    def _catch_up_under_load(self) -> None:
        """Check that every replica reaches what is committed now while appends go on (L6)."""
        end = self.oracle.committed_end

        def is_there(machine: Machine) -> bool:
            if machine.dead or not machine.may_start or self._is_ahead(machine):
                return True
            return machine.process is not None and machine.process.core.high_watermark >= end

        def all_there() -> bool:
            return all(map(is_there, self.machines))

        load_ms, began = self.settings.load_ms, self.supervising
        # its program may make another quorum first, and wait long for a lock there
        is_late = began is not None and began.quorum is None
        in_time = all_there() or self.run(load_ms, all_there)
        if in_time or (is_late and self.run(load_ms, all_there)):
            self.count("caught up under load")
        elif not (self._lacks_one_of_all() or self._may_be_stuck()):
            raise Violation(f"L6: not all replicas came to {end} under load: {self.state()}")

    def all_run(self) -> bool:
        """Return whether every voter runs."""
        running = [machine for machine in self.voters() if machine.process is not None]
        return len(running) == len(self.voter_set())

    def _settle(self, what: str) -> bool:
        """Return whether the quorum came to rest; raise unless it is stuck by design."""
        self._wait_for_rest()
        if self._lacks_one_of_all():
            return self._settle_without_all()
        if self.is_settled():
            return True
        if self._may_be_stuck():
            self.count("stuck as designed")
            return False
        raise Violation(f"{what}: the quorum did not come to rest: {self.state()}")

    def _wait_for_rest(self) -> None:
        """Let time pass until the quorum is at rest, or is stuck."""
        left_ms = self.settings.settle_ms
        piece_ms, was_stuck = self.settings.stuck_ms or STUCK_MS, False
        while left_ms > 0:
            piece_ms = min(piece_ms, left_ms)
            if self.run(piece_ms, lambda: self.is_settled() or self._lacks_one_of_all()):
                return
            left_ms -= piece_ms
            is_stuck = self._may_be_stuck()
            if is_stuck and was_stuck:
                return  # for a whole piece: by now a leader would have been elected
            was_stuck = is_stuck

    def _lacks_one_of_all(self) -> bool:
        return self.settings.durability == "all" and not self.all_run() and self._missing()

    def _missing(self) -> bool:
        there = [each for each in self.voters() if not each.dead and each.may_start]
        return len(there) < len(self.voter_set())

    def _settle_without_all(self) -> bool:
        """Check nothing where durability=all lacks a voter: no producer is answered then."""
        self.run(2_000)
        self.count("a voter of all is missing")
        return False

    def _may_be_stuck(self) -> bool:
        """Return whether doubt asks for every voter, and one of them never returns (D10)."""
        return self._missing() and any(map(self._waits_for_all, self.oracle.voters.sets_in_play()))

    def _waits_for_all(self, voters: VoterSet) -> bool:
        """Return whether doubt keeps these voters from electing a leader without all of them.

        It does not where a majority is certain of its logs and votes for one of its own: that one
        leads, or begins a log where no voter has one.
        """
        found = [each.process for each in self.oracle.voters.machines(voters)]
        running = [each for each in found if each is not None]
        in_doubt = [each for each in running if each.core.in_doubt]
        certain = [each for each in running if not each.core.in_doubt]
        begins = not any(each.log.end_offset for each in in_doubt)
        begins = begins or any(each.log.end_offset for each in certain)
        votes = max((self._votes_for(each, certain) for each in certain), default=0)
        return bool(in_doubt) and not (begins and votes >= voters.majority)

    def _votes_for(self, candidate: Process, voters: list[Process]) -> int:
        """Return how many of these voters grant ``candidate`` their votes.

        It asks them at the endpoints in its voter set. A voter that moved while there is no leader
        is not found there, as in Kafka, and is itself refused if its log is shorter.
        """

        def end(process: Process) -> tuple[int, int]:
            return process.log.last_epoch, process.log.end_offset

        known = candidate.core.voters
        asked = [
            each
            for each in voters
            if each is candidate
            or self.network.is_ring(candidate.id, each.id)
            or known.endpoints(each.id) in ((), each.machine.endpoints)
        ]
        return sum(end(each) <= end(candidate) for each in asked)

    def _rest(self) -> None:
        """Check that an idle quorum elects no leader without a reason.

        A reason is that the leader was asked to hand over: by an operator, whose client repeats a
        request from before the faults ended, or by its own replica, before a snapshot that takes
        long. Another is that a reassignment removes it.
        """
        for _ in range(HAND_OVERS_MAX):
            asked, leaves = self.hand_overs, self._leader_leaves()
            if self._is_quiet():
                return
            require(self.hand_overs > asked or leaves, "an idle quorum elects")
            self.count("hand-overs of idle quorums")
            self._settle("L1, L6")
        require(False, "an idle quorum hands over again and again")

    def _leader_leaves(self) -> bool:
        latest = self.leader().core.history.latest  # type: ignore[union-attr]
        target = None if latest is None else latest.target
        return target is not None and self.leader().id not in target  # type: ignore[union-attr]

    def _is_quiet(self) -> bool:
        """Let time pass; return whether the epoch is the same. No replica may be busy then (L7).

        Requests that waited before must be answered then (L2).
        """
        running = [each.process for each in self.machines if each.process is not None]
        looking = {each.id for each in running if waits_for_disk(each)}
        fetches = 1000 / self.settings.fetch_max_wait_ms * (len(self.machines) - 1)
        most = 1_000 + 2 * fetches  # a leader takes each, and answers it once its time is over
        epoch = self.leader().core.epoch  # type: ignore[union-attr]
        asked = [(each.answers, each.answers.waiting()) for each in running]
        rates = self._steps_a_second_while_idle()
        for answers, before in asked:
            if answers.process.machine.process is answers.process:
                answers.check(before)
        leader = self.leader()
        if leader is None or leader.core.epoch != epoch:
            return False
        for id, a_second in rates.items():
            looks = 2_000 if id in looking else 0  # a turn each ms, of two steps
            require(a_second < most + looks, f"L7: {id} takes {a_second} steps a second")
        return True

    def _steps_a_second_while_idle(self) -> dict[int, float]:
        """Let time pass in which nothing is appended; return how busy each replica was.

        A batch that a client sent before may arrive late, on a slow connection. The time then
        starts again.
        """
        for _ in range(APPENDS_MAX):
            end_offset = self._end_offset()
            running = [each.process for each in self.machines if each.process is not None]
            before = [each.steps for each in running]
            self.run(self.settings.idle_ms)
            if self._end_offset() == end_offset:
                break
        return {
            each.id: (each.steps - steps) * 1000 / self.settings.idle_ms
            for each, steps in zip(running, before, strict=True)
            if each.machine.process is each
        }

    def _end_offset(self) -> int:
        leader = self.leader()
        return -1 if leader is None else leader.log.end_offset

    def _check_end(self) -> None:
        """Check the voter sets and what readers get; ``ending`` checks logs and disks."""
        leader = self.leader()
        assert leader is not None
        for machine in self.machines:
            if self._is_ahead(machine):
                self.count("former voters that wait for an epoch")
                continue
            require(
                machine.process is None
                or machine.process.core.history.latest == leader.core.history.latest,
                f"L3: {machine.id} has another voter set than the leader",
            )
        self.barriers.check()
        self._reads_on()
        self.counts["segments"] = len(leader.log.segments)

    def _reads_on(self) -> None:
        """Check that each replica answers a read barrier, and the leader each consumer (L2)."""
        running = [each.process for each in self.machines if each.process is not None]
        here = [each for each in running if not self._is_ahead(each.machine)]
        for _ in range(APPENDS_MAX):
            asked = [self.barriers.ask(each) for each in here]
            self.run(BARRIER_TIMEOUT_MS * 2, lambda: all(each.offset is not None for each in asked))
            refused = [each for each in asked if each.offset is None or each.error]
            if not refused:
                break
        require(not refused, f"L2: {[each.process.id for each in refused]} answer no read barrier")
        leader = self.leader()
        assert leader is not None
        check_caught_up(self, leader.core.high_watermark)  # type: ignore[arg-type]
        for consumer in self.consumers:
            position = consumer.position
            consumer.ask(leader)
            require(
                consumer.position > position or position >= leader.core.high_watermark,
                f"L2: a consumer gets nothing at {position} of {leader.core.high_watermark}",
            )
