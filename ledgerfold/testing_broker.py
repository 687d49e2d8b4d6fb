"""A temporary broker, and one that runs elsewhere, with helpers for tests.

>>> with ExistingBroker("127.0.0.1:7650") as broker:
...     message_id = broker.client.create_producer("prices").send(b"10")
...     print(broker.admin.list_topics())
['persistent://public/default/prices']
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Self

from ledgerfold.broker.client import Client
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.broker.demo.own_broker import Started, started
from ledgerfold.errors import CompactionRunning, InvalidRequest, NotAllowed, Timeout
from ledgerfold.storage.error_codec import decode_error
from ledgerfold.storage.paths import absolute_path
from ledgerfold.v1.admin_pb2 import GetCompactionStatusResponse
from ledgerfold.v1.records_pb2 import RUN_STATE_CANCELLED, RUN_STATE_ERROR


class ExistingBroker:
    """A broker at an address, with helpers for tests. Thread-safe.

    `with ExistingBroker("127.0.0.1:7650") as broker:`; its clients are closed with the block.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._block = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._block.close()
        for attribute in ("client", "admin"):
            self.__dict__.pop(attribute, None)

    @property
    def url(self) -> str:
        """The address, host:port."""
        return self._url

    @property
    def pulsar_url(self) -> str:
        """The URL for Pulsar's own clients. Raises NotAllowed if it is unknown."""
        raise NotAllowed("This process did not start the broker, and does not know this address.")

    @property
    def admin_url(self) -> str:
        """The URL for pulsar-admin. Raises NotAllowed if it is unknown."""
        return self.pulsar_url

    @cached_property
    def client(self) -> Client:
        """A shared client of the broker, closed with it."""
        client = Client(self.url)
        self._block.callback(client.shutdown)
        return client

    @cached_property
    def admin(self) -> Admin:
        """A shared admin connection to the broker, closed with it."""
        return self._block.enter_context(Admin(self.url))

    def advance(self, by: timedelta) -> datetime:
        """Moves the manual clock forward, and returns its time, in the machine's time zone.

        All work that has become due is complete when this returns. Raises NotAllowed without a
        manual clock, InvalidRequest if `by` is negative or not a timedelta.
        """
        now_ms = self.admin.move_clock(advance_ms=milliseconds(by))
        return datetime.fromtimestamp(now_ms / 1000).astimezone()

    def compact_and_wait(
        self, topic: str, *, timeout_seconds: float = 180
    ) -> GetCompactionStatusResponse:
        """Compacts the messages that the topic, or each of its partitions, has at the call.

        Returns the status of the run when it has ended; `run` is its record. The first compaction
        waits until the compactor has started. Raises TopicNotFound, Timeout after
        `timeout_seconds`, and the error of a failed run: CompactionFailed, or
        CompactorUnavailable if no compactor can start on this machine.
        """
        ends_s = time.monotonic() + timeout_seconds
        while True:
            try:
                self.admin.trigger_compaction(topic)
            except CompactionRunning:
                # A run that started earlier may not include the latest messages.
                self._wait(topic, ends_s)
                continue
            return _succeeded(self._wait(topic, ends_s))

    def _wait(self, topic: str, ends_s: float) -> GetCompactionStatusResponse:
        left_s = max(0.001, ends_s - time.monotonic())
        try:
            *_, last = self.admin.watch_compaction(topic, timeout_seconds=left_s)
        except Timeout:
            raise Timeout(f"The compaction of {topic} is still running.") from None
        return last


class Broker(ExistingBroker):
    """A broker that runs for the duration of a `with` block. Thread-safe.

    `data_dir`: the directory of its data, which is kept; None: a temporary directory, deleted with
    the broker. `test_clock`: a manual clock that starts now or at a given time; `advance` moves it.
    `compaction`: False: Spark is not started. `arguments`: additional arguments of `ledgerfold
    serve`.

    Raises LedgerfoldError, with the end of the process's output, if it does not start.
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
        super().__init__("")
        self._started: Started | None = None

    def __enter__(self) -> Self:
        self._started = self._block.enter_context(started(self._data_dir, self._arguments))
        return self

    def __exit__(self, *exc_info: object) -> None:
        super().__exit__(*exc_info)
        self._started = None

    @property
    def url(self) -> str:
        """The address, host:port. Raises NotAllowed outside the block."""
        return self._running.listen

    @property
    def pulsar_url(self) -> str:
        """The URL for Pulsar's own clients. Raises NotAllowed without `--pulsar-listen`."""
        return f"pulsar://{_served(self._running.pulsar, '--pulsar-listen')}"

    @property
    def admin_url(self) -> str:
        """The URL for pulsar-admin. Raises NotAllowed without `--admin-listen`."""
        return f"http://{_served(self._running.admin, '--admin-listen')}"

    @property
    def data_dir(self) -> Path:
        """The directory of its data."""
        return self._running.data_dir

    @property
    def log(self) -> Path:
        """The file of its log, which is deleted with it."""
        return self._running.log

    @property
    def ended(self) -> str | None:
        """The end of the process, such as "with exit code 1" or "by SIGKILL"; None: it runs."""
        code = self._running.process.poll()
        if code is None:
            return None
        return f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"

    @property
    def _running(self) -> Started:
        if self._started is None:
            raise NotAllowed("The broker is not running: `with Broker() as broker:` starts it.")
        return self._started


def milliseconds(by: timedelta) -> int:
    """Returns a duration in ms. Raises InvalidRequest for another type, such as seconds."""
    if not isinstance(by, timedelta):
        kind = type(by).__name__
        raise InvalidRequest(f"A duration is a timedelta, such as timedelta(days=1), not {kind}.")
    return by // timedelta(milliseconds=1)


def _clock_arguments(test_clock: bool | datetime) -> list[str]:
    if isinstance(test_clock, datetime):
        return ["--test-clock", str(round(test_clock.timestamp() * 1000))]
    return ["--test-clock"] if test_clock else []


def _succeeded(status: GetCompactionStatusResponse) -> GetCompactionStatusResponse:
    for each in status.partitions or [status]:
        if each.run.state in (RUN_STATE_ERROR, RUN_STATE_CANCELLED):
            raise decode_error(each.run.error_reason, each.run.error_message, {})
    return status


def _served(address: str | None, option: str) -> str:
    if address is None:
        raise NotAllowed(f"The broker does not serve this address: start it with {option}.")
    return address
