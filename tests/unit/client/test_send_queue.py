"""From sends to entries: limits, timers, and the two ways into a batch."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ledgerfold.broker.client.core.partition_set import PartitionSet
from ledgerfold.broker.client.core.partitioned_producer import RoutedQueue
from ledgerfold.broker.client.core.producer_core import ProducerCore
from ledgerfold.broker.client.core.send_queue import SendQueue
from ledgerfold.broker.client.messages.configs import ProducerConfig
from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.broker.client.messages.new_message import NewMessage
from ledgerfold.broker.client.messages.options import BatchingType
from ledgerfold.broker.client.messages.routing import Router
from ledgerfold.broker.client.streams.batching import container_for
from ledgerfold.broker.client.streams.pending import NativeEntries, Outcome, PendingEntry
from ledgerfold.broker.client.streams.publish_stream import PublishStream
from ledgerfold.broker.client.sync.io_thread import IoThread
from ledgerfold.broker.client.sync.producer import Producer
from ledgerfold.storage.codec import decode
from ledgerfold.storage.entry import Position, read_header
from ledgerfold.storage.errors import AlreadyClosed, InvalidRequest, Overloaded
from tests.support.waiting import WAIT_S


class Loop:
    """Records the calls that it is asked to make, on a clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        # Whether calls that are due soon wait for turn().
        self.is_busy = False
        self.soon: list[Callable[[], object]] = []

    def time(self) -> float:
        return self.now_s

    def call_soon_threadsafe(self, function: Callable[..., object], *arguments: Any) -> None:
        if self.is_busy:
            self.soon.append(partial(function, *arguments))
        else:
            function(*arguments)

    def turn(self) -> None:
        soon, self.soon = self.soon, []
        for function in soon:
            function()

    def call_later(self, delay_s: float, function: Callable[[], None]) -> None:
        self.timers.append((self.now_s + delay_s, function))

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        due = [timer for timer in self.timers if timer[0] <= self.now_s]
        self.timers = [timer for timer in self.timers if timer[0] > self.now_s]
        for _, function in due:
            function()


