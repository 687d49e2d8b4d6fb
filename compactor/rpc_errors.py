"""How a run's error travels: a gRPC code, a sentence, and google.rpc.ErrorInfo.

As the broker does it (domain "ledgerfold", the error's stable reason); the two rooms share the wire
contract and no code.
"""

from __future__ import annotations

from typing import Any, NoReturn

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from ledgerfold.storage.errors import LedgerfoldError

_DOMAIN = "ledgerfold"
_DETAILS_KEY = "grpc-status-details-bin"
_CODES = {
    "INVALID_REQUEST": grpc.StatusCode.INVALID_ARGUMENT,
    "UNKNOWN_STRATEGY": grpc.StatusCode.INVALID_ARGUMENT,
    "DATA_CORRUPT": grpc.StatusCode.DATA_LOSS,
    "DATA_MISSING": grpc.StatusCode.DATA_LOSS,
    "INCOMPATIBLE_FORMAT": grpc.StatusCode.FAILED_PRECONDITION,
    "NOT_ALLOWED": grpc.StatusCode.PERMISSION_DENIED,
    "ENTRY_TOO_LARGE": grpc.StatusCode.FAILED_PRECONDITION,
    "COMPACTION_CANCELLED": grpc.StatusCode.CANCELLED,
    "COMPACTOR_UNAVAILABLE": grpc.StatusCode.UNAVAILABLE,
}


async def abort_with(
    context: grpc.aio.ServicerContext[Any, Any], error: LedgerfoldError
) -> NoReturn:
    """Ends the call. Reasons without a code of their own are INTERNAL."""
    code = _CODES.get(error.reason, grpc.StatusCode.INTERNAL)
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=_DOMAIN)
    for name in ("path", "offset", "stage"):
        if hasattr(error, name):
            info.metadata[name] = str(getattr(error, name))
    detail = any_pb2.Any()
    detail.Pack(info)
    status = status_pb2.Status(code=code.value[0], message=error.message, details=[detail])
    await context.abort(
        code, error.message, trailing_metadata=((_DETAILS_KEY, status.SerializeToString()),)
    )
    raise AssertionError("abort does not return")
