"""A short sweep of seeds: nothing is violated, and it is not idle. The long one is a command.

python -m kraftfast.sim --seeds 0:10000 --workers 2 --minutes 60
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from kraftfast.sim import WorldSettings, run_seed
from kraftfast.sim.__main__ import main
from kraftfast.sim.__main__ import results as run_on_workers
from kraftfast.sim.faults.plans import seeds_of
from kraftfast.sim.settings import (
    AIMED,
    CHANGES,
    CONFIGURED,
    FAULTS,
    LOCAL_CLIENTS_FROM,
    MISTAKES,
    REACHING,
)
from kraftfast.sim.swarm import THINNED_FROM
from tests.sim.sweeps import check_none_failed, check_not_idle, sweep

ROOT = Path(__file__).parents[2]
SEEDS = (415, 442, 454, 499, 657, 661, 675, 689, 754, *range(545, 565))
"""Quick ones, in which what is rarest came at least twice as often as it has to."""
AT_LEAST = {
    "appends acknowledged": 3_500,
    "appends unknown": 500,
    "appends failed": 1_000,
    "committed records": 10_000,
    "segments": 100,
    "bytes copied by reference": 100_000,
    "elections": 35,
    "truncations": 7,
    "torn tails": 2,
    "rejected copies": 5,
    "crashes in a call": 4,
    "kill": 4,
    "power": 4,
    "blackout": 4,
    "nominees without power": 1,
    "snapshots made": 50,
    "snapshots installed": 5,
    "log starts moved": 50,
    "states restored": 10,
    "read barriers": 1_000,
    "batches sent once and for all": 1_000,
    "batches tried again": 50,
    "batches found on disks": 5_000,
    "duplicates": 20,
    "changes accepted": 1,
    "voter sets committed": 5,
    "disks replaced": 3,
    "names taken": 11,
    "fresh leaders asked by consumers": 20,
    "caught up under load": 1,
    "power cut before a flush": 2,
    "power cut after a stop": 3,
    "damage found": 3,
    "disks full at an install": 1,
}
"""What has to happen in the sweep, or it shows nothing: at most half of what did, for every
change of the core makes other runs of the same seeds."""


@pytest.fixture(scope="module")
def results() -> list[dict[str, Any]]:
    return sweep(SEEDS, short=False)


def test_nothing_is_violated(results: list[dict[str, Any]]) -> None:
    check_none_failed(results)


def test_the_sweep_is_not_idle(results: list[dict[str, Any]]) -> None:
    strikes = (*FAULTS, *AIMED, *REACHING, *CHANGES, *MISTAKES, *CONFIGURED)
    check_not_idle(results, AT_LEAST, strikes)


def test_clients_on_the_host_of_the_replicas() -> None:
    """Only later seeds have them: those before are the runs that they were."""
    seeds = range(LOCAL_CLIENTS_FROM, LOCAL_CLIENTS_FROM + 10)
    assert not any(WorldSettings.of_seed(seed - 10).local_producers for seed in range(10, 1_000))
    found = sweep(seeds, short=True)
    total: Counter[str] = Counter()
    for result in found:
        assert result["ok"], f"--seed {result['seed']} --short: {result['violation']}"
        total.update(result["counts"])
    producers = sum(WorldSettings.of_seed(seed, short=True).local_producers for seed in seeds)
    assert producers > 4 and total["real producers"] >= producers
    assert total["local questions answered"] and total["local admins: status"]
    assert total["real names taken"] and total["client_kill"]


def test_the_sweep_meets_every_kind_of_quorum(results: list[dict[str, Any]]) -> None:
    """And commits in each of them."""
    met = {
        name: {
            result["settings"][name]
            for result in results
            if result["counts"].get("committed records")
        }
        for name in ("durability", "flush", "transport", "references", "voters")
    }
    assert met == {
        "durability": {"majority", "all", "memory"},
        "flush": {"deferred", "parallel", "adaptive"},
        "transport": {"ring", "socket", "mixed"},
        "references": {True, False},
        "voters": {1, 2, 3, 4, 5},
    }


def test_the_same_seed_is_the_same_run(results: list[dict[str, Any]]) -> None:
    """Event by event: in another process too, whatever its hash seed."""
    few = [result for result in results if result["events"] < 5_000][:2]
    again = {}
    for hash_seed in ("1", "2"):
        for result in few:
            lines = subprocess.run(
                [sys.executable, "-m", "kraftfast.sim", "--seed", str(result["seed"]), "--json"],
                cwd=ROOT,
                env=os.environ | {"PYTHONHASHSEED": hash_seed},
                capture_output=True,
                text=True,
                check=True,
                timeout=120,
            ).stdout
            found = json.loads(lines)
            again[hash_seed, found["seed"]] = (found["digest"], found["events"], found["counts"])
    for result in few:
        expected = (result["digest"], result["events"], result["counts"])
        assert again["1", result["seed"]] == again["2", result["seed"]] == expected
    assert len({result["digest"] for result in few}) == len(few)


@pytest.mark.parametrize("thinned_from", [1 << 60, THINNED_FROM])
def test_a_seed_is_one_run_whenever_garbage_is_collected(
    thinned_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An admin that a program dropped unclosed kept its connection until the collector came by: in
    a sweep the run was another than by itself.

    The seed is drawn as when it was found, and as it is drawn today.
    """
    monkeypatch.setattr("kraftfast.sim.swarm.THINNED_FROM", thinned_from)
    settings, lines = WorldSettings.of_seed(50338, short=True), count()

    def collecting(_line: str) -> None:
        if next(lines) % 100 == 0:
            gc.collect()

    gc.disable()
    try:
        digest = run_seed(50338, settings)["digest"]
    finally:
        gc.enable()
    assert run_seed(50338, settings, collecting)["digest"] == digest


