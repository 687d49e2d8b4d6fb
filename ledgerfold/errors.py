"""The errors of Ledgerfold, under their own names and under those of Pulsar's Python client.

    >>> from ledgerfold.errors import ConsumerBusy, LedgerfoldError, SubscriptionBusy
    >>> ConsumerBusy is SubscriptionBusy, issubclass(ConsumerBusy, LedgerfoldError)
    (True, True)

All are LedgerfoldErrors. Attributes:

* `message`: a sentence that says what to do; `reason`: a stable name, for programs.
* `retryable`: whether the same call may succeed later.
* `from_broker`: True if the broker reported the error. False if the library did, before its request
  or without a response: an invalid argument, a closed object, no connection, a timeout.
* its subject, if known: `topic`, `subscription`, `path`, ...

Errors of the caller's own code are not wrapped: a TypeError stays one. An exception are errors of a
token's function, which may be called much later: they become the cause of an AuthenticationFailed.

A name of Pulsar's is an alias of the class that is raised where Pulsar raises it; several may be
aliases of the same class. `LookupError` is not among them, because it is Python's. docs/API.md has
the table.
"""

from __future__ import annotations

from ledgerfold.exports import export
from ledgerfold.storage.errors import *

PulsarException = LedgerfoldError
InvalidConfiguration = InvalidMessage = InvalidTopicName = InvalidRequest
NotAllowedError = OperationNotSupported = CumulativeAcknowledgementNotAllowedError = NotAllowed
ConsumerBusy = SubscriptionBusy
ConsumerAssignError = InvalidHashRanges
ProducerBlockedQuotaExceededError = ProducerBlocked
ProducerBlockedQuotaExceededException = BacklogQuotaExceeded
ConnectError = NotConnected = ReadError = Unavailable
ServiceUnitNotReady = Moved
AuthenticationError = AuthenticationFailed
AuthorizationError = AuthorizationFailed
ProducerQueueIsFull = Overloaded
BrokerPersistenceError = StorageError
ChecksumError = Corruption
MessageTooBig = MessageTooLarge

export(globals())
