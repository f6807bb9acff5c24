"""For tests of programs that use kraftfast: a small quorum, killed leaders, cut links, batches.

Fixtures are for pytest, which kraftfast does not need otherwise. They are asked for, not forced on
every run of pytest where kraftfast is installed: ``pytest_plugins = ["kraftfast.testing"]`` in the
``conftest.py`` of the tests' root folder. :class:`QuorumUnderTest` works without pytest too.

>>> with QuorumUnderTest(path) as quorum, quorum.producer() as producer:
...     offset = producer.append_wait(b"hello", timeout=30)
...     epoch = quorum.status(quorum.wait_leader())["epoch"]
...     leader = quorum.kill_leader()
...     quorum.status(leader)["epoch"] > epoch, quorum.read_barrier() > offset, quorum.verify() > 0
(True, True, True)
"""

from __future__ import annotations

import importlib.util
import os
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from msgspec.structs import replace

from kraftfast.arguments import OFFSET_MAX, flag, refuse, replica_id, whole_number
from kraftfast.client.timing import deadline_after
from kraftfast.errors import InvalidOption, NoQuorum, TimedOut, VerificationFailed
from kraftfast.limits import EPOCH_MAX
from kraftfast.node.node_config import NodeConfig, VoterConfig
from kraftfast.node.processes.launching import spare
from kraftfast.node.processes.tuning import TuningFields
from kraftfast.node.state_machine import StateMachine
from kraftfast.quorum import LocalQuorum
from kraftfast.record.batch import BatchView, batches
from kraftfast.record.pure import encode_batch
from kraftfast.record.shapes import Record

if TYPE_CHECKING:
    from kraftfast.testing.links import Links
    from kraftfast.testing.simulation import SimulatedQuorum

M = TypeVar("M", bound=StateMachine)

__all__ = ["QuorumUnderTest", "batch", "simulated"]

SMALL: TuningFields = {
    "segment_bytes": 8 << 20,
    "stride_bytes": 1 << 20,
    "prepare_bytes": 1 << 18,
}
"""Sizes in bytes: three voters with one record have less than 1 MiB of files."""
PAUSE_S = 0.01
NOT_VERIFIED = (
    "the test has closed its quorum, so the replicas were not compared: leave the close to the "
    "fixture, or call verify() before it"
)


