"""The thread that passes messages to a listener of the synchronous API."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from ledgerfold.broker.client.messages.message import Message
from ledgerfold.storage.errors import LedgerfoldError

_log = logging.getLogger(__name__)


class ListenerThread:
    """A daemon thread that receives and passes on, until `receive` raises a LedgerfoldError."""

    def __init__(
        self, name: str, receive: Callable[[], Message], listen: Callable[[Message], object]
    ) -> None:
        self._receive, self._listen = receive, listen
        self._may_listen = threading.Event()
        self._may_listen.set()
        name = f"ledgerfold-listener-{name}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def pause(self) -> None:
        """Pauses; one more message may still be passed on."""
        self._may_listen.clear()

    def resume(self) -> None:
        self._may_listen.set()

    def _run(self) -> None:
        while True:
            self._may_listen.wait()
            try:
                message = self._receive()
            except LedgerfoldError as error:
                _log.info("The message listener ends: %s", error)
                return
            try:
                self._listen(message)
            except Exception:  # user code: its failure must not affect the next message
                _log.exception("The message listener failed on %s.", message.message_id())
