"""Handlers with error handling (ledgerfold/rpc_errors.py)."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from ledgerfold.rpc_errors import errors_told_to


def rpc_errors(
    handler: Callable[[Any, Any, Any], Awaitable[Any]],
) -> Callable[[Any, Any, Any], Awaitable[Any]]:
    """Decorates a servicer's method (self, request or requests, context) with error handling."""

    @functools.wraps(handler)
    async def guarded(servicer: Any, request: Any, context: Any) -> Any:
        async with errors_told_to(context):
            return await handler(servicer, request, context)

    return guarded


def rpc_stream_errors(
    handler: Callable[[Any, Any, Any], AsyncIterator[Any]],
) -> Callable[[Any, Any, Any], AsyncIterator[Any]]:
    """The same for a method that yields its responses."""

    @functools.wraps(handler)
    async def guarded(servicer: Any, request: Any, context: Any) -> AsyncIterator[Any]:
        async with errors_told_to(context):
            async for response in handler(servicer, request, context):
                yield response

    return guarded