class QuorumUnderTest(LocalQuorum):
    """A :class:`LocalQuorum` that takes little space, and whose replicas a test can harm.

    ``path``: its directory. ``voters``: 3 unless told, or what is there. ``durability``: as of
    :class:`LocalQuorum`, which says what is raised. ``settings``: those of :class:`Tuning`, over
    ``SMALL``. ``transport="socket"`` is for tests that cut single links (:meth:`cut_link`).
    """

    # _cut: ids of replicas that were stopped by cut() and not yet resumed.
    # _links: between the replicas, where they talk over sockets.
    # is_verified: whether verify() has found nothing wrong.

    def __init__(
        self,
        path: str | os.PathLike[str],
        voters: int | None = None,
        *,
        durability: str | None = None,
        timeout: float = 60.0,
        **settings: Unpack[TuningFields],
    ) -> None:
        self._cut: set[int] = set()
        self.is_verified = False
        self._links: Links | None = None
        small: TuningFields = {**SMALL, **settings}
        if small.get("transport") == "socket":  # on this host alone, for the time of a test
            small = {"expose_without_authentication": True, **small}
        try:
            super().__init__(path, voters, durability=durability, timeout=timeout, **small)
        except BaseException:
            if self._links is not None:
                self._links.close()
            raise
        with suppress(OSError):  # the next quorum's start says why it cannot be
            spare.make(len(self.directories))

    def status(self, id: int) -> dict[str, Any]:
        """Ask replica ``id`` for its status. Raises as LocalQuorum's; TimedOut at once if cut."""
        if id in self._cut:
            raise TimedOut(f"the links of replica {id} are cut")
        return super().status(id)

    def kill(self, id: int, signo: int = signal.SIGKILL) -> None:
        """Send ``signo`` to worker ``id``; it is started again. Raises InvalidOption, Closed."""
        super().kill(id, signo)
        if signo in (signal.SIGKILL, signal.SIGCONT):
            self._cut.discard(id)

    def kill_leader(self, *, timeout: float = 30.0) -> int:
        """Kill the leader (kill -9) and wait for that of a later epoch; return its id.

        The killed replica is started again at once. Raises NoQuorum where there is no leader, or no
        next one, within ``timeout`` seconds.
        """
        deadline = deadline_after(timeout)
        leader = self.wait_leader(timeout)
        epoch = self.status(leader)["epoch"]
        self.kill(leader)
        return self._wait_later(epoch, deadline)

    def wait_next_leader(self, epoch: int, *, timeout: float = 30.0) -> int:
        """Wait for a leader of a later epoch than ``epoch``; return its id. Raises NoQuorum."""
        return self._wait_later(whole_number("epoch", epoch, 0, EPOCH_MAX), deadline_after(timeout))

    def _wait_later(self, epoch: int, deadline: float) -> int:
        while True:
            left = max(0.0, deadline - time.monotonic())
            for id, status in self.statuses(timeout=left).items():
                if status["role"] == "leader" and status["epoch"] > epoch:
                    return id
            if time.monotonic() >= deadline:
                raise NoQuorum(f"no leader of an epoch above {epoch} in time")
            time.sleep(PAUSE_S)

    def cut(self, id: int) -> None:
        """Cut all links of replica ``id``: nothing reaches it, and nothing comes from it.

        Its process is stopped (SIGSTOP), so its clock stands still too; connections stay open, as
        where a network drops packets. A leader that is cut off is replaced after
        ``fetch_timeout_ms``. Raises InvalidOption, Closed; NoQuorum if its worker does not run.
        """
        self.kill(id, 0)  # raises for an unknown id
        if self.supervisor.pid(id) is None:
            raise NoQuorum(f"replica {id} does not run")
        super().kill(id, signal.SIGSTOP)
        self._cut.add(id)

    def heal(self, id: int | None = None) -> None:
        """Let replica ``id`` go on, None: all that were cut off. Raises InvalidOption, Closed."""
        self._check_open()
        for each in sorted(self._cut) if id is None else [id]:
            self.kill(each, signal.SIGCONT)
        if id is None and self._links is not None:
            self._links.heal()

    def cut_link(self, source: int, target: int, *, both: bool = True) -> None:
        """Let nothing get from replica ``source`` to ``target``, and back if ``both``.

        Both run on, and clients reach them: a leader without a majority is replaced after
        ``fetch_timeout_ms``. What is sent meanwhile arrives when the link is healed, unless its
        replica has given up by then. Raises InvalidOption where replicas talk over rings, which
        cannot be cut one by one, and for a replica that was added later; Closed.
        """
        self._links_of_sockets().cut(pairs_of(source, target, both))

    def heal_link(self, source: int, target: int, *, both: bool = True) -> None:
        """Let all get from ``source`` to ``target`` again, and back if ``both``.

        :meth:`heal` heals all links. Raises as :meth:`cut_link`.
        """
        self._links_of_sockets().heal(pairs_of(source, target, both))

    @contextmanager
    def link_cut(self, source: int, target: int, *, both: bool = True) -> Iterator[None]:
        """Cut a link within a ``with`` block. Raises as :meth:`cut_link`."""
        self.cut_link(source, target, both=both)
        try:
            yield
        finally:
            if not self._closed:
                self.heal_link(source, target, both=both)

    def _links_of_sockets(self) -> Links:
        self._check_open()
        if self._links is None:
            raise InvalidOption(
                "links over rings cannot be cut one by one: make the quorum with "
                'transport="socket", or cut off a whole replica with cut()'
            )
        return self._links

    def _config(self, id: int) -> NodeConfig:
        """Lead a replica to the others by their links."""
        config = super()._config(id)
        if self.tuning.transport == "ring":
            return config
        if self._links is None:
            from kraftfast.testing.links import Links  # with asyncio, which rings do not need

            self._links = Links(self.addresses)
        neighbours = []
        for each in config.neighbours:
            place = self._links.place(id, each.id) or (each.host, each.port)
            neighbours.append(VoterConfig(each.id, *place))
        return replace(config, neighbours=neighbours)

    @contextmanager
    def cut_off(self, id: int) -> Iterator[None]:
        """Cut the links of ``id`` within a ``with`` block. Raises as :meth:`cut`."""
        self.cut(id)
        try:
            yield
        finally:
            if id in self._cut:
                self.heal(id)

    def verify(self, *, timeout: float = 30.0) -> int:
        """Heal all links and compare the replicas, byte for byte; return how many bytes.

        Raises VerificationFailed where they differ, or one has not caught up within ``timeout``
        seconds; NoQuorum, TimedOut, Closed.
        """
        from kraftfast.bench.same_logs import compare_replicas, log_paths, wait_caught_up

        self.heal()
        deadline = deadline_after(timeout)
        end_offset = self.read_barrier(timeout=timeout)
        problem = wait_caught_up(self, end_offset, max(0.0, deadline - time.monotonic()))
        compared = 0
        if not problem:
            paths = log_paths(self.directories, self.topic)
            compared, problem = compare_replicas(paths, end_offset)
        if problem:
            raise VerificationFailed(f"the verification failed: {problem}")
        self.is_verified = True
        return compared

    def close(self, *, timeout: float = 10.0) -> None:
        """Heal all links, then stop the workers as LocalQuorum does. Raises InvalidOption."""
        deadline_after(timeout)  # refused before anything is closed
        if not self._closed:
            self.heal()
        try:
            super().close(timeout=timeout)
        finally:
            if self._links is not None:
                self._links.close()

    @property
    def is_closed(self) -> bool:
        """Whether it was closed. Raises nothing."""
        return self._closed


