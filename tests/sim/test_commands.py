"""The commands of the simulator and of the specification refuse what would show nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.formal.quorum import searches, tlc
from tests.formal.quorum.__main__ import told
from tests.formal.quorum.tlc import Report
from tests.model import mutant
from tests.model.settings import SETTINGS
from tests.sim import coverage, reached

ROOT = Path(__file__).parents[2]
PATCH = "tests/model/mutants/version_outlives_a_cut.patch"
REFUSED = {
    "kraftfast.sim": [
        "--seeds 5:5",
        "--seeds 9:3",
        "--seed 1 --minutes -1",
        "--seed 1 --minutes nan",
    ],
    "tests.sim.mended": [
        "nosuch",
        "--seeds 0",
        "--minutes nan",
        "--reached /none",
        "no.patch",
        "--seeds 1000000000000",
    ],
    "tests.sim.coverage": ["--seeds 3", "--short"],
    "tests.sim.reached": ["x --seeds 3", "x --seeds 3:3", "x --minutes 0", "/proc/version"],
    "tests.formal.quorum": [
        "--only D8 --heap 2g",
        "--only nosuch",
        "--seconds nan",
        "--seconds 0",
        "--deep --heap foo",
    ],
    "tests.model.table": ["nosuch", "--walks 0", "--settings 0", "--each nan", "--seconds 0"],
    "tests.mutants": ["--page wire", "--page --jobs 3", "--page --write"],
    "tests.model.mutant": ["none.patch", f"{PATCH} --seeds x", f"{PATCH} --seconds 0"],
}


@pytest.mark.parametrize(
    "module, words", [(module, words) for module, all in REFUSED.items() for words in all]
)
def test_it_is_refused_in_a_line(module: str, words: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module, *words.split()],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, ""), done.stdout
    assert "error: " in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def running_in(folder: Path) -> list[str]:
    """Return the processes that run below a folder, also below one that is gone."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.readlink(process / "cwd").startswith(str(folder)):
                words = (process / "cmdline").read_text().replace("\0", " ")
                found.append(f"{process.name} {words}"[:200])
    return found


