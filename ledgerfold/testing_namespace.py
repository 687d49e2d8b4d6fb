"""A namespace of one test, and the broker's clock: the value of the pytest plugin's fixture.

    >>> from ledgerfold.testing import ExistingBroker
    >>> with ExistingBroker("127.0.0.1:7650") as broker, Namespace(broker, "tests/made") as made:
    ...     topic = made.topic("prices")
    ...     message_id = made.client.create_producer(topic).send(b"10")
    ...     print(made.admin.list_topics(made.name))
    ['persistent://tests/made/prices']

Its topics are deleted with it, even if clients are connected to them, and its faults are removed.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Self

from ledgerfold.broker.client import Client
from ledgerfold.errors import NotAllowed, TenantExists, TopicNotFound, Unavailable
from ledgerfold.testing_faults import AsyncFaults, Faults

if TYPE_CHECKING:
    from ledgerfold.admin import Admin
    from ledgerfold.aio import Client as AioClient
    from ledgerfold.testing_broker import ExistingBroker
    from ledgerfold.v1.admin_pb2 import GetCompactionStatusResponse


class Clock:
    """The time of a broker, which tests move forward if it has a manual clock."""

    def __init__(self, broker: ExistingBroker) -> None:
        self._broker = broker

    @property
    def now(self) -> datetime:
        """Returns the broker's time, in the machine's time zone."""
        return datetime.fromtimestamp(self._broker.admin.clock().now_ms / 1000).astimezone()

    def advance(self, by: timedelta) -> datetime:
        """Moves the manual clock forward; see ExistingBroker.advance()."""
        return self._broker.advance(by)


class Namespace:
    """A namespace that exists for the duration of a `with` block.

    `name`: "tenant/namespace"; both are created. With `keep` set to True, it stays.
    """

    def __init__(self, broker: ExistingBroker, name: str) -> None:
        self.broker, self.name = broker, name
        self.clock = Clock(broker)
        self.faults = Faults(broker, name)
        self.async_faults = AsyncFaults(self.faults)
        self.keep = False
        self._block = ExitStack()

    def __enter__(self) -> Self:
        with suppress(TenantExists):
            self.admin.create_tenant(self.name.partition("/")[0])
        self.admin.create_namespace(self.name)
        return self

    def __exit__(self, *exc_info: object) -> None:
        # First: the end must neither wait for a delay nor fail. An ended broker has no rules.
        with suppress(Unavailable):
            self.faults.clear()
        self._block.close()
        self.__dict__.pop("client", None)
        if not self.keep and getattr(self.broker, "ended", None) is None:
            self._delete()

    def _delete(self) -> None:
        admin = self.admin
        partitioned = admin.list_partitioned_topics(self.name)
        for topic in partitioned:
            admin.delete_partitioned_topic(topic, force=True)
        for topic in admin.list_topics(self.name):
            # Clients of the test that are still connected may create topics again.
            with suppress(TopicNotFound):
                admin.delete_topic(topic, force=True)
        # A topic that was created again: the namespace stays.
        with suppress(NotAllowed):
            admin.delete_namespace(self.name)

    @property
    def url(self) -> str:
        """The broker's address, host:port."""
        return self.broker.url

    @property
    def pulsar_url(self) -> str:
        """The URL for Pulsar's own clients. Raises NotAllowed if it is unknown."""
        return self.broker.pulsar_url

    @property
    def admin_url(self) -> str:
        """The URL for pulsar-admin. Raises NotAllowed if it is unknown."""
        return self.broker.admin_url

    @property
    def admin(self) -> Admin:
        """The admin connection of all namespaces of the broker."""
        return self.broker.admin

    @cached_property
    def client(self) -> Client:
        """A client for this namespace. It is closed before the namespace is deleted, together with
        all producers, consumers and readers that it has opened.
        """
        client = Client(self.url)
        self._block.callback(client.shutdown)
        return client

    def async_client(self) -> AioClient:
        """Returns a new client for the running event loop: `async with made.async_client()`."""
        from ledgerfold.aio import Client as AioClient

        return AioClient(self.url)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Saves everything in the broker, not only this namespace, and restores it after the block.

        Clients that stay connected reconnect, twice.
        """
        name = f"test-{uuid.uuid4().hex}"
        self.admin.save_snapshot(name)
        try:
            yield
        finally:
            self.admin.restore_snapshot(name)
            self.admin.delete_snapshot(name)

    def topic(self, name: str) -> str:
        """Returns the full name of a topic in this namespace."""
        return f"persistent://{self.name}/{name}"

    def compact(self, topic: str, *, timeout_seconds: float = 180) -> GetCompactionStatusResponse:
        """Compacts a topic of this namespace, by its short or full name, and waits for the end.

        See ExistingBroker.compact_and_wait() for the result and the errors.
        """
        full = topic if "://" in topic else self.topic(topic)
        try:
            return self.broker.compact_and_wait(full, timeout_seconds=timeout_seconds)
        except TopicNotFound as error:
            error.add_note(
                f"Clients use topics of the namespace {self.name} by their full names: "
                f"{self.topic('NAME')}, the result of topic('NAME')."
            )
            raise

    async def compact_async(
        self, topic: str, *, timeout_seconds: float = 180
    ) -> GetCompactionStatusResponse:
        """Compacts as compact(), without blocking the event loop."""
        return await asyncio.to_thread(self.compact, topic, timeout_seconds=timeout_seconds)
