"""The archive of classes: written whole at the end of a session, mapped by the next."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kraftfast import errors
from kraftfast.spark import archive
from kraftfast.spark.session import why_not

PROGRAM = """
from kraftfast.spark import get_spark
spark = get_spark("local[1]", short=True, memory="512m", archive=r"{path}")
assert spark.range(10).count() == 10
maps = open(f"/proc/{{spark.sparkContext._gateway.proc.pid}}/maps").read()
print("mapped", r"{path}" in maps)
"""


@pytest.mark.spark
def test_the_first_session_writes_it_and_the_next_one_maps_it(tmp_path: Path) -> None:
    if why_not():
        pytest.skip(why_not())
    path = tmp_path / "spark.jsa"
    environment = {name: v for name, v in os.environ.items() if name != "SPARK_CONF_DIR"}
    for mapped in (False, True):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM.format(path=path)], capture_output=True, text=True,
            env=environment, timeout=180,
        )  # fmt: skip
        assert done.stdout == f"mapped {mapped}\n", done.stderr
        assert "cds" not in done.stderr, done.stderr
        assert sorted(os.listdir(tmp_path)) == ["spark.jsa", "spark.jsa.conf"]
    assert not os.listdir(tmp_path / "spark.jsa.conf")


def test_paths_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(errors.SparkUnavailable, match="neither spaces nor quotes"):
        archive.java_option("a file.jsa")
    (tmp_path / "taken").write_text("")
    with pytest.raises(errors.SparkUnavailable, match="cannot write beside"):
        archive.settings_folder(str(tmp_path / "taken" / "spark.jsa"))
