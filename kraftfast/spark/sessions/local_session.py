"""A local session that starts quickly and says little, and what it needs.

A program with a session of its own (a cluster's, a notebook's) calls :func:`register` on it alone.
"""

from __future__ import annotations

import glob
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import kraftfast
from kraftfast import forks
from kraftfast.errors import InvalidOption, SparkUnavailable
from kraftfast.spark.sessions.class_archive import ClassArchive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN = 17
JAVA_WAIT_S = 30.0
PACKAGES = ("pyspark", "pyarrow", "pandas")
INSTALL = "pip install 'kraftfast[spark]'"
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",
    PUSHDOWN: "true",
}
OF_THIS_HOST = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
"""Where all executors are on this host; others would look for the driver on theirs."""
SOCKETS_PATH_MAX = 107 - len("/.00000000-0000-0000-0000-000000000000.sock")
"""A UNIX socket's path has 107 bytes at most; in a longer folder none could be made."""
OURS = os.path.dirname(os.path.dirname(kraftfast.__file__))
"""Whence this kraftfast was imported."""
LOG_SETTINGS = os.path.join(os.path.dirname(__file__), "log4j2.properties")
MASTER = re.compile(r"local(-cluster)?(\[.+\])?|(spark|k8s)://.+|yarn")
MEMORY = re.compile(r"[1-9]\d*[kmgt]", re.IGNORECASE)
JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel={level}"


def missing_package() -> str:
    """Return the first package that Spark needs and that is not installed, or ""."""
    for name in PACKAGES:
        if importlib.util.find_spec(name) is None:
            return name
    return ""


def java_command() -> str:
    """Return the ``java`` that Spark will start: of ``JAVA_HOME``, else of ``PATH``, or ""."""
    home = os.environ.get("JAVA_HOME")
    if home:
        path = os.path.join(home, "bin", "java")
        return path if os.access(path, os.X_OK) else ""
    return shutil.which("java") or ""


def java_version(command: str) -> int:
    """Return its feature release: 17, 21, 25; of ``1.8.0`` 8; 0 if it does not say.

    The ``release`` file beside it is read, which is quicker than starting it.
    """
    release = os.path.join(os.path.dirname(os.path.realpath(command)), "..", "release")
    try:
        with open(release, encoding="utf-8", errors="replace") as file:
            text = file.read(1 << 16)
    except OSError:
        text = ""
    found = re.search(r'^JAVA_VERSION="([^"]+)"', text, re.MULTILINE)
    if found is None:
        try:
            asked = subprocess.run(
                [command, "-version"], capture_output=True, text=True, timeout=JAVA_WAIT_S
            )
        except (OSError, subprocess.TimeoutExpired):
            return 0
        found = re.search(r'version "([^"]+)"', asked.stderr + asked.stdout)
    numbers = [int(part) for part in re.findall(r"\d+", found[1])] if found else []
    if not numbers:
        return 0
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def why_not() -> str:
    """Return why no local session can start, in one line; "" if it can."""
    name = missing_package()
    if name:
        return f"the package {name} is not installed: {INSTALL}"
    command = java_command()
    if not command:
        home = os.environ.get("JAVA_HOME")
        where = f"JAVA_HOME={home} holds no bin/java" if home else "there is no java in PATH"
        return f"Spark runs on Java {JAVA_MIN} or later, and {where}: install a JRE"
    version = java_version(command)
    if version < JAVA_MIN:
        return (
            f"Spark needs Java {JAVA_MIN} or later, and {command} is "
            f"{f'Java {version}' if version else 'no Java that tells its version'}: "
            "set JAVA_HOME to a later one"
        )
    return ""


