"""The channel of an administration: a plain synchronous one, as unary calls need no event loop."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any, Final

import grpc
from google.protobuf.message import Message

from ledgerfold.broker.client.messages.argument_types import TIMEOUT_TYPES, check_type, check_types
from ledgerfold.broker.client.streams import forks
from ledgerfold.broker.client.streams.address import address_of
from ledgerfold.broker.client.streams.connection import methods_of
from ledgerfold.broker.client.streams.credentials import ClientCredentials, target_of
from ledgerfold.rpc_errors import error_from_rpc
from ledgerfold.storage.errors import AlreadyClosed

_OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
# The timeout that the channel was created with.
OWN_TIMEOUT: Final = -1.0


class AdminChannel:
    """A channel to the services of a broker. Thread-safe. `description` names it in errors."""

    def __init__(
        self,
        service_url: str,
        timeout_s: float,
        description: str,
        credentials: ClientCredentials | None = None,
    ) -> None:
        address_of(service_url)
        check_type(timeout_s, TIMEOUT_TYPES, "timeout_seconds")
        forks.check_may_connect()
        self._timeout_s, self._description = timeout_s, description
        self._credentials = credentials or ClientCredentials()
        target = target_of(service_url, self._credentials)
        self._channel: Any = target.channel(grpc, _OPTIONS)
        self._methods: dict[str, Any] | None = methods_of(self._channel)
        forks.channel_opened(self._channel)

    def method_of(self, request: Message) -> Any:
        """Returns the method that takes `request`. Raises AlreadyClosed."""
        methods = self._methods
        if methods is None:
            raise AlreadyClosed(f"The {self._description} is closed.")
        method = methods[request.DESCRIPTOR.full_name]
        metadata = self._credentials.metadata()
        return method if metadata is None else partial(method, metadata=metadata)

    def call(self, request: Message, timeout_s: float | None = OWN_TIMEOUT) -> Any:
        """Returns the response. Raises the broker's error. `timeout_s` None: no limit."""
        limit_s = self._timeout_s if timeout_s == OWN_TIMEOUT else timeout_s
        try:
            return self.method_of(request)(request, timeout=limit_s)
        except grpc.RpcError as error:
            raise error_from_rpc(error) from None

    def close(self) -> None:
        """Closes the channel; further calls raise AlreadyClosed. Idempotent."""
        # No reference to the channel may remain (forks.py).
        channel, self._channel, self._methods = self._channel, None, None
        if channel is not None:
            channel.close()


class Calls:
    """Calls on a channel, which other calls may share. Their arguments are checked."""

    def __init_subclass__(cls) -> None:
        for name, method in list(vars(cls).items()):
            if inspect.isfunction(method) and not name.startswith("_"):
                setattr(cls, name, check_types(method))

    def __init__(self, channel: AdminChannel) -> None:
        self._channel = channel
        self._call = channel.call
