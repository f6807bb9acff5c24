"""``kraftfast demo``: the main job, whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraftfast.bench import same_logs
from kraftfast.bench.results.report import ORDER
from tests.cli.kit import fails, run

pytestmark = pytest.mark.processes


def test_generated_records_as_json(tmp_path: Path) -> None:
    done = run("demo", "--records", 30_000, "--record-size", 100, "--dir", tmp_path / "q", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["verified"] and report["problem"] == ""
    assert (report["records"], report["value_bytes"], report["voters"]) == (30_000, 3_000_000, 3)
    assert report["end_offset"] - report["first_offset"] == 30_000
    assert report["compared_bytes"] > 3_000_000
    assert 0 < report["p50_us"] <= report["max_us"] * 1.02
    assert 2 < report["samples"] < 1000 and report["p999_us"] is None, "a batch is a sample"
    assert report["records_per_s"] == pytest.approx(30_000 / report["seconds"])
    assert report["fsyncs_per_1000_records"] > 0
    assert {stage["name"] for stage in report["stages"]} == set(ORDER)
    assert len(report["replicas"]) == 3
    for replica in report["replicas"]:
        assert replica["end_offset"] == replica["high_watermark"] == report["end_offset"]
    assert (tmp_path / "q" / "1").is_dir()


def test_lines_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "input"
    file.write_bytes(b"\n".join(b"line %d" % number for number in range(5000)))
    done = run("demo", "--input", file, "--voters", 1, "--transport", "ring", cwd=tmp_path)
    out = done.stdout.decode()
    assert done.returncode == 0, done.stderr
    assert out.startswith("5,000 records, ")
    assert "verified: 1 logs" in out and "leader flush, replica 1" in out
    assert [path.name for path in tmp_path.iterdir()] == ["input"], "it cleans up"


def test_stdin_and_memory() -> None:
    data = b"".join(b"%d\n" % number for number in range(100))
    done = run("demo", "--input", "-", "--durability", "memory", "--flush", "deferred", data=data)
    assert done.returncode == 0, done.stderr
    assert b"100 records, 190 bytes" in done.stdout and b"IN MEMORY ONLY" in done.stdout


def test_a_directory_is_used_again(tmp_path: Path) -> None:
    for first in (3, 14):
        done = run("demo", "--records", 10, "--voters", 1, "--dir", tmp_path, "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["first_offset"] == first
    assert "3" in fails(run("demo", "--records", 10, "--voters", 3, "--dir", tmp_path), 2)
    assert "memory" in fails(
        run("demo", "--records", 10, "--durability", "memory", "--dir", tmp_path), 2
    )


def test_inputs_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert "is empty" in fails(run("demo", "--input", tmp_path / "empty"), 3)
    assert "No such file" in fails(run("demo", "--input", tmp_path / "none"), 3)
    assert "is empty" in fails(run("demo", "--input", "-", data=b""), 3)
    (tmp_path / "long").write_bytes(b"x\n" + b"y" * (9 << 20))
    assert "line 2" in fails(run("demo", "--input", tmp_path / "long"), 4)
    fails(run("demo", "--input", "x", "--records", 1), 2)
    fails(run("demo", "--record-size", "9MiB"), 2)


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    text = fails(run("demo", "--records", 1, "--dir", tmp_path / "file" / "below"), 2)
    assert f"{tmp_path / 'file'} is no directory" in text


def test_it_fails_where_a_replica_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One byte of one follower's log is changed between the run and its verification."""
    from kraftfast.cli import root

    compare = same_logs.compare_replicas

    def damage(paths: dict[int, str], end_offset: int) -> tuple[int, str]:
        file = Path(paths[2]) / f"{0:020}.log"
        data = file.read_bytes()
        at = data.index(b"needle")
        with open(file, "r+b") as opened:
            opened.seek(at)
            opened.write(b"N")
        return compare(paths, end_offset)

    monkeypatch.setattr(same_logs, "compare_replicas", damage)
    (tmp_path / "input").write_bytes(b"hay\nneedle\nhay\n")
    arguments = ["demo", "--input", str(tmp_path / "input"), "--dir", str(tmp_path / "q")]
    assert root.run(arguments) == 16
    out, err = capsys.readouterr()
    assert "NOT verified" in out
    assert (
        err
        == "kraftfast: the verification failed: replicas 1 and 2 differ in the batch at offset 3\n"
    )
