"""A Kafka topic compared with a Pulsar topic: the same messages, alternately.

Added to a benchmark by `--kafka`: for each message size and kind of topic the rate, the processor
time of broker and client for it, and the ratio of the rates. The Kafka topic is compacted, so that
each record must have a key. The first turn warms up and does not count. The goal is that a Kafka
topic takes at most a tenth longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ledgerfold.broker.client.administration.admin import Admin
from tests.benchmarks.report import Report, median, spread
from tests.support import processes

NATIVE, KAFKA = KINDS = ("native", "kafka")


class Turn(NamedTuple):
    """Seconds by the clock, and of a core's time."""

    seconds: float
    broker_s: float
    client_s: float


def turns(work: Callable[[str, int], float], rounds: int, broker_pid: int) -> dict[str, list[Turn]]:
    """`work` does one turn with a topic of a kind, and returns its seconds."""
    taken: dict[str, list[Turn]] = {kind: [] for kind in KINDS}
    for turn in range(rounds + 1):
        for kind in KINDS:
            before = _processor_s(broker_pid)
            seconds = work(kind, turn)
            used = [now - then for now, then in zip(_processor_s(broker_pid), before, strict=True)]
            if turn:
                taken[kind].append(Turn(seconds, *used))
    return taken


def _processor_s(broker_pid: int) -> tuple[float, float]:
    """The processor time used so far by the broker and this process."""
    return processes.processor_seconds([broker_pid]), time.process_time()


def create(admin: Admin, kind: str, topic: str) -> str:
    """Creates a topic of that kind; returns its name. Pulsar topics are created by their
    first use.
    """
    if kind == KAFKA:
        admin.create_topic(topic, kafka={"cleanup.policy": "compact"})
    return topic


def compare(
    report: Report, what: str, amount: float, unit: str, taken: Mapping[str, Sequence[Turn]]
) -> None:
    """Compares the kinds: each turn processed `amount` of `unit`s."""
    rates = {kind: [amount / each.seconds for each in taken[kind]] for kind in KINDS}
    for kind in KINDS:
        used = ", ".join(
            f"{name} {median([getattr(each, field) for each in taken[kind]]):.2f} s"
            for name, field in (("broker", "broker_s"), ("client", "client_s"))
        )
        report.add(
            f"{what}, {kind}",
            median(rates[kind]),
            f"{unit}/s",
            f"{spread(rates[kind])}; of a core: {used}",
        )
    ratio = median(rates[KAFKA]) / median(rates[NATIVE]) * 100
    report.add(f"{what}, kafka / native", ratio, "%", "goal 90 %")
