"""Consuming: subscriptions, consumers that stay open, acknowledgements, seeks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.cases.compare import Received, StepFailed
from tests.cases.model import Count, Messages, Order, Step
from tests.cases.verbs import verb
from tests.support.waiting import WAIT_MS

if TYPE_CHECKING:
    from tests.cases.runner import Run

_PRE_SUB = "pre-sub"
_ALL = 1_000_000


@verb("pre-sub [SUB]")
def pre_subscribe(run: Run, step: Step) -> None:
    """The catalogue's: creates a durable Exclusive subscription at the end of the still empty
    topic.
    """
    run.open("consumer", _PRE_SUB, sub=step.arguments.get("sub", _PRE_SUB), position="latest")
    run.close(_PRE_SUB)


@verb("subscribe SUB [from=earliest|latest]")
def subscribe(run: Run, step: Step) -> None:
    """The administration creates a durable subscription, by default at earliest."""
    position = step.arguments.get("from", "earliest")
    run.on_topic("subscribe", sub=step.arguments["sub"], position=position)


@verb("unsubscribe SUB")
def unsubscribe(run: Run, step: Step) -> None:
    """The administration deletes a subscription."""
    run.on_topic("unsubscribe", sub=step.arguments["sub"])


@verb(
    "consumer NAME [RC] [sub=NAME] [type=Exclusive|Shared|Failover|Key_Shared] "
    "[from=earliest|latest] [inclusive] [queue=N]"
)
def open_consumer(run: Run, step: Step) -> None:
    """Opens a consumer; its subscription is named like it, and begins at earliest by default.

    `inclusive`: a seek to an id delivers that message, too.
    """
    arguments = step.arguments
    run.open(
        "consumer",
        arguments["name"],
        sub=arguments.get("sub", arguments["name"]),
        type=arguments.get("type", "Exclusive"),
        compacted=arguments.get("RC", False),
        position=arguments.get("from", "earliest"),
        inclusive=arguments.get("inclusive"),
        queue=arguments.get("queue"),
    )


@verb("receive NAME [max=N] [within=TIME] [ack] [ack-cumulative]")
def receive(run: Run, step: Step) -> list[Received]:
    """Receives the expected messages, and checks that no more arrive; with `max`, at most that
    number.

    Without an expected number of messages, receives all that arrive. `within`: the longest wait for
    each.
    """
    name = str(step.arguments["name"])
    wanted = step.arguments.get("max")
    first, more = _expected(step) if wanted is None else (int(wanted), 0)
    patience_ms = int(step.arguments.get("within", WAIT_MS))
    found: list[Received] = []
    if first:
        found += run.ask("receive", name=name, max=first, timeoutMs=patience_ms)["messages"]
    if more and len(found) == first:
        quiet_ms = run.target.quiet_ms
        found += run.ask("receive", name=name, max=more, timeoutMs=quiet_ms)["messages"]
    for each in found:
        run.received(name, each)
        if "ack" in step.arguments:
            run.ask("ack", name=name, handle=each["handle"])
    if "ack-cumulative" in step.arguments and found:
        run.ask("ack-cumulative", name=name, handle=found[-1]["handle"])
    return found


def _expected(step: Step) -> tuple[int, int]:
    """Returns the number of messages for which the step waits, and the number that would soon
    follow.
    """
    match step.expected:
        case Messages(messages, Order.AT_LEAST):
            return len(messages), _ALL
        case Messages(messages):
            return len(messages), 1
        case Count(count):
            return count, 1
    return 1, _ALL


@verb("ack NAME [ID]")
def acknowledge(run: Run, step: Step) -> None:
    """Acknowledges one message, or all that the consumer received, one by one."""
    for handle in _handles(run, step):
        run.ask("ack", name=step.arguments["name"], handle=handle)


@verb("ack-cumulative NAME [ID]")
def acknowledge_cumulative(run: Run, step: Step) -> None:
    """Acknowledges up to a message, or up to the last one received."""
    run.ask("ack-cumulative", name=step.arguments["name"], handle=_handles(run, step)[-1])


@verb("nack NAME [ID]")
def negative_acknowledge(run: Run, step: Step) -> None:
    """Negatively acknowledges one message, or all received ones."""
    for handle in _handles(run, step):
        run.ask("nack", name=step.arguments["name"], handle=handle)


def _handles(run: Run, step: Step) -> list[str]:
    received = run.handles(step.arguments["name"])
    wanted = step.arguments.get("id")
    if wanted is None:
        return list(received.values())
    if wanted not in received:
        raise StepFailed(f"{wanted} was not received here")
    return [received[str(wanted)]]


@verb("seek NAME [POSITION] [time=MARK]")
def seek(run: Run, step: Step) -> None:
    """Moves a reader or consumer to a position or to a time."""
    arguments = step.arguments
    mark = arguments.get("time")
    run.ask(
        "seek",
        name=arguments["name"],
        to=run.position(arguments.get("position")),
        timestamp=None if mark is None else run.time(mark),
    )


@verb("close NAME")
def close(run: Run, step: Step) -> None:
    """Closes a reader, consumer or view."""
    run.close(step.arguments["name"])


@verb("expire [SUB] older-than=TIME")
def expire(run: Run, step: Step) -> None:
    """The administration expires messages of one subscription or of all."""
    seconds = int(step.arguments["older-than"]) // 1000
    if not seconds:
        raise StepFailed("older-than= goes by whole seconds, 1s is the least")
    run.on_topic("expire", sub=step.arguments.get("sub"), seconds=seconds)


@verb("reset-cursor SUB POSITION")
def reset_cursor(run: Run, step: Step) -> None:
    """The administration moves a subscription."""
    position = run.position(step.arguments["position"])
    run.on_topic("reset-cursor", sub=step.arguments["sub"], to=position)
