"""The options of `what-if`: strategies, differences, schedules; for a Kafka topic, cleaner
settings.

>>> parse_strategy("keep-n:n=2").settings["n"]
'2'
>>> parse_thresholds("1K,2M")
[1024, 2097152]
>>> parse_trials(["min.cleanable.dirty.ratio=0.1,0.5", "cleanup.policy=compact,delete"])[1]
{'min.cleanable.dirty.ratio': '0.5', 'cleanup.policy': 'compact,delete'}
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from itertools import chain, product
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from ledgerfold.broker.cli.units import (
    parse_count,
    parse_pairs,
    parse_size,
    parse_time_ms,
    settings_of,
)
from ledgerfold.broker.cli.verbs import argument, repeated, together
from ledgerfold.storage.errors import InvalidRequest

if TYPE_CHECKING:
    from ledgerfold.v1.records_pb2 import CompactionStrategy
    from ledgerfold.v1.what_if_pb2 import ReplaySetting

_DIFFERENCES = 20


class Question(NamedTuple):
    """A request to `what-if`. `differences_max` 0: no differences."""

    strategies: list[CompactionStrategy]
    differences_max: int
    replays: list[ReplaySetting]
    trials: list[dict[str, str]]


def parse_thresholds(text: str) -> list[int]:
    return _parsed(text, parse_size)


def parse_intervals(text: str) -> list[int]:
    return _parsed(text, parse_time_ms)


def _parsed(text: str, parse: Callable[[str], int]) -> list[int]:
    values = [parse(each) for each in text.split(",")]
    if 0 in values:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return values


QUESTION = together(
    argument(
        "topic", "NAME, TENANT/NAMESPACE/NAME, or persistent://TENANT/NAMESPACE/NAME", nargs="?"
    ),
    repeated(
        "--strategy NAME[:FIELD=VALUE,...]",
        "a strategy to analyse; may be repeated; default: the topic's own",
    ),
    argument(
        "--diff KEYS",
        f"list up to KEYS keys whose results differ; default {_DIFFERENCES}",
        nargs="?",
        type=parse_count,
        const=_DIFFERENCES,
        default=0,
    ),
    repeated(
        "--threshold SIZE,...",
        "replay the history, with a run whenever the backlog exceeds SIZE",
        type=parse_thresholds,
    ),
    repeated("--every TIME,...", "replay the history, with a run every TIME", type=parse_intervals),
    repeated(
        "--config NAME=VALUE,...",
        "for a Kafka topic: replay its log with each value of a setting, by Kafka's name; may "
        "be repeated, for all combinations",
    ),
)


def question_of(options: argparse.Namespace) -> Question:
    """Returns the request that the options describe. Raises InvalidRequest."""
    from ledgerfold.v1.what_if_pb2 import ReplaySetting

    if options.diff and len(options.strategy) < 2:
        raise InvalidRequest("--diff compares strategies: give --strategy at least twice.")
    thresholds = chain.from_iterable(options.threshold)
    intervals = chain.from_iterable(options.every)
    return Question(
        [parse_strategy(each) for each in options.strategy],
        options.diff,
        [
            *(ReplaySetting(threshold_bytes=each) for each in thresholds),
            *(ReplaySetting(interval_ms=each) for each in intervals),
        ],
        parse_trials(options.config),
    )


def parse_trials(texts: Sequence[str]) -> list[dict[str, str]]:
    """Returns all combinations of the settings' values; a policy is one value. Raises
    InvalidRequest.
    """
    from ledgerfold.broker.whatif.kafka_trials import check_count

    pairs = parse_pairs(
        texts,
        "--config {}: expected NAME=VALUE, or NAME=VALUE,VALUE,...",
        "--config {} is given twice: give its values as one list.",
    )
    values = {
        name: [text] if name == "cleanup.policy" else text.split(",")
        for name, text in pairs.items()
    }
    check_count(prod(map(len, values.values())))
    return [dict(zip(values, each, strict=True)) for each in product(*values.values()) if each]


def parse_strategy(text: str) -> CompactionStrategy:
    """Parses NAME or NAME:field=value,field=value; a user-defined NAME is "module:Class".

    Raises InvalidRequest.
    """
    from ledgerfold.strategies.catalogue import checked
    from ledgerfold.v1.records_pb2 import CompactionStrategy

    name, colon, rest = text.rpartition(":")
    if not colon or "=" not in rest:
        name, rest = text, ""
    settings = settings_of(filter(None, rest.split(",")))
    return checked(CompactionStrategy(name=name, settings=settings))