def pairs_of(source: int, target: int, both: bool) -> list[tuple[int, int]]:
    """Return the ways between two replicas. Raises InvalidOption."""
    pair = replica_id("source", source), replica_id("target", target)
    if source == target:
        raise InvalidOption(f"replica {source} has no link to itself")
    return [pair, pair[::-1]] if flag("both", both) else [pair]


@overload
def simulated(
    seed: int = 0, voters: int = 3, *, state_machine: None = None, durability: str = "majority"
) -> SimulatedQuorum[StateMachine]: ...


@overload
def simulated(
    seed: int = 0,
    voters: int = 3,
    *,
    state_machine: type[M],
    durability: str = "majority",
    snapshot_bytes: int = 10_000,
    retention_bytes: int = -1,
) -> SimulatedQuorum[M]: ...


def simulated(
    seed: int = 0,
    voters: int = 3,
    *,
    state_machine: type[Any] | None = None,
    durability: str = "majority",
    snapshot_bytes: int = 10_000,
    retention_bytes: int = -1,
) -> SimulatedQuorum[Any]:
    """Return a quorum of ``voters`` in this process, in time that only the test moves.

    Equal values of ``seed`` give equal runs. ``durability``: as of :class:`LocalQuorum`.
    ``state_machine``: a class of which each replica makes an object, here.
    ``snapshot_bytes``: how much of the log lies between two snapshots of it; ``retention_bytes``:
    how much is kept below one, -1: all. Needs ``pip install 'kraftfast[sim]'``.

    >>> quorum = simulated(seed=7)
    >>> offset, leader = quorum.append_wait(b"hello"), quorum.leader()
    >>> quorum.kill(leader, power=True, restart=False)
    >>> quorum.advance(60_000)                                  # a minute, in a moment
    >>> quorum.leader() != leader, [record.value for record in quorum.records()], quorum.verify()
    (True, [b'hello'], 1)

    Raises InvalidOption, HostUnsupported.
    """
    from kraftfast.testing.simulation import SimulatedQuorum

    return SimulatedQuorum(seed, voters, state_machine, durability, snapshot_bytes, retention_bytes)


