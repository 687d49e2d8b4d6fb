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

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue

from ledgerfold.broker.client.core.client_core import Forget
from ledgerfold.broker.client.core.opened import BaseTableView
from ledgerfold.broker.client.core.table_view_core import TableViewCore
from ledgerfold.broker.client.streams.closing import Closing
from ledgerfold.broker.client.sync.io_thread import IoThread
from ledgerfold.storage.errors import NotAllowed

_Call = tuple[Callable[[], None], "Future[None]"]


class CallThread:
    """A daemon thread that runs calls of user code, one after the other.

    The event loop of the synchronous API (io_thread.py) runs every stream of the process, so a
    listener must not run there: it may block, or wait for the client. A call that runs when the
    process exits is aborted.
    """

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

    async def run(self, call: Callable[[], None]) -> None:
        """Waits until `call` returns. Raises its error."""
        done: Future[None] = Future()
        self._calls.put((call, done))
        await asyncio.wrap_future(done)

    def stop(self) -> None:
        """Stops the thread after the queued calls. Does not wait, so a call may call it."""
        self._calls.put(None)

    def _serve(self) -> None:
        while (item := self._calls.get()) is not None:
            call, done = item
            if not done.set_running_or_notify_cancel():
                continue
            try:
                call()
            except Exception as error:  # raised in `run`
                done.set_exception(error)
            except BaseException as error:  # sys.exit() in a listener must not end the event loop
                done.set_exception(RuntimeError(f"A listener raised {error!r}."))
            else:
                done.set_result(None)


class TableView(BaseTableView, Closing):
    """The last value of each key (`pulsar.TableView`). Thread-safe.

    A closed view keeps its contents.
    """

    def __init__(
        self, io: IoThread, calls: CallThread, core: TableViewCore, forget: Forget
    ) -> None:
        super().__init__(core, forget)
        self._io = io
        self._calls = calls

    def refresh(self) -> None:
        """Waits until the view holds everything that was in the topic at the call.

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
        self._io.call(self._close())

    async def _close(self) -> None:
        await super()._close()
        self._calls.stop()

    async def _shut_down(self) -> None:
        await super()._shut_down()
        self._calls.stop()
