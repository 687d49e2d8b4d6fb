"""`faults`: injects faults into a broker that allows it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ledgerfold.broker.cli.connecting import admin_of
from ledgerfold.broker.cli.output import ANSWER, ROWS, print_object, print_rows, wants_table
from ledgerfold.broker.cli.tables import fields_of
from ledgerfold.broker.cli.units import COUNT, POSITIVE, PROBABILITY, TIME
from ledgerfold.broker.cli.verbs import Argument, Verbs, argument, flag, together

if TYPE_CHECKING:
    from ledgerfold.v1.admin_pb2 import Fault

COMMANDS = Verbs()
FAULTS = COMMANDS.command(
    "faults",
    "make a broker fail on purpose, to test clients",
    description="Adds and removes rules that make operations of a broker fail. The broker must "
    "have been started with --allow-faults. `ledgerfold reset` and a restart remove all rules.",
)
_ADD = FAULTS.command(
    "add",
    "add a rule, and print it with its id",
    title="kinds",
    metavar="KIND",
    description="Adds a rule, which applies to operations that match all of its options.",
)
_OPERATIONS = ("create-producer", "publish", "subscribe", "read", "lookup")
_TOPICS = together(
    argument("--topic TOPIC", "only this topic, with its partitions", default=""),
    argument("--namespace NAMESPACE", "only topics of this namespace", default=""),
)
_SCOPE = together(
    _TOPICS,
    argument("--producer NAME", "only this producer", default=""),
    argument("--subscription NAME", "only this subscription", default=""),
    argument("--consumer NAME", "only this consumer or reader", default=""),
)
_NEXT = argument("--next N", "hit N times; default: no limit", **POSITIVE, default=0)
_EVERY = argument("--every N", "hit every Nth message; default: each", **POSITIVE, default=0)
_PROBABILITY = argument(
    "--probability P", "hit with this probability, such as 0.1", **PROBABILITY, default=0.0
)
_SEED = argument("--seed N", "seed of the random numbers; default: 0", **COUNT, default=0)
_RATE = together(_NEXT, _EVERY, _PROBABILITY, _SEED)
_LIMITS = together(_RATE, ANSWER)


def _operation(*choices: str) -> Argument:
    return argument("operation", "the operation that fails", choices=choices)


@_ADD.verb("fail", "fail an operation with an error", _operation(*_OPERATIONS), _SCOPE, _RATE)
@argument("--error NAME", "the error's class, such as ProducerBusy", required=True)
@ANSWER
def _fail(options: argparse.Namespace) -> None:
    _add(options, "fail", options.operation, error=options.error)


@_ADD.verb("disconnect", "disconnect a producer, consumer or reader", _operation("publish", "read"))
@_SCOPE
@_LIMITS
def _disconnect(options: argparse.Namespace) -> None:
    _add(options, "disconnect", options.operation)


@_ADD.verb("delay", "delay the answer to an operation", _operation(*_OPERATIONS))
@argument("time", "the delay", **TIME)
@_SCOPE
@_LIMITS
def _delay(options: argparse.Namespace) -> None:
    _add(options, "delay", options.operation, delay_ms=options.time)


@_ADD.verb("lose-receipt", "store a message, but do not send its receipt", _TOPICS)
@argument("--producer NAME", "only this producer", default="")
@flag("--keep-connection", "keep the producer connected; default: disconnect it")
@_LIMITS
def _lose_receipt(options: argparse.Namespace) -> None:
    _add(options, "lose-receipt", keeps_connection=options.keep_connection)


@_ADD.verb("disk-full", "fail the broker's writes to the disk", _NEXT, ANSWER)
def _disk_full(options: argparse.Namespace) -> None:
    _add(options, "disk-full")


@_ADD.verb("fail-compaction", "kill the compactor in a phase, or fail the commit")
@argument("phase", "the phase in which it fails", choices=("one", "two", "commit"))
@_TOPICS
@_LIMITS
def _fail_compaction(options: argparse.Namespace) -> None:
    _add(options, "fail-compaction", phase=options.phase)


@FAULTS.verb("list", "list the rules with the numbers of their hits", ROWS)
def _list(options: argparse.Namespace) -> None:
    rows = map(_row, admin_of(options).list_faults())
    print_rows(options, map(_short, rows) if wants_table(options) else rows)


@FAULTS.verb("remove", "remove a rule", argument("id", "the rule's id", **POSITIVE), ANSWER)
def _remove(options: argparse.Namespace) -> None:
    print_object(options, _row(admin_of(options).remove_fault(options.id)))


@FAULTS.verb("clear", "remove all rules", ANSWER)
def _clear(options: argparse.Namespace) -> None:
    print_object(options, {"removed_faults": admin_of(options).clear_faults()})


def _add(options: argparse.Namespace, kind: str, operation: str = "", **effect: Any) -> None:
    """Adds a rule with the options that its verb has."""
    given = {name: getattr(options, name, None) for name in _NAMES}
    limits = {name: value for name, value in given.items() if value}
    fault = admin_of(options).add_fault(kind, operation, **effect, **limits)
    print_object(options, _row(fault))


_SCOPE_NAMES = ("topic", "namespace", "producer", "subscription", "consumer")
_NAMES = (*_SCOPE_NAMES, "next", "every", "probability", "seed")


def _row(fault: Fault) -> dict[str, Any]:
    from ledgerfold.broker.client.administration.state_calls import fault_words

    kind, operation, phase = fault_words(fault)
    return {
        "id": fault.id,
        "kind": kind,
        "operation": operation,
        **fields_of(fault, "error delay_ms keeps_connection"),
        "phase": phase,
        **{name: getattr(fault, name) for name in _NAMES},
        "hits": fault.hits,
    }


def _short(row: dict[str, Any]) -> dict[str, Any]:
    """Returns a row of a table: what it does, its hits, and what it applies to."""
    effect = row["error"] or (row["phase"] and f"phase {row['phase']}")
    if row["delay_ms"]:
        effect = f"{row['delay_ms']} ms"
    if row["probability"]:
        effect += f" with probability {row['probability']:g}"
    scope = [f"{name}={row[name]}" for name in _SCOPE_NAMES if row[name]]
    return {
        **{name: row[name] for name in ("id", "kind", "operation")},
        "effect": effect,
        **{name: row[name] for name in ("next", "every", "hits")},
        "applies_to": " ".join(scope) or "everything",
    }
