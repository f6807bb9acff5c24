"""What some programs need besides: Spark, Java, Arrow, clients of Kafka. None of it is required."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
from collections.abc import Iterator

from kraftfast.doctor.findings import OK, Fact

DISTRIBUTIONS = ("pyarrow", "pyspark", "pandas")
JAVA_TIMEOUT_S = 10


def extras() -> Iterator[Fact]:
    """Yield one line for each; a missing one is no fault."""
    for name in DISTRIBUTIONS:
        try:
            text: str | None = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            text = None
        option = "arrow" if name == "pyarrow" else "spark"
        absent = f"not installed (optional: pip install 'kraftfast[{option}]')"
        yield Fact(name, OK, text or absent, value=text)
    yield Fact("Java", OK, java() or "not found (optional: Spark needs 17 or later)",
                  value=java())  # fmt: skip


def java() -> str:
    """Return the first line that ``java -version`` says; '' if there is none."""
    home = os.environ.get("JAVA_HOME")
    command = shutil.which(os.path.join(home, "bin", "java") if home else "java")
    if command is None:
        return ""
    try:
        done = subprocess.run(
            [command, "-version"], capture_output=True, text=True, timeout=JAVA_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{command} does not run: {error}"
    return (done.stderr or done.stdout).strip().partition("\n")[0]