def get_spark(
    master: str = "local[2,4]",
    *,
    app: str = "kraftfast",
    quiet: bool = True,
    memory: str = "2g",
    short: bool = False,
    archive: str | None = None,
    **conf: Any,
) -> SparkSession:
    """Return a session of this process with the sources registered: the running one, or a new one.

    ``master``: ``local[cores,attempts]``, ``local-cluster[executors,cores,MiB]`` or a cluster's.
    ``quiet``: log nothing that is raised anyway. ``short``: compile little, for runs of a minute.
    ``archive``: a folder for what lets sessions start twice as quickly; the first one writes it at
    its end (``class_archive``). By default ``KRAFTFAST_SPARK_ARCHIVE``, if it is set.
    ``conf``: more of Spark's settings, ``_`` for ``.`` in their names or as ``**{"a.b": c}``.

    Raises InvalidOption for a master or a memory that cannot be, and SparkUnavailable where a
    package or Java is missing or too old.
    """
    if not MASTER.fullmatch(master):
        raise InvalidOption(
            f"master={master!r}: it is local[2,4], spark://HOST:PORT, k8s://HOST:PORT or yarn"
        )
    if not MEMORY.fullmatch(memory):
        raise InvalidOption(f"memory={memory!r}: a number and a unit are wanted, as in 512m or 2g")
    reason = why_not()
    if reason:
        raise SparkUnavailable(reason)
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        return register(running)
    folder = archive if archive is not None else os.environ.get("KRAFTFAST_SPARK_ARCHIVE")
    classes = ClassArchive(folder, java_command()) if folder else None
    local = master.startswith("local")
    settings = SETTINGS | {"spark.driver.memory": memory}
    if local:
        settings |= OF_THIS_HOST
        sockets = _folder("sockets")
        if len(os.fsencode(sockets)) <= SOCKETS_PATH_MAX:
            settings["spark.python.unix.domain.socket.dir"] = sockets
    settings["spark.driver.extraJavaOptions"] = _java_options(quiet, short, classes)
    environment(quiet, classes, local)
    settings |= {name if "." in name else name.replace("_", "."): v for name, v in conf.items()}
    builder = SparkSession.builder.master(master).appName(app)
    for name, value in settings.items():
        builder = builder.config(name, str(value))
    before = children()
    try:
        with _another_kraftfast_comes_last():
            spark = builder.getOrCreate()
    except KeyboardInterrupt:  # PySpark forgets a JVM that is starting, which ignores SIGINT
        for pid in children() - before:
            end_if_java(pid)
        raise
    except Exception as error:
        text = str(error).strip().splitlines()
        raise SparkUnavailable(
            f"no session of Spark starts at {master}: {text[0] if text else type(error).__name__}"
        ) from error
    if classes is not None:
        classes.keep(spark)
    return register(spark)


def children() -> set[int]:
    """Return the processes that this one has started and that have not been waited for."""
    found = set[int]()
    for path in glob.glob("/proc/self/task/*/children"):
        with suppress(OSError), open(path) as file:
            found |= {int(each) for each in file.read().split()}
    return found


def end_if_java(pid: int) -> None:
    """Kill a process if it is a JVM of PySpark's, or the script that becomes one."""
    with suppress(OSError):
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            ours = b"pyspark-shell" in file.read()
        if ours:
            os.kill(pid, signal.SIGKILL)


def _java_options(quiet: bool, short: bool, classes: ClassArchive | None) -> str:
    options = JAVA_OPTIONS.format(level=1 if short else 4)
    if quiet:
        options += f" -Dlog4j2.configurationFile=file:{LOG_SETTINGS}"
    if classes is not None:
        options += f" {classes.java_option()}"
    return options


def environment(
    quiet: bool = True, classes: ClassArchive | None = None, local: bool = True
) -> None:
    """Set what the JVM and its Python workers inherit: this interpreter, this kraftfast, no noise.

    ``local``: all of them are on this host.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    path = os.environ.get("PYTHONPATH", "")
    if OURS not in path.split(os.pathsep):  # the workers import the sources by name
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (OURS, path)))
    if classes is not None:
        os.environ.setdefault("SPARK_CONF_DIR", str(classes.settings))
    elif quiet and "SPARK_CONF_DIR" not in os.environ:
        os.environ["SPARK_CONF_DIR"] = _folder("conf")


def _folder(what: str) -> str:
    """Return a new folder that goes with this process; Spark leaves its sockets in there."""
    path = tempfile.mkdtemp(prefix=f"kraftfast-spark-{what}-")
    forks.at_exit(shutil.rmtree, path, ignore_errors=True)
    return path


@contextmanager
def _another_kraftfast_comes_last() -> Iterator[None]:
    """For the JVM that is started meanwhile, whose workers look into the current directory first.

    That may be a clone whose modules are not compiled.
    """
    if not os.path.isdir("kraftfast") or os.path.samefile(os.getcwd(), OURS):
        yield
        return
    before = {name: os.environ.get(name) for name in ("PYTHONSAFEPATH", "PYTHONPATH")}
    path = os.pathsep.join(filter(None, (before["PYTHONPATH"], os.getcwd())))
    os.environ.update(PYTHONSAFEPATH="1", PYTHONPATH=path)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def register(spark: SparkSession) -> SparkSession:
    """Make the sources and the sink known to a session, Spark Connect's too; returns it.

    Sets ``spark.sql.python.filterPushdown.enabled``, which the sources make use of.
    Raises InvalidOption for a Spark that has no Python data sources that push filters down.
    """
    if not hasattr(spark, "dataSource"):
        raise InvalidOption(f"Spark {spark.version} has no Python data sources: 4.1 or later has")
    from kraftfast.spark.reading.sources import SOURCES

    spark.conf.set(PUSHDOWN, "true")
    for source in SOURCES:
        spark.dataSource.register(source)
    return spark
