"""Standard streams that are closed, full, broken, narrow, or without most letters."""

from __future__ import annotations

import io
import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftfast.cli import streams
from kraftfast.log.disk import Disk
from kraftfast.node.storage.local_layout import format_quorum
from tests.cli.kit import command, environment, run
from tests.cli.logs import Done

LEFT_OUT = ("PYTHONUTF8", "PYTHONIOENCODING", "LANG", "LC_CTYPE")


def shell(line: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a line of bash in which $K is the program."""
    kept = {name: value for name, value in environment().items() if name not in LEFT_OUT}
    return subprocess.run(
        ["bash", "-c", line],
        capture_output=True,
        text=True,
        timeout=60,
        env=kept | {"K": " ".join(command())} | more,
    )


@pytest.mark.parametrize(
    "line", ["status --dir {}", "log verify {}/1", "quorum describe --dir {} --status"]
)
def test_a_reader_that_leaves(line: str, quorum_dir: Path) -> None:
    line = line.format(quorum_dir)
    done = shell(f"$K {line} | true; echo ${{PIPESTATUS[0]}}")
    assert done.stdout in ("141\n", "0\n") and done.stderr == "", done
    done = shell(f"$K {line} | head -1; exit ${{PIPESTATUS[0]}}")
    assert done.stdout.count("\n") == 1 and done.returncode in (0, 141), done
    assert done.stderr == ""


@pytest.mark.parametrize("line", ["status --dir {}", "consume --dir {}", "--version"])
def test_closed_stdout(line: str, quorum_dir: Path) -> None:
    assert run("append", "--dir", quorum_dir, data=b"a").returncode == 0
    done = shell(f"$K {line.format(quorum_dir)} >&-")
    assert done.returncode == 74
    assert done.stderr == "kraftfast: cannot write to stdout: Bad file descriptor\n"


@pytest.mark.parametrize("where", [">&-", ">/dev/full"])
def test_what_was_appended_is_told_where_stdout_cannot_be_written(
    where: str, quorum_dir: Path
) -> None:
    """Else it looks as if nothing was, and is appended twice."""
    done = shell(f"echo a | $K append --dir {quorum_dir} {where}")
    assert done.returncode == 74
    assert "kraftfast: 1 record committed, offset " in done.stderr
    assert "cannot write to stdout" in done.stderr.splitlines()[-1]


def test_all_streams_closed(tmp_path: Path) -> None:
    """No file of the log may become descriptor 1 or 2: a line would be written into it."""
    line = f"$K demo --records 500 --dir {tmp_path / 'q'} --timeout 30 <&- >&- 2>&-"
    assert shell(line).returncode == 74
    done = run("log", "verify", "--json", tmp_path / "q" / "1")
    assert done.returncode == 0 and b'"records": 50' in done.stdout, done


def test_start_goes_on_without_stdout(tmp_path: Path) -> None:
    line = f"exec $K start --voters 1 --dir {tmp_path / 'q'} >&-"
    process = subprocess.Popen(
        ["bash", "-c", line], env=environment() | {"K": " ".join(command())}, stderr=subprocess.PIPE
    )
    try:
        for _ in range(300):
            done = run("append", "--dir", tmp_path / "q", data=b"a\n")
            if done.returncode == 0:
                break
        assert b"1 record committed" in done.stdout
    finally:
        process.terminate()
        _, said = process.communicate(timeout=30)
    assert process.returncode == 0 and b"Traceback" not in said
    assert said.splitlines()[-1].endswith(b"quorum_stopped: stopped")


@pytest.mark.parametrize("where", ["2>&-", "2>/dev/full"])
def test_stderr_that_takes_nothing_keeps_the_exit_code(where: str) -> None:
    done = shell(f"$K status --dir /nonexistent {where}")
    assert (done.returncode, done.stdout, done.stderr) == (36, "", "")


def test_closed_stdin(quorum_dir: Path) -> None:
    done = shell(f"$K append --dir {quorum_dir} <&-")
    assert done.returncode == 3
    assert done.stderr == "kraftfast: cannot read stdin: Bad file descriptor\n"


def test_nothing_can_be_confirmed_over_closed_stdin(tmp_path: Path) -> None:
    format_quorum(str(tmp_path / "q"), 3)
    done = shell(f"$K storage recover {tmp_path / 'q'} <&-")
    assert done.returncode == 2 and "stdin is no terminal" in done.stderr, done.stderr


@pytest.mark.parametrize(
    "locale",
    [
        {"LC_ALL": "C"},
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {"PYTHONIOENCODING": "ascii"},
    ],
)
def test_a_locale_without_letters(locale: dict[str, str], quorum_dir: Path, tmp_path: Path) -> None:
    assert run("append", "--dir", quorum_dir, data="h\u00e9".encode()).returncode == 0
    done = shell(f"$K log dump {quorum_dir}/1 --records | grep -c 'payload: h'", **locale)
    assert int(done.stdout) > 0 and done.stderr == "", done
    line = f"printf 'k\u00e9v\\n' | $K append --dir {quorum_dir} --key-separator \u00e9"
    done = shell(line, **locale)
    assert done.returncode == 0, done
    line = f"$K consume --dir {quorum_dir} --format json | tail -n 1"
    assert '"key": "k", "value": "v"' in shell(line, **locale).stdout
    done = shell(f"$K demo --records 10 --dir {tmp_path}/\u00e9 | tail -n 1", **locale)
    assert "verified: 3 logs" in done.stdout or "is not UTF-8, or the locale" in done.stderr, done
    assert done.stderr.count("\n") <= 1


@pytest.mark.parametrize("columns", ["1", "20", "0", "x"])
def test_a_narrow_terminal_cuts_nothing_off(
    columns: str,
    quorum_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kraftfast: Callable[..., Done],
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    rows = kraftfast("status", "--dir", quorum_dir).out.splitlines()[1:]
    assert len(rows) == 4 and len({len(row) for row in rows}) == 1
    if columns == "1":
        shown = kraftfast("demo", "--records", 10, "--dir", tmp_path / "q").out
        assert "commit of a batch" in shown and "\u2026" not in shown


def test_brackets_are_text_and_no_markup(tmp_path: Path, kraftfast: Callable[..., Done]) -> None:
    place = tmp_path / "[bold]" / "[x]"
    Disk().make_directory(str(place.parent))
    assert kraftfast("storage", "format", "--dir", place).code == 0
    for args in (("storage", "inspect", place), ("log", "verify", place / "1")):
        done = kraftfast(*args)
        assert done.code == 0 and "[x]" in done.out + str(args), done


def test_the_shell_is_answered() -> None:
    done = shell("$K", _KRAFTFAST_COMPLETE="bash_source")
    assert done.returncode == 0 and "complete" in done.stdout and "Usage" not in done.stdout
    asked = {"_KRAFTFAST_COMPLETE": "bash_complete", "COMP_CWORD": "2"}
    for words, wanted in (
        ("kraftfast quorum de", {"plain,describe"}),
        ("kraftfast demo --re", {"plain,--records", "plain,--record-size"}),
    ):
        assert set(shell("$K", COMP_WORDS=words, **asked).stdout.split()) == wanted


def test_an_error_of_the_system_is_no_defect(
    kraftfast: Callable[..., Done], tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    done = kraftfast("status", "--dir", file / "below")
    assert done.code != 70 and "report it" not in done.err


def test_a_stream_without_a_descriptor_is_not_waited_for() -> None:
    assert not streams.wait_unread(io.BytesIO())


def test_a_pipe_is_waited_for_until_nobody_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LOOK_MS", 20)
    reader, writer = os.pipe()
    timer = threading.Timer(0.1, os.close, [reader])
    began = time.monotonic()
    timer.start()
    with open(writer, "wb") as out:
        assert streams.wait_unread(out)
    assert time.monotonic() - began > 0.05
    timer.join()
