"""The names of the client, and the modules of broker/client that have them.

`ledgerfold` and `ledgerfold.broker.client` load them on first use.
"""

from __future__ import annotations

from typing import Final

_NAMES: Final = {
    "messages.message": "Message",
    "messages.message_id": "MessageId",
    "messages.options": "BatchingType CompressionType ConsumerType HashingScheme InitialPosition "
    "KeySharedMode PartitionsRoutingMode ProducerAccessMode RegexSubscriptionMode Result",
    "messages.policies": "ConsumerBatchReceivePolicy ConsumerDeadLetterPolicy "
    "ConsumerKeySharedPolicy",
    "streams.credentials": "Authentication AuthenticationTLS AuthenticationToken",
    "sync.client": "Client",
    "sync.consumer": "Consumer",
    "sync.producer": "Producer",
    "sync.reader": "Reader",
    "sync.table_view": "TableView",
}
# The module of each name.
CLIENT_NAMES: Final = {name: module for module, names in _NAMES.items() for name in names.split()}
