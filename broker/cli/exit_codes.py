"""What the command line ends with.

| code | meaning |
| --- | --- |
| 0 | done; also: the reader of the output had enough of it |
| 1 | failed; also: no broker answers, or it refuses |
| 2 | usage: arguments or input that cannot be meant |
| 3 | a topic, a subscription or a file that is not there |
| 4 | timed out |
| 5 | conflict: it is there, in use, or running already |
| 6 | damaged data |
| 130 | interrupted |
"""

from __future__ import annotations

from ledgerfold.storage import errors

DONE, FAILED, USAGE, NOT_FOUND, TIMED_OUT, CONFLICT, DAMAGED = range(7)
INTERRUPTED = 130

_BY_CLASS: dict[type[BaseException], int] = {
    errors.InvalidRequest: USAGE,
    errors.TopicNotFound: NOT_FOUND,
    errors.SubscriptionNotFound: NOT_FOUND,
    FileNotFoundError: NOT_FOUND,
    errors.Timeout: TIMED_OUT,
    errors.TopicExists: CONFLICT,
    errors.TopicBusy: CONFLICT,
    errors.SubscriptionExists: CONFLICT,
    errors.SubscriptionBusy: CONFLICT,
    errors.NothingExpired: CONFLICT,
    errors.ProducerBusy: CONFLICT,
    errors.AddressInUse: CONFLICT,
    errors.CompactionRunning: CONFLICT,
    errors.DirectoryLocked: CONFLICT,
    errors.Corruption: DAMAGED,
    errors.MetadataLost: DAMAGED,
    errors.MissingFile: DAMAGED,
    errors.CompactedLedgerDamaged: DAMAGED,
    KeyboardInterrupt: INTERRUPTED,
}


def exit_code(error: BaseException) -> int:
    """That of its class, or of the nearest base that has one; FAILED when none has."""
    return next((_BY_CLASS[kind] for kind in type(error).__mro__ if kind in _BY_CLASS), FAILED)
