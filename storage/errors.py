"""Every error of this project, in one tree.

    LedgerfoldError
    ├── RequestError                 the caller's: change the request
    │   ├── InvalidRequest           malformed name, frame, policy, position
    │   │   ├── UnknownStrategy      the worker does not have the strategy
    │   │   ├── InvalidStrategy      a user-defined strategy cannot be loaded, or does not answer
    │   │   │   └── StrategyNotAllowed   the operator has not allowed its code
    │   │   ├── InvalidUrl           not the address of a broker
    │   │   ├── MessageTooLarge      a message, or its batch, exceeds the broker's limit
    │   │   ├── LimitExceeded        a number exceeds a limit of the formats
    │   │   ├── InvalidSchema        not a definition of its type, or too complex
    │   │   └── WrongChecksum        a message was damaged between its client and the broker
    │   ├── TopicNotFound
    │   │   └── TopicIsPartitioned   its partitions hold the data: name one of them
    │   ├── TopicExists
    │   ├── TenantNotFound
    │   ├── TenantExists
    │   ├── NamespaceNotFound
    │   ├── NamespaceExists
    │   ├── SnapshotNotFound
    │   ├── SnapshotExists
    │   ├── FaultNotFound
    │   ├── MessageNotFound          the topic does not hold it, or no longer
    │   ├── TopicBusy                producers or consumers are connected
    │   ├── TopicTerminated          the topic accepts no more messages
    │   ├── SubscriptionNotFound
    │   ├── SubscriptionExists
    │   ├── SubscriptionBusy         exclusive, of another type, or being moved
    │   ├── InvalidHashRanges        of a Key_Shared consumer; or another one has them
    │   ├── NothingExpired           no backlog, nearly caught up, or no such message
    │   ├── SchemaNotFound           the topic has no schema, or not that version
    │   ├── IncompatibleSchema       the topic's schemas exclude it
    │   ├── NotAllowed               read-compacted on a shared subscription, for example
    │   ├── ProducerBusy             a producer with that name, or an exclusive one, is connected
    │   ├── ProducerFenced           another producer has, or had, exclusive access
    │   ├── BacklogQuotaExceeded     the backlog is too large for further messages
    │   │   └── ProducerBlocked      wait until it is smaller
    │   ├── KafkaError               Kafka rejects it, with the protocol's error code and class
    │   │   └── RecordsRefused       records of a batch are rejected; the first ones are listed
    │   ├── AuthenticationFailed     no credentials, or invalid or expired ones
    │   ├── AuthorizationFailed      the role may not do that
    │   ├── AddressInUse             another process listens there
    │   └── CompactionRunning        one run per topic at a time
    ├── StorageError                 the disk's or the data's
    │   ├── Corruption               damaged data: file, offset, expected value
    │   ├── IncompatibleFormat       written by a version that this one cannot read
    │   │   └── UnknownFeatures      the directory uses features that this build does not know
    │   ├── MetadataLost             entries of a topic exist, but no record names them
    │   ├── MissingFile              the metadata name a file that does not exist
    │   ├── CompactedLedgerDamaged   the compacted view cannot be read; it can be repaired
    │   ├── DiskFailure              a write or sync failed; the file is no longer used
    │   └── DirectoryLocked          another process owns the data directory
    ├── CompactionError              a run's
    │   ├── CompactionFailed         the job or its worker failed; the old view stays in use
    │   │   ├── SegmentIndexFull     a segment that the cleaner writes; a defect of Kafka's
    │   │   └── StrategyFailed       the strategy's code raised, or returned an invalid value
    │   ├── CompactionCancelled
    │   ├── CompactionFenced         the topic was unloaded or deleted during the run
    │   ├── EntryTooLarge            the remaining messages of a batch do not fit into an entry
    │   ├── CompactorUnavailable     no worker: starting, restarting, or Java is missing
    │   └── CompactionQueueFull
    └── ServiceError                 between the two ends of a connection
        ├── Unavailable              not connected, or the broker is stopping; a retry may help
        ├── Moved                    the topic was unloaded or the subscription moved: connect again
        ├── Timeout
        ├── AlreadyClosed
        └── Overloaded               a bound was reached
            └── TooManyRequests      of one client, in a second

Each class has a `reason`, a stable name that is sent in google.rpc.ErrorInfo, and `retryable`. A
reason that a class does not state is the class's own name. The attributes hold the data; the
message is built from them and says what to do. The gRPC code of each reason is in
ledgerfold/rpc_errors.py.

Users import all of it from `ledgerfold.errors`. Tracebacks, `repr` and pickles name that module,
because this one may change.

    >>> TopicNotFound.__module__, TopicNotFound.reason, KafkaError.reason
    ('ledgerfold.errors', 'TOPIC_NOT_FOUND', 'KAFKA')
"""

