"""A file of the classes that a session loads, so that the next session starts twice as quickly.

The first session that names the file writes it as its process ends (some ten seconds, 150 MB); the
JVM maps it from then on, and passes it over where Java or Spark is another (JEP 350, AppCDS).
"""

from __future__ import annotations

import atexit
import os
import subprocess
from contextlib import suppress
from typing import Any

from kraftfast.errors import SparkUnavailable

WRITE_S_MAX = 120.0


def java_option(path: str) -> str:
    """What the JVM is told: to map the archive, or to write one. Raises SparkUnavailable."""
    if '"' in path or " " in path:
        raise SparkUnavailable(f"an archive's path holds neither spaces nor quotes: {path}")
    if os.path.exists(path):
        return f"-XX:SharedArchiveFile={path} -Xshare:auto -Xlog:cds=off -Xlog:class+path=off"
    return f"-XX:ArchiveClassesAtExit={unfinished(path)} -Xlog:cds=off"


def unfinished(path: str) -> str:
    """What this process writes, to be renamed when it is whole."""
    return f"{path}.{os.getpid()}"


def settings_folder(path: str) -> str:
    """An empty folder beside it, for Spark's settings: an archive holds for one class path only.

    Raises SparkUnavailable.
    """
    folder = f"{path}.conf"
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise SparkUnavailable(f"cannot write beside {path}: {error.strerror}") from None
    return folder


def keep(path: str, spark: Any) -> None:
    """Once the session's JVM has ended, and has written the whole file, give it its name."""
    if os.path.exists(path):
        return
    gateway = spark.sparkContext._gateway
    atexit.register(_finish, path, spark, gateway)


def _finish(path: str, spark: Any, gateway: Any) -> None:
    """Nothing is kept of a JVM that does not end in time."""
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    with suppress(subprocess.TimeoutExpired, FileNotFoundError):
        gateway.proc.wait(WRITE_S_MAX)
        with open(unfinished(path), "rb") as file:
            os.fsync(file.fileno())  # the JVM dies of one that was cut off
        os.replace(unfinished(path), path)
    with suppress(FileNotFoundError):
        os.unlink(unfinished(path))
