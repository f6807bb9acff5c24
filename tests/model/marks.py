"""What came about in a search: actions by name, those that changed something, and what they led to.

A search that never loses a message, or never parks a Fetch, says nothing about either: so each
setting counts what it took, and ``test_actions`` asks for all that it should.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from kraftfast.core import effects as fx
from kraftfast.core import messages as msg
from tests.model import timeless

if TYPE_CHECKING:
    from tests.model.alone import Lone
    from tests.model.quorum import Action, Quorum, State

AFTER_EFFECTS: dict[type, str] = {
    fx.Truncate: "log cut",
    fx.InstallSnapshot: "snapshot installed",
    fx.DeleteBefore: "log begins later",
    fx.PersistQuorumState: "quorum-state written",
    fx.AcknowledgedByAll: "acknowledged by all",
    fx.RefuseAppends: "appends refused",
}
AFTER_MESSAGES: dict[type, str] = {
    msg.UpdateRaftVoterRequest: "voter updates its entry",
    msg.AddRaftVoterRequest: "observer adds itself",
    msg.FetchSnapshotRequest: "snapshot fetched",
    msg.ReadBarrierRequest: "read barrier asked of the leader",
    msg.EndQuorumEpochRequest: "handover told",
    msg.BeginQuorumEpochRequest: "leadership told",
}


def of_effect(host: Lone, effect: fx.Effect) -> str | None:
    """Return the name of what the core wants done, if it is counted."""
    if isinstance(effect, fx.Send):
        return AFTER_MESSAGES.get(type(effect.request))
    if isinstance(effect, fx.AnswerReadBarrier):
        return "read barrier passed" if not effect.error else "read barrier given up"
    if isinstance(effect, fx.Reply) and isinstance(effect.response, msg.VoteResponse):
        return "vote granted" if effect.response.vote_granted else "vote refused"
    if isinstance(effect, fx.AnswerFetch):
        if effect.response.diverging is not None:
            return "divergence told"
        return "snapshot told" if effect.response.snapshot_id is not None else None
    return AFTER_EFFECTS.get(type(effect))


def add_marks(host: Lone, marks: set[str]) -> None:
    """Add what stands after a turn."""
    for message in host.world.out:
        body, end = message.body, message.base_offset + len(message.records)
        if isinstance(body, msg.FetchResponse) and message.target < 0:
            marks.add("consumer answered")
        elif isinstance(body, msg.FetchResponse) and message.records:
            marks.add("records pushed" if body.stream else "records answered")
            if end < len(host.disk.records):
                marks.add("partial answer")
    if host.phantom is not None:
        marks.add("phantom mark")
    if host.replica is None:
        return
    state = timeless.state_of(host.replica)
    if host.replica.in_doubt:
        marks.add("doubt")
    if state.doubt.possible_loss:
        marks.add("led out of doubt")
    leader = state.leader
    if leader is None:
        return
    present = {
        "parked Fetch": leader.parked,
        "reassignment": state.history.latest is not None and state.history.latest.target,
        "voters being changed": leader.change is not None,
        "transfer": leader.transfer is not None,
        "lease of a snapshot": leader.leases,
        "leads without a vote of its own": leader.slot < 0,
    }
    marks.update(name for name, there in present.items() if there)


def name_of(quorum: Quorum, before: State, action: Action) -> str:
    """Return the kind of an action, as it is counted."""
    kind, id, *words = action
    if kind == "timer":
        return f"timer {words[0].split()[0]}"
    if kind == "crash":
        unflushed = len(quorum.see(before, id).records) - quorum.see(before, id).flushed
        if words[1]:
            return "crash, flushed records damaged"
        if not unflushed:
            return "crash"
        kept = {0: "lost", unflushed: "kept"}.get(words[0], "lost in part")
        return f"crash, unflushed records {kept}"
    if kind == "probed":
        return "probed in vain" if words[0] else "probed"
    if kind == "wipe":
        return f"disk replaced, {words[0]}"
    if kind == "assign":
        return "assign none" if words[0] is None else "assign"
    return str(kind)


class Tally:
    """How often each kind of action was taken, changed something, and what came about."""

    def __init__(self, stored: dict[str, Any] | None = None) -> None:
        stored = stored or {}
        self.taken: Counter[str] = Counter(stored.get("taken"))
        self.changed: Counter[str] = Counter(stored.get("changed"))
        self.marks: Counter[str] = Counter(stored.get("marks"))

    def count(self, quorum: Quorum, before: State, action: Action, after: State) -> None:
        """Record one action of a walk."""
        name = name_of(quorum, before, action)
        self.taken[name] += 1
        self.changed[name] += after._replace(left=before.left) != before
        self.marks.update(quorum.marks)

    def add(self, other: Tally) -> None:
        """Count what another one has, too."""
        self.taken += other.taken
        self.changed += other.changed
        self.marks += other.marks

    def stored(self) -> dict[str, Any]:
        """Return it as it is written to a file."""
        return {"taken": self.taken, "changed": self.changed, "marks": self.marks}
