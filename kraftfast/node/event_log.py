"""What happened, one line an event: a closed list of names, and how a line is written.

A replica tells its events to its host, from its loop alone; nothing here waits. Their readers are
chosen elsewhere: ``processes/line.py`` writes to stderr, ``processes/telling.py`` hands them to
``logging``. docs/reference/events.md lists ``KINDS``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from kraftfast.log.log import Log

INFO, WARNING, ERROR = 20, 30, 40
"""As in ``logging``, which most replicas never import."""
LEVELS = {INFO: "info", WARNING: "warning", ERROR: "error"}
FORMATS = ("text", "json")
LINES_A_SECOND_MAX = 10
"""Of one event; the others are counted."""
REPEAT_S = 10
"""How long a warning that is the same as the last one of its event says nothing."""
MESSAGE_CHARACTERS_MAX = 800
TRACEBACK_BYTES_MAX = 16_000
INDENT = "  "
"""Before each line of a traceback: no line of it may look like an event."""
LINE_BYTES_MAX = 4096
"""A longer write may come apart in a pipe; only tracebacks are longer."""
NO_REPLICA = -1
NS_PER_S = 1_000_000_000


class Kind(NamedTuple):
    """One event. ``words`` become its message; ``more`` names fields that are not among them.

    ``part``: the part of kraftfast that it is about, and so the logger ``kraftfast.PART``.
    """

    level: int
    part: str
    words: str
    more: str = ""

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of all fields that the event has."""
        import string  # for the tests of the list: not at each start

        named = (name for _, name, _, _ in string.Formatter().parse(self.words) if name)
        return (*named, *self.more.split())


