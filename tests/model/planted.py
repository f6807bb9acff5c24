"""Break the core in ways that each rule must see, and print which one saw it.

``python -m tests.model.planted``: one line for each, as JSON: what was planted, and the violation.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from tests.core.twins import Interpreted
from tests.model.beginning import goes_on, key_of
from tests.model.planting import (
    BUGS,
    begun,
    bug,
    history,
    in_place_of,
    nothing,
    waits_for_no_fetch,
)

if TYPE_CHECKING:
    from tests.model.quorum import Action

UNFLUSHED: tuple[Action, ...] = (("append", 1), ("timer", 1, "unflushed"))


@bug("D13")
def leader_stays_with_a_stuck_disk() -> None:
    from kraftfast.core import on_tick

    with in_place_of(on_tick, "flush_deadline_ms", lambda *words: on_tick.NEVER_MS):
        history(*UNFLUSHED, ("timer", 1, "flushing"))


@bug("D14")
def leader_never_flushes() -> None:
    from kraftfast.core import on_tick

    with in_place_of(on_tick, "flush_leader", nothing):
        history(*UNFLUSHED)


@bug("D14")
def resigned_leader_keeps_its_tail_in_memory() -> None:
    from kraftfast.core import on_tick

    with in_place_of(on_tick, "flush_follower", nothing):
        history(("append", 1), ("resign", 1))


@bug("I11")
def flushed_is_what_was_appended() -> None:
    from kraftfast.core.log_view import LogView

    appended = LogView.appended

    def flushes(self: Any, end_offset: int, size: int, now_ms: int) -> None:
        appended(self, end_offset, size, now_ms)
        self.flushed_end_offset = end_offset
        self.unflushed_bytes = 0

    with in_place_of(LogView, "appended", flushes):
        history(("append", 1))


REPLACED: tuple[Action, ...] = (
    *UNFLUSHED, ("flushed", 1), ("crash", 1, 0, 0), ("calm",), ("start", 1), ("calm",),
)  # fmt: skip
"""The first voter ends with a record that nobody else has; it is cut when another one leads."""


@bug("D22")
def cut_takes_too_many_epochs() -> None:
    from kraftfast.core.log_view import LogView

    before = LogView.truncate

    def truncate(self: Any, end_offset: int) -> None:
        before(self, end_offset)
        self.trail.truncate_to(0)

    with in_place_of(LogView, "truncate", truncate):
        history(*REPLACED)


@bug("I7")
def cut_goes_too_far() -> None:
    from kraftfast.core.replication import on_fetch_response
    from kraftfast.core.state import QuorumState

    with in_place_of(on_fetch_response, "truncation_offset", lambda *words: 0):
        with in_place_of(QuorumState, "uncuttable_offset", lambda self: 0):
            history(*REPLACED)


@bug("D23")
def floor_is_cut() -> None:
    from kraftfast.core.replication import on_fetch_response
    from kraftfast.core.state import QuorumState

    quorum, state = begun(floors=(1,))
    with in_place_of(on_fetch_response, "truncation_offset", lambda *words: 0):
        with in_place_of(QuorumState, "uncuttable_offset", lambda self: 0):
            goes_on(quorum, state, *REPLACED)


@bug("I13, D4")
def leader_forgets_that_it_led() -> None:
    from kraftfast.core.elections.unattached import Unattached
    from kraftfast.core.replica import Replica
    from kraftfast.types import ElectionState

    def resumes(self: Any, now_ms: int) -> Any:
        return Unattached(now_ms + 1_000), ElectionState(self._stored.epoch)

    with in_place_of(Replica, "_first_role", resumes):
        history(("crash", 1, 0, 0), ("start", 1))


@bug("I20")
def consumer_reads_ahead() -> None:
    from kraftfast.core.effects import AnswerFetch
    from kraftfast.core.replication import fetch_answers

    def unbounded(source: Any, response: Any, offset: int, max_bytes: int, end: int) -> Any:
        return AnswerFetch(source, response, offset, max_bytes, -1)

    with in_place_of(fetch_answers, "AnswerFetch", unbounded):
        history(("append", 1), ("consume", 1))


@bug("D21")
def vote_for_a_shorter_log() -> None:
    from kraftfast.core.elections import on_vote

    with in_place_of(on_vote, "is_long_enough", lambda *words: True):
        history(("cut", 1, 3), ("append", 1), ("calm",), ("timer", 3, "fetch_deadline_ms"),
                ("crash", 1, 0, 0), ("calm",))  # fmt: skip


@bug("D10, I21")
def vote_for_less_than_was_lost() -> None:
    from kraftfast.core.elections.doubt import Doubt

    with in_place_of(Doubt, "allows", lambda *words: True):
        history(("cut", 1, 3), ("append", 1), ("calm",), ("crash", 1, 0, 0), ("crash", 2, 0, 1),
                ("start", 2), ("timer", 3, "fetch_deadline_ms"), ("calm",))  # fmt: skip


@bug("D19")
def gone_directory_is_added() -> None:
    from kraftfast.core.membership import on_add_voter
    from kraftfast.errors import ErrorCode

    def accepts(*words: Any) -> Any:
        return on_add_voter.ACCEPTED

    gone = key_of(4)
    with (
        in_place_of(on_add_voter, "runs_with_its_directory", accepts),
        in_place_of(on_add_voter, "VoterChange", waits_for_no_fetch),
    ):
        history(("crash", 4, 0, 0), ("wipe", 4, "empty"), ("start", 4),
                ("deliver", 4, 1), ("deliver", 4, 1),  # the link ended and is up, that is all
                ("add", 1, gone), ("probed", 1, ErrorCode.NONE), ("calm",),
                ids=(1, 2, 3, 4), dynamic=True, wipes=("empty",))  # fmt: skip


@bug("L1")
def nobody_is_ever_elected() -> None:
    from kraftfast.core.elections import on_vote

    quorum, state = begun()
    with in_place_of(on_vote, "is_long_enough", lambda *words: False):
        goes_on(quorum, state, ("crash", 1, 0, 0), ("live", 1))


@bug("L2")
def nothing_is_ever_taken() -> None:
    from tests.model.alone import Lone

    with in_place_of(Lone, "_drain", nothing):
        history(("live", None))


def main() -> int:
    sys.meta_path.insert(0, Interpreted())
    from tests.model import planted_displaced, planted_moves, planted_states  # noqa: F401
    from tests.model.alone import Violation

    for name, function in BUGS.items():
        said = ""
        try:
            function()
        except Violation as error:
            said = str(error).partition("\n")[0]
        except Exception as error:
            said = f"{type(error).__name__} in the plant: {error}"
        print(json.dumps([name, said]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
