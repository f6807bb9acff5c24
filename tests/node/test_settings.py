"""What a quorum cannot run with is refused before anything is made or started, with its reason."""

from __future__ import annotations

import inspect
import os
import socket
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import kraftfast
from kraftfast import limits
from kraftfast.cli.root import say_warning
from kraftfast.errors import CannotListen, InvalidOption, UnauthenticatedListener
from kraftfast.node.node_config import NodeConfig
from kraftfast.node.processes import tuning
from kraftfast.node.processes.supervisor import Supervisor
from kraftfast.node.processes.supervisor_host import HOST, python_path
from kraftfast.node.processes.tuning import Tuning, tuning_of
from kraftfast.node.storage.local_layout import quorum_path


def test_what_may_be_misspelt_is_what_a_quorum_takes() -> None:
    taken = inspect.signature(kraftfast.LocalQuorum).parameters
    assert {*tuning.BESIDE_TUNING} == {*taken} - {"path", "tuning"}


class Machine(kraftfast.StateMachine):
    """A sound one."""

    def apply(self, batch: Any) -> None:
        pass


class NoApply(kraftfast.StateMachine):
    """It would raise at the first record."""


class NotDerived:
    """A replica calls more than ``apply``."""

    def apply(self, batch: Any) -> None:
        pass


class WantsMore(Machine):
    """No replica knows what to make it with."""

    def __init__(self, place: str) -> None:
        self.place = place


def local_machine() -> type[Machine]:
    class Local(Machine):
        pass

    return Local


class Fails(kraftfast.StateMachine):
    def __init__(self) -> None:
        (Path(__file__).parent / "absent").read_text()

    def apply(self, batch: kraftfast.BatchView) -> None: ...


