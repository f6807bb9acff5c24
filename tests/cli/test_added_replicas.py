"""Replicas that are added to a quorum of this host and cannot run there: the others go on."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftfast.arguments import ID_MAX
from kraftfast.errors import InvalidOption
from kraftfast.node.storage.description import read_description
from kraftfast.node.storage.local_layout import add_to_description
from kraftfast.quorum import LocalQuorum, free_port
from tests.cli.kit import Program, fails, run

pytestmark = pytest.mark.processes
FAR = 60_000
"""An id whose port would be beyond the last one."""
SMALL = ("--segment-bytes", "8MiB")


@pytest.fixture
def port() -> int:
    """Return what replica 1 listens on, less 1."""
    return free_port("127.0.0.1") - 1


def test_an_id_beyond_the_last_port_is_refused_before_anything_is_made(
    tmp_path: Path, port: int
) -> None:
    path = tmp_path / "q"
    with LocalQuorum(
        path, voters=1, port=port, segment_bytes=8 << 20, expose_without_authentication=True
    ) as quorum:
        for call in (
            lambda: quorum.add_replica(FAR),
            lambda: quorum.add_voter(FAR),
            lambda: quorum.reassign([1, FAR]),
        ):
            with pytest.raises(InvalidOption, match="the last is 65535"):
                call()
        assert list(quorum.directories) == [1]
        assert read_description(str(path)).added == []
        with pytest.raises(InvalidOption, match="there is no replica"):
            quorum.kill(FAR)


def test_a_mistyped_id_ends_no_other_replica(
    tmp_path: Path, port: int, program: Callable[..., Program]
) -> None:
    """Neither that of a command, nor one that stands in quorum.json already."""
    where = ("--dir", tmp_path / "q")
    start = ("start", *where, "--port", port, *SMALL)
    running = program(*start, "--voters", 1)
    running.wait_for("leads")
    for command in (
        ("add-controller", "-i", FAR),
        ("add-controller", "-i", FAR, "--dry-run"),
        ("reassign", "--to", f"1,{FAR}"),
        ("reassign", "--to", f"1,{FAR}", "--dry-run"),
    ):
        text = fails(run("quorum", *command, *where, "--timeout", 20), 2)
        assert f"replica {FAR} would listen on port {port + FAR}: the last is 65535" in text
    assert read_description(str(tmp_path / "q")).added == []
    add_to_description(str(tmp_path / "q"), FAR)
    assert f"replica {FAR} would listen on" in running.wait_for("replica_not_added")
    assert running.stop() == 0, running.log
    again = program(*start)
    assert f"replica {FAR} would listen on" in again.wait_for("replica_not_added")
    done = run("status", *where, "--json")
    assert [each["node_id"] for each in json.loads(done.stdout)["replicas"]] == [1]
    assert again.stop() == 0, again.log


def test_a_replica_whose_port_is_taken_is_started_once_it_is_free(
    tmp_path: Path, port: int, program: Callable[..., Program]
) -> None:
    where = ("--dir", tmp_path / "q")
    running = program("start", *where, "--port", port, *SMALL, "--voters", 1)
    running.wait_for("leads")
    add = ("quorum", "add-controller", *where, "-i", 2)
    with socket.create_server(("127.0.0.1", port + 2)):
        text = fails(run(*add, "--timeout", 1.5), 12)
        assert "kraftfast start says why on its stderr, and tries again" in text
        assert "Address already in use" in running.wait_for("replica_not_added")
        interrupted = program(*add)
        interrupted.wait_for("waiting for kraftfast start to run the replica")
        assert interrupted.stop(signal.SIGINT) == 130
        last = "kraftfast: replica 2 was made and may become a voter; --controller-id 2 goes on\n"
        assert interrupted.log.endswith(last) and interrupted.log.count("\n") == 2
    assert run(*add).stdout.startswith(b"Added controller 2 ")
    assert running.stop() == 0, running.log


def test_a_dry_run_checks_the_next_id(tmp_path: Path, program: Callable[..., Program]) -> None:
    where = ("--dir", tmp_path / "q")
    running = program("start", *where, "--voters", 1, *SMALL)
    running.wait_for("leads")
    assert run("quorum", "add-controller", *where, "-i", ID_MAX).returncode == 0
    for more in ((), ("--dry-run",)):
        assert str(ID_MAX + 1) in fails(run("quorum", "add-controller", *where, *more), 2)
    assert running.stop() == 0, running.log
