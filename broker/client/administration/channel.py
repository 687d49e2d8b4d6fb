"""The channel of an administration: a plain synchronous one, as unary calls need no event loop."""

from __future__ import annotations

from typing import Any, Final

import grpc

from ledgerfold.broker.client.streams import forks
from ledgerfold.broker.client.streams.address import address_of
from ledgerfold.rpc_errors import error_from_rpc
from ledgerfold.v1 import admin_pb2_grpc, data_pb2_grpc, kafka_pb2_grpc

_OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
# The timeout that the channel was created with.
OWN_TIMEOUT: Final = -1.0


class AdminChannel:
    """A channel and the stubs of its services. Thread-safe."""

    def __init__(self, service_url: str, timeout_s: float) -> None:
        address = address_of(service_url)
        forks.check_may_connect()
        self._timeout_s = timeout_s
        self._channel: Any = grpc.insecure_channel(address, options=_OPTIONS)
        self.admin: Any = admin_pb2_grpc.AdminServiceStub(self._channel)
        self.data: Any = data_pb2_grpc.DataServiceStub(self._channel)
        self.kafka: Any = kafka_pb2_grpc.KafkaServiceStub(self._channel)
        forks.channel_opened(self._channel)

    def call(self, method: Any, request: object, timeout_s: float | None = OWN_TIMEOUT) -> Any:
        """Makes a call, without retries. Raises the broker's error. `timeout_s` None: no limit."""
        limit_s = self._timeout_s if timeout_s == OWN_TIMEOUT else timeout_s
        try:
            return method(request, timeout=limit_s)
        except grpc.RpcError as error:
            raise error_from_rpc(error) from None

    def close(self, why: str) -> None:
        """Closes the channel; further calls raise AlreadyClosed with this text. Idempotent."""
        channel, self._channel = self._channel, None
        # No reference to the channel may remain (forks.py).
        self.admin = self.data = self.kafka = forks.Gone(why)
        if channel is not None:
            channel.close()


class Calls:
    """Calls on a channel, which other calls may share."""

    def __init__(self, channel: AdminChannel) -> None:
        self._channel = channel
        self._call = channel.call

    @property
    def _admin(self) -> Any:
        return self._channel.admin
