"""``python -m tests.model`` in a hurry: bad words, bad files, signals, and runs that go on."""

from __future__ import annotations

import json
import pickle
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.model.fingerprints import Fingerprints
from tests.model.mutant import VIOLATED, broken_core, search_core
from tests.model.replay import PARTED
from tests.model.settings import SETTINGS
from tests.model.test_search import ROOT, run, search

REFUSED = 2


@pytest.mark.parametrize(
    "words",
    [
        "--seconds nan", "--seconds -1", "--seconds 0", "--walks -1", "--length 10", "--voters 0",
        "--observers -1", "--way delays --delays -1", "--states 0", "--all --rounds 0",
        "--all --voters 5", "--all --way guided", "--all --setting rings", "--wipes foo",
        "--floors 9", "--moved 0", "--witnesses 1,2,3", "--voters-max 2", "--turn-records 0",
        "--liveness -1", "--beside -1", "--crashes -5", "--epochs 0", "--table", "--sec 5",
        "--table --resume none.npz", "--replay none", "--replay README.md", "--resume README.md",
        "--resume none/seen.npz", "--resume tests", "--way guided --histories none",
        "--emptied 99", "--emptied 1,2,3 --hurt-max 2", "--emptied 2,3 --wipes empty",
        "--voters 10", "--turn-seconds 5", "--rounds 2", "--delays 1", "--histories none/walks",
        "--histories tests", "--replay README.md --all", "--replay README.md --setting rings",
        "--memory 1", "--resume .", "--resume /dev/null",
        "--resume one --histories ./one", "--table --walks 3", "--begin nowhere",
        "--begin older-tail --first", "--begin undone-removal",
    ],
)  # fmt: skip
def test_what_means_nothing_is_refused_in_a_line(words: str) -> None:
    done = run([*"--walks 1 --seconds 5".split(), *words.split()])
    assert done.returncode == REFUSED, done.stdout + done.stderr
    assert "Traceback" not in done.stderr and not done.stdout
    assert ": error: " in done.stderr.splitlines()[-1]
    assert not list(ROOT.glob("*.lock"))


@pytest.mark.parametrize(
    "way", ["guided", pytest.param("delays --delays 1", marks=pytest.mark.long)]
)
def test_each_way_goes_on_with_new_states_and_counts_each_once(way: str, tmp_path: Path) -> None:
    path = tmp_path / "seen.npz"
    words = f"--setting rings --way {way} --walks 8 --seconds 100 --resume {path}".split()
    for _ in range(2):
        told = search(words)
    seen = Fingerprints(path, reads_only=True)
    assert sum(each["fresh"] for each in seen.told.values()) == len(seen) > 100
    fresh = re.search(r"([\d,]+) new ones", told)
    assert fresh and (fresh[1] != "0") == (way == "guided")  # all of the other were seen


def test_a_damaged_file_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "seen.npz"
    search(["--walks", "1", "--resume", str(path)])
    whole = path.read_bytes()
    for bytes_there in (b"", whole[:1000], whole[:-30], whole[:3000] + b"!!!!" + whole[3004:]):
        path.write_bytes(bytes_there)
        done = run(["--walks", "1", "--resume", str(path)])
        assert done.returncode == REFUSED and "Traceback" not in done.stderr, done.stderr
        assert str(path) in done.stderr and path.read_bytes() == bytes_there


def test_other_arrays_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "seen.npz"
    search(["--walks", "1", "--resume", str(path)])
    with np.load(path) as stored:
        whole = dict(stored)
    for parts in (
        {"table": np.uint64(7)}, {"table": np.zeros(0, np.uint64)}, {"told": np.array("[1]")},
        {"told": np.array('{"rings": {"fresh": 1}}')}, {"walks": np.array("many")},
    ):  # fmt: skip
        np.savez(path, **(whole | parts))
        for words in (["--walks", "1"], ["--table"]):
            done = run([*words, "--resume", str(path)])
            assert done.returncode == REFUSED and "Traceback" not in done.stderr, done.stderr
    np.save(tmp_path / "a.npy", np.zeros(3))
    assert run(["--walks", "1", "--resume", str(tmp_path / "a.npy")]).returncode == REFUSED


def test_files_beside_it_are_left_alone(tmp_path: Path) -> None:
    """Found by a reviewer: the lock of a program whose file was named by mistake was deleted."""
    for name in ("seen.lock", "seen.npz.lock", "walks.part", "seen.part.npz", "foreign.toml.lock"):
        (tmp_path / name).write_text(name)
    (tmp_path / "foreign.toml").write_text("[poetry]")
    assert run(["--resume", str(tmp_path / "foreign.toml"), "--walks", "1"]).returncode == REFUSED
    seen, walks = tmp_path / "seen.npz", tmp_path / "walks"
    search(["--walks", "1", "--resume", str(seen), "--histories", str(walks)])
    search(["--table", "--resume", str(seen)])
    for path in tmp_path.iterdir():
        assert path in (seen, walks, tmp_path / "foreign.toml") or path.read_text() == path.name


def test_a_link_stays_one(tmp_path: Path) -> None:
    link, path = tmp_path / "link.npz", tmp_path / "seen.npz"
    search(["--walks", "1", "--resume", str(path)])
    link.symlink_to(path)
    told = len(Fingerprints(path, reads_only=True))
    search(["--walks", "3", "--resume", str(link), "--seed", "2"])
    assert link.is_symlink() and len(Fingerprints(path, reads_only=True)) > told


