"""Kafka and kraftfast in one quorum: each follows the other, votes, and is voted for.

Kafka's own controllers and tools take part, over TCP; what both wrote is compared byte by byte.
"""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kraftfast
from kraftfast.client.local import ask
from kraftfast.errors import KraftfastError
from kraftfast.log.reader import LogReader
from kraftfast.types import uuid_text
from tests.cli.kit import Program, run
from tests.kafka import kafka
from tests.kafka.kafka import Controller, free_ports, properties, replicas, wait_for

pytestmark = pytest.mark.processes

NO_OP = b"\x01\x14\x00\x00"
"""Kafka's NoOpRecord as its metadata log holds it: frame 1, type 20, version 0, no tags."""
METADATA_VERSION = b"\x01\x0c\x00\x11metadata.version\x00\x1e\x00"
"""A FeatureLevelRecord: metadata.version 30, that of 4.3. Kafka's controllers want it first."""


@pytest.fixture(scope="session")
def lib() -> Path:
    """Kafka's jars."""
    try:
        return kafka.fetch()
    except kafka.Unavailable as why:
        pytest.skip(f"no Kafka here: {why}")


@pytest.fixture
def controller(lib: Path, tmp_path: Path) -> Iterator[Callable[..., Controller]]:
    """Format a controller of Kafka's; it ends with the test."""
    made: list[Controller] = []

    def make(
        id: int, port: int, servers: list[int], cluster: str, how: str, *more: str
    ) -> Controller:
        home = tmp_path / f"kafka-{id}"
        made.append(Controller(lib, home, id, port, servers, cluster, how, *more))
        return made[-1]

    yield make
    for each in made:
        each.kill()


@pytest.fixture
def server() -> Iterator[Callable[..., Program]]:
    """Format and start a replica of ours; it ends with the test."""
    made: list[Program] = []

    def make(
        home: Path, id: int, port: int, servers: list[int], cluster: str, how: str, *more: str
    ) -> Program:
        home.mkdir()
        config = home / "server.properties"
        config.write_text("\n".join([properties(id, port, servers, home / "data"), *more]))
        words = ("storage", "format", "-c", config, "-t", cluster, how, "--records", "kafka-raft")
        formatted = run(*words)
        assert formatted.returncode == 0, formatted.stderr
        made.append(Program("serve", "--config", config))
        made[-1].wait_for("listener CONTROLLER")
        return made[-1]

    yield make
    for each in made:
        if each.process.poll() is None:
            each.process.kill()
            each.process.communicate()


def status(home: Path) -> dict[str, int]:
    try:
        found: dict[str, int] = ask(str(home / "data"), {"kind": "status"})
        return found
    except KraftfastError:
        return {}


def add(lib: Path, port: int, config: Path) -> str:
    """Kafka's add-controller, by way of the node on ``port``."""
    return kafka.run(
        lib, kafka.QUORUM_TOOL, "--bootstrap-controller", f"127.0.0.1:{port}",
        "--command-config", config, "add-controller",
    )  # fmt: skip


def same_bytes(ours: Path, theirs: Path, end_offset: int) -> int:
    """Compare what two logs hold below an offset; how many batches that was."""
    with LogReader(ours) as a, LogReader(theirs) as b:
        pairs = zip(a.batches(0, end_offset), b.batches(0, end_offset), strict=True)
        count = 0
        for one, other in pairs:
            assert bytes(one.data) == bytes(other.data), one
            count += 1
        return count


def test_ours_follows_and_votes_in_kafkas_quorum(
    lib: Path, tmp_path: Path, controller: Callable[..., Controller],
    server: Callable[..., Program],
) -> None:  # fmt: skip
    cluster, ports = kafka_uuid(), free_ports(3)
    first = controller(1, ports[0], ports[:2], cluster, "--standalone")
    second = controller(2, ports[1], ports[:2], cluster, "--no-initial-controllers")
    first.start()
    second.start()
    home = tmp_path / "ours"
    ours = server(home, 3, ports[2], ports[:2], cluster, "--no-initial-controllers")
    wait_for("an observer", lambda: replicas(lib, ports[0]).get(3) == "Observer")
    assert "Added controller 3" in add(lib, ports[0], home / "server.properties")
    assert "Added controller 2" in add(lib, ports[0], second.config)
    assert replicas(lib, ports[0]) == {1: "Leader", 2: "Follower", 3: "Follower"}

    first.kill()  # without our vote nobody leads now
    wait_for("a leader", lambda: status(home).get("leader_id", -1) in (2, 3))
    wait_for("its records", lambda: status(home)["high_watermark"] == status(home)["end_offset"])
    committed = status(home)["high_watermark"]
    assert ours.stop() == 0, ours.log
    second.kill()
    assert same_bytes(home / "data" / "__cluster_metadata-0", second.log_path, committed) > 10
    dumped = kafka.run(
        lib, "org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files",
        home / "data" / "__cluster_metadata-0" / "00000000000000000000.log",
    )  # fmt: skip
    assert "KRaftVoters" in dumped and "isvalid: false" not in dumped


