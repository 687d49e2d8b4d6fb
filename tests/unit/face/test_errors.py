"""The errors that users meet, by Ledgerfold's names and by Pulsar's."""

from __future__ import annotations

import inspect
from typing import Any

import grpc
import pytest

import ledgerfold
from ledgerfold import errors
from ledgerfold.admin import Admin
from ledgerfold.rpc_errors import _status, error_from_rpc
from ledgerfold.storage import errors as tree
from ledgerfold.storage.error_codec import decode_error


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


# Every exception of the Python client of Pulsar (`pulsar.exceptions`).
PULSAR_NAMES = {
    "AlreadyClosed",
    "AuthenticationError",
    "AuthorizationError",
    "BrokerMetadataError",
    "BrokerPersistenceError",
    "ChecksumError",
    "ConnectError",
    "ConsumerAssignError",
    "ConsumerBusy",
    "ConsumerNotFound",
    "ConsumerNotInitialized",
    "CryptoError",
    "CumulativeAcknowledgementNotAllowedError",
    "ErrorGettingAuthenticationData",
    "IncompatibleSchema",
    "Interrupted",
    "InvalidConfiguration",
    "InvalidMessage",
    "InvalidTopicName",
    "InvalidTxnStatusError",
    "InvalidUrl",
    "LookupError",
    "MemoryBufferIsFull",
    "MessageTooBig",
    "NotAllowedError",
    "NotConnected",
    "OperationNotSupported",
    "ProducerBlockedQuotaExceededError",
    "ProducerBlockedQuotaExceededException",
    "ProducerBusy",
    "ProducerFenced",
    "ProducerNotInitialized",
    "ProducerQueueIsFull",
    "PulsarException",
    "ReadError",
    "ServiceUnitNotReady",
    "SubscriptionNotFound",
    "Timeout",
    "TooManyLookupRequestException",
    "TopicNotFound",
    "TopicTerminated",
    "TransactionConflict",
    "TransactionCoordinatorNotFoundError",
    "TransactionNotFound",
    "UnknownError",
    "UnsupportedVersionError",
}
# There is nothing here that could raise them: no users, keys, schemas, transactions, quotas,
# lookups.
WITHOUT_COUNTERPART = {
    "AuthenticationError",
    "AuthorizationError",
    "BrokerMetadataError",
    "ConsumerAssignError",
    "ConsumerNotFound",
    "ConsumerNotInitialized",
    "CryptoError",
    "ErrorGettingAuthenticationData",
    "IncompatibleSchema",
    "Interrupted",
    "InvalidTxnStatusError",
    "LookupError",
    "MemoryBufferIsFull",
    "ProducerBlockedQuotaExceededError",
    "ProducerBlockedQuotaExceededException",
    "ProducerFenced",
    "ProducerNotInitialized",
    "TooManyLookupRequestException",
    "TransactionConflict",
    "TransactionCoordinatorNotFoundError",
    "TransactionNotFound",
    "UnknownError",
    "UnsupportedVersionError",
}


class Failed(grpc.RpcError):
    """A call that ended with `error` as the broker sends it; None: with gRPC's own word."""

    def __init__(self, error: errors.LedgerfoldError | None) -> None:
        self.error = error

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "connection refused" if self.error is None else self.error.message

    def trailing_metadata(self) -> Any:
        return () if self.error is None else _status(self.error, self.code()).trailing_metadata


def test_nobody_needs_another_module_to_catch_an_error() -> None:
    """The whole tree of storage/errors.py is there."""
    ours = {name for name, cls in vars(tree).items() if inspect.isclass(cls)}
    assert ours <= set(errors.__all__)
    assert {getattr(errors, name) for name in errors.__all__} == {
        getattr(tree, name) for name in ours
    }


def test_every_name_of_pulsars_is_there_or_has_no_counterpart() -> None:
    """Those that are there stand beside the client as well."""
    there = PULSAR_NAMES - WITHOUT_COUNTERPART
    assert PULSAR_NAMES >= WITHOUT_COUNTERPART
    assert there <= set(errors.__all__)
    assert not WITHOUT_COUNTERPART & set(errors.__all__)
    for name in there:
        assert getattr(ledgerfold, name) is getattr(errors, name)
        assert issubclass(getattr(errors, name), ledgerfold.PulsarException)


def test_a_refusal_of_the_broker_can_be_told_apart() -> None:
    """From what the library says itself, which includes that there is no broker."""
    refused = error_from_rpc(Failed(errors.TopicNotFound("t")))
    assert isinstance(refused, ledgerfold.TopicNotFound)
    assert refused.from_broker
    assert decode_error("COMPACTION_FAILED", "no room", {}).from_broker
    away = error_from_rpc(Failed(None))
    assert isinstance(away, ledgerfold.ConnectError)
    assert not away.from_broker
    assert not errors.Timeout("no message in time").from_broker


@pytest.mark.parametrize("url", ["", "http://127.0.0.1:7650", "ledgerfold://"])
@pytest.mark.parametrize("make", [ledgerfold.Client, ledgerfold.aio.Client, Admin])
def test_what_is_no_address_of_a_broker(make: type, url: str) -> None:
    """Said before anything is connected."""
    with pytest.raises(ledgerfold.InvalidUrl) as caught:
        make(url)
    assert isinstance(caught.value, errors.InvalidRequest)
    assert not caught.value.from_broker
