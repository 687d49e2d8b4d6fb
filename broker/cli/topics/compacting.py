"""`compact`: one compaction run, in a data directory without a broker, or by a running broker.

ledgerfold compact --data DIR prices --compactor-type EVENT_TIME
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from ledgerfold.broker.cli.connecting import TOPIC, admin_of, refuse_url
from ledgerfold.broker.cli.output import ANSWER
from ledgerfold.broker.cli.topics.compaction import (
    progress_bar,
    report_nothing_new,
    show_end,
    wait_and_report,
)
from ledgerfold.broker.cli.topics.serve_options import (
    ALLOW_STRATEGY,
    EMULATION_OPTIONS,
    allowed_of,
    emulation_of,
    strategy_of,
    strategy_options,
)
from ledgerfold.broker.cli.units import DIR
from ledgerfold.broker.cli.verbs import Verbs, argument, flag, group
from ledgerfold.storage.errors import DirectoryLocked, InvalidRequest

if TYPE_CHECKING:
    from ledgerfold.broker.common.settings import BrokerSettings
    from ledgerfold.v1.records_pb2 import CompactionStrategy

_ASK = "Use the running broker: `ledgerfold compact --url HOST:PORT {topic}`; or stop it."


COMMANDS = Verbs()


@COMMANDS.verb(
    "compact",
    "compact a topic once, with or without a broker",
    TOPIC,
    description="Compacts a topic once and waits until it is done. With --data, compacts in a "
    "directory that no broker has open, as Pulsar's compact-topic. Otherwise the broker compacts.",
)
@argument("--data", "the data directory; no broker may have it open", **DIR)
@ANSWER
@group("for this run only", strategy_options("the strategy; default: the topic's"))
@group(
    "with --data: options of `serve`, which the data directory does not store",
    argument(
        "--compactor auto|spark|inline|HOST:PORT",
        "start a worker, on Spark or inline (default: auto), or use the one at HOST:PORT",
        default="auto",
    ),
    argument("--spark-master MASTER", "default local[2]"),
    flag("--retain-null-key", "retain messages without a key"),
    ALLOW_STRATEGY,
    EMULATION_OPTIONS,
)
def _compact(options: argparse.Namespace) -> int:
    strategy = strategy_of(options)
    if options.data is not None:
        refuse_url(options, "--data")
        return _compact_here(options)
    serve_options = (
        options.spark_master,
        options.retain_null_key,
        options.profile,
        options.emulate,
        options.allow_strategy,
    )
    if any(serve_options) or options.compactor != "auto":
        raise InvalidRequest("These options require --data: a running broker has its own settings.")
    admin = admin_of(options)
    if admin.trigger_compaction(options.topic, strategy=strategy) == 0:
        return report_nothing_new(options)
    return wait_and_report(options, admin)


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
    """Returns the settings of the run. A strategy named on the command line is allowed to be
    loaded.
    """
    from ledgerfold.broker.common.settings import BrokerSettings

    named = [] if strategy is None else [strategy.name]
    spark = {} if options.spark_master is None else {"spark_master": options.spark_master}
    return BrokerSettings(
        data_dir=options.data,
        compactor=options.compactor,
        retain_null_key=options.retain_null_key,
        allowed_strategies=allowed_of(options, *named),
        emulation=emulation_of(options),
        # The run's record reports its result.
        log_level="ERROR",
        **spark,
    )
