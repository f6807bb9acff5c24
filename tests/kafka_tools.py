"""Tools of real Apache Kafka, for tests that ask it what it thinks of our files.

The jars come from Maven Central through ``mvn``, once, into ``KRAFT_KAFKA_CACHE`` (by default
``~/.cache/kraft-kafka``). Tests are skipped, and say so, without Java, Maven or the network.
"""

from __future__ import annotations

import fcntl
import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

VERSION = "4.3.0"
JAVA_MIN = 17
FETCH_SECONDS_MAX = 300
RUN_SECONDS_MAX = 60
DUMP_LOG = "org.apache.kafka.tools.DumpLogSegments"
ARTIFACTS = (
    ("org.apache.kafka", "kafka_2.13", VERSION),
    ("org.apache.kafka", "kafka-tools", VERSION),
    ("org.slf4j", "slf4j-simple", "1.7.36"),  # Kafka 4 declares none for its own words
)
JAVA = ("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def cache() -> Path:
    """Where the jars of this version are kept."""
    default = Path.home() / ".cache" / "kraft-kafka"
    return Path(os.environ.get("KRAFT_KAFKA_CACHE", default)) / VERSION


def project() -> str:
    """A Maven project that needs just these jars."""
    needed = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, artifact, version in ARTIFACTS
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>kraftfast</groupId>"
        "<artifactId>real-kafka</artifactId><version>1</version>"
        f"<dependencies>{needed}</dependencies></project>"
    )


@functools.cache
def missing() -> str:
    """Why Kafka's tools cannot run here; empty if they can. Fetches them the first time."""
    if shutil.which("java") is None:
        return "java is not installed"
    said = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < JAVA_MIN:
        return f"Kafka {VERSION} needs Java {JAVA_MIN}"
    home = cache()
    try:
        home.mkdir(parents=True, exist_ok=True)
        with open(home / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return "" if (home / "complete").exists() else _fetch(home)
    except OSError as error:
        return f"cannot keep Kafka's jars: {error}"


def _fetch(home: Path) -> str:
    if shutil.which("mvn") is None:
        return f"Kafka {VERSION} is not in {home}, and mvn is not installed"
    (home / "pom.xml").write_text(project())
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"]
    try:
        done = subprocess.run(command, cwd=home, capture_output=True, timeout=FETCH_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        return f"mvn did not fetch Kafka {VERSION} within {FETCH_SECONDS_MAX} s"
    if done.returncode:
        return f"mvn could not fetch Kafka {VERSION}: is Maven Central reachable?"
    (home / "complete").touch()
    return ""


def run(main: str, *args: object) -> subprocess.CompletedProcess[str]:
    """Run a class of Kafka's to its end; skips the test where that is not possible."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    command = [*JAVA, "-cp", f"{cache() / 'lib'}/*", main, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS_MAX)


def dump_log(paths: list[Path], *options: str) -> subprocess.CompletedProcess[str]:
    """``kafka-dump-log --files``."""
    return run(DUMP_LOG, "--files", ",".join(map(str, paths)), *options)
