"""`topics compact`, `compaction-status`, `cancel-compaction`, and `runs`: with pulsar-admin's
messages.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from ledgerfold.broker.cli.connecting import TOPIC, admin_of, print_why_waiting, why_waiting
from ledgerfold.broker.cli.exit_codes import DAMAGED, DONE, FAILED
from ledgerfold.broker.cli.output import (
    ANSWER,
    ROWS,
    print_object,
    print_rows,
    printer,
    wants_table,
)
from ledgerfold.broker.cli.tables import fields_of
from ledgerfold.broker.cli.units import TIME, parse_count
from ledgerfold.broker.cli.verbs import Verbs, argument, flag
from ledgerfold.broker.common.durations import time_left
from ledgerfold.broker.common.sizes import format_size
from ledgerfold.broker.common.traffic import iso_time
from ledgerfold.storage.errors import CompactedLedgerDamaged, Corruption, MissingFile, Timeout
from ledgerfold.storage.text import counted

if TYPE_CHECKING:
    from ledgerfold.broker.client.administration.admin import Admin
    from ledgerfold.v1.admin_pb2 import GetCompactionStatusResponse, ThresholdCheck
    from ledgerfold.v1.records_pb2 import CompactionStrategy, RunRecord

VERBS = Verbs()
COMMANDS = Verbs()
# The catalogue's default, which `--help` need not load.
DEFAULT_STRATEGY = "publishing-order"
_FOLLOW_S = 1.0
# The runs that `runs --follow` asks for at a time: more never end between two requests.
_FOLLOWED_MAX = 1000
_DAMAGE = frozenset(kind.reason for kind in (CompactedLedgerDamaged, Corruption, MissingFile))


@VERBS.verb("compact", "compact a topic", TOPIC)
@flag("--wait", "wait until it is done")
@argument("--timeout", "time limit of --wait", **TIME)
@ANSWER
def _compact(options: argparse.Namespace) -> int:
    admin = admin_of(options)
    number = admin.trigger_compaction(options.topic)
    if number == 0:
        return report_nothing_new(options)
    if not options.wait:
        document = {"topic": options.topic, "run": number, "state": "requested"}
        print_object(options, document, f"Topic compaction requested for {options.topic}.")
        if why := why_waiting(admin, ends_at_once=True):
            print(why, file=sys.stderr)
        return DONE
    return wait_and_report(options, admin, options.timeout)


def report_nothing_new(options: argparse.Namespace) -> int:
    document = {"topic": options.topic, "run": None, "state": "nothing new"}
    print_object(options, document, f"Nothing new to compact in {options.topic}.")
    return DONE


def wait_and_report(
    options: argparse.Namespace, admin: Admin, timeout_ms: int | None = None
) -> int:
    """Waits for the end of the run in progress and reports it. Returns the exit code."""
    print_why_waiting(admin)
    return show_end(options, wait_for_end(admin, options.topic, timeout_ms))


def show_end(options: argparse.Namespace, status: GetCompactionStatusResponse) -> int:
    """Reports ended runs, as report_end or as `runs`. Returns the exit code."""
    if options.output is None:
        return report_end(status)
    runs = _runs(status)
    print_rows(options, map(_json, runs))
    return max(map(_code, runs))


def _runs(status: GetCompactionStatusResponse) -> list[RunRecord]:
    """Returns the last run of each partition, or of the topic."""
    return [each.run for each in status.partitions] or [status.run]


def wait_for_end(
    admin: Admin, topic: str, timeout_ms: int | None = None
) -> GetCompactionStatusResponse:
    """Watches a run until its end, with a progress bar on a terminal. Raises Timeout."""
    timeout_s = None if timeout_ms is None else timeout_ms / 1000
    last = None
    try:
        with progress_bar() as show:
            for status in admin.watch_compaction(topic, timeout_seconds=timeout_s):
                last = status
                show(status)
    except Timeout:
        raise Timeout(f"the compaction of {topic} is still running.") from None
    return last if last is not None else admin.compaction_status(topic)


def report_end(status: GetCompactionStatusResponse) -> int:
    """Prints one line of figures, or the error, for each partition. Returns the exit code."""
    if not status.partitions:
        return _report_run(status.run)
    return max(_report_run(run, f"{_shown(run.topic)}: ") for run in _runs(status))


def _report_run(run: RunRecord, prefix: str = "") -> int:
    code = _code(run)
    if code == DONE:
        print(f"{prefix}{figures(run)}")
    else:
        why = run.error_message or "the compaction failed"
        print(f"ledgerfold: {prefix}{why}", file=sys.stderr)
    return code


def _code(run: RunRecord) -> int:
    from ledgerfold.v1.records_pb2 import RUN_STATE_SUCCESS

    if run.state == RUN_STATE_SUCCESS:
        return DONE
    return DAMAGED if run.error_reason in _DAMAGE else FAILED


def _shown(topic: str) -> str:
    return topic.removeprefix("persistent://")


def figures(run: RunRecord) -> str:
    counts = run.counts
    ledger = f"ledger {run.ledger_id}" if run.ledger_id >= 0 else "no ledger"
    return (
        f"run {run.number}: {counts.messages_in:,} -> {counted(counts.messages_out, 'message')}, "
        f"{counted(counts.removed_events, 'removed event')}, "
        f"{format_size(counts.bytes_in)} -> {format_size(counts.bytes_out)}, "
        f"{(run.ended_ms - run.started_ms) / 1000:.2f} s, {ledger}, "
        f"horizon {_horizon(run)}{_by_strategy(run)}"
    )


def _by_strategy(run: RunRecord) -> str:
    """Returns the strategy for a report; "" for Pulsar's order, the default."""
    strategy = _strategy(run)
    return "" if strategy in ("", DEFAULT_STRATEGY) else f", by {strategy}"


