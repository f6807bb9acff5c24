"""Real Apache Kafka: its jars, its tools, its controllers as processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from kraftfast.quorum import free_port

VERSION = "4.3.0"
POM = f"""<project><modelVersion>4.0.0</modelVersion>
<groupId>kraftfast</groupId><artifactId>kafka</artifactId><version>1</version>
<dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
<version>{VERSION}</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId>
<version>{VERSION}</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId>
<version>1.7.36</version></dependency>
</dependencies></project>
"""
FETCH_S_MAX, TOOL_S_MAX = 240, 60
QUORUM_TOOL = "org.apache.kafka.tools.MetadataQuorumCommand"


class Unavailable(Exception):
    """Kafka cannot be had here, and why."""


def fetch() -> Path:
    """The folder of Kafka's jars, from the registry of Java packages the first time.

    Kept in KRAFTFAST_KAFKA_CACHE, else ~/.cache/kraftfast/kafka. Raises Unavailable.
    """
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise Unavailable(f"{program} is not installed")
    default = Path.home() / ".cache" / "kraftfast" / "kafka"
    home = Path(os.environ.get("KRAFTFAST_KAFKA_CACHE", default)) / VERSION
    if not (home / "complete").exists():
        home.mkdir(parents=True, exist_ok=True)
        (home / "pom.xml").write_text(POM)
        try:
            subprocess.run(
                ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"],
                cwd=home, capture_output=True, timeout=FETCH_S_MAX, check=True,
            )  # fmt: skip
        except subprocess.SubprocessError as error:
            raise Unavailable(f"Kafka {VERSION} could not be fetched: {error}") from None
        (home / "complete").touch()
    return home / "lib"


def java(lib: Path, main: str, *arguments: object) -> list[str]:
    """The command line that runs one of Kafka's classes."""
    return [
        "java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{lib}/*", main,
        *map(str, arguments),
    ]  # fmt: skip


def run(lib: Path, main: str, *arguments: object) -> str:
    """What a tool prints; it must succeed."""
    done = subprocess.run(
        java(lib, main, *arguments), capture_output=True, text=True, timeout=TOOL_S_MAX
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on at the moment."""
    return [free_port("127.0.0.1") for _ in range(count)]


def properties(id: int, port: int, servers: Sequence[int], data: Path) -> str:
    """A server.properties that Kafka and kraftfast both take."""
    listener = f"CONTROLLER://127.0.0.1:{port}"
    return "\n".join(
        (
            "process.roles=controller",
            f"node.id={id}",
            "controller.listener.names=CONTROLLER",
            f"listeners={listener}",
            f"advertised.listeners={listener}",
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT",
            "controller.quorum.bootstrap.servers="
            + ",".join(f"127.0.0.1:{server}" for server in servers),
            f"log.dirs={data}",
            "",
        )
    )


class Controller:
    """A controller of Kafka's: formatted, then a process."""

    # lib: Kafka's jars. home: config, data and what it says. process: None while it is down.

    def __init__(
        self, lib: Path, home: Path, id: int, port: int, servers: Sequence[int], cluster_id: str,
        how: str, *more: str,
    ) -> None:  # fmt: skip
        self.lib, self.home, self.id, self.port = lib, home, id, port
        self.data, self.config = home / "data", home / "server.properties"
        self.process: subprocess.Popen[bytes] | None = None
        home.mkdir()
        self.config.write_text("\n".join([properties(id, port, servers, self.data), *more]))
        run(lib, "kafka.tools.StorageTool", "format", "-c", self.config, "-t", cluster_id, how)

    def start(self) -> None:
        """It goes on in the background."""
        with open(self.home / "log.txt", "ab") as log:
            self.process = subprocess.Popen(
                java(self.lib, "kafka.Kafka", self.config),
                stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=self.home,
            )  # fmt: skip

    def kill(self) -> None:
        """kill -9, if it runs."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(30)
            self.process = None

    @property
    def log_path(self) -> Path:
        """Where its segments are."""
        return self.data / "__cluster_metadata-0"


def replicas(lib: Path, port: int) -> dict[int, str]:
    """Id -> Leader, Follower or Observer, as Kafka's tool says by way of the node on ``port``."""
    out = run(
        lib, QUORUM_TOOL, "--bootstrap-controller", f"127.0.0.1:{port}", "describe", "--replication"
    )
    rows = [line.split() for line in out.splitlines()[1:]]
    return {int(row[0]): row[-1] for row in rows if row}


def wait_for(what: str, look: object, timeout: float = 60.0) -> None:
    """Until ``look()`` is true."""
    assert callable(look)
    deadline = time.monotonic() + timeout
    while not look():
        assert time.monotonic() < deadline, f"{what}: not within {timeout} s"
        time.sleep(0.2)
