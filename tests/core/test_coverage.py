"""The pages of what is covered are up to date, and how they are made refuses what is not so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.core.coverage import __main__ as coverage
from tests.core.coverage.__main__ import PAGES
from tests.core.coverage.known import HERE, Mistake, Names, Scenario, kafka_scenarios, reasons
from tests.core.coverage.scenarios_page import check, link
from tests.core.coverage.seeds_page import Item, held_by, read
from tests.core.coverage.tags import TESTS, collect, exists


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_up_to_date(name: str) -> None:
    text, _ = PAGES[name]()
    assert (HERE.parent / name).read_text() == text, "run python -m tests.core.coverage"


@pytest.mark.parametrize(("word", "code"), [("--help", 0), ("--halp", 2)])
def test_no_page_is_written_by_one_who_asks_for_help(
    word: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Path, "write_text", lambda *_text: pytest.fail("a page is written"))
    with pytest.raises(SystemExit) as ended:
        coverage.main([word])
    assert ended.value.code == code and "tests.core.coverage" in "".join(capsys.readouterr())


NAMES = Names({"A": [Scenario("X.testOne", ""), Scenario("X.testTwo", "")],
               "B": [Scenario("Y.testTwo", "of another class")]})  # fmt: skip


def test_a_tag_names_one_known_scenario() -> None:
    assert NAMES.find("testOne") == NAMES.find("X.testOne") == "X.testOne"
    for word in ("testThree", "Y.testOne", "testTwo", ""):
        with pytest.raises(Mistake):
            NAMES.find(word)


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def test_tags_are_found_where_they_stand(tmp_path: Path) -> None:
    write(tmp_path, "core/scenarios/a.txt", "# About.\n# covers: x, y\n\nvoters 1\n----\nok\n")
    write(
        tmp_path,
        "core/test_a.py",
        "# covers: x\n# and why\n@mark(\n    1\n)\ndef test_one(): ...\n\n\n"
        "class Test:\n    # covers: z,\n    async def test_two(self): ...\n",
    )
    assert collect(tmp_path) == {
        "x": ["core/scenarios/a.txt", "core/test_a.py::test_one"],
        "y": ["core/scenarios/a.txt"],
        "z": ["core/test_a.py::test_two"],
    }
    assert exists("core/test_a.py::test_two", tmp_path) and exists("core/test_a.py", tmp_path)
    assert not exists("core/test_a.py::test_thr", tmp_path)
    assert not exists("core/test_b.py", tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "# covers: x\n\n\ndef test_one(): ...\n",
        "# covers: x\ndef helper(): ...\n",
        "def test_one():\n    # covers: x\n    ...\n",
        "# covers: x, x\ndef test_one(): ...\n",
    ],
)
def test_a_tag_that_belongs_to_no_test_is_a_mistake(tmp_path: Path, text: str) -> None:
    write(tmp_path, "test_a.py", text)
    with pytest.raises(Mistake):
        collect(tmp_path)


def test_everything_is_covered_or_excused_and_nothing_both(tmp_path: Path) -> None:
    def judge(text: str, *covered: str) -> None:
        write(tmp_path, "reasons.txt", text)
        check(NAMES, reasons(NAMES, tmp_path / "reasons.txt"), {name: ["t"] for name in covered})

    judge("## Not ours\ntestOne: Java\n## Not yet\nX.testTwo: later\n", "Y.testTwo")
    judge("## Differs\ntestOne,\n  Y.testTwo: here\n  otherwise\n", *NAMES.full)
    for text, covered in (
        ("", ["X.testOne", "Y.testTwo"]),
        ("## Not ours\ntestOne: Java\n", [*NAMES.full]),
        ("## Not yet\ntestOne: later\n", [*NAMES.full]),
        ("## Differs\ntestOne: otherwise\n", ["X.testTwo", "Y.testTwo"]),
        ("## Not ours\ntestOne\n", ["X.testTwo", "Y.testTwo"]),
        ("## Not ours\ntestOne: a\ntestOne: b\n", ["X.testTwo", "Y.testTwo"]),
        ("## Never\ntestOne: a\n", ["X.testTwo", "Y.testTwo"]),
        ("testOne: a\n", ["X.testTwo", "Y.testTwo"]),
    ):
        with pytest.raises(Mistake):
            judge(text, *covered)


def test_a_list_names_nothing_twice(tmp_path: Path) -> None:
    write(tmp_path, "kafka.txt", "## A\nX.testOne\n## B\nX.testOne: again\n")
    with pytest.raises(Mistake, match="twice"):
        kafka_scenarios(tmp_path / "kafka.txt")


def test_links_lead_to_the_files() -> None:
    for test in ("core/scenarios/vote_grant.txt", "log/test_log.py::test_x", "core/test_roles.py"):
        target = link(test).partition("](")[2].partition(")")[0]
        assert (TESTS / "core" / target).is_file(), target


# --- the page of the texts --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "item"),
    [
        ("a => x", Item("a", "held", ["x"], "")),
        ("a => x, y z; as today", Item("a", "held", ["x", "y z"], "as today")),
        ("a => instead: b, for c [x, y]", Item("a", "instead", ["x", "y"], "b, for c")),
        ("a => instead: b [x]; c [y]", Item("a", "instead", ["x", "y"], "b; c")),
        ("a => not yet: b", Item("a", "not yet", [], "b")),
    ],
)
def test_lines_of_the_texts(line: str, item: Item) -> None:
    assert read(line) == item


@pytest.mark.parametrize("line", ["a", "a => ", "a => instead: b", "a => instead: b []"])
def test_a_line_that_nothing_holds_is_a_mistake(line: str) -> None:
    with pytest.raises(Mistake):
        read(line)


TAGGED = {"X.testOne": ["core/test_roles.py::test_each_pair", "core/scenarios/vote_grant.txt"]}


@pytest.mark.parametrize(
    ("holder", "said", "found"),
    [
        ("testOne", "", "core/test_roles"),
        ("vote_grant", "", "scenarios/vote_grant.txt"),
        ("core/test_roles.py::test_each_pair", "", "test_each_pair"),
        ("config node.id", "", "node.id"),
        ("error VOTER_NOT_FOUND", "", "127"),
        ("metric", "current-epoch, log-end-offset", "log-end-offset"),
        ("fields", "VoteRequest: ClusterId CandidateId=ReplicaId", "VoteRequest"),
    ],
)
def test_what_holds_a_line(holder: str, said: str, found: str) -> None:
    assert found in "".join(held_by(holder, said, NAMES, TAGGED))


@pytest.mark.parametrize(
    ("holder", "said"),
    [
        ("Y.testTwo", ""),  # known, and nobody covers it
        ("vote_granted", ""),
        ("core/test_roles.py::test_each_pai", ""),
        ("config node.ids", ""),
        ("error VOTER_LOST", ""),
        ("metric", "current-epoch, current-age"),
        ("metric current-age", "current-epoch"),
        ("fields", "VoteRequest: ReplicaId=CandidateId"),
        ("fields", "BallotRequest: ClusterId"),
    ],
)
def test_what_holds_nothing_is_a_mistake(holder: str, said: str) -> None:
    with pytest.raises(Mistake):
        held_by(holder, said, NAMES, TAGGED)
