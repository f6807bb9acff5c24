"""Ways through the states: delay-bounded and whole, or by random priorities (PCT).

Every way counts distinct states by their hash and stops at the first violation. ``shrink`` makes a
history shorter; a third way is ``guided``. Sources: Emmi, Qadeer, Rakamaric, Delay-Bounded
Scheduling (POPL 2011); Burckhardt et al., A Randomized Scheduler with
Probabilistic Guarantees of Finding Bugs (ASPLOS 2010).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from tests.command import ASKED
from tests.model.alone import Violation
from tests.model.fingerprints import Fingerprints
from tests.model.marks import Tally
from tests.model.quorum import Action, Quorum, State
from tests.model.turns import NotComputed


@dataclass
class Outcome:
    """What a search came to."""

    states: int = 0  # distinct, with those of earlier runs
    fresh: int = 0  # of this run
    steps: int = 0
    depth: int = 0
    walks: int = 0
    asked: int = 0  # states of which it was asked what would come of them
    whole: bool = False
    seconds: float = 0.0
    history: list[Action] = field(default_factory=list)
    violation: str = ""
    tally: Tally = field(default_factory=Tally)
    kept: list[list[Action]] = field(default_factory=list)  # walks, if they are


def delay_bounded(
    quorum: Quorum, start: State, delays: int, seconds: float, prints: Fingerprints,
    depth_max: int = 200,
) -> Outcome:  # fmt: skip
    """Take every way that deviates at most ``delays`` times from what goes on by itself.

    A state that was reached with no fewer deviations left is not taken again. One like it under
    other names is: the core, which prefers lower ids, may lead elsewhere from there.
    """
    outcome, began, known_before = Outcome(), time.monotonic(), len(prints)
    most = {(quorum.own_print_of(start), start.left): delays}  # deviations left, by state
    stack: list[tuple[State, int, int, tuple | None]] = [(start, delays, 0, None)]
    while stack:
        if ASKED or time.monotonic() - began > seconds:
            break
        state, left, depth, path = stack.pop()
        if most[quorum.own_print_of(state), state.left] > left or depth >= depth_max:
            continue
        outcome.depth = max(outcome.depth, depth)
        free = True  # the first action that leads on costs nothing
        for action in quorum.actions(state, quorum.symmetry.order_of(state)):
            if not free and not left:
                break
            outcome.steps += 1
            try:
                after = quorum.apply(state, action)
            except Violation as error:
                outcome.violation, outcome.history = str(error), unwound((path, action))
                stack.clear()
                break
            if after is None or after == state:
                continue
            rest = left if free else left - 1
            free = False
            key = quorum.own_print_of(after), after.left
            if most.get(key, -1) < rest:
                most[key] = rest
                prints.add(quorum.print_of(after))
                stack.append((after, rest, depth + 1, (path, action)))
    else:
        outcome.whole = not outcome.violation
    outcome.states, outcome.fresh = len(prints), len(prints) - known_before
    outcome.seconds = time.monotonic() - began
    return outcome


def unwound(path: tuple | None) -> list[Action]:
    """Return a linked history as a list, first action first."""
    found = []
    while path is not None:
        path, action = path
        found.append(action)
    return found[::-1]


LEVELS = {
    "deliver": (0, 1),
    "flushed": (0, 1),
    "append": (0, 1),
    "timer": (-0.6, 0.5),
    "start": (-0.5, 0.9),
    "crash": (-0.9, 0.1),
    "dies": (-0.9, 0.1),
    "snapshot": (-0.5, 0.7),
    "retain": (-0.5, 0.7),
    "probed": (-0.2, 1),
    "barrier": (-0.9, 0.5),
    "consume": (-0.9, 0.5),
    "link": (-0.3, 0.9),
    "upgrade": (-0.5, 0.9),
    "lie": (1.5, 2),
}
RARE = (-0.9, 0.3)
"""Between which a priority is drawn, by kind of event."""


class Walk:
    """One walk: each channel, disk, timer and killer has a priority; the highest goes first."""

    def __init__(self, chance: Random, length: int, crashes: int) -> None:
        self.chance = chance
        self.priority: dict[Action, float] = {}
        self.length = chance.randrange(10, length)
        self.changes = {chance.randrange(length) for _ in range(chance.randrange(1, 6))}
        self.kills = {chance.randrange(2, self.length) for _ in range(crashes)}

    def draw(self, action: Action) -> float:
        low, high = LEVELS.get(action[0], RARE)
        if action[0] == "timer" and action[2].startswith(("election", "fetch", "unflushed")):
            low = low / 2
        return self.chance.uniform(low, high)

    def order(self, quorum: Quorum, state: State, place: int) -> list[Action]:
        """Return what may happen, by priority."""
        chance, priority = self.chance, self.priority
        if place in self.changes and priority:
            priority[chance.choice(list(priority))] = chance.choice((-1.0, 2.0))
        found = []
        for action in quorum.actions(state):
            level = priority.get(action)
            if level is None:
                level = priority[action] = self.draw(action)
            if place in self.kills and action[0] == "crash":
                leads = quorum.see(state, action[1]).role in ("leader", "candidate")
                level += 5 + chance.random() + leads * chance.random()
            found.append((level, action))
        found.sort(key=lambda each: -each[0])
        return [action for _, action in found]

    def taken(self, action: Action) -> None:
        if action[0] in ("timer", "crash", "start", "dies", "barrier", "consume"):
            self.priority[action] = self.draw(action)


def pct(
    quorum: Quorum, start: State, seed: int, seconds: float, prints: Fingerprints,
    length: int = 60, walks: int = 1 << 40, liveness: int = 0,
    states: int = 1 << 62, beside: int = 0, keeps: bool = False,
) -> Outcome:  # fmt: skip
    """Walk by random priorities, each walk from a seed of its own; go on where ``prints`` stop.

    Each ``liveness``-th walk ends by asking what would come of its last state. It ends by itself
    once ``states`` distinct ones are known. ``beside``: how many states beside each walk are
    judged. ``keeps``: the walks are kept.
    """
    outcome, began, known = Outcome(), time.monotonic(), len(prints)
    quorum.turns.mark()
    for number in range(prints.walks, prints.walks + walks):
        if ASKED or time.monotonic() - began > seconds or len(prints) >= states:
            break
        outcome.walks += 1
        quorum.stay_bounded()
        prints.walks = number + 1
        chance = Random(f"{seed} {number}")
        asked = bool(liveness) and number % liveness == 0
        history, violation = walk(quorum, start, chance, length, prints, outcome, asked)
        if keeps:
            outcome.kept.append(history)
        if beside and not violation:
            history, violation = look_beside(
                quorum, start, history, chance, prints, beside, outcome
            )
        if violation:
            outcome.history, outcome.violation = history, violation
            break
    outcome.states, outcome.seconds = len(prints), time.monotonic() - began
    outcome.fresh = outcome.states - known
    return outcome


def walk(
    quorum: Quorum, start: State, chance: Random, length: int, prints: Fingerprints,
    outcome: Outcome, asked: bool = False,
) -> tuple[list[Action], str]:  # fmt: skip
    """Return one walk's actions, and the violation at their end.

    ``asked``: the walk ends somewhere, and what would come of its last state is judged.
    """
    if asked:
        length = max(chance.randrange(length // 4, length), 12)
    way = Walk(chance, length, start.left.crashes)
    state, history, here = start, [], {start}
    for place in range(length):
        for action in way.order(quorum, state, place):
            outcome.steps += 1
            quorum.marks.clear()
            try:
                after = quorum.apply(state, action)
            except Violation as error:
                return [*history, action], str(error)
            if after is not None and after not in here:
                break
        else:
            break
        outcome.tally.count(quorum, state, action, after)
        way.taken(action)
        history.append(action)
        state = after
        here.add(state)
        prints.add(quorum.print_of(state))
        outcome.depth = max(outcome.depth, len(history))
    if asked:
        action = ("live", chance.choice((None, *quorum.ids)))
        outcome.asked += 1
        try:
            quorum.apply(state, action)
        except Violation as error:
            return [*history, action], str(error)
    return history, ""


def look_beside(
    quorum: Quorum, start: State, history: list[Action], chance: Random, prints: Fingerprints,
    most: int, outcome: Outcome,
) -> tuple[list[Action], str]:  # fmt: skip
    """Return a history to a violation near a walk, if there is one.

    What each replica did in this walk and those before it happens in other orders and other
    company. No step of the core is computed for that: what was not yet is left out.
    """
    state, path = start, None
    stack: list[tuple[State, tuple | None]] = [(state, path)]
    for action in history:
        state, path = quorum.apply(state, action) or state, (path, action)
        stack.append((state, path))
    quorum.turns.only_computed = True
    try:
        while stack and most > 0:
            place = chance.randrange(len(stack))
            stack[place], stack[-1] = stack[-1], stack[place]
            state, path = stack.pop()
            for action in quorum.actions(state):
                outcome.steps += 1
                try:
                    after = quorum.apply(state, action)
                except NotComputed:
                    continue
                except Violation as error:
                    return unwound((path, action)), str(error)
                if after is not None and prints.add(quorum.print_of(after)):
                    most -= 1
                    stack.append((after, (path, action)))
    finally:
        quorum.turns.only_computed = False
    return history, ""


def play(quorum: Quorum, start: State, history: list[Action]) -> tuple[str, int]:
    """Return the violation that a history leads to, and at which action."""
    state = start
    for place, action in enumerate(history):
        try:
            state = quorum.apply(state, action) or state
        except Violation as error:
            return str(error), place
    return "", len(history)


def shrink(
    quorum: Quorum, start: State, history: list[Action], violation: str,
    same: Callable[[str, str], bool] = lambda one, other: one[:12] == other[:12],
) -> list[Action]:  # fmt: skip
    """Return the history without the actions that are not needed."""
    size = max(1, len(history) // 2)
    while size:
        place = 0
        while place < len(history):
            shorter = history[:place] + history[place + size :]
            found, end = play(quorum, start, shorter)
            if found and same(found, violation):
                history = shorter[: end + 1]
            else:
                place += size
        size //= 2
    return history
