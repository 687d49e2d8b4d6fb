"""`cleaner`: Kafka's log cleaner: single passes, plans, status.

ledgerfold cleaner plan addresses --map
ledgerfold cleaner run --topic addresses
ledgerfold cleaner status

For a partitioned topic, the partitions are planned, cleaned or paused one after the other.

The cleaner runs passes automatically (docs/KAFKA.md, "A pass of the cleaner"); `run` runs one
immediately.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from ledgerfold.broker.cli.connecting import TOPIC, admin_of, partitions_of, print_why_waiting
from ledgerfold.broker.cli.exit_codes import DONE, FAILED
from ledgerfold.broker.cli.kafka.config import config_verbs
from ledgerfold.broker.cli.output import (
    ANSWER,
    DOCUMENT,
    ROWS,
    content,
    print_answer,
    print_object,
    printer,
    wants_table,
    width_of,
)
from ledgerfold.broker.cli.tables import Row, aligned, cut, fields_of, printable
from ledgerfold.broker.cli.units import FILE
from ledgerfold.broker.cli.verbs import Verbs, argument, defaults, flag
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.text import counted

if TYPE_CHECKING:
    from ledgerfold.broker.client.administration.kafka_answers import CleanerTurn, CleaningPlan

COMMANDS = Verbs()
VERBS = COMMANDS.command(
    "cleaner",
    "show, run and configure the log cleaner of Kafka topics",
    config_verbs("the broker's settings for Kafka topics", defaults(topic="")),
)


@VERBS.verb("run", "run one pass now: choose a log, clean it, report the reason")
@argument("--topic", "clean this topic; default: the cleaner chooses", default="")
@ROWS
def _run(options: argparse.Namespace) -> int:
    admin, code = admin_of(options), DONE
    topics = partitions_of(admin, options.topic) if options.topic else [""]
    plans = admin.kafka.plan_cleaning(*filter(None, topics))
    if any(each.is_eligible or (options.topic and each.cleanable_bytes) for each in plans):
        print_why_waiting(admin)
    with _printer(options) as show:
        for topic in topics:
            turn = admin.kafka.clean(topic)
            row = turn_row(turn, is_requested=bool(topic))
            if not turn.topic:
                plans = admin.kafka.plan_cleaning(*filter(None, [topic]))
                row["logs"] = [{"topic": each.topic, "why_not": _why_not(each)} for each in plans]
            show(row)
            if turn.failure or turn.was_aborted:
                code = FAILED
    return code


@VERBS.verb("plan", "show what a pass would do, without changes", TOPIC)
@flag("--map", "include up to 1000 keys of the offset map, which the compactor builds")
@ROWS
def _plan(options: argparse.Namespace) -> None:
    admin = admin_of(options)
    if options.map:
        print_why_waiting(admin)
    with _printer(options) as show:
        for topic in partitions_of(admin, options.topic):
            (plan,) = admin.kafka.plan_cleaning(topic, with_map=options.map)
            row = plan_row(plan)
            if options.map:
                row |= {
                    **fields_of(plan, "map_keys map_keys_max end_offset"),
                    "map": [_mapped(key) | {"offset": offset} for offset, key in plan.map_entries],
                }
            show(row)


def _mapped(key: bytes) -> dict[str, Any]:
    shown = content(key, b"")
    return {name: shown[name] for name in ("key", "key_encoding") if name in shown}


def plan_row(plan: CleaningPlan) -> dict[str, Any]:
    """Returns a plan as JSON. `tail` and `head`: first offset, and end offset (exclusive)."""
    return {
        "topic": plan.topic,
        "log": [plan.log_start_offset, plan.log_end_offset],
        "tail": [plan.log_start_offset, plan.first_dirty_offset],
        "head": [plan.first_dirty_offset, max(plan.bound_offset, plan.first_dirty_offset)],
        "clean_bytes": plan.clean_bytes,
        "cleanable_bytes": plan.cleanable_bytes,
        "ratio": round(plan.ratio, 6),
        "min_ratio": plan.min_ratio,
        "bound_by": plan.bound_by,
        "first_uncleanable_offset": plan.first_uncleanable_offset,
        "overdue_ms": plan.delay_ms,
        "repairs_checkpoint": plan.repairs_checkpoint,
        "verdict": "would be cleaned" if plan.is_eligible else _why_not(plan),
    }


def _why_not(plan: CleaningPlan) -> str:
    """Returns why the log is not cleaned, with the figures."""
    from ledgerfold.broker.kafka.cleaner.choice import Verdict

    if plan.is_eligible:
        return "it could be cleaned now"
    why_not: str = plan.why_not
    if why_not not in {each.value for each in Verdict}:
        return why_not
    if not plan.cleanable_bytes:
        return f"nothing to clean below offset {plan.first_uncleanable_offset} ({plan.bound_by})"
    return f"{why_not}: {plan.ratio:.4g} to {plan.min_ratio:g}"


def turn_row(turn: CleanerTurn, *, is_requested: bool) -> dict[str, Any]:
    plan, stats = turn.plan, turn.stats
    if turn.topic is None or plan is None:
        return {"cleaned": None, "deleted_segments": turn.deleted_segments}
    row: dict[str, Any] = {
        "cleaned": turn.topic,
        "why": _why(plan, is_requested=is_requested),
        "ratio": round(plan.ratio, 6),
        **fields_of(plan, "min_ratio clean_bytes cleanable_bytes"),
        "overdue_ms": plan.delay_ms,
        **fields_of(plan, "first_dirty_offset bound_offset bound_by"),
    }
    if stats is None:
        failure = turn.failure or "it was aborted; the log is as it was"
        return row | {"failure": failure, "failure_kind": turn.failure_kind or None}
    return row | {
        "end_offset": turn.end_offset,
        "checkpoint": turn.checkpoint,
        **fields_of(stats, "map_keys map_messages_read messages_read messages_written"),
        **fields_of(stats, "bytes_read bytes_written invalid_messages_read elapsed_ms"),
        "deleted_segments": turn.deleted_segments,
    }


def _why(plan: CleaningPlan, *, is_requested: bool) -> str:
    if plan.ratio > plan.min_ratio:
        why = f"dirty ratio {plan.ratio:.4g} above {plan.min_ratio:g}"
    elif plan.is_overdue:
        why = f"{plan.delay_ms} ms beyond max.compaction.lag.ms"
    else:
        why = "however clean"
    return f"requested; {why}" if is_requested else why


def _printer(options: argparse.Namespace) -> AbstractContextManager[Callable[[Row], None]]:
    """Returns a function that prints an object immediately, one for each partition."""
    gap = ""

    def print_lines(row: Row) -> None:
        nonlocal gap
        print(gap, end="")
        _print(row, width_of(options))
        gap = "\n"

    return printer(options, print_lines)


def _print(row: Row, width: int | None) -> None:
    """Prints a line for each field, and lists as tables."""
    tables: list[list[Row]] = []
    for name, value in row.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            tables.append(value)
        else:
            shown = " to ".join(map(str, value)) if isinstance(value, list) else value
            print(cut(f"{name:<25} {printable(str('-' if shown is None else shown))}", width))
    for table in tables:
        print(f"\n{aligned(table, width)}")


@VERBS.verb("status", "show gauges, states of logs, and the latest passes", DOCUMENT)
def _status(options: argparse.Namespace) -> None:
    cleaner = admin_of(options).kafka.cleaner()
    document: dict[str, Any] = {
        "gauges": {name: int(cleaner.gauges[name]) for name in sorted(cleaner.gauges)},
        "states": dict(sorted(cleaner.states.items())),
        "uncleanable": dict(sorted(cleaner.uncleanable.items())),
        "uncleanable_kinds": dict(sorted(cleaner.uncleanable_kinds.items())),
        "starting": cleaner.is_starting,
        "last_turns": list(cleaner.last_turns),
    }
    if not wants_table(options):
        print_object(options, document)
        return
    width = width_of(options)
    print(aligned([{"gauge": name, "value": value} for name, value in document["gauges"].items()]))
    if cleaner.is_starting:
        print("starting: topics are being loaded, and no pass starts automatically yet")
    for topic, text in document["states"].items():
        print(cut(f"states: {topic}: {printable(text)}", width))
    for topic, text in document["uncleanable"].items():
        kind = cleaner.uncleanable_kinds[topic]
        print(cut(f"uncleanable: {topic}: {kind}: {printable(text)}", width))
    print(f"last passes: {len(document['last_turns']) or 'none that did anything'}")
    for line in document["last_turns"]:
        print(cut(f"  {printable(line)}", width))


@VERBS.verb("checkpoint", "write Kafka's cleaner-offset-checkpoint")
@argument("--out", "the file to write; default: standard output", **FILE)
@argument("--namespace NS", "only topics of this namespace; default: all")
@ANSWER
def _checkpoint(options: argparse.Namespace) -> None:
    cleaner = admin_of(options).kafka.cleaner(options.namespace or "")
    if cleaner.shared_lines:
        raise InvalidRequest(
            f"Topics of several namespaces share the line {cleaner.shared_lines[0]!r}, because "
            "Kafka's names have no namespaces: choose one with --namespace."
        )
    text = cleaner.checkpoint_file
    logs = [line.rsplit(" ", 2) for line in text.splitlines()[2:]]
    if options.out is not None:
        options.out.write_text(text)
        document = {"file": str(options.out), "entries": len(logs)}
        text = f"{options.out}: {counted(len(logs), 'entry', 'entries')}"
        print_object(options, document, text)
        return
    rows = (
        {"topic": topic, "partition": int(partition), "offset": int(offset)}
        for topic, partition, offset in logs
    )
    print_answer(options, rows, text.splitlines())


@VERBS.verb("pause", "abort a topic's cleaning, and pause it", TOPIC, ANSWER)
def _pause(options: argparse.Namespace) -> None:
    admin = admin_of(options)
    topics = partitions_of(admin, options.topic)
    _print_states(options, ((each, admin.kafka.pause_cleaning(each)) for each in topics))


@VERBS.verb("resume", "undo one pause", TOPIC, ANSWER)
def _resume(options: argparse.Namespace) -> None:
    """Resumes the partitions that are paused. Fails only if none was paused."""
    admin = admin_of(options)
    partitions = partitions_of(admin, options.topic)
    refusals = list[InvalidRequest]()

    def resumed(topic: str) -> str:
        try:
            return admin.kafka.resume_cleaning(topic) or "free"
        except InvalidRequest as refusal:
            refusals.append(refusal)
            if len(refusals) == len(partitions):
                raise
            return str(refusal)

    _print_states(options, ((each, resumed(each)) for each in partitions))


def _print_states(options: argparse.Namespace, states: Iterator[tuple[str, str]]) -> None:
    """Prints each state immediately: a later one may fail."""
    rows = ({"topic": topic, "state": state} for topic, state in states)
    print_answer(options, rows, (state for _, state in states))
