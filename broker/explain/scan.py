"""The scan that explains a key of a loaded topic: a thread reads its ledgers, and applies rules.py.

The explanation is about the topic at the time of the request: its view is pinned, and its raw
ledgers are read as their records described them then, up to the last durable entry. A raw ledger
that is trimmed meanwhile counts as trimmed. Only key sections are read, segment after segment
(storage/key_scan.py), and whole entries if a strategy reads values; Spark is not used. One request
at a time: a scan keeps a core busy. For a user-defined strategy, the compactor then asks the class
for its explanations (words.py).
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, TypeVar

from ledgerfold.broker.compaction.due import is_outdated, rules_of
from ledgerfold.broker.compaction.own_strategies import check_allowed
from ledgerfold.broker.explain.notes import Outlook, notes
from ledgerfold.broker.explain.rules import (
    VERSIONS_MAX,
    Facts,
    explain,
    explain_trimmed,
)
from ledgerfold.broker.explain.run_line import RunLine
from ledgerfold.broker.explain.versions import found_in, published_indexes
from ledgerfold.broker.explain.words import MESSAGES_MAX, add_words, is_asked, to_ask
from ledgerfold.storage.codec import decode, decoding
from ledgerfold.storage.decoded import StoredMessage
from ledgerfold.storage.entry import EARLIEST, Position, position_of
from ledgerfold.storage.errors import (
    AlreadyClosed,
    CompactorUnavailable,
    Corruption,
    InvalidRequest,
    MissingFile,
    ServiceError,
    StorageError,
    StrategyNotAllowed,
    Unavailable,
)
from ledgerfold.storage.key_scan import KeyVersion, versions_of
from ledgerfold.storage.ledger import LedgerReader, StoredEntry
from ledgerfold.storage.message_ids import id_text
from ledgerfold.storage.partition_names import partition_index
from ledgerfold.storage.segment import record_position
from ledgerfold.strategies.catalogue import drops_null_keys
from ledgerfold.v1.compactor_pb2 import DescribeDecisionsRequest, DescribeDecisionsResponse
from ledgerfold.v1.explain_pb2 import ExplainRequest, ExplainResponse
from ledgerfold.v1.records_pb2 import LedgerRecord, MessageId, SegmentRecord

if TYPE_CHECKING:
    from ledgerfold.broker.topics.broker import Broker
    from ledgerfold.broker.topics.kafka_topic import KafkaTopic
    from ledgerfold.broker.topics.topic import Topic


_Topic = TypeVar("_Topic", bound="Topic | KafkaTopic")


class ByPartition(ABC, Generic[_Topic]):
    """An explainer of a broker, on its event loop: one question about one topic at a time."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._one_at_a_time = asyncio.Lock()

    async def explain(self, topics: Sequence[_Topic], request: ExplainRequest) -> ExplainResponse:
        """Explains messages of a topic, or of all partitions, one after the other.

        Raises InvalidRequest, Corruption, MissingFile, CompactedLedgerDamaged, Moved.
        """
        if request.WhichOneof("of") is None:
            raise InvalidRequest("Name a key, messages without a key, or a message id to explain.")
        versions_max = max(1, VERSIONS_MAX // len(topics))
        answer = ExplainResponse()
        for topic in topics:
            async with self._one_at_a_time:
                part, to_ask = await self._explain_one(topic, request, versions_max)
            if to_ask is not None:
                await self._ask(part, to_ask)
            answer.versions.extend(part.versions)
            answer.versions_older += part.versions_older
            answer.strategy = part.strategy
            prefix = f"{topic.name}: " if len(topics) > 1 else ""
            answer.notes.extend(prefix + note for note in part.notes)
        return answer

    @abstractmethod
    async def _explain_one(
        self, topic: _Topic, request: ExplainRequest, versions_max: int
    ) -> tuple[ExplainResponse, DescribeDecisionsRequest | None]:
        """Returns the explanation, and the questions for a user-defined strategy."""

    async def _ask(self, explained: ExplainResponse, requested: DescribeDecisionsRequest) -> None:
        try:
            await check_allowed(self._broker, requested.strategy)
            answer = await self._broker.compactor.describe_decisions(requested)
        except (CompactorUnavailable, StrategyNotAllowed) as error:
            answer = DescribeDecisionsResponse(why=error.message.rstrip("."))
        add_words(explained, requested, answer)


class Explainer(ByPartition["Topic"]):
    """The explainer for all other topics than Kafka's."""

    async def _explain_one(
        self, topic: Topic, request: ExplainRequest, versions_max: int
    ) -> tuple[ExplainResponse, DescribeDecisionsRequest | None]:
        topic.log.views.check()
        with topic.log.views.current.pinned():
            scan = _Scan(self._broker, topic, versions_max)
            try:
                return await asyncio.to_thread(scan.answer, request), scan.to_ask
            finally:
                # The caller may have abandoned the call: then nothing waits for the thread.
                scan.is_abandoned.set()


class _Scan:
    """A scan. Created on the event loop, with all data that is available there; answers in a
    thread.
    """

    def __init__(self, broker: Broker, topic: Topic, versions_max: int) -> None:
        self.is_abandoned = threading.Event()
        self._versions_max, self._name = versions_max, topic.name
        self._unsized_empties_survive = topic.emulation().unsized_empties_survive
        log = topic.log
        self._log, self._store = log, broker.store
        self._raw = log.ledgers.records()
        self._view = log.views.current
        self._last = log.positions.last()
        self._outlook = _outlook(broker, topic, self._raw)
        facts = _facts(broker, topic, self._outlook.raw_messages)
        self._facts = replace(facts, read=self._read)
        # The messages of the last entry read, by batch index.
        self._read_last: tuple[Position, dict[int, StoredMessage]] | None = None
        # The questions for the compactor, after an answer; None if there are none.
        self.to_ask: DescribeDecisionsRequest | None = None
        self._newest: deque[KeyVersion] = deque(maxlen=MESSAGES_MAX)

    def answer(self, request: ExplainRequest) -> ExplainResponse:
        if request.WhichOneof("of") == "message_id":
            return self._explain_message(request.message_id)
        return self._explain_key(request.key if request.HasField("key") else None)

    def _explain_key(self, key: bytes | None, only: MessageId | None = None) -> ExplainResponse:
        facts = replace(self._facts, has_key=key is not None)
        history = found_in(self._raw_versions(key), self._compacted_versions(key), facts.partition)
        if key is not None and is_asked(facts.strategy):
            history = self._noted(history)
        explained = explain(
            history,
            facts,
            is_requested=lambda version: only is None or _is(version, only),
            versions_max=self._versions_max,
        )
        answer = ExplainResponse(
            versions=explained.versions,
            versions_older=explained.older,
            notes=notes(self._outlook, facts, explained.older, explained.versions),
            strategy=facts.strategy.name,
        )
        if self._newest:
            try:
                self.to_ask = to_ask(facts.strategy, reversed(self._newest), self._read)
            except (StorageError, ServiceError) as error:
                answer.notes.append(f"{facts.strategy.name} was not asked to explain: {error}")
        return answer

    def _noted(self, history: Iterable[KeyVersion]) -> Iterator[KeyVersion]:
        for message in history:
            self._newest.append(message)
            yield message

    # The versions of a key

    def _raw_versions(self, key: bytes | None) -> Iterator[KeyVersion]:
        for record in self._raw:
            try:
                reader = self._store.open_reader(record.ledger_id)
                for version in self._versions(reader, record.segments, key):
                    if version.position > self._last:
                        return
                    yield version
            except MissingFile:
                if record.ledger_id in self._log.ledgers:
                    raise

    def _compacted_versions(self, key: bytes | None) -> Iterator[KeyVersion]:
        with self._compacted() as compacted:
            if compacted is not None:
                versions = self._versions(compacted, compacted.record.segments, key)
                yield from self._as_published(compacted, versions)

    def _as_published(
        self, compacted: LedgerReader, versions: Iterable[KeyVersion]
    ) -> Iterator[KeyVersion]:
        """Restores the published batch indexes, if the raw entry still exists."""
        raw_ids = {record.ledger_id for record in self._raw} if self._may_be_renumbered else ()
        at, indexes = EARLIEST, dict[int, int]()
        for version in versions:
            position = version.position
            if position.ledger_id in raw_ids:
                if position != at:
                    there = self._messages_at(position, compacted)
                    at, indexes = position, published_indexes(there, self._raw_at(position))
                batch_index = indexes.get(version.batch_index, version.batch_index)
                version = version._replace(batch_index=batch_index)
            yield version

    @property
    def _may_be_renumbered(self) -> bool:
        line = self._facts.line
        return line is not None and (
            not line.is_complete or any(drops_null_keys(run.strategy) for run in line.runs)
        )

    @contextmanager
    def _compacted(self) -> Iterator[LedgerReader | None]:
        """Yields the pinned compacted ledger; reports damage in it as the view's."""
        try:
            yield self._view.compacted
        except (Corruption, MissingFile) as error:
            raise self._view.damaged(error) from error

    def _versions(
        self, reader: LedgerReader, segments: Iterable[SegmentRecord], key: bytes | None
    ) -> Iterator[KeyVersion]:
        for segment in segments:
            for header, keys in reader.keys(segment):
                if self.is_abandoned.is_set():
                    raise AlreadyClosed("The caller has abandoned the request.")
                yield from versions_of(
                    header, keys, key, unsized_empties_survive=self._unsized_empties_survive
                )

    def _read(self, version: KeyVersion) -> StoredMessage:
        """Reads the message, for a strategy that needs values or properties."""
        position = version.position
        if self._read_last is None or self._read_last[0] != position:
            if version.in_raw:
                messages = self._raw_at(position)
            else:
                with self._compacted() as compacted:
                    messages = self._messages_at(position, compacted)
            self._read_last = position, {each.batch_index: each for each in messages}
        return self._read_last[1][version.batch_index]

    def _raw_at(self, position: Position) -> list[StoredMessage]:
        try:
            return self._messages_at(position, self._store.open_reader(position.ledger_id))
        except MissingFile as error:
            if position.ledger_id in self._log.ledgers:
                raise
            why = f"Ledger {position.ledger_id} was trimmed meanwhile. Try again."
            raise Unavailable(why) from error

    def _messages_at(self, position: Position, reader: LedgerReader | None) -> list[StoredMessage]:
        messages: list[StoredMessage] = []
        for entry in _entry_at(position, reader):
            with decoding(f"entry {position} of {self._name}"):
                messages += decode(entry.data, entry.header).messages()
        return messages

    # One message

    def _explain_message(self, message_id: MessageId) -> ExplainResponse:
        """Explains this version only, by its key."""
        position = position_of(message_id)
        if position > self._last:
            raise InvalidRequest(f"{position} is above the last message, {self._last}.")
        is_raw = position.ledger_id in [record.ledger_id for record in self._raw]
        if is_raw:
            entries = _entry_at(position, self._store.open_reader(position.ledger_id))
        else:
            with self._compacted() as compacted:
                entries = _entry_at(position, compacted)
        for entry in entries:
            with decoding(f"entry {position} of {self._name}"):
                batch = decode(entry.data, entry.header)
            indexes = [batch.batch_index(row) for row in range(batch.rows)]
            if message_id.batch_index in indexes:
                key = batch.key(indexes.index(message_id.batch_index))
                return self._explain_key(key, message_id)
            if message_id.batch_index < 0:
                partition = self._facts.partition
                first, last = (id_text(*position, partition, indexes[at]) for at in (0, -1))
                raise InvalidRequest(
                    f"{position} is a batch: name one of its messages, {first} to {last}."
                )
        if is_raw:
            raise InvalidRequest(f"Entry {position} has no such message.")
        return ExplainResponse(
            versions=[explain_trimmed(message_id, self._facts)],
            notes=notes(self._outlook, self._facts, 0),
            strategy=self._facts.strategy.name,
        )


def _entry_at(position: Position, reader: LedgerReader | None) -> list[StoredEntry]:
    """Reads the entry at the position, if it exists."""
    return [] if reader is None else reader.read(position, bytes_max=1, end=position)


def _is(version: KeyVersion, message_id: MessageId) -> bool:
    position = position_of(message_id)
    return version.identity == (position, message_id.batch_index)


def _facts(broker: Broker, topic: Topic, raw_messages: int) -> Facts:
    """Collects the facts. `raw_messages`: the messages in raw ledgers at or below the horizon."""
    line, policies = None, topic.policies()
    if topic.log.views.horizon is not None:
        history = broker.compaction.history.oldest_first(topic.name)
        line = RunLine.of(history, topic.record.compacted)
    return Facts(
        horizon=topic.log.views.horizon,
        line=line,
        floor=topic.log.views.floor,
        retain_null_key=policies.retain_null_key,
        partition=partition_index(topic.name),
        strategy=policies.compaction_strategy,
        time_ms=broker.clock_ms(),
        is_whole=line is not None and line.messages_read == raw_messages,
    )


def _outlook(broker: Broker, topic: Topic, raw: Iterable[LedgerRecord]) -> Outlook:
    log, compaction = topic.log, broker.compaction
    horizon, last = log.views.horizon or EARLIEST, log.positions.last()
    is_idle = log.views.horizon is not None and log.ledgers.entries_between(horizon, last) == 0
    runs, strategy = (
        compaction.history.oldest_first(topic.name),
        topic.policies().compaction_strategy,
    )
    is_idle = is_idle and not is_outdated(topic.record, runs, rules_of(topic, strategy))
    is_running = compaction.has_run(topic.name)
    return Outlook(
        last=last,
        has_news=not (is_idle and topic.emulation().skip_run_without_new_data),
        decision=compaction.monitor.decide(topic),
        running=compaction.status(topic).run.number if is_running else 0,
        raw_messages=sum(
            segment.messages
            for record in raw
            for segment in record.segments
            if record_position(segment, last=True) <= horizon
        ),
    )