from __future__ import annotations

import copyreg
import errno
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar

from ledgerfold.storage.text import counted
from ledgerfold.version import __version__

_PUBLIC = "ledgerfold.errors"


class LedgerfoldError(Exception):
    """The base class. `reason` is stable and for machines; the message is for people."""

    __module__ = _PUBLIC
    reason: ClassVar[str] = "INTERNAL"
    retryable: ClassVar[bool] = False
    # True if the error came over the wire; else this process raised it.
    from_broker: bool = False

    def __init_subclass__(cls) -> None:
        """Gives the classes of this module their reasons, and the name of the public module."""
        if cls.__module__ != __name__:
            return
        cls.__module__ = _PUBLIC
        if "reason" not in cls.__dict__:
            words = re.findall("[A-Z][a-z]*", cls.__name__.removesuffix("Error"))
            cls.reason = "_".join(words).upper()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the message and the attributes: the constructors take other arguments."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]

    @property
    def message(self) -> str:
        return str(self)


class RequestError(LedgerfoldError):
    """The request cannot be served as it is; the same request will fail again."""


class InvalidRequest(RequestError):
    """A malformed name, frame, policy or position."""


class UnknownStrategy(InvalidRequest):
    """A strategy that the worker does not have. `version`: 0 if the broker does not have it either,
    else their builds differ.
    """

    def __init__(self, name: str, version: int, known: Mapping[str, int]) -> None:
        listed = ", ".join(f"{each!r} version {number}" for each, number in known.items())
        requested = f"{name!r} version {version}" if version else repr(name)
        advice = (
            "Use a compactor of the broker's version."
            if version
            else "Use one of these, or a user-defined one, installed where the compactor runs."
        )
        super().__init__(f"This compactor has no strategy {requested}. It has: {listed}. {advice}")
        self.name, self.version, self.known = name, version, known


class InvalidStrategy(InvalidRequest):
    """A user-defined strategy that cannot be used. `why` is a sentence without its full stop."""

    def __init__(self, strategy: str, why: str) -> None:
        super().__init__(f"Strategy {strategy!r} cannot be used: {why}.")
        self.strategy, self.why = strategy, why


class StrategyNotAllowed(InvalidStrategy):
    """A strategy whose code no operator has allowed (ledgerfold/strategies/allowed.py)."""


class MessageTooLarge(InvalidRequest):
    def __init__(self, size_bytes: int, messages: int, after_rebuild: int, most_bytes: int) -> None:
        what = "A message" if messages == 1 else f"A batch of {messages} messages"
        more = "" if messages == 1 else f", up to {after_rebuild} after a compaction removes some"
        super().__init__(
            f"{what} needs an entry of {size_bytes} bytes{more}. The broker accepts up to "
            f"{most_bytes}: its --max-message-size plus 10 KiB for keys and properties. Send "
            "smaller messages or batches, or raise --max-message-size."
        )


class WrongChecksum(InvalidRequest):
    """A message that was damaged between its client and the broker. Nothing was stored."""


class LimitExceeded(InvalidRequest):
    """A number above a limit of the formats (docs/FORMATS.md, "Limits"). Nothing was written.

    `remedy`: sentences that say what to do.
    """

    def __init__(self, what: str, number: int, most: int, remedy: str) -> None:
        super().__init__(f"{what}: {number:,}; the limit is {most:,}. {remedy}")
        self.what, self.number, self.most, self.remedy = what, number, most, remedy


class InvalidSchema(InvalidRequest):
    """A definition that is invalid for its type, or too complex. `why`: with its full stop."""

    def __init__(self, type_: str, why: str) -> None:
        super().__init__(f"Invalid schema definition data for {type_} schema: {why}")
        self.type, self.why = type_, why


class InvalidUrl(InvalidRequest):
    """A string that is not the address of a broker."""


