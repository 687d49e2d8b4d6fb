"""A connected reader: a position in a view of its topic, with no state after its stream ends.

Entries read ahead of the permits belong to one view. When a run replaces the view, and the reader
does not keep the old one (broker/subscriptions/route.py), they are dropped and read again.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from ledgerfold.broker.common.outgoing import READ_LEAST
from ledgerfold.broker.common.shielding import first_of
from ledgerfold.broker.log.log import TopicLog
from ledgerfold.broker.log.view import RAW
from ledgerfold.broker.policies.profiles import Emulation
from ledgerfold.broker.subscriptions.route import Route
from ledgerfold.broker.topics.loaded_topic import LoadedTopic
from ledgerfold.broker.topics.stream_reader import (
    Checked,
    Entries,
    Notice,
    Step,
    StreamReader,
)
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.ledger import StoredEntry
from ledgerfold.v1.data_pb2 import StartPosition


@dataclass(frozen=True)
class ReaderOptions:
    """The options of a reader.

    `is_raw`: a reconnecting reader that has passed the horizon of its view (Notice.IS_RAW).
    """

    read_compacted: bool = False
    is_raw: bool = False
    # Shown in stats; "": a name is generated.
    name: str = ""
    # Exclusive while connected; "": a name is generated.
    subscription: str = ""


class Reader(StreamReader[StoredEntry]):
    """A reader that belongs to one stream. Created by Topic.open_reader()."""

    def __init__(
        self,
        topic: LoadedTopic,
        log: TopicLog,
        emulation: Callable[[], Emulation],
        options: ReaderOptions,
        readers: set[Reader],
    ) -> None:
        """Creates a reader, which is one of `readers` while it is connected."""
        # Pulsar's readers have a subscription with a name like this.
        self.subscription = options.subscription or f"reader-{secrets.token_hex(5)}"
        super().__init__(topic, log.state, options.name or self.subscription)
        self.log, self.read_compacted = log, options.read_compacted
        self._emulation, self._readers = emulation, readers
        self._route = self._new_route(is_raw=options.is_raw)
        # Set by a seek by time in raw ledgers only: earlier raw entries are skipped.
        self._raw_from = EARLIEST
        # The next position; entries read ahead follow it and belong to `_buffer_view`.
        self._position = Position(-1, -1)
        self._buffer_view, self._after_buffer = RAW, Position(-1, -1)
        self._has_notified_end = False

    @property
    def held_position(self) -> Position | None:
        """The first raw entry that trimming must keep for it although a run has overtaken it."""
        return self._route.held_position(self._position, self.log.views.horizon)

    @property
    def read_position(self) -> Position:
        """The position of the next entry."""
        return self._position

    def detach(self) -> None:
        super().detach()
        self._readers.discard(self)
        self._route.close()

    async def _do_seek(self, start: StartPosition, seek_id: int) -> Step:
        self._route.close()
        self._has_notified_end = False
        self._route = self._new_route()
        return await super()._do_seek(start, seek_id)

    def _new_route(self, *, is_raw: bool = False) -> Route:
        return Route(self._emulation(), read_compacted=self.read_compacted, is_raw=is_raw)

    async def move(self, start: StartPosition) -> None:
        """Moves to a start position by the profile's rule (docs/PROFILES.md, rule 8.11)."""
        self._raw_from = EARLIEST
        is_exact = self._emulation().seek_by_time_reads_view
        if start.WhichOneof("at") != "publish_time_ms" or is_exact or not self.read_compacted:
            self._position, _ = await self.log.search.resolve_start(start, self.read_compacted)
        else:
            self._raw_from, _ = await self.log.search.resolve_start(start, False)
            self._position = EARLIEST if self.log.views.horizon is not None else self._raw_from

    async def _next_steps(self) -> list[Step]:
        # The read answers the checks that arrived before it.
        checks, self._checks = self._checks, []
        if self._buffered and self._route.view(self._position, self.log) is not self._buffer_view:
            self._buffered.clear()
        steps = list[Step]()
        if not self._buffered and await self._fill():
            steps.append(Notice.IS_RAW)
        chunk = self._next_chunk()
        if chunk:
            messages = sum(entry.header.message_count for entry in chunk)
            self._count(messages, len(chunk), sum(len(entry.data) for entry in chunk))
            steps.append(Entries(chunk))
            if self._move_on(len(chunk)):
                steps.append(Notice.IS_RAW)
        elif self.log.tail.is_terminated and not self._has_notified_end:
            self._has_notified_end = True
            steps.append(Notice.END_OF_TOPIC)
        if checks:
            steps.append(Checked(checks, has_more=bool(chunk)))
        return steps

    async def _fill(self) -> bool:
        """Reads until an entry or the end is found; returns whether it passed the horizon."""
        is_over = has_passed = False
        while not (self._buffered or is_over):
            view = self._route.view(self._position, self.log)
            if view.horizon is None or self._position > view.horizon:
                self._position = max(self._position, self._raw_from)
            bytes_max = max(self.share.size_bytes, READ_LEAST)
            result, self._buffer_view = await self._route.read(
                self._position, self.log, bytes_max=bytes_max
            )
            self._after_buffer = result.next_position
            self._buffered.extend(result.entries)
            self._ahead_bytes = bytes_max
            if not self._buffered:
                is_over = result.next_position == self._position
                has_passed |= self._move_on(0)
        return has_passed

    def _move_on(self, count: int) -> bool:
        """Moves past `count` entries to be sent; returns whether that passed the horizon."""
        was_raw = self._route.is_raw
        buffered = self._buffered
        self._position = buffered[0].header.position if buffered else self._after_buffer
        self._route.delivered(self._buffer_view, count, self._position)
        return self._route.is_raw and not was_raw

    def _next_chunk(self) -> list[StoredEntry]:
        """Takes entries read ahead while permits last. A check alone yields one entry."""
        chunk: list[StoredEntry] = []
        while self._buffered and (self.permits > 0 or not chunk):
            entry = self._buffered.popleft()
            self.permits -= entry.header.message_count
            chunk.append(entry)
        return chunk

    async def _wait_for_more(self) -> None:
        await first_of(self._requested.wait(), self.log.reads.wait_beyond(self._position))
