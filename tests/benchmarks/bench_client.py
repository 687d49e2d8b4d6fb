"""Measures the client library alone: messages/s against a service that does nothing.

    python tests/benchmarks/bench_client.py [--messages 2000000]

The service runs in a separate process: it answers publishes with receipts without storing, and
sends readers canned entries. So the figures are upper bounds for any broker with this client. Not a
test; scripts/bench measures client and broker together.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from itertools import count
from typing import Any

import grpc

from ledgerfold.broker.client import Client, CompressionType, MessageId
from ledgerfold.broker.client.streams.connection import CHANNEL_OPTIONS
from ledgerfold.broker.wire.frames import decode_field, encode_entries, is_bulk
from ledgerfold.storage.entry import ENTRY_BYTES_MAX, read_header, stamp
from ledgerfold.storage.native import NativeBatchBuilder
from ledgerfold.v1 import data_pb2

VALUE = b"x" * 100
KEYS = [f"key-{number:06d}" for number in range(100_000)]
ROWS_PER_ENTRY = 1100


async def _publish(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
    entry_ids = count()
    async for frame in requests:
        if not is_bulk(frame):
            ready = data_pb2.PublishReady(
                producer_name="bench", last_sequence_id=-1, entry_bytes_max=ENTRY_BYTES_MAX
            )
            yield data_pb2.PublishResponse(ready=ready).SerializeToString()
            continue
        receipts = [
            data_pb2.Receipt(
                sequence_id=read_header(entry).sequence_id, ledger_id=1, entry_id=next(entry_ids)
            )
            for entry in decode_field(frame, 2)
        ]
        yield data_pb2.PublishResponse(receipts=receipts).SerializeToString()


def _canned_entry() -> bytes:
    builder = NativeBatchBuilder("bench")
    for row in range(ROWS_PER_ENTRY):
        builder.add(VALUE, key=KEYS[row].encode())
    return builder.build(sequence_id=ROWS_PER_ENTRY - 1, publish_time_ms=1)


class _Reading:
    """Sends canned entries for as long as there are permits."""

    def __init__(self, entries_max: int) -> None:
        entry = _canned_entry()
        self._entries = [stamp(entry, 1, number, 1, 1) for number in range(entries_max)]

    async def read(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        permits, sent = 0, 0
        async for frame in requests:
            request = data_pb2.ReadRequest.FromString(frame)
            if request.HasField("open"):
                yield data_pb2.ReadResponse(ready=data_pb2.ReadReady()).SerializeToString()
            permits += request.permits
            while permits > 0 and sent < len(self._entries):
                yield encode_entries([self._entries[sent]])
                sent += 1
                permits -= ROWS_PER_ENTRY
            if request.check_id and sent == len(self._entries):
                end = data_pb2.ReadResponse(end_of_data_check_ids=[request.check_id])
                yield end.SerializeToString()


async def _serve(entries_max: int) -> None:
    handlers = {
        "Publish": grpc.stream_stream_rpc_method_handler(_publish),
        "Read": grpc.stream_stream_rpc_method_handler(_Reading(entries_max).read),
    }
    server = grpc.aio.server(options=CHANNEL_OPTIONS)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("ledgerfold.v1.DataService", handlers),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    # Ends with the process that started it.
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop(None)


def _timed(name: str, messages: int, work: Callable[[], int]) -> None:
    began, cpu_began = time.perf_counter(), time.process_time()
    done = work()
    taken, cpu = time.perf_counter() - began, time.process_time() - cpu_began
    assert done == messages, f"{name}: {done} messages instead of {messages}"
    print(f"{name:<44}{done / taken:>12,.0f} messages/s {cpu / done * 1e6:8.2f} us CPU each")


def _send(client: Client, messages: int, callback: Any = None, **options: Any) -> int:
    options = {
        "batching_enabled": True,
        "batching_max_messages": 10_000,
        "max_pending_messages": 20_000,
        "block_if_queue_full": True,
    } | options
    with client.create_producer("bench", **options) as producer:
        for number in range(messages):
            producer.send_async(VALUE, callback, partition_key=KEYS[number % 100_000])
        producer.flush()
    return messages


def _iterate(client: Client, queue_size: int) -> int:
    with client.create_reader("b", MessageId.earliest, receiver_queue_size=queue_size) as reader:
        return sum(len(message.data()) > 0 for message in reader)


def _read_next(client: Client, queue_size: int) -> int:
    done = 0
    with client.create_reader("b", MessageId.earliest, receiver_queue_size=queue_size) as reader:
        while reader.has_message_available():
            reader.read_next().data()
            done += 1
    return done


def _run(address: str, messages: int, canned: int) -> None:
    with Client(address) as client:
        _timed("send_async, no callback", messages, lambda: _send(client, messages))
        answered = count()
        _timed(
            "send_async, callback",
            messages,
            lambda: _send(client, messages, lambda result, message_id: next(answered)),
        )
        _timed(
            "send_async, zstd",
            messages,
            lambda: _send(client, messages, compression_type=CompressionType.ZSTD),
        )
        alone = messages // 20
        _timed(
            "send_async, no batching", alone, lambda: _send(client, alone, batching_enabled=False)
        )
        for queue_size in (1000, 20_000):
            name = f"reader, iteration and data(), queue {queue_size}"
            _timed(name, canned, lambda size=queue_size: _iterate(client, size))  # type: ignore[misc]
        _timed(
            "reader, has_message_available, read_next", canned, lambda: _read_next(client, 20_000)
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve is not None:
        asyncio.run(_serve(arguments.serve))
        return
    entries = max(arguments.messages // ROWS_PER_ENTRY, 1)
    command = [sys.executable, __file__, "--serve", str(entries)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as service:
        assert service.stdout is not None
        port = service.stdout.readline().strip()
        _run(f"127.0.0.1:{port}", arguments.messages, entries * ROWS_PER_ENTRY)
        service.communicate()


if __name__ == "__main__":
    main()
