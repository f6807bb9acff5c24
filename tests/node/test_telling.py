"""Events on their way: nothing waits for their reader, and ``logging`` has them with all fields."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kraftfast.errors import FlushFailed
from kraftfast.node.event_log import Entry, entry_now
from kraftfast.node.local_host import KernelProcess
from kraftfast.node.processes import telling, worker
from kraftfast.node.processes.line import UNREAD_BYTES_MAX, ToSupervisor, show_as, write_line
from kraftfast.node.processes.supervisor import READY_BYTES_MAX
from kraftfast.node.processes.telling import WAITING_MAX, Telling, log
from kraftfast.quorum import LocalQuorum
from tests.node.inside import SMALL
from tests.node.kit import TIMEOUT_S

INFO = entry_now("disk_has_room", 3)
WARNING = entry_now("slow_flush", 3, duration_ms=812)


def wait_until(is_so: Any) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.01)


def test_a_program_without_stderr_has_no_line_on_its_stdout(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python sets it to None where the descriptor is closed, as pythonw and daemons do."""
    monkeypatch.setattr(sys, "stderr", None)
    write_line("a replica is down")
    assert capsys.readouterr().out == ""


# --- out of a worker ------------------------------------------------------------------------------


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


def received(sock: socket.socket) -> list[Entry]:
    found = []
    with contextlib.suppress(BlockingIOError):
        while True:
            answer = msgspec.json.decode(sock.recv(1 << 16, socket.MSG_DONTWAIT))
            found.append(msgspec.convert(answer["told"], Entry))
    return found


