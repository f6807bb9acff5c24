"""What can go wrong, as types: three kinds of failure are kept apart.

* A broken invariant is an ``AssertionError``: the process dies, the log stays as it is.
* An operating failure is one of the exceptions below. Each class has an ``exit_code``, which the
  command line uses, and a message of one line that says what happened and what to do.
* A refusal between replicas is an answer that carries an :class:`ErrorCode`, never an exception.

Sources: Kafka's ``org.apache.kafka.common.protocol.Errors`` for the codes.
"""

from __future__ import annotations

import copy
import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import Self

__all__ = [
    "CannotListen",
    "Closed",
    "CorruptBatch",
    "CorruptLog",
    "DirectoryInUse",
    "DirectoryMoved",
    "DiskFull",
    "ErrorCode",
    "FlushFailed",
    "ForeignDirectory",
    "HostUnsupported",
    "InconsistentClusterId",
    "InputError",
    "InvalidOption",
    "KraftfastError",
    "LocalError",
    "MalformedFrame",
    "NoQuorum",
    "NotCompiled",
    "NotFormatted",
    "NotLeader",
    "OffsetOutOfRange",
    "OutOfResources",
    "PeerError",
    "PeerGone",
    "ProducerFenced",
    "QuorumError",
    "RecordTooLarge",
    "RecordsRefused",
    "RequestRefused",
    "SparkFailed",
    "SparkUnavailable",
    "StorageError",
    "TimedOut",
    "UnauthenticatedListener",
    "UnencodableMessage",
    "UnknownOutcome",
    "UnsupportedCodec",
    "UnsupportedVersion",
    "VerificationFailed",
    "WouldBlock",
    "WrongProcess",
]


