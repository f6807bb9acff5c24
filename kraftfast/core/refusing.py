"""What this replica refuses although a peer asks for it, so that people learn of it (D23)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftfast.core.effects import Warn

if TYPE_CHECKING:
    from kraftfast.core.state import ReplicaState


def warn(state: ReplicaState, text: str) -> None:
    """Report a refusal once; a peer that asks again and again is not reported again."""
    if text != state.warning:
        state.warning = text
        state.effects.append(Warn(text))


def refuse_cut(state: ReplicaState, what: str, offset: int) -> None:
    """Report that the leader wants committed records gone: this log or that leader is wrong."""
    warn(
        state,
        f"leader {state.leader_id} of epoch {state.epoch} {what} {offset}, but all records below "
        f"{state.uncuttable_offset()} are committed here: refused. If the disk of "
        f"{state.leader_id} was replaced, format it with --no-initial-controllers",
    )
