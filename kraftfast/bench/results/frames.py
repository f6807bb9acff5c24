"""Results as tables for pandas and Arrow: a row for each line, a typed column for each key."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kraftfast.errors import InputError, InvalidOption

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from kraftfast.bench.results.result import Result

INT64 = range(-(2**63), 2**63)
PANDAS = {bool: "boolean", int: "Int64", float: "Float64", str: "string"}
"""All of them have a value for what is missing."""


def to_pandas(result: Result) -> pandas.DataFrame:
    """Return a data frame. Raises InvalidOption without pandas."""
    try:
        import pandas
    except ImportError:
        raise InvalidOption("a data frame needs pandas: pip install pandas") from None
    found = columns(result)
    kinds = {name: PANDAS[kind_of(values)] for name, values in found.items()}
    made = {name: pandas.array(cast(found[name]), dtype=kinds[name]) for name in found}
    frame = pandas.DataFrame(made)
    frame.attrs = facts(result)
    return frame


def to_arrow(result: Result) -> pyarrow.Table:
    """Return a table. Raises InvalidOption without pyarrow, InputError for a text that is none."""
    try:
        import pyarrow
    except ImportError:
        told = "a table needs pyarrow: pip install 'kraftfast[arrow]'"
        raise InvalidOption(told) from None
    kinds = {
        bool: pyarrow.bool_(),
        int: pyarrow.int64(),
        float: pyarrow.float64(),
        str: pyarrow.string(),
    }
    metadata = {"kraftfast": json.dumps(facts(result))}
    try:
        made = {
            name: pyarrow.array(cast(values), kinds[kind_of(values)])
            for name, values in columns(result).items()
        }
        return pyarrow.table(made).replace_schema_metadata(metadata)
    except UnicodeEncodeError:
        raise InputError("no table: a text of the result is no UTF-8 (a lone surrogate)") from None


def facts(result: Result) -> dict[str, Any]:
    """Return what is said once of a result, not in each of its rows."""
    return {
        "name": result.name,
        "began_at": result.began_at,
        "complete": result.complete,
        "machine": result.machine,
        "plan": result.plan,
    }


def columns(result: Result) -> dict[str, list[Any]]:
    """Return the columns, all of the same length; None where a line lacks a key.

    A key with a list or a table (histograms, stages, a timeline) has none. A key of a line that is
    called as one of the run ends with ``_of_line``.
    """
    rows = []
    for run in result.runs:
        own = {
            "measure": run.measure,
            "repetition": run.repetition,
            "run_began_at": run.began_at,
            "load_average": run.load_average,
            "stolen_s": run.stolen_s,
        }
        for line in run.lines:
            plain = {k: v for k, v in line.items() if isinstance(v, (bool, int, float, str))}
            named = {f"{k}_of_line" if k in own else k: v for k, v in plain.items()}
            rows.append(own | named)
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def kind_of(values: list[Any]) -> type:
    """Return the type that holds all values of a column: text where they are of several types.

    >>> kind_of([1, None, 2.5]), kind_of([True, None]), kind_of([1, "a"])
    (<class 'float'>, <class 'bool'>, <class 'str'>)
    """
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int}:
        return int if all(value is None or value in INT64 for value in values) else float
    if kinds <= {int, float}:
        return float
    return bool if kinds == {bool} else str


def cast(values: list[Any]) -> list[Any]:
    """Return the values of a column in the type of it; None stays."""
    kind = kind_of(values)
    return [None if value is None else kind(value) for value in values]
