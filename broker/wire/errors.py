"""Errors on the wire: which gRPC code each reason has, and the way there and back.

A failed call carries its code, a sentence, and a google.rpc.ErrorInfo with domain "ledgerfold" and
the error's stable reason. The client turns that back into the class of storage/errors.py.

    >>> from ledgerfold.storage.errors import TopicNotFound
    >>> code_of(TopicNotFound("t")).name
    'NOT_FOUND'
"""

from __future__ import annotations

import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn, cast

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from ledgerfold.storage.errors import (
    LedgerfoldError,
    RequestError,
    ServiceError,
    StorageError,
    Timeout,
    Unavailable,
)

DOMAIN = "ledgerfold"
_DETAILS_KEY = "grpc-status-details-bin"
_log = logging.getLogger(__name__)

CODES: dict[str, grpc.StatusCode] = {
    "REQUEST": grpc.StatusCode.INVALID_ARGUMENT,
    "INVALID_REQUEST": grpc.StatusCode.INVALID_ARGUMENT,
    "UNKNOWN_STRATEGY": grpc.StatusCode.INVALID_ARGUMENT,
    "TOPIC_NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "TOPIC_IS_PARTITIONED": grpc.StatusCode.NOT_FOUND,
    "TOPIC_EXISTS": grpc.StatusCode.ALREADY_EXISTS,
    "TOPIC_BUSY": grpc.StatusCode.FAILED_PRECONDITION,
    "TOPIC_TERMINATED": grpc.StatusCode.FAILED_PRECONDITION,
    "SUBSCRIPTION_NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "SUBSCRIPTION_EXISTS": grpc.StatusCode.ALREADY_EXISTS,
    "NOTHING_EXPIRED": grpc.StatusCode.FAILED_PRECONDITION,
    "SUBSCRIPTION_BUSY": grpc.StatusCode.FAILED_PRECONDITION,
    "NOT_ALLOWED": grpc.StatusCode.FAILED_PRECONDITION,
    "PRODUCER_BUSY": grpc.StatusCode.ALREADY_EXISTS,
    "COMPACTION_RUNNING": grpc.StatusCode.ABORTED,
    "STORAGE": grpc.StatusCode.INTERNAL,
    "DATA_CORRUPT": grpc.StatusCode.DATA_LOSS,
    "INCOMPATIBLE_FORMAT": grpc.StatusCode.FAILED_PRECONDITION,
    "DATA_MISSING": grpc.StatusCode.DATA_LOSS,
    "COMPACTED_LEDGER_DAMAGED": grpc.StatusCode.DATA_LOSS,
    # Not RESOURCE_EXHAUSTED: clients of gRPC read that as their own fault.
    "DISK_FAILURE": grpc.StatusCode.INTERNAL,
    "DIRECTORY_LOCKED": grpc.StatusCode.FAILED_PRECONDITION,
    "COMPACTION_FAILED": grpc.StatusCode.INTERNAL,
    "COMPACTION_CANCELLED": grpc.StatusCode.CANCELLED,
    "COMPACTION_FENCED": grpc.StatusCode.ABORTED,
    "ENTRY_TOO_LARGE": grpc.StatusCode.FAILED_PRECONDITION,
    "COMPACTOR_UNAVAILABLE": grpc.StatusCode.UNAVAILABLE,
    "COMPACTION_QUEUE_FULL": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "SERVICE": grpc.StatusCode.UNAVAILABLE,
    "UNAVAILABLE": grpc.StatusCode.UNAVAILABLE,
    "MOVED": grpc.StatusCode.ABORTED,
    "TIMEOUT": grpc.StatusCode.DEADLINE_EXCEEDED,
    "ALREADY_CLOSED": grpc.StatusCode.FAILED_PRECONDITION,
    "OVERLOADED": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "INTERNAL": grpc.StatusCode.INTERNAL,
}


