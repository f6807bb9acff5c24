"""Files of batches that somebody cuts short while they are read: damage, and no SIGBUS."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftfast import limits
from kraftfast.errors import CorruptBatch, StorageError
from kraftfast.log import scan
from kraftfast.log.reading.copied_file import SPAN_BYTES, CopiedFile
from tests.log.kit import KIB, Home, batch_of_size, fill
from tests.log.test_reader import in_a_process

MIB = 1024 * KIB

CUT_UNDER_A_DUMP = """
import os, sys
from kraftfast.cli.log.dump import Dump
from kraftfast.errors import CorruptLog
from kraftfast.log.reading import verify

how, path, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
try:
    if how == "dump":
        lines = Dump(records=True, as_json=False).file(path)
        for _ in range(4):
            next(lines)
        os.truncate(path, size)
        list(lines)
    else:
        judged = verify.tail_of
        def cut(*arguments):
            os.truncate(path, size)
            return judged(*arguments)
        verify.tail_of = cut
        print(verify.verify(path).tail.kind)
except CorruptLog as error:
    print(error)
"""


@pytest.mark.parametrize("how", ["dump", "verify"])
@pytest.mark.parametrize("size", [0, 70_000])
def test_a_segment_that_is_cut_short_under_a_dump_or_a_verification(
    tmp_path: Path, how: str, size: int
) -> None:
    home = Home(tmp_path / "replica")
    fill(home.open(segment_bytes=8 * MIB, stride_bytes=MIB), 100, 30_000)
    home.log.flush()
    (path,) = home.segment_paths()
    lines = in_a_process(CUT_UNDER_A_DUMP, how, path, str(size))
    assert lines[0].startswith(f"{path} is damaged at byte "), lines
    home.log.abandon()


CUT_UNDER_A_LOOK = """
import os, sys
from kraftfast.errors import CorruptLog
from kraftfast.log.reading import at_rest
from kraftfast.log.reading.verify import verify

directory, path, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
opened = at_rest._open_held
def cut(*arguments):
    opened(*arguments)
    os.truncate(path, size)
at_rest._open_held = cut
try:
    print(verify(directory).tail, "once it is cut")
except CorruptLog as error:
    print(error)
"""


@pytest.mark.parametrize("size", [0, 1024, 70_000])
@pytest.mark.parametrize("leave", ["close", "kill"])
def test_a_segment_that_is_cut_short_while_a_log_is_looked_at(
    tmp_path: Path, leave: str, size: int
) -> None:
    home = Home(tmp_path / "replica")
    fill(home.open(segment_bytes=8 * MIB, stride_bytes=MIB), 100, 30_000)
    home.log.flush()
    getattr(home, leave)()
    (path,) = home.segment_paths()
    lines = in_a_process(CUT_UNDER_A_LOOK, home.path, path, str(size))
    empty = leave == "kill" and size == 0  # its last page went, and no part of a batch is left
    assert path in lines[0] and ("once it is cut" in lines[0]) == empty, lines


def test_what_a_file_is_asked_for(tmp_path: Path) -> None:
    first, second = batch_of_size(3 * MIB), batch_of_size(500, base_offset=1)
    path = tmp_path / "a"
    path.write_bytes(first + second + bytes(2 * SPAN_BYTES))
    file = CopiedFile(str(path))
    assert file.sound_end(0, 0)[:2] == (len(first) + 500, 2)
    end = len(first) + len(second.rstrip(b"\0"))
    assert file.data_end(0, file.size) == end == file.data_end(end - 1, end)
    assert file.data_end(end, file.size) == end
    assert file.batch(len(first), file.size).base_offset == 1
    assert file.whole(0, file.size)[1] == len(first) + 500
    with pytest.raises(CorruptBatch):
        file.batch(5, file.size)
    os.truncate(path, 1000)
    for position in (0, 1000, 2 * MIB):
        with pytest.raises(CorruptBatch):
            file.batch(position, file.size)
        assert file.sound_end(position, 0)[3] in (scan.INCOMPLETE, scan.END)
    assert file.data_end(2000, file.size) == 2000
    assert file.headers(0, file.size, verify_crc=True).fault
    file.close()
    with pytest.raises(StorageError, match="cannot read"):
        file.read(0, 1)
    with pytest.raises(StorageError, match="cannot read"):
        file.headers(0, 100)


@pytest.mark.parametrize(
    "length", [-(2**31), -1, 0, 48, limits.BATCH_BYTES_MAX - 11, 2**31 - 1], ids=str
)
def test_a_length_that_cannot_be_is_damage_and_takes_no_memory(tmp_path: Path, length: int) -> None:
    data = bytearray(batch_of_size(3000))
    data[8:12] = length.to_bytes(4, "big", signed=True)
    path = tmp_path / "a"
    path.write_bytes(data)
    os.truncate(path, 1 << 30)
    file = CopiedFile(str(path))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    asked: list[Callable[[], object]] = [
        lambda: file.walk(0, 0, verify_crc=True)[4],
        lambda: file.headers(0, 1 << 20).fault,
    ]
    assert [bool(each()) for each in asked] == [True, True]
    with pytest.raises(CorruptBatch):
        file.batch(0, file.size)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40 * KIB
