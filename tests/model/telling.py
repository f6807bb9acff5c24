"""Says what a search came to."""

from __future__ import annotations

import os
import shlex
import tempfile
from pathlib import Path
from typing import Any

from tests.model.alone import Violation
from tests.model.marks import Tally
from tests.model.quorum import Quorum, State
from tests.model.replay import Histories, form, in_other_form
from tests.model.scenario_of import scenario_of
from tests.model.search import Outcome, shrink


def keep(told: dict[str, Any], name: str, outcome: Outcome) -> None:
    """Add what a search of a setting came to to what those before it did."""
    known = told.setdefault(name, {})
    for figure in ("fresh", "seconds", "steps", "walks", "asked"):
        known[figure] = known.get(figure, 0) + getattr(outcome, figure)
    known["depth"] = max(known.get("depth", 0), outcome.depth)
    known["violation"] = known.get("violation") or outcome.violation.partition("\n")[0]
    tally = Tally(known.get("tally"))
    tally.add(outcome.tally)
    known["tally"] = tally.stored()


def table(told: dict[str, Any]) -> list[str]:
    """Return a table of all settings, and what they took of each kind of action."""
    titles = "| setting | new states | depth | a second | walks | asked | found |"
    lines = ["", titles, "|---" * 7 + "|"]
    every = Tally()
    for name, known in told.items():
        rate = known["fresh"] / max(known["seconds"], 0.001)
        lines.append(
            f"| {name} | {known['fresh']:,} | {known['depth']} | {rate:,.0f} | "
            f"{known['walks']:,} | {known['asked']:,} | {known['violation'] or 'nothing'} |"
        )
        every.add(Tally(known["tally"]))
    lines += ["", "Actions of walks, and how many of them changed more than what may still happen:"]
    for name, count in sorted(every.taken.items()):
        lines.append(f"  {count:>9,} {every.changed[name]:>9,}  {name}")
    lines += ["", "In how many steps of walks it came about, or stood:"]
    return lines + [f"  {n:>9,}  {name}" for name, n in sorted(every.marks.items())]


def tell(
    quorum: Quorum, start: State, outcome: Outcome, words: list[str], verbose: bool = False,
    folder: Path | None = None,
) -> None:  # fmt: skip
    """Print the figures, and a history that ends in a violation, in both forms of the core.

    ``folder``: where that history is written, so that the command printed last takes it again.
    Only the history is sure to show a violation: walks depend on what was seen before them.
    """
    rate = outcome.fresh / max(outcome.seconds, 0.001)
    walks = f", {outcome.walks:,} walks" if outcome.walks else ""
    walks += f", {outcome.asked:,} ends asked for liveness" if outcome.asked else ""
    whole = ", all of them" if outcome.whole else ""
    print(
        f"{outcome.states:,} states{whole}, {outcome.fresh:,} new ones in {outcome.seconds:.1f} s "
        f"({rate:,.0f} a second), "
        f"{outcome.steps:,} steps, depth {outcome.depth}{walks}; "
        f"{quorum.turns.calls:,} calls of the core, {len(quorum.turns.replicas):,} of its states"
    )
    looked = quorum.oracle.looked + quorum.turns.world.looked
    print("looked at:", ", ".join(f"{kind} {count}" for kind, count in sorted(looked.items())))
    if not outcome.violation:
        print("no violation")
        return
    history = shrink(quorum, start, outcome.history, outcome.violation)
    print(
        f"VIOLATION after {len(history)} actions ({len(outcome.history)} before shrinking): "
        + outcome.violation.partition("\n")[0]
    )
    state, path = start, []
    print(quorum.describe(state))
    for action in history:
        print("  ", *action)
        before = state
        try:
            state = quorum.apply(state, action) or state
        except Violation as error:
            path.append((before, action, None))
            print(error)
            break
        path.append((before, action, state))
        if verbose:
            print(quorum.describe(state))
    print(quorum.describe(state))
    print("\nAs a scenario of tests/core:\n")
    print("\n".join([*scenario_of(quorum, start, path), "state", "----"]))
    histories = Histories()
    histories.keep(words, quorum, start, history)
    print(f"\nIn the other form of the core: {in_other_form(histories)}")
    if folder is not None:
        print(again(histories, folder))


def again(histories: Histories, folder: Path) -> str:
    """Write a history to a file of its own, and return the command that takes it again."""
    try:
        number, name = tempfile.mkstemp(prefix="violation-", suffix=".walk", dir=folder)
        os.close(number)
        histories.store(Path(name))
    except OSError as error:
        return f"it cannot be kept, so only the actions above show it again: {error}"
    compiled = " --compiled" if form() == "compiled" else ""
    return f"again: python -m tests.model --replay {shlex.quote(name)}{compiled}"