class TopicNotFound(RequestError):
    def __init__(self, topic: str, why: str = "Create it, or publish to it, first.") -> None:
        super().__init__(f"Topic {topic} does not exist. {why}")
        self.topic = topic


class TopicIsPartitioned(TopicNotFound):
    """A partitioned topic, named where one of its partitions is needed."""

    def __init__(self, topic: str, partitions: int) -> None:
        RequestError.__init__(
            self,
            f"Topic {topic} has {counted(partitions, 'partition')} and no data of its own. Name a "
            f"partition, for example {topic}-partition-0; `topics partitioned-stats` adds up all.",
        )
        self.topic, self.partitions = topic, partitions


class TopicExists(RequestError):
    def __init__(self, topic: str) -> None:
        super().__init__(f"Topic {topic} already exists.")
        self.topic = topic


class TenantNotFound(RequestError):
    def __init__(self, tenant: str) -> None:
        super().__init__(f"Tenant {tenant!r} does not exist. Create it first.")


class TenantExists(RequestError):
    def __init__(self, tenant: str) -> None:
        super().__init__(f"Tenant {tenant!r} already exists.")


class NamespaceNotFound(RequestError):
    def __init__(self, namespace: str) -> None:
        super().__init__(f"Namespace {namespace!r} does not exist. Create it first.")


class NamespaceExists(RequestError):
    def __init__(self, namespace: str) -> None:
        super().__init__(f"Namespace {namespace!r} already exists.")


class SnapshotNotFound(RequestError):
    def __init__(self, name: str) -> None:
        super().__init__(f"Snapshot {name!r} does not exist.")


class SnapshotExists(RequestError):
    def __init__(self, name: str) -> None:
        super().__init__(f"Snapshot {name!r} already exists. Delete it, or choose another name.")


class FaultNotFound(RequestError):
    def __init__(self, id_: int) -> None:
        super().__init__(f"There is no fault {id_}: `ledgerfold faults list` shows all.")


class MessageNotFound(RequestError):
    """A message that its topic does not hold, or no longer. `what`: the words for it."""

    def __init__(self, topic: str, what: str) -> None:
        super().__init__(f"Topic {topic} has no {what}.")
        self.topic = topic


class TopicBusy(RequestError):
    def __init__(self, topic: str, producers: int, consumers: int) -> None:
        super().__init__(
            f"Topic {topic} has {counted(producers, 'connected producer')} and "
            f"{counted(consumers, 'consumer or reader', 'consumers or readers')}. Close them, or "
            "force the deletion."
        )
        self.topic, self.producers, self.consumers = topic, producers, consumers


class TopicTerminated(RequestError):
    def __init__(self, topic: str) -> None:
        super().__init__(f"Topic {topic} is terminated and accepts no more messages.")
        self.topic = topic


class SubscriptionNotFound(RequestError):
    def __init__(self, topic: str, subscription: str) -> None:
        super().__init__(f"Topic {topic} has no subscription {subscription!r}.")
        self.topic, self.subscription = topic, subscription


class SubscriptionExists(RequestError):
    def __init__(self, topic: str, subscription: str) -> None:
        super().__init__(f"Topic {topic} already has a subscription {subscription!r}.")
        self.topic, self.subscription = topic, subscription


class SubscriptionBusy(RequestError):
    """A conflict with another consumer of the subscription, which must be closed first."""

    def __init__(self, topic: str, subscription: str, why: str) -> None:
        super().__init__(f"Subscription {subscription!r} of {topic}: {why}")
        self.topic, self.subscription = topic, subscription


class InvalidHashRanges(RequestError):
    """Hash ranges of a Key_Shared consumer that are not valid, or that another consumer has."""


class NothingExpired(RequestError):
    """An expiry request without effect, which is reported as an error. Pulsar's HTTP 409."""

    def __init__(
        self,
        topic: str,
        subscription: str,
        why: str = "it has no backlog, or has nearly caught up",
    ) -> None:
        super().__init__(
            f"No message of subscription {subscription!r} of {topic} was expired: {why}."
        )
        self.topic, self.subscription = topic, subscription


class SchemaNotFound(RequestError):
    def __init__(self, topic: str, version: int | None = None) -> None:
        what = "no schema" if version is None else f"no version {version} of a schema"
        super().__init__(f"{topic} has {what}. A producer, consumer or administrator adds one.")
        self.topic, self.version = topic, version


