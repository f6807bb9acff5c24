"""The sources on a real session: what only Spark itself can show."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kraftfast import errors
from tests.spark.kit import LogFiles

pytestmark = pytest.mark.spark
ROOT = Path(__file__).resolve().parents[2]


def read(spark: Any, path: Path, kind: str = "kraftfast", **options: Any) -> Any:
    return spark.read.format(kind).options(**options).load(str(path))


def test_a_log_is_a_data_frame(spark: Any, log: LogFiles) -> None:
    found = read(spark, log.path)
    assert found.count() == 120
    row = found.where("offset = 41").collect()
    assert [(each.epoch, bytes(each.value), each.headers) for each in row] == [
        (2, b"value 41", None)
    ]
    some = found.where("offset >= 38 and offset < 42 and epoch = 2")
    assert [each.offset for each in some.select("offset").collect()] == [40, 41]
    assert found.where("offset > 1000").count() == 0
    assert found.count() == 120, "a filter of one query is none of the next"
    asked = spark.read.format("kraftfast").schema("epoch int, offset bigint").load(str(log.path))
    assert asked.groupBy("epoch").count().orderBy("epoch").collect() == [(1, 40), (2, 40), (3, 40)]


def test_filters_are_pushed_down_where_asked_for(spark: Any, log: LogFiles) -> None:
    log.flip(1)  # whoever reads the first segment fails

    def pushed() -> Any:
        return read(spark, log.path, pushFilters="true")

    some = pushed().where("offset >= 78 and offset < 83 and epoch = 3").select("offset")
    assert [row.offset for row in some.collect()] == [80, 81, 82]
    assert pushed().where("offset > 1000").count() == 0, "nothing is left to read"
    assert pushed().where("timestamp >= '2023-11-14 22:13:45+00:00'").count() == 20


def test_headers_of_batches(spark: Any, log: LogFiles) -> None:
    log.flip(13)
    found = read(spark, log.path, "kraftfast-batches")
    assert found.where("not crcOk").select("baseOffset", "segment").collect() == [
        (52, f"{40:020d}.log")
    ]


def test_failures_are_one_line(spark: Any, log: LogFiles, capfd: Any) -> None:
    from kraftfast.spark import told

    log.flip(13)
    with pytest.raises(errors.CorruptLog, match=r"damaged at byte \d+ \(offset 52\)"), told():
        read(spark, log.path).count()
    with pytest.raises(errors.InvalidOption, match="did you mean startOffset"), told():
        read(spark, log.path, startOfset=3).count()
    with pytest.raises(errors.InputError, match="does not exist"), told():
        read(spark, log.path / "nowhere").count()
    assert capfd.readouterr().err.count("\n") < 10
    assert read(spark, log.path, onCorrupt="skip").count() == 116


PROGRAM = """
import os, sys
from kraftfast.spark import get_spark
sys.path.append(".")
import beside
spark = get_spark("local[1]", short=True, memory="512m")
assert "PYTHONSAFEPATH" not in os.environ, "it is for those that Spark starts"
log = spark.read.format("kraftfast").load(sys.argv[1])
assert log.count() == 120
assert log.rdd.map(beside.length).sum() > 120
"""


def test_workers_import_the_kraftfast_of_their_driver(log: LogFiles, tmp_path: Path) -> None:
    """Not one of the current directory, such as a clone that is not built; modules there count."""
    here = tmp_path / "clone"
    (here / "kraftfast").mkdir(parents=True)
    told = "import sys\nprint('not built', file=sys.stderr)\n"
    (here / "kraftfast" / "__init__.py").write_text(told)
    (here / "beside.py").write_text("def length(row):\n    return len(row.value)\n")
    (tmp_path / "program.py").write_text(PROGRAM)
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py"), str(log.path)],
        cwd=here, env=os.environ | {"PYTHONPATH": path},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0 and "not built" not in done.stderr, done.stderr
