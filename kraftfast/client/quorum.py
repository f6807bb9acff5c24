"""What every quorum offers a program, however it is reached."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Self

from kraftfast.client.makes_producers import MakesProducers
from kraftfast.errors import Closed, LocalError
from kraftfast.forks import Birthplace

if TYPE_CHECKING:
    from kraftfast.client.admin.admin import Admin, AsyncAdmin
    from kraftfast.client.admin.quorum_info import QuorumInfo
    from kraftfast.client.consumer.consumer import RecordStream


class Quorum(MakesProducers):
    """A quorum: ``LocalQuorum`` runs one itself, :func:`kraftfast.connect` reaches one that runs.

    Thread-safe. It belongs to the process that made it.
    """

    @property
    @abstractmethod
    def topic(self) -> str:
        """The name of the quorum's log."""

    @abstractmethod
    def consumer(
        self, from_offset: int = 0, *, follow: bool = False, timeout: float = 10.0
    ) -> RecordStream:
        """Return a consumer of the committed records from ``from_offset`` on, in order.

        ``follow``: wait for more at the end. Raises NoQuorum, TimedOut, OffsetOutOfRange, Closed,
        WrongProcess.
        """

    @abstractmethod
    def admin(self) -> Admin:
        """Membership, upgrades, reassignments, transfers. Raises Closed, WrongProcess."""

    def async_admin(self) -> AsyncAdmin:
        """Do as :meth:`admin`, to be awaited: ``await quorum.async_admin().read_barrier()``."""
        from kraftfast.client.admin.admin import AsyncAdmin

        return AsyncAdmin(self.admin())

    def describe(self, *, timeout: float = 10.0) -> QuorumInfo:
        """Return who leads, who votes, and how far every replica is. Raises NoQuorum."""
        return self.admin().describe(timeout=timeout)

    def read_barrier(self, *, timeout: float = 10.0) -> int:
        """Return an end offset: below it stands all that was committed before the call.

        Raises NoQuorum, TimedOut.
        """
        return self.admin().read_barrier(timeout=timeout)

    @abstractmethod
    def close(self) -> None:
        """Make no more clients: calls raise Closed from now on. Raises nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class ConnectedQuorum(Quorum):
    """A quorum that other processes run. Closing it stops none of them, and no producer.

    Its producers and consumers have connections of their own, and are closed by themselves.
    """

    # birthplace: the process that may use it; in a forked child another thread may have held a
    # lock for ever. _admin: its calls. _refusal: what calls raise once it is closed, or None.

    def __init__(self, admin: Admin) -> None:
        self.birthplace = Birthplace("quorum")
        self._admin = admin
        self._refusal: LocalError | None = None

    def _check_open(self) -> None:
        self.birthplace.check()
        if self._refusal is not None:
            raise self._refusal

    def admin(self) -> Admin:
        self._check_open()
        return self._admin

    def close(self) -> None:
        if self._refusal is None:
            self._refusal = Closed("the quorum is closed")
            self._admin.lose_quorum()
