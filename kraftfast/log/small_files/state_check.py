"""Check that ``quorum-state`` belongs to its log (D5): a lost vote could be given twice.

Epoch and vote are on disk before the first record of an epoch, so whatever else a directory holds
is of that epoch or an earlier one. A directory that holds no record yet may be without the file.
"""

from __future__ import annotations

from collections.abc import Iterable

from kraftfast.errors import CorruptLog
from kraftfast.log.small_files.quorum_state import WAY_ON
from kraftfast.types import ElectionState, OffsetAndEpoch


def check_quorum_state(
    state: ElectionState | None,
    path: str,
    places: Iterable[tuple[int, int] | None],
    local_id: int = -1,
) -> None:
    """Compare the state of ``path``, None if there is no file, with the rest of the directory.

    ``places``: (offset, epoch) of all that proves records: the log's end, marks, the floor.
    ``local_id``: of the replica, -1 if unknown. Raises CorruptLog.
    """
    known = [OffsetAndEpoch(*place) for place in places if place is not None]
    offset = max((place.offset for place in known), default=0)
    epoch = max((place.epoch for place in known), default=0)
    if state is None:
        if offset or epoch:
            raise CorruptLog(
                f"{path} is missing, but the log reached offset {offset}, epoch {epoch}: this "
                f"replica may have voted in that epoch or a later one, and would vote twice; "
                f"{WAY_ON}",
                path,
            )
        return
    if state.epoch < epoch:
        raise CorruptLog(
            f"{path} says epoch {state.epoch}, but the log reached epoch {epoch}: it is an old or "
            f"damaged copy, and its vote is lost; {WAY_ON}",
            path,
        )
    leader_id, voted = state.leader_id, state.voted
    if state.epoch == 0 and (voted is not None or leader_id >= 0):
        text = f"{path} has a vote or a leader in epoch 0, which has none; {WAY_ON}"
        raise CorruptLog(text, path)
    if 0 <= local_id == leader_id and voted is not None and voted.id != local_id:
        raise CorruptLog(
            f"{path} says that replica {local_id} led epoch {state.epoch}, for which it voted for "
            f"{voted.id}: it cannot have; {WAY_ON}",
            path,
        )
