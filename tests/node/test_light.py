"""What is not loaded before it is used: a quorum starts in the time that its imports take."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"argparse", "asyncio", "crc32c", "importlib.metadata", "numpy", "ssl"}
NOT_IN_A_WORKER = {
    "difflib", "email", "hmac", "ipaddress", "json", "pathlib", "subprocess", "traceback", "urllib",
}  # fmt: skip
MODULES_OF_A_WORKER_MAX = 330
"""Beside those of a bare interpreter. Each costs a start a third of a millisecond, even if it is
empty."""
OF_SOCKETS = {
    "kraftfast.node.tcp.sockets",
    "kraftfast.node.tcp.consumers",
    "kraftfast.node.tcp.socket_producers",
}
"""A worker without a listener has no use for them."""
OF_REPLICAS = {"kraftfast.core", "kraftfast.log.recovery", "kraftfast.record", "kraftfast.wire"}
OF_CLIENTS = {
    "kraftfast.client.admin.admin",
    "kraftfast.client.local_connector",
    "kraftfast.client.watch",
    "kraftfast.client.producer.producer",
}
"""A program that starts replicas imports what its clients need while they start."""
STARTS = "import kraftfast.node.processes.worker"
NOT_FOR_A_START = {
    "difflib", "ipaddress", "json", "pathlib", "urllib", "kraftfast.core", "kraftfast.log.log",
    "kraftfast.log.reading", "kraftfast.log.recovery",
}  # fmt: skip
"""What a program does not need that makes a quorum and starts it."""
FRESH = """
import sys, kraftfast
settings = {"segment_bytes": 8 << 20, "stride_bytes": 1 << 20, "prepare_bytes": 1 << 16}
kraftfast.LocalQuorum(sys.argv[1], voters=1, **settings).close()
"""
WRITTEN = """
import types
for name, module in list(sys.modules.items()):
    for each in list(vars(module).values()) if name.startswith("kraftfast") else ():
        made = isinstance(each, type) and "__dataclass_fields__" in vars(each)
        if made and type(vars(each).get("__init__")) is types.FunctionType:
            raise SystemExit(f"{name}.{each.__name__}")
"""
LEADS = f"""
{STARTS}
from kraftfast.record.control import KRaftVersion, control_batch
control_batch([KRaftVersion(1)], timestamp=0, leader_epoch=1)
"""


def loaded(code: str, *args: str) -> set[str]:
    command = [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)", *args]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("kraftfast.node.processes.worker", HEAVY | NOT_IN_A_WORKER | OF_SOCKETS),
        ("kraftfast.quorum", HEAVY | OF_REPLICAS | OF_CLIENTS),
    ],
)
def test_nothing_is_loaded_that_few_need(module: str, heavy: set[str]) -> None:
    assert heavy & loaded(f"import {module}") == set()


def test_an_election_loads_nothing() -> None:
    """The first record of an epoch is made while everyone waits for the new leader."""
    new = loaded(LEADS) - loaded(STARTS)
    assert new == set()


def test_a_worker_imports_few_modules() -> None:
    found = loaded(STARTS) - loaded("")
    assert len(found) <= MODULES_OF_A_WORKER_MAX


def test_a_worker_makes_no_dataclass() -> None:
    """Each is written as text and compiled whenever it is imported, for half a millisecond."""
    loaded(STARTS + WRITTEN)  # a name that it prints is an exit code that is not 0


def test_the_program_that_starts_a_quorum_loads_little(tmp_path: Path) -> None:
    assert NOT_FOR_A_START & loaded(FRESH, str(tmp_path / "quorum")) == set()
