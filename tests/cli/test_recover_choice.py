"""``kraftfast storage recover``: which of several logs goes on, and what is said of the others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kraftfast.cli.storage.recover import choose, explained
from kraftfast.node.storage.stored_replica import stored_replica
from tests.log.kit import Home, fill


def test_of_equal_ends_the_log_that_begins_first_is_taken(tmp_path: Path) -> None:
    """The other one was taken if it was named first: records that a replica had kept were lost."""
    home = Home(tmp_path / "1")
    fill(home.open(), 3)
    home.close()
    whole = stored_replica(home.path)
    later = replace(whole, path="later", log_start_offset=whole.end_offset)
    for found in ([whole, later], [later, whole]):
        assert choose(found) is whole
        said = " ".join(explained(whole, found))
        assert f"its log begins at offset 0 and ends at offset {whole.end_offset}" in said
        assert f"begins at offset {later.log_start_offset} and ends" in said
    shorter = replace(whole, end_offset=whole.end_offset - 1)
    assert choose([shorter, later]) is later, "what was committed counts first"
