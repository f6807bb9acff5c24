"""Directories that version 0.1.0 left: they open, and appends go on in them.

``data/left-0.1.0.tar.xz`` holds three replicas, as ``Home`` made them: ``closed`` by an orderly
stop; ``killed`` with three segments that are prepared, and batches behind the flushed end;
``recycled``, whose last file held older batches, which still stand behind what was prepared.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from kraftfast.log.disk import Disk
from kraftfast.log.reading.verify import verify
from tests.log.kit import KIB, Home, append, batch_of_size, content

LEFT = Path(__file__).parent / "data" / "left-0.1.0.tar.xz"
SIZES = {"closed": [2000] * 60, "killed": [2000] * 64, "recycled": [4096] * 193 + [3000] * 8}
START = {"closed": 0, "killed": 0, "recycled": 64}
"""Where each log begins."""
SETTINGS = {
    "closed": {},
    "killed": {},
    "recycled": {"segment_bytes": 256 * KIB, "stride_bytes": 64 * KIB},
}


def made(offset: int, size: int, epoch: int = 1) -> bytes:
    return batch_of_size(size, base_offset=offset, epoch=epoch, fill=bytes([97 + offset % 26]))


@pytest.fixture(params=sorted(SIZES))
def left(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Home]:
    with tarfile.open(LEFT) as archive:
        archive.extractall(tmp_path, filter="data")
    path = str(tmp_path / request.param)
    return request.param, Home.on(Disk(), path, "__cluster_metadata-0")


def test_it_opens_and_goes_on(left: tuple[str, Home]) -> None:
    name, home = left
    stored = [made(offset, size) for offset, size in enumerate(SIZES[name])]
    verify(home.path)
    log = home.open(**SETTINGS[name])
    assert content(log) == b"".join(stored[START[name] :]) and log.end_offset == len(stored)
    segments = len(log.segments)
    while len(log.segments) < segments + 3:  # across all that the old files hold
        stored.append(made(log.end_offset, 1000 + log.end_offset % 7, 2))
        append(log, stored[-1], 2)
    log.flush()
    home.kill()
    log = home.open(**SETTINGS[name])
    assert content(log) == b"".join(stored[START[name] :])
    home.close()
    assert verify(home.path).end_offset == len(stored)
    assert content(home.open(**SETTINGS[name])) == b"".join(stored[START[name] :])
    home.close()


def test_what_was_not_flushed_may_be_cut_and_written_anew(left: tuple[str, Home]) -> None:
    name, home = left
    stored = [made(offset, size) for offset, size in enumerate(SIZES[name])][START[name] :]
    log = home.open(**SETTINGS[name])
    end = log.end_offset - 3
    log.truncate(end)
    del stored[-3:]
    for _ in range(5):
        stored.append(made(log.end_offset, 900, 2))
        append(log, stored[-1], 2)
    log.flush()
    home.kill()
    assert content(home.open(**SETTINGS[name])) == b"".join(stored)
    home.close()
