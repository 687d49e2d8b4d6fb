"""Saves, restores and deletes a snapshot of a gigabyte, and resets a broker.

Snapshots link files, so the baseline is a copy of the data directory and its sync. The broker is
reset with the gigabyte, and with ten small topics, as after a test.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import Callable
from functools import partial

from ledgerfold.broker.client import Client
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.broker.wire.frames import encode_entries
from tests.benchmarks import wire
from tests.benchmarks.options import Options
from tests.benchmarks.report import Report, median, spread
from tests.benchmarks.workload import Workload
from tests.support.broker_process import BrokerProcess

_VALUE_BYTES = 10_000
_TOPICS = 10


def run(options: Options) -> Report:
    workload = Workload(options.messages_or(100_000), keys=1000, value_bytes=_VALUE_BYTES)
    report = Report("snapshots", "snapshots and resets, from the call to the answer")
    report.sizes = {"bytes": workload.size_bytes}
    rounds = options.rounds_or(5)
    arguments = ("--compactor", "off", "--allow-reset")
    with (
        options.fresh_folder() as folder,
        BrokerProcess(folder / "data", arguments=arguments) as broker,
        Admin(broker.url) as admin,
        Client(broker.url) as client,
    ):
        asyncio.run(_publish(broker.url, workload))
        baseline_s = _took_s(partial(_copy, str(folder / "data"), str(folder / "copy")))
        shutil.rmtree(folder / "copy")
        saves, restores, deletions = list[float](), list[float](), list[float]()
        for number in range(rounds):
            name = f"round-{number}"
            saves.append(_took_s(partial(admin.save_snapshot, name)))
            client.create_producer(f"later-{number}").send(b"1")
            restores.append(_took_s(partial(admin.restore_snapshot, name)))
            deletions.append(_took_s(partial(admin.delete_snapshot, name)))
        report.add("restore", median(restores), "s", f"{spread(restores)}; goal 0.3 s")
        report.add("save", median(saves), "s", f"{spread(saves)}; copy and sync {baseline_s:.2f} s")
        report.add("delete", median(deletions), "s", spread(deletions))
        report.add("reset, the whole", _took_s(admin.reset), "s")
        resets = list[float]()
        for _ in range(rounds):
            for number in range(_TOPICS):
                client.create_producer(f"small-{number}").send(b"1")
            resets.append(_took_s(admin.reset))
        report.add("reset, ten topics", median(resets), "s", f"{spread(resets)}; goal 0.05 s")
    return report


def _took_s(call: Callable[[], object]) -> float:
    start_s = time.perf_counter()
    call()
    return time.perf_counter() - start_s


def _copy(source: str, target: str) -> None:
    subprocess.run(["cp", "-r", source, target], check=True)
    subprocess.run(["sync", "-f", target], check=True)


async def _publish(broker: str, workload: Workload) -> None:
    async with wire.connected(broker) as channel:
        frames = [encode_entries([entry]) for entry, _ in workload.entries()]
        await wire.publish(wire.Broker(channel, "large"), frames)
