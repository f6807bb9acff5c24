"""A whole quorum in one process, in time that only the test moves.

It is the simulator of ``kraftfast.sim`` without the faults that a seed chooses: real replicas with
their core, log and recovery over simulated disks, links and clocks. All that it checks after every
event is checked here too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from kraftfast import limits
from kraftfast.arguments import OFFSET_MAX, flag, one_of, refuse, replica_id, whole_number
from kraftfast.errors import InvalidOption, NoQuorum, TimedOut, VerificationFailed
from kraftfast.log.small_files.directory import DURABILITIES
from kraftfast.node.state_machine import StateMachine, check_class, makes_snapshots
from kraftfast.record import pure
from kraftfast.record.shapes import Record
from kraftfast.sim.clients.idempotent import PRODUCER_ID, IdempotentProducer, SentBatch
from kraftfast.sim.machines.machine import Machine
from kraftfast.sim.machines.process import Process
from kraftfast.sim.oracles.end_of_run import check_disks, check_log
from kraftfast.sim.require import Violation
from kraftfast.sim.settings import WorldSettings
from kraftfast.sim.world import World
from kraftfast.testing import all_bytes, bytes_or_none, pairs_of

M = TypeVar("M", bound=StateMachine)

TIMEOUT_MS = 20_000
STRETCH_MS = 5_000
"""The simulator takes a run with too many events for one that goes round in circles."""
SEGMENT_BYTES = 1 << 20
APPEND_BYTES_MAX = 256 * 1024
AS_IN_PRODUCTION: dict[str, Any] = {
    "election_timeout_ms": 1000,
    "fetch_timeout_ms": 2000,
    "request_timeout_ms": 2000,
    "fetch_max_wait_ms": limits.FETCH_MAX_WAIT_MS,
}


class UsersProducer(IdempotentProducer):
    """Appends what it is told to, and nothing of its own account."""

    def start(self) -> None:
        """Wait to be told."""

    def place_of(self, logical: SentBatch) -> int:
        """Return the offset of a batch that is committed, -1 of another."""
        oracle = self.world.oracle
        for batch in pure.batches(oracle.content(0, oracle.committed_end)):
            if batch.producer_id == PRODUCER_ID + self.id:
                if batch.base_sequence == logical.sequence:
                    return batch.base_offset
        return -1


class SimulatedAppend:
    """Values that were handed to a simulated quorum, to be appended once and in order.

    Made by :meth:`SimulatedQuorum.append` alone, of ``producer`` and what it calls ``logical``.
    """

    def __init__(self, producer: UsersProducer, logical: SentBatch) -> None:
        self._producer, self._logical = producer, logical

    @property
    def is_acknowledged(self) -> bool:
        """Whether the producer was told that they are committed. Raises nothing."""
        return self._logical not in self._producer.pending

    @property
    def offset(self) -> int:
        """The offset of the first value. Raises NoQuorum before it is acknowledged."""
        if not self.is_acknowledged:
            raise NoQuorum("the append is not acknowledged: advance the time, or wait for it")
        return self._producer.place_of(self._logical)


class Copies(list[tuple[Any, ...]]):
    """What a state machine writes into a snapshot, kept to be compared: a ``SnapshotWriter``."""

    def append(self, value: Any, key: Any = None, headers: Any = None) -> None:
        super().append((value, key, headers))

    def extend(self, values: Any) -> None:
        for value in values:
            self.append(value)


class SimulatedQuorum(Generic[M]):
    """What ``kraftfast.testing.simulated`` returns, which see.

    It takes ``seed``, ``voters``, ``state_machine``, ``durability``, ``snapshot_bytes`` and
    ``retention_bytes``. ``ids``: of its replicas, from 1 on.
    """

    def __init__(
        self,
        seed: int,
        voters: int,
        state_machine: type[M] | None,
        durability: str,
        snapshot_bytes: int,
        retention_bytes: int,
    ) -> None:
        self.seed = whole_number("seed", seed, 0, OFFSET_MAX)
        voters = whole_number("voters", voters, 1, limits.VOTERS_MAX)
        snapshot_bytes = whole_number("snapshot_bytes", snapshot_bytes, 1, OFFSET_MAX)
        retention_bytes = whole_number("retention_bytes", retention_bytes, -1, OFFSET_MAX)
        if state_machine is not None:
            check_class(state_machine, getattr(state_machine, "__qualname__", repr(state_machine)))
        snapshots = state_machine is not None and makes_snapshots(state_machine())
        if retention_bytes >= 0 and not snapshots:
            raise InvalidOption(
                f"retention_bytes={retention_bytes} needs a state machine with snapshot(writer) "
                "and restore(reader): replicas go on from its snapshots"
            )
        settings = WorldSettings(
            voters=voters,
            durability=one_of("durability", durability, DURABILITIES),
            kraft_version=1,
            segment_bytes=SEGMENT_BYTES,
            producers=0,
            readers=0,
            faults=(),
            snapshots="own" if state_machine is not None else "",
            snapshot_bytes=snapshot_bytes,
            retention_bytes=retention_bytes,
            **AS_IN_PRODUCTION,
        )
        self._world = World(self.seed, settings)
        if state_machine is not None:
            self._world.state_machine = lambda _process: state_machine()
        self._producer = UsersProducer(self._world, 0)
        self._world.producers.append(self._producer)
        self._appends: list[SimulatedAppend] = []
        self._failure: Exception | None = None  # of the state machine: it did not apply a batch
        self.ids = tuple(machine.id for machine in self._world.machines)
        self._world.start()
        self.wait_leader()

    # --- time -------------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        """The time since the quorum was made; records that are appended now have it."""
        return self._world.now_us // 1000

    def advance(self, ms: float) -> None:
        """Let ``ms`` pass. Raises InvalidOption; what the state machine raises, now and later."""
        self._run(ms, None)

    def wait(self, until: Callable[[], bool], *, timeout_ms: float = TIMEOUT_MS) -> None:
        """Let time pass until ``until()`` holds, which is called after every event.

        Raises TimedOut after ``timeout_ms``; InvalidOption; what the state machine raises.
        """
        if not callable(until):
            refuse("until", "a function without arguments (advance() lets time pass)", until)
        if not (until() or self._run(timeout_ms, until)):
            raise TimedOut(f"it does not hold after {timeout_ms} ms of simulated time")

    def _run(self, ms: float, until: Callable[[], bool] | None) -> bool:
        if self._failure is not None:
            raise self._failure
        if not isinstance(ms, int | float) or not 0 <= ms < float("inf"):
            raise InvalidOption(f"time goes on by milliseconds from 0 on, not {ms!r}")
        world, end_us = self._world, self._world.now_us + int(ms * 1000)
        try:
            while True:
                world.events = 0
                left_ms = (end_us - world.now_us) / 1000
                if world.run(min(left_ms, STRETCH_MS), until):
                    return True
                if left_ms <= STRETCH_MS:
                    return False
        except Violation as error:
            error.add_note(f"kraftfast broke a rule of its own, with seed {self.seed}: report it")
            raise
        except Exception as error:
            self._failure = error
            raise

    # --- the quorum -------------------------------------------------------------------------------

    def leader(self) -> int | None:
        """Return the id of the leader, None if there is none at the moment. Raises nothing."""
        process = self._world.leader()
        return None if process is None else process.id

    def wait_leader(self, *, timeout_ms: float = TIMEOUT_MS) -> int:
        """Let time pass until a leader can commit; return its id. ``timeout_ms``: as of wait().

        Raises TimedOut.
        """

        def leads() -> bool:
            process = self._world.leader()
            return process is not None and process.core.high_watermark > 0

        self.wait(leads, timeout_ms=timeout_ms)
        leader = self.leader()
        assert leader is not None
        return leader

    def append(self, *values: bytes, keys: Sequence[bytes | None] | None = None) -> SimulatedAppend:
        """Hand values to the leader, as one batch; it is tried again until it is acknowledged.

        Nothing is appended before time passes. ``keys``: one for each value. Raises InvalidOption.
        """
        if not values or (keys is not None and len(keys) != len(values)):
            raise InvalidOption("an append has values, and as many keys or none")
        if not all_bytes(values):
            raise InvalidOption("the values of an append are bytes")
        if not all_bytes(each for each in keys or () if each is not None):
            raise InvalidOption("the keys of an append are bytes or None")
        if sum(map(len, values)) + sum(len(key or b"") for key in keys or ()) > APPEND_BYTES_MAX:
            raise InvalidOption(f"an append has {APPEND_BYTES_MAX} bytes at most in a simulation")
        records = [
            Record(place, self.now_ms, bytes_or_none(key), bytes(value))
            for place, (key, value) in enumerate(zip(keys or [None] * len(values), values))
        ]
        append = SimulatedAppend(self._producer, self._producer.put(records))
        self._appends.append(append)
        return append

    def append_wait(
        self,
        *values: bytes,
        keys: Sequence[bytes | None] | None = None,
        timeout_ms: float = TIMEOUT_MS,
    ) -> int:
        """Append ``values`` and let time pass until they are committed; return the first's offset.

        ``keys``: one for each. Raises TimedOut after ``timeout_ms``: they may still be committed
        then; InvalidOption.
        """
        append = self.append(*values, keys=keys)
        self.wait(lambda: append.is_acknowledged, timeout_ms=timeout_ms)
        return append.offset

    def records(self, id: int | None = None) -> list[Record]:
        """Return all records that replica ``id`` knows to be committed; None: that any knows.

        Raises InvalidOption; NoQuorum if it does not run.
        """
        oracle = self._world.oracle
        end = oracle.committed_end if id is None else self._process(id).core.high_watermark
        batches = pure.batches(oracle.content(0, max(end, 0)))
        return [record for each in batches if not each.is_control for record in each.records()]

    def machine(self, id: int) -> M:
        """Return the state machine of replica ``id``: each start of a replica makes another one.

        Raises InvalidOption where there is none; NoQuorum if the replica does not run.
        """
        applier = self._process(id).applier
        if applier is None:
            raise InvalidOption("this quorum has no state machine: simulated(state_machine=...)")
        return applier.machine  # type: ignore[return-value]

    def _machine(self, id: int) -> Machine:
        if replica_id("id", id) not in self.ids:
            raise InvalidOption(f"there is no replica {id}: {', '.join(map(str, self.ids))}")
        return self._world.machine(id)

    def _process(self, id: int) -> Process:
        process = self._machine(id).process
        if process is None:
            raise NoQuorum(f"replica {id} does not run: advance the time, or start it")
        return process

    # --- what befalls it --------------------------------------------------------------------------

    def is_running(self, id: int) -> bool:
        """Return whether the process of replica ``id`` runs. Raises InvalidOption."""
        return self._machine(id).process is not None

    def kill(self, id: int, *, power: bool = False, restart: bool = True) -> None:
        """Kill replica ``id``; with ``power``, the machine loses what its disk had not flushed.

        It starts again within a second, unless ``restart`` is False. Raises InvalidOption.
        """
        machine = self._machine(id)
        machine.may_start = flag("restart", restart)
        self._world.end(machine, power=flag("power", power))

    def start(self, id: int) -> None:
        """Start replica ``id`` a millisecond from now, if it does not run. Raises InvalidOption."""
        machine = self._machine(id)
        machine.may_start = True
        self._world.start_later(machine, 1_000)

    def cut_link(self, source: int, target: int, *, both: bool = True) -> None:
        """Let nothing get from replica ``source`` to ``target``, and back if ``both``.

        Raises InvalidOption.
        """
        self._world.network.cut |= self._ways(source, target, both)

    def heal_link(self, source: int, target: int, *, both: bool = True) -> None:
        """Let all get from ``source`` to ``target`` again, and back if ``both``.

        Raises InvalidOption.
        """
        self._world.network.cut -= self._ways(source, target, both)

    @contextmanager
    def link_cut(self, source: int, target: int, *, both: bool = True) -> Iterator[None]:
        """Cut ``source`` from ``target`` within a ``with`` block, ``both`` as of :meth:`cut_link`.

        Raises InvalidOption.
        """
        self.cut_link(source, target, both=both)
        try:
            yield
        finally:
            self.heal_link(source, target, both=both)

    def _ways(self, source: int, target: int, both: bool) -> set[tuple[int, int]]:
        return set(pairs_of(self._machine(source).id, self._machine(target).id, both))

    def heal(self) -> None:
        """Heal all links and start all replicas that do not run. Raises nothing."""
        self._world.network.heal()
        for id in self.ids:
            self.start(id)

    def verify(self) -> int:
        """Heal everything, come to rest, and check what is left; return how many records there are.

        All replicas must have the same log, every acknowledged append once and in order, and state
        machines that make snapshots must be in the same state. Raises VerificationFailed, TimedOut.
        """
        self.heal()
        self.wait(self._world.is_settled, timeout_ms=self._world.settings.settle_ms)
        for id in self.ids:
            check_log(self._world, self._process(id))
        check_disks(self._world)
        last = -1
        for append in self._appends:
            if append.offset <= last:
                raise VerificationFailed(f"an append stands at {append.offset}, after {last}")
            last = append.offset
        self._compare_states()
        return len(self.records())

    def _compare_states(self) -> None:
        states: dict[int, Copies] = {}
        for id in self.ids:
            applier = self._process(id).applier
            if applier is not None and applier.makes_snapshots:
                states[id] = Copies()
                self.machine(id).snapshot(states[id])  # type: ignore[arg-type]
        for id, state in states.items():
            if state != states[self.ids[0]]:
                raise VerificationFailed(
                    f"the state machines of replicas {self.ids[0]} and {id} differ after the same "
                    "records: apply() must depend on nothing else"
                )