KINDS = {
    "election_begun": Kind(INFO, "core", "epoch {epoch}: {role}, it asks for votes", "leader_id"),
    "leader_elected": Kind(INFO, "core", "epoch {epoch}: {role}, replica {leader_id} leads"),
    "leader_followed": Kind(INFO, "core", "epoch {epoch}: {role}, replica {leader_id} leads"),
    "leader_resigned": Kind(INFO, "core", "epoch {epoch}: {role}, it leads no more", "leader_id"),
    "leader_lost": Kind(INFO, "core", "epoch {epoch}: replica {lost_id} is lost as the leader"),
    "role_changed": Kind(INFO, "core", "epoch {epoch}: {role}", "leader_id"),
    "voters_changed": Kind(
        INFO,
        "core",
        "the voters are {voters}: added {added}, removed {removed}, kraft.version {kraft_version}",
    ),
    "reassignment_begun": Kind(INFO, "core", "the voters are to become {target}"),
    "reassignment_cancelled": Kind(INFO, "core", "the voters stay as they are"),
    "leader_refused": Kind(WARNING, "core", "{why}"),
    "log_opened": Kind(INFO, "log", "log in {path}, offsets {log_start_offset} to {end_offset}"),
    "log_start_moved": Kind(INFO, "log", "it begins at {log_start_offset}, {bytes} bytes less"),
    "snapshot_written": Kind(
        INFO, "log", "snapshot ({offset}, {epoch}) is written, {bytes} bytes"
    ),
    "snapshot_fetched": Kind(
        INFO,
        "log",
        "the leader's log begins after this one's end -> it goes on from snapshot "
        "({offset}, {epoch})",
    ),
    "snapshot_loaded": Kind(INFO, "log", "a state machine took over snapshot ({offset}, {epoch})"),
    "snapshot_refused": Kind(
        WARNING, "log", "snapshot ({offset}, {epoch}) of the leader: {why} -> dropped"
    ),
    "snapshot_failed": Kind(
        WARNING, "log", "no snapshot of the state machine: {why} -> again later"
    ),
    "retention_waits": Kind(WARNING, "log", "{why} -> retention waits"),
    "slow_flush": Kind(WARNING, "log", "a flush of the log took {duration_ms} ms"),
    "disk_full": Kind(ERROR, "log", "{why} -> appends are refused until this succeeds"),
    "disk_has_room": Kind(INFO, "log", "there is room on the disk -> appends are taken again"),
    "log_damaged": Kind(
        ERROR, "log", "{why} -> not sent; another replica is to lead; replace this disk"
    ),
    "leader_gives_way": Kind(
        INFO, "log", "{why} -> replica {successor_id} is to lead"
    ),
    "records_rejected": Kind(
        WARNING,
        "log",
        "records of replica {leader_id} from offset {offset} on are not taken: {why} -> "
        "fetched again",
    ),
    "flush_failed": Kind(ERROR, "log", "{why} -> the replica ends and acknowledges nothing more"),
    "witness": Kind(INFO, "node", "{text}"),
    "listening": Kind(INFO, "node", "listener {listener} on port {port}"),
    "connection_refused": Kind(
        WARNING, "node", "a connection from {host} is refused: {why}"
    ),
    "connection_closed": Kind(WARNING, "node", "{who}: {why} -> closed"),
    "accept_failed": Kind(
        WARNING, "node", "cannot accept a connection: {why} -> again in {pause_ms} ms"
    ),
    "request_refused": Kind(
        WARNING, "node", "{host} asks for API {api_key}, not served -> closed"
    ),
    "produce_refused": Kind(WARNING, "node", "{host} produces with acks=0: {error} -> closed"),
    "peer_refused": Kind(WARNING, "node", "{who}: the server at {address} is of another cluster"),
    "peer_unreached": Kind(WARNING, "node", "{who} at {address} cannot be reached: {why}"),
    "peer_dropped": Kind(WARNING, "node", "dropping the link to replica {peer_id}: {why}"),
    "producer_dropped": Kind(WARNING, "node", "cutting off producer {pid}: {why}"),
    "answer_lost": Kind(WARNING, "node", "an answer that is not read: {why}"),
    "query_failed": Kind(
        WARNING, "node", "an answer of the state machine that cannot be sent: {why}"
    ),
    "search_failed": Kind(WARNING, "node", "a search by time in the log: {why}"),
    "state_machine_failed": Kind(
        ERROR, "node", "the state machine failed; the replica ends: {why}", "offset epoch traceback"
    ),
    "defect": Kind(ERROR, "node", "a defect; the replica ends: {why}", "traceback"),
    "child_returned": Kind(
        WARNING, "node", "process {pid}, forked by a state machine, must not return"
    ),
    "child_failed": Kind(
        ERROR, "node", "process {pid}, forked by a state machine, ends: {why}", "traceback"
    ),
    "replica_stopped": Kind(INFO, "node", "stopped"),
    "worker_ended": Kind(WARNING, "node", "process {pid} ended ({code}) -> it is started again"),
    "worker_hangs": Kind(
        WARNING, "node", "process {pid} was killed and does not end: its disk hangs -> left alone"
    ),
    "worker_waits": Kind(WARNING, "node", "it does not run -> it is tried again: {why}"),
    "worker_restarted": Kind(INFO, "node", "started again as process {pid}"),
    "replica_down": Kind(ERROR, "node", "it cannot run -> it stays down: {why}{advice}"),
    "logging_failed": Kind(
        WARNING, "node", "a handler of logging raised {why} -> the events go to stderr"
    ),
    "logging_behind": Kind(
        WARNING, "node", "{count} events are not logged yet -> lost if the program ends now"
    ),
    "left_out": Kind(WARNING, "node", "and {count} more of {of} were left out"),
    "quorum_started": Kind(
        INFO,
        "quorum",
        "quorum {cluster_id} in {path}: {voters} voters, durability {durability}, "
        "transport {transport}",
    ),
    "quorum_stopped": Kind(INFO, "quorum", "stopped"),
    "replica_added": Kind(INFO, "quorum", "it was added -> started as process {pid}"),
    "replica_not_added": Kind(
        WARNING, "quorum", "a replica that was added cannot run: {why}"
    ),
    "configuration_noted": Kind(INFO, "quorum", "{text}"),
    "exposed": Kind(WARNING, "quorum", "{text}"),
    "device_shared": Kind(WARNING, "quorum", "{text}"),
    "metrics_listening": Kind(INFO, "live", "/metrics, /healthz and /readyz on {address}"),
    "metrics_ended": Kind(
        WARNING, "live", "the process of /metrics ended ({code}) -> it is started again"
    ),
    "metrics_failed": Kind(WARNING, "live", "the process of /metrics cannot be started: {why}"),
    "request_failed": Kind(WARNING, "live", "a request of /metrics failed: {why}"),
    "otlp_begun": Kind(
        INFO, "live", "metrics are pushed to {endpoint} every {interval_ms} ms"
    ),
    "otlp_off": Kind(WARNING, "live", "metrics are not pushed by OTLP: {why}"),
    "otlp_warned": Kind(WARNING, "live", "OpenTelemetry's exporter: {why}"),
    "otlp_failed": Kind(
        WARNING, "live", "{endpoint} does not take metrics: {why} -> it is tried again"
    ),
    "otlp_restored": Kind(INFO, "live", "{endpoint} takes metrics again"),
}  # fmt: skip
"""Every event that is told: its level, the part that it is about, and its message."""


