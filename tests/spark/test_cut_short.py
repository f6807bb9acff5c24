"""Segments that somebody cuts short while Spark's tasks read them: damage, and no SIGBUS."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from tests.log.test_reader import in_a_process  # noqa: E402
from tests.spark.kit import LogFiles  # noqa: E402

CODE = """
import os, sys
from kraftfast.errors import KraftfastError
from kraftfast.spark.reading import split_reader, splits
from kraftfast.spark.jobs.digests import digest_of
from kraftfast.spark.spark_options import LOG_OPTIONS, SparkLogOptions
from kraftfast.spark.reading.locations import find_places
from kraftfast.spark.reading.arrow_batches import chosen, row_fields
from kraftfast.spark.reading.transactions import Transactions
import pyarrow as pa

how, path, segment, size = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
(place,) = find_places(path)
options = SparkLogOptions.of({"path": path}, LOG_OPTIONS, "kraftfast")
opened = splits.open_segment
def cut(*arguments):
    found = opened(*arguments)
    os.truncate(segment, size)
    return found
planned = list(splits.pieces(place, splits.Bounds(), 1 << 30, None))
assert [type(each) for each in planned] == [splits.Piece]
splits.open_segment = split_reader.open_segment = cut
import kraftfast.spark.jobs.digests as digests
digests.open_segment = cut
(piece,) = planned
try:
    if how == "plan":
        print([each.reason for each in splits.pieces(place, splits.Bounds(), 1 << 30, None)
               if isinstance(each, splits.Damaged)])
    elif how == "rows":
        schema = pa.schema([("offset", pa.int64()), ("value", pa.binary())])
        list(split_reader.read_rows(piece, options, schema, True))
    elif how == "headers":
        batches = split_reader.read_headers(piece, True)
        found = [each.column("damage").to_pylist() for each in batches]
        print("damage" if any(any(each) for each in found) else found)
    elif how == "digest":
        print("damage" if digest_of(piece, range(1 << 30)).faults else "none")
    elif how == "admit":
        print(splits.offset_after(place, 0, 1000, 1 << 30))
    else:
        print(Transactions(place.log_path).stable_end(0, 1000))
except KraftfastError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("how", ["plan", "rows", "headers", "digest", "admit", "transactions"])
@pytest.mark.parametrize("size", [0, 5000])
def test_a_segment_that_is_cut_short_under_a_task(tmp_path: Path, how: str, size: int) -> None:
    files = LogFiles(tmp_path / "log")
    files.fill(1, 40, 30)
    (segment,) = files.log_path.glob("*.log")
    assert segment.stat().st_size > 2 * 5000
    (line, *_) = in_a_process(CODE, how, str(files.path), str(segment), str(size))
    if how in ("plan", "rows", "headers", "digest"):
        assert "damage" in line or "longer than the bytes" in line, line
