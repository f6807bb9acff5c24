"""Who votes, who leads, what version is spoken: an operator's side (KIP-853, KIP-642, KIP-584).

Every call goes to the leader, again and again until its time runs out where that may help: while
there is no leader, while another change is under way, while a new voter still catches up. A change
whose fate was not learnt is looked for before it is asked again, so no call does a thing twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from kraftfast import arguments, limits
from kraftfast.arguments import flag, listed, replica_id, replica_ids, text, uuid, whole_number
from kraftfast.client.admin.admin_ways import Way
from kraftfast.client.admin.quorum_info import QuorumInfo, check_dynamic, question, read_answer
from kraftfast.client.admin.read_barriers import (
    PAUSE_S,
    TRY_AGAIN,
    ReadBarriers,
    barrier_of,
    check,
    likely_barrier,
    milliseconds,
)
from kraftfast.client.search import Search
from kraftfast.client.timing import deadline_after
from kraftfast.errors import (
    Closed,
    ErrorCode,
    MalformedFrame,
    NoQuorum,
    NotLeader,
    PeerGone,
    RequestRefused,
    TimedOut,
    UnsupportedVersion,
)
from kraftfast.forks import Birthplace
from kraftfast.types import METADATA_PARTITION, NO_NODE, Endpoint, Uuid
from kraftfast.wire import messages as wire
from kraftfast.wire.messages import ApiKey
from kraftfast.wire.versions import KRAFT_VERSION

if TYPE_CHECKING:
    from kraftfast.client.admin.admin_ways import Reached
    from kraftfast.wire.frame import WireMessage

TIMEOUT_S = 30.0
LEADERLESS = (NotLeader, NoQuorum, PeerGone)

T = TypeVar("T")


class Admin:
    """An operator's calls to one quorum. Thread-safe: every call has connections of its
    own, but for read barriers, which share one question at a time.

    ``way``: how to reach the quorum; get an admin by ``quorum.admin()``. All calls raise
    InvalidOption, NoQuorum (no leader, or none in reach), TimedOut (with the last answer),
    RequestRefused (with Kafka's code), Closed after the quorum was closed, and WrongProcess in a
    forked child. ``timeout``: seconds.
    """

    # way: to the leader. birthplace: the process that may use it. lost: its quorum was closed.
    # barriers: asked for all threads.

    def __init__(self, way: Way) -> None:
        self.way, self.host = way, way.host
        self.birthplace = Birthplace("admin")
        self.lost = False
        self.barriers = ReadBarriers(self._ask_barrier, self.host)

    # --- looking ----------------------------------------------------------------------------------

    def describe(self, *, timeout: float = 10.0) -> QuorumInfo:
        """Return who leads, who votes, how far every replica is. Raises NoQuorum, TimedOut."""
        body = question(self.way.topic)
        return self._until(
            self._deadline(timeout),
            lambda leader, until: read_answer(leader.ask(ApiKey.DESCRIBE_QUORUM, body, until)),
        )

    def cluster_id(self, *, timeout: float = 10.0) -> str:
        """Return the id of the leader's cluster. Raises NoQuorum, TimedOut."""
        body = wire.DescribeClusterRequest(endpoint_type=2)

        def ask(leader: Reached, until: float) -> str:
            return str(leader.ask(ApiKey.DESCRIBE_CLUSTER, body, until).cluster_id)

        return self._until(self._deadline(timeout), ask)

    def read_barrier(self, *, timeout: float = 10.0) -> int:
        """Return an end offset: below it stands all that was committed before the call.

        The leader confirms with a majority, after the call began, that it still leads. Calls that
        wait at the same time share a question. Raises NoQuorum, TimedOut, UnsupportedVersion.
        """
        self._check_open()
        return self.barriers.read(self._deadline(timeout))

    def _ask_barrier(self, deadline: float) -> int:
        offset = likely_barrier(self.way, deadline)
        if offset is not None:
            return offset
        return self._until(
            deadline, lambda leader, until: barrier_of(leader, until, self.way, self.host)
        )

    # --- voters -----------------------------------------------------------------------------------

    def add_voter(
        self,
        id: int,
        directory_id: Uuid,
        endpoints: Iterable[Endpoint],
        *,
        cluster_id: str | None = None,
        timeout: float = TIMEOUT_S,
    ) -> None:
        """Make a running replica a voter, once it has caught up (AddRaftVoter).

        ``id``, ``directory_id``, ``endpoints`` (name, host, port): who it is and how others reach
        it. ``cluster_id``: refuse if the quorum is another one; None: do not compare.

        Raises RequestRefused with DUPLICATE_VOTER where its id votes with another directory.
        """
        id, directory_id = replica_id("id", id), uuid("directory_id", directory_id)
        places = arguments.endpoints("endpoints", endpoints)
        if cluster_id is not None:
            cluster_id = text("cluster_id", cluster_id)
        kind = wire.AddRaftVoterRequest
        body = kind(
            cluster_id=cluster_id,
            timeout_ms=milliseconds(timeout),
            voter_id=id,
            voter_directory_id=directory_id,
            listeners=[kind.Listener(*each) for each in places],
        )
        self._change(
            ApiKey.ADD_RAFT_VOTER,
            body,
            lambda info: any((v.id, v.directory_id) == (id, directory_id) for v in info.voters),
            {ErrorCode.DUPLICATE_VOTER},
            timeout,
        )

    def remove_voter(
        self,
        id: int,
        directory_id: Uuid | None = None,
        *,
        cluster_id: str | None = None,
        timeout: float = TIMEOUT_S,
    ) -> None:
        """Remove voter ``id``; it continues as an observer (RemoveRaftVoter).

        ``directory_id`` None: that of the present voter. ``cluster_id``: refuse if the quorum is
        another one; None: do not compare. Raises RequestRefused with VOTER_NOT_FOUND,
        TimedOut if no majority of the others is alive for so long.
        """
        deadline = self._deadline(timeout)
        id = replica_id("id", id)
        if cluster_id is not None:
            cluster_id = text("cluster_id", cluster_id)
        if directory_id is not None:
            directory_id = uuid("directory_id", directory_id)
        else:
            info = self.describe(timeout=timeout)
            check_dynamic(info)
            found = [each.directory_id for each in info.voters if each.id == id]
            if not found:
                raise RequestRefused(f"{id} is no voter", ErrorCode.VOTER_NOT_FOUND)
            (directory_id,) = found
        body = wire.RemoveRaftVoterRequest(
            cluster_id=cluster_id, voter_id=id, voter_directory_id=directory_id
        )
        self._change(
            ApiKey.REMOVE_RAFT_VOTER,
            body,
            lambda info: all((v.id, v.directory_id) != (id, directory_id) for v in info.voters),
            {ErrorCode.VOTER_NOT_FOUND},
            max(0.0, deadline - self.host.monotonic()),
        )

    # --- reassignment -----------------------------------------------------------------------------

    def reassign(
        self, target: Iterable[int] | None, *, wait: bool = True, timeout: float = TIMEOUT_S
    ) -> None:
        """Make exactly the ids of ``target`` the voters, by single moves; None cancels (KIP-642).

        ``wait``: until they are, else only until the target is committed. Those that do not vote
        yet must run and be connected to the leader. Raises RequestRefused with
        INVALID_REPLICA_ASSIGNMENT for a target that cannot be, NO_REASSIGNMENT_IN_PROGRESS.
        """
        deadline = self._deadline(timeout)
        flag("wait", wait)
        ids = None if target is None else replica_ids("target", target)
        kind = wire.AlterPartitionReassignmentsRequest
        topic = kind.Topic(self.way.topic, [kind.Partition(METADATA_PARTITION, ids)])
        body = kind(timeout_ms=milliseconds(timeout), topics=[topic])
        late = {ErrorCode.NO_REASSIGNMENT_IN_PROGRESS} if ids is None else set()

        def done(info: QuorumInfo) -> bool:
            return info.target is None if ids is None else is_target(info, ids)

        self._change(ApiKey.ALTER_PARTITION_REASSIGNMENTS, body, done, late, timeout)
        while wait and ids is not None:
            info = self.describe(timeout=max(0.001, deadline - self.host.monotonic()))
            voters = listed(info.voter_ids)
            if info.target is None and info.voters_committed:
                if list(info.voter_ids) == ids:
                    return
                why = f"the reassignment ended with voters {voters}"
                raise RequestRefused(why, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
            if self.host.monotonic() >= deadline:
                raise TimedOut(f"voters {voters} are on the way to {listed(ids)} still")
            self.host.sleep(PAUSE_S)

    def reassignment(self, *, timeout: float = 10.0) -> tuple[int, ...] | None:
        """Return the target of a reassignment, None if there is none (ListPartitionReassignments).

        Raises NoQuorum, TimedOut, RequestRefused.
        """
        body = wire.ListPartitionReassignmentsRequest()

        def ask(leader: Reached, until: float) -> tuple[int, ...] | None:
            answer = leader.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, body, until)
            check(answer.error_code, answer.error_message)
            for topic in answer.topics:
                for part in topic.partitions:
                    kept = set(part.replicas) - set(part.removing_replicas)
                    return tuple(sorted(kept | set(part.adding_replicas)))
            return None

        return self._until(self._deadline(timeout), ask)

    # --- leadership and version -------------------------------------------------------------------

    def transfer(self, to: int | None = None, *, timeout: float = TIMEOUT_S) -> int:
        """Hand leadership to voter ``to``, None: to the one with the longest log.

        Returns the new leader's id. Raises RequestRefused with VOTER_NOT_FOUND, UnsupportedVersion
        from a leader that cannot be asked (Kafka's), TimedOut also where another one was elected.
        """
        deadline = self._deadline(timeout)
        to = None if to is None else replica_id("to", to)
        before = self.describe(timeout=timeout)
        if before.leader_id == to:
            return before.leader_id
        kind = wire.AlterPartitionReassignmentsRequest
        body = kind(topics=[], transfer_to=NO_NODE if to is None else to)

        attempts = 0

        def is_wanted(leader_id: int) -> bool:
            return leader_id != before.leader_id if to is None else leader_id == to

        def is_over(leader: Reached, until: float) -> bool:
            question_body = question(self.way.topic)
            info = read_answer(leader.ask(ApiKey.DESCRIBE_QUORUM, question_body, until))
            return info.epoch > before.epoch and is_wanted(info.leader_id)

        def ask(leader: Reached, until: float) -> None:
            nonlocal attempts
            attempts += 1
            if attempts > 1 and is_over(leader, until):  # the answer was lost: not once more
                return
            answer = leader.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, body, until)
            try:
                check(answer.error_code, answer.error_message)
            except RequestRefused as refusal:
                if refusal.code != ErrorCode.VOTER_NOT_FOUND or not is_over(leader, until):
                    raise  # else it is no other voter since it leads itself
                return
            if answer.transfer_to == not_understood:
                raise UnsupportedVersion("this leader cannot be asked to hand over")

        not_understood = wire.AlterPartitionReassignmentsResponse().transfer_to
        self._until(deadline, ask)
        while True:
            info = self.describe(timeout=max(0.001, deadline - self.host.monotonic()))
            if info.epoch > before.epoch:
                if is_wanted(info.leader_id):
                    return info.leader_id
                wanted = "another voter" if to is None else to
                raise TimedOut(f"{wanted} was not elected: {info.leader_id} leads")
            if self.host.monotonic() >= deadline:
                raise TimedOut(f"{info.leader_id} leads still")
            self.host.sleep(PAUSE_S)

    def upgrade(
        self, kraft_version: int, *, validate_only: bool = False, timeout: float = TIMEOUT_S
    ) -> None:
        """Set ``kraft.version`` to ``kraft_version`` (UpdateFeatures); there is no way back.

        1 puts the voters into the log. ``validate_only``: only check that it can be done. Every
        voter must have told the leader that it supports it: a new leader is asked again.

        Raises RequestRefused with INVALID_UPDATE_VERSION.
        """
        kraft_version = whole_number("kraft_version", kraft_version, 0, 2**15 - 1)
        flag("validate_only", validate_only)
        kind = wire.UpdateFeaturesRequest
        body = kind(
            timeout_ms=milliseconds(timeout),
            feature_updates=[kind.FeatureUpdate(KRAFT_VERSION, kraft_version)],
            validate_only=validate_only,
        )
        may_come = 0 < kraft_version <= limits.KRAFT_VERSION_MAX
        again = {ErrorCode.INVALID_UPDATE_VERSION} if may_come else set()

        def ask(leader: Reached, until: float) -> None:
            answer = leader.ask(ApiKey.UPDATE_FEATURES, body, until)
            check(answer.error_code, answer.error_message)

        self._until(self._deadline(timeout), ask, again)

    # --- inside -----------------------------------------------------------------------------------

    def _deadline(self, timeout: float) -> float:
        return deadline_after(timeout, now=self.host.monotonic)

    def lose_quorum(self) -> None:
        """Ask nothing more: the quorum was closed, and its replicas have ended."""
        self.lost = True
        self.way.close()

    def _check_open(self) -> None:
        self.birthplace.check()
        if self.lost:
            raise Closed("the quorum is closed")

    def _change(
        self,
        api_key: ApiKey,
        body: WireMessage,
        done: Callable[[QuorumInfo], bool],
        late: set[ErrorCode],
        timeout: float,
    ) -> None:
        """Ask for a change of the voters until it is committed.

        ``late``: refusals that also say that an earlier attempt of ours went through.
        """
        attempts = 0

        def ask(leader: Reached, until: float) -> None:
            nonlocal attempts
            attempts += 1
            body_question = question(self.way.topic)
            if attempts > 1:  # the one before may have been done after all
                if is_done(leader.ask(ApiKey.DESCRIBE_QUORUM, body_question, until), done):
                    return
            answer = leader.ask(api_key, body, until)
            try:
                check(answer.error_code, answer.error_message)
                for response in getattr(answer, "responses", ()):
                    for part in response.partitions:
                        check(part.error_code, part.error_message)
            except RequestRefused as refusal:
                if attempts == 1 or refusal.code not in late:
                    raise
                if not is_done(leader.ask(ApiKey.DESCRIBE_QUORUM, body_question, until), done):
                    raise

        self._until(self._deadline(timeout), ask)

    def _until(
        self,
        deadline: float,
        ask: Callable[[Reached, float], T],
        again: set[ErrorCode] | frozenset[ErrorCode] = frozenset(),
    ) -> T:
        """Return what the leader answers, at the latest at the deadline.

        Raises Closed, WrongProcess.
        """
        refused: RequestRefused | None = None
        search = Search(deadline - PAUSE_S, now=self.host.monotonic)
        while True:
            self._check_open()
            try:
                leader = self.way.to_leader(deadline)
                try:
                    return ask(leader, deadline)
                finally:
                    leader.close()
            except (*LEADERLESS, MalformedFrame) as error:
                if search.is_over(error):
                    if refused is not None:
                        text = f"not done in time: {refused}; since then: {error}"
                        raise TimedOut(text) from None
                    raise NoQuorum(f"no leader could be asked: {error}") from None
            except RequestRefused as refusal:
                if refusal.code not in TRY_AGAIN and refusal.code not in again:
                    raise
                if self.host.monotonic() + PAUSE_S >= deadline:
                    if refusal.code in again:
                        raise
                    raise TimedOut(f"not done in time: {refusal}") from None
                refused = refusal
            except TimedOut:
                if refused is None:
                    raise
                raise TimedOut(f"not done in time: {refused}") from None
            self.host.sleep(PAUSE_S)