class Entry(msgspec.Struct, frozen=True):
    """One event that happened. ``node_id`` is -1 where it is of no single replica."""

    time_ms: int
    event: str
    node_id: int
    message: str
    fields: dict[str, Any]

    @property
    def kind(self) -> Kind:
        return KINDS[self.event]

    @property
    def level(self) -> int:
        """How grave it is; of what was left out: as grave as that."""
        counted = self.fields["of"] if self.event == "left_out" else self.event
        return KINDS.get(counted, self.kind).level


def entry(time_ms: int, event: str, node_id: int, fields: dict[str, Any]) -> Entry:
    """Return an event with its message; what strangers sent cannot break or fake a line."""
    known = {name: _bounded(name, value) for name, value in fields.items()}
    return Entry(time_ms, event, node_id, _plain(KINDS[event].words.format(**known)), known)


def entry_now(event: str, node_id: int = NO_REPLICA, **fields: Any) -> Entry:
    """Return an event of this moment."""
    return entry(time.time_ns() // 1_000_000, event, node_id, fields)


def _bounded(name: str, value: Any) -> Any:
    if name == "traceback":
        data = str(value).encode(errors="replace")[-TRACEBACK_BYTES_MAX:]
        lines = data.decode(errors="ignore").splitlines()
        return "\n".join(map(_printable, lines))  # it may quote what a record holds
    if isinstance(value, list):
        return [_bounded(name, each) for each in value]
    return value if isinstance(value, int) else _plain(str(value))


def _plain(text: str) -> str:
    """Return one line without control characters, cut where it is too long."""
    return _printable(" ".join(text[: 2 * MESSAGE_CHARACTERS_MAX].split())[:MESSAGE_CHARACTERS_MAX])


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else "?" for each in text)


