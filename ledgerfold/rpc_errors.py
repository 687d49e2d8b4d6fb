"""Errors over gRPC, in both directions: a status code per reason, a message, and a
google.rpc.ErrorInfo.

A failed call ends with a google.rpc.Status, as grpcio-status carries it, whose one detail is an
ErrorInfo with domain "ledgerfold", the error's stable reason and its attributes
(storage/error_codec.py). The caller converts it back to the class of storage/errors.py. Texts of
the request that the error quotes are cut (ledgerfold/rpc_texts.py).

    async with abort_on_error(context):     # in a handler
        ...
    except grpc.RpcError as error:          # in the caller
        raise error_from_rpc(error) from None

Any other exception is a bug: its call ends with INTERNAL and a message, and the traceback is
logged.

The module is in `ledgerfold` itself, because the broker and the compactor both use it, neither may
import the other, and storage, which both import, does not depend on gRPC.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NoReturn, cast

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from ledgerfold.rpc_texts import cut_arguments
from ledgerfold.storage.error_codec import decode_error, encode_error
from ledgerfold.storage.errors import (
    LedgerfoldError,
    RequestError,
    ServiceError,
    StorageError,
    Timeout,
    Unavailable,
)
from ledgerfold.version import __version__

DOMAIN = "ledgerfold"
_log = logging.getLogger(__name__)

CODES: dict[str, grpc.StatusCode] = {
    "REQUEST": grpc.StatusCode.INVALID_ARGUMENT,
    "INVALID_REQUEST": grpc.StatusCode.INVALID_ARGUMENT,
    "INVALID_URL": grpc.StatusCode.INVALID_ARGUMENT,
    "MESSAGE_TOO_LARGE": grpc.StatusCode.INVALID_ARGUMENT,
    "LIMIT_EXCEEDED": grpc.StatusCode.FAILED_PRECONDITION,
    "WRONG_CHECKSUM": grpc.StatusCode.DATA_LOSS,
    "UNKNOWN_STRATEGY": grpc.StatusCode.INVALID_ARGUMENT,
    "INVALID_STRATEGY": grpc.StatusCode.INVALID_ARGUMENT,
    "STRATEGY_NOT_ALLOWED": grpc.StatusCode.FAILED_PRECONDITION,
    "TOPIC_NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "TOPIC_IS_PARTITIONED": grpc.StatusCode.NOT_FOUND,
    "TOPIC_EXISTS": grpc.StatusCode.ALREADY_EXISTS,
    "TENANT_NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "TENANT_EXISTS": grpc.StatusCode.ALREADY_EXISTS,
    "NAMESPACE_NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "NAMESPACE_EXISTS": grpc.StatusCode.ALREADY_EXISTS,
    "SNAPSHOT_NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "FAULT_NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "MESSAGE_NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "SNAPSHOT_EXISTS": grpc.StatusCode.ALREADY_EXISTS,
    "TOPIC_BUSY": grpc.StatusCode.FAILED_PRECONDITION,
    "TOPIC_TERMINATED": grpc.StatusCode.FAILED_PRECONDITION,
    "SUBSCRIPTION_NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "SUBSCRIPTION_EXISTS": grpc.StatusCode.ALREADY_EXISTS,
    "INVALID_HASH_RANGES": grpc.StatusCode.INVALID_ARGUMENT,
    "NOTHING_EXPIRED": grpc.StatusCode.FAILED_PRECONDITION,
    "SUBSCRIPTION_BUSY": grpc.StatusCode.FAILED_PRECONDITION,
    "INVALID_SCHEMA": grpc.StatusCode.INVALID_ARGUMENT,
    "SCHEMA_NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "INCOMPATIBLE_SCHEMA": grpc.StatusCode.FAILED_PRECONDITION,
    "NOT_ALLOWED": grpc.StatusCode.FAILED_PRECONDITION,
    "PRODUCER_BUSY": grpc.StatusCode.ALREADY_EXISTS,
    "PRODUCER_FENCED": grpc.StatusCode.FAILED_PRECONDITION,
    "BACKLOG_QUOTA_EXCEEDED": grpc.StatusCode.FAILED_PRECONDITION,
    "PRODUCER_BLOCKED": grpc.StatusCode.FAILED_PRECONDITION,
    "KAFKA": grpc.StatusCode.FAILED_PRECONDITION,
    "KAFKA_RECORDS": grpc.StatusCode.FAILED_PRECONDITION,
    "COMPACTION_RUNNING": grpc.StatusCode.ABORTED,
    "AUTHENTICATION_FAILED": grpc.StatusCode.UNAUTHENTICATED,
    "AUTHORIZATION_FAILED": grpc.StatusCode.PERMISSION_DENIED,
    "STORAGE": grpc.StatusCode.INTERNAL,
    "DATA_CORRUPT": grpc.StatusCode.DATA_LOSS,
    "INCOMPATIBLE_FORMAT": grpc.StatusCode.FAILED_PRECONDITION,
    "UNKNOWN_FEATURES": grpc.StatusCode.FAILED_PRECONDITION,
    "METADATA_LOST": grpc.StatusCode.DATA_LOSS,
    "DATA_MISSING": grpc.StatusCode.DATA_LOSS,
    "COMPACTED_LEDGER_DAMAGED": grpc.StatusCode.DATA_LOSS,
    # Not RESOURCE_EXHAUSTED: gRPC clients treat that as their own fault.
    "DISK_FAILURE": grpc.StatusCode.INTERNAL,
    "DIRECTORY_LOCKED": grpc.StatusCode.FAILED_PRECONDITION,
    "ADDRESS_IN_USE": grpc.StatusCode.FAILED_PRECONDITION,
    "COMPACTION_FAILED": grpc.StatusCode.INTERNAL,
    "SEGMENT_INDEX_FULL": grpc.StatusCode.INTERNAL,
    "STRATEGY_FAILED": grpc.StatusCode.INTERNAL,
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
    "TOO_MANY_REQUESTS": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "INTERNAL": grpc.StatusCode.INTERNAL,
}
_OTHER_PROTOCOL = (
    "Something answers there, but not in this protocol. Is it the port of --listen, and not of "
    "Pulsar's protocol, of the admin API or of another program?"
)
# The class for a code without an ErrorInfo, set by a proxy or by gRPC itself.
_BY_CODE: dict[grpc.StatusCode, type[LedgerfoldError]] = {
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: Timeout,
    grpc.StatusCode.CANCELLED: ServiceError,
    grpc.StatusCode.INVALID_ARGUMENT: RequestError,
    grpc.StatusCode.UNIMPLEMENTED: RequestError,
}


@asynccontextmanager
async def abort_on_error(context: Any) -> AsyncIterator[None]:
    """Ends the call with the error raised in the block."""
    try:
        yield
    except LedgerfoldError as error:
        await abort_with(context, error)
    except grpc.aio.BaseError:
        # An error of gRPC itself: the call is over.
        raise
    except Exception as error:
        _log.exception("A call failed with an internal error")
        what = f"Internal error: {type(error).__name__}; the server's log has the traceback."
        await abort_with(context, LedgerfoldError(what))


async def abort_with(
    context: Any, error: LedgerfoldError, code: grpc.StatusCode | None = None
) -> NoReturn:
    """Ends the call with the error. `code`: overrides the code of the error's reason."""
    if isinstance(error, StorageError):
        _log.error("%s: %s", error.reason, error)
    await context.abort_with_status(_status(error, code or CODES[error.reason]))
    raise AssertionError("abort does not return")


