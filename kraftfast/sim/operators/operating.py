"""An operator with the real client: it asks for its draws by ``Admin``, from its own program.

It goes by the directories of this host or by addresses, repeats what had no answer, and waits. What
it is told was done was committed, at some moment since it was asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from random import Random
from typing import TYPE_CHECKING, Any

from kraftfast.client.admin.admin import Admin
from kraftfast.core.messages import (
    AddRaftVoterRequest,
    AlterPartitionReassignmentsRequest,
    RemoveRaftVoterRequest,
    UpdateFeaturesRequest,
)
from kraftfast.errors import ErrorCode, KraftfastError, RequestRefused
from kraftfast.sim.clients.local_clients import LocalClient
from kraftfast.sim.clients.remote_clients import CALL_S, RemoteClient
from kraftfast.sim.operators.operator import LOST_MS, Operator, Order
from kraftfast.sim.require import require
from kraftfast.sim.settings import OPERATED_FROM
from kraftfast.types import KRaftVersion, KRaftVoters

if TYPE_CHECKING:
    from kraftfast.core.messages import Request
    from kraftfast.sim.machines.process import Process
    from kraftfast.sim.world import World
    from kraftfast.types import VoterSet

BY_ADMIN, OF_THIS_HOST = 0.5, 0.5
SHORT_S = 0.3
"""A call with so little time often ends without an answer."""
HOST_ID = 900
"""Of the operator's program, behind those of all others."""


class AdminOrder(Order):
    """A request under way by an admin. ``asking``: the call has not returned yet."""

    asking = True

    @property
    def is_open(self) -> bool:
        """Whether it may still have an effect: a leader goes on with what it was asked."""
        return self.asking or self.operator.world.now_us < self.until_us

    def returned(self, answer: ErrorCode | None) -> None:
        """Record that the call has ended; None: its outcome is unknown."""
        self.asking, self.answer = False, answer
        world = self.operator.world
        self.until_us = 0 if answer is not None else world.now_us + LOST_MS * 1000


class OperatingRemotely(RemoteClient):
    """The program, by addresses. It may die in the middle of a call."""

    # orders: that it was given.

    orders: tuple[AdminOrder, ...] = ()

    def act(self) -> None:
        """Do nothing by itself."""

    def lost(self) -> None:
        super().lost()
        for each in self.orders:
            if each.asking:
                each.returned(None)


class OperatingHere(LocalClient, OperatingRemotely):
    """The same, by the directories of the replicas."""


class OperatorByAdmin(Operator):
    """See the module. Its chance for how to ask is its own."""

    # program: made for the first request. begun: how many voter records were committed before.

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.chance = Random(world.seed * 2 + 1 + (1 << 57))
        self.program: OperatingRemotely | None = None

    def ask(self, process: Process, request: Request, sets: list[VoterSet]) -> Order:
        if self.chance.random() >= BY_ADMIN:
            return super().ask(process, request, sets)
        if self.program is None:
            here = self.chance.random() < OF_THIS_HOST
            kind = OperatingHere if here else OperatingRemotely
            self.program = kind(self.world, HOST_ID)
            self.program.running = False
            self.world.programs.append(self.program)
        order = self.order = AdminOrder(self, process, request, sets)
        self.program.orders = (order,)
        self.program.run(lambda: self._carry_out(order))
        return order

    def _carry_out(self, order: AdminOrder) -> None:
        program = self.program
        assert program is not None
        begun = len(self.world.oracle.voters.committed)
        name = type(order.request).__name__.removesuffix("Request")
        timeout = self.chance.choice((CALL_S, CALL_S, SHORT_S))
        try:
            with closing(program.way()) as way:
                done = self._asked(Admin(way), order.request, timeout)
        except RequestRefused as error:
            order.returned(ErrorCode(error.code))
            self.world.count(f"{name} by an admin: {ErrorCode(error.code).name}")
        except KraftfastError as error:
            order.returned(None)
            self.world.count(f"{name} by an admin: {type(error).__name__}")
        else:
            order.returned(ErrorCode.NONE)
            self.world.count("changes accepted")
            self.world.count(f"{name} by an admin: done")
            self._check_was_done(order, done, begun)

    def _asked(self, admin: Admin, request: Any, timeout: float) -> Callable[[KRaftVoters], bool]:
        """Ask for it, and return what is true of a voter record once it is done."""
        if isinstance(request, AddRaftVoterRequest):
            id, directory_id = request.voter
            own = self.chance.choice((None, self.world.cluster_id))
            admin.add_voter(id, directory_id, request.endpoints, cluster_id=own, timeout=timeout)
            return lambda each: each.voters.is_voter(request.voter)
        if isinstance(request, RemoveRaftVoterRequest):
            id, directory_id = request.voter
            own = self.chance.choice((None, self.world.cluster_id))
            admin.remove_voter(id, directory_id, cluster_id=own, timeout=timeout)
            return lambda each: not each.voters.is_voter(request.voter)
        if isinstance(request, UpdateFeaturesRequest):
            admin.upgrade(request.kraft_version, timeout=timeout)
            return lambda each: True
        assert isinstance(request, AlterPartitionReassignmentsRequest)
        waits = request.target is not None and self.chance.random() < 0.5
        admin.reassign(request.target, wait=waits, timeout=timeout)
        self.world.counts["reassignments seen by an admin"] += (
            admin.reassignment(timeout=timeout) is not None
        )
        if request.target is None:
            return lambda each: each.target is None
        wanted = tuple(sorted(request.target))
        if waits:
            return lambda each: each.target is None and each.voters.ids == wanted
        return lambda each: wanted in (each.voters.ids, each.target and tuple(sorted(each.target)))

    def _check_was_done(
        self, order: AdminOrder, done: Callable[[KRaftVoters], bool], begun: int
    ) -> None:
        """A record that says so was committed before it was asked for and counted, or since."""
        voters = self.world.oracle.voters
        if self.world.survivors is not None:
            return
        if isinstance(order.request, UpdateFeaturesRequest):
            version = any(isinstance(each, KRaftVersion) for _, each in voters.committed)
            known = version or self.settings.kraft_version > 0
            require(known, "an admin is told that an upgrade is done, and it is not committed")
            return
        earlier = [each for _, each in voters.committed[:begun] if isinstance(each, KRaftVoters)]
        since = [each for _, each in voters.committed[begun:] if isinstance(each, KRaftVoters)]
        found = [*(earlier[-1:] or [KRaftVoters(voters.first)]), *since]
        require(
            any(map(done, found)),
            f"an admin is told that {order.request} is done, and since then {found} counted",
        )


def operator_of(world: World) -> Operator:
    """Return the operator of a run; it uses an admin only in later seeds."""
    return OperatorByAdmin(world) if world.seed >= OPERATED_FROM else Operator(world)