class ErrorCode(IntEnum):
    """Kafka's protocol error codes, those that a quorum sends or receives."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    MESSAGE_TOO_LARGE = 10
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TRANSACTION_TIMEOUT = 50
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    OFFSET_NOT_AVAILABLE = 78
    NO_REASSIGNMENT_IN_PROGRESS = 85
    INVALID_RECORD = 87
    PRODUCER_FENCED = 90
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    NEW_LEADER_ELECTED = 108
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    INVALID_REGISTRATION = 119
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    REBOOTSTRAP_REQUIRED = 129
    CONTROLLER_ID_NOT_REGISTERED = 136


class UnauthenticatedListener(UserWarning):
    """A quorum listens for TCP connections, and does not authenticate its clients."""


class KraftfastError(Exception):
    """Base of every operating failure that kraftfast raises."""

    exit_code = 1

    def again(self) -> Self:
        """Return a copy to raise, of one that is kept (I25): each raise would add to its traceback,
        and that holds what was in the caller's frames.
        """
        return copy.copy(self)


# --- the caller's fault -----------------------------------------------------------------------


class LocalError(KraftfastError):
    """The caller asked for something that cannot be; nothing was sent or stored."""

    exit_code = 2


class InvalidOption(LocalError):
    """An option, argument or configuration value is unknown or out of range."""


class InputError(LocalError):
    """An input file is unreadable or empty, or too little to say what ``--fail-if-worse`` asks."""

    exit_code = 3


class RecordTooLarge(LocalError):
    """A record or batch is above ``limits.BATCH_BYTES_MAX`` or the directory's own bound.

    ``record_bytes``: of value, key and headers together, where it is known.
    """

    exit_code = 4
    record_bytes = -1


class RecordsRefused(LocalError):
    """The record has a shape that this log does not take (``records=kafka-raft``).

    ``position`` is where its batch begins in the bytes that were looked at (-1 if there are none
    yet), ``reason`` why it is refused, without the place.
    """

    exit_code = 4

    def __init__(self, message: str, position: int = -1, reason: str = "") -> None:
        super().__init__(message)
        self.position = position
        self.reason = reason or message


class SparkUnavailable(LocalError):
    """No Spark session can start: a package or Java is missing or too old; says which."""

    exit_code = 5


class NotCompiled(LocalError):
    """What was asked for is compiled, and only the ``.py`` files of kraftfast are here."""

    exit_code = 5


class HostUnsupported(LocalError):
    """This host lacks or forbids something that kraftfast needs; ``kraftfast doctor`` says more."""

    exit_code = 6


class WouldBlock(LocalError):
    """``try_append`` found no room: the producer is ahead of the log by its whole window."""


class UnencodableMessage(LocalError):
    """A message holds a value for which its field has no bytes; nothing was sent."""


class Closed(LocalError):
    """The producer, consumer or quorum was closed before this call."""


class WrongProcess(LocalError):
    """The producer, consumer, admin or quorum was made before a fork, in the parent process."""


# --- the quorum's answer ----------------------------------------------------------------------


class QuorumError(KraftfastError):
    """The quorum did not do what was asked."""

    exit_code = 10


class NotLeader(QuorumError):
    """The replica asked does not lead; nothing was appended. ``leader_id`` is -1 if unknown."""

    exit_code = 11

    def __init__(self, message: str, leader_id: int = -1) -> None:
        super().__init__(message)
        self.leader_id = leader_id


class NoQuorum(QuorumError):
    """No majority answers, so there is no leader; nothing was appended."""

    exit_code = 12


class UnknownOutcome(QuorumError):
    """The append was handed over, but its fate was not learnt: it may or may not be committed.

    Of an append of many, ``handed_over`` records were, the first ones; ``tickets`` are theirs.
    """

    exit_code = 13
    handed_over = 0
    tickets: Sequence[range] = ()


class ProducerFenced(UnknownOutcome):
    """Another producer with the same name has begun; this one can append nothing more."""

    exit_code = 18


class InconsistentClusterId(QuorumError):
    """The other side belongs to another cluster."""

    exit_code = 14


class TimedOut(KraftfastError, TimeoutError):
    """The time given to the call ran out before there was an answer.

    An append was not handed over; a change by an operator may still come about.
    """

    exit_code = 15


class RequestRefused(QuorumError):
    """A server refused a request with a Kafka error code, kept in ``code``."""

    def __init__(self, message: str, code: int = ErrorCode.UNKNOWN_SERVER_ERROR) -> None:
        super().__init__(message)
        self.code = code


class OffsetOutOfRange(QuorumError):
    """The log starts beyond this offset, ``log_start_offset`` is where; -1: it ends before it."""

    exit_code = 17

    def __init__(self, message: str, log_start_offset: int = -1) -> None:
        super().__init__(message)
        self.log_start_offset = log_start_offset


class VerificationFailed(QuorumError):
    """Replicas differ from each other or from what was appended."""

    exit_code = 16


class SparkFailed(KraftfastError):
    """Spark gave up for a reason of its own; the message is the first line of Spark's."""

    exit_code = 40


# --- the other side's fault -------------------------------------------------------------------


class PeerError(KraftfastError):
    """What came from another process or host breaks the protocol; its connection is closed."""

    exit_code = 20


class MalformedFrame(PeerError):
    """Bytes that do not decode: a bad length, count, varint, version or field."""


class CorruptBatch(PeerError):
    """A record batch whose framing, CRC, count or offsets do not hold.

    ``position`` is where it begins in the bytes that were looked at (-1 if unknown), ``reason``
    what is wrong with it, without the place.
    """

    def __init__(self, message: str, position: int = -1, reason: str = "") -> None:
        super().__init__(message)
        self.position = position
        self.reason = reason or message


class UnsupportedVersion(PeerError):
    """The two sides have no version of this API in common, or a field does not fit the version."""


class UnsupportedCodec(PeerError):
    """A batch is compressed with a codec whose package is not installed."""


class PeerGone(PeerError):
    """The other process ended or closed its end."""


# --- the disk ---------------------------------------------------------------------------------


class StorageError(KraftfastError):
    """The file system refused, or what it holds cannot be used."""

    exit_code = 30


class DiskFull(StorageError):
    """No space for the log to grow; what is committed stays, appends go on when space returns."""

    exit_code = 31


