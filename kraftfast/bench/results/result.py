"""Results of benchmarks: one JSON document for each plan that was run, in a folder."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kraftfast.errors import InputError
from kraftfast.log.disk import storage_error

if TYPE_CHECKING:
    import pandas
    import pyarrow

FORMAT, VERSION = "kraftfast-bench", 1
SUFFIX = ".json"
RESULT_BYTES_MAX = 1 << 30
NAME_MAX = 100
"""Characters of a plan's name that stand in the name of the file."""
KEYS: Final = (
    "records_per_s", "p50_us", "p99_us", "p999_us", "cpu_s_per_million_records", "core_percent",
    "took_s",
)  # fmt: skip
"""What is compared: finite numbers from 0 on, or null. Of the first, more is better."""
RARE: Final = ("core_percent", "took_s")
"""Shown only where a measure has it: ``idle`` and ``recover`` do."""
TIMES: Final = ("p50_us", "p99_us", "p999_us")
Held = tuple[int, int]
"""In how many repetitions a rate was held, and of how many."""


@dataclass(frozen=True, slots=True)
class Run:
    """One repetition of one measure. ``lines``: what the command printed, one or several."""

    measure: str
    repetition: int
    began_at: str
    load_average: float
    stolen_s: float
    lines: list[dict[str, Any]]

    def label(self, line: dict[str, Any]) -> str:
        """Return the name of the measure that a line belongs to."""
        part = line.get("part")
        return self.measure if part is None else f"{self.measure}: {part}"


@dataclass(frozen=True, slots=True)
class Result:
    """What a plan has measured so far. ``complete``: to its end.

    ``failures``: measures that could not be run, or not to their end, and why.
    A line with a ``part`` is a measure of its own: ``"the measure: the part"``.
    """

    name: str
    began_at: str
    plan: dict[str, Any]
    machine: dict[str, Any]
    runs: list[Run] = field(default_factory=list)
    complete: bool = False
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def measures(self) -> list[str]:
        """Return the names of what was measured, in the plan's order."""
        return list(dict.fromkeys(run.label(line) for run in self.runs for line in run.lines))

    def lines(self, measure: str) -> list[list[dict[str, Any]]]:
        """Return the lines of a measure, a list for each repetition that has some."""
        found = ([line for line in run.lines if run.label(line) == measure] for run in self.runs)
        return [each for each in found if each]

    def values(self, measure: str, key: str) -> list[float]:
        """Return what each repetition measured, the best of its lines; one without is left out.

        A rate that most repetitions did not hold has no times: those of the others are the best.
        """
        if key in TIMES and not mostly(self.held(measure)):
            return []
        found = []
        for lines in self.lines(measure):
            here = [line[key] for line in lines if line.get(key) is not None]
            if here:
                found.append(float(max(here) if key == "records_per_s" else min(here)))
        return found

    def held(self, measure: str) -> Held | None:
        """Return how often a rate was held; None of a measure that has none."""
        return held_in(self.lines(measure))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Result:
        """Read the result at ``path``. Raises InputError where there is none."""
        return load(Path(path))

    def to_pandas(self) -> pandas.DataFrame:
        """Return a data frame with a row for each line and typed columns; ``attrs`` has the rest.

        Raises InvalidOption without pandas.
        """
        from kraftfast.bench.results.frames import to_pandas

        return to_pandas(self)

    def to_arrow(self) -> pyarrow.Table:
        """Return a table as of :meth:`to_pandas`; the metadata of its schema has the rest.

        Raises InvalidOption without pyarrow, InputError where a text is none to Arrow.
        """
        from kraftfast.bench.results.frames import to_arrow

        return to_arrow(self)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: sentences, tables and pictures; the latter if matplotlib
        is installed."""
        from kraftfast.bench.page import Page

        return Page([(self.name, self)]).fragment()

    def with_run(self, run: Run) -> Result:
        """Return the same with one repetition more."""
        return replace(self, runs=[*self.runs, run])

    def with_failure(self, measure: str, reason: str) -> Result:
        """Return the same, and why a measure could not be run."""
        return replace(self, failures=self.failures | {measure: reason})

    def save(self, path: Path) -> None:
        """Write it in place of what is there. Raises StorageError."""
        text = json.dumps({"format": FORMAT, "version": VERSION} | asdict(self), indent=1)
        beside = path.with_name(f".{path.name}.new")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_text(text + "\n")
            os.replace(beside, path)
        except OSError as error:
            with suppress(OSError):
                beside.unlink()  # a full disk needs the room
            raise storage_error("cannot write", str(path), error) from None


def held_in(repetitions: list[list[dict[str, Any]]]) -> Held | None:
    """Return how often a rate was held, of the lines of each repetition; None without a rate."""
    told = [[each["held"] for each in lines if "held" in each] for lines in repetitions]
    asked = [each for each in told if each]
    return (sum(True in each for each in asked), len(asked)) if asked else None


def mostly(held: Held | None) -> bool:
    """Return whether most repetitions held their rate, or had none."""
    return held is None or 2 * held[0] > held[1]


def runs_of(repetitions: int, held: Held | None) -> str:
    """Return how many repetitions there are, and in how many of them a rate was held if not in all.

    >>> runs_of(5, None), runs_of(5, (5, 5)), runs_of(5, (2, 5))
    ('5', '5', 'held in 2 of 5')
    """
    if held is None or held[0] == held[1]:
        return str(repetitions)
    return f"held in {held[0]} of {held[1]}"


def load(path: Path) -> Result:
    """Read a result. Raises InputError where it is none, or none that this version reads."""
    try:
        document = json.loads(content(path, RESULT_BYTES_MAX, "result of kraftfast bench"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{path} is no result of kraftfast bench, or was cut: no JSON") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InputError(f"{path} is no result of kraftfast bench: it does not say {FORMAT!r}")
    if document.get("version") != VERSION:
        raise InputError(
            f"{path} has version {document.get('version')!r} of the format; this reads {VERSION}"
        )
    try:
        return _of(document)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise InputError(f"{path} lacks a part of a result, or has one of a wrong type") from None


def content(path: Path, bytes_max: int, what: str) -> bytes:
    """Return what a file holds; of a pipe or a device nothing is read.

    Raises OSError, and InputError that it is no ``what`` where it is no file or is too large.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise InputError(f"{path} is no {what}: it is no file")
        found = file.read(bytes_max + 1)
    if len(found) > bytes_max:
        raise InputError(f"{path} is no {what}: it is too large")
    return found