@pytest.fixture
def never_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker may be started."""

    def start(*_arguments: Any) -> None:
        raise AssertionError("workers are started")

    monkeypatch.setattr(Supervisor, "start", start)


@pytest.mark.usefixtures("never_started")
@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"voters": 0}, "voters must be from 1 to 64, not 0"),
        ({"voters": "3"}, "voters must be a whole number, not '3'"),
        ({"voters": 3.0}, "voters must be a whole number"),
        ({"voters": True}, "voters must be a whole number, not True"),
        ({"timeout": None}, "timeout must be a number of seconds, not None"),
        ({"timeout": "1"}, "timeout must be a number of seconds, not '1'"),
        ({"timeout": float("nan")}, "timeout must be a number of seconds, not nan"),
        ({"timeout": -1}, "timeout must be a number of seconds from 0.001 on, not -1"),
        ({"kraft_version": True}, "kraft_version must be a whole number, not True"),
        ({"state_machine": Machine()}, "must be a class, not an object of Machine"),
        ({"state_machine": NoApply}, r"'NoApply' has no apply\(batch\)"),
        ({"state_machine": int}, r"'int' has no apply\(batch\)"),
        ({"state_machine": NotDerived}, "is not derived from kraftfast.StateMachine"),
        ({"state_machine": WantsMore}, "cannot be made without arguments: .*'place'"),
        ({"state_machine": local_machine()}, "defined inside a function"),
        ({"state_machine": len}, "must be a class"),
        ({"state_machine": "no_such_module:M"}, "there is no module 'no_such_module'"),
        ({"state_machine": "no.such.module:M"}, "there is no module 'no.such.module'"),
        ({"state_machine": "nowhere.py:M"}, "there is no file nowhere.py"),
        ({"state_machine": "Machine"}, "module:Class or file.py:Class"),
        ({"segment_bytes": "64MiB"}, "segment_bytes must be a whole number, not '64MiB'"),
        ({"segment_bytes": 4095}, "segment_bytes must be from 4096 to"),
        ({"stride_bytes": 3}, "stride_bytes must be from"),
        ({"prepare_bytes": -5}, "prepare_bytes must be from 0 to"),
        ({"retention_ms": "a"}, "retention_ms must be a whole number"),
        ({"retention_bytes": -2}, "retention_bytes must be from -1 to"),
        ({"snapshot_bytes": 0}, "snapshot_bytes must be from 1 to"),
        ({"fetch_timeout_ms": 0}, "fetch_timeout_ms must be from 1 to"),
        ({"election_timeout_ms": None}, "election_timeout_ms must be a whole number, not None"),
        ({"producers_max": 5000}, "producers_max must be from 1 to 4096, not 5000"),
        ({"connections_max": 0}, "connections_max must be from 1 to"),
        ({"port": 65536}, "port must be from 0 to 65535"),
        ({"port": 65534}, "replica 2 would listen on port 65536"),
        ({"host": None}, "host must be a str, not None"),
        ({"processors": 3}, "processors must be a list of numbers, not 3"),
        ({"segment_byte": 1}, "unknown setting 'segment_byte': did you mean segment_bytes?"),
        ({"votrs": 3}, "unknown setting 'votrs': did you mean voters?"),
        ({"nonsense": 1}, "unknown setting 'nonsense'$"),
    ],
)
def test_a_setting_that_cannot_be(tmp_path: Path, settings: dict[str, Any], reason: str) -> None:
    path = tmp_path / "quorum"
    with pytest.raises(InvalidOption, match=reason):
        kraftfast.LocalQuorum(path, **{"voters": 3, **settings})
    assert not path.exists(), "something was made"


@pytest.mark.usefixtures("never_started")
@pytest.mark.parametrize("path", ["", b"", None, 3, "a\0b"])
def test_a_directory_that_cannot_be(path: Any) -> None:
    with pytest.raises(InvalidOption, match="a quorum's directory"):
        kraftfast.LocalQuorum(path)
    with pytest.raises(InvalidOption, match="a quorum's directory"):
        kraftfast.connect(path)


@pytest.mark.usefixtures("never_started")
def test_a_host_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "quorum"
    with pytest.raises(CannotListen, match="cannot listen on 'no.such.invalid'"):
        kraftfast.LocalQuorum(
            path, transport="socket", host="no.such.invalid", expose_without_authentication=True
        )
    assert not path.exists()


@pytest.mark.usefixtures("never_started")
@pytest.mark.parametrize("listening", [{"port": 19000}, {"transport": "socket"}])
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "a.example"])
def test_other_hosts_come_only_where_that_is_wanted(
    tmp_path: Path, listening: dict[str, Any], host: str
) -> None:
    with pytest.raises(InvalidOption, match="expose_without_authentication=True"):
        kraftfast.LocalQuorum(tmp_path / "quorum", host=host, **listening)
    assert not (tmp_path / "quorum").exists()
    tuning_of({"host": host, "expose_without_authentication": True, **listening})
    tuning_of({"host": host})  # nothing listens there


def test_who_can_come_is_told() -> None:
    """Every user of this host reads and appends over TCP, where files and rings are the owner's."""
    places = {1: ("127.0.0.1", 19001), 2: ("127.0.0.1", 19002)}
    told = "every user of this host can read and append records at 127.0.0.1:19001, 127.0.0.1:19002"
    with pytest.warns(UnauthenticatedListener, match=told):
        tuning_of({"port": 19000}).tell_who_can_come(places)
    consent: dict[str, Any] = {"port": 19000, "expose_without_authentication": True}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tuning_of(consent).tell_who_can_come(places)
        tuning_of({}).tell_who_can_come({})
    with pytest.warns(UnauthenticatedListener, match="everyone who reaches this host"):
        tuning_of(consent | {"host": "0.0.0.0"}).tell_who_can_come({1: ("0.0.0.0", 19001)})


def test_a_warning_is_a_line_of_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    say_warning(UnauthenticatedListener("who can come"), UnauthenticatedListener, "file.py", 1)
    assert capsys.readouterr().err == "kraftfast: WARNING: who can come\n"


def test_a_setting_of_another_kind_of_number_is_one() -> None:
    numpy = pytest.importorskip("numpy")
    tuning = Tuning(segment_bytes=numpy.int64(1 << 20), state_machine=None, retention_bytes=None)
    assert type(tuning.segment_bytes) is int
    assert tuning.state_machine == ""


def test_a_state_machine_without_a_name_is_refused() -> None:
    """It was taken for none, in silence."""
    with pytest.raises(InvalidOption, match="module:Class"):
        Tuning(state_machine="")


@pytest.mark.parametrize(
    "durability, retention, chosen, expected",
    [
        ("memory", 512 << 20, None, 32 << 20),
        ("memory", 16 << 20, None, 8 << 20),
        ("memory", 1 << 40, None, 256 << 20),
        ("memory", 512 << 20, 64 << 20, 64 << 20),
        ("memory", None, None, 256 << 20),
        ("memory", -1, None, 256 << 20),
        ("majority", 512 << 20, None, 256 << 20),
    ],
)
def test_a_log_in_memory_that_is_kept_in_part_has_small_segments(
    durability: str, retention: int | None, chosen: int | None, expected: int
) -> None:
    tuning = Tuning(segment_bytes=chosen, retention_bytes=retention)
    assert tuning.of_each_node(durability)["segment_bytes"] == expected


