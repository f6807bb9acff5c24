"""Fixtures for all rooms."""

from __future__ import annotations

import os
import signal
import subprocess
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what runs in its background so, and programs that tests start inherit it: they
    # would not end by an interrupt, for which the tests of interrupts wait.
    signal.signal(signal.SIGINT, signal.default_int_handler)


SMALL_DISK_BYTES = 96 << 20
SHARED = ("spark", "style")
"""Rooms whose tests share what is slow to make: a JVM, the cache of a type checker."""


def pytest_configure() -> None:
    """Options of this run are not for the runs that tests start."""
    os.environ.pop("PYTEST_ADDOPTS", None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep each file together where files go to several processes; two rooms are one group each.

    The groups of ``--dist loadgroup`` do not reach the scheduler of pytest-xdist 3.8 in pytest 9.2.
    """
    from xdist.scheduler import LoadScopeScheduling

    def group_of(nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        room = Path(file).parent.name
        return room if room in SHARED else file

    scheduler = LoadScopeScheduling(config, log)
    scheduler._split_scope = group_of
    return scheduler


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the longest rooms where files go to several processes."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: item.path.parent.name not in SHARED)


@pytest.fixture(autouse=True)
def handlers_of_signals() -> Iterator[None]:
    """A command that runs in this process sets some for all of it, and they outlive the command.

    A later test would wait for ever for a forked child that it ends by SIGTERM: what a handler
    raises as the child begins is dropped.
    """
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files and frames recorded from Apache Kafka; its README.md says how, and what each is."""
    place = tmp_path_factory.mktemp("golden")
    with tarfile.open(ROOT / "tests" / "golden.tar.xz") as archive:
        archive.extractall(place, filter="data")
    return place


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs that a test can fill."""
    if os.geteuid():
        pytest.skip("mounting needs root")
    target = tmp_path / "mounted"
    target.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK_BYTES}", "none", str(target)]
    done = subprocess.run(command, capture_output=True)
    if done.returncode:
        pytest.skip(f"cannot mount a tmpfs here: {done.stderr.decode().strip()}")
    yield target
    subprocess.run(["umount", "-l", target], check=True)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say where the time went, room by room, where the slowest tests are asked for."""
    if config.option.durations is None:
        return
    seconds: Counter[str] = Counter()
    for report in terminalreporter.getreports("") + terminalreporter.getreports("passed"):
        seconds["/".join(report.nodeid.split("/")[:2]).partition("::")[0]] += report.duration
    terminalreporter.section("seconds by room")
    for room, spent in seconds.most_common():
        terminalreporter.write_line(f"{spent:7.1f} {room}")
