"""Keeps the workers of one host alive: starts them, notices their end, starts them again.

One thread sleeps on the workers' pidfds. A worker that ends is started again at once; one that
keeps ending within a second is given longer and longer pauses, and so is one that waits for what
may return: space, descriptors, its directory's lock, its address. Only a storage error (a corrupt
log, a failed flush, D9) is final: the worker is not started again, and its error is kept
(``faults``).
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from kraftfast import errors
from kraftfast.errors import (
    CannotListen,
    Closed,
    DirectoryInUse,
    DiskFull,
    KraftfastError,
    OutOfResources,
    StorageError,
    TimedOut,
)
from kraftfast.node.event_log import Entry
from kraftfast.node.processes.ending import kill, wait_or_kill
from kraftfast.node.processes.launching import Launch, Launched, SpareWorker, spare
from kraftfast.node.processes.supervisor_host import HOST, Child, HostOfSupervisor, refusals

if TYPE_CHECKING:
    from kraftfast.node.node_config import NodeConfig

READY_BYTES_MAX = 64 * 1024
PAUSE_S_MAX = 5.0
RESTART_FREELY_AFTER_S = 1.0
WAIT_PAUSE_S = 0.5
ORPHAN_S_MAX = 3.0
"""Workers end by themselves when their supervisor is gone, but not at once."""
HANDOVER_MS = 50
UNOPENED_S = 0.3
"""How long one that could not be added may take to stop by itself: a kill loses nothing there."""
MAY_PASS = (DiskFull, OutOfResources, DirectoryInUse, CannotListen)
"""Storage errors that end by themselves: the worker is started again after a pause."""
SIGBUS_EXIT_CODE = 71  # cext/mapping.h


class Worker:
    """One child process. ``error`` is why it cannot run, or None."""

    # config: what it is told. process, sock, pidfd: of the running child; None while there is none.
    # opened: whether the process that runs or ran last had opened its log.
    # restarts: how often it was started again. pause_s: before the next start. deaf: nothing more
    # comes over sock. told: what was said of why it does not run, until it runs again.
    # held: its directory, as long as it is kept alive: no recovery goes on while it is started.

    def __init__(self, config: NodeConfig, host: HostOfSupervisor = HOST) -> None:
        self.config, self.host = config, host
        self.process: Child | None = None
        self.sock: socket.socket | None = None
        self.pidfd = -1
        self.started_at = 0.0
        self.start_at = 0.0
        self.pause_s = 0.0
        self.restarts = -1
        self.opened = self.deaf = False
        self.told = ""
        self.held = host.held_directory()
        self.error: KraftfastError | None = None
        self.ready = host.event()

    def start(self, launched: Launched | None = None) -> None:
        """Tell a process its configuration: one that was launched ahead, or else a new one.

        Raises OSError if none can be started.
        """
        self.error, self.opened, self.deaf = None, False, False
        try:
            self.held.take(self.config.directory)
        except DirectoryInUse as error:
            if launched is not None:
                launched.end()
            self.error, self.start_at = error, self.host.monotonic() + WAIT_PAUSE_S
            self.ready.set()
            return
        try:
            launched = launched or Launch(1, self.host).first
        except OSError:
            self.start_at = self.host.monotonic() + PAUSE_S_MAX
            raise
        self.process, self.sock, self.pidfd = launched.process, launched.sock, launched.pidfd
        self.started_at = self.host.monotonic()
        self.restarts += 1
        try:
            self.sock.send(msgspec.json.encode(self.config))
        except ConnectionError:
            pass  # it has ended already; its pidfd tells
        except OSError:  # it runs, and would wait for ever: the message is too long, say
            self.start_at = self.host.monotonic() + PAUSE_S_MAX
            kill(self)
            raise

    def take_message(self) -> bool:
        """Take one message: that it is ready, or why it is not, or an event that happened there.

        False: there is none, or the connection has ended.
        """
        assert self.sock is not None
        try:
            answer = msgspec.json.decode(self.sock.recv(READY_BYTES_MAX, socket.MSG_DONTWAIT))
        except BlockingIOError:
            return False
        except (OSError, msgspec.DecodeError):
            self.deaf = True
            return False
        if "told" in answer:
            self.host.tell.tell(msgspec.convert(answer["told"], Entry))
            return True
        if "error" in answer:
            kind = getattr(errors, answer.get("type", ""), KraftfastError)
            self.error = kind.__new__(kind)  # whatever arguments it takes
            Exception.__init__(self.error, answer["error"])
            self.error.exit_code = answer.get("exit_code", 1)
        else:
            self.opened, self.told = True, ""
            if self.restarts > 0 and self.process is not None:
                self.host.tell("worker_restarted", self.config.node_id, pid=self.process.pid)
        self.ready.set()
        return True

    def ended(self) -> tuple[int, int]:
        """Collect the process; the pause grows if it did not live long. Return its pid and code."""
        assert self.process is not None and self.sock is not None
        while self.take_message():
            pass
        code, pid = self.process.wait(), self.process.pid
        if code == SIGBUS_EXIT_CODE and self.error is None:
            self.error = StorageError(
                f"{self.config.directory}: a mapped file could not be read or written"
            )
        self.let_go()
        lived = self.host.monotonic() - self.started_at
        waits = isinstance(self.error, MAY_PASS)
        if lived > RESTART_FREELY_AFTER_S and not waits:
            self.pause_s = 0.0
        else:
            self.pause_s = min(self.pause_s * 2 + (WAIT_PAUSE_S if waits else 0.05), PAUSE_S_MAX)
        self.start_at = self.host.monotonic() + self.pause_s
        self.ready.clear()
        return pid, code

    def let_go(self) -> None:
        """Close what leads to the process; it is the caller's to see that it ends."""
        sock, pidfd = self.sock, self.pidfd
        self.process, self.sock, self.pidfd = None, None, -1
        if sock is not None:
            sock.close()
        if pidfd >= 0:
            self.host.close(pidfd)

    @property
    def is_final(self) -> bool:
        """Return whether the worker must not be started again: its storage failed (D9).

        Whatever else ended it, a defect of ours included, a fresh process recovers from.
        """
        return isinstance(self.error, StorageError) and not isinstance(self.error, MAY_PASS)