class Stream:
    """Takes entries and keeps them."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.description = "test producer"
        self.entry_bytes_max = 5000
        self.partition = -1
        self.entries: list[PendingEntry] = []

    def submit(self, entry: PendingEntry) -> None:
        self.entries.append(entry)

    def contents(self) -> list[list[tuple[bytes | None, bytes, int]]]:
        return [
            [(row.key, row.value, row.sequence_id) for row in decode(part).messages()]
            for entry in self.entries
            for part in entry.parts
        ]


def producer_of(**options: Any) -> tuple[Producer, SendQueue, Stream]:
    config = ProducerConfig("t", **({"batching_enabled": True} | options))
    stream = Stream()
    queue = SendQueue(
        cast(PublishStream, stream),
        container_for(config, "p", -1),
        config,
        entries=NativeEntries(config.compression_type, is_plain=not config.batching_enabled),
        clock_ms=lambda: 1,
        is_io_thread=lambda: False,
    )
    core = ProducerCore(cast(PublishStream, stream), queue, config)
    return Producer(cast(IoThread, None), core, lambda closed: None), queue, stream


def answer(queue: SendQueue, stream: Stream) -> None:
    entries, stream.entries = stream.entries, []
    queue.on_done([Outcome(entry, Position(1, 0)) for entry in entries])


def test_fast_and_slow_path_give_the_same_entries() -> None:
    """A message that takes the short cut ends in the same entry as one that does not."""
    chance = random.Random(7)
    sizes = [chance.randrange(120) for _ in range(500)]
    options: dict[str, Any] = {
        "batching_max_messages": 40,
        "batching_max_allowed_size_in_bytes": 2000,
    }
    quick, quick_queue, quick_stream = producer_of(**options)
    _, long_queue, long_stream = producer_of(**options)
    for number, size in enumerate(sizes):
        key, value = f"key-{number % 9}", b"v" * size
        quick.send_async(value, None, partition_key=key)
        long_queue.add(NewMessage(value, key.encode()), None, wait=True)
        if number % 97 == 0:
            quick_queue.seal()
            long_queue.seal()
    quick_queue.seal()
    long_queue.seal()
    assert [entry.data for entry in quick_stream.entries] == [
        entry.data for entry in long_stream.entries
    ]


def test_keys_in_any_script_take_the_fast_path() -> None:
    """A key is its UTF-8 bytes, and an undecodable file name keeps its bytes."""
    producer, queue, stream = producer_of()
    keys = ["", "a", "k\u00e4y", "\u9375", "no-text-\udcff"]
    for key in keys:
        producer.send_async(b"v", None, partition_key=key)
    queue.seal()
    (entry,) = stream.contents()
    assert [row[0] for row in entry] == [key.encode(errors="surrogateescape") for key in keys]


def test_mixing_both_paths_keeps_the_order() -> None:
    """Messages with and without properties, numbers and keys share batches in order of sending."""
    producer, queue, stream = producer_of(batching_max_messages=10)
    for number in range(40):
        if number % 7 == 3:
            producer.send_async(b"%d" % number, None, properties={"a": "b"})
        elif number % 11 == 5:
            producer.send_async(b"%d" % number, None, sequence_id=number + 1000 * (number // 11))
        else:
            producer.send_async(b"%d" % number, None, partition_key="k")
    queue.seal()
    rows = [row for entry in stream.contents() for row in entry]
    assert [row[1] for row in rows] == [b"%d" % number for number in range(40)]
    ids = [row[2] for row in rows]
    assert ids == sorted(set(ids))
    assert max(len(entry) for entry in stream.contents()) <= 10


def test_a_batch_is_sealed_at_its_message_limit() -> None:
    """The message that fills the batch sends it."""
    producer, _, stream = producer_of(batching_max_messages=3)
    for number in range(7):
        producer.send_async(b"%d" % number, None, partition_key="k")
    assert [len(entry) for entry in stream.contents()] == [3, 3]


def test_a_batch_is_sealed_before_it_exceeds_its_bytes() -> None:
    """A message that does not fit begins the next batch."""
    producer, queue, stream = producer_of(batching_max_allowed_size_in_bytes=250)
    for _ in range(5):
        producer.send_async(b"x" * 100, None, partition_key="k")
    queue.seal()
    assert [len(entry) for entry in stream.contents()] == [2, 2, 1]


def test_a_batch_is_sealed_after_its_delay() -> None:
    """A single message is sent after the delay, and so is the next one."""
    producer, _, stream = producer_of(batching_max_publish_delay_ms=10)
    for _ in range(2):
        stream.loop.pass_time(1)
        producer.send_async(b"x", None, partition_key="k")
        stream.loop.pass_time(0.009)
        assert not stream.entries
        stream.loop.pass_time(0.001)
        assert len(stream.entries) == 1
        stream.entries.clear()


def test_one_timer_serves_batches_that_fill_earlier() -> None:
    """The delay counts from the batch before, not from the first one."""
    producer, _, stream = producer_of(batching_max_messages=2)
    producer.send_async(b"1", None, partition_key="k")
    stream.loop.pass_time(0.008)
    producer.send_async(b"2", None, partition_key="k")
    producer.send_async(b"3", None, partition_key="k")
    stream.loop.pass_time(0.003)
    assert [len(entry) for entry in stream.contents()] == [2]
    assert len(stream.loop.timers) == 1
    stream.loop.pass_time(0.008)
    assert [len(entry) for entry in stream.contents()] == [2, 1]


def test_key_based_batches_share_the_limits() -> None:
    """The limit counts the messages of all keys."""
    producer, _, stream = producer_of(batching_type=BatchingType.KeyBased, batching_max_messages=4)
    for key in "abab":
        producer.send_async(b"v", None, partition_key=key)
    assert [[row[0] for row in entry] for entry in stream.contents()] == [[b"a"] * 2, [b"b"] * 2]


def test_without_batching_every_message_is_a_plain_entry() -> None:
    """No message waits for another."""
    producer, _, stream = producer_of(batching_enabled=False)
    producer.send_async(b"1", None)
    producer.send_async(None, None, partition_key="k")
    assert all(read_header(entry.data).is_plain for entry in stream.entries)
    assert [next(decode(entry.data).messages()).value_is_null for entry in stream.entries] == [
        False,
        True,
    ]


def test_a_full_queue_refuses_until_a_receipt_arrives() -> None:
    """Pending messages are bounded; receipts make room."""
    producer, queue, stream = producer_of(
        max_pending_messages=5, batching_max_messages=2, block_if_queue_full=False
    )
    for _ in range(5):
        producer.send_async(b"x", None, partition_key="k")
    with pytest.raises(Overloaded):
        producer.send_async(b"x", None, partition_key="k")
    # The open batch was sent, otherwise it would wait for the space that it takes itself.
    assert [len(entry.listeners) for entry in stream.entries] == [2, 2, 1]
    answer(queue, stream)
    producer.send_async(b"x", None, partition_key="k")


def test_a_batch_above_the_brokers_limit_is_taken_apart() -> None:
    """Its messages go one by one, and only the one that is too large fails."""
    results: list[str] = []
    producer, queue, stream = producer_of(batching_max_allowed_size_in_bytes=100_000)
    for size in (3000, 6000, 100):
        producer.send_async(
            b"x" * size, lambda result, _: results.append(result.name), partition_key="k"
        )
    queue.seal()
    assert [[len(row[1]) for row in entry] for entry in stream.contents()] == [[3000], [100]]
    assert results == ["MessageTooBig"]
    assert [row[2] for entry in stream.contents() for row in entry] == [0, 2]


def test_a_split_key_based_batch_keeps_its_order() -> None:
    """One key has too much for an entry: later entries have higher sequence ids."""
    producer, queue, stream = producer_of(
        batching_type=BatchingType.KeyBased, batching_max_allowed_size_in_bytes=100_000
    )
    for key, size in (("a", 3000), ("b", 10), ("b", 20), ("a", 3001)):
        producer.send_async(b"x" * size, None, partition_key=key)
    queue.seal()
    sent = [[(len(row[1]), row[2]) for row in entry] for entry in stream.contents()]
    assert sent == [[(10, 0), (20, 1)], [(3000, 2)], [(3001, 3)]]
    assert [entry.sequence_id for entry in stream.entries] == [1, 2, 3]


def test_a_batch_reserves_bytes_for_a_compaction() -> None:
    """4 bytes for each message, where it takes others away: so it is halved before the limit."""
    producer, queue, stream = producer_of(batching_max_allowed_size_in_bytes=100_000)
    stream.entry_bytes_max = 100_000
    for _ in range(400):
        producer.send_async(b"x", None, partition_key="k")
    queue.seal()
    (whole,) = stream.entries
    stream.entries.clear()
    stream.entry_bytes_max = len(whole.data) + 4 * 400 - 1
    for _ in range(400):
        producer.send_async(b"x", None, partition_key="k")
    queue.seal()
    assert [len(entry.listeners) for entry in stream.entries] == [200, 200]


@pytest.mark.parametrize(
    "arguments",
    [
        {"content": "text"},
        {"content": b"", "partition_key": 5},
        {"content": b"", "properties": {"a": 1}},
        {"content": b"", "properties": {"a": "\udcff"}},
        {"content": b"", "sequence_id": -5},
        {"content": b"", "event_timestamp": 2**63},
        {"content": b"", "event_timestamp": 1.5},
    ],
)
def test_invalid_arguments_are_refused_at_once(arguments: dict[str, Any]) -> None:
    """Nothing of a refused message is kept."""
    producer, queue, stream = producer_of()
    content = arguments.pop("content")
    with pytest.raises(InvalidRequest):
        producer.send_async(content, None, **arguments)
    queue.seal()
    assert not stream.entries


def test_sequence_ids_must_rise() -> None:
    """A number that was used would be dropped by the broker as a duplicate."""
    producer, _, _ = producer_of()
    producer.send_async(b"1", None, sequence_id=5)
    with pytest.raises(InvalidRequest):
        producer.send_async(b"2", None, sequence_id=5)


@pytest.mark.parametrize("batching", [None, BatchingType.Default, BatchingType.KeyBased])
@pytest.mark.parametrize("left", [0, 1])
def test_sequence_ids_may_run_out(batching: BatchingType | None, left: int) -> None:
    """Queued messages are sent; messages without an id are rejected, on both paths."""
    end = 2**63 - 1
    producer, queue, stream = producer_of(
        batching_enabled=batching is not None, batching_type=batching or BatchingType.Default
    )
    queue.add(NewMessage(b"0", b"k", end - left), None, wait=True)
    for number in range(left):
        producer.send_async(b"%d" % number, None, partition_key="k")
    for _ in range(2):
        with pytest.raises(
            InvalidRequest, match=f"Sequence ids are exhausted: the last one is {end}"
        ):
            producer.send_async(b"1", None, partition_key="k")
    with pytest.raises(InvalidRequest, match="not above"):
        queue.add(NewMessage(b"1", None, end), None, wait=True)
    queue.seal()
    found = [sequence_id for entry in stream.contents() for _, _, sequence_id in entry]
    assert found == list(range(end - left, end + 1))


def test_a_failing_callback_does_not_affect_others() -> None:
    """Later messages get their receipts."""
    heard: list[int] = []
    producer, queue, stream = producer_of()
    producer.send_async(b"1", lambda result, message_id: 1 // 0, partition_key="k")
    producer.send_async(
        b"2",
        lambda result, message_id: heard.append(message_id.batch_index() if message_id else -9),
        partition_key="k",
    )
    queue.seal()
    answer(queue, stream)
    assert heard == [1]


def test_a_closed_queue_refuses_messages() -> None:
    """Neither path accepts a message."""
    producer, queue, stream = producer_of()
    producer.send_async(b"1", None, partition_key="k")
    queue.close_for_new()
    assert len(stream.entries) == 1
    with pytest.raises(AlreadyClosed):
        producer.send_async(b"2", None, partition_key="k")
    with pytest.raises(AlreadyClosed):
        queue.add(NewMessage(b"3", None), None, wait=True)


def test_messages_after_closing_fail_on_the_fast_path() -> None:
    """A message added while the queue is closing is reported as failed."""
    results: list[str] = []
    producer, queue, _ = producer_of()
    producer.send_async(b"1", None, partition_key="k")
    may_add = queue.quick.items_max
    queue.close_for_new()
    queue.quick.items_max = may_add
    with pytest.raises(AlreadyClosed):
        producer.send_async(b"2", lambda result, _: results.append(result.name), partition_key="k")
    assert results == ["AlreadyClosed"]


def test_flush_raises_unreported_failures() -> None:
    """Without a callback the flush raises the failure, once."""

    async def run() -> None:
        producer, queue, stream = producer_of(batching_max_allowed_size_in_bytes=100_000)
        stream.loop = cast(Loop, asyncio.get_running_loop())
        queue._loop = asyncio.get_running_loop()
        producer.send_async(b"x" * 9000, None, partition_key="k")
        with pytest.raises(InvalidRequest):
            await queue.flush_async()
        await queue.flush_async()

    asyncio.run(run())


def test_an_immediate_receipt_wakes_waiters_of_any_partition() -> None:
    """Also a receipt that the loop handles right after the request; a task that left is
    forgotten.
    """

    async def run() -> None:
        producers = [
            producer_of(max_pending_messages=1, block_if_queue_full=True, batching_enabled=False)
            for _ in range(2)
        ]
        for producer, queue, _ in producers:
            queue._loop = asyncio.get_running_loop()
            producer.send_async(b"1", None)
        cores = [SimpleNamespace(queue=queue) for _, queue, _ in producers]
        routed = RoutedQueue(
            cast("PartitionSet[ProducerCore]", SimpleNamespace(cores=cores)),
            cast(Router, None),
        )
        change = asyncio.ensure_future(routed.change())
        asyncio.get_running_loop().call_soon(answer, *producers[1][1:])
        await asyncio.wait_for(change, WAIT_S)
        await asyncio.sleep(0)
        assert [len(queue._tasks_waiting) for _, queue, _ in producers] == [0, 0]

    asyncio.run(run())


def test_a_thread_waits_for_space(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sender sleeps until a receipt arrives, then continues."""
    producer, queue, stream = producer_of(
        max_pending_messages=1, block_if_queue_full=True, batching_enabled=False
    )
    producer.send_async(b"1", None)
    waited: list[float] = []

    def receipt_comes(timeout: float | None = None) -> bool:
        waited.append(time.monotonic())
        queue._messages_out += 1
        return True

    monkeypatch.setattr(queue._changed, "wait", receipt_comes)
    producer.send_async(b"2", None)
    assert len(waited) == 1
    assert len(stream.entries) == 2