def _strategy(run: RunRecord) -> str:
    from ledgerfold.v1.records_pb2 import CompactionStrategy

    return _strategy_text(CompactionStrategy(name=run.strategy, settings=run.strategy_settings))


def _strategy_text(strategy: CompactionStrategy) -> str:
    from ledgerfold.strategies.catalogue import strategy_text

    return strategy_text(strategy)


def _horizon(run: RunRecord) -> str:
    """Formats the horizon; "none" for a run that found no messages."""
    horizon = run.horizon
    return f"{horizon.ledger_id}:{horizon.entry_id}" if run.HasField("horizon") else "none"


# Before the compactor has reported any, the phase is unspecified.
_PHASES = {"unspecified": "starting", "one": "phase one", "two": "phase two"}


@contextmanager
def progress_bar() -> Iterator[Callable[[GetCompactionStatusResponse], object]]:
    """Yields a function that shows a status at each change; without a terminal it does nothing."""
    if not sys.stderr.isatty():
        yield lambda status: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:<10}"), BarColumn(), TextColumn("{task.fields[note]}"))
    console = Console(stderr=True)
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        task = progress.add_task("queued", total=1, note="")

        def show(status: GetCompactionStatusResponse) -> None:
            from ledgerfold.v1.admin_pb2 import CompactionPhase

            at = status.progress
            name = CompactionPhase.Name(at.phase).removeprefix("COMPACTION_PHASE_").lower()
            note = f"{at.tasks_done}/{at.tasks_total} tasks, {counted(at.messages, 'message')}"
            if at.HasField("left_ms"):
                note += f", {time_left(at.left_ms)} of this phase"
            progress.update(
                task,
                description=_PHASES.get(name, name),
                completed=at.bytes,
                total=at.bytes_total or None,
                note=note,
            )

        yield show


@VERBS.verb("compaction-status", "show the result of the last compaction", TOPIC)
@flag("-w --wait-complete", "wait until it is done")
@ANSWER
def _status(options: argparse.Namespace) -> int:
    admin = admin_of(options)
    status = admin.compaction_status(options.topic)
    if options.wait_complete:
        status = wait_for_end(admin, options.topic)
    if options.output is None:
        return print_status(status)
    print_object(options, _status_json(status))
    return _status_code(status)


def _status_json(status: GetCompactionStatusResponse) -> dict[str, Any]:
    """Returns pulsar-admin's two with the runs and the strategy of the next one."""
    from ledgerfold.v1.admin_pb2 import CompactionStatus

    return {
        "status": CompactionStatus.Name(status.status).removeprefix("COMPACTION_STATUS_"),
        "last_error": status.last_error,
        "strategy": _strategy_text(status.strategy),
        "threshold_checks": [_check_json(*each) for each in _checks(status)],
        "runs": [_json(run) for run in _runs(status) if run.number],
    }


def _checks(status: GetCompactionStatusResponse) -> Iterator[tuple[int, ThresholdCheck]]:
    """Yields the last check of each partition, with its number, or of the topic, with -1."""
    first = 0 if status.partitions else -1
    for partition, each in enumerate(status.partitions or [status], first):
        if each.HasField("threshold_check"):
            yield partition, each.threshold_check


def _check_json(partition: int, check: ThresholdCheck) -> dict[str, Any]:
    return {
        "partition": partition,
        "time": check.checked_ms,
        **fields_of(check, "fired why backlog_bytes threshold_bytes level"),
    }


def _status_code(status: GetCompactionStatusResponse) -> int:
    from ledgerfold.v1 import admin_pb2

    if status.status != admin_pb2.COMPACTION_STATUS_ERROR:
        return DONE
    is_damaged = any(run.error_reason in _DAMAGE for run in _runs(status))
    return DAMAGED if is_damaged else FAILED


def print_status(status: GetCompactionStatusResponse) -> int:
    """Prints pulsar-admin's message, the strategies unless they are the default, and the last check
    of a threshold.

    Returns the exit code; after an error, that of the run.
    """
    code = _print_outcome(status)
    last = {text for run in _runs(status) if (text := _strategy(run))}
    coming = _strategy_text(status.strategy)
    if {*last, coming} - {"", DEFAULT_STRATEGY}:
        by = f"By {' and '.join(sorted(last))}; the" if last else "The"
        print(f"{by} next run's strategy is {coming}.")
    for partition, check in _checks(status):
        if check.threshold_bytes:
            print(_check_text(partition, check))
    return code


