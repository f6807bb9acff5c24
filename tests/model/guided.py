"""Walks that begin where others met something new: coverage leads the search.

A state is immutable, so a walk may begin in any state that was met, at no cost. Of each abstract
state (for each replica: whether it runs, its role, epoch and vote, whether it has a tail that is
not on disk, how its log ends beside what is committed, how many snapshots there are, whether it is
in doubt, which disk it has, whom it takes for voters and, where disks are replaced, which disks it
hears as a leader) the first state that was met is kept, or a later one after which more may still
happen. Half of the walks begin in one of those, rather where few walks began; so steps that chance
meets one at a time add up.

Such a walk also does without some kinds of events (Groce et al., Swarm Testing, ISSTA 2012), may
have slow disks, or a replica whose messages all come late, and crashes at places drawn before or at
moments: right after a replica took another role, epoch or vote, so between asking and leading,
where promises are broken, or has again what its disk lost, or as the walk begins, for something new
was met there.

A run depends on its seed and its walks; one that is resumed goes on with the next
walk, without what it had kept.
"""

from __future__ import annotations

import time
from random import Random

from tests.command import ASKED
from tests.model.alone import Violation
from tests.model.fingerprints import Fingerprints
from tests.model.liveness import is_covered
from tests.model.quorum import Action, Quorum, State
from tests.model.search import Outcome, Walk, unwound
from tests.model.seen import Seen

TRIES = 6
"""Kept states of which the one is taken where the fewest walks began."""
FRESH = 0.3
"""How many walks begin at the beginning."""
Path = tuple | None
SLOW = (-0.9, 0.0)
"""Of a disk, or a probe, that is slow for a whole walk: it returns after most timers are over."""
AT_ONCE = (1.0, 2.0)
"""Of a disk that is replaced as soon as its process is down."""
OPTIONAL = frozenset((
    "resign", "transfer", "timer", "lose", "late", "double", "overtake", "cut", "dies", "snapshot",
    "retain", "barrier", "consume", "add", "remove", "assign", "upgrade", "wipe", "probed",
))  # fmt: skip
"""Kinds of events that a walk may leave out, so that the others meet more often."""
MANY_FORMS = frozenset((
    "transfer", "add", "remove", "assign", "wipe", "lose", "late", "double", "overtake", "cut",
))  # fmt: skip
"""Kinds of events of which a state has several: one priority for the kind, in each walk."""
ASKING = ("prospective", "candidate")
DAMAGED = 3
"""Where the action of a crash says how much of what was flushed is lost."""


