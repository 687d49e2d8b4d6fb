"""Every error of this project, in one tree.

    LedgerfoldError
    ├── RequestError                 the caller's: change the request
    │   ├── InvalidRequest           malformed name, frame, policy, position
    │   │   ├── UnknownStrategy      a worker has no such way to compact
    │   │   ├── InvalidStrategy      one of your own cannot be loaded, or does not answer
    │   │   │   └── StrategyNotAllowed   nobody who started the broker has allowed its code
    │   │   ├── InvalidUrl           no address of a broker
    │   │   └── MessageTooLarge      it, or its batch, is more than the broker takes
    │   ├── TopicNotFound
    │   │   └── TopicIsPartitioned   its partitions hold the data: name one of them
    │   ├── TopicExists
    │   ├── TopicBusy                producers or consumers are connected
    │   ├── TopicTerminated          nothing is published to it any more
    │   ├── SubscriptionNotFound
    │   ├── SubscriptionExists
    │   ├── SubscriptionBusy         exclusive, or of another type, or being moved
    │   ├── NothingExpired           no backlog, or a consumer that has nearly caught up
    │   ├── NotAllowed               read-compacted on a shared subscription, and the like
    │   ├── ProducerBusy             that producer name is connected
    │   ├── KafkaError               what Kafka refuses, with its protocol's code and its class
    │   │   └── RecordsRefused       records of a batch, the first ones with the reason
    │   ├── AddressInUse             another process listens there
    │   └── CompactionRunning        one run per topic at a time
    ├── StorageError                 the disk's or the data's
    │   ├── Corruption               damaged data: file, offset, what was expected
    │   ├── IncompatibleFormat       written by a version this one cannot read
    │   │   └── UnknownFeatures      the directory uses what this build does not know
    │   ├── MetadataLost             entries of a topic are there, and no record names them
    │   ├── MissingFile              metadata names a file that is not there
    │   ├── CompactedLedgerDamaged   what was compacted cannot be read; there is a way back
    │   ├── DiskFailure              a write or sync failed; the file is not used any more
    │   └── DirectoryLocked          another process owns the data directory
    ├── CompactionError              a run's
    │   ├── CompactionFailed         the job or its worker failed; the old view stands
    │   │   ├── SegmentIndexFull     of a segment that a cleaning wrote; a defect of Kafka's
    │   │   └── StrategyFailed       the strategy's own code raised, or answered nonsense
    │   ├── CompactionCancelled
    │   ├── CompactionFenced         the topic was unloaded or deleted while the run was on its way
    │   ├── EntryTooLarge            what it leaves of a batch does not fit into an entry
    │   ├── CompactorUnavailable     no worker: starting, restarting, or Java is missing
    │   └── CompactionQueueFull
    └── ServiceError                 between the two ends of a connection
        ├── Unavailable              not connected, or the broker is stopping; a retry may help
        ├── Moved                    the topic was unloaded or the subscription moved: connect again
        ├── Timeout
        ├── AlreadyClosed
        └── Overloaded               a bound was reached

Each class has a `reason`, a stable name that travels in google.rpc.ErrorInfo, and `retryable`. The
attributes hold the data; the message is made of them and says what to do. The gRPC code of each
reason is in ledgerfold/rpc_errors.py. Users find all of it in `ledgerfold.errors`.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import ClassVar

from ledgerfold.storage.words import counted
from ledgerfold.version import __version__


class LedgerfoldError(Exception):
    """The root. `reason` is stable and for machines, the message is for people."""

    reason: ClassVar[str] = "INTERNAL"
    retryable: ClassVar[bool] = False
    # Whether it came over the wire; else it was raised in this process.
    from_broker: bool = False

    @property
    def message(self) -> str:
        return str(self)


class RequestError(LedgerfoldError):
    """The request cannot be served as it is; the same request will fail again."""

    reason = "REQUEST"


class InvalidRequest(RequestError):
    """Malformed: a name, a frame, a policy, a position."""

    reason = "INVALID_REQUEST"


class UnknownStrategy(InvalidRequest):
    """The broker asks for one that the worker does not know: they are of different builds."""

    reason = "UNKNOWN_STRATEGY"

    def __init__(self, name: str, version: int, known: Mapping[str, int]) -> None:
        listed = ", ".join(f"{each!r} version {number}" for each, number in known.items())
        asked = f"{name!r} version {version}" if version else repr(name)
        super().__init__(
            f"This compactor has no strategy {asked}. It has: {listed}. If the name is right, "
            "give the broker a compactor of its own version."
        )
        self.name, self.version, self.known = name, version, known


class InvalidStrategy(InvalidRequest):
    """One of the user's own. `why`: a sentence without its end."""

    reason = "INVALID_STRATEGY"

    def __init__(self, strategy: str, why: str) -> None:
        super().__init__(f"Strategy {strategy!r} cannot be used: {why}.")
        self.strategy, self.why = strategy, why


