"""What a page takes from the lines of a result. A line is what some command printed: a value of
another type than expected is left out, and never shown as a figure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kraftfast.errors import InputError, InvalidOption

if TYPE_CHECKING:
    from hdrh.histogram import HdrHistogram

VALUE_MAX = 1e15
PART_OF_A_SECOND = 0.3
"""The last look may come so soon after the one before that its rate says nothing."""


def number(value: object) -> float | None:
    """Return a number from 0 on, or None; also where no picture could hold it."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if 0 <= found <= VALUE_MAX else None  # NaN is not


def numbers(lines: Iterable[dict[str, Any]], key: str) -> list[float]:
    """Return the values of a key that are numbers."""
    found = (number(line.get(key)) for line in lines)
    return [each for each in found if each is not None]


def dicts(value: object) -> list[dict[str, Any]]:
    """Return the dicts of a list; nothing if it is none."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


@dataclass(frozen=True, slots=True)
class PageSecond:
    """One look of a sustained run. ``flushes`` and ``elections``: since the look before."""

    at_s: float
    records_per_s: float
    p999_us: float | None
    elections: float
    flushes: float | None


def timeline(line: dict[str, Any]) -> list[PageSecond]:
    """Return the looks of a run, in order; one after too short a time is left out."""
    found, before = [], 0.0
    for each in dicts(line.get("timeline")):
        at, rate = number(each.get("at_s")), number(each.get("records_per_s"))
        if at is None or rate is None or at - before < PART_OF_A_SECOND:
            continue
        elections, flushes = number(each.get("elections")), number(each.get("flushes"))
        found.append(PageSecond(at, rate, number(each.get("p999_us")), elections or 0.0, flushes))
        before = at
    return found


class Histograms:
    """Reads the histograms of lines, adds them up, and keeps a line on each that it cannot read."""

    # told: where a line on what is left out goes. _missing: the library is not there; told once.

    def __init__(self, told: list[str]) -> None:
        self.told = told
        self._missing = False

    def merged(self, where: str, lines: Iterable[dict[str, Any]]) -> dict[str, HdrHistogram]:
        """Return one histogram for each stage of these lines, values in nanoseconds."""
        found: dict[str, HdrHistogram] = {}
        for line in lines:
            texts = line.get("histograms")
            for stage, text in texts.items() if isinstance(texts, dict) else ():
                read = self._read(f"{where}, {stage}", text)
                if read is None or not 0 < read.get_total_count():
                    continue
                if stage not in found:
                    found[stage] = read
                else:
                    self._add(f"{where}, {stage}", found[stage], read)
        return found

    def _read(self, where: str, text: Any) -> HdrHistogram | None:
        from kraftfast.bench.profiling.histograms import decode

        if self._missing:
            return None
        try:
            return decode(text)
        except InvalidOption as error:
            self._missing = True
            self.told.append(str(error))
        except InputError as error:
            self.told.append(f"left out: the histogram of {where}: {error}")
        return None

    def _add(self, where: str, onto: HdrHistogram, more: HdrHistogram) -> None:
        try:
            onto.add(more)
        except (IndexError, ValueError) as error:
            self.told.append(f"left out: a histogram of {where} does not add up: {error}")


def percentiles_us(histogram: HdrHistogram, percents: list[float]) -> list[float]:
    """Return percentiles of a histogram of nanoseconds, microseconds."""
    found = histogram.get_percentile_to_value_dict(percents)
    return [float(found[each]) / 1000 for each in percents]