class Supervisor:
    """The workers of one host. Thread-safe; ``close`` ends them."""

    # _orphans_end_at: until then a directory in use is waited for.
    # workers: by replica id. restart: whether an ended worker is started again. _started: all of
    # them came up once: until then any error of theirs is raised by ``start``.
    # _lock: held while workers are started, stopped or looked at. _ending: while they are ended.
    # _launch: of the processes that start() takes.

    def __init__(
        self,
        configs: list[NodeConfig],
        restart: bool = True,
        host: HostOfSupervisor = HOST,
        spare: SpareWorker = spare,
    ) -> None:
        self._host, self._spare = host, spare
        self.workers: dict[int, Worker] = {}
        self.keep(configs)
        self.restart = restart
        self._launch: Launch | None = None
        self._lock, self._ending = host.reentrant_lock(), host.reentrant_lock()
        self._started = self._closing = False
        self._orphans_end_at = 0.0
        with refusals():
            self._waker = host.waker()
        self._thread = host.thread(self._run, "kraftfast-supervisor")

    def keep(self, configs: list[NodeConfig]) -> None:
        """Add workers, before the start."""
        self.workers |= {config.node_id: Worker(config, self._host) for config in configs}

    def launch_ahead(self, count: int) -> None:
        """Start processes for so many workers: they import while the caller makes directories.

        Raises HostUnsupported. Where the system refuses one, start() says so.
        """
        self._host.check_tasks(count)
        with suppress(OSError):
            self._launch = self._spare.take(count)

    def start(self, timeout_s: float) -> dict[int, KraftfastError]:
        """Start every worker and wait until each has opened its log, or says why it cannot.

        Return the errors of those that cannot, by id; TimedOut: not in time. Whether the others
        are enough is for the caller to judge. Raises Closed, HostUnsupported, OutOfResources.
        """
        began = self._host.monotonic()
        self._orphans_end_at = began + ORPHAN_S_MAX
        with refusals():
            if self._launch is None:
                self._host.check_tasks(len(self.workers))
                self._launch = self._spare.take(len(self.workers))
            launched, self._launch = self._launch.take(timeout_s), None
            try:
                for worker in self.workers.values():
                    worker.start(launched.pop(0) if launched else None)
            finally:
                for each in launched:
                    each.end()
        self._thread.start()
        errors: dict[int, KraftfastError] = {}
        for id, worker in self.workers.items():
            try:
                self._wait_ready(worker, began + timeout_s)
            except Closed:
                raise
            except KraftfastError as error:
                errors[id] = error
        self._started = True
        with self._lock:
            self._wake()  # one may have ended meanwhile: it is started again now
        return errors

    def faults(self) -> dict[int, KraftfastError]:
        """Return why replicas stay down, by id: only storage that failed keeps one down."""
        with self._lock:
            return {
                id: worker.error
                for id, worker in self.workers.items()
                if worker.is_final and worker.error is not None
            }

    def restarts_text(self) -> str:
        """Return what to add to an error where workers keep ending: which, how often, and why."""
        with self._lock:
            workers = list(self.workers.items())
        text = ""
        for id, each in workers:
            error = each.error
            if error is not None and not each.is_final:
                text += f"; replica {id} is tried again: {error}"
            elif each.restarts > 1:
                text += f"; replica {id} ended {each.restarts} times, and its output says why"
        return text

    def retry(self, node_id: int, config: NodeConfig | None = None) -> None:
        """Start a worker again that stayed down: its directory is another one now."""
        with self._lock:
            self._check_open()
            worker = self.workers[node_id]
            worker.config = config or worker.config
            worker.error, worker.start_at = None, 0.0
            self._wake()

    def add(self, config: NodeConfig, timeout_s: float) -> None:
        """Add one more worker, kept alive like the others from now on.

        Raises its error if it cannot start, TimedOut, HostUnsupported, OutOfResources; then it is
        as if it had never been.
        """
        worker = Worker(config, self._host)
        with self._lock:
            self._check_open()
            try:
                with refusals():
                    worker.start()
            except BaseException:
                worker.held.release()
                raise
            self.workers[config.node_id] = worker
            self._wake()
        try:
            self._wait_ready(worker, self._host.monotonic() + timeout_s)
        except Closed:
            raise  # close() ends it
        except BaseException:
            self.remove(config.node_id, UNOPENED_S)
            raise

    def remove(self, node_id: int, timeout_s: float = 10.0) -> None:
        """Stop a worker gracefully and keep it alive no longer. Others are kept meanwhile."""
        with self._ending:
            with self._lock:
                self._check_open()
                worker = self.workers.pop(node_id)
                self._wake()
            if worker.process is not None:
                _tell_to_stop(worker, int(timeout_s * 500))
                wait_or_kill(worker, self._host.monotonic() + timeout_s)
            worker.held.release()

    def pid(self, node_id: int) -> int | None:
        """Return the process id of a worker, None while it does not run."""
        with self._lock:
            self._check_open()
            process = self.workers[node_id].process
            return process.pid if process is not None else None

    def kill(self, node_id: int, signo: int = signal.SIGKILL) -> None:
        """Send a signal to a worker; nothing if it does not run."""
        with self._lock:
            self._check_open()
            worker = self.workers.get(node_id)
            if worker is not None and worker.process is not None:
                worker.process.send_signal(signo)

    def close(self, timeout_s: float = 10.0) -> None:
        """Stop every worker gracefully; kill what is left after the timeout, or if interrupted."""
        deadline = self._host.monotonic() + timeout_s
        with self._ending:
            try:
                self._stop_starting()
                for worker in self.workers.values():
                    _tell_to_stop(worker)
                for worker in self.workers.values():
                    wait_or_kill(worker, deadline)
            finally:
                self._closing = True
                with self._lock:
                    for worker in self.workers.values():
                        kill(worker)
                        worker.held.release()
                    if self._launch is not None:
                        self._launch.end()
                    self._waker.close()

    def _stop_starting(self) -> None:
        with self._lock:
            if not self._closing:
                self._closing = True
                self._wake()
        if self._thread.ident is not None:
            self._thread.join()

    def disown(self) -> None:
        """Leave the workers to the parent, in a forked child. Nothing is sent to them."""
        self._closing = True
        for worker in self.workers.values():
            worker.let_go()
            worker.held.release()
        self._waker.close()

    def _check_open(self) -> None:
        if self._closing:
            raise Closed("the quorum is closed")

    def _wake(self) -> None:
        """Let the thread look at all workers again; _lock is held, so the waker is open."""
        self._waker.ring()

    def _wait_ready(self, worker: Worker, deadline: float) -> None:
        """Wait until it has opened its log. Raises its error, TimedOut, Closed."""
        while True:
            ready = worker.ready.wait(0.05)
            if worker.error is not None and not self._is_orphaned(worker):
                raise worker.error
            if ready and worker.error is None:
                return
            self._check_open()
            if self._host.monotonic() >= deadline:
                raise TimedOut(f"replica {worker.config.node_id} did not start in time")
            if ready:
                self._host.sleep(0.05)  # it said why it cannot, and has not ended yet

    def _is_orphaned(self, worker: Worker) -> bool:
        """Return whether its directory may still be held by a worker without its supervisor."""
        in_use = isinstance(worker.error, DirectoryInUse)
        return self.restart and in_use and self._host.monotonic() < self._orphans_end_at

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._lock:
                if self._closing:
                    return
                timeout_s = self._start_due()
                poll = self._host.poll()
                sources: dict[int, tuple[Worker, Callable[[], object]]] = {}
                poll.register(self._waker.fileno(), select.POLLIN)
                for worker in self.workers.values():
                    if worker.process is None or worker.sock is None:
                        continue
                    sources[worker.pidfd] = worker, partial(self._ended, worker)
                    if not worker.deaf:
                        sources[worker.sock.fileno()] = worker, worker.take_message
                for fd in sources:
                    poll.register(fd, select.POLLIN)
            ready = poll.poll(None if timeout_s is None else timeout_s * 1000)
            with self._lock:
                if self._closing:
                    return
                for fd, _ in ready:
                    if fd == self._waker.fileno():
                        self._waker.clear()
                    else:
                        self._take(*sources[fd])

    def _take(self, worker: Worker, take: Callable[[], object]) -> None:
        """Take what came from a worker, unless :meth:`remove` waits for its end."""
        if self.workers.get(worker.config.node_id) is worker and worker.process is not None:
            take()

    def _ended(self, worker: Worker) -> None:
        """Collect a process that has ended, and tell why."""
        pid, code = worker.ended()
        if worker.error is None:
            self._host.tell("worker_ended", worker.config.node_id, pid=pid, code=code)
        elif worker.opened or worker.restarts > 0:  # else who starts them all tells it
            self.tell_error(worker.config.node_id)

    def tell_error(self, node_id: int, late: KraftfastError | None = None) -> None:
        """Tell once why a worker does not run, until it has run again.

        ``late``: what a start raised that it has not answered; it may have come since. It is also
        why there is no such worker.
        """
        worker = self.workers.get(node_id)
        if worker is None:
            self._host.tell("replica_not_added", why=late)
            return
        error = worker.error or (None if worker.opened else late)
        if error is None or str(error) == worker.told:
            return
        worker.told = str(error)
        if not worker.is_final:
            self._host.tell("worker_waits", node_id, why=error)
            return
        advice, place = "", worker.config.directory
        few = 2 * sum(each.is_final for each in self.workers.values()) < len(self.workers)
        if os.strerror(errno.EACCES) in worker.told:
            advice = "; change its owner or its permissions"
        elif few and not isinstance(worker.error, errors.DirectoryMoved):  # it has all, elsewhere
            import shlex

            advice = f"; kraftfast storage replace {shlex.quote(place)} rebuilds it from the others"
        self._host.tell("replica_down", node_id, why=error, advice=advice)

    def _start_due(self) -> float | None:
        """Start workers whose pause is over; how long until the next one is due."""
        if not self.restart:
            return None
        due = None
        now = self._host.monotonic()
        for worker in self.workers.values():
            failed = worker.error is not None and not self._is_orphaned(worker)
            if self._started:
                failed = worker.is_final
            if worker.process is not None or failed:
                continue
            if now >= worker.start_at:
                try:
                    worker.start()
                    continue
                except OSError as error:
                    why = error.strerror or error
                    self._host.tell("worker_waits", worker.config.node_id, why=why)
            left = max(0.0, worker.start_at - now)
            due = left if due is None else min(due, left)
        return due


def _tell_to_stop(worker: Worker, handover_ms: int = HANDOVER_MS) -> None:
    """Tell it to stop; where the whole quorum ends, do not try for long to hand over."""
    try:
        if worker.sock is not None:
            worker.sock.send(msgspec.json.encode({"stop": handover_ms}), socket.MSG_NOSIGNAL)
    except OSError:
        pass  # it is gone
