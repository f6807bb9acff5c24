"""The hot half of a producer: encode records into a batch, send batches, and resolve tickets.

A :class:`Sender` is one way to one leader: ``ring_sender`` over shared memory, ``socket_sender``
over TCP. A batch leaves when it is full, when it is sealed, or when nothing else is under way
(so that an idle quorum answers at once) and no woken thread may still append (``gathering``).

Thread-safety: everything runs under the interpreter's lock, and what changes state runs no Python
code between its first and last store, so that no other thread sees it half done. Three things give
the lock up: encoding of columns and compressing (``busy``: appends are refused meanwhile), and
taking answers in (``polling``: one thread at a time; it looks at ``gone`` when it has the lock).

What is reported, and when (I24): a batch is *committed* by its acknowledgement alone; *failed* only
if it is certain that it was not appended and will not be; else its outcome is unknown. What no
replica looked at is handed to the next leader, but never behind a batch that may have been appended
after it: then it fails, and the order of tickets is the order of offsets.
"""

import select
from collections import deque

from cpython.bytes cimport PyBytes_CheckExact, PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy
from posix.unistd cimport write

from kraftfast.client.producer.identity cimport is_whole
from kraftfast.client.producer.outcomes cimport Outcomes
from kraftfast.client.producer.values cimport append_number, bytes_of, record_size
from kraftfast.record.builder cimport Values, encode_headers
from kraftfast.record.encode cimport (
    Encoded, append_record, append_value as encode_value, close_batch, default_settings,
    encode_columns, open_batch,
)
from kraftfast.record.judge cimport kf_batch_header

from kraftfast import limits
from kraftfast.arguments import offset
from kraftfast.client.producer.refusals import refusal
from kraftfast.client.producer.values import check_values
from kraftfast.errors import ErrorCode, InvalidOption, RecordsRefused, RecordTooLarge, TimedOut
from kraftfast.record.builder import compressed


cdef extern from "Python.h" nogil:
    char *PyBytes_AS_STRING(PyObject *o)
    Py_ssize_t PyBytes_GET_SIZE(PyObject *o)

cdef enum:
    WINDOW_MAX = 1 << 15
    RECORD_OVERHEAD = 61 + 64       # of a batch with one record, at most
    LOOK_EVERY = 64                 # appends between two looks at what came back
    STAMP_NS = 1000000              # records get the time of the last millisecond

assert limits.BATCH_BYTES_LEAST == RECORD_OVERHEAD and limits.WINDOW_BATCHES_MAX == WINDOW_MAX
RECORD_BYTES_MAX = limits.BATCH_BYTES_MAX - RECORD_OVERHEAD
"""The most that value, key and headers (as encoded) of one record may have together."""

