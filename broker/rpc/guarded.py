"""The guard at the door of gRPC: who calls, and whether that client may (broker/security/guard.py).

A token comes as metadata `authorization: Bearer TOKEN`, a role without one from the client's
certificate. A call is checked once its request is parsed, a stream of the client's once its first
request, the opening, has come: handlers never see what is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from ledgerfold.broker.rpc.stream import EOF
from ledgerfold.broker.security.guard import Credentials, Guard, Target, Use, target_of
from ledgerfold.broker.security.needs import RPCS, Need
from ledgerfold.broker.security.tokens import Caller
from ledgerfold.storage.errors import AuthenticationFailed, LedgerfoldError, Moved

_HEADER, _COMMON_NAME = "authorization", "x509_common_name"


def caller_of(guard: Guard, context: Any) -> Caller:
    """Returns who calls. Raises AuthenticationFailed."""
    metadata = dict(context.invocation_metadata() or ())
    header = metadata.get(_HEADER)
    names = context.auth_context().get(_COMMON_NAME, ())
    role = names[0].decode(errors="replace") if names else None
    return guard.caller(Credentials.of_header(header if isinstance(header, str) else None, role))


def need_of(method: MethodDescriptor) -> Need:
    """Returns what an rpc needs: one that nobody thought of, everything."""
    return RPCS.get(f"{method.containing_service.name}/{method.name}", Need.SUPERUSER)


class GuardedMethod:
    """One rpc. Without a guard, everything is permitted and nothing looked at."""

    def __init__(self, guard: Guard | None, method: MethodDescriptor) -> None:
        self._guard, self._method, self._need = guard, method, need_of(method)

    def check_caller(self, context: Any) -> Caller | None:
        """Returns who calls, before the request is parsed. Raises AuthenticationFailed."""
        return None if self._guard is None else caller_of(self._guard, context)

    def check(self, caller: Caller | None, request: Any) -> None:
        """Raises AuthorizationFailed, InvalidRequest."""
        if self._guard is not None and caller is not None:
            self._guard.check(caller, self._need, target_of(request))

    @asynccontextmanager
    async def stream(self, context: Any) -> AsyncIterator[Any]:
        """Yields the context for a handler that reads the client's stream itself.

        A use that is not permitted any more ends the handler, with the reason.
        """
        if self._guard is None:
            yield context
            return
        task, reasons = asyncio.current_task(), list[LedgerfoldError]()
        assert task is not None

        def end(error: LedgerfoldError) -> None:
            if not reasons:
                # With a new token, a client may connect again.
                is_expired = isinstance(error, AuthenticationFailed)
                reasons.append(Moved(str(error)) if is_expired else error)
                task.cancel()

        caller = caller_of(self._guard, context)
        with self._guard.use(Use(caller, Need.ROLE, Target(), end)) as use:
            try:
                yield _Checked(context, self, use)
            except asyncio.CancelledError:
                if reasons and not task.uncancel():
                    raise reasons[0] from None
                raise

    def opening(self, use: Use, frame: bytes) -> None:
        """Checks the first request of a stream. Raises AuthorizationFailed, InvalidRequest."""
        try:
            request: Any = GetMessageClass(self._method.input_type).FromString(frame)
        except DecodeError:
            # The handler says what is wrong with it.
            return
        if request.WhichOneof("step") == "open":
            target = target_of(request.open)
            self.check(use.caller, request.open)
            use.need, use.target = self._need, target


class _Checked:
    """A context whose first request is checked before the handler gets it."""

    def __init__(self, context: Any, method: GuardedMethod, use: Use) -> None:
        self._context, self._method, self._use = context, method, use

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def read(self) -> Any:
        frame = await self._context.read()
        if frame is not EOF:
            self._method.opening(self._use, frame)
        # Further ones are about what was opened.
        vars(self)["read"] = self._context.read
        return frame
