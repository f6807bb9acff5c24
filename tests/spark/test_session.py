"""What a session needs, said in one line each; and what Spark's failures come down to."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kraftfast import errors
from kraftfast.spark.sessions import local_session, spark_failures


def java(place: Path, version: str, release: bool = True) -> None:
    """Something that looks like a Java."""
    (place / "bin").mkdir(parents=True)
    command = place / "bin" / "java"
    command.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    command.chmod(0o755)
    if release:
        (place / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')


@pytest.mark.parametrize("release", [True, False])
@pytest.mark.parametrize(
    ("version", "number"), [("17.0.15", 17), ("1.8.0_402", 8), ("25", 25), ("11.0.2", 11)]
)
def test_versions(tmp_path: Path, version: str, number: int, release: bool) -> None:
    java(tmp_path, version, release)
    assert local_session.java_version(str(tmp_path / "bin" / "java")) == number


def refused(message: str) -> None:
    with pytest.raises(errors.SparkUnavailable, match=message) as caught:
        local_session.get_spark()
    assert "\n" not in str(caught.value) and caught.value.exit_code == 5


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Packages that are not there."""
    missing: set[str] = set()
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: object() if name not in missing else None
    )
    del find
    return missing


@pytest.mark.parametrize("name", local_session.PACKAGES)
def test_a_package_is_missing(packages: set[str], name: str) -> None:
    packages.add(name)
    refused(f"the package {name} is not installed: pip install 'kraftfast\\[spark\\]'")


@pytest.mark.parametrize(
    ("settings", "text"),
    [({"master": "nowhere"}, "local\\[2,4\\], spark://"), ({"memory": "plenty"}, "512m or 2g")],
)
def test_what_no_session_can_be_made_of(settings: dict[str, str], text: str) -> None:
    with pytest.raises(errors.InvalidOption, match=text):
        local_session.get_spark(**settings)


@pytest.mark.parametrize(
    ("master", "there"),
    [("local[2,4]", True), ("local-cluster[2,1,1024]", True), ("spark://host:7077", False),
     ("k8s://host:443", False), ("yarn", False)],
)  # fmt: skip
def test_executors_of_other_hosts_find_the_driver(
    monkeypatch: pytest.MonkeyPatch, master: str, there: bool
) -> None:
    """At the loopback address they would look for it on their own host."""
    from pyspark.sql import SparkSession

    asked: dict[str, str] = {}

    class Builder:
        def config(self, name: str, value: str) -> Builder:
            asked[name] = value
            return self

        master = appName = lambda self, _: self

        def getOrCreate(self) -> None:
            raise RuntimeError("enough")

    for name in ("SPARK_LOCAL_IP", "SPARK_CONF_DIR", "PYTHONPATH"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(local_session, "why_not", lambda: "")
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(SparkSession, "builder", Builder())
    with pytest.raises(errors.SparkUnavailable, match="enough"):
        local_session.get_spark(master)
    assert ("spark.driver.host" in asked) == ("SPARK_LOCAL_IP" in os.environ) == there
    assert ("spark.driver.bindAddress" in asked) == there


def test_nothing_is_left_of_a_session(tmp_path: Path) -> None:
    """Of its settings' folder, that is, in the directory for temporary files."""
    code = (
        "import os; from kraftfast.spark.sessions import local_session; "
        "local_session.environment(); print(os.environ)"
    )
    given = {name: value for name, value in os.environ.items() if name != "SPARK_CONF_DIR"}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env=given | {"TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert f"{tmp_path}/kraftfast-spark-conf-" in run.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("deep", [False, True])
def test_the_sockets_of_a_session_go_with_it(deep: bool) -> None:
    """Spark leaves each in the directory for temporary files, a few for each job; it must know a
    folder that is not too long for a socket's name."""
    code = (
        "import os; from kraftfast.spark.sessions.local_session import get_spark; "
        "spark = get_spark('local[1]', short=True); "
        "print(spark.createDataFrame([(1,)], 'n int').rdd.map(lambda row: row.n).sum()); "
        "print(spark.conf.get('spark.python.unix.domain.socket.dir', '')); spark.stop()"
    )
    with tempfile.TemporaryDirectory(prefix="kf") as short:
        folder = Path(short, "deep" * 20 if deep else "d")
        folder.mkdir()
        run = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env=os.environ | {"TMPDIR": str(folder)},
        )  # fmt: skip
        one, told = run.stdout.splitlines()
        assert one == "1"
        assert told == "" if deep else told.startswith(f"{folder}/kraftfast-spark-sockets-")
        assert not list(folder.glob("kraftfast-spark-sockets-*"))


def test_no_java(packages: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    refused("Java 17 or later, and there is no java in PATH")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    refused("holds no bin/java")


def test_java_too_old(packages: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java(tmp_path, "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    refused("needs Java 17 or later, and .* is Java 11: set JAVA_HOME")
    (tmp_path / "release").unlink()
    (tmp_path / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    refused("is no Java that tells its version")


def test_nothing_else_loads_spark() -> None:
    program = (
        "import sys, kraftfast, kraftfast.cli.root, kraftfast.spark.sessions.local_session\n"
        "assert not {'pyspark', 'pyarrow', 'pandas'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_a_worker_raised_comes_back_as_it_was() -> None:
    page = (
        "[PYTHON_DATA_SOURCE_ERROR] Failed\nTraceback (most recent call last):\n  File x\n"
        "kraftfast.errors.NoQuorum: no leader within 3 s\n\tat org.apache.spark\n" + "at x\n" * 60
    )
    with pytest.raises(errors.NoQuorum, match="^no leader within 3 s$"), spark_failures.told():
        raise type("AnalysisException", (Exception,), {"__module__": "pyspark.errors"})(page)
    with pytest.raises(ZeroDivisionError), spark_failures.told():
        raise ZeroDivisionError
    other = spark_failures.explain(RuntimeError("[SOME] first line\nValueError: of a worker\nat x"))
    assert isinstance(other, errors.SparkFailed)
    assert str(other) == "[SOME] first line: of a worker"
