"""The process that serves the pages: it listens, is started again, and ends with its starter."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("prometheus_client")

from kraftfast.cli.options import listen_address
from kraftfast.errors import CannotListen, InvalidOption
from kraftfast.live import metrics_process
from kraftfast.live.metrics_process import MetricsProcess
from kraftfast.node.event_log import EventLog
from kraftfast.quorum import LocalQuorum
from kraftfast.types import address_from_text
from tests.cli.kit import ROOT, Program, fails, run
from tests.live.kit import SMALL, TIMEOUT_S, get, wait_until

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalQuorum]:
    with LocalQuorum(tmp_path_factory.mktemp("quorum"), voters=1, **SMALL) as quorum:
        yield quorum


def test_it_serves_until_it_is_closed(quorum: LocalQuorum) -> None:
    told: list[Any] = []
    tell = EventLog(1, told.append).tell
    with MetricsProcess(quorum.path, ("127.0.0.1", 0), tell) as metrics:
        metrics.start()
        text = f"/metrics, /healthz and /readyz on {metrics.address}"
        assert [each.message for each in told] == [text]
        at = address_from_text(metrics.address)
        assert wait_until(lambda: get(at, "/readyz")) == (200, "replica 1: ready\n")
        assert 'kraftfast_role{replica="1",role="leader"} 1.0' in get(at, "/metrics")[1]
    with pytest.raises(ConnectionRefusedError):
        get(at, "/healthz")


def test_one_that_ends_is_started_again(
    quorum: LocalQuorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_process, "AGAIN_S", 0.01)
    told: list[Any] = []
    with MetricsProcess(quorum.path, ("127.0.0.1", 0), EventLog(1, told.append).tell) as metrics:
        metrics.start()
        assert metrics._process is not None
        metrics._process.kill()
        wait_until(lambda: len(told) == 2)
        assert get(address_from_text(metrics.address), "/healthz")[0] == 200
    assert told[1].message == "the process of /metrics ended (-9) -> it is started again"


def test_one_that_is_started_again_during_a_close_ends_too(
    quorum: LocalQuorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_process, "AGAIN_S", 0.01)
    metrics = MetricsProcess(quorum.path, ("127.0.0.1", 0), EventLog(1, lambda _: None).tell)
    metrics.start()
    launch, again = metrics._launch, list[Any]()

    def launch_late() -> Any:
        again.append(None)
        assert metrics._closing.wait(TIMEOUT_S)
        again[0] = launch()
        return again[0]

    monkeypatch.setattr(metrics, "_launch", launch_late)
    assert metrics._process is not None
    metrics._process.kill()
    wait_until(lambda: again)
    metrics.close()
    try:
        assert not metrics._thread.is_alive() and again[0].poll() is not None
    finally:
        again[0].kill()


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
        with pytest.raises(CannotListen, match=f"127.0.0.1:{port}: Address already in use"):
            MetricsProcess(str(tmp_path), ("127.0.0.1", port), print)
        done = run("start", "--dir", tmp_path / "q", "--voters", 1, "--metrics-listen", port)
        assert f"cannot listen on 127.0.0.1:{port}" in fails(done, CannotListen.exit_code)
        assert not (tmp_path / "q").exists(), "nothing was made before it was refused"


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
def test_an_address_that_is_not_here_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(CannotListen, match=host):
        MetricsProcess(str(tmp_path), (host, 0), print)


def test_without_the_library_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec

    def find(name: str, *args: Any) -> Any:
        return None if name == "prometheus_client" else found(name, *args)

    monkeypatch.setattr(importlib.util, "find_spec", find)
    with pytest.raises(InvalidOption, match=r"pip install 'kraftfast\[metrics\]'"):
        MetricsProcess(str(tmp_path), ("127.0.0.1", 0), print)


def test_it_ends_with_a_starter_that_is_killed(quorum: LocalQuorum) -> None:
    text = (
        "import sys, time\n"
        "from kraftfast.live.metrics_process import MetricsProcess\n"
        f"metrics = MetricsProcess({quorum.path!r}, ('127.0.0.1', 0), lambda *_, **__: None)\n"
        "metrics.start()\n"
        "print(metrics._process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", text]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        assert Path(f"/proc/{pid}").exists()
        starter.kill()
        starter.wait(TIMEOUT_S)
        wait_until(lambda: not Path(f"/proc/{pid}").exists() or is_over(pid))


def is_over(pid: int) -> bool:
    """Whether only its exit code is left, which nobody may ever fetch."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def address_in(line: str) -> tuple[str, int]:
    return address_from_text(line.split()[-1])


def test_start_serves_it(tmp_path: Path, program: Callable[..., Program]) -> None:
    args = ["--dir", tmp_path / "q", "--segment-bytes", "32MiB", "--metrics-listen", "0"]
    running = program("start", *args)
    at = address_in(running.wait_for("/metrics"))
    wait_until(lambda: get(at, "/readyz")[0] == 200)
    assert get(at, "/metrics")[1].count("kraftfast_up{") == 3
    assert running.stop(signal.SIGINT) == 0, running.log
    assert "Traceback" not in running.log


def test_serve_serves_it_by_a_property(
    tmp_path: Path,
    program: Callable[..., Program],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    file = tmp_path / "server.properties"
    file.write_text(
        f"process.roles=controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{port}\n"
        f"listeners=CONTROLLER://127.0.0.1:{port}\ncontroller.listener.names=CONTROLLER\n"
        f"log.dirs={tmp_path}/log\nmetadata.log.segment.bytes=33554432\n"
        "kraftfast.metrics.listen=0\n"
    )
    cluster = run("storage", "random-uuid").stdout.decode().strip()
    assert run("storage", "format", "--config", file, "--cluster-id", cluster).returncode == 0
    running = program("serve", "--config", file)
    at = address_in(running.wait_for("/metrics"))
    wait_until(lambda: get(at, "/readyz") == (200, "replica 1: ready\n"))
    assert f'cluster_id="{cluster}"' in get(at, "/metrics")[1]
    assert running.stop() == 0, running.log


def test_a_port_behind_an_empty_host_is_refused() -> None:
    """It would be every address of the machine, where a port alone is 127.0.0.1."""
    assert listen_address("9464") == ("127.0.0.1", 9464)
    with pytest.raises(ValueError, match="0.0.0.0:9464 for all"):
        listen_address(":9464")
