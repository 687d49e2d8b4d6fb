"""Errors as Pulsar's clients receive them: a number, and a sentence.

Clients act on the number. They retry general errors until their operation times out. So a final
refusal uses a number for which they raise an error at once: NOT_ALLOWED, if no other fits.

Source: the reference of the protocol, "Errors: what the client does".
"""

from __future__ import annotations

from collections.abc import Callable

from ledgerfold.broker.pulsar.frames import Content
from ledgerfold.storage.errors import (
    AuthenticationFailed,
    AuthorizationFailed,
    BacklogQuotaExceeded,
    DiskFailure,
    IncompatibleSchema,
    InvalidHashRanges,
    InvalidRequest,
    InvalidSchema,
    LedgerfoldError,
    Moved,
    Overloaded,
    ProducerBlocked,
    ProducerBusy,
    ProducerFenced,
    RequestError,
    SchemaNotFound,
    StorageError,
    SubscriptionBusy,
    SubscriptionNotFound,
    TopicIsPartitioned,
    TopicNotFound,
    TopicTerminated,
    Unavailable,
    WrongChecksum,
)
from ledgerfold.v1 import pulsar_pb2

_TEXT_CHARACTERS_MAX = 2000


class NoSubscriptionName(InvalidRequest):
    """An empty name of a subscription. As in Pulsar, its number is that of a busy producer, which
    the C++ client raises as an invalid configuration.
    """


# The first class that matches.
_NUMBERS: tuple[tuple[type[LedgerfoldError], int], ...] = (
    (WrongChecksum, pulsar_pb2.CHECKSUM_ERROR),
    (TopicIsPartitioned, pulsar_pb2.NOT_ALLOWED),
    (TopicNotFound, pulsar_pb2.TOPIC_NOT_FOUND),
    (SchemaNotFound, pulsar_pb2.TOPIC_NOT_FOUND),
    (IncompatibleSchema, pulsar_pb2.INCOMPATIBLE_SCHEMA),
    (InvalidSchema, pulsar_pb2.INCOMPATIBLE_SCHEMA),
    (TopicTerminated, pulsar_pb2.TOPIC_TERMINATED),
    (SubscriptionNotFound, pulsar_pb2.SUBSCRIPTION_NOT_FOUND),
    (SubscriptionBusy, pulsar_pb2.CONSUMER_BUSY),
    (InvalidHashRanges, pulsar_pb2.CONSUMER_ASSIGN_ERROR),
    (ProducerBlocked, pulsar_pb2.PRODUCER_BLOCKED),
    (BacklogQuotaExceeded, pulsar_pb2.PRODUCER_BLOCKED_QUOTA_EXCEEDED),
    (ProducerBusy, pulsar_pb2.PRODUCER_BUSY),
    (NoSubscriptionName, pulsar_pb2.PRODUCER_BUSY),
    (ProducerFenced, pulsar_pb2.PRODUCER_FENCED),
    (AuthenticationFailed, pulsar_pb2.AUTHENTICATION_ERROR),
    (AuthorizationFailed, pulsar_pb2.AUTHORIZATION_ERROR),
    (RequestError, pulsar_pb2.NOT_ALLOWED),
    (Overloaded, pulsar_pb2.TOO_MANY_REQUESTS),
    (Moved, pulsar_pb2.SERVICE_NOT_READY),
    (Unavailable, pulsar_pb2.SERVICE_NOT_READY),
    (StorageError, pulsar_pb2.PERSISTENCE_ERROR),
)


def number_of(error: LedgerfoldError) -> int:
    """Returns the number of a refused command."""
    return next((number for kind, number in _NUMBERS if isinstance(error, kind)), 0)


def text_of(error: LedgerfoldError) -> str:
    """Returns the text of an answer. It may quote a name of megabytes: the middle is omitted."""
    text, half = str(error), _TEXT_CHARACTERS_MAX // 2
    return text if len(text) <= 2 * half else f"{text[:half]} ... {text[-half:]}"


Refusal = Callable[[int, LedgerfoldError], Content]


def refusal_by(
    answer: type[Content],
    number_of: Callable[[LedgerfoldError], int] = number_of,
    **failed: int,
) -> Refusal:
    """Returns the function that answers a refused command, by its request id and the error.

    `failed`: a further field of the answer that says so.
    """
    fields = answer.DESCRIPTOR.fields_by_name
    number, text = ("error", "message") if "error" in fields else ("error_code", "error_message")

    def refused(request_id: int, error: LedgerfoldError) -> Content:
        reason = {number: number_of(error), text: text_of(error)}
        return answer(request_id=request_id, **failed, **reason)

    return refused


error_answer = refusal_by(pulsar_pb2.CommandError)


def number_for_unsubscribe(error: LedgerfoldError) -> int:
    """Returns the number of a refused UNSUBSCRIBE; Pulsar's, if others are connected."""
    is_busy = isinstance(error, SubscriptionBusy)
    return pulsar_pb2.METADATA_ERROR if is_busy else number_of(error)


def number_for_producer(error: LedgerfoldError) -> int:
    """Returns the number of a refused producer: a full disk fails its pending messages."""
    if isinstance(error, DiskFailure):
        return pulsar_pb2.PRODUCER_BLOCKED_QUOTA_EXCEEDED
    return number_of(error)


def number_for_message(error: LedgerfoldError, client_version: str) -> int:
    """Returns the number of a refused message.

    NOTE: the C++ client supports only one error of a single message. After any other error it
    reconnects and sends the message again, forever.
    """
    return pulsar_pb2.CHECKSUM_ERROR if is_cpp(client_version) else number_of(error)


def is_cpp(client_version: str) -> bool:
    """Returns whether this is the C++ client, on which the Python and Node clients are built."""
    return client_version.startswith("Pulsar-CPP")
