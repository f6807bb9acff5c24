"""Fixtures for all rooms."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def golden() -> Path:
    """Files and frames recorded from Apache Kafka; tests that need them are skipped elsewhere."""
    path = Path(os.environ.get("KRAFTFAST_GOLDEN", ROOT.parent / "shared" / "golden"))
    if not path.is_dir():
        pytest.skip("no recorded Kafka data here: set KRAFTFAST_GOLDEN")
    return path