class IncompatibleSchema(RequestError):
    """A schema that the topic does not accept. `why`: with its full stop."""

    def __init__(self, topic: str, why: str) -> None:
        super().__init__(f"{topic} does not accept the schema: {why}")
        self.topic, self.why = topic, why


class NotAllowed(RequestError):
    """A request that the state, or the kind, of its subject excludes."""


class ProducerBusy(RequestError):
    def __init__(self, topic: str, producer: str, why: str | None = None) -> None:
        super().__init__(
            f"Topic {topic} accepts no producer: {why}"
            if why is not None
            else f"A producer named {producer!r} is already connected to {topic}. Close it, or use "
            "another name."
        )
        self.topic, self.producer = topic, producer


class ProducerFenced(RequestError):
    """A producer without access, because another one has it exclusively, or had it meanwhile."""

    def __init__(self, topic: str, why: str) -> None:
        super().__init__(f"The producer has no access to {topic}: {why} Create a new producer.")
        self.topic, self.why = topic, why


class BacklogQuotaExceeded(RequestError):
    """A producer of a topic whose backlog is too large. Its messages fail."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"The backlog of {topic} exceeds its quota. Consume its messages, skip them, or raise "
            "the quota."
        )
        self.topic = topic


class ProducerBlocked(BacklogQuotaExceeded):
    """A producer of a topic whose backlog is too large. It waits."""

    retryable = True


class AuthenticationFailed(RequestError):
    """The client has not proved who it is."""


class AuthorizationFailed(RequestError):
    """The client's role has no permission for the request."""


class AddressInUse(RequestError):
    def __init__(self, address: str, option: str) -> None:
        super().__init__(
            f"Another process listens on {address}. Stop it, or choose another port with {option}."
        )


class CompactionRunning(RequestError):
    """A request for a run while another run of the topic is in progress. Pulsar's HTTP 409."""

    def __init__(self, topic: str, run_number: int) -> None:
        super().__init__(
            f"Compaction run {run_number} of {topic} is in progress. Wait for it, or cancel it."
        )
        self.topic, self.run_number = topic, run_number


class KafkaErrorKind(Enum):
    """An error of Kafka's protocol: its code, and the class that Kafka's client raises."""

    __module__ = _PUBLIC

    OFFSET_OUT_OF_RANGE = (1, "OffsetOutOfRangeException")
    CORRUPT_MESSAGE = (2, "CorruptRecordException")
    MESSAGE_TOO_LARGE = (10, "RecordTooLargeException")
    INVALID_TOPIC_EXCEPTION = (17, "InvalidTopicException")
    RECORD_LIST_TOO_LARGE = (18, "RecordBatchTooLargeException")
    INVALID_TIMESTAMP = (32, "InvalidTimestampException")
    INVALID_CONFIG = (40, "InvalidConfigurationException")
    INVALID_REQUEST = (42, "InvalidRequestException")
    UNSUPPORTED_FOR_MESSAGE_FORMAT = (43, "UnsupportedForMessageFormatException")
    POLICY_VIOLATION = (44, "PolicyViolationException")
    OUT_OF_ORDER_SEQUENCE_NUMBER = (45, "OutOfOrderSequenceException")
    DUPLICATE_SEQUENCE_NUMBER = (46, "DuplicateSequenceException")
    INVALID_PRODUCER_EPOCH = (47, "InvalidProducerEpochException")
    INVALID_TXN_STATE = (48, "InvalidTxnStateException")
    TRANSACTION_COORDINATOR_FENCED = (52, "TransactionCoordinatorFencedException")
    UNKNOWN_PRODUCER_ID = (59, "UnknownProducerIdException")
    UNSUPPORTED_COMPRESSION_TYPE = (76, "UnsupportedCompressionTypeException")
    INVALID_RECORD = (87, "InvalidRecordException")

    def __init__(self, code: int, class_name: str) -> None:
        self.code, self.class_name = code, class_name


class KafkaError(RequestError):
    """A request that Kafka rejects. `kafka_code` and `kafka_class` identify the error.

    >>> error = KafkaError(KafkaErrorKind.INVALID_RECORD, "One or more records have been rejected")
    >>> error.kafka_code, error.kafka_class, error.kind.name
    (87, 'InvalidRecordException', 'INVALID_RECORD')
    """

    def __init__(self, kind: KafkaErrorKind, message: str) -> None:
        super().__init__(message)
        self.kafka_code, self.kafka_class = kind.code, kind.class_name

    @property
    def kind(self) -> KafkaErrorKind | None:
        """The kind; None for an error of a newer broker that is unknown here."""
        return next((kind for kind in KafkaErrorKind if kind.code == self.kafka_code), None)


