"""The archive of classes: written whole at the end of a session, mapped by the next."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from kraftfast import errors  # noqa: E402
from kraftfast.spark.sessions.class_archive import ClassArchive  # noqa: E402
from kraftfast.spark.sessions.local_session import why_not  # noqa: E402

PROGRAM = """
from kraftfast.spark import get_spark
spark = get_spark("local[1]", short=True, memory="512m", archive=r"{path}")
assert spark.range(10).count() == 10
maps = open(f"/proc/{{spark.sparkContext._gateway.proc.pid}}/maps").read()
print("mapped", r"{path}/spark-" in maps)
"""


@pytest.mark.long
@pytest.mark.spark
def test_the_first_session_writes_it_and_the_next_one_maps_it(tmp_path: Path) -> None:
    if why_not():
        pytest.skip(why_not())
    environment = {name: v for name, v in os.environ.items() if name != "SPARK_CONF_DIR"}
    for mapped in (False, True):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM.format(path=tmp_path)], capture_output=True, text=True,
            env=environment, timeout=180,
        )  # fmt: skip
        assert done.stdout == f"mapped {mapped}\n", done.stderr
        assert "cds" not in done.stderr, done.stderr
        kept = sorted(path.name for path in tmp_path.iterdir())
        assert len(kept) == 2 and kept[0] == "conf" and kept[1].endswith(".jsa"), kept
    assert not os.listdir(tmp_path / "conf")


def test_another_java_has_another_file(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text("one")
    one, same = (ClassArchive(str(tmp_path / "kept"), str(java)).path for _ in range(2))
    java.write_text("another")
    assert ClassArchive(str(tmp_path / "kept"), str(java)).path != one == same


def test_folders_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(errors.SparkUnavailable, match="neither spaces nor quotes"):
        ClassArchive(str(tmp_path / "a folder"), sys.executable)
    (tmp_path / "taken").write_text("")
    with pytest.raises(errors.SparkUnavailable, match="cannot write to"):
        ClassArchive(str(tmp_path / "taken"), sys.executable)
