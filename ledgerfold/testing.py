"""A broker of one's own, for the tests of a program that uses one.

It is what `ledgerfold serve` is, in a process of its own, on any free port: it is there within a
second, and gone with its data when the block ends. docs/API.md has a pytest fixture.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from functools import cached_property
from typing import Self

from ledgerfold.broker.client import Client
from ledgerfold.broker.client.admin import Admin
from ledgerfold.broker.demo.own_broker import own_broker
from ledgerfold.errors import CompactionRunning, NotAllowed, Timeout
from ledgerfold.storage.error_codec import decode_error
from ledgerfold.storage.paths import absolute_path
from ledgerfold.v1.admin_pb2 import GetCompactionStatusResponse
from ledgerfold.v1.records_pb2 import RUN_STATE_CANCELLED, RUN_STATE_ERROR

__all__ = ["Broker"]


class Broker:
    """A broker for as long as a `with` block lasts. May be used by several threads.

    `data_dir`: where its data are and stay; None: in a temporary directory that goes with it.
    `test_clock`: its time stands, now or at a moment, until `advance` moves it. `compaction`: off,
    nothing of Spark is started. `arguments`: more of `ledgerfold serve`'s, as on the command line.

    Starting raises LedgerfoldError, with the end of what the process wrote.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        test_clock: bool | datetime = False,
        compaction: bool = True,
        arguments: Sequence[str] = (),
    ) -> None:
        self._data_dir = None if data_dir is None else absolute_path(data_dir)
        self._arguments = [*_clock_arguments(test_clock), *arguments]
        if not compaction:
            self._arguments += ["--compactor", "off"]
        self._block = ExitStack()
        self._url = ""

    def __enter__(self) -> Self:
        self._url = self._block.enter_context(own_broker(self._data_dir, self._arguments))
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._block.close()
        self._url = ""
        for made in ("client", "admin"):
            self.__dict__.pop(made, None)

    @property
    def url(self) -> str:
        """Where it serves: host:port. Raises NotAllowed outside the block."""
        if not self._url:
            raise NotAllowed("The broker does not run: `with Broker() as broker:` starts it.")
        return self._url

    @cached_property
    def client(self) -> Client:
        """One client of it, for all that ask for it here. It goes with the broker."""
        client = Client(self.url)
        self._block.callback(client.shutdown)
        return client

    @cached_property
    def admin(self) -> Admin:
        """Its administration. It goes with the broker."""
        return self._block.enter_context(Admin(self.url))

    def advance(self, by: timedelta) -> datetime:
        """Moves the test clock on. What has become due is done; the time it shows then.

        Raises NotAllowed without a test clock.
        """
        now_ms = self.admin.move_clock(advance_ms=by // timedelta(milliseconds=1))
        return datetime.fromtimestamp(now_ms / 1000).astimezone()

    def compact_and_wait(
        self, topic: str, *, timeout_seconds: float = 180
    ) -> GetCompactionStatusResponse:
        """Compacts all that is in the topic now, or in its partitions; how that went.

        The first compaction waits until Spark is warm. Raises what made it fail: CompactionFailed,
        CompactorUnavailable (no Java, say), TopicNotFound, Timeout.
        """
        ends_s = time.monotonic() + timeout_seconds
        while True:
            try:
                self.admin.trigger_compaction(topic)
            except CompactionRunning:
                # One that began earlier may leave out what was published since.
                self._wait(topic, ends_s)
                continue
            return _succeeded(self._wait(topic, ends_s))

    def _wait(self, topic: str, ends_s: float) -> GetCompactionStatusResponse:
        left_s = max(0.001, ends_s - time.monotonic())
        try:
            *_, last = self.admin.watch_compaction(topic, timeout_seconds=left_s)
        except Timeout:
            raise Timeout(f"The compaction of {topic} is still on its way.") from None
        return last


def _clock_arguments(test_clock: bool | datetime) -> list[str]:
    if isinstance(test_clock, datetime):
        return ["--test-clock", str(round(test_clock.timestamp() * 1000))]
    return ["--test-clock"] if test_clock else []


def _succeeded(status: GetCompactionStatusResponse) -> GetCompactionStatusResponse:
    for each in status.partitions or [status]:
        if each.run.state in (RUN_STATE_ERROR, RUN_STATE_CANCELLED):
            raise decode_error(each.run.error_reason, each.run.error_message, {})
    return status