class RecordsRefused(KafkaError):
    """A rejected batch, of which nothing was appended. `records`: index and reason of the first
    three.

    `keyless`: how many of its records lack a key. Neither is sent over the wire; the message
    describes them.
    """

    reason = "KAFKA_RECORDS"
    records: tuple[tuple[int, str], ...] = ()
    keyless = 0

    def __init__(
        self,
        kind: KafkaErrorKind,
        message: str,
        records: Sequence[tuple[int, str]],
        keyless: int,
    ) -> None:
        super().__init__(kind, message)
        self.records, self.keyless = tuple(records), keyless


class StorageError(LedgerfoldError):
    """An error of the disk or of the data."""


_REPAIR_ADVICE = (
    "Stop the broker; then `ledgerfold verify DATA` lists all damage, and `ledgerfold repair DATA` "
    "shows what can be kept."
)


class Corruption(StorageError):
    """Damaged data. Nothing was repaired or skipped. `fact` is the message without advice.

    `path` names a file or a record; without a slash, data that came over the wire.
    """

    reason = "DATA_CORRUPT"

    def __init__(self, path: str, offset: int, expected: str, found: str) -> None:
        self.fact = f"{path} is damaged at byte {offset}: expected {expected}, found {found}."
        super().__init__(f"{self.fact} {_REPAIR_ADVICE}" if "/" in path else self.fact)
        self.path, self.offset, self.expected, self.found = path, offset, expected, found


class IncompatibleFormat(StorageError):
    def __init__(self, what: str, version: int, supported: str) -> None:
        super().__init__(
            f"{what} has format version {version}; this build reads {supported}. Use a newer build."
        )
        self.what, self.version = what, version


class UnknownFeatures(IncompatibleFormat):
    """A data directory of a later build. `features`: the unknown ones."""

    def __init__(self, features: Sequence[str]) -> None:
        listed = ", ".join(map(repr, features))
        StorageError.__init__(
            self,
            f"The data directory uses {listed}, which ledgerfold {__version__} does not know. Use "
            "a newer build.",
        )
        self.features = tuple(features)


class MetadataLost(StorageError):
    """Records of a topic that are missing while its entries exist. The topic is not served."""

    def __init__(self, topic: str, ledger_ids: Sequence[int]) -> None:
        folders = ", ".join(f"ledgers/{each}" for each in ledger_ids)
        super().__init__(
            f"The metadata have lost records of {topic}: no record names the files in {folders} of "
            f"the data directory. The topic cannot be read or written until its records are "
            f"restored. {_REPAIR_ADVICE}"
        )
        self.topic, self.ledger_ids = topic, tuple(ledger_ids)


class MissingFile(StorageError):
    """A missing or truncated file. `fact` is the message without advice."""

    reason = "DATA_MISSING"

    def __init__(self, path: str, named_by: str) -> None:
        self.fact = f"{path}, which {named_by} names, is missing or not of the recorded size."
        super().__init__(f"{self.fact} {_REPAIR_ADVICE}")
        self.path, self.named_by = path, named_by


class CompactedLedgerDamaged(StorageError):
    """Damage of a compacted ledger. Affects only read-compacted subscriptions and readers."""

    def __init__(self, topic: str, ledger_id: int, cause: StorageError) -> None:
        fact = getattr(cause, "fact", cause)
        super().__init__(
            f"The compacted ledger {ledger_id} of {topic} cannot be read: {fact} {_REPAIR_ADVICE} "
            "Or restore its files and unload the topic. Or discard it: unload the topic, delete "
            "the subscription __compaction, then compact the remaining raw data."
        )
        self.topic, self.ledger_id, self.cause = topic, ledger_id, cause


_FULL = (errno.ENOSPC, errno.EDQUOT)