cdef class Sender:
    """One way to one leader. Its fields, and what each kind of sender adds: ``sender.pxd``."""

    def __cinit__(self):
        self.wake_fd = -1
        self.backlog = deque()

    def __dealloc__(self):
        free(self.sent)

    cdef int set_up(self, host, Outcomes outcomes, int64_t batch_bytes, int64_t batch_bytes_max,
                    int64_t window, int wake_fd) except -1:
        cdef uint64_t room = 1
        if not (1 <= window <= WINDOW_MAX and batch_bytes >= RECORD_OVERHEAD):
            raise InvalidOption(f"a window of {window} batches of {batch_bytes} bytes: choose 1 to "
                                f"{WINDOW_MAX} batches of {RECORD_OVERHEAD} bytes or more")
        self.host, self.clock = host, host.clock
        self.outcomes, self.window, self.wake_fd = outcomes, window, wake_fd
        self.batch_bytes_max = min(batch_bytes_max, limits.BATCH_BYTES_MAX)
        self.batch_bytes = min(batch_bytes, self.batch_bytes_max)
        while room < <uint64_t>window:
            room *= 2
        self.sent_mask = room - 1
        self.sent = <Sent *>calloc(room, sizeof(Sent))
        if self.sent == NULL:
            raise MemoryError("producer")
        self.epoll = host.poller()
        self.epoll.register(wake_fd, select.EPOLLIN)
        self.settings = default_settings(0)
        self.settings.kafka_raft = self.kafka_raft
        self.review()
        return 0

    cdef void review(self) noexcept:
        """Compute ``ready`` from what it depends on."""
        self.ready = self.broken is None and not (
            self.gone or self.held or self.busy or self.leaving or self.backlog)

    cpdef int fail(self, exception) except -1:
        """Send nothing more; ``exception``: why not."""
        if self.broken is None:
            self.broken = exception
        self.ready = False
        return 0

    # --- what each kind of sender does in its own way: sender.pxd says what -----------------------

    cdef uint8_t *claim(self, int64_t capacity) except? NULL: raise NotImplementedError
    cdef void abandon(self) noexcept: pass
    cdef int commit(self, Sent *entry) except -1: raise NotImplementedError
    cdef int publish(self) except -1: raise NotImplementedError
    cdef bint waiting(self) noexcept nogil: return False
    cdef int receive(self) except -1: raise NotImplementedError
    cdef int release(self, uint64_t number) except -1: return 0
    cdef uint64_t untouched(self): raise NotImplementedError
    cdef bint must_stay_awake(self) except -1: return self.waiting()
    cdef int announce_sleep(self) except -1: raise NotImplementedError
    cdef int attend_to(self, int fd, int events) except -1: raise NotImplementedError
    cdef int close_files(self) except -1: raise NotImplementedError

    def woke_up(self):
        """Show the other side that it need not wake this process."""

    def want_room(self):
        """Have the other side wake this process once there is room; a socket needs no such wake."""

    # --- handing over -----------------------------------------------------------------------------

    cdef bint window_full(self) noexcept:
        return self.sent_head - self.sent_tail >= <uint64_t>self.window

    cdef int begin(self, int64_t capacity) except -1:
        """Open a batch in claimed memory: 1, or 0 for no room now."""
        cdef uint8_t *memory = self.claim(capacity)
        cdef uint64_t now = self.clock.monotonic_ns()
        if memory == NULL:
            return 0
        if now - self.stamped_ns > STAMP_NS:
            self.stamped_ns = now
            self.settings.timestamp = self.clock.wall_ms()
        open_batch(&self.batch, memory, capacity, &self.settings)
        self.open_began, self.open_first = now, self.outcomes.next_ticket
        self.has_open = True
        return 1

    cdef int open_for(self, int64_t size) except -1:
        """Have a batch open; a fresh one has room for a record of this size. 0: not now."""
        cdef int64_t capacity = max(self.batch_bytes, size + RECORD_OVERHEAD)
        if capacity > self.batch_bytes_max:
            return 0
        if self.window_full():
            self.poll()  # other threads may have run
            if not self.ready or self.window_full():
                return 0
            if self.has_open:
                return 1
        return self.begin(capacity)

    cdef int send_open(self) except -1:
        """Close the open batch; it leaves now, or when it is compressed."""
        cdef int64_t size = self.close_open()
        if size == 0:
            self.abandon()
            return 0
        if self.compressor is not None:
            self.has_open = True  # give_up() takes it meanwhile; if it raises, nothing was done
            size = self.pack(self.batch.start, size)
            if self.gone:
                return 0
            self.has_open = False
        self.send(self.batch.start, size, self.open_first,
                  self.outcomes.next_ticket - self.open_first, self.open_began)
        return 0

    cdef int64_t pack(self, uint8_t *batch, int64_t size) except -1:
        """Compress a batch where it lies, if it can be; return its size after that.

        Other threads may give this sender up meanwhile: then its memory is left alone.
        """
        cdef bytes whole = None
        self.busy, self.ready = True, False
        try:
            whole = compressed(PyBytes_FromStringAndSize(<char *>batch, size), self.compressor)
        except Exception:  # no memory, say: it is sent as it is
            pass
        finally:
            self.busy = False
            self.review()
        if whole is None or self.gone:
            return size
        memcpy(batch, <const uint8_t *>whole, len(whole))
        return len(whole)

    cdef int64_t close_open(self) noexcept:
        if self.identity is not None:
            self.identity.stamp(&self.batch.settings, self.open_first)
        self.has_open = False
        return close_batch(&self.batch)

    cdef int send(self, uint8_t *batch, int64_t size, int64_t first_ticket, int64_t records,
                  uint64_t began_ns) except -1:
        """Send what was claimed: it holds a whole batch now."""
        cdef Sent *entry = self.batch_number(self.sent_head)
        entry.first_ticket, entry.records = first_ticket, records
        entry.batch, entry.size, entry.began_ns = batch, size, began_ns
        entry.state, entry.error, entry.base_offset = SENT, 0, -1
        self.commit(entry)
        self.sent_head += 1
        self.bytes_sent += <uint64_t>size
        self.publish()
        return 0

    cdef Sent *batch_number(self, uint64_t number) noexcept:
        return &self.sent[number & self.sent_mask]

    cdef int64_t append_value(self, value) except -2:
        """Hand over a record with a value alone: its ticket, or -1: not now, or not this way."""
        cdef const uint8_t *data
        cdef Py_ssize_t size
        if not self.ready or not PyBytes_CheckExact(value):
            return -1
        data = <const uint8_t *>PyBytes_AS_STRING(<PyObject *>value)
        size = PyBytes_GET_SIZE(<PyObject *>value)
        if not self.has_open and not self.open_for(size):
            return -1
        if encode_value(&self.batch, data, size) != 1:
            return self.put(value, None, b"", 0, 0, False)
        return self.appended()

    cdef int64_t appended(self) except -2:
        """Give its ticket to the record that was just encoded."""
        cdef int64_t ticket = self.outcomes.next_ticket
        self.outcomes.next_ticket = ticket + 1
        if self.sent_head == self.sent_tail and not self.gathering:
            self.send_open()
        else:
            self.countdown -= 1
            if self.countdown <= 0:
                self.countdown = LOOK_EVERY
                if self.waiting():
                    self.poll()
        return ticket

    def append(self, value) -> int:
        """Do as :meth:`append_record`, of a value alone."""
        cdef int64_t ticket = self.append_value(value)
        return ticket if ticket >= 0 else self.append_record(value, None, (), None)

    def append_record(self, value, key, headers, timestamp) -> int:
        """Hand over a record; its ticket, or -1: not now (no room, or no leader).

        ``value``, ``key``: bytes-like or None; ``headers``: [(str, bytes-like or None)];
        ``timestamp``: ms or None. Raises InvalidOption, RecordTooLarge (also if this sender alone
        cannot take it: see ``record_bytes_max``), RecordsRefused.
        """
        cdef bytes value_bytes, key_bytes, header_bytes
        cdef int64_t stamp = 0
        value_bytes, key_bytes = bytes_of("value", value), bytes_of("key", key)
        header_bytes = encode_headers(headers)
        if timestamp is not None:
            stamp = offset("timestamp", timestamp)
        size = sum([len(part) for part in (value_bytes, key_bytes, header_bytes) if part])
        if size > self.record_bytes_max:
            error = RecordTooLarge(
                f"a record of {size} bytes; at most {self.record_bytes_max} can be sent")
            error.record_bytes = size
            raise error
        return self.put(
            value_bytes, key_bytes, header_bytes, len(headers), stamp, timestamp is not None)

    cdef int64_t put(self, bytes value, bytes key, bytes headers, int32_t header_count,
                     int64_t timestamp, bint stamped) except -2:
        """Append to the open batch, or to a fresh one: the ticket, or -1."""
        cdef const uint8_t *value_data = NULL
        cdef const uint8_t *key_data = NULL
        cdef int64_t value_size = -1, key_size = -1
        cdef Py_ssize_t size = len(headers)
        if self.kafka_raft and (not value or key is not None or header_count):
            if self.has_open and self.batch.count == 0:
                self.send_open()  # nothing stays open for it
            raise RecordsRefused("this log takes only records with a value that is not empty, "
                                 "without key and headers (records=kafka-raft)")
        if value is not None:
            value_data, value_size = <const uint8_t *>value, len(value)
            size += value_size
        if key is not None:
            key_data, key_size = <const uint8_t *>key, len(key)
            size += key_size
        while self.ready:
            if not self.has_open and not self.open_for(size):
                return -1
            if append_record(
                &self.batch, timestamp if stamped else self.settings.timestamp, key_data, key_size,
                value_data, value_size, <const uint8_t *>headers, len(headers), header_count,
            ) == 1:
                return self.appended()
            assert self.batch.count, "a fresh batch takes the record that it was opened for"
            self.send_open()  # full, or the timestamp is too far off (kafka-raft: another one)
        return -1

    def append_values(self, Values values not None, int64_t first) -> tuple[int, int]:
        """Hand over values from number ``first`` on, as many as there is room for now.

        (first ticket, how many): they follow each other. The open batch is sealed before, and
        nothing stays open after. All values must have passed :meth:`check_values`.
        """
        cdef Encoded encoded
        cdef int64_t taken = 0, start
        if self.ready:
            self.seal()
        start = self.outcomes.next_ticket
        while first + taken < values.column.count and self.ready and not self.has_open:
            if self.window_full():
                self.poll()
                if not self.ready or self.has_open or self.window_full():
                    break
            if self.outcomes.next_ticket != start + taken or not self.begin(self.batch_bytes):
                break
            self.has_open, self.busy, self.ready = False, True, False
            if self.identity is not None:
                self.identity.stamp(&self.settings, self.open_first)
            with nogil:
                encoded = encode_columns(
                    self.batch.start, self.batch_bytes, &values.column, values.keys, values.headers,
                    NULL, first + taken, &self.settings)
            self.busy = False
            self.review()
            if self.compressor is not None and self.ready and encoded.records:
                try:
                    encoded.size = self.pack(self.batch.start, encoded.size)
                except BaseException:  # a signal handler's: none of these records has a ticket
                    self.abandon()
                    raise
            if not self.ready or encoded.records == 0:
                self.abandon()
                if not self.ready or not self.append_large(values, first + taken):
                    break
                taken += 1
                continue
            self.outcomes.next_ticket += encoded.records
            self.send(
                self.batch.start, encoded.size, self.open_first, encoded.records, self.open_began)
            taken += encoded.records
        return start, taken

    def append_large(self, Values values, int64_t number) -> bool:
        """Append a record larger than a usual batch, in one of its own; False: not now."""
        if not self.open_for(max(record_size(values, number), 0)):
            return False
        if not append_number(&self.batch, self.settings.timestamp, values, number):
            raise AssertionError("a record that was checked")
        self.outcomes.next_ticket += 1
        self.send_open()
        return True

    def check_values(self, Values values not None) -> int:
        """Do as :func:`kraftfast.client.producer.values.check_values`, for this log."""
        return check_values(values, self.kafka_raft, RECORD_BYTES_MAX)

    def seal(self):
        """Send what is in the open batch; one that is being compressed leaves after that."""
        if self.has_open and not self.gone and not self.busy:
            self.send_open()
        else:
            self.publish()

    def hold(self, bint held=True):
        """Take no appends until told otherwise; what is open leaves."""
        if held:
            self.seal()
        self.held = held
        self.review()

    # --- from one sender to the next --------------------------------------------------------------

    def take_over(self, entries):
        """Send what another's :meth:`give_up` returned, at the next :meth:`poll` and first."""
        self.backlog.extend(entries)
        self.review()

    cdef int hand_over(self) except -1:
        cdef bytes batch
        cdef uint8_t *memory
        while self.backlog and self.broken is None and not self.leaving and not self.window_full():
            batch, first_ticket, records, began_ns = self.backlog[0]
            memory = self.claim(len(batch))
            if memory == NULL:
                break
            memcpy(memory, <const uint8_t *>batch, len(batch))
            if self.identity is not None:
                self.identity.restamp(memory, len(batch), first_ticket)
            self.backlog.popleft()
            self.send(memory, len(batch), first_ticket, records, began_ns)
        self.review()
        return 0

    def give_up(self, exception not None) -> list:
        """Let go of the leader, and fail by ``exception`` what it may have appended.

        Return [(batch, first ticket, records, began ns)] in order, for the next sender's
        :meth:`take_over`: what the leader never looked at, and with an identity all that has no
        answer. A second call, after a signal handler's exception, returns the same.
        """
        cdef uint64_t untouched
        if self.given_up is not None:
            self.close()
            return self.given_up
        self.poll()  # answers that have arrived count
        untouched = self.untouched()
        self.ready, self.gone, taken_back = False, True, self.identity is not None
        again = self.take_back(untouched) if taken_back else self.resolve(untouched, exception)
        if self.has_open and (size := self.close_open()):
            self.has_open = True  # until nothing more can fail: else it is closed again
            batch = PyBytes_FromStringAndSize(<char *>self.batch.start, size)
            records = self.outcomes.next_ticket - self.open_first
            again.append((batch, self.open_first, records, self.open_began))
        self.given_up = [*again, *self.backlog]
        self.has_open, self.sent_tail = False, self.sent_head
        self.backlog.clear()
        self.close()
        return self.given_up

    cdef tuple entry_of(self, Sent *entry):
        return self.copy_of(entry), entry.first_ticket, entry.records, entry.began_ns

    cdef bytes copy_of(self, Sent *entry):
        """Return its bytes, or None if they are not the batch that was sent (D24)."""
        cdef kf_batch_header header
        cdef bytes batch = PyBytes_FromStringAndSize(<char *>entry.batch, entry.size)
        whole = is_whole(<const uint8_t *>batch, entry.size, entry.records, &header) and (
            self.identity is None or self.identity.stamped(&header, entry.first_ticket))
        return batch if whole else None

    cdef list take_back(self, uint64_t untouched):
        """Return all that is not resolved; what may be in a log is in doubt from here on."""
        cdef uint64_t number
        cdef int64_t damaged_end = 0
        cdef Sent *entry
        again = []
        for number in range(self.sent_tail, self.sent_head):
            entry = self.batch_number(number)
            seen = number < untouched or entry.state == COMMITTED or entry.state == UNKNOWN
            if seen and self.identity.may_be_appended(
                    entry.state == SENT, entry.state == NOT_APPENDED, entry.error):
                self.identity.doubt(entry.first_ticket + entry.records)
            again.append(self.entry_of(entry))
            if again[-1][0] is None:
                damaged_end = entry.first_ticket + entry.records  # enlist() drops it
        if damaged_end:
            self.identity.skip(self.outcomes.resolved, damaged_end)
        return again

    cdef list resolve(self, uint64_t untouched, exception):
        """Settle what may have been appended as unknown; return the rest, for the next sender."""
        cdef uint64_t number, touched = self.sent_tail
        cdef Sent *entry
        for number in range(self.sent_tail, self.sent_head):
            entry = self.batch_number(number)
            if entry.state == SENT:
                entry.state = UNKNOWN if number < untouched else NOT_APPENDED
            if entry.state == NOT_APPENDED and self.copy_of(entry) is None:
                entry.state = UNKNOWN
            if entry.state == COMMITTED or entry.state == UNKNOWN:
                touched = number + 1
        again = []
        for number in range(self.sent_tail, self.sent_head):
            entry = self.batch_number(number)
            if entry.state == NOT_APPENDED and number < touched:
                entry.state, entry.error = REFUSED_BATCH, ErrorCode.NOT_LEADER_OR_FOLLOWER
            if entry.state == COMMITTED:
                self.outcomes.committed(entry.first_ticket, entry.records, entry.base_offset)
            elif entry.state == UNKNOWN:
                self.outcomes.failed(entry.first_ticket + entry.records, exception)
            elif entry.state == REFUSED_BATCH:
                self.outcomes.failed(entry.first_ticket + entry.records, refusal(entry.error))
            else:
                again.append(self.entry_of(entry))
                continue
            self.sent_tail = number + 1  # a signal handler may raise in refusal(): then again
        return again

    def close(self):
        """Close the connection; batches in flight get no answer."""
        self.ready, self.gone = False, True
        if self.users:
            self.nudge()  # the last of them closes the descriptors
        elif self.wake_fd >= 0:
            self.close_files()

    def disown(self):
        """Leave the connection to the parent, in a forked child: the batches are its."""
        self.ready, self.gone, self.has_open = False, True, False
        if self.wake_fd >= 0:
            self.close_files()

    # --- what comes back --------------------------------------------------------------------------

    cpdef bint poll(self) except -1:
        """Take in answers, without waiting; True if tickets were resolved.

        Where nothing is under way after that, what is open leaves, unless ``gathering``.
        """
        cdef int64_t before = self.outcomes.resolved
        if self.polling or self.gone:
            return False
        self.polling = True
        try:
            self.receive()
            self.settle()
            if self.backlog:
                self.hand_over()
        finally:
            self.polling = False
        if self.has_open and self.sent_head == self.sent_tail and self.ready and not self.gathering:
            self.send_open()
        if self.outcomes.resolved == before:
            return False
        if self.users:
            self.nudge()
        return True

    cdef int settle(self) except -1:
        """Resolve what was answered, oldest first."""
        cdef Sent *entry
        cdef uint64_t now = self.clock.monotonic_ns()
        while not self.gone and self.sent_tail < self.sent_head:
            entry = self.batch_number(self.sent_tail)
            if entry.state == COMMITTED:
                self.outcomes.committed(entry.first_ticket, entry.records, entry.base_offset)
                self.note_commit(entry.base_offset, entry.records, entry.began_ns, now)
            elif entry.state == REFUSED_BATCH or entry.state == UNKNOWN:
                exception = self.failure_of(entry)  # other threads may run
                if self.gone or exception is None:
                    break
                self.outcomes.failed(entry.first_ticket + entry.records, exception)
            else:
                break
            self.sent_tail += 1
            self.release(self.sent_tail - 1)
        return 0

    cdef object failure_of(self, Sent *entry):
        """Return what its tickets fail with; None: nothing, the next sender has it again."""
        if self.identity is None:
            return refusal(entry.error)
        unknown, first = entry.state == UNKNOWN, entry.first_ticket
        exception = self.identity.failure_of(unknown, entry.error, first)
        if exception is None or self.identity.spent or self.identity.fenced is not None:
            self.fail(self.identity.fenced or TimedOut("the leader did not take all in time"))
        return exception

    def look(self, int64_t ticket) -> bool:
        """Take in what came back. False: it was nothing, and it is time to sleep.

        There is no spinning here: on few processors it costs the replicas one of them.
        """
        cdef int64_t before = self.outcomes.resolved
        self.poll()
        return self.outcomes.resolved > min(before, ticket) or self.broken is not None or self.gone

    # --- sleeping ---------------------------------------------------------------------------------

    def fileno(self) -> int:
        """Return what is readable once there is something to :meth:`attend` to in a sleep."""
        return self.epoll.fileno()

    def going_to_sleep(self) -> bool:
        """Announce the sleep, then look again (R12); False if there is something to take in."""
        if self.gone:
            return True
        self.users += 1
        try:
            self.announce_sleep()
            return not self.must_stay_awake()
        finally:
            self.end_use()

    def attend(self, events=None):
        """Take in whatever is ready, without waiting. ``events``: of the epoll, if it was asked."""
        if self.gone:
            return
        self.users += 1
        try:
            for fd, flags in (self.epoll.poll(0) if events is None else events):
                self.attend_to(fd, flags)
        finally:
            self.end_use()
        self.poll()

    def sleep(self, double timeout_s, int64_t ticket):
        """Sleep until there is something to take in, or ``ticket`` is resolved; take it in."""
        events = ()
        if self.gone:
            return
        self.users += 1
        try:
            if self.going_to_sleep() and self.outcomes.resolved <= ticket and not self.gone:
                events = self.epoll.poll(timeout_s)
        finally:
            self.woke_up()
            self.end_use()
        self.attend(events)

    cdef int nudge(self) except -1:
        """End the sleep of another thread."""
        cdef uint64_t one = 1
        if self.wake_fd < 0:
            return 0
        return 0 if write(self.wake_fd, &one, sizeof(one)) else 0  # full of wake-ups: as good

    cdef int end_use(self) except -1:
        """End a use of the descriptors; the last one closes those of a sender that is gone."""
        self.users -= 1
        if self.gone and not self.users and self.wake_fd >= 0:
            self.close_files()
        return 0

    # --- looking ----------------------------------------------------------------------------------

    @property
    def under_way(self) -> int:
        """Batches that are sent and not resolved, and one that is being compressed."""
        return self.sent_head - self.sent_tail + (1 if self.has_open and self.busy else 0)

    @property
    def record_bytes_max(self) -> int:
        """The most that value, key and headers of one record may have, to be sent this way."""
        return self.batch_bytes_max - RECORD_OVERHEAD
