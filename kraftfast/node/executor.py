"""Carry out what the core decides, in order, and tell the core what came of it.

``Executor`` knows what each effect takes: what must hold before it, what waits for room, and which
event follows. What it acts on is a subclass's: the log, rings and sockets of a process
(``node.py``), or values where the core is explored.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from kraftfast.core import effects as fx
from kraftfast.core import events as ev
from kraftfast.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from kraftfast.core.messages import Response, Source
    from kraftfast.node.ports import Link

STALL_MS_MAX = 200
"""How long a copy waits for room before the follower goes on sending Fetches instead."""


class Executor:
    """Passes events to a core, and carries out its effects on what a subclass has."""

    # stalled: a copy that waits for room; nothing of it is taken yet. stalled_ms: since when.
    # control: a control batch of this epoch, while the log has no room. persisted_epoch: in
    # quorum-state (D5). flush_wanted: a flush inside the loop is to run before the loop waits.
    # stopped: a graceful shutdown is complete. lost: a decision of the core was not carried out in
    # full, so that nothing may go on.

    def __init__(self) -> None:
        self.stalled: fx.WriteFetched | None = None
        self.control: fx.AppendControl | None = None
        self.stalled_ms = self.persisted_epoch = 0
        self.flush_wanted = self.stopped = self.lost = self._running = False
        self._events: deque[ev.Event] = deque()
        self._handlers: dict[type, Callable[[Any], object]] = {
            fx.PersistQuorumState: self._persist,
            fx.Send: self._send,
            fx.Reply: self._reply,
            fx.AnswerFetch: self.answer_fetch,
            fx.DrainAppends: self._drain,
            fx.RefuseAppends: self.refuse_appends,
            fx.AppendControl: self._append_control,
            fx.WriteFetched: self._write_fetched,
            fx.Truncate: self._truncate,
            fx.Flush: self._flush,
            fx.AdvanceHighWatermark: self.advance_high_watermark,
            fx.AcknowledgedByAll: self.acknowledged_by_all,
            fx.RoleChanged: self._role_changed,
            fx.VotersChanged: self.voters_changed,
            fx.LeaderMoved: self.leader_moved,
            fx.Probe: self.probe,
            fx.AnswerReadBarrier: self.answer_read_barrier,
            fx.AnswerSlice: self.answer_slice,
            fx.WriteSlice: self.write_slice,
            fx.InstallSnapshot: self.install_snapshot,
            fx.DeleteBefore: self.delete_before,
            fx.Warn: self.warn,
            fx.Stopped: self._stop,
        }

    # --- events -----------------------------------------------------------------------------------

    def step(self, event: ev.Event) -> None:
        """Pass one event to the core, and carry out everything that follows from it."""
        self._events.append(event)
        self.run_events()

    def queue(self, event: ev.Event) -> None:
        """Take an event behind what is being handled; ``run_events`` if nothing is."""
        self._events.append(event)

    def run_events(self) -> None:
        """Handle what was queued."""
        events = self._events
        if self._running:
            return  # further out, this loop is under way and takes them all
        self._running = True
        try:
            while events:
                self._carry_out(self._decide(events.popleft()))
        except BaseException:
            self.lost = True  # sessions catch their own errors: this one ends the replica
            raise
        finally:
            self._running = False

    def begin_with(self, effects: list[fx.Effect]) -> None:
        """Carry out what the core wants at its start, and what follows from it."""
        self._running = True
        try:
            self._carry_out(effects)
        finally:
            self._running = False
        self.run_events()

    def _carry_out(self, effects: list[fx.Effect]) -> None:
        handlers = self._handlers
        for effect in effects:
            handlers[type(effect)](effect)

    # --- quorum-state and messages ----------------------------------------------------------------

    def _persist(self, effect: fx.PersistQuorumState) -> None:
        self.write_quorum_state(effect)  # D5: durable first
        self.persisted_epoch = effect.epoch

    def _assert_after(self, after: fx.After) -> None:
        """Assert what an effect relies on: else this process must not go on (D3, D5)."""
        if type(after) is fx.Persisted:
            assert self.persisted_epoch >= after.epoch, "D5: sent before quorum-state was on disk"
        elif type(after) is fx.FlushedTo:
            flushed = self.flushed_end_offset()
            assert flushed >= after.end_offset, "D3: acknowledged before the flush"

    def _send(self, effect: fx.Send) -> None:
        if effect.after is not None:
            self._assert_after(effect.after)
        link = self.link_for(effect)
        sent = False
        if link is not None:
            try:
                sent = link.send_request(effect.correlation, effect.request)
            except Exception as error:
                link.failed(error)
        if not sent and effect.correlation:
            unsent = ErrorCode.BROKER_NOT_AVAILABLE
            self._events.append(ev.RequestFailed(effect.peer_id, effect.correlation, unsent))

    def _reply(self, effect: fx.Reply) -> None:
        if effect.after is not None:
            self._assert_after(effect.after)
        self.reply_to(effect.source, effect.response)

    # --- the log ----------------------------------------------------------------------------------

    def _drain(self, effect: fx.DrainAppends) -> None:
        taken = self.take_appends(effect)
        self._events.append(ev.Appended(effect.epoch, self.end_offset(), taken))

    def _append_control(self, effect: fx.AppendControl) -> None:
        """Append control records: an epoch's first ones, voters. They may wait for room."""
        appended = self.append_control(effect)
        if appended is None:
            self.control = effect
            return
        self.control = None
        self._events.append(appended)

    def _write_fetched(self, effect: fx.WriteFetched) -> None:
        assert self.end_offset() == effect.offset, "a copy goes to the log's end"
        self._copy(effect)

    def _copy(self, effect: fx.WriteFetched) -> None:
        written = self.copy_fetched(effect)
        if written is None:
            if self.stalled is None:
                self.stalled_ms = self.now_ms()
            self.stalled = effect  # asked again by go_on_with_waiting
            return
        self.stalled = None
        self._events.append(written)

    def go_on_with_waiting(self) -> None:
        """Go on with what waited for room: the log may have some now."""
        if self.stalled is not None:
            self._go_on_copying(self.stalled)
        if self.control is not None:
            self._append_control(self.control)
            self.run_events()

    def _go_on_copying(self, effect: fx.WriteFetched) -> None:
        """Go on with a copy that waited for room; after long, send Fetches instead."""
        self._copy(effect)
        if self.stalled is not None:
            if self.now_ms() - self.stalled_ms < STALL_MS_MAX:
                return
            self.drop_stalled()
        self.run_events()
        effect.payload.resume()

    def drop_stalled(self) -> None:
        """Give up a copy that waits for room: its link is gone, or it has waited too long."""
        self.stalled = None
        self.step(ev.FetchedWritten(self.end_offset(), 0, (), True))

    def _truncate(self, effect: fx.Truncate) -> None:
        self.wait_for_flush()  # its end would raise `flushed` again above the cut (D2)
        truncations = self.truncate_log(effect.end_offset)
        assert truncations == effect.truncations, "D2: the core counts along"

    def _flush(self, effect: fx.Flush) -> None:
        if effect.inline:
            self.flush_wanted = True
        else:
            self.begin_flush()

    def flush_inline(self) -> bool:
        """Run the flush that was asked for, in the loop: after all that had come was taken."""
        if not self.flush_wanted:
            return False
        self.flush_wanted = False
        self.run_flush()
        self.run_events()
        return True

    # --- the role ---------------------------------------------------------------------------------

    def _role_changed(self, effect: fx.RoleChanged) -> None:
        self.control = None
        if self.stalled is not None:  # what was not written by now is no longer wanted
            payload, self.stalled = self.stalled.payload, None
            payload.resume()
        self.role_changed(effect)

    def _stop(self, _effect: fx.Stopped) -> None:
        self.stopped = True

    # --- what a subclass has: the core ------------------------------------------------------------

    def now_ms(self) -> int:
        """Return the core's time, milliseconds; it never falls."""
        raise NotImplementedError

    def _decide(self, event: ev.Event) -> list[fx.Effect]:
        """Pass one event to the core; return what it wants."""
        raise NotImplementedError

    # --- its files and its log --------------------------------------------------------------------

    def write_quorum_state(self, effect: fx.PersistQuorumState) -> None:
        """Write ``quorum-state`` and wait until it is durable (D5). Raises StorageError."""
        raise NotImplementedError

    def end_offset(self) -> int:
        """Return the log's exclusive end."""
        raise NotImplementedError

    def flushed_end_offset(self) -> int:
        """Return the exclusive end of what is on disk."""
        raise NotImplementedError

    def append_control(self, effect: fx.AppendControl) -> ev.Appended | None:
        """Append one control batch; return what the core is told, None without room for it."""
        raise NotImplementedError

    def copy_fetched(self, effect: fx.WriteFetched) -> ev.FetchedWritten | None:
        """Check and copy records of a leader; None if nothing was taken for lack of room."""
        raise NotImplementedError

    def truncate_log(self, end_offset: int) -> int:
        """Cut the log (D8); return how many cuts the log has seen."""
        raise NotImplementedError

    def begin_flush(self) -> None:
        """Have all that was appended flushed beside the loop; ``Flushed`` follows."""
        raise NotImplementedError

    def run_flush(self) -> None:
        """Flush all that was appended, and queue ``Flushed``. Raises FlushFailed (D9)."""
        raise NotImplementedError

    def wait_for_flush(self) -> None:
        """Wait until no flush is under way; one that is only wanted may run later (D2)."""
        raise NotImplementedError

    # --- its snapshots ----------------------------------------------------------------------------

    def answer_slice(self, effect: fx.AnswerSlice) -> None:
        """Send a slice; ``SliceAnswered`` follows once it has left."""
        raise NotImplementedError

    def write_slice(self, effect: fx.WriteSlice) -> None:
        """Write a slice of the snapshot that is being fetched; ``SliceWritten`` follows."""
        raise NotImplementedError

    def install_snapshot(self, effect: fx.InstallSnapshot) -> None:
        """Begin the log again at the fetched snapshot's end; ``SnapshotInstalled`` follows."""
        raise NotImplementedError

    def delete_before(self, effect: fx.DeleteBefore) -> None:
        """Delete segments and snapshots wholly below an offset."""
        raise NotImplementedError

    # --- its links and clients --------------------------------------------------------------------

    def link_for(self, effect: fx.Send) -> Link | None:
        """Return the link that takes this request; None if there is none."""
        raise NotImplementedError

    def reply_to(self, source: Source, response: Response) -> None:
        """Answer a request."""
        raise NotImplementedError

    def answer_fetch(self, effect: fx.AnswerFetch) -> None:
        """Answer a Fetch with records; on a stream ``StreamAnswered`` follows."""
        raise NotImplementedError

    def answer_read_barrier(self, effect: fx.AnswerReadBarrier) -> None:
        """Answer a reader."""
        raise NotImplementedError

    def take_appends(self, effect: fx.DrainAppends) -> int:
        """Append what producers queued; return how many bytes that was."""
        raise NotImplementedError

    def refuse_appends(self, effect: fx.RefuseAppends) -> None:
        """Tell producers that this replica takes none."""
        raise NotImplementedError

    def advance_high_watermark(self, effect: fx.AdvanceHighWatermark) -> None:
        """Tell readers and producers what is committed."""
        raise NotImplementedError

    def acknowledged_by_all(self, effect: fx.AcknowledgedByAll) -> None:
        """Tell producers what every voter has on disk."""
        raise NotImplementedError

    def role_changed(self, effect: fx.RoleChanged) -> None:
        """Apply the new role: fail the appends that wait, outcome unknown."""
        raise NotImplementedError

    def voters_changed(self, effect: fx.VotersChanged) -> None:
        """Have links go where these voters are."""
        raise NotImplementedError

    def leader_moved(self, effect: fx.LeaderMoved) -> None:
        """Look for the leader where it is now."""
        raise NotImplementedError

    def probe(self, effect: fx.Probe) -> None:
        """Ask a voter for its versions; ``Probed`` follows."""
        raise NotImplementedError

    def warn(self, effect: fx.Warn) -> None:
        """Report to operators what this replica refused."""
        raise NotImplementedError