class AimedWalk(Walk):
    """One walk with its own kinds of events, slow disks and moments of crashes."""

    def __init__(
        self, chance: Random, length: int, crashes: int, ids: tuple[int, ...], goes_on: bool
    ) -> None:
        super().__init__(chance, length, crashes)
        self.goes_on = goes_on  # it begins where another walk met something new
        self.behind = chance.choice((0, 0, chance.choice(ids)))  # whose messages all come late
        self.aims = chance.choice((0.0, 0.15, 0.5))  # how likely a moment is a crash
        self.slow = chance.choice((0.0, 0.3, 0.6))  # how likely a disk is slow
        self.without = chance.choice((0.0, 0.3, 0.6))  # how likely a kind of event is left out
        self.out: dict[tuple[object, ...], bool] = {}
        self.replaces = chance.choice((0.0, 0.0, 0.7))  # how likely a crash takes the disk along
        self.postures: dict[int, object] = {}
        self.levels: dict[str, float] = {}  # of kinds of events that have many forms
        if self.aims:
            self.kills = set()

    def draw(self, action: Action) -> float:
        if action[0] == "deliver" and action[2] == self.behind:
            return self.chance.uniform(*SLOW)
        if action[0] in ("flushed", "probed") and self.chance.random() < self.slow:
            return self.chance.uniform(*SLOW)
        if action[0] == "wipe" and self.chance.random() < self.replaces:
            return self.chance.uniform(*AT_ONCE)
        if action[0] in MANY_FORMS:  # else the kind with the most forms comes first in most walks
            level = self.levels.get(action[0])
            if level is None:
                level = self.levels[action[0]] = super().draw(action)
            return level + self.chance.uniform(-0.1, 0.1)
        return super().draw(action)

    def is_left_out(self, action: Action) -> bool:
        """Return whether this walk does without this kind of event."""
        kind = action[0]
        name = (kind, action[2].split()[0]) if kind == "timer" else (kind,)
        if kind == "crash" and action[DAMAGED]:
            name = ("damage",)
        elif kind not in OPTIONAL:
            return False
        found = self.out.get(name)
        if found is None:
            found = self.out[name] = self.chance.random() < self.without
        return found

    def aimed(self, quorum: Quorum, state: State) -> int | None:
        """Return who crashes now, if this is a moment for it: rather who asks or has a tail, or
        whose doubt is about to end."""
        moved = self.goes_on and not self.postures
        weights = []
        for id in quorum.ids:
            seen = quorum.see(state, id)
            posture = seen.posture, seen.probing, is_settled(seen)
            moved |= self.postures.get(id, posture) != posture
            self.postures[id] = posture
            tail = seen.flushed < len(seen.records)
            weight = 1 + 3 * (seen.role in ASKING) + 3 * tail + 3 * is_settled(seen)
            weights.append(weight * seen.running)
        if not moved or self.chance.random() >= self.aims or not any(weights):
            return None
        return self.chance.choices(quorum.ids, weights)[0]

    def order(self, quorum: Quorum, state: State, place: int) -> list[Action]:
        target = self.aimed(quorum, state) if self.aims else None
        found = [
            action for action in super().order(quorum, state, place)
            if not self.without or not self.is_left_out(action)
        ]  # fmt: skip
        now = [each for each in found if each[0] == "crash" and each[1] == target]
        self.chance.shuffle(now)
        return now + [each for each in found if each not in now] if now else found


def abstract(quorum: Quorum, state: State) -> tuple[object, ...]:
    """Return what is new or not about a state."""
    committed = state.known.committed
    found: list[object] = [len(committed)]
    for id in quorum.ids:
        seen = quorum.see(state, id)
        whole = seen.records[: len(committed)] == committed
        tail = seen.flushed < len(seen.records)
        doubt = (seen.phantom is not None) + is_settled(seen), seen.memory_lost
        named = seen.key.directory_id, seen.voters.ids  # whose disk it is, and who counts there
        known = seen.start, len(seen.snapshots), seen.moves, seen.heard, seen.confirmed
        found.append((seen.posture, tail, whole, doubt, *known, *named))
    return tuple(found)


def is_settled(seen: Seen) -> bool:
    """Return whether a replica in doubt (D10) has fetched again all that it may have lost."""
    return seen.phantom is not None and is_covered(seen)


def who_is_missed(quorum: Quorum, state: State) -> list[int | None]:
    """Return the replicas to keep down, one at a time, in liveness checks of a state with doubts
    (D10); None: all run."""
    every = {id: quorum.see(state, id) for id in quorum.ids}
    needed = [id for id, seen in every.items() if is_settled(seen)]
    nobody = any(seen.memory_lost and not seen.running for seen in every.values())
    missed = [id for id in quorum.ids if needed and needed != [id]]
    return [*missed, *([None] if nobody else [])]


def ask(
    quorum: Quorum, state: State, path: Path, down: int | None, outcome: Outcome
) -> tuple[Path, str]:
    """Return the way to a violation if nothing good comes of a state (L1, L2)."""
    action = ("live", down)
    outcome.asked += 1
    try:
        quorum.apply(state, action)
    except Violation as error:
        return (path, action), str(error)
    return path, ""


