"""`clock`: shows and moves the manual clock of a broker started with --test-clock."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from ledgerfold.broker.cli.connecting import admin_of
from ledgerfold.broker.cli.output import add_output, print_object, print_rows
from ledgerfold.broker.cli.units import parse_moment_ms, parse_time_ms

Commands = argparse._SubParsersAction


def add_clock(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("clock", help="show the broker's time, or move its manual clock")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    show = verbs.add_parser("show", help="show the broker's time")
    show.set_defaults(run=_show)
    move = verbs.add_parser("set", help="move the clock to a later time, and run what becomes due")
    move.add_argument("time", type=parse_moment_ms, help="ISO 8601, or ms since the epoch")
    move.set_defaults(run=_set)
    advance = verbs.add_parser("advance", help="move the clock forward, and run what becomes due")
    advance.add_argument("by", type=parse_time_ms, help="500ms, 10s, 5m, 2h, 3d or 1w")
    advance.set_defaults(run=_advance)
    for verb in (show, move, advance):
        add_output(verb, ("table", "json", "jsonl"))


def _show(options: argparse.Namespace) -> None:
    _print(options, admin_of(options).clock().now_ms)


def _set(options: argparse.Namespace) -> None:
    _print(options, admin_of(options).move_clock(to_ms=options.time))


def _advance(options: argparse.Namespace) -> None:
    _print(options, admin_of(options).move_clock(advance_ms=options.by))


def _print(options: argparse.Namespace, now_ms: int) -> None:
    now = datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds")
    row = {"now": now, "now_ms": now_ms}
    if options.output == "json":
        print_object(options, row)
    else:
        print_rows(options, [row])