def _status(error: LedgerfoldError, code: grpc.StatusCode) -> grpc.Status:
    reason, message, attributes = encode_error(error, cut_arguments)
    detail = any_pb2.Any()
    detail.Pack(error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN, metadata=attributes))
    status = status_pb2.Status(code=code.value[0], message=message, details=[detail])
    return rpc_status.to_status(status)


def error_from_rpc(error: grpc.RpcError) -> LedgerfoldError:
    """Returns the error of storage/errors.py for a failed call, with its message."""
    call = cast(Any, error)
    message = call.details() or str(call.code())
    info = _error_info(call)
    if info is None:
        if call.code() == grpc.StatusCode.UNIMPLEMENTED:
            message = (
                "The broker does not have this call. Its version is probably older than the "
                f"client's, {__version__}: restart it with that version, or use a client of its "
                "version."
            )
        elif "Failed parsing HTTP/2" in message:
            message += f". {_OTHER_PROTOCOL}"
        return _BY_CODE.get(call.code(), LedgerfoldError)(message)
    return decode_error(info.reason, message, info.metadata)


def _error_info(call: Any) -> error_details_pb2.ErrorInfo | None:
    try:
        status = rpc_status.from_call(call)
    except (ValueError, DecodeError):
        # A proxy replaced the broker's code or message.
        return None
    info = error_details_pb2.ErrorInfo()
    for detail in () if status is None else status.details:
        if detail.Unpack(info) and info.domain == DOMAIN:
            return info
    return None
