"""What a host lacks: ``kraftfast doctor`` says it, and a quorum is refused in one plain line."""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kraftfast
from kraftfast.doctor import extras, findings, host_facts, interpreter, storage
from kraftfast.doctor.findings import MISSING, NOTE, OK, Fact, examine
from kraftfast.errors import HostUnsupported
from kraftfast.link import cgroup, kernel_check
from kraftfast.node.processes.tuning import Tuning
from tests.cli.forbidding import NUMBERS
from tests.cli.kit import command, environment
from tests.cli.logs import Done
from tests.log.test_out_of_resources import no_descriptors

HERE = Path(__file__).parent
JAVA = extras.java
QUORUM = """
import sys, kraftfast
settings = {"segment_bytes": 8 << 20, "stride_bytes": 1 << 20, "prepare_bytes": 65536}
try:
    with kraftfast.LocalQuorum(sys.argv[1], voters=1, timeout=20, **settings) as quorum:
        with quorum.producer() as producer:
            print(producer.append_wait(b"x", timeout=10) > 0)
except kraftfast.KraftfastError as error:
    print(type(error).__name__, error)
"""


def restricted(tmp_path: Path, *prefix: str, limit: Any = None) -> str:
    """Append a record to a quorum of one in a restricted process; return what it printed."""
    done = subprocess.run(
        [sys.executable, *prefix, "-c", QUORUM, str(tmp_path / "quorum")],
        capture_output=True, text=True, timeout=60, env=environment(), preexec_fn=limit,
    )  # fmt: skip
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert done.stdout.count("\n") == 1 and done.stderr.count("\n") <= 1, done
    return done.stdout


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """A virtual machine for Java takes longer to start than all else here."""
    monkeypatch.setattr(extras, "java", lambda: Fact("Java", OK, "openjdk 17"))


@pytest.mark.parametrize(
    ("script", "state", "text"),
    [
        ("echo 'openjdk 17' >&2", OK, "openjdk 17"),
        ("echo 'Error: no VM' >&2; exit 2", NOTE, "does not run: Error: no VM"),
        ("exit 2", NOTE, "does not run: it ends with 2"),
        ("kill -9 $$", NOTE, "does not run: it ends with -9"),
    ],
)
def test_a_java_that_does_not_run_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, state: str, text: str
) -> None:
    """Its complaint was shown as a version that is ok."""
    command = tmp_path / "bin" / "java"
    command.parent.mkdir()
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = JAVA()
    assert found.state == state and found.text.endswith(text)
    assert bool(found.hint) == (state == NOTE)


def test_all_is_said_at_once(kraftfast: Callable[..., Done], tmp_path: Path) -> None:
    done = kraftfast("doctor", "--dir", tmp_path / "not" / "there")
    assert done.code == 0 and done.out.endswith("kraftfast works here\n")
    lines = done.out.splitlines()[:-1]
    assert all(line.split()[0] in findings.STATES for line in lines)
    topics = {line[8:].partition(":")[0] for line in lines}
    assert topics >= {
        "Python", "kraftfast", "compiled modules", "packages", "C library", "kernel",
        "memfd_create", "pidfd_open", "eventfd", "SCM_RIGHTS", "open files", "locked memory",
        "/dev/shm", "processors", "memory", "directory", "file system", "fallocate", "mmap",
        "fdatasync", "free space", "TCP", "UNIX sockets", "pyspark", "Java",
    }  # fmt: skip
    assert os.listdir(tmp_path) == []


def test_it_is_there_for_programs(kraftfast: Callable[..., Done], tmp_path: Path) -> None:
    done = kraftfast("doctor", "--json", "--dir", tmp_path)
    report = json.loads(done.out)
    assert done.code == 0 and report["works"] is True
    by_topic = {each["topic"]: each for each in report["findings"]}
    assert by_topic["fdatasync"]["value"] > 0 and by_topic["free space"]["value"] > 0
    assert {each["state"] for each in report["findings"]} <= {"ok", "note"}


