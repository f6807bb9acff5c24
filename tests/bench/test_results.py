"""Plans, results and comparisons: what is read, what is refused, what is said."""

from __future__ import annotations

import doctest
import json
import os
from pathlib import Path
from typing import Any

import pytest

import kraftfast.bench.results.result
from kraftfast.bench.results import plan
from kraftfast.bench.results.compare import (
    compare,
    differences,
    holdings,
    interval,
    missing,
    verdict,
)
from kraftfast.bench.results.machine_facts import facts
from kraftfast.bench.results.result import (
    Result,
    Run,
    collected,
    default_folder,
    load,
    new_path,
    shown_keys,
)  # fmt: skip
from kraftfast.errors import InputError, StorageError

MEASURE = '[[measure]]\ncommand = "floor"\n'


def result(**values: list[float]) -> Result:
    """Return a result whose measures have these rates."""
    runs = [
        Run(name, number, "", 0.0, 0.0, [{"records_per_s": rate, "p50_us": None}])
        for name, rates in values.items()
        for number, rate in enumerate(rates)
    ]
    return Result("name", "2026-01-01T00:00:00Z", {}, {}, runs)


def test_a_result_is_what_was_saved(tmp_path: Path) -> None:
    saved = result(a=[1.0, 2.0], b=[3.0])
    path = tmp_path / "new" / "r.json"
    saved.save(path)
    assert load(path) == saved and [each.name for each in path.parent.iterdir()] == ["r.json"]
    assert saved.measures == ["a", "b"] and saved.values("a", "records_per_s") == [1.0, 2.0]
    assert saved.values("a", "p50_us") == []


def test_the_best_line_of_a_run_counts() -> None:
    lines = [{"records_per_s": 1.0, "p50_us": 9.0}, {"records_per_s": 2.0, "p50_us": 7.0}]
    found = Result("n", "", {}, {}, [Run("floor", 0, "", 0.0, 0.0, lines)])
    assert found.values("floor", "records_per_s") == [2.0]
    assert found.values("floor", "p50_us") == [7.0]


