"""Listeners of the synchronous API: the thread that passes messages to one, and its end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from ledgerfold.broker.client.core.client_core import Forget, Opened
from ledgerfold.broker.client.core.partition_set import AnyCore
from ledgerfold.broker.client.messages.arguments import InvalidConfiguration
from ledgerfold.broker.client.messages.message import Message
from ledgerfold.storage.errors import AlreadyClosed, LedgerfoldError

_log = logging.getLogger(__name__)
# The time between two attempts to receive, after an error.
_PAUSE_S = 1.0


class ListenerThread:
    """A daemon thread that receives and passes on, until `receive` raises AlreadyClosed.

    After any other error, such as a damaged message, it tries again: a seek, or an administrator
    who moves the cursor, may have removed the cause.
    """

    def __init__(
        self, name: str, receive: Callable[[], Message], listen: Callable[[Message], object]
    ) -> None:
        self._receive, self._listen = receive, listen
        self._may_listen = threading.Event()
        self._may_listen.set()
        self._is_over = threading.Event()
        name = f"ledgerfold-listener-{name}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def pause(self) -> None:
        """Pauses; one more message may still be passed on."""
        self._may_listen.clear()

    def resume(self) -> None:
        self._may_listen.set()

    def end(self) -> None:
        """Ends the thread, also if it is paused, or if an error preceded the closing."""
        self._is_over.set()
        self.resume()

    def _run(self) -> None:
        last_error: LedgerfoldError | None = None
        while True:
            self._may_listen.wait()
            try:
                message = self._receive()
            except AlreadyClosed as error:
                _log.info("The message listener ends: %s", error)
                return
            except LedgerfoldError as error:
                if error is not last_error:
                    _log.warning("The message listener gets no messages: %s", error)
                last_error = error
                if self._is_over.wait(_PAUSE_S):
                    return
                continue
            try:
                self._listen(message)
            except BaseException:  # user code: not even sys.exit() may affect the next message
                _log.exception("The message listener failed on %s.", message.message_id())


class Listened(Opened[AnyCore]):
    """A consumer or reader that may have a listener, whose thread ends with it."""

    def __init__(self, core: AnyCore, forget: Forget) -> None:
        super().__init__(core, forget)
        self._has_listener = False
        self._listening: ListenerThread | None = None

    def _begin_listening(self, thread: ListenerThread) -> None:
        # NOTE: a flag that is true also in a forked child (broker/client/streams/forks.py).
        self._has_listener = True
        self._listening = thread
        thread.start()

    def _refuse_receiving(self) -> None:
        what = type(self).__name__.lower()
        raise InvalidConfiguration(f"This {what} has a listener, which receives its messages.")

    async def _close(self) -> None:
        if self._listening is not None:
            self._listening.resume()
        try:
            await super()._close()
        finally:
            self._end_listener()

    async def _shut_down(self) -> None:
        try:
            await super()._shut_down()
        finally:
            self._end_listener()

    def _end_listener(self) -> None:
        if self._listening is not None:
            self._listening.end()