TYPES = {"name": str, "began_at": str, "plan": dict, "machine": dict, "complete": bool}


def _of(document: dict[str, Any]) -> Result:
    """Return the result in a document. Raises KeyError, TypeError, ValueError, AttributeError."""
    parts = {key: document[key] for key in TYPES}
    for key, kind in TYPES.items():
        if not isinstance(parts[key], kind):
            raise TypeError(key)
    runs = [Run(**each) for each in document["runs"]]
    failures = dict(document.get("failures", {}))
    names = (*(run.measure for run in runs), *failures, *failures.values())
    for text in (parts["name"], parts["began_at"], *names):
        text.encode()
    for run in runs:
        if not run.lines:
            raise ValueError(run.measure)
        for line in run.lines:
            _check(line)
    return Result(runs=runs, failures=failures, **parts)


def _check(line: dict[str, Any]) -> None:
    part = line.get("part")
    if part is not None and not isinstance(part, str):
        raise TypeError("part")
    (part or "").encode()
    for key in KEYS:
        value = line.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError(key)
        if not 0 <= value <= sys.float_info.max:  # NaN is not
            raise ValueError(key)


def default_folder() -> Path:
    """Return where results collect: ``KRAFTFAST_RESULTS``, else below the user's data folder.

    Raises InputError where that can be no folder.
    """
    asked = os.environ.get("KRAFTFAST_RESULTS")
    if asked:
        if os.path.exists(asked) and not os.path.isdir(asked):
            raise InputError(f"KRAFTFAST_RESULTS is {asked}, which is no folder")
        return Path(asked)
    data = os.environ.get("XDG_DATA_HOME")
    if data:
        return Path(data) / "kraftfast" / "bench"
    home = os.path.expanduser("~")
    if home in ("~", "", "/"):
        raise InputError("there is no home directory: name a folder, --results DIR")
    return Path(home) / ".local" / "share" / "kraftfast" / "bench"


def new_path(folder: Path, name: str) -> Path:
    """Make an empty file for a result of that name that begins now; return its path.

    Of two runs that begin in the same second each has its own. Raises StorageError.
    """
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:NAME_MAX].strip("-.") or "result"
    stem = f"{time.strftime('%Y-%m-%dT%H-%M-%S', time.gmtime())}-{plain}"
    path, number = folder / f"{stem}{SUFFIX}", 2
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error("cannot write", str(path), error) from None
    while True:
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666))
        except FileExistsError:
            path, number = folder / f"{stem}-{number}{SUFFIX}", number + 1
        except OSError as error:
            raise storage_error("cannot write", str(path), error) from None
        else:
            return path


def shown_keys(results: Iterable[Result]) -> list[str]:
    """Return the keys that a table of results has: a rare one only where a line has it."""
    lines = [line for each in results for run in each.runs for line in run.lines]
    return [key for key in KEYS if key not in RARE or any(key in line for line in lines)]


def collected(folder: Path) -> Iterator[tuple[Path, Result | InputError]]:
    """Yield each file of a folder, the oldest first, and the result in it or why it is none.

    Raises InputError where there is no such folder.
    """
    try:
        paths = sorted(each for each in folder.iterdir() if each.suffix == SUFFIX)
    except OSError as error:
        raise InputError(f"cannot read {folder}: {error.strerror}") from None
    for path in paths:
        try:
            yield path, load(path)
        except InputError as error:
            yield path, error