def test_enough_was_seen_before(tmp_path: Path) -> None:
    path = tmp_path / "seen.npz"
    search(["--walks", "1", "--resume", str(path)])
    done = run(["--walks", "1", "--resume", str(path), "--states", "1"])
    assert done.returncode == REFUSED and "--states wants more" in done.stderr


def test_a_search_that_took_no_step_is_none() -> None:
    done = run(["--seconds", "1e-9"])
    assert done.returncode == REFUSED and "no step was taken" in done.stderr


def test_emptied_disks_after_a_lie() -> None:
    search("--dynamic --asks --lies --emptied 2 --walks 1".split())


def test_what_another_version_saw_is_told(tmp_path: Path) -> None:
    path = tmp_path / "seen.npz"
    search(["--walks", "2", "--resume", str(path)])
    assert ", 0 of them seen in other" in search(["--table", "--resume", str(path)])
    with np.load(path) as stored:
        parts = dict(stored)
    parts["seen_by"] = np.array(json.dumps({"another": 7}))
    np.savez(path, **parts)
    assert "7 of them seen in other" in run(["--walks", "1", "--resume", str(path)]).stderr
    assert "7 of them seen in other" in search(["--table", "--resume", str(path)])


@pytest.mark.parametrize("signo", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_asked_to_stop_keeps_what_it_saw(signo: int, tmp_path: Path) -> None:
    path = tmp_path / "seen.npz"
    command = [sys.executable, "-m", "tests.model", "--all", "--resume", str(path)]
    command += ["--seconds", "200", "--turn-seconds", "100"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stdout.read(6) == "rings:"  # the first turn has begun
        second = run(["--walks", "1", "--resume", str(path)])
        assert second.returncode == REFUSED and "in use by another run" in second.stderr
        running.send_signal(signo)
        out, err = running.communicate(timeout=100)
    assert running.returncode == 128 + signo and not err, err
    seen = Fingerprints(path, reads_only=True)
    assert sum(each["fresh"] for each in seen.told.values()) == len(seen) and "| rings |" in out


def test_a_full_disk_leaves_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "seen.npz"
    search(["--walks", "1", "--resume", str(path)])
    whole = path.read_bytes()
    words = f"ulimit -f 8; trap '' XFSZ; exec {sys.executable} -m tests.model --walks 1 --resume "
    done = subprocess.run(
        ["bash", "-c", words + str(path)], cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == REFUSED and "not written, it stays as it was" in done.stderr
    assert "Traceback" not in done.stderr and path.read_bytes() == whole
    assert {each.name for each in tmp_path.iterdir()} == {"seen.npz", "seen.npz.lock"}


def test_nothing_is_lost_where_the_histories_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "walks"
    path.write_bytes(b"as it was")
    words = f"ulimit -f 1; trap '' XFSZ; exec {sys.executable} -m tests.model --walks 9 --all "
    words += f"--rounds 1 --turn-seconds 1 --seconds 4 --histories {path}"
    done = subprocess.run(
        ["bash", "-c", words], cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == REFUSED and "walks are not kept" in done.stderr, done.stderr
    assert "| rings |" in done.stdout and path.read_bytes() == b"as it was"


def test_seven_voters_are_searched() -> None:
    search("--voters 7 --walks 1 --liveness 0 --seconds 60".split())


def test_a_violation_of_all_is_shown_again(tmp_path: Path) -> None:
    """By the very command that is printed, whatever else the search had seen before."""
    (patch,) = (Path(__file__).parent / "mutants").glob("version_outlives_a_cut.patch")
    broken_core(patch.read_text(), tmp_path)
    words = "--all --rounds 1 --walks 40 --turn-seconds 20 --seconds 300"
    for name in set(SETTINGS) - {"sockets", "cut upgrades"}:  # to be there sooner
        settings = tmp_path / "tests" / "model" / "settings.py"
        settings.write_text(re.sub(rf'    "{name}": (?:"[^"]*"\s*)+,\n', "", settings.read_text()))
    found = search_core(tmp_path, words.split())
    assert found.violation, found.printed
    (again,) = re.findall(r"^again: python (-m tests.model .*)$", found.printed, re.MULTILINE)
    done = subprocess.run(
        [sys.executable, *shlex.split(again)],
        cwd=tmp_path, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == VIOLATED, done.stdout + done.stderr
    assert found.violation.partition(" at ")[0] in done.stdout


def test_walks_of_another_version_are_called_that(tmp_path: Path) -> None:
    path = tmp_path / "walks"
    search(["--walks", "1", "--seconds", "9", "--histories", str(path)])
    assert "other sources" not in run(["--replay", str(path)]).stderr
    words, history, prints, _ = pickle.loads(path.read_bytes())[0]
    path.write_bytes(pickle.dumps([(words, history, prints, "another")]))
    done = run(["--replay", str(path)])
    assert done.returncode == 0 and f"{path} was written by other sources" in done.stderr
    for bad in ([("--nothing",), history, prints, "another"], [words, [("fly", 1)], prints, "x"]):
        path.write_bytes(pickle.dumps([tuple(bad)]))
        done = run(["--replay", str(path)])
        assert "Traceback" not in done.stderr and done.returncode in (REFUSED, PARTED), done.stderr


def test_a_reader_that_goes_ends_it_quietly() -> None:
    words = f"{sys.executable} -m tests.model --all --rounds 1 --walks 1 | head -n 1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {words}"],
        cwd=ROOT, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 128 + signal.SIGPIPE and not done.stderr
