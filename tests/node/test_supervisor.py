"""Which ends of a worker are final: those of its storage alone (D9)."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest

from kraftfast.errors import (
    ForeignDirectory,
    HostUnsupported,
    OutOfResources,
    StorageError,
)
from kraftfast.node.local_host import KernelProcess
from kraftfast.node.node_config import NodeConfig, VoterConfig
from kraftfast.node.processes import supervisor, worker
from kraftfast.node.processes.launching import Launch, Sibling
from kraftfast.node.processes.line import show_as_text
from kraftfast.node.processes.supervisor import Supervisor
from kraftfast.node.processes.telling import tell
from kraftfast.node.storage.held_directory import HeldDirectory
from kraftfast.node.storage.local_layout import format_quorum
from kraftfast.quorum import LocalQuorum
from tests.node.inside import SMALL
from tests.node.kit import TIMEOUT_S

WORKER = """\
    #!{python}
    import json, pathlib, socket, sys, time

    count = pathlib.Path({count!r})
    number = int(count.read_text()) if count.exists() else 0
    count.write_text(str(number + 1))
    sock = socket.socket(fileno=int(sys.argv[-1]))
    sock.recv(1 << 20)
    if number == 0:
        sock.send(json.dumps({{"ready": True}}).encode())
        while not pathlib.Path({go!r}).exists():
            time.sleep(0.01)
        sock.send(json.dumps({{"error": "it is so", "type": {kind!r}}}).encode())
        sys.exit(1)
    sock.send(json.dumps({{"ready": True}}).encode())
    while sock.recv(1 << 20) not in (b"", b'{{"stop":50}}'):
        pass
"""


def a_supervisor(path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> Supervisor:
    """One worker that fails with ``kind`` after its first start, and only then."""
    script = path / "worker"
    text = textwrap.dedent(WORKER)
    places = {"count": str(path / "count"), "go": str(path / "go")}
    script.write_text(text.format(python=sys.executable, kind=kind, **places))
    script.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(script))
    return Supervisor([NodeConfig(directory=str(path), node_id=1, voters=())])


def look(worker: supervisor.Worker, restarted: bool) -> bool:
    return worker.restarts == 1 and worker.ready.is_set() if restarted else worker.is_final


@pytest.mark.parametrize(
    ("kind", "restarted"),
    [
        ("UnencodableMessage", True),
        ("MalformedFrame", True),
        ("InvalidOption", True),
        ("KraftfastError", True),
        ("RecordTooLarge", True),
        ("DiskFull", True),
        ("OutOfResources", True),
        ("DirectoryInUse", True),
        ("CannotListen", True),
        ("StorageError", False),
        ("FlushFailed", False),
        ("CorruptLog", False),
        ("ForeignDirectory", False),
    ],
)
def test_only_storage_errors_are_final(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, restarted: bool
) -> None:
    monkeypatch.setattr(supervisor, "WAIT_PAUSE_S", 0.01)
    workers = a_supervisor(tmp_path, monkeypatch, kind)
    try:
        workers.start(TIMEOUT_S)
        (tmp_path / "go").touch()
        worker = workers.workers[1]
        deadline = time.monotonic() + TIMEOUT_S
        while not look(worker, restarted) or (worker.process is None) == restarted:
            assert time.monotonic() < deadline, (worker.restarts, worker.error)
            time.sleep(0.01)
        assert isinstance(worker.error, StorageError) != restarted
    finally:
        workers.close(1.0)


def test_a_stderr_that_nobody_reads_holds_up_no_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line about a worker that cannot be started is dropped; it is tried again later."""

    def refuse() -> None:
        raise OSError("no processes left")

    found = a_supervisor(tmp_path, monkeypatch, "KraftfastError")
    monkeypatch.setattr(found.workers[1], "start", refuse)
    monkeypatch.setattr(tell, "show", show_as_text)
    reader, writer = os.pipe()
    with open(writer, "w") as stderr, open(reader, "rb"):
        os.set_blocking(writer, False)
        try:
            while os.write(writer, bytes(4096)):
                pass
        except BlockingIOError:
            os.set_blocking(writer, True)
        monkeypatch.setattr(sys, "stderr", stderr)
        thread = threading.Thread(target=found._start_due, daemon=True)
        thread.start()
        thread.join(5)
        held_up = thread.is_alive()  # until the pipe is closed
    found.close()
    assert not held_up


