"""``python -m tests.model``: search a quorum's states, by the core itself."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.command import (
    ASKED,
    REFUSED,
    VIOLATED,
    Refused,
    duration,
    finish,
    from_least,
    stop_when_asked,
)
from tests.core.twins import Interpreted
from tests.model.beginning import BEGINNINGS
from tests.model.settings import SETTINGS

if TYPE_CHECKING:
    from tests.model.fingerprints import Fingerprints
    from tests.model.quorum import Quorum, State
    from tests.model.replay import Histories

STORED_EVERY_S = 60
BESIDE = 2000
"""States beside each walk that --all judges, unless it is said."""


LENGTH_MIN = 11
"""Of walks; the shortest that has places for changes of priorities."""
OF_A_QUORUM = (
    "voters", "observers", "sockets", "dynamic", "upgrades", "upgraded", "asks", "wipes", "first",
)  # fmt: skip
"""Options that say what kind of quorum it is."""
VOTERS_SEARCHED_MAX = 9
"""With more, the steps until the first voter leads are too many to be taken."""
NOT_WITH_ALL = ("setting", "way", "delays", "length", "liveness", "named")


def some_ids(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(","))


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.model", description=__doc__, allow_abbrev=False
    )
    add = parser.add_argument
    add(
        "--all",
        action="store_true",
        help="one named setting after the other, by turns, instead of the one of these options",
    )
    add("--setting", choices=list(SETTINGS), help="a named one, before the options given")
    add("--turn-seconds", type=duration, default=30, help="of one setting at a time, with --all")
    add(
        "--rounds",
        type=from_least(1),
        default=1 << 40,
        help="turns of each setting at most, with --all",
    )
    add(
        "--resume",
        type=Path,
        metavar="FILE.npz",
        help="what was seen: read if it is there, written now and then and at the end",
    )
    add(
        "--states",
        type=from_least(1),
        default=1 << 62,
        help="stop when so many distinct ones were seen",
    )
    add("--seconds", type=duration, default=60)
    add("--seed", type=int, default=1)
    add("--way", choices=("pct", "guided", "delays"), default="pct")
    add("--delays", type=from_least(0), default=2, help="deviations of the way by delays")
    add("--walks", type=from_least(1), default=1 << 40)
    add("--length", type=from_least(LENGTH_MIN), default=60, help="events in a walk at most")
    add(
        "--liveness",
        type=from_least(0),
        default=10,
        metavar="N",
        help="after each N-th walk: what stands again leads to a leader and a commit; 0: never",
    )
    add(
        "--beside",
        type=from_least(0),
        default=0,
        metavar="N",
        help="judge N states beside each walk, of steps that were computed before",
    )
    add("--table", action="store_true", help="only print what FILE.npz came to, by setting")
    add("--histories", type=Path, metavar="FILE", help="where the walks that were taken are kept")
    add(
        "--replay",
        type=Path,
        metavar="FILE",
        help="take those walks again and compare each state: with --compiled, the other form",
    )
    add("--named", action="store_true", help="tell states apart that differ only in names")
    add("--compiled", action="store_true", help="search the compiled core, not its sources")
    add("--verbose", action="store_true")
    of_quorum(parser)
    return parser


def of_quorum(parser: argparse.ArgumentParser) -> None:
    """Add what says which quorum it is, and what may happen in it."""
    add = parser.add_argument
    add("--voters", type=from_least(1), default=3)
    add("--observers", type=from_least(0), default=0)
    add("--sockets", action="store_true", help="fetched answers, not pushed ones")
    add("--dynamic", action="store_true", help="kraft.version 1")
    add("--upgrades", action="store_true", help="kraft.version 0, which may be upgraded to 1")
    add("--upgraded", action="store_true", help="static voters; all are in the log as it begins")
    add("--asks", action="store_true", help="replicas are configured to ask all for the leader")
    add("--auto-join", action="store_true", help="observers make themselves voters")
    add(
        "--emptied",
        type=some_ids,
        default=(),
        metavar="IDS",
        help="whose disks are replaced as it begins, after a power cut everywhere",
    )
    add("--begin", choices=list(BEGINNINGS), default="", help="what is done before it begins")
    add("--turn-records", type=from_least(1), default=100, help="records in an answer")
    add("--voters-max", type=from_least(1), default=64, help="how many voters fit")
    add("--wipes", default="", help="how disks are replaced: empty, alone, or empty,alone")
    add(
        "--floors",
        type=some_ids,
        default=(),
        metavar="IDS",
        help="whose committed floor is written at each step",
    )
    add("--hurt-max", type=from_least(-1), default=-1, help="disks that may lose flushed records")
    add("--witnesses", type=some_ids, default=(), metavar="IDS")
    add("--memory", type=some_ids, default=(), metavar="IDS", help="durability=memory")
    add(
        "--moved",
        type=some_ids,
        default=(),
        metavar="IDS",
        help="voters whose entries say another place than theirs",
    )
    add("--first", action="store_true", help="begin where nobody was ever elected")
    add("--strangers", action="store_true", help="Votes of one that no voter set names")
    add("--lies", action="store_true", help="answers name diverging offsets inside batches")
    for kind, number in (("timers", 4), ("crashes", 2), ("faults", 0), ("appends", 2),
                         ("admin", 0), ("snapshots", 0), ("reads", 0)):  # fmt: skip
        add(f"--{kind}", type=from_least(0), default=number)
    add("--epochs", type=from_least(1), default=6)


def quorum_of(options: argparse.Namespace, order: tuple[int, ...] = ()) -> tuple[Quorum, State]:
    """Return the quorum that the options name, and the state in which its first voter leads."""
    from kraftfast import limits
    from tests.model.alone import Setting
    from tests.model.quorum import KINDS, Budget, Quorum

    voters = tuple(range(1, options.voters + 1))
    ids = tuple(range(1, options.voters + options.observers + 1))
    limits.VOTERS_MAX = options.voters_max
    setting = Setting(
        ids, voters, not options.sockets, options.dynamic, options.turn_records, options.upgrades,
        tuple(filter(None, options.wipes.split(","))), options.floors, options.hurt_max,
        options.witnesses, options.memory, options.moved, options.lies, options.upgraded,
        options.auto_join, options.strangers, options.emptied, options.asks,
        options.begin,
    )  # fmt: skip
    quorum = Quorum(setting, options.epochs, order)
    quorum.symmetric = not options.named
    left = Budget(*(getattr(options, kind) for kind in KINDS))
    if options.first:
        return quorum, quorum.calm(quorum.initial())._replace(left=left)
    return quorum, quorum.settled(left)


def run(options: argparse.Namespace, prints: Fingerprints, name: str = "") -> int:
    """Search one setting; ``name``: under which its figures are kept."""
    from tests.model import search
    from tests.model.alone import Violation
    from tests.model.guided import guided
    from tests.model.telling import keep, tell

    try:
        quorum, start = quorum_of(options)
    except (Violation, AssertionError) as error:  # or nobody leads
        print(f"VIOLATION before the search begins, as the first voter is elected:\n{error}")
        return VIOLATED
    if options.way == "pct":
        outcome = search.pct(
            quorum, start, options.seed, options.seconds, prints, options.length, options.walks,
            options.liveness, options.states, options.beside, options.kept is not None,
        )  # fmt: skip
    elif options.way == "guided":
        outcome = guided(
            quorum, start, options.seed, options.seconds, prints, options.length, options.walks,
            options.liveness, options.states,
        )  # fmt: skip
    else:
        outcome = search.delay_bounded(quorum, start, options.delays, options.seconds, prints)
    for history in outcome.kept:
        options.kept.keep(options.words, quorum, start, history)
    keep(prints.told, name, outcome)
    beside = options.resume.parent if options.resume else Path(tempfile.gettempdir())
    tell(quorum, start, outcome, options.words, options.verbose, beside)
    sys.stdout.flush()
    return VIOLATED if outcome.violation else 0


def run_all(options: argparse.Namespace, prints: Fingerprints) -> int:
    """Search the named settings by turns, until time is over or enough was seen.

    Next is always the setting that was searched for the least time.
    """
    began = time.monotonic()
    end, stored = began + options.seconds, began
    turns = options.rounds * len(SETTINGS)
    found = 0
    while time.monotonic() < end and len(prints) < options.states and turns > 0 and not found:
        if ASKED:
            break
        turns -= 1
        name = min(SETTINGS, key=lambda name: prints.told.get(name, {}).get("seconds", 0))
        words = [*SETTINGS[name].split(), "--seed", str(options.seed)]
        one = arguments().parse_args(words)
        one.seconds = min(options.turn_seconds, max(end - time.monotonic(), 1))
        one.states, one.verbose, one.walks = options.states, options.verbose, options.walks
        one.beside = options.beside or BESIDE
        one.words, one.kept, one.resume = words, options.kept, options.resume
        print(f"{name}: ", end="", flush=True)
        found = run(one, prints, name)
        if time.monotonic() - stored > STORED_EVERY_S:
            stores(prints)
            stored = time.monotonic()
        if found:
            print(f"# {name}: python -m tests.model {SETTINGS[name]} --seed {options.seed}")
    return found


def stores(prints: Fingerprints) -> bool:
    """Return whether what was seen could be written; what was written before stays otherwise."""
    try:
        prints.store()
    except OSError as error:
        print(f"not written, it stays as it was: {error}", file=sys.stderr)
        return False
    return True


def stores_walks(kept: Histories, path: Path) -> bool:
    """Return whether the walks could be written; what was written before stays otherwise."""
    try:
        kept.store(path)
    except OSError as error:
        print(f"the walks are not kept: {error}", file=sys.stderr)
        return False
    return True


def refuse(options: argparse.Namespace) -> None:
    """Raise Refused for options that do not fit each other: none is passed over in silence."""
    usual = arguments().parse_args([])
    own = argparse.ArgumentParser()
    of_quorum(own)
    given = {name for name, value in vars(options).items() if value != getattr(usual, name)}
    if options.table and given - {"table", "resume"}:
        raise Refused("--table searches nothing: it goes with --resume alone")
    if options.resume and options.histories:
        if options.resume.resolve() == options.histories.resolve():
            raise Refused(f"--resume and --histories {options.histories} are one file")
    if options.replay and given - {"replay", "compiled"}:
        raise Refused("--replay takes walks as they were kept: it goes with --compiled alone")
    for name in ("turn_seconds", "rounds"):
        if name in given and not options.all:
            raise Refused(f"--{name.replace('_', '-')} goes with --all")
    if "delays" in given and options.way != "delays":
        raise Refused("--delays goes with --way delays")
    if options.all:
        for name in (*NOT_WITH_ALL, *vars(own.parse_args([]))):
            if name in given:
                raise Refused(f"--all has its own settings: without --{name.replace('_', '-')}")
    elif options.way != "pct" and (options.beside or options.histories):
        raise Refused("--beside and --histories go with --way pct")
    if options.table and not (options.resume and options.resume.exists()):
        raise Refused(f"--table wants --resume FILE.npz, a file that is there: {options.resume}")
    if not options.voters <= options.voters_max <= 64:
        raise Refused(
            f"--voters {options.voters}: at most --voters-max {options.voters_max}, or 64"
        )
    if options.voters > VOTERS_SEARCHED_MAX:
        raise Refused(f"--voters {options.voters}: at most {VOTERS_SEARCHED_MAX} are searched")
    for name in ("floors", "witnesses", "memory", "moved", "emptied"):
        for id in getattr(options, name):
            if not 1 <= id <= options.voters + options.observers:
                raise Refused(f"--{name} {id}: there is no such replica")
    if options.begin:
        refuse_unfit(options)
    minority = (options.voters + (options.observers if options.upgraded else 0) - 1) // 2
    most = options.hurt_max if options.hurt_max >= 0 else minority
    if len({*options.emptied}) > most:
        raise Refused(f"--emptied {options.emptied}: --hurt-max allows {most} disks to be hurt")
    if 1 in options.memory and len({*options.memory}) < options.voters:
        raise Refused("--memory 1: that one leads first, and what it commits is on disks")
    if 1 in options.witnesses:
        raise Refused("--witnesses 1: that one leads first")
    if {*options.wipes.split(",")} - {"", "empty", "alone"}:
        raise Refused(f"--wipes {options.wipes}: wants empty, alone, or empty,alone")


def refuse_unfit(options: argparse.Namespace) -> None:
    """Raise Refused for a beginning of another kind of quorum: its steps cannot be taken."""
    fitting = [name for name, words in SETTINGS.items() if options.begin in words.split()]
    for name in fitting:
        other = arguments().parse_args(SETTINGS[name].split())
        if all(getattr(options, each) == getattr(other, each) for each in OF_A_QUORUM):
            return
    raise Refused(f"--begin {options.begin}: fits the quorum of --setting {fitting} alone")


def main(words: list[str]) -> int:
    options = arguments().parse_args(words)
    if options.setting and not options.all:
        words = [*SETTINGS[options.setting].split(), *words]
        options = arguments().parse_args(words)
    refuse(options)
    if not options.compiled:
        sys.meta_path.insert(0, Interpreted())
    from tests.model.fingerprints import Fingerprints
    from tests.model.replay import Histories, replay
    from tests.model.telling import table

    if options.replay:
        return replay(options.replay, lambda words: quorum_of(arguments().parse_args(words)))
    prints = Fingerprints(options.resume, reads_only=options.table)
    options.words = words
    options.kept = Histories() if options.histories else None
    if options.histories:
        Histories.try_to_store(options.histories)
    if options.table:
        print("\n".join([prints.versions(), *table(prints.told)]))
        return 0
    if len(prints) >= options.states:
        raise Refused(f"{options.resume} holds {len(prints):,} states: --states wants more")
    stop_when_asked()
    found, before = 0, sum(each["steps"] for each in prints.told.values())
    try:
        if prints.others():
            print(prints.versions(), file=sys.stderr)
        found = (
            run_all(options, prints) if options.all else run(options, prints, options.setting or "")
        )
    finally:
        stored = stores(prints)
    if options.histories:
        stored = stores_walks(options.kept, options.histories) and stored
    if not found and before == sum(each["steps"] for each in prints.told.values()):
        raise Refused("no step was taken: the time was over")
    if options.all:
        print("\n".join(table(prints.told)))
    if ASKED:
        print(
            "stopped when asked; what was seen is kept" if options.resume else "stopped when asked"
        )
    return found or (not stored) * REFUSED or (128 + ASKED[0] if ASKED else 0)


if __name__ == "__main__":
    finish("python -m tests.model", lambda: main(sys.argv[1:]))