class StrategyNotAllowed(InvalidStrategy):
    """Loading it would run code that no operator has allowed (ledgerfold/strategies/allowed.py)."""

    reason = "STRATEGY_NOT_ALLOWED"


class MessageTooLarge(InvalidRequest):
    reason = "MESSAGE_TOO_LARGE"

    def __init__(self, size_bytes: int, messages: int, after_rebuild: int, most_bytes: int) -> None:
        what = "A message" if messages == 1 else f"A batch of {messages} messages"
        more = "" if messages == 1 else f", up to {after_rebuild} when a compaction takes some away"
        super().__init__(
            f"{what} makes an entry of {size_bytes} bytes{more}. The broker takes up to "
            f"{most_bytes}: what its --max-message-size says, and 10 KiB for keys and properties."
        )


class InvalidUrl(InvalidRequest):
    """Not the address of a broker."""

    reason = "INVALID_URL"


class TopicNotFound(RequestError):
    reason = "TOPIC_NOT_FOUND"

    def __init__(self, topic: str, why: str = "Create it, or publish to it, first.") -> None:
        super().__init__(f"Topic {topic} does not exist. {why}")
        self.topic = topic


class TopicIsPartitioned(TopicNotFound):
    """There are its partitions, and no topic of that very name."""

    reason = "TOPIC_IS_PARTITIONED"

    def __init__(self, topic: str, partitions: int) -> None:
        RequestError.__init__(
            self,
            f"Topic {topic} is divided into {counted(partitions, 'partition')}, and has no data "
            f"of its own. Name a partition, {topic}-partition-0 or another.",
        )
        self.topic, self.partitions = topic, partitions


class TopicExists(RequestError):
    reason = "TOPIC_EXISTS"

    def __init__(self, topic: str) -> None:
        super().__init__(f"Topic {topic} exists already.")
        self.topic = topic


class TopicBusy(RequestError):
    reason = "TOPIC_BUSY"

    def __init__(self, topic: str, producers: int, consumers: int) -> None:
        super().__init__(
            f"Topic {topic} has {counted(producers, 'connected producer')} and "
            f"{counted(consumers, 'consumer or reader', 'consumers or readers')}. Close them, or "
            "force the deletion."
        )
        self.topic, self.producers, self.consumers = topic, producers, consumers


class TopicTerminated(RequestError):
    reason = "TOPIC_TERMINATED"

    def __init__(self, topic: str) -> None:
        super().__init__(f"Topic {topic} was terminated: nothing can be published to it any more.")
        self.topic = topic


class SubscriptionNotFound(RequestError):
    reason = "SUBSCRIPTION_NOT_FOUND"

    def __init__(self, topic: str, subscription: str) -> None:
        super().__init__(f"Topic {topic} has no subscription {subscription!r}.")
        self.topic, self.subscription = topic, subscription


class SubscriptionExists(RequestError):
    reason = "SUBSCRIPTION_EXISTS"

    def __init__(self, topic: str, subscription: str) -> None:
        super().__init__(f"Topic {topic} has a subscription {subscription!r} already.")
        self.topic, self.subscription = topic, subscription


class SubscriptionBusy(RequestError):
    """Someone else's consumer stands in the way; closing it helps."""

    reason = "SUBSCRIPTION_BUSY"

    def __init__(self, topic: str, subscription: str, why: str) -> None:
        super().__init__(f"Subscription {subscription!r} of {topic}: {why}")
        self.topic, self.subscription = topic, subscription


class NothingExpired(RequestError):
    """There was nothing to do, and nobody would notice. Pulsar's HTTP 409."""

    reason = "NOTHING_EXPIRED"

    def __init__(self, topic: str, subscription: str) -> None:
        super().__init__(
            f"Subscription {subscription!r} of {topic}: nothing was expired. It has no backlog, or "
            "is nearly caught up."
        )
        self.topic, self.subscription = topic, subscription


class NotAllowed(RequestError):
    reason = "NOT_ALLOWED"


class ProducerBusy(RequestError):
    reason = "PRODUCER_BUSY"

    def __init__(self, topic: str, producer: str) -> None:
        super().__init__(
            f"A producer named {producer!r} is connected to {topic}. Close it, or use another name."
        )
        self.topic, self.producer = topic, producer


class AddressInUse(RequestError):
    reason = "ADDRESS_IN_USE"

    def __init__(self, address: str, option: str) -> None:
        super().__init__(
            f"Another process listens on {address}. Stop it, or let {option} name another port."
        )


class CompactionRunning(RequestError):
    """Pulsar's HTTP 409."""

    reason = "COMPACTION_RUNNING"

    def __init__(self, topic: str, run_number: int) -> None:
        super().__init__(
            f"Compaction run {run_number} of {topic} is on its way. Wait for it, or cancel it."
        )
        self.topic, self.run_number = topic, run_number


