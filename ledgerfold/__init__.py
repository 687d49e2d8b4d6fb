"""Ledgerfold: a broker on one machine that compacts topics as Apache Pulsar does.

It has the names of Pulsar's Python client:

    >>> import ledgerfold
    >>> with ledgerfold.Client("127.0.0.1:7650") as client:
    ...     producer = client.create_producer("prices")
    ...     message_id = producer.send(b"10", partition_key="p3")
    ...     consumer = client.subscribe("prices", "audit")
    ...     try:
    ...         message = consumer.receive(timeout_millis=100)
    ...     except ledgerfold.Timeout:
    ...         print("Nothing new.")
    Nothing new.

`ledgerfold.aio` is the asyncio client, `ledgerfold.admin` the administration, `ledgerfold.errors`
has every error, and `ledgerfold.testing` a broker for tests. docs/API.md is their manual; all other
modules of this package may change in any version.

The client is loaded on first use: broker, storage and Spark's workers import this module, too.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ledgerfold import errors as errors
from ledgerfold.client_names import CLIENT_NAMES
from ledgerfold.errors import AlreadyClosed as AlreadyClosed
from ledgerfold.errors import AuthenticationError as AuthenticationError
from ledgerfold.errors import AuthorizationError as AuthorizationError
from ledgerfold.errors import BrokerPersistenceError as BrokerPersistenceError
from ledgerfold.errors import ChecksumError as ChecksumError
from ledgerfold.errors import ConnectError as ConnectError
from ledgerfold.errors import ConsumerAssignError as ConsumerAssignError
from ledgerfold.errors import ConsumerBusy as ConsumerBusy
from ledgerfold.errors import (
    CumulativeAcknowledgementNotAllowedError as CumulativeAcknowledgementNotAllowedError,
)
from ledgerfold.errors import IncompatibleSchema as IncompatibleSchema
from ledgerfold.errors import InvalidConfiguration as InvalidConfiguration
from ledgerfold.errors import InvalidMessage as InvalidMessage
from ledgerfold.errors import InvalidTopicName as InvalidTopicName
from ledgerfold.errors import InvalidUrl as InvalidUrl
from ledgerfold.errors import LedgerfoldError as LedgerfoldError
from ledgerfold.errors import MessageTooBig as MessageTooBig
from ledgerfold.errors import NotAllowedError as NotAllowedError
from ledgerfold.errors import NotConnected as NotConnected
from ledgerfold.errors import OperationNotSupported as OperationNotSupported
from ledgerfold.errors import ProducerBlockedQuotaExceededError as ProducerBlockedQuotaExceededError
from ledgerfold.errors import (
    ProducerBlockedQuotaExceededException as ProducerBlockedQuotaExceededException,
)
from ledgerfold.errors import ProducerBusy as ProducerBusy
from ledgerfold.errors import ProducerFenced as ProducerFenced
from ledgerfold.errors import ProducerQueueIsFull as ProducerQueueIsFull
from ledgerfold.errors import PulsarException as PulsarException
from ledgerfold.errors import ReadError as ReadError
from ledgerfold.errors import ServiceUnitNotReady as ServiceUnitNotReady
from ledgerfold.errors import SubscriptionNotFound as SubscriptionNotFound
from ledgerfold.errors import Timeout as Timeout
from ledgerfold.errors import TopicNotFound as TopicNotFound
from ledgerfold.errors import TopicTerminated as TopicTerminated
from ledgerfold.version import __version__ as __version__

if TYPE_CHECKING:
    from ledgerfold import admin as admin
    from ledgerfold import aio as aio
    from ledgerfold import schema as schema
    from ledgerfold import testing as testing
    from ledgerfold.broker.client import *

_MODULES = ("admin", "aio", "schema", "testing")
_ERRORS = [name for name, value in globals().items() if isinstance(value, type)]
globals()["__all__"] = sorted([*_ERRORS, *_MODULES, *CLIENT_NAMES, "__version__", "errors"])


if not TYPE_CHECKING:
    # A type checker would accept every name.
    def __getattr__(name: str) -> object:
        if name in _MODULES:
            return import_module(f"{__name__}.{name}")
        if name not in CLIENT_NAMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module("ledgerfold.broker.client"), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *CLIENT_NAMES})