class FlushFailed(StorageError):
    """An fsync failed: final for this log (D9). The replica stops and acknowledges no more."""

    exit_code = 32


class OutOfResources(StorageError):
    """This host has no file descriptor, memory or thread left for a call; it may pass by itself.

    Nothing was changed that a start does not find and complete.
    """

    exit_code = 37


class CorruptLog(StorageError):
    """Stored bytes below the durable watermark are damaged; says which file, position, offset."""

    exit_code = 33

    def __init__(self, message: str, path: str = "", position: int = -1, offset: int = -1) -> None:
        super().__init__(message)
        self.path = path
        self.position = position
        self.offset = offset


class DirectoryInUse(StorageError):
    """A process, perhaps this one, holds the directory."""

    exit_code = 34


class DirectoryMoved(StorageError):
    """A directory that a process uses is not at its path any longer; what it holds is elsewhere."""


class CannotListen(StorageError):
    """A listener cannot be bound: its address is taken, or does not belong to this host."""


class ForeignDirectory(StorageError):
    """The directory belongs to another node, cluster or program, or its files do not parse."""

    exit_code = 35


class NotFormatted(StorageError):
    """The directory has no ``meta.properties``; format it first."""

    exit_code = 36


SCARCE = {
    errno.EMFILE: ": raise the limit of open files (ulimit -n)",
    errno.ENFILE: "",
    errno.ENOMEM: ": raise the limit of memory or addresses (ulimit -v unlimited)",
    errno.EFBIG: ": raise the limit of a file's size (ulimit -f unlimited)",
}
"""What a system call may lack on this host, by errno, and what the user can do."""


NO_ROOM = ("failed to map segment", "cannot map zero-fill pages", "Cannot allocate memory")
"""What the dynamic loader says where there is no memory for a module."""


def lack_of_memory(error: BaseException) -> str:
    """Return what to do if memory was lacking, for an object, module or thread; else ""."""
    if isinstance(error, MemoryError):
        return "there is no memory left: raise its limit (ulimit -v, or the container's)"
    if isinstance(error, ImportError) and any(text in str(error) for text in NO_ROOM):
        return lack_of_memory(MemoryError())
    if isinstance(error, RuntimeError) and str(error) == "can't start new thread":
        return "no thread can be started: raise the limit of memory or threads (ulimit -v, -u)"
    cause = error.__cause__ or error.__context__
    return "" if cause is None else lack_of_memory(cause)


def scarce(error: BaseException, doing: str) -> OutOfResources | None:
    """Return the typed error if ``error`` is, or was made of, a system call that lacked something.

    Then no replica is to blame, and trying another one does not help.
    """
    for cause in (error, error.__cause__ or error.__context__):
        if isinstance(cause, OSError) and cause.errno in SCARCE:
            return OutOfResources(f"{doing}: {os.strerror(cause.errno)}{SCARCE[cause.errno]}")
    return None


def raise_if_scarce(error: BaseException, doing: str) -> None:
    """Raise OutOfResources where :func:`scarce` has one."""
    found = scarce(error, doing)
    try:
        if found is not None:
            for each in (error, error.__cause__, error.__context__):
                if each is not None:
                    each.__traceback__ = None  # it holds what the attempt made, descriptors say
            raise found from None
    finally:
        del found  # no cycle


def forbidden(error: BaseException) -> StorageError | None:
    """Return the typed error if this user may not look at a replica: it is not known if it runs."""
    cause = error.__cause__
    if isinstance(cause, OSError) and cause.errno in (errno.EACCES, errno.EPERM):
        return StorageError(f"cannot see whether a replica runs: {error}; ask as its user")
    return None


@contextmanager
def loading() -> Iterator[None]:
    """Raise OutOfResources where no descriptor is left to read a module with."""
    try:
        yield
    except (OSError, ImportError) as error:
        raise_if_scarce(error, "cannot load a module")
        if os.strerror(errno.EMFILE) in str(error):  # what dlopen says
            raise_if_scarce(OSError(errno.EMFILE, ""), "cannot load a module")
        raise
