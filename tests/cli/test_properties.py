"""server.properties: Kafka's names, and what is refused."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from kraftfast import limits
from kraftfast.cli.server_properties import SCALARS, read_server, server
from kraftfast.errors import InputError, InvalidOption
from kraftfast.node.node_config import ListenerConfig, NodeConfig, VoterConfig
from kraftfast.types import is_loopback

GOOD = {
    "process.roles": "controller",
    "node.id": "2",
    "controller.quorum.voters": "1@a.example:9091,2@b.example:9092, 3@[::1]:9093",
    "listeners": "CONTROLLER://127.0.0.1:9092,CLIENT://:9192",
    "advertised.listeners": "CLIENT://b.example:9192",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "/var/lib/kraft/b,/elsewhere",
}


def test_a_whole_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    lines = [f"{key} = {value}" for key, value in GOOD.items()]
    file.write_text("# comment\n\n" + "\n".join(lines) + "\nnum.io.threads=8\n")
    node, notes, metrics, log_format = read_server(str(file))
    assert node == NodeConfig(
        node_id=2,
        directory="/var/lib/kraft/b",
        voters=[
            VoterConfig(1, "a.example", 9091),
            VoterConfig(2, "b.example", 9092),
            VoterConfig(3, "::1", 9093),
        ],
        listeners=[
            ListenerConfig("CONTROLLER", "127.0.0.1", 9092),
            ListenerConfig("CLIENT", "", 9192, "b.example", 9192),
        ],
        controller_listener="CONTROLLER",
    )
    assert notes == ["without effect here: num.io.threads"] and metrics is None
    assert log_format == "text"
    assert server(GOOD | {"kraftfast.log.format": "json"}).log_format == "json"


# covers: QuorumConfigTest.*
@pytest.mark.parametrize("key", SCALARS)
def test_each_scalar_arrives(key: str) -> None:
    field, _ = SCALARS[key]
    words = {
        "kraftfast.flush": "deferred",
        "kraftfast.idle": "block",
        "kraftfast.producers.max": "2000",
        "controller.quorum.auto.join.enable": "True",
        "kraftfast.campaign": "True",
    }
    text = words.get(key, str(9 * 1024 * 1024 if "segment.bytes" in key else 123_456))
    node = server(GOOD | {key: text}).node
    assert str(getattr(node, field)) == text
    assert getattr(NodeConfig(1, "", []), field) != getattr(node, field)


@pytest.mark.parametrize(
    "text, address",
    [
        ("9464", ("127.0.0.1", 9464)),
        ("0", ("127.0.0.1", 0)),
        ("0.0.0.0:9464", ("0.0.0.0", 9464)),
        ("[::1]:9464", ("::1", 9464)),
    ],
)
def test_where_metrics_are_served(text: str, address: tuple[str, int]) -> None:
    assert server(GOOD | {"kraftfast.metrics.listen": text}).metrics == address


def test_metadata_log_dir_comes_first() -> None:
    assert server(GOOD | {"metadata.log.dir": "/m"}).node.directory == "/m"


# covers: QuorumConfigTest.*
@pytest.mark.parametrize(
    "key, value, said",
    [
        ("controller.quorum.fetch.timout.ms", "1", "controller.quorum.fetch.timeout.ms"),
        ("qwertyuiop", "1", "there is no key qwertyuiop"),
        ("\ufeffnode.id", "1", r"there is no key '\ufeffnode.id'; did you mean 'node.id'"),
        ("\x1b[2J", "1", r"there is no key '\x1b[2J'"),
        ("ssl.keystore.location", "/k", "no authentication"),
        ("authorizer.class.name", "A", "no authentication"),
        ("process.roles", "broker,controller", "process.roles must be controller or broker"),
        ("process.roles", "broker", "no broker is"),
        ("controller.quorum.auto.join.enable", "yes", "true or false"),
        ("node.id", "4", "not among controller.quorum.voters"),
        ("node.id", "-1", "from 0"),
        ("node.id", "two", "a whole number"),
        ("controller.quorum.voters", "1@a", "not host:port"),
        ("controller.quorum.voters", "a:9091", "not id@host:port"),
        ("controller.quorum.voters", "2@0.0.0.0:9091", "cannot reach"),
        ("controller.quorum.voters", "2@a:1,2@b:2", "twice"),
        ("controller.quorum.voters", "1@a:1,2147483648@b:2", "an id up to 2147483647"),
        ("controller.quorum.voters", "", "is missing"),
        ("controller.quorum.bootstrap.servers", "a:0", "not host:port"),
        ("controller.listener.names", "OTHER", "must name a listener"),
        ("listeners", "127.0.0.1:9092", "NAME://host:port"),
        ("listeners", "CONTROLLER://h:1,CONTROLLER://h:2", "twice"),
        ("listeners", "", "is missing"),
        ("advertised.listeners", "X://h:1", "not among listeners"),
        ("listener.security.protocol.map", "CONTROLLER:SSL", "only PLAINTEXT"),
        ("log.dirs", "", "is missing"),
        ("metadata.log.segment.bytes", "1000", "from 8388608"),
        ("metadata.log.segment.bytes", "2147483647", f"to {limits.SEGMENT_BYTES_MAX} is"),
        ("controller.quorum.fetch.timeout.ms", "0", "from 1"),
        ("kraftfast.flush", "never", "one of deferred, parallel, adaptive"),
        ("kraftfast.log.format", "xml", "one of text, json is expected"),
        ("kraftfast.metrics.listen", "host", "not host:port"),
        ("kraftfast.metrics.listen", "65536", "not host:port"),
        ("kraftfast.metrics.listen", ":9464", "names no host"),
    ],
)  # fmt: skip
def test_what_is_refused(key: str, value: str, said: str) -> None:
    with pytest.raises(InvalidOption) as raised:
        server(GOOD | {key: value})
    assert said in str(raised.value)


@pytest.mark.parametrize(
    "key", ["process.roles", "node.id", "controller.quorum.voters", "listeners", "log.dirs"]
)
def test_what_must_be_there(key: str) -> None:
    with pytest.raises(InvalidOption, match=key.replace(".", r"\.")):
        server({name: value for name, value in GOOD.items() if name != key})


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_server(str(tmp_path / "none"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidOption, match="not a properties file"):
        read_server(str(tmp_path / "binary"))


@pytest.mark.parametrize(
    "host, loopback",
    [("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("localhost", True),
     ("", False), ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("host.example", False)],
)  # fmt: skip
def test_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


OBSERVER = {
    "process.roles": "broker",
    "node.id": "7",
    "controller.quorum.bootstrap.servers": "a.example:9091,[::1]:9093",
    "listeners": "CLIENT://127.0.0.1:9092",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "/var/lib/kraft/b",
}


def test_a_broker_observes() -> None:
    node = server(OBSERVER).node
    assert (node.may_vote, node.endpoints, node.bootstrap_ids) == (False, (), (-2, -3))
    config = node.quorum_config("majority")
    assert (config.bootstrap_ids, config.endpoints, config.auto_join) == ((-2, -3), (), False)
    with pytest.raises(InvalidOption, match="only a controller"):
        server(OBSERVER | {"controller.quorum.auto.join.enable": "true"})


def test_a_controller_without_static_voters_may_join() -> None:
    fields = OBSERVER | {
        "process.roles": "controller",
        "listeners": "CONTROLLER://0.0.0.0:9093",
        "advertised.listeners": "CONTROLLER://c.example:19093",
        "controller.quorum.auto.join.enable": "true",
    }
    node = server(fields).node
    assert node.endpoints == (("CONTROLLER", "c.example", 19093),)
    assert node.quorum_config("majority").auto_join
    with pytest.raises(InvalidOption, match="must name a listener"):
        server(OBSERVER | {"process.roles": "controller"})
    with pytest.raises(InvalidOption, match="only a controller that others can reach"):
        server(fields | {"listeners": "CONTROLLER://h:0", "advertised.listeners": ""})


def test_a_listener_on_every_address_is_advertised_by_a_name() -> None:
    """As the own entry among the static voters says, else by the name of this host."""
    static = server(GOOD | {"listeners": "CONTROLLER://:9099", "advertised.listeners": ""}).node
    assert static.endpoints == (("CONTROLLER", "b.example", 9092),)
    fields = OBSERVER | {"process.roles": "controller", "listeners": "CONTROLLER://0.0.0.0:9093"}
    assert server(fields).node.endpoints == (("CONTROLLER", socket.getfqdn(), 9093),)
    assert server(OBSERVER | {"listeners": "CLIENT://:1"}).node.listeners[0].advertised_host == ""


def test_a_file_without_end_is_no_properties_file() -> None:
    with pytest.raises(InputError, match="/dev/zero is no properties file: it has more than 1 MiB"):
        read_server("/dev/zero")


def test_a_key_that_stands_there_twice_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last one counts, as in Kafka, but not without a word."""
    file = tmp_path / "server.properties"
    lines = [f"{key}={value}" for key, value in GOOD.items()]
    again = [*lines, "# node.id", "node.id = \\", "  3"]
    file.write_text("\n".join(again))
    assert read_server(str(file)).node.node_id == 3
    line = lines.index("node.id=2") + 1
    said = f"node.id stands in line {line} and again in line {len(lines) + 2}, which counts"
    assert capsys.readouterr().err == f"kraftfast: WARNING: {file}: {said}\n"
    file.write_text("\n".join(lines))
    read_server(str(file))
    assert capsys.readouterr().err == ""
