"""Authentication and authorization of gRPC calls (broker/security/guard.py).

A token comes as metadata `authorization: Bearer TOKEN`, a role without one from the client's
certificate. A unary call is checked after its request is parsed, a client's stream after its first
request: handlers never get a refused request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from ledgerfold.broker.common.names import COMPACTION_CURSOR
from ledgerfold.broker.common.request_rates import RequestRates, host_of
from ledgerfold.broker.rpc.stream import EOF, address_of
from ledgerfold.broker.security.guard import (
    Credentials,
    Guard,
    Target,
    Use,
    client_of,
    identity_of,
    names_in,
    proved_caller,
    target_of,
)
from ledgerfold.broker.security.needs import RPCS, Need
from ledgerfold.broker.security.tokens import Caller
from ledgerfold.rpc_texts import remember_names
from ledgerfold.storage.errors import AuthenticationFailed, LedgerfoldError, Moved
from ledgerfold.v1.kafka_pb2 import KAFKA_ORIGIN_CLIENT, KafkaAppendRequest

_HEADER, _COMMON_NAME = "authorization", "x509_common_name"


def caller_of(guard: Guard, context: Any) -> Caller:
    """Returns who calls. Raises AuthenticationFailed."""
    metadata = dict(context.invocation_metadata() or ())
    header = metadata.get(_HEADER)
    names = context.auth_context().get(_COMMON_NAME, ())
    role = names[0].decode(errors="replace") if names else None
    return guard.caller(Credentials.of_header(header if isinstance(header, str) else None, role))


def need_of(method: MethodDescriptor) -> Need:
    """Returns the permission that an rpc needs: a superuser's if the table does not list the
    rpc."""
    return RPCS.get(f"{method.containing_service.name}/{method.name}", Need.SUPERUSER)


def need_of_request(need: Need, request: Any) -> Need:
    """Returns the permission that a request needs, which may exceed its rpc's, depending on its
    fields.

    Moving or deleting `__compaction` changes the compacted view, as a compaction does. Batches of a
    leader, or of a coordinator, are not checked as a producer's are.
    """
    if getattr(request, "subscription", "") == COMPACTION_CURSOR:
        return Need.ADMIN
    if isinstance(request, KafkaAppendRequest) and (
        request.origin != KAFKA_ORIGIN_CLIENT or request.keep_segments or request.aborted
    ):
        return Need.ADMIN
    return need


class GuardedMethod:
    """One rpc. Without a guard, everything is permitted and nothing is checked.

    `rates`: limits the calls of each client.
    """

    def __init__(
        self, guard: Guard | None, method: MethodDescriptor, rates: RequestRates | None = None
    ) -> None:
        self._guard, self._method, self._need = guard, method, need_of(method)
        self._rates = rates

    def admit(self, context: Any) -> Caller | None:
        """Verifies and returns the caller, and counts the call, before the request is parsed.

        Raises AuthenticationFailed, AuthorizationFailed, TooManyRequests.
        """
        guard = self._guard
        identity = None if guard is None else identity_of(lambda: caller_of(guard, context))
        if self._rates is not None:
            self._rates.take(client_of(host_of(address_of(context)), identity))
        return proved_caller(identity)

    def check(self, caller: Caller | None, request: Any) -> None:
        """Raises AuthorizationFailed, InvalidRequest."""
        if self._guard is not None and caller is not None:
            remember_names(*names_in(request))
            self._guard.check(caller, need_of_request(self._need, request), target_of(request))

    @asynccontextmanager
    async def stream(self, context: Any) -> AsyncIterator[Any]:
        """Yields the context for a handler that reads the client's stream itself.

        A use that is not permitted any more ends the handler, with the reason.
        """
        async with self._use(context) as use:
            yield context if use is None else _Checked(context, self, use)

    @asynccontextmanager
    async def watched(self, context: Any) -> AsyncIterator[Callable[[Any], None]]:
        """Yields a check of the request of a call whose answer is a stream.

        The answer ends, with the reason, when the call is not permitted any more.
        """
        async with self._use(context) as use:
            yield lambda request: self._open(use, request)

    @asynccontextmanager
    async def _use(self, context: Any) -> AsyncIterator[Use | None]:
        caller = self.admit(context)
        if self._guard is None:
            yield None
            return
        task, reasons = asyncio.current_task(), list[LedgerfoldError]()
        assert task is not None
        assert caller is not None

        def end(error: LedgerfoldError) -> None:
            if not reasons:
                # With a new token, a client may connect again.
                is_expired = isinstance(error, AuthenticationFailed)
                reasons.append(Moved(str(error)) if is_expired else error)
                task.cancel()

        with self._guard.use(Use(caller, Need.ROLE, Target(), end)) as use:
            try:
                yield use
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
            self._open(use, request.open)

    def _open(self, use: Use | None, request: Any) -> None:
        if use is not None:
            self.check(use.caller, request)
            use.need, use.target = need_of_request(self._need, request), target_of(request)


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
