"""Results in a notebook: data frames, Arrow tables, and what a result shows of itself."""

from __future__ import annotations

import doctest
import json
import sys
from pathlib import Path

import pytest

import kraftfast.bench
from kraftfast.bench import Result
from kraftfast.bench.results import frames
from kraftfast.errors import InputError, InvalidOption
from tests.bench.results import full, line, repeated, result

COLUMNS = {
    "measure": "string",
    "run_began_at": "string",
    "repetition": "Int64",
    "sync": "boolean",
    "records_per_s": "Float64",
    "p50_us": "Float64",
}


def some() -> Result:
    """Return a result with lines that differ in their keys."""
    lines = [[line("throughput", 5), line("sustained", 2.5, stolen_s=3, p50_us=None, extra="x")]]
    return result({"a": lines, "b": repeated("latency", 7.0, timeline=[{"at_s": 1}])})


def test_the_door() -> None:
    assert kraftfast.bench.Result is Result and kraftfast.bench.__all__ == ["Result"]
    with pytest.raises(AttributeError, match="no attribute 'Results'"):
        kraftfast.bench.Results  # noqa: B018


def test_the_example_of_the_docstring() -> None:
    assert doctest.testmod(frames) == (0, 1), "failed, attempted"


def test_a_result_is_loaded_by_its_path(tmp_path: Path) -> None:
    some().save(tmp_path / "a.json")
    assert Result.load(str(tmp_path / "a.json")) == some() == Result.load(tmp_path / "a.json")
    with pytest.raises(InputError, match="cannot read"):
        Result.load(tmp_path / "b.json")


def test_a_data_frame() -> None:
    pandas = pytest.importorskip("pandas")
    frame = some().to_pandas()
    assert len(frame) == 8 and {name: str(frame[name].dtype) for name in COLUMNS} == COLUMNS
    assert frame["records_per_s"].tolist()[:2] == [5.0, 2.5]
    assert frame["p50_us"].isna().tolist() == [False, True, *[False] * 6]
    assert frame["stolen_s"].tolist() == [0.0] * 8 and frame["stolen_s_of_line"].tolist()[1] == 3
    assert "timeline" not in frame and frame.attrs["machine"] == {"cpu": "a cpu", "governor": None}
    assert isinstance(frame.groupby("measure")["records_per_s"].median(), pandas.Series)
    assert len(result({}).to_pandas()) == 0


def test_an_arrow_table() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    table = some().to_arrow()
    assert table.num_rows == 8 and table.schema.field("records_per_s").type == pyarrow.float64()
    assert table.schema.field("repetition").type == pyarrow.int64()
    assert table.column("extra").to_pylist()[:3] == [None, "x", None]
    assert json.loads(table.schema.metadata[b"kraftfast"])["name"] == "made up"


def test_a_column_of_several_types_is_text() -> None:
    found = frames.columns(result({"a": [[line("x", 1, odd=1)], [line("x", 1, odd="a")]]}))
    assert frames.kind_of(found["odd"]) is str and frames.cast(found["odd"]) == ["1", "a"]
    assert frames.kind_of([2**63]) is float and frames.cast([2**63, None]) == [2.0**63, None]


def test_a_result_shows_itself() -> None:
    pytest.importorskip("matplotlib")
    shown = full()._repr_html_()
    assert shown.startswith('<div class="kf') and "<svg" in shown and "Summary" in shown
    assert "<html" not in shown and "<script" not in shown


@pytest.mark.parametrize(
    "missing, call, told",
    [("pandas", "to_pandas", "pip install pandas"), ("pyarrow", "to_arrow", "kraftfast[arrow]")],
)
def test_a_library_that_is_missing_is_one_line(
    missing: str, call: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(InvalidOption) as caught:
        getattr(some(), call)()
    assert told in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("more", [{"text": "\ud800"}, {"\ud800": 1}], ids=["value", "key"])
def test_a_text_that_is_none_to_arrow_is_told(more: dict[str, object]) -> None:
    pytest.importorskip("pyarrow")
    with pytest.raises(InputError, match="lone surrogate"):
        result({"a": [[line("throughput", 5.0, **more)]]}).to_arrow()
