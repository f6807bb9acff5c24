"""Directories of a command's own."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kraftfast.cli.scratch import scratch_directory


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