class KafkaErrorKind(Enum):
    """An error of Kafka's protocol: its code there, and the class that Kafka's client raises."""

    OFFSET_OUT_OF_RANGE = (1, "OffsetOutOfRangeException")
    CORRUPT_MESSAGE = (2, "CorruptRecordException")
    MESSAGE_TOO_LARGE = (10, "RecordTooLargeException")
    INVALID_TOPIC_EXCEPTION = (17, "InvalidTopicException")
    RECORD_LIST_TOO_LARGE = (18, "RecordBatchTooLargeException")
    INVALID_TIMESTAMP = (32, "InvalidTimestampException")
    INVALID_CONFIG = (40, "InvalidConfigurationException")
    INVALID_REQUEST = (42, "InvalidRequestException")
    UNSUPPORTED_FOR_MESSAGE_FORMAT = (43, "UnsupportedForMessageFormatException")
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
    """What Kafka refuses on a topic of its kind. `kafka_code` and `kafka_class` tell which error.

    >>> error = KafkaError(KafkaErrorKind.INVALID_RECORD, "One or more records have been rejected")
    >>> error.kafka_code, error.kafka_class, error.kind.name
    (87, 'InvalidRecordException', 'INVALID_RECORD')
    """

    reason = "KAFKA"

    def __init__(self, kind: KafkaErrorKind, message: str) -> None:
        super().__init__(message)
        self.kafka_code, self.kafka_class = kind.code, kind.class_name

    @property
    def kind(self) -> KafkaErrorKind | None:
        """None when a newer broker tells one that is not known here."""
        return next((kind for kind in KafkaErrorKind if kind.code == self.kafka_code), None)


class RecordsRefused(KafkaError):
    """`records`: index and reason of the first three that cannot be taken. Nothing of it was.

    `keyless`: of how many in all that is a missing key. They do not travel: the message tells.
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
    reason = "STORAGE"


_WAY_BACK = (
    "With the broker stopped, `ledgerfold verify DATA` tells all there is, and `ledgerfold repair "
    "DATA` what can be kept."
)


class Corruption(StorageError):
    """Damaged data. Nothing was repaired, nothing was skipped. `fact`: the message without advice.

    `path` is that of a file or a record; without a slash it is of what came over the wire.
    """

    reason = "DATA_CORRUPT"

    def __init__(self, path: str, offset: int, expected: str, found: str) -> None:
        self.fact = f"{path} is damaged at byte {offset}: expected {expected}, found {found}."
        super().__init__(f"{self.fact} {_WAY_BACK}" if "/" in path else self.fact)
        self.path, self.offset, self.expected, self.found = path, offset, expected, found


class IncompatibleFormat(StorageError):
    reason = "INCOMPATIBLE_FORMAT"

    def __init__(self, what: str, version: int, supported: str) -> None:
        super().__init__(
            f"{what} has format version {version}; this build reads {supported}. Use a newer build."
        )
        self.what, self.version = what, version


class UnknownFeatures(IncompatibleFormat):
    """The directory is a later build's. `features`: those of it that are unknown here."""

    reason = "UNKNOWN_FEATURES"

    def __init__(self, features: Sequence[str]) -> None:
        listed = ", ".join(map(repr, features))
        StorageError.__init__(
            self,
            f"The data directory uses {listed}, which ledgerfold {__version__} does not know. Use "
            "a newer build.",
        )
        self.features = tuple(features)


class MetadataLost(StorageError):
    """The metadata have lost records of a topic, whose entries are there: it is not served."""

    reason = "METADATA_LOST"

    def __init__(self, topic: str, ledger_ids: Sequence[int]) -> None:
        folders = ", ".join(f"ledgers/{each}" for each in ledger_ids)
        super().__init__(
            f"The metadata have lost records of {topic}: no record names what is in {folders} of "
            f"the data directory. Nothing of the topic is read or written until its records are "
            f"put back. {_WAY_BACK}"
        )
        self.topic, self.ledger_ids = topic, tuple(ledger_ids)


class MissingFile(StorageError):
    """A file, or a part of one. `fact`: the message without advice."""

    reason = "DATA_MISSING"

    def __init__(self, path: str, named_by: str) -> None:
        self.fact = f"{path}, which {named_by} names, is missing or has not the recorded size."
        super().__init__(f"{self.fact} {_WAY_BACK}")
        self.path, self.named_by = path, named_by


