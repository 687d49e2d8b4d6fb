"""`compact`: one compaction, in a data directory whose broker is down, or by a broker that runs.

ledgerfold compact --data DIR prices --compactor-type EVENT_TIME
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from ledgerfold.broker.cli.compaction import (
    progress_bar,
    report_nothing_new,
    see_to_its_end,
    show_end,
)
from ledgerfold.broker.cli.connecting import add_name, admin_of, refuse_url
from ledgerfold.broker.cli.emulation import add_emulation_options, emulation_of
from ledgerfold.broker.cli.output import add_answer
from ledgerfold.broker.cli.strategies import (
    add_allow_strategy,
    add_strategy_options,
    allowed_of,
    strategy_of,
)
from ledgerfold.storage.errors import DirectoryLocked, InvalidRequest
from ledgerfold.storage.paths import absolute_path

if TYPE_CHECKING:
    from ledgerfold.broker.ground.settings import BrokerSettings
    from ledgerfold.v1.records_pb2 import CompactionStrategy

_ASK = "Ask the broker that runs: `ledgerfold compact --url HOST:PORT {topic}`; or stop it."


def add_compact(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "compact",
        help="compact a topic once, also without a broker",
        description="Compacts a topic once, and waits for the end: with --data in a directory "
        "whose broker is down, as Pulsar's compact-topic does; without it by the broker at --url.",
    )
    add_name(parser)
    data = "the data directory; no broker may have it open"
    parser.add_argument("--data", type=absolute_path, metavar="DIR", help=data)
    add_answer(parser)
    parser.set_defaults(run=_compact)
    run = parser.add_argument_group("this run alone")
    add_strategy_options(run, "the strategy; default: the one that is set")
    serve = parser.add_argument_group("with --data: what `serve` was told, and no directory keeps")
    worker = "where Spark runs: a worker of its own (default), or the one at HOST:PORT"
    serve.add_argument("--compactor", default="local", metavar="local|HOST:PORT", help=worker)
    serve.add_argument("--spark-master", metavar="MASTER", help="default local[2]")
    keys = "messages without a key survive"
    serve.add_argument("--retain-null-key", action="store_true", help=keys)
    add_allow_strategy(serve.add_argument)
    add_emulation_options(serve)


def _compact(options: argparse.Namespace) -> int:
    strategy = strategy_of(options)
    if options.data is not None:
        refuse_url(options, "--data")
        return _compact_here(options)
    told = (
        options.spark_master,
        options.retain_null_key,
        options.profile,
        options.emulate,
        options.allow_strategy,
    )
    if any(told) or options.compactor != "local":
        raise InvalidRequest("A broker that runs has its own settings; those are for --data.")
    admin = admin_of(options)
    if admin.trigger_compaction(options.topic, strategy=strategy) == 0:
        return report_nothing_new(options)
    return see_to_its_end(options, admin)


def _compact_here(options: argparse.Namespace) -> int:
    from ledgerfold.broker.server.one_run import compact

    def on_waiting(why: str) -> None:
        print(why, file=sys.stderr, flush=True)

    with progress_bar() as show:
        strategy = strategy_of(options)
        try:
            status = compact(
                _settings(options, strategy), options.topic, strategy, show, on_waiting
            )
        except DirectoryLocked as error:
            advice = _ASK.format(topic=options.topic)
            raise DirectoryLocked(error.path, error.owner, advice) from error
    return report_nothing_new(options) if status is None else show_end(options, status)


def _settings(options: argparse.Namespace, strategy: CompactionStrategy | None) -> BrokerSettings:
    """Who names a strategy here also says that it may be loaded: the process is their own."""
    from ledgerfold.broker.ground.settings import BrokerSettings

    named = [] if strategy is None else [strategy.name]
    given = {} if options.spark_master is None else {"spark_master": options.spark_master}
    return BrokerSettings(
        data_dir=options.data,
        compactor=options.compactor,
        retain_null_key=options.retain_null_key,
        allowed_strategies=allowed_of(options, *named),
        emulation=emulation_of(options),
        # What a run ends with is told by its record.
        log_level="ERROR",
        **given,
    )