def test_a_supervisor_that_hangs_holds_up_no_worker(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    """And there is still room for why the worker ends, by which the supervisor judges (D9)."""
    ours, theirs = pair
    show = ToSupervisor(theirs, KernelProcess())
    for _ in range(5000):
        show(WARNING)
    assert show.left_out > 4000
    assert theirs.send(bytes(UNREAD_BYTES_MAX // 4), socket.MSG_DONTWAIT)
    taken = 0
    while ours.recv(1 << 16, socket.MSG_DONTWAIT)[:1] == b"{":
        taken += 1
    show(INFO)
    first, second = received(ours)
    assert first.message == f"and {5000 - taken} more of events were left out"
    assert second == INFO and show.left_out == 0


def test_a_supervisor_that_is_gone_leaves_warnings_to_stderr(
    pair: tuple[socket.socket, socket.socket], capfd: pytest.CaptureFixture[str]
) -> None:
    ours, theirs = pair
    ours.close()
    show = ToSupervisor(theirs, KernelProcess())
    show(INFO)
    show(WARNING)
    (line,) = capfd.readouterr().err.splitlines()
    assert "WARNING kraftfast replica 3: slow_flush: a flush of the log took 812 ms" in line


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_stderr_that_nobody_reads_is_not_waited_for(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(writer, bytes(4096)):
            pass
    os.set_blocking(writer, True)
    with open(writer, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        thread = threading.Thread(target=show_as(form), args=(WARNING,), daemon=True)
        thread.start()
        thread.join(TIMEOUT_S)
        held_up = thread.is_alive()
        os.close(reader)
    assert not held_up


# --- into logging ---------------------------------------------------------------------------------


class Kept(logging.Handler):
    """Keeps records; waits in each while ``held`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.free = threading.Event()
        self.free.set()

    def emit(self, record: logging.LogRecord) -> None:
        self.free.wait(TIMEOUT_S)
        self.records.append(record)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> logging.Logger:
    """The logger of a program that has set up no handler; those of pytest are out of its reach."""
    logger = logging.getLogger("kraftfast")
    monkeypatch.setattr(logger, "propagate", False)
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "level", logging.NOTSET)
    monkeypatch.setattr(telling, "_own", [])
    return logger


@pytest.fixture
def kept(alone: logging.Logger) -> Iterator[Kept]:
    handler = Kept()
    alone.addHandler(handler)
    alone.setLevel(logging.INFO)
    yield handler
    alone.setLevel(logging.NOTSET)


def test_a_record_has_the_fields_of_its_event(kept: Kept) -> None:
    log(WARNING)
    log(INFO)
    first, second = kept.records
    assert (first.name, first.levelno, second.levelno) == ("kraftfast.log", 30, 20)
    assert first.getMessage() == "a flush of the log took 812 ms"
    found = vars(first)
    assert (found["event"], found["node_id"], found["duration_ms"]) == ("slow_flush", 3, 812)
    assert first.created == WARNING.time_ms / 1000


def test_a_level_is_obeyed(kept: Kept, alone: logging.Logger) -> None:
    alone.setLevel(logging.ERROR)
    log(WARNING)
    assert kept.records == []


def test_without_a_handler_warnings_are_on_stderr(
    alone: logging.Logger, capfd: pytest.CaptureFixture[str]
) -> None:
    """By one line each, not by two: ours is there, so that ``logging`` prints nothing itself."""
    alone.handlers.clear()  # pytest has added its own
    log(WARNING)
    log(INFO)
    (line,) = capfd.readouterr().err.splitlines()
    assert "slow_flush" in line
    assert [type(each) for each in alone.handlers] == [logging.NullHandler]
    alone.addHandler(logging.NullHandler())  # the program's: it wants silence
    log(WARNING)
    assert capfd.readouterr().err == ""


def test_a_handler_that_waits_holds_up_nobody(kept: Kept) -> None:
    tell = Telling()
    kept.free.clear()
    for _ in range(2 * WAITING_MAX):
        tell.tell(WARNING)  # would wait for ever
    tell.flush(0.01)
    kept.free.set()
    wait_until(lambda: len(kept.records) >= WAITING_MAX)
    tell.tell(WARNING)
    tell.flush(TIMEOUT_S)
    messages = [each.getMessage() for each in kept.records]
    left_out = sum(int(each.split()[1]) for each in messages if "left out" in each)
    logged = messages.count("a flush of the log took 812 ms")
    assert left_out > 0 and logged + left_out == 2 * WAITING_MAX + 1


def test_a_filter_that_raises_ends_no_thread(kept: Kept, capfd: pytest.CaptureFixture[str]) -> None:
    def refuse(_record: logging.LogRecord) -> bool:
        raise ValueError("the program's")

    tell = Telling()
    kept.addFilter(refuse)
    tell.tell(WARNING)
    tell.flush(TIMEOUT_S)
    assert "slow_flush" in capfd.readouterr().err
    kept.removeFilter(refuse)
    tell.tell(WARNING)
    tell.flush(TIMEOUT_S)
    assert len(kept.records) == 1


@pytest.mark.parametrize(("events", "unlogged"), [(5, 5), (2 * WAITING_MAX, 2 * WAITING_MAX)])
def test_what_is_not_logged_in_time_is_counted_on_stderr(
    kept: Kept, capfd: pytest.CaptureFixture[str], events: int, unlogged: int
) -> None:
    """A program that ends then loses it; what was left out before is among it."""
    tell = Telling()
    kept.free.clear()
    for _ in range(events):
        tell.tell(WARNING)
    tell.flush(0.01)
    kept.free.set()
    (line,) = capfd.readouterr().err.splitlines()
    assert f"logging_behind: {unlogged} events are not logged yet" in line
    tell.flush(TIMEOUT_S)
    assert capfd.readouterr().err == ""


def test_what_was_left_out_is_logged_before_the_end(kept: Kept) -> None:
    """It was told with the next event alone."""
    tell = Telling()
    kept.free.clear()
    for _ in range(2 * WAITING_MAX):
        tell.tell(WARNING)
    kept.free.set()
    tell.flush(TIMEOUT_S)
    messages = [each.getMessage() for each in kept.records]
    left_out = [int(each.split()[1]) for each in messages if "left out" in each]
    assert sum(left_out) + len(messages) - len(left_out) == 2 * WAITING_MAX
    assert "left out" in messages[-1]


class Failing(logging.Handler):
    """Raises what it is given, and nothing once that is None."""

    def __init__(self, error: BaseException | None) -> None:
        super().__init__()
        self.error = error

    def emit(self, record: logging.LogRecord) -> None:
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), ValueError("no\nroom")]
)
def test_a_handler_that_fails_ends_no_thread_and_hides_no_event(
    alone: logging.Logger, capfd: pytest.CaptureFixture[str], error: BaseException
) -> None:
    """After a SystemExit nothing was logged for ever; of a ValueError nobody learnt why."""
    tell, failing, kept = Telling(), Failing(error), Kept()
    alone.addHandler(failing)
    alone.addHandler(kept)
    for _ in range(2):
        tell.tell(WARNING)
    tell.flush(TIMEOUT_S)
    first, why, second = capfd.readouterr().err.splitlines()
    assert "slow_flush: a flush of the log took 812 ms" in first and "slow_flush" in second
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    assert f"logging_failed: a handler of logging raised {reason} -> " in why
    failing.error = None
    tell.tell(WARNING)
    tell.flush(TIMEOUT_S)
    assert len(kept.records) == 1 and capfd.readouterr().err == ""


def test_a_stderr_that_raises_ends_no_thread(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def write(self, _text: str) -> int:
            raise RuntimeError("the program's")

    tell, failing = Telling(), Failing(ValueError())
    logging.getLogger("kraftfast").handlers.insert(0, failing)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", Broken())
        tell.tell(WARNING)
        tell.flush(TIMEOUT_S)
    failing.error = None
    tell.tell(WARNING)
    tell.flush(TIMEOUT_S)
    assert len(kept.records) == 1


def test_a_forked_child_tells_by_a_thread_of_its_own(kept: Kept) -> None:
    tell = Telling()
    tell.tell(WARNING)
    tell.flush(TIMEOUT_S)
    if (pid := os.fork()) == 0:
        code = 1
        with contextlib.suppress(BaseException):
            tell.tell(INFO)
            tell.flush(TIMEOUT_S)
            code = len(kept.records) != 2
        os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.processes
def test_events_of_workers_reach_the_program(tmp_path: Path, kept: Kept) -> None:
    """Those of other processes, with their fields; and what their supervisor sees of them."""

    def seen(event: str, **fields: Any) -> list[dict[str, Any]]:
        found = [vars(each) for each in kept.records if vars(each)["event"] == event]
        return [each for each in found if all(each[name] == fields[name] for name in fields)]

    with LocalQuorum(tmp_path / "q", voters=3, **SMALL) as quorum:
        leader = quorum.wait_leader()
        wait_until(lambda: seen("leader_elected", node_id=leader))
        wait_until(lambda: len(seen("leader_followed", leader_id=leader)) == 2)
        (elected,) = seen("leader_elected")
        assert elected["name"] == "kraftfast.core" and elected["epoch"] >= 1
        pid = quorum.supervisor.pid(leader)
        quorum.kill(leader, signal.SIGKILL)
        wait_until(lambda: seen("worker_ended", node_id=leader, code=-9, pid=pid))
        wait_until(lambda: seen("worker_restarted", node_id=leader))
        wait_until(lambda: len(seen("leader_elected")) == 2)
        wait_until(lambda: seen("leader_lost", lost_id=leader))
    assert {each["node_id"] for each in seen("replica_stopped")} == {1, 2, 3}


@pytest.mark.processes
def test_a_dead_leader_is_neither_shown_nor_told_again(tmp_path: Path, kept: Kept) -> None:
    """The one voter that is left follows it again after each pre-vote that it loses."""
    with LocalQuorum(tmp_path / "q", voters=3, fetch_timeout_ms=400, **SMALL) as quorum:
        leader = quorum.wait_leader()
        left, other = {1, 2, 3} - {leader}

        def shown() -> tuple[int, int]:
            status = quorum.status(left)
            raft = status["metrics"]["kafka.server:type=raft-metrics"]
            return status["leader_id"], raft["current-leader"]

        wait_until(lambda: shown() == (leader, leader))
        for id in (leader, other):
            quorum.kill(id, signal.SIGSTOP)
        wait_until(lambda: shown() == (-1, -1))
        roles, until = [""], time.monotonic() + TIMEOUT_S
        while roles[-2:] != ["follower", "prospective"] and time.monotonic() < until:
            role = quorum.status(left)["role"]
            roles += [role] if role != roles[-1] else []
            assert shown() == (-1, -1)
        events = [vars(each)["event"] for each in kept.records if vars(each)["node_id"] == left]
        assert roles[-2:] == ["follower", "prospective"] and events[-1] == "election_begun"
        assert events.count("election_begun") == events.count("leader_lost") == 1
        for id in (leader, other):
            quorum.kill(id, signal.SIGCONT)
        wait_until(lambda: shown()[0] >= 0)


@pytest.mark.parametrize("each", ["x", "\U0001f600", "\ud800", "\x01"])
def test_why_a_worker_ends_reaches_its_supervisor_however_long(each: str) -> None:
    """D9: by it the supervisor knows that the worker must not be started again."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        assert (
            worker._failed(ours, KernelProcess(), FlushFailed(each * 999_999))
            == FlushFailed.exit_code
        )
        found = msgspec.json.decode(theirs.recv(READY_BYTES_MAX))
    assert found["type"] == "FlushFailed" and found["error"]