def test_without_batching_the_quick_way_gives_the_same_entries() -> None:
    """An entry for each message, with the ids that follow; those that came together are a run."""
    quick, quick_queue, quick_stream = producer_of(batching_enabled=False)
    _, long_queue, long_stream = producer_of(batching_enabled=False)
    quick_stream.loop.is_busy = True
    for number in range(300):
        key, value = f"key-{number % 9}", b"v" * (number % 50)
        quick.send_async(value, None, partition_key=key)
        long_queue.add(NewMessage(value, key.encode()), None, wait=True)
        if number == 100:
            quick.send_async(b"p", None, properties={"a": "b"})
            long_queue.add(NewMessage(b"p", None, properties={"a": "b"}), None, wait=True)
    quick_queue.seal()
    assert [part for entry in quick_stream.entries for part in entry.parts] == [
        entry.data for entry in long_stream.entries
    ]
    assert [entry.entries for entry in quick_stream.entries] == [101, 1, 199]
    assert quick_queue.seal() == long_queue.seal() == 301


def test_without_batching_a_message_does_not_wait_for_a_delay() -> None:
    """It is sent as soon as the event loop runs."""
    producer, _, stream = producer_of(batching_enabled=False)
    stream.loop.is_busy = True
    for _ in range(3):
        producer.send_async(b"v", None, partition_key="k")
        producer.send_async(b"v", None, partition_key="k")
        stream.loop.turn()
    assert [entry.entries for entry in stream.entries] == [2, 2, 2]