def is_done(answer: WireMessage, done: Callable[[QuorumInfo], bool]) -> bool:
    """Return whether a DescribeQuorum answer shows the change, and that it is committed."""
    info = read_answer(answer)
    return done(info) and info.voters_committed


def is_target(info: QuorumInfo, ids: list[int]) -> bool:
    """Return whether a quorum is on the way to these voters, or there."""
    return list(info.voter_ids if info.target is None else info.target) == ids


class AsyncAdmin:
    """The calls of ``admin`` (:class:`Admin`) to be awaited: each runs in a thread."""

    # admin: whose calls.

    def __init__(self, admin: Admin) -> None:
        self.admin = admin

    async def _in_thread(self, call: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Return ``call(...)``, which runs in a thread meanwhile."""
        from kraftfast.client.producer.loop_threads import in_thread  # most programs use no asyncio

        return await in_thread(self.admin.host, call, *arguments, **named)

    async def describe(self, *, timeout: float = 10.0) -> QuorumInfo:
        """See :meth:`Admin.describe`."""
        return await self._in_thread(self.admin.describe, timeout=timeout)

    async def cluster_id(self, *, timeout: float = 10.0) -> str:
        """See :meth:`Admin.cluster_id`."""
        return await self._in_thread(self.admin.cluster_id, timeout=timeout)

    async def reassignment(self, *, timeout: float = 10.0) -> tuple[int, ...] | None:
        """See :meth:`Admin.reassignment`."""
        return await self._in_thread(self.admin.reassignment, timeout=timeout)

    async def read_barrier(self, *, timeout: float = 10.0) -> int:
        """See :meth:`Admin.read_barrier`."""
        return await self._in_thread(self.admin.read_barrier, timeout=timeout)

    async def add_voter(
        self,
        id: int,
        directory_id: Uuid,
        endpoints: Iterable[Endpoint],
        *,
        cluster_id: str | None = None,
        timeout: float = TIMEOUT_S,
    ) -> None:
        """See :meth:`Admin.add_voter`."""
        await self._in_thread(
            self.admin.add_voter, id, directory_id, endpoints,
            cluster_id=cluster_id, timeout=timeout,
        )  # fmt: skip

    async def remove_voter(
        self,
        id: int,
        directory_id: Uuid | None = None,
        *,
        cluster_id: str | None = None,
        timeout: float = TIMEOUT_S,
    ) -> None:
        """See :meth:`Admin.remove_voter`."""
        await self._in_thread(
            self.admin.remove_voter, id, directory_id, cluster_id=cluster_id, timeout=timeout
        )

    async def reassign(
        self, target: Iterable[int] | None, *, wait: bool = True, timeout: float = TIMEOUT_S
    ) -> None:
        """See :meth:`Admin.reassign`."""
        await self._in_thread(self.admin.reassign, target, wait=wait, timeout=timeout)

    async def transfer(self, to: int | None = None, *, timeout: float = TIMEOUT_S) -> int:
        """See :meth:`Admin.transfer`."""
        return await self._in_thread(self.admin.transfer, to, timeout=timeout)

    async def upgrade(
        self, kraft_version: int, *, validate_only: bool = False, timeout: float = TIMEOUT_S
    ) -> None:
        """See :meth:`Admin.upgrade`."""
        await self._in_thread(
            self.admin.upgrade, kraft_version, validate_only=validate_only, timeout=timeout
        )
