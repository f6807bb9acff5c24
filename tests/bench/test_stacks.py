"""Sampled stacks: speedscope's format, the functions' shares, what changed, and the drawing."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest

from kraftfast.bench.profiling import flame, stacks
from kraftfast.errors import InputError

SCHEMA = json.loads((Path(__file__).parent / "data" / "speedscope.schema.json").read_text())
SVG = "{http://www.w3.org/2000/svg}"


def of_py_spy() -> dict[str, Any]:
    """As py-spy 0.4.3 writes it, with its nulls."""
    frames = [
        {"name": "main", "file": "worker.py", "line": 46, "col": None},
        {"name": "drain", "file": "ring_producers.pyx", "line": 180, "col": None},
        {"name": "0x7f25e92a3f16", "file": "/usr/lib/libc.so.6", "line": 0, "col": None},
        {"name": "0x7f25e92a3f99", "file": "/usr/lib/libc.so.6", "line": 0, "col": None},
    ]
    profile = {
        "type": "sampled", "name": 'Thread 1 "MainThread"', "unit": "seconds",
        "startValue": 0.0, "endValue": 0.04,
        "samples": [[0, 1], [0, 1, 2], [0, 1, 3], [0]], "weights": [0.01] * 4,
    }  # fmt: skip
    return {
        "$schema": stacks.SCHEMA, "profiles": [profile], "shared": {"frames": frames},
        "activeProfileIndex": None, "exporter": "py-spy@0.4.3", "name": "py-spy profile",
    }  # fmt: skip


def of(**counts: int) -> stacks.Stacks:
    return stacks.Stacks(Counter({(("main", "a.py"), (n, "b.c")): c for n, c in counts.items()}))


def test_what_is_written_is_speedscopes_format() -> None:
    raw = of_py_spy()
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(raw, SCHEMA)
    jsonschema.validate(stacks.cleaned(raw, "leader"), SCHEMA)


def test_code_without_symbols_is_one_function_a_file() -> None:
    found = stacks.stacks_of(of_py_spy())
    assert found.samples == 4
    assert found.self_shares() == {
        ("drain", "ring_producers.pyx"): 0.25,
        ("(no symbol)", "/usr/lib/libc.so.6"): 0.5,
        ("main", "worker.py"): 0.25,
    }


def test_a_change_within_chance_is_none() -> None:
    assert stacks.changes("leader", of(f=500, g=500), of(f=510, g=490)) == []
    assert stacks.changes("leader", of(f=500), stacks.Stacks(Counter())) == []
    grew, shrank = stacks.changes("leader", of(f=500, g=500), of(f=700, g=300))
    assert (grew.function[0], shrank.function[0]) == ("f", "g")
    assert grew.grown == pytest.approx(0.2) and shrank.grown == pytest.approx(-0.2)


def test_one_that_is_new_and_one_that_went_are_changes() -> None:
    found = stacks.changes("leader", of(f=50, g=50), of(f=50, h=50))
    assert {(each.function[0], each.before, each.after) for each in found} == {
        ("g", 0.5, 0.0),
        ("h", 0.0, 0.5),
    }


def test_a_box_is_as_wide_as_its_share() -> None:
    text = flame.draw(of(f=30, g=70), "<leader>", "a & b")
    root = ElementTree.fromstring(text)
    width = {
        box.findtext(f"{SVG}title"): float(box.findall(f"{SVG}rect")[0].attrib["width"])
        for box in root.iter(f"{SVG}g")
    }
    whole = flame.WIDTH - 2 * flame.MARGIN
    assert width["f (b.c): 30 samples, 30.00 %"] == pytest.approx(0.3 * whole)
    assert width["g (b.c): 70 samples, 70.00 %"] == pytest.approx(0.7 * whole)
    assert width["main (a.py): 100 samples, 100.00 %"] == pytest.approx(whole)
    assert len(width) == 4


def test_nothing_sampled_is_drawn_empty_and_deep_stacks_are_drawn() -> None:
    ElementTree.fromstring(flame.draw(stacks.Stacks(Counter()), "client", "0 samples"))
    deep = stacks.Stacks(Counter({tuple((f"f{n}", "a.py") for n in range(5000)): 1}))
    assert flame.draw(deep, "client", "").count("<rect") == 5002


def test_colours_of_a_comparison_say_what_grew() -> None:
    colour = flame.by_change(of(f=50, g=50, h=50), of(f=80, g=20, h=50))

    def red_blue(name: str) -> tuple[int, int]:
        text = colour((name, "b.c"))
        return int(text[1:3], 16), int(text[5:7], 16)

    assert red_blue("f")[0] > red_blue("f")[1] and red_blue("g")[0] < red_blue("g")[1]
    assert colour(("h", "b.c")) == colour(("unknown", "b.c"))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"shared": {"frames": []}}', "\xff", "[" * 9999])
def test_a_file_that_is_none_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / f"leader{stacks.SUFFIX}"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match="is no speedscope file"):
        stacks.read_folder(tmp_path)


def test_a_folder_without_profiles_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no profile"):
        stacks.read_folder(tmp_path)
    with pytest.raises(InputError, match="no folder of profiles"):
        stacks.read_folder(tmp_path / "absent")
