"""Says what a search came to."""

from __future__ import annotations

from tests.model.quorum import Quorum, State
from tests.model.scenario_of import scenario_of
from tests.model.search import Outcome, shrink
from tests.model.alone import Violation


def tell(quorum: Quorum, start: State, outcome: Outcome, verbose: bool = False) -> None:
    """Print the figures, and a history that ends in a violation."""
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