@pytest.mark.parametrize(
    "words",
    [
        "tests.formal.quorum --only damage",
        "tests.sim.mended d18_close_without_flush",
        "tests.model.mutant tests/core/mutants/d13_a_late_flush_looks_stuck.patch",
        "tests.model.table --walks 9000 --settings 60 d23_a_new_log_is_begun_in_silence",
    ],
)
@pytest.mark.parametrize("signo", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_what_it_started(words: str, signo: int, tmp_path: Path) -> None:
    """Ctrl-C reaches all processes of a terminal, SIGTERM this one alone."""
    with subprocess.Popen(
        [sys.executable, "-m", *words.split()],
        cwd=ROOT, env=os.environ | {"TMPDIR": str(tmp_path)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0,
    ) as running:  # fmt: skip
        if not words.startswith("tests.formal") or not tlc.missing():
            while not list(tmp_path.iterdir()) and running.poll() is None:
                time.sleep(0.1)
            time.sleep(1)
            (os.killpg if signo == signal.SIGINT else os.kill)(running.pid, signo)
        _, err = running.communicate(timeout=60)
    assert "Traceback" not in err, err
    assert running.returncode in (128 + signo, 2), err
    assert not list(tmp_path.iterdir())
    assert not running_in(tmp_path), "it left processes behind"


@pytest.mark.parametrize("signo", [signal.SIGINT, signal.SIGTERM])
def test_a_command_waits_for_what_it_kills(signo: int) -> None:
    """The kernel takes its time to end a large process on a busy machine."""
    program = f"""
import atexit, os, subprocess
from tests.command import finish
class Slow(subprocess.Popen):
    def _wait(self, timeout):
        if timeout is not None:  # as one that has not ended yet
            raise subprocess.TimeoutExpired(self.args, timeout)
        return super()._wait(None)
    def communicate(self, *args, **more):
        atexit.register(lambda: self.returncode is None and os._exit(1))
        os.kill(os.getpid(), {signo})
        return super().communicate(*args, **more)
subprocess.Popen = Slow
finish("any", lambda: subprocess.run(["sleep", "60"], capture_output=True).returncode)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 128 + signo and not done.stderr, done.stderr


@pytest.mark.skipif(bool(tlc.missing()), reason=tlc.missing())
def test_what_the_checker_says_is_printed_without_a_traceback() -> None:
    words = "tests.formal.quorum --deep --only restarts --heap 1k"
    done = subprocess.run(
        [sys.executable, "-m", *words.split()], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "heap" in done.stderr and "error: two restarts: TLC came to no verdict" in done.stderr


@pytest.mark.parametrize("module", ["tests.sim.mended", "tests.model.mutant"])
def test_a_patch_that_changes_nothing_is_refused(module: str, tmp_path: Path) -> None:
    """A search of the sources as they are would find nothing, as if the rules were blind."""
    name = "kraftfast/core/elections/on_vote.py"
    gone = f"--- a/{name}\n+++ b/{name}\n@@ @@\n-gone\n+new\n"
    for text in ("", "not a patch\n", gone):
        path = tmp_path / "any.patch"
        path.write_text(text)
        done = subprocess.run(
            [sys.executable, "-m", module, str(path), *"--seeds 1".split()],
            cwd=ROOT, capture_output=True, text=True, timeout=100,
        )  # fmt: skip
        assert done.returncode in (1, 2) and "Traceback" not in done.stderr, done.stderr
        assert "does not apply: " in done.stderr + done.stdout


@pytest.mark.parametrize("module", ["tests.sim.mended", "tests.model.mutant"])
def test_a_patch_that_is_no_text_is_refused(module: str, tmp_path: Path) -> None:
    path = tmp_path / "any.patch"
    path.write_bytes(b"\xff\xfe")
    done = subprocess.run(
        [sys.executable, "-m", module, str(path), *"--seeds 1".split()],
        cwd=ROOT, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr
    assert "any.patch" in done.stderr and "decode" in done.stderr


def test_one_seed_is_one() -> None:
    words = [sys.executable, "-m", "kraftfast.sim", *"--seed 1 --short".split()]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.stdout.startswith("1 seed, 0 failed, "), done


def test_lines_that_cannot_be_written_are_no_seed_that_failed() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kraftfast.sim", *"--seed 1 --short".split()],
            cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, timeout=100,
        )  # fmt: skip
    assert done.returncode == 74
    assert done.stderr == "kraftfast.sim: cannot write to stdout: No space left on device\n"


def test_a_full_disk_is_told_in_a_line() -> None:
    words = f"ulimit -f 8; trap '' XFSZ; exec {sys.executable} -m tests.sim.mended {PATCH}"
    done = subprocess.run(["bash", "-c", words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "File too large" in done.stderr
    assert len(done.stderr) < 400, done.stderr


def test_a_plant_that_is_not_seen_is_named() -> None:
    plant = searches.MUTANTS[0]
    said = told(plant, Report("", True, 0, 9, 9, 1.0, ""), plant.must_hold[0])
    assert f"WRONG: {plant.must_hold[0]} must be violated" in said
    sound = told(searches.SOUND[0], Report("Durability", True, 3, 9, 9, 1.0, ""), "")
    assert "WRONG: nothing may be violated" in sound


def test_a_search_of_all_settings_has_the_time_for_all() -> None:
    options = mutant.arguments().parse_args(["x.patch"])
    words = mutant.search_of("", options)
    needed = options.seconds * len(SETTINGS)
    assert float(words[words.index("--seconds") + 1]) >= needed
    assert mutant.time_for(words) > needed


def test_a_runner_that_dies_is_no_hole(tmp_path: Path) -> None:
    (tmp_path / "kraftfast").mkdir()
    (tmp_path / "kraftfast" / "__init__.py").write_text("raise OSError('as planted')\n")
    with pytest.raises(SystemExit, match="the runner ended with 1"):
        list(reached.run(tmp_path, [1, 2], 1.0))


def test_coverage_names_the_lines_that_no_seed_runs() -> None:
    words = ["-m", "tests.sim.coverage", "--seeds", "4:5", "--short", "--lines"]
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shares = re.findall(r"^ *(\d+) % .*  node/tcp/session.py$", done.stdout, re.MULTILINE)
    assert len(shares) == 1 and 30 < int(shares[0]) < 100
    assert re.search(r"^compiled: .*node/rings/ring_peer.py", done.stdout, re.MULTILINE)


def test_each_file_that_seeds_leave_out_is_there_and_has_a_reason() -> None:
    lines = coverage.REASONS.read_text().splitlines()
    for name, why in (line.split(": ", 1) for line in lines):
        assert (coverage.PACKAGE / name).exists() and why
    assert lines == sorted(lines)
