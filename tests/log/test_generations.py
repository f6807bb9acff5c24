"""What each prepared file begins with, so that no other one is taken for it (D20)."""

from __future__ import annotations

from pathlib import Path

from tests.log.kit import Home, fill


def test_no_two_files_begin_with_one_generation(tmp_path: Path) -> None:
    """D20: disks give the number of a file that was removed to the next one, which may get its
    name, too."""
    home = Home(tmp_path)
    log = home.open()
    while len(log.segments) < 5:
        fill(log, 12, 3000)
    log.flush()
    found = [segment.generation() for segment in log.segments]
    log.retire()
    home.close()  # the last one is trimmed, too, and gets a page again
    log = home.open()
    found.append(log.active.generation())
    assert len(set(found)) == 6 and min(found) > 0
    home.close()
