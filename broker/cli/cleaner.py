"""`cleaner`: Kafka's log cleaner, a turn at a time, and what it would do.

ledgerfold cleaner plan addresses --map
ledgerfold cleaner run --topic addresses
ledgerfold cleaner status

Asked of a partitioned topic's name, each of its partitions is planned, cleaned, paused, one after
the other.

The cleaner takes turns by itself (docs/KAFKA.md, "A turn"); `run` takes one more, now.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ledgerfold.broker.cli.compaction import tell_of_waiting
from ledgerfold.broker.cli.connecting import add_name, admin_of, partitions_of
from ledgerfold.broker.cli.exit_codes import DONE, FAILED
from ledgerfold.broker.cli.kafka_config import add_broker_config_verbs
from ledgerfold.broker.cli.output import (
    add_answer,
    add_output,
    content,
    json_printer,
    print_answer,
    print_object,
    wants_table,
    width_of,
)
from ledgerfold.broker.cli.tables import Row, aligned, cut, printable
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.paths import absolute_path
from ledgerfold.storage.words import counted

if TYPE_CHECKING:
    from ledgerfold.broker.client.kafka_answers import CleanerTurn, CleaningPlan

Commands = argparse._SubParsersAction
_FORMATS = ("table", "json", "jsonl")


def add_cleaner(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("cleaner", help="Kafka topics: their log cleaner")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    run = verbs.add_parser("run", help="one turn now: choose a log, clean it, and say why")
    run.add_argument("--topic", default="", help="this one; default: as the cleaner chooses")
    add_output(run, _FORMATS)
    run.set_defaults(run=_run)
    plan = verbs.add_parser("plan", help="what a turn would do; changes nothing")
    add_name(plan)
    keys = "with the offset map, up to 1000 of its keys; the compactor makes it"
    plan.add_argument("--map", action="store_true", help=keys)
    add_output(plan, _FORMATS)
    plan.set_defaults(run=_plan)
    status = verbs.add_parser("status", help="gauges by Kafka's names, states, the last turns")
    add_output(status, ("table", "jsonl", "json"))
    status.set_defaults(run=_status)
    checkpoint = verbs.add_parser("checkpoint", help="Kafka's cleaner-offset-checkpoint")
    checkpoint.add_argument(
        "--out", type=absolute_path, metavar="FILE", help="default: it is printed"
    )
    checkpoint.add_argument("--namespace", metavar="NS", help="of its topics; default: of all")
    checkpoint.set_defaults(run=_checkpoint)
    add_answer(checkpoint)
    for name, text, call in (
        ("pause", "abort a topic's round, and let none begin", _pause),
        ("resume", "take one pause back", _resume),
    ):
        verb = verbs.add_parser(name, help=text)
        add_name(verb)
        add_answer(verb)
        verb.set_defaults(run=call)
    add_broker_config_verbs(verbs)


def _run(options: argparse.Namespace) -> int:
    admin, code = admin_of(options), DONE
    topics = partitions_of(admin, options.topic) if options.topic else [""]
    plans = admin.kafka.plan_cleaning(*filter(None, topics))
    if any(each.is_eligible or (options.topic and each.cleanable_bytes) for each in plans):
        tell_of_waiting(admin)
    with _printer(options) as show:
        for topic in topics:
            turn = admin.kafka.clean(topic)
            row = turn_row(turn, is_asked_for=bool(topic))
            if not turn.topic:
                plans = admin.kafka.plan_cleaning(*filter(None, [topic]))
                row["logs"] = [{"topic": each.topic, "why_not": _why_not(each)} for each in plans]
            show(row)
            if turn.failure or turn.was_aborted:
                code = FAILED
    return code


def _plan(options: argparse.Namespace) -> None:
    admin = admin_of(options)
    if options.map:
        tell_of_waiting(admin)
    with _printer(options) as show:
        for topic in partitions_of(admin, options.topic):
            (plan,) = admin.kafka.plan_cleaning(topic, with_map=options.map)
            row = plan_row(plan)
            if options.map:
                row |= {
                    "map_keys": plan.map_keys,
                    "map_keys_max": plan.map_keys_max,
                    "end_offset": plan.end_offset,
                    "map": [_mapped(key) | {"offset": offset} for offset, key in plan.map_entries],
                }
            show(row)


def _mapped(key: bytes) -> dict[str, Any]:
    shown = content(key, b"")
    return {name: shown[name] for name in ("key", "key_encoding") if name in shown}


def plan_row(plan: CleaningPlan) -> dict[str, Any]:
    """Offsets of tail and head: from the first up to the second, which is not in it."""
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
    """With the figures that it rests on."""
    from ledgerfold.broker.kafka.choice import Verdict

    if plan.is_eligible:
        return "it could be cleaned now"
    told: str = plan.why_not
    if told not in {each.value for each in Verdict}:
        return told
    if not plan.cleanable_bytes:
        return f"nothing to clean below offset {plan.first_uncleanable_offset} ({plan.bound_by})"
    return f"{told}: {plan.ratio:.4g} to {plan.min_ratio:g}"


def turn_row(turn: CleanerTurn, *, is_asked_for: bool) -> dict[str, Any]:
    plan, stats = turn.plan, turn.stats
    if turn.topic is None or plan is None:
        return {"cleaned": None, "deleted_segments": turn.deleted_segments}
    row: dict[str, Any] = {
        "cleaned": turn.topic,
        "why": _why(plan, is_asked_for=is_asked_for),
        "ratio": round(plan.ratio, 6),
        "min_ratio": plan.min_ratio,
        "clean_bytes": plan.clean_bytes,
        "cleanable_bytes": plan.cleanable_bytes,
        "overdue_ms": plan.delay_ms,
        "first_dirty_offset": plan.first_dirty_offset,
        "bound_offset": plan.bound_offset,
        "bound_by": plan.bound_by,
    }
    if stats is None:
        failure = turn.failure or "it was aborted; the log is as it was"
        return row | {"failure": failure, "failure_kind": turn.failure_kind or None}
    return row | {
        "end_offset": turn.end_offset,
        "checkpoint": turn.checkpoint,
        "map_keys": stats.map_keys,
        "map_messages_read": stats.map_messages_read,
        "messages_read": stats.messages_read,
        "messages_written": stats.messages_written,
        "bytes_read": stats.bytes_read,
        "bytes_written": stats.bytes_written,
        "invalid_messages_read": stats.invalid_messages_read,
        "elapsed_ms": stats.elapsed_ms,
        "deleted_segments": turn.deleted_segments,
    }


def _why(plan: CleaningPlan, *, is_asked_for: bool) -> str:
    if plan.ratio > plan.min_ratio:
        why = f"dirty ratio {plan.ratio:.4g} above {plan.min_ratio:g}"
    elif plan.is_overdue:
        why = f"{plan.delay_ms} ms beyond max.compaction.lag.ms"
    else:
        why = "however clean"
    return f"asked for; {why}" if is_asked_for else why


@contextmanager
def _printer(options: argparse.Namespace) -> Iterator[Callable[[Row], None]]:
    """Prints objects as they come, of a partitioned topic one for each partition."""
    if not wants_table(options):
        with json_printer(options) as show:
            yield show
        return
    width, gap = width_of(options), ""

    def show_lines(row: Row) -> None:
        nonlocal gap
        print(gap, end="")
        _print(row, width)
        gap = "\n"

    yield show_lines


def _print(row: Row, width: int | None) -> None:
    """For people: a line for each of its fields, and its lists as tables."""
    tables: list[list[Row]] = []
    for name, value in row.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            tables.append(value)
        else:
            shown = " to ".join(map(str, value)) if isinstance(value, list) else value
            print(cut(f"{name:<25} {printable(str('-' if shown is None else shown))}", width))
    for table in tables:
        print(f"\n{aligned(table, width)}")


def _status(options: argparse.Namespace) -> None:
    told = admin_of(options).kafka.cleaner()
    document: dict[str, Any] = {
        "gauges": {name: int(told.gauges[name]) for name in sorted(told.gauges)},
        "states": dict(sorted(told.states.items())),
        "uncleanable": dict(sorted(told.uncleanable.items())),
        "uncleanable_kinds": dict(sorted(told.uncleanable_kinds.items())),
        "starting": told.is_starting,
        "last_turns": list(told.last_turns),
    }
    if not wants_table(options):
        print_object(options, document)
        return
    width = width_of(options)
    print(aligned([{"gauge": name, "value": value} for name, value in document["gauges"].items()]))
    if told.is_starting:
        print("starting: topics are being loaded, and no turn is taken by itself yet")
    for topic, text in document["states"].items():
        print(cut(f"states: {topic}: {printable(text)}", width))
    for topic, text in document["uncleanable"].items():
        kind = told.uncleanable_kinds[topic]
        print(cut(f"uncleanable: {topic}: {kind}: {printable(text)}", width))
    print(f"last turns: {len(document['last_turns']) or 'none that did anything'}")
    for line in document["last_turns"]:
        print(cut(f"  {printable(line)}", width))


def _checkpoint(options: argparse.Namespace) -> None:
    told = admin_of(options).kafka.cleaner(options.namespace or "")
    if told.shared_lines:
        raise InvalidRequest(
            f"Topics of several namespaces have the line {told.shared_lines[0]!r}, for names in "
            "Kafka know no namespaces: say whose with --namespace."
        )
    text = told.checkpoint_file
    logs = [line.rsplit(" ", 2) for line in text.splitlines()[2:]]
    if options.out is not None:
        options.out.write_text(text)
        document = {"file": str(options.out), "entries": len(logs)}
        said = f"{options.out}: {counted(len(logs), 'entry', 'entries')}"
        print_object(options, document, said)
        return
    rows = (
        {"topic": topic, "partition": int(partition), "offset": int(offset)}
        for topic, partition, offset in logs
    )
    print_answer(options, rows, text.splitlines())


def _pause(options: argparse.Namespace) -> None:
    admin = admin_of(options)
    topics = partitions_of(admin, options.topic)
    _print_states(options, ((each, admin.kafka.pause_cleaning(each)) for each in topics))


def _resume(options: argparse.Namespace) -> None:
    """Those partitions that are paused; an error only when none is."""
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
    """One after the other, as they come: one may fail."""
    rows = ({"topic": topic, "state": state} for topic, state in states)
    print_answer(options, rows, (state for _, state in states))