class Corpus:
    """The states in which walks may begin."""

    def __init__(self, start: State) -> None:
        self.start = start
        self.entries: dict[tuple[object, ...], list] = {}  # state, path, depth, walks begun
        self.keys: list[tuple[object, ...]] = []

    def note(self, quorum: Quorum, state: State, path: Path, depth: int) -> bool:
        """Keep a state if it is new, which is returned, or leaves more to happen than before."""
        key = abstract(quorum, state)
        entry = self.entries.get(key)
        if entry is None:
            self.entries[key] = [state, path, depth, 0]
            self.keys.append(key)
        elif (sum(state.left), -depth) > (sum(entry[0].left), -entry[2]):
            entry[:3] = state, path, depth
        return entry is None

    def pick(self, chance: Random) -> tuple[State, Path, int]:
        """Return where a walk begins."""
        if not self.keys or chance.random() < FRESH:
            return self.start, None, 0
        tried = [self.entries[chance.choice(self.keys)] for _ in range(TRIES)]
        entry = min(tried, key=lambda each: each[3])
        entry[3] += 1
        return entry[0], entry[1], entry[2]

    def clear(self) -> None:
        """Forget all but the beginning: the numbers of replicas stand for others now."""
        self.entries.clear()
        self.keys.clear()


def guided(
    quorum: Quorum, start: State, seed: int, seconds: float, prints: Fingerprints,
    length: int = 60, walks: int = 1 << 40, liveness: int = 0, states: int = 1 << 62,
) -> Outcome:  # fmt: skip
    """Walk by random priorities from what is kept; the arguments are those of ``search.pct``."""
    outcome, began, known = Outcome(), time.monotonic(), len(prints)
    corpus = Corpus(start)
    quorum.turns.mark()
    for number in range(prints.walks, prints.walks + walks):
        if ASKED or time.monotonic() - began > seconds or len(prints) >= states:
            break
        outcome.walks += 1
        prints.walks = number + 1
        before = len(quorum.turns.replicas)
        quorum.stay_bounded()
        if len(quorum.turns.replicas) < before:
            corpus.clear()
        chance = Random(f"{seed} {number} guided")
        asked = bool(liveness) and number % liveness == 0
        path, violation = one_walk(
            quorum, corpus, chance, length, prints, outcome, asked, liveness > 0
        )
        if violation:
            outcome.history, outcome.violation = unwound(path), violation
            break
    outcome.states, outcome.seconds = len(prints), time.monotonic() - began
    outcome.fresh = outcome.states - known
    return outcome


def one_walk(
    quorum: Quorum, corpus: Corpus, chance: Random, length: int, prints: Fingerprints,
    outcome: Outcome, asked: bool, may_ask: bool,
) -> tuple[Path, str]:  # fmt: skip
    """Return the way to a walk's end, and the violation there.

    ``asked``: what would come of its last state is judged; ``may_ask``: also where a doubt was
    settled.
    """
    state, path, depth = corpus.pick(chance)
    way = AimedWalk(chance, length, state.left.crashes, quorum.ids, path is not None)
    here = {state}
    most = chance.randrange(8, length) if asked or path else length
    for place in range(most):
        action: Action
        for action in way.order(quorum, state, place):
            outcome.steps += 1
            quorum.marks.clear()
            try:
                after = quorum.apply(state, action)
            except Violation as error:
                return (path, action), str(error)
            if after is not None and after not in here:
                break
        else:
            break
        outcome.tally.count(quorum, state, action, after)
        way.taken(action)
        state, path, depth = after, (path, action), depth + 1
        here.add(state)
        prints.add(quorum.print_of(state))
        outcome.depth = max(outcome.depth, depth)
        if depth < 2 * length and corpus.note(quorum, state, path, depth) and may_ask:
            for down in who_is_missed(quorum, state):  # who has it again may be needed by the rest
                asked_path, violation = ask(quorum, state, path, down, outcome)
                if violation:
                    return asked_path, violation
    if asked:
        return ask(quorum, state, path, chance.choice((None, *quorum.ids)), outcome)
    return path, ""