def test_a_supervisor_that_ends_before_its_worker_is_ready_is_no_defect(tmp_path: Path) -> None:
    """The worker ends too, as an orphan does: with no message, and no traceback."""
    format_quorum(str(tmp_path / "q"), 1)
    voters = [VoterConfig(1, "127.0.0.1", 9)]
    config = NodeConfig(node_id=1, directory=str(tmp_path / "q" / "1"), voters=voters, **SMALL)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        command = [sys.executable, "-m", "kraftfast.node.processes.worker", str(theirs.fileno())]
        ended = subprocess.Popen(command, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE)
        ours.send(msgspec.json.encode(config))
    _, told = ended.communicate(timeout=TIMEOUT_S)
    assert (ended.returncode, told) == (0, b"")


def test_a_worker_that_is_told_no_configuration_says_so() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            command = [sys.executable, "-m", "kraftfast.node.processes.worker"]
            fd = theirs.fileno()
            ended = subprocess.Popen([*command, str(fd)], pass_fds=[fd], stderr=subprocess.PIPE)
        ours.send(b'{"stop":50}')
        ours.settimeout(TIMEOUT_S)
        event, error = (msgspec.json.decode(ours.recv(1 << 16)) for _ in range(2))
        _, told = ended.communicate(timeout=TIMEOUT_S)
    assert (ended.returncode, told) == (1, b"")
    assert event["told"]["event"] == "defect"
    assert error["error"].startswith("a defect: ValidationError: ")


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread")])
def test_a_worker_without_memory_is_no_defect(error: Exception) -> None:
    """It told one, with a traceback, at each attempt; and it ends at once all the same."""
    ended = []

    class Short(KernelProcess):
        def node(self, *_asked: Any) -> Any:
            raise error

        def ignore_terminal(self) -> None:
            """That would be for all tests."""

        def exit_at_once(self, code: int) -> NoReturn:
            ended.append(code)
            raise SystemExit(code)

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    config = NodeConfig(node_id=1, directory="q/1", voters=[VoterConfig(1, "127.0.0.1", 9)])
    with ours, theirs:
        ours.send(msgspec.json.encode(config))
        with pytest.raises(SystemExit):
            worker.serve(theirs, Short())
        told = msgspec.json.decode(ours.recv(1 << 16))
    assert told["type"] == "OutOfResources" and "ulimit -v" in told["error"]
    assert ended == [told["exit_code"]] == [OutOfResources.exit_code]


def children() -> set[str]:
    found = set()
    for each in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            _state, parent, *_ = each.read_text().rpartition(")")[2].split()
            if int(parent) == os.getpid():
                found.add(each.parent.name)
    return found


def test_a_quorum_that_cannot_be_made_leaves_no_process(tmp_path: Path) -> None:
    """Its workers were launched before its directories were looked at."""
    format_quorum(str(tmp_path / "q"), 1)
    (tmp_path / "q" / "quorum.json").unlink()
    before = children()
    with pytest.raises(ForeignDirectory):
        LocalQuorum(tmp_path / "q", 3)
    assert children() <= before


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupted_start_does_not_wait_for_workers_that_hear_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupt: type[BaseException]
) -> None:
    """They prepare gigabytes, say. Nobody has the quorum, and a kill loses nothing."""
    before, start = children(), Supervisor.start

    def interrupted(self: Supervisor, timeout_s: float) -> object:
        start(self, timeout_s)
        for id in self.workers:
            self.kill(id, signal.SIGSTOP)
        raise interrupt

    monkeypatch.setattr(Supervisor, "start", interrupted)
    began = time.monotonic()
    with pytest.raises(interrupt):
        LocalQuorum(tmp_path / "q", 1, **SMALL)
    assert children() <= before and time.monotonic() - began < 8, "it is given 10 s at other ends"


def parent_and_group(pid: int) -> tuple[int, int]:
    text = Path(f"/proc/{pid}/stat").read_text()
    _state, parent, group, *_ = text.rpartition(")")[2].split()
    return int(parent), int(group)


def test_one_interpreter_imports_for_all_workers(tmp_path: Path) -> None:
    """The others are its siblings: children of this program, whose ends are waited for here."""
    before = children()
    with LocalQuorum(tmp_path / "q", 3, **SMALL) as quorum:
        workers = quorum.supervisor.workers
        kinds = {type(worker.process).__name__ for worker in workers.values()}
        assert kinds == {"Popen", "Sibling"}
        for id in workers:
            pid = quorum.supervisor.pid(id)
            assert pid is not None and parent_and_group(pid) == (os.getpid(), pid)
        process = next(each.process for each in workers.values() if type(each.process) is Sibling)
        process.kill()
        assert process.wait(TIMEOUT_S) == process.poll() == -signal.SIGKILL
        process.kill()  # nothing: it has ended
        quorum.wait_leader(TIMEOUT_S)
    assert children() <= before


