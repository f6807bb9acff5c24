"""``kraftfast profile cpu``: what it writes, what it leaves, and how it fails without py-spy."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftfast.bench.profiling import spy
from kraftfast.errors import HostUnsupported
from tests.cli.kit import fails, run
from tests.cli.logs import Done

FAKE = "#!/bin/sh\n"


def works() -> bool:
    try:
        spy.find()
    except HostUnsupported:
        return False
    return True


@pytest.mark.processes
def test_each_process_has_its_files_and_two_runs_are_compared(tmp_path: Path) -> None:
    if not works():
        pytest.skip("py-spy is not here, or may not look into other processes")
    first, second, scratch = (tmp_path / name for name in ("not/yet", "second", "scratch"))
    scratch.mkdir()
    args = ("--seconds", 1, "--dir", scratch)
    done = run("profile", "cpu", "throughput", "-o", first, *args)
    assert done.returncode == 0, done.stderr
    names = {"leader", "follower-1", "follower-2", "client"}
    kinds = (".svg", ".speedscope.json")
    expected = {f"{name}{kind}" for name in names for kind in kinds} | {"bench.json"}
    assert {path.name for path in first.iterdir()} == expected
    assert "records/s while it was sampled" in done.stdout.decode()
    done = run("profile", "cpu", "latency", "-o", second, *args, "--diff", first, "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["samples"].keys() == names and said["samples"]["leader"] > 0
    assert said["changes"], "latency spends its time elsewhere"
    assert {path.name for path in second.glob("*.diff.svg")} == {f"{n}.diff.svg" for n in names}
    assert not list(scratch.iterdir()), "it removes what it made"


def test_without_py_spy_it_is_one_line(
    tmp_path: Path, kraftfast: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spy.shutil, "which", lambda *_args, **_settings: None)
    done = kraftfast("profile", "cpu", "latency", "-o", tmp_path / "new", "--dir", tmp_path)
    assert done.code == HostUnsupported.exit_code
    assert done.err == ("kraftfast: there is no py-spy: pip install 'kraftfast[profile]'\n")
    assert not list(tmp_path.iterdir())


def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = tmp_path / "bin" / "py-spy"
    program.parent.mkdir()
    program.write_text(FAKE + script)
    program.chmod(0o755)
    monkeypatch.setattr(spy.shutil, "which", lambda *_args, **_settings: str(program))


def test_without_the_right_to_look_it_is_one_line(
    tmp_path: Path, kraftfast: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "Error: Permission Denied: Try running again with elevated permissions\n"
    fake(tmp_path, monkeypatch, f"echo '{said}' >&2; exit 1")
    done = kraftfast("profile", "cpu", "latency", "-o", tmp_path / "new", "--dir", tmp_path)
    assert done.code == HostUnsupported.exit_code and done.err.count("\n") == 1
    assert "Permission Denied" in done.err and "ptrace_scope" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]


def test_without_native_frames_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(tmp_path, monkeypatch, 'case "$*" in *--native*) exit 1;; esac')
    assert spy.find().native is False


def test_one_that_ends_before_it_samples_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(
        tmp_path, monkeypatch, 'test "$1" = dump || { echo "Error: no such process" >&2; exit 1; }'
    )
    found = spy.find()
    with pytest.raises(HostUnsupported, match="py-spy ended: no such process"):
        with spy.sampling(found, {"leader": os.getpid()}, tmp_path, 100):
            raise AssertionError("it does not sample")


@pytest.mark.parametrize("options, said", [
    (("--window", 4), "--window belongs to throughput and sustained"),
    (("--diff", "absent"), "absent is no folder of profiles"),
    (("--diff", "earlier", "-o", "./earlier"), "--diff earlier would be overwritten"),
    (("--diff", "./profile"), "--diff profile would be overwritten"),
    (("-o", "/proc/none"), "cannot write to /proc/none: "),
    (("-o", "mine"), "mine/bench.json is there, and of no profile"),
])  # fmt: skip
def test_bad_options_are_told_before_anything_runs(
    options: tuple[object, ...],
    said: str,
    kraftfast: Callable[..., Done],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "bench.json").touch()
    done = kraftfast("profile", "cpu", "latency", *options)
    assert done.code in (2, 3) and said in done.err and done.err.count("\n") == 1


@pytest.mark.processes
def test_total_and_seconds_do_not_go_together() -> None:
    done = run("profile", "cpu", "throughput", "--total", 1, "--seconds", 1)
    assert "--total or --seconds, not both" in fails(done, 2)