def line(told: Entry, form: str = "text") -> str:
    """Return an event as a line of ``FORMATS``, without its end."""
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(told.time_ms // 1000))
    moment += f".{told.time_ms % 1000:03}Z"
    level, of_replica = LEVELS[told.level], told.node_id != NO_REPLICA
    if form == "text":
        who = f" replica {told.node_id}" if of_replica else ""
        text = f"{moment} {level.upper()} kraftfast{who}: {told.event}: {told.message}"
        behind = told.fields.get("traceback", "").splitlines()
        return "\n".join([text, *(f"{INDENT}{each}" for each in behind)])
    head = {"time": moment, "level": level, "node_id": told.node_id if of_replica else None}
    head |= {"event": told.event, "message": told.message}
    data = msgspec.json.encode(head | told.fields)
    if len(data) > LINE_BYTES_MAX and "traceback" not in told.fields:
        data = msgspec.json.encode(head | {"message": told.message[:400], "cut": True})
    return data.decode()


class _Rate:
    """How much was said of one event: in this second, and what was left out."""

    def __init__(self) -> None:
        self.second = self.lines = self.left_out = 0
        self.last, self.said_at = "", -REPEAT_S


class EventLog:
    """Tells what happens to one replica, at a bounded rate: strangers must not fill a disk.

    ``show`` takes each event and must not wait. Clocks: ``monotonic_ns`` and ``wall_ms``.
    """

    # _rates: by event. _role: role, epoch and leader that were told last.

    def __init__(
        self,
        node_id: int,
        show: Callable[[Entry], None],
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.node_id, self.show = node_id, show
        self._monotonic_ns, self._wall_ms = monotonic_ns, wall_ms
        self._rates: dict[str, _Rate] = {}
        self._role = ("", 0, -1)

    def tell(self, event: str, **fields: Any) -> None:
        """Tell that ``event`` happened, with its fields (``KINDS``)."""
        told = entry(self._wall_ms(), event, self.node_id, fields)
        second = self._monotonic_ns() // NS_PER_S
        rate = self._rates.setdefault(event, _Rate())
        again = told.message == rate.last and second < rate.said_at + REPEAT_S
        if again and told.kind.level >= WARNING:
            rate.left_out += 1
            return
        if second != rate.second:
            rate.second, rate.lines = second, 0
            self._tell_left_out(event, rate)
        rate.lines += 1
        if rate.lines > LINES_A_SECOND_MAX:
            rate.left_out += 1
            return
        rate.last, rate.said_at = told.message, second
        self.show(told)

    def _tell_left_out(self, event: str, rate: _Rate) -> None:
        count, rate.left_out = rate.left_out, 0
        if count:
            fields = {"count": count, "of": event}
            self.show(entry(self._wall_ms(), "left_out", self.node_id, fields))

    def tend(self, at_once: bool = False) -> None:
        """Say how many lines were left out of events that have been silent since."""
        second = self._monotonic_ns() // NS_PER_S
        for event, rate in self._rates.items():
            if rate.left_out and (at_once or second >= rate.said_at + REPEAT_S):
                self._tell_left_out(event, rate)

    # --- what the core decides --------------------------------------------------------------------

    def role_changed(self, role: str, epoch: int, leader_id: int, heard: bool = True) -> None:
        """Report an election, or that a leader was lost or found.

        ``heard``: the leader that is followed has answered; until then it is not reported.
        """
        if role == "follower" and not heard:
            if self._role[0] != "leader":
                return
            role = "resigned"
        (before, epoch_before, led_by), now = self._role, (role, epoch, leader_id)
        if now == self._role:
            return  # more endpoints of the leader were learnt, say
        self._role = now
        fields = {"epoch": epoch, "role": role, "leader_id": leader_id}
        if before == "follower" and role != "follower" and epoch == epoch_before:
            self.tell("leader_lost", epoch=epoch, lost_id=led_by)
        if before == "leader" and role != "leader":
            self.tell("leader_resigned", **fields)
        if role == "leader":
            self.tell("leader_elected", **fields)
        elif role == "follower":
            self.tell("leader_followed", **fields)
        elif role == "prospective" or role == "candidate" and before != "prospective":
            self.tell("election_begun", **fields)
        elif before != "leader":
            self.tell("role_changed", **fields)

    def voters_changed(self, before: Iterable[int], now: Iterable[int], kraft_version: int) -> None:
        """Tell who votes from now on, and who did before."""
        old, new = set(before), set(now)
        self.tell(
            "voters_changed",
            voters=sorted(new),
            added=sorted(new - old),
            removed=sorted(old - new),
            kraft_version=kraft_version,
        )

    def records_rejected(self, leader_id: int, log: Log) -> None:
        """Tell why the last copy from the leader stopped, unless its bytes were on the move."""
        from kraftfast.record.shapes import Fault  # a program that starts replicas needs none

        if log.fault not in (Fault.OK, Fault.STALE):
            self.tell(
                "records_rejected", leader_id=leader_id, offset=log.end_offset, why=log.fault_text()
            )
