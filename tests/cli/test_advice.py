"""Commands that a message advises run as they are printed."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftfast import LocalQuorum
from tests.cli.logs import Done


@pytest.mark.parametrize("place", [".", "1"], ids=["quorum", "replica"])
def test_status_advises_a_command_that_shows_what_is_left(
    tmp_path: Path, kraftfast: Callable[..., Done], place: str
) -> None:
    """It named quorum.json among the directories, and split a path that has a space."""
    path = tmp_path / "a quorum"
    LocalQuorum(path, voters=1).close()
    told = kraftfast("status", "--dir", path / place).err
    advised = shlex.split(told.partition("; ")[2].partition(" shows")[0])
    assert advised[0] == "kraftfast" and str(path) in advised[-1]
    assert "LogEndOffset" in kraftfast(*advised[1:]).out