def test_without_batching_a_message_that_is_too_large_fails_alone() -> None:
    """The others of its run are sent, with the ids that they would have had."""
    producer, _, stream = producer_of(batching_enabled=False)
    stream.loop.is_busy = True
    heard: list[tuple[int, Any]] = []

    def note(number: int, result: Any, message_id: MessageId | None) -> None:
        heard.append((number, result))

    for number in range(6):
        value = b"v" * (6000 if number == 2 else 10)
        producer.send_async(value, partial(note, number), partition_key="k")
    # The entries; then the failure, which is reported later.
    stream.loop.turn()
    stream.loop.turn()
    assert [number for number, _ in heard] == [2]
    assert [row[0][2] for row in stream.contents()] == [0, 1, 3, 4, 5]


def test_a_run_counts_all_its_messages() -> None:
    """The limit of pending messages holds; parts of a run are answered one after the other."""
    producer, queue, stream = producer_of(
        batching_enabled=False, max_pending_messages=10, block_if_queue_full=False
    )
    stream.loop.is_busy = True
    ids: list[MessageId | None] = []
    for _ in range(10):
        producer.send_async(
            b"v", lambda result, message_id: ids.append(message_id), partition_key="k"
        )
    with pytest.raises(Overloaded):
        producer.send_async(b"v", None, partition_key="k")
    queue.seal()
    run, *rest = stream.entries
    assert run.entries + len(rest) == 10
    queue.on_done([Outcome(run.take(4), Position(1, 0))])
    assert [str(each) for each in ids] == [f"1:{number}" for number in range(4)]
    for _ in range(4):
        producer.send_async(b"v", None, partition_key="k")
    with pytest.raises(Overloaded):
        producer.send_async(b"v", None, partition_key="k")
