"""A file of the classes that a session loads, so that the next session starts twice as quickly.

The first session of a folder writes it as its process ends (some ten seconds, 170 MB), and the JVM
maps it from then on (JEP 350, AppCDS). Another Java or another Spark has another file.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from kraftfast import forks
from kraftfast.errors import SparkUnavailable

WRITE_S_MAX = 120.0


class ClassArchive:
    """The archive in a folder, for one Java and the Spark that is installed.

    Raises SparkUnavailable for a folder that cannot be written to, or that a JVM does not know
    by its name.
    """

    # path: where it is, or will be. unfinished: what this process writes, renamed when it is whole.
    # settings: an empty folder for Spark's settings, since an archive holds for one class path.

    def __init__(self, folder: str, java: str) -> None:
        import pyspark

        place = Path(folder).expanduser().absolute()
        if any(each in str(place) for each in ' "'):
            raise SparkUnavailable(f"an archive's folder has neither spaces nor quotes: {place}")
        command = Path(java).resolve()
        status = command.stat()
        known = (pyspark.__path__[0], str(command), status.st_mtime_ns, status.st_size)
        digest = hashlib.sha256(repr(known).encode()).hexdigest()[:12]
        self.path = place / f"spark-{pyspark.__version__}-{digest}.jsa"
        self.unfinished = place / f"{self.path.name}.{os.getpid()}"
        self.settings = place / "conf"
        try:
            self.settings.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SparkUnavailable(f"cannot write to {place}: {error.strerror}") from None
        self.there = self.path.exists()

    def java_option(self) -> str:
        """Return what the JVM is told: to map the archive, or to write one."""
        if self.there:
            return f"-XX:SharedArchiveFile={self.path} -Xlog:cds=off -Xlog:class+path=off"
        return f"-XX:ArchiveClassesAtExit={self.unfinished} -Xlog:cds=off"

    def keep(self, spark: Any) -> None:
        """Once the session's JVM has ended, and has written the whole file, give it its name."""
        if not self.there:
            forks.at_exit(self._finish, spark, spark.sparkContext._gateway)

    def _finish(self, spark: Any, gateway: Any) -> None:
        """Keep nothing of a JVM that does not end in time."""
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        with suppress(subprocess.TimeoutExpired, FileNotFoundError):
            gateway.proc.wait(WRITE_S_MAX)
            with self.unfinished.open("rb") as file:
                os.fsync(file.fileno())  # a JVM dies of one that was cut off
            self.unfinished.replace(self.path)
        self.unfinished.unlink(missing_ok=True)
