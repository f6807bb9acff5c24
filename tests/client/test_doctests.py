"""The examples in the docstrings of what a user imports run as they stand."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import kraftfast
from kraftfast.quorum import LocalQuorum

WITHOUT_QUORUM = ["kraftfast.client.cluster"]
WITH_QUORUM = [
    "kraftfast",
    "kraftfast.client.producer.aio",
    "kraftfast.client.consumer.consumer",
    "kraftfast.client.producer.producer",
    "kraftfast.quorum",
    "kraftfast.testing",
]
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def run(name: str, **names: object) -> None:
    module = importlib.import_module(name)
    result = doctest.testmod(
        module, extraglobs={"kraftfast": kraftfast, **names}, optionflags=OPTIONS
    )
    assert result.failed == 0 and result.attempted > 0, f"{name}: {result}"


@pytest.mark.parametrize("name", WITHOUT_QUORUM)
def test_examples(name: str) -> None:
    run(name)


@pytest.mark.processes
@pytest.mark.parametrize("name", WITH_QUORUM)
def test_examples_with_a_quorum(name: str, socket_quorum: LocalQuorum, tmp_path: Path) -> None:
    addresses = ",".join(f"{host}:{port}" for host, port in socket_quorum.addresses.values())
    run(name, quorum=socket_quorum, where=addresses, path=tmp_path / "quorum")


@pytest.mark.processes
def test_examples_with_a_quorum_of_another_process(ring_quorum: LocalQuorum) -> None:
    run("kraftfast.connected", path=ring_quorum.path)
