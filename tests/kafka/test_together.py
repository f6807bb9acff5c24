"""Kafka and kraftfast in one quorum: each follows the other and votes for it.

Kafka's own controllers and tools take part, over TCP; what both wrote is compared byte by byte.
Ours is a witness there and leads only where a test says so (``kraftfast.campaign=true``).
"""

from __future__ import annotations

import logging
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

import kraftfast
from kraftfast.client.local_socket import ask
from kraftfast.errors import KraftfastError, RecordsRefused
from kraftfast.log.reading.reader import LogReader
from kraftfast.types import uuid_text
from tests.cli.kit import Program, run
from tests.kafka import kafka
from tests.kafka.kafka import Controller, free_ports, properties, replicas, wait_for

pytestmark = pytest.mark.processes

MAY_LEAD = "kraftfast.campaign=true"


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

    before = status(home)["epoch"]
    first.kill()  # without our vote nobody leads now, and without our disk nothing is committed
    wait_for("a leader", lambda: status(home)["epoch"] > before and status(home)["leader_id"] == 2)
    end = status(home)["end_offset"]
    wait_for("its records", lambda: status(home)["high_watermark"] > end + 2)
    committed = status(home)["high_watermark"]
    assert status(home)["campaigns"] is False and status(home)["witness"] is True
    assert ours.stop() == 0, ours.log
    assert "it never leads" in ours.log and "prospective" not in ours.log
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
    ours = server(home, 1, ports[0], ports[:1], cluster, "--standalone", MAY_LEAD)
    ours.wait_for("leader")
    theirs = controller(2, ports[1], ports[:1], cluster, "--no-initial-controllers")
    theirs.start()
    wait_for("an observer", lambda: replicas(lib, ports[0]).get(2) == "Observer")
    assert "Added controller 2" in add(lib, ports[0], theirs.config)
    assert replicas(lib, ports[0]) == {1: "Leader", 2: "Follower"}

    refused: list[Any] = []
    client_log = logging.getLogger("client")  # shown where the test fails
    client_log.setLevel(logging.DEBUG)
    asked = {"bootstrap.servers": f"127.0.0.1:{ports[0]}", "debug": "broker,metadata,msg"}
    for _ in range(4):  # a client may ask only Kafka's controller for the topic, in vain
        producer = confluent_kafka.Producer(asked, logger=client_log)
        topic = "__cluster_metadata"
        producer.produce(topic, b"hello", on_delivery=lambda *told: refused.append(told))
        producer.flush(20)  # one such record would end Kafka's controller for good
        if refused:
            break
    assert refused, f"the record was neither taken nor refused by 4 clients:\n{ours.log}"
    assert refused[0][0].code() == confluent_kafka.KafkaError.INVALID_RECORD
    with pytest.raises(RecordsRefused):
        kraftfast.connect([("127.0.0.1", ports[0])]).producer(timeout=30).append_wait(b"hello")
    committed = status(home)["high_watermark"]  # by both: a majority of two voters is both
    assert theirs.process is not None and theirs.process.poll() is None
    theirs.kill()
    assert ours.stop() == 0, ours.log
    assert same_bytes(home / "data" / "__cluster_metadata-0", theirs.log_path, committed) >= 2


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


def test_ours_leads_where_it_must_and_kafka_begins_at_its_snapshot(
    lib: Path, tmp_path: Path, controller: Callable[..., Controller],
    server: Callable[..., Program],
) -> None:  # fmt: skip
    """Only ours has all that was committed: told to lead, it brings Kafka's controllers up to date.

    One that is new begins at the snapshot that ours had fetched from the leader before.
    """
    cluster, ports = kafka_uuid(), free_ports(4)
    often = "metadata.log.max.record.bytes.between.snapshots=200"
    first = controller(1, ports[0], ports[:3], cluster, "--standalone", often)
    first.start()
    wait_for("a snapshot", lambda: snapshots(first.log_path))
    third = controller(3, ports[2], ports[:3], cluster, "--no-initial-controllers")
    third.start()
    home = tmp_path / "ours"
    server(home, 2, ports[1], ports[:3], cluster, "--no-initial-controllers", MAY_LEAD)
    log_path = home / "data" / "__cluster_metadata-0"
    wait_for("its log", lambda: status(home).get("log_start_offset", 0) > 0)
    observers = {1: "Leader", 2: "Observer", 3: "Observer"}
    wait_for("observers", lambda: replicas(lib, ports[0]) == observers)
    assert "Added controller 2" in add(lib, ports[0], home / "server.properties")
    assert "Added controller 3" in add(lib, ports[0], third.config)
    third.kill()
    end = status(home)["high_watermark"]
    wait_for("more records", lambda: status(home)["high_watermark"] > end + 2)
    first.kill()
    third.start()  # its log is shorter: it votes for ours
    wait_for("ours to lead", lambda: status(home).get("role") == "leader")
    fourth = controller(4, ports[3], ports[1:2], cluster, "--no-initial-controllers")
    fourth.start()
    wait_for("its snapshot", lambda: snapshots(fourth.log_path))
    ours = snapshots(log_path)
    for name, data in snapshots(fourth.log_path).items():
        assert data == ours[name]
    wait_for("its records", lambda: status(home)["high_watermark"] == status(home)["end_offset"])
    for each in (third, fourth):
        assert each.process is not None and each.process.poll() is None


def kafka_uuid() -> str:
    """A cluster id."""
    return uuid_text(b"\x41" + uuid.uuid4().bytes[1:])