def code_of(error: LedgerfoldError) -> grpc.StatusCode:
    return CODES[error.reason]


def status_details(error: LedgerfoldError) -> bytes:
    """The serialized google.rpc.Status that travels in the trailing metadata."""
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN)
    for name in ("topic", "subscription", "path", "offset", "stage", "ledger_id"):
        if hasattr(error, name):
            info.metadata[name] = str(getattr(error, name))
    detail = any_pb2.Any()
    detail.Pack(info)
    status = status_pb2.Status(
        code=code_of(error).value[0], message=error.message, details=[detail]
    )
    return bytes(status.SerializeToString())


async def abort_with(
    context: grpc.aio.ServicerContext[Any, Any], error: LedgerfoldError
) -> NoReturn:
    """Ends the call with the error's code, sentence and ErrorInfo."""
    if isinstance(error, StorageError):
        _log.error("%s: %s", error.reason, error)
    await context.abort(
        code_of(error), error.message, trailing_metadata=((_DETAILS_KEY, status_details(error)),)
    )
    raise AssertionError("abort returns never")


def rpc_errors(
    handler: Callable[[Any, Any, Any], Awaitable[Any]],
) -> Callable[[Any, Any, Any], Awaitable[Any]]:
    """Decorates a servicer's method (self, request or requests, context) with error handling."""

    @functools.wraps(handler)
    async def guarded(servicer: Any, request: Any, context: Any) -> Any:
        try:
            return await handler(servicer, request, context)
        except LedgerfoldError as error:
            await abort_with(context, error)

    return guarded


def rpc_stream_errors(
    handler: Callable[[Any, Any, Any], AsyncIterator[Any]],
) -> Callable[[Any, Any, Any], AsyncIterator[Any]]:
    """The same for a method that yields its responses."""

    @functools.wraps(handler)
    async def guarded(servicer: Any, request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            async for response in handler(servicer, request, context):
                yield response
        except LedgerfoldError as error:
            await abort_with(context, error)

    return guarded


def _classes() -> dict[str, type[LedgerfoldError]]:
    """One class per reason: of those that share one, the one nearest to the root."""
    found: dict[str, type[LedgerfoldError]] = {}
    queue: list[type[LedgerfoldError]] = [LedgerfoldError]
    while queue:
        cls = queue.pop(0)
        found.setdefault(cls.reason, cls)
        queue.extend(cls.__subclasses__())
    return found


_CLASSES = _classes()
# What a code means when no ErrorInfo came along: a proxy's or gRPC's own word.
_BY_CODE: dict[grpc.StatusCode, type[LedgerfoldError]] = {
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: Timeout,
    grpc.StatusCode.CANCELLED: ServiceError,
    grpc.StatusCode.INVALID_ARGUMENT: RequestError,
    grpc.StatusCode.UNIMPLEMENTED: RequestError,
}


def _error_info(error: grpc.RpcError) -> error_details_pb2.ErrorInfo | None:
    for key, value in cast(Any, error).trailing_metadata() or ():
        if key == _DETAILS_KEY:
            status = status_pb2.Status.FromString(value)
            for detail in status.details:
                info = error_details_pb2.ErrorInfo()
                if detail.Unpack(info) and info.domain == DOMAIN:
                    return info
    return None


def error_from_rpc(error: grpc.RpcError) -> LedgerfoldError:
    """The error of storage/errors.py that a failed call stands for, with its message.

    Attributes that travelled (topic, subscription, path, offset, stage) are set, as text.
    """
    info = _error_info(error)
    if info is not None:
        cls = _CLASSES.get(info.reason, LedgerfoldError)
    else:
        cls = _BY_CODE.get(error.code(), LedgerfoldError)
    made = cls.__new__(cls, error.details() or "")
    Exception.__init__(made, error.details() or str(error.code()))
    if info is not None:
        for name, value in info.metadata.items():
            setattr(made, name, value)
    return made
