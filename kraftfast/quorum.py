"""A whole quorum on this host: workers started and supervised, clients handed out.

>>> settings = {"segment_bytes": 32 << 20, "stride_bytes": 8 << 20}    # small: this is an example
>>> with kraftfast.LocalQuorum(path, voters=3, **settings) as quorum, quorum.producer() as producer:
...     offset = producer.append_wait(b"hello", timeout=5)
...     for record in quorum.consumer(from_offset=0):
...         print(record.offset == offset, record.value)
True b'hello'
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Unpack

from kraftfast import forks, limits
from kraftfast.arguments import flag, replica_id, replica_ids, whole_number
from kraftfast.client.local_quorum import LocalQuorumBase
from kraftfast.client.timing import deadline_after
from kraftfast.errors import (
    Closed,
    ErrorCode,
    InvalidOption,
    KraftfastError,
    LocalError,
    NoQuorum,
    PeerGone,
    RequestRefused,
)
from kraftfast.log.small_files.directory import read_meta
from kraftfast.node.node_config import ListenerConfig, NodeConfig, VoterConfig
from kraftfast.node.processes import supervisor_host as processes
from kraftfast.node.processes.launching import SpareWorker, spare
from kraftfast.node.processes.placement import share
from kraftfast.node.processes.supervisor import Supervisor
from kraftfast.node.processes.tuning import Tuning as Tuning
from kraftfast.node.processes.tuning import TuningFields, tuning_of
from kraftfast.node.processes.tuning import free_port as free_port
from kraftfast.node.state_machine import refuse_while_loading
from kraftfast.node.storage import storage_host as storage
from kraftfast.node.storage.description import (
    changing,
    forget_replacements,
    raise_kraft_version,
    read_description,
    run_lock,
)
from kraftfast.node.storage.local_layout import (
    ON_THIS_HOST,
    add_to_description,
    check_ids,
    open_or_format,
    quorum_path,
    replica_directories,
)
from kraftfast.types import NO_NODE, Endpoint, Uuid

if TYPE_CHECKING:
    from kraftfast.client.admin.admin import Admin
    from kraftfast.client.connector import Connector

FIRST_COMMIT_S = 0.2
"""A new quorum whose first voter does not commit within this time is asked who leads."""
INTERRUPTED_S = 0.3
"""How long workers may take to stop by themselves if their start was interrupted."""
LOGGED_S_MAX = 1.0
"""How long the end of a quorum waits for the handlers of ``logging``."""


class LocalQuorum(LocalQuorumBase):
    """Start (and, the first time, format) the voters of one host, and supervise them.

    ``path``: the quorum's directory; replica N lives in ``path/N``. ``voters``: 1, 3, 5 ...; None
    takes what is there. Decided when the quorum is made: ``durability`` (``majority``, ``all``,
    ``memory``), ``records`` (``any``, ``kafka-raft``), ``kraft_version`` (1: the voters stand in
    the log; 0: a replaced disk votes under its old id until an upgrade). ``restart``: start a
    worker again that dies. ``tuning``: as :class:`Tuning`. A majority of the voters is enough to
    start; see ``faults``. Close it: one that is forgotten warns and is closed once it is collected.

    Raises InvalidOption, HostUnsupported, DirectoryInUse, CorruptLog, DiskFull and other
    StorageErrors, TimedOut.
    """

    # path, description, directories: what it is. tuning: how it runs. supervisor: its processes.
    # addresses: replica id -> (host, port), where it listens for TCP. _changing: held while a
    # replica is made or stopped for good. _refusal: what calls raise once it is _closed.

    _processes: processes.HostOfSupervisor = processes.HOST
    _storage: storage.DiskHost = storage.HOST
    _spare: SpareWorker = spare

    def __init__(
        self,
        path: str | os.PathLike[str],
        voters: int | None = None,
        *,
        durability: str | None = None,
        records: str | None = None,
        kraft_version: int = 1,
        timeout: float = 60.0,
        restart: bool = True,
        **tuning: Unpack[TuningFields],
    ) -> None:
        refuse_while_loading()
        self.path = quorum_path(path, self._storage)
        deadline = self._deadline_after(timeout, 0.001)
        flag("restart", restart)
        self.tuning = tuning_of(dict(tuning))
        self.addresses: dict[int, tuple[str, int]] = {}
        self._processes.check_host()
        self.supervisor = Supervisor([], restart, self._processes, self._spare)
        try:
            self.description, self._is_new = open_or_format(
                self.path, voters, durability, records, kraft_version, self._endpoint_of,
                self.supervisor.launch_ahead, self._storage,
            )  # fmt: skip
            self._lock = run_lock(self.path, self._storage)
            self.directories = replica_directories(self.path, [])
            unplaced = self._place_all()
            self.tuning.tell_who_can_come(self.addresses)
            self.supervisor.keep([self._config(id) for id in self.directories])
            # what clients need, while the workers import what they need
            import kraftfast.client.producer.producer  # noqa: F401
            from kraftfast.client.admin.admin import Admin
            from kraftfast.client.admin.admin_ways import LocalWay
            from kraftfast.client.producer.unclosed import run_in_background

            self._run_in_background = run_in_background  # once collected, nothing is imported
            self._keep_clients()
            way = LocalWay(self.directories, self.topic, self.cluster_id, self._host)
            self._admin = self._kept(Admin(way))
        except BaseException:
            self.supervisor.close()
            raise
        self._changing, self._closed = self._processes.lock(), False
        self._refusal: LocalError = Closed("the quorum is closed")
        forks.own(self)
        try:
            errors = self.supervisor.start(self._left(deadline)) | unplaced
            self._refuse_minority(errors)
            for id, error in errors.items():  # the others go on without them
                self.supervisor.tell_error(id, error)
            if self._is_new:
                self._wait_first_commit()
            self._leader_by(max(deadline, self._deadline_after(0.1)), timeout)
            self._note_kraft_version()
        except Exception:
            self.close()
            raise
        except BaseException:  # interrupted: a worker that prepares its log hears nothing meanwhile
            self.close(timeout=INTERRUPTED_S)
            raise

    def _deadline_after(self, timeout: float, least: float = -math.inf) -> float:
        return deadline_after(timeout, least, self._processes.monotonic)

    def _left(self, deadline: float) -> float:
        return deadline - self._processes.monotonic()

    def _refuse_minority(self, errors: dict[int, KraftfastError]) -> None:
        """Raise the first of these errors if the replicas without one are no majority."""
        statuses = self.statuses() if errors else {}
        told = [(each["epoch"], each["voters"]) for each in statuses.values()]
        voters = max(told, default=(0, []))[1] or self.description.voters
        failed = [errors[id] for id in sorted(errors) if id in voters]
        if failed and 2 * len(failed) >= len(voters):
            raise failed[0]

    def _note_kraft_version(self) -> None:
        """Record kraft.version 1 in quorum.json: from it on no replica gets static voters."""
        if self.description.kraft_version == limits.KRAFT_VERSION_MAX:
            return
        versions = [each["kraft_version"] for each in self.statuses().values()]
        if max(versions, default=0) > self.description.kraft_version:
            raise_kraft_version(self.path, max(versions), self._storage)
            self.description = read_description(self.path, self._storage)
            self._tell_workers()

    @property
    def faults(self) -> dict[int, KraftfastError]:
        """Why replicas stay down, by id; the others go on without them (:meth:`replace`)."""
        return self.supervisor.faults()

    def _endpoint_of(self, id: int) -> Endpoint:
        """Return where a first voter will be, so that Metadata names it from the beginning."""
        if not self.tuning.listens:
            return ON_THIS_HOST
        self.addresses[id] = self.tuning.choose_address(id)
        return Endpoint(ON_THIS_HOST.name, *self.addresses[id])

    def _place_all(self) -> dict[int, KraftfastError]:
        """Place all replicas; return why not, by id: one that was added stops no others (L1)."""
        unplaced: dict[int, KraftfastError] = {}
        for id in self.description.replicas:
            try:
                self._place(id)
            except InvalidOption as error:
                if id in self.description.voters:
                    raise
                unplaced[id] = error
        return unplaced

    def _place(self, id: int) -> None:
        """Decide where a replica lives and listens. Raises InvalidOption, CannotListen."""
        if self.tuning.listens and id not in self.addresses:
            self.addresses[id] = self.tuning.choose_address(id)
        self.directories[id] = os.path.join(self.path, str(id))

    def _config(self, id: int) -> NodeConfig:
        tuning = self.tuning
        known = self.description  # at kraft.version 1, and for replicas added later, the log says
        static = known.voters if id in known.voters and known.kraft_version < 1 else []
        address = self.addresses.get(id)
        return NodeConfig(
            node_id=id,
            directory=self.directories[id],
            new_quorum=self._is_new,
            voters=[VoterConfig(each, *self.addresses.get(each, ("", 0))) for each in static],
            neighbours=tuning.places(self.directories, self.addresses),
            cluster_id=self.description.cluster_id,
            listeners=[ListenerConfig("CONTROLLER", *address)] if address else [],
            processors=share(tuning.processors, len(known.voters)),
            **tuning.of_each_node(known.durability),
        )

    @property
    def topic(self) -> str:
        return self.description.topic

    @property
    def cluster_id(self) -> str:
        return self.description.cluster_id

    # --- clients ----------------------------------------------------------------------------------

    def _connector(self, batch_bytes: int, window: int) -> Connector:
        if self.tuning.transport == "socket":
            from kraftfast.client.cluster import Cluster
            from kraftfast.client.remote_connector import RemoteConnector

            cluster = Cluster(self.addresses.values(), self.description.topic)
            return RemoteConnector(cluster, batch_bytes, window)
        from kraftfast.client.local_connector import LocalConnector

        return LocalConnector(self.directories, batch_bytes, window, self.cluster_id, self._host)

    # --- looking ----------------------------------------------------------------------------------

    def wait_leader(self, timeout: float = 10.0) -> int:
        """Wait for a leader that can commit; return its id. Raises NoQuorum."""
        return self._leader_by(self._deadline_after(timeout), timeout)

    def _leader_by(self, deadline: float, timeout: float) -> int:
        leader = NO_NODE
        while True:
            self._refuse_minority(self.faults)
            for id in sorted(self.directories, key=lambda id: id != leader):
                status = self._status_if_any(id, self._left(deadline) / len(self.directories))
                if status.get("role") == "leader" and status["high_watermark"] > 0:
                    return id
                if (named := status.get("leader_id", NO_NODE)) not in (id, leader, NO_NODE):
                    leader = named  # asked first from now on: the others know no more
                    break
            if self._left(deadline) <= 0:
                why = "".join(f"; replica {id}: {error}" for id, error in self.faults.items())
                why += self.supervisor.restarts_text()
                raise NoQuorum(f"no leader within {timeout:g} s{why}")
            self._processes.sleep(0.002)

    def _wait_first_commit(self) -> None:
        """Sleep until the first voter of a new quorum commits, as a rule as its leader: to be asked
        who leads, again and again, would keep it from being elected."""
        with contextlib.suppress(PeerGone):
            with contextlib.closing(self.watch(min(self.description.voters))) as first:
                first.wait_beyond(0, FIRST_COMMIT_S)

    def kill(self, id: int, signo: int = signal.SIGKILL) -> None:
        """Send ``signo`` to worker ``id``; it is started again. Raises InvalidOption, Closed."""
        self._check_open()
        signo = whole_number("signo", signo, 0, signal.NSIG - 1)
        if self.directories[id]:  # raises for an unknown id
            self.supervisor.kill(id, signo)

    # --- who votes, who leads -------------------------------------------------------------------

    def admin(self) -> Admin:
        """Return an operator's calls, by way of this host. Raises Closed, WrongProcess."""
        self._check_open()
        return self._admin

    def add_replica(self, id: int | None = None, *, timeout: float = 30.0) -> int:
        """Start one more replica, an observer: it follows and serves reads. Returns its id.

        ``id`` None: the next one. Nothing is done for one that is there. Raises as the start does.
        """
        self._check_open()
        deadline_after(timeout)
        id = None if id is None else replica_id("id", id)
        with self._changing:
            id, _ = add_to_description(self.path, id, self._storage, self.tuning.port)
            self._adopt(timeout, only=id)
            return id

    def adopt(self, *, timeout: float = 30.0) -> None:
        """Start replicas that another process has made, and those with a new directory.

        (``kraftfast quorum add-controller``, ``storage replace``.) Raises as the start does, last.
        """
        self._check_open()
        deadline_after(timeout)
        with self._changing:
            self._adopt(timeout)

    def _adopt(self, timeout: float, only: int | None = None) -> None:
        """Start those that are new; ``only``: no others. One that fails keeps none back (L1)."""
        from kraftfast.node.storage.replacing import is_planned, stored_id

        self.description = read_description(self.path, self._storage)
        for id in self.faults if only is None else {only} & self.faults.keys():
            begun = self.description.replacing.get(id)
            if begun is None or is_planned(stored_id(self.directories[id], self._storage), begun):
                self.supervisor.retry(id, self._config(id))
        new = [id for id in self.description.added if id not in self.directories]
        new, failed = [id for id in new if only in (None, id)], []
        for id in new:
            try:
                self._place(id)
                self.supervisor.add(self._config(id), timeout)
            except BaseException as error:
                self._forget(id)
                if self._closed or not isinstance(error, KraftfastError):
                    raise
                failed.append(error)
        if new:
            self._tell_workers()
        if failed:
            raise failed[0]

    def _forget(self, id: int) -> None:
        self.directories.pop(id, None)
        self.addresses.pop(id, None)

    def _tell_workers(self) -> None:
        """Tell the workers where all replicas are, for their next start."""
        for id, worker in self.supervisor.workers.items():
            worker.config = self._config(id)

    def identity(self, id: int) -> tuple[Uuid, tuple[Endpoint, ...]]:
        """Return directory id and endpoints of ``id``. Raises InvalidOption, StorageError."""
        self._check_open()
        meta = read_meta(self._storage.disk, self.directories[id])
        return meta.directory_id, self._config(id).endpoints

    def add_voter(self, id: int | None = None, *, timeout: float = 30.0) -> int:
        """Make a replica a voter once it has caught up, started if need be. Returns its id.

        ``id`` None: a new one. Raises RequestRefused (at version 0), TimedOut, NoQuorum.
        """
        from kraftfast.client.admin.quorum_info import check_addition

        deadline = self._deadline_after(timeout)
        id = None if id is None else replica_id("id", id)
        check_addition(self.describe(timeout=timeout), id)  # a refusal must leave nothing behind
        id = self.add_replica(id, timeout=timeout)
        self.admin().add_voter(id, *self.identity(id), timeout=max(0.001, self._left(deadline)))
        forget_replacements(self.path, [id], self._storage)
        return id

    def remove_voter(self, id: int, *, stop: bool = False, timeout: float = 30.0) -> None:
        """Remove voter ``id``; it continues as an observer, unless ``stop`` ends it.

        Raises RequestRefused with VOTER_NOT_FOUND, also for the last one; TimedOut, NoQuorum.
        """
        admin, id = self.admin(), replica_id("id", id)
        if flag("stop", stop):
            read_description(self.path, self._storage).check_added(id)
        admin.remove_voter(id, timeout=timeout)
        forget_replacements(self.path, [id], self._storage)
        if stop:
            self.stop_replica(id)

    def stop_replica(self, id: int, *, timeout: float = 10.0) -> None:
        """Stop observer ``id``, and do not start it again; its directory stays.

        Raises InvalidOption for a voter, and for one of the first voters; NoQuorum where no leader
        can say who votes.
        """
        self._check_open()
        deadline_after(timeout)
        id = replica_id("id", id)
        with self._changing, changing(self.path, self._storage) as description:
            assert self.directories[id], "it raises for an unknown id"
            description.check_added(id)
            if id in self.describe(timeout=timeout).voter_ids:
                raise InvalidOption(f"{id} is a voter: remove_voter comes first")
            description.added.remove(id)
            description.replacing.pop(id, None)
            self.description = description
            if id in self.supervisor.workers:
                self.supervisor.remove(id, timeout)
                self._forget(id)
            self._tell_workers()

    def replace(self, id: int, *, share_device: bool = False, timeout: float = 60.0) -> None:
        """Rebuild the directory of replica ``id``, which is down, from the others, which go on.

        The old directory leaves the voter set and is set aside; the new one votes once it has
        caught up. Needs ``kraft.version`` 1. Can be repeated. ``share_device``: make it even where
        its link leads to a disk that is not there, and so to the device of others. Raises
        RequestRefused, DirectoryInUse for a replica that runs, InvalidOption, TimedOut, NoQuorum,
        StorageError.
        """
        from kraftfast.client.local_socket import wait_started
        from kraftfast.node.storage.replacing import plan_replacement

        self._check_open()
        deadline = self._deadline_after(timeout)
        id, share_device = replica_id("id", id), flag("share_device", share_device)

        def wait_for(directory: str, _deadline: float) -> tuple[Endpoint, ...]:
            self._check_open()
            with self._changing:
                self._adopt(max(0.001, self._left(deadline)), only=id)
            wait_started(directory, deadline, self._host)
            return self._config(id).endpoints

        plan = plan_replacement(self.path, id, self.admin(), timeout, share_device, self._storage)
        plan.run(wait_for, deadline)

    def reassign(
        self, target: Iterable[int] | None, *, wait: bool = True, timeout: float = 60.0
    ) -> None:
        """Make exactly the replicas of ``target`` the voters, by single moves; None cancels.

        Starts those that are not there. ``wait``: until done. Raises as :meth:`Admin.reassign`.
        """
        from kraftfast.client.admin.quorum_info import check_dynamic

        deadline = self._deadline_after(timeout)
        flag("wait", wait)
        ids = None if target is None else replica_ids("target", target)
        admin = self.admin()
        check_ids(ids or (), self.tuning.port)
        if any(id not in self.directories for id in ids or ()):
            check_dynamic(self.describe(timeout=timeout))
        for id in ids or ():
            self.add_replica(id, timeout=timeout)
        while True:
            try:
                admin.reassign(ids, wait=wait, timeout=max(0.001, self._left(deadline)))
                if ids is not None:
                    forget_replacements(self.path, None, self._storage)
                return
            except RequestRefused as refusal:
                new = refusal.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT and bool(ids)
                if not new or self._left(deadline) <= 0:
                    raise  # else its leader has not heard of a replica that was just started
            self._processes.sleep(0.05)

    def transfer(self, to: int | None = None, *, timeout: float = 30.0) -> int:
        """Hand leadership to ``to``; return the new leader's id. As :meth:`Admin.transfer`."""
        return self.admin().transfer(to, timeout=timeout)

    def upgrade(self, kraft_version: int = 1, *, timeout: float = 30.0) -> None:
        """Put the voters into the log; there is no way back. As :meth:`Admin.upgrade`."""
        self.admin().upgrade(kraft_version, timeout=timeout)
        self._note_kraft_version()

    # --- end --------------------------------------------------------------------------------------

    def close(self, *, timeout: float = 10.0) -> None:
        """Stop the workers gracefully, or kill them if interrupted. Raises InvalidOption."""
        left = self._left(self._deadline_after(timeout))
        self._closed = True
        with self._lock, self._losing_clients():
            self.supervisor.close(left)
        self._processes.tell.flush(LOGGED_S_MAX)

    def disown(self) -> None:
        """Leave the workers, and the right to end them, to the parent in a forked child."""
        self._closed, self._refusal = True, forks.refusal("quorum")
        self._clients = None
        self.supervisor.disown()

    def __del__(self) -> None:
        if getattr(self, "_closed", True) or forks.pending():
            return
        warnings.warn(f"the quorum in {self.path} was not closed", ResourceWarning, source=self)
        self._run_in_background(self.close)  # where the interpreter ends, workers end by themselves

    def _check_open(self) -> None:
        if self._closed:
            raise self._refusal.again()
        self._lock.check()