@pytest.mark.parametrize(
    "text, told",
    [
        ("", "no JSON"),
        ('{"format": "kraftfast-bench", "version": 1, "ru', "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[]", "does not say"),
        ('{"format": "other"}', "does not say"),
        ('{"format": "kraftfast-bench", "version": 2}', "version 2"),
        ('{"format": "kraftfast-bench", "version": 1}', "lacks a part"),
        (
            '{"format": "kraftfast-bench", "version": 1, "name": "", "began_at": "", "plan": {},'
            ' "machine": {}, "complete": true, "runs": [{"measure": 1}]}',
            "lacks a part",
        ),
    ],
)
def test_what_is_no_result_is_named(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(InputError, match=told):
        load(path)
    result(a=[1.0]).save(tmp_path / "y.json")
    found = dict(collected(tmp_path))
    assert isinstance(found[path], InputError) and isinstance(found[tmp_path / "y.json"], Result)


def test_the_examples_of_docstrings() -> None:
    assert doctest.testmod(kraftfast.bench.results.result) == (0, 1), "failed, attempted"
    assert doctest.testmod(plan) == (0, 2), "failed, attempted"


def test_results_have_names_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = new_path(tmp_path, "../a b/ü")
    assert first.parent == tmp_path and first.name.endswith("-a-b.json")
    first.touch()
    assert new_path(tmp_path, "../a b/ü") != first
    monkeypatch.setenv("KRAFTFAST_RESULTS", "/r")
    assert default_folder() == Path("/r")
    monkeypatch.setenv("KRAFTFAST_RESULTS", "/dev/null")
    with pytest.raises(InputError, match="^KRAFTFAST_RESULTS is /dev/null, which is no folder$"):
        default_folder()
    monkeypatch.delenv("KRAFTFAST_RESULTS")
    monkeypatch.setenv("XDG_DATA_HOME", "/d")
    assert default_folder() == Path("/d/kraftfast/bench")


@pytest.mark.parametrize(
    "text, told",
    [
        ("x =", "no TOML"),
        ("", "no \\[\\[measure\\]\\]"),
        ("measure = 1", "no \\[\\[measure\\]\\]"),
        ("[[measure]]\nname = 'a'", "names no command"),
        ("[[measure]]\ncommand = 'disk'", "'disk' is not one of"),
        ("repeat = 0\n" + MEASURE, "repeat is 0"),
        ("repeat = true\n" + MEASURE, "repeat is True"),
        ("other = 1\n" + MEASURE, "a plan has no 'other'"),
        ("name = 1\n" + MEASURE, "its name is 1"),
        (MEASURE + MEASURE, "two measures are called 'floor'"),
        (MEASURE + "name = ' '", "its name is ' '"),
        (MEASURE + "dir = '/'", "belongs to the plan's own command line"),
        (MEASURE + "total = { a = 1 }", "neither text"),
        (MEASURE + "total = [[1]]", "neither text"),
        (MEASURE + "total = []", "0 combinations"),
        (MEASURE + "name = ['a', 'b']", "its name is \\["),
        (MEASURE + "stages = false", "leave stages out"),
        (MEASURE + '"dir=/tmp" = true', "is no option"),
    ],
)
def test_a_plan_that_is_none(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=told) as caught:
        plan.read(path)
    assert str(caught.value).startswith(str(path))
    with pytest.raises(InputError, match="cannot read"):
        plan.read(tmp_path / "none")


def test_turns_go_forth_and_back(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(
        'repeat = 2\n[[measure]]\nname = "a"\ncommand = "throughput"\nrecord_size = 5\n'
        'stages = true\n[[measure]]\nname = "b"\ncommand = "latency"\nseconds = 0.5\n'
    )
    found, _ = plan.read(path)
    assert [(number, each.name) for number, each in found.turns()] == [
        (0, "a"), (0, "b"), (1, "b"), (1, "a"),
    ]  # fmt: skip
    assert found.measures[0].options == ("--record-size", "5", "--stages")
    assert found.measures[1].options == ("--seconds", "0.5") and found.name == "p"


def test_an_interval_says_what_differs() -> None:
    first = [100.0, 101.0, 99.0, 100.5, 99.5, 100.2]
    worse = [each * 0.8 for each in first]
    found = compare(result(a=first, b=first), result(a=worse, c=first))
    (line,) = found
    assert (line.measure, line.key, line.verdict) == ("a", "records_per_s", "worse")
    assert line.low is not None and line.ratio is not None and line.high is not None
    assert line.low < line.ratio < line.high < 0.85 and line.ratio == pytest.approx(0.8)
    assert line.is_worse_by(24) and not line.is_worse_by(26), "a quarter more time for each"
    assert compare(result(a=worse), result(a=first))[0].verdict == "better"
    assert compare(result(a=first), result(a=first))[0].verdict == "no difference shown"
    assert compare(result(a=first[:4]), result(a=worse))[0].verdict == "too few repetitions"
    assert not compare(result(a=first[:4]), result(a=worse))[0].is_worse_by(0)
    assert compare(result(a=first), result(c=worse), [("a", "c")])[0].measure == "a / c"


def test_nothing_is_said_of_what_is_not_there() -> None:
    zero, full = result(a=[0.0] * 6), result(a=[1.0] * 6, b=[1.0])
    (line,) = compare(zero, full)
    assert line.is_open and line.ratio is None and not line.is_worse_by(0)
    assert missing(zero, full) == ["only the second has 'b'"]
    other = Result("n", "", {}, {}, [Run("a", 0, "", 0.0, 0.0, [{"p50_us": 1.0}])])
    assert "only the first has records_per_s of 'a'" in missing(zero, other)
    assert missing(full, full) == [] == missing(full, full, [("a", "b")])


def test_what_else_differs_is_told() -> None:
    plan = {"measure": [{"name": "a", "command": "floor", "total": 1}]}
    first = Result("n", "", plan, {"cpu": "x"}, [], True)
    second = Result("n", "", {"measure": [plan["measure"][0] | {"total": 2}]}, {"cpu": "y"}, [])
    cpu, options, short = differences(first, second)
    assert "'x' and 'y'" in cpu and "options of 'a'" in options and short.startswith("the second")
    assert differences(first, first) == []


@pytest.mark.parametrize(
    "line, told",
    [
        ('"p50_us": NaN', "wrong type"),
        ('"p50_us": Infinity', "wrong type"),
        ('"p50_us": -1', "wrong type"),
        ('"p50_us": "1"', "wrong type"),
        ('"p50_us": true', "wrong type"),
        (f'"records_per_s": 1{"0" * 400}', "wrong type"),
    ],
)
def test_a_figure_that_is_none_is_refused(line: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    result(a=[7.0]).save(path)
    path.write_text(path.read_text().replace('"p50_us": null', line))
    with pytest.raises(InputError, match=told):
        load(path)


@pytest.mark.parametrize("name", ['"began_at": 5', '"name": "\\ud800"', '"machine": []'])
def test_a_part_of_a_wrong_type_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    result(a=[7.0]).save(path)
    key = name.split(":")[0]
    document = json.loads(path.read_text())
    text = json.dumps(document).replace(f"{key}: {json.dumps(document[key.strip(chr(34))])}", name)
    path.write_text(text)
    with pytest.raises(InputError, match="wrong type"):
        load(path)


def test_only_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(InputError, match="no file"):
        load(tmp_path / "pipe.json")
    with pytest.raises(InputError, match="no file"):
        load(Path("/dev/zero"))


def test_without_a_home_a_folder_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KRAFTFAST_RESULTS", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "")
    with pytest.raises(InputError, match="--results"):
        default_folder()


def test_of_a_time_more_is_worse() -> None:
    assert verdict("p50_us", 1.1, 1.2, 5) == "worse" and verdict("p99_us", 0.8, 0.9, 5) == "better"
    assert interval([1.0] * 5, [2.0] * 5) == (2.0, 2.0)


def test_facts_are_plain_values(tmp_path: Path) -> None:
    found: dict[str, Any] = facts(str(tmp_path))
    assert json.loads(json.dumps(found)) == found and found["processors"] >= 1
    assert found["filesystem"] and found["kernel"] and found["crc32c"]


def rate(held: list[bool], us: float = 500.0) -> Result:
    """Return a result of one rate, by repetition: held or not."""
    lines = [
        {"records_per_s": 1e5, "held": each, "p50_us": us if each else None, "p99_us": None}
        for each in held
    ]
    runs = [Run("load", number, "", 0.0, 0.0, [line]) for number, line in enumerate(lines)]
    return Result("n", "", {}, {}, runs, True)


def test_a_rate_that_most_did_not_hold_has_no_times() -> None:
    always, often, half = rate([True] * 10), rate([True] * 6 + [False] * 4), rate([True, False] * 5)
    assert [each.held("load") for each in (always, often, half)] == [(10, 10), (6, 10), (5, 10)]
    assert [len(each.values("load", "p50_us")) for each in (always, often, half)] == [10, 6, 0]
    assert len(half.values("load", "records_per_s")) == 10
    assert result(a=[1.0]).held("a") is None


def test_how_often_a_rate_was_held_is_compared() -> None:
    always, often = rate([True] * 10), rate([True] * 6 + [False] * 4)
    (worse,), (better,) = holdings(always, often), holdings(often, always)
    assert str(worse) == "'load' was held in 10 of 10 and 6 of 10 repetitions"
    assert worse.is_worse and not better.is_worse
    assert holdings(always, rate([True] * 5)) == []
    assert missing(always, rate([True, False] * 5)) == ["only the first has p50_us of 'load'"]


def test_no_pairs_are_none() -> None:
    both = result(a=[1.0] * 6)
    assert compare(both, both, []) == [] == missing(both, both, []) == holdings(both, both, [])


def test_a_rare_key_is_shown_where_it_is_there() -> None:
    idle = Result("n", "", {}, {}, [Run("idle", 0, "", 0.0, 0.0, [{"core_percent": 2.0}])] * 5)
    busy = Result("n", "", {}, {}, [Run("idle", 0, "", 0.0, 0.0, [{"core_percent": 3.0}])] * 5)
    (line,) = compare(idle, busy)
    assert (line.key, line.verdict) == ("core_percent", "worse")
    assert "core_percent" in shown_keys([idle]) and "core_percent" not in shown_keys([rate([True])])


def test_two_runs_of_a_second_have_a_file_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kraftfast.bench.results.result.time.strftime", lambda *_: "now")
    first, second = new_path(tmp_path / "new", "a"), new_path(tmp_path / "new", "a")
    assert (first.name, second.name) == ("now-a.json", "now-a-2.json") and first.exists()
    with pytest.raises(StorageError, match="cannot write"):
        new_path(first / "x", "a")


def test_a_result_goes_on_on_its_own_machine_only(tmp_path: Path) -> None:
    table = {"measure": [{"command": "floor"}]}
    asked, saved = plan.of_table(table, "p"), []
    earlier = Result("p", "", table, facts(str(tmp_path)) | {"cpu": "other", "old": 1}, [])
    with pytest.raises(InputError, match="cpu was 'other' and is .*; old was 1 and is None"):
        plan.run(asked, table, str(tmp_path), saved.append, lambda *_: None, earlier)
    assert saved == []


@pytest.mark.parametrize(
    "text, told",
    [
        (MEASURE + f"total = {'9' * 6000}", "too many digits"),
        (MEASURE + f"total = 0x{'f' * 6000}", "too many digits"),
        (f"repeat = 0x{'f' * 6000}\n" + MEASURE, "too many digits"),
        ("x = " + "[" * 9000 + "]" * 9000, "nested too deep"),
        ("#" * (plan.PLAN_BYTES_MAX + 1), "it is too large"),
        (MEASURE + "record-size = 1\nrecord_size = 2", "record_size is given twice"),
    ],
    ids=["decimal", "hex", "repeat", "deep", "large", "twice"],
)
def test_a_plan_has_bounds(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=told) as caught:
        plan.read(path)
    assert len(str(caught.value)) < 500 and "\n" not in str(caught.value)


def test_only_a_file_is_a_plan(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    for path in (tmp_path / "pipe.toml", Path("/dev/zero")):
        with pytest.raises(InputError, match="is no plan: it is no file"):
            plan.read(path)


def test_a_name_that_is_no_text_does_not_spoil_the_result(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.toml")
    path.write_text(MEASURE)
    asked, table = plan.read(path)
    Result(asked.name, "", table, {}, []).save(tmp_path / "r.json")
    assert load(tmp_path / "r.json").name == "caf?"
