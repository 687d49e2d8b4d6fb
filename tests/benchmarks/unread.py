"""Measures the memory of readers that never read, and whether other readers are served.

Readers (150, or `--messages`), each over a separate connection, request everything in a topic of 64
MB, and read none of it. The figures are the broker process's resident size before and after the
requests, with the limits of streams and of unsent bytes (docs/SECURITY.md), and the time that one
more reader takes for the whole topic meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc

from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.broker.wire.frames import encode_entries
from ledgerfold.v1 import data_pb2
from tests.benchmarks import wire
from tests.benchmarks.baseline import OPTIONS
from tests.benchmarks.options import Options
from tests.benchmarks.report import Report
from tests.benchmarks.workload import Workload
from tests.support.processes import memory_bytes

MB = 1e6
TOPIC = "unread"
_PERMITS = 2**31
_OWN_CONNECTION = ("grpc.use_local_subchannel_pool", 1)
# Until nothing grows any more.
_SETTLED = 0.005
_CHECK_S, _LOOKS_MAX = 0.5, 120


def run(options: Options) -> Report:
    readers = options.messages_or(150)
    workload = Workload(6_400 if options.quick else 640_000, keys=1_000, value_bytes=100)
    report = Report("unread", "readers that never read")
    report.sizes = {"readers": readers, "messages": workload.messages}
    with options.broker() as broker, Admin(broker.url) as admin:
        asyncio.run(_measure(broker.url, broker.pid, readers, workload, report, admin))
    return report


async def _measure(
    url: str, pid: int, readers: int, workload: Workload, report: Report, admin: Admin
) -> None:
    async with wire.connected(url) as channel:
        frames = (encode_entries([entry]) for entry, _ in workload.entries())
        await wire.publish(wire.Broker(channel, TOPIC), frames)
        await wire.read(wire.Broker(channel, TOPIC))
        alone_s, _, _ = await wire.read(wire.Broker(channel, TOPIC))
        before = await _settled(pid)
        opened = [await _open(url) for _ in range(readers)]
        idle = await _settled(pid)
        for _, call in opened:
            await call.write(data_pb2.ReadRequest(permits=_PERMITS).SerializeToString())
        asked = await _settled(pid)
        beside_s, _, size_read = await wire.read(wire.Broker(channel, TOPIC))
        report.add("resident before", before / MB, "MB")
        for name, size in ("connected", idle), ("that never read", asked):
            of_each = f"{(size - before) / readers / MB:.2f} MB a reader"
            report.add(f"resident with readers {name}", size / MB, "MB", of_each)
        report.add("another reader alone", alone_s, "s", f"{size_read / MB:,.0f} MB")
        report.add("another reader beside them", beside_s, "s")
        for channel_, call in opened:
            call.cancel()
            await channel_.close()


async def _open(url: str) -> tuple[Any, Any]:
    channel = grpc.aio.insecure_channel(url, options=(*OPTIONS, _OWN_CONNECTION))
    read: Any = channel.stream_stream
    call = read("/ledgerfold.v1.DataService/Read")()
    start = data_pb2.StartPosition(earliest=True)
    opening = data_pb2.ReadRequest(open=data_pb2.ReadOpen(topic=TOPIC, start=start))
    await call.write(opening.SerializeToString())
    await call.read()
    return channel, call


async def _settled(pid: int) -> int:
    """Returns the resident size when it no longer changes."""
    last, since = memory_bytes([pid]), time.monotonic()
    for _ in range(_LOOKS_MAX):
        await asyncio.sleep(_CHECK_S)
        size = memory_bytes([pid])
        if abs(size - last) > _SETTLED * last:
            last, since = size, time.monotonic()
        elif time.monotonic() - since > 4 * _CHECK_S:
            break
    return last
