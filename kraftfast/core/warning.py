"""Report what this replica refuses although a peer asks for it (D23)."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from kraftfast.core.effects import Warn

if TYPE_CHECKING:
    from kraftfast.core.state import QuorumState


def warn(state: QuorumState, text: str) -> None:
    """Report a refusal once, however often the peer repeats its request."""
    if text != state.warning:
        state.warning = text
        state.effects.append(Warn(text))


def warn_of_shorter_log(state: QuorumState, candidate_id: int, end_offset: int) -> None:
    """Report that a witness has more records than a replica that wants to lead.

    Only a log as long as its own can lead then, and it never asks to: the others may wait for ever
    for a voter that is down.
    """
    warn(
        state,
        f"replica {candidate_id} asks for a vote with a log that ends at {end_offset}, but the "
        f"log of this witness ends at {state.log.end_offset}: refused, committed records may be "
        "missing there. If no leader is elected, start the other voters, or start this replica "
        "with kraftfast.campaign=true so that it can lead and the others fetch the records from it",
    )


def warn_of_no_leader(state: QuorumState) -> None:
    """Report that the only voter is a witness: this quorum has no leader."""
    warn(
        state,
        "this witness is the only voter and never leads: the quorum has no leader. Start it with "
        "kraftfast.campaign=true, or format it again to join a quorum of Kafka's controllers",
    )


def warn_of_new_log(state: QuorumState, silent: Collection[int]) -> None:
    """Report that a majority without a log begins one, although other voters did not answer (D23).

    At the first start of a quorum that is right. If disks were replaced, the log may be with them.
    """
    warn(
        state,
        f"a majority of the voters {list(state.voters.ids)} has no log, and begins one without "
        f"{sorted(silent)}, which did not answer: right at the first start of this quorum only. If "
        "one of those has the log of this cluster, stop this replica before anything is appended, "
        "start that one, and format the others with --no-initial-controllers",
    )


def warn_of_cut(state: QuorumState, what: str, offset: int) -> None:
    """Report that following the leader would remove committed records of this log."""
    warn(
        state,
        f"leader {state.leader_id} of epoch {state.epoch} {what} {offset}, but all records below "
        f"{state.uncuttable_offset()} are committed here: refused. If the disk of "
        f"{state.leader_id} was replaced, format it with --no-initial-controllers",
    )
