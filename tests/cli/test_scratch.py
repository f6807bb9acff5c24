"""Directories of a command's own."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from kraftfast.cli.scratch import refuse_without_space, scratch_directory
from kraftfast.errors import DiskFull


def test_it_goes_although_a_process_that_ends_still_makes_files(tmp_path: Path) -> None:
    """Ctrl-C or SIGHUP while workers started left the directory, with hundreds of megabytes."""

    def make_files() -> None:
        try:
            for number in range(2_000):
                os.close(os.open(f"{path}/{number}", os.O_CREAT))
        except FileNotFoundError:
            pass

    with ThreadPoolExecutor(1) as pool:
        with scratch_directory("test", str(tmp_path)) as path:
            for number in range(2_000):
                Path(path, f"before-{number}").touch()
            busy = pool.submit(make_files)
        busy.result()
    assert not list(tmp_path.iterdir())


def test_a_small_need_is_not_told_as_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said that 0 MB were needed where 0 MB are free."""
    full = SimpleNamespace(f_bavail=3, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda _path: full)
    with pytest.raises(DiskFull, match=f"need 51 kB: {tmp_path} has 12 kB of free space"):
        refuse_without_space(str(tmp_path), 51_000)
    with pytest.raises(DiskFull, match="need 3,000 MB: "):
        refuse_without_space(str(tmp_path), 3_000_000_000)
