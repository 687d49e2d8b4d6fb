"""The exit codes of the command line.

| code | meaning |
| --- | --- |
| 0 | success, even if the reader closed the output pipe |
| 1 | failure; also if the broker does not answer or refuses the request |
| 2 | usage error: invalid arguments or invalid input, also an invalid setting or name |
| 3 | not found: a topic, a subscription, a message, a schema or a file |
| 4 | timed out |
| 5 | conflict: already exists, in use, or already running |
| 6 | damaged data |
| 130 | interrupted |
"""

from __future__ import annotations

from ledgerfold.storage import errors
from ledgerfold.storage.errors import KafkaErrorKind

DONE, FAILED, USAGE, NOT_FOUND, TIMED_OUT, CONFLICT, DAMAGED = range(7)
INTERRUPTED = 130

_BY_CLASS: dict[type[BaseException], int] = {
    errors.InvalidRequest: USAGE,
    errors.TopicNotFound: NOT_FOUND,
    errors.SubscriptionNotFound: NOT_FOUND,
    errors.SchemaNotFound: NOT_FOUND,
    FileNotFoundError: NOT_FOUND,
    errors.Timeout: TIMED_OUT,
    errors.TenantNotFound: NOT_FOUND,
    errors.NamespaceNotFound: NOT_FOUND,
    errors.SnapshotNotFound: NOT_FOUND,
    errors.FaultNotFound: NOT_FOUND,
    errors.MessageNotFound: NOT_FOUND,
    errors.SnapshotExists: CONFLICT,
    errors.TenantExists: CONFLICT,
    errors.NamespaceExists: CONFLICT,
    errors.TopicExists: CONFLICT,
    errors.TopicBusy: CONFLICT,
    errors.SubscriptionExists: CONFLICT,
    errors.SubscriptionBusy: CONFLICT,
    errors.InvalidHashRanges: USAGE,
    errors.NothingExpired: CONFLICT,
    errors.IncompatibleSchema: CONFLICT,
    errors.BacklogQuotaExceeded: CONFLICT,
    errors.ProducerBusy: CONFLICT,
    errors.ProducerFenced: CONFLICT,
    errors.AddressInUse: CONFLICT,
    errors.CompactionRunning: CONFLICT,
    errors.DirectoryLocked: CONFLICT,
    errors.Corruption: DAMAGED,
    errors.MetadataLost: DAMAGED,
    errors.MissingFile: DAMAGED,
    errors.CompactedLedgerDamaged: DAMAGED,
    KeyboardInterrupt: INTERRUPTED,
}

# The errors of Kafka that reject the input itself, in any state of the topic.
_INVALID_INPUT = (KafkaErrorKind.INVALID_CONFIG, KafkaErrorKind.INVALID_TOPIC_EXCEPTION)


def exit_code(error: BaseException) -> int:
    """Returns the code of the error's class, or of its nearest base with one; otherwise FAILED."""
    if isinstance(error, errors.KafkaError) and error.kind in _INVALID_INPUT:
        return USAGE
    return next((_BY_CLASS[kind] for kind in type(error).__mro__ if kind in _BY_CLASS), FAILED)
