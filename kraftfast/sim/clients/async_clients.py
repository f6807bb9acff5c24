"""Producers and admins of asyncio as they are, in an event loop of their program.

They are held to what blocking ones are (``remote_clients``, ``local_clients``).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from kraftfast.client.admin.admin import Admin
from kraftfast.client.local_quorum import LocalQuorumBase
from kraftfast.client.producer.aio import AsyncProducer
from kraftfast.client.quorum_base import Quorum
from kraftfast.client.remote_quorum import connect_servers
from kraftfast.errors import (
    Closed,
    KraftfastError,
    NoQuorum,
    PeerGone,
    RecordTooLarge,
    RequestRefused,
    TimedOut,
    UnknownOutcome,
    UnsupportedVersion,
    WouldBlock,
)
from kraftfast.sim.clients.clients import ACKNOWLEDGED, FAILED, UNKNOWN, Told
from kraftfast.sim.clients.local_clients import LocalClient, LocalProducer
from kraftfast.sim.clients.program import SimWaiter
from kraftfast.sim.clients.remote_clients import CALL_S, LIVES_APPENDS, RemoteProducer
from kraftfast.sim.machines.event_loop import SimEventLoop, waits_beside_loop
from kraftfast.sim.require import expect
from kraftfast.sim.strangers import refused_requests
from kraftfast.types import METADATA_TOPIC

OPEN_MAX = 20
MANY_MAX = 8
LARGE_SHARE, LARGE_BYTES = 0.01, 300_000
"""How many records need a larger ring, and how large they are."""
SHORT_S = 0.005
"""A call with so little time is often too late."""


class AsyncRemoteProducer(RemoteProducer):
    """See :class:`RemoteProducer`: it appends in an event loop."""

    # _futures: of what is open, and what each stands for.

    _futures: dict[asyncio.Future[Any], list[Told]]

    def wait(self, waiter: SimWaiter, timeout_s: float | None) -> bool:
        return waits_beside_loop(lambda: super(AsyncRemoteProducer, self).wait(waiter, timeout_s))

    def act(self) -> None:
        self._futures = {}
        quorum = self.quorum()
        self._producers += 1
        self.world.count("async producers")
        loop = SimEventLoop(self)
        try:
            loop.run_until_complete(self._use(quorum))
        finally:
            if self.alive:
                self._take_ended()
                expect(not self._futures, "L1: futures outlive their producer")
                quorum.close()
            loop.close()

    def quorum(self) -> Quorum:
        """Return the quorum, reached by the addresses of some servers. Raises NoQuorum."""
        count = self.world.random.randint(1, len(self.world.machines))
        places = self.world.random.sample(self.world.machines, count)
        text = ",".join(f"{each.endpoints[0].host}:{each.endpoints[0].port}" for each in places)
        return connect_servers(text, timeout=CALL_S, host=self.host)

    async def _use(self, quorum: Quorum) -> None:
        random = self.world.random
        made = quorum.async_producer(
            batch_bytes=random.choice((1_000, 4_000, 65_536)),
            window=16,
            timeout=CALL_S,
            idempotent=self.idempotent,
            compression=random.choice((None, "gzip")),
        )
        self._made = made
        async with made:
            for _ in range(random.randint(1, LIVES_APPENDS)):
                if not self.running and not self.wanted and not self._open:
                    break
                if (self.running or self.wanted) and len(self._futures) < OPEN_MAX:
                    await self._append_some(made)
                if random.random() < 0.2 or not self.running or len(self._futures) >= OPEN_MAX:
                    await self._await_all(made)
                await self._others(quorum)
                mean_s = self.world.settings.append_every_ms / 1000
                await asyncio.sleep(random.expovariate(1.0) * mean_s)
        with suppress(Closed):  # what it raises once it is closed
            made.append(b"late")
            expect(False, "a closed producer appends")
        await asyncio.sleep(0)

    def _told(self) -> Told:
        world = self.world
        self._number += 1
        large = world.random.random() < LARGE_SHARE
        size = LARGE_BYTES if large else world.random.randint(0, world.settings.value_bytes_max)
        told = Told(world, b"r%d:%d:" % (self.id, self._number) + bytes(size),
                    (-self.id, self._producers))  # fmt: skip
        self.busy = True
        self._open.append(told)
        world.history.append(told)
        return told

    async def _append_some(self, made: AsyncProducer) -> None:
        """Hand over one record or several, in one of the ways there are."""
        way = self.world.random.choice(("append", "append", "append", "wait", "short", "many"))
        told = [self._told() for _ in range(MANY_MAX if way == "many" else 1)]
        try:
            if way == "append":
                future = made.append(told[0].values[0])
                self._futures[future] = told
                return
            if way == "many":
                offsets = await made.append_many([each.values[0] for each in told], timeout=CALL_S)
                for each, offset in zip(told, offsets, strict=True):
                    self._acknowledged(each, offset)
                return
            timeout = CALL_S if way == "wait" else SHORT_S
            self._acknowledged(told[0], await made.append_wait(told[0].values[0], timeout=timeout))
        except (WouldBlock, TimedOut, RecordTooLarge):
            for each in told:  # of several, some may have been handed over
                self._end(each, FAILED if len(told) == 1 else UNKNOWN)
        except KraftfastError:
            for each in told:
                self._end(each, UNKNOWN)
            raise
        finally:
            self.done()

    async def _await_all(self, made: AsyncProducer) -> None:
        if self.world.random.random() < 0.3:
            with suppress(UnknownOutcome):
                await made.flush(timeout=CALL_S)
        if self._futures:
            await asyncio.wait(list(self._futures), timeout=CALL_S)
        self._take_ended()

    def _take_ended(self) -> None:
        for future in [each for each in self._futures if each.done()]:
            (told,) = self._futures.pop(future)
            error = None if future.cancelled() else future.exception()
            if future.cancelled() or isinstance(error, UnknownOutcome):
                self._end(told, UNKNOWN)
            elif error is not None:
                self._end(told, FAILED)
            else:
                self._acknowledged(told, future.result())

    def _acknowledged(self, told: Told, offset: int) -> None:
        told.base_offset, told.end_offset = offset, offset + 1
        self._end(told, ACKNOWLEDGED)
        self.world.note_acknowledged(told)

    async def _others(self, quorum: Quorum) -> None:
        """Cancel something, or ask an admin."""
        what = self.world.random.random()
        if what < 0.02 and self._futures:
            next(iter(self._futures)).cancel()
        elif what < 0.05:
            floor = self.world.oracle.committed_end
            with suppress(KraftfastError):
                offset = await quorum.async_admin().read_barrier(timeout=CALL_S)
                expect(offset >= floor, f"a read barrier says {offset}, {floor} was committed")
        elif what < 0.08:
            asked = refused_requests.requests(self.world)
            request = asked[self.world.random.choice(sorted(asked))]
            try:
                with suppress(TimedOut, NoQuorum, PeerGone, UnsupportedVersion):
                    await request(quorum.async_admin())
            except RequestRefused as error:
                refused_requests.check_refusal(error)
                self.world.count("refused to an async admin")

    def end(self) -> None:
        made = getattr(self, "_made", None)
        if made is not None:
            made.disown()
        super().end()


class AsyncLocalProducer(AsyncRemoteProducer, LocalProducer):
    """The same over rings, on the host of the replicas."""

    def quorum(self) -> Quorum:
        return QuorumOfProgram(self)


class QuorumOfProgram(LocalQuorumBase):
    """The replicas of this host, which others run."""

    topic = METADATA_TOPIC

    def __init__(self, program: LocalClient) -> None:
        self._program, self.directories = program, program.directories()
        self._kept_admin = Admin(program.way())

    @property
    def cluster_id(self) -> str:
        return self._program.world.cluster_id

    @property
    def _host(self) -> Any:
        return self._program.host

    def _check_open(self) -> None:
        """It is never closed."""

    def _connector(self, batch_bytes: int, window: int) -> Any:
        return self._program.connector(batch_bytes, window)

    def admin(self) -> Admin:
        return self._kept_admin

    def close(self) -> None:
        """Close its admin: what holds it lies in a cycle, and would keep it until the collector."""
        self._kept_admin.lose_quorum()