def batch(
    values: Sequence[bytes],
    *,
    base_offset: int = 0,
    timestamp_ms: int = 0,
    keys: Sequence[bytes | None] | None = None,
) -> BatchView:
    """Return a batch of ``values``, as ``StateMachine.apply`` gets it, to call that by hand.

    ``base_offset``: of the first value. ``timestamp_ms``: of all of them, since 1970: the only
    clock that replicas share, and a test sets it. ``keys``: one for each value.
    Raises InvalidOption.
    """
    for each in (values, keys or []):
        if not isinstance(each, Sequence):
            raise InvalidOption("values and keys are sequences of bytes")
    if not values or (keys is not None and len(keys) != len(values)):
        raise InvalidOption("a batch has values, and as many keys or none")
    if not all_bytes(values):
        raise InvalidOption("values is a sequence of bytes")
    if not all_bytes(each for each in keys or () if each is not None):
        raise InvalidOption("keys is a sequence of bytes or None")
    base_offset = whole_number("base_offset", base_offset, 0, OFFSET_MAX - len(values))
    timestamp_ms = whole_number("timestamp_ms", timestamp_ms, 0, OFFSET_MAX)
    records = [
        Record(base_offset + place, timestamp_ms, bytes_or_none(key), bytes(value))
        for place, (key, value) in enumerate(zip(keys or [None] * len(values), values))
    ]
    return next(iter(batches(encode_batch(records))))


def all_bytes(values: Iterable[Any]) -> bool:
    """Return whether all of them can be a value of a record."""
    return all(isinstance(each, bytes | bytearray | memoryview) for each in values)


def bytes_or_none(value: bytes | bytearray | memoryview | None) -> bytes | None:
    """Return a copy of a value, whose bytes may lie apart."""
    return None if value is None else bytes(value)


if importlib.util.find_spec("pytest") is not None:
    import warnings

    import pytest

    __all__ += ["quorum"]
    __all__.sort()

    def pytest_collection_finish(session: pytest.Session) -> None:
        """Make processes ready for the first quorum, where a test that will run asks for one."""
        asking = (each for each in session.items if "quorum" in getattr(each, "fixturenames", ()))
        if not session.config.option.collectonly and (first := next(asking, None)) is not None:
            settings = getattr(getattr(first, "callspec", None), "params", {}).get("quorum", {})
            with suppress(OSError):  # the quorum's start says why it cannot be
                spare.make(settings.get("voters", 3) if isinstance(settings, dict) else 3)

    @pytest.fixture
    def quorum(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[QuorumUnderTest]:
        """Three fresh voters; at the end they are verified and closed.

        Where the test has closed them, unless :meth:`QuorumUnderTest.verify` was called, it warns:
        they are not verified.
        Other settings: ``@pytest.mark.parametrize("quorum", [{"voters": 1}], indirect=True)``.
        Raises as :class:`QuorumUnderTest`, and VerificationFailed at the end of a test.
        """
        settings = getattr(request, "param", {})
        if not isinstance(settings, dict):
            refuse("the parameter of quorum", "a dict of settings", settings)
        settings = {"voters": 3, **settings}
        with QuorumUnderTest(tmp_path / "quorum", **settings) as made:
            yield made
            if not made.is_closed:
                made.verify()
            elif not made.is_verified:
                warnings.warn(pytest.PytestWarning(NOT_VERIFIED), stacklevel=1)

elif not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name == "quorum":
            raise ImportError("the fixture kraftfast.testing.quorum needs pytest, which is missing")
        raise AttributeError(f"module 'kraftfast.testing' has no attribute {name!r}")
