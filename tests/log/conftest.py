"""Settings and fixtures of this room."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

HERE = Path(__file__).parent

# How long an example takes says nothing on a machine that others share.
settings.register_profile("log", deadline=None)
settings.load_profile("log")


@pytest.fixture(scope="session", params=["committed", "golden"])
def recorded(request: pytest.FixtureRequest) -> list[Path]:
    """Log directories that Kafka left: the few kept beside the tests, and all there are."""
    if request.param == "committed":
        root = HERE / "data"
    else:
        root = request.getfixturevalue("golden") / "disk"
    found = sorted(path.parent for path in root.rglob("quorum-state"))
    assert len(found) >= (2 if request.param == "committed" else 30), (
        "the recorded data is not there"
    )
    return found