def test_what_is_missing_has_an_exit_code(
    kraftfast: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    probe = kernel_check.KernelProbe("pidfd_open", "noticing that a process ended", (5, 3), refused)
    monkeypatch.setattr(host_facts, "PROBES", [probe])
    done = kraftfast("doctor")
    assert done.code == HostUnsupported.exit_code and "missing here: pidfd_open" in done.err
    assert "MISSING pidfd_open: Operation not permitted (noticing" in done.out
    done = kraftfast("doctor", "--json")
    assert done.code == 6 and json.loads(done.out)["works"] is False


def test_a_look_that_fails_keeps_no_other_from_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(host_facts, "libc", broken)
    found = {each.topic: each for each in examine()}
    assert found["C library"].state == MISSING and "planted" in found["C library"].text
    assert found["mmap"].state == OK


def test_a_store_that_finds_no_block_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through a map it would be a SIGBUS, which ends the command without a word."""

    def full(_fd: int, _offset: int, _size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    found = {each.topic: each for each in examine(str(tmp_path))}
    assert (found["mmap"].state, found["mmap"].text) == (MISSING, "No space left on device")
    assert found["mmap"].hint.startswith("free some space")
    assert os.listdir(tmp_path) == []


def test_what_takes_less_space_is_a_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    little = SimpleNamespace(f_bavail=storage.SPACE_WANTED // 8192, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda _: little)
    (found,) = storage._space(str(tmp_path))
    assert found.state == NOTE
    asked = re.search(r"(\w+)=(\d+) << (\d+) takes less", found.hint)
    assert asked is not None
    assert getattr(Tuning(**{asked[1]: int(asked[2]) << int(asked[3])}), asked[1]) > 0


@pytest.mark.parametrize(
    "code, kernel, said",
    [
        (errno.ENOSYS, (4, 19), "Linux 4.19 is too old: use 5.1 or later"),
        (errno.ENOSYS, (6, 1), "a seccomp profile, a sandbox or an emulated kernel forbids it"),
        (errno.EMFILE, (6, 1), "raise the limit of open files (ulimit -n 1024)"),
        (errno.ENOMEM, (6, 1), "raise the memory limit"),
    ],
)
def test_each_refusal_names_a_way_on(
    code: int, kernel: tuple[int, int], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(kernel_check, "PROBES", [kernel_check.PROBES[0]._replace(run=refused)])
    monkeypatch.setattr(kernel_check, "kernel_version", lambda: kernel)
    with pytest.raises(HostUnsupported) as caught:
        kernel_check.check_host()
    assert str(caught.value).startswith("memfd_create (rings") and said in str(caught.value)


def test_other_pythons_and_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 4, "final", 0))
    assert next(interpreter.python()).state == MISSING
    monkeypatch.setattr(sys, "version_info", (3, 15, 0, "final", 0))
    assert next(interpreter.python()).state == NOTE
    monkeypatch.setattr("platform.libc_ver", lambda: ("", ""))
    (found,) = host_facts.libc()
    assert found.state == NOTE and "glibc only" in found.hint


def test_compiled_modules_that_do_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "_folder", lambda: tmp_path)
    assert [(each.state, each.value) for each in interpreter.modules()] == [(MISSING, 0)]
    (tmp_path / "ring.cpython-39-x86_64-linux-gnu.so").write_bytes(b"")
    (found,) = interpreter.modules()
    assert found.state == MISSING and "cpython-39" in found.text
    monkeypatch.undo()
    monkeypatch.setattr(interpreter, "ENTRANCES", ("kraftfast.absent",))
    assert "kraftfast.absent cannot be imported" in next(interpreter.modules()).text


def test_every_compiled_module_is_tried() -> None:
    """Of a replica or a client: not those of the simulator and of benchmarks."""
    code = "import importlib, sys; [importlib.import_module(each) for each in sys.argv[1:]]"
    command = [sys.executable, "-c", f"{code}; print(*sys.modules)", *interpreter.ENTRANCES]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    package = Path(kraftfast.__file__).parent
    compiled = {
        ".".join(path.relative_to(package.parent).with_name(path.name.split(".")[0]).parts)
        for path in package.rglob("*.so")
    }
    left = compiled - set(loaded)
    assert left == {each for each in compiled if each.split(".")[1] in ("sim", "bench")}


@pytest.mark.parametrize(
    "own, name, value, count",
    [("0::/a/b", "cpu.max", "150000 100000", 1.5), ("0::/a/b", "cpu.max", "max 100000", None),
     ("4:cpu,cpuacct:/a", "cpu.cfs_quota_us", "50000", 0.5),
     ("4:cpu,cpuacct:/a", "cpu.cfs_quota_us", "-1", None)],
)  # fmt: skip
def test_the_processors_of_a_cgroup(
    own: str, name: str, value: str, count: float | None,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    _, controllers, path = own.split(":")
    folder = tmp_path / controllers / path.strip("/")
    folder.mkdir(parents=True)
    (folder / name).write_text(value + "\n")
    (tmp_path / "own").write_text(own + "\n")
    monkeypatch.setattr(cgroup, "CGROUP", str(tmp_path))
    monkeypatch.setattr(cgroup, "OWN_CGROUP", str(tmp_path / "own"))
    assert cgroup.cpu_quota() == count
    (found,) = host_facts.processors()
    assert (found.state == NOTE) == (min(count or 9, len(os.sched_getaffinity(0))) < 2)


@pytest.mark.parametrize("own", ["0::/a/b", "4:cpu,pids:/a"])
def test_the_tasks_of_a_cgroup(
    own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kraftfast: Callable[..., Done]
) -> None:
    _, controllers, path = own.split(":")
    folder = tmp_path / controllers / path.strip("/")
    folder.mkdir(parents=True)
    (folder / "pids.current").write_text("30\n")
    (tmp_path / "own").write_text(own + "\n")
    monkeypatch.setattr(cgroup, "CGROUP", str(tmp_path))
    monkeypatch.setattr(cgroup, "OWN_CGROUP", str(tmp_path / "own"))
    for most, room, state in (
        ("max", None, OK),
        ("60", 30, OK),
        ("40", 10, NOTE),
        ("31", 1, MISSING),
    ):
        (folder / "pids.max").write_text(most + "\n")
        (found,) = host_facts.tasks()
        assert (found.value, found.state) == (room, state)
    with pytest.raises(
        HostUnsupported, match="allows 1 more processes and threads, and 3 replicas"
    ):
        kernel_check.check_tasks(3)
    done = kraftfast("demo", "--records", "10", "--dir", tmp_path / "quorum")
    assert done.code == 6 and done.err.count("\n") == 1 and "pids.max" in done.err


def test_descriptors_that_do_not_suffice_are_told_before_anything_is_made(tmp_path: Path) -> None:
    """With 64 a quorum of five ran, and no client could reach its leader."""
    words = ["demo", "--records", "10", "--dir", str(tmp_path / "quorum"), "--voters"]
    for voters, code in ((5, 6), (3, 0)):
        limited = f"ulimit -n 64; exec {shlex.join(command(*words, str(voters)))}"
        shell = ["sh", "-c", limited]
        done = subprocess.run(shell, capture_output=True, env=environment(), timeout=120)
        assert done.returncode == code, done.stderr
        if code:
            said = b"each of 5 replicas needs to open 80 files, and may open 64: raise the limit"
            assert said in done.stderr and not (tmp_path / "quorum").exists()


def test_a_directory_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    (found,) = storage.directory(str(tmp_path / "file"))
    assert found.state == MISSING and "is no directory" in found.text

    def refused(**_where: Any) -> Any:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("tempfile.mkdtemp", refused)
    (found,) = storage.directory(str(tmp_path))
    assert found.state == MISSING and found.text.endswith(
        "cannot be written: Read-only file system"
    )


def test_a_directory_in_memory_is_said_to_keep_nothing() -> None:
    found = {each.topic: each for each in storage.directory("/dev/shm")}
    if found["file system"].value != "tmpfs":
        pytest.skip("/dev/shm is no tmpfs here")
    assert "nothing survives a power cut" in found["fdatasync"].text
    assert found["fdatasync"].state == NOTE
    assert storage.verdict("ext4", 20_000)[1] == "slow"


def test_a_line_is_one_line() -> None:
    assert "\n" not in Fact("a", OK, "b\nc", "d\ne").line()


def test_a_descriptor_for_which_there_is_no_room_is_forbidden_by_no_rule() -> None:
    passed = next(probe for probe in kernel_check.PROBES if probe.name == "SCM_RIGHTS")
    with no_descriptors() as held:
        for _ in range(4):  # a pipe and a pair of sockets
            os.close(held.pop())
        error = kernel_check.failure(passed)
        assert error is not None and error.strerror == "the descriptor did not arrive"
        assert (
            kernel_check.way_on(passed, error) == "raise the limit of open files (ulimit -n 1024)"
        )
        os.close(held.pop())
        assert kernel_check.failure(passed) is None


# --- a real quorum in a restricted process --------------------------------------------------------


@pytest.mark.processes
@pytest.mark.skipif(not NUMBERS, reason="the numbers of system calls are not known here")
@pytest.mark.parametrize(
    "code, calls, said",
    [
        ("ENOSYS", "memfd_create", "HostUnsupported memfd_create (rings"),
        ("ENOSYS", "pidfd_open", "HostUnsupported pidfd_open (noticing"),
        ("EPERM", "eventfd2", "HostUnsupported eventfd (waking"),
        ("EPERM", "socketpair", "HostUnsupported SCM_RIGHTS (passing"),
        ("EPERM", "bind", "CannotListen cannot listen on "),
        ("EPERM", "fdatasync", "FlushFailed cannot prepare "),
        ("EOPNOTSUPP", "fallocate,renameat2,madvise,sched_setaffinity", "True"),
    ],
)
def test_a_seccomp_profile_that_forbids_a_call(
    code: str, calls: str, said: str, tmp_path: Path
) -> None:
    text = restricted(tmp_path, str(HERE / "forbidding.py"), code, calls)
    if "no seccomp here" in text:
        pytest.skip("this kernel has no seccomp")
    assert text.startswith(said)
    if said.startswith("HostUnsupported"):
        assert not (tmp_path / "quorum").exists()


@pytest.mark.processes
def test_few_open_files(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24))

    text = restricted(tmp_path, limit=limit)
    assert text.startswith("HostUnsupported this process may open 24 files")


@pytest.mark.processes
def test_small_files_only(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    text = restricted(tmp_path, limit=limit)
    assert text.startswith("DiskFull cannot ") and "(ulimit -f unlimited)" in text


def test_files_too_small_for_a_segment_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, state in ((1 << 20, MISSING), (1 << 28, NOTE)):
        monkeypatch.setattr("resource.getrlimit", lambda _, limit=limit: (limit, limit))
        found = {each.topic: each for each in host_facts.limits()}
        assert found["file size"].state == state


@pytest.mark.processes
def test_one_processor_and_no_locked_memory_are_enough(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])

    assert restricted(tmp_path, limit=limit) == "True\n"