class CompactedLedgerDamaged(StorageError):
    """Raw reads are not concerned, nor are subscriptions without read-compacted."""

    reason = "COMPACTED_LEDGER_DAMAGED"

    def __init__(self, topic: str, ledger_id: int, cause: StorageError) -> None:
        fact = getattr(cause, "fact", cause)
        super().__init__(
            f"The compacted ledger {ledger_id} of {topic} cannot be read: {fact} {_WAY_BACK} Or "
            "restore its files and unload the topic. Or give it up at once: unload the topic, "
            "delete the subscription __compaction, then compact what raw data are left."
        )
        self.topic, self.ledger_id, self.cause = topic, ledger_id, cause


_FULL = (errno.ENOSPC, errno.EDQUOT)


class DiskFailure(StorageError):
    """A write or sync failed. What was not acknowledged may be lost; the file is left alone."""

    reason = "DISK_FAILURE"
    # Whether what was to be written may yet be found after a crash. (Does not travel.)
    may_be_durable: bool = True

    def __init__(
        self, path: str, operation: str, cause: OSError, *, may_be_durable: bool = True
    ) -> None:
        why = cause.strerror or str(cause)
        super().__init__(f"{operation} failed on {path}: {why}. {_advice(cause.errno)}")
        self.path, self.operation, self.cause = path, operation, cause
        self.may_be_durable = may_be_durable

    @property
    def is_full(self) -> bool:
        return self.cause.errno in _FULL

    @property
    def is_short_of_descriptors(self) -> bool:
        return self.cause.errno in (errno.EMFILE, errno.ENFILE)


def _advice(error: int | None) -> str:
    if error in _FULL:
        return "Free space there, and try again."
    if error == errno.EMFILE:
        return (
            "The disk is not to blame: the process may not open more files. Let it open more "
            "(ulimit -n, LimitNOFILE) and start it again, or close connections."
        )
    if error == errno.ENFILE:
        return (
            "The disk is not to blame: the machine may not open more files. Raise fs.file-max, or "
            "end what holds so many."
        )
    return "Check the health of the disk."


class DirectoryLocked(StorageError):
    reason = "DIRECTORY_LOCKED"

    def __init__(
        self,
        path: str,
        owner: str,
        advice: str = "Stop that process, or use another directory.",
    ) -> None:
        super().__init__(f"{path} is in use by {owner}. {advice}")
        self.path, self.owner = path, owner


class CompactionError(LedgerfoldError):
    """Of a run."""


class CompactionFailed(CompactionError):
    """The old view stands; a new run may succeed. `worker_died`: which may be nobody's fault."""

    reason = "COMPACTION_FAILED"
    retryable = True
    worker_died = False

    def __init__(self, stage: str, why: str, *, worker_died: bool = False) -> None:
        super().__init__(f"Compaction failed at {stage}: {why}")
        self.stage, self.why, self.worker_died = stage, why, worker_died


class SegmentIndexFull(CompactionFailed):
    """Where that defect of Kafka's is wanted: the segments before that one are in place."""

    reason = "SEGMENT_INDEX_FULL"
    retryable = False


class StrategyFailed(CompactionFailed):
    """A strategy's own code: the same run would fail again. The old view stands."""

    reason = "STRATEGY_FAILED"
    retryable = False

    def __init__(self, name: str, at: str, why: str) -> None:
        super().__init__(f"strategy {name!r}", f"{why}, {at}")
        self.name, self.at = name, at


class CompactionCancelled(CompactionError):
    reason = "COMPACTION_CANCELLED"


class CompactionFenced(CompactionError):
    reason = "COMPACTION_FENCED"
    retryable = True


class EntryTooLarge(CompactionError):
    """The same run would fail again."""

    reason = "ENTRY_TOO_LARGE"

    def __init__(self, path: str, position: str, size_bytes: int, most_bytes: int) -> None:
        super().__init__(
            f"Entry {position} in {path} would take {size_bytes} bytes in the compacted ledger; "
            f"{most_bytes} is the most. Publish its messages anew in smaller batches: compaction "
            "then keeps nothing of it."
        )
        self.path, self.position, self.size_bytes = path, position, size_bytes


class CompactorUnavailable(CompactionError):
    reason = "COMPACTOR_UNAVAILABLE"
    retryable = True


class CompactionQueueFull(CompactionError):
    reason = "COMPACTION_QUEUE_FULL"
    retryable = True

    def __init__(self, queued: int) -> None:
        super().__init__(
            f"{counted(queued, 'topic waits', 'topics wait')} for compaction already. Try again "
            "when some are done."
        )
        self.queued = queued


class ServiceError(LedgerfoldError):
    reason = "SERVICE"
    retryable = True


class Unavailable(ServiceError):
    reason = "UNAVAILABLE"


class Moved(ServiceError):
    reason = "MOVED"


class Timeout(ServiceError, TimeoutError):
    reason = "TIMEOUT"


class AlreadyClosed(ServiceError):
    reason = "ALREADY_CLOSED"
    retryable = False


class Overloaded(ServiceError):
    reason = "OVERLOADED"
