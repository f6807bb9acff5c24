"""What is not loaded before it is used: a quorum starts in the time that its imports take."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"argparse", "asyncio", "crc32c", "importlib.metadata", "numpy", "ssl"}
NOT_IN_A_WORKER = {"hmac", "ipaddress", "pathlib", "subprocess"}
OF_SOCKETS = {
    "kraftfast.node.tcp.sockets",
    "kraftfast.node.tcp.consumers",
    "kraftfast.node.tcp.data_plane",
}
"""A worker without a listener has no use for them."""
OF_REPLICAS = {"kraftfast.core", "kraftfast.log.recovery", "kraftfast.record", "kraftfast.wire"}
OF_CLIENTS = {
    "kraftfast.client.admin.admin",
    "kraftfast.client.local",
    "kraftfast.client.producer.producer",
}
"""A program that starts replicas imports what its clients need while they start."""
STARTS = "import kraftfast.node.processes.worker"
LEADS = f"""
{STARTS}
from kraftfast.record.control import KRaftVersion, control_batch
control_batch([KRaftVersion(1)], timestamp=0, leader_epoch=1)
"""


def loaded(code: str) -> set[str]:
    command = [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"]
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