def test_an_interpreter_with_another_thread_forks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fork would lose that thread, and what it holds: each worker gets one of its own."""
    (tmp_path / "sitecustomize.py").write_text(
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with LocalQuorum(tmp_path / "q", 3, **SMALL) as quorum:
        workers = quorum.supervisor.workers.values()
        assert {type(worker.process) for worker in workers} == {subprocess.Popen}


def test_what_was_launched_and_is_not_wanted_leaves_no_process(tmp_path: Path) -> None:
    before = children()
    launch = Launch(3)
    assert select.select([launch.first.sock], [], [], TIMEOUT_S)[0]  # the siblings are there
    launch.end()
    Launch(3).end()
    assert children() <= before


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_process_that_cannot_be_watched_leaves_no_zombie(
    monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """The descriptors were used up when one of the processes came to be watched."""
    before, opened, real = children(), [], os.pidfd_open

    def open_pidfd(pid: int) -> int:
        opened.append(pid)
        if len(opened) == failing + 1:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(pid)

    monkeypatch.setattr(os, "pidfd_open", open_pidfd)
    if failing == 0:
        with pytest.raises(OSError):
            Launch(3)
        assert children() <= before
        return
    taken = Launch(3).take(TIMEOUT_S)
    assert [each.process.pid for each in taken] == [
        pid for number, pid in enumerate(opened) if number != failing
    ]
    assert str(opened[failing]) not in children()
    for each in taken:
        each.end()
    assert children() <= before


def test_a_configuration_that_is_too_long_to_be_told_ends_its_worker(tmp_path: Path) -> None:
    """It would wait for ever, and be taken for one that has ended."""
    format_quorum(str(tmp_path / "q"), 1)
    before = children()
    place, long = str(tmp_path / "q" / "1"), "x" * (8 << 20)
    config = NodeConfig(directory=place, node_id=1, voters=(), state_machine=long)
    made = Supervisor([config])
    with pytest.raises(HostUnsupported, match="Message too long"):
        made.start(TIMEOUT_S)
    assert children() <= before and made.workers[1].process is None
    made.close()


@pytest.mark.parametrize(
    ("code", "kind"), [(errno.EMFILE, OutOfResources), (errno.EACCES, HostUnsupported)]
)
def test_a_process_that_the_system_refuses_is_a_typed_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[Exception]
) -> None:
    """A program that catches KraftfastError goes on; what was there stays as it was."""

    def refuse(*_: object) -> Launch:
        raise OSError(code, os.strerror(code))

    with LocalQuorum(tmp_path / "q", 1, **SMALL) as quorum:
        monkeypatch.setattr(supervisor, "Launch", refuse)
        monkeypatch.setattr(supervisor.spare, "take", refuse)
        with pytest.raises(kind, match=os.strerror(code)):
            quorum.add_replica()
        assert list(quorum.directories) == list(quorum.supervisor.workers) == [1]
        with pytest.raises(kind, match=os.strerror(code)):
            LocalQuorum(tmp_path / "other", 1, **SMALL)
        monkeypatch.setattr(os, "eventfd", refuse)
        with pytest.raises(kind, match=os.strerror(code)):
            Supervisor([])
        monkeypatch.undo()
        assert quorum.add_replica(2) == 2


def test_a_worker_that_says_nothing_yet_is_listened_to_later(tmp_path: Path) -> None:
    """The kernel may report a socket as readable that then has nothing to read."""
    worker = supervisor.Worker(NodeConfig(directory=str(tmp_path), node_id=1, voters=()))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        worker.sock = ours
        assert not worker.take_message()
        assert not worker.deaf
        theirs.send(msgspec.json.encode({"ready": True}))
        assert worker.take_message()
        assert worker.ready.is_set()
        theirs.close()
        assert not worker.take_message()
        assert worker.deaf


def test_what_came_from_one_that_is_removed_is_left_to_who_removes_it() -> None:
    """Both would close its descriptors, of which one may be another file's by then."""
    found, taken = Supervisor([NodeConfig(1, "one", [])]), []
    worker = found.workers[1]
    worker.process = Sibling(os.getpid())
    for expected in ([1], [1]):
        found._take(worker, lambda: taken.append(1))
        assert taken == expected
        found.workers.pop(1, None)
    found.close()


def test_one_that_cannot_be_added_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its directory was held as long as the caller kept the error: a second try was refused."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    found = Supervisor([])
    monkeypatch.setattr(supervisor, "Launch", refuse)
    with pytest.raises(OutOfResources) as told:
        found.add(NodeConfig(1, str(tmp_path), []), TIMEOUT_S)
    HeldDirectory().take(str(tmp_path)).release()
    assert told.value.__traceback__ is not None and not found.workers
    found.close()


def test_a_signal_for_one_that_is_being_added_or_removed_goes_to_nobody() -> None:
    """A program names it as soon as its directory is there; its worker comes and goes later."""
    supervisor = Supervisor([])
    supervisor.kill(1)
    supervisor.close()
