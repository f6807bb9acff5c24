"""Report what this replica refuses although a peer asks for it (D23)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftfast.core.effects import Warn

if TYPE_CHECKING:
    from kraftfast.core.state import ReplicaState


def warn(state: ReplicaState, text: str) -> None:
    """Report a refusal once, however often the peer repeats its request."""
    if text != state.warning:
        state.warning = text
        state.effects.append(Warn(text))


def refuse_cut(state: ReplicaState, what: str, offset: int) -> None:
    """Report that following the leader would remove committed records of this log."""
    warn(
        state,
        f"leader {state.leader_id} of epoch {state.epoch} {what} {offset}, but all records below "
        f"{state.uncuttable_offset()} are committed here: refused. If the disk of "
        f"{state.leader_id} was replaced, format it with --no-initial-controllers",
    )
