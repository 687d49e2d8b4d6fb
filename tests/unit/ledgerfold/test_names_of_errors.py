"""The errors of users, by Ledgerfold's names and by Pulsar's."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
import traceback

import pytest

import ledgerfold
from ledgerfold import errors
from ledgerfold.admin import Admin
from ledgerfold.storage import errors as tree


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


PUBLIC: list[str] = vars(errors)["__all__"]
# Every exception of the Python client of Pulsar (`pulsar.exceptions`).
PULSAR_NAMES = words(
    """
    AlreadyClosed AuthenticationError AuthorizationError BrokerMetadataError BrokerPersistenceError
    ChecksumError ConnectError ConsumerAssignError ConsumerBusy ConsumerNotFound
    ConsumerNotInitialized CryptoError CumulativeAcknowledgementNotAllowedError
    ErrorGettingAuthenticationData IncompatibleSchema Interrupted InvalidConfiguration
    InvalidMessage InvalidTopicName InvalidTxnStatusError InvalidUrl LookupError
    MemoryBufferIsFull MessageTooBig NotAllowedError NotConnected OperationNotSupported
    ProducerBlockedQuotaExceededError ProducerBlockedQuotaExceededException ProducerBusy
    ProducerFenced ProducerNotInitialized ProducerQueueIsFull PulsarException ReadError
    ServiceUnitNotReady SubscriptionNotFound Timeout TooManyLookupRequestException TopicNotFound
    TopicTerminated TransactionConflict TransactionCoordinatorNotFoundError TransactionNotFound
    UnknownError UnsupportedVersionError
    """
)
# There is nothing here that could raise them: no encryption keys, transactions,
# lookups.
WITHOUT_COUNTERPART = words(
    """
    BrokerMetadataError ConsumerNotFound
    ConsumerNotInitialized CryptoError ErrorGettingAuthenticationData Interrupted
    InvalidTxnStatusError LookupError MemoryBufferIsFull ProducerNotInitialized
    TooManyLookupRequestException TransactionConflict TransactionCoordinatorNotFoundError
    TransactionNotFound UnknownError UnsupportedVersionError
    """
)


def test_every_error_is_a_name_of_the_package() -> None:
    """The whole tree of storage/errors.py is there."""
    classes = {name: cls for name, cls in vars(tree).items() if inspect.isclass(cls)}
    ours = {name for name, cls in classes.items() if cls.__module__ == errors.__name__}
    assert ours <= set(PUBLIC)
    assert {getattr(errors, name) for name in PUBLIC} == {getattr(tree, name) for name in ours}


def test_users_see_the_public_module() -> None:
    """Tracebacks named storage.errors, from which users must not import. No test read one."""
    for name in PUBLIC:
        assert getattr(errors, name).__module__ == "ledgerfold.errors", name
    assert traceback.format_exception_only(tree.TopicNotFound("t")) == [
        "ledgerfold.errors.TopicNotFound: Topic t does not exist. Create it, or publish to it, "
        "first.\n"
    ]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_errors_can_be_pickled_and_copied(protocol: int) -> None:
    """Most could not be unpickled, so a task of a process pool that raised one broke the pool. No
    test had sent an error to another process.
    """
    for name in PUBLIC:
        cls = getattr(errors, name)
        if not issubclass(cls, BaseException):
            continue
        error = cls.__new__(cls, "what happened")
        error.topic, error.from_broker = "t", True
        error.add_note("where")
        for copied in (pickle.loads(pickle.dumps(error, protocol)), copy.copy(error)):
            assert type(copied) is cls
            assert (str(copied), vars(copied)) == (str(error), vars(error))
    too_large = tree.MessageTooLarge(9, 2, 12, 8)
    assert str(pickle.loads(pickle.dumps(too_large, protocol))) == str(too_large)


def test_every_error_name_of_pulsar_exists_or_has_no_counterpart() -> None:
    """The existing ones are also attributes of the client's module."""
    there = PULSAR_NAMES - WITHOUT_COUNTERPART
    assert PULSAR_NAMES >= WITHOUT_COUNTERPART
    assert there <= set(PUBLIC)
    assert not WITHOUT_COUNTERPART & set(PUBLIC)
    for name in there:
        assert getattr(ledgerfold, name) is getattr(errors, name)
        assert issubclass(getattr(errors, name), ledgerfold.PulsarException)


@pytest.mark.parametrize("url", ["", "http://127.0.0.1:7650", "ledgerfold://"])
@pytest.mark.parametrize("make", [ledgerfold.Client, ledgerfold.aio.Client, Admin])
def test_invalid_broker_addresses(make: type, url: str) -> None:
    """They are refused without a connection."""
    with pytest.raises(ledgerfold.InvalidUrl) as caught:
        make(url)
    assert isinstance(caught.value, errors.InvalidRequest)
    assert not caught.value.from_broker
