"""``kraftfast bench report``: what it writes, and what it refuses."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kraftfast.cli.bench import bench_report
from tests.bench.results import repeated, result
from tests.cli.logs import Done

pytest.importorskip("matplotlib")
pytest.importorskip("hdrh")


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two results, in which the commands run."""
    monkeypatch.chdir(tmp_path)
    for name, rate in (("one", 5.0), ("two", 9.0)):
        found = result({"a": repeated("throughput", rate)}, name=f"<script>{name}</script>")
        found.save(tmp_path / "results" / f"{name}.json")
    return tmp_path


def test_a_page_and_its_pictures(saved: Path, kraftfast: Callable[..., Done]) -> None:
    asked = ("bench", "report", "results/one.json", "two.json", "--results", "results")
    (saved / "report.html").write_text("what was there")
    done = kraftfast(*asked)
    assert done.code == 3 and "is no page of kraftfast bench report" in done.err
    (saved / "report.html").write_text("")
    done = kraftfast(*asked, "--pictures", "slides")
    assert done.code == 0 and done.err == ""
    told = done.out.splitlines()
    assert told[0] == "report.html" and all(Path(each).is_file() for each in told)
    assert {Path(each).suffix for each in told[1:]} == {".svg", ".png"} and len(told) >= 5
    page = (saved / "report.html").read_text()
    assert "From A to B" in page and "<svg" in page and "<script" not in page
    assert sorted(os.listdir(saved)) == ["report.html", "results", "slides"]


def test_a_link_stays_one(saved: Path, kraftfast: Callable[..., Done]) -> None:
    (saved / "real.html").touch()
    (saved / "link.html").symlink_to("real.html")
    assert kraftfast("bench", "report", "results/one.json", "-o", "link.html").code == 0
    assert (saved / "link.html").is_symlink() and "<svg" in (saved / "real.html").read_text()


def test_a_page_on_stdout(saved: Path, kraftfast: Callable[..., Done]) -> None:
    done = kraftfast("bench", "report", "results/one.json", "-o", "-")
    assert done.code == 0 and done.out.startswith("<!") and done.out.endswith("</html>\n")
    assert not (saved / "-").exists()


def test_no_page_on_a_terminal(
    saved: Path, kraftfast: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    done = kraftfast("bench", "report", "results/one.json", "-o", "-")
    assert done.code == 2 and "stdout is a terminal" in done.err and done.out == ""


@pytest.mark.parametrize(
    "args, code, told",
    [
        ((), 2, "RESULT..."),
        (("none.json", "--results", "results"), 3, "cannot read"),
        (("results/one.json", "-o", "none/x.html"), 3, "there is no directory none"),
        (("results/one.json", "-o", "pipe"), 3, "it is no file"),
        (("results/one.json", "-o", "/dev/null"), 3, "it is no file"),
        (("results/one.json", "-o", "results"), 2, "is a directory"),
        (("results/one.json", "--pictures", "/dev/null"), 3, "it is no directory"),
    ],
)
def test_what_is_refused(
    args: tuple[str, ...], code: int, told: str, saved: Path, kraftfast: Callable[..., Done]
) -> None:
    os.mkfifo(saved / "pipe")
    done = kraftfast("bench", "report", *args)
    assert done.code == code and told in done.err
    assert not (saved / "report.html").exists() and not list(saved.glob(".*.new"))


def test_a_folder_that_cannot_be_made(saved: Path, kraftfast: Callable[..., Done]) -> None:
    (saved / "file").touch()
    done = kraftfast("bench", "report", "results/one.json", "--pictures", "file/x")
    assert done.code == 30 and "cannot write file/x" in done.err


def test_without_matplotlib(
    saved: Path, kraftfast: Callable[..., Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in sys.modules if each.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = kraftfast("bench", "report", "results/one.json")
    assert done.code == 0 and done.err.count("\n") == 1 and "kraftfast[report]" in done.err
    assert "Summary" in (saved / "report.html").read_text()
    done = kraftfast("bench", "report", "results/one.json", "--pictures", "slides")
    assert done.code == 2 and "kraftfast[report]" in done.err and not (saved / "slides").exists()


def test_what_is_left_out_is_told_in_plain_lines(
    saved: Path, kraftfast: Callable[..., Done]
) -> None:
    broken = repeated("throughput", 1.0, histograms={"commit": "\x1b[31m"})[:1]
    result({"a\x1b[31m\nb": broken}).save(saved / "x.json")
    done = kraftfast("bench", "report", "x.json")
    assert done.code == 0 and done.err.count("\n") == 1 and "\x1b" not in done.err
    assert "left out: the histogram of a?[31m b, commit" in done.err


def test_what_takes_long_tells_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from kraftfast.bench.page import Page

    now = [100.0]
    monkeypatch.setattr(bench_report.time, "monotonic", lambda: now[0])
    page = Page([("a", result({"a": repeated("throughput", 5.0)}))])
    progress = bench_report.ProgressLine(page)
    progress.pictures = 4
    for _ in range(4):
        progress.picture(page.pictures[0])
        now[0] += 1.5
    assert capsys.readouterr().err == "picture 3 of 4, about 3 s left\n"
