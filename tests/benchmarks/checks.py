"""The processor time that the limit of requests and authentication cost the broker.

Three brokers take turns: `off` checks nothing, `limit` counts requests (`serve
--max-requests-per-second`, never reached), `all` also verifies tokens and permissions. The broker's
processor time of messages published, messages read and small calls is compared in pairs of one
round, because processor time depends less on other processes than time does. Producers and readers
are checked when they open, not for each message: messages should cost the same. `off` is what a
broker without these options does; what its open checks cost is at most the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from ledgerfold import AuthenticationToken
from ledgerfold.broker.client import Client, MessageId
from ledgerfold.broker.client.administration.admin import Admin
from tests.benchmarks.options import Options
from tests.benchmarks.report import Report, median, spread
from tests.support import processes
from tests.support.broker_process import BrokerProcess
from tests.support.security_lab import Tokens

MESSAGES, CALLS, ROUNDS = 1_000_000, 5_000, 7
_VALUE = b"x" * 100
_LIMIT = ("--max-requests-per-second", "1000000")


class Served(NamedTuple):
    """A broker, and the token that it wants, if any."""

    broker: BrokerProcess
    token: str | None

    @property
    def authentication(self) -> AuthenticationToken | None:
        return None if self.token is None else AuthenticationToken(self.token)

    def cost_s(self, work: Callable[[Served], object]) -> float:
        """Returns the broker's processor time of some work."""
        before = processes.processor_seconds([self.broker.pid])
        work(self)
        return processes.processor_seconds([self.broker.pid]) - before


def run(options: Options) -> Report:
    messages, rounds = options.messages_or(MESSAGES), options.rounds_or(ROUNDS)
    calls = max(CALLS * messages // MESSAGES, 1)
    report = Report("checks", "processor time of the broker, without checks and with them")
    report.sizes = {"messages": messages, "calls": calls, "rounds": rounds}
    with _brokers(options) as brokers:
        taken = [_round(brokers, messages, calls, f"t-{at}") for at in range(rounds + 1)]
    # The first round is a warm-up.
    measured = taken[1:]
    for name, units in (("publish", messages), ("read", messages), ("calls", calls)):
        off = [each[name]["off"] for each in measured]
        report.add(f"{name}, off", median(off) / units * 1e6, "us of a core each")
        for broker in ("limit", "all"):
            ratios = [100 * each[name][broker] / max(each[name]["off"], 0.01) for each in measured]
            report.add(f"{name}, {broker} / off", median(ratios), "%", spread(ratios))
    return report


@contextmanager
def _brokers(options: Options) -> Iterator[dict[str, Served]]:
    with ExitStack() as stack:
        tokens = Tokens(stack.enter_context(options.fresh_folder()))
        arguments: dict[str, tuple[str, ...]] = {
            "off": (),
            "limit": _LIMIT,
            "all": (*_LIMIT, *tokens.options),
        }
        yield {
            name: Served(
                stack.enter_context(options.broker(*each)),
                tokens.of("admin") if name == "all" else None,
            )
            for name, each in arguments.items()
        }


def _round(
    brokers: dict[str, Served], messages: int, calls: int, topic: str
) -> dict[str, dict[str, float]]:
    """Returns what each kind of work costs each broker, which take turns."""
    works: dict[str, Callable[[Served], object]] = {
        "publish": lambda served: _publish(served, topic, messages),
        "read": lambda served: _read(served, topic, messages),
        "calls": lambda served: _call(served, calls),
    }
    return {
        name: {broker: served.cost_s(work) for broker, served in brokers.items()}
        for name, work in works.items()
    }


def _publish(served: Served, topic: str, messages: int) -> None:
    with Client(served.broker.url, authentication=served.authentication) as client:
        producer = client.create_producer(topic, block_if_queue_full=True)
        for _ in range(messages):
            producer.send_async(_VALUE, None, partition_key="k")
        producer.flush()


def _read(served: Served, topic: str, messages: int) -> None:
    with Client(served.broker.url, authentication=served.authentication) as client:
        reader = client.create_reader(topic, MessageId.earliest)
        for _ in range(messages):
            reader.read_next(60_000)


def _call(served: Served, calls: int) -> None:
    with Admin(served.broker.url, authentication=served.authentication) as admin:
        for _ in range(calls):
            admin.list_topics("public/default")
