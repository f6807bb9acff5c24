"""What some programs need besides: Spark, Java, Arrow, clients of Kafka. None of it is required."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
from collections.abc import Iterator

from kraftfast.doctor.findings import NOTE, OK, Fact

DISTRIBUTIONS = ("pyarrow", "pyspark", "pandas")
JAVA_TIMEOUT_S = 10
ANOTHER_JAVA = "Spark needs Java 17 or later: JAVA_HOME names where one is"


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
    yield java()


def java() -> Fact:
    """Return the line on Java: the first one of what ``java -version`` says, where that works."""
    home = os.environ.get("JAVA_HOME")
    command = shutil.which(os.path.join(home, "bin", "java") if home else "java")
    if command is None:
        return Fact("Java", OK, "not found (optional: Spark needs 17 or later)")
    try:
        done = subprocess.run(
            [command, "-version"], capture_output=True, text=True, timeout=JAVA_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Fact("Java", NOTE, f"{command} does not run: {error}", ANOTHER_JAVA)
    said = (done.stderr or done.stdout).strip().partition("\n")[0]
    if done.returncode:
        why = said or f"it ends with {done.returncode}"
        return Fact("Java", NOTE, f"{command} does not run: {why}", ANOTHER_JAVA)
    return Fact("Java", OK, said, value=said)
