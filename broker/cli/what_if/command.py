"""`what-if`: predicts the effect of strategies and schedules, or of a Kafka topic's cleaner
settings. Changes nothing.

    ledgerfold what-if prices --strategy publishing-order --strategy keep-n:n=2 --diff
    ledgerfold what-if prices --threshold 1M,10M --every 1h
    ledgerfold what-if --csv prices.csv --strategy publishing-order --strategy event-time
    ledgerfold what-if addresses --config min.cleanable.dirty.ratio=0.1,0.5,0.9

On a terminal, tables; in a pipe, JSON lines, each with `topic` and `about`: `input`, `strategy`,
`difference`, `differences`, `replay` or `cleaning`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ledgerfold.broker.cli.connecting import admin_of
from ledgerfold.broker.cli.output import ROWS, json_printer, wants_table, width_of
from ledgerfold.broker.cli.tables import Row
from ledgerfold.broker.cli.verbs import Verbs, argument
from ledgerfold.broker.cli.what_if.file import FILE_OPTIONS, ask_about_file, file_of
from ledgerfold.broker.cli.what_if.options import QUESTION, Question, question_of
from ledgerfold.broker.cli.what_if.plot import check_plot, write_plot
from ledgerfold.broker.cli.what_if.rows import (
    cleaning_row,
    compared_names,
    difference_row,
    input_row,
    replay_row,
    strategy_row,
)
from ledgerfold.broker.cli.what_if.tables import print_tables

if TYPE_CHECKING:
    from ledgerfold.v1.what_if_pb2 import TopicWhatIf

COMMANDS = Verbs()


@COMMANDS.verb(
    "what-if",
    "predict the effect of strategies, schedules or settings of Kafka's cleaner",
    QUESTION,
    FILE_OPTIONS,
    description="Analyses a topic or a file, without changes.",
)
@argument("--plot FILE", "draw the results into a .svg, .png or .html file")
@ROWS
def _what_if(options: argparse.Namespace) -> None:
    question = question_of(options)
    if options.plot is not None:
        check_plot(options.plot)
    forecasts = _ask(options, question)
    if options.plot is not None:
        write_plot(options.plot, forecasts)
    if wants_table(options):
        for each in forecasts:
            print_tables(each, width_of(options))
    else:
        with json_printer(options) as show:
            for row in _rows(forecasts):
                show(row)


def _ask(options: argparse.Namespace, question: Question) -> Sequence[TopicWhatIf]:
    file = file_of(options)
    if file is not None:
        about = ask_about_file(
            file,
            question,
            spark_master=options.spark_master,
            retain_null_key=options.retain_null_key,
        )
        return [about]
    with admin_of(options) as admin:
        return admin.what_if(
            options.topic,
            question.strategies,
            differences_max=question.differences_max,
            replays=question.replays,
            trials=question.trials,
        )


def _rows(results: Sequence[TopicWhatIf]) -> Iterator[Row]:
    for each in results:
        topic = {"topic": each.topic}
        yield topic | {"about": "input"} | input_row(each.input)
        for forecast in each.forecasts:
            yield topic | {"about": "strategy"} | strategy_row(forecast)
        names = compared_names(each)
        for difference in each.differences.listed:
            yield topic | {"about": "difference"} | difference_row(difference, names)
        if each.HasField("differences"):
            yield topic | {"about": "differences", "keys": each.differences.keys}
        for replay in each.replays:
            yield topic | {"about": "replay"} | replay_row(replay)
        for cleaning in each.cleanings:
            yield topic | {"about": "cleaning"} | cleaning_row(cleaning)