class DiskFailure(StorageError):
    """A write or sync that failed. Unacknowledged data may be lost; the file is no longer used."""

    # False if the data cannot be found after a crash. (Not sent over the wire.)
    may_be_durable: bool = True
    # The file system has no room; what failed may succeed when space is freed.
    is_full: bool = False
    # The process has no file descriptor left. (Not sent over the wire.)
    is_short_of_descriptors: bool = False

    def __init__(
        self, path: str, operation: str, cause: OSError, *, may_be_durable: bool = True
    ) -> None:
        why = cause.strerror or str(cause)
        super().__init__(f"{operation} failed on {path}: {why}. {_advice(cause.errno)}")
        self.path, self.operation, self.cause = path, operation, cause
        self.may_be_durable, self.is_full = may_be_durable, cause.errno in _FULL
        self.is_short_of_descriptors = cause.errno in (errno.EMFILE, errno.ENFILE)


def _advice(error: int | None) -> str:
    if error in _FULL:
        return "Free space on its file system, and try again."
    if error == errno.EMFILE:
        return (
            "The disk is not at fault: the process has reached its limit of open files. Raise it "
            "(ulimit -n, LimitNOFILE) and restart the process, or close connections."
        )
    if error == errno.ENFILE:
        return (
            "The disk is not at fault: the machine has reached its limit of open files. Raise "
            "fs.file-max, or stop processes that hold many."
        )
    if error == errno.EROFS:
        return (
            "Its file system is read-only: use another directory, or mount it for writing. (Linux "
            "also makes a file system read-only after errors of its disk.)"
        )
    return "Check the health of the disk."


class DirectoryLocked(StorageError):
    def __init__(
        self,
        path: str,
        owner: str,
        advice: str = "Stop that process, or use another directory.",
    ) -> None:
        super().__init__(f"{path} is in use by {owner}. {advice}")
        self.path, self.owner = path, owner


class CompactionError(LedgerfoldError):
    """An error of a run."""

    reason = LedgerfoldError.reason


class CompactionFailed(CompactionError):
    """A failed run; the old view stays in use, and a new run may succeed.

    `worker_died`: the worker ended, which may have a cause outside the run.
    """

    retryable = True
    worker_died = False

    def __init__(self, stage: str, why: str, *, worker_died: bool = False) -> None:
        super().__init__(f"Compaction failed at {stage}: {why}")
        self.stage, self.why, self.worker_died = stage, why, worker_died


class SegmentIndexFull(CompactionFailed):
    """A full segment index, where Kafka's defect is emulated. Earlier segments are in place."""

    retryable = False


class StrategyFailed(CompactionFailed):
    """A failure in a strategy's code: the same run would fail again. The old view stays in use."""

    retryable = False

    def __init__(self, name: str, at: str, why: str) -> None:
        super().__init__(f"strategy {name!r}", f"{why}, {at}")
        self.name, self.at = name, at


class CompactionCancelled(CompactionError):
    """A run that was ended on request."""


class CompactionFenced(CompactionError):
    """A run whose topic was unloaded or deleted."""

    retryable = True


class EntryTooLarge(CompactionError):
    """An entry that would exceed the limit after a run. The same run would fail again."""

    def __init__(self, path: str, position: str, size_bytes: int, most_bytes: int) -> None:
        super().__init__(
            f"Entry {position} in {path} would take {size_bytes} bytes in the compacted ledger; "
            f"the limit is {most_bytes}. Publish its messages again in smaller batches: compaction "
            "then removes all of this entry."
        )
        self.path, self.position, self.size_bytes = path, position, size_bytes


class CompactorUnavailable(CompactionError):
    """No worker: it is starting or restarting, or Java is missing."""

    retryable = True


class CompactionQueueFull(CompactionError):
    retryable = True

    def __init__(self, queued: int) -> None:
        super().__init__(
            f"{counted(queued, 'topic is', 'topics are')} already queued for compaction. Try again "
            "when some are done."
        )
        self.queued = queued


class ServiceError(LedgerfoldError):
    retryable = True


class Unavailable(ServiceError):
    """No connection, or a broker that is stopping; a retry may help."""


class Moved(ServiceError):
    """A topic that was unloaded, or a subscription that moved: connect again."""


class Timeout(ServiceError, TimeoutError):
    """A call that took longer than it may."""


class AlreadyClosed(ServiceError):
    retryable = False


class Overloaded(ServiceError):
    """A bound that was reached."""


class TooManyRequests(Overloaded):
    """More requests of one client than the broker permits it in a second."""


# `ledgerfold.errors` imports these.
globals()["__all__"] = [
    name for name, each in globals().items() if getattr(each, "__module__", "") == _PUBLIC
]