def test_a_server_has_kafkas_segments_but_for_a_log_in_memory() -> None:
    config = NodeConfig(1, "q", [], retention_bytes=512 << 20)
    assert config.log_settings("majority").segment_bytes == limits.SEGMENT_BYTES
    assert config.log_settings("memory").segment_bytes == 32 << 20
    assert NodeConfig(1, "q", [], segment_bytes=9 << 20).log_settings("memory").capacity == 9 << 20


UNGUARDED = """
import sys
import kraftfast

class Machine(kraftfast.StateMachine):
    def apply(self, batch):
        pass

print("run", __name__, flush=True)
quorum = kraftfast.LocalQuorum(sys.argv[-1], voters=1, state_machine=Machine, prepare_bytes=0)
"""


def test_a_program_that_starts_its_quorum_when_it_is_imported(tmp_path: Path) -> None:
    """Each worker imports the program, and must not start another quorum."""
    program = tmp_path / "program.py"
    program.write_text(UNGUARDED)
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path / "quorum")],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    last = done.stderr.rstrip().split("\n")[-1]
    assert last.startswith(f"kraftfast.errors.InvalidOption: {program} starts a quorum when it is")
    assert last.endswith('put that behind `if __name__ == "__main__":`')
    assert done.stdout.split("\n")[:-1].count("run kraftfast_state_machine") == 1


@pytest.mark.processes
def test_a_state_machine_that_cannot_be_made_is_the_users(tmp_path: Path) -> None:
    """Neither a defect of ours nor something that the host lacks: its file and line are told."""
    where = rf"FileNotFoundError: .*absent' \({__file__}, line [0-9]+\)$"
    with pytest.raises(InvalidOption, match=rf"Fails' cannot be made: {where}"):
        kraftfast.LocalQuorum(tmp_path / "q", voters=1, state_machine=Fails)


def test_a_working_directory_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(InvalidOption, match="cannot be quorum: the working directory is gone"):
        quorum_path("quorum")
    assert quorum_path("/quorum") == "/quorum"


def test_nothing_is_imported_from_a_working_directory_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No process was started for `python -c`, whose path begins with ""."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setattr("sys.path", ["", "lib", "/there"])
    package = os.path.dirname(os.path.dirname(kraftfast.__file__))
    assert python_path() == f"{package}:/there"
    assert python_path() in HOST.taken_over()


@pytest.mark.parametrize("path", ["/quo\udcffrum", Path("/quo\udcffrum")])
def test_a_directory_that_utf_8_cannot_express_is_refused(path: str | Path) -> None:
    """Workers are told it as JSON, before whose end the quorum would wait for them."""
    with pytest.raises(InvalidOption, match=r"cannot be '/quo\\udcffrum': it is not UTF-8"):
        quorum_path(path)


class BytesPath:
    """A path of bytes, as ``os.DirEntry`` may be one."""

    def __fspath__(self) -> bytes:
        return b"/quorum"


@pytest.mark.parametrize("path", [b"/quorum", BytesPath(), 7, None])
def test_a_directory_of_another_type_is_refused(path: object) -> None:
    """``connect`` refuses bytes, too: what makes a quorum and what reaches it take the same."""
    with pytest.raises(InvalidOption, match="directory must be a str or a Path, not "):
        quorum_path(path)  # type: ignore[arg-type]


def test_ports_that_are_chosen_are_none_that_connections_get(tmp_path: Path) -> None:
    """Else a replica that is started again may find its port taken, by any process, for long."""
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    ports = [tuning.free_port("127.0.0.1") for _ in range(50)]
    assert len(set(ports)) == 50
    assert low < 11_000 or not any(low <= port <= high for port in ports)  # if the host has others
    for text in ("1024 65535", "", "many", "15"):
        (tmp_path / "range").write_text(text)
        assert len(tuning.unused_ports(str(tmp_path / "range"))) > 50_000


def test_where_those_are_taken_the_kernel_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        monkeypatch.setattr(tuning, "PORTS", [held.getsockname()[1]])
        assert tuning.free_port("127.0.0.1") not in (0, held.getsockname()[1])
    with pytest.raises(CannotListen):
        tuning.free_port("203.0.113.9")
