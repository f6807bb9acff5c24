"""Snapshots of one replica: sent in slices, fetched, put in place of the log, deleted (KIP-630).

Whatever waits for the disk happens beside the loop (``background``), but for the moment at which a
snapshot takes the place of the log: nothing else may touch that meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kraftfast.core import effects as fx
from kraftfast.core import events as ev
from kraftfast.core.membership.voter_history import VoterHistory
from kraftfast.errors import (
    CorruptBatch,
    CorruptLog,
    ErrorCode,
    FlushFailed,
    InvalidOption,
    KraftfastError,
    OutOfResources,
    StorageError,
    UnsupportedVersion,
)
from kraftfast.log.idempotence.producer_records import from_tags, to_tags
from kraftfast.log.idempotence.producer_state import check_producer_state
from kraftfast.log.snapshots import (  # type: ignore[attr-defined]
    log_start,
    snapshot_files,
)
from kraftfast.log.snapshots.snapshot_files import (
    BOOTSTRAP,
    delete_snapshots,
    name_part,
    snapshot_ids,
)
from kraftfast.log.snapshots.snapshot_reader import SnapshotReader
from kraftfast.node.control_records import for_core
from kraftfast.node.translation.translate_snapshot import Slice, slice_of
from kraftfast.node.witness import HOLDS_NOTHING
from kraftfast.record.control import SnapshotHeader
from kraftfast.types import KRaftVersion, KRaftVoters, OffsetAndEpoch, Tags
from kraftfast.wire import tags

if TYPE_CHECKING:
    from kraftfast.log.disk import Disk, NewFile, StoredFile
    from kraftfast.node.node import Node
    from kraftfast.node.ports import SliceSource
    from kraftfast.node.tcp.session import Session

    Controls = list[KRaftVersion | KRaftVoters]

SLICE_MS_MAX = 30_000
UNSYNCED_BYTES_MAX = 8 * 1024 * 1024
"""Of a snapshot that is fetched. A leader keeps it for at least a minute after the last slice was
asked for (``core/snapshots/leases.py``), and on a slow disk one sync of all may take longer."""

SOUND_S = 60.0
"""How long one that was checked counts as sound: asked for again, a large one must not be checked
again, or it would never be sent, and one that rots later must be (L5)."""


def is_trim(header: SnapshotHeader) -> bool:
    """Return whether a snapshot only says that the log below its end is not kept."""
    return any(tag == tags.TRIM for tag, _ in header.tags)


def filed(
    snapshot_id: OffsetAndEpoch, controls: Sequence[KRaftVersion | KRaftVoters]
) -> list[tuple[int, KRaftVersion | KRaftVoters]]:
    """Return the control records of a snapshot for the core."""
    found = (for_core(each) for each in controls)
    return [(snapshot_id.offset - 1, each) for each in found if each is not None]


class DownloadFile:
    """A snapshot that is being fetched; its file is touched beside the loop only."""

    # snapshot_id: of what. file: what was written of it, None before the first slice.
    # history: its control records, once all of it was checked. whole: it was.
    # error: why the last slice was not taken, None if it was.
    # _synced: bytes of the file that are on disk.

    def __init__(
        self, disk: Disk, log_path: str, snapshot_id: OffsetAndEpoch, trim_refusal: str
    ) -> None:
        self.snapshot_id = snapshot_id
        self.file: NewFile | None = None
        self.history: list[tuple[int, KRaftVersion | KRaftVoters]] = []
        self.whole = False
        self.error: KraftfastError | None = None
        self._synced = 0
        self._disk, self._log_path, self._trim_refusal = disk, log_path, trim_refusal

    def take(self, position: int, data: bytes, last: bool) -> str:
        """Write a slice, and check the whole after the last; return why it is refused, or ''."""
        try:
            if self.file is None:
                begun = snapshot_files.begin_part(self._disk, self._log_path, self.snapshot_id)
                self.file = begun
            if position != self.file.size:
                return f"a slice from byte {position} on, where {self.file.size} are written"
            self.file.write(data)
            if self.file.size - self._synced >= UNSYNCED_BYTES_MAX:
                self.file.sync()
                self._synced = self.file.size
            if last:
                snapshot_files.finish_part(self._disk, self.file)
                self._check()
            return ""
        except FlushFailed:
            raise
        except (StorageError, CorruptBatch, UnsupportedVersion) as error:
            self.error = error
            return str(error)

    def _check(self) -> None:
        assert self.file is not None
        with SnapshotReader(self._disk, self.file.path, self.snapshot_id) as reader:
            reader.check()
            assert reader.footer is not None
            check_producer_state(from_tags(reader.footer.tags))
            self.history = filed(self.snapshot_id, reader.controls)
            if self._trim_refusal and is_trim(reader.header):
                raise StorageError(f"it {self._trim_refusal}")
        self.whole = True

    def drop(self) -> None:
        """Remove the file."""
        if self.file is not None:
            snapshot_files.drop_part(self._disk, self.file)
            self.file = None


class Snapshots:
    """Carries out what the core decides about snapshots, and tells it of new ones."""

    # node, background: whose. download: the one under way, or None. _leaving: (source, session,
    # until ms) of slices that were answered. _unsent: (source, slice, until ms): no room on a ring.
    # _sent: of which a slice was asked for last, None if it was deleted since. _reading: (id, open
    # file) of what was read last, used beside the loop alone. _begun: of which the first slice was
    # asked for last. _sound: that was checked because it was asked for again, and counts as sound
    # until _sound_until_s. made_bytes, made_ms: size of the last one that was made here since the
    # start, and when; until then 0 and the start. _told: which damage kept one from being made.

    def __init__(self, node: Node) -> None:
        self.node, self.background = node, node.background
        self.disk, self.log_path = node.disk, node.directory.log_path
        self.download: DownloadFile | None = None
        self._leaving: list[tuple[SliceSource, Session | None, int]] = []
        self._unsent: list[tuple[SliceSource, Slice, int]] = []
        self._sent: OffsetAndEpoch | None = None
        self._begun: OffsetAndEpoch | None = None
        self._sound: OffsetAndEpoch | None = None
        self._sound_until_s = 0.0
        self._reading: tuple[OffsetAndEpoch, StoredFile] | None = None
        self.made_bytes, self.made_ms, self._told = 0, node.now_ms(), ""
        node.on_role.append(self._role_changed)

    # --- sending ----------------------------------------------------------------------------------

    def answer(self, effect: fx.AnswerSlice) -> None:
        """Read a slice beside the loop, and send it.

        A replica that begins again may have refused what it was sent (L5): all is checked then.
        """
        bytes_max = min(effect.max_bytes, effect.source.slice_bytes_max)
        snapshot_id = self._sent = effect.snapshot_id
        again = effect.position == 0 and self._begun == snapshot_id
        if effect.position == 0:
            self._begun = snapshot_id
        self.background.ask(
            lambda: self._read(snapshot_id, effect.position, bytes_max, again),
            lambda found: self._send(effect, found),
        )

    def _check(self, snapshot_id: OffsetAndEpoch) -> Exception | None:
        """Return, beside the loop, what is wrong with a snapshot here; None if nothing is."""
        path = snapshot_files.snapshot_path(self.log_path, snapshot_id)
        try:
            with SnapshotReader(self.disk, path, snapshot_id) as reader:
                reader.check()
        except OutOfResources:
            return None  # what this host lacks is no damage; it is checked another time
        except (FileNotFoundError, StorageError, CorruptBatch, UnsupportedVersion) as error:
            return error
        self._sound = snapshot_id
        self._sound_until_s = self.node.host.threads.monotonic() + SOUND_S
        return None

    def _is_sound(self, snapshot_id: OffsetAndEpoch) -> bool:
        late = self.node.host.threads.monotonic() >= self._sound_until_s
        return snapshot_id == self._sound and not late

    def _read(
        self, snapshot_id: OffsetAndEpoch, position: int, bytes_max: int, check: bool
    ) -> tuple[int, bytes] | Exception | None:
        """Return, beside the loop, (size of the snapshot, bytes), or None if it is unreadable, or
        what a ``check`` of all of it found.
        """
        if check and not self._is_sound(snapshot_id):  # it may have been checked meanwhile
            error = self._check(snapshot_id)
            if error is not None:
                return error
        if self._reading is None or self._reading[0] != snapshot_id:
            self._stop_reading()
            path = snapshot_files.snapshot_path(self.log_path, snapshot_id)
            try:
                self._reading = snapshot_id, self.disk.open_file(path)
            except (FileNotFoundError, StorageError):
                return None
        file = self._reading[1]
        try:
            return file.size, file.read_at(position, bytes_max) if position < file.size else b""
        except (StorageError, ValueError, OverflowError):
            return None

    def _stop_reading(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            reading[1].close()

    def _send(self, effect: fx.AnswerSlice, found: tuple[int, bytes] | Exception | None) -> None:
        response = effect.response
        data = b""
        if isinstance(found, Exception) and self._sent == effect.snapshot_id:  # not deleted since
            self.node.damage.report(self.node, found)
        if found is None or isinstance(found, Exception):
            response.partition_error = ErrorCode.SNAPSHOT_NOT_FOUND
        else:
            response.size, data = found
            if effect.position >= response.size:
                response.partition_error = ErrorCode.POSITION_OUT_OF_RANGE
        until_ms = self.node.now_ms() + SLICE_MS_MAX
        self._unsent.append((effect.source, Slice(response, data), until_ms))
        self._go_on()

    def _go_on(self) -> None:
        """Send the slices that had no room; report each that left: the core sends the next then."""
        now_ms = self.node.now_ms()
        unsent, self._unsent = self._unsent, []
        for source, answer, until_ms in unsent:
            session = source.session
            sent: object = True
            try:
                sent = source.reply(answer)
            except Exception as error:
                source.failed(error)
            if sent is False and now_ms < until_ms:
                self._unsent.append((source, answer, until_ms))
            else:
                self._leaving.append((source, session, until_ms))
        leaving, self._leaving = self._leaving, []
        for source, session, until_ms in leaving:
            if session is not None and not session.has_sent(source) and now_ms < until_ms:
                self._leaving.append((source, session, until_ms))
            else:
                self.node.queue(ev.SliceAnswered())
        self.node.run_events()

    @property
    def is_waiting(self) -> bool:
        """Whether slices are on their way out: the loop is to look again soon."""
        return bool(self._unsent or self._leaving)

    def tend(self) -> None:
        """Go on sending."""
        if self.is_waiting:
            self._go_on()

    # --- fetching ---------------------------------------------------------------------------------

    def write(self, effect: fx.WriteSlice) -> None:
        """Have a slice written; the last one also has the whole checked."""
        data = slice_of(effect.payload)
        if effect.position == 0 or self.download is None:
            self._drop_download()
            refusal = ""
            if self.node.witness:
                refusal = HOLDS_NOTHING
            elif self.node.applier is not None:
                refusal = "holds no state, but a state machine runs here"
            self.download = DownloadFile(self.disk, self.log_path, effect.snapshot_id, refusal)
        download = self.download
        self.background.ask(
            lambda: download.take(effect.position, data, effect.last),
            lambda refusal: self._written(download, effect, len(data), refusal),
        )

    def _written(
        self, download: DownloadFile, effect: fx.WriteSlice, size: int, refusal: str
    ) -> None:
        if self.download is not download:
            return  # of a role that is over
        if refusal:
            self._tell("snapshot_refused", effect.snapshot_id, why=refusal)
            self.node.log.nursery.make_way_for(download.error)  # L5: it is fetched again
            self._drop_download()
        end = effect.position + size
        self.node.step(ev.SliceWritten(effect.snapshot_id, end, bool(refusal)))

    def _tell(self, event: str, snapshot_id: OffsetAndEpoch, **more: object) -> None:
        offset, epoch = snapshot_id
        self.node.tell(event, offset=offset, epoch=epoch, **more)

    def install(self, effect: fx.InstallSnapshot) -> None:
        """Give the fetched snapshot its name, and begin the log again at its end."""
        node, download = self.node, self.download
        assert download is not None and download.whole, "what was not checked is not installed"
        assert download.file is not None
        assert download.snapshot_id == effect.snapshot_id
        self.download = None
        node.wait_for_flush()  # its end would say that what is gone was flushed (D2)
        kept = [effect.snapshot_id, BOOTSTRAP]
        try:
            name_part(self.disk, download.file.path, self.log_path, effect.snapshot_id)
            log_start.install_snapshot(node.log, effect.snapshot_id)
        except FlushFailed:
            raise  # D9
        except StorageError as error:
            if node.log.failed is not None:  # D25: the next start finishes what has begun
                raise
            self._tell("snapshot_refused", effect.snapshot_id, why=str(error))
            download.drop()  # D25: it has one name or the other
            delete_snapshots(self.disk, self.log_path, [effect.snapshot_id])
            node.log.nursery.make_way_for(error)
            refused = ev.SnapshotInstalled(effect.snapshot_id, VoterHistory(), True)
            node.queue(refused)
            return
        assert node.log.truncations == effect.truncations, "D2: the core counts along"
        older = [each for each in snapshot_ids(self.disk, self.log_path) if each not in kept]
        self._delete(older)
        history = VoterHistory(download.history)
        node.queue(ev.SnapshotInstalled(effect.snapshot_id, history))
        self._tell("snapshot_fetched", effect.snapshot_id)
        node.show()

    def _role_changed(self, _effect: fx.RoleChanged) -> None:
        self._drop_download()

    def _drop_download(self) -> None:
        download, self.download = self.download, None
        if download is not None:
            self.background.ask(download.drop, lambda _nothing: None)

    # --- making and deleting ----------------------------------------------------------------------

    def permits(self, snapshot_id: OffsetAndEpoch) -> bool:
        """Return whether a snapshot of the committed log up to there is wanted and allowed now."""
        try:
            return bool(self.node.core.may_create_snapshot(snapshot_id))
        except InvalidOption:
            return False  # not on disk here yet

    def controls_at(self, end_offset: int) -> Controls:
        """Return what a snapshot with this end says of the voters, from ``kraft.version`` 1 on."""
        history = self.node.core.history
        version = history.version_at(end_offset)
        if version < 1:
            return []
        found: Controls = [KRaftVersion(version)]
        voters = history.voters_at(end_offset)
        if voters is not None:
            found.append(voters)
        return found

    def footer_at(self, end_offset: int) -> Tags | None:
        """Return what the footer of a snapshot with this end says: of idempotent producers.

        None where the log is damaged, which is told once. The snapshot would take other replicas
        what this disk has changed: they would append twice, or refuse, what they know otherwise.
        """
        log = self.node.log
        try:
            return to_tags(log.producers.freeze(end_offset, log.segments))
        except CorruptLog as error:
            if str(error) != self._told:
                self._told = str(error)
                self.node.damage.report(self.node, error)
            return None

    def created(self, snapshot_id: OffsetAndEpoch) -> None:
        """Report a snapshot on disk to the core: replicas may fetch it, unless a later one came."""
        self.node.step(ev.SnapshotCreated(snapshot_id))
        if snapshot_id not in self.node.core.snapshots:
            self._delete([snapshot_id])
            return
        path = snapshot_files.snapshot_path(self.log_path, snapshot_id)
        self.made_bytes, self.made_ms = self.disk.file_bytes(path), self.node.now_ms()
        self._tell("snapshot_written", snapshot_id, bytes=self.made_bytes)

    def delete_before(self, effect: fx.DeleteBefore) -> None:
        """Delete segments and snapshots wholly below; the log begins where a snapshot ends."""
        before = self.node.log.log_start_offset
        freed = log_start.delete_before(self.node.log, effect.offset)
        if effect.offset > before:
            self.node.tell("log_start_moved", log_start_offset=effect.offset, bytes=freed)
        ids = snapshot_ids(self.disk, self.log_path)
        older = [each for each in ids if each.offset < effect.offset and each != BOOTSTRAP]
        self._delete(older)
        self.node.show()

    def _delete(self, ids: list[OffsetAndEpoch]) -> None:
        """Delete snapshots; the space of the one that was sent last is free once it is closed."""
        delete_snapshots(self.disk, self.log_path, ids)
        if self._sent in ids:
            self._sent = None
            self.background.ask(self._stop_reading, lambda _nothing: None)  # behind its last slice

    def close(self) -> None:
        """Close; what was not whole is removed at the next start."""
        self._stop_reading()
