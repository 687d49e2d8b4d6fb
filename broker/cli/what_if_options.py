"""What `what-if` is asked: strategies, whether to list what differs, times to compact.

>>> parse_strategy("keep-n:n=2").settings["n"]
'2'
>>> parse_thresholds("1K,2M")
[1024, 2097152]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from ledgerfold.broker.cli.strategies import settings_of
from ledgerfold.broker.cli.units import parse_count, parse_size, parse_time_ms

if TYPE_CHECKING:
    from ledgerfold.v1.records_pb2 import CompactionStrategy
    from ledgerfold.v1.what_if_pb2 import ReplaySetting

_DIFFERENCES = 20


class Question(NamedTuple):
    """`differences_max` 0: not asked."""

    strategies: list[CompactionStrategy]
    differences_max: int
    replays: list[ReplaySetting]


def add_question(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "topic", nargs="?", help="NAME, TENANT/NAMESPACE/NAME, or with persistent://"
    )
    parser.add_argument(
        "--strategy",
        action="append",
        default=[],
        metavar="NAME[:FIELD=VALUE,...]",
        help="one to look at, several times for several; default the topic's own",
    )
    parser.add_argument(
        "--diff",
        nargs="?",
        type=parse_count,
        const=_DIFFERENCES,
        default=0,
        metavar="KEYS",
        help=f"list so many keys that the strategies leave with other messages ({_DIFFERENCES})",
    )
    parser.add_argument(
        "--threshold",
        action="append",
        type=parse_thresholds,
        default=[],
        metavar="SIZE,...",
        help="replay the history: a run when more than SIZE is behind the horizon",
    )
    parser.add_argument(
        "--every",
        action="append",
        type=parse_intervals,
        default=[],
        metavar="TIME,...",
        help="replay the history: a run each TIME",
    )


def question_of(options: argparse.Namespace) -> Question:
    """Raises InvalidRequest."""
    from ledgerfold.v1.what_if_pb2 import ReplaySetting

    thresholds = chain.from_iterable(options.threshold)
    intervals = chain.from_iterable(options.every)
    return Question(
        [parse_strategy(each) for each in options.strategy],
        options.diff,
        [
            *(ReplaySetting(threshold_bytes=each) for each in thresholds),
            *(ReplaySetting(interval_ms=each) for each in intervals),
        ],
    )


def parse_strategy(text: str) -> CompactionStrategy:
    """NAME or NAME:field=value,field=value; one's own is named "module:Class", settings behind it.

    Raises InvalidRequest.
    """
    from ledgerfold.strategies.catalogue import checked
    from ledgerfold.v1.records_pb2 import CompactionStrategy

    name, colon, rest = text.rpartition(":")
    if not colon or "=" not in rest:
        name, rest = text, ""
    settings = settings_of(filter(None, rest.split(",")))
    return checked(CompactionStrategy(name=name, settings=settings))


def parse_thresholds(text: str) -> list[int]:
    return _parsed(text, parse_size)


def parse_intervals(text: str) -> list[int]:
    return _parsed(text, parse_time_ms)


def _parsed(text: str, parse: Callable[[str], int]) -> list[int]:
    values = [parse(each) for each in text.split(",")]
    if 0 in values:
        raise argparse.ArgumentTypeError("1 is the least")
    return values