def test_the_command_runs_seeds_on_workers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "4:8", "--workers", "2", "--short"]) == 0
    assert capsys.readouterr().out.startswith("4 seeds, 0 failed")


def test_the_command_begins_nothing_when_its_time_is_over(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = main(["--seeds", "0:1000000", "--minutes", "0.0001"])
    said = capsys.readouterr()
    assert (code, said.out[:7]) in ((2, "0 seeds"), (0, "1 seed,"))
    assert " of 1000000 seeds were not run: time was up" in said.err


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--seeds", "3"],
        ["--seeds", "1:2", "--trace"],
        ["--seed", "1", "--workers", "0"],
        ["--seed", "1", "--workers", "2", "--trace"],
        ["--seed", "1", "--json", "--trace"],
    ],
)
def test_the_command_refuses_what_means_nothing(words: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(words)
    assert refused.value.code == 2


def test_the_command_says_how_a_failure_is_seen_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = run_seed(4) | {"ok": False, "violation": "Violation: I5: planted", "where": "there"}
    monkeypatch.setattr("kraftfast.sim.world.run_seed", lambda seed, settings, tracer: broken)
    for words in ("--seed 4", "--seed 4 --short"):
        assert main(words.split()) == 1
        out = capsys.readouterr().out
        assert "I5: planted" in out and f"python -m kraftfast.sim {words} --trace" in out


def test_a_trace_tells_facts_and_actions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "12", "--trace"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for part in ("Tick() -> ", "nemesis: "):
        assert any(part in line for line in lines)


def test_a_short_seed_is_the_same_run_without_a_plan_cut_down() -> None:
    """Event by event: begun by the command, too."""
    planned = next(seeds_of("doubt_again"))
    settings = WorldSettings.of_seed(planned, short=True)
    assert "doubt_again" not in settings.faults
    assert (
        settings.chaos_ms <= 800 and settings.voters == WorldSettings.of_seed(planned, False).voters
    )
    found = list(run_on_workers(iter((planned, 4)), float("inf"), 1, False, True))
    assert [each["ok"] for each in found] == [True, True]
    assert found[0]["digest"] == run_seed(planned, settings)["digest"]
    assert found[1]["events"] < run_seed(4)["events"]


def test_the_settings_of_a_seed_can_be_overridden() -> None:
    assert WorldSettings.of_seed(3, voters=2).voters == 2
    assert WorldSettings.of_seed(3) == WorldSettings.of_seed(3) != WorldSettings.of_seed(4)


def test_the_command_says_which_package_is_missing() -> None:
    program = (
        "import sys; sys.modules['greenlet'] = None\n"
        "from kraftfast.sim.__main__ import main; main(['--seed', '1'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (6, "")
    assert done.stderr == (
        "kraftfast: the simulator needs the package greenlet -> pip install 'kraftfast[sim]'\n"
    )