def test_kafka_follows_and_votes_in_a_quorum_of_ours(
    lib: Path, tmp_path: Path, controller: Callable[..., Controller],
    server: Callable[..., Program],
) -> None:  # fmt: skip
    cluster, ports = kafka_uuid(), free_ports(2)
    home = tmp_path / "ours"
    ours = server(home, 1, ports[0], ports[:1], cluster, "--standalone")
    ours.wait_for("leader")
    theirs = controller(2, ports[1], ports[:1], cluster, "--no-initial-controllers")
    theirs.start()
    wait_for("an observer", lambda: replicas(lib, ports[0]).get(2) == "Observer")
    assert "Added controller 2" in add(lib, ports[0], theirs.config)
    assert replicas(lib, ports[0]) == {1: "Leader", 2: "Follower"}

    # Idempotent, and the name stands in a record that Kafka's controller has to skip.
    quorum = kraftfast.connect([("127.0.0.1", ports[0])])
    with quorum.producer(timeout=30, name="loader") as producer:
        values = [METADATA_VERSION, *[NO_OP] * 20]
        offsets = [producer.append_wait(value, timeout=30) for value in values]
    committed = offsets[-1] + 1  # by both: two voters, and a majority of two is both
    theirs.kill()
    assert ours.stop() == 0, ours.log
    assert same_bytes(home / "data" / "__cluster_metadata-0", theirs.log_path, committed) >= 23


def test_kafkas_tools_upgrade_and_describe_ours(lib: Path, tmp_path: Path) -> None:
    """kraft.version from 0 to 1 by kafka-features, and every voter with its directory then."""
    port = free_ports(1)[0]
    settings = {"port": port, "fetch_timeout_ms": 600, "kraft_version": 0}
    with kraftfast.LocalQuorum(tmp_path / "q", 3, **settings) as quorum:
        places = ",".join(f"{host}:{port}" for host, port in quorum.addresses.values())
        where = ("--bootstrap-controller", places)
        features = (*where, "upgrade", "--feature", "kraft.version=1")
        wait_for("an upgrade", lambda: "upgraded to 1." in features_tool(lib, *features))
        assert "FinalizedVersionLevel: 1 " in features_tool(lib, *where, "describe")
        assert set(replicas(lib, quorum.addresses[1][1]).values()) == {"Leader", "Follower"}
        described = kafka.run(lib, kafka.QUORUM_TOOL, *where, "describe", "--status")
        assert described.count("directoryId") == 3
        quorum.add_voter(4)
        assert replicas(lib, quorum.addresses[1][1])[4] == "Follower"


def features_tool(lib: Path, *arguments: object) -> str:
    """What kafka-features prints, whether or not it could do it."""
    command = kafka.java(lib, "org.apache.kafka.tools.FeatureCommand", *arguments)
    return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout


def snapshots(log_path: Path) -> dict[str, bytes]:
    """Those that a state machine made, by name."""
    found = sorted(log_path.glob("*.checkpoint"))
    return {each.name: each.read_bytes() for each in found if not each.name.startswith("0" * 20)}


def test_ours_begins_at_kafkas_snapshot(
    lib: Path, tmp_path: Path, controller: Callable[..., Controller],
    server: Callable[..., Program],
) -> None:  # fmt: skip
    """Kafka's leader sends whoever has nothing its latest snapshot, in slices of 64 bytes."""
    cluster, ports = kafka_uuid(), free_ports(2)
    often = "metadata.log.max.record.bytes.between.snapshots=200"
    first = controller(1, ports[0], ports[:1], cluster, "--standalone", often)
    first.start()
    wait_for("a snapshot", lambda: snapshots(first.log_path))
    home = tmp_path / "ours"
    slices = "controller.quorum.fetch.snapshot.max.bytes=64"
    ours = server(home, 2, ports[1], ports[:1], cluster, "--no-initial-controllers", slices)
    wait_for("its log", lambda: status(home).get("log_start_offset", 0) > 0)
    log_path = home / "data" / "__cluster_metadata-0"
    ((name, data),) = snapshots(log_path).items()
    assert data == (first.log_path / name).read_bytes()
    wait_for("an observer", lambda: replicas(lib, ports[0]).get(2) == "Observer")
    assert "Added controller 2" in add(lib, ports[0], home / "server.properties")
    assert ours.stop() == 0, ours.log


class Metadata(kraftfast.StateMachine):
    """As much of Kafka's metadata as its controllers want to find in a snapshot."""

    def apply(self, batch: Any) -> None:
        """Nothing else is known here."""

    def snapshot(self, writer: Any) -> None:
        writer.append(METADATA_VERSION)

    def restore(self, reader: Any) -> None:
        assert [record.value for record in reader.records()] == [METADATA_VERSION]


def test_kafka_begins_at_a_snapshot_of_ours(
    lib: Path, tmp_path: Path, controller: Callable[..., Controller]
) -> None:
    ports = free_ports(2)
    with kraftfast.LocalQuorum(
        tmp_path / "ours", voters=1, kraft_version=1, records="kafka-raft", port=ports[0] - 1,
        transport="socket", state_machine=Metadata, snapshot_bytes=500,
    ) as quorum:  # fmt: skip
        log_path = tmp_path / "ours" / "1" / "__cluster_metadata-0"
        with quorum.producer() as producer:
            for value in [METADATA_VERSION, *[NO_OP] * 50]:
                producer.append_wait(value, timeout=30)
        wait_for("a snapshot", lambda: snapshots(log_path))
        cluster = quorum.description.cluster_id
        theirs = controller(2, ports[1], ports[:1], cluster, "--no-initial-controllers")
        theirs.start()
        wait_for("its snapshot", lambda: snapshots(theirs.log_path))
        ours = snapshots(log_path)
        for name, data in snapshots(theirs.log_path).items():
            assert data == ours[name]
        assert "Added controller 2" in add(lib, ports[0], theirs.config)
        wait_for("a voter", lambda: replicas(lib, ports[0]) == {1: "Leader", 2: "Follower"})
        with quorum.producer() as producer:
            producer.append_wait(NO_OP, timeout=30)  # by both
        assert theirs.process is not None and theirs.process.poll() is None


def kafka_uuid() -> str:
    """A cluster id."""
    return uuid_text(b"\x41" + uuid.uuid4().bytes[1:])
