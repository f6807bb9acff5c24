"""One session for all tests of the room: a JVM takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftfast.spark.sessions.local_session import get_spark, why_not
from tests.spark.kit import LogFiles


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """Two cores, four attempts a task."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    session = get_spark("local[2,4]", short=True, memory="1g")
    yield session
    session.stop()


@pytest.fixture
def log(tmp_path: Path) -> LogFiles:
    """Three segments of ten batches of four records each: offsets 0 to 119, epochs 1 to 3."""
    files = LogFiles(tmp_path / "replica")
    files.fill(segments=3, batches=10, records=4)
    return files
