"""Table views of the synchronous API: a topic as a dictionary that is updated automatically.

    >>> from ledgerfold.broker.client import Client
    >>> client = Client("127.0.0.1:7650")
    >>> sent = client.create_producer("prices").send(b"10", partition_key="p3")
    >>> with client.create_table_view("prices") as view:
    ...     view.for_each_and_listen(lambda key, value: print(key, value))
    ...     print(view.get("p3"), len(view))
    p3 b'10'
    b'10' 1
    >>> client.close()

Names are those of Pulsar's Python client, and of its Java client for methods that only that has
(`listen`, `refresh`, `keys`). Listeners are called in the view's own thread, one update after the
other, with the key and its value, or None when the key was removed.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from ledgerfold.broker.client.core.call_thread import CallThread
from ledgerfold.broker.client.core.table_view_core import (
    BaseTableView,
    TableViewConfig,
    TableViewCore,
)
from ledgerfold.broker.client.streams.connection import Connection
from ledgerfold.broker.client.sync.io_thread import IoThread
from ledgerfold.storage.errors import NotAllowed


class TableView(BaseTableView):
    """The last value of each key (`pulsar.TableView`). Thread-safe.

    A closed view keeps its contents.
    """

    def __init__(
        self,
        core: TableViewCore,
        io: IoThread,
        calls: CallThread,
        on_close: Callable[[object], None],
    ) -> None:
        super().__init__(core)
        self._io = io
        self._calls = calls
        self._on_close = on_close

    @classmethod
    async def open(
        cls,
        connection: Connection,
        config: TableViewConfig,
        io: IoThread,
        on_close: Callable[[object], None],
    ) -> TableView:
        """Opens a view, and returns when it holds everything in the topic. Raises the broker's
        errors.
        """
        calls = CallThread(f"ledgerfold-table-view-{config.topic}")
        try:
            core = await TableViewCore.open(connection, config, calls.run)
        except BaseException:
            calls.stop()
            raise
        return cls(core, io, calls, on_close)

    def refresh(self) -> None:
        """Returns when the view holds everything that is in the topic at the call.

        Raises AlreadyClosed, also if the view is closed during the call; errors of reading;
        NotAllowed in a listener, which would wait for itself.
        """
        if self._calls.is_current:
            raise NotAllowed("A listener must not wait for its own view: use refresh_async.")
        self._io.call(self._core.refresh())

    def refresh_async(self) -> Future[None]:
        """Returns a future that completes as `refresh` returns."""
        return self._io.start(self._core.refresh())

    def close(self) -> None:
        """Stops reading and listening. Idempotent."""
        self._on_close(self)
        self._io.call(self.shut_down())

    async def shut_down(self) -> None:
        await self._core.close()
        self._calls.stop()

    def __enter__(self) -> TableView:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