def _check_text(partition: int, check: ThresholdCheck) -> str:
    outcome = "a run was queued" if check.fired else f"no run: {check.why}"
    whose = "" if partition < 0 else f"Partition {partition}: "
    return (
        f"{whose}At {iso_time(check.checked_ms)}, {format_size(check.backlog_bytes)} were not "
        f"compacted, the {check.level}'s threshold was {format_size(check.threshold_bytes)}; "
        f"{outcome}."
    )


def _print_outcome(status: GetCompactionStatusResponse) -> int:
    from ledgerfold.v1 import admin_pb2

    if status.status == admin_pb2.COMPACTION_STATUS_NOT_RUN:
        print("Compaction has not been run for this topic.")
    elif status.status == admin_pb2.COMPACTION_STATUS_RUNNING:
        print("Compaction is currently running.")
    elif status.status == admin_pb2.COMPACTION_STATUS_SUCCESS:
        print("Compaction was a success.")
    else:
        print(f"Error in compaction: {status.last_error}", file=sys.stderr)
    return _status_code(status)


@VERBS.verb("cancel-compaction", "cancel the running compaction", TOPIC, ANSWER)
def _cancel(options: argparse.Namespace) -> int:
    number = admin_of(options).cancel_compaction(options.topic)
    text = f"Run {number} cancelled." if number else "No compaction is running."
    print_object(options, {"topic": options.topic, "run": number or None}, text)
    return DONE


@COMMANDS.verb("runs", "list compaction runs, newest first")
@argument("topic", "default: all topics", nargs="?", default="")
@argument("-n --number", "at most this many; 0: all; default 20", type=parse_count, default=20)
@flag("-f --follow", "print oldest first, and then each new run when it ends")
@ROWS
def _list(options: argparse.Namespace) -> int:
    admin = admin_of(options)
    if options.follow:
        return follow_runs(options, admin, partial(threading.Event().wait, _FOLLOW_S))
    runs = admin.runs(options.topic, limit=options.number)
    print_rows(options, _table(runs) if wants_table(options) else map(_json, runs))
    return DONE


def follow_runs(options: argparse.Namespace, admin: Admin, wait: Callable[[], object]) -> int:
    """Prints runs that have ended, and others as they end, until it is interrupted.

    `wait` waits between two requests.
    """
    shown = dict[str, tuple[int, int]]()
    limit = options.number
    with printer(options, _print_ended) as show:
        while True:
            runs = admin.runs(options.topic, limit=limit)
            for run in reversed(runs):
                # A topic's runs end one after the other. A new topic of the name counts from 1.
                at = run.ended_ms, run.number
                if run.ended_ms and at > shown.get(run.topic, (0, 0)):
                    shown[run.topic] = at
                    row: Any = run if wants_table(options) else _json(run)
                    show(row)
            sys.stdout.flush()
            limit = _FOLLOWED_MAX
            wait()


def _print_ended(run: Any) -> None:
    """Prints a run that has ended as one line."""
    text = figures(run) if not run.error_message else f"run {run.number}: {run.error_message}"
    print(f"{_shown(run.topic)}: {text}")


def _table(runs: Sequence[RunRecord]) -> Iterator[dict[str, Any]]:
    """Yields rows that fit into a terminal; omits columns for errors and strategies if they are not
    needed.
    """
    has_errors = any(run.error_message for run in runs)
    has_strategies = any(map(_by_strategy, runs))
    for run in runs:
        row, counts = _json(run), run.counts
        shown = {name: row[name] for name in ("topic", "run", "state", "trigger")}
        shown |= {
            "messages": f"{counts.messages_in:,} -> {counts.messages_out:,}",
            "size": f"{format_size(counts.bytes_in)} -> {format_size(counts.bytes_out)}",
            "took": f"{row['duration_ms'] / 1000:.2f} s" if run.ended_ms else "",
            "horizon": row["horizon"],
        }
        shown |= {"strategy": _strategy(run)} if has_strategies else {}
        yield shown | ({"error": row["error"]} if has_errors else {})


def _json(run: RunRecord) -> dict[str, Any]:
    from ledgerfold.storage.records import bytes_written
    from ledgerfold.v1.records_pb2 import RunState, RunTrigger

    return {
        "topic": _shown(run.topic),
        "run": run.number,
        "state": RunState.Name(run.state).removeprefix("RUN_STATE_").lower(),
        "trigger": RunTrigger.Name(run.trigger).removeprefix("RUN_TRIGGER_").lower(),
        "strategy": run.strategy,
        "strategy_settings": dict(run.strategy_settings),
        "strategy_version": run.strategy_version,
        "engine": run.engine,
        **fields_of(run.counts, "messages_in messages_out removed_events"),
        **fields_of(run.counts, "bytes_in bytes_out bytes_new"),
        "bytes_written": bytes_written(run.counts),
        "garbage_bytes": run.counts.garbage_bytes,
        "duration_ms": max(0, run.ended_ms - run.started_ms) if run.ended_ms else 0,
        "ledger": run.ledger_id,
        "horizon": _horizon(run),
        "error": run.error_message,
    }
