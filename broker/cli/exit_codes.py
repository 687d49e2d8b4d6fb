"""What the command line ends with.

| code | meaning |
| --- | --- |
| 0 | done |
| 1 | the operation failed |
| 2 | usage |
| 3 | not found |
| 4 | timed out |
| 5 | conflict, or already running |
| 6 | damaged data |
| 130 | interrupted |
"""

from __future__ import annotations

from storage import errors

DONE, FAILED, USAGE, NOT_FOUND, TIMED_OUT, CONFLICT, DAMAGED = range(7)
INTERRUPTED = 130

_BY_ERROR: tuple[tuple[type[BaseException], int], ...] = (
    (errors.InvalidRequest, USAGE),
    (errors.TopicNotFound, NOT_FOUND),
    (errors.SubscriptionNotFound, NOT_FOUND),
    (FileNotFoundError, NOT_FOUND),
    (errors.Timeout, TIMED_OUT),
    (errors.CompactionRunning, CONFLICT),
    (errors.TopicExists, CONFLICT),
    (errors.TopicBusy, CONFLICT),
    (errors.SubscriptionBusy, CONFLICT),
    (errors.ProducerBusy, CONFLICT),
    (errors.Corruption, DAMAGED),
    (errors.MissingFile, DAMAGED),
    (KeyboardInterrupt, INTERRUPTED),
)


def exit_code(error: BaseException) -> int:
    """The first row that fits; FAILED when none does."""
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), FAILED)
