"""``python -m tests.model``: search a quorum's states, by the interpreted core."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.core.twins import Interpreted

VIOLATED = 3


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--way", choices=("pct", "delays"), default="pct")
    parser.add_argument("--delays", type=int, default=2, help="deviations of the way by delays")
    parser.add_argument("--voters", type=int, default=3)
    parser.add_argument("--observers", type=int, default=0)
    parser.add_argument("--sockets", action="store_true", help="fetched answers, not pushed ones")
    parser.add_argument("--dynamic", action="store_true", help="kraft.version 1")
    parser.add_argument("--turn-records", type=int, default=100, help="records in an answer")
    for kind, number in (("timers", 4), ("crashes", 2), ("faults", 0), ("appends", 2),
                         ("admin", 0), ("snapshots", 0), ("reads", 0)):  # fmt: skip
        parser.add_argument(f"--{kind}", type=int, default=number)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--walks", type=int, default=1 << 40)
    parser.add_argument("--length", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--states", type=Path, metavar="FILE.npz",
                        help="what was seen: read if it is there, and written at the end")
    parser.add_argument("--verbose", action="store_true")
    return parser


def main(words: list[str]) -> int:
    options = arguments().parse_args(words)
    sys.meta_path.insert(0, Interpreted())
    from tests.model import search
    from tests.model.fingerprints import Fingerprints
    from tests.model.quorum import KINDS, Budget, Quorum
    from tests.model.telling import tell
    from tests.model.alone import Setting, Violation

    voters = tuple(range(1, options.voters + 1))
    ids = tuple(range(1, options.voters + options.observers + 1))
    setting = Setting(ids, voters, not options.sockets, options.dynamic, options.turn_records)
    quorum = Quorum(setting, options.epochs)
    try:
        start = quorum.settled(Budget(*(getattr(options, kind) for kind in KINDS)))
    except Violation as error:
        print(f"VIOLATION before the search begins, as the first voter is elected:\n{error}")
        return VIOLATED
    prints = Fingerprints(options.states)
    if options.way == "pct":
        outcome = search.pct(
            quorum, start, options.seed, options.seconds, prints, options.length,
            options.walks,
        )  # fmt: skip
    else:
        outcome = search.delay_bounded(quorum, start, options.delays, options.seconds, prints)
    prints.store()
    tell(quorum, start, outcome, options.verbose)
    return VIOLATED if outcome.violation else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
